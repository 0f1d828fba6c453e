//! The interposed calls, `MPI_Barrier` and `MPI_Bcast`.

use std::ffi::{c_int, c_void};
use std::slice::from_raw_parts_mut;

use super::communicators::{Collective, Communicator};
use super::exchanges::{self, Lists, valid_root};
use super::limits::Row;
use super::message::{Elements, Staged, Triple};
use super::nodes::{self, Nodes};
use super::reductions::{self, Operands};
use super::serve::{self, Failed, Host, Served, code, differs, serve_across};
use super::single_copy;
use super::varying::{self, TypedLists};
use crate::collective::Content;
use crate::collective::schedule::FLAT_MAX;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::blocking::{broadcast_at_host, interpose};
use crate::mpi::progress::drive;

/// Most bytes of a broadcast among more than a few processes, along a tree.
const TREE_BYTES_MAX: usize = 2048;

/// # Safety
/// As MPI says of `MPI_Bcast`.
unsafe fn broadcast(
    message: Triple,
    root: c_int,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // SAFETY: the contract of this function.
    let across = |own: &mut Nodes| unsafe { broadcast_across(own, message, root, comm) };
    let ours = |own: &mut Communicator| {
        let message = Elements::new(message).ok_or(Failed::Wrong)?;
        let Some(root) = valid_root(own, root) else {
            return Err(no_root().into());
        };
        let max = match own.ranks() {
            few @ ..=FLAT_MAX => Row::Broadcast.most(few),
            _ => TREE_BYTES_MAX,
        };
        let is_long = message.bytes > max;
        if message.bytes == 0 || (is_long && !single_copy::serves(own, message.bytes)) {
            return Ok(Served::AtHost);
        }
        let pass = if is_long { single_copy::broadcast } else { pass };
        // SAFETY: the application's message, as MPI says of the call.
        unsafe {
            if own.me() == root {
                let source = Staged::source(&message, comm);
                pass(own, root, source.base(), message.bytes)?;
            } else {
                let sink = Staged::sink(&message);
                pass(own, root, sink.base(), message.bytes)?;
                sink.deliver(&message, comm);
            }
        }
        Ok(Served::Done)
    };
    serve_across("MPI_Bcast", comm, host, ours, across)
}

/// A broadcast to several nodes: along the node of the root, to the others, and along them.
///
/// # Safety
/// As MPI says of `MPI_Bcast`.
unsafe fn broadcast_across(
    own: &mut Nodes,
    message: Triple,
    root: c_int,
    comm: MPI_Comm,
) -> Result<Served, Failed> {
    let message = Elements::new(message).ok_or(Failed::Wrong)?;
    let Some(from) = own.place(root) else { return Err(no_root().into()) };
    if !(1..=nodes::BYTES_MAX).contains(&message.bytes) {
        return Ok(Served::AtHost);
    }
    let (here, is_root) = (own.here(), own.me() == root as u32);
    // SAFETY: the application's message, as MPI says of the call. It is as long in all processes.
    unsafe {
        let staged = if is_root { Staged::source(&message, comm) } else { Staged::sink(&message) };
        let (base, bytes) = (staged.base(), message.bytes);
        let between = |own: &Nodes| {
            own.between(|comm, request| {
                PMPI_Ibcast(
                    base.cast(),
                    bytes as c_int,
                    MPI_BYTE,
                    from.node as c_int,
                    comm,
                    request,
                )
            })
        };
        // After an error, too: other nodes wait.
        if here.node == from.node && from.rank != 0 {
            let passed = pass(&mut own.mates, from.rank, base, bytes);
            between(own).and(passed)?;
        } else {
            let arrived = between(own);
            pass(&mut own.mates, 0, base, bytes).and(arrived)?;
        }
        if !is_root {
            staged.deliver(&message, comm);
        }
    }
    Ok(Served::Done)
}

fn no_root() -> Fault {
    Fault::new(MPI_ERR_ROOT, "root is not a rank of comm")
}

