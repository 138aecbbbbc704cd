//! The whole way from a checkpoint to a read cache, interruptions and damage included.

mod headers;
mod sources;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use arch::{EntryKind, Manifest, Part, Profile, Recipe, Role};
use base::hash::Digest;
use base::{Error, ExpertId, FileFault, LayerId, Refusal, Result, WorldError};
use checkpoint::Checkpoint;
use half::bf16;
use ops::linear::layout::{Expert, Matrix};

use crate::build::build_on;
use crate::disk::{Disk, Files};
use crate::header::{Content, Header};
use crate::reader::parse_header;
use crate::source::Reader;
use crate::{Cache, Key, Options, Progress, build, cache_path, ensure, store};

struct Fixture {
    checkpoint: Checkpoint,
    manifest: Manifest,
    recipe: Recipe,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new(name: &str, profile: Profile) -> Self {
        Fixture::of(&testdata::fixture(name), profile)
    }

    fn of(folder: &Path, profile: Profile) -> Self {
        let checkpoint = Checkpoint::open(folder).unwrap();
        let recipe = profile.recipe();
        let manifest = Manifest::new(&arch::read(&checkpoint).unwrap(), &recipe);
        Fixture { checkpoint, manifest, recipe, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self) -> Key {
        Key::of(&self.checkpoint, &self.recipe)
    }

    fn build(
        &self,
        path: &Path,
        options: &Options,
        progress: &dyn Fn(Progress),
        cancel: &AtomicBool,
    ) -> Result<()> {
        build(&self.checkpoint, &self.manifest, &self.recipe, path, options, progress, cancel)
    }

    fn build_quietly(&self, path: &Path, threads: usize) -> Result<()> {
        self.build(path, &Options::with_threads(threads), &|_| (), &AtomicBool::new(false))
    }

    fn build_failing(&self, path: &Path, operations: i64) -> Result<()> {
        let options = Options { threads: 2, batch_bytes: 1, ..Options::default() };
        let cancel = AtomicBool::new(false);
        let disk = |files| Failing { files, left: AtomicI64::new(operations) };
        let reader = Reader::new(&self.checkpoint, &self.manifest)?;
        let key = Key::of(&self.checkpoint, &self.recipe);
        build_on(&reader, key, &self.manifest, path, &options, &|_| (), &cancel, disk)
    }
}

/// A disk that does so many operations and then, like a machine that lost power, none.
struct Failing {
    files: Files,
    left: AtomicI64,
}

impl Failing {
    fn step(&self) -> Result<(), WorldError> {
        match self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            true => Ok(()),
            false => Err(WorldError::io("write", Path::new("gone"), std::io::ErrorKind::StorageFull.into())),
        }
    }
}

impl Disk for Failing {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), WorldError> {
        if let Err(e) = self.step() {
            self.files.write_at(&bytes[..bytes.len() / 2], offset)?; // half of it arrived
            return Err(e);
        }
        self.files.write_at(bytes, offset)
    }
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), WorldError> {
        self.files.read_at(bytes, offset)
    }
    fn sync(&self) -> Result<(), WorldError> {
        self.step()
    }
    fn append(&self, lines: &[u8]) -> Result<(), WorldError> {
        if let Err(e) = self.step() {
            self.files.append(&lines[..lines.len() / 2])?;
            return Err(e);
        }
        self.files.append(lines)
    }
}

fn digest(path: &Path) -> Digest {
    Digest::of_file(path).unwrap()
}

