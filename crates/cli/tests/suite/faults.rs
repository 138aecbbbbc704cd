//! Refusals and broken files: exit codes and what is said.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::krasis::{command, copy, krasis, krasis_in, root, text};

#[test]
fn wrong_usage_is_2() {
    for args in [
        &["run", "x", "--nonsense"][..],
        &["nonsense"],
        &["run", "x", "--experts", "int5"],
        &["run", "x", "--max-tokens", "0"],
        &["run", "x", "--threads", "none"],
        &["synth", "--checkpoint", "x", "--size", "big"],
        &["build", "--profile", "huge"],
    ] {
        krasis(args).failed(2, &["error:"]);
    }
    krasis(&["run", "--json"]).failed(2, &["the prompt is empty"]);
    let bad_log = command(&["models"]).env("KRASIS_LOG", "a=b=c").output().unwrap();
    assert_eq!(bad_log.status.code(), Some(2));
}

#[test]
fn what_cannot_be_done_is_3() {
    krasis(&["run", "x", "--experts", "hqq4"]).failed(3, &["--experts: hqq4", "int4, int8, int16"]);
    krasis(&["run", "x", "--context", "12"]).failed(3, &["15 tokens", "a context of 12", "--context"]);
    let wish = ["run", "x", "--context", "40", "--max-tokens", "30"];
    krasis(&wish).failed(3, &["tokens and 30 of answer", "a context of 40"]);
    krasis(&["run", "x", "--context", "99999"]).failed(3, &["context: 99999", "16384"]);
    krasis(&["run", "x", "--temperature", "-1"]).failed(3, &["temperature: -1"]);
    krasis(&["run", "x", "--top-p", "nan"]).failed(3, &["top_p"]);
    if ops::Level::detect() < ops::Level::Avx512 {
        krasis(&["run", "x", "--simd", "avx512"]).failed(3, &["--simd avx512"]);
    }
    let fixture = testdata::fixture("qwen3_moe");
    krasis(&["run", text(&fixture), "x"]).failed(1, &["tokenizer.json"]);
}

#[test]
fn what_is_not_there_is_1() {
    krasis(&["run", "no-such-model", "x"]).failed(1, &["model not found: no-such-model", "krasis models"]);
    krasis(&["build", "../etc"]).failed(1, &["model not found"]);
    krasis(&["run", "--prompt-file", "no-such-file"]).failed(1, &["no-such-file"]);
    krasis(&["run", "x", "--tools", "no-such-file"]).failed(1, &["no-such-file"]);
    krasis(&["compare", text(&testdata::fixture("tiny-qwen3-next"))]).failed(1, &["witness not found"]);
    krasis(&["cache", "rm", "no-such-cache"]).failed(1, &["no-such-cache"]);
    let not_tools = root().join("Cargo.toml");
    krasis(&["run", "x", "--tools", text(&not_tools)]).failed(1, &["Cargo.toml", "tool definitions"]);
}

/// A copy of the small fixture in `folder`, broken by `break_it`.
fn broken(folder: &Path, name: &str, break_it: impl FnOnce(&Path)) -> PathBuf {
    let to = folder.join(name);
    copy(&testdata::fixture("qwen3_moe"), &to);
    break_it(&to);
    to
}

#[test]
fn broken_model_folders_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let cut = |path: &Path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    };
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5008456\n";
    let cases = [
        ("no-config", broken(folder.path(), "a", |f| std::fs::remove_file(f.join("config.json")).unwrap())),
        ("cut", broken(folder.path(), "b", |f| cut(&f.join("model.safetensors")))),
        (
            "lfs",
            broken(folder.path(), "c", |f| std::fs::write(f.join("model.safetensors"), pointer).unwrap()),
        ),
        ("bad-config", broken(folder.path(), "d", |f| std::fs::write(f.join("config.json"), "{").unwrap())),
        (
            "no-weights",
            broken(folder.path(), "e", |f| std::fs::remove_file(f.join("model.safetensors")).unwrap()),
        ),
    ];
    for (what, path) in cases {
        let part = match what {
            "no-config" | "bad-config" => "config.json",
            _ => "model.safetensors",
        };
        krasis(&["build", text(&path)]).failed(1, &[part, text(&path)]);
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for args in [&["run", "Hello!"][..], &["models"], &["run", "Hello!", "--json"]] {
        let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(0) && !err.contains("panicked"), "{args:?}: {err}");
    }
}

#[test]
fn a_home_that_cannot_be_written_is_1() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("file");
    std::fs::write(&home, "").unwrap();
    krasis_in(&home, &["run", "Hello!"]).failed(1, &[text(&home)]);
}
