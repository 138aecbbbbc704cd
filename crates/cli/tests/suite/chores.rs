//! build, models, cache, synth, bench, docs.

use serde_json::json;

use crate::krasis::{copy, krasis, krasis_in, root, text};

#[test]
fn caches_are_built_listed_verified_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let model = home.path().join("models/org/small");
    copy(&testdata::fixture("qwen3_next"), &model);
    let krasis = |args: &[&str]| krasis_in(home.path(), args);
    let built = krasis(&["build", "org/small", "--json"]).json();
    assert_eq!(built["built"], true);
    assert_eq!(krasis(&["build", text(&model), "--json"]).json()["built"], false);
    let other = krasis(&["build", "org/small", "--head", "int16", "--json"]).json();
    assert_ne!(other["path"], built["path"]);
    let listed = krasis(&["cache", "ls", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(listed[0]["state"], "whole");
    let verified = krasis(&["cache", "verify"]);
    assert_eq!((verified.code, verified.out.matches(": whole").count()), (Some(0), 2));

    let path = std::path::Path::new(other["path"].as_str().unwrap());
    let name = path.file_name().unwrap().to_str().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let verified = krasis(&["cache", "verify", name]);
    assert_eq!(verified.code, Some(1));
    assert!(verified.out.contains("damaged") && verified.err.contains(name), "{verified:?}");
    assert_eq!(krasis(&["cache", "rm", name]).code, Some(0));
    assert!(!path.exists());
    assert_eq!(krasis(&["cache", "ls"]).out.lines().count(), 1);
    assert_eq!(krasis(&["cache", "rm", "--all"]).code, Some(0));
    assert_eq!(krasis(&["cache", "ls"]).out, "");
}

#[test]
fn models_are_listed_with_what_is_wrong_with_them() {
    let home = tempfile::tempdir().unwrap();
    copy(&testdata::fixture("qwen3_moe"), &home.path().join("models/good"));
    std::fs::create_dir_all(home.path().join("models/org/bad")).unwrap();
    let models = krasis_in(home.path(), &["models", "--json"]).json();
    let names: Vec<_> = models.as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tiny-qwen3-next (bundled)", "good", "org/bad"]);
    let figure = |key: &str| models[0][key].as_u64().unwrap();
    assert_eq!(2 * figure("parameters"), figure("bytes"), "BF16, and nothing is left over");
    assert_eq!(models[1]["family"], "qwen3_moe");
    assert!(models[2]["problem"].as_str().unwrap().contains("config.json"), "{}", models[2]);
    assert_eq!(krasis_in(home.path(), &["models"]).out.lines().count(), 3);
}

#[test]
fn a_synthetic_model_can_be_benched() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("synthetic");
    let home = folder.path().join("home");
    let args = ["synth", "--checkpoint", text(&model), "--family", "qwen3_next", "--size", "14MB", "--json"];
    let written = krasis_in(&home, &args).json();
    assert_eq!(written["shards"], 1);
    krasis_in(&home, &args).failed(3, &["does not exist yet"]);
    let args = ["bench", text(&model), "--prompt", "40", "--decode", "3", "--chunk", "32", "--json"];
    let bench = krasis_in(&home, &args).json();
    assert_eq!((&bench["hit_rate"], &bench["prompt_made_by"]), (&json!(1.0), &json!("words")));
    assert_eq!((&bench["prefill"]["tokens"], &bench["decode"]["tokens"]), (&json!(40), &json!(3)));
    for key in ["prefill_tok_s", "decode_tok_s", "read_gb_s", "machine_read_gb_s", "int8_gmac_s"] {
        assert!(bench[key].as_f64().unwrap() > 0.0, "{key}: {}", bench[key]);
    }
    let shares = bench["decode"]["steps"].as_array().unwrap().iter().map(|s| s["share"].as_f64().unwrap());
    assert!((shares.sum::<f64>() - 1.0).abs() < 1e-6);
    assert!(bench["bytes_moved"].as_u64().unwrap() > 1_000_000);
}

