//! The exported names of persistent neighbour collectives: `MPIX_` on every host, and those of
//! MPI-4 where the host has them.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use super::halo::set_up;
use super::host_form::init_name;
use super::neighbours::{Neighbours, both, each, even, same, varied};
use super::neighbours_at_host::start;
use super::serve;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::{exports, resolve};
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::Carrier;
use crate::mpi::collective::message::Number;

/// Exports calls. Behind the parameters stand the name of the host's call without its prefix,
/// whether counts are large, the buffers, and the blocks of the call, given the neighbours.
macro_rules! calls {
    ($(
        $call:ident ($($arg:ident: $type:ty),*)
            at host $name:literal $large:literal, $buffers:expr, $neighbours:ident => $blocks:expr;
    )*) => {$(
        /// Makes a persistent neighbour collective.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        #[allow(clippy::too_many_arguments, reason = "those of the call")]
        pub unsafe extern "C" fn $call(
            $($arg: $type,)*
            comm: MPI_Comm,
            info: MPI_Info,
            request: *mut MPI_Request,
        ) -> c_int {
            type Check =
                unsafe extern "C" fn($($type,)* MPI_Comm, MPI_Info, *mut MPI_Request) -> c_int;
            static CHECK: OnceLock<Option<Check>> = OnceLock::new();
            const CALL: &str = stringify!($call);
            boundary(CALL, || {
                let check = CHECK.get_or_init(|| {
                    let has_call = !$large || cfg!(mpi_large_count);
                    // SAFETY: the host's function of this name has these parameters.
                    has_call.then(|| unsafe { resolve(init_name!($name, $large)) }).flatten()
                });
                // SAFETY: the application's arguments, passed on; lists have a number for each
                // neighbour.
                unsafe {
                    let check = |comm, made| {
                        Ok(match check {
                            Some(check) => check($($arg,)* comm, info, made),
                            None => check_topology(comm),
                        })
                    };
                    let blocks = |$neighbours: &Neighbours| $blocks;
                    let ours = |carrier: &mut Carrier| set_up(carrier, comm, blocks);
                    serve(CALL, comm, request, check, ours, || start(comm, $buffers, blocks))
                }
            })
        }
        exports! {
            $call($($arg: $type,)* comm: MPI_Comm, info: MPI_Info, request: *mut MPI_Request);
        }
    )*};
}

/// Checks a communicator, where the host does not have the call.
fn check_topology(comm: MPI_Comm) -> c_int {
    let mut kind = MPI_UNDEFINED;
    // SAFETY: the application's communicator, which the host checks, and a place of ours.
    match unsafe { PMPI_Topo_test(comm, &raw mut kind) } {
        MPI_SUCCESS if kind == MPI_UNDEFINED => MPI_ERR_TOPOLOGY,
        code => code,
    }
}

/// The calls for one type of counts and of displacements.
macro_rules! counted {
    ($count:ty, $displ:ty, $large:literal;
     $allgather:ident $allgatherv:ident $alltoall:ident $alltoallv:ident $alltoallw:ident) => {
        calls! {
            $allgather(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype)
                at host "Neighbor_allgather_init" $large, (sendbuf, recvbuf), of => both(
                    same(sendbuf, sendcount.wide(), sendtype),
                    even(&of.sources, recvbuf, recvcount.wide(), recvtype));
            $allgatherv(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcounts: *const $count, displs: *const $displ,
                recvtype: MPI_Datatype)
                at host "Neighbor_allgatherv_init" $large, (sendbuf, recvbuf), of => both(
                    same(sendbuf, sendcount.wide(), sendtype),
                    varied(&of.sources, recvbuf, (recvcounts, displs), recvtype));
            $alltoall(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype)
                at host "Neighbor_alltoall_init" $large, (sendbuf, recvbuf), of => both(
                    even(&of.destinations, sendbuf, sendcount.wide(), sendtype),
                    even(&of.sources, recvbuf, recvcount.wide(), recvtype));
            $alltoallv(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const $displ,
                sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const $displ, recvtype: MPI_Datatype)
                at host "Neighbor_alltoallv_init" $large, (sendbuf, recvbuf), of => both(
                    varied(&of.destinations, sendbuf, (sendcounts, sdispls), sendtype),
                    varied(&of.sources, recvbuf, (recvcounts, rdispls), recvtype));
            $alltoallw(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const MPI_Aint,
                sendtypes: *const MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const MPI_Aint, recvtypes: *const MPI_Datatype)
                at host "Neighbor_alltoallw_init" $large, (sendbuf, recvbuf), of => both(
                    each(&of.destinations, sendbuf, (sendcounts, sdispls), sendtypes),
                    each(&of.sources, recvbuf, (recvcounts, rdispls), recvtypes));
        }
    };
}

counted! {
    c_int, c_int, false;
    MPIX_Neighbor_allgather_init MPIX_Neighbor_allgatherv_init MPIX_Neighbor_alltoall_init
    MPIX_Neighbor_alltoallv_init MPIX_Neighbor_alltoallw_init
}

counted! {
    MPI_Count, MPI_Aint, true;
    MPIX_Neighbor_allgather_init_c MPIX_Neighbor_allgatherv_init_c MPIX_Neighbor_alltoall_init_c
    MPIX_Neighbor_alltoallv_init_c MPIX_Neighbor_alltoallw_init_c
}

#[cfg(mpi_persistent_collectives)]
counted! {
    c_int, c_int, false;
    MPI_Neighbor_allgather_init MPI_Neighbor_allgatherv_init MPI_Neighbor_alltoall_init
    MPI_Neighbor_alltoallv_init MPI_Neighbor_alltoallw_init
}

#[cfg(all(mpi_persistent_collectives, mpi_large_count))]
counted! {
    MPI_Count, MPI_Aint, true;
    MPI_Neighbor_allgather_init_c MPI_Neighbor_allgatherv_init_c MPI_Neighbor_alltoall_init_c
    MPI_Neighbor_alltoallv_init_c MPI_Neighbor_alltoallw_init_c
}
