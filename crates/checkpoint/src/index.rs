//! model.safetensors.index.json: which shard holds which tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use base::{FileFault, Result, WorldError};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::folder::file_name;
use crate::json::{cut, read_capped};
use crate::safetensors::Shard;
use crate::{MAX_HEADER_BYTES, MAX_SHARDS, MAX_TENSORS};

/// Its name in a model folder.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// A checked index.
pub(crate) struct Index {
    path: PathBuf,
    /// Name of the file that holds the tensor, by tensor.
    places: BTreeMap<String, String>,
}

impl Index {
    pub(crate) fn open(path: &Path) -> Result<Index> {
        let bytes = read_capped(path, MAX_HEADER_BYTES)?;
        let bad =
            |expected: &str, found: String| WorldError::damaged(path, FileFault::BadText, expected, found);
        let mut text = serde_json::Deserializer::from_slice(&bytes);
        let list =
            IndexSeed.deserialize(&mut text).and_then(|list| text.end().map(|()| list)).map_err(|e| {
                bad("an object with weight_map, names of tensors to names of files", e.to_string())
            })?;
        let mut places = BTreeMap::new();
        for (tensor, file) in list {
            if !is_plain_name(&file) {
                let expected = "the name of a safetensors file in the same folder";
                return Err(bad(expected, cut(&file)).tensor(cut(&tensor)).into());
            }
            if let Some(first) = places.insert(tensor.clone(), file) {
                let (expected, found) =
                    ("one entry per name".to_string(), format!("two, the first: {first}"));
                return Err(WorldError::damaged(path, FileFault::DuplicateName, expected, found)
                    .tensor(cut(&tensor))
                    .into());
            }
        }
        let index = Index { path: path.to_path_buf(), places };
        let shards = index.files().len();
        if shards == 0 {
            let fault = FileFault::NoTensors;
            return Err(WorldError::damaged(path, fault, "at least one tensor", "none").into());
        }
        if shards > MAX_SHARDS {
            return Err(bad(&format!("at most {MAX_SHARDS} shards"), shards.to_string()).into());
        }
        Ok(index)
    }

    /// The shards, in order of name.
    pub(crate) fn files(&self) -> BTreeSet<&str> {
        self.places.values().map(String::as_str).collect()
    }

    /// Every tensor is where the index says, and every tensor of a shard is in the index.
    pub(crate) fn check(&self, shards: &[Shard]) -> Result<()> {
        let by_name: BTreeMap<String, &Shard> = shards.iter().map(|s| (file_name(s), s)).collect();
        for (tensor, file) in &self.places {
            let shard = by_name[file];
            if shard.tensor(tensor).is_none() {
                let found = match shards.iter().find(|s| s.tensor(tensor).is_some()) {
                    Some(other) => format!("it in {}", file_name(other)),
                    None => "it in no shard".into(),
                };
                let expected = format!("the tensor, as {INDEX} says");
                return Err(WorldError::damaged(shard.path(), FileFault::IndexMismatch, expected, found)
                    .tensor(cut(tensor))
                    .into());
            }
        }
        for shard in shards {
            // A tensor that the index places elsewhere is in two shards, which is reported as that.
            let Some(extra) = shard.tensors().iter().find(|t| !self.places.contains_key(&t.name)) else {
                continue;
            };
            let expected = format!("an entry for each tensor of {}", file_name(shard));
            return Err(WorldError::damaged(
                &self.path,
                FileFault::IndexMismatch,
                expected,
                "none for this one",
            )
            .tensor(cut(&extra.name))
            .into());
        }
        Ok(())
    }
}

/// A file name that can't lead out of the folder.
fn is_plain_name(file: &str) -> bool {
    let plain = file.len() <= 255 && !file.contains(['/', '\\', '\0']);
    plain && file.ends_with(".safetensors") && !file.starts_with('.')
}

/// The index as written: repeated names still show. Typed, so that a large file of something else costs no
/// memory.
struct IndexSeed;

impl<'de> DeserializeSeed<'de> for IndexSeed {
    type Value = Vec<(String, String)>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IndexSeed {
    type Value = Vec<(String, String)>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut places = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != "weight_map" {
                // "metadata" holds a total size that is often wrong and that nothing needs.
                map.next_value::<IgnoredAny>()?;
            } else if places.replace(map.next_value_seed(PlacesSeed)?).is_some() {
                return Err(de::Error::custom("weight_map twice"));
            }
        }
        places.ok_or_else(|| de::Error::missing_field("weight_map"))
    }
}

struct PlacesSeed;

impl<'de> DeserializeSeed<'de> for PlacesSeed {
    type Value = Vec<(String, String)>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PlacesSeed {
    type Value = Vec<(String, String)>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut places = Vec::new();
        while let Some(entry) = map.next_entry()? {
            if places.len() == MAX_TENSORS {
                return Err(de::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
            }
            places.push(entry);
        }
        Ok(places)
    }
}
