//! `unsafe` lives in named files, and each site says why it holds.

use super::{Finding, SourceFile, Tree, lex};

/// Files that may use `unsafe`. `*` stands for anything, also for further folders.
const ALLOWED: [&str; 6] = [
    "crates/gpu/*",
    "crates/ops/*/simd*.rs",
    "crates/ops/*/launch.rs",
    "crates/base/src/mmap.rs",
    "crates/base/src/os.rs",
    "crates/base/src/counting_alloc.rs",
];

/// Finds `unsafe` in other files and sites without a reason.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let views = lex::views(&file.text);
    let allowed = ALLOWED.iter().any(|pattern| matches(pattern, &file.path));
    let code: Vec<&str> = views.code.lines().collect();
    let comments: Vec<&str> = views.comments.lines().collect();
    let mut found = Vec::new();
    for word in lex::words(&views.code, "unsafe") {
        let line = lex::line_of(&views.code, word.start);
        if !allowed {
            found.push(Finding::new(&file.path, line, "`unsafe` outside the files that may use it"));
        } else if !is_type(&views.code[word.end..]) && !has_reason(&code, &comments, line - 1) {
            let what = "`unsafe` without a `// SAFETY:` reason (or a `# Safety` section) above it";
            found.push(Finding::new(&file.path, line, what));
        }
    }
    found
}

/// Whether what follows `unsafe` makes it a function pointer's type, which is no site.
fn is_type(after: &str) -> bool {
    let after = after.trim_start();
    let after = after.strip_prefix("extern").map_or(after, |a| a.trim_start_matches([' ', '"']));
    after.strip_prefix("fn").is_some_and(|a| a.trim_start().starts_with('('))
}

/// Whether a reason stands on the line `at` or above it, within the same statement or item.
fn has_reason(code: &[&str], comments: &[&str], at: usize) -> bool {
    let gives_reason =
        |line: usize| comments[line].contains("SAFETY:") || comments[line].contains("# Safety");
    if gives_reason(at) {
        return true;
    }
    for line in (0..at).rev() {
        let statement = code[line].trim();
        if statement.is_empty() && comments[line].trim().is_empty() {
            return false;
        }
        if gives_reason(line) {
            return true;
        }
        if statement.ends_with([';', '{', '}']) {
            return false;
        }
    }
    false
}

/// Whether `path` has the form of `pattern`, whose parts between `*` appear in order.
fn matches(pattern: &str, path: &str) -> bool {
    let (first, rest) = pattern.split_once('*').unwrap_or((pattern, ""));
    if !pattern.contains('*') {
        return pattern == path;
    }
    path.strip_prefix(first).is_some_and(|tail| {
        tail.char_indices().map(|(i, _)| &tail[i..]).chain([""]).any(|t| match rest.contains('*') {
            true => matches(rest, t),
            false => t.ends_with(rest),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<String> {
        places(&check(&Tree::of(&[(path, text)])))
    }

    #[test]
    fn only_named_files() {
        let text = "// SAFETY: planted.\nunsafe { f() }\n";
        assert_eq!(lines("crates/ops/src/linear/mod.rs", text), ["crates/ops/src/linear/mod.rs:2"]);
        for path in [
            "crates/ops/src/linear/simd.rs",
            "crates/ops/src/linear/simd_avx512.rs",
            "crates/ops/src/linear/launch.rs",
            "crates/gpu/src/a/b.rs",
            "crates/base/src/mmap.rs",
        ] {
            assert_eq!(lines(path, text), [""; 0], "{path}");
        }
        for path in ["crates/base/src/mmap.rs.rs", "crates/base/src/a/mmap.rs", "crates/text/src/simd.rs"] {
            assert_eq!(lines(path, text).len(), 1, "{path}");
        }
    }

    #[test]
    fn mentions_are_no_uses() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nlet a = \"unsafe\";\n";
        assert_eq!(lines("crates/text/src/lib.rs", text), [""; 0]);
    }

    #[test]
    fn each_site_needs_its_reason() {
        let path = "crates/base/src/os.rs";
        let good = "// SAFETY: one.\n#[inline]\nlet x =\n    unsafe { f() };\n\n\
            /// # Safety\n/// The caller's.\npub unsafe fn g() {}\n\n\
            type F = unsafe extern \"C\" fn(u8);\nlet y = unsafe { h() }; // SAFETY: two.\n";
        assert_eq!(lines(path, good), [""; 0]);
        let bad = "// SAFETY: for the first alone.\nlet x = unsafe { f() };\nlet y = unsafe { f() };\n\
            // SAFETY: too far.\n\nunsafe fn g() {}\n// a comment\nunsafe impl Send for X {}\n";
        assert_eq!(lines(path, bad), [3, 6, 8].map(|l| format!("{path}:{l}")));
    }
}
