//! The parallel part of a build: units in file order, taken by workers one after the other; the calling
//! thread journals what they finish.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use arch::manifest::ExpertLayer;
use arch::{Entry, Manifest};
use base::hash::Digest;
use base::{Error, Refusal, Result, WorldError};
use rayon::prelude::*;

use crate::build::{Done, Options, Progress};
use crate::disk::Disk;
use crate::header::{Content, Header};
use crate::journal::Record;
use crate::origin::Origin;
use crate::pack;

/// What one worker does at a time.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// A piece of a dense section.
    Piece { section: usize, piece: usize },
    /// An expert.
    Expert { section: usize, layer: usize, expert: usize },
}

/// A finished unit, as told to the calling thread.
struct Finished {
    section: usize,
    source_bytes: u64,
    written: u64,
    /// What to journal: a whole section or an expert that was not journaled before.
    record: Option<(Record, bool)>,
}

/// All that is left to do, and with what.
pub(crate) struct Work<'a, O> {
    origin: &'a O,
    manifest: &'a Manifest,
    header: &'a Header,
    disk: &'a dyn Disk,
    options: &'a Options,
    pool: rayon::ThreadPool,
    units: Vec<Unit>,
    next: AtomicUsize,
    stop: AtomicBool,
    /// Pieces of each dense section that are not finished.
    pieces_left: Vec<AtomicUsize>,
    /// Experts that the journal claims.
    claims: BTreeMap<(usize, usize), Digest>,
    /// Source bytes of sections found finished, and of everything.
    bytes_found: u64,
    bytes_total: u64,
}

