//! The global allocator of `mpix-sim`, which counts the memory that engine code holds.

use std::alloc::{GlobalAlloc, Layout, System};

use mpix_rma::transport::sim::meter;

/// The system allocator, with counters for engine code.
pub(crate) struct Metered;

fn note(bytes: usize, sign: i64) {
    if meter::in_engine() {
        meter::note(sign * bytes as i64);
    }
}

// SAFETY: every call is forwarded unchanged to the system allocator; counting does not allocate.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: same arguments and contract as `alloc` itself.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: same arguments and contract as `alloc_zeroed` itself.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(layout.size(), -1);
        // SAFETY: same arguments and contract as `dealloc` itself.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(layout.size(), -1);
        note(size, 1);
        // SAFETY: same arguments and contract as `realloc` itself.
        unsafe { System.realloc(block, layout, size) }
    }
}