/// Root of the squared error of a dequantised matrix, relative to its weights.
fn off(
    fixture: &Fixture,
    source: &arch::Source,
    m: &Matrix,
    row_of: impl Fn(usize) -> usize,
    codes: &[u8],
    scales: &[u8],
) -> f64 {
    let (mut noise, mut signal, mut row) = (0.0f64, 0.0f64, 0);
    let (mut code, mut values) = (vec![0; m.k_padded()], vec![0.0; m.k]);
    for part in &source.parts {
        for at in part.row..part.row + part.rows {
            fixture.checkpoint.read_rows(&part.tensor, at..at + 1, &mut values).unwrap();
            let n = row_of(row);
            m.unpack_row(codes, n, &mut code);
            for (i, v) in values.iter().enumerate() {
                let g = i / m.format.group();
                let scale = bf16::from_bits(m.scale_bits(scales, n, g)).to_f64();
                let zero = match m.format.has_zero() {
                    true => half::f16::from_bits(m.zero_bits(scales, n, g)).to_f64(),
                    false => 0.0,
                };
                noise += ((f64::from(code[i]) - zero) * scale - f64::from(*v)).powi(2);
                signal += f64::from(*v).powi(2);
            }
            row += 1;
        }
    }
    (noise / signal).sqrt()
}

#[test]
fn the_fixtures_come_back_within_their_formats() {
    for (name, profile, coarse, fine) in [
        ("qwen3_moe", Profile::Default, 0.11, 0.025),
        ("qwen3_next", Profile::Default, 0.11, 0.025),
        ("qwen3_moe", Profile::Reference, 2e-5, 2e-5),
        ("qwen3_next", Profile::Reference, 2e-5, 2e-5),
    ] {
        let f = Fixture::new(name, profile);
        let path = f.path("a.kw");
        let (cache, built) = ensure(
            &f.checkpoint,
            &f.manifest,
            &f.recipe,
            &path,
            &Options::default(),
            &|_| (),
            &AtomicBool::new(false),
        )
        .unwrap();
        assert!(built);
        for entry in &f.manifest.dense {
            let bytes = cache.dense(entry.role);
            assert_eq!(bytes.len(), entry.kind.bytes(), "{}", entry.role);
            if let EntryKind::Matrix(m) = &entry.kind {
                let (codes, scales) = bytes.split_at(m.code_bytes());
                let off = off(&f, &entry.source, m, |r| r, codes, scales);
                assert!(off <= fine, "{name} {}: {off}", entry.role);
            }
        }
        for layer in &f.manifest.experts {
            for e in &layer.experts {
                let block = cache.expert(e.layer, e.expert);
                assert_eq!(block.len(), layer.block.bytes());
                let (codes, scales) = layer.block.gate_up_of(block);
                let gate = off(&f, &e.gate, &layer.block.gate_up, Expert::gate_row, codes, scales);
                let up = off(&f, &e.up, &layer.block.gate_up, |r| Expert::gate_row(r) + 8, codes, scales);
                let (codes, scales) = layer.block.down_of(block);
                let down = off(&f, &e.down, &layer.block.down, |r| r, codes, scales);
                assert!(
                    gate.max(up).max(down) <= coarse,
                    "{name} {} {}: {gate} {up} {down}",
                    e.layer,
                    e.expert
                );
            }
        }
        let report = cache.verify(&|_, _| ());
        assert_eq!((report.bytes, report.damaged), (cache.bytes(), vec![]));
    }
}

#[test]
fn exact_entries_are_exact() {
    let f = Fixture::new("qwen3_next", Profile::Default);
    f.build_quietly(&f.path("a.kw"), 1).unwrap();
    let cache = Cache::open(&f.path("a.kw"), &f.key()).unwrap();
    let embedding = f.manifest.dense.iter().find(|e| e.role == Role::global(Part::Embedding)).unwrap();
    assert_eq!(cache.dense(embedding.role), f.checkpoint.bytes(&embedding.source.parts[0].tensor).unwrap());
    let floats = |role: Role| -> Vec<f32> {
        let bytes = cache.dense(role).as_chunks::<4>().0;
        bytes.iter().map(|b| f32::from_le_bytes(*b)).collect()
    };
    let source = |role: Role, n: usize| -> Vec<f32> {
        let entry = f.manifest.dense.iter().find(|e| e.role == role).unwrap();
        let (mut out, part) = (vec![0.0; n], &entry.source.parts[0]);
        let rows = f.checkpoint.tensor(&part.tensor).unwrap().rows();
        f.checkpoint.read_rows(&part.tensor, 0..rows, &mut out).unwrap();
        out
    };
    let norm = floats(Role::of(0, Part::MixerNorm));
    let expected: Vec<f32> =
        source(Role::of(0, Part::MixerNorm), norm.len()).iter().map(|w| 1.0 + w).collect();
    assert_eq!(norm, expected);
    let decay = floats(Role::of(0, Part::DeltaDecay));
    for (d, w) in decay.iter().zip(source(Role::of(0, Part::DeltaDecay), decay.len())) {
        assert!((f64::from(*d) + f64::from(w).exp()).abs() <= 1e-7 * f64::from(d.abs()));
    }
    let conv = floats(Role::of(0, Part::DeltaConv));
    assert_eq!(conv, source(Role::of(0, Part::DeltaConv), conv.len()));
}

