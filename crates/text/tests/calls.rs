//! Recorded answers with tool calls: the same outcome whole and in pieces of any size.

mod common;

use serde_json::{Map, Value};
use text::reasoning::ReasoningSplitter;
use text::tools::{Event, Grammar};

#[derive(Debug, Default)]
struct Outcome {
    content: String,
    reasoning: String,
    calls: Vec<(String, Value)>,
}

/// Runs `text` through reasoning and tool parser in pieces of `piece` characters.
fn read(grammar: Grammar, text: &str, opened: bool, piece: usize) -> Outcome {
    let (mut splitter, mut parser) = (ReasoningSplitter::new(opened), grammar.parser(&[]));
    let mut outcome = Outcome::default();
    let mut take = |events: Vec<Event>, parser: Option<&mut Box<dyn text::tools::ToolParser + Send>>| {
        let mut parser = parser;
        for event in events {
            let events = match (event, &mut parser) {
                (Event::Text(text), Some(parser)) => parser.push(&text),
                (event, _) => vec![event],
            };
            for event in events {
                match event {
                    Event::Text(text) => outcome.content.push_str(&text),
                    Event::Reasoning(text) => outcome.reasoning.push_str(&text),
                    Event::ToolCall(call) => {
                        let arguments: Map<String, Value> = serde_json::from_str(&call.arguments).unwrap();
                        outcome.calls.push((call.name, Value::Object(arguments)));
                    }
                }
            }
        }
    };
    let chars: Vec<char> = text.chars().collect();
    for part in chars.chunks(piece) {
        take(splitter.push(&part.iter().collect::<String>()), Some(&mut parser));
    }
    take(splitter.finish(), Some(&mut parser));
    take(parser.finish(), None);
    outcome
}

fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// JSON values, 1.0 equal to 1.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn meets(outcome: &Outcome, want: &Value) -> bool {
    let text = |name: &str| collapsed(want[name].as_str().unwrap_or(""));
    let calls = want["tool_calls"].as_array().unwrap();
    collapsed(&outcome.content) == text("content")
        && collapsed(&outcome.reasoning) == text("reasoning")
        && outcome.calls.len() == calls.len()
        && outcome.calls.iter().zip(calls).all(|((name, arguments), want)| {
            want["name"] == name.as_str() && same(arguments, &want["arguments"])
        })
}

#[test]
fn recorded_answers_are_read_as_expected_in_any_pieces() {
    let Some(path) = common::data("chat/toolcalls.jsonl") else { return };
    let records = std::fs::read_to_string(path).unwrap();
    let records = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut count = 0;
    for record in records.filter(|record| record["family"] == "hermes") {
        count += 1;
        let (text, opened) = (record["text"].as_str().unwrap(), record["prompt_opens_think"] == true);
        let accepted: Vec<&Value> = std::iter::once(&record["expect"])
            .chain(record["accept"].as_array().into_iter().flatten())
            .collect();
        for piece in [1, 3, 7, 64, text.len()] {
            let outcome = read(Grammar::Hermes, text, opened, piece);
            let met = accepted.iter().any(|want| meets(&outcome, want));
            assert!(met, "{} in pieces of {piece}: {outcome:?}", record["id"]);
        }
    }
    assert_eq!(count, 20, "records of the hermes grammar");
}
