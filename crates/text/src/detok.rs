//! Token ids to whole characters, on the bytes of the stream rather than on single tokens: a character
//! may be spread over several tokens, and a token may hold half of two characters.

use crate::Tokenizer;

/// Turns a stream of token ids into text. The pieces joined equal the lossy UTF-8 decoding of the whole
/// byte stream, whatever the stream.
#[derive(Debug, Clone)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    skip_special: bool,
    held: Utf8Stream,
}

impl<'a> Detokenizer<'a> {
    /// A fresh stream. With `skip_special`, tokens marked special contribute no text.
    pub fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Self {
        Detokenizer { tokenizer, skip_special, held: Utf8Stream::default() }
    }

    /// The characters that are complete after this token. Ids beyond the vocabulary have no bytes.
    pub fn push(&mut self, id: u32) -> String {
        if self.skip_special && self.tokenizer.is_special(id) {
            return String::new();
        }
        self.held.push(self.tokenizer.token_bytes(id))
    }

    /// What is left: an unfinished character becomes one U+FFFD.
    pub fn finish(&mut self) -> String {
        self.held.finish()
    }
}

/// Incremental form of `String::from_utf8_lossy`.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    held: Vec<u8>,
}

impl Utf8Stream {
    /// Adds bytes; gives the text that no later byte can change.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(all) => {
                    text.push_str(all);
                    rest = &[];
                    break;
                }
                Err(fault) => {
                    let (good, bad) = rest.split_at(fault.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(good));
                    rest = bad;
                    // None: the bytes so far may still become a character.
                    let Some(length) = fault.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[length..];
                }
            }
        }
        let done = self.held.len() - rest.len();
        self.held.drain(..done);
        text
    }

    /// Ends the stream.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn streamed(bytes: &[u8], piece: usize) -> String {
        let mut stream = Utf8Stream::default();
        let mut text: String = bytes.chunks(piece).map(|part| stream.push(part)).collect();
        text.push_str(&stream.finish());
        text
    }

    #[test]
    fn a_lone_continuation_byte_is_one_replacement_and_text_goes_on() {
        let bytes = b"\xE2\x9C\x85\x85 ok";
        for piece in 1..=bytes.len() {
            assert_eq!(streamed(bytes, piece), "\u{2705}\u{FFFD} ok");
        }
    }

    #[test]
    fn a_character_comes_only_when_it_is_whole() {
        let mut stream = Utf8Stream::default();
        let seen: Vec<String> = "a😀".bytes().map(|byte| stream.push(&[byte])).collect();
        assert_eq!(seen, ["a", "", "", "", "😀"]);
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn an_unfinished_character_at_the_end_is_one_replacement() {
        assert_eq!(streamed(b"x\xF0\x9F\x98", 1), "x\u{FFFD}");
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_equal_the_lossy_decoding(
            bytes in proptest::collection::vec(any::<u8>(), 0..64), piece in 1usize..9
        ) {
            prop_assert_eq!(streamed(&bytes, piece), String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn any_text_in_any_pieces_is_unchanged(text in ".{0,40}", piece in 1usize..5) {
            prop_assert_eq!(streamed(text.as_bytes(), piece), text);
        }
    }
}
