//! An op is a folder, and its folder is whole.

use super::{Finding, Tree, lex};

const REGISTRY: &str = "crates/ops/src/registry.rs";

/// Files of every op.
const PARTS: [&str; 3] = ["mod.rs", "reference.rs", "NOTES.md"];

/// Compares the registry with the folders beside it.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let registry = lex::views(tree.text(REGISTRY)).code;
    let modules = modules(&registry);
    let mut found = Vec::new();
    if modules.is_empty() {
        found.push(Finding::new(REGISTRY, 0, "lists no ops: `registry! { Variant module, … }` is expected"));
    }
    for module in modules {
        let folder = format!("crates/ops/src/{module}");
        let mut parts = PARTS.to_vec();
        let contract = lex::views(tree.text(&format!("{folder}/mod.rs"))).code;
        if contract.contains("const SIMD: bool = true") {
            parts.push("simd.rs");
        }
        let has = |part: &str| tree.sizes.iter().any(|(path, _)| *path == format!("{folder}/{part}"));
        for part in parts.into_iter().filter(|part| !has(part)) {
            found.push(Finding::new(&folder, 0, format!("the op has no {part}")));
        }
    }
    found
}

/// The modules named by the registry's list.
fn modules(registry: &str) -> Vec<&str> {
    let list =
        registry.split("\nregistry! {").nth(1).and_then(|rest| rest.split('}').next()).unwrap_or_default();
    list.split(',').filter_map(|entry| entry.split_whitespace().nth(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "macro_rules! registry { ($x:ident y) => {} }\n\nregistry! {\n    // first\n    \
        Add add,\n    Linear linear,\n}\n";

    #[test]
    fn whole_folders_pass_and_gaps_are_found() {
        let simd = "impl Op for Desc {\n    const SIMD: bool = true;\n}\n";
        let mut files = vec![
            (REGISTRY, LIST),
            ("crates/ops/src/add/mod.rs", "const SIMD: bool = false;"),
            ("crates/ops/src/add/reference.rs", ""),
            ("crates/ops/src/add/NOTES.md", ""),
            ("crates/ops/src/linear/mod.rs", simd),
            ("crates/ops/src/linear/reference.rs", ""),
            ("crates/ops/src/linear/NOTES.md", ""),
            ("crates/ops/src/linear/simd.rs", ""),
        ];
        assert_eq!(check(&Tree::of(&files)), []);
        for gone in [1, 2, 3, 5, 6, 7] {
            let file = files.remove(gone);
            let found = check(&Tree::of(&files));
            assert_eq!(found.len(), 1, "{file:?}: {found:?}");
            assert!(
                file.0.starts_with(&found[0].path)
                    && found[0].what.ends_with(file.0.rsplit('/').next().unwrap())
            );
            files.insert(gone, file);
        }
    }

    #[test]
    fn an_unreadable_registry_is_found() {
        assert_eq!(check(&Tree::of(&[(REGISTRY, "registry![];")])).len(), 1);
    }
}
