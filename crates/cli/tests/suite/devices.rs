//! The host as a small device: what flags reach, and what is told about it.

use serde_json::Value;

use crate::krasis::{krasis, text};

fn number(json: &Value, path: &str) -> u64 {
    json.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {json}"))
}

#[test]
fn a_small_device_answers_with_the_same_bits_and_says_what_it_moved() {
    let json = |args: &str| {
        let args: Vec<&str> = args.split_whitespace().collect();
        krasis(&[&["run", "Count from 41 to 47.", "--digest", "--json"], &args[..]].concat()).json()
    };
    let host = json("--context 1024");
    assert_eq!((number(&host, "/stats/experts/copies"), &host["stats"]["vram"]), (0, &Value::Null));
    let least = krasis(&["plan", "--context", "1024", "--json"]).json();
    let least = number(&least, "/minimum_bytes");
    let mut moved = Vec::new();
    for device in ["--vram 64MiB", "--vram 64MiB --residency 60", &format!("--vram {least} --threads 1")] {
        let run = json(&format!("--context 1024 {device}"));
        assert_eq!((&run["digest"], &run["token_ids"]), (&host["digest"], &host["token_ids"]), "{device}");
        let of = |key: &str| number(&run, &format!("/stats/experts/{key}"));
        assert_eq!(of("copies"), of("misses") + of("streamed"), "{device}");
        assert_eq!(of("passes"), 1, "{device}");
        moved.push(of("demand_bytes") + of("stream_bytes"));
        let memory = run["stats"]["memory"].as_array().unwrap();
        let bytes = |key: &str| memory.iter().map(|r| number(r, key)).sum::<u64>();
        assert_eq!(bytes("/bytes"), number(&run, "/stats/vram"), "{device}");
        assert!(bytes("/peak_bytes") <= bytes("/bytes"));
    }
    assert!(moved[0] < moved[1] && moved[1] < moved[2], "{moved:?}");
}

#[test]
fn a_device_that_nobody_gave_a_context_gets_one_that_fits() {
    let json = krasis(&["run", "Hi", "--max-tokens", "2", "--vram", "24MiB", "--json"]).json();
    let context = number(&json, "/stats/context");
    assert!((1024..16384).contains(&context), "{context}");
    let args = ["run", "Hi", "--max-tokens", "2", "--vram", "24MiB", "--context", "16384"];
    krasis(&args).failed(3, &["vram", "state", "workspace", "two stages of one layer", "total"]);
    krasis(&["run", "Hi", "--vram", "2MiB"]).failed(3, &["vram: 2097152 bytes", "at least", "weights"]);
}

#[test]
fn a_comparison_on_a_small_device_is_the_same_comparison() {
    let folder = testdata::fixture("qwen3_next");
    let host = krasis(&["compare", text(&folder), "--json"]).json();
    let device = krasis(&["compare", text(&folder), "--vram", "24MiB", "--residency", "50", "--json"]).json();
    assert_eq!(host, device);
}

#[test]
fn a_bench_of_a_small_device_tells_hits_bytes_and_regions() {
    let bench = |flags: &str| {
        let flags: Vec<&str> = flags.split_whitespace().collect();
        krasis(&[&["bench", "--prompt", "60", "--decode", "12", "--context", "512"], &flags[..]].concat())
    };
    let host = bench("--json").json();
    assert_eq!((&host["hit_rate"], &host["slot_fraction"]), (&1.0.into(), &1.0.into()));
    let json = bench("--vram 48MiB --residency 60 --json").json();
    let hit_rate = json["hit_rate"].as_f64().unwrap();
    assert!(hit_rate > 0.0 && hit_rate < 1.0, "{hit_rate}");
    assert!((json["slot_fraction"].as_f64().unwrap() - 0.6).abs() < 0.02, "{}", json["slot_fraction"]);
    let (hits, misses) = (number(&json, "/decode/experts/hits"), number(&json, "/decode/experts/misses"));
    assert_eq!(hit_rate, hits as f64 / (hits + misses) as f64);
    assert!(number(&json, "/prefill/experts/stream_bytes") > 0);
    let people = bench("--vram 48MiB --residency 60");
    for part in ["hit rate", "in prefill", "slots", "in use at most"] {
        assert!(people.out.contains(part), "{part} is not in {}", people.out);
    }
}

#[test]
fn statistics_for_people_tell_of_the_device() {
    let ran = krasis(&["run", "Hi", "--max-tokens", "4", "--vram", "24MiB", "--context", "1024", "--stats"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for part in ["device of 24.0 MiB", "hits", "misses", "streamed", "evictions", "workspace"] {
        assert!(ran.err.contains(part), "{part} is not in {}", ran.err);
    }
}

#[test]
fn a_device_larger_than_the_memory_is_refused() {
    krasis(&["run", "Hi", "--vram", "900TB"]).failed(3, &["vram", "818.5 TiB", "memory that is free"]);
}
