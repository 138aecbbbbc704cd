//! A device with a capacity: the same bits with any number of slots, and counters that say what was moved.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arch::Profile;
use base::{Error, LayerId, Refusal};
use common::{Run, Way, fixture, prompt};
use engine::{Checks, Engine, Observer, Options, Residents, Wanted};
use gpu::Pace;
use ops::{Level, Row};

/// Plenty for any fixture.
const ROOMY: u64 = 64 << 20;

/// Copies come late, the mapped cache is closed.
fn hard(seed: u64) -> Checks {
    Checks { pace: Pace::Adversarial(seed), close_mapping: true }
}

fn options(threads: usize) -> Options {
    Options { threads, level: Level::detect(), checks: hard(threads as u64), ..Options::new(400) }
}

/// The smallest capacity that serves `options`.
fn minimum(fixture: &dyn Fn(Options) -> Engine, options: Options) -> u64 {
    fixture(Options { vram: Some(ROOMY), ..options }).plan().minimum_bytes
}

/// Sequences that share their steps on a device get what each gets alone on the host.
#[test]
fn a_batch_on_a_small_device_changes_nobody() {
    for name in ["qwen3_moe", "qwen3_next"] {
        let prompts: Vec<Vec<u32>> = (0..3).map(|i| prompt(30 + 17 * i, 512, 60 + i as u64)).collect();
        let alone: Vec<Run> = prompts
            .iter()
            .map(|p| {
                let mut host = fixture(name, Profile::Default, Options::new(200));
                common::run(&mut host, p, Way::Chunks(512), 10)
            })
            .collect();
        let wish = Options { sequences: 3, chunk: 16, context: 200, ..options(2) };
        let fixture = |options| fixture(name, Profile::Default, options);
        for (device, options) in devices(&fixture, wish) {
            let mut engine = fixture(options);
            let together = common::run_together(&mut engine, &prompts, 10);
            for (alone, together) in alone.iter().zip(&together) {
                assert_eq!(alone.token_ids, together.token_ids, "{name} {device}");
                assert_eq!(alone.digest, together.digest, "{name} {device}");
            }
            check_usage(&engine, device);
        }
    }
}

/// What may be refused.
fn load(options: Options) -> base::Result<Engine> {
    let (model, recipe, cache) =
        common::parts("qwen3_moe", &testdata::fixture("qwen3_moe"), Profile::Default);
    Engine::load(model, recipe, Box::new(cache), options)
}

fn moe(options: Options) -> Engine {
    fixture("qwen3_moe", Profile::Default, options)
}

/// Rows of the matrix: a name, and the device.
fn devices(fixture: &dyn Fn(Options) -> Engine, options: Options) -> Vec<(&'static str, Options)> {
    let share = |percent| Options { vram: Some(ROOMY), residency: Some(percent), ..options };
    vec![
        ("100 %", share(100)),
        ("60 %", share(60)),
        ("30 %", share(30)),
        ("minimum", Options { vram: Some(minimum(fixture, options)), ..options }),
    ]
}

/// All devices × ways × threads agree with the host itself, and moved what the plan says.
fn matrix(name: &str, folder: &Path) {
    let fixture = |options| common::open(name, folder, Profile::Default, options);
    let prompt = prompt(330, 512, 11);
    let host = common::run(&mut fixture(Options::new(400)), &prompt, Way::Chunks(512), 8);
    assert_eq!(host.stats.experts, engine::ExpertStats::default(), "the host reads experts in place");
    let mut ways: Vec<Way> = [512, 1, 7, 64, 100].map(Way::Chunks).to_vec();
    ways.push(Way::TokenByToken);
    let pairs = [Way::Chunks(64), Way::TokenByToken].map(|way| (2, way));
    for (threads, way) in ways.into_iter().map(|way| (1, way)).chain(pairs) {
        let mut of_way = Vec::new();
        for (device, options) in devices(&fixture, way.options(options(threads))) {
            let mut engine = fixture(options);
            for time in 0..2 {
                let row = format!("{name} {device} {threads} threads {way:?} time {time}");
                let before = engine.residents().unwrap();
                let run = common::run(&mut engine, &prompt, way, 8);
                assert_eq!(run.token_ids, host.token_ids, "{row}");
                assert_eq!(run.digest, host.digest, "{row}");
                check_counters(&engine, &run, before, &row);
                check_usage(&engine, &row);
                if time == 0 {
                    of_way.push((device, run.stats.experts));
                }
            }
        }
        differ(&of_way, way);
    }
}

