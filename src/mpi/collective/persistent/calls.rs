//! The exported names of persistent collectives.
//!
//! Each call has the name `MPIX_..._init` on every host. Where the host has the call of MPI-4, that
//! name is interposed as well. Open MPI 4.1 has the calls as an extension of its own, with the same
//! `MPIX_` names and parameters. So its Fortran bindings come here, too.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use super::at_host::Start;
use super::host_form::{Arrays, HostArgument, absent, host_name, init_name, too_large};
use super::kept::{self, Kept};
use super::movement::set_up;
use super::moves::{self, Block, Blocks, List, Typed, items, listed, typed};
use super::{barrier, sent_apart, serve};
use crate::mpi::abi::error::{Fault, Place, boundary, raise};
use crate::mpi::abi::host::{exports, resolve};
use crate::mpi::abi::sys::*;
use crate::mpi::collective::message::Number;

/// Exports calls, each under its names of MPI-4 and of this library. Behind the parameters stand
/// the names of the host's persistent and nonblocking calls without their prefixes, whether counts
/// are large, the root if only that process has arrays, what makes the nonblocking call if not
/// every host can in place, and the set-up of this library.
macro_rules! calls {
    ($(
        $mpi:ident $mpix:ident ($($arg:ident: $type:ty),*; $comm:ident)
            at host $name:literal $nonblocking:literal $large:literal $(arrays of $root:ident)?
            $(in place by $in_place:path)?,
            ours $ours:expr;
    )*) => {$(
        calls! {
            @one $mpix, $comm, ($($arg: $type,)*),
            $name $nonblocking $large ($($root)?) ($($in_place)?), $ours
        }
        #[cfg(mpi_persistent_collectives)]
        const _: () = {
            calls! {
                @one $mpi, $comm, ($($arg: $type,)*),
                $name $nonblocking $large ($($root)?) ($($in_place)?), $ours
            }
        };
    )*};
    (
        @one $call:ident, $comm:ident, ($($arg:ident: $type:ty,)*),
        $name:literal $nonblocking:literal $large:literal ($($root:ident)?)
        ($($in_place:path)?), $ours:expr
    ) => {
        /// Makes a persistent collective.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        #[allow(clippy::too_many_arguments, reason = "those of the call")]
        pub unsafe extern "C" fn $call(
            $($arg: $type,)*
            $comm: MPI_Comm,
            info: MPI_Info,
            request: *mut MPI_Request,
        ) -> c_int {
            type Check = unsafe extern "C" fn(
                $(<$type as HostArgument>::Passed,)* MPI_Comm, MPI_Info, *mut MPI_Request,
            ) -> c_int;
            type Immediate = unsafe extern "C" fn(
                $(<$type as HostArgument>::Passed,)* MPI_Comm, *mut MPI_Request,
            ) -> c_int;
            static CHECK: OnceLock<Option<Check>> = OnceLock::new();
            static IMMEDIATE: OnceLock<Option<Immediate>> = OnceLock::new();
            const CALL: &str = stringify!($call);
            boundary(CALL, || {
                // SAFETY: the host's functions of these names have these parameters.
                let (checking, immediate) = unsafe {
                    (
                        *CHECK.get_or_init(|| resolve(init_name!($name, $large))),
                        *IMMEDIATE.get_or_init(|| resolve(host_name!($nonblocking, $large))),
                    )
                };
                let Some(immediate) = immediate else { return absent(CALL, $comm) };
                let root: Option<c_int> = None$(.or(Some($root)))?;
                $(if let Some(fault) = refused!($arg, $arg) {
                    return raise(CALL, Place::Communicator($comm), fault);
                })*
                // SAFETY: the application's arguments, passed on.
                unsafe {
                    let check = |comm, made| {
                        #[allow(unused_mut, unused_variables, reason = "some have no arguments")]
                        let mut arrays = Arrays::new($comm, root);
                        $(let Some($arg) = $arg.pass(&mut arrays) else {
                            return Err(too_large(CALL, $comm));
                        };)*
                        Ok(checking.map_or(MPI_SUCCESS, |check| check($($arg,)* comm, info, made)))
                    };
                    let at_host = || {
                        #[allow(unused_mut, unused_variables, reason = "some have no arguments")]
                        let mut arrays = Arrays::new($comm, root);
                        $(let $arg = $arg.pass(&mut arrays).expect("the check has passed it");)*
                        #[allow(unused_variables, reason = "some have no arrays")]
                        let length = arrays.len();
                        let kept = ($(keep!($arg, $arg, length),)*);
                        $(let mut immediate = $in_place(immediate);)?
                        let start: Start = Box::new(move |comm, request| {
                            let ($($arg,)*) = &kept;
                            immediate($($arg.passed(),)* comm, request)
                        });
                        start
                    };
                    serve(CALL, $comm, request, check, $ours, at_host)
                }
            })
        }
        exports! {
            $call($($arg: $type,)* $comm: MPI_Comm, info: MPI_Info, request: *mut MPI_Request);
        }
    };
}

