//! The arguments of a persistent collective that the host serves: copies of arrays, duplicates of
//! datatypes, and operations whose freeing waits. The application may free datatypes and operations
//! as soon as the request is made.

use std::ffi::c_int;

use hashbrown::HashMap;

use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::{predefined, reduction_of};
use crate::runtime::process::Own;

/// An argument that is kept for the host's calls.
pub(super) trait Kept {
    type Passed;

    fn passed(&self) -> Self::Passed;
}

/// A number, or the address of a buffer.
pub(super) struct Plain<T>(pub(super) T);

impl<T: Copy> Kept for Plain<T> {
    type Passed = T;
    fn passed(&self) -> T {
        self.0
    }
}

/// An array of numbers. `None`: it has none.
pub(super) struct Numbers<T>(Option<Vec<T>>);

impl<T: Copy> Numbers<T> {
    /// # Safety
    /// `first` is NULL or points to `length` numbers.
    pub(super) unsafe fn copy(first: *const T, length: usize) -> Self {
        // SAFETY: the contract of this function.
        let numbers = (0..length).map(|at| unsafe { first.add(at).read() });
        Numbers((!first.is_null() && length > 0).then(|| numbers.collect()))
    }
}

impl<T> Kept for Numbers<T> {
    type Passed = *const T;
    fn passed(&self) -> *const T {
        self.0.as_ref().map_or(std::ptr::null(), |numbers| numbers.as_ptr())
    }
}

/// A datatype: a duplicate, if it is derived.
pub(super) struct Datatype {
    datatype: MPI_Datatype,
    is_own: bool,
}

impl Datatype {
    pub(super) fn new(datatype: MPI_Datatype) -> Self {
        let mut copy = MPI_DATATYPE_NULL;
        if datatype == MPI_DATATYPE_NULL || predefined(datatype).is_some() {
            return Datatype { datatype, is_own: false };
        }
        // SAFETY: a handle that the host has just accepted, and a place of ours.
        let code = unsafe { PMPI_Type_dup(datatype, &raw mut copy) };
        let is_own = code == MPI_SUCCESS;
        Datatype { datatype: if is_own { copy } else { datatype }, is_own }
    }

    /// One that this library has made.
    pub(super) fn made(datatype: MPI_Datatype) -> Self {
        Datatype { datatype, is_own: true }
    }
}

impl Kept for Datatype {
    type Passed = MPI_Datatype;
    fn passed(&self) -> MPI_Datatype {
        self.datatype
    }
}

impl Drop for Datatype {
    fn drop(&mut self) {
        if self.is_own {
            crate::mpi::abi::host_calls::type_free(&mut self.datatype);
        }
    }
}

/// An array of datatypes.
pub(super) struct Datatypes {
    handles: Vec<MPI_Datatype>,
    /// They own the duplicates.
    _kept: Vec<Datatype>,
}

impl Datatypes {
    /// # Safety
    /// `first` is NULL or points to `length` datatypes.
    pub(super) unsafe fn copy(first: *const MPI_Datatype, length: usize) -> Self {
        let length = if first.is_null() { 0 } else { length };
        // SAFETY: the contract of this function.
        let kept: Vec<_> =
            (0..length).map(|at| Datatype::new(unsafe { first.add(at).read() })).collect();
        Datatypes { handles: kept.iter().map(Kept::passed).collect(), _kept: kept }
    }
}

impl Kept for Datatypes {
    type Passed = *const MPI_Datatype;
    fn passed(&self) -> *const MPI_Datatype {
        if self.handles.is_empty() { std::ptr::null() } else { self.handles.as_ptr() }
    }
}

/// Operations of the application that are kept: by key, the number of uses, and whether the
/// application has freed it.
static OPERATIONS: Own<Option<HashMap<u64, (usize, bool)>>> =
    // SAFETY: any thread may use and drop numbers.
    unsafe { Own::new(None) };

/// An operation. `MPI_Op_free` takes effect when nothing keeps it.
pub(super) struct Operation(MPI_Op);

impl Operation {
    pub(super) fn new(op: MPI_Op) -> Self {
        if reduction_of(op).is_none() {
            OPERATIONS.with(|all| all.get_or_insert_default().entry(op.key()).or_default().0 += 1);
        }
        Operation(op)
    }
}

impl Kept for Operation {
    type Passed = MPI_Op;
    fn passed(&self) -> MPI_Op {
        self.0
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if reduction_of(self.0).is_some() {
            return;
        }
        let must_free = OPERATIONS.with(|all| {
            let all = all.get_or_insert_default();
            let Some(entry) = all.get_mut(&self.0.key()) else { return false };
            entry.0 -= 1;
            entry.0 == 0 && all.remove(&self.0.key()).is_some_and(|(_, freed)| freed)
        });
        if must_free {
            let mut op = self.0;
            // SAFETY: the application has freed it, through this library.
            unsafe { PMPI_Op_free(&raw mut op) };
        }
    }
}

/// Interposed for operations that persistent collectives keep.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Op_free(op: *mut MPI_Op) -> c_int {
    boundary("MPI_Op_free", || {
        // SAFETY: the application's handle, or NULL, which the host reports.
        unsafe {
            let is_kept = !op.is_null()
                && OPERATIONS.with(|all| {
                    let entry = all.as_mut().and_then(|all| all.get_mut(&(*op).key()));
                    entry.map(|entry| entry.1 = true).is_some()
                });
            if !is_kept {
                return PMPI_Op_free(op);
            }
            *op = MPI_OP_NULL;
            MPI_SUCCESS
        }
    })
}

exports! { MPI_Op_free(op: *mut MPI_Op); }
