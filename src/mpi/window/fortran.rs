//! What Fortran needs beyond `PMPI_*`: the predefined window attributes, as values instead of
//! addresses [MPI-4.1 19.3.7].
//!
//! The hosts' Fortran wrappers call `PMPI_*` or `MPI_*` for everything else, and convert
//! `MPI_BOTTOM`, `MPI_IN_PLACE`, ignored statuses and logicals themselves. But they read attributes
//! by internal functions of the host, which know only the window behind our handle. So those
//! functions are interposed. Each still calls the host's first, which raises the errors and
//! converts the logical, and then replaces the value.

use std::ffi::{c_int, c_void};

use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::host_functions;
use crate::mpi::abi::sys::*;
use crate::mpi::window::{MPI_Win_get_attr, NOTIFICATION_VALUE_UB, is_ours};

/// A predefined attribute, or one of this library, as an integer, which is its form in Fortran. The
/// window may be ours or the host's. `None`: it is another attribute.
fn value(win: MPI_Win, keyval: c_int) -> Option<MPI_Aint> {
    let of_mpi =
        [MPI_WIN_BASE, MPI_WIN_SIZE, MPI_WIN_DISP_UNIT, MPI_WIN_CREATE_FLAVOR, MPI_WIN_MODEL]
            .contains(&keyval);
    if !of_mpi && !is_ours(keyval) {
        return None;
    }
    let (mut address, mut flag) = (std::ptr::null_mut::<c_void>(), 0);
    // SAFETY: the variables have the types of the arguments, and the host has accepted the window.
    let code = unsafe { MPI_Win_get_attr(win, keyval, (&raw mut address).cast(), &raw mut flag) };
    if code != MPI_SUCCESS || flag == 0 {
        return None;
    }
    // SAFETY: MPI and `mpix_notify.h` say to which type each of these attributes points.
    unsafe {
        Some(match keyval {
            key if key == MPI_WIN_BASE => address.expose_provenance() as MPI_Aint,
            key if key == MPI_WIN_SIZE => address.cast::<MPI_Aint>().read(),
            NOTIFICATION_VALUE_UB => address.cast::<MPI_Count>().read() as MPI_Aint,
            _ => address.cast::<c_int>().read() as MPI_Aint,
        })
    }
}

/// All Fortran wrappers of MPICH read attributes by one function, with keyvals of their own for the
/// predefined ones.
#[cfg(mpi_host = "mpich")]
mod mpich {
    use super::*;

    /// Added to a predefined keyval, gives the one for Fortran (`MPIR_ATTR_C_TO_FORTRAN`).
    const TO_FORTRAN: c_int = 1;

    host_functions! {
        pub fn MPII_Win_get_attr(win: MPI_Win, keyval: c_int, attribute: *mut c_void,
            flag: *mut c_int, kind: c_int) -> c_int;
    }

    /// Returns an attribute in the form of the calling language.
    #[unsafe(export_name = "MPII_Win_get_attr")]
    unsafe extern "C" fn get_attr(
        win: MPI_Win,
        keyval: c_int,
        attribute: *mut c_void,
        flag: *mut c_int,
        kind: c_int,
    ) -> c_int {
        boundary("MPI_Win_get_attr", || {
            // The host does not know our keyvals. It checks the other arguments with one of its
            // own.
            let known = if is_ours(keyval) { MPI_WIN_SIZE + TO_FORTRAN } else { keyval };
            // SAFETY: the caller's arguments, passed on.
            let code = unsafe { MPII_Win_get_attr(win, known, attribute, flag, kind) };
            let of_mpi =
                || if is_ours(keyval) { Some(keyval) } else { keyval.checked_sub(TO_FORTRAN) };
            if code == MPI_SUCCESS
                && let Some(value) = of_mpi().and_then(|keyval| value(win, keyval))
            {
                // SAFETY: MPICH gives room for an integer as wide as an address.
                unsafe { attribute.cast::<MPI_Aint>().write_unaligned(value) };
            }
            code
        })
    }
}

/// All Fortran wrappers of Open MPI call one of these names: `mpi_*` from `mpif.h` and `use mpi`,
/// `pmpi_*` from the module `mpi_f08`. The underscores depend on the compiler.
#[cfg(mpi_host = "openmpi")]
mod openmpi {
    use super::*;

    // A macro in its `mpi.h`.
    type Fint = c_int;

    host_functions! {
        pub fn pmpi_win_get_attr_(
            win: *mut Fint, keyval: *mut Fint, attribute: *mut MPI_Aint, flag: *mut Fint,
            ierr: *mut Fint);
    }

    macro_rules! names {
        ($($name:literal)*) => {$(
            const _: () = {
                /// Returns an attribute in the form of Fortran.
                #[unsafe(export_name = $name)]
                unsafe extern "C" fn get_attr(
                    win: *mut Fint,
                    keyval: *mut Fint,
                    attribute: *mut MPI_Aint,
                    flag: *mut Fint,
                    ierr: *mut Fint,
                ) {
                    // SAFETY: the caller's arguments, passed on.
                    unsafe { answer(win, keyval, attribute, flag, ierr) }
                }
            };
        )*};
    }

    names! {
        "mpi_win_get_attr_" "mpi_win_get_attr" "mpi_win_get_attr__"
        "pmpi_win_get_attr_" "pmpi_win_get_attr" "pmpi_win_get_attr__"
    }

    /// # Safety
    /// As Open MPI's own.
    unsafe fn answer(
        win: *mut Fint,
        keyval: *mut Fint,
        attribute: *mut MPI_Aint,
        flag: *mut Fint,
        ierr: *mut Fint,
    ) {
        boundary("MPI_Win_get_attr", || {
            // SAFETY: the caller's arguments, passed on; in Fortran all are given by address.
            let (code, win, keyval) = unsafe {
                // An `ierror` that is left out is a null address.
                let mut code = MPI_SUCCESS;
                // The host does not know our keyvals. It checks the other arguments with one of its
                // own.
                let mut known = if is_ours(*keyval) { MPI_WIN_SIZE } else { *keyval };
                pmpi_win_get_attr_(win, &raw mut known, attribute, flag, &raw mut code);
                if !ierr.is_null() {
                    ierr.write(code);
                }
                (code, PMPI_Win_f2c(*win), *keyval)
            };
            if code == MPI_SUCCESS
                && let Some(value) = value(win, keyval)
            {
                // SAFETY: an integer as wide as an address, the application's.
                unsafe { attribute.write_unaligned(value) };
            }
            code
        });
    }
}
