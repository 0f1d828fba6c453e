//! The driven forms of the calls that complete or test requests, and probes. The former are
//! interposed in `mpi/request/completion.rs`, which calls these functions for the host's requests.

use std::cell::Cell;
use std::ffi::c_int;

use super::interpose;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::mpi::progress::hook;
use crate::runtime::collectives::any_active;
use crate::runtime::continuations::{self, Thread};
use crate::runtime::pause;
use crate::runtime::progress::{may_be_contacted, must_drive, nothing_lives, sweep_from_hook};

/// Whether `MPI_Waitall` is driven. On hosts with a hook too, while this library has something to
/// drive: MPICH's own fails an assertion if a list has both a pending generalized request and
/// MPI_REQUEST_NULL (seen in 5.0.2).
pub(crate) fn drives_wait_all() -> bool {
    cfg!(mpi_host = "mpich")
        && (must_drive()
            || drive::collectives() && may_be_contacted()
            || continuations::pending() != 0)
        || pause::in_task()
}

/// Whether tests sweep: the host has no hook, and there are windows or active collectives.
pub(crate) fn tests_sweep() -> bool {
    drive::collectives() && (!nothing_lives() || any_active())
}

/// Whether `MPI_Testall` may meet generalized requests of ours, for which it needs
/// [`with_statuses`].
pub(crate) fn may_meet_generalized() -> bool {
    cfg!(mpi_host = "mpich") && (drive::collectives() || !nothing_lives())
}

/// The condition of `MPI_Testany`, which always goes through [`test_any`] on MPICH.
pub(crate) fn always_on_mpich() -> bool {
    cfg!(mpi_host = "mpich")
}

/// `MPI_Waitall` makes one step of progress per so many requests between two tests of all of them,
/// so a long list does not spend its time in tests. (Testing one request after the other would
/// raise the error of each, and `MPI_Waitall` the error of all once more.)
const REQUESTS_PER_STEP: c_int = 16;

/// `MPI_Waitall` of `requests`; `test` is `MPI_Testall` of them. Of many, waits for the last first,
/// which usually completes last.
pub(crate) fn wait_all(
    requests: Option<&[Cell<MPI_Request>]>,
    count: c_int,
    statuses: *mut MPI_Status,
    mut test: impl FnMut(&mut c_int, *mut MPI_Status) -> c_int,
) -> c_int {
    let last = requests.and_then(<[_]>::last).filter(|_| count >= REQUESTS_PER_STEP);
    if let Some(last) = last {
        let code = drive::until_flag(|flag| host_calls::request_get_status(last.get(), flag));
        if code != MPI_SUCCESS {
            return code;
        }
    }
    let mut steps = 0;
    with_statuses(count, statuses, |statuses| {
        drive::until_flag(|flag| {
            for _ in 0..steps {
                sweep_from_hook();
                hook::progress_host();
            }
            steps = count / REQUESTS_PER_STEP;
            test(flag, statuses)
        })
    })
}

/// Requests that MPICH's `MPI_Testall` tests in one batch (its default).
const BATCH: c_int = 64;

/// Gives `body` statuses to write if the application ignores them and there are more requests than
/// one batch. Without statuses, MPICH's `MPI_Testall` (4.0 to 5.0) takes all requests for sends and
/// receives if those of the last batch are, and fails an assertion at a generalized request in an
/// earlier batch.
pub(crate) fn with_statuses<T>(
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

/// Sweeps once, then runs the host's `test`.
pub(crate) fn step(test: impl FnOnce() -> c_int) -> c_int {
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
pub(crate) unsafe fn test_any(
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

/// Whether probes do more than the host's: they sweep, or a continuation may be all that the
/// program waits for.
fn probes_look() -> bool {
    tests_sweep() || cfg!(mpi_host = "mpich") && continuations::pending() != 0
}

/// Sweeps once, and runs continuations after the host's `test`.
fn probe(test: impl FnOnce() -> c_int) -> c_int {
    let code = step(test);
    continuations::run(Thread::Application);
    code
}

interpose! {
    probes_look;
    MPI_Iprobe(
        source: c_int, tag: c_int, comm: MPI_Comm, flag: *mut c_int, status: *mut MPI_Status
    ) => PMPI_Iprobe,
        probe(|| PMPI_Iprobe(source, tag, comm, flag, status));
    MPI_Improbe(
        source: c_int, tag: c_int, comm: MPI_Comm, flag: *mut c_int, message: *mut MPI_Message,
        status: *mut MPI_Status
    ) => PMPI_Improbe,
        probe(|| PMPI_Improbe(source, tag, comm, flag, message, status));
}
