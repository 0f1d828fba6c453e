//! A value that one thread at a time may change.

use std::cell::UnsafeCell;

#[cfg(loom)]
use loom::sync::atomic::AtomicBool;
#[cfg(not(loom))]
use std::sync::atomic::AtomicBool;

use super::Ordering;
use super::yield_now;

/// A value behind a lock, for bodies that take some ten nanoseconds. A process with one thread
/// need not take the lock.
pub struct Exclusive<T> {
    inside: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached in `Exclusive::with` alone, by one thread at a time: by the one that
// has set `inside` from false to true, or by the only thread that there is. Any thread may use it
// (contract of `Exclusive::new`).
unsafe impl<T> Sync for Exclusive<T> {}

impl<T> std::fmt::Debug for Exclusive<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exclusive")
    }
}

impl<T> Exclusive<T> {
    /// # Safety
    /// Any thread may use the value and drop what is in it.
    #[cfg(not(loom))]
    pub const unsafe fn new(value: T) -> Self {
        Self { inside: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// # Safety
    /// Any thread may use the value and drop what is in it.
    #[cfg(loom)]
    pub unsafe fn new(value: T) -> Self {
        Self { inside: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `body` on the value. It must not come back here, nor panic.
    ///
    /// # Safety
    /// `locks` is true, or no other thread uses this value before a later call synchronizes with
    /// this one.
    #[inline]
    pub unsafe fn with<R>(&self, locks: bool, body: impl FnOnce(&mut T) -> R) -> R {
        if locks {
            let (free, taken) = (false, true);
            while self
                .inside
                .compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                // The other thread leaves soon, unless it was preempted.
                yield_now();
            }
        }
        // SAFETY: this thread is the only one inside (see above), and `body` does not come back
        // (contract of this function).
        let value = unsafe { &mut *self.value.get() };
        let result = body(value);
        if locks {
            self.inside.store(false, Ordering::Release);
        }
        result
    }
}
