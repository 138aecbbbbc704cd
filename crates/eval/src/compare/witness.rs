//! A witness folder: `greedy.json` (conversations, their rendered prompts and ids, greedy answers),
//! `perplexity.json` (sums over windows of texts) and `logprobs.safetensors` (`KIND.input_ids` i64 [n],
//! `KIND.logprobs` [n, vocab]). Each may be absent, not all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use base::{FileFault, Refusal, Result, WorldError};
use checkpoint::json::read_capped;
use checkpoint::safetensors::File;
use engine::{Engine, GenerateOptions, Wanted};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use text::chat::{Message, Tool};
use text::{Conversation, Detokenizer, Tokenizer};

use super::{Comparison, Kind, Texts};
use crate::numbers::{Mean, argmax, kl_of_logprobs};
use crate::windows::{Windows, kind_ids, perplexity, score};

/// Largest JSON file of a witness.
const MAX_JSON_BYTES: usize = 64 << 20;

/// A conversation and its greedy answer.
#[derive(Debug, Deserialize)]
struct Answer {
    messages: Vec<Message>,
    tools: Option<Vec<Tool>>,
    rendered: String,
    prompt_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    greedy_text: String,
}

/// Perplexity of a kind of text.
#[derive(Debug, Deserialize)]
struct Score {
    windows: usize,
    window_tokens: usize,
    ppl: f64,
}

/// What an independent implementation made of a model and its tokenizer.
#[derive(Debug)]
pub struct Witness {
    folder: PathBuf,
    answers: Vec<Answer>,
    scores: BTreeMap<String, Score>,
    logprobs: Option<File>,
}

impl Witness {
    /// Opens a folder.
    pub fn open(folder: &Path) -> Result<Witness> {
        let logprobs = folder.join("logprobs.safetensors");
        let witness = Witness {
            folder: folder.to_path_buf(),
            answers: read_json(&folder.join("greedy.json"))?.unwrap_or_default(),
            scores: read_json(&folder.join("perplexity.json"))?.unwrap_or_default(),
            logprobs: if logprobs.exists() { Some(File::open(&logprobs)?) } else { None },
        };
        if witness.answers.is_empty() && witness.scores.is_empty() && witness.logprobs.is_none() {
            return Err(Refusal::NotFound {
                what: "witness".into(),
                value: folder.display().to_string(),
                hint: "it should hold greedy.json, perplexity.json or logprobs.safetensors".into(),
            }
            .into());
        }
        for (kind, score) in &witness.scores {
            // What is read from a file decides loops and memory: keep it within reason.
            if !(1..=1 << 16).contains(&score.windows) || !(2..=1 << 24).contains(&score.window_tokens) {
                let found = format!("{} of {} for {kind}", score.windows, score.window_tokens);
                let path = folder.join("perplexity.json");
                let expected = "a plausible number of windows and tokens";
                return Err(WorldError::damaged(&path, FileFault::BadText, expected, found).into());
            }
        }
        Ok(witness)
    }

    /// Tokens of the longest sequence that comparing needs.
    pub fn context(&self) -> usize {
        let answers = self.answers.iter().map(|a| a.prompt_ids.len() + a.greedy_ids.len());
        let windows = self.scores.values().map(|s| s.window_tokens);
        let rows = self.logprobs.iter().flat_map(|f| f.tensors()).map(|t| t.rows());
        answers.chain(windows).chain(rows).max().unwrap_or(1)
    }

    pub(super) fn compare(
        &self,
        engine: &mut Engine,
        tokenizer: &Tokenizer,
        texts: Option<&Path>,
        mut result: Comparison,
        cancel: &AtomicBool,
        told: &mut dyn FnMut(&str),
    ) -> Result<Comparison> {
        let mut found = Texts { greedy_texts: self.answers.len(), ..Texts::default() };
        for (i, answer) in self.answers.iter().enumerate() {
            told(&format!("greedy text {} of {}", i + 1, self.answers.len()));
            answer.compare(engine, tokenizer, &mut result, &mut found, cancel)?;
        }
        result.greedy_match = result.greedy_prefix == result.greedy_tokens;
        self.divergences(engine, &mut result, &mut found, cancel, told)?;
        for (kind, theirs) in &self.scores {
            let entry = found.kinds.entry(kind.clone()).or_default();
            entry.ppl_witness = Some(theirs.ppl);
            let Some(texts) = texts else { continue };
            told(&format!("perplexity of {kind}"));
            let windows = Windows { count: theirs.windows, tokens: theirs.window_tokens };
            let ids = kind_ids(tokenizer, texts, kind, windows)?;
            let mean = score(engine, kind, &ids, windows, cancel)?;
            result.tokens += windows.scored();
            entry.ppl = Some(perplexity(&mean));
        }
        result.texts = Some(found);
        Ok(result)
    }

