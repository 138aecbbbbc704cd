//! One answer of the engine, as text, thought and tool calls.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::Result;
use base::{Bytes, Refusal, WorldError};
use engine::{Engine, ExpertStats, GenerateOptions, Seq, Stats};
use serde_json::{Value, json};
use text::chat::{Message, Tool};
use text::pipeline::{self, FinishReason, Output};
use text::tools::{Event, ToolCall};
use text::{Conversation, Tokenizer};

use super::RunArgs;
use crate::output::memory;

/// Tokens of an answer that is not limited.
const USUAL_TOKENS: usize = 1024;

/// A prompt as ids, and how the answer is to be read.
pub struct Prompt {
    pub ids: Vec<u32>,
    options: pipeline::Options,
}

impl Prompt {
    /// Renders a conversation.
    pub fn chat(
        tokenizer: &Tokenizer,
        messages: &[Message],
        tools: Option<&[Tool]>,
        thinking: Option<bool>,
        stops: &[String],
    ) -> Result<Prompt> {
        let rendered = tokenizer.template()?.render(&Conversation {
            messages: messages.to_vec(),
            tools: tools.map(<[Tool]>::to_vec),
            add_generation_prompt: true,
            enable_thinking: thinking,
            ..Conversation::default()
        })?;
        let options = pipeline::Options::chat(tokenizer, &rendered, tools.unwrap_or_default())?;
        let ids = tokenizer.encode_prompt(&rendered)?;
        Ok(Prompt { ids, options: options.with_stops(stops.to_vec()) })
    }

    /// Text to go on with.
    pub fn plain(tokenizer: &Tokenizer, text: &str, stops: &[String]) -> Result<Prompt> {
        let options = pipeline::Options::plain(tokenizer).with_stops(stops.to_vec());
        Ok(Prompt { ids: tokenizer.encode(text)?, options })
    }

    /// Tokens the answer may have. Errors: prompt and answer don't fit the context.
    pub fn room(&self, wish: Option<u32>, context: usize) -> Result<usize, Refusal> {
        let (prompt, wished) = (self.ids.len(), wish.map_or(1, |n| n as usize));
        if prompt + wished > context {
            let value = match wish {
                Some(wish) => format!("{prompt} tokens and {wish} of answer"),
                None => format!("{prompt} tokens"),
            };
            let limit = match wish {
                Some(_) => format!("a context of {context} tokens"),
                None => format!("a context of {context} tokens, with room for an answer"),
            };
            let hint = "shorten the prompt, ask for fewer --max-tokens, or raise --context";
            return Err(Refusal::value("prompt", value, limit, hint));
        }
        Ok(wish.map_or(USUAL_TOKENS.min(context - prompt), |n| n as usize))
    }
}

/// A finished answer.
pub struct Answer {
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<ToolCall>,
    pub prompt_tokens: usize,
    pub token_ids: Vec<u32>,
    pub finish: FinishReason,
    pub seconds: f64,
    pub stats: Stats,
}

/// Who hears events as they come.
pub type Hear<'a> = dyn FnMut(&Event) -> Result<(), WorldError> + Send + 'a;

