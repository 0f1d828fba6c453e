//! Neighbourhood collectives, made in their nonblocking forms, and what a broadcast needs for that.
//! The job agrees on it at `MPI_Init`, since the two forms do not match each other [PR-5]. The
//! other collectives are in `mpi::collective`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::interpose;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::runtime::process::multiple;

/// Whether the application has made an error handler. Until then communicators have predefined
/// ones, and a broadcast need not ask for them.
static HAS_ERRHANDLERS: AtomicBool = AtomicBool::new(false);

/// The calls that make an error handler for communicators.
macro_rules! make_errhandler {
    ($($name:ident => $host:ident;)*) => {
        $(
            /// Interposed to learn that the application makes error handlers.
            ///
            /// # Safety
            /// As MPI says of the call.
            pub unsafe extern "C" fn $name(
                function: MPI_Comm_errhandler_function,
                errhandler: *mut MPI_Errhandler,
            ) -> c_int {
                HAS_ERRHANDLERS.store(true, Ordering::Relaxed);
                // SAFETY: the application's arguments, passed on.
                unsafe { $host(function, errhandler) }
            }
        )*
        exports! {
            $($name(function: MPI_Comm_errhandler_function, errhandler: *mut MPI_Errhandler);)*
        }
    };
}

make_errhandler! {
    MPI_Comm_create_errhandler => PMPI_Comm_create_errhandler;
}
// Open MPI's mpi.h no longer declares it.
#[cfg(mpi_host = "mpich")]
make_errhandler! {
    MPI_Errhandler_create => PMPI_Errhandler_create;
}

/// A communicator whose error handler is replaced by `MPI_ERRORS_RETURN` while the host reports an
/// error whose class this library corrects.
struct SuspendedErrhandler {
    comm: MPI_Comm,
    /// The handler, if it is a function of the application.
    handler: Option<MPI_Errhandler>,
}

impl SuspendedErrhandler {
    /// # Errors
    /// The communicator is invalid; the host has raised the error.
    fn new(comm: MPI_Comm) -> Result<Self, c_int> {
        // Another thread's calls on this communicator need the handler.
        if multiple() || !HAS_ERRHANDLERS.load(Ordering::Relaxed) {
            return Ok(SuspendedErrhandler { comm, handler: None });
        }
        let mut handler = MPI_ERRORS_RETURN;
        let code = host_calls::comm_get_errhandler(comm, &mut handler);
        if code != MPI_SUCCESS {
            return Err(code);
        }
        if [MPI_ERRORS_RETURN, MPI_ERRORS_ARE_FATAL, MPI_ERRORS_ABORT].contains(&handler) {
            host_calls::errhandler_free(&mut handler);
            return Ok(SuspendedErrhandler { comm, handler: None });
        }
        host_calls::comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        Ok(SuspendedErrhandler { comm, handler: Some(handler) })
    }

    /// Restores the handler, and raises the error on it.
    fn restore(self, code: c_int) {
        let Some(mut handler) = self.handler else { return };
        host_calls::comm_set_errhandler(self.comm, handler);
        host_calls::errhandler_free(&mut handler);
        if code != MPI_SUCCESS {
            host_calls::comm_call_errhandler(self.comm, code);
        }
    }
}

/// Makes a blocking broadcast in its nonblocking form. If a message is longer than the buffer,
/// MPICH's blocking form returns `MPI_ERR_TRUNCATE` and its nonblocking form `MPI_ERR_OTHER`; this
/// returns the former. (For a message that is too short both return `MPI_ERR_OTHER`, but the
/// nonblocking form does not distinguish the two cases.)
pub(crate) fn broadcast(comm: MPI_Comm, start: impl FnOnce(*mut MPI_Request) -> c_int) -> c_int {
    let suspended = match SuspendedErrhandler::new(comm) {
        Ok(suspended) => suspended,
        Err(code) => return code,
    };
    let mut code = drive::through(start, Status::ignored());
    let mut class = code;
    if code != MPI_SUCCESS {
        host_calls::error_class(code, &mut class);
        if class == MPI_ERR_OTHER {
            code = MPI_ERR_TRUNCATE;
        }
    }
    suspended.restore(code);
    code
}

/// A table of collectives: the call, the host's blocking and nonblocking forms, the parameters.
macro_rules! collectives {
    ($($name:ident $blocking:ident $nonblocking:ident ($($arg:ident: $type:ty),* $(,)?);)*) => {
        interpose! {
            drive::collectives;
            $($name($($arg: $type),*) => $blocking,
                drive::through(|request| $nonblocking($($arg,)* request), Status::ignored());)*
        }
    };
}

/// Collectives with counts, for one type of counts and of displacements.
macro_rules! counted {
    ($count:ty, $displ:ty;
     all: $($all:ident $pall:ident $iall:ident,)*;
     allgatherv: $allgatherv:ident $pallgatherv:ident $iallgatherv:ident;
     alltoallv: $alltoallv:ident $palltoallv:ident $ialltoallv:ident;
     alltoallw: $alltoallw:ident $palltoallw:ident $ialltoallw:ident) => {
        collectives! {
            $($all $pall $iall(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype, comm: MPI_Comm);)*
            $allgatherv $pallgatherv $iallgatherv(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcounts: *const $count, displs: *const $displ,
                recvtype: MPI_Datatype, comm: MPI_Comm);
            $alltoallv $palltoallv $ialltoallv(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const $displ,
                sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const $displ, recvtype: MPI_Datatype, comm: MPI_Comm);
            $alltoallw $palltoallw $ialltoallw(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const MPI_Aint,
                sendtypes: *const MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const MPI_Aint, recvtypes: *const MPI_Datatype, comm: MPI_Comm);
        }
    };
}

counted! {
    c_int, c_int;
    all: MPI_Neighbor_allgather PMPI_Neighbor_allgather PMPI_Ineighbor_allgather,
        MPI_Neighbor_alltoall PMPI_Neighbor_alltoall PMPI_Ineighbor_alltoall,;
    allgatherv: MPI_Neighbor_allgatherv PMPI_Neighbor_allgatherv PMPI_Ineighbor_allgatherv;
    alltoallv: MPI_Neighbor_alltoallv PMPI_Neighbor_alltoallv PMPI_Ineighbor_alltoallv;
    alltoallw: MPI_Neighbor_alltoallw PMPI_Neighbor_alltoallw PMPI_Ineighbor_alltoallw
}

#[cfg(mpi_large_count)]
counted! {
    MPI_Count, MPI_Aint;
    all: MPI_Neighbor_allgather_c PMPI_Neighbor_allgather_c PMPI_Ineighbor_allgather_c,
        MPI_Neighbor_alltoall_c PMPI_Neighbor_alltoall_c PMPI_Ineighbor_alltoall_c,;
    allgatherv: MPI_Neighbor_allgatherv_c PMPI_Neighbor_allgatherv_c PMPI_Ineighbor_allgatherv_c;
    alltoallv: MPI_Neighbor_alltoallv_c PMPI_Neighbor_alltoallv_c PMPI_Ineighbor_alltoallv_c;
    alltoallw: MPI_Neighbor_alltoallw_c PMPI_Neighbor_alltoallw_c PMPI_Ineighbor_alltoallw_c
}