/// The reference loops on devices.
#[test]
fn the_reference_gives_the_same_bits_on_any_device() {
    for name in ["qwen3_moe", "qwen3_next"] {
        let scalar = Options { level: Level::Scalar, ..Way::Chunks(64).options(options(1)) };
        let prompt = prompt(330, 512, 11);
        let host = fixture(name, Profile::Default, Options::new(400));
        let host = common::run(&mut { host }, &prompt, Way::Chunks(512), 2);
        let fixture = |options| fixture(name, Profile::Default, options);
        for (device, options) in devices(&fixture, scalar) {
            let run = common::run(&mut fixture(options), &prompt, Way::Chunks(64), 2);
            run.assert_implementation(Level::Scalar);
            assert_eq!(run.digest, host.digest, "{name} {device}");
        }
    }
}

/// Bytes are those of whole blocks, and passes copied all that was not there.
fn check_counters(engine: &Engine, run: &Run, before: Residents, row: &str) {
    let (stats, slots) = (&run.stats.experts, engine.plan().slots.unwrap());
    let block = slots.block_bytes as u64;
    assert_eq!(stats.demand_bytes, stats.misses * block, "{row}");
    assert_eq!(stats.stream_bytes, stats.streamed * block, "{row}");
    assert_eq!(stats.copies, stats.misses + stats.streamed, "{row}");
    assert_eq!(stats.streamed + stats.residents, stats.passes * slots.experts as u64, "{row}");
    assert!(stats.peak_slots as usize <= slots.count, "{row}");
    assert!(stats.peak_staging as usize <= 2 * slots.stage, "{row}");
    if stats.passes == 1 {
        assert_eq!(
            stats.stream_bytes,
            slots.stream_bytes(before.outside_staging),
            "{row}: the plan's prediction"
        );
    }
    if slots.count == slots.experts {
        assert_eq!(stats.evictions, 0, "{row}");
        let absent = (slots.experts - before.all) as u64;
        assert!(stats.copies <= absent, "{row}: an expert was copied twice: {stats:?}");
        assert!(stats.passes == 0 || stats.copies == absent, "{row}: {stats:?}");
    }
}

/// No region was used beyond its bytes, and what a conversation needs was in use.
fn check_usage(engine: &Engine, row: &str) {
    let usage = engine.usage();
    for region in &usage {
        assert!(region.peak_bytes <= region.bytes, "{row}: {region:?}");
    }
    let all: u64 = usage.iter().map(|r| r.bytes).sum();
    assert_eq!(Some(all), engine.plan().capacity, "{row}");
    let used = |name: &str| usage.iter().find(|r| r.name == name).map_or(0, |r| r.peak_bytes);
    assert!(["weights", "io", "state", "workspace", "slots"].iter().all(|name| used(name) > 0), "{row}");
}

/// Less memory costs more bytes and misses.
fn differ(rows: &[(&str, engine::ExpertStats)], way: Way) {
    for pair in rows.windows(2) {
        let [(more, a), (less, b)] = pair else { unreachable!() };
        let all = |s: &engine::ExpertStats| s.hits + s.misses;
        assert!(a.bytes() <= b.bytes(), "{way:?}: {more} moved more than {less}: {a:?} {b:?}");
        if way == Way::TokenByToken {
            assert_eq!(all(a), all(b), "{way:?}: the same experts are needed");
        }
    }
    let (first, last) = (&rows[0].1, &rows[rows.len() - 1].1);
    assert!(first.bytes() < last.bytes(), "{way:?}: bytes do not depend on the device");
    if way == Way::TokenByToken {
        let misses: Vec<u64> = rows.iter().map(|r| r.1.misses).collect();
        assert!(misses[0] < misses[1] && misses[1] < misses[2], "{misses:?}");
    }
}

