//! How much memory the engines hold. An allocator that asks [`in_engine`] and tells [`note`] (that
//! of `mpix-sim`) makes the figures; without one they are 0. Engine code allocates and frees inside
//! [`engine`]; ports leave it by [`outside`].

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

/// Engine code has allocated (or freed, if negative) so many bytes.
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
    let before = IN_ENGINE.replace(true);
    let result = code();
    IN_ENGINE.set(before);
    result
}

/// Runs what engine code has called and does not belong to it.
#[inline]
pub fn outside<R>(code: impl FnOnce() -> R) -> R {
    let before = IN_ENGINE.replace(false);
    let result = code();
    IN_ENGINE.set(before);
    result
}
