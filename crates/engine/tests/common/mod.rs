//! Fixture engines and runs for the tests of this crate.

#![allow(dead_code)] // each test binary that includes this file uses some of it

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use arch::Profile;
use base::hash::Digest;
use base::philox::Stream;
use engine::{Engine, GenerateOptions, Options, Stats, Wanted, generate};
use ops::Level;

/// How the prompt comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Prefill in chunks of so many tokens.
    Chunks(usize),
    /// Decode steps from the first token on.
    TokenByToken,
}

impl Way {
    /// Options with this way's chunk.
    pub fn options(self, options: Options) -> Options {
        match self {
            Way::Chunks(chunk) => Options { chunk, ..options },
            Way::TokenByToken => options,
        }
    }
}

/// What a run gave.
#[derive(Debug)]
pub struct Run {
    pub token_ids: Vec<u32>,
    pub digest: Digest,
    pub stats: Stats,
}

impl Run {
    /// SIMD rows did not run the reference, and the scalar row ran nothing else.
    pub fn assert_implementation(&self, level: Level) {
        const BYTES_ONLY: [&str; 4] = ["embed", "select", "moe_group", "digest"];
        for kind in self.stats.kinds.iter().filter(|k| k.runs > 0) {
            let (wanted, other) = match level {
                Level::Scalar => (kind.reference, kind.simd),
                _ if BYTES_ONLY.contains(&kind.op) => continue,
                _ => (kind.simd, kind.reference),
            };
            assert!(wanted > 0 && other == 0, "{} at {}: {kind:?}", kind.op, level.name());
        }
    }
}

/// An engine on a committed fixture, its weights built into a folder that is removed again.
pub fn fixture(name: &str, profile: Profile, options: Options) -> Engine {
    open(name, &testdata::fixture(name), profile, options)
}

/// Likewise of any model folder; `name` is the cache's.
pub fn open(name: &str, folder: &Path, profile: Profile, options: Options) -> Engine {
    let (model, recipe, cache) = parts(name, folder, profile);
    Engine::load(model, recipe, Box::new(cache), options).unwrap()
}

/// What an engine is loaded with.
pub fn parts(name: &str, folder: &Path, profile: Profile) -> (arch::Model, arch::Recipe, weights::Cache) {
    let checkpoint = checkpoint::Checkpoint::open(folder).unwrap();
    let model = arch::read(&checkpoint).unwrap();
    let recipe = profile.recipe();
    let cache = cache(&checkpoint, &model, &recipe, name);
    (model, recipe, cache)
}

/// Pseudo-random token ids.
pub fn prompt(tokens: usize, vocab: u32, seed: u64) -> Vec<u32> {
    let mut random = Stream::new(seed);
    (0..tokens).map(|_| random.below(vocab)).collect()
}

/// One conversation: prompt in, `answer` greedy tokens out.
pub fn run(engine: &mut Engine, prompt: &[u32], way: Way, answer: usize) -> Run {
    let cancel = AtomicBool::new(false);
    engine.reset_stats();
    engine.set_digest(true);
    let seq = engine.begin().unwrap();
    let options = GenerateOptions {
        max_tokens: answer,
        decode_prompt: way == Way::TokenByToken,
        ..GenerateOptions::default()
    };
    let on_token = &mut |_: u32, _: &[f32]| Ok(ControlFlow::Continue(()));
    let generated = generate(engine, seq, prompt, &options, &cancel, on_token).unwrap();
    let run =
        Run { token_ids: generated.token_ids, digest: engine.digest(seq), stats: engine.stats().clone() };
    engine.end(seq);
    run
}

/// Several conversations whose decode steps are shared, prompts one after the other.
pub fn run_together(engine: &mut Engine, prompts: &[Vec<u32>], answer: usize) -> Vec<Run> {
    let cancel = AtomicBool::new(false);
    engine.set_digest(true);
    let seqs: Vec<_> = prompts.iter().map(|_| engine.begin().unwrap()).collect();
    let mut next = vec![0u32; prompts.len()];
    let mut ids = vec![Vec::new(); prompts.len()];
    let argmax = |row: &[f32]| {
        let best = row.iter().copied().zip(0u32..).reduce(|a, b| if b.0 > a.0 { b } else { a });
        best.unwrap().1
    };
    for (i, prompt) in prompts.iter().enumerate() {
        let sink = &mut |_, _, row: &[f32]| {
            next[i] = argmax(row);
            Ok(())
        };
        engine.prefill(seqs[i], prompt, Wanted::Last, &cancel, sink).unwrap();
    }
    for step in 0..answer {
        for (ids, next) in ids.iter_mut().zip(&next) {
            ids.push(*next);
        }
        if step + 1 == answer {
            break;
        }
        let batch: Vec<_> = seqs.iter().copied().zip(next.iter().copied()).collect();
        let sink = &mut |seq, _, row: &[f32]| {
            let i = seqs.iter().position(|s| *s == seq).unwrap();
            next[i] = argmax(row);
            Ok(())
        };
        engine.step(&batch, &cancel, sink).unwrap();
    }
    let runs = seqs.iter().zip(ids).map(|(seq, token_ids)| Run {
        token_ids,
        digest: engine.digest(*seq),
        stats: engine.stats().clone(),
    });
    runs.collect()
}

/// The weight cache of a fixture, built once per process into a temporary folder.
pub fn cache(
    checkpoint: &checkpoint::Checkpoint,
    model: &arch::Model,
    recipe: &arch::Recipe,
    name: &str,
) -> weights::Cache {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap());
    let path = folder.path().join(format!("{name}-{}.kw", recipe.weight_key().replace([',', '='], "-")));
    let manifest = arch::Manifest::new(model, recipe);
    let cancel = AtomicBool::new(false);
    let options = weights::Options::with_threads(2);
    weights::ensure(checkpoint, &manifest, recipe, &path, &options, &|_| {}, &cancel).unwrap().0
}