#[test]
fn threads_and_runs_give_the_same_file() {
    for name in ["qwen3_moe", "qwen3_next"] {
        let f = Fixture::new(name, Profile::Small);
        let paths = [1, 2, 5].map(|threads| {
            let path = f.path(&format!("{threads}.kw"));
            f.build_quietly(&path, threads).unwrap();
            path
        });
        assert!(paths.iter().all(|p| digest(p) == digest(&paths[0])), "{name}");
        // Nothing but the file and its lock is left.
        assert_eq!(std::fs::read_dir(f.folder.path()).unwrap().count(), 2 * paths.len());
    }
}

#[test]
fn progress_counts_every_byte_of_the_source_once() {
    let f = Fixture::new("qwen3_moe", Profile::Default);
    let last = Cell::new((0, 0));
    let progress = |p: Progress| {
        assert!(p.bytes_done >= last.get().0 && p.bytes_done <= p.bytes_total);
        last.set((p.bytes_done, p.bytes_total));
    };
    f.build(&f.path("a.kw"), &Options::with_threads(2), &progress, &AtomicBool::new(false)).unwrap();
    let read: u64 = f
        .manifest
        .tensors()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .map(|t| f.checkpoint.tensor(t).unwrap().bytes() as u64)
        .sum();
    assert_eq!(last.get(), (read, read));
}

#[test]
fn a_build_that_stops_anywhere_goes_on_to_the_same_file() {
    let f = Fixture::new("qwen3_next", Profile::Default);
    let whole = f.path("whole.kw");
    f.build_quietly(&whole, 2).unwrap();
    let expected = digest(&whole);
    // Each attempt gets a few operations further than the one before, and starts from what that one left.
    let (path, mut attempts, mut resumed_bytes) = (f.path("b.kw"), 0, 0);
    for operations in (1..).step_by(13) {
        attempts += 1;
        match f.build_failing(&path, operations) {
            Ok(()) => break,
            Err(Error::World(WorldError::Io { .. })) => assert!(!path.exists(), "after {operations}"),
            Err(other) => panic!("{other}"),
        }
        let (claims, _) = crate::journal::read(&store::journal(&path), &title(&f)).unwrap();
        resumed_bytes = resumed_bytes.max(claims.len());
    }
    assert!(attempts > 5 && resumed_bytes > 5, "{attempts} attempts, at most {resumed_bytes} records");
    assert_eq!(digest(&path), expected);
}

fn title(f: &Fixture) -> String {
    let contents = crate::layout::contents(&f.manifest);
    let header = Header::place(f.key(), crate::layout::manifest_digest(&f.manifest), contents);
    crate::journal::title(&header)
}

#[test]
fn a_cancelled_build_goes_on_at_every_step() {
    let f = Fixture::new("qwen3_moe", Profile::Default);
    let whole = f.path("whole.kw");
    f.build_quietly(&whole, 2).unwrap();
    let options = Options { threads: 1, batch_bytes: 1, ..Options::default() };
    let path = f.path("b.kw");
    let mut calls = 0;
    for step in (0..).step_by(7) {
        let (cancel, seen) = (AtomicBool::new(step == 0), Cell::new(0));
        let progress = |_: Progress| {
            seen.set(seen.get() + 1);
            if seen.get() == step {
                cancel.store(true, Ordering::Relaxed);
            }
        };
        match f.build(&path, &options, &progress, &cancel) {
            Err(Error::Refused(Refusal::Cancelled)) => assert!(!path.exists()),
            Ok(()) => break,
            Err(other) => panic!("{other}"),
        }
        calls = step;
    }
    assert!(calls > 20, "cancelled up to step {calls}");
    assert_eq!(digest(&path), digest(&whole));
}

