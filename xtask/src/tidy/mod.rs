//! The rules that a compiler does not check. Each check is a function of file contents, so that its tests can
//! plant a violation and see it reported.

mod edges;
mod lex;
mod links;
mod ops;
mod sizes;
mod unsafety;
mod weight;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::{docs, output};

/// Where the exceptions from the size limits are listed.
const RATCHET: &str = "xtask/ratchet.txt";

/// A text file of the repository; the path is relative to the root.
pub struct SourceFile {
    pub path: String,
    pub text: String,
}

/// Everything the checks look at.
pub struct Tree {
    /// Every text file that is tracked, or new and not ignored.
    pub files: Vec<SourceFile>,
    /// Path and size in bytes of every tracked or new file, also those that are no text.
    pub sizes: Vec<(String, u64)>,
    /// What `cargo metadata --no-deps` says.
    pub metadata: serde_json::Value,
}

/// One violation.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    /// From 1; 0 if the finding concerns the whole file.
    pub line: usize,
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Finding { path: path.to_string(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A rule: its name and what it finds.
type Check = (&'static str, fn(&Tree) -> Vec<Finding>);

const CHECKS: [Check; 7] = [
    ("crate edges", edges::check),
    ("unsafe", unsafety::check),
    ("op folders", ops::check),
    ("sizes", sizes::check),
    ("words", words::check),
    ("links", links::check),
    ("tree size", weight::check),
];

/// Runs every check and prints what it finds. With `bless`, first lowers the size exceptions.
pub fn run(root: &Path, bless: bool) -> Result<()> {
    let mut tree = Tree::read(root)?;
    if bless {
        let lowered = sizes::blessed(&tree);
        std::fs::write(root.join(RATCHET), &lowered)?;
        tree = Tree::read(root)?;
    }
    let mut found: Vec<(&str, Finding)> = Vec::new();
    for (name, check) in CHECKS {
        found.extend(check(&tree).into_iter().map(|finding| (name, finding)));
    }
    let outdated = match docs::cli(root) {
        Ok(text) => stale(&tree, &[(docs::CLI, text)]),
        Err(error) => vec![Finding::new(docs::CLI, 0, format!("can't be generated: {error:#}"))],
    };
    found.extend(outdated.into_iter().map(|finding| ("generated", finding)));
    found.iter().for_each(|(name, finding)| println!("{name}: {finding}"));
    ensure!(found.is_empty(), "{} findings", found.len());
    println!("tidy: {} files, {} rules, nothing found", tree.sizes.len(), CHECKS.len());
    Ok(())
}

/// Finds documents that are not what the program generates.
fn stale(tree: &Tree, generated: &[(&str, String)]) -> Vec<Finding> {
    let differs = |(path, text): &&(&str, String)| tree.text(path) != text;
    let told = "not what the program says now: run `cargo xtask docs`";
    generated.iter().filter(differs).map(|(path, _)| Finding::new(path, 0, told)).collect()
}

impl Tree {
    /// Reads the repository at `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let listing = output(root, "git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let mut tree = Tree { files: Vec::new(), sizes: Vec::new(), metadata: serde_json::Value::Null };
        for path in listing.split('\0').filter(|p| !p.is_empty()) {
            let Ok(content) = std::fs::read(root.join(path)) else { continue }; // deleted, not yet committed
            tree.sizes.push((path.to_string(), content.len() as u64));
            if let Ok(text) = String::from_utf8(content) {
                tree.files.push(SourceFile { path: path.to_string(), text });
            }
        }
        let metadata =
            output(root, "cargo", &["metadata", "--no-deps", "--offline", "--format-version", "1"])?;
        tree.metadata = serde_json::from_str(&metadata).context("cargo metadata printed no JSON")?;
        Ok(tree)
    }

    /// Files whose name ends in `.rs`.
    fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|f| f.path.ends_with(".rs"))
    }

    /// The text of one file, empty if it is not there.
    fn text(&self, path: &str) -> &str {
        self.files.iter().find(|f| f.path == path).map_or("", |f| &f.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tree {
        /// A tree of these texts.
        pub fn of(files: &[(&str, &str)]) -> Tree {
            let file =
                |(path, text): &(&str, &str)| SourceFile { path: path.to_string(), text: text.to_string() };
            Tree {
                files: files.iter().map(file).collect(),
                sizes: files.iter().map(|(path, text)| (path.to_string(), text.len() as u64)).collect(),
                metadata: serde_json::Value::Null,
            }
        }
    }

    /// `path:line` of each finding.
    pub fn places(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(|f| format!("{}:{}", f.path, f.line)).collect()
    }

    #[test]
    fn stale_documents_are_found() {
        let tree = Tree::of(&[("docs/a.md", "one"), ("docs/b.md", "two")]);
        let generated =
            [("docs/a.md", "one".to_string()), ("docs/b.md", "2".into()), ("docs/c.md", "3".into())];
        assert_eq!(places(&stale(&tree, &generated)), ["docs/b.md:0", "docs/c.md:0"]);
    }

    #[test]
    fn this_repository_is_tidy() {
        let tree = Tree::read(crate::root()).unwrap();
        assert!(tree.rust().count() > 10);
        let found: Vec<String> = CHECKS
            .iter()
            .flat_map(|(name, check)| check(&tree).into_iter().map(move |f| format!("{name}: {f}")))
            .collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
