//! Rotary embedding from every spelling that published configs use.
//!
//! Older files are flat: `rope_theta`, `partial_rotary_factor` or `rotary_dim`, and `rope_scaling`, null or
//! an object with `type` or `rope_type`. Newer ones have `rope_parameters` with all of it, always, also for
//! plain rotary embedding (`rope_type` "default").

use base::{Refusal, Result};
use serde_json::Value;

use crate::Config;

/// What the configuration says about rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Share of a head's dimensions that rotate, in (0, 1].
    pub partial_factor: f64,
    /// How frequencies are stretched beyond the trained length.
    pub scaling: RopeScaling,
}

impl Rope {
    /// Dimensions that rotate, of a head of `head_dim`.
    pub fn rotary_dims(&self, head_dim: usize) -> usize {
        rotary_dims(head_dim, self.partial_factor)
    }
}

/// Stretching of the frequencies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Frequencies as they are.
    None,
    /// All frequencies divided by `factor`.
    Linear { factor: f64 },
    /// YaRN (arXiv 2309.00071). `original` is the trained length in tokens. Absent keys that have no
    /// common default stay `None`.
    Yarn {
        factor: f64,
        original: usize,
        beta_fast: f64,
        beta_slow: f64,
        attention_factor: Option<f64>,
        mscale: Option<f64>,
        mscale_all_dim: Option<f64>,
        truncate: bool,
    },
}

impl Config {
    /// Rotary embedding of heads with `head_dim` dimensions. Errors: no theta, an unknown type, two
    /// spellings that disagree, a share that is no even number of dimensions.
    pub fn rope(&self, head_dim: usize) -> Result<Rope> {
        let (mut theta, mut partial) = (Agreed::new(self), Agreed::new(self));
        theta.add("rope_theta".into(), self.opt_f64("rope_theta")?)?;
        partial.add("partial_rotary_factor".into(), self.opt_f64("partial_rotary_factor")?)?;
        if let Some(dims) = self.opt_usize("rotary_dim")? {
            partial.add("rotary_dim / head_dim".into(), Some(dims as f64 / head_dim as f64))?;
        }
        let mut scaling: Option<(&str, RopeScaling)> = None;
        for key in ["rope_scaling", "rope_parameters"] {
            let Some(section) = self.section(key)? else { continue };
            theta.add(format!("{key}.rope_theta"), section.opt_f64("rope_theta")?)?;
            let share = section.opt_f64("partial_rotary_factor")?;
            partial.add(format!("{key}.partial_rotary_factor"), share)?;
            match (scaling, self.scaling(&section)?) {
                (Some((first, a)), Some(b)) if a != b => return Err(self.disagree(first, a, key, b)),
                (None, Some(found)) => scaling = Some((key, found)),
                _ => {}
            }
        }
        let base = theta.value.ok_or_else(|| self.missing("rope_theta"))?;
        if base <= 1.0 {
            return Err(self.wrong(&theta.key, &Value::from(base), "a base above 1"));
        }
        let share = partial.value.unwrap_or(1.0);
        let dims = rotary_dims(head_dim, share);
        if !(share > 0.0 && share <= 1.0) || dims == 0 || !dims.is_multiple_of(2) {
            let expected = format!("a share in (0, 1] that makes an even number of {head_dim} dimensions");
            let key = if partial.key.is_empty() { "partial_rotary_factor" } else { &partial.key };
            return Err(self.wrong(key, &Value::from(share), &expected));
        }
        let scaling = scaling.map_or(RopeScaling::None, |(_, scaling)| scaling);
        Ok(Rope { theta: base, partial_factor: share, scaling })
    }

