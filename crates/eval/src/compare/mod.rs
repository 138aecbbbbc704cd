//! Comparison with what an independent implementation made of the same model: a file of logits and greedy ids
//! that needs no tokenizer, or a folder with greedy texts, perplexities and log-probabilities.

mod fixture;
mod witness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use base::{Refusal, Result};
use engine::Engine;
use serde::Serialize;
use text::Tokenizer;

pub use fixture::Fixture;
pub use witness::Witness;

/// How far our results are from a witness. What a witness does not hold is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Comparison {
    /// Family of the model.
    pub family: &'static str,
    /// Profile, or the recipe if it is none unchanged.
    pub profile: String,
    /// Rows of logits that were compared or scored.
    pub tokens: usize,
    /// ‖a−b‖ / ‖b‖ over all logits.
    pub logits_rel_rms: Option<f64>,
    /// All greedy ids are equal.
    pub greedy_match: bool,
    /// Equal greedy ids from the beginning, summed over texts.
    pub greedy_prefix: usize,
    /// Greedy ids of the witness.
    pub greedy_tokens: usize,
    /// Pairs of token and layer whose chosen experts were compared as sets.
    pub router_checked: usize,
    /// Those that differ.
    pub router_mismatches: usize,
    /// Pairs that differ in experts of nearly equal weight, where the witness can't decide: not counted
    /// above.
    pub router_undecided: usize,
    /// Mean KL(witness‖ours) in nats.
    pub kl_mean: Option<f64>,
    /// Share of rows with the same most likely token.
    pub top1_agree: Option<f64>,
    /// Version of the arithmetic that was compared.
    pub arithmetic_version: u32,
    /// Of a witness folder.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub texts: Option<Texts>,
}

/// What only a witness folder can tell.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Texts {
    /// Prompts whose rendered text and ids are those of the witness.
    pub prompts_equal: usize,
    /// Greedy texts that are equal.
    pub greedy_texts_equal: usize,
    /// Greedy texts of the witness.
    pub greedy_texts: usize,
    /// By kind of text.
    pub kinds: BTreeMap<String, Kind>,
}

/// One kind of text.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Kind {
    /// Our perplexity.
    pub ppl: Option<f64>,
    /// The witness's.
    pub ppl_witness: Option<f64>,
    /// Mean KL(witness‖ours) in nats.
    pub kl_mean: Option<f64>,
}

/// Something to compare with.
#[derive(Debug)]
pub enum Reference {
    /// A file `expected.safetensors`.
    Fixture(Fixture),
    /// A witness folder.
    Witness(Witness),
}

impl Reference {
    /// Opens `path`, a file or a folder; without one, `witness/` or `expected.safetensors` in the model
    /// folder. Errors: none of them is there, or it can't be trusted.
    pub fn open(path: Option<&Path>, model_folder: &Path) -> Result<Reference> {
        let candidates: Vec<PathBuf> = match path {
            Some(path) => vec![path.to_path_buf()],
            None => vec![model_folder.join("witness"), model_folder.join("expected.safetensors")],
        };
        for candidate in &candidates {
            if candidate.is_dir() {
                return Ok(Reference::Witness(Witness::open(candidate)?));
            }
            if candidate.is_file() {
                return Ok(Reference::Fixture(Fixture::open(candidate)?));
            }
        }
        let tried: Vec<String> = candidates.iter().map(|c| c.display().to_string()).collect();
        Err(Refusal::NotFound {
            what: "witness".into(),
            value: tried.join(", "),
            hint: "name a file of expected logits or a witness folder with --witness".into(),
        }
        .into())
    }

    /// Tokens of context that comparing needs.
    pub fn context(&self) -> usize {
        match self {
            Reference::Fixture(fixture) => fixture.context(),
            Reference::Witness(witness) => witness.context(),
        }
    }

    /// The comparison needs the model's tokenizer.
    pub fn needs_tokenizer(&self) -> bool {
        matches!(self, Reference::Witness(_))
    }
}

/// Compares. `texts` is the folder of the texts that perplexities are about; without it they are left out.
/// `told` hears what is being done.
/// Errors: of the engine, of files, or a witness that does not fit the model. Panics without a tokenizer
/// where [`Reference::needs_tokenizer`].
pub fn compare(
    engine: &mut Engine,
    tokenizer: Option<&Tokenizer>,
    reference: &Reference,
    texts: Option<&Path>,
    cancel: &AtomicBool,
    told: &mut dyn FnMut(&str),
) -> Result<Comparison> {
    let recipe = engine.recipe();
    let result = Comparison {
        family: engine.model().family,
        profile: recipe.profile().map_or_else(|| recipe.to_string(), |p| p.name().to_string()),
        arithmetic_version: base::ARITHMETIC_VERSION,
        ..Comparison::default()
    };
    match reference {
        Reference::Fixture(fixture) => {
            told("logits, router choices and greedy ids");
            fixture.compare(engine, result, cancel)
        }
        Reference::Witness(witness) => {
            let tokenizer = tokenizer.expect("a witness folder is compared with a tokenizer");
            witness.compare(engine, tokenizer, texts, result, cancel, told)
        }
    }
}
