//! Text in windows: every window starts from an empty state, and every token but its first is scored.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use base::{Refusal, Result, WorldError};
use engine::{Engine, Wanted};
use text::{Rendered, Tokenizer};

use crate::numbers::{Mean, nll};

/// Largest text file that is read.
pub const MAX_TEXT_BYTES: u64 = 64 << 20;

/// How a text is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Windows from the start of the text, without overlap.
    pub count: usize,
    /// Tokens of each.
    pub tokens: usize,
}

impl Windows {
    /// Three of 1,024 tokens.
    pub const STANDARD: Windows = Windows { count: 3, tokens: 1024 };

    /// Tokens that are scored in all windows.
    pub fn scored(self) -> usize {
        self.count * (self.tokens - 1)
    }

    /// The windows of `ids`. Errors: the text is too short.
    pub fn cut<'a>(self, name: &str, ids: &'a [u32]) -> Result<impl Iterator<Item = &'a [u32]>, Refusal> {
        let needed = self.count * self.tokens;
        if ids.len() < needed {
            let limit = format!("at least {needed} tokens for {} windows of {}", self.count, self.tokens);
            return Err(Refusal::value(name, format!("{} tokens", ids.len()), limit, "give a longer text"));
        }
        Ok(ids[..needed].chunks_exact(self.tokens))
    }
}

/// The file of a kind of text: `DIR/ppl/KIND.txt` or `DIR/KIND.txt`.
pub fn text_path(folder: &Path, kind: &str) -> PathBuf {
    let below = folder.join("ppl").join(format!("{kind}.txt"));
    if below.is_file() { below } else { folder.join(format!("{kind}.txt")) }
}

/// Reads a text file as UTF-8. Errors: not there, too large, other bytes.
pub fn read_text(path: &Path) -> Result<String> {
    use std::io::Read;
    let io = |e| WorldError::io("read", path, e);
    let file = std::fs::File::open(path).map_err(io)?;
    let mut text = String::new();
    file.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        let limit = format!("at most {MAX_TEXT_BYTES} bytes");
        return Err(Refusal::value("text", path.display(), limit, "give a part of it").into());
    }
    Ok(text)
}

/// Ids of the beginning of a kind's text, enough for `windows` if it is long enough. As witnesses read such
/// files: every line ends with `\n`, and the text is trusted, so spellings of control tokens are control
/// tokens.
pub fn kind_ids(tokenizer: &Tokenizer, folder: &Path, kind: &str, windows: Windows) -> Result<Vec<u32>> {
    let text = read_text(&text_path(folder, kind))?.replace("\r\n", "\n").replace('\r', "\n");
    let mut ids = tokenizer.encode_prompt(&Rendered { text, guarded: Vec::new() })?;
    ids.truncate(windows.count * windows.tokens);
    Ok(ids)
}

/// Sum and mean of the negative log-likelihood of `ids`, in nats.
pub fn score(
    engine: &mut Engine,
    name: &str,
    ids: &[u32],
    windows: Windows,
    cancel: &AtomicBool,
) -> Result<Mean> {
    let mut mean = Mean::default();
    for window in windows.cut(name, ids)? {
        let seq = engine.begin()?;
        let done = engine.prefill(seq, window, Wanted::All, cancel, &mut |_, position, logits| {
            if let Some(&next) = window.get(position + 1) {
                mean.add(nll(logits, next));
            }
            Ok(())
        });
        engine.end(seq);
        done?;
    }
    Ok(mean)
}

/// Perplexity of a mean negative log-likelihood.
pub fn perplexity(mean: &Mean) -> f64 {
    libm::exp(mean.value().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_do_not_overlap_and_short_texts_are_refused() {
        let ids: Vec<u32> = (0..10).collect();
        let windows = Windows { count: 2, tokens: 4 };
        assert_eq!(windows.scored(), 6);
        let cut: Vec<_> = windows.cut("x", &ids).unwrap().collect();
        assert_eq!(cut, [[0, 1, 2, 3], [4, 5, 6, 7]]);
        let error = windows.cut("x", &ids[..7]).err().unwrap().to_string();
        assert!(error.contains("7 tokens") && error.contains("8 tokens"), "{error}");
    }

    #[test]
    fn trusted_text_has_control_tokens_and_plain_line_ends() {
        let tokenizer = Tokenizer::open(&testdata::fixture("tiny-qwen3-next")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ids = |text: &str| {
            std::fs::write(folder.path().join("a.txt"), text).unwrap();
            kind_ids(&tokenizer, folder.path(), "a", Windows::STANDARD).unwrap()
        };
        let end = tokenizer.id_of("<|im_end|>").unwrap();
        assert_eq!(ids("a\r\nb<|im_end|>"), [tokenizer.encode("a\nb").unwrap(), vec![end]].concat());
        assert_eq!(ids(&"word ".repeat(9000)).len(), 3 * 1024);
    }

    #[test]
    fn text_is_found_in_both_places_and_capped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "A").unwrap();
        std::fs::create_dir(folder.path().join("ppl")).unwrap();
        std::fs::write(folder.path().join("ppl/b.txt"), "B").unwrap();
        for (kind, text) in [("a", "A"), ("b", "B")] {
            assert_eq!(read_text(&text_path(folder.path(), kind)).unwrap(), text);
        }
        assert!(read_text(&text_path(folder.path(), "c")).is_err());
        std::fs::write(folder.path().join("bad.txt"), [0xFF, 0xFE]).unwrap();
        assert!(read_text(&folder.path().join("bad.txt")).is_err());
    }
}