    /// The scaling in one object, `None` if the object does not speak of any.
    fn scaling(&self, section: &Config) -> Result<Option<RopeScaling>> {
        let kind = match (section.opt_str("rope_type")?, section.opt_str("type")?) {
            (Some(a), Some(b)) if a != b => return Err(section.disagree("type", b, "rope_type", a)),
            (a, b) => a.or(b),
        };
        match kind {
            None if section.has("factor") => Err(section.missing("rope_type")),
            None => self.refuse_per_kind(section).map(|()| None),
            Some("default") => Ok(Some(RopeScaling::None)),
            Some("linear") => Ok(Some(RopeScaling::Linear { factor: stretch(section)? })),
            Some("yarn") => self.yarn(section).map(Some),
            Some(other) => {
                let what = format!("{} = {other:?}", section.field("rope_type"));
                let hint = "known types: default, linear, yarn";
                Err(Refusal::unsupported(what, "this kind of rotary embedding is unknown", hint).into())
            }
        }
    }

    fn yarn(&self, section: &Config) -> Result<RopeScaling> {
        // The object's own key first, then the top level's, then the length the file declares: the order in
        // which the reference implementation looks.
        let original = match section.opt_usize("original_max_position_embeddings")? {
            Some(n) => n,
            None => match self.opt_usize("original_max_position_embeddings")? {
                Some(n) => n,
                None => self.usize("max_position_embeddings")?,
            },
        };
        if original == 0 {
            let key = "original_max_position_embeddings";
            return Err(section.wrong(key, &Value::from(0), "a positive number of tokens"));
        }
        let (beta_fast, beta_slow) = (section.f64_or("beta_fast", 32.0)?, section.f64_or("beta_slow", 1.0)?);
        if !(beta_slow > 0.0 && beta_fast >= beta_slow) {
            let expected = format!("a number of turns ≥ beta_slow ({beta_slow}) > 0");
            return Err(section.wrong("beta_fast", &Value::from(beta_fast), &expected));
        }
        let attention_factor = section.opt_f64("attention_factor")?;
        if let Some(v) = attention_factor.filter(|&v| v <= 0.0) {
            return Err(section.wrong("attention_factor", &Value::from(v), "a number above 0"));
        }
        Ok(RopeScaling::Yarn {
            factor: stretch(section)?,
            original,
            beta_fast,
            beta_slow,
            attention_factor,
            mscale: not_negative(section, "mscale")?,
            mscale_all_dim: not_negative(section, "mscale_all_dim")?,
            truncate: section.bool_or("truncate", true)?,
        })
    }

    /// Some families give each kind of layer its own object inside `rope_parameters`.
    fn refuse_per_kind(&self, section: &Config) -> Result<()> {
        for kind in ["full_attention", "sliding_attention"] {
            if section.has(kind) {
                let why = "rotary embedding per kind of layer is read by families that have it";
                return Err(
                    Refusal::unsupported(section.field(kind), why, "this family needs one for all").into()
                );
            }
        }
        Ok(())
    }
}

/// A number collected from several spellings, which must agree.
struct Agreed<'a> {
    config: &'a Config,
    key: String,
    value: Option<f64>,
}

impl<'a> Agreed<'a> {
    fn new(config: &'a Config) -> Self {
        Agreed { config, key: String::new(), value: None }
    }

    fn add(&mut self, key: String, found: Option<f64>) -> Result<()> {
        match (self.value, found) {
            // Exactly: rotary_dim / head_dim is rounded to the same number as the decimal of the same share.
            (Some(a), Some(b)) if a != b => Err(self.config.disagree(&self.key, a, &key, b)),
            (None, Some(_)) => {
                (self.key, self.value) = (key, found);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The factor by which the context is stretched.
fn stretch(section: &Config) -> Result<f64> {
    let factor = section.f64("factor")?;
    if factor >= 1.0 {
        return Ok(factor);
    }
    Err(section.wrong("factor", &Value::from(factor), "a number of at least 1"))
}

fn not_negative(section: &Config, key: &str) -> Result<Option<f64>> {
    match section.opt_f64(key)? {
        Some(v) if v < 0.0 => Err(section.wrong(key, &Value::from(v), "a number that is not negative")),
        found => Ok(found),
    }
}

/// The reference rounds down; the small addend keeps rotary_dim / head_dim · head_dim at rotary_dim.
fn rotary_dims(head_dim: usize, partial_factor: f64) -> usize {
    (head_dim as f64 * partial_factor + 1e-6) as usize
}
