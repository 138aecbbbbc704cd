//! `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.
//!
//! A tag inside a JSON string is part of the string, so that a call may write about calls. Whether it is one
//! shows at the latest when the block's JSON turns out whole or broken; then a broken block becomes text up
//! to its first tag, and reading goes on from there, so that a good call behind a bad one is found.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Event, ToolCall, ToolParser, partial_tag};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Tags inside one JSON string that are believed to be text; it bounds how often text is read again.
const MAX_TAGS_IN_STRING: usize = 64;

/// Incremental parser of one answer.
#[derive(Debug, Clone, Default)]
pub struct HermesParser {
    /// Text not yet decided; begins with `<tool_call>` while `block` is set.
    held: String,
    block: Option<Scan>,
    /// White space that is dropped if a call follows.
    space: String,
    /// Nothing but white space came since the last call.
    after_call: bool,
}

/// How far a block was read.
#[derive(Debug, Clone, Default)]
struct Scan {
    at: usize,
    begun: bool,
    in_string: bool,
    escaped: bool,
    /// The JSON can't become whole any more.
    broken: bool,
    tags: usize,
    /// Where the text of a broken block ends: its first tag inside a string.
    cut: Option<usize>,
}

/// What a block came to.
enum Found {
    /// More text is needed.
    Nothing,
    /// The closing tag: where it begins.
    Close(usize),
    /// Not a call; text up to here.
    Broken(usize),
}

#[derive(Deserialize)]
struct Body<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl HermesParser {
    /// For one answer.
    pub fn new() -> Self {
        Self::default()
    }

    fn run(&mut self, last: bool) -> Vec<Event> {
        let mut events = Vec::new();
        while self.step(last, &mut events) {}
        events
    }

    /// One decision; false when more text is needed.
    fn step(&mut self, last: bool, events: &mut Vec<Event>) -> bool {
        let Some(mut scan) = self.block.take() else {
            return self.step_text(last, events);
        };
        match scan.read(&self.held, last) {
            Found::Nothing => {
                self.block = Some(scan);
                false
            }
            Found::Broken(end) => {
                self.show(end, events);
                true
            }
            Found::Close(at) => {
                let end = at + CLOSE.len();
                match parse(&self.held[OPEN.len()..at]) {
                    Some(call) => {
                        events.push(Event::ToolCall(call));
                        self.held.drain(..end);
                        self.space.clear();
                        self.after_call = true;
                    }
                    None => self.show(scan.cut.unwrap_or(end), events),
                }
                true
            }
        }
    }

    fn step_text(&mut self, last: bool, events: &mut Vec<Event>) -> bool {
        if let Some(at) = self.held.find(OPEN) {
            self.show(at, events);
            self.block = Some(Scan { at: OPEN.len(), ..Scan::default() });
            return true;
        }
        let keep = if last { 0 } else { partial_tag(&self.held, OPEN) };
        self.show(self.held.len() - keep, events);
        false
    }

    /// Gives the first `end` held bytes as text, but for white space that may frame a call.
    fn show(&mut self, end: usize, events: &mut Vec<Event>) {
        self.space.extend(self.held.drain(..end));
        if self.after_call && self.space.trim().is_empty() {
            return;
        }
        let keep = if self.space.ends_with('\n') { 1 } else { 0 };
        let rest = self.space.split_off(self.space.len() - keep);
        let text = std::mem::replace(&mut self.space, rest);
        if !text.is_empty() {
            self.after_call = false;
            events.push(Event::Text(text));
        }
    }
}

impl ToolParser for HermesParser {
    fn push(&mut self, text: &str) -> Vec<Event> {
        self.held.push_str(text);
        self.run(false)
    }

    fn finish(&mut self) -> Vec<Event> {
        let mut events = self.run(true);
        let space = std::mem::take(&mut self.space);
        if !self.after_call && !space.is_empty() {
            events.push(Event::Text(space));
        }
        events
    }
}