/// Broadcasts bytes in pieces, each a collective of the board.
///
/// # Safety
/// There are so many bytes at `base`, which this process may read, and write if it is not the root.
pub(super) unsafe fn pass(
    own: &mut Communicator,
    root: u32,
    base: *mut u8,
    bytes: usize,
) -> Result<(), Fault> {
    let (which, room) = (Collective::Broadcast { root }, own.content_max());
    let mut pieces = bytes.div_ceil(room);
    let note = (pieces as u32 - 1) << 16;
    let mut fault = None;
    let mut at = 0;
    while at < pieces {
        let length = room.min(bytes.saturating_sub(at * room));
        let content = Content { bytes: length as u32, code: code::BROADCAST | note };
        let (published, mismatch) = if fault.is_some() {
            // What the root publishes further is dropped.
            own.run_on_block(which, Content { bytes: 0, ..content })
        } else {
            // SAFETY: within the caller's bytes.
            let piece = unsafe { from_raw_parts_mut(base.add(at * room), length) };
            own.pass_on(which, content, piece)
        };
        if let Some(mismatch) = mismatch.filter(|_| fault.is_none()) {
            fault = Some(differs(mismatch, MPI_ERR_OTHER, MPI_ERR_OTHER));
            pieces = published.note() as usize + 1;
        }
        at += 1;
    }
    fault.map_or(Ok(()), Err)
}

/// The host's forms of a call.
macro_rules! host {
    ($nonblocking:ident $blocking:ident($($arg:expr),* $(,)?)) => {
        Host {
            driven: || drive::through(|request| $nonblocking($($arg,)* request), Status::ignored()),
            blocking: || $blocking($($arg),*),
        }
    };
}

interpose! {
    drive::collectives;
    MPI_Barrier(comm: MPI_Comm) => PMPI_Barrier, {
        // Never the blocking form: the schedule serves a communicator with a board.
        let host = Host { driven: || drive::barrier(comm), blocking: || PMPI_Barrier(comm) };
        serve_across("MPI_Barrier", comm, host, serve::barrier, Nodes::barrier)
    };
}

