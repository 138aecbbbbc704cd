//! A file of expected values: `input_ids` i64 [T], `logits` f32 [T, vocab], `greedy_ids` i64 [n], and per MoE
//! layer i `router.{i}.indices` i64 [T, k] with `router.{i}.weights` f32 [T, k], descending.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use base::{FileFault, LayerId, Result, WorldError};
use checkpoint::safetensors::File;
use engine::{Engine, Observer, Wanted};
use ops::Row;

use super::Comparison;
use crate::numbers::{Mean, RelativeRms, argmax, kl_of_logits};

/// Experts whose combine weights are nearer than this can't be told apart by a witness that gives the weights
/// of the chosen only: the reference's own score of the first expert that was not chosen is not known.
const UNDECIDED: f32 = 1e-3;

/// Expected values of one prompt.
#[derive(Debug)]
pub struct Fixture {
    file: File,
    input_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
}

impl Fixture {
    /// Opens and checks a file.
    pub fn open(path: &Path) -> Result<Fixture> {
        let file = File::open(path)?;
        let ids = |name: &str| -> Result<Vec<u32>> {
            let id = |id: &i64| u32::try_from(*id);
            let ids: Result<Vec<u32>, _> = file.i64(name)?.iter().map(id).collect();
            ids.map_err(|_| {
                let found = "others";
                let error = WorldError::damaged(path, FileFault::BadText, "token ids from 0 on", found);
                error.tensor(name).into()
            })
        };
        let (input_ids, greedy_ids) = (ids("input_ids")?, ids("greedy_ids")?);
        let rows = file.tensor("logits").map_or(0, |t| t.rows());
        if input_ids.is_empty() || rows != input_ids.len() {
            let expected = format!("{} rows, one per input id, at least one", input_ids.len());
            let error = WorldError::damaged(path, FileFault::WrongShape, expected, format!("{rows} rows"));
            return Err(error.tensor("logits").into());
        }
        Ok(Fixture { file, input_ids, greedy_ids })
    }

    /// Tokens of prompt and greedy ids.
    pub fn context(&self) -> usize {
        self.input_ids.len() + self.greedy_ids.len()
    }

    /// Feeds the prompt, compares logits and routers, and goes on greedily, whatever ends a text.
    pub(super) fn compare(
        &self,
        engine: &mut Engine,
        mut result: Comparison,
        cancel: &AtomicBool,
    ) -> Result<Comparison> {
        let vocab = engine.model().vocab;
        let logits = self.matrix("logits", vocab)?;
        let choices = Arc::new(Mutex::new(Choices::new()));
        engine.observe(Some(Box::new(Collector(choices.clone()))));
        let seq = engine.begin()?;
        let (mut rms, mut kl, mut agree) = (RelativeRms::default(), Mean::default(), Mean::default());
        let mut next = 0;
        let done = engine.prefill(seq, &self.input_ids, Wanted::All, cancel, &mut |_, position, row| {
            let expected = &logits[position * vocab..][..vocab];
            rms.add(row, expected);
            kl.add(kl_of_logits(expected, row));
            agree.add(f64::from(u8::from(argmax(row) == argmax(expected))));
            next = argmax(row);
            Ok(())
        });
        engine.observe(None);
        let greedy = done.and_then(|()| greedy(engine, seq, next, self.greedy_ids.len(), cancel));
        engine.end(seq);
        let greedy = greedy?;
        result.tokens = self.input_ids.len();
        result.logits_rel_rms = Some(rms.value());
        (result.kl_mean, result.top1_agree) = (kl.value(), agree.value());
        result.greedy_tokens = self.greedy_ids.len();
        result.greedy_prefix = greedy.iter().zip(&self.greedy_ids).take_while(|(a, b)| a == b).count();
        result.greedy_match = greedy == self.greedy_ids;
        let choices = choices.lock().unwrap_or_else(PoisonError::into_inner);
        self.compare_routers(&choices, engine, &mut result)?;
        Ok(result)
    }

