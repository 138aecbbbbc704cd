//! Just enough of Rust's syntax to tell code from comments and literals, and to find functions.

use std::ops::Range;

/// A source text seen twice: code alone and comments alone, each with everything else blanked out. Lines stay
/// where they are.
pub struct Views {
    /// Code; comments and the insides of string and character literals are spaces.
    pub code: String,
    /// Comments; everything else is spaces.
    pub comments: String,
}

/// Splits Rust source into its two views.
pub fn views(text: &str) -> Views {
    let chars: Vec<char> = text.chars().collect();
    let mut views =
        Views { code: String::with_capacity(text.len()), comments: String::with_capacity(text.len()) };
    let mut at = 0;
    while at < chars.len() {
        let (kind, end) = token(&chars, at);
        for &c in &chars[at..end] {
            let blank = if c == '\n' { '\n' } else { ' ' };
            views.code.push(if kind == Kind::Code { c } else { blank });
            views.comments.push(if kind == Kind::Comment { c } else { blank });
        }
        at = end;
    }
    views
}

#[derive(PartialEq, Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// What starts at `at`, and where it ends.
fn token(chars: &[char], at: usize) -> (Kind, usize) {
    let next = |n: usize| chars.get(at + n).copied().unwrap_or('\0');
    match chars[at] {
        '/' if next(1) == '/' => (Kind::Comment, find(chars, at, |c| c == '\n')),
        '/' if next(1) == '*' => (Kind::Comment, block_comment_end(chars, at)),
        '"' => (Kind::Literal, string_end(chars, at + 1)),
        '\'' if next(1) == '\\' => (Kind::Literal, (find(chars, at + 3, |c| c == '\'') + 1).min(chars.len())),
        '\'' if next(2) == '\'' => (Kind::Literal, at + 3),
        c if is_word(c) => {
            let end = find(chars, at, |c| !is_word(c));
            let word: String = chars[at..end].iter().collect();
            match raw_string_end(chars, end).filter(|_| matches!(word.as_str(), "r" | "br" | "cr")) {
                Some(raw_end) => (Kind::Literal, raw_end),
                None => (Kind::Code, end),
            }
        }
        _ => (Kind::Code, at + 1),
    }
}

/// The first position from `at` on whose character satisfies `is_end`, or the end of the text.
fn find(chars: &[char], at: usize, is_end: impl Fn(char) -> bool) -> usize {
    (at..chars.len()).find(|&i| is_end(chars[i])).unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of a raw string whose hashes or quote start at `at`.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let open = find(chars, at, |c| c != '#');
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let hashes = open - at;
    let closes = |i: usize| chars[i] == '"' && (1..=hashes).all(|h| chars.get(i + h) == Some(&'#'));
    let close = (open + 1..chars.len()).find(|&i| closes(i));
    Some(close.map_or(chars.len(), |i| i + 1 + hashes))
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Byte ranges of `word` in `code` where it stands alone.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    code.match_indices(word).map(|(start, w)| start..start + w.len()).filter(move |range| {
        let joins = |c: Option<char>| c.is_some_and(is_word);
        !joins(code[..range.start].chars().next_back()) && !joins(code[range.end..].chars().next())
    })
}

/// The line (from 1) of a byte position.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// A function with a body: its name, its first line (from 1) and how many lines it has.
#[derive(Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// All functions of `code` (a [`Views::code`]) that have a body, nested ones too.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for keyword in words(code, "fn") {
        let after = code[keyword.end..].trim_start();
        let name: String = after.chars().take_while(|&c| is_word(c)).collect();
        if name.is_empty() {
            continue; // a function pointer's type
        }
        if let Some(end) = body_end(code, keyword.end) {
            let line = line_of(code, keyword.start);
            found.push(Function { name, line, lines: line_of(code, end) - line + 1 });
        }
    }
    found
}

/// The position of the brace that closes the body of the function whose signature starts at `start`.
fn body_end(code: &str, start: usize) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (offset, c) in code[start..].char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                // A brace pair inside brackets belongs to a constant in the signature.
                if braces == 0 && brackets == 0 {
                    return Some(start + offset);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code() {
        let text = r####"let a = "unsafe \" // no"; // unsafe 1
/* unsafe /* nested */ unsafe */ b('"', '\'', b'x', r#"unsafe " "#, br"unsafe", c"unsafe");
fn f<'a>(x: &'a str) -> char { '\u{7d}' }
"####;
        let views = views(text);
        assert_eq!(words(&views.code, "unsafe").count(), 0);
        assert_eq!(words(&views.comments, "unsafe").count(), 3);
        assert!(views.code.contains("fn f<'a>(x: &'a str) -> char {"));
        assert_eq!(views.code.matches(['{', '}']).count(), 2);
        assert_eq!(views.code.lines().count(), text.lines().count());
        assert_eq!(views.code.chars().count(), text.chars().count());
    }

    #[test]
    fn unclosed_tokens_end_with_the_text() {
        for text in ["/* x", "\"abc\\", "r#\"abc\"", "'\\", "'", "b'"] {
            assert_eq!(views(text).code.chars().count(), text.chars().count());
        }
    }

    #[test]
    fn words_stand_alone() {
        let found: Vec<_> = words("unsafe_code unsafe(x) nunsafe", "unsafe").collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0], 12..18);
    }

    #[test]
    fn functions_are_measured_from_signature_to_brace() {
        let code = "trait T { fn no_body(&self) -> [u8; 3]; }\n\
            fn a(\n    f: fn(u8) -> u8,\n) -> [u8; { 1 + 1 }] {\n    fn b() {}\n}\n";
        let found = functions(code);
        let function = |name: &str, line, lines| Function { name: name.into(), line, lines };
        assert_eq!(found, [function("a", 2, 5), function("b", 5, 1)]);
    }
}
