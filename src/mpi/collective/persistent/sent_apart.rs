//! Open MPI's nonblocking `MPI_Ialltoallv` and `MPI_Ialltoallw` in place, without `MPI_IN_PLACE`.
//!
//! With it, Open MPI 4.1.4 waits forever in both where some processes have nothing for each other:
//! of four processes, for instance, only the first and the last exchange data. So a start packs
//! what the process sends, and the host receives where that was.

use std::ffi::{c_int, c_void};

use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::message::{Elements, Number, Typed};

/// Whether what a process sends must be packed for this host.
fn must_pack(sendbuf: *const c_void) -> bool {
    cfg!(mpi_host = "openmpi") && sendbuf == MPI_IN_PLACE.cast_const()
}

/// What a process sends in a start, until the next one.
pub(super) struct Packed<C, D> {
    data: Vec<u8>,
    /// In bytes.
    counts: Vec<C>,
    displs: Vec<D>,
    datatypes: Vec<MPI_Datatype>,
}

impl<C, D> Default for Packed<C, D> {
    fn default() -> Self {
        Packed { data: vec![], counts: vec![], displs: vec![], datatypes: vec![] }
    }
}

impl<C: Number + TryFrom<usize>, D: Number + TryFrom<usize>> Packed<C, D> {
    /// Packs a block for each process of `comm`. `None`: they cannot be described to the host.
    ///
    /// # Safety
    /// The application may read the blocks.
    unsafe fn pack(
        &mut self,
        comm: MPI_Comm,
        block: impl Fn(usize) -> Option<Elements>,
    ) -> Option<()> {
        let mut ranks = 0;
        host_calls::comm_size(comm, &mut ranks);
        let Packed { data, counts, displs, datatypes } = self;
        data.clear();
        counts.clear();
        displs.clear();
        for rank in 0..usize::try_from(ranks).ok()? {
            let (block, at) = (block(rank)?, data.len());
            counts.push(C::try_from(block.bytes).ok()?);
            displs.push(D::try_from(at).ok()?);
            data.resize(at + block.bytes, 0);
            // SAFETY: the contract of this function.
            unsafe { block.copy_to(&mut data[at..], comm) };
        }
        datatypes.resize(counts.len(), MPI_BYTE);
        Some(())
    }
}

/// `MPI_Ialltoallv`.
type Alltoallv<C, D> = unsafe extern "C" fn(
    *const c_void,
    *const C,
    *const D,
    MPI_Datatype,
    *mut c_void,
    *const C,
    *const D,
    MPI_Datatype,
    MPI_Comm,
    *mut MPI_Request,
) -> c_int;

/// `MPI_Ialltoallw`.
type Alltoallw<C, D> = unsafe extern "C" fn(
    *const c_void,
    *const C,
    *const D,
    *const MPI_Datatype,
    *mut c_void,
    *const C,
    *const D,
    *const MPI_Datatype,
    MPI_Comm,
    *mut MPI_Request,
) -> c_int;

/// The host's `call`, for one start after the other. In place on such a host, what it sends is
/// kept in what is returned.
///
/// # Safety
/// As MPI says of the call. A start begins when the last one has completed.
pub(super) unsafe fn alltoallv<C, D>(
    call: Alltoallv<C, D>,
) -> impl FnMut(
    *const c_void,
    *const C,
    *const D,
    MPI_Datatype,
    *mut c_void,
    *const C,
    *const D,
    MPI_Datatype,
    MPI_Comm,
    *mut MPI_Request,
) -> c_int
where
    C: Number + TryFrom<usize>,
    D: Number + TryFrom<usize>,
{
    let mut packed = Packed::default();
    move |from, sent, places, from_type, to, counts, displs, datatype, comm, request| {
        let block = |rank| {
            // SAFETY: the application's arrays have an entry for each process.
            let (count, first) = unsafe { (counts.add(rank).read(), displs.add(rank).read()) };
            let typed = Typed::of_any(datatype, count.wide() == 0)?;
            let first = isize::try_from(first.wide()).ok()?;
            Some(Elements::typed(to, count.wide(), typed)?.moved(first))
        };
        // SAFETY: the application's buffers and arrays, or ours, as MPI says of the call.
        unsafe {
            if must_pack(from) && packed.pack(comm, block).is_some() {
                let Packed { data, counts: sizes, displs: at, .. } = &packed;
                let (data, sizes, at) = (data.as_ptr().cast(), sizes.as_ptr(), at.as_ptr());
                return call(
                    data, sizes, at, MPI_BYTE, to, counts, displs, datatype, comm, request,
                );
            }
            call(from, sent, places, from_type, to, counts, displs, datatype, comm, request)
        }
    }
}

/// As [`alltoallv`].
///
/// # Safety
/// As there.
pub(super) unsafe fn alltoallw<C, D>(
    call: Alltoallw<C, D>,
) -> impl FnMut(
    *const c_void,
    *const C,
    *const D,
    *const MPI_Datatype,
    *mut c_void,
    *const C,
    *const D,
    *const MPI_Datatype,
    MPI_Comm,
    *mut MPI_Request,
) -> c_int
where
    C: Number + TryFrom<usize>,
    D: Number + TryFrom<usize>,
{
    let mut packed = Packed::default();
    move |from, sent, places, from_types, to, counts, displs, datatypes, comm, request| {
        let block = |rank| {
            // SAFETY: the application's arrays have an entry for each process.
            let (count, first, datatype) = unsafe {
                (counts.add(rank).read(), displs.add(rank).read(), datatypes.add(rank).read())
            };
            let typed = Typed::of_any(datatype, count.wide() == 0)?;
            let first = isize::try_from(first.wide()).ok()?;
            Some(Elements::typed(to, count.wide(), typed)?.moved_bytes(first))
        };
        // SAFETY: the application's buffers and arrays, or ours, as MPI says of the call.
        unsafe {
            if must_pack(from) && packed.pack(comm, block).is_some() {
                let Packed { data, counts: sizes, displs: at, datatypes: types } = &packed;
                let (data, sizes, at) = (data.as_ptr().cast(), sizes.as_ptr(), at.as_ptr());
                let types = types.as_ptr();
                return call(data, sizes, at, types, to, counts, displs, datatypes, comm, request);
            }
            call(from, sent, places, from_types, to, counts, displs, datatypes, comm, request)
        }
    }
}
