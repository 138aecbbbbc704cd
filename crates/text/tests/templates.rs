//! Published chat templates against the text that transformers gives.

mod common;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use text::{Conversation, Specials, Template, tools};

/// Cases (template × conversation) that give the expected text, byte for byte, or the expected refusal.
/// Raise it when more pass; it must not fall.
const PASSING: usize = 638;

/// 2026-01-15 12:34:56 UTC.
const NOW: i64 = 1_768_480_496;

/// Templates without which the models of the first release can't be used.
const REQUIRED: [&str; 5] =
    ["qwen3", "qwen3-r2", "qwen3-2507-instruct", "qwen3-coder", "qwen3-generation-tags"];

fn conversation(case: &Value) -> Conversation {
    let get = |name: &str| case.get(name).cloned().unwrap_or_default();
    Conversation {
        messages: serde_json::from_value(get("messages")).unwrap(),
        tools: serde_json::from_value(get("tools")).unwrap(),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
        enable_thinking: None,
        extra: serde_json::from_value(get("template_kwargs")).unwrap(),
        continue_final: case["continue_final_message"].as_bool().unwrap_or(false),
    }
}

fn template(folder: &Path, family: &str, facts: &Value) -> base::Result<Template> {
    let source = std::fs::read_to_string(folder.join(format!("templates/{family}.jinja"))).unwrap();
    let variables: Vec<(String, String)> = facts["special_tokens"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, text)| (name.clone(), text.as_str().unwrap().to_string()))
        .collect();
    let spellings = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"].map(str::to_string);
    let spellings = spellings.into_iter().chain(variables.iter().map(|(_, text)| text.clone())).collect();
    let template = Template::new(&source, &Specials { spellings, variables })?;
    Ok(template.with_clock(Arc::new(|| NOW)))
}

/// Every published template: its name, the facts about it, and itself.
fn templates(folder: &Path) -> Vec<(String, Value, Template)> {
    let families = common::json(&folder.join("templates/families.json"));
    let published = families.as_object().unwrap().iter();
    let published = published.filter(|(family, _)| folder.join(format!("templates/{family}.jinja")).exists());
    published
        .map(|(family, facts)| (family.clone(), facts.clone(), template(folder, family, facts).unwrap()))
        .collect()
}

/// `None` if the case passes, else what is wrong.
fn outcome(expected: &Path, case: &Value, template: &Template) -> Option<String> {
    let name = case["name"].as_str().unwrap();
    let got = template.render_as_given(&conversation(case)).map(|prompt| prompt.text);
    let refusal = expected.join(format!("{name}.error"));
    if refusal.exists() {
        let want = common::json(&refusal);
        return match got {
            Ok(_) => Some(format!("should fail: {}", want["message"])),
            Err(fault) if want["raise_exception"] == true => {
                let words = want["message"].as_str().unwrap();
                (!fault.to_string().contains(words)).then(|| format!("{fault}, not {words}"))
            }
            Err(_) => None,
        };
    }
    // Where a template needs what transformers forbids, the text without that ban is no target either.
    let want = std::fs::read_to_string(expected.join(format!("{name}.txt"))).unwrap();
    match got {
        Ok(text) if text == want => None,
        Ok(text) => {
            let at = text.bytes().zip(want.bytes()).take_while(|(a, b)| a == b).count();
            let around = |text: &str| {
                let bytes = &text.as_bytes()[at.saturating_sub(20)..(at + 60).min(text.len())];
                String::from_utf8_lossy(bytes).into_owned()
            };
            Some(format!("at byte {at}: {:?}, not {:?}", around(&text), around(&want)))
        }
        Err(fault) => Some(fault.to_string()),
    }
}

#[test]
fn templates_give_the_text_of_transformers() {
    let Some(folder) = common::data("chat") else { return };
    let cases = common::json(&folder.join("cases.json"));
    let (mut passed, mut all, mut required) = (0, 0, Vec::new());
    for (family, _, template) in templates(&folder) {
        for case in cases.as_array().unwrap() {
            all += 1;
            match outcome(&folder.join("expected").join(&family), case, &template) {
                None => passed += 1,
                Some(wrong) => {
                    let line = format!("{family}/{}: {wrong}", case["name"].as_str().unwrap());
                    println!("{line}");
                    required.extend(REQUIRED.contains(&family.as_str()).then_some(line));
                }
            }
        }
    }
    println!("{passed} of {all} template cases pass");
    assert!(required.is_empty(), "{required:#?}");
    assert!(passed >= PASSING, "{passed} of {all} pass, {PASSING} did before");
}

/// What the product renders is the reference's text wherever the reference gives one.
#[test]
fn normalising_changes_nothing_that_works() {
    let Some(folder) = common::data("chat") else { return };
    let cases = common::json(&folder.join("cases.json"));
    for (_, _, template) in templates(&folder) {
        for case in cases.as_array().unwrap() {
            let conversation = conversation(case);
            if let Ok(given) = template.render_as_given(&conversation) {
                let normal = template.render(&conversation).unwrap();
                assert_eq!(normal.text, given.text, "{}", case["name"]);
            }
        }
    }
}

/// Grammars are told by a template's own marks; those without a parser are refused by name.
#[test]
fn grammars_are_detected_from_real_templates() {
    let Some(folder) = common::data("chat") else { return };
    let mut seen = 0;
    for (family, facts, template) in templates(&folder) {
        let Some(want) = facts["toolcall_grammar"].as_str() else { continue };
        let source = template.source(true);
        // Their syntax is that of qwen_xml; both versions of DSML have the same marks.
        let name = match want {
            "step" | "nemotron3" => "qwen_xml",
            "dsml_v32" | "dsml_v4" => "dsml",
            other => other,
        };
        seen += 1;
        match tools::detect(source) {
            Some(grammar) => assert_eq!(grammar.name(), want, "{family}"),
            None => {
                let fault = tools::required(source).unwrap_err().to_string();
                assert!(fault.contains(name) && want != "hermes", "{family}: {fault}, not {name}");
            }
        }
    }
    assert!(seen >= 25, "{seen} templates");
}

/// A schema of the given depth with objects, enums, patterns and long limits.
fn schema(depth: usize) -> Value {
    if depth == 0 {
        return json!({"type": "string", "pattern": "^(a|b)+$", "maxLength": 100_000, "enum": ["a", "b"]});
    }
    json!({"type": "object", "description": "nested | more", "required": ["first"], "properties": {
        "first": schema(depth - 1), "second": {"type": "array", "items": schema(depth - 1)}}})
}

/// Clients send dozens of nested tools; a template that takes a small tool takes them too, in time.
#[test]
fn large_nested_tool_sets_render() {
    let Some(folder) = common::data("chat") else { return };
    let tool = |index: usize, depth: usize| {
        json!({"type": "function", "function": {"name": format!("tool_{index}"), "description": "Does it.",
            "parameters": schema(depth)}})
    };
    let asked = |tools: Vec<Value>| Conversation {
        messages: vec![text::chat::Message::text("user", "Hi")],
        tools: serde_json::from_value(json!(tools)).unwrap(),
        add_generation_prompt: true,
        ..Conversation::default()
    };
    let large = asked((0..32).map(|index| tool(index, 6)).collect());
    for (family, _, template) in templates(&folder) {
        let (small, large) = (template.render(&asked(vec![tool(0, 1)])), template.render(&large));
        let shows = small.is_ok_and(|prompt| prompt.text.contains("tool_0"));
        let all = large.is_ok_and(|prompt| prompt.text.contains("tool_31"));
        assert_eq!(shows, all, "{family}");
    }
}
