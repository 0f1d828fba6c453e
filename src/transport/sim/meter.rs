//! Memory held by engine code. The allocator of `mpix-sim` asks [`in_engine`] and calls [`note`];
//! with other allocators all counts are 0. The owner of an engine calls it inside [`engine`], and
//! ports run their own code inside [`outside`].

use std::cell::Cell;

thread_local! {
    static IN_ENGINE: Cell<bool> = const { Cell::new(false) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// True while engine code runs on this thread.
#[inline]
pub fn in_engine() -> bool {
    IN_ENGINE.get()
}

/// Counts bytes that engine code allocated (or freed, if negative).
#[inline]
pub fn note(bytes: i64) {
    BYTES.set(BYTES.get() + bytes);
}

/// Bytes that engine code of this thread has allocated and not freed.
#[inline]
#[must_use]
pub fn bytes() -> i64 {
    BYTES.get()
}

/// Runs engine code.
#[inline]
pub fn engine<R>(code: impl FnOnce() -> R) -> R {
    run_as(true, code)
}

/// Runs code that engine code called but that is not part of it.
#[inline]
pub fn outside<R>(code: impl FnOnce() -> R) -> R {
    run_as(false, code)
}

#[inline]
fn run_as<R>(in_engine: bool, code: impl FnOnce() -> R) -> R {
    let before = IN_ENGINE.replace(in_engine);
    let result = code();
    IN_ENGINE.set(before);
    result
}
