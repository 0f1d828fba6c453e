//! A hash table by host handles: filled once at `MPI_Init`, and read without a lock.

use std::cell::UnsafeCell;

/// An open-addressed table of `N` entries, at most half full.
pub(crate) struct Table<T: Copy, const N: usize> {
    places: UnsafeCell<[(u64, T); N]>,
}

// SAFETY: only `insert` writes, which is called while MPI is being initialized, when no other
// thread may call; from then on the table is only read.
unsafe impl<T: Copy + Sync, const N: usize> Sync for Table<T, N> {}

/// No handle of a host has all bits set.
const EMPTY: u64 = u64::MAX;

impl<T: Copy, const N: usize> Table<T, N> {
    const BITS: u32 = {
        assert!(N.is_power_of_two());
        N.trailing_zeros()
    };

    pub(crate) const fn new(filler: T) -> Self {
        Self { places: UnsafeCell::new([(EMPTY, filler); N]) }
    }

    #[inline(always)]
    fn first(key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - Self::BITS)) as usize
    }

    #[inline(always)]
    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        // SAFETY: nobody writes after initialisation (see `Sync`).
        let places = unsafe { &*self.places.get() };
        let mut at = Self::first(key);
        loop {
            let (found, value) = &places[at];
            if *found == key {
                return Some(value);
            }
            if *found == EMPTY {
                return None;
            }
            at = (at + 1) & (N - 1);
        }
    }

    /// Adds an entry unless the handle has one: several names of the host may have the same handle.
    /// True if it was added.
    ///
    /// # Safety
    /// Only while MPI is being initialised: nobody may read or write at the same time.
    pub(crate) unsafe fn insert(&self, key: u64, value: T) -> bool {
        if key == EMPTY || self.get(key).is_some() {
            return false;
        }
        // SAFETY: nobody reads or writes at the same time (contract of this function).
        let places = unsafe { &mut *self.places.get() };
        let used = places.iter().filter(|place| place.0 != EMPTY).count();
        assert!(used < N / 2, "the table is too small for the host's predefined handles");
        let mut at = Self::first(key);
        while places[at].0 != EMPTY {
            at = (at + 1) & (N - 1);
        }
        places[at] = (key, value);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_inserted_and_nothing_else() {
        let table = Table::<u32, 64>::new(0);
        for key in 0..31u64 {
            // SAFETY: the table is this test's own.
            assert!(unsafe { table.insert(key * 0x1000, key as u32) });
        }
        // SAFETY: the table is this test's own.
        assert!(!unsafe { table.insert(0x2000, 99) }, "a synonym keeps the first meaning");
        for key in 0..31u64 {
            assert_eq!(table.get(key * 0x1000), Some(&(key as u32)));
        }
        assert_eq!(table.get(0x123), None);
        assert_eq!(table.get(EMPTY - 1), None);
    }
}
