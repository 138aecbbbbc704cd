//! An allocator that counts, for tests that prove what allocates nothing. A test binary installs it with
//! `#[global_allocator] static ALLOC: CountingAlloc = CountingAlloc;`; without that all counts stay 0.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The system's allocator, counted.
pub struct CountingAlloc;

/// Allocations of all threads since the start.
static TOTAL: AtomicU64 = AtomicU64::new(0);
/// The next allocation is to be remembered.
static WATCHING: AtomicBool = AtomicBool::new(false);
/// Where the first allocation was since watching began.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

thread_local! {
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
    /// This thread is busy describing an allocation: its own are not counted.
    static DESCRIBING: Cell<bool> = const { Cell::new(false) };
}

/// Allocations of all threads since the start; growing one in place counts too.
pub fn total() -> u64 {
    TOTAL.load(Ordering::SeqCst)
}

/// Allocations of this thread.
pub fn of_this_thread() -> u64 {
    OF_THREAD.with(Cell::get)
}

/// From now on the place of the first allocation, of any thread, is remembered.
pub fn watch() {
    *FIRST.lock().unwrap_or_else(PoisonError::into_inner) = None;
    WATCHING.store(true, Ordering::SeqCst);
}

/// Stops what [`watch`] began. Gives where the first allocation was and how large, if there was one.
pub fn unwatch() -> Option<String> {
    WATCHING.store(false, Ordering::SeqCst);
    FIRST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn count(bytes: usize) {
    // A thread that is ending has no locals any more; its last allocations count in the total.
    if DESCRIBING.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    TOTAL.fetch_add(1, Ordering::SeqCst);
    let _ = OF_THREAD.try_with(|count| count.set(count.get() + 1));
    if WATCHING.load(Ordering::Relaxed) && WATCHING.swap(false, Ordering::SeqCst) {
        let described = DESCRIBING.try_with(|describing| {
            describing.set(true);
            let place = format!("{bytes} bytes at\n{}", Backtrace::force_capture());
            *FIRST.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
            describing.set(false);
        });
        debug_assert!(described.is_ok(), "asked for above");
    }
}

// SAFETY: every call is handed to the system's allocator unchanged; counting touches no allocation, and the
// allocations that describing makes are not counted, so it does not recurse.
unsafe impl GlobalAlloc for CountingAlloc {
    // SAFETY: as the trait asks of the caller.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is the one that System asks for.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as the trait asks of the caller.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: as the trait asks of the caller.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    // SAFETY: as the trait asks of the caller.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
