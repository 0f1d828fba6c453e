//! Completion calls of the host's requests and of ours that are generalized requests. Those of
//! persistent ones are answered before (`request/completion.rs`).

use std::ffi::c_int;

use super::{driven, interpose};
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::mpi::progress::hook;
use crate::runtime::progress::{may_be_contacted, must_drive, nothing_lives, sweep_from_hook};

/// Between two tests of all its requests, `MPI_Waitall` makes one step of progress for so many of
/// them: so a long list does not spend its time in tests. (Testing one request after the other
/// would raise the error of each, and `MPI_Waitall` the error of all once more.)
const REQUESTS_PER_STEP: c_int = 16;

driven! {
    drive::must_drive_now;
    MPI_Wait(
        request: *mut MPI_Request, status: *mut MPI_Status
    ) => PMPI_Wait, drive::wait(request, status);
    MPI_Waitany(
        count: c_int, requests: *mut MPI_Request, index: *mut c_int, status: *mut MPI_Status
    ) => PMPI_Waitany,
        drive::until(|| {
            let mut flag = 0;
            let code = test_any(count, requests, index, &raw mut flag, status);
            (code != MPI_SUCCESS || flag != 0).then_some(code)
        });
    MPI_Waitsome(
        incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int,
        statuses: *mut MPI_Status
    ) => PMPI_Waitsome,
        drive::until(|| {
            let code = PMPI_Testsome(incount, requests, outcount, indices, statuses);
            (code != MPI_SUCCESS || outcount.is_null() || *outcount != 0).then_some(code)
        });
}

driven! {
    // On hosts with a hook too: MPICH's own fails an assertion if a list has both a pending
    // generalized request and MPI_REQUEST_NULL (seen in 5.0.2).
    must_wait_here;
    MPI_Waitall(
        count: c_int, requests: *mut MPI_Request, statuses: *mut MPI_Status
    ) => PMPI_Waitall,
        wait_all(count, |statuses, flag| PMPI_Testall(count, requests, flag, statuses), statuses);
}

/// `MPI_Waitall`; `test` is `MPI_Testall` of its requests.
fn wait_all(
    count: c_int,
    mut test: impl FnMut(*mut MPI_Status, *mut c_int) -> c_int,
    statuses: *mut MPI_Status,
) -> c_int {
    let mut steps = 0;
    with_statuses(count, statuses, |statuses| {
        drive::until(|| {
            for _ in 0..steps {
                sweep_from_hook();
                hook::progress_host();
            }
            steps = count / REQUESTS_PER_STEP;
            let mut flag = 0;
            let code = test(statuses, &raw mut flag);
            (code != MPI_SUCCESS || flag != 0).then_some(code)
        })
    })
}

/// Requests that MPICH's `MPI_Testall` tests in one batch (its default).
const BATCH: c_int = 64;

/// Gives `body` statuses to write if the application ignores them and there are more requests than
/// one batch. Without statuses, MPICH's `MPI_Testall` (4.0 to 5.0) takes all requests for sends and
/// receives if those of the last batch are, and fails an assertion at a generalized request in an
/// earlier batch.
fn with_statuses<T>(
    count: c_int,
    statuses: *mut MPI_Status,
    body: impl FnOnce(*mut MPI_Status) -> T,
) -> T {
    if count <= BATCH || statuses != MPI_STATUSES_IGNORE {
        return body(statuses);
    }
    let mut unwanted = Vec::<MPI_Status>::with_capacity(count as usize);
    body(unwanted.as_mut_ptr())
}

/// One sweep, then the host's `test`.
fn step(test: impl FnOnce() -> c_int) -> c_int {
    sweep_from_hook();
    // The poll function of each of our requests would sweep again.
    let before = hook::set_looping(true);
    let code = test();
    hook::set_looping(before);
    code
}

/// `MPI_Testany`. Where no request is active, MPICH's own (4.0) leaves the status as it is if one
/// is persistent; MPI gives the empty status (MPI-4.1 3.7.5).
///
/// # Safety
/// As MPI says of the call.
unsafe fn test_any(
    count: c_int,
    requests: *mut MPI_Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the application's arguments, passed on; the host has checked the places if it gives
    // success.
    unsafe {
        let code = PMPI_Testany(count, requests, index, flag, status);
        if code == MPI_SUCCESS && *flag != 0 && *index == MPI_UNDEFINED {
            Status::new(status).fill_empty();
        }
        code
    }
}

fn always() -> bool {
    true
}

driven! {
    always;
    MPI_Testany(
        count: c_int, requests: *mut MPI_Request, index: *mut c_int, flag: *mut c_int,
        status: *mut MPI_Status
    ) => PMPI_Testany,
        match lives() {
            true => step(|| test_any(count, requests, index, flag, status)),
            false => test_any(count, requests, index, flag, status),
        };
}

fn must_wait_here() -> bool {
    must_drive() || drive::collectives() && may_be_contacted()
}

fn lives() -> bool {
    drive::collectives() && !nothing_lives()
}

fn may_meet_ours() -> bool {
    drive::collectives() || !nothing_lives()
}

driven! {
    may_meet_ours;
    MPI_Testall(
        count: c_int, requests: *mut MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status
    ) => PMPI_Testall,
        with_statuses(count, statuses, |statuses| {
            step(|| PMPI_Testall(count, requests, flag, statuses))
        });
}

driven! {
    lives;
    MPI_Test(request: *mut MPI_Request, flag: *mut c_int, status: *mut MPI_Status) => PMPI_Test,
        step(|| PMPI_Test(request, flag, status));
    MPI_Testsome(
        incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int,
        statuses: *mut MPI_Status
    ) => PMPI_Testsome,
        step(|| PMPI_Testsome(incount, requests, outcount, indices, statuses));
    MPI_Request_get_status(
        request: MPI_Request, flag: *mut c_int, status: *mut MPI_Status
    ) => PMPI_Request_get_status,
        step(|| PMPI_Request_get_status(request, flag, status));
}

#[cfg(mpi_status_lists)]
driven! {
    lives;
    MPI_Request_get_status_all(
        count: c_int, requests: *const MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status
    )
        => PMPI_Request_get_status_all,
        step(|| PMPI_Request_get_status_all(count, requests, flag, statuses));
    MPI_Request_get_status_any(
        count: c_int, requests: *const MPI_Request, index: *mut c_int, flag: *mut c_int,
        status: *mut MPI_Status
    ) => PMPI_Request_get_status_any,
        step(|| PMPI_Request_get_status_any(count, requests, index, flag, status));
    MPI_Request_get_status_some(
        incount: c_int, requests: *const MPI_Request, outcount: *mut c_int, indices: *mut c_int,
        statuses: *mut MPI_Status
    ) => PMPI_Request_get_status_some,
        step(|| PMPI_Request_get_status_some(incount, requests, outcount, indices, statuses));
}

interpose! {
    lives;
    MPI_Iprobe(
        source: c_int, tag: c_int, comm: MPI_Comm, flag: *mut c_int, status: *mut MPI_Status
    ) => PMPI_Iprobe,
        step(|| PMPI_Iprobe(source, tag, comm, flag, status));
    MPI_Improbe(
        source: c_int, tag: c_int, comm: MPI_Comm, flag: *mut c_int, message: *mut MPI_Message,
        status: *mut MPI_Status
    ) => PMPI_Improbe,
        step(|| PMPI_Improbe(source, tag, comm, flag, message, status));
}
