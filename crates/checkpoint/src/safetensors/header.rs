//! The header of a safetensors file. Pure: bytes in, a checked table of tensors or a precise error out.
//!
//! Layout of a file: 8 bytes, the little-endian length N of the header; N bytes of JSON,
//! `{"__metadata__": {text: text}, NAME: {"dtype": …, "shape": […], "data_offsets": [begin, end]}, …}`;
//! the data, in which every byte belongs to exactly one tensor.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use base::{FileFault, Result, WorldError};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::json::{LFS_HINT, LFS_PREFIX, cut};
use crate::{
    Dtype, MAX_HEADER_BYTES, MAX_METADATA, MAX_NAME_BYTES, MAX_PADDING_BYTES, MAX_RANK, MAX_TENSORS,
};

const RESUME_HINT: &str = "the download is incomplete: resume it, or fetch this file again";

/// What a header says of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name on the hub.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Dimensions, outermost first; empty for a single number.
    pub shape: Vec<usize>,
    /// Where its bytes lie in the file.
    pub span: Range<usize>,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.span.len() / self.dtype.bytes()
    }

    /// Bytes of the data.
    pub fn bytes(&self) -> usize {
        self.span.len()
    }

    /// Length of the last dimension (1 for a single number).
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Product of all dimensions but the last: the tensor seen as a matrix of rows.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, leading)| leading.iter().product())
    }
}

/// A checked header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Tensors in name order.
    pub tensors: Vec<TensorInfo>,
    /// Free text of the writer.
    pub metadata: BTreeMap<String, String>,
    /// First byte of the data: 8 + the header's length.
    pub data_start: usize,
}

/// Parses and checks the header of a file of `file_len` bytes that starts with `bytes` (the whole file, or
/// a prefix that holds the header). Never panics; memory is bounded by the length of the header.
pub fn parse_header(bytes: &[u8], file_len: u64, path: &Path) -> Result<Header> {
    let json = header_text(bytes, file_len, path)?;
    let data_start = 8 + json.len();
    let current = RefCell::new(None);
    let mut text = serde_json::Deserializer::from_slice(json);
    let raw = RawHeaderSeed { current: &current }
        .deserialize(&mut text)
        .and_then(|raw| text.end().map(|()| raw))
        .map_err(|e| {
            let error = damaged(path, FileFault::BadHeader, "a table of tensors as JSON", e);
            match current.take() {
                Some(name) => error.tensor(cut(&name)),
                None => error,
            }
        })?;
    let mut tensors = Vec::with_capacity(raw.entries.len());
    for (name, entry) in raw.entries {
        tensors.push(check_entry(name, &entry, data_start, path)?);
    }
    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = tensors.windows(2).find(|w| w[0].name == w[1].name) {
        return Err(damaged(path, FileFault::DuplicateName, "one entry per name", "two entries")
            .tensor(cut(&pair[0].name))
            .into());
    }
    check_layout(&tensors, data_start, file_len, path)?;
    Ok(Header { tensors, metadata: raw.metadata, data_start })
}

fn damaged(path: &Path, fault: FileFault, expected: impl ToString, found: impl ToString) -> WorldError {
    WorldError::damaged(path, fault, expected, found)
}

/// The JSON between the length field and the data.
fn header_text<'a>(bytes: &'a [u8], file_len: u64, path: &Path) -> Result<&'a [u8]> {
    if bytes.starts_with(LFS_PREFIX) {
        let expected = "the tensors of a safetensors file";
        let found = format!("a git-LFS pointer of {file_len} bytes");
        return Err(damaged(path, FileFault::LfsPointer, expected, found).hint(LFS_HINT).into());
    }
    let truncated = |needed: u64, found: u64| {
        let expected = format!("at least {needed} bytes");
        damaged(path, FileFault::Truncated, expected, format!("{found} bytes")).hint(RESUME_HINT)
    };
    let Some(length) = bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)) else {
        return Err(truncated(8, file_len.min(bytes.len() as u64)).into());
    };
    if length > MAX_HEADER_BYTES as u64 {
        let expected = format!("a header of at most {MAX_HEADER_BYTES} bytes");
        return Err(damaged(path, FileFault::HeaderTooLarge, expected, format!("a length of {length}"))
            .hint("is it a safetensors file at all?")
            .into());
    }
    let end = 8 + length;
    if end > file_len {
        return Err(truncated(end, file_len).into());
    }
    match bytes.get(8..end as usize) {
        Some(json) if json.first() == Some(&b'{') => Ok(json),
        Some(json) => {
            let found = json.first().map_or("an empty header".into(), |b| format!("byte {b:#04x}"));
            Err(damaged(path, FileFault::BadHeader, "a header that starts with {", found).into())
        }
        None => Err(truncated(end, bytes.len() as u64).into()),
    }
}