/// Keeps an argument for the host's calls, by its name.
macro_rules! keep {
    (datatype, $value:ident, $length:ident) => {
        kept::Datatype::new($value)
    };
    (sendtype, $value:ident, $length:ident) => {
        kept::Datatype::new($value)
    };
    (recvtype, $value:ident, $length:ident) => {
        kept::Datatype::new($value)
    };
    (sendtypes, $value:ident, $length:ident) => {
        kept::Datatypes::copy($value, $length)
    };
    (recvtypes, $value:ident, $length:ident) => {
        kept::Datatypes::copy($value, $length)
    };
    (op, $value:ident, $length:ident) => {
        kept::Operation::new($value)
    };
    (sendcounts, $value:ident, $length:ident) => {
        kept::Numbers::copy($value, $length)
    };
    (recvcounts, $value:ident, $length:ident) => {
        kept::Numbers::copy($value, $length)
    };
    (displs, $value:ident, $length:ident) => {
        kept::Numbers::copy($value, $length)
    };
    (sdispls, $value:ident, $length:ident) => {
        kept::Numbers::copy($value, $length)
    };
    (rdispls, $value:ident, $length:ident) => {
        kept::Numbers::copy($value, $length)
    };
    ($name:ident, $value:ident, $length:ident) => {
        kept::Plain($value)
    };
}

/// The fault of an argument that not every host refuses with the class that MPI gives.
macro_rules! refused {
    (count, $value:ident) => {
        ($value < 0).then(|| Fault::new(MPI_ERR_COUNT, "count is negative"))
    };
    ($name:ident, $value:ident) => {
        None::<Fault>
    };
}

calls! {
    MPI_Barrier_init MPIX_Barrier_init(; comm)
        at host "Barrier_init" "Ibarrier" false, ours barrier::set_up;
}

