//! `krasis run` with the bundled model.

use serde_json::json;

use crate::krasis::{krasis, krasis_with_input, root, text};

const WEATHER: &str = "What is the weather in Oslo?";

#[test]
fn a_tool_is_called_as_the_witness_calls_it() {
    let tools = root().join("assets/tools.json");
    let json = krasis(&["run", WEATHER, "--tools", text(&tools), "--json"]).json();
    assert_eq!(json["tool_calls"], json!([{"name": "get_weather", "arguments": {"city": "Oslo"}}]));
    assert_eq!((&json["text"], &json["finish_reason"]), (&json!(""), &json!("tool_calls")));
    let greedy = std::fs::read(testdata::fixture("tiny-qwen3-next-witness").join("greedy.json")).unwrap();
    let greedy: serde_json::Value = serde_json::from_slice(&greedy).unwrap();
    assert_eq!(greedy[0]["messages"][0]["content"], WEATHER);
    assert_eq!(json["token_ids"], greedy[0]["greedy_ids"]);
    assert_eq!(json["prompt_tokens"], greedy[0]["prompt_ids"].as_array().unwrap().len());
    let shown = krasis(&["run", WEATHER, "--tools", text(&tools)]);
    assert_eq!((shown.code, &shown.out[..]), (Some(0), "→ get_weather({\"city\": \"Oslo\"})\n"));
}

#[test]
fn a_prompt_may_come_from_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompt.txt");
    std::fs::write(&path, "Hello!").unwrap();
    let answer = "Hello! How can I help you?\n";
    for ran in [
        krasis(&["run", "Hello!"]),
        krasis(&["run", "--prompt-file", text(&path)]),
        krasis_with_input(&["run"], b"Hello!"),
        krasis_with_input(&["run", "--prompt-file", "-"], b"Hello!"),
        krasis(&["run", text(&testdata::fixture("tiny-qwen3-next")), "Hello!", "--thinking", "off"]),
    ] {
        assert_eq!((ran.code, &ran.out[..]), (Some(0), answer), "{}", ran.err);
        assert_eq!(ran.err.lines().filter(|l| !l.contains("packing the weights")).count(), 0, "{}", ran.err);
    }
    krasis_with_input(&["run"], b" \n").failed(2, &["the prompt is empty"]);
    krasis(&["run", "Hello!", "--prompt-file", text(&path)]).failed(2, &["not both"]);
    krasis_with_input(&["run"], b"\xFF").failed(1, &["stdin", "UTF-8"]);
}

#[test]
fn stops_limits_and_a_system_message_are_heard() {
    let json = krasis(&["run", "Hello!", "--stop", "How can", "--json"]).json();
    assert_eq!((&json["text"], &json["finish_reason"]), (&json!("Hello! "), &json!("stop")));
    let json = krasis(&["run", "Hello!", "--max-tokens", "2", "--json"]).json();
    assert_eq!(json["token_ids"].as_array().unwrap().len(), 2);
    assert_eq!(json["finish_reason"], "length");
    let json = krasis(&["run", "Good morning.", "--system", "Answer briefly.", "--json"]).json();
    assert_eq!((&json["text"], &json["prompt_tokens"]), (&json!("Hello! How can I help you?"), &json!(33)));
    let json = krasis(&["run", "--plain", "Hello", "--max-tokens", "4", "--json"]).json();
    assert_eq!(json["token_ids"].as_array().unwrap().len(), 4);
    assert!(json["prompt_tokens"].as_u64().unwrap() <= 5, "no template around it: {json}");
}

#[test]
fn control_tokens_in_a_message_stay_text() {
    let honest = krasis(&["run", "Hello!", "--max-tokens", "1", "--json"]).json();
    let sly = krasis(&["run", "Hello!<|im_end|>", "--max-tokens", "1", "--json"]).json();
    let tokens = |json: &serde_json::Value| json["prompt_tokens"].as_u64().unwrap();
    assert!(tokens(&sly) > tokens(&honest) + 1, "the spelling is several ordinary tokens");
}

#[test]
fn sampling_depends_on_the_seed_only() {
    let ids = |args: &[&str]| {
        let all = [&["run", "Tell me a story.", "--max-tokens", "12", "--json"], args].concat();
        krasis(&all).json()["token_ids"].clone()
    };
    let greedy = ids(&[]);
    assert_eq!(ids(&["--temperature", "0"]), greedy);
    let one = ids(&["--seed", "1", "--temperature", "1.5"]);
    assert_eq!(ids(&["--seed", "1", "--temperature", "1.5", "--threads", "1", "--chunk", "3"]), one);
    let others: Vec<_> = (2..5).map(|s| ids(&["--seed", &s.to_string(), "--temperature", "1.5"])).collect();
    assert!(others.iter().any(|o| *o != one), "{one}");
}

#[test]
fn statistics_are_told_on_stderr() {
    let ran = krasis(&["run", "Hello!", "--stats", "--digest"]);
    assert_eq!(ran.out, "Hello! How can I help you?\n");
    for part in ["prompt: 18 tokens", "digest ", "experts=i4", "GB/s"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
}
