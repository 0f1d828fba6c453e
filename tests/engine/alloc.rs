//! Counts what each thread allocates: tests run in threads of their own.

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

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor
// unwinds (the thread-locals are constant-initialised and have no destructor).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Bytes that this thread holds.
pub fn live() -> i64 {
    LIVE.get()
}

/// Calls of the allocator that this thread has made.
pub fn calls() -> u64 {
    CALLS.get()
}