/// The calls with counts, for one type of counts and of displacements.
macro_rules! counted {
    ($count:ty, $displ:ty;
     bcast: $bcast:ident $pbcast:ident $ibcast:ident;
     allreduce: $allreduce:ident $pallreduce:ident $iallreduce:ident;
     reduce: $reduce:ident $preduce:ident $ireduce:ident;
     scan: $scan:ident $pscan:ident $iscan:ident;
     exscan: $exscan:ident $pexscan:ident $iexscan:ident;
     block: $block:ident $pblock:ident $iblock:ident;
     reduce_scatter: $reduce_scatter:ident $preduce_scatter:ident $ireduce_scatter:ident;
     gather: $gather:ident $pgather:ident $igather:ident;
     scatter: $scatter:ident $pscatter:ident $iscatter:ident;
     allgather: $allgather:ident $pallgather:ident $iallgather:ident;
     alltoall: $alltoall:ident $palltoall:ident $ialltoall:ident;
     gatherv: $gatherv:ident $pgatherv:ident $igatherv:ident;
     scatterv: $scatterv:ident $pscatterv:ident $iscatterv:ident;
     allgatherv: $allgatherv:ident $pallgatherv:ident $iallgatherv:ident;
     alltoallv: $alltoallv:ident $palltoallv:ident $ialltoallv:ident;
     alltoallw: $alltoallw:ident $palltoallw:ident $ialltoallw:ident $(;)?) => {
        interpose! {
            drive::collectives;
            $bcast(
                buffer: *mut c_void, count: $count, datatype: MPI_Datatype, root: c_int,
                comm: MPI_Comm,
            ) => $pbcast,
                broadcast((buffer, i64::from(count), datatype), root, comm, Host {
                    driven: || broadcast_at_host(comm, |request| {
                        $ibcast(buffer, count, datatype, root, comm, request)
                    }),
                    blocking: || $pbcast(buffer, count, datatype, root, comm),
                });
            $allreduce(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count,
                datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm,
            ) => $pallreduce,
                reductions::allreduce(
                    Operands { sendbuf, recvbuf, count: i64::from(count), datatype, op }, comm,
                    host!($iallreduce $pallreduce(sendbuf, recvbuf, count, datatype, op, comm)));
            $reduce(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count,
                datatype: MPI_Datatype, op: MPI_Op, root: c_int, comm: MPI_Comm,
            ) => $preduce, {
                let all = Operands { sendbuf, recvbuf, count: i64::from(count), datatype, op };
                let host = Host {
                    driven: || drive::through(|request| {
                        $ireduce(sendbuf, recvbuf, count, datatype, op, root, comm, request)
                    }, Status::ignored()),
                    blocking: || reductions::reduce_at_host(all, root, comm, |sendbuf| {
                        $preduce(sendbuf, recvbuf, count, datatype, op, root, comm)
                    }),
                };
                reductions::reduce(all, root, comm, host)
            };
            $scan(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count,
                datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm,
            ) => $pscan,
                reductions::scan(
                    Operands { sendbuf, recvbuf, count: i64::from(count), datatype, op }, true,
                    comm, host!($iscan $pscan(sendbuf, recvbuf, count, datatype, op, comm)));
            $exscan(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count,
                datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm,
            ) => $pexscan,
                reductions::scan(
                    Operands { sendbuf, recvbuf, count: i64::from(count), datatype, op }, false,
                    comm, host!($iexscan $pexscan(sendbuf, recvbuf, count, datatype, op, comm)));
            $block(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count,
                datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm,
            ) => $pblock,
                reductions::reduce_scatter_block(
                    Operands { sendbuf, recvbuf, count: i64::from(count), datatype, op }, comm,
                    host!($iblock $pblock(sendbuf, recvbuf, count, datatype, op, comm)));
            $reduce_scatter(
                sendbuf: *const c_void, recvbuf: *mut c_void, counts: *const $count,
                datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm,
            ) => $preduce_scatter,
                reductions::reduce_scatter(
                    Operands { sendbuf, recvbuf, count: 0, datatype, op }, counts, comm,
                    host!($ireduce_scatter $preduce_scatter(
                        sendbuf, recvbuf, counts, datatype, op, comm)));
            $gather(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype, root: c_int,
                comm: MPI_Comm,
            ) => $pgather,
                exchanges::gather(
                    (sendbuf, i64::from(sendcount), sendtype),
                    (recvbuf, i64::from(recvcount), recvtype), root, comm,
                    host!($igather $pgather(
                        sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm)));
            $scatter(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype, root: c_int,
                comm: MPI_Comm,
            ) => $pscatter,
                exchanges::scatter(
                    (sendbuf, i64::from(sendcount), sendtype),
                    (recvbuf, i64::from(recvcount), recvtype), root, comm,
                    host!($iscatter $pscatter(
                        sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm)));
            $allgather(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype, comm: MPI_Comm,
            ) => $pallgather,
                exchanges::allgather(
                    (sendbuf, i64::from(sendcount), sendtype),
                    (recvbuf, i64::from(recvcount), recvtype), comm,
                    host!($iallgather $pallgather(
                        sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)));
            $alltoall(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype, comm: MPI_Comm,
            ) => $palltoall,
                exchanges::alltoall(
                    (sendbuf, i64::from(sendcount), sendtype),
                    (recvbuf, i64::from(recvcount), recvtype), comm,
                    host!($ialltoall $palltoall(
                        sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)));
            $gatherv(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcounts: *const $count, displs: *const $displ,
                recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm,
            ) => $pgatherv,
                varying::gatherv(
                    (sendbuf, i64::from(sendcount), sendtype),
                    Lists {
                        buffer: recvbuf, counts: recvcounts, displacements: displs,
                        datatype: recvtype,
                    },
                    root, comm,
                    host!($igatherv $pgatherv(
                        sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root,
                        comm)));
            $scatterv(
                sendbuf: *const c_void, sendcounts: *const $count, displs: *const $displ,
                sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: $count,
                recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm,
            ) => $pscatterv,
                varying::scatterv(
                    Lists {
                        buffer: sendbuf, counts: sendcounts, displacements: displs,
                        datatype: sendtype,
                    },
                    (recvbuf, i64::from(recvcount), recvtype), root, comm,
                    host!($iscatterv $pscatterv(
                        sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root,
                        comm)));
            $allgatherv(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype,
                recvbuf: *mut c_void, recvcounts: *const $count, displs: *const $displ,
                recvtype: MPI_Datatype, comm: MPI_Comm,
            ) => $pallgatherv,
                exchanges::allgatherv(
                    (sendbuf, i64::from(sendcount), sendtype),
                    Lists {
                        buffer: recvbuf, counts: recvcounts, displacements: displs,
                        datatype: recvtype,
                    },
                    comm,
                    host!($iallgatherv $pallgatherv(
                        sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
                        comm)));
            $alltoallv(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const $displ,
                sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const $displ, recvtype: MPI_Datatype, comm: MPI_Comm,
            ) => $palltoallv,
                varying::alltoallv(
                    Lists {
                        buffer: sendbuf, counts: sendcounts, displacements: sdispls,
                        datatype: sendtype,
                    },
                    Lists {
                        buffer: recvbuf, counts: recvcounts, displacements: rdispls,
                        datatype: recvtype,
                    },
                    comm,
                    host!($ialltoallv $palltoallv(
                        sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
                        recvtype, comm)));
            $alltoallw(
                sendbuf: *const c_void, sendcounts: *const $count, sdispls: *const $displ,
                sendtypes: *const MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const $count,
                rdispls: *const $displ, recvtypes: *const MPI_Datatype, comm: MPI_Comm,
            ) => $palltoallw,
                varying::alltoallw(
                    TypedLists {
                        buffer: sendbuf, counts: sendcounts, displacements: sdispls,
                        datatypes: sendtypes,
                    },
                    TypedLists {
                        buffer: recvbuf, counts: recvcounts, displacements: rdispls,
                        datatypes: recvtypes,
                    },
                    comm,
                    host!($ialltoallw $palltoallw(
                        sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls,
                        recvtypes, comm)));
        }
    };
}

