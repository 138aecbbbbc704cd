//! Reading a cache: header check, mapping, sections by role and experts by id, content checks.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use arch::{Manifest, Role};
use arrayvec::ArrayString;
use base::hash::Digest;
use base::mmap::Mapping;
use base::{ExpertId, FileFault, LayerId, Result, WorldError};
use rayon::prelude::*;

use crate::header::{
    CHECKSUMS, Content, DIGEST_BYTES, FORMAT_VERSION, Header, Key, MAGIC, MAX_SECTIONS, MAX_TABLE_BYTES,
    MAX_TEXT_BYTES, PAGE, PRELUDE_BYTES, Section, Table, TableSection, digest_from_hex,
};
use crate::layout;

/// Checks the header of a cache of `file_bytes` bytes that begins with `bytes`. Reads nothing else: `bytes`
/// may be the whole file or its beginning. Errors: a [`FileFault`] for each way in which it can be wrong.
pub fn parse_header(bytes: &[u8], file_bytes: u64, path: &Path) -> Result<Header, WorldError> {
    let fail = |fault, expected: &str, found: String| Err(WorldError::damaged(path, fault, expected, found));
    if bytes.len() < PRELUDE_BYTES {
        return fail(FileFault::Truncated, "a header of 64 bytes", format!("{} bytes", bytes.len()));
    }
    if bytes[..8] != MAGIC {
        return fail(FileFault::BadHeader, "a weight cache", "another kind of file".into());
    }
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if u32_at(8) != FORMAT_VERSION {
        let expected = format!("format version {FORMAT_VERSION}");
        return fail(FileFault::Stale, &expected, format!("format version {}", u32_at(8)));
    }
    let (arithmetic, table_bytes, data_bytes) = (u32_at(12), u64_at(16), u64_at(24));
    if table_bytes > MAX_TABLE_BYTES {
        let expected = format!("at most {MAX_TABLE_BYTES} bytes of section table");
        return fail(FileFault::HeaderTooLarge, &expected, table_bytes.to_string());
    }
    let signed = PRELUDE_BYTES + table_bytes as usize;
    let Some(checksum) = bytes.get(signed..signed + DIGEST_BYTES) else {
        let expected = format!("a header of {} bytes", signed + DIGEST_BYTES);
        return fail(FileFault::Truncated, &expected, format!("{} bytes", bytes.len()));
    };
    if Digest::of(&bytes[..signed]).0 != *checksum {
        return fail(FileFault::Checksum, "a header that matches its checksum", "another".into());
    }
    let table: Table = match serde_json::from_slice(&bytes[PRELUDE_BYTES..signed]) {
        Ok(table) => table,
        Err(e) => return fail(FileFault::BadHeader, "a section table in JSON", e.to_string()),
    };
    let data_start = ((signed + DIGEST_BYTES) as u64).next_multiple_of(PAGE);
    let header = check_table(table, arithmetic, data_start, data_bytes, path)?;
    let expected = format!("{} bytes", header.file_bytes);
    match file_bytes.cmp(&header.file_bytes) {
        std::cmp::Ordering::Equal => Ok(header),
        std::cmp::Ordering::Less => fail(FileFault::Truncated, &expected, format!("{file_bytes} bytes")),
        std::cmp::Ordering::Greater => {
            fail(FileFault::TrailingBytes, &expected, format!("{file_bytes} bytes"))
        }
    }
}

