//! What each call moves, as a [`Movement`]. `None`: this library cannot move it.
//!
//! Here the arguments of the application are read for the last time. The host has accepted them.

use std::ffi::{c_int, c_void};

use super::movement::{Movement, Part, combine, dense, part};
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::Carrier;
use crate::mpi::collective::message::Number;
use crate::transport::datatype::Combine;

/// An array of the application, one number for each process.
#[derive(Clone, Copy)]
pub(super) struct List<T>(pub(super) *const T);

impl<T: Number> List<T> {
    /// # Safety
    /// The application has given an array with that entry.
    pub(super) unsafe fn at(self, rank: usize) -> i64 {
        // SAFETY: the contract of this function.
        unsafe { self.0.add(rank).read() }.wide()
    }
}

/// Elements that lie behind one another.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) buffer: *const c_void,
    pub(super) count: i64,
    pub(super) datatype: MPI_Datatype,
}

impl Block {
    fn whole(self) -> Option<Part> {
        self.item(0)
    }

    /// The `at`-th of several such blocks in a buffer.
    fn item(self, at: usize) -> Option<Part> {
        let first = (at as i64).checked_mul(self.count)?;
        part(self.buffer, dense(self.datatype)?, first, self.count)
    }
}

/// A block for each process, by counts and displacements.
#[derive(Clone, Copy)]
pub(super) struct Blocks<C, D> {
    pub(super) buffer: *const c_void,
    pub(super) counts: List<C>,
    pub(super) displs: List<D>,
    pub(super) datatype: MPI_Datatype,
}

impl<C: Number, D: Number> Blocks<C, D> {
    /// # Safety
    /// The arrays are as MPI says.
    unsafe fn item(self, at: usize) -> Option<Part> {
        // SAFETY: the contract of this function.
        let (count, first) = unsafe { (self.counts.at(at), self.displs.at(at)) };
        part(self.buffer, dense(self.datatype)?, first, count)
    }
}

/// Blocks of datatypes of their own, with displacements in bytes.
#[derive(Clone, Copy)]
pub(super) struct Typed<C, D> {
    pub(super) buffer: *const c_void,
    pub(super) counts: List<C>,
    pub(super) displs: List<D>,
    pub(super) datatypes: *const MPI_Datatype,
}

impl<C: Number, D: Number> Typed<C, D> {
    /// # Safety
    /// The arrays are as MPI says.
    unsafe fn item(self, at: usize) -> Option<Part> {
        // SAFETY: the contract of this function.
        let (count, first, datatype) =
            unsafe { (self.counts.at(at), self.displs.at(at), self.datatypes.add(at).read()) };
        let bytes = usize::try_from(count).ok()?.checked_mul(dense(datatype)?)?;
        part(self.buffer, 1, first, bytes as i64)
    }
}

fn is_in_place(buffer: *const c_void) -> bool {
    buffer == MPI_IN_PLACE.cast_const()
}

/// The processes of a collective as one of them sees them.
#[derive(Clone, Copy)]
struct Ranks {
    me: usize,
    all: usize,
}

impl Ranks {
    fn of(carrier: &Carrier) -> Self {
        Ranks { me: carrier.me as usize, all: carrier.ranks as usize }
    }

    fn parts(self, item: impl FnMut(usize) -> Option<Part>) -> Option<Vec<Part>> {
        (0..self.all).map(item).collect()
    }

    /// The same part for those that are chosen.
    fn chosen(self, part: Part, chosen: impl Fn(usize) -> bool) -> Vec<Part> {
        (0..self.all).map(|rank| if chosen(rank) { part } else { Part::NONE }).collect()
    }
}

fn moved(call: c_int, is_same: bool, sends: Vec<Part>, receives: Vec<Part>) -> Movement {
    Movement { call: call as u64, sends, is_same, receives, combine: None, in_place: false }
}

pub(super) fn broadcast(carrier: &Carrier, block: Block, root: c_int) -> Option<Movement> {
    let (ranks, root_rank) = (Ranks::of(carrier), root as usize);
    let part = block.whole()?;
    let is_root = ranks.me == root_rank;
    let sends = ranks.chosen(part, |to| is_root && to != root_rank);
    let receives = ranks.chosen(part, |from| !is_root && from == root_rank);
    Some(moved(root, true, sends, receives))
}

/// The reductions of whole buffers. Who gets whose contribution depends on the call.
pub(super) fn reduction(
    carrier: &Carrier,
    (sendbuf, recvbuf): (*const c_void, *mut c_void),
    (count, datatype, op): (i64, MPI_Datatype, MPI_Op),
    call: c_int,
    goes: impl Fn(usize, usize) -> bool,
) -> Option<Movement> {
    let ranks = Ranks::of(carrier);
    let combine = combine(datatype, op)?;
    let in_place = is_in_place(sendbuf);
    let from = if in_place { recvbuf.cast_const() } else { sendbuf };
    let sends = Block { buffer: from, count, datatype }.whole()?;
    let sends = ranks.chosen(sends, |to| goes(ranks.me, to));
    let gets_any = (0..ranks.all).any(|from| goes(from, ranks.me));
    let result =
        if gets_any { Block { buffer: recvbuf, count, datatype }.whole()? } else { Part::NONE };
    let receives = ranks.chosen(result, |from| goes(from, ranks.me));
    Some(reduced(Movement { in_place, ..moved(call, true, sends, receives) }, combine))
}

