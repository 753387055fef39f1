//! Counts what is allocated, so that a small file that makes the store ask for much is found.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn grown(by: usize) {
    let _ = NOW.try_with(|now| {
        now.set(now.get().wrapping_add(by));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

fn shrunk(by: usize) {
    // What another thread allocated may be freed here.
    let _ = NOW.try_with(|now| now.set(now.get().saturating_sub(by)));
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrunk(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size);
        shrunk(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `work` on an input of `len` bytes.
///
/// # Panics
///
/// If this thread ever holds more in it than `factor` times `len` bytes, and `beside` bytes that do not
/// depend on the input.
pub fn bounded<T>(len: usize, factor: usize, beside: usize, work: impl FnOnce() -> T) -> T {
    let before = NOW.get();
    PEAK.set(before);
    let result = work();
    let took = PEAK.get().saturating_sub(before);
    assert!(took <= len * factor + beside, "{len} bytes of input made it allocate {took}");
    result
}
