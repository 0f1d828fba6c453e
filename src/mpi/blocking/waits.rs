//! Completion calls.

use std::ffi::c_int;

use super::interpose;
use crate::mpi::sys::*;
use crate::mpi::{drive, hook};
use crate::runtime::progress::{must_drive, nothing_lives, sweep_from_hook};

/// From this many requests on, `MPI_Waitall` looks at one after the other instead of at all in each round.
const MANY: c_int = 16;

interpose! {
    drive::now;
    MPI_Wait(request: *mut MPI_Request, status: *mut MPI_Status) => PMPI_Wait, drive::wait(request, status);
    MPI_Waitany(count: c_int, requests: *mut MPI_Request, index: *mut c_int, status: *mut MPI_Status) => PMPI_Waitany,
        drive::until(|| {
            let mut flag = 0;
            let code = PMPI_Testany(count, requests, index, &raw mut flag, status);
            (code != MPI_SUCCESS || flag != 0).then_some(code)
        });
    MPI_Waitsome(
        incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int, statuses: *mut MPI_Status,
    ) => PMPI_Waitsome,
        drive::until(|| {
            let code = PMPI_Testsome(incount, requests, outcount, indices, statuses);
            (code != MPI_SUCCESS || outcount.is_null() || *outcount != 0).then_some(code)
        });
}

interpose! {
    // On hosts with a hook too: MPICH's own stops with an assertion when a pending generalized request stands in one list
    // with a null request (seen in 5.0.2).
    must_drive;
    MPI_Waitall(count: c_int, requests: *mut MPI_Request, statuses: *mut MPI_Status) => PMPI_Waitall,
        wait_all(count, requests, statuses);
}

/// # Safety
/// As `MPI_Waitall`.
unsafe fn wait_all(count: c_int, requests: *mut MPI_Request, statuses: *mut MPI_Status) -> c_int {
    if count >= MANY && !requests.is_null() {
        for at in 0..count as usize {
            // SAFETY: MPI gives the array `count` entries.
            let request = unsafe { *requests.add(at) };
            if request == MPI_REQUEST_NULL {
                continue;
            }
            drive::until(|| {
                let mut flag = 0;
                // SAFETY: the application's request; asking leaves it as it is.
                let code = unsafe { PMPI_Request_get_status(request, &raw mut flag, MPI_STATUS_IGNORE) };
                // An error is told by the call below, in its place.
                (code != MPI_SUCCESS || flag != 0).then_some(())
            });
        }
    }
    drive::until(|| {
        let mut flag = 0;
        // SAFETY: the application's arguments, passed on.
        let code = unsafe { PMPI_Testall(count, requests, &raw mut flag, statuses) };
        (code != MPI_SUCCESS || flag != 0).then_some(code)
    })
}

/// One sweep, then the host's look.
fn step(look: impl FnOnce() -> c_int) -> c_int {
    sweep_from_hook();
    // The poll functions of our requests would sweep again, each.
    let before = hook::set_looping(true);
    let code = look();
    hook::set_looping(before);
    code
}

fn lives() -> bool {
    drive::collectives() && !nothing_lives()
}

interpose! {
    lives;
    MPI_Test(request: *mut MPI_Request, flag: *mut c_int, status: *mut MPI_Status) => PMPI_Test,
        step(|| PMPI_Test(request, flag, status));
    MPI_Testall(count: c_int, requests: *mut MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status) => PMPI_Testall,
        step(|| PMPI_Testall(count, requests, flag, statuses));
    MPI_Testany(
        count: c_int, requests: *mut MPI_Request, index: *mut c_int, flag: *mut c_int, status: *mut MPI_Status,
    ) => PMPI_Testany,
        step(|| PMPI_Testany(count, requests, index, flag, status));
    MPI_Testsome(
        incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int, statuses: *mut MPI_Status,
    ) => PMPI_Testsome,
        step(|| PMPI_Testsome(incount, requests, outcount, indices, statuses));
    MPI_Request_get_status(request: MPI_Request, flag: *mut c_int, status: *mut MPI_Status) => PMPI_Request_get_status,
        step(|| PMPI_Request_get_status(request, flag, status));
    MPI_Iprobe(source: c_int, tag: c_int, comm: MPI_Comm, flag: *mut c_int, status: *mut MPI_Status) => PMPI_Iprobe,
        step(|| PMPI_Iprobe(source, tag, comm, flag, status));
    MPI_Improbe(
        source: c_int, tag: c_int, comm: MPI_Comm, flag: *mut c_int, message: *mut MPI_Message, status: *mut MPI_Status,
    ) => PMPI_Improbe,
        step(|| PMPI_Improbe(source, tag, comm, flag, message, status));
}
