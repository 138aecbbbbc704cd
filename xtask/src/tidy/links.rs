//! What documents point at exists.

use super::{Finding, SourceFile, Tree};

/// Beginnings by which a word in backticks is known to be a path of the repository.
const TOP: [&str; 7] = [".ci/", "assets/", "crates/", "docs/", "fuzz/", "tests/", "xtask/"];

/// Finds links and paths in Markdown files that lead nowhere.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files.iter().filter(|f| f.path.ends_with(".md"));
    documents.flat_map(|document| check_file(tree, document)).collect()
}

fn check_file(tree: &Tree, document: &SourceFile) -> Vec<Finding> {
    let folder = document.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    for (number, line) in document.text.lines().enumerate() {
        let linked = links(line).map(|target| join(folder, target));
        let named = line.split('`').skip(1).step_by(2).filter(|w| is_path(w)).map(str::to_string);
        for path in linked.chain(named).filter(|path| !exists(tree, path)) {
            found.push(Finding::new(&document.path, number + 1, format!("{path} does not exist")));
        }
    }
    found
}

/// Targets of `](…)` that are no addresses, without their fragments.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|t| !t.contains("://") && !t.starts_with('#')).map(|t| t.split('#').next().unwrap_or(t))
}

/// Whether the word names one path; patterns and placeholders (`NAME`, `*`) name none.
fn is_path(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c);
    let spelled = word.trim_end_matches("NOTES.md").trim_end_matches("README.md");
    TOP.iter().any(|top| word.starts_with(top)) && spelled.chars().all(plain)
}

/// `target` as seen from `folder`.
fn join(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Whether it is a file, or a folder with files.
fn exists(tree: &Tree, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let below =
        |file: &str| file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    tree.sizes.iter().any(|(file, _)| below(file))
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<String> {
        places(&check(&Tree::of(&[(path, text), ("docs/b.md", ""), ("crates/ops/src/add/NOTES.md", "")])))
    }

    #[test]
    fn what_exists_passes() {
        let text = "[b](docs/b.md#part) [x](https://docs.rs) [here](#top) `docs/`\n\
            `crates/ops/src/add/NOTES.md` `crates/NAME/src` `crates/*/src` `other/thing` `docs/x y`\n";
        assert_eq!(lines("A.md", text), [""; 0]);
        assert_eq!(lines("docs/a.md", "[b](b.md) [b](../docs/./b.md)\n"), [""; 0]);
        assert_eq!(lines("a.rs", "[b](gone.md)\n"), [""; 0]);
    }

    #[test]
    fn planted_gaps_are_found() {
        assert_eq!(lines("docs/a.md", "\n[b](docs/b.md)\n"), ["docs/a.md:2"]);
        assert_eq!(lines("A.md", "fine\n`docs/c.md` and `crates/op/`\n"), ["A.md:2", "A.md:2"]);
    }
}