fn check_table(
    table: Table,
    arithmetic: u32,
    data_start: u64,
    data_bytes: u64,
    path: &Path,
) -> Result<Header, WorldError> {
    let fail = |fault, expected: &str, found: String| WorldError::damaged(path, fault, expected, found);
    let hex = |text: &str| {
        let bad = || fail(FileFault::BadHeader, "digests of 64 hex digits", cut(text));
        digest_from_hex(text).ok_or_else(bad)
    };
    if table.sections.len() > MAX_SECTIONS || table.recipe.len() > MAX_TEXT_BYTES {
        let expected = format!("at most {MAX_SECTIONS} sections and {MAX_TEXT_BYTES} bytes of recipe");
        let found = format!("{} and {}", table.sections.len(), table.recipe.len());
        return Err(fail(FileFault::BadHeader, &expected, found));
    }
    let mut sections = Vec::with_capacity(table.sections.len());
    let mut end = 0; // of the sections so far, from data_start
    let mut names = std::collections::BTreeSet::new();
    for section in &table.sections {
        let digest = hex(&section.digest)?;
        end = check_section(section, end, data_bytes, path)?;
        if !names.insert(section.name.as_str()) {
            let found = "it twice".to_string();
            let error = fail(FileFault::DuplicateName, "each section once", found);
            return Err(error.tensor(cut(&section.name)));
        }
        sections.push(Section {
            name: section.name.clone(),
            content: section.content.clone(),
            offset: data_start + section.offset,
            bytes: section.bytes,
            digest,
        });
    }
    if end != data_bytes {
        return Err(fail(FileFault::Hole, &format!("{data_bytes} bytes of sections"), end.to_string()));
    }
    check_experts(&sections, path)?;
    let (source, manifest) = (hex(&table.source)?, hex(&table.manifest)?);
    let key = Key { source, recipe: table.recipe, arithmetic };
    let file_bytes = data_start.checked_add(data_bytes);
    let file_bytes = file_bytes
        .ok_or_else(|| fail(FileFault::OffsetOutOfRange, "a size of 64 bits", data_bytes.to_string()))?;
    Ok(Header { key, manifest, sections, data_start, file_bytes })
}

/// One section behind those that end at `end`; gives the end with it, rounded up to a page.
fn check_section(section: &TableSection, end: u64, data_bytes: u64, path: &Path) -> Result<u64, WorldError> {
    let fail = |fault, expected: String, found: String| {
        Err(WorldError::damaged(path, fault, expected, found).tensor(cut(&section.name)))
    };
    let TableSection { name, content, offset, bytes, .. } = section;
    if name.len() > MAX_TEXT_BYTES {
        let found = format!("{} bytes", name.len());
        return fail(FileFault::BadHeader, format!("a name of at most {MAX_TEXT_BYTES} bytes"), found);
    }
    let Some(expected) = content.bytes() else {
        let expected = "a known format and sizes within bounds".to_string();
        return fail(FileFault::BadHeader, expected, cut(&format!("{content:?}")));
    };
    if expected != *bytes {
        let found = format!("{bytes} bytes");
        return fail(FileFault::LengthMismatch, format!("{expected} bytes for {content:?}"), found);
    }
    let last = offset.checked_add(*bytes).filter(|last| *last <= data_bytes);
    let (Some(last), true) = (last, offset.is_multiple_of(PAGE)) else {
        let found = format!("bytes {offset} and {bytes} more");
        return fail(FileFault::OffsetOutOfRange, format!("whole pages inside {data_bytes} bytes"), found);
    };
    if *offset != end {
        let fault = if *offset < end { FileFault::Overlap } else { FileFault::Hole };
        return fail(fault, format!("it at {end}"), format!("it at {offset}"));
    }
    // The file ends with a whole page.
    match last.checked_next_multiple_of(PAGE).filter(|e| *e <= data_bytes) {
        Some(end) => Ok(end),
        None => {
            fail(FileFault::OffsetOutOfRange, format!("a page inside {data_bytes} bytes"), last.to_string())
        }
    }
}

/// Layers of experts ascend, and there is one checksum for each expert.
fn check_experts(sections: &[Section], path: &Path) -> Result<(), WorldError> {
    let fail = |s: &Section, expected: String, found: String| {
        Err(WorldError::damaged(path, FileFault::BadHeader, expected, found).tensor(cut(&s.name)))
    };
    let (mut last, mut count, mut checksums) = (None, 0usize, None);
    for s in sections {
        match &s.content {
            Content::Experts { layer, experts, .. } => {
                if last.is_some_and(|last| last >= *layer) {
                    return fail(s, "ascending layers".into(), format!("layer {layer}"));
                }
                (last, count) = (Some(*layer), count + experts);
            }
            Content::Checksums { experts } if s.name == CHECKSUMS => checksums = Some((s, *experts)),
            Content::Checksums { .. } => return fail(s, format!("the name {CHECKSUMS}"), cut(&s.name)),
            _ => (),
        }
    }
    match checksums {
        Some((s, n)) if n != count => fail(s, format!("checksums of {count} experts"), n.to_string()),
        None if count > 0 => {
            let fault = FileFault::MissingTensor;
            Err(WorldError::damaged(path, fault, "the section", "no such section").tensor(CHECKSUMS))
        }
        _ => Ok(()),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}

/// An open cache: a mapped file whose header was checked. Its content is trusted as the file system is;
/// [`Cache::verify`] reads all of it.
#[derive(Debug)]
pub struct Cache {
    map: Mapping,
    header: Header,
    /// Index of a dense section by name.
    dense: BTreeMap<String, usize>,
    /// Index of a layer's experts, and of its first checksum.
    experts: BTreeMap<LayerId, (usize, usize)>,
}

/// What [`Cache::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Bytes read.
    pub bytes: u64,
    /// Sections and experts whose content is not what was written, by name.
    pub damaged: Vec<String>,
}