    fn compare_routers(&self, choices: &Choices, engine: &Engine, result: &mut Comparison) -> Result<()> {
        for (layer, moe) in engine.model().moe_layers() {
            let (ids_name, weights_name) =
                (format!("router.{layer}.indices"), format!("router.{layer}.weights"));
            if self.file.tensor(&ids_name).is_none() {
                continue;
            }
            let ids = self.file.i64(&ids_name)?;
            let weights = self.matrix(&weights_name, moe.top_k)?;
            if ids.len() != weights.len() {
                return Err(self.wrong_shape(&ids_name, moe.top_k));
            }
            for (position, (ids, weights)) in
                ids.chunks_exact(moe.top_k).zip(weights.chunks_exact(moe.top_k)).enumerate()
            {
                let ours = &choices[&(layer, position as u32)];
                match judge(ours, ids, weights) {
                    Verdict::Equal => result.router_checked += 1,
                    Verdict::Different => {
                        result.router_checked += 1;
                        result.router_mismatches += 1;
                    }
                    Verdict::Undecided => result.router_undecided += 1,
                }
            }
        }
        Ok(())
    }

    /// A float tensor with one row per input id.
    fn matrix(&self, name: &str, columns: usize) -> Result<Vec<f32>> {
        let values = self.file.f32(name)?;
        let shape = self.file.tensor(name).map(|t| t.shape.clone());
        if shape != Some(vec![self.input_ids.len(), columns]) {
            return Err(self.wrong_shape(name, columns));
        }
        Ok(values)
    }

    fn wrong_shape(&self, name: &str, columns: usize) -> base::Error {
        let expected = format!("[{}, {columns}]", self.input_ids.len());
        let found = self.file.tensor(name).map_or("nothing".into(), |t| format!("{:?}", t.shape));
        let error = WorldError::damaged(self.file.path(), FileFault::WrongShape, expected, found);
        error.tensor(name).hint("does it belong to this model?").into()
    }
}

/// `count` greedy ids, the first of which is `first`.
fn greedy(
    engine: &mut Engine,
    seq: engine::Seq,
    first: u32,
    count: usize,
    cancel: &AtomicBool,
) -> Result<Vec<u32>> {
    let (mut ids, mut next) = (Vec::with_capacity(count), first);
    while ids.len() < count {
        ids.push(next);
        if ids.len() < count {
            engine.step(&[(seq, next)], cancel, &mut |_, _, row| {
                next = argmax(row);
                Ok(())
            })?;
        }
    }
    Ok(ids)
}

/// Chosen experts and their combine weights by layer and position.
type Choices = HashMap<(LayerId, u32), Vec<(u32, f32)>>;

struct Collector(Arc<Mutex<Choices>>);

impl Observer for Collector {
    fn router(&mut self, layer: LayerId, rows: &[Row], top_k: usize, ids: &[u32], weights: &[f32]) {
        let mut choices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, row) in rows.iter().enumerate() {
            let at = i * top_k..(i + 1) * top_k;
            let chosen = ids[at.clone()].iter().copied().zip(weights[at].iter().copied());
            choices.insert((layer, row.pos), chosen.collect());
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Equal,
    Different,
    Undecided,
}

/// Compares as sets. If they differ, every expert that only we chose must weigh nearly what an expert weighs
/// that only the witness chose; then the witness's own scores may have been that near, and nothing is
/// decided.
fn judge(ours: &[(u32, f32)], ids: &[i64], weights: &[f32]) -> Verdict {
    let mut only_ours: Vec<f32> =
        ours.iter().filter(|(id, _)| !ids.contains(&i64::from(*id))).map(|(_, w)| *w).collect();
    let known = |id: &i64| ours.iter().any(|(o, _)| i64::from(*o) == *id);
    let mut only_theirs: Vec<f32> =
        ids.iter().zip(weights).filter(|(id, _)| !known(id)).map(|(_, w)| *w).collect();
    if only_ours.is_empty() && only_theirs.is_empty() {
        return Verdict::Equal;
    }
    only_ours.sort_by(f32::total_cmp);
    only_theirs.sort_by(f32::total_cmp);
    let near = only_ours.iter().zip(&only_theirs).all(|(a, b)| (a - b).abs() <= UNDECIDED);
    if near && only_ours.len() == only_theirs.len() { Verdict::Undecided } else { Verdict::Different }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_compared_and_near_ties_left_open() {
        let ours = [(3, 0.5), (1, 0.3), (7, 0.2)];
        assert_eq!(judge(&ours, &[1, 3, 7], &[0.5, 0.3, 0.2]), Verdict::Equal);
        assert_eq!(judge(&ours, &[3, 1, 5], &[0.5, 0.3, 0.2005]), Verdict::Undecided);
        assert_eq!(judge(&ours, &[3, 1, 5], &[0.5, 0.3, 0.21]), Verdict::Different);
        assert_eq!(judge(&ours, &[3, 1, 1], &[0.5, 0.3, 0.2]), Verdict::Different);
    }
}