/// Type, shape and place of one tensor, each alone.
fn check_entry(name: String, raw: &RawEntry, data_start: usize, path: &Path) -> Result<TensorInfo> {
    let fail = |fault, expected: String, found: String| -> Result<TensorInfo> {
        Err(damaged(path, fault, expected, found).tensor(cut(&name)).into())
    };
    let Some(dtype) = Dtype::from_name(&raw.dtype) else {
        let known = Dtype::ALL.map(Dtype::name).join(", ");
        return fail(FileFault::UnknownDtype, format!("one of {known}"), cut(&raw.dtype));
    };
    let (begin, end) = raw.offsets;
    let place = |offset: u64| {
        let at = u64::try_from(data_start).ok()?.checked_add(offset)?;
        usize::try_from(at).ok().filter(|&at| at <= isize::MAX as usize)
    };
    let span = match (place(begin), place(end)) {
        (Some(from), Some(to)) if from <= to => from..to,
        _ => {
            let found = format!("offsets {begin}..{end}");
            return fail(FileFault::OffsetOutOfRange, "ascending offsets inside the file".into(), found);
        }
    };
    // Multiplied in order, so that no product of leading dimensions can overflow later either.
    let mut length = Some(dtype.bytes());
    let mut shape = Vec::with_capacity(raw.shape.len());
    for &d in &raw.shape {
        let d = usize::try_from(d).unwrap_or(usize::MAX);
        length = length.and_then(|l| l.checked_mul(d));
        shape.push(d);
    }
    if length != Some(span.len()) {
        let expected = match length {
            Some(length) => format!("{dtype} {shape:?} in {length} bytes"),
            None => format!("{dtype} {shape:?} of a size that can be counted"),
        };
        return fail(FileFault::LengthMismatch, expected, format!("{} bytes", span.len()));
    }
    Ok(TensorInfo { name, dtype, shape, span })
}

/// The tensors together: no overlap, no hole, and the file ends where the last one ends.
fn check_layout(tensors: &[TensorInfo], data_start: usize, file_len: u64, path: &Path) -> Result<()> {
    let mut in_file: Vec<&TensorInfo> = tensors.iter().collect();
    in_file.sort_unstable_by_key(|t| (t.span.start, t.span.end));
    let mut end = data_start;
    let mut before = "the header";
    for t in &in_file {
        let begin = t.span.start;
        if begin < end {
            let expected = format!("its first byte at or after {end}, the end of {}", cut(before));
            let found = format!("bytes {begin}..{}", t.span.end);
            return Err(damaged(path, FileFault::Overlap, expected, found).tensor(cut(&t.name)).into());
        }
        if (begin - end) as u64 >= MAX_PADDING_BYTES {
            let outside = t.span.end as u64 > file_len;
            let fault = if outside { FileFault::OffsetOutOfRange } else { FileFault::Hole };
            let expected = if outside {
                format!("its last byte before {file_len}, the size of the file")
            } else {
                format!("its first byte within {MAX_PADDING_BYTES} of {end}, the end of {}", cut(before))
            };
            let found = format!("bytes {begin}..{}", t.span.end);
            return Err(damaged(path, fault, expected, found).tensor(cut(&t.name)).into());
        }
        end = t.span.end;
        before = &t.name;
    }
    if file_len < end as u64 {
        let mut cut_off = in_file.iter().filter(|t| t.span.end as u64 > file_len);
        let (first, others) = (cut_off.next().map_or("", |t| &t.name), cut_off.count());
        let found = format!("{file_len} bytes ({} tensors cut off)", others + 1);
        return Err(damaged(path, FileFault::Truncated, format!("{end} bytes"), found)
            .tensor(cut(first))
            .hint(RESUME_HINT)
            .into());
    }
    if file_len > end as u64 {
        let found = format!("{file_len} bytes");
        return Err(damaged(path, FileFault::TrailingBytes, format!("{end} bytes"), found)
            .hint("two downloads may have been written into one file: fetch it again")
            .into());
    }
    Ok(())
}