#[test]
fn qwen3_moe_gives_the_same_bits_on_any_device() {
    matrix("qwen3_moe", &testdata::fixture("qwen3_moe"));
}

#[test]
fn qwen3_next_gives_the_same_bits_on_any_device() {
    matrix("qwen3_next", &testdata::fixture("qwen3_next"));
}

#[test]
fn tiny_qwen3_next_gives_the_same_bits_on_any_device() {
    matrix("tiny-qwen3-next", &testdata::fixture("tiny-qwen3-next"));
}

#[test]
fn tiny_qwen3_moe_gives_the_same_bits_on_any_device() {
    let Some(shared) = testdata::shared_or_skip() else { return };
    matrix("tiny-qwen3-moe", &shared.join("models/tiny-qwen3-moe"));
}

/// A layer and the experts its router chose.
type Chosen = (LayerId, Vec<u32>);

/// What routers chose, and a cancellation after some of them.
struct Watch {
    chosen: Arc<Mutex<Vec<Chosen>>>,
    left: usize,
    cancel: Arc<AtomicBool>,
}

impl Observer for Watch {
    fn router(&mut self, layer: LayerId, _: &[Row], _: usize, ids: &[u32], _: &[f32]) {
        self.chosen.lock().unwrap().push((layer, ids.to_vec()));
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.cancel.store(true, Ordering::Relaxed);
        }
    }
}

/// Hits and misses of decode are those of one list of least recently used experts.
#[test]
fn decode_is_one_lru_cache() {
    for residency in [60, 80, 100] {
        let options = Options { vram: Some(ROOMY), residency: Some(residency), ..options(1) };
        let mut engine = moe(options);
        let chosen = Arc::new(Mutex::new(Vec::new()));
        let cancel = Arc::new(AtomicBool::new(false));
        engine.observe(Some(Box::new(Watch { chosen: chosen.clone(), left: usize::MAX, cancel })));
        let run = common::run(&mut engine, &prompt(60, 512, 3), Way::TokenByToken, 20);
        type Key = (LayerId, u32);
        let (mut used, mut hits, mut misses) = (Vec::<Key>::new(), 0, 0);
        for (layer, ids) in chosen.lock().unwrap().iter() {
            let mut seen = BTreeSet::new();
            let keys: Vec<_> = ids.iter().filter(|id| seen.insert(**id)).map(|id| (*layer, *id)).collect();
            let (there, missing): (Vec<Key>, Vec<Key>) = keys.iter().partition(|k| used.contains(k));
            (hits, misses) = (hits + there.len() as u64, misses + missing.len() as u64);
            for key in there.into_iter().chain(missing) {
                used.retain(|k| *k != key);
                used.push(key);
            }
            let excess = used.len().saturating_sub(engine.plan().slots.unwrap().count);
            used.drain(..excess);
        }
        let stats = run.stats.experts;
        assert_eq!((stats.hits, stats.misses), (hits, misses), "{residency} %");
        assert_eq!(stats.hit_rate(), hits as f64 / (hits + misses) as f64);
        assert!(hits > 0 && misses > 0);
    }
}

/// A short suffix loads only what it routes to; a long one streams.
#[test]
fn short_suffixes_load_on_demand() {
    let options = Options { vram: Some(ROOMY), residency: Some(60), ..options(1) };
    let mut engine = moe(options);
    let cancel = AtomicBool::new(false);
    let seq = engine.begin().unwrap();
    let mut sink = |_, _, _: &[f32]| Ok(());
    engine.prefill(seq, &prompt(40, 512, 5), Wanted::Last, &cancel, &mut sink).unwrap();
    let long = engine.stats().experts;
    assert_eq!((long.passes, long.hits + long.misses), (1, 0));
    engine.reset_stats();
    engine.prefill(seq, &[7], Wanted::Last, &cancel, &mut sink).unwrap();
    let short = engine.stats().experts;
    assert_eq!((short.passes, short.streamed), (0, 0));
    assert!(short.hits + short.misses > 0 && short.demand_bytes < long.stream_bytes);
}