#[test]
fn a_model_made_up_in_a_cache_is_planned_as_a_real_one_and_never_rebuilt() {
    let home = tempfile::tempdir().unwrap();
    let krasis = |args: &[&str]| krasis_in(home.path(), args);
    let synth = |more: &[&str]| {
        let cuts = "qwen3-30b-a3b --layers 2 --num-experts 8 --top-k 2 --hidden 256 --inter 128 --vocab 2048";
        krasis(&[&["synth"], &cuts.split(' ').collect::<Vec<_>>()[..], more].concat())
    };
    let made = synth(&["--json"]).json();
    assert_eq!((&made["written"], &made["routing"]["layers"]), (&json!(true), &json!(2)));
    assert_eq!(made["routing"]["lru"].as_array().unwrap().len(), 4);
    assert_eq!(made["routing"]["lru"][0]["target"], json!(null), "no targets for 8 experts");
    let again = synth(&[]);
    assert!(again.out.contains("it was there") && again.out.contains("in proportion to 8"), "{}", again.out);
    let name = "synth-qwen3-30b-a3b-2-layers-8-experts";
    assert!(made["folder"].as_str().unwrap().ends_with(&format!("models/{name}")));
    assert_eq!(krasis(&["cache", "verify"]).out.matches(": whole").count(), 1);
    let listed = krasis(&["models", "--json"]).json();
    assert_eq!((&listed[1]["name"], &listed[1]["problem"]), (&json!(name), &json!(null)));
    assert!(listed[1]["bytes"].as_u64().unwrap() > 1_000_000);
    let bench = |more: &[&str]| {
        krasis(&[&["bench", name, "--prompt", "9", "--decode", "2", "--json"], more].concat())
    };
    assert_eq!(bench(&[]).json()["family"], "qwen3_moe");
    std::fs::write(made["cache"].as_str().unwrap(), b"damaged").unwrap();
    bench(&[]).failed(3, &["synthetic", "cache can't be used", "krasis synth"]);
    assert_eq!(synth(&["--json"]).json()["written"], true);
    assert_eq!(bench(&[]).json()["family"], "qwen3_moe");
    bench(&["--profile", "small"]).failed(3, &["synthetic", "attention=h4", "krasis synth"]);
    assert_eq!(synth(&["--profile", "small", "--json"]).json()["folder"], made["folder"]);
    assert_eq!(bench(&["--profile", "small"]).json()["profile"], "small");
    synth(&["--seed", "1"]).failed(3, &["out", "same model's"]);
    krasis(&["run", name, "hello"]).failed(3, &["synthetic model", "no tokenizer", "krasis bench"]);

    let folder = home.path().join("models").join(name);
    std::fs::write(folder.join("model.safetensors"), b"tensors").unwrap();
    bench(&[]).failed(3, &["krasis_synth", "model.safetensors"]);
    std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    assert_eq!(krasis(&["cache", "rm", "--all"]).code, Some(0));
    bench(&[]).failed(3, &["synthetic", "krasis synth"]);
    assert!(krasis(&["models", "--json"]).json()[1]["problem"].as_str().unwrap().contains("krasis synth"));
    let args = ["synth", "--checkpoint", "qwen3-30b-a3b"];
    krasis(&args).failed(3, &["checkpoint", "shape before"]);
}

#[test]
fn a_published_shape_is_written_as_a_checkpoint_without_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("bf16");
    let cuts = "qwen3-coder-next --layers 4 --num-experts 8 --top-k 2 --hidden 128 --inter 64 --vocab 512";
    let args = [&["synth"], &cuts.split(' ').collect::<Vec<_>>()[..]].concat();
    let args = [&args[..], &["--linear-dim", "64", "--checkpoint", text(&model), "--json"]].concat();
    assert_eq!(krasis_in(folder.path(), &args).json()["shards"], 1);
    let config = std::fs::read_to_string(model.join("config.json")).unwrap();
    assert!(!config.contains("krasis_synth") && config.contains("5000000"), "{config}");
    krasis_in(folder.path(), &[&args[..], &["--profile", "small"]].concat()).failed(2, &["--profile"]);
}

#[test]
fn the_document_of_all_flags_is_up_to_date() {
    let ran = krasis(&["docs"]);
    let written = std::fs::read_to_string(root().join("docs/cli.md")).unwrap_or_default();
    assert!(ran.out == written, "run `cargo run -- docs > docs/cli.md`");
    assert!(!ran.out.contains("krasis docs`\n"), "hidden commands are not in it");
}
