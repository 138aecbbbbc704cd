//! Keeps message content from becoming control tokens. Before a template runs, characters and spellings of
//! special tokens in contents are replaced by single private-use characters that occur nowhere else; being
//! single characters they survive whatever a template does with strings. Afterwards they are put back, and
//! the ranges they fill are known to be plain text.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use base::{Refusal, Result};
use serde_json::Value as Json;

use crate::added::Trie;

/// Private-use planes 15 and 16.
const PLACEHOLDERS: [std::ops::RangeInclusive<u32>; 2] = [0xF0000..=0xFFFFD, 0x100000..=0x10FFFD];

/// Characters of special tokens that templates don't look for in contents. Replacing one of them guards
/// every spelling that has it, even one that a template would piece together from two parts of a content.
const KEYS: [char; 3] = ['|', '｜', '~'];

/// What has to be replaced, for one tokenizer and template.
#[derive(Debug, Clone, Default)]
pub struct GuardRules {
    /// Strings to replace: key characters, and whole spellings of special tokens that have none.
    targets: Vec<String>,
    trie: Trie,
    /// Placeholder characters that the template or the tokens themselves use.
    taken: HashSet<char>,
}

impl GuardRules {
    /// Rules for the spellings of special tokens; `source` is the template's text.
    pub fn new<'a>(spellings: impl Iterator<Item = &'a str>, source: &str) -> Self {
        let mut rules = GuardRules { taken: placeholders_in(source).collect(), ..Default::default() };
        let mut seen = HashSet::new();
        for spelling in spellings {
            rules.taken.extend(placeholders_in(spelling));
            let target = match KEYS.iter().find(|&&key| spelling.contains(key)) {
                Some(key) => key.to_string(),
                None => spelling.to_string(),
            };
            if !target.is_empty() && seen.insert(target.clone()) {
                rules.trie.insert(&target, rules.targets.len());
                rules.targets.push(target);
            }
        }
        rules
    }

    /// The guard for one conversation: chooses placeholders that occur nowhere in `contents`.
    pub fn guard(&self, contents: &Json) -> Result<Guard> {
        let mut taken = self.taken.clone();
        each_string(contents, &mut |text| taken.extend(placeholders_in(text)));
        let free = PLACEHOLDERS.into_iter().flatten().filter_map(char::from_u32);
        let chars: Vec<char> = free.filter(|c| !taken.contains(c)).take(self.targets.len() + 1).collect();
        if chars.len() <= self.targets.len() {
            return Err(Refusal::value(
                "messages",
                "private-use characters",
                format!("at most {} different ones of planes 15 and 16", 131_068 - self.targets.len()),
                "remove them",
            )
            .into());
        }
        let spelled = chars.iter().copied().zip(self.targets.iter().cloned()).collect();
        Ok(Guard { trie: self.trie.clone(), chars, spelled })
    }
}

/// One conversation's placeholders.
#[derive(Debug, Clone)]
pub struct Guard {
    trie: Trie,
    /// Placeholder of each target, and one more that stands for nothing.
    chars: Vec<char>,
    spelled: HashMap<char, String>,
}

impl Guard {
    /// A character that occurs in no content and stands for nothing.
    pub fn marker(&self) -> char {
        self.chars[self.chars.len() - 1]
    }

    /// What a placeholder stands for.
    pub fn spelled(&self, c: char) -> Option<&str> {
        if (c as u32) < *PLACEHOLDERS[0].start() {
            return None;
        }
        self.spelled.get(&c).map(String::as_str)
    }

    /// Replaces what must not become a control token.
    pub fn protect(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let (mut at, mut done) = (0, 0);
        while at < text.len() {
            match self.trie.longest(text.as_bytes(), at) {
                Some((end, target)) => {
                    out.push_str(&text[done..at]);
                    out.push(self.chars[target]);
                    (at, done) = (end, end);
                }
                None => at += 1,
            }
        }
        out.push_str(&text[done..]);
        out
    }

    /// Puts the spellings back; gives the text and the byte ranges they fill.
    pub fn restore(&self, text: &str) -> (String, Vec<Range<usize>>) {
        let mut out = String::with_capacity(text.len());
        let mut ranges = Vec::new();
        for c in text.chars() {
            match self.spelled(c) {
                Some(spelled) => {
                    ranges.push(out.len()..out.len() + spelled.len());
                    out.push_str(spelled);
                }
                None => out.push(c),
            }
        }
        (out, ranges)
    }
}

fn placeholders_in(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|&c| c as u32 >= *PLACEHOLDERS[0].start())
}

fn each_string(value: &Json, see: &mut impl FnMut(&str)) {
    match value {
        Json::String(text) => see(text),
        Json::Array(items) => items.iter().for_each(|item| each_string(item, see)),
        Json::Object(map) => map.iter().for_each(|(key, item)| {
            see(key);
            each_string(item, see);
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn rules() -> GuardRules {
        GuardRules::new(["<|im_end|>", "<eos>", "]~b]"].into_iter(), "{{ x }}")
    }

    #[test]
    fn spellings_and_key_characters_are_replaced_and_restored() {
        let text = "a<|im_end|>b<eos>c]~b]|";
        let guard = rules().guard(&json!([text])).unwrap();
        let safe = guard.protect(text);
        assert!(!safe.contains('|') && !safe.contains("<eos>") && !safe.contains('~'));
        let (back, ranges) = guard.restore(&safe);
        assert_eq!(back, text);
        let parts: Vec<&str> = ranges.iter().map(|range| &text[range.clone()]).collect();
        assert_eq!(parts, ["|", "|", "<eos>", "~", "|"]);
    }

    #[test]
    fn content_that_uses_the_placeholders_itself_is_safe() {
        let text = "\u{F0000}<eos>\u{F0001}|";
        let guard = rules().guard(&json!({ "a": text })).unwrap();
        let (back, ranges) = guard.restore(&guard.protect(text));
        assert_eq!((back.as_str(), ranges.len()), (text, 2));
    }

    #[test]
    fn content_that_uses_all_placeholders_is_refused() {
        let all: String = PLACEHOLDERS.into_iter().flatten().filter_map(char::from_u32).collect();
        let fault = rules().guard(&json!(all)).unwrap_err();
        assert!(fault.to_string().contains("private-use"), "{fault}");
    }

    proptest! {
        #[test]
        fn restoring_undoes_protecting(text in "[<|>eos~\u{F0000}\u{F0002}\u{10FFFD}a]{0,24}") {
            let guard = rules().guard(&json!(text)).unwrap();
            let safe = guard.protect(&text);
            prop_assert!(!safe.contains(['|', '~']) && !safe.contains("<eos>"));
            prop_assert_eq!(guard.restore(&safe).0, text);
        }
    }
}
