//! Speed of prefill and decode, and where the time went.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use base::hash::Digest;
use base::{Refusal, Result};
use engine::{Engine, ExpertStats, KindStats, RegionUse, Stats, Wanted};
use serde::Serialize;
use text::Tokenizer;

use crate::numbers::argmax;
use crate::windows::read_text;

/// Steps before the measured ones, so that the weights are in memory.
const WARM_UP_TOKENS: usize = 8;

/// Ops that read weight matrices.
const WEIGHT_OPS: [&str; 4] = ["embed", "linear", "expert_gate_up", "expert_down"];

/// Text that is part of the program, for prompts: its own description.
const TEXT: [&str; 2] = [include_str!("../../../ARCHITECTURE.md"), include_str!("../../../README.md")];

/// A prompt of an exact number of tokens.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Its ids.
    pub ids: Vec<u32>,
    /// What made them: `tokenizer`, or `words` where the model has none.
    pub made_by: &'static str,
    /// Digest of the text, short.
    pub text: String,
}

impl Prompt {
    /// The first `count` tokens of a text file or of the text in this program, over and over if it is too
    /// short. A synthetic model has no tokenizer: then equal words become equal ids below `vocab`.
    pub fn new(
        tokenizer: Option<&Tokenizer>,
        file: Option<&Path>,
        count: usize,
        vocab: usize,
    ) -> Result<Prompt> {
        let text = match file {
            Some(path) => read_text(path)?,
            None => TEXT.concat(),
        };
        let (ids, made_by) = match tokenizer {
            Some(tokenizer) => (tokenizer.encode(&text)?, "tokenizer"),
            None => (text.split_whitespace().map(|w| word_id(w, vocab)).collect(), "words"),
        };
        if ids.is_empty() {
            return Err(Refusal::value("text", "no tokens", "at least one token", "give some text").into());
        }
        let ids = ids.iter().copied().cycle().take(count).collect();
        Ok(Prompt { ids, made_by, text: Digest::of(text.as_bytes()).short() })
    }
}

/// An id below `vocab` for a word (FNV-1a).
fn word_id(word: &str, vocab: usize) -> u32 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    (word.bytes().fold(0xCBF2_9CE4_8422_2325, mix) % vocab as u64) as u32
}

/// What the machine can do, measured in the same run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Machine {
    /// Reading memory, GB/s.
    pub read_gb_s: f64,
    /// Integer multiply-adds of 8-bit codes from the caches, 10⁹ per second.
    pub int8_gmac_s: f64,
}

/// Bytes read to measure memory: more than caches hold.
const PROBE_BYTES: usize = 512 << 20;

impl Machine {
    /// Measures it, in less than a second.
    pub fn measure(threads: usize, level: ops::Level) -> Machine {
        Machine {
            read_gb_s: ops::probe::read_bandwidth(threads, PROBE_BYTES) / 1e9,
            int8_gmac_s: ops::probe::int8_dot_rate(threads, level) / 1e9,
        }
    }
}

/// A measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bench {
    /// Family.
    pub family: &'static str,
    /// Profile or recipe.
    pub profile: String,
    /// SIMD level.
    pub simd: &'static str,
    /// Worker threads.
    pub threads: usize,
    /// Tokens per second of the prompt.
    pub prefill_tok_s: f64,
    /// Tokens per second of decode.
    pub decode_tok_s: f64,
    /// Share of the experts that decode needed and found on the device; 1 where they are read in place.
    pub hit_rate: f64,
    /// Share of the experts that were on the device at the end; likewise.
    pub resident_fraction: f64,
    /// Share of the experts that have room there; likewise.
    pub slot_fraction: f64,
    /// Bytes of the device, if it has a limit.
    pub vram: Option<u64>,
    /// The regions of its memory, and what of them was in use.
    pub memory: Vec<RegionUse>,
    /// Bytes read by the decode steps that read weights (their activations are in it; they are small).
    pub bytes_moved: u64,
    /// The same per second of decode, GB/s.
    pub read_gb_s: f64,
    /// What the machine reads, GB/s.
    pub machine_read_gb_s: f64,
    /// Integer multiply-adds of the prompt by the same steps, 10⁹ per second of prefill.
    pub int8_gmac_s: f64,
    /// What the machine does with 8-bit codes.
    pub machine_int8_gmac_s: f64,
    /// What the prompt was made by.
    pub prompt_made_by: &'static str,
    /// Digest of its text.
    pub prompt_text: String,
    /// Version of the arithmetic.
    pub arithmetic_version: u32,
    /// The prompt.
    pub prefill: Phase,
    /// The tokens behind it.
    pub decode: Phase,
}

/// Prefill or decode.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Phase {
    /// Tokens.
    pub tokens: u64,
    /// Seconds.
    pub seconds: f64,
    /// Steps of the reference loops.
    pub reference_steps: u64,
    /// Steps of SIMD.
    pub simd_steps: u64,
    /// What was copied to the device.
    pub experts: ExpertStats,
    /// Kinds of steps, the most expensive first.
    pub steps: Vec<StepKind>,
}

/// One kind of step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepKind {
    /// What it is for.
    pub step: &'static str,
    /// Its op.
    pub op: &'static str,
    /// Share of the time of all steps.
    pub share: f64,
    /// GB/s read.
    pub gb_s: f64,
    /// 10⁹ integer multiply-adds per second.
    pub gmac_s: f64,
}

