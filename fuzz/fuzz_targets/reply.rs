//! What a model says. Input: one byte, how it is cut; then text. However it is cut, the same comes out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use text::reasoning::ReasoningSplitter;
use text::tools::{Event, Grammar};
use text::{Stops, Utf8Stream};

/// The answer to `bytes` that come in pieces of `piece`: the thought, the text, the calls.
fn read(bytes: &[u8], piece: usize, opened: bool) -> (String, String, Vec<(String, String)>) {
    let mut utf8 = Utf8Stream::default();
    let mut stops = Stops::new(vec!["\nUser:".into(), "</stop>".into()]);
    let mut splitter = ReasoningSplitter::new(opened);
    let mut parser = Grammar::Hermes.parser(&[]);
    let mut events = Vec::new();
    let mut hear = |said: Vec<Event>, parser: &mut dyn FnMut(&str) -> Vec<Event>| {
        for event in said {
            match event {
                Event::Text(text) => events.extend(parser(&text)),
                other => events.push(other),
            }
        }
    };
    for part in bytes.chunks(piece) {
        let shown = stops.push(&utf8.push(part));
        hear(splitter.push(&shown.text), &mut |text| parser.push(text));
    }
    let shown = stops.push(&utf8.finish());
    hear(splitter.push(&shown.text), &mut |text| parser.push(text));
    hear(splitter.push(&stops.finish().text), &mut |text| parser.push(text));
    hear(splitter.finish(), &mut |text| parser.push(text));
    events.extend(parser.finish());
    let (mut thought, mut text, mut calls) = (String::new(), String::new(), Vec::new());
    for event in events {
        match event {
            Event::Reasoning(part) => thought.push_str(&part),
            Event::Text(part) => text.push_str(&part),
            Event::ToolCall(call) => {
                let arguments: serde_json::Value = serde_json::from_str(&call.arguments).expect("valid JSON");
                assert!(arguments.is_object() && !call.name.is_empty());
                calls.push((call.name, call.arguments));
            }
        }
    }
    (thought, text, calls)
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let opened = cut & 128 != 0;
    let whole = read(bytes, bytes.len().max(1), opened);
    assert_eq!(whole, read(bytes, usize::from(cut & 127) + 1, opened));
    assert_eq!(whole, read(bytes, 1, opened));
});
