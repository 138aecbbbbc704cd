//! Which crate may depend on which.

use super::{Finding, Tree};

/// For each crate of the workspace: the crates of the workspace it may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("gpu", &["base"]),
    ("checkpoint", &["base"]),
    ("text", &["base"]),
    ("ops", &["base"]),
    ("arch", &["base", "checkpoint", "ops"]),
    ("weights", &["arch", "base", "checkpoint", "ops"]),
    ("residency", &["base"]),
    ("plan", &["arch", "base", "ops"]),
    ("engine", &["arch", "base", "checkpoint", "gpu", "ops", "plan", "residency", "weights"]),
    ("eval", &["arch", "base", "checkpoint", "engine", "gpu", "ops", "plan", "text", "weights"]),
    ("cli", &["arch", "base", "checkpoint", "engine", "eval", "gpu", "ops", "plan", "text", "weights"]),
    ("testdata", &[]),
    ("xtask", &[]),
];

/// What only tests may use, in any crate.
const TESTS_ONLY: [&str; 4] = ["insta", "proptest", "tempfile", "testdata"];

/// Libraries that only these crates may use.
const ONLY_IN: [(&str, &[&str]); 1] = [("anyhow", &["cli", "xtask"])];

/// Compares the manifests with the lists above.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let packages = tree.metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let members: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut found = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = format!(
            "{}Cargo.toml",
            if name == "xtask" { "xtask/".into() } else { format!("crates/{name}/") }
        );
        let mut report = |what: String| found.push(Finding::new(&manifest, 0, what));
        let Some((_, allowed)) = ALLOWED.iter().find(|(n, _)| *n == name) else {
            report(format!("crate {name} has no entry in the table of allowed edges"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            let for_tests = dependency["kind"].as_str() == Some("dev");
            if let Some(why) = fault(name, target, for_tests, allowed, members.contains(&target)) {
                report(why);
            }
        }
    }
    found
}

/// Why `name` must not use `target`, if so.
fn fault(name: &str, target: &str, for_tests: bool, allowed: &[&str], is_member: bool) -> Option<String> {
    if TESTS_ONLY.contains(&target) {
        return (!for_tests).then(|| format!("{target} is for tests only: make it a dev-dependency"));
    }
    if let Some((_, users)) = ONLY_IN.iter().find(|(library, _)| *library == target) {
        return (!users.contains(&name))
            .then(|| format!("{target} may be used in {} only", users.join(", ")));
    }
    (is_member && !allowed.contains(&target))
        .then(|| format!("{name} must not depend on {target}; it may on: {}", allowed.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree(dependencies: serde_json::Value) -> Tree {
        let mut tree = Tree::of(&[]);
        tree.metadata = json!({"packages": [
            {"name": "base", "dependencies": []},
            {"name": "testdata", "dependencies": []},
            {"name": "engine", "dependencies": []},
            {"name": "text", "dependencies": dependencies},
        ]});
        tree
    }

    #[test]
    fn allowed_edges_pass() {
        let dependencies = json!([{"name": "base"}, {"name": "serde"}, {"name": "testdata", "kind": "dev"}]);
        assert_eq!(check(&tree(dependencies)), []);
    }

    #[test]
    fn planted_edges_are_found() {
        let planted = [
            json!([{"name": "engine"}]),
            json!([{"name": "engine", "kind": "dev"}]),
            json!([{"name": "testdata"}]),
            json!([{"name": "insta", "kind": "build"}]),
            json!([{"name": "anyhow"}]),
        ];
        for dependencies in planted {
            let found = check(&tree(dependencies.clone()));
            assert_eq!(found.len(), 1, "{dependencies}: {found:?}");
            assert_eq!(found[0].path, "crates/text/Cargo.toml");
        }
    }

    #[test]
    fn unlisted_crates_are_found() {
        let mut tree = Tree::of(&[]);
        tree.metadata = json!({"packages": [{"name": "stranger", "dependencies": []}]});
        assert_eq!(check(&tree).len(), 1);
    }
}
