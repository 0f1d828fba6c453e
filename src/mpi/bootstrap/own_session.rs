//! The session of this library.
//!
//! Without `MPI_Init` there is no `MPI_COMM_SELF`, but this library needs a communicator to run the
//! host's progress and to make complete requests. So the first window opens a session of this
//! library, with a communicator of this process alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::communicators;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::progress::hook;
use crate::mpi::request;

struct Own {
    /// The session, and its communicator of this process alone.
    open: Option<(MPI_Session, MPI_Comm)>,
    /// `mpi://WORLD` has this process only.
    single: bool,
}

// SAFETY: the handles of the host may be used by any thread that may call MPI.
unsafe impl Send for Own {}

static OWN: Mutex<Own> = Mutex::new(Own { open: None, single: false });

fn own() -> MutexGuard<'static, Own> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The application has opened its first session. `single`: `mpi://WORLD` has this process only.
pub(crate) fn begin(single: bool) {
    own().single = single;
}

/// Makes the session and its communicator, unless they exist. Returns false if the host cannot make
/// them: then all windows are left to the host.
pub(crate) fn settle() -> bool {
    let mut own = own();
    if own.open.is_none() {
        own.open = alone();
        if own.open.is_none() {
            log::warn!(
                "the host cannot open a session for this library: windows are left to the host"
            );
        }
    }
    let Some((_, comm)) = own.open else { return false };
    // A single process needs no progress of the host, and MPICH 4.0 would crash in it.
    hook::use_comm((!own.single).then_some(comm));
    request::use_comm(Some(comm));
    communicators::use_own(Some(comm));
    true
}

/// Closes the session, if it is open. The application's last one ends.
pub(crate) fn end() {
    let Some((mut session, mut comm)) = own().open.take() else { return };
    if !world::has_world() {
        hook::use_comm(None);
        request::use_comm(None);
        communicators::use_own(None);
    }
    host_calls::comm_free(&mut comm);
    host_calls::session_finalize(&mut session);
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