    /// Mean KL(witness‖ours) of every kind with log-probabilities.
    fn divergences(
        &self,
        engine: &mut Engine,
        result: &mut Comparison,
        found: &mut Texts,
        cancel: &AtomicBool,
        told: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let Some(file) = &self.logprobs else { return Ok(()) };
        let vocab = engine.model().vocab;
        let (mut all, mut agree) = (Mean::default(), Mean::default());
        let kinds = file.tensors().iter().filter_map(|t| t.name.strip_suffix(".logprobs"));
        for kind in kinds {
            told(&format!("divergence on {kind}"));
            let (ids, logprobs) = logprobs_of(file, kind, vocab)?;
            let mut mean = Mean::default();
            let seq = engine.begin()?;
            let done = engine.prefill(seq, &ids, Wanted::All, cancel, &mut |_, position, row| {
                let theirs = &logprobs[position * vocab..][..vocab];
                let kl = kl_of_logprobs(theirs, row);
                mean.add(kl);
                all.add(kl);
                agree.add(f64::from(u8::from(argmax(row) == argmax(theirs))));
                Ok(())
            });
            engine.end(seq);
            done?;
            result.tokens += ids.len();
            let entry: &mut Kind = found.kinds.entry(kind.to_string()).or_default();
            entry.kl_mean = mean.value();
        }
        (result.kl_mean, result.top1_agree) = (all.value(), agree.value());
        Ok(())
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kinds of text that perplexities are about.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.scores.keys().map(String::as_str)
    }
}

impl Answer {
    fn compare(
        &self,
        engine: &mut Engine,
        tokenizer: &Tokenizer,
        result: &mut Comparison,
        found: &mut Texts,
        cancel: &AtomicBool,
    ) -> Result<()> {
        let rendered = tokenizer.template()?.render(&Conversation {
            messages: self.messages.clone(),
            tools: self.tools.clone(),
            add_generation_prompt: true,
            enable_thinking: Some(false), // as the witness was rendered
            ..Conversation::default()
        })?;
        let same_ids = tokenizer.encode_prompt(&rendered)? == self.prompt_ids;
        found.prompts_equal += usize::from(same_ids && rendered.text == self.rendered);
        let options = GenerateOptions {
            max_tokens: self.greedy_ids.len(),
            eos: tokenizer.eos_ids(),
            ..GenerateOptions::default()
        };
        let seq = engine.begin()?;
        let go_on = &mut |_: u32, _: &[f32]| Ok(std::ops::ControlFlow::Continue(()));
        // The witness's own ids are fed, so that a fault of the tokenizer is not taken for one of the model.
        let made = engine::generate(engine, seq, &self.prompt_ids, &options, cancel, go_on);
        engine.end(seq);
        let ids = made?.token_ids;
        let mut detokenizer = Detokenizer::new(tokenizer, false);
        let mut text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
        text += &detokenizer.finish();
        result.greedy_tokens += self.greedy_ids.len();
        result.greedy_prefix += ids.iter().zip(&self.greedy_ids).take_while(|(a, b)| a == b).count();
        found.greedy_texts_equal += usize::from(text == self.greedy_text);
        Ok(())
    }
}

/// Ids and log-probabilities of a kind, checked against each other and the model.
fn logprobs_of(file: &File, kind: &str, vocab: usize) -> Result<(Vec<u32>, Vec<f32>)> {
    let (ids_name, name) = (format!("{kind}.input_ids"), format!("{kind}.logprobs"));
    let ids = file.i64(&ids_name)?;
    let shape = file.tensor(&name).map(|t| t.shape.clone()).unwrap_or_default();
    if shape != [ids.len(), vocab] || ids.is_empty() {
        let expected = format!("[{}, {vocab}], a row for each of {ids_name}", ids.len());
        let error = WorldError::damaged(file.path(), FileFault::WrongShape, expected, format!("{shape:?}"));
        return Err(error.tensor(name).into());
    }
    let checked: Result<Vec<u32>, _> = ids.iter().map(|id| u32::try_from(*id)).collect();
    let checked = checked.map_err(|_| {
        let error = WorldError::damaged(file.path(), FileFault::BadText, "token ids from 0 on", "others");
        error.tensor(ids_name)
    })?;
    Ok((checked, file.f32(&name)?))
}

/// A JSON file, if it is there.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = read_capped(path, MAX_JSON_BYTES)?;
    let bad = |e| WorldError::damaged(path, FileFault::BadText, "the witness's form", e);
    Ok(Some(serde_json::from_slice(&bytes).map_err(bad)?))
}
