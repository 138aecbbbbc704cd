//! config.json as a table of keys that remembers which ones were read, so that a key nobody understood is
//! reported instead of silently changing the model.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{FileFault, Refusal, Result, WorldError};
use serde_json::{Map, Value};

use crate::MAX_CONFIG_BYTES;
use crate::json::{kind, read_object, shown};

/// Keys that say how the weights are stored; the shards' own headers are the authority.
const STORAGE_KEYS: [&str; 2] = ["dtype", "torch_dtype"];

/// A JSON object of the configuration. Sub-objects ([`Config::section`]) share one record of what was read.
/// An absent key and a null one mean the same everywhere.
#[derive(Debug, Clone)]
pub struct Config {
    path: PathBuf,
    /// Keys that lead here, each followed by a dot; empty at the top.
    prefix: String,
    map: Arc<Map<String, Value>>,
    read: Arc<Mutex<Record>>,
}

/// Dotted keys.
#[derive(Debug, Default)]
struct Record {
    read: BTreeSet<String>,
    opened: BTreeSet<String>,
}

impl Config {
    /// Reads and parses a file.
    pub fn open(path: &Path) -> Result<Config> {
        Ok(Config::new(path, read_object(path, MAX_CONFIG_BYTES)?))
    }

    /// A configuration that is already parsed; `path` is used in messages. Errors: not an object.
    pub fn from_value(path: &Path, value: Value) -> Result<Config> {
        match value {
            Value::Object(map) => Ok(Config::new(path, map)),
            other => Err(WorldError::damaged(path, FileFault::BadText, "a JSON object", kind(&other)).into()),
        }
    }

    pub(crate) fn new(path: &Path, map: Map<String, Value>) -> Config {
        let (path, map) = (path.to_path_buf(), Arc::new(map));
        Config { path, prefix: String::new(), map, read: Arc::default() }
    }

