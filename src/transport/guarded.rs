//! A cell for what all windows of a process share, whose user holds a lock already.
//!
//! The runtime's guard lets one thread at a time into the process's state. A context that all
//! windows share belongs to that state, but each window has a reference to it. A mutex in each
//! context would be locked several times per operation, always without contention.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that only the holder of a lock uses.
#[derive(Debug)]
pub struct Guarded<T> {
    /// Set while a thread holds the lock.
    is_locked: &'static AtomicBool,
    is_used: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the caller of `new` has promised that no two threads borrow the value at the same time,
// and that one borrow happens before the next.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Wraps a value. `is_locked` is set while any thread holds the lock.
    ///
    /// # Safety
    /// All borrows happen under that lock, which is held until the borrow ends.
    pub const unsafe fn new(value: T, is_locked: &'static AtomicBool) -> Self {
        Guarded { is_locked, is_used: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Borrows the value.
    ///
    /// # Panics
    /// If it is borrowed already, or no thread holds the lock.
    #[inline]
    pub fn borrow(&self) -> Borrowed<'_, T> {
        // A caller without the lock seldom meets another one, so look at the lock itself too.
        assert!(
            self.is_locked.load(Ordering::Relaxed),
            "a shared context is used without its lock"
        );
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

    fn panics(value: &Guarded<i32>) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| *value.borrow())).is_err()
    }

    #[test]
    fn borrows_end_and_do_not_nest() {
        static LOCKED: AtomicBool = AtomicBool::new(true);
        // SAFETY: one thread uses it.
        let value = unsafe { Guarded::new(1, &LOCKED) };
        *value.borrow() += 1;
        assert_eq!(*value.borrow(), 2);
        let _first = value.borrow();
        assert!(panics(&value), "two borrows at a time");
    }

    #[test]
    fn borrows_need_the_lock() {
        static LOCKED: AtomicBool = AtomicBool::new(false);
        // SAFETY: one thread uses it.
        let value = unsafe { Guarded::new(1, &LOCKED) };
        assert!(panics(&value), "a borrow without the lock");
        LOCKED.store(true, Ordering::Relaxed);
        assert!(!panics(&value), "the lock is held");
    }
}
