//! `MPI_Barrier`, `MPI_Bcast` and `MPI_Allreduce`: on a schedule if all processes choose so, and
//! otherwise by the host, driven.

use std::ffi::{c_int, c_void};
use std::ptr::copy_nonoverlapping;

use super::communicators::{self, Claim, Collective, Communicator};
use crate::collective::{Content, Mismatch};
use crate::mpi::abi::error::{Fault, Place, raise};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::{Predefined, derived, is_defined, predefined, reduction_of};
use crate::mpi::progress::blocking::{broadcast_at_host, interpose};
use crate::mpi::progress::drive;
use crate::transport::datatype::element::reduction;

/// Most bytes of a collective on a schedule. Longer ones are faster, or as fast, at the host.
const BYTES_MAX: u64 = 2048;

/// Codes of contents. An allreduce has its operation's code plus [`ALLREDUCE`].
const BARRIER: u32 = 0;
const BROADCAST: u32 = 1;
const ALLREDUCE: u32 = 2;

/// Serves a call that all processes of `comm` make and can run on a schedule, by `host` or `ours`.
#[inline]
fn serve(
    call: &'static str,
    comm: MPI_Comm,
    host: impl FnOnce() -> c_int,
    ours: impl FnOnce(&mut Communicator) -> Result<(), Fault>,
) -> c_int {
    const BUSY: &str = "comm is in use by another collective of this process";
    let fault = match communicators::claim(comm) {
        Claim::Host => return host(),
        Claim::Unknown => {
            let code = host();
            if code == MPI_SUCCESS {
                communicators::begin(comm);
            }
            return code;
        }
        Claim::Ours(mut own) => {
            let result = ours(&mut own);
            communicators::release(comm, own);
            result.err()
        }
        Claim::Busy => Some(Fault::new(MPI_ERR_OTHER, BUSY)),
    };
    fault.map_or(MPI_SUCCESS, |fault| raise(call, Place::Communicator(comm), fault))
}

/// The error of a collective whose calls do not match between processes [CL-3].
#[cold]
fn differs(mismatch: Mismatch, shorter: c_int, operation: c_int) -> Fault {
    match mismatch {
        Mismatch::Longer => {
            Fault::new(MPI_ERR_TRUNCATE, "count: another process has more data than this one")
        }
        Mismatch::Shorter => {
            Fault::new(shorter, "count: another process has less data than this one")
        }
        Mismatch::Operation => {
            Fault::new(operation, "another process has called with another operation")
        }
    }
}

fn barrier(comm: MPI_Comm) -> c_int {
    let host = || drive::barrier(comm);
    if !communicators::is_open() {
        return host();
    }
    serve("MPI_Barrier", comm, host, |own| {
        let content = Content { bytes: 0, code: BARRIER };
        let mismatch = own.run(Collective::Barrier, content, |_, _| ());
        mismatch.map_or(Ok(()), |mismatch| Err(differs(mismatch, MPI_ERR_OTHER, MPI_ERR_OTHER)))
    })
}

/// Where the data of a broadcast are.
#[derive(Clone, Copy)]
struct Message {
    buffer: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    /// Bytes of data.
    bytes: u32,
    /// The data are the bytes at `buffer`.
    dense: bool,
}

impl Message {
    /// `None`: the host serves the call. It is too long, or empty, in all processes alike, or it is
    /// wrong in this one.
    fn new(buffer: *mut c_void, count: i64, datatype: MPI_Datatype) -> Option<Self> {
        let known = predefined(datatype).filter(|known| known.is_dense());
        let size = match known {
            Some(known) => u64::from(known.size),
            None if derived::is_committed(datatype) => {
                let mut size = 0;
                host_calls::type_size(datatype, &mut size);
                u64::try_from(size).ok()?
            }
            None => return None,
        };
        let count = c_int::try_from(count).ok().filter(|count| *count > 0)?;
        let bytes =
            size.checked_mul(count as u64).filter(|bytes| (1..=BYTES_MAX).contains(bytes))?;
        let dense = known.is_some();
        let valid = !dense || !buffer.is_null();
        valid.then_some(Message { buffer, count, datatype, bytes: bytes as u32, dense })
    }

