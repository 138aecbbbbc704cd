//! After the first token, decoding and choosing allocate nothing.

mod common;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use arch::Profile;
use base::counting_alloc::{self, CountingAlloc};
use engine::sample::Sampling;
use engine::{Engine, GenerateOptions, Options, generate};
use ops::Level;

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

/// Tokens of an answer: enough to fill a block of whatever grows now and then.
const ANSWER: usize = 150;
/// Tokens of a usual prompt.
const SHORT: usize = 20;
/// Tokens of a prompt whose answer crosses into the next split of attention.
const LONG: usize = 1000;

/// Allocations of all threads between the first token and the last, and where the first one was.
fn allocations(engine: &mut Engine, prompt: usize, sampling: &Sampling, plant: bool) -> (u64, String) {
    let vocab = engine.model().vocab as u32;
    let prompt = common::prompt(prompt, vocab, 7);
    let seq = engine.begin().unwrap();
    let options = GenerateOptions { max_tokens: ANSWER, sampling: sampling.clone(), ..Default::default() };
    let (mut tokens, mut start, mut end) = (0, 0, 0);
    let on_token = &mut |_: u32, _: &[f32]| {
        tokens += 1;
        if plant && tokens == ANSWER / 2 {
            drop(black_box(Box::new(tokens)));
        }
        end = counting_alloc::total();
        if tokens == 1 {
            start = end;
            counting_alloc::watch();
        }
        Ok(ControlFlow::Continue(()))
    };
    let cancel = AtomicBool::new(false);
    let made = generate(engine, seq, &prompt, &options, &cancel, on_token).unwrap();
    let place = counting_alloc::unwatch();
    assert_eq!((made.token_ids.len(), tokens), (ANSWER, ANSWER));
    engine.end(seq);
    (end - start, place.unwrap_or_default())
}

/// One test for all cases: the counts are of the whole process.
#[test]
fn decode_and_choice_allocate_nothing_after_the_first_token() {
    if Level::detect() == Level::Scalar {
        return testdata::skip("the reference loops allocate; this machine has no SIMD level");
    }
    let everything = Sampling {
        temperature: 0.9,
        top_k: 200,
        top_p: 0.95,
        min_p: 0.001,
        repetition_penalty: 1.1,
        presence_penalty: 0.2,
        frequency_penalty: 0.1,
        logit_bias: [(3, -1.0), (7, 0.5)].into(),
        seed: 5,
    };
    let choices = [("greedy", Sampling::default()), ("everything", everything)];
    // With more workers than KV heads, attention shares splits out.
    // Kept to the end: workers of an engine that goes would allocate while they end.
    let mut kept = Vec::new();
    for (name, threads, prompt, on_device) in [
        ("qwen3_moe", 1, SHORT, false),
        ("qwen3_moe", 2, SHORT, true),
        ("qwen3_next", 1, SHORT, true),
        ("qwen3_next", 2, LONG, false),
        ("qwen3_moe", 3, LONG, false),
        ("tiny-qwen3-next", 2, SHORT, false),
    ] {
        let options = Options { threads, ..Options::new(prompt + ANSWER) };
        let mut engine = common::fixture(name, Profile::Default, options);
        if on_device {
            // The least that works: experts come and go with every step.
            let vram = Some(engine.plan().minimum_bytes);
            let device = common::fixture(name, Profile::Default, Options { vram, ..options });
            kept.push(std::mem::replace(&mut engine, device));
        }
        for (choice, sampling) in &choices {
            let (count, place) = allocations(&mut engine, prompt, sampling, false);
            assert_eq!(count, 0, "{name}, {threads} threads, on device {on_device}, {choice}: {place}");
        }
        assert_eq!(engine.stats().experts.evictions > 0, on_device);
        let (count, place) = allocations(&mut engine, prompt, &choices[1].1, true);
        assert_eq!(count, 1, "a planted allocation is found: {place}");
        assert!(place.starts_with("8 bytes"), "{place}");
        kept.push(engine);
    }
}
