//! A cell for what all windows of a process share, whose user holds a lock already.
//!
//! The runtime's guard lets one thread at a time into the process's state. A context that all
//! windows share belongs to that state, but each window has a reference to it. A mutex in each
//! context would be locked several times per operation, always without contention.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that one thread at a time uses.
#[derive(Debug)]
pub struct Guarded<T> {
    is_used: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the caller of `new` has promised that no two threads borrow the value at the same time,
// and that one borrow happens before the next.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Wraps a value.
    ///
    /// # Safety
    /// All borrows happen under one lock, which is held until the borrow ends.
    pub const unsafe fn new(value: T) -> Self {
        Guarded { is_used: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Borrows the value.
    ///
    /// # Panics
    /// If it is borrowed already.
    #[inline]
    pub fn borrow(&self) -> Borrowed<'_, T> {
        // Load and store suffice: the lock orders the borrows, and this only detects nested ones.
        assert!(!self.is_used.load(Ordering::Relaxed), "a shared context is used twice at a time");
        self.is_used.store(true, Ordering::Relaxed);
        Borrowed(self)
    }
}

/// A borrowed value.
#[derive(Debug)]
pub struct Borrowed<'a, T>(&'a Guarded<T>);

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only borrow (`borrow` has checked that, and `new` excludes other
        // threads), and it is shared as long as the result lives.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Borrowed<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only borrow (`borrow` has checked that, and `new` excludes other
        // threads), and it is borrowed as long as the result lives.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Borrowed<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_used.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borrows_end_and_do_not_nest() {
        // SAFETY: one thread uses it.
        let value = unsafe { Guarded::new(1) };
        *value.borrow() += 1;
        assert_eq!(*value.borrow(), 2);
        let _first = value.borrow();
        let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| *value.borrow()));
        assert!(second.is_err(), "two borrows at a time");
    }
}