fn reduced(movement: Movement, combine: Combine) -> Movement {
    Movement { combine: Some(combine), ..movement }
}

/// Each process gets a block of the sum. `count` is the number of elements of each block.
pub(super) fn reduce_scatter(
    carrier: &Carrier,
    (sendbuf, recvbuf): (*const c_void, *mut c_void),
    count: impl Fn(usize) -> i64,
    (datatype, op): (MPI_Datatype, MPI_Op),
) -> Option<Movement> {
    let ranks = Ranks::of(carrier);
    let (combine, size) = (combine(datatype, op)?, dense(datatype)?);
    let in_place = is_in_place(sendbuf);
    let buffer = if in_place { recvbuf.cast_const() } else { sendbuf };
    let mut first = 0i64;
    let sends = ranks.parts(|to| {
        let count = count(to);
        let part = part(buffer, size, first, count);
        first = first.checked_add(count)?;
        part
    })?;
    let result = part(recvbuf, size, 0, count(ranks.me))?;
    let receives = ranks.chosen(result, |_| true);
    Some(reduced(Movement { in_place, ..moved(0, false, sends, receives) }, combine))
}

/// All get the contributions of all. `item` is the place of a contribution.
pub(super) fn allgather(
    carrier: &Carrier,
    block: Block,
    item: impl FnMut(usize) -> Option<Part>,
) -> Option<Movement> {
    let ranks = Ranks::of(carrier);
    let receives = ranks.parts(item)?;
    let own = if is_in_place(block.buffer) { receives[ranks.me] } else { block.whole()? };
    Some(moved(0, true, ranks.chosen(own, |_| true), receives))
}

/// The root gets the contributions of all.
pub(super) fn gather(
    carrier: &Carrier,
    block: Block,
    root: c_int,
    item: impl FnMut(usize) -> Option<Part>,
) -> Option<Movement> {
    let (ranks, root_rank) = (Ranks::of(carrier), root as usize);
    let receives = if ranks.me == root_rank {
        ranks.parts(item)?
    } else {
        ranks.chosen(Part::NONE, |_| false)
    };
    let own = if ranks.me == root_rank && is_in_place(block.buffer) {
        receives[ranks.me]
    } else {
        block.whole()?
    };
    Some(moved(root, true, ranks.chosen(own, |to| to == root_rank), receives))
}

/// The root sends a block to each.
pub(super) fn scatter(
    carrier: &Carrier,
    item: impl FnMut(usize) -> Option<Part>,
    block: Block,
    root: c_int,
) -> Option<Movement> {
    let (ranks, root_rank) = (Ranks::of(carrier), root as usize);
    let sends = if ranks.me == root_rank {
        ranks.parts(item)?
    } else {
        ranks.chosen(Part::NONE, |_| false)
    };
    let own = if ranks.me == root_rank && is_in_place(block.buffer) {
        sends[ranks.me]
    } else {
        block.whole()?
    };
    Some(moved(root, false, sends, ranks.chosen(own, |from| from == root_rank)))
}

/// Each sends a block to each. `sends` is not called in place.
pub(super) fn alltoall(
    carrier: &Carrier,
    sendbuf: *const c_void,
    sends: impl FnMut(usize) -> Option<Part>,
    receives: impl FnMut(usize) -> Option<Part>,
) -> Option<Movement> {
    let ranks = Ranks::of(carrier);
    let receives = ranks.parts(receives)?;
    let sends = if is_in_place(sendbuf) { receives.clone() } else { ranks.parts(sends)? };
    Some(moved(0, false, sends, receives))
}

/// As [`Block::item`], for closures.
pub(super) fn items(block: Block) -> impl FnMut(usize) -> Option<Part> {
    move |at| block.item(at)
}

/// As [`Blocks::item`], for closures.
///
/// # Safety
/// The arrays are as MPI says, until the closure is dropped.
pub(super) unsafe fn listed<C: Number, D: Number>(
    blocks: Blocks<C, D>,
) -> impl FnMut(usize) -> Option<Part> {
    // SAFETY: the contract of this function.
    move |at| unsafe { blocks.item(at) }
}

/// As [`listed`], for blocks of several datatypes.
///
/// # Safety
/// As [`listed`].
pub(super) unsafe fn typed<C: Number, D: Number>(
    blocks: Typed<C, D>,
) -> impl FnMut(usize) -> Option<Part> {
    // SAFETY: the contract of this function.
    move |at| unsafe { blocks.item(at) }
}
