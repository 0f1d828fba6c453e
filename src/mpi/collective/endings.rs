//! The ends of communicators. Hosts reuse their handles, so what is kept by a handle must be
//! forgotten then. An attribute of ours tells it. What all processes of a communicator free
//! together, they free before: in the calls that end it, which are interposed.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use super::{communicators, persistent};
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;

/// The attribute's keyval. `None`: no communicator has it.
static KEY: Mutex<Option<c_int>> = Mutex::new(None);

/// Has what is kept of a communicator forgotten when it ends. The communicator is valid. False: the
/// host cannot tell.
pub(super) fn watch(comm: MPI_Comm) -> bool {
    let Some(key) = keyval() else { return false };
    let (mut value, mut is_watched) = (null_mut::<c_void>(), 0);
    // SAFETY: the communicator is valid, the keyval and the places are ours.
    unsafe {
        PMPI_Comm_get_attr(comm, key, (&raw mut value).cast(), &raw mut is_watched);
        // To set it again would delete it first.
        is_watched != 0 || PMPI_Comm_set_attr(comm, key, null_mut()) == MPI_SUCCESS
    }
}

fn keyval() -> Option<c_int> {
    let mut kept = KEY.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.is_none() {
        let mut key = MPI_KEYVAL_INVALID;
        // SAFETY: the callbacks live as long as the library, and the place is ours.
        let code = unsafe {
            PMPI_Comm_create_keyval(Some(copy_none), Some(on_delete), &raw mut key, null_mut())
        };
        *kept = (code == MPI_SUCCESS).then_some(key);
    }
    *kept
}

/// Call it before MPI is finalized. The host still deletes the attributes of live communicators.
pub(super) fn close() {
    if let Some(mut key) = KEY.lock().unwrap_or_else(PoisonError::into_inner).take() {
        host_calls::comm_free_keyval(&mut key);
    }
}

/// A duplicate gets no attribute. (Open MPI wants a function.)
unsafe extern "C" fn copy_none(
    _: MPI_Comm,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the host passes a place for the flag.
    unsafe { flag.write(0) };
    MPI_SUCCESS
}

/// Called by the host when a communicator ends.
unsafe extern "C" fn on_delete(comm: MPI_Comm, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    communicators::forget(comm);
    persistent::forget(comm);
    MPI_SUCCESS
}

/// # Safety
/// The place has the handle of a communicator, or is null.
unsafe fn before_end(comm: *const MPI_Comm) {
    // SAFETY: the contract of this function.
    if let Some(comm) = unsafe { comm.as_ref() } {
        persistent::free_windows_of(*comm);
    }
}

/// Interposed so that the windows of the communicator's collectives end with it.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Comm_free(comm: *mut MPI_Comm) -> c_int {
    boundary("MPI_Comm_free", || {
        // SAFETY: the application's place, as MPI says of the call.
        unsafe {
            before_end(comm);
            PMPI_Comm_free(comm)
        }
    })
}

/// Likewise.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Comm_disconnect(comm: *mut MPI_Comm) -> c_int {
    boundary("MPI_Comm_disconnect", || {
        // SAFETY: the application's place, as MPI says of the call.
        unsafe {
            before_end(comm);
            PMPI_Comm_disconnect(comm)
        }
    })
}

exports! {
    MPI_Comm_free(comm: *mut MPI_Comm);
    MPI_Comm_disconnect(comm: *mut MPI_Comm);
}