/// A thousand conversations under seeded schedules of late copies; a third of them is cancelled somewhere.
/// Nothing that follows is wrong.
#[test]
fn a_thousand_schedules_and_cancellations_change_nothing() {
    let prompts: Vec<Vec<u32>> = (0..4).map(|i| prompt(9 + 11 * i, 512, 40 + i as u64)).collect();
    let mut host = moe(Options::new(80));
    let right: Vec<Run> = prompts.iter().map(|p| common::run(&mut host, p, Way::Chunks(512), 3)).collect();
    let (mut random, mut cancelled, mut waits) = (base::philox::Stream::new(77), 0, 0);
    for engine_seed in 0..50 {
        let base =
            Options { chunk: 1 + random.below(40) as usize, checks: hard(engine_seed), ..Options::new(80) };
        let base = Options { threads: 1, sequences: 2, ..base };
        let options = match engine_seed % 3 {
            0 => Options { vram: Some(minimum(&moe, base)), ..base },
            _ => Options { vram: Some(ROOMY), residency: Some(50 + random.below(51)), ..base },
        };
        let too_small = u64::from(random.below(minimum(&moe, base) as u32));
        assert!(load(Options { vram: Some(too_small), ..base }).is_err(), "{too_small} bytes");
        let mut engine = moe(options);
        for conversation in 0..20 {
            let which = random.below(4) as usize;
            if random.below(3) == 0 {
                cancelled += usize::from(cancel_somewhere(&mut engine, &prompts[which], random.below(8)));
                continue;
            }
            let run = common::run(&mut engine, &prompts[which], Way::Chunks(0), 3);
            let row = format!("engine {engine_seed} conversation {conversation} {options:?}");
            assert_eq!(run.token_ids, right[which].token_ids, "{row}");
            assert_eq!(run.digest, right[which].digest, "{row}");
            waits += run.stats.experts.waits;
        }
    }
    assert!(cancelled > 100, "{cancelled} conversations were cancelled");
    assert!(waits > 1000, "steps had to wait {waits} times: the schedules are not adversarial");
}

/// Whether the prompt was cancelled before its end.
fn cancel_somewhere(engine: &mut Engine, prompt: &[u32], after: u32) -> bool {
    let cancel = Arc::new(AtomicBool::new(false));
    let watch = Watch { chosen: Arc::default(), left: 1 + after as usize, cancel: cancel.clone() };
    engine.observe(Some(Box::new(watch)));
    let seq = engine.begin().unwrap();
    let done = engine.prefill(seq, prompt, Wanted::Last, &cancel, &mut |_, _, _| Ok(()));
    engine.end(seq);
    engine.observe(None);
    match done {
        Err(Error::Refused(Refusal::Cancelled)) => true,
        Ok(()) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Too small a device is refused with the table before anything is allocated, and the smallest works.
#[test]
fn a_device_below_the_minimum_is_refused_with_the_table() {
    let least = minimum(&moe, options(1));
    for capacity in [0, 1, least / 2, least - 1] {
        let options = Options { vram: Some(capacity), ..options(1) };
        let Err(Error::Refused(refusal)) = load(options) else {
            panic!("{capacity} bytes were not refused");
        };
        let text = refusal.to_string();
        assert!(text.contains("vram") && text.contains(&least.to_string()), "{text}");
        assert!(["weights", "state", "workspace", "slots"].iter().all(|line| text.contains(line)), "{text}");
    }
    moe(Options { vram: Some(least), ..options(1) });
}

#[test]
fn residency_without_a_device_is_refused() {
    let refused = load(Options { residency: Some(50), ..options(1) }).err().unwrap();
    assert!(refused.to_string().contains("--vram"), "{refused}");
}
