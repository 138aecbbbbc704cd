//! Every fault a folder can have.

use base::{Error, FileFault, Refusal};
use checkpoint::{Checkpoint, eos_ids};

use crate::build::{assert_words, file, folder, index, vectors, write};

const A: &str = "model-00001-of-00002.safetensors";
const B: &str = "model-00002-of-00002.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Two shards with x, y and z, and their index, then `change`d.
fn sharded(change: impl FnOnce(&std::path::Path)) -> base::Result<Checkpoint> {
    let places = index(&[("x", A), ("y", A), ("z", B)]);
    let model = folder(&[(A, &vectors(&["y", "x"])), (B, &vectors(&["z"])), (INDEX, places.as_bytes())]);
    change(model.path());
    Checkpoint::open(model.path())
}

fn assert_fault(opened: base::Result<Checkpoint>, fault: FileFault, words: &[&str]) {
    let error = opened.expect_err("a damaged folder");
    assert_eq!(error.fault(), Some(fault), "{error}");
    assert_words(&error.to_string(), &["expected", "found"]);
    assert_words(&error.to_string(), words);
}

#[test]
fn shards_become_one_namespace() {
    let model = sharded(|_| {}).unwrap();
    let names: Vec<&str> = model.tensors().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["x", "y", "z"]);
    assert_eq!(model.total_bytes(), 12);
    assert_eq!(model.bytes("x").unwrap(), [4, 5, 6, 7]);
    assert_eq!(model.bytes("z").unwrap(), [0, 1, 2, 3]);
    assert!(model.tensor("w").is_none());
    let error = model.bytes("w").unwrap_err();
    assert_eq!(error.fault(), Some(FileFault::MissingTensor));
    assert_words(&error.to_string(), &["tensor w", "3 other tensors"]);
}

#[test]
fn shards_and_index_must_agree() {
    use FileFault::*;
    let remove = |name: &'static str| move |f: &std::path::Path| std::fs::remove_file(f.join(name)).unwrap();
    let put = |name: &'static str, bytes: Vec<u8>| move |f: &std::path::Path| write(f, name, &bytes);
    let put_index = |places: &[(&str, &str)]| put(INDEX, index(places).into_bytes());
    assert_fault(sharded(remove(B)), MissingShard, &[B, INDEX, "resume"]);
    assert_fault(sharded(remove(INDEX)), ShardsWithoutIndex, &["2 shards", A, B, INDEX]);
    let alone = |f: &std::path::Path| {
        remove(INDEX)(f);
        remove(A)(f);
    };
    assert_fault(sharded(alone), ShardsWithoutIndex, &[B, INDEX]);
    assert_fault(
        sharded(put("model.safetensors", vectors(&["q"]))),
        StaleShard,
        &["model.safetensors", "2 shards"],
    );
    assert_fault(sharded(put(A, vectors(&["x"]))), IndexMismatch, &["tensor y", A, "it in no shard"]);
    let swapped = put_index(&[("x", A), ("y", B), ("z", B)]);
    assert_fault(sharded(swapped), IndexMismatch, &["tensor y", B, &format!("it in {A}")]);
    assert_fault(sharded(put_index(&[("x", A), ("z", B)])), IndexMismatch, &["tensor y", A, INDEX]);
    assert_fault(sharded(put(B, vectors(&["z", "x"]))), DuplicateName, &["tensor x", A, B]);
    let twice = put_index(&[("x", A), ("y", A), ("z", B), ("x", B)]);
    assert_fault(sharded(twice), DuplicateName, &["tensor x", INDEX, A]);
    assert_fault(sharded(put(A, vectors(&["x", "y"])[..100].to_vec())), Truncated, &[A, "resume"]);
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
    assert_fault(sharded(put(A, pointer.to_vec())), LfsPointer, &[A, "git lfs pull"]);
    assert_fault(sharded(put(INDEX, pointer.to_vec())), LfsPointer, &[INDEX, "git lfs pull"]);
}

