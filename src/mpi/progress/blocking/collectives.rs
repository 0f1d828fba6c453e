//! Blocking collectives, made in their nonblocking forms. The job agrees on it at `MPI_Init`, since
//! the two forms do not match each other [PR-5].

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
     gather: $($gather:ident $pgather:ident $igather:ident,)*;
     all: $($all:ident $pall:ident $iall:ident,)*;
     gatherv: $gatherv:ident $pgatherv:ident $igatherv:ident;
     scatterv: $scatterv:ident $pscatterv:ident $iscatterv:ident;
     allgatherv: $($allgatherv:ident $pallgatherv:ident $iallgatherv:ident,)*;
     alltoallv: $($alltoallv:ident $palltoallv:ident $ialltoallv:ident,)*;
     alltoallw: $alltoallw:ident $palltoallw:ident $ialltoallw:ident;
     neighbor_alltoallw: $nalltoallw:ident $pnalltoallw:ident $inalltoallw:ident;
     reduce: $reduce:ident $preduce:ident $ireduce:ident;
     reductions: $($reduction:ident $preduction:ident $ireduction:ident,)*;
     reduce_scatter: $reduce_scatter:ident $preduce_scatter:ident $ireduce_scatter:ident) => {
        collectives! {
            $($gather $pgather $igather(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype, root: c_int,
                comm: MPI_Comm);)*
            $($all $pall $iall(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype, comm: MPI_Comm);)*
            $gatherv $pgatherv $igatherv(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcounts: *const $count, displs: *const $displ,
                recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm);
            $scatterv $pscatterv $iscatterv(
                sendbuf: *const c_void, sendcounts: *const $count, displs: *const $displ,
                sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: $count,
                recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm);
            $($allgatherv $pallgatherv $iallgatherv(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcounts: *const $count, displs: *const $displ,
                recvtype: MPI_Datatype, comm: MPI_Comm);)*
            $($alltoallv $palltoallv $ialltoallv(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const $displ,
                sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const $displ, recvtype: MPI_Datatype, comm: MPI_Comm);)*
            $alltoallw $palltoallw $ialltoallw(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const $displ,
                sendtypes: *const MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const $displ, recvtypes: *const MPI_Datatype, comm: MPI_Comm);
            $nalltoallw $pnalltoallw $inalltoallw(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const MPI_Aint,
                sendtypes: *const MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const MPI_Aint, recvtypes: *const MPI_Datatype, comm: MPI_Comm);
            $reduce $preduce $ireduce(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count, datatype: MPI_Datatype,
                op: MPI_Op, root: c_int, comm: MPI_Comm);
            $($reduction $preduction $ireduction(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count,
                datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm);)*
            $reduce_scatter $preduce_scatter $ireduce_scatter(
                sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const $count,
                datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm);
        }
    };
}

counted! {
    c_int, c_int;
    gather: MPI_Gather PMPI_Gather PMPI_Igather, MPI_Scatter PMPI_Scatter PMPI_Iscatter,;
    all: MPI_Allgather PMPI_Allgather PMPI_Iallgather, MPI_Alltoall PMPI_Alltoall PMPI_Ialltoall,
        MPI_Neighbor_allgather PMPI_Neighbor_allgather PMPI_Ineighbor_allgather,
        MPI_Neighbor_alltoall PMPI_Neighbor_alltoall PMPI_Ineighbor_alltoall,;
    gatherv: MPI_Gatherv PMPI_Gatherv PMPI_Igatherv;
    scatterv: MPI_Scatterv PMPI_Scatterv PMPI_Iscatterv;
    allgatherv: MPI_Allgatherv PMPI_Allgatherv PMPI_Iallgatherv,
        MPI_Neighbor_allgatherv PMPI_Neighbor_allgatherv PMPI_Ineighbor_allgatherv,;
    alltoallv: MPI_Alltoallv PMPI_Alltoallv PMPI_Ialltoallv,
        MPI_Neighbor_alltoallv PMPI_Neighbor_alltoallv PMPI_Ineighbor_alltoallv,;
    alltoallw: MPI_Alltoallw PMPI_Alltoallw PMPI_Ialltoallw;
    neighbor_alltoallw: MPI_Neighbor_alltoallw PMPI_Neighbor_alltoallw PMPI_Ineighbor_alltoallw;
    reduce: MPI_Reduce PMPI_Reduce PMPI_Ireduce;
    reductions: MPI_Scan PMPI_Scan PMPI_Iscan, MPI_Exscan PMPI_Exscan PMPI_Iexscan,
        MPI_Reduce_scatter_block PMPI_Reduce_scatter_block PMPI_Ireduce_scatter_block,;
    reduce_scatter: MPI_Reduce_scatter PMPI_Reduce_scatter PMPI_Ireduce_scatter
}

#[cfg(mpi_large_count)]
counted! {
    MPI_Count, MPI_Aint;
    gather: MPI_Gather_c PMPI_Gather_c PMPI_Igather_c,
        MPI_Scatter_c PMPI_Scatter_c PMPI_Iscatter_c,;
    all: MPI_Allgather_c PMPI_Allgather_c PMPI_Iallgather_c,
        MPI_Alltoall_c PMPI_Alltoall_c PMPI_Ialltoall_c,
        MPI_Neighbor_allgather_c PMPI_Neighbor_allgather_c PMPI_Ineighbor_allgather_c,
        MPI_Neighbor_alltoall_c PMPI_Neighbor_alltoall_c PMPI_Ineighbor_alltoall_c,;
    gatherv: MPI_Gatherv_c PMPI_Gatherv_c PMPI_Igatherv_c;
    scatterv: MPI_Scatterv_c PMPI_Scatterv_c PMPI_Iscatterv_c;
    allgatherv: MPI_Allgatherv_c PMPI_Allgatherv_c PMPI_Iallgatherv_c,
        MPI_Neighbor_allgatherv_c PMPI_Neighbor_allgatherv_c PMPI_Ineighbor_allgatherv_c,;
    alltoallv: MPI_Alltoallv_c PMPI_Alltoallv_c PMPI_Ialltoallv_c,
        MPI_Neighbor_alltoallv_c PMPI_Neighbor_alltoallv_c PMPI_Ineighbor_alltoallv_c,;
    alltoallw: MPI_Alltoallw_c PMPI_Alltoallw_c PMPI_Ialltoallw_c;
    neighbor_alltoallw:
        MPI_Neighbor_alltoallw_c PMPI_Neighbor_alltoallw_c PMPI_Ineighbor_alltoallw_c;
    reduce: MPI_Reduce_c PMPI_Reduce_c PMPI_Ireduce_c;
    reductions: MPI_Scan_c PMPI_Scan_c PMPI_Iscan_c,
        MPI_Exscan_c PMPI_Exscan_c PMPI_Iexscan_c,
        MPI_Reduce_scatter_block_c PMPI_Reduce_scatter_block_c PMPI_Ireduce_scatter_block_c,;
    reduce_scatter: MPI_Reduce_scatter_c PMPI_Reduce_scatter_c PMPI_Ireduce_scatter_c
}