impl Phase {
    fn new(stats: &Stats, tokens: u64, seconds: f64) -> Phase {
        let nanos: u64 = stats.kinds.iter().map(|k| k.nanos).sum();
        let per = |amount: u64, nanos: u64| if nanos == 0 { 0.0 } else { amount as f64 / nanos as f64 };
        let kind = |k: &KindStats| StepKind {
            step: k.step,
            op: k.op,
            share: per(k.nanos, nanos),
            gb_s: per(k.bytes_read, k.nanos),
            gmac_s: per(k.int_macs, k.nanos),
        };
        let mut steps: Vec<StepKind> = stats.kinds.iter().filter(|k| k.runs > 0).map(kind).collect();
        steps.sort_by(|a, b| b.share.total_cmp(&a.share));
        let (reference_steps, simd_steps) = stats.implementations();
        Phase { tokens, seconds, reference_steps, simd_steps, experts: stats.experts, steps }
    }
}

/// Prefills the prompt, then decodes `decode` tokens greedily, whatever ends a text.
pub fn run(
    engine: &mut Engine,
    prompt: &Prompt,
    decode: usize,
    machine: Machine,
    cancel: &AtomicBool,
) -> Result<Bench> {
    let warm_up = &prompt.ids[..prompt.ids.len().min(engine.options().chunk)];
    measure(engine, warm_up, WARM_UP_TOKENS.min(decode), cancel)?;
    let Measured { prefill, decode, memory } = measure(engine, &prompt.ids, decode, cancel)?;
    let slots = engine.plan().slots.zip(engine.residents());
    let resident_fraction = slots.map_or(1.0, |(slots, now)| now.all as f64 / slots.experts as f64);
    let recipe = engine.recipe();
    let rate = |amount: f64, seconds: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
    // Steps on states are not in the totals: they read no weights.
    let weighty = |stats: &Stats, amount: fn(&KindStats) -> u64| -> u64 {
        stats.kinds.iter().filter(|k| WEIGHT_OPS.contains(&k.op)).map(amount).sum()
    };
    let macs = weighty(&prefill.0, |k| k.int_macs);
    let bytes_moved = weighty(&decode.0, |k| k.bytes_read);
    let [prefill, decode] =
        [prefill, decode].map(|(stats, tokens, seconds)| Phase::new(&stats, tokens, seconds));
    Ok(Bench {
        family: engine.model().family,
        profile: recipe.profile().map_or_else(|| recipe.to_string(), |p| p.name().to_string()),
        simd: engine.options().level.name(),
        threads: engine.options().threads,
        prefill_tok_s: rate(prefill.tokens as f64, prefill.seconds),
        decode_tok_s: rate(decode.tokens as f64, decode.seconds),
        hit_rate: decode.experts.hit_rate(),
        resident_fraction,
        slot_fraction: engine.plan().resident_fraction(),
        vram: engine.options().vram,
        memory,
        bytes_moved,
        read_gb_s: rate(bytes_moved as f64 / 1e9, decode.seconds),
        machine_read_gb_s: machine.read_gb_s,
        int8_gmac_s: rate(macs as f64 / 1e9, prefill.seconds),
        machine_int8_gmac_s: machine.int8_gmac_s,
        prompt_made_by: prompt.made_by,
        prompt_text: prompt.text.clone(),
        arithmetic_version: base::ARITHMETIC_VERSION,
        prefill,
        decode,
    })
}

/// Statistics, tokens and seconds of each phase, and what of the memory was in use.
struct Measured {
    prefill: (Stats, u64, f64),
    decode: (Stats, u64, f64),
    memory: Vec<RegionUse>,
}

fn measure(engine: &mut Engine, prompt: &[u32], decode: usize, cancel: &AtomicBool) -> Result<Measured> {
    let seq = engine.begin()?;
    let mut next = 0;
    engine.reset_stats();
    let filled = engine.prefill(seq, prompt, Wanted::Last, cancel, &mut |_, _, row| {
        next = argmax(row);
        Ok(())
    });
    let (prefill, mut memory) = taken(engine);
    let mut decoded = filled;
    for _ in 0..decode {
        if decoded.is_err() {
            break;
        }
        let token = next;
        decoded = engine.step(&[(seq, token)], cancel, &mut |_, _, row| {
            next = argmax(row);
            Ok(())
        });
    }
    let (step, of_decode) = taken(engine);
    engine.end(seq);
    decoded?;
    for (all, decode) in memory.iter_mut().zip(of_decode) {
        all.peak_bytes = all.peak_bytes.max(decode.peak_bytes);
    }
    let prefill_seconds = prefill.prefill.as_secs_f64();
    let decode_seconds = step.decode.as_secs_f64();
    let (prefilled, decoded) = (prefill.prefill_tokens, step.decode_tokens);
    let (prefill, decode) = ((prefill, prefilled, prefill_seconds), (step, decoded, decode_seconds));
    Ok(Measured { prefill, decode, memory })
}

fn taken(engine: &mut Engine) -> (Stats, Vec<RegionUse>) {
    let taken = (engine.stats().clone(), engine.usage());
    engine.reset_stats();
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_have_the_exact_length_and_words_their_ids() {
        let prompt = Prompt::new(None, None, 5000, 4096).unwrap();
        assert_eq!((prompt.ids.len(), prompt.made_by), (5000, "words"));
        assert!(prompt.ids.iter().all(|&id| id < 4096));
        let different: std::collections::BTreeSet<_> = prompt.ids.iter().collect();
        assert!(different.len() > 300, "{}", different.len());
        assert_eq!(word_id("the", 151_936), word_id("the", 151_936));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.txt");
        std::fs::write(&path, "a b a").unwrap();
        let prompt = Prompt::new(None, Some(&path), 4, 1000).unwrap();
        assert_eq!(prompt.ids, [0, 1, 0, 0].map(|i| word_id(["a", "b"][i], 1000)));
        std::fs::write(&path, " ").unwrap();
        assert!(Prompt::new(None, Some(&path), 4, 1000).is_err());
    }
}
