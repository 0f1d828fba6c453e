//! An allocator that tells the meter what engines hold.

use std::alloc::{GlobalAlloc, Layout, System};

use mpix_rma::transport::sim::meter;

/// The system's allocator; what engine code allocates and frees is counted.
pub(crate) struct Metered;

fn note(bytes: usize, sign: i64) {
    if meter::in_engine() {
        meter::note(sign * bytes as i64);
    }
}

// SAFETY: every call goes to the system's allocator with the caller's arguments; counting allocates
// nothing.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(layout.size(), -1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(layout.size(), -1);
        note(size, 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }
}
