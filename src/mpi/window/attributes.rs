//! The attributes of a window of ours that describe its memory and its notification counters.

use std::ffi::{c_int, c_void};

use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;
use crate::runtime::{HandleState, HostHandle, enter};

/// The keyvals of `mpix_notify.h`: numbers that neither host uses.
pub(crate) const NOTIFICATION_NUM_SB: c_int = -7301;
pub(crate) const NOTIFICATION_NUM_UB: c_int = -7302;
pub(crate) const NOTIFICATION_VALUE_UB: c_int = -7303;

/// Attributes with the same value for all windows. Applications get their addresses.
static MOST_COUNTERS: c_int = c_int::MAX;
static LARGEST_VALUE: MPI_Count = MPI_Count::MAX;

/// True for a keyval of this library.
pub(crate) fn is_ours(keyval: c_int) -> bool {
    [NOTIFICATION_NUM_SB, NOTIFICATION_NUM_UB, NOTIFICATION_VALUE_UB].contains(&keyval)
}

fn address_of<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

/// Returns an attribute of a window. For a window of ours, those that describe its memory come from
/// this library.
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
    // SAFETY: MPI requires of the application that each is NULL or memory, `attribute_val` for an
    // address and `flag` for an int, which no other thread uses during the call.
    let (value, flag) = unsafe { (Out::new(attribute_val.cast::<*mut c_void>()), Out::new(flag)) };
    boundary("MPI_Win_get_attr", || {
        let mut guard = enter();
        let ours = guard
            .windows
            .ours(HostHandle(win.key()))
            .filter(|_| !value.is_null() && !flag.is_null());
        let found = ours.and_then(|id| {
            // Applications get the addresses of these values, which are valid until the window is
            // freed.
            let attributes = &*guard[id].attributes;
            Some(match win_keyval {
                key if key == MPI_WIN_BASE => attributes.base as *mut c_void,
                key if key == MPI_WIN_SIZE => address_of(&attributes.size),
                key if key == MPI_WIN_DISP_UNIT => address_of(&attributes.disp_unit),
                key if key == MPI_WIN_CREATE_FLAVOR => address_of(&attributes.flavor),
                key if key == MPI_WIN_MODEL => address_of(&attributes.model),
                NOTIFICATION_NUM_SB => address_of(&attributes.notification_num_sb),
                NOTIFICATION_NUM_UB => address_of(&MOST_COUNTERS),
                NOTIFICATION_VALUE_UB => address_of(&LARGEST_VALUE),
                _ => return None,
            })
        });
        drop(guard);
        match found {
            Some(address) => {
                value.write(address);
                flag.write(1);
                MPI_SUCCESS
            }
            // A window of the host has no counters, and the host does not know our keyvals.
            None if is_ours(win_keyval)
                && !flag.is_null()
                && enter().windows.state(HostHandle(win.key())) == Some(HandleState::Host) =>
            {
                flag.write(0);
                MPI_SUCCESS
            }
            // SAFETY: the application's arguments, passed on.
            None => unsafe { PMPI_Win_get_attr(win, win_keyval, attribute_val, flag.as_ptr()) },
        }
    })
}

exports! {
    MPI_Win_get_attr(
        win: MPI_Win, win_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int);
}
