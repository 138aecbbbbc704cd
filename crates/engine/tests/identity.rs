//! The identity matrix: one conversation, every way to compute it, one digest of all logits.

mod common;

use common::{Run, Way, fixture, prompt};
use engine::Options;
use ops::Level;

/// Ways a prompt can be brought in: chunks of so many tokens, or token by token as decode does.
fn ways() -> Vec<Way> {
    let mut ways: Vec<Way> = [512, 1, 7, 64, 100].map(Way::Chunks).to_vec();
    ways.push(Way::TokenByToken);
    ways
}

fn options(level: Level, threads: usize) -> Options {
    Options { level, threads, ..Options::new(400) }
}

/// All ways × threads × levels (twice each on one engine) agree, and the rows really differ in what ran.
fn matrix(fixture_name: &str, profile: arch::Profile) {
    let prompt = prompt(330, 512, 11);
    let mut first: Option<Run> = None;
    let mut rows = 0;
    for level in Level::available() {
        for threads in [1, 2] {
            for way in ways() {
                // The reference loops have one thread whatever the pool has: one row shows that it is
                // ignored.
                if level == Level::Scalar && threads > 1 && way != Way::Chunks(512) {
                    continue;
                }
                let mut engine = fixture(fixture_name, profile, way.options(options(level, threads)));
                for time in 0..2 {
                    let run = common::run(&mut engine, &prompt, way, 8);
                    run.assert_implementation(level);
                    let row = format!("{fixture_name} {level:?} {threads} threads {way:?} time {time}");
                    match &first {
                        None => first = Some(run),
                        Some(first) => {
                            assert_eq!(run.token_ids, first.token_ids, "{row}");
                            assert_eq!(run.digest, first.digest, "{row}");
                        }
                    }
                    rows += 1;
                    // The slowest rows once: a second pass over them says nothing the faster rows don't.
                    if level == Level::Scalar && way != Way::Chunks(512) {
                        break;
                    }
                }
            }
        }
    }
    let levels: Vec<_> = Level::available().map(Level::name).collect();
    let digest = first.expect("there are rows").digest;
    println!("{fixture_name} {}: {rows} rows, levels {levels:?}, digest {digest}", profile.name());
    if Level::detect() < Level::Avx512 {
        testdata::skip("avx512 rows: not on this machine");
    }
}

#[test]
fn qwen3_moe_default() {
    matrix("qwen3_moe", arch::Profile::Default);
}

#[test]
fn qwen3_next_default() {
    matrix("qwen3_next", arch::Profile::Default);
}

#[test]
fn qwen3_next_reference() {
    matrix("qwen3_next", arch::Profile::Reference);
}

#[test]
fn qwen3_moe_small() {
    matrix("qwen3_moe", arch::Profile::Small);
}

/// Six-bit keys and values, which no profile has.
#[test]
fn qwen3_moe_k6v6() {
    let (model, mut recipe, _) =
        common::parts("qwen3_moe", &testdata::fixture("qwen3_moe"), arch::Profile::Default);
    recipe.kv = "k6v6".parse().unwrap();
    let prompt = prompt(330, 512, 11);
    let run = |level, way: Way| {
        let (_, _, cache) =
            common::parts("qwen3_moe", &testdata::fixture("qwen3_moe"), arch::Profile::Default);
        let options = way.options(options(level, 2));
        let mut engine = engine::Engine::load(model.clone(), recipe, Box::new(cache), options).unwrap();
        let run = common::run(&mut engine, &prompt, way, 4);
        run.assert_implementation(level);
        run.digest
    };
    let first = run(Level::Scalar, Way::Chunks(512));
    for level in Level::available().filter(|l| *l > Level::Scalar) {
        for way in ways() {
            assert_eq!(run(level, way), first, "{level:?} {way:?}");
        }
    }
}

/// A sequence that shares its steps with others gives the bits it gives alone.
#[test]
fn a_batch_changes_nobody() {
    for name in ["qwen3_moe", "qwen3_next"] {
        let level = Level::detect();
        let prompts: Vec<Vec<u32>> = (0..3).map(|i| prompt(40 + 29 * i, 512, 20 + i as u64)).collect();
        let alone: Vec<Run> = prompts
            .iter()
            .map(|p| {
                let mut engine = fixture(name, arch::Profile::Default, options(level, 1));
                common::run(&mut engine, p, Way::Chunks(512), 12)
            })
            .collect();
        let options = Options { sequences: 3, chunk: 33, ..options(level, 2) };
        let mut engine = fixture(name, arch::Profile::Default, options);
        let together = common::run_together(&mut engine, &prompts, 12);
        for (i, (alone, together)) in alone.iter().zip(&together).enumerate() {
            assert_eq!(alone.token_ids, together.token_ids, "{name} sequence {i}");
            assert_eq!(alone.digest, together.digest, "{name} sequence {i}");
        }
        assert_ne!(together[0].digest, together[1].digest);
    }
}

/// A digest that can't change would prove nothing.
#[test]
fn another_prompt_or_recipe_has_another_digest() {
    let run = |profile, seed| {
        let mut engine = fixture("qwen3_next", profile, options(Level::detect(), 2));
        common::run(&mut engine, &prompt(300, 512, seed), Way::Chunks(512), 2).digest
    };
    let digests =
        [run(arch::Profile::Default, 1), run(arch::Profile::Default, 2), run(arch::Profile::Reference, 1)];
    assert!(digests[0] != digests[1] && digests[0] != digests[2] && digests[1] != digests[2]);
}