#[test]
fn a_bad_index_is_named() {
    use FileFault::*;
    let bomb = format!("{{\"metadata\":{}", "[".repeat(1_000_000));
    for (text, fault, words) in [
        ("{", BadText, "EOF"),
        ("[]", BadText, "expected an object"),
        ("{}", BadText, "weight_map"),
        (r#"{"weight_map": 3}"#, BadText, "an object of strings"),
        (r#"{"weight_map": {"x": 3}}"#, BadText, "expected a string"),
        (r#"{"weight_map": {}, "weight_map": {}}"#, BadText, "weight_map twice"),
        (r#"{"weight_map": {"x": "../../etc/model.safetensors"}}"#, BadText, "in the same folder"),
        (r#"{"weight_map": {"x": "/etc/passwd"}}"#, BadText, "/etc/passwd"),
        (r#"{"weight_map": {"x": "model.bin"}}"#, BadText, "model.bin"),
        (r#"{"weight_map": {}}"#, NoTensors, "at least one tensor"),
        (bomb.as_str(), BadText, "EOF"),
    ] {
        assert_fault(sharded(|f| write(f, INDEX, text.as_bytes())), fault, &[INDEX, words]);
    }
}

#[test]
fn other_safetensors_files_are_no_shards() {
    let one = vectors(&["x"]);
    let others: Vec<(&str, &[u8])> = vec![
        ("model.safetensors", &one),
        ("expected.safetensors", b"anything"),
        ("consolidated.safetensors", b"anything"),
        ("consolidated-00001.safetensors", b"anything"),
        ("adapter_model.safetensors", b"anything"),
        ("model.gguf", b"anything"),
    ];
    let model = folder(&others);
    assert_eq!(Checkpoint::open(model.path()).unwrap().total_bytes(), 4);
    // One complete shard in the numbered spelling needs no index either.
    for name in ["model-00001-of-00001.safetensors", "model-1-of-1.safetensors", "model.bf16.safetensors"] {
        let model = folder(&[(name, &one)]);
        assert_eq!(Checkpoint::open(model.path()).unwrap().total_bytes(), 4);
    }
}

#[test]
fn missing_files_are_named() {
    let refused = |opened: base::Result<Checkpoint>, words: &[&str]| match opened.unwrap_err() {
        Error::Refused(refusal @ Refusal::NotFound { .. }) => assert_words(&refusal.to_string(), words),
        other => panic!("{other}"),
    };
    let needs = "a model folder needs config.json and model.safetensors";
    let empty = tempfile::tempdir().unwrap();
    let at = empty.path().to_str().unwrap();
    refused(Checkpoint::open(empty.path()), &["config.json not found", at, needs]);
    refused(Checkpoint::open(&empty.path().join("no")), &["model folder not found", "/no", needs]);
    let other = empty.path().join("other.json");
    refused(
        Checkpoint::open_with_config(empty.path(), Some(&other)),
        &["configuration not found", "other.json"],
    );
    let model = folder(&[("pytorch_model.bin", b"x")]);
    refused(Checkpoint::open(model.path()), &["model.safetensors not found", needs]);
    assert_fault(
        Checkpoint::open(folder(&[("model.safetensors", &file("{}", 0))]).path()),
        FileFault::NoTensors,
        &["at least one tensor", "none"],
    );
}

/// As in a download cache that was cleaned up: taking the file for absent would lose stop ids or shards.
#[test]
fn links_to_nowhere_are_errors() {
    let one = vectors(&["x"]);
    for name in ["generation_config.json", INDEX, "config.json", "model.safetensors"] {
        let model = folder(&[("model.safetensors", &one)]);
        let _ = std::fs::remove_file(model.path().join(name));
        std::os::unix::fs::symlink("../blobs/gone", model.path().join(name)).unwrap();
        let message = Checkpoint::open(model.path()).expect_err(name).to_string();
        assert_words(&message, &["can't open", name, "No such file"]);
    }
}

#[test]
fn end_of_text_ids_are_joined() {
    let one = vectors(&["x"]);
    let ids = |config: &str, generation: Option<&str>| {
        let model = folder(&[("model.safetensors", &one), ("config.json", config.as_bytes())]);
        if let Some(text) = generation {
            write(model.path(), "generation_config.json", text.as_bytes());
        }
        eos_ids(&Checkpoint::open(model.path())?)
    };
    assert_eq!(ids(r#"{"eos_token_id": 7}"#, None).unwrap(), [7]);
    assert_eq!(ids(r#"{"eos_token_id": [9, 7, 9]}"#, Some(r#"{"eos_token_id": 3}"#)).unwrap(), [3, 7, 9]);
    assert_eq!(ids(r#"{"eos_token_id": null}"#, Some(r#"{"eos_token_id": [3, 1]}"#)).unwrap(), [1, 3]);
    assert_eq!(ids(r#"{"text_config": {"eos_token_id": 2}}"#, Some("{}")).unwrap(), [2]);
    assert_eq!(ids("{}", None).unwrap(), Vec::<u32>::new());
    let error = ids("{}", Some(r#"{"eos_token_id": "x"}"#)).unwrap_err().to_string();
    assert_words(&error, &["eos_token_id", "generation_config.json", "a token id or a list"]);
    let error = ids("{}", Some("{")).unwrap_err();
    assert_eq!(error.fault(), Some(FileFault::BadText));
}

#[test]
fn a_synthetic_model_has_no_tensors_and_real_ones_are_never_synthetic() {
    let config = br#"{"krasis_synth": {"version": 1}}"#;
    let model = folder(&[("config.json", config)]);
    let open = || Checkpoint::open(model.path());
    let opened = open().unwrap();
    assert!(opened.is_synthetic() && opened.tensors().next().is_none());
    write(model.path(), "config.json", br#"{"krasis_synth": {"version": 2}}"#);
    assert_ne!(open().unwrap().identity(), opened.identity());
    for (name, bytes) in [("model.safetensors", vectors(&["x"])), (INDEX, b"{}".to_vec())] {
        write(model.path(), name, &bytes);
        let error = open().unwrap_err();
        assert!(matches!(error, Error::Refused(Refusal::Unsupported { .. })), "{error}");
        assert_words(&error.to_string(), &["krasis_synth", "config.json", name]);
        std::fs::remove_file(model.path().join(name)).unwrap();
    }
    assert!(!sharded(|_| ()).unwrap().is_synthetic());
    write(model.path(), "config.json", br#"{"krasis_synth": null}"#);
    assert!(open().is_err(), "a null key is an absent one");
}
