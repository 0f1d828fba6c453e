//! Predefined datatypes and reductions by the host's handles: two hash tables, filled once at
//! `MPI_Init` and read without a lock.

use std::cell::UnsafeCell;
use std::ffi::c_int;

use crate::engine::{Element, Reduction};
use crate::mpi::abi::sys::*;
use crate::transport::datatype::element::{native, reduction};

/// Groups of datatypes for which MPI defines the same reductions (MPI-4.1 section 6.9.2), in the
/// order of the enum in `shim.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Signed,
    Unsigned,
    Floating,
    Complex,
    Logical,
    Byte,
    Character,
    Pair,
}

impl Kind {
    pub(super) fn of(code: c_int) -> Self {
        use Kind::{Byte, Character, Complex, Floating, Logical, Pair, Signed, Unsigned};
        [Signed, Unsigned, Floating, Complex, Logical, Byte, Character, Pair][code as usize]
    }
}

/// A predefined datatype.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predefined {
    pub(crate) kind: Kind,
    pub(crate) element: Element,
    /// Bytes of data.
    pub(crate) size: u8,
    /// Bytes from one element to the next.
    pub(crate) extent: u8,
    /// Bytes from the first to the last of one element (MPI's true extent). A pair with padding at
    /// its end has a larger extent.
    pub(crate) span: u8,
    /// Reductions that MPI defines for it and the host does not support: a bit for each code.
    pub(super) unsupported: u16,
}

impl Predefined {
    /// Bytes from the first to the last of `count` elements. `None` if that exceeds 64 bits.
    #[inline(always)]
    pub(crate) fn bytes(&self, count: u64) -> Option<u64> {
        if count == 0 {
            return Some(0);
        }
        (count - 1).checked_mul(u64::from(self.extent))?.checked_add(u64::from(self.span))
    }

    /// True if the host supports a reduction that MPI defines for it.
    #[inline(always)]
    pub(crate) fn supports(&self, op: Reduction) -> bool {
        self.unsupported & 1 << op.0 == 0
    }

    /// True if there is no padding in it or between elements.
    #[inline(always)]
    pub(crate) fn is_dense(&self) -> bool {
        self.size == self.extent
    }
}

pub(super) static TYPES: Table<Predefined, 512> = Table::new(Predefined {
    kind: Kind::Byte,
    element: native::BYTE,
    size: 1,
    extent: 1,
    span: 1,
    unsupported: 0,
});
pub(super) static REDUCTIONS: Table<Reduction, 64> = Table::new(reduction::REPLACE);

/// A predefined datatype by its handle. `None`: it is derived, null or invalid.
#[inline(always)]
pub(crate) fn predefined(datatype: MPI_Datatype) -> Option<&'static Predefined> {
    TYPES.get(datatype.key())
}

/// A predefined reduction by its handle. `None`: it is user-defined, null or invalid.
#[inline(always)]
pub(crate) fn reduction_of(op: MPI_Op) -> Option<Reduction> {
    REDUCTIONS.get(op.key()).copied()
}

/// An open-addressed table of `N` entries, at most half full.
pub(super) struct Table<T: Copy, const N: usize> {
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

    pub(super) const fn new(filler: T) -> Self {
        Self { places: UnsafeCell::new([(EMPTY, filler); N]) }
    }

    #[inline(always)]
    fn first(key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - Self::BITS)) as usize
    }

    #[inline(always)]
    pub(super) fn get(&self, key: u64) -> Option<&T> {
        // SAFETY: nobody writes after initialization (see `Sync`).
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

    /// Adds an entry and returns true, unless the handle has one already: several names of the host
    /// may have the same handle.
    ///
    /// # Safety
    /// Only while MPI is being initialized: nobody may read or write at the same time.
    pub(super) unsafe fn insert(&self, key: u64, value: T) -> bool {
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
