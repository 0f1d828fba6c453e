//! An allocator that counts per thread. Each test has its own thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    LIVE.set(LIVE.get() + bytes);
    CALLS.set(CALLS.get() + 1);
}

// SAFETY: every call is forwarded unchanged to the system allocator. Counting neither allocates nor
// unwinds: the thread-locals are constant-initialized and have no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: same arguments and contract as `alloc` itself.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: same arguments and contract as `dealloc` itself.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: same arguments and contract as `realloc` itself.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Bytes allocated by this thread and not freed.
pub fn live() -> i64 {
    LIVE.get()
}

/// Allocator calls of this thread.
pub fn calls() -> u64 {
    CALLS.get()
}
