//! Collective calls without a nonblocking form. A driven barrier over the communicator comes first:
//! when the host's call starts, every process is about to enter it, so it blocks only for its own
//! work.
//!
//! `MPI_Win_create` and its kin do the same (`mpi::window`).

use std::ffi::{c_char, c_int};

use super::interpose;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;

/// A table: the call, the host's function, the communicator whose processes assemble, the
/// parameters.
macro_rules! assembled {
    ($($name:ident $host:ident over $comm:ident ($($arg:ident: $type:ty),* $(,)?);)*) => {
        interpose! {
            drive::collectives;
            $($name($($arg: $type),*) => $host, {
                match drive::assemble($comm) {
                    Ok(()) => $host($($arg),*),
                    Err(code) => code,
                }
            };)*
        }
    };
}

assembled! {
    MPI_Comm_dup PMPI_Comm_dup over comm(comm: MPI_Comm, newcomm: *mut MPI_Comm);
    MPI_Comm_dup_with_info PMPI_Comm_dup_with_info over comm(
        comm: MPI_Comm, info: MPI_Info, newcomm: *mut MPI_Comm);
    MPI_Comm_split PMPI_Comm_split over comm(
        comm: MPI_Comm, color: c_int, key: c_int, newcomm: *mut MPI_Comm);
    MPI_Comm_split_type PMPI_Comm_split_type over comm(
        comm: MPI_Comm, split_type: c_int, key: c_int, info: MPI_Info, newcomm: *mut MPI_Comm);
    MPI_Comm_create PMPI_Comm_create over comm(
        comm: MPI_Comm, group: MPI_Group, newcomm: *mut MPI_Comm);
    MPI_Intercomm_create PMPI_Intercomm_create over local_comm(
        local_comm: MPI_Comm, local_leader: c_int, peer_comm: MPI_Comm, remote_leader: c_int,
        tag: c_int, newintercomm: *mut MPI_Comm);
    MPI_Intercomm_merge PMPI_Intercomm_merge over intercomm(
        intercomm: MPI_Comm, high: c_int, newintracomm: *mut MPI_Comm);
    MPI_Cart_create PMPI_Cart_create over comm(
        comm: MPI_Comm, ndims: c_int, dims: *const c_int, periods: *const c_int, reorder: c_int,
        newcomm: *mut MPI_Comm);
    MPI_Cart_sub PMPI_Cart_sub over comm(
        comm: MPI_Comm, remain_dims: *const c_int, newcomm: *mut MPI_Comm);
    MPI_Graph_create PMPI_Graph_create over comm(
        comm: MPI_Comm, nnodes: c_int, index: *const c_int, edges: *const c_int, reorder: c_int,
        newcomm: *mut MPI_Comm);
    MPI_Dist_graph_create PMPI_Dist_graph_create over comm(
        comm: MPI_Comm, n: c_int, sources: *const c_int, degrees: *const c_int,
        destinations: *const c_int, weights: *const c_int, info: MPI_Info, reorder: c_int,
        newcomm: *mut MPI_Comm);
    MPI_Dist_graph_create_adjacent PMPI_Dist_graph_create_adjacent over comm(
        comm: MPI_Comm, indegree: c_int, sources: *const c_int, sourceweights: *const c_int,
        outdegree: c_int, destinations: *const c_int, destweights: *const c_int, info: MPI_Info,
        reorder: c_int, newcomm: *mut MPI_Comm);
    MPI_Comm_spawn PMPI_Comm_spawn over comm(
        command: *const c_char, argv: *mut *mut c_char, maxprocs: c_int, info: MPI_Info,
        root: c_int, comm: MPI_Comm, intercomm: *mut MPI_Comm, errcodes: *mut c_int);
    MPI_Comm_spawn_multiple PMPI_Comm_spawn_multiple over comm(
        count: c_int, commands: *mut *mut c_char, argvs: *mut *mut *mut c_char,
        maxprocs: *const c_int, infos: *const MPI_Info, root: c_int, comm: MPI_Comm,
        intercomm: *mut MPI_Comm, errcodes: *mut c_int);
    MPI_Comm_accept PMPI_Comm_accept over comm(
        port_name: *const c_char, info: MPI_Info, root: c_int, comm: MPI_Comm,
        newcomm: *mut MPI_Comm);
    MPI_Comm_connect PMPI_Comm_connect over comm(
        port_name: *const c_char, info: MPI_Info, root: c_int, comm: MPI_Comm,
        newcomm: *mut MPI_Comm);
    MPI_File_open PMPI_File_open over comm(
        comm: MPI_Comm, filename: *const c_char, amode: c_int, info: MPI_Info, fh: *mut MPI_File);
}
