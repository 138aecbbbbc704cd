//! plan.

use serde_json::json;

use crate::krasis::{Ran, command, copy, krasis, krasis_in, root, text};

/// Runs `krasis plan` on a committed configuration.
fn plan(config: &str, flags: &str) -> Ran {
    let config = testdata::config(config);
    let mut args = vec!["plan", text(&config)];
    args.extend(flags.split_whitespace());
    krasis(&args)
}

#[test]
fn a_bare_configuration_is_planned_to_the_last_byte() {
    let planned = plan("qwen3-30b-a3b", "--vram 12GiB --context 4096 --parallel 2 --json").json();
    let lines = planned["lines"].as_array().unwrap();
    let sum: u64 = lines.iter().map(|l| l["bytes"].as_u64().unwrap()).sum();
    assert_eq!((sum, &planned["capacity"]), (12 << 30, &json!(12u64 << 30)));
    assert_eq!(lines.last().unwrap()["name"], "unused");
    let model = &planned["model"];
    assert_eq!((&model["parameters"], &model["experts"]), (&json!(30_532_122_624u64), &json!(6144)));
    assert_eq!((&model["expert_bytes"], &model["experts_per_token"]), (&json!(2_433_024), &json!(384)));
    assert_eq!((&planned["context"], &planned["parallel"]), (&json!(4096), &json!(2)));
    let capped = plan("qwen3-30b-a3b", "--vram 12GiB --context 4096 --residency 25% --json").json();
    assert_eq!((&capped["slots"]["count"], &capped["resident_fraction"]), (&json!(1536), &json!(0.25)));
}

#[test]
fn a_shorter_pass_leaves_more_for_slots() {
    let of = |flags: &str| plan("qwen3-30b-a3b", &format!("--vram 12GiB {flags} --json")).json();
    let (usual, short) = (of(""), of("--pass 1024"));
    assert_eq!((&usual["pass_rows"], &short["pass_rows"]), (&json!(8192), &json!(1024)));
    let slots = |planned: &serde_json::Value| planned["slots"]["count"].as_u64().unwrap();
    assert!(slots(&usual) < slots(&short));
}

#[test]
fn the_least_that_works_is_told_and_works() {
    let flags = "--context 8192 --chunk 256 --profile small";
    let host = plan("qwen3-coder-next", &format!("{flags} --json")).json();
    assert_eq!((&host["capacity"], &host["slots"]), (&json!(null), &json!(null)));
    let least = host["minimum_bytes"].as_u64().unwrap();
    let of = |bytes: u64| plan("qwen3-coder-next", &format!("{flags} --vram {bytes}"));
    let fits = of(least);
    assert_eq!((fits.code, fits.out.contains(&format!("{least} ("))), (Some(0), true), "{fits:?}");
    let least = least.to_string();
    of(least.parse::<u64>().unwrap() - 1)
        .failed(3, &["vram", "workspace", "two stages of one layer", &least]);
}

#[test]
fn a_folder_needs_no_weights_to_be_planned() {
    let home = tempfile::tempdir().unwrap();
    let model = home.path().join("models/org/small");
    copy(&testdata::fixture("qwen3_next"), &model);
    let whole = krasis_in(home.path(), &["plan", "org/small", "--vram", "20MB", "--json"]).json();
    std::fs::remove_file(model.join("model.safetensors")).unwrap();
    assert_eq!(krasis_in(home.path(), &["plan", "org/small", "--vram", "20MB", "--json"]).json(), whole);
    let bundled = krasis_in(home.path(), &["plan"]);
    assert!(bundled.out.contains("tiny-qwen3-next") && bundled.out.contains("mapped"), "{bundled:?}");
    let dense = plan("dense", "");
    assert!(dense.out.lines().any(|l| l == "experts          none"), "{}", dense.out);
}

#[test]
fn what_cannot_be_planned_is_refused() {
    plan("qwen3-30b-a3b", "--context 40961").failed(3, &["context", "40960"]);
    plan("qwen3-30b-a3b", "--parallel 257").failed(3, &["parallel", "256"]);
    plan("qwen3-30b-a3b", "--parallel 0").failed(3, &["parallel"]);
    plan("qwen3-30b-a3b", "--residency 50%").failed(2, &["--vram"]);
    plan("qwen3-30b-a3b", "--vram 1KB --residency 101%").failed(2, &["0% to 100%"]);
    plan("qwen3-30b-a3b", "--device toaster").failed(2, &["host"]);
    krasis(&["plan", "no-such-model"]).failed(1, &["no-such-model"]);
    krasis(&["plan", text(&root().join("Cargo.toml"))]).failed(1, &["Cargo.toml", "JSON"]);
}

#[test]
fn the_example_in_the_document_is_what_the_program_says() {
    let document = std::fs::read_to_string(root().join("docs/memory.md")).unwrap();
    let mut shown = document.split("```").map(|block| block.trim_start_matches("console\n"));
    let example = shown.find(|block| block.starts_with("$ krasis plan ")).expect("an example");
    let (line, output) = example.split_once('\n').unwrap();
    let args: Vec<_> = line.trim_start_matches("$ krasis ").split_whitespace().collect();
    let ran = command(&args).current_dir(root()).output().unwrap();
    assert_eq!(output, String::from_utf8(ran.stdout).unwrap());
}
