//! Continuations: callbacks that run when requests are complete.

use std::ffi::{c_int, c_void};

use crate::mpi::abi::argument::{Out, in_out, list_or_empty};
use crate::mpi::abi::error::{Fault, Place, boundary, raise};
use crate::mpi::abi::host::exports;
use crate::mpi::abi::status::Statuses;
use crate::mpi::abi::sys::*;
use crate::mpi::info;
use crate::mpi::request::continuation::{self, Arguments, Function, Owner};

/// Makes `body` one of our calls, whose errors go to the handler of `MPI_COMM_WORLD`.
pub(super) fn call(name: &'static str, body: impl FnOnce() -> Result<(), Fault>) -> c_int {
    boundary(name, || match body() {
        Ok(()) => MPI_SUCCESS,
        Err(fault) => raise(name, Place::World, fault),
    })
}

/// Makes a continuation request, which is persistent and inactive.
///
/// # Safety
/// `cont_req` is NULL (an error) or has room for a request.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Continue_init(
    flags: c_int,
    max_poll: c_int,
    info: MPI_Info,
    cont_req: *mut MPI_Request,
) -> c_int {
    call("MPIX_Continue_init", || {
        // SAFETY: the contract of this call says so of `cont_req`.
        let made = unsafe { Out::new(cont_req) };
        continuation::init(flags, max_poll, info::continues_on_any_thread(info)?, made)
    })
}

/// Has `cb(code, data)` called when a request is complete.
///
/// # Safety
/// `request` and `status` are NULL, or belong to this library until the callback is called:
/// `request` with `MPIX_CONT_REQUESTS_FREE` only until this call returns.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Continue(
    request: *mut MPI_Request,
    cb: Option<Function>,
    data: *mut c_void,
    flags: c_int,
    status: *mut MPI_Status,
    cont_req: MPI_Request,
) -> c_int {
    call("MPIX_Continue", || {
        // SAFETY: the contract of this call says so of `request` and `status`.
        let (request, statuses) = unsafe { (in_out(request), Statuses::new(status, 1)) };
        let Some(request) = request else {
            return Err(Fault::new(MPI_ERR_REQUEST, "request is NULL"));
        };
        continuation::attach(&Arguments {
            requests: Some(std::slice::from_ref(request)),
            function: cb,
            data,
            flags,
            statuses,
            owner: Owner::Request(cont_req),
        })
    })
}

/// Has `cb(code, data)` called when `count` requests are complete.
///
/// # Safety
/// As [`MPIX_Continue`], for arrays of `count` requests and statuses.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Continueall(
    count: c_int,
    requests: *mut MPI_Request,
    cb: Option<Function>,
    data: *mut c_void,
    flags: c_int,
    statuses: *mut MPI_Status,
    cont_req: MPI_Request,
) -> c_int {
    call("MPIX_Continueall", || {
        // SAFETY: the contract of this call says so of `requests` and `statuses`.
        let (all, statuses) =
            unsafe { (list_or_empty(requests, count), Statuses::new(statuses, count)) };
        continuation::attach(&Arguments {
            requests: all,
            function: cb,
            data,
            flags,
            statuses,
            owner: Owner::Request(cont_req),
        })
    })
}

/// Returns the data of continuations that have failed.
///
/// # Safety
/// `count` is NULL (an error) or an int, and `data` has room for as many addresses as it says.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Continue_get_failed(
    cont_req: MPI_Request,
    count: *mut c_int,
    data: *mut *mut c_void,
) -> c_int {
    call("MPIX_Continue_get_failed", || {
        // SAFETY: the contract of this call says so of `count` and `data`.
        let (count, room) = unsafe {
            let Some(count) = in_out(count) else {
                return Err(Fault::new(MPI_ERR_ARG, "count is NULL"));
            };
            (count, list_or_empty(data, count.get()))
        };
        if count.get() < 0 {
            return Err(Fault::new(MPI_ERR_COUNT, "count is negative"));
        }
        let Some(room) = room else {
            return Err(Fault::new(MPI_ERR_ARG, "cb_data is NULL"));
        };
        let failed =
            continuation::take_failed(cont_req, count.get(), |at, data| room[at].set(data))?;
        count.set(failed);
        Ok(())
    })
}

exports! {
    MPIX_Continue_init(
        flags: c_int, max_poll: c_int, info: MPI_Info, cont_req: *mut MPI_Request);
    MPIX_Continue(
        request: *mut MPI_Request, cb: Option<Function>, data: *mut c_void, flags: c_int,
        status: *mut MPI_Status, cont_req: MPI_Request);
    MPIX_Continueall(
        count: c_int, requests: *mut MPI_Request, cb: Option<Function>, data: *mut c_void,
        flags: c_int, statuses: *mut MPI_Status, cont_req: MPI_Request);
    MPIX_Continue_get_failed(
        cont_req: MPI_Request, count: *mut c_int, data: *mut *mut c_void);
}
