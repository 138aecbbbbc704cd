//! The loop from a prompt to an answer.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use base::{Refusal, Result};

use crate::running::{Engine, Seq, Wanted};
use crate::sample::{Sampler, Sampling};

/// What to generate.
#[derive(Debug, Clone, Default)]
pub struct GenerateOptions {
    /// At most so many tokens; the context's end ends it too.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Ids that end the answer.
    pub eos: Vec<u32>,
    /// Feed the prompt token by token, as decode does: the same bits, slower.
    pub decode_prompt: bool,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// An end-of-sequence token.
    Stop,
    /// `max_tokens`, or the context is full.
    Length,
    /// The callback asked for it.
    Caller,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Generated tokens, the end-of-sequence token included.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
}

/// Called with each token and the logits `[vocab]` it was chosen from, on a worker of the engine.
pub type OnToken<'a> = dyn FnMut(u32, &[f32]) -> Result<ControlFlow<()>> + Send + 'a;

/// Prefills `prompt` into an empty sequence, then decodes until an end-of-sequence token, `max_tokens`, the
/// end of the context or the callback's wish.
pub fn generate(
    engine: &mut Engine,
    seq: Seq,
    prompt: &[u32],
    options: &GenerateOptions,
    cancel: &AtomicBool,
    on_token: &mut OnToken<'_>,
) -> Result<Generated> {
    if prompt.is_empty() {
        return Err(Refusal::value("prompt", "no tokens", "at least one token", "give some text").into());
    }
    let sampler = Sampler::new(options.sampling.clone(), prompt, engine.model().vocab)?;
    // The whole loop on a worker: handing every step over to one would allocate now and then.
    engine.workers().install(|| answer(engine, seq, prompt, options, sampler, cancel, on_token))
}

fn answer(
    engine: &mut Engine,
    seq: Seq,
    prompt: &[u32],
    options: &GenerateOptions,
    mut sampler: Sampler,
    cancel: &AtomicBool,
    on_token: &mut OnToken<'_>,
) -> Result<Generated> {
    let context = engine.options().context;
    let mut logits = vec![0.0f32; engine.model().vocab];
    let room = context.saturating_sub(engine.len(seq) + prompt.len());
    let mut token_ids = Vec::with_capacity(options.max_tokens.min(room + 1));
    let mut finish = Finish::Length;
    prefill(engine, seq, prompt, options.decode_prompt, cancel, &mut logits)?;
    while token_ids.len() < options.max_tokens {
        let token = sampler.next(&logits, engine.len(seq));
        token_ids.push(token);
        if on_token(token, &logits)?.is_break() {
            finish = Finish::Caller;
            break;
        }
        if options.eos.contains(&token) {
            finish = Finish::Stop;
            break;
        }
        if token_ids.len() == options.max_tokens || engine.len(seq) == context {
            break;
        }
        engine.step(&[(seq, token)], cancel, &mut |_, _, row| {
            logits.copy_from_slice(row);
            Ok(())
        })?;
    }
    Ok(Generated { prompt_tokens: prompt.len(), token_ids, finish })
}

/// Brings the prompt in and leaves the logits of its last token.
fn prefill(
    engine: &mut Engine,
    seq: Seq,
    prompt: &[u32],
    decode_prompt: bool,
    cancel: &AtomicBool,
    logits: &mut [f32],
) -> Result<()> {
    let mut keep = |_: Seq, _: usize, row: &[f32]| {
        logits.copy_from_slice(row);
        Ok(())
    };
    if !decode_prompt {
        return engine.prefill(seq, prompt, Wanted::Last, cancel, &mut keep);
    }
    // Refused as a whole before any token is fed.
    engine.check_prompt(seq, prompt)?;
    for token in prompt {
        engine.step(&[(seq, *token)], cancel, &mut keep)?;
    }
    Ok(())
}
