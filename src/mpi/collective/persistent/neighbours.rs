//! The neighbours of a process in its communicator's topology, and the blocks that a call exchanges
//! with them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::collective::halo::Topology;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::message::Number;
use crate::mpi::datatype::derived::known;
use crate::transport::datatype::Side;

/// The neighbours of this process, in the order of blocks. `None`: `MPI_PROC_NULL`.
#[derive(Debug)]
pub(super) struct Neighbours {
    pub(super) topology: Topology,
    pub(super) sources: Vec<Option<u32>>,
    pub(super) destinations: Vec<Option<u32>>,
}

fn ranks(list: &[c_int]) -> Vec<Option<u32>> {
    // MPI_PROC_NULL is negative.
    list.iter().map(|rank| u32::try_from(*rank).ok()).collect()
}

impl Neighbours {
    /// Those of this process, whose rank is `me`. `None`: the communicator has no topology.
    pub(super) fn of(comm: MPI_Comm, me: c_int) -> Option<Self> {
        let (mut kind, mut number, mut out, mut weighted) = (MPI_UNDEFINED, 0, 0, 0);
        // SAFETY: a communicator of the application, which the host has accepted; all places and
        // lists are ours, and the lists are as long as the host says.
        unsafe {
            PMPI_Topo_test(comm, &raw mut kind);
            if kind == MPI_CART {
                PMPI_Cartdim_get(comm, &raw mut number);
                let mut list = vec![MPI_PROC_NULL; 2 * number as usize];
                for (dim, both) in (0..).zip(list.chunks_exact_mut(2)) {
                    let [below, above] = both else { continue };
                    PMPI_Cart_shift(comm, dim, 1, below, above);
                }
                let both = ranks(&list);
                return Some(Neighbours {
                    topology: Topology::Cartesian,
                    sources: both.clone(),
                    destinations: both,
                });
            }
            if kind == MPI_GRAPH {
                PMPI_Graph_neighbors_count(comm, me, &raw mut number);
                let mut list = vec![MPI_PROC_NULL; number as usize];
                PMPI_Graph_neighbors(comm, me, number, list.as_mut_ptr());
                let both = ranks(&list);
                return Some(Neighbours {
                    topology: Topology::Graph,
                    sources: both.clone(),
                    destinations: both,
                });
            }
            if kind != MPI_DIST_GRAPH {
                return None;
            }
            PMPI_Dist_graph_neighbors_count(comm, &raw mut number, &raw mut out, &raw mut weighted);
            let mut sources = vec![MPI_PROC_NULL; number as usize];
            let mut destinations = vec![MPI_PROC_NULL; out as usize];
            // Hosts write weights to lists as long, if the graph has any.
            let mut weights = [vec![0; number as usize], vec![0; out as usize]];
            let [source_weights, destination_weights] = &mut weights;
            PMPI_Dist_graph_neighbors(
                comm,
                number,
                sources.as_mut_ptr(),
                source_weights.as_mut_ptr(),
                out,
                destinations.as_mut_ptr(),
                destination_weights.as_mut_ptr(),
            );
            Some(Neighbours {
                topology: Topology::Graph,
                sources: ranks(&sources),
                destinations: ranks(&destinations),
            })
        }
    }
}

/// The data of one block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Address from which the side's displacements count.
    pub(super) base: usize,
    pub(super) side: Side,
    /// The same in the terms of MPI: bytes from the buffer, items, and their datatype.
    pub(super) at: i64,
    pub(super) count: u64,
    pub(super) datatype: MPI_Datatype,
}

impl Block {
    /// Displacements of the first byte and past the last, as addresses. `None` without data.
    pub(super) fn bytes(&self) -> Option<(usize, u64)> {
        let (low, high) = self.side.bounds();
        let length = high.checked_sub(low).and_then(|length| u64::try_from(length).ok())?;
        (length > 0).then(|| (self.base.wrapping_add_signed(low as isize), length))
    }
}

/// The blocks of one direction.
pub(super) type Blocks = Result<Vec<Block>, Fault>;

/// The blocks of a call, sent and received. One that is sent may stand for all.
pub(super) type Both = Result<(Vec<Block>, Vec<Block>), Fault>;

/// What is sent to a destination: its own, or the one that stands for all.
pub(super) fn sent_to<T>(sent: &[T], destination: usize) -> Option<&T> {
    if sent.len() == 1 { sent.first() } else { sent.get(destination) }
}

/// The blocks of both directions.
pub(super) fn both(sent: Blocks, received: Blocks) -> Both {
    Ok((sent?, received?))
}