#[test]
fn what_a_journal_claims_is_checked_before_it_is_trusted() {
    let f = Fixture::new("qwen3_moe", Profile::Default);
    let whole = f.path("whole.kw");
    f.build_quietly(&whole, 2).unwrap();
    for damage in ["experts", "dense", "journal of another build", "no partial file"] {
        let path = f.path("b.kw");
        f.build_failing(&path, 150).unwrap_err();
        let partial = store::partial(&path);
        let (claims, _) = crate::journal::read(&store::journal(&path), &title(&f)).unwrap();
        assert!(claims.iter().any(|c| c.expert.is_some()), "the journal reaches the experts");
        let mut bytes = std::fs::read(&partial).unwrap();
        let header = parse_header(&std::fs::read(&whole).unwrap(), bytes.len() as u64, &whole).unwrap();
        match damage {
            "experts" => bytes[header.sections[f.manifest.dense.len()].offset as usize + 5] ^= 1,
            "dense" => bytes[header.sections[0].offset as usize + 5] ^= 1,
            "no partial file" => bytes.clear(),
            _ => {
                let lines = std::fs::read_to_string(store::journal(&path)).unwrap();
                let foreign = crate::journal::line("build 1 of another") + lines.split_once('\n').unwrap().1;
                std::fs::write(store::journal(&path), foreign).unwrap();
                bytes.fill(0xAA); // what is not claimed must not survive either
            }
        }
        std::fs::write(&partial, bytes).unwrap();
        f.build_quietly(&path, 2).unwrap();
        assert_eq!(digest(&path), digest(&whole), "{damage}");
        store::remove(&path).unwrap();
    }
}

#[test]
fn a_finished_cache_is_opened_and_a_wrong_one_replaced() {
    let f = Fixture::new("qwen3_moe", Profile::Default);
    let path = f.path("a.kw");
    let ensure = |f: &Fixture| {
        let cancel = AtomicBool::new(false);
        ensure(&f.checkpoint, &f.manifest, &f.recipe, &path, &Options::default(), &|_| (), &cancel).unwrap()
    };
    assert!(ensure(&f).1);
    assert!(!ensure(&f).1, "it is there");
    let good = std::fs::read(&path).unwrap();
    let other = Fixture::new("qwen3_moe", Profile::Reference);
    assert!(ensure(&other).1, "another recipe");
    assert!(ensure(&f).1);
    for damaged in [&good[..good.len() - 1], &good[..100], b"something else", b""] {
        std::fs::write(&path, damaged).unwrap();
        assert!(ensure(&f).1, "{} bytes", damaged.len());
        assert_eq!(std::fs::read(&path).unwrap(), good);
    }
}

#[test]
fn stale_says_what_differs() {
    let f = Fixture::new("qwen3_moe", Profile::Default);
    let path = f.path("a.kw");
    f.build_quietly(&path, 2).unwrap();
    let mut keys = [f.key(), f.key(), f.key()];
    keys[0].source = Digest::of(b"other");
    keys[1].recipe = "experts=i8".into();
    keys[2].arithmetic += 1;
    for (key, word) in keys.iter().zip(["source checkpoint", "recipe experts=i8", "arithmetic version 2"]) {
        let error = Cache::open(&path, key).unwrap_err();
        assert_eq!(error.fault(), Some(FileFault::Stale));
        assert!(error.to_string().contains(word), "{error}");
        assert_ne!(cache_path(f.folder.path(), "m", key), cache_path(f.folder.path(), "m", &f.key()));
    }
    let other = Fixture::new("qwen3_next", Profile::Default);
    let cache = Cache::open(&path, &f.key()).unwrap();
    cache.fits(&f.manifest).unwrap();
    assert_eq!(cache.fits(&other.manifest).unwrap_err().fault(), Some(FileFault::Stale));
    let mut swapped = f.manifest.clone();
    let parts = &mut swapped.experts[0].experts[0];
    std::mem::swap(&mut parts.gate, &mut parts.up);
    assert_eq!(cache.fits(&swapped).unwrap_err().fault(), Some(FileFault::Stale), "other rows");
}

