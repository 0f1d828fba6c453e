//! MPI sessions (MPI-4.1 11.3): programs that use MPI without, before or after `MPI_Init` and
//! `MPI_Finalize`.
//!
//! Opening a session is local, so the processes cannot agree on anything then. What they must do
//! alike [PR-5] follows from properties of the host: on a host without a progress hook, collectives
//! are driven from the first session on, whatever `MPIX_RMA` is. Whether this library serves a
//! window is agreed when the window is made, as always.
//!
//! Without `MPI_Init` there is no `MPI_COMM_SELF`, so the first window opens a session of this
//! library (`bootstrap/own_session.rs`). It ends before the application's last one.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::bootstrap::own_session;
use crate::mpi::init;

/// Open sessions of the application.
static OPEN: Mutex<u32> = Mutex::new(0);
static EVER: AtomicBool = AtomicBool::new(false);

fn number_open() -> MutexGuard<'static, u32> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if the application has ever opened a session.
pub(crate) fn ever() -> bool {
    EVER.load(Ordering::Acquire)
}

/// True if a session of the application is open.
pub(crate) fn is_open() -> bool {
    *number_open() != 0
}

/// Opens a session of the host. The first one starts this library.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Session_init(
    info: MPI_Info,
    errhandler: MPI_Errhandler,
    session: *mut MPI_Session,
) -> c_int {
    boundary("MPI_Session_init", || {
        // SAFETY: the application's arguments, passed on.
        let code = unsafe { PMPI_Session_init(info, errhandler, session) };
        if code == MPI_SUCCESS {
            let mut open = number_open();
            *open += 1;
            EVER.store(true, Ordering::Release);
            if *open == 1
                && !init::is_started()
                // SAFETY: the host has just written it.
                && let Some(session) = unsafe { Out::new(session) }.get()
            {
                let (rank, size) = rank_and_size(session);
                own_session::begin(size == 1);
                init::start_alone(rank, size);
            }
        }
        code
    })
}

/// Closes a session of the host. The last one shuts this library down.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Session_finalize(session: *mut MPI_Session) -> c_int {
    boundary("MPI_Session_finalize", || {
        let mut open = number_open();
        if *open == 1 {
            if !world::has_world() {
                init::finish_alone();
            }
            own_session::end();
        }
        // SAFETY: the application's argument, passed on.
        let code = unsafe { PMPI_Session_finalize(session) };
        if code == MPI_SUCCESS {
            *open = open.saturating_sub(1);
        }
        code
    })
}

exports! {
    MPI_Session_init(info: MPI_Info, errhandler: MPI_Errhandler, session: *mut MPI_Session);
    MPI_Session_finalize(session: *mut MPI_Session);
}

/// Rank of this process and number of processes in `mpi://WORLD`, for the log and for waiting.
fn rank_and_size(session: MPI_Session) -> (c_int, c_int) {
    let (mut rank, mut size) = (0, 1);
    let mut group = MPI_GROUP_NULL;
    if host_calls::session_group(session, c"mpi://WORLD", &mut group) == MPI_SUCCESS {
        host_calls::group_rank(group, &mut rank);
        host_calls::group_size(group, &mut size);
        host_calls::group_free(&mut group);
    }
    (rank, size)
}
