//! What MODEL, PROMPT, `--prompt-file` and stdin together mean.

use std::io::{IsTerminal, Read, stdin};
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::{FileFault, Refusal, WorldError};
use text::chat::{MAX_CHAT_BYTES, Tool};

use super::RunArgs;
use crate::exit::usage;
use crate::home;
use crate::output::note;

/// A model (none: the bundled one) and what to do with it.
#[derive(Debug, PartialEq, Eq)]
pub struct Ask {
    pub model: Option<PathBuf>,
    pub source: Source,
}

/// Where messages come from.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    /// This text, once.
    Prompt(String),
    /// Lines of a terminal.
    Chat,
}

/// Reads the arguments. Errors: a first argument of two that is no model, two prompts, an empty prompt, a
/// file that can't be read.
pub fn ask(args: &RunArgs) -> Result<Ask> {
    let (model, prompt) = match (&args.model, &args.prompt) {
        (Some(model), Some(prompt)) => (Some(home::required_model(model)?), Some(prompt.clone())),
        (Some(first), None) => match home::find_model(first)? {
            Some(folder) => (Some(folder), None),
            None => {
                if looks_like_a_path(first) {
                    note(&format!("{first} is no model folder: taken as the prompt for the bundled model"));
                }
                (None, Some(first.clone()))
            }
        },
        (None, _) => (None, None),
    };
    let source = match (prompt, &args.prompt_file) {
        (Some(_), Some(_)) => return Err(usage("give a prompt or --prompt-file, not both")),
        (Some(prompt), None) => Source::Prompt(prompt),
        (None, Some(path)) if path.as_os_str() == "-" => Source::Prompt(read_stdin()?),
        (None, Some(path)) => Source::Prompt(read_file(path)?),
        (None, None) if stdin().is_terminal() => Source::Chat,
        (None, None) => Source::Prompt(read_stdin()?),
    };
    match source {
        Source::Prompt(text) if text.trim().is_empty() => {
            Err(usage("the prompt is empty: give some text, or run in a terminal to chat"))
        }
        source => Ok(Ask { model, source }),
    }
}

fn looks_like_a_path(text: &str) -> bool {
    let starts = ["/", "./", "../", "~/"].iter().any(|p| text.starts_with(p));
    starts && !text.contains(char::is_whitespace)
}

fn read_stdin() -> Result<String> {
    read(stdin().lock(), Path::new("stdin"))
}

fn read_file(path: &Path) -> Result<String> {
    read(std::fs::File::open(path).map_err(|e| WorldError::io("open", path, e))?, path)
}

/// Reads UTF-8 text up to the limit for conversations.
fn read(from: impl Read, path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_CHAT_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|e| WorldError::io("read", path, e))?;
    if bytes.len() > MAX_CHAT_BYTES {
        let limit = format!("at most {MAX_CHAT_BYTES} bytes");
        return Err(Refusal::value("prompt", path.display(), limit, "shorten it").into());
    }
    let bad = |e: std::string::FromUtf8Error| {
        let at = e.utf8_error().valid_up_to();
        WorldError::damaged(path, FileFault::BadText, "UTF-8 text", format!("another byte at {at}"))
    };
    Ok(String::from_utf8(bytes).map_err(bad)?)
}

/// Reads tool definitions: a JSON list.
pub fn tools(path: &Path) -> Result<Vec<Tool>> {
    let text = read_file(path)?;
    let bad = |e| {
        let expected = "a JSON list of tool definitions";
        WorldError::damaged(path, FileFault::BadText, expected, e)
    };
    Ok(serde_json::from_str(&text).map_err(bad)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_from_paths() {
        for (text, path) in [("./model", true), ("/a/b", true), ("hello", false), ("/ is the root", false)] {
            assert_eq!(looks_like_a_path(text), path, "{text}");
        }
    }

    #[test]
    fn prompts_are_text_within_limits() {
        assert_eq!(read(&b"a\xC3\xA9"[..], Path::new("f")).unwrap(), "aé");
        let error = read(&b"ab\xFF"[..], Path::new("f")).unwrap_err().to_string();
        assert!(error.contains("byte at 2"), "{error}");
        assert!(read(std::io::repeat(b'x'), Path::new("f")).is_err());
    }
}