#[test]
fn a_damaged_byte_is_found_in_every_section_and_expert() {
    let f = Fixture::new("qwen3_next", Profile::Default);
    let path = f.path("a.kw");
    f.build_quietly(&path, 2).unwrap();
    let good = std::fs::read(&path).unwrap();
    let header = parse_header(&good, good.len() as u64, &path).unwrap();
    for section in &header.sections {
        let block = section.content.block_bytes();
        let (at, name) = match section.content {
            Content::Experts { .. } => {
                let at = section.offset + 3 * block.unwrap() + 17;
                (at, format!("{}.3", section.name))
            }
            _ => (section.offset + section.bytes - 1, section.name.clone()),
        };
        let mut bad = good.clone();
        bad[at as usize] ^= 0x10;
        std::fs::write(f.path("bad.kw"), bad).unwrap();
        let report = Cache::open(&f.path("bad.kw"), &f.key()).unwrap().verify(&|_, _| ());
        assert!(report.damaged.contains(&name), "{name}: {:?}", report.damaged);
    }
    // Between sections, too; and the header has its own checksum.
    let gap =
        header.sections.iter().map(|s| s.offset + s.bytes).find(|end| !end.is_multiple_of(4096)).unwrap();
    let mut bad = good.clone();
    bad[gap as usize] = 1;
    std::fs::write(f.path("bad.kw"), bad).unwrap();
    assert_eq!(Cache::open(&f.path("bad.kw"), &f.key()).unwrap().verify(&|_, _| ()).damaged.len(), 1);
    for at in [0, 9, 13, 17, 25, 70, 500] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(parse_header(&bad, bad.len() as u64, &path).is_err(), "byte {at}");
    }
}

#[test]
fn caches_are_listed_and_removed() {
    let f = Fixture::new("qwen3_moe", Profile::Default);
    let home = f.folder.path();
    assert_eq!(store::list(home).unwrap().len(), 0);
    let path = cache_path(home, "org/a model", &f.key());
    assert!(path.file_name().unwrap().to_str().unwrap().starts_with("org_a_model-"), "{path:?}");
    f.build_quietly(&path, 2).unwrap();
    let half = cache_path(home, "half", &f.key());
    f.build_failing(&half, 20).unwrap_err();
    std::fs::write(home.join("cache/bad.kw"), b"no cache").unwrap();
    let listed = store::list(home).unwrap();
    let found: Vec<_> = listed.iter().map(|l| (l.path.clone(), &l.state)).collect();
    assert_eq!(found.len(), 3);
    assert!(found[0].1.as_ref().is_err_and(|e| e.fault() == Some(FileFault::Truncated)));
    assert!(matches!(found[1].1, Ok(None)) && found[1].0 == half);
    let description = found[2].1.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(description.bytes, std::fs::metadata(&path).unwrap().len());
    assert!(description.dense_bytes + description.expert_bytes < description.bytes);
    let lock = store::lock(&path, &|| (), &AtomicBool::new(false)).unwrap();
    assert!(store::remove(&path).unwrap_err().to_string().contains("being built"));
    drop(lock);
    assert!(store::remove(&path).unwrap() >= description.bytes);
    store::remove(&half).unwrap();
    assert_eq!(store::list(home).unwrap().len(), 1);
}

