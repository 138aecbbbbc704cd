//! Nothing unfinished, no machine's own paths, and no addresses outside a short list in the committed text.

use super::{Finding, SourceFile, Tree, lex};

/// Marks of unfinished work. Written in two parts so that this file does not find itself.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("unimpl", "emented!"),
    concat!("to", "do!"),
];

/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

/// Hosts that addresses may name.
const HOSTS: [&str; 11] = [
    "arxiv.org",
    "crates.io",
    "doc.rust-lang.org",
    "docs.rs",
    "git-lfs.github.com",
    "github.com",
    "huggingface.co",
    "json-schema.org",
    "llvm.org",
    "www.apache.org",
    "www.unicode.org",
];

/// Inputs of the fuzz targets are arbitrary bytes.
const NOT_TEXT: &str = "fuzz/seeds/";

/// Where every entry of a lock file must come from.
const REGISTRY: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Finds such words, paths and hosts.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|f| !f.path.starts_with(NOT_TEXT)).flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let is_lock = file.path.ends_with("Cargo.lock");
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let mut report = |what: String| found.push(Finding::new(&file.path, number + 1, what));
        if is_lock && line.starts_with("source = ") && line != REGISTRY {
            report(format!("not from crates.io: {line}"));
        }
        for word in UNFINISHED.iter().filter(|w| is_unfinished(line, w)) {
            report(format!("`{word}`: finish it or take it out"));
        }
        for path in MACHINE_PATHS.iter().filter(|p| line.contains(**p)) {
            report(format!("`{path}` is a path of one machine"));
        }
        for host in hosts(line).filter(|h| !HOSTS.contains(h)) {
            report(format!("`{host}` is not in the list of hosts"));
        }
    }
    found
}

/// Whether `word` stands alone in `line`; a macro's name ends with its exclamation mark.
fn is_unfinished(line: &str, word: &str) -> bool {
    match word.strip_suffix('!') {
        Some(name) => lex::words(line, name).any(|range| line[range.end..].starts_with('!')),
        None => lex::words(line, word).next().is_some(),
    }
}

/// The hosts of the addresses in a line; placeholders such as `<HOST>` and this machine are none.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '-');
    let addresses = ["https://", "http://"].into_iter().flat_map(|scheme| line.split(scheme).skip(1));
    let hosts = addresses.map(move |a| a.split(ends).next().unwrap_or_default());
    hosts.filter(|h| h.contains('.') && !h.starts_with("127.") && !h.ends_with("example.com"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    #[test]
    fn planted_words_are_found() {
        for word in UNFINISHED {
            let text = format!("fine\nx {word}(); y\n");
            assert_eq!(places(&check(&Tree::of(&[("a.rs", &text)]))), ["a.rs:2"], "{word}");
        }
        for path in MACHINE_PATHS {
            let text = format!("see {path}x\n");
            assert_eq!(places(&check(&Tree::of(&[("docs/a.md", &text)]))), ["docs/a.md:1"], "{path}");
            assert_eq!(check(&Tree::of(&[("fuzz/seeds/x/1", &text)])), []);
        }
    }

    #[test]
    fn innocent_words_are_not() {
        let text = format!("a{} {}Y {}\n", UNFINISHED[0], UNFINISHED[2], UNFINISHED[4].trim_end_matches('!'));
        assert_eq!(check(&Tree::of(&[("a.rs", &text)])), []);
    }

    #[test]
    fn hosts_outside_the_list_are_found() {
        let scheme = "https:";
        let text = format!(
            "{scheme}//github.com/x {scheme}//127.0.0.1:8012/ {scheme}//HOST/v1 {scheme}//www.example.com/a\n\
             see {scheme}//mirror.internal.net/index.\n"
        );
        assert_eq!(places(&check(&Tree::of(&[("a.md", &text)]))), ["a.md:2"]);
    }

    #[test]
    fn lock_files_name_one_registry() {
        let text = format!("{REGISTRY}\nsource = \"git+{}//github.com/x/y\"\n", "https:");
        assert_eq!(places(&check(&Tree::of(&[("fuzz/Cargo.lock", &text)]))), ["fuzz/Cargo.lock:2"]);
    }
}