    /// Copies the data to `block`.
    ///
    /// # Safety
    /// The application may read the message, and `block` has room for [`BYTES_MAX`] bytes.
    unsafe fn copy_to(&self, block: *mut c_void, comm: MPI_Comm) {
        // SAFETY: the contract of this function; packed data of a known datatype take its size.
        unsafe {
            if self.dense {
                let bytes = self.bytes as usize;
                return copy_nonoverlapping(self.buffer.cast::<u8>(), block.cast(), bytes);
            }
            self.with_base(|buffer, count, datatype| {
                let (room, mut at) = (BYTES_MAX as c_int, 0);
                PMPI_Pack(buffer, count, datatype, block, room, &raw mut at, comm);
            });
        }
    }

    /// Copies the data from `block`.
    ///
    /// # Safety
    /// The application may write the message, and `block` has [`BYTES_MAX`] bytes.
    unsafe fn copy_from(&self, block: *const c_void, comm: MPI_Comm) {
        // SAFETY: the contract of this function; packed data of a known datatype take its size.
        unsafe {
            if self.dense {
                let bytes = self.bytes as usize;
                return copy_nonoverlapping(block.cast::<u8>(), self.buffer.cast(), bytes);
            }
            self.with_base(|buffer, count, datatype| {
                let (room, mut at) = (BYTES_MAX as c_int, 0);
                PMPI_Unpack(block, room, &raw mut at, buffer, count, datatype, comm);
            });
        }
    }

    /// Runs `body` on the message with a buffer that is not NULL. MPICH refuses to pack at
    /// `MPI_BOTTOM`, so there the datatype is moved by the address of another buffer.
    fn with_base(&self, body: impl FnOnce(*mut c_void, c_int, MPI_Datatype)) {
        if !self.buffer.is_null() {
            return body(self.buffer, self.count, self.datatype);
        }
        let mut base = 0u64;
        let base = (&raw mut base).cast::<c_void>();
        let mut moved = MPI_DATATYPE_NULL;
        if host_calls::type_moved(self.datatype, self.count, -(base as isize), &mut moved)
            == MPI_SUCCESS
        {
            host_calls::type_commit(&mut moved);
            body(base, 1, moved);
            host_calls::type_free(&mut moved);
        }
    }
}

/// # Safety
/// As MPI says of `MPI_Bcast`.
unsafe fn broadcast(
    (buffer, count, datatype): (*mut c_void, i64, MPI_Datatype),
    root: c_int,
    comm: MPI_Comm,
    host: impl FnOnce() -> c_int,
) -> c_int {
    if !communicators::is_open() {
        return host();
    }
    let Some(message) = Message::new(buffer, count, datatype) else { return host() };
    serve("MPI_Bcast", comm, host, |own| {
        let Some(root) = u32::try_from(root).ok().filter(|root| *root < own.ranks()) else {
            return Err(Fault::new(MPI_ERR_ROOT, "root is not a rank of comm"));
        };
        let me = own.me();
        if me == root {
            // SAFETY: the application's message; a block has room for the longest content.
            unsafe { message.copy_to(own.block(), comm) };
        }
        let content = Content { bytes: message.bytes, code: BROADCAST };
        let mismatch = own.run(Collective::Broadcast { root }, content, |_, _| ());
        if let Some(mismatch) = mismatch {
            return Err(differs(mismatch, MPI_ERR_OTHER, MPI_ERR_OTHER));
        }
        if me != root {
            // SAFETY: the application's message; the block has as many bytes of data.
            unsafe { message.copy_from(own.block(), comm) };
        }
        Ok(())
    })
}

