//! MPI sessions (MPI-4.1 11.3): programs that use MPI without, before or after `MPI_Init` and
//! `MPI_Finalize`.
//!
//! A session is opened by one process alone, so nothing can be agreed then. What every process must
//! do alike [PR-5] is therefore decided by what is alike: on a host without a progress hook,
//! collectives are made in their nonblocking form from the first session on, whatever `MPIX_RMA`
//! says. Which windows are ours is agreed when a window is made, as always.
//!
//! `MPI_COMM_SELF` is not there without `MPI_Init`. The host needs a communicator all the same, to
//! be driven and to make requests that are complete: one of this process alone, in a session of our
//! own, made with the first window and given back before the application's last session ends.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::init;
use crate::mpi::progress::hook;
use crate::mpi::request;

/// What is known of this process's sessions.
struct Sessions {
    /// The application's, that are open.
    open: u32,
    /// Ours, and its communicator of this process alone.
    own: Option<(MPI_Session, MPI_Comm)>,
    /// No other process was started with this one.
    single: bool,
}

// SAFETY: the handles of the host may be used by any thread that may call MPI.
unsafe impl Send for Sessions {}

static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions { open: 0, own: None, single: false });
/// The application has opened a session since the process began.
static EVER: AtomicBool = AtomicBool::new(false);

fn sessions() -> MutexGuard<'static, Sessions> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if the application has ever opened a session: then other processes may use MPI that have
/// agreed on nothing with us.
pub(crate) fn ever() -> bool {
    EVER.load(Ordering::Acquire)
}

/// True if a session of the application is open.
pub(crate) fn is_open() -> bool {
    sessions().open != 0
}

/// Starts MPI for one part of the program, then us.
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

/// Ends one part of the program, and with the last one us.
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

/// Makes what the host needs without `MPI_COMM_SELF`, once. False if it cannot be made: then no
/// window is ours.
pub(crate) fn settle() -> bool {
    let mut sessions = sessions();
    if sessions.own.is_none() {
        sessions.own = alone();
        if sessions.own.is_none() {
            log::warn!("the host gives this library no session: windows are left to the host");
        }
    }
    let Some((_, comm)) = sessions.own else { return false };
    // A process that is alone has nobody to be driven for, and MPICH 4.0 takes a signal when it is
    // driven then.
    hook::use_comm((!sessions.single).then_some(comm));
    request::use_comm(Some(comm));
    true
}

/// A session and in it a communicator of this process alone.
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

/// This process's rank and the number of all that were started with it, for the log and for
/// waiting.
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