/// Generates an answer to `prompt` behind what `seq` holds (of which `prompt` has only the rest).
pub fn answer(
    engine: &mut Engine,
    seq: Seq,
    tokenizer: &Tokenizer,
    prompt: Prompt,
    options: &GenerateOptions,
    cancel: &AtomicBool,
    hear: &mut Hear<'_>,
) -> Result<Answer> {
    let started = Instant::now();
    engine.reset_stats();
    let options = GenerateOptions { eos: prompt.options.eos.clone(), ..options.clone() };
    let mut output = Output::new(tokenizer, prompt.options);
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    let mut take = |events: Vec<Event>| -> Result<(), WorldError> {
        for event in events {
            hear(&event)?;
            match event {
                Event::Text(part) => text += &part,
                Event::Reasoning(part) => reasoning += &part,
                Event::ToolCall(call) => calls.push(call),
            }
        }
        Ok(())
    };
    let generated = engine::generate(engine, seq, &prompt.ids, &options, cancel, &mut |id, _| {
        take(output.push(id))?;
        Ok(if output.ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    take(output.finish())?;
    Ok(Answer {
        text,
        reasoning,
        calls,
        prompt_tokens: generated.prompt_tokens,
        token_ids: generated.token_ids,
        finish: output.finish_reason(),
        seconds: started.elapsed().as_secs_f64(),
        stats: engine.stats().clone(),
    })
}

/// What the flags ask the engine for, `max_tokens` apart.
pub fn generate_options(args: &RunArgs, max_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens,
        sampling: args.sampling.sampling(),
        eos: Vec::new(), // the prompt knows
        decode_prompt: args.decode_prompt,
    }
}

/// A call as a person reads it.
pub fn shown(call: &ToolCall) -> String {
    format!("→ {}({})", call.name, call.arguments)
}

impl Answer {
    /// As one JSON object.
    pub fn json(&self, digest: Option<String>, engine: &Engine) -> Value {
        let call = |call: &ToolCall| {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or(json!(call.arguments));
            json!({"name": call.name, "arguments": arguments})
        };
        json!({
            "text": self.text,
            "reasoning": self.reasoning,
            "tool_calls": self.calls.iter().map(call).collect::<Vec<_>>(),
            "prompt_tokens": self.prompt_tokens,
            "token_ids": self.token_ids,
            "finish_reason": self.finish.as_str(),
            "digest": digest,
            "stats": self.stats_json(engine),
        })
    }

    fn stats_json(&self, engine: &Engine) -> Value {
        let (prefill, decode) = (self.stats.prefill.as_secs_f64(), self.stats.decode.as_secs_f64());
        let (reference_steps, simd_steps) = self.stats.implementations();
        json!({
            "seconds": self.seconds,
            "prefill_tokens": self.stats.prefill_tokens,
            "prefill_seconds": prefill,
            "prefill_tok_s": rate(self.stats.prefill_tokens, prefill),
            "decode_tokens": self.stats.decode_tokens,
            "decode_seconds": decode,
            "decode_tok_s": rate(self.stats.decode_tokens, decode),
            "bytes_read": self.stats.bytes_read(),
            "reference_steps": reference_steps,
            "simd_steps": simd_steps,
            "simd": engine.options().level.name(),
            "threads": engine.options().threads,
            "context": engine.options().context,
            "chunk": engine.options().chunk,
            "recipe": engine.recipe().to_string(),
            "arithmetic_version": base::ARITHMETIC_VERSION,
            "vram": engine.options().vram,
            "experts": self.stats.experts,
            "hit_rate": self.stats.experts.hit_rate(),
            "memory": engine.usage(),
        })
    }

    /// The same for people.
    pub fn stats_text(&self, engine: &Engine) -> String {
        let stats = &self.stats;
        let (prefill, decode) = (stats.prefill.as_secs_f64(), stats.decode.as_secs_f64());
        let mut text = format!(
            "prompt: {} tokens in {prefill:.2} s ({:.0} tok/s); answer: {} tokens, {} decoded in \
             {decode:.2} s ({:.1} tok/s)\n",
            self.prompt_tokens,
            rate(stats.prefill_tokens, prefill),
            self.token_ids.len(),
            stats.decode_tokens,
            rate(stats.decode_tokens, decode),
        );
        let (reference, simd) = stats.implementations();
        let (options, recipe) = (engine.options(), engine.recipe());
        text += &format!(
            "{} on {} threads: {simd} steps by SIMD, {reference} by reference loops; {recipe}\n",
            options.level.name(),
            options.threads,
        );
        if let (Some(vram), Some(now)) = (options.vram, engine.residents()) {
            text += &experts_text(&stats.experts, vram, now.all);
            text += &memory(&engine.usage());
        }
        let nanos: u64 = stats.kinds.iter().map(|k| k.nanos).sum();
        let mut kinds: Vec<_> = stats.kinds.iter().filter(|k| k.runs > 0).collect();
        kinds.sort_by_key(|k| std::cmp::Reverse(k.nanos));
        for kind in kinds.iter().take(8) {
            let share = 100.0 * kind.nanos as f64 / nanos.max(1) as f64;
            let per_nano = |amount: u64| amount as f64 / kind.nanos.max(1) as f64;
            text += &format!(
                "{share:5.1} %  {:<18} {:<16} {:7.2} GB/s {:8.2} GMAC/s\n",
                kind.step,
                kind.op,
                per_nano(kind.bytes_read),
                per_nano(kind.int_macs),
            );
        }
        text
    }
}

/// What the expert cache of a device did.
fn experts_text(experts: &ExpertStats, vram: u64, resident: usize) -> String {
    format!(
        "device of {}: {resident} experts there; {} hits, {} misses ({:.1} %), {} loaded on demand; \
         {} passes streamed {}, {} residents not copied; {} waits, {} evictions\n",
        Bytes(vram),
        experts.hits,
        experts.misses,
        100.0 * experts.hit_rate(),
        Bytes(experts.demand_bytes),
        experts.passes,
        Bytes(experts.stream_bytes),
        experts.residents,
        experts.waits,
        experts.evictions,
    )
}

fn rate(tokens: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}