/// The bytes of an allreduce that can run on a schedule. `None`: it is too long or empty, or its
/// operation or datatype is not predefined, in all processes alike.
fn reducible(count: i64, datatype: MPI_Datatype, op: MPI_Op) -> Option<(u32, u32)> {
    let known = predefined(datatype).filter(|known: &&Predefined| known.is_dense())?;
    let op = reduction_of(op).filter(|op| {
        ![reduction::REPLACE, reduction::NO_OP].contains(op)
            && is_defined(*op, known)
            && known.supports(*op)
    })?;
    let bytes = known.bytes(u64::try_from(count).ok()?)?;
    (1..=BYTES_MAX).contains(&bytes).then_some((bytes as u32, ALLREDUCE + u32::from(op.0)))
}

/// # Safety
/// As MPI says of `MPI_Allreduce`.
unsafe fn allreduce(
    (sendbuf, recvbuf): (*const c_void, *mut c_void),
    (count, datatype, op): (i64, MPI_Datatype, MPI_Op),
    comm: MPI_Comm,
    host: impl FnOnce() -> c_int,
) -> c_int {
    if !communicators::is_open() {
        return host();
    }
    let Some((bytes, code)) = reducible(count, datatype, op) else { return host() };
    let in_place = sendbuf == MPI_IN_PLACE.cast_const();
    let from = if in_place { recvbuf.cast_const() } else { sendbuf };
    // The host reports wrong buffers.
    let aliased = !in_place && sendbuf == recvbuf.cast_const();
    if from.is_null() || recvbuf.is_null() || recvbuf == MPI_IN_PLACE || aliased {
        return host();
    }
    serve("MPI_Allreduce", comm, host, |own| {
        let content = Content { bytes, code };
        let length = bytes as usize;
        // SAFETY: the application's buffers have that many bytes, and so has the block.
        unsafe { copy_nonoverlapping(from.cast::<u8>(), own.block().cast(), length) };
        let mismatch = own.run(Collective::Allreduce, content, |input, inout| {
            // SAFETY: both have `count` elements, and neither overlaps the other.
            unsafe {
                PMPI_Reduce_local(
                    input.as_ptr().cast(),
                    inout.as_mut_ptr().cast(),
                    count as c_int,
                    datatype,
                    op,
                );
            }
        });
        if let Some(mismatch) = mismatch {
            return Err(differs(mismatch, MPI_ERR_TRUNCATE, MPI_ERR_OP));
        }
        // SAFETY: as above.
        unsafe { copy_nonoverlapping(own.block().cast::<u8>(), recvbuf.cast(), length) };
        Ok(())
    })
}

interpose! {
    drive::collectives;
    MPI_Barrier(comm: MPI_Comm) => PMPI_Barrier, barrier(comm);
}

/// The calls with counts, for one type of counts.
macro_rules! counted {
    ($count:ty; $bcast:ident $pbcast:ident $ibcast:ident;
     $allreduce:ident $pallreduce:ident $iallreduce:ident) => {
        interpose! {
            drive::collectives;
            $bcast(
                buffer: *mut c_void, count: $count, datatype: MPI_Datatype, root: c_int,
                comm: MPI_Comm,
            ) => $pbcast,
                broadcast((buffer, i64::from(count), datatype), root, comm, || {
                    broadcast_at_host(comm, |request| {
                        $ibcast(buffer, count, datatype, root, comm, request)
                    })
                });
            $allreduce(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: $count,
                datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm,
            ) => $pallreduce,
                allreduce((sendbuf, recvbuf), (i64::from(count), datatype, op), comm, || {
                    let start = |request| {
                        $iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request)
                    };
                    drive::through(start, Status::ignored())
                });
        }
    };
}

counted! {
    c_int;
    MPI_Bcast PMPI_Bcast PMPI_Ibcast;
    MPI_Allreduce PMPI_Allreduce PMPI_Iallreduce
}

#[cfg(mpi_large_count)]
counted! {
    MPI_Count;
    MPI_Bcast_c PMPI_Bcast_c PMPI_Ibcast_c;
    MPI_Allreduce_c PMPI_Allreduce_c PMPI_Iallreduce_c
}