impl Scan {
    /// Reads on from where it stopped.
    fn read(&mut self, held: &str, last: bool) -> Found {
        let bytes = held.as_bytes();
        while self.at < bytes.len() {
            let rest = &bytes[self.at..];
            if rest[0] == b'<' {
                if rest.starts_with(CLOSE.as_bytes()) || rest.starts_with(OPEN.as_bytes()) {
                    if let Some(found) = self.tag(rest[1] == b'/') {
                        return found;
                    }
                    continue;
                }
                let unfinished = CLOSE.as_bytes().starts_with(rest) || OPEN.as_bytes().starts_with(rest);
                if unfinished && !last {
                    return Found::Nothing;
                }
            }
            self.byte(rest[0]);
            self.at += 1;
            if let (true, Some(cut)) = (self.broken, self.cut) {
                return Found::Broken(cut);
            }
        }
        if last { Found::Broken(self.cut.unwrap_or(held.len())) } else { Found::Nothing }
    }

    /// Meets a tag: inside a string it is text for now, elsewhere it decides.
    fn tag(&mut self, closes: bool) -> Option<Found> {
        let (start, end) = (self.at, self.at + if closes { CLOSE.len() } else { OPEN.len() });
        if self.in_string && !self.broken && self.tags < MAX_TAGS_IN_STRING {
            self.tags += 1;
            self.cut.get_or_insert(if closes { end } else { start });
            self.escaped = false;
            self.at = end;
            return None;
        }
        Some(match (closes, self.cut) {
            (true, _) => Found::Close(start),
            (false, cut) => Found::Broken(cut.unwrap_or(start)),
        })
    }

    fn byte(&mut self, byte: u8) {
        if !self.begun && !byte.is_ascii_whitespace() {
            self.begun = true;
            self.broken = byte != b'{';
        }
        if !self.in_string {
            self.in_string = byte == b'"';
        } else if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
        } else if byte < 0x20 {
            self.broken = true;
        }
    }
}

