//! tokenizer.json and, behind a zero byte, tokenizer_config.json.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use text::{Detokenizer, Tokenizer};

const TEXTS: [&str; 4] =
    ["", "Hello, world!\n", "<|im_start|>user\n x <think>é日本\u{1F600}", "\u{0}\u{301} \t  42"];

/// A folder of this process, in memory where the system has such a place.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // libFuzzer's own hook aborts at once; the tokenizer library's panics are caught by the code under
        // test. What nobody catches still ends the process.
        let print = |info: &std::panic::PanicHookInfo<'_>| eprintln!("{info}");
        std::panic::set_hook(Box::new(print));
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let folder = base.join(format!("krasis-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the tokenizer's files");
        folder
    })
}

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |&b| b == 0);
    let files = [("tokenizer.json", parts.next()), ("tokenizer_config.json", parts.next())];
    for (name, content) in files {
        std::fs::write(folder().join(name), content.unwrap_or(b"{}")).expect("memory for a small file");
    }
    let opened = Tokenizer::open(folder());
    let _ = std::fs::remove_dir_all(folder()).and_then(|()| std::fs::create_dir_all(folder()));
    let Ok(tokenizer) = opened else { return };
    for text in TEXTS {
        let Ok(ids) = tokenizer.encode(text) else { continue };
        let mut detokenizer = Detokenizer::new(&tokenizer, false);
        let mut said = String::new();
        for &id in &ids {
            assert!((id as usize) < tokenizer.vocab_size(), "{id} of {}", tokenizer.vocab_size());
            said.push_str(&detokenizer.push(id));
        }
        said.push_str(&detokenizer.finish());
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
        assert_eq!(said, String::from_utf8_lossy(&bytes), "pieces and whole");
    }
    assert!(tokenizer.eos_ids().iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
});