impl<'a, O: Origin> Work<'a, O> {
    /// Lists what is left. Dense sections that the journal claims are compared with their checksums here,
    /// experts when their turn comes. Errors: no threads to be had, the partial file can't be read.
    pub fn new(
        origin: &'a O,
        manifest: &'a Manifest,
        header: &'a Header,
        disk: &'a dyn Disk,
        claims: Vec<Record>,
        options: &'a Options,
        done: &mut Done,
    ) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
        let pool = pool.map_err(|e| WorldError::Memory {
            what: format!("starting {} threads ({e})", options.threads),
            needed: "more".into(),
            available: "unknown".into(),
        })?;
        let dense_claims = claims.iter().filter(|r| r.expert.is_none() && r.section < manifest.dense.len());
        let dense_claims: Vec<Record> = dense_claims.copied().collect();
        let sound =
            |record: &Record| Ok((*record, dense_digest(disk, header, record.section)? == record.digest));
        let checked: Vec<(Record, bool)> =
            pool.install(|| dense_claims.par_iter().map(sound).collect::<Result<_, WorldError>>())?;
        checked.iter().filter(|c| c.1).for_each(|c| done.note(&c.0));
        let claims = claims.iter().filter_map(|r| Some(((r.section, r.expert?), r.digest))).collect();
        let mut work = Work {
            origin,
            manifest,
            header,
            disk,
            options,
            pool,
            units: Vec::new(),
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            pieces_left: Vec::new(),
            claims,
            bytes_found: 0,
            bytes_total: 0,
        };
        work.list(done);
        Ok(work)
    }

    fn list(&mut self, done: &Done) {
        for (section, entry) in self.manifest.dense.iter().enumerate() {
            let pieces = pack::pieces(&entry.kind);
            let found = done.sections[section].is_some();
            self.pieces_left.push(AtomicUsize::new(if found { 0 } else { pieces }));
            for piece in 0..pieces {
                let bytes = self.piece_bytes(entry, piece);
                self.bytes_total += bytes;
                match found {
                    true => self.bytes_found += bytes,
                    false => self.units.push(Unit::Piece { section, piece }),
                }
            }
        }
        for (index, layer) in self.manifest.experts.iter().enumerate() {
            let section = self.manifest.dense.len() + index;
            for expert in 0..layer.experts.len() {
                self.bytes_total += self.expert_bytes(layer, expert);
                self.units.push(Unit::Expert { section, layer: index, expert });
            }
        }
    }

    fn piece_bytes(&self, entry: &Entry, piece: usize) -> u64 {
        self.origin.dense_bytes(entry, pack::rows_of(&entry.kind, piece))
    }

    fn expert_bytes(&self, layer: &ExpertLayer, expert: usize) -> u64 {
        self.origin.expert_bytes(layer, &layer.experts[expert])
    }

    /// Does it all. Whatever ends it early, what is finished is journaled if the disk allows.
    pub fn run(&self, done: &mut Done, progress: &dyn Fn(Progress), cancel: &AtomicBool) -> Result<()> {
        // Short, so that workers wait for the disk instead of filling memory with unwritten pages.
        let (sender, receiver) = sync_channel(2 * self.options.threads);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                let sender = sender; // dropped with the last worker, which ends the loop below
                self.pool.broadcast(|_| self.worker(&sender, cancel));
            });
            let result = self.collect(receiver, done, progress);
            self.stop.store(true, Ordering::Relaxed);
            result
        });
        result?;
        if cancel.load(Ordering::Relaxed) && self.next.load(Ordering::Relaxed) < self.units.len() {
            return Err(Refusal::Cancelled.into());
        }
        Ok(())
    }

    /// Journals what the workers finish, in batches, each after its data is on disk.
    fn collect(
        &self,
        receiver: Receiver<Result<Finished>>,
        done: &mut Done,
        progress: &dyn Fn(Progress),
    ) -> Result<()> {
        let (mut lines, mut unsynced, mut bytes_done) = (String::new(), 0, self.bytes_found);
        let mut flushed = Instant::now();
        let mut failed: Option<Error> = None;
        for finished in receiver {
            match finished {
                Ok(f) => {
                    bytes_done += f.source_bytes;
                    unsynced += f.written;
                    if let Some((record, is_new)) = f.record {
                        done.note(&record);
                        if is_new {
                            lines += &record.line();
                        }
                    }
                    let section = &self.header.sections[f.section].name;
                    progress(Progress { bytes_done, bytes_total: self.bytes_total, section });
                }
                Err(e) => failed = failed.or(Some(e)),
            }
            if unsynced >= self.options.batch_bytes || flushed.elapsed() >= self.options.batch_time {
                self.flush(&mut lines)?;
                (unsynced, flushed) = (0, Instant::now());
            }
        }
        let last = self.flush(&mut lines);
        match failed {
            Some(e) => Err(e),
            None => last,
        }
    }

    fn flush(&self, lines: &mut String) -> Result<()> {
        if !lines.is_empty() {
            self.disk.sync()?;
            self.disk.append(lines.as_bytes())?;
            lines.clear();
        }
        Ok(())
    }

    fn worker(&self, sender: &SyncSender<Result<Finished>>, cancel: &AtomicBool) {
        let mut room = None;
        while !self.stop.load(Ordering::Relaxed) && !cancel.load(Ordering::Relaxed) {
            let Some(unit) = self.units.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
            let finished = match *unit {
                Unit::Piece { section, piece } => self.piece(section, piece),
                Unit::Expert { section, layer, expert } => self.expert(section, layer, expert, &mut room),
            };
            if finished.is_err() {
                self.stop.store(true, Ordering::Relaxed);
            }
            if sender.send(finished).is_err() {
                return; // the calling thread gave up
            }
        }
    }

    fn piece(&self, section: usize, piece: usize) -> Result<Finished> {
        let (entry, place) = (&self.manifest.dense[section], &self.header.sections[section]);
        let mut written = 0;
        for piece in self.origin.dense(entry, pack::rows_of(&entry.kind, piece))? {
            self.disk.write_at(&piece.bytes, place.offset + piece.offset)?;
            written += piece.bytes.len() as u64;
        }
        // Whoever finishes the last piece sees all others written, and takes the checksum.
        let record = match self.pieces_left[section].fetch_sub(1, Ordering::AcqRel) {
            1 => {
                let digest = dense_digest(self.disk, self.header, section)?;
                Some((Record { section, expert: None, digest }, true))
            }
            _ => None,
        };
        Ok(Finished { section, source_bytes: self.piece_bytes(entry, piece), written, record })
    }

    fn expert(
        &self,
        section: usize,
        layer: usize,
        expert: usize,
        room: &mut Option<Room<O::Room>>,
    ) -> Result<Finished> {
        let layer_entry = &self.manifest.experts[layer];
        if room.as_ref().is_none_or(|room| room.layer != layer) {
            let block = vec![0; layer_entry.block.bytes()];
            *room = Some(Room { layer, block, origin: self.origin.room(layer_entry) });
        }
        let room = room.as_mut().expect("made above");
        let size = room.block.len() as u64;
        let offset = self.header.sections[section].offset + expert as u64 * size;
        let source_bytes = self.expert_bytes(layer_entry, expert);
        if let Some(claim) = self.claims.get(&(section, expert)) {
            self.disk.read_at(&mut room.block, offset)?;
            if Digest::of(&room.block) == *claim {
                let record = Record { section, expert: Some(expert), digest: *claim };
                return Ok(Finished { section, source_bytes, written: 0, record: Some((record, false)) });
            }
        }
        self.origin.expert(layer_entry, &layer_entry.experts[expert], &mut room.origin, &mut room.block)?;
        self.disk.write_at(&room.block, offset)?;
        let record = Record { section, expert: Some(expert), digest: Digest::of(&room.block) };
        Ok(Finished { section, source_bytes, written: size, record: Some((record, true)) })
    }
}

/// What a worker keeps from one expert of a layer to the next.
struct Room<T> {
    layer: usize,
    block: Vec<u8>,
    origin: T,
}

/// Checksum of a dense section, from the partial file.
fn dense_digest(disk: &dyn Disk, header: &Header, section: usize) -> Result<Digest, WorldError> {
    let place = &header.sections[section];
    assert!(!matches!(place.content, Content::Experts { .. }));
    let mut hasher = blake3::Hasher::new();
    let mut room = vec![0; (1usize << 20).min(place.bytes as usize)];
    let mut at = 0;
    while at < place.bytes {
        let piece = &mut room[..(1u64 << 20).min(place.bytes - at) as usize];
        disk.read_at(piece, place.offset + at)?;
        hasher.update(piece);
        at += piece.len() as u64;
    }
    Ok(Digest(*hasher.finalize().as_bytes()))
}
