//! An arena: one allocation, cut once into named regions, then frozen.

use std::alloc::Layout;

use arrayvec::ArrayVec;
use base::{Bytes, WorldError};

/// Regions and spans start at multiples of this: a cache line, and enough for any vector load.
pub const ALIGN: usize = 64;

/// Most views one step takes on either side.
pub const MAX_VIEWS: usize = 8;

/// A region of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(u32);

/// Some bytes of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: usize,
    len: usize,
}

impl Span {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `len` bytes of it from `offset` on. Panics if they are not inside it.
    pub fn part(&self, offset: usize, len: usize) -> Span {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{offset} + {len} bytes of a span of {} bytes", self.len);
        Span { start: self.start + offset, len }
    }

    fn overlaps(&self, other: &Span) -> bool {
        self.start < other.start + other.len && other.start < self.start + self.len
    }
}

#[derive(Debug, Clone)]
struct Region {
    name: String,
    start: usize,
    len: usize,
}

/// Zeroed memory in named regions. Nothing in it moves or grows after it was made.
pub struct Arena {
    base: std::ptr::NonNull<u8>,
    layout: Layout,
    regions: Vec<Region>,
}

// SAFETY: the arena owns its memory and hands out views only through `&self` or `&mut self`.
unsafe impl Send for Arena {}
// SAFETY: shared access only reads.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates regions of the given names and bytes. Pages are committed by the system when first touched.
    pub fn new(regions: &[(String, usize)]) -> Result<Arena, WorldError> {
        let mut placed = Vec::with_capacity(regions.len());
        let mut total = 0usize;
        let too_large = |total: usize, bytes: usize| WorldError::Memory {
            what: "the arena".into(),
            needed: Bytes(total as u64).to_string() + " + " + &Bytes(bytes as u64).to_string(),
            available: "no address space of that size".into(),
        };
        for (name, len) in regions {
            placed.push(Region { name: name.clone(), start: total, len: *len });
            let padded = len.checked_next_multiple_of(ALIGN).and_then(|b| total.checked_add(b));
            total = padded.ok_or_else(|| too_large(total, *len))?;
        }
        let layout = Layout::from_size_align(total.max(ALIGN), ALIGN).map_err(|_| too_large(total, 0))?;
        // SAFETY: the layout has a non-zero size.
        let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(base) = std::ptr::NonNull::new(pointer) else {
            return Err(WorldError::Memory {
                what: "the arena".into(),
                needed: Bytes(total as u64).to_string(),
                available: match base::os::available_memory_bytes() {
                    Some(bytes) => Bytes(bytes).to_string(),
                    None => "less".into(),
                },
            });
        };
        Ok(Arena { base, layout, regions: placed })
    }

    /// The region of this name. Panics if there is none: names are ours.
    pub fn region(&self, name: &str) -> RegionId {
        let index = self.regions.iter().position(|r| r.name == name);
        RegionId(index.unwrap_or_else(|| panic!("no region {name}")) as u32)
    }

    /// Bytes of a region.
    pub fn region_bytes(&self, region: RegionId) -> usize {
        self.regions[region.0 as usize].len
    }

    /// Name and bytes of every region.
    pub fn regions(&self) -> impl Iterator<Item = (&str, usize)> {
        self.regions.iter().map(|r| (r.name.as_str(), r.len))
    }

    /// `len` bytes of `region` from `offset` on. Panics if they are not inside it.
    pub fn span(&self, region: RegionId, offset: usize, len: usize) -> Span {
        let r = &self.regions[region.0 as usize];
        let inside = offset.checked_add(len).is_some_and(|end| end <= r.len);
        assert!(inside, "{offset} + {len} bytes of region {} ({} bytes)", r.name, r.len);
        Span { start: r.start + offset, len }
    }

    /// The bytes of a span.
    pub fn read(&self, span: Span) -> &[u8] {
        // SAFETY: spans are made by `span` and lie inside the allocation, which is initialised (zeroed) and
        // borrowed shared for the returned lifetime.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(span.start), span.len) }
    }

    /// The bytes of a span, for writing.
    pub fn write(&mut self, span: Span) -> &mut [u8] {
        // SAFETY: as in `read`; the arena is borrowed exclusively for the returned lifetime.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(span.start), span.len) }
    }

    /// Copies the bytes of one span to another of the same length.
    pub fn copy(&mut self, from: Span, to: Span) {
        let mut views = self.bind(&[from], &[to]);
        views.writes[0].copy_from_slice(views.reads[0]);
    }

    /// Views of one step: `reads` shared, `writes` exclusive. Panics if a written span overlaps any other
    /// span of the step: a program that does that is wrong.
    pub fn bind<'a>(&'a mut self, reads: &[Span], writes: &[Span]) -> Views<'a> {
        for (i, write) in writes.iter().enumerate() {
            let others = reads.iter().chain(&writes[..i]);
            for other in others {
                assert!(!write.overlaps(other), "a step writes {write:?} and uses {other:?}");
            }
        }
        let base = self.base.as_ptr();
        // SAFETY: all spans lie inside the allocation; written spans overlap nothing (checked above), read
        // spans are shared; the arena is borrowed exclusively for the lifetime of the views.
        unsafe {
            Views {
                reads: reads.iter().map(|s| std::slice::from_raw_parts(base.add(s.start), s.len)).collect(),
                writes: writes
                    .iter()
                    .map(|s| std::slice::from_raw_parts_mut(base.add(s.start), s.len))
                    .collect(),
            }
        }
    }
}

/// Views of one step.
pub struct Views<'a> {
    /// In the order asked for.
    pub reads: ArrayVec<&'a [u8], MAX_VIEWS>,
    /// In the order asked for.
    pub writes: ArrayVec<&'a mut [u8], MAX_VIEWS>,
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("bytes", &self.layout.size()).field("regions", &self.regions).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena() -> Arena {
        Arena::new(&[("a".into(), 100), ("empty".into(), 0), ("b".into(), 64)]).unwrap()
    }

    #[test]
    fn views_are_the_regions() {
        let mut arena = arena();
        let (a, b) = (arena.region("a"), arena.region("b"));
        let (head, tail) = (arena.span(a, 0, 50), arena.span(a, 50, 50));
        arena.write(tail).fill(7);
        let whole = arena.span(b, 0, 64);
        let mut views = arena.bind(&[tail, tail], &[head, whole]);
        assert_eq!(views.reads[0], [7; 50]);
        views.writes[0].fill(1);
        views.writes[1].copy_from_slice(&[2; 64]);
        drop(views);
        let all = arena.span(a, 0, 100);
        assert_eq!(arena.read(all)[49..51], [1, 7]);
        assert_eq!(arena.read(whole), [2; 64]);
        assert_eq!(arena.read(whole).as_ptr() as usize % ALIGN, 0);
    }

    #[test]
    #[should_panic(expected = "a step writes")]
    fn an_overlap_is_our_mistake() {
        let mut arena = arena();
        let a = arena.region("a");
        let (x, y) = (arena.span(a, 0, 60), arena.span(a, 59, 10));
        arena.bind(&[x], &[y]);
    }

    #[test]
    #[should_panic(expected = "bytes of region a")]
    fn spans_stay_inside() {
        let arena = arena();
        arena.span(arena.region("a"), 90, 11);
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        let error = Arena::new(&[("x".into(), usize::MAX / 2), ("y".into(), usize::MAX / 2)]).unwrap_err();
        assert!(matches!(error, WorldError::Memory { .. }));
    }
}
