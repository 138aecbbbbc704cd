//! Added tokens: the ones a tokenizer matches in raw text before anything else. The rules of matching
//! (leftmost, longest, single word, stripped neighbours) are those of the reference library.

use std::ops::Range;

/// One added token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Its id.
    pub id: u32,
    /// Its spelling.
    pub content: String,
    /// A control token: message content can never become it.
    pub special: bool,
    /// Swallows white space on its left.
    pub lstrip: bool,
    /// Swallows white space on its right.
    pub rstrip: bool,
    /// Matches only where no word character touches it.
    pub single_word: bool,
}

/// A stretch of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the text, to be encoded with special tokens disabled.
    Text(Range<usize>),
    /// A control token.
    Special(u32),
}

/// All added tokens of one tokenizer.
#[derive(Debug, Clone, Default)]
pub struct AddedTokens {
    tokens: Vec<Added>,
    trie: Trie,
}

impl AddedTokens {
    /// Tokens with an empty spelling are ignored.
    pub fn new(tokens: Vec<Added>) -> Self {
        let tokens: Vec<Added> = tokens.into_iter().filter(|token| !token.content.is_empty()).collect();
        let mut trie = Trie::default();
        for (index, token) in tokens.iter().enumerate() {
            trie.insert(&token.content, index);
        }
        AddedTokens { tokens, trie }
    }

    /// In order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = &Added> {
        self.tokens.iter()
    }

    /// Splits `text` at its special tokens. A match that touches a range of `guarded` (sorted, disjoint byte
    /// ranges that came from message content) is none. Ordinary added tokens stay inside the text pieces.
    pub fn split(&self, text: &str, guarded: &[Range<usize>]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut done, mut at, mut guard) = (0, 0, 0);
        while at < text.len() {
            while guarded.get(guard).is_some_and(|range| range.end <= at) {
                guard += 1;
            }
            let wall = guarded.get(guard).map_or(text.len(), |range| range.start.max(at));
            let Some((end, index)) = self.trie.longest(&text.as_bytes()[..wall], at) else {
                at += 1;
                continue;
            };
            let token = &self.tokens[index];
            at = end;
            if !token.special || (token.single_word && !stands_alone(text, end - token.content.len(), end)) {
                continue;
            }
            let mut start = end - token.content.len();
            if token.lstrip {
                start = start.min(text[done..start].trim_end().len() + done);
            }
            if token.rstrip {
                at = text.len() - text[end..].trim_start().len();
            }
            if done < start {
                pieces.push(Piece::Text(done..start));
            }
            pieces.push(Piece::Special(token.id));
            done = at;
        }
        if done < text.len() {
            pieces.push(Piece::Text(done..text.len()));
        }
        pieces
    }
}

/// Whether no word character touches `text[start..end]`.
fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    !text[..start].ends_with(word) && !text[end..].starts_with(word)
}

/// Strings by their bytes; each carries a number.
#[derive(Debug, Clone)]
pub struct Trie {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    next: Vec<(u8, u32)>,
    value: Option<usize>,
}

impl Default for Trie {
    fn default() -> Self {
        Trie { nodes: vec![Node::default()] }
    }
}

impl Trie {
    /// Adds `key`; the first value of a key stays.
    pub fn insert(&mut self, key: &str, value: usize) {
        let mut node = 0;
        for &byte in key.as_bytes() {
            node = match self.nodes[node].next.binary_search_by_key(&byte, |edge| edge.0) {
                Ok(edge) => self.nodes[node].next[edge].1 as usize,
                Err(edge) => {
                    let new = self.nodes.len();
                    self.nodes.push(Node::default());
                    self.nodes[node].next.insert(edge, (byte, new as u32));
                    new
                }
            };
        }
        self.nodes[node].value.get_or_insert(value);
    }

    /// The longest key that `bytes[at..]` begins with: where it ends, and its value.
    pub fn longest(&self, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        let (mut node, mut best) = (0, None);
        for (offset, byte) in bytes.get(at..)?.iter().enumerate() {
            let Ok(edge) = self.nodes[node].next.binary_search_by_key(byte, |edge| edge.0) else { break };
            node = self.nodes[node].next[edge].1 as usize;
            if let Some(value) = self.nodes[node].value {
                best = Some((at + offset + 1, value));
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32, content: &str, special: bool) -> Added {
        Added { id, content: content.into(), special, lstrip: false, rstrip: false, single_word: false }
    }

    fn texts(tokens: Vec<Added>, text: &str, guarded: &[(usize, usize)]) -> Vec<String> {
        let guarded: Vec<Range<usize>> = guarded.iter().map(|&(start, end)| start..end).collect();
        let pieces = AddedTokens::new(tokens).split(text, &guarded);
        let word = |piece: Piece| match piece {
            Piece::Text(range) => text[range].to_string(),
            Piece::Special(id) => format!("#{id}"),
        };
        pieces.into_iter().map(word).collect()
    }

    #[test]
    fn leftmost_longest_and_ordinary_tokens_stay() {
        let tokens = || vec![token(1, "<a>", true), token(2, "<a>b", true), token(3, "<t>", false)];
        assert_eq!(texts(tokens(), "x<a>b<a><t>y", &[]), ["x", "#2", "#1", "<t>y"]);
        assert_eq!(texts(tokens(), "", &[]), Vec::<String>::new());
    }

    #[test]
    fn guarded_text_is_never_special() {
        let tokens = || vec![token(1, "<a>", true)];
        assert_eq!(texts(tokens(), "<a><a>", &[(0, 3)]), ["<a>", "#1"]);
        assert_eq!(texts(tokens(), "<a><a>", &[(2, 4)]), ["<a><a>"]);
        assert_eq!(texts(tokens(), "<a><a>", &[(1, 2), (4, 5)]), ["<a><a>"]);
    }

    #[test]
    fn neighbours_are_stripped_as_the_reference_does() {
        let wide = Added { lstrip: true, rstrip: true, ..token(1, "<m>", true) };
        assert_eq!(texts(vec![wide], "a \n<m>  b <m>", &[]), ["a", "#1", "b", "#1"]);
        let word = Added { single_word: true, ..token(1, "me", true) };
        assert_eq!(texts(vec![word], "me home me", &[]), ["#1", " home ", "#1"]);
    }
}
