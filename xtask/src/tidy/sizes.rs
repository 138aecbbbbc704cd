//! Functions, files and lines stay small. Exceptions are listed with their size and may only shrink.

use std::collections::BTreeMap;

use super::{Finding, RATCHET, Tree, lex};

const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 600;
const LINE_CHARS: usize = 110;

/// What is too large: `file PATH`, `fn PATH NAME` or `lines PATH` (the number of overlong lines) to its
/// size and the line to look at.
type Sizes = BTreeMap<String, (usize, usize)>;

/// Finds what is over a limit and over its exception, and exceptions that can be lowered.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let (too_large, exceptions) = (measure(tree), exceptions(tree.text(RATCHET)));
    let mut found = Vec::new();
    for (key, &(size, line)) in &too_large {
        let limit = exceptions.get(key).copied();
        if limit.is_none_or(|limit| size > limit) {
            let path = key.split(' ').nth(1).unwrap_or_default();
            found.push(Finding::new(
                path,
                line,
                format!("{}: {}", key.replace(path, "").trim(), words(key, size, limit)),
            ));
        }
    }
    for (key, &limit) in &exceptions {
        let size = too_large.get(key).map_or(0, |&(size, _)| size);
        if size < limit {
            let what = format!("`{key}` is down from {limit} to {size}: run `cargo xtask tidy --bless`");
            found.push(Finding::new(RATCHET, 0, what));
        }
    }
    found
}

fn words(key: &str, size: usize, exception: Option<usize>) -> String {
    let limit = match key.split(' ').next() {
        Some("fn") => format!("{size} lines, limit {FUNCTION_LINES}"),
        Some("file") => format!("{size} lines, limit {FILE_LINES}"),
        _ => format!("{size} lines of more than {LINE_CHARS} characters"),
    };
    exception.map_or(limit.clone(), |e| format!("{limit}, grown beyond its exception of {e}"))
}

/// The exceptions, lowered to what is there; nothing is added.
pub fn blessed(tree: &Tree) -> String {
    let too_large = measure(tree);
    let text = tree.text(RATCHET);
    let header: Vec<&str> = text.lines().take_while(|l| l.starts_with('#')).collect();
    let lowered = exceptions(text).into_iter().filter_map(|(key, limit)| {
        let (size, _) = too_large.get(&key)?;
        Some(format!("{key} {}", limit.min(*size)))
    });
    header.into_iter().map(str::to_string).chain(lowered).map(|line| line + "\n").collect()
}

/// `KEY SIZE` per line; `#` starts a comment.
fn exceptions(text: &str) -> BTreeMap<String, usize> {
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    lines
        .filter_map(|l| l.rsplit_once(' '))
        .filter_map(|(key, n)| Some((key.into(), n.parse().ok()?)))
        .collect()
}

fn measure(tree: &Tree) -> Sizes {
    let mut sizes = Sizes::new();
    for file in tree.rust() {
        let path = &file.path;
        let mut record = |key: String, size: usize, line: usize| {
            let largest = sizes.entry(key).or_insert((size, line));
            if size > largest.0 {
                *largest = (size, line);
            }
        };
        for function in lex::functions(&lex::views(&file.text).code) {
            if function.lines > FUNCTION_LINES {
                record(format!("fn {path} {}", function.name), function.lines, function.line);
            }
        }
        let lines = file.text.lines().count();
        if lines > FILE_LINES {
            record(format!("file {path}"), lines, 0);
        }
        let long = |line: &&str| line.chars().count() > LINE_CHARS;
        if let Some(first) = file.text.lines().position(|l| long(&l)) {
            record(format!("lines {path}"), file.text.lines().filter(long).count(), first + 1);
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    f();\n".repeat(lines - 2))
    }

    #[test]
    fn limits_are_inclusive() {
        let line = format!("{}\n", "x".repeat(LINE_CHARS));
        let text = format!("{line}{}", function("f", FUNCTION_LINES));
        assert_eq!(check(&Tree::of(&[("a.rs", &text)])), []);
        assert_eq!(check(&Tree::of(&[("a.rs", &"\n".repeat(FILE_LINES))])), []);
    }

    #[test]
    fn planted_sizes_are_found() {
        let text = format!("\n{}", function("f", FUNCTION_LINES + 1));
        assert_eq!(places(&check(&Tree::of(&[("a.rs", &text)]))), ["a.rs:2"]);
        let text = format!("\n\n{}\n", "é".repeat(LINE_CHARS + 1));
        assert_eq!(places(&check(&Tree::of(&[("a.rs", &text)]))), ["a.rs:3"]);
        let text = "\n".repeat(FILE_LINES + 1);
        assert_eq!(places(&check(&Tree::of(&[("a.rs", &text)]))), ["a.rs:0"]);
        assert_eq!(check(&Tree::of(&[("a.md", &text)])), []);
    }

    #[test]
    fn exceptions_hold_and_only_shrink() {
        let tree =
            |lines, ratchet: &str| Tree::of(&[("a.rs", &function("f", lines)[..]), (RATCHET, ratchet)]);
        let ratchet = "# why\nfn a.rs f 80\nfile gone.rs 700\n";
        assert_eq!(places(&check(&tree(80, "fn a.rs f 80\n"))), [""; 0]);
        assert_eq!(places(&check(&tree(81, "fn a.rs f 80\n"))), ["a.rs:1"]);
        assert_eq!(places(&check(&tree(79, ratchet))), [format!("{RATCHET}:0"), format!("{RATCHET}:0")]);
        assert_eq!(blessed(&tree(79, ratchet)), "# why\nfn a.rs f 79\n");
        assert_eq!(blessed(&tree(90, ratchet)), "# why\nfn a.rs f 80\n", "a grown size is not blessed");
        assert_eq!(blessed(&tree(90, "# why\n")), "# why\n", "nothing is added");
    }
}
