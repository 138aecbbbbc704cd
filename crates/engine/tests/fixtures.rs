//! The core fixtures: what an independent implementation computed in float32 (see the fixtures' README.md).

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use arch::Profile;
use checkpoint::safetensors;
use engine::{Engine, GenerateOptions, Observer, Options, Wanted, generate};

/// Layer, position, and the experts chosen there.
type Choice = (usize, usize, BTreeSet<u32>);

/// Router choices as sets.
#[derive(Clone, Default)]
struct Routers(Arc<Mutex<Vec<Choice>>>);

impl Observer for Routers {
    fn router(&mut self, layer: base::LayerId, rows: &[ops::Row], top_k: usize, ids: &[u32], _: &[f32]) {
        let mut seen = self.0.lock().unwrap();
        for (row, ids) in rows.iter().zip(ids.chunks_exact(top_k)) {
            seen.push((layer.index(), row.pos as usize, ids.iter().copied().collect()));
        }
    }
}

fn relative_rms(ours: &[f32], theirs: &[f32]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let pairs = || ours.iter().zip(theirs).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    let error: f64 = pairs().map(|(a, b)| (a - b) * (a - b)).sum();
    let size: f64 = pairs().map(|(_, b)| b * b).sum();
    (error / size).sqrt()
}

fn prefill_logits(engine: &mut Engine, ids: &[u32]) -> Vec<f32> {
    let cancel = AtomicBool::new(false);
    let seq = engine.begin().unwrap();
    let mut logits = Vec::new();
    let sink = &mut |_, _, row: &[f32]| {
        logits.extend_from_slice(row);
        Ok(())
    };
    engine.prefill(seq, ids, Wanted::All, &cancel, sink).unwrap();
    engine.end(seq);
    logits
}

fn check(name: &str) {
    let expected = safetensors::File::open(&testdata::fixture(name).join("expected.safetensors")).unwrap();
    let ids: Vec<u32> = expected.i64("input_ids").unwrap().iter().map(|id| *id as u32).collect();
    let mut engine = common::fixture(name, Profile::Reference, Options::new(400));
    let routers = Routers::default();
    engine.observe(Some(Box::new(routers.clone())));
    let logits = prefill_logits(&mut engine, &ids);
    engine.observe(None);

    let error = relative_rms(&logits, &expected.f32("logits").unwrap());
    println!("{name}: logits differ by {error:.3e} relative RMS over {} tokens", ids.len());
    assert!(error <= 5e-4, "{name}: {error}");

    let seen = routers.0.lock().unwrap();
    assert_eq!(seen.len(), ids.len() * engine.model().moe_layers().count());
    for (layer, position, ours) in seen.iter() {
        let theirs = expected.i64(&format!("router.{layer}.indices")).unwrap();
        let top_k = theirs.len() / ids.len();
        let theirs = theirs[position * top_k..][..top_k].iter().map(|i| *i as u32).collect();
        assert_eq!(*ours, theirs, "{name}: layer {layer}, token {position}");
    }

    let cancel = AtomicBool::new(false);
    let seq = engine.begin().unwrap();
    let options = GenerateOptions { max_tokens: 24, ..GenerateOptions::default() };
    let on_token = &mut |_: u32, _: &[f32]| Ok(std::ops::ControlFlow::Continue(()));
    let generated = generate(&mut engine, seq, &ids, &options, &cancel, on_token).unwrap();
    let greedy: Vec<u32> = expected.i64("greedy_ids").unwrap().iter().map(|id| *id as u32).collect();
    assert_eq!(generated.token_ids, greedy, "{name}");
}

#[test]
fn qwen3_moe_agrees_with_the_reference() {
    check("qwen3_moe");
}

#[test]
fn qwen3_next_agrees_with_the_reference() {
    check("qwen3_next");
}
