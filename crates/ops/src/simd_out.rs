//! One output written by several workers at once, each its own places.

use std::marker::PhantomData;

/// A mutable slice whose disjoint parts may be taken on several threads.
pub struct Out<'a, T> {
    first: *mut T,
    len: usize,
    lives: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are only handed out by `part`, whose callers promise that no two overlap.
unsafe impl<T: Send> Send for Out<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Out<'_, T> {}

impl<'a, T> Out<'a, T> {
    /// Takes over the slice.
    pub fn new(slice: &'a mut [T]) -> Self {
        Out { first: slice.as_mut_ptr(), len: slice.len(), lives: PhantomData }
    }

    /// Elements `at..at + len`. Panics if they lie outside the slice.
    ///
    /// # Safety
    /// No other part that is still in use may overlap this one.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, at: usize, len: usize) -> &'a mut [T] {
        assert!(at <= self.len && len <= self.len - at, "part {at}+{len} of an output of {}", self.len);
        // SAFETY: inside the slice, which is borrowed for 'a; not aliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(at), len) }
    }
}
