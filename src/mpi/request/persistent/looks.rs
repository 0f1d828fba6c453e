//! Calls that look at several requests and leave them as they are (MPI-4.1 3.7.6).

use std::ffi::c_int;

use super::{Mixed, active, fill, is_met};
use crate::mpi::abi::sys::*;
use crate::runtime::enter;
use crate::runtime::notices::State;
use crate::runtime::progress::step;

/// Fills the status of a request that does not wait any more.
///
/// # Safety
/// `status` is a place for a status, or ignored.
unsafe fn tell(request: MPI_Request, status: *mut MPI_Status) {
    let arrival = if let Some(State::Met(arrival)) = active(request) { arrival } else { None };
    // SAFETY: the caller's promise.
    unsafe { fill(status, arrival) };
}

/// The status at a place of a list that may be ignored.
///
/// # Safety
/// `statuses` has one there, or is MPI_STATUSES_IGNORE.
unsafe fn place(statuses: *mut MPI_Status, at: usize) -> *mut MPI_Status {
    // SAFETY: the caller's promise.
    if statuses == MPI_STATUSES_IGNORE { MPI_STATUS_IGNORE } else { unsafe { statuses.add(at) } }
}

/// `MPI_Request_get_status_all`; `host` is the call on the list without ours.
///
/// # Safety
/// As MPI says of the call, as of all others here.
pub(in crate::mpi) unsafe fn all(
    count: c_int,
    requests: *const MPI_Request,
    flag: *mut c_int,
    statuses: *mut MPI_Status,
    host: impl FnOnce(*const MPI_Request) -> c_int,
) -> Option<c_int> {
    // SAFETY: the application's arguments.
    let mixed = unsafe { Mixed::of(count, requests) }?;
    if !mixed.all_met() {
        step(enter());
        if !mixed.all_met() {
            // SAFETY: as above.
            unsafe { flag.write(0) };
            return Some(MPI_SUCCESS);
        }
    }
    let code = host(mixed.seen.as_ptr());
    // SAFETY: as above.
    unsafe {
        if code == MPI_SUCCESS && *flag != 0 {
            mixed.ours.iter().for_each(|(at, request)| tell(*request, place(statuses, *at)));
        }
    }
    Some(code)
}

/// `MPI_Request_get_status_any`
///
/// # Safety
/// As [`all`].
pub(in crate::mpi) unsafe fn any(
    count: c_int,
    requests: *const MPI_Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut MPI_Status,
    host: impl FnOnce(*const MPI_Request) -> c_int,
) -> Option<c_int> {
    // SAFETY: the application's arguments.
    let mixed = unsafe { Mixed::of(count, requests) }?;
    step(enter());
    // SAFETY: as above.
    unsafe {
        if let Some((at, request)) = mixed.ours.iter().find(|(_, request)| is_met(*request)) {
            flag.write(1);
            index.write(*at as c_int);
            tell(*request, status);
            return Some(MPI_SUCCESS);
        }
        let code = host(mixed.seen.as_ptr());
        if code == MPI_SUCCESS && *index == MPI_UNDEFINED {
            // Ours are active, if the host's are not.
            flag.write(0);
        }
        Some(code)
    }
}

/// `MPI_Request_get_status_some`: the host's, then ours behind them.
///
/// # Safety
/// As [`all`].
pub(in crate::mpi) unsafe fn some(
    count: c_int,
    requests: *const MPI_Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut MPI_Status,
    host: impl FnOnce(*const MPI_Request) -> c_int,
) -> Option<c_int> {
    // SAFETY: the application's arguments.
    let mixed = unsafe { Mixed::of(count, requests) }?;
    step(enter());
    let code = host(mixed.seen.as_ptr());
    if code != MPI_SUCCESS {
        return Some(code);
    }
    // SAFETY: as above; there are no more than requests.
    unsafe {
        let mut number = if *outcount == MPI_UNDEFINED { 0 } else { *outcount };
        for (at, request) in mixed.ours.iter().filter(|(_, request)| is_met(*request)) {
            indices.add(number as usize).write(*at as c_int);
            tell(*request, place(statuses, number as usize));
            number += 1;
        }
        outcount.write(number);
    }
    Some(MPI_SUCCESS)
}
