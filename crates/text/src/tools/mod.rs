//! Tool calls in generated text: one incremental parser per grammar, the same for streamed and whole text.

mod hermes;

use base::{Refusal, Result};

pub use hermes::HermesParser;

use crate::chat::Tool;

/// A call that the model made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Name of the function, not empty.
    pub name: String,
    /// A JSON object, always valid.
    pub arguments: String,
}

/// What generated text turns out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Text of the answer.
    Text(String),
    /// Text of the thought before it.
    Reasoning(String),
    /// A whole call.
    ToolCall(ToolCall),
}

/// Finds calls in text. Any cutting of the text into pieces gives the same calls and the same joined text.
/// A malformed or unfinished block is text, whole; nothing is lost but the white space that frames calls.
pub trait ToolParser {
    /// Adds text; gives what is certain now.
    fn push(&mut self, text: &str) -> Vec<Event>;
    /// The text is over; gives the rest.
    fn finish(&mut self) -> Vec<Event>;
}

/// The ways in which models write calls that this engine reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grammar {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>` (Qwen3, Hermes).
    Hermes,
}

impl Grammar {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Grammar::Hermes => "hermes",
        }
    }

    /// A parser for one answer. `tools` are the definitions that the model saw: grammars without types of
    /// their own take them from there.
    pub fn parser(self, _tools: &[Tool]) -> Box<dyn ToolParser + Send> {
        match self {
            Grammar::Hermes => Box::new(HermesParser::new()),
        }
    }
}

/// Marks by which a template shows its grammar; the first that it has decides. Those without a parser are
/// here so that they are refused by their name and not taken for another grammar.
const MARKS: [(&str, &str, Option<Grammar>); 11] = [
    ("<function=", "qwen_xml", None),
    ("<arg_key>", "glm", None),
    ("DSML", "dsml", None),
    ("<｜tool▁call", "deepseek_v31", None),
    ("<|tool_call_begin|>", "kimi_k2", None),
    ("<minimax:tool_call>", "minimax_m2", None),
    ("<|tool_call>", "gemma4", None),
    ("<TOOLCALL>", "nemotron_v2", None),
    ("<|channel|>", "harmony", None),
    ("[TOOL_CALLS]", "mistral", None),
    ("<tool_call>", "hermes", Some(Grammar::Hermes)),
];

/// The grammar that a chat template teaches, by its own marks; `None` if it has none that is read here.
pub fn detect(template_source: &str) -> Option<Grammar> {
    marked(template_source).and_then(|(_, grammar)| grammar)
}

/// As [`detect`], for a request with tools: a grammar that is not read here is refused by name.
pub fn required(template_source: &str) -> Result<Grammar> {
    let (what, why) = match marked(template_source) {
        Some((_, Some(grammar))) => return Ok(grammar),
        Some((name, None)) => {
            (format!("tool calls in the {name} grammar"), "this build has no parser for it")
        }
        None => ("tools".to_string(), "the model's chat template has no known form of tool calls"),
    };
    Err(Refusal::unsupported(what, why, "send no tools, or use another model").into())
}

fn marked(template_source: &str) -> Option<(&'static str, Option<Grammar>)> {
    let mark = MARKS.iter().find(|(mark, ..)| template_source.contains(mark))?;
    Some((mark.1, mark.2))
}

/// Bytes at the end of `text` that begin `tag`, the whole tag excluded.
pub(crate) fn partial_tag(text: &str, tag: &str) -> usize {
    let most = text.len().min(tag.len() - 1);
    let fits = |&n: &usize| text.as_bytes().ends_with(&tag.as_bytes()[..n]);
    (1..=most).rev().find(fits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammars_are_told_apart_by_their_marks() {
        let hermes = r#"<tool_call>\n{\"name\": <function-name>}\n</tool_call>"#;
        assert_eq!(detect(hermes), Some(Grammar::Hermes));
        assert_eq!(detect("<tool_call>\n<function=x>"), None);
        assert_eq!(detect("plain"), None);
        assert_eq!(required(hermes).unwrap().name(), "hermes");
        for (source, name) in [("<tool_call>\n<function=x>", "qwen_xml"), ("<tool_call>f<arg_key>", "glm")] {
            let fault = required(source).unwrap_err().to_string();
            assert!(fault.contains(name), "{fault}");
        }
        assert!(required("plain").unwrap_err().to_string().contains("tools"));
    }

    #[test]
    fn partial_tags_at_the_end() {
        for (text, want) in [("a<th", 3), ("a<", 1), ("<think>", 0), ("", 0), ("é<", 1), ("<<", 1)] {
            assert_eq!(partial_tag(text, "<think>"), want, "{text}");
        }
    }
}
