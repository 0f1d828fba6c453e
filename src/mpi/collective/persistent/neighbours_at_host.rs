//! Persistent neighbour collectives that the host serves: each start makes its
//! `MPI_Ineighbor_alltoallw`, which all of them can be expressed by.
//!
//! Where both neighbours of a dimension are one process, most hosts receive the block that was sent
//! in negative direction from the negative direction, against MPI-4.1 8.6. On such hosts the two
//! receive buffers are exchanged here.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use super::at_host::Start;
use super::kept::{Datatype, Kept};
use super::neighbours::{Block, Both, Neighbours};
use crate::collective::halo::Topology;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::progress::drive;
use crate::runtime::enter;

#[cfg(mpi_large_count)]
use PMPI_Ineighbor_alltoallw_c as alltoallw;
#[cfg(mpi_large_count)]
/// The host's type of counts.
pub(super) type Count = MPI_Count;

#[cfg(not(mpi_large_count))]
use PMPI_Ineighbor_alltoallw as alltoallw;
#[cfg(not(mpi_large_count))]
/// The host's type of counts.
pub(super) type Count = c_int;

/// The arguments of one direction.
struct Arguments {
    counts: Vec<Count>,
    displs: Vec<MPI_Aint>,
    types: Vec<MPI_Datatype>,
    /// They own the datatypes.
    _kept: Vec<Datatype>,
}

impl Arguments {
    /// `None`: a count is too large for the host.
    fn new<'a>(blocks: impl Iterator<Item = &'a Block> + Clone) -> Option<Self> {
        let counts = blocks.clone().map(|block| Count::try_from(block.count).ok());
        let kept: Vec<_> = blocks.clone().map(|block| Datatype::new(block.datatype)).collect();
        Some(Arguments {
            counts: counts.collect::<Option<_>>()?,
            displs: blocks.map(|block| block.at as MPI_Aint).collect(),
            types: kept.iter().map(Kept::passed).collect(),
            _kept: kept,
        })
    }
}

/// What each start calls. `buffers`: those of the call, sent and received.
pub(super) fn start(
    comm: MPI_Comm,
    buffers: (*const c_void, *mut c_void),
    blocks: impl FnOnce(&Neighbours) -> Both,
) -> Start {
    match arguments(comm, blocks) {
        Ok(lists) => Box::new(move |comm, request| {
            // The whole, not some fields: the datatypes must live as long.
            let (sent, received) = &lists;
            // SAFETY: the buffers are the application's, and belong to the collective from each
            // start to its completion; the lists have an entry for each neighbour.
            unsafe {
                alltoallw(
                    buffers.0,
                    sent.counts.as_ptr(),
                    sent.displs.as_ptr(),
                    sent.types.as_ptr(),
                    buffers.1,
                    received.counts.as_ptr(),
                    received.displs.as_ptr(),
                    received.types.as_ptr(),
                    comm,
                    request,
                )
            }
        }),
        Err(class) => Box::new(move |_, _| class),
    }
}

/// # Errors
/// The class of the error that each start returns.
fn arguments(
    comm: MPI_Comm,
    blocks: impl FnOnce(&Neighbours) -> Both,
) -> Result<(Arguments, Arguments), c_int> {
    let mut me = 0;
    host_calls::comm_rank(comm, &mut me);
    let neighbours = Neighbours::of(comm, me).ok_or(MPI_ERR_TOPOLOGY)?;
    let (sent, mut received) = {
        // Layouts of datatypes are cached under the guard.
        let _guard = enter();
        blocks(&neighbours).map_err(|fault| fault.class)?
    };
    if neighbours.topology == Topology::Cartesian && host_keeps_directions() {
        for (pair, ranks) in received.chunks_exact_mut(2).zip(neighbours.sources.chunks_exact(2)) {
            if ranks[0].is_some() && ranks[0] == ranks[1] {
                pair.swap(0, 1);
            }
        }
    }
    let destinations = neighbours.destinations.len();
    let sent = match &sent[..] {
        [one] => Arguments::new(std::iter::repeat_n(one, destinations)),
        each => Arguments::new(each.iter()),
    };
    let received = Arguments::new(received.iter());
    sent.zip(received).ok_or(MPI_ERR_COUNT)
}

/// Whether the host has the error that the module's description names.
fn host_keeps_directions() -> bool {
    static KEEPS: OnceLock<bool> = OnceLock::new();
    *KEEPS.get_or_init(|| world::has_world() && probe() == Some(true))
}

/// Sends two blocks in a ring of one process. `None`: a call of the host has failed.
fn probe() -> Option<bool> {
    let (one, mut comm) = (1, MPI_COMM_NULL);
    let (sent, mut received) = ([1, 2], [0; 2]);
    let (counts, displs, types): ([Count; 2], [MPI_Aint; 2], _) =
        ([1, 1], [0, size_of::<c_int>() as MPI_Aint], [MPI_INT; 2]);
    let request = Cell::new(MPI_REQUEST_NULL);
    // SAFETY: all lists and buffers are those of this function, which waits for the request.
    let code = unsafe {
        let code =
            PMPI_Cart_create(MPI_COMM_SELF, 1, &raw const one, &raw const one, 0, &raw mut comm);
        if code != MPI_SUCCESS || comm == MPI_COMM_NULL {
            return None;
        }
        let (counts, displs, types) = (counts.as_ptr(), displs.as_ptr(), types.as_ptr());
        let (from, to) = (sent.as_ptr().cast(), received.as_mut_ptr().cast());
        let started = alltoallw(
            from,
            counts,
            displs,
            types,
            to,
            counts,
            displs,
            types,
            comm,
            request.as_ptr(),
        );
        if started == MPI_SUCCESS { drive::wait_for(&request, Status::ignored()) } else { started }
    };
    host_calls::comm_free(&mut comm);
    (code == MPI_SUCCESS).then_some(received == sent)
}
