//! The C interface of this library: `MPIX_*`, and `PMPIX_*` for tools that interpose the former.
//!
//! Calls that exist in MPI too, but for a request or a notification, stand beside those: epochs in
//! `mpi/rma/sync.rs`, communication in `mpi/rma/communication.rs`. `mpix_rma.h` documents all of
//! them for users.
// Exported by their symbols, not by their paths.
#![allow(non_snake_case, unreachable_pub)]

mod continuation;
mod flush_wins;
mod fortran;
mod notify;
mod order;
mod tagged;
mod task;

use std::ffi::c_int;

use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;

/// The library's version.
///
/// # Safety
/// Each argument is NULL (an error) or has room for an int.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Get_version(
    major: *mut c_int,
    minor: *mut c_int,
    patch: *mut c_int,
) -> c_int {
    boundary("MPIX_Get_version", || {
        let numbers = [
            env!("CARGO_PKG_VERSION_MAJOR"),
            env!("CARGO_PKG_VERSION_MINOR"),
            env!("CARGO_PKG_VERSION_PATCH"),
        ];
        // SAFETY: the contract of this call says so of each argument.
        let [major, minor, patch] = [major, minor, patch].map(|place| unsafe { Out::new(place) });
        if major.is_null() || minor.is_null() || patch.is_null() {
            // Allowed before `MPI_Init`, so there may be no error handler to call.
            return MPI_ERR_ARG;
        }
        for (place, number) in [major, minor, patch].into_iter().zip(numbers) {
            place.write(number.parse().unwrap_or(0));
        }
        MPI_SUCCESS
    })
}

exports! {
    MPIX_Get_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int);
}
