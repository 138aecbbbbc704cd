//! What an engine refuses, and that it refuses it before anything is computed.

mod common;

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use arch::Profile;
use base::{Error, Refusal};
use engine::{Engine, Finish, GenerateOptions, Options, Wanted, generate};
use ops::Level;

fn engine(options: Options) -> Engine {
    common::fixture("qwen3_moe", Profile::Default, options)
}

fn small() -> Options {
    Options { chunk: 16, ..Options::new(64) }
}

fn answer(engine: &mut Engine, prompt: &[u32], max_tokens: usize, cancel: bool) -> base::Result<Finish> {
    let seq = engine.begin()?;
    let options = GenerateOptions { max_tokens, ..GenerateOptions::default() };
    let on_token = &mut |_: u32, _: &[f32]| Ok(ControlFlow::Continue(()));
    let done = generate(engine, seq, prompt, &options, &AtomicBool::new(cancel), on_token);
    engine.end(seq);
    done.map(|g| g.finish)
}

fn refusal(result: base::Result<Finish>) -> String {
    match result {
        Err(Error::Refused(refusal)) => refusal.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn prompts_that_cannot_be_served_are_refused_with_counts() {
    let mut engine = engine(small());
    let text = refusal(answer(&mut engine, &common::prompt(65, 512, 1), 4, false));
    assert!(text.contains("65 tokens") && text.contains("64 tokens"), "{text}");
    let text = refusal(answer(&mut engine, &[3, 512], 4, false));
    assert!(text.contains("512"), "{text}");
    let text = refusal(answer(&mut engine, &[], 4, false));
    assert!(text.contains("prompt"), "{text}");
    assert_eq!(engine.stats().kinds.iter().map(|k| k.runs).sum::<u64>(), 0, "nothing was computed");
}

#[test]
fn the_end_of_the_context_ends_an_answer() {
    let mut engine = engine(small());
    for max_tokens in [2, 1000] {
        let finish = answer(&mut engine, &common::prompt(60, 512, 1), max_tokens, false).unwrap();
        assert_eq!(finish, Finish::Length);
    }
}

#[test]
fn a_cancelled_request_stops_and_leaves_the_engine_usable() {
    let mut engine = engine(small());
    let prompt = common::prompt(40, 512, 1);
    let cancelled = answer(&mut engine, &prompt, 4, true);
    assert!(matches!(cancelled, Err(Error::Refused(Refusal::Cancelled))));
    assert_eq!(answer(&mut engine, &prompt, 4, false).unwrap(), Finish::Length);
}

#[test]
fn a_sequence_starts_clean_where_another_ended() {
    let fresh = |seed| {
        let mut engine = common::fixture("qwen3_next", Profile::Default, small());
        common::run(&mut engine, &common::prompt(40, 512, seed), common::Way::Chunks(16), 4).digest
    };
    let mut engine = common::fixture("qwen3_next", Profile::Default, small());
    for seed in [1, 2, 1] {
        let way = common::Way::Chunks(16);
        let reused = common::run(&mut engine, &common::prompt(40, 512, seed), way, 4).digest;
        assert_eq!(reused, fresh(seed), "prompt {seed}");
    }
}

#[test]
fn slots_run_out_by_name() {
    let mut engine = engine(Options { sequences: 2, ..small() });
    let first = engine.begin().unwrap();
    engine.begin().unwrap();
    let error = engine.begin().unwrap_err().to_string();
    assert!(error.contains("parallel: 2"), "{error}");
    engine.end(first);
    engine.begin().unwrap();
}

#[test]
fn options_outside_the_limits_are_refused_by_name() {
    let checkpoint = checkpoint::Checkpoint::open(&testdata::fixture("qwen3_moe")).unwrap();
    let model = arch::read(&checkpoint).unwrap();
    let recipe = Profile::Default.recipe();
    let mut cases = vec![
        (Options { chunk: 0, ..small() }, "chunk"),
        (Options { threads: 0, ..small() }, "threads"),
        (Options { sequences: 257, ..small() }, "parallel"),
        (Options::new(4097), "context"),
    ];
    if Level::detect() < Level::Avx512 {
        cases.push((Options { level: Level::Avx512, ..small() }, "simd"));
    }
    for (options, field) in cases {
        let cache = common::cache(&checkpoint, &model, &recipe, "qwen3_moe");
        let error = Engine::load(model.clone(), recipe, Box::new(cache), options).err().unwrap();
        assert!(error.to_string().starts_with(&format!("{field}:")), "{error}");
    }
}

#[test]
fn all_logits_arrive_in_order() {
    let mut engine = engine(Options { head_rows: 5, ..small() });
    let seq = engine.begin().unwrap();
    let mut positions = Vec::new();
    let sink = &mut |_, position, row: &[f32]| {
        assert_eq!(row.len(), 512);
        positions.push(position);
        Ok(())
    };
    let prompt = common::prompt(37, 512, 3);
    engine.prefill(seq, &prompt, Wanted::All, &AtomicBool::new(false), sink).unwrap();
    assert_eq!(positions, (0..37).collect::<Vec<_>>());
    assert_eq!(engine.len(seq), 37);
}
