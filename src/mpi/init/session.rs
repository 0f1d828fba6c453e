//! MPI sessions (MPI-4.1 11.3): programs that use MPI without, before or after `MPI_Init` and
//! `MPI_Finalize`.
//!
//! Opening a session is local, so the processes cannot agree on anything then. What they must do
//! alike [PR-5] follows from properties of the host: on a host without a progress hook, collectives
//! are driven from the first session on, whatever `MPIX_RMA` is. Whether this library serves a
//! window is agreed when the window is made, as always.
//!
//! Without `MPI_Init` there is no `MPI_COMM_SELF`, but this library needs a communicator to run the
//! host's progress and to make complete requests. So the first window opens a session of this
//! library, with a communicator of this process alone. Both are freed before the application's last
//! session ends.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::bootstrap::communicators;
use crate::mpi::init;
use crate::mpi::progress::hook;
use crate::mpi::request;

/// The sessions of this process.
struct Sessions {
    /// Open sessions of the application.
    open: u32,
    /// This library's session, and its communicator of this process alone.
    own: Option<(MPI_Session, MPI_Comm)>,
    /// `mpi://WORLD` has this process only.
    single: bool,
}

// SAFETY: the handles of the host may be used by any thread that may call MPI.
unsafe impl Send for Sessions {}

static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions { open: 0, own: None, single: false });
static EVER: AtomicBool = AtomicBool::new(false);

fn sessions() -> MutexGuard<'static, Sessions> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if the application has ever opened a session.
pub(crate) fn ever() -> bool {
    EVER.load(Ordering::Acquire)
}

/// True if a session of the application is open.
pub(crate) fn is_open() -> bool {
    sessions().open != 0
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
            let mut sessions = sessions();
            sessions.open += 1;
            EVER.store(true, Ordering::Release);
            if sessions.open == 1
                && !init::is_started()
                // SAFETY: the host has just written it.
                && let Some(session) = unsafe { Out::new(session) }.get()
            {
                let (rank, size) = rank_and_size(session);
                sessions.single = size == 1;
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
        let mut sessions = sessions();
        if sessions.open == 1 {
            if !world::has_world() {
                init::finish_alone();
            }
            if let Some((mut own, mut comm)) = sessions.own.take() {
                if !world::has_world() {
                    hook::use_comm(None);
                    request::use_comm(None);
                    communicators::use_own(None);
                }
                host_calls::comm_free(&mut comm);
                host_calls::session_finalize(&mut own);
            }
        }
        // SAFETY: the application's argument, passed on.
        let code = unsafe { PMPI_Session_finalize(session) };
        if code == MPI_SUCCESS {
            sessions.open = sessions.open.saturating_sub(1);
        }
        code
    })
}

exports! {
    MPI_Session_init(info: MPI_Info, errhandler: MPI_Errhandler, session: *mut MPI_Session);
    MPI_Session_finalize(session: *mut MPI_Session);
}

/// Makes this library's session and its communicator, unless they exist. Returns false if the host
/// cannot make them: then all windows are left to the host.
pub(crate) fn settle() -> bool {
    let mut sessions = sessions();
    if sessions.own.is_none() {
        sessions.own = alone();
        if sessions.own.is_none() {
            log::warn!(
                "the host cannot open a session for this library: windows are left to the host"
            );
        }
    }
    let Some((_, comm)) = sessions.own else { return false };
    // A single process needs no progress of the host, and MPICH 4.0 would crash in it.
    hook::use_comm((!sessions.single).then_some(comm));
    request::use_comm(Some(comm));
    communicators::use_own(Some(comm));
    true
}

/// Opens a session and makes a communicator of this process alone in it.
fn alone() -> Option<(MPI_Session, MPI_Comm)> {
    let mut group = MPI_GROUP_NULL;
    let mut comm = MPI_COMM_NULL;
    let mut session = host_calls::session_init()?;
    if host_calls::session_group(session, c"mpi://SELF", &mut group) == MPI_SUCCESS {
        let made = host_calls::comm_from_group(group, c"mpix-rma", &mut comm);
        host_calls::group_free(&mut group);
        if made == MPI_SUCCESS {
            return Some((session, comm));
        }
    }
    host_calls::session_finalize(&mut session);
    None
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