/// An entry as written, before any check of its meaning.
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    offsets: (u64, u64),
}

#[derive(Default)]
struct RawHeader {
    entries: Vec<(String, RawEntry)>,
    metadata: BTreeMap<String, String>,
}

/// Reads the header's object; `current` is the name of the entry being read, for error messages.
struct RawHeaderSeed<'a> {
    current: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for RawHeaderSeed<'_> {
    type Value = RawHeader;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawHeader, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RawHeaderSeed<'_> {
    type Value = RawHeader;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut header = RawHeader::default();
        let mut seen_metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                if std::mem::replace(&mut seen_metadata, true) {
                    return Err(de::Error::custom("__metadata__ twice"));
                }
                header.metadata = map.next_value_seed(MetadataSeed)?;
                continue;
            }
            if header.entries.len() == MAX_TENSORS {
                return Err(de::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
            }
            if name.len() > MAX_NAME_BYTES {
                let bytes = name.len();
                return Err(de::Error::custom(format_args!(
                    "a name of {bytes} bytes, more than {MAX_NAME_BYTES}"
                )));
            }
            self.current.replace(Some(name.clone()));
            let entry = map.next_value_seed(RawEntrySeed)?;
            self.current.replace(None);
            header.entries.push((name, entry));
        }
        Ok(header)
    }
}

/// Reads the free text, stopping at its limit.
struct MetadataSeed;

impl<'de> DeserializeSeed<'de> for MetadataSeed {
    type Value = BTreeMap<String, String>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed {
    type Value = BTreeMap<String, String>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("__metadata__, an object of strings")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if metadata.len() == MAX_METADATA {
                let text = format_args!("more than {MAX_METADATA} entries of __metadata__");
                return Err(de::Error::custom(text));
            }
            if metadata.contains_key(&key) {
                return Err(de::Error::custom(format_args!("{} twice in __metadata__", cut(&key))));
            }
            metadata.insert(key, value);
        }
        Ok(metadata)
    }
}

struct RawEntrySeed;

impl<'de> DeserializeSeed<'de> for RawEntrySeed {
    type Value = RawEntry;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawEntry, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RawEntrySeed {
    type Value = RawEntry;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawEntry, A::Error> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            let again = match key.as_str() {
                "dtype" => dtype.replace(map.next_value::<String>()?).is_some(),
                "shape" => shape.replace(map.next_value_seed(ShapeSeed)?).is_some(),
                "data_offsets" => offsets.replace(map.next_value::<(u64, u64)>()?).is_some(),
                other => {
                    let other = cut(other);
                    map.next_value::<IgnoredAny>()?;
                    return Err(de::Error::custom(format_args!("the unknown key {other}")));
                }
            };
            if again {
                return Err(de::Error::custom(format_args!("{key} twice")));
            }
        }
        Ok(RawEntry {
            dtype: dtype.ok_or_else(|| de::Error::missing_field("dtype"))?,
            shape: shape.ok_or_else(|| de::Error::missing_field("shape"))?,
            offsets: offsets.ok_or_else(|| de::Error::missing_field("data_offsets"))?,
        })
    }
}

/// Reads a shape, stopping at the rank limit instead of collecting a list of any length.
struct ShapeSeed;

impl<'de> DeserializeSeed<'de> for ShapeSeed {
    type Value = Vec<u64>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u64>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ShapeSeed {
    type Value = Vec<u64>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of dimensions")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u64>, A::Error> {
        let mut shape = Vec::new();
        while let Some(dimension) = list.next_element()? {
            if shape.len() == MAX_RANK {
                return Err(de::Error::custom(format_args!("more than {MAX_RANK} dimensions")));
            }
            shape.push(dimension);
        }
        Ok(shape)
    }
}
