//! What a recipe costs in quality: perplexity, and divergence from our own reference profile, on text in
//! windows. All recipes see the same tokens at the same time, so only a few rows of logits are ever kept.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use arch::{Profile, Recipe, RoleClass};
use base::Result;
use engine::{Engine, Seq, Wanted};
use ops::{Acts, KvFormat, WeightFormat};

use crate::numbers::{Mean, kl_of_logits, nll};
use crate::windows::{Windows, perplexity};

/// Tokens that all engines process before the next ones: rows of logits that are kept.
const PIECE: usize = 64;

/// A recipe with the name of its row.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Name.
    pub name: String,
    /// Recipe.
    pub recipe: Recipe,
}

/// The rows of the report: the profiles, and single changes to the default and to the reference profile.
pub fn variants() -> Vec<Variant> {
    let (default, reference) = (Profile::Default.recipe(), Profile::Reference.recipe());
    let with = |class: RoleClass, format: WeightFormat| {
        let mut recipe = reference;
        recipe.set(class, format).expect("a format that the class may have");
        recipe
    };
    let codes = |mut recipe: Recipe, acts: Option<Acts>, kv: Option<KvFormat>| {
        recipe.acts = acts.unwrap_or(recipe.acts);
        recipe.kv = kv.unwrap_or(recipe.kv);
        recipe
    };
    let rows = [
        ("default", default),
        ("small", Profile::Small.recipe()),
        ("default, acts 16", codes(default, Some(Acts::A16), None)),
        ("default, kv k4v4", codes(default, None, Some(KvFormat::K4))),
        ("reference, experts int4", with(RoleClass::Experts, WeightFormat::I4)),
        ("reference, attention hqq6", with(RoleClass::Attention, WeightFormat::H6)),
        ("reference, linear attention hqq6", with(RoleClass::LinearAttention, WeightFormat::H6)),
        ("reference, head int8", with(RoleClass::Head, WeightFormat::I8)),
        ("reference, acts 8", codes(reference, Some(Acts::A8), None)),
        ("reference, kv k8v8", codes(reference, None, Some(KvFormat::K8))),
    ];
    rows.map(|(name, recipe)| Variant { name: name.into(), recipe }).into()
}

/// A loaded recipe and what was measured.
pub struct Row {
    /// Name.
    pub name: String,
    engine: Engine,
    kinds: BTreeMap<String, Cell>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    nll: Mean,
    kl: Mean,
}

impl Row {
    /// A row without measurements.
    pub fn new(name: String, engine: Engine) -> Row {
        Row { name, engine, kinds: BTreeMap::new() }
    }
}

/// Measures one kind of text: the first row is the reference of all others.
pub fn measure(
    rows: &mut [Row],
    kind: &str,
    ids: &[u32],
    windows: Windows,
    cancel: &AtomicBool,
) -> Result<()> {
    for window in windows.cut(kind, ids)? {
        let mut seqs = Vec::with_capacity(rows.len());
        let begun = rows.iter_mut().try_for_each(|row| {
            seqs.push(row.engine.begin()?);
            Ok(())
        });
        let measured = begun.and_then(|()| measure_window(rows, &seqs, kind, window, cancel));
        for (row, seq) in rows.iter_mut().zip(&seqs) {
            row.engine.end(*seq);
        }
        measured?;
    }
    Ok(())
}

fn measure_window(
    rows: &mut [Row],
    seqs: &[Seq],
    kind: &str,
    window: &[u32],
    cancel: &AtomicBool,
) -> Result<()> {
    let mut kept: Vec<f32> = Vec::new();
    for (index, piece) in window.chunks(PIECE).enumerate() {
        let first = index * PIECE;
        for (i, (row, seq)) in rows.iter_mut().zip(seqs).enumerate() {
            let cell = row.kinds.entry(kind.to_string()).or_default();
            if i == 0 {
                kept.clear();
            }
            row.engine.prefill(*seq, piece, Wanted::All, cancel, &mut |_, position, logits| {
                // The last token's successor is not part of the window.
                let Some(&next) = window.get(position + 1) else { return Ok(()) };
                cell.nll.add(nll(logits, next));
                if i == 0 {
                    kept.extend_from_slice(logits);
                } else {
                    let theirs = &kept[(position - first) * logits.len()..][..logits.len()];
                    cell.kl.add(kl_of_logits(theirs, logits));
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// The measurements as a markdown table: one row per recipe, mean KL and perplexity per kind.
pub fn table(rows: &[Row]) -> String {
    let kinds: Vec<&String> = rows.first().map(|r| r.kinds.keys().collect()).unwrap_or_default();
    let mut text = String::from("| recipe |");
    for kind in &kinds {
        text += &format!(" {kind} |");
    }
    text += "\n|---|";
    text += &"---|".repeat(kinds.len());
    for (i, row) in rows.iter().enumerate() {
        text += &format!("\n| {} |", row.name);
        for kind in &kinds {
            let cell = row.kinds[*kind];
            let ppl = perplexity(&cell.nll);
            let kl = cell.kl.value().unwrap_or(f64::NAN);
            text += &if i == 0 { format!(" {ppl:.3} |") } else { format!(" {kl:.5} · {ppl:.3} |") };
        }
    }
    text + "\n"
}