/// A call, if the body is one: a name, and arguments that are an object, a string that holds one, or absent.
fn parse(body: &str) -> Option<ToolCall> {
    let body: Body = serde_json::from_str(body.trim()).ok()?;
    if body.name.is_empty() {
        return None;
    }
    let given = body.arguments.map_or("{}", RawValue::get);
    // Parsed in full: the raw text is only checked for its form, not for lone surrogates.
    let arguments = match serde_json::from_str::<Value>(given).ok()? {
        Value::Object(_) => given.to_string(),
        Value::String(inner) => {
            serde_json::from_str::<Map<String, Value>>(&inner).ok()?;
            inner.trim().to_string()
        }
        _ => return None,
    };
    Some(ToolCall { name: body.name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Joined text and calls in order; text events next to each other are one.
    fn events(text: &str, piece: usize) -> Vec<Event> {
        let mut parser = HermesParser::new();
        let chars: Vec<char> = text.chars().collect();
        let mut all: Vec<Event> = Vec::new();
        let mut add = |events: Vec<Event>| {
            for event in events {
                match (all.last_mut(), event) {
                    (Some(Event::Text(before)), Event::Text(more)) => before.push_str(&more),
                    (_, event) => all.push(event),
                }
            }
        };
        for part in chars.chunks(piece) {
            add(parser.push(&part.iter().collect::<String>()));
        }
        add(parser.finish());
        all
    }

    fn text(words: &str) -> Event {
        Event::Text(words.into())
    }

    fn call(name: &str, arguments: &str) -> Event {
        Event::ToolCall(ToolCall { name: name.into(), arguments: arguments.into() })
    }

    const GOOD: &str = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

    fn check(input: &str, want: &[Event]) {
        for piece in [1, 2, 3, 7, 64, 10_000] {
            assert_eq!(events(input, piece), want, "{input:?} in pieces of {piece}");
        }
    }

    #[test]
    fn calls_text_and_the_space_between_them() {
        let f = || call("f", "{\"a\": 1}");
        check(GOOD, &[f()]);
        check(&format!("Hi.\n{GOOD}\n{GOOD}\n"), &[text("Hi."), f(), f()]);
        check(&format!("Hi.\n\n{GOOD}\nDone.\n"), &[text("Hi.\n"), f(), text("\nDone.\n")]);
        check("a < b <tool_cal", &[text("a < b <tool_cal")]);
        check("", &[]);
        check(" \n", &[text(" \n")]);
    }

    #[test]
    fn compact_double_encoded_and_missing_arguments() {
        check("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", &[call("f", "{}")]);
        check(
            "<tool_call>{\"arguments\":\"{\\\"a\\\": 2}\",\"name\":\"f\"}</tool_call>",
            &[call("f", "{\"a\": 2}")],
        );
        check("<tool_call>{\"name\":\"f\"}</tool_call>", &[call("f", "{}")]);
        let large = "{\"n\": 123456789012345678901234567890, \"x\": 1.50}";
        check(
            &format!("<tool_call>{{\"name\":\"f\",\"arguments\":{large}}}</tool_call>"),
            &[call("f", large)],
        );
    }

    #[test]
    fn malformed_blocks_stay_visible_and_good_neighbours_are_delivered() {
        for body in [
            "",
            "\n\n",
            "x",
            "{\"name\": \"\", \"arguments\": {}}",
            "{\"name\": \"f\", \"arguments\": [1]}",
            "{\"name\": \"f\", \"arguments\": {\"a\": NaN}}",
            "{\"name\": \"f\", \"arguments\": {\"a\": Paris}}",
            "{\"name\": \"f\", \"arguments\": {\"a\": \"x}}\n",
            "{\"name\": 3}",
            "{\"name\": \"f\", \"arguments\": {}",
            "{\"name\": \"f\", \"arguments\": \"{\"}",
            "{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud83d\"}}",
        ] {
            let bad = format!("<tool_call>{body}</tool_call>");
            check(&bad, &[text(&bad)]);
            check(&format!("{bad}\n{GOOD}"), &[text(&bad), call("f", "{\"a\": 1}")]);
            check(&format!("{GOOD}\n{bad}"), &[call("f", "{\"a\": 1}"), text(&format!("\n{bad}"))]);
        }
    }

    #[test]
    fn truncated_blocks_stay_visible_and_do_not_hide_a_later_call() {
        for cut in 1..GOOD.len() {
            let (start, _) = GOOD.split_at(cut);
            let shown = if start == "\n" { "" } else { start };
            check(start, &[text(shown)]);
        }
        for broken in
            ["<tool_call>{\"name\": \"f\", ", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"Par"]
        {
            check(&format!("{broken}{GOOD}"), &[text(broken), call("f", "{\"a\": 1}")]);
        }
    }

    #[test]
    fn tags_inside_a_string_belong_to_the_string() {
        let body = "{\"name\": \"w\", \"arguments\": {\"c\": \"use <tool_call>x</tool_call> \\\" so\"}}";
        let want = call("w", "{\"c\": \"use <tool_call>x</tool_call> \\\" so\"}");
        check(&format!("<tool_call>{body}</tool_call>"), &[want]);
    }

    #[test]
    fn hostile_repetition_is_read_in_linear_time() {
        let started = std::time::Instant::now();
        for unit in ["<tool_call>{\"\\\"</tool_call>", "<tool_call>{\"", "<tool_call>", "</tool_call>", "\n"]
        {
            let input = format!("<tool_call>{{\"{}", unit.repeat(20_000));
            let shown: usize = events(&input, input.len())
                .iter()
                .map(|event| match event {
                    Event::Text(text) => text.len(),
                    _ => 0,
                })
                .sum();
            assert_eq!(shown, input.len());
        }
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            parts in proptest::collection::vec(prop_oneof![
                Just(OPEN.to_string()), Just(CLOSE.to_string()),
                Just(GOOD.to_string()), Just("\n".to_string()),
                Just("{\"name\": \"f\", \"arguments\": {\"a\": \"".to_string()), Just("\"}}".to_string()),
                Just("\\".to_string()), "[ -~]{0,6}", ".{0,3}",
            ], 0..10),
            piece in 1usize..9,
        ) {
            let input = parts.concat();
            let whole = events(&input, input.len().max(1));
            prop_assert_eq!(&events(&input, piece), &whole);
            for event in whole {
                if let Event::ToolCall(call) = event {
                    prop_assert!(serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok());
                }
            }
        }
    }
}
