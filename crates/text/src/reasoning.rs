//! The thought before an answer: `<think>…</think>`, split off incrementally.

use crate::tools::{Event, partial_tag};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Whether a template knows thoughts of this form.
pub fn detect(template_source: &str) -> bool {
    template_source.contains(CLOSE)
}

/// Whether a prompt ends inside a thought, so that the answer begins with it.
pub fn opened_by(prompt: &str) -> bool {
    prompt.trim_end().ends_with(OPEN)
}

/// Splits one answer. Newlines around the thought are dropped, as Qwen3's template does with its history.
/// A `<think>` that is not at the very beginning is text.
#[derive(Debug, Clone)]
pub struct ReasoningSplitter {
    held: String,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before anything but white space.
    Start,
    /// Inside the thought, before its first character.
    ThoughtStart,
    /// Inside the thought.
    Thought,
    /// Behind the thought, before the answer's first character.
    AnswerStart,
    /// In the answer.
    Answer,
}

impl ReasoningSplitter {
    /// `opened`: the prompt ends with `<think>` already.
    pub fn new(opened: bool) -> Self {
        let place = if opened { Place::ThoughtStart } else { Place::Start };
        ReasoningSplitter { held: String::new(), place }
    }

    /// Adds text; gives what is certain now.
    pub fn push(&mut self, text: &str) -> Vec<Event> {
        self.held.push_str(text);
        let mut events = Vec::new();
        while self.step(&mut events) {}
        events
    }

    /// The text is over: what is held is what it looks like, an unclosed thought stays a thought.
    pub fn finish(&mut self) -> Vec<Event> {
        let rest = std::mem::take(&mut self.held);
        let event = match self.place {
            Place::ThoughtStart | Place::Thought => Event::Reasoning(rest.clone()),
            Place::Start | Place::AnswerStart | Place::Answer => Event::Text(rest.clone()),
        };
        if rest.is_empty() { Vec::new() } else { vec![event] }
    }

    /// One decision; false when more text is needed.
    fn step(&mut self, events: &mut Vec<Event>) -> bool {
        match self.place {
            Place::Start => {
                let begun = self.held.trim_start();
                if let Some(rest) = begun.strip_prefix(OPEN) {
                    self.held = rest.to_string();
                    self.place = Place::ThoughtStart;
                } else if OPEN.starts_with(begun) {
                    return false;
                } else {
                    self.place = Place::Answer;
                }
            }
            Place::ThoughtStart | Place::AnswerStart => {
                let newlines = self.held.len() - self.held.trim_start_matches('\n').len();
                self.held.drain(..newlines);
                if self.held.is_empty() {
                    return false;
                }
                let inside = self.place == Place::ThoughtStart;
                self.place = if inside { Place::Thought } else { Place::Answer };
            }
            Place::Thought => return self.step_thought(events),
            Place::Answer => {
                if !self.held.is_empty() {
                    events.push(Event::Text(std::mem::take(&mut self.held)));
                }
                return false;
            }
        }
        true
    }

    fn step_thought(&mut self, events: &mut Vec<Event>) -> bool {
        let close = self.held.find(CLOSE);
        let end = close.unwrap_or_else(|| self.held.len() - partial_tag(&self.held, CLOSE));
        let shown = self.held[..end].trim_end_matches('\n').len();
        if shown > 0 {
            events.push(Event::Reasoning(self.held[..shown].to_string()));
        }
        match close {
            Some(at) => {
                self.held.drain(..at + CLOSE.len());
                self.place = Place::AnswerStart;
                true
            }
            None => {
                self.held.drain(..shown);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Joined reasoning and joined text.
    fn split(text: &str, opened: bool, piece: usize) -> (String, String) {
        let mut splitter = ReasoningSplitter::new(opened);
        let chars: Vec<char> = text.chars().collect();
        let mut events: Vec<Event> =
            chars.chunks(piece).flat_map(|part| splitter.push(&part.iter().collect::<String>())).collect();
        events.extend(splitter.finish());
        let mut joined = (String::new(), String::new());
        for event in events {
            match event {
                Event::Reasoning(text) => joined.0.push_str(&text),
                Event::Text(text) => joined.1.push_str(&text),
                Event::ToolCall(call) => panic!("{call:?}"),
            }
        }
        joined
    }

    #[test]
    fn thoughts_and_answers_in_any_pieces() {
        for (text, opened, reasoning, answer) in [
            ("<think>x</think>y", false, "x", "y"),
            ("\n<think>\na\n\nb\n</think>\n\nHello.\n", false, "a\n\nb", "Hello.\n"),
            ("<think>\n\n</think>\n\nHi", false, "", "Hi"),
            ("weigh\n</think>\n\nHi", true, "weigh", "Hi"),
            ("r</think>The tag <think> starts a thought.", true, "r", "The tag <think> starts a thought."),
            ("no thought </think> here", false, "", "no thought </think> here"),
            ("still thinking\n", true, "still thinking\n", ""),
            ("cut </thi", true, "cut </thi", ""),
            ("  <thin", false, "", "  <thin"),
            ("  plain", false, "", "  plain"),
            ("a</think>b</think>c", true, "a", "b</think>c"),
            ("", true, "", ""),
        ] {
            for piece in [1, 2, 3, 7, 1000] {
                assert_eq!(
                    split(text, opened, piece),
                    (reasoning.into(), answer.into()),
                    "{text:?} by {piece}"
                );
            }
        }
    }

    #[test]
    fn an_opened_thought_is_seen_in_the_prompt() {
        assert!(opened_by("<|im_start|>assistant\n<think>\n"));
        assert!(!opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        assert!(detect("{{ '<think>' }}{{ '</think>' }}") && !detect("plain"));
    }

    proptest! {
        #[test]
        fn any_chunking_splits_at_the_same_place(
            text in "(<think>|</think>|\n|<|th|[a-c ]){0,12}", opened: bool, piece in 1usize..6
        ) {
            prop_assert_eq!(split(&text, opened, piece), split(&text, opened, text.len().max(1)));
        }
    }
}
