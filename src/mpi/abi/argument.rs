//! Types for the application's pointer arguments, which say what MPI lets a call do with each.
//!
//! An `extern "C"` function makes each argument once from the pointer that it was given. Only there
//! is the application trusted; from then on the argument is safe to use. Arguments that a call
//! reads and writes are `&Cell`s, since the host and the application's callbacks may change them at
//! any time within the call.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

/// An output argument: `flag`, `index`, a new `request`. If it is NULL, nothing is written.
#[derive(Clone, Copy)]
pub(crate) struct Out<'a, T>(*mut T, PhantomData<&'a Cell<T>>);

impl<'a, T: Copy> Out<'a, T> {
    /// An output argument of the application.
    ///
    /// # Safety
    /// Until `'a` ends, `place` is NULL or memory for a `T`, at any alignment, that no other thread
    /// accesses.
    #[inline(always)]
    pub(crate) unsafe fn new(place: *mut T) -> Self {
        Out(place, PhantomData)
    }

    /// A variable of this library.
    #[inline(always)]
    pub(crate) fn to(place: &'a mut T) -> Self {
        Out(place, PhantomData)
    }

    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes the result, unless the argument is NULL.
    #[inline(always)]
    pub(crate) fn write(self, value: T) {
        if !self.is_null() {
            // SAFETY: `new` and `to` were given memory for a `T`, and it is not NULL.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// The value that the host has written. `None`: the argument is NULL.
    #[inline(always)]
    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: `new` and `to` were given memory for a `T`, and it is not NULL.
        (!self.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The argument, for a call of the host.
    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut T {
        self.0
    }
}

/// One argument that the call reads and writes. `None`: it is NULL.
///
/// # Safety
/// Until `'a` ends, `place` is NULL or points to a `T`, aligned, that no other thread accesses.
#[inline(always)]
pub(crate) unsafe fn in_out<'a, T>(place: *mut T) -> Option<&'a Cell<T>> {
    // SAFETY: a `Cell<T>` has the layout of a `T`; the contract of this function gives the rest.
    unsafe { place.cast::<Cell<T>>().as_ref() }
}

/// An array that the call reads and writes. `None`: it is NULL, or `count` is negative.
///
/// # Safety
/// Until `'a` ends, `first` is NULL or points to `count` items, aligned, that no other thread
/// accesses.
#[inline(always)]
pub(crate) unsafe fn list<'a, T>(first: *mut T, count: c_int) -> Option<&'a [Cell<T>]> {
    let len = usize::try_from(count).ok().filter(|_| !first.is_null())?;
    // SAFETY: a `Cell<T>` has the layout of a `T`; the contract of this function gives the rest.
    Some(unsafe { std::slice::from_raw_parts(first.cast::<Cell<T>>(), len) })
}

/// As [`list`], but an array without items may be NULL.
///
/// # Safety
/// As [`list`].
#[inline(always)]
pub(crate) unsafe fn list_or_empty<'a, T>(first: *mut T, count: c_int) -> Option<&'a [Cell<T>]> {
    // SAFETY: the contract of this function.
    if count == 0 { Some(&[]) } else { unsafe { list(first, count) } }
}

/// An array that the call only reads. `None`: it is NULL, or `count` is negative.
///
/// # Safety
/// Until `'a` ends, `first` is NULL or points to `count` items, aligned, that nobody changes.
#[cfg(mpi_status_lists)]
pub(crate) unsafe fn input<'a, T>(first: *const T, count: c_int) -> Option<&'a [T]> {
    let len = usize::try_from(count).ok().filter(|_| !first.is_null())?;
    // SAFETY: the contract of this function.
    Some(unsafe { std::slice::from_raw_parts(first, len) })
}

/// Number of items of a list, for a call of the host. It fits, since `list` got a `c_int`.
#[inline(always)]
pub(crate) fn count_of<T>(list: &[Cell<T>]) -> c_int {
    list.len() as c_int
}

/// First item of a list, for a call of the host.
#[inline(always)]
pub(crate) fn first_of<T>(list: &[Cell<T>]) -> *mut T {
    list.as_ptr().cast_mut().cast()
}

/// A list of this library, for functions that take one of the application.
#[inline(always)]
pub(crate) fn cells<T>(list: &mut [T]) -> &[Cell<T>] {
    Cell::from_mut(list).as_slice_of_cells()
}

/// An output array: `indices`. If it is NULL, nothing is written.
#[derive(Clone, Copy)]
pub(crate) struct OutList<'a, T> {
    first: *mut T,
    len: usize,
    of: PhantomData<&'a Cell<T>>,
}

impl<'a, T: Copy> OutList<'a, T> {
    /// An array of the application. A negative `count` makes it empty.
    ///
    /// # Safety
    /// Until `'a` ends, `first` is NULL or memory for `count` items that no other thread accesses.
    #[inline(always)]
    pub(crate) unsafe fn new(first: *mut T, count: c_int) -> Self {
        OutList { first, len: usize::try_from(count).unwrap_or(0), of: PhantomData }
    }

    /// An array of this library.
    pub(crate) fn to(list: &'a mut [T]) -> Self {
        OutList { first: list.as_mut_ptr(), len: list.len(), of: PhantomData }
    }

    /// The item with index `at`.
    pub(crate) fn at(self, at: usize) -> Out<'a, T> {
        assert!(at < self.len, "an item beyond the application's array");
        let place = if self.first.is_null() { self.first } else { self.first.wrapping_add(at) };
        Out(place, PhantomData)
    }

    /// The array, for a call of the host that may write `count` items.
    #[inline(always)]
    pub(crate) fn as_ptr(self, count: c_int) -> *mut T {
        assert!(self.first.is_null() || count <= 0 || count as usize <= self.len, "too few items");
        self.first
    }
}