counted! {
    c_int, c_int;
    bcast: MPI_Bcast PMPI_Bcast PMPI_Ibcast;
    allreduce: MPI_Allreduce PMPI_Allreduce PMPI_Iallreduce;
    reduce: MPI_Reduce PMPI_Reduce PMPI_Ireduce;
    scan: MPI_Scan PMPI_Scan PMPI_Iscan;
    exscan: MPI_Exscan PMPI_Exscan PMPI_Iexscan;
    block: MPI_Reduce_scatter_block PMPI_Reduce_scatter_block PMPI_Ireduce_scatter_block;
    reduce_scatter: MPI_Reduce_scatter PMPI_Reduce_scatter PMPI_Ireduce_scatter;
    gather: MPI_Gather PMPI_Gather PMPI_Igather;
    scatter: MPI_Scatter PMPI_Scatter PMPI_Iscatter;
    allgather: MPI_Allgather PMPI_Allgather PMPI_Iallgather;
    alltoall: MPI_Alltoall PMPI_Alltoall PMPI_Ialltoall;
    gatherv: MPI_Gatherv PMPI_Gatherv PMPI_Igatherv;
    scatterv: MPI_Scatterv PMPI_Scatterv PMPI_Iscatterv;
    allgatherv: MPI_Allgatherv PMPI_Allgatherv PMPI_Iallgatherv;
    alltoallv: MPI_Alltoallv PMPI_Alltoallv PMPI_Ialltoallv;
    alltoallw: MPI_Alltoallw PMPI_Alltoallw PMPI_Ialltoallw;
}

#[cfg(mpi_large_count)]
counted! {
    MPI_Count, MPI_Aint;
    bcast: MPI_Bcast_c PMPI_Bcast_c PMPI_Ibcast_c;
    allreduce: MPI_Allreduce_c PMPI_Allreduce_c PMPI_Iallreduce_c;
    reduce: MPI_Reduce_c PMPI_Reduce_c PMPI_Ireduce_c;
    scan: MPI_Scan_c PMPI_Scan_c PMPI_Iscan_c;
    exscan: MPI_Exscan_c PMPI_Exscan_c PMPI_Iexscan_c;
    block: MPI_Reduce_scatter_block_c PMPI_Reduce_scatter_block_c PMPI_Ireduce_scatter_block_c;
    reduce_scatter: MPI_Reduce_scatter_c PMPI_Reduce_scatter_c PMPI_Ireduce_scatter_c;
    gather: MPI_Gather_c PMPI_Gather_c PMPI_Igather_c;
    scatter: MPI_Scatter_c PMPI_Scatter_c PMPI_Iscatter_c;
    allgather: MPI_Allgather_c PMPI_Allgather_c PMPI_Iallgather_c;
    alltoall: MPI_Alltoall_c PMPI_Alltoall_c PMPI_Ialltoall_c;
    gatherv: MPI_Gatherv_c PMPI_Gatherv_c PMPI_Igatherv_c;
    scatterv: MPI_Scatterv_c PMPI_Scatterv_c PMPI_Iscatterv_c;
    allgatherv: MPI_Allgatherv_c PMPI_Allgatherv_c PMPI_Iallgatherv_c;
    alltoallv: MPI_Alltoallv_c PMPI_Alltoallv_c PMPI_Ialltoallv_c;
    alltoallw: MPI_Alltoallw_c PMPI_Alltoallw_c PMPI_Ialltoallw_c;
}