/// The calls with counts, for one type of counts and of displacements.
macro_rules! counted {
    ($count:ty, $displ:ty, $large:literal;
     $bcast:ident $xbcast:ident; $reduce:ident $xreduce:ident;
     $allreduce:ident $xallreduce:ident; $scan:ident $xscan:ident; $exscan:ident $xexscan:ident;
     $block:ident $xblock:ident; $reduce_scatter:ident $xreduce_scatter:ident;
     $allgather:ident $xallgather:ident; $alltoall:ident $xalltoall:ident;
     $gather:ident $xgather:ident; $scatter:ident $xscatter:ident;
     $gatherv:ident $xgatherv:ident; $scatterv:ident $xscatterv:ident;
     $allgatherv:ident $xallgatherv:ident; $alltoallv:ident $xalltoallv:ident;
     $alltoallw:ident $xalltoallw:ident) => {
        calls! {
            $bcast $xbcast(
                buffer: *mut c_void, count: $count, datatype: MPI_Datatype, root: c_int; comm)
                at host "Bcast_init" "Ibcast" $large, ours |carrier| {
                let block = Block { buffer: buffer.cast_const(), count: count.wide(), datatype };
                let movement = moves::broadcast(carrier, block, root);
                set_up(carrier, movement)
            };
            $reduce $xreduce(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count, datatype: MPI_Datatype,
                op: MPI_Op, root: c_int; comm)
                at host "Reduce_init" "Ireduce" $large, ours |carrier| {
                let (buffers, what) = ((sendbuf, recvbuf), (count.wide(), datatype, op));
                let goes = |_, to| to == root as usize;
                let movement = moves::reduction(carrier, buffers, what, root, goes);
                set_up(carrier, movement)
            };
            $allreduce $xallreduce(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count, datatype: MPI_Datatype,
                op: MPI_Op; comm)
                at host "Allreduce_init" "Iallreduce" $large, ours |carrier| {
                let (buffers, what) = ((sendbuf, recvbuf), (count.wide(), datatype, op));
                let movement = moves::reduction(carrier, buffers, what, 0, |_, _| true);
                set_up(carrier, movement)
            };
            $scan $xscan(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count, datatype: MPI_Datatype,
                op: MPI_Op; comm)
                at host "Scan_init" "Iscan" $large, ours |carrier| {
                let (buffers, what) = ((sendbuf, recvbuf), (count.wide(), datatype, op));
                let movement = moves::reduction(carrier, buffers, what, 0, |from, to| from <= to);
                set_up(carrier, movement)
            };
            $exscan $xexscan(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count, datatype: MPI_Datatype,
                op: MPI_Op; comm)
                at host "Exscan_init" "Iexscan" $large, ours |carrier| {
                let (buffers, what) = ((sendbuf, recvbuf), (count.wide(), datatype, op));
                let movement = moves::reduction(carrier, buffers, what, 0, |from, to| from < to);
                set_up(carrier, movement)
            };
            $block $xblock(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count, datatype: MPI_Datatype,
                op: MPI_Op; comm)
                at host "Reduce_scatter_block_init" "Ireduce_scatter_block" $large, ours |carrier| {
                let (buffers, what) = ((sendbuf, recvbuf), (datatype, op));
                let movement = moves::reduce_scatter(carrier, buffers, |_| count.wide(), what);
                set_up(carrier, movement)
            };
            $reduce_scatter $xreduce_scatter(
                sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const $count,
                datatype: MPI_Datatype, op: MPI_Op; comm)
                at host "Reduce_scatter_init" "Ireduce_scatter" $large, ours |carrier| {
                let (buffers, what) = ((sendbuf, recvbuf), (datatype, op));
                let count = |rank| List(recvcounts).at(rank);
                let movement = moves::reduce_scatter(carrier, buffers, count, what);
                set_up(carrier, movement)
            };
            $allgather $xallgather(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype; comm)
                at host "Allgather_init" "Iallgather" $large, ours |carrier| {
                let own = Block { buffer: sendbuf, count: sendcount.wide(), datatype: sendtype };
                let buffer = recvbuf.cast_const();
                let all = Block { buffer, count: recvcount.wide(), datatype: recvtype };
                let movement = moves::allgather(carrier, own, items(all));
                set_up(carrier, movement)
            };
            $alltoall $xalltoall(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype; comm)
                at host "Alltoall_init" "Ialltoall" $large, ours |carrier| {
                let from = Block { buffer: sendbuf, count: sendcount.wide(), datatype: sendtype };
                let buffer = recvbuf.cast_const();
                let to = Block { buffer, count: recvcount.wide(), datatype: recvtype };
                let movement = moves::alltoall(carrier, sendbuf, items(from), items(to));
                set_up(carrier, movement)
            };
            $gather $xgather(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype, root: c_int; comm)
                at host "Gather_init" "Igather" $large, ours |carrier| {
                let own = Block { buffer: sendbuf, count: sendcount.wide(), datatype: sendtype };
                let buffer = recvbuf.cast_const();
                let all = Block { buffer, count: recvcount.wide(), datatype: recvtype };
                let movement = moves::gather(carrier, own, root, items(all));
                set_up(carrier, movement)
            };
            $scatter $xscatter(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype, root: c_int; comm)
                at host "Scatter_init" "Iscatter" $large, ours |carrier| {
                let buffer = recvbuf.cast_const();
                let own = Block { buffer, count: recvcount.wide(), datatype: recvtype };
                let all = Block { buffer: sendbuf, count: sendcount.wide(), datatype: sendtype };
                let movement = moves::scatter(carrier, items(all), own, root);
                set_up(carrier, movement)
            };
            $gatherv $xgatherv(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcounts: *const $count, displs: *const $displ,
                recvtype: MPI_Datatype, root: c_int; comm)
                at host "Gatherv_init" "Igatherv" $large arrays of root, ours |carrier| {
                let own = Block { buffer: sendbuf, count: sendcount.wide(), datatype: sendtype };
                let (counts, displs) = (List(recvcounts), List(displs));
                let buffer = recvbuf.cast_const();
                let all = Blocks { buffer, counts, displs, datatype: recvtype };
                let movement = moves::gather(carrier, own, root, listed(all));
                set_up(carrier, movement)
            };
            $scatterv $xscatterv(
                sendbuf: *const c_void, sendcounts: *const $count, displs: *const $displ,
                sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: $count,
                recvtype: MPI_Datatype, root: c_int; comm)
                at host "Scatterv_init" "Iscatterv" $large arrays of root, ours |carrier| {
                let buffer = recvbuf.cast_const();
                let own = Block { buffer, count: recvcount.wide(), datatype: recvtype };
                let (counts, displs) = (List(sendcounts), List(displs));
                let all = Blocks { buffer: sendbuf, counts, displs, datatype: sendtype };
                let movement = moves::scatter(carrier, listed(all), own, root);
                set_up(carrier, movement)
            };
            $allgatherv $xallgatherv(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcounts: *const $count, displs: *const $displ,
                recvtype: MPI_Datatype; comm)
                at host "Allgatherv_init" "Iallgatherv" $large, ours |carrier| {
                let own = Block { buffer: sendbuf, count: sendcount.wide(), datatype: sendtype };
                let (counts, displs) = (List(recvcounts), List(displs));
                let buffer = recvbuf.cast_const();
                let all = Blocks { buffer, counts, displs, datatype: recvtype };
                let movement = moves::allgather(carrier, own, listed(all));
                set_up(carrier, movement)
            };
            $alltoallv $xalltoallv(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const $displ,
                sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const $displ, recvtype: MPI_Datatype; comm)
                at host "Alltoallv_init" "Ialltoallv" $large
                in place by sent_apart::alltoallv, ours |carrier| {
                let (counts, displs) = (List(sendcounts), List(sdispls));
                let from = Blocks { buffer: sendbuf, counts, displs, datatype: sendtype };
                let (counts, displs) = (List(recvcounts), List(rdispls));
                let buffer = recvbuf.cast_const();
                let to = Blocks { buffer, counts, displs, datatype: recvtype };
                let movement = moves::alltoall(carrier, sendbuf, listed(from), listed(to));
                set_up(carrier, movement)
            };
            $alltoallw $xalltoallw(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const $displ,
                sendtypes: *const MPI_Datatype, recvbuf: *mut c_void,
                recvcounts: *const $count, rdispls: *const $displ,
                recvtypes: *const MPI_Datatype; comm)
                at host "Alltoallw_init" "Ialltoallw" $large
                in place by sent_apart::alltoallw, ours |carrier| {
                let (counts, displs) = (List(sendcounts), List(sdispls));
                let from = Typed { buffer: sendbuf, counts, displs, datatypes: sendtypes };
                let (counts, displs) = (List(recvcounts), List(rdispls));
                let buffer = recvbuf.cast_const();
                let to = Typed { buffer, counts, displs, datatypes: recvtypes };
                let movement = moves::alltoall(carrier, sendbuf, typed(from), typed(to));
                set_up(carrier, movement)
            };
        }
    };
}

