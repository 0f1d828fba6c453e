//! The host's checks of arguments.
//!
//! The host's own init call checks the arguments of a persistent collective, and the request that
//! it makes is freed. On Open MPI 4.1.4, some such requests take a tag of the communicator in a
//! part of its processes only, and its next nonblocking collective hangs. So the call gets a
//! duplicate of the communicator, on which nothing communicates. Each communicator has one, made at
//! its first persistent collective.

use std::cell::Cell;
use std::ffi::c_int;

use hashbrown::HashMap;

use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::endings::watch;
use crate::mpi::collective::own_comm::OwnComm;
use crate::runtime::process::Own;

/// The duplicates, by the keys of the communicators.
// SAFETY: any thread may use and drop handles.
static DUPLICATES: Own<Option<HashMap<u64, OwnComm>>> = unsafe { Own::new(None) };

/// Has the host check a call that makes a persistent collective of `comm`. Collective. `call` makes
/// the host's call; an error that it returns as `Err` has been reported.
pub(super) fn run(
    comm: MPI_Comm,
    call: impl FnOnce(MPI_Comm, *mut MPI_Request) -> Result<c_int, c_int>,
) -> Result<(), c_int> {
    let request = Cell::new(MPI_REQUEST_NULL);
    let duplicate = if comm == MPI_COMM_NULL { comm } else { duplicate(comm)? };
    let code = call(duplicate, request.as_ptr())?;
    if code != MPI_SUCCESS {
        if comm != MPI_COMM_NULL {
            host_calls::comm_call_errhandler(comm, code);
        }
        return Err(code);
    }
    if request.get() != MPI_REQUEST_NULL {
        host_calls::request_free(&request);
    }
    Ok(())
}

/// The duplicate of a communicator.
///
/// # Errors
/// The host's, which it has reported.
fn duplicate(comm: MPI_Comm) -> Result<MPI_Comm, c_int> {
    let known = DUPLICATES.with(|all| all.as_ref()?.get(&comm.key()).map(|own| own.0));
    if let Some(known) = known {
        return Ok(known);
    }
    let own = OwnComm::duplicate(comm)?;
    let made = own.0;
    DUPLICATES.with(|all| _ = all.get_or_insert_default().insert(comm.key(), own));
    watch(comm);
    Ok(made)
}

/// Frees the duplicate of a communicator that ends.
pub(super) fn forget(comm: MPI_Comm) {
    // Freed outside of the lock, here and below.
    drop(DUPLICATES.with(|all| all.as_mut()?.remove(&comm.key())));
}

/// Frees all. Call it before MPI is finalized.
pub(super) fn clear() {
    drop(DUPLICATES.with(Option::take));
}