    /// The file this came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Value of `key`, which now counts as read; `None` if absent or null.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.record().read.insert(self.dotted(key));
        self.peek(key)
    }

    /// Whether `key` is there and not null. Does not count as reading it.
    pub fn has(&self, key: &str) -> bool {
        self.peek(key).is_some()
    }

    /// The family's name, `model_type`.
    pub fn model_type(&self) -> Result<&str> {
        self.str("model_type")
    }

    /// A whole number that must be there. 128.0 is accepted as 128.
    pub fn usize(&self, key: &str) -> Result<usize> {
        self.opt_usize(key)?.ok_or_else(|| self.missing(key))
    }

    /// A whole number, or `None` if absent or null.
    pub fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        self.convert(key, "a whole number that is not negative", whole)
    }

    /// A whole number, or `default` if absent or null.
    pub fn usize_or(&self, key: &str, default: usize) -> Result<usize> {
        Ok(self.opt_usize(key)?.unwrap_or(default))
    }

    /// A whole number that has several spellings. All present ones are read. Errors: two that disagree.
    pub fn any_usize(&self, keys: &[&str]) -> Result<Option<usize>> {
        let mut found: Option<(&str, usize)> = None;
        for &key in keys {
            let Some(value) = self.opt_usize(key)? else { continue };
            match found {
                Some((first, other)) if other != value => {
                    return Err(self.disagree(first, other, key, value));
                }
                _ => found = found.or(Some((key, value))),
            }
        }
        Ok(found.map(|(_, value)| value))
    }

    /// A finite number that must be there.
    pub fn f64(&self, key: &str) -> Result<f64> {
        self.opt_f64(key)?.ok_or_else(|| self.missing(key))
    }

    /// A finite number, or `None` if absent or null.
    pub fn opt_f64(&self, key: &str) -> Result<Option<f64>> {
        self.convert(key, "a number", Value::as_f64)
    }

    /// A finite number, or `default` if absent or null.
    pub fn f64_or(&self, key: &str, default: f64) -> Result<f64> {
        Ok(self.opt_f64(key)?.unwrap_or(default))
    }

    /// true or false, or `None` if absent or null.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        self.convert(key, "true or false", Value::as_bool)
    }

    /// true or false, or `default` if absent or null.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.opt_bool(key)?.unwrap_or(default))
    }

    /// A string that must be there.
    pub fn str(&self, key: &str) -> Result<&str> {
        self.opt_str(key)?.ok_or_else(|| self.missing(key))
    }

    /// A string, or `None` if absent or null.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>> {
        self.convert(key, "a string", Value::as_str)
    }

    /// A list of strings, or `None` if absent or null.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<String>>> {
        self.convert(key, "a list of strings", |v| list(v, |v| v.as_str().map(String::from)))
    }

    /// A list of whole numbers, or `None` if absent or null.
    pub fn usizes(&self, key: &str) -> Result<Option<Vec<usize>>> {
        self.convert(key, "a list of whole numbers that are not negative", |v| list(v, whole))
    }

    /// Token ids given as one number, a list, or null (none).
    pub fn ids(&self, key: &str) -> Result<Vec<u32>> {
        let id = |v: &Value| whole(v).and_then(|n| u32::try_from(n).ok());
        let ids = self.convert(key, "a token id or a list of token ids", |v| match v {
            Value::Array(_) => list(v, id),
            _ => id(v).map(|n| vec![n]),
        })?;
        Ok(ids.unwrap_or_default())
    }

    /// Asserts that `key` is absent, null, or one of `allowed` (numbers are compared as numbers).
    /// `why` says what another value would need.
    pub fn expect(&self, key: &str, allowed: &[Value], why: &str) -> Result<()> {
        let Some(found) = self.value(key) else { return Ok(()) };
        if allowed.iter().any(|a| same(a, found)) {
            return Ok(());
        }
        let what = format!("{} = {}", self.field(key), shown(found));
        let hint = match allowed {
            [] => "it must be absent".to_string(),
            _ => format!("known: {}", allowed.iter().map(shown).collect::<Vec<_>>().join(", ")),
        };
        Err(Refusal::unsupported(what, why, hint).into())
    }

    /// Marks keys as known to be irrelevant. Dots lead into sections: `"rope_parameters.mrope_section"`.
    pub fn ignore(&self, keys: &[&str]) {
        let mut record = self.record();
        for key in keys {
            record.read.insert(self.dotted(key));
            // Whoever ignores a key inside a section knows of the section.
            for (dot, _) in key.match_indices('.') {
                record.opened.insert(self.dotted(&key[..dot]));
            }
        }
    }

    /// A sub-object, or `None` if absent or null. Its keys are tracked one by one.
    pub fn section(&self, key: &str) -> Result<Option<Config>> {
        let map = match self.peek(key) {
            None => return Ok(None),
            Some(Value::Object(map)) => Arc::new(map.clone()),
            Some(other) => return Err(self.wrong(key, other, "an object")),
        };
        self.record().opened.insert(self.dotted(key));
        let (path, prefix) = (self.path.clone(), format!("{}.", self.dotted(key)));
        Ok(Some(Config { path, prefix, map, read: self.read.clone() }))
    }

    /// Keys below this object that hold something and that nobody read, dotted and sorted. A section that was
    /// never opened is one key.
    pub fn unread(&self) -> Vec<String> {
        let mut out = Vec::new();
        unread_below(&self.map, &self.prefix, &self.record(), &mut out);
        out.sort();
        out
    }

    /// `key` for a message: dotted, with the file.
    pub fn field(&self, key: &str) -> String {
        format!("{} in {}", self.dotted(key), self.path.display())
    }

    /// The refusal for a value of the wrong type or range.
    pub(crate) fn wrong(&self, key: &str, found: &Value, expected: &str) -> base::Error {
        Refusal::value(self.field(key), shown(found), format!("expected {expected}"), "correct the file")
            .into()
    }

    pub(crate) fn missing(&self, key: &str) -> base::Error {
        Refusal::NotFound {
            what: format!("the key {}", self.dotted(key)),
            value: self.path.display().to_string(),
            hint: "the model's family needs it; is the file complete?".into(),
        }
        .into()
    }

    pub(crate) fn disagree<T: std::fmt::Debug>(&self, one: &str, a: T, other: &str, b: T) -> base::Error {
        let (one, other) = (self.dotted(one), self.field(other));
        let limit = format!("{one} says {a:?}");
        Refusal::value(other, format!("{b:?}"), limit, "the two spellings must agree; remove one").into()
    }

    fn convert<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        of: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.value(key) {
            None => Ok(None),
            Some(v) => of(v).map(Some).ok_or_else(|| self.wrong(key, v, expected)),
        }
    }

    fn peek(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn dotted(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unread_below(map: &Map<String, Value>, prefix: &str, record: &Record, out: &mut Vec<String>) {
    for (key, value) in map {
        let dotted = format!("{prefix}{key}");
        if value.is_null() || STORAGE_KEYS.contains(&key.as_str()) || record.read.contains(&dotted) {
            continue;
        }
        match value {
            Value::Object(inner) if record.opened.contains(&dotted) => {
                unread_below(inner, &format!("{dotted}."), record, out);
            }
            _ => out.push(dotted),
        }
    }
}

/// A whole number, also one written as 128.0. Floats beyond 2^53 are not known to be whole.
fn whole(value: &Value) -> Option<usize> {
    if let Some(n) = value.as_u64() {
        return usize::try_from(n).ok();
    }
    let n = value.as_f64().filter(|n| (0.0..=9_007_199_254_740_992.0).contains(n) && n.fract() == 0.0)?;
    Some(n as usize)
}

fn list<T>(value: &Value, of: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(of).collect()
}

/// Equality that takes 1 and 1.0 for the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}