counted! {
    c_int, c_int, false;
    MPI_Bcast_init MPIX_Bcast_init;
    MPI_Reduce_init MPIX_Reduce_init;
    MPI_Allreduce_init MPIX_Allreduce_init;
    MPI_Scan_init MPIX_Scan_init;
    MPI_Exscan_init MPIX_Exscan_init;
    MPI_Reduce_scatter_block_init MPIX_Reduce_scatter_block_init;
    MPI_Reduce_scatter_init MPIX_Reduce_scatter_init;
    MPI_Allgather_init MPIX_Allgather_init;
    MPI_Alltoall_init MPIX_Alltoall_init;
    MPI_Gather_init MPIX_Gather_init;
    MPI_Scatter_init MPIX_Scatter_init;
    MPI_Gatherv_init MPIX_Gatherv_init;
    MPI_Scatterv_init MPIX_Scatterv_init;
    MPI_Allgatherv_init MPIX_Allgatherv_init;
    MPI_Alltoallv_init MPIX_Alltoallv_init;
    MPI_Alltoallw_init MPIX_Alltoallw_init
}

counted! {
    MPI_Count, MPI_Aint, true;
    MPI_Bcast_init_c MPIX_Bcast_init_c;
    MPI_Reduce_init_c MPIX_Reduce_init_c;
    MPI_Allreduce_init_c MPIX_Allreduce_init_c;
    MPI_Scan_init_c MPIX_Scan_init_c;
    MPI_Exscan_init_c MPIX_Exscan_init_c;
    MPI_Reduce_scatter_block_init_c MPIX_Reduce_scatter_block_init_c;
    MPI_Reduce_scatter_init_c MPIX_Reduce_scatter_init_c;
    MPI_Allgather_init_c MPIX_Allgather_init_c;
    MPI_Alltoall_init_c MPIX_Alltoall_init_c;
    MPI_Gather_init_c MPIX_Gather_init_c;
    MPI_Scatter_init_c MPIX_Scatter_init_c;
    MPI_Gatherv_init_c MPIX_Gatherv_init_c;
    MPI_Scatterv_init_c MPIX_Scatterv_init_c;
    MPI_Allgatherv_init_c MPIX_Allgatherv_init_c;
    MPI_Alltoallv_init_c MPIX_Alltoallv_init_c;
    MPI_Alltoallw_init_c MPIX_Alltoallw_init_c
}