#[test]
fn the_second_builder_waits_for_the_first() {
    let f = Fixture::new("qwen3_moe", Profile::Default);
    let path = f.path("a.kw");
    let lock = store::lock(&path, &|| (), &AtomicBool::new(false)).unwrap();
    let cancel = AtomicBool::new(false);
    let waited = Cell::new(0);
    let progress = |p: Progress| {
        assert_eq!(p.section, "waiting for another build");
        waited.set(waited.get() + 1);
        cancel.store(waited.get() == 3, Ordering::Relaxed);
    };
    let error = f.build(&path, &Options::with_threads(1), &progress, &cancel).unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::Cancelled)));
    let built = std::thread::scope(|scope| {
        let second = scope.spawn(|| f.build_quietly(&path, 1));
        std::thread::sleep(std::time::Duration::from_millis(150));
        assert!(!path.exists());
        drop(lock);
        second.join().unwrap()
    });
    built.unwrap();
    assert!(Cache::open(&path, &f.key()).is_ok());
}

#[test]
fn experts_are_contiguous_and_aligned() {
    let f = Fixture::new("qwen3_moe", Profile::Default);
    f.build_quietly(&f.path("a.kw"), 2).unwrap();
    let cache = Cache::open(&f.path("a.kw"), &f.key()).unwrap();
    let layer = &f.manifest.experts[0];
    let all = cache.experts(layer.layer);
    for (i, block) in all.chunks_exact(layer.block.bytes()).enumerate() {
        let expert = cache.expert(LayerId(0), ExpertId(i as u32));
        assert_eq!((expert.as_ptr(), expert.len()), (block.as_ptr(), block.len()));
        assert!((expert.as_ptr() as usize).is_multiple_of(4096));
    }
}

/// A folder like the fixture's, but synthetic: its configuration marked, its tensors gone.
#[test]
fn a_synthetic_model_is_opened_by_its_key_and_never_built_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(testdata::fixture("qwen3_moe").join("config.json")).unwrap();
    let config = config.replacen('{', "{\"krasis_synth\": {\"version\": 1, \"seed\": 0},", 1);
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let fixture = Fixture::of(folder.path(), Profile::Default);
    let table = fixture.manifest.dense.iter().find(|e| e.role == Role::of(0, Part::RouterTable)).unwrap();
    assert!(matches!(table.kind, EntryKind::Table { .. }));
    let path = fixture.path("a.kw");
    let ensured = || {
        let (options, cancel) = (Options::with_threads(1), AtomicBool::new(false));
        let Fixture { checkpoint, manifest, recipe, .. } = &fixture;
        ensure(checkpoint, manifest, recipe, &path, &options, &|_| (), &cancel)
    };
    let error = ensured().unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::Unsupported { .. })), "{error}");
    assert!(error.to_string().contains("krasis synth"), "{error}");
    assert!(!path.exists());

    struct Sevens;
    impl crate::Origin for Sevens {
        type Room = ();
        fn dense(&self, entry: &arch::Entry, rows: std::ops::Range<usize>) -> Result<Vec<crate::Piece>> {
            let whole = rows.start == 0;
            let bytes = if whole { vec![7; entry.kind.bytes()] } else { Vec::new() };
            Ok(vec![crate::Piece { offset: 0, bytes }])
        }
        fn room(&self, _: &arch::manifest::ExpertLayer) {}
        fn expert(
            &self,
            _: &arch::manifest::ExpertLayer,
            e: &arch::ExpertEntry,
            (): &mut (),
            block: &mut [u8],
        ) -> Result<()> {
            block.fill(e.expert.0 as u8);
            Ok(())
        }
        fn dense_bytes(&self, _: &arch::Entry, rows: std::ops::Range<usize>) -> u64 {
            rows.len() as u64
        }
        fn expert_bytes(&self, _: &arch::manifest::ExpertLayer, _: &arch::ExpertEntry) -> u64 {
            1
        }
    }
    let (options, cancel) = (Options::in_one_go(2), AtomicBool::new(false));
    let key = fixture.key();
    crate::build_from(&Sevens, key, &fixture.manifest, &path, &options, &|_| (), &cancel).unwrap();
    let (cache, built) = ensured().unwrap();
    assert!(!built && cache.verify(&|_, _| ()).damaged.is_empty());
    assert_eq!(cache.dense(table.role), vec![7; table.kind.bytes()]);
    assert!(cache.expert(LayerId(0), ExpertId(2)).iter().all(|b| *b == 2));
}
