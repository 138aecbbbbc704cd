//! A clone stays small.

use super::{Finding, Tree};

const LIMIT_BYTES: u64 = 40_000_000;

/// Finds a tree over the limit.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let total: u64 = tree.sizes.iter().map(|(_, bytes)| bytes).sum();
    let Some((path, largest)) = tree.sizes.iter().max_by_key(|(_, bytes)| bytes) else { return Vec::new() };
    if total <= LIMIT_BYTES {
        return Vec::new();
    }
    let what =
        format!("the tree has {total} bytes, limit {LIMIT_BYTES}; this file is the largest: {largest}");
    vec![Finding::new(path, 0, what)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heavy_tree_is_found() {
        let mut tree = Tree::of(&[]);
        tree.sizes = vec![("a".into(), LIMIT_BYTES - 5), ("b".into(), 5)];
        assert_eq!(check(&tree), []);
        tree.sizes.push(("c".into(), 1));
        let found = check(&tree);
        assert_eq!((found.len(), found[0].path.as_str()), (1, "a"));
    }
}