/// What a cache is, in figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Bytes of the file.
    pub bytes: u64,
    /// What it was made of.
    pub key: Key,
    /// Bytes of dense sections.
    pub dense_bytes: u64,
    /// Bytes of experts.
    pub expert_bytes: u64,
    /// Layers with experts.
    pub expert_layers: usize,
    /// Experts of all layers together.
    pub experts: usize,
}

impl Cache {
    /// Opens a cache of exactly `expected`. Errors: no such file, a [`FileFault`] of its header, or
    /// [`FileFault::Stale`] naming what differs. Before [`Cache::dense`] is asked for roles of a manifest,
    /// [`Cache::fits`] must have said yes.
    pub fn open(path: &Path, expected: &Key) -> Result<Cache> {
        let cache = Cache::open_any(path)?;
        cache.header.belongs_to(expected, path)?;
        Ok(cache)
    }

    /// Opens a cache of whatever it was made of, to list or verify it.
    pub fn open_any(path: &Path) -> Result<Cache> {
        let map = Mapping::open(path)?;
        let header = parse_header(map.bytes(), map.bytes().len() as u64, path)?;
        let (mut dense, mut experts, mut first) = (BTreeMap::new(), BTreeMap::new(), 0);
        for (i, section) in header.sections.iter().enumerate() {
            match &section.content {
                Content::Experts { layer, experts: count, .. } => {
                    experts.insert(LayerId(*layer), (i, first));
                    first += count;
                }
                Content::Checksums { .. } => (),
                _ => drop(dense.insert(section.name.clone(), i)),
            }
        }
        Ok(Cache { map, header, dense, experts })
    }

    /// The cache holds exactly what `manifest` lists, from where it says. Error: [`FileFault::Stale`].
    pub fn fits(&self, manifest: &Manifest) -> Result<(), WorldError> {
        let (expected, found) = (layout::manifest_digest(manifest), self.header.manifest);
        let same = layout::contents(manifest).into_iter().eq(self
            .header
            .sections
            .iter()
            .map(|s| (s.name.clone(), s.content.clone())));
        if expected == found && same {
            return Ok(());
        }
        let (expected, found) = (format!("manifest {expected}"), format!("manifest {found}"));
        Err(WorldError::damaged(self.path(), FileFault::Stale, expected, found))
    }

    /// Content of a dense role, page-aligned in the file. Panics if the manifest has no such role.
    pub fn dense(&self, role: Role) -> &[u8] {
        // On the stack: a decode step, which asks for every role, allocates nothing.
        let mut name = ArrayString::<64>::new();
        write!(name, "{role}").expect("names of roles are short");
        let at =
            self.dense.get(name.as_str()).unwrap_or_else(|| panic!("no {name} in {}", self.path().display()));
        self.section_bytes(&self.header.sections[*at])
    }

    /// Where in the file the block of an expert is, page-aligned. Panics if there is no such expert.
    pub fn expert_range(&self, layer: LayerId, expert: ExpertId) -> Range<u64> {
        let section = self.expert_section(layer);
        let size = section.content.block_bytes().expect("checked with the header");
        let start = u64::from(expert.0) * size;
        assert!(start < section.bytes, "no expert {expert} in layer {layer} of {}", self.path().display());
        section.offset + start..section.offset + start + size
    }

    /// The block of an expert. Panics if there is no such expert.
    pub fn expert(&self, layer: LayerId, expert: ExpertId) -> &[u8] {
        let range = self.expert_range(layer, expert);
        &self.map.bytes()[range.start as usize..range.end as usize]
    }