/// A block of `count` items at `at` bytes from `buffer`.
fn block(
    buffer: *const c_void,
    at: i64,
    count: i64,
    datatype: MPI_Datatype,
) -> Result<Block, Fault> {
    let base = buffer.addr().wrapping_add_signed(at as isize);
    let Ok(count) = u64::try_from(count) else {
        return Err(Fault::new(MPI_ERR_COUNT, "a count is negative"));
    };
    if count == 0 {
        // The datatype of an empty block need not be one.
        return Ok(Block { base, side: Side::flat(0), at: 0, count, datatype: MPI_BYTE });
    }
    if buffer == MPI_IN_PLACE.cast_const() {
        let text = "a buffer of a neighbour collective is MPI_IN_PLACE";
        return Err(Fault::new(MPI_ERR_BUFFER, text));
    }
    let layout = &known(datatype)?.data;
    if layout.size_of(count).is_none() {
        return Err(Fault::new(MPI_ERR_COUNT, "a block has more than 2^63 bytes"));
    }
    let side = Side::items(Arc::clone(layout), count);
    let block = Block { base, side, at, count, datatype };
    let starts_at_null = block.bytes().is_some_and(|(first, _)| first == 0);
    if starts_at_null {
        return Err(Fault::new(MPI_ERR_BUFFER, "a buffer is NULL"));
    }
    Ok(block)
}

fn extent_of(datatype: MPI_Datatype, count: i64) -> Result<i64, Fault> {
    if count == 0 { Ok(0) } else { Ok(known(datatype)?.data.extent()) }
}

fn too_far() -> Fault {
    Fault::new(MPI_ERR_ARG, "a displacement exceeds 64 bits")
}

/// One block, for all neighbours: what an allgather sends.
pub(super) fn same(buffer: *const c_void, count: i64, datatype: MPI_Datatype) -> Blocks {
    Ok(vec![block(buffer, 0, count, datatype)?])
}

/// Blocks of equal counts behind one another, one for each neighbour.
pub(super) fn even(
    neighbours: &[Option<u32>],
    buffer: *const c_void,
    count: i64,
    datatype: MPI_Datatype,
) -> Blocks {
    let stride = extent_of(datatype, count)?.checked_mul(count).ok_or_else(too_far)?;
    let all = (0i64..).zip(neighbours).map(|(number, neighbour)| {
        let at = number.checked_mul(stride).ok_or_else(too_far)?;
        block(buffer, at, if neighbour.is_some() { count } else { 0 }, datatype)
    });
    all.collect()
}

/// Blocks with counts, and displacements in extents of the datatype.
///
/// # Safety
/// The lists have a number for each neighbour.
pub(super) unsafe fn varied<C: Number, D: Number>(
    neighbours: &[Option<u32>],
    buffer: *const c_void,
    (counts, displs): (*const C, *const D),
    datatype: MPI_Datatype,
) -> Blocks {
    // SAFETY: the contract of this function.
    let lists = unsafe { (list(counts, neighbours)?, list(displs, neighbours)?) };
    let any = lists.0.iter().map(|count| count.wide()).find(|count| *count != 0).unwrap_or(0);
    let extent = extent_of(datatype, any)?;
    let all = neighbours.iter().zip(lists.0).zip(lists.1).map(|((neighbour, count), displ)| {
        let at = displ.wide().checked_mul(extent).ok_or_else(too_far)?;
        block(buffer, at, if neighbour.is_some() { count.wide() } else { 0 }, datatype)
    });
    all.collect()
}

/// Blocks with counts, displacements in bytes, and datatypes.
///
/// # Safety
/// The lists have an entry for each neighbour.
#[allow(clippy::unnecessary_cast, reason = "on Open MPI, an address is an isize")]
pub(super) unsafe fn each<C: Number>(
    neighbours: &[Option<u32>],
    buffer: *const c_void,
    (counts, displs): (*const C, *const MPI_Aint),
    datatypes: *const MPI_Datatype,
) -> Blocks {
    // SAFETY: the contract of this function.
    let (counts, displs, datatypes) = unsafe {
        (list(counts, neighbours)?, list(displs, neighbours)?, list(datatypes, neighbours)?)
    };
    let numbers = counts.iter().zip(displs).zip(datatypes);
    let all = neighbours.iter().zip(numbers).map(|(neighbour, ((count, displ), datatype))| {
        let count = if neighbour.is_some() { count.wide() } else { 0 };
        block(buffer, *displ as i64, count, *datatype)
    });
    all.collect()
}

/// # Safety
/// The list has an entry for each neighbour.
unsafe fn list<'a, T>(first: *const T, neighbours: &[Option<u32>]) -> Result<&'a [T], Fault> {
    if neighbours.is_empty() {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(Fault::new(
            MPI_ERR_ARG,
            "a list of counts, displacements or datatypes is NULL",
        ));
    }
    // SAFETY: not NULL, and the contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(first, neighbours.len()) })
}
