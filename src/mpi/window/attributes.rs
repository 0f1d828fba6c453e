//! The attributes of a window of ours that describe its memory and its notification counters.

use std::ffi::{c_int, c_void};

use crate::mpi::error::boundary;
use crate::mpi::host::exports;
use crate::mpi::sys::*;
use crate::runtime::{Entry, HostHandle, enter};

/// Keys of our own, as `mpix_notify.h` has them: numbers that neither host gives out.
pub(crate) const NOTIFICATION_NUM_SB: c_int = -7301;
pub(crate) const NOTIFICATION_NUM_UB: c_int = -7302;
pub(crate) const NOTIFICATION_VALUE_UB: c_int = -7303;

/// Bounds that are the same for all windows: MPI gives out their addresses.
static MOST_COUNTERS: c_int = c_int::MAX;
static LARGEST_VALUE: MPI_Count = MPI_Count::MAX;

/// True for a key of our own.
pub(crate) fn is_ours(keyval: c_int) -> bool {
    [NOTIFICATION_NUM_SB, NOTIFICATION_NUM_UB, NOTIFICATION_VALUE_UB].contains(&keyval)
}

/// Tells a window's attributes; those that describe the memory of a window of ours are answered
/// here.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Win_get_attr(
    win: MPI_Win,
    win_keyval: c_int,
    attribute_val: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    boundary("MPI_Win_get_attr", || {
        let ours = enter()
            .windows
            .ours(HostHandle(win.key()))
            .filter(|_| !attribute_val.is_null() && !flag.is_null());
        let found = ours.and_then(|window| {
            // SAFETY: the window is live, and its attributes do not change; MPI gives out their
            // addresses, valid until the window is freed.
            let attributes = unsafe { &raw const (*window.as_ptr()).attributes };
            // SAFETY: as above.
            unsafe {
                Some(match win_keyval {
                    key if key == MPI_WIN_BASE => (*attributes).base as *mut c_void,
                    key if key == MPI_WIN_SIZE => (&raw const (*attributes).size).cast_mut().cast(),
                    key if key == MPI_WIN_DISP_UNIT => {
                        (&raw const (*attributes).disp_unit).cast_mut().cast()
                    }
                    key if key == MPI_WIN_CREATE_FLAVOR => {
                        (&raw const (*attributes).flavor).cast_mut().cast()
                    }
                    key if key == MPI_WIN_MODEL => {
                        (&raw const (*attributes).model).cast_mut().cast()
                    }
                    NOTIFICATION_NUM_SB => {
                        (&raw const (*attributes).notification_num_sb).cast_mut().cast()
                    }
                    NOTIFICATION_NUM_UB => (&raw const MOST_COUNTERS).cast_mut().cast(),
                    NOTIFICATION_VALUE_UB => (&raw const LARGEST_VALUE).cast_mut().cast(),
                    _ => return None,
                })
            }
        });
        match found {
            Some(value) => {
                // SAFETY: MPI gives `attribute_val` room for an address, and `flag` for an int.
                unsafe {
                    attribute_val.cast::<*mut c_void>().write_unaligned(value);
                    flag.write(1);
                }
                MPI_SUCCESS
            }
            // A window of the host has no counters, and the host does not know the key.
            None if is_ours(win_keyval)
                && !flag.is_null()
                && enter().windows.entry(HostHandle(win.key())) == Some(Entry::Host) =>
            {
                // SAFETY: as above.
                unsafe { flag.write(0) };
                MPI_SUCCESS
            }
            // SAFETY: the application's arguments, passed on.
            None => unsafe { PMPI_Win_get_attr(win, win_keyval, attribute_val, flag) },
        }
    })
}

exports! { MPI_Win_get_attr(win: MPI_Win, win_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int); }