    fn expert_section(&self, layer: LayerId) -> &Section {
        let at = self.experts.get(&layer);
        let (section, _) =
            at.unwrap_or_else(|| panic!("layer {layer} of {} has no experts", self.path().display()));
        &self.header.sections[*section]
    }

    /// The blocks of all experts of a layer, contiguous. Panics if the layer has none.
    pub fn experts(&self, layer: LayerId) -> &[u8] {
        self.section_bytes(self.expert_section(layer))
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.header.file_bytes
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.map.path()
    }

    /// The checked header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The mapping itself, for who registers or protects it.
    pub fn mapping(&self) -> &Mapping {
        &self.map
    }

    /// What the cache is, in figures.
    pub fn describe(&self) -> Description {
        let (mut dense_bytes, mut expert_bytes, mut experts) = (0, 0, 0);
        for section in &self.header.sections {
            match &section.content {
                Content::Experts { experts: n, .. } => {
                    (expert_bytes, experts) = (expert_bytes + section.bytes, experts + n);
                }
                Content::Checksums { .. } => (),
                _ => dense_bytes += section.bytes,
            }
        }
        let (bytes, key) = (self.bytes(), self.header.key.clone());
        let expert_layers = self.experts.len();
        Description { bytes, key, dense_bytes, expert_bytes, expert_layers, experts }
    }

    /// Reads every byte and compares it with the checksums. `progress` gets bytes done and bytes in all.
    pub fn verify(&self, progress: &dyn Fn(u64, u64)) -> Report {
        let total = self.bytes();
        let mut report = Report { bytes: self.header.data_start, damaged: Vec::new() };
        progress(report.bytes, total);
        let mut end = self.header.data_start;
        for (i, section) in self.header.sections.iter().enumerate() {
            let before = report.bytes;
            match section.content {
                Content::Experts { .. } => self.verify_experts(i, &mut report, progress),
                _ => {
                    if Digest::of(self.section_bytes(section)) != section.digest {
                        report.damaged.push(section.name.clone());
                    }
                }
            }
            end = (section.offset + section.bytes).next_multiple_of(PAGE);
            let padding = &self.map.bytes()[(section.offset + section.bytes) as usize..end as usize];
            if padding.iter().any(|b| *b != 0) {
                report.damaged.push(format!("padding after {}", section.name));
            }
            self.map.release(section.offset as usize..end as usize);
            report.bytes = before + (end - section.offset);
            progress(report.bytes, total);
        }
        debug_assert_eq!(end, total);
        report
    }

    fn verify_experts(&self, at: usize, report: &mut Report, progress: &dyn Fn(u64, u64)) {
        let section = &self.header.sections[at];
        let Content::Experts { layer, .. } = section.content else { return };
        let size = section.content.block_bytes().expect("checked with the header") as usize;
        let (_, first) = self.experts[&LayerId(layer)];
        let sums = self.checksums();
        let blocks = self.section_bytes(section).chunks_exact(size);
        let sums = &sums[first * DIGEST_BYTES..][..blocks.len() * DIGEST_BYTES];
        if Digest::of(sums) != section.digest {
            report.damaged.push(format!("checksums of {}", section.name));
        }
        let all: Vec<(usize, &[u8])> = blocks.enumerate().collect();
        let before = report.bytes;
        for batch in all.chunks(64) {
            let bad = |(i, block): &(usize, &[u8])| {
                let same = Digest::of(block).0 == sums[i * DIGEST_BYTES..][..DIGEST_BYTES];
                (!same).then(|| format!("{}.{i}", section.name))
            };
            let bad: Vec<String> = batch.par_iter().filter_map(bad).collect();
            report.damaged.extend(bad);
            let done = (batch.last().map_or(0, |b| b.0 + 1) * size) as u64;
            self.map.release(section.offset as usize..(section.offset + done) as usize);
            progress(before + done, self.bytes());
        }
    }

    fn checksums(&self) -> &[u8] {
        let section = self.header.sections.iter().find(|s| s.name == CHECKSUMS);
        section.map_or(&[], |s| self.section_bytes(s))
    }

    fn section_bytes(&self, section: &Section) -> &[u8] {
        &self.map.bytes()[section.offset as usize..][..section.bytes as usize]
    }
}
