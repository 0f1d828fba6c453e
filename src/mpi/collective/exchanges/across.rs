//! The same exchanges among processes of several nodes, while all blocks together are short. The
//! first process of each node collects what its node sends, exchanges it with those of the other
//! nodes, and passes on what has arrived.
//!
//! A process that finds that calls do not match still takes part in all that follows, since others
//! wait there.

use std::ffi::c_int;
use std::ops::Range;

use super::{Blocks, Means, PerRank, Plan, code};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::calls::pass;
use crate::mpi::collective::communicators::Collective;
use crate::mpi::collective::message::{Elements, Staged};
use crate::mpi::collective::nodes::{self, Nodes, Place};
use crate::mpi::collective::serve::{Failed, Served};

/// Where blocks are that lie behind one another, in the order of the nodes, and of the ranks within
/// each.
struct Layout {
    /// By process in that order, and behind all.
    begins: PerRank<usize>,
    /// By node, and behind all: the place of its first process in that order.
    firsts: PerRank<usize>,
}

impl Layout {
    /// For processes at these places. `bytes` says how long the block of a rank is.
    fn new(places: &[Place], bytes: impl Fn(usize) -> usize) -> Self {
        let nodes = places.iter().map(|place| place.node as usize + 1).max().unwrap_or(0);
        let mut firsts: PerRank<usize> = smallvec::smallvec![0; nodes + 1];
        places.iter().for_each(|place| firsts[place.node as usize + 1] += 1);
        (0..nodes).for_each(|node| firsts[node + 1] += firsts[node]);
        let mut layout = Layout { begins: smallvec::smallvec![0; places.len() + 1], firsts };
        for (rank, place) in places.iter().enumerate() {
            let at = layout.position(*place);
            layout.begins[at + 1] = bytes(rank);
        }
        (0..places.len()).for_each(|at| layout.begins[at + 1] += layout.begins[at]);
        layout
    }

    fn position(&self, place: Place) -> usize {
        self.firsts[place.node as usize] + place.rank as usize
    }

    /// The bytes of a block.
    fn block(&self, place: Place) -> Range<usize> {
        let at = self.position(place);
        self.begins[at]..self.begins[at + 1]
    }

    fn nodes(&self) -> Range<usize> {
        0..self.firsts.len() - 1
    }

    /// Number of processes of a node.
    fn members(&self, node: usize) -> usize {
        self.firsts[node + 1] - self.firsts[node]
    }

    /// The bytes of the blocks of a node.
    fn of_node(&self, node: usize) -> Range<usize> {
        self.begins[self.firsts[node]]..self.begins[self.firsts[node + 1]]
    }

    /// Bytes of all blocks.
    fn all(&self) -> usize {
        self.begins[self.begins.len() - 1]
    }

    /// Lengths and places of the blocks of each node, `times` as long, for calls of the host.
    fn lists(&self, times: usize) -> (PerRank<c_int>, PerRank<c_int>) {
        let of = |node| self.of_node(node);
        (
            self.nodes().map(|node| (of(node).len() * times) as c_int).collect(),
            self.nodes().map(|node| (of(node).start * times) as c_int).collect(),
        )
    }
}

/// Whether so many bytes are exchanged between nodes here, as all processes know.
fn is_short(bytes: Option<usize>) -> bool {
    bytes.is_some_and(|bytes| (1..=nodes::BYTES_MAX).contains(&bytes))
}

/// Collects what the processes of a node send in its first process, behind one another in `node`,
/// where that of each process has its `lengths`.
///
/// # Safety
/// What is sent may be read, and lies apart from `node`.
unsafe fn collect(
    own: &mut Nodes,
    code: u32,
    sent: Blocks<'_>,
    (node, lengths): (&mut [u8], &[usize]),
) -> Result<(), Fault> {
    let plan = Plan {
        which: Collective::Gather { root: 0 },
        code,
        longest: lengths.iter().copied().max().unwrap_or(0),
        parts: false,
        means: Means::Pieces,
    };
    let is_first = own.here().rank == 0;
    let mut rest = node;
    let mut places = PerRank::new();
    if is_first {
        for length in lengths {
            let (block, others) = rest.split_at_mut(*length);
            places.push((block.as_mut_ptr(), *length));
            rest = others;
        }
    }
    let received = if is_first { Blocks::Places(&places) } else { Blocks::NONE };
    // SAFETY: the contract of this function; the places are parts of `node`.
    unsafe { plan.run(&mut own.mates, sent, received) }
}

/// Passes bytes from process `from` of this node to the others.
fn pass_on(own: &mut Nodes, from: u32, bytes: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: exclusive bytes.
    unsafe { pass(&mut own.mates, from, bytes.as_mut_ptr(), bytes.len()) }
}

/// The lengths of the blocks of this node's processes.
fn lengths_here(own: &Nodes, layout: &Layout) -> PerRank<usize> {
    let node = own.here().node;
    (0..layout.members(node as usize) as u32)
        .map(|rank| layout.block(Place { node, rank }).len())
        .collect()
}

/// An allgather of one block of each process, to `to`, by rank.
///
/// # Safety
/// The application may read `from` and write `to`.
pub(super) unsafe fn allgather(
    own: &mut Nodes,
    code: u32,
    from: &Elements,
    to: &[Elements],
    comm: MPI_Comm,
) -> Result<Served, Failed> {
    let all = to.iter().map(|block| block.bytes).try_fold(0, usize::checked_add);
    if !is_short(all) {
        return Ok(Served::AtHost);
    }
    let layout = Layout::new(own.places(), |rank| to[rank].bytes);
    let mut rows = vec![0; layout.all()];
    let lengths = lengths_here(own, &layout);
    let here = layout.of_node(own.here().node as usize);
    // SAFETY: the contract of this function; the staged bytes outlive the call.
    let source = unsafe { Staged::source(from, comm) };
    let sent = Blocks::Single(source.base(), from.bytes);
    // SAFETY: likewise.
    let collected = unsafe { collect(own, code, sent, (&mut rows[here], &lengths)) };
    let ((counts, displs), base) = (layout.lists(1), rows.as_mut_ptr().cast());
    // SAFETY: the counts and displacements are those of `rows`.
    let exchanged = own.between(|comm, request| unsafe {
        PMPI_Iallgatherv(
            MPI_IN_PLACE.cast_const(),
            0,
            MPI_BYTE,
            base,
            counts.as_ptr(),
            displs.as_ptr(),
            MPI_BYTE,
            comm,
            request,
        )
    });
    let passed = pass_on(own, 0, &mut rows);
    collected.and(exchanged).and(passed)?;
    for (block, place) in to.iter().zip(own.places()) {
        // SAFETY: the contract of this function.
        unsafe { block.copy_from(&rows[layout.block(*place)], comm) };
    }
    Ok(Served::Done)
}

/// A gather of blocks of as many bytes each, to `to`, by rank.
///
/// # Safety
/// The application may read `from`, and at the root it may write `to`.
pub(super) unsafe fn gather(
    own: &mut Nodes,
    (from, bytes): (&Elements, usize),
    root: c_int,
    to: Option<&Elements>,
    comm: MPI_Comm,
) -> Result<Served, Failed> {
    let target = own.place(root).ok_or(Failed::Wrong)?;
    if !is_short(bytes.checked_mul(own.places().len())) {
        return Ok(Served::AtHost);
    }
    let (layout, here) = (Layout::new(own.places(), |_| bytes), own.here());
    let is_there = here.node == target.node;
    let mut rows = vec![0; layout.all()];
    let lengths = lengths_here(own, &layout);
    let mine = layout.of_node(here.node as usize);
    // SAFETY: the contract of this function; the staged bytes outlive the call.
    let source = unsafe { Staged::source(from, comm) };
    let sent = Blocks::Single(source.base(), from.bytes);
    let node = (&mut rows[mine.clone()], &lengths[..]);
    // SAFETY: likewise.
    let collected = unsafe { collect(own, code::GATHER, sent, node) };
    let ((counts, displs), base) = (layout.lists(1), rows.as_mut_ptr());
    // SAFETY: the counts and displacements are those of `rows`.
    let exchanged = own.between(|comm, request| unsafe {
        let sent = if is_there { MPI_IN_PLACE.cast() } else { base.add(mine.start) };
        PMPI_Igatherv(
            sent.cast_const().cast(),
            mine.len() as c_int,
            MPI_BYTE,
            base.cast(),
            counts.as_ptr(),
            displs.as_ptr(),
            MPI_BYTE,
            target.node as c_int,
            comm,
            request,
        )
    });
    let must_pass = is_there && target.rank != 0;
    let passed = if must_pass { pass_on(own, 0, &mut rows) } else { Ok(()) };
    collected.and(exchanged).and(passed)?;
    if let Some(block) = to {
        for (rank, place) in (0..).zip(own.places()) {
            // SAFETY: the contract of this function.
            unsafe { block.nth(rank).copy_from(&rows[layout.block(*place)], comm) };
        }
    }
    Ok(Served::Done)
}

/// A scatter of blocks of as many bytes each, from `from`, by rank.
///
/// # Safety
/// The application may write `to`, and at the root it may read `from`.
pub(super) unsafe fn scatter(
    own: &mut Nodes,
    from: Option<&Elements>,
    root: c_int,
    (to, bytes): (&Elements, usize),
    comm: MPI_Comm,
) -> Result<Served, Failed> {
    let source = own.place(root).ok_or(Failed::Wrong)?;
    if !is_short(bytes.checked_mul(own.places().len())) {
        return Ok(Served::AtHost);
    }
    let (layout, here) = (Layout::new(own.places(), |_| bytes), own.here());
    let is_there = here.node == source.node;
    let mut rows = vec![0; layout.all()];
    if let Some(block) = from {
        for (rank, place) in (0..).zip(own.places()) {
            // SAFETY: the contract of this function.
            unsafe { block.nth(rank).copy_to(&mut rows[layout.block(*place)], comm) };
        }
    }
    let is_passed = is_there && source.rank != 0;
    let given = if is_passed { pass_on(own, source.rank, &mut rows) } else { Ok(()) };
    let mine = layout.of_node(here.node as usize);
    let ((counts, displs), base) = (layout.lists(1), rows.as_mut_ptr());
    // SAFETY: the counts and displacements are those of `rows`.
    let exchanged = own.between(|comm, request| unsafe {
        let received = if is_there { MPI_IN_PLACE.cast() } else { base.add(mine.start) };
        PMPI_Iscatterv(
            base.cast_const().cast(),
            counts.as_ptr(),
            displs.as_ptr(),
            MPI_BYTE,
            received.cast(),
            mine.len() as c_int,
            MPI_BYTE,
            source.node as c_int,
            comm,
            request,
        )
    });
    let passed = if is_passed { Ok(()) } else { pass_on(own, 0, &mut rows[mine]) };
    given.and(exchanged).and(passed)?;
    // SAFETY: the contract of this function.
    unsafe { to.copy_from(&rows[layout.block(here)], comm) };
    Ok(Served::Done)
}

/// An alltoall of blocks of as many bytes each, by rank. `from` and `to` may be the same.
///
/// # Safety
/// The application may read `from` and write `to`.
pub(super) unsafe fn alltoall(
    own: &mut Nodes,
    from: &Elements,
    to: &Elements,
    comm: MPI_Comm,
) -> Result<Served, Failed> {
    let ranks = own.places().len();
    let (layout, here) = (Layout::new(own.places(), |_| to.bytes), own.here());
    let most = layout.nodes().map(|node| layout.members(node)).max().unwrap_or(1);
    if !is_short(to.bytes.checked_mul(ranks).and_then(|bytes| bytes.checked_mul(most))) {
        return Ok(Served::AtHost);
    }
    let (members, row) = (layout.members(here.node as usize), layout.all());
    let mut mine = vec![0; row];
    for (rank, place) in (0..).zip(own.places()) {
        let at = layout.block(*place).start;
        // SAFETY: the contract of this function.
        unsafe { from.nth(rank).copy_to(&mut mine[at..at + from.bytes], comm) };
    }
    let mut rows = vec![0; if here.rank == 0 { members * row } else { 0 }];
    let lengths: PerRank<usize> = smallvec::smallvec![row; members];
    let sent = Blocks::Single(mine.as_mut_ptr(), row);
    // SAFETY: memory of this function.
    let collected = unsafe { collect(own, code::ALLTOALL, sent, (&mut rows, &lengths)) };
    // The message to a node has what each process here sends there, behind one another.
    let mut sent = Vec::with_capacity(rows.len());
    for node in layout.nodes() {
        rows.chunks(row).for_each(|all| sent.extend_from_slice(&all[layout.of_node(node)]));
    }
    let mut arrived = vec![0; members * row];
    let (counts, displs) = layout.lists(members);
    let (base, into) = (sent.as_ptr().cast(), arrived.as_mut_ptr().cast());
    // SAFETY: the counts and displacements are those of both messages.
    let exchanged = own.between(|comm, request| unsafe {
        let (counts, displs) = (counts.as_ptr(), displs.as_ptr());
        PMPI_Ialltoallv(
            base, counts, displs, MPI_BYTE, into, counts, displs, MPI_BYTE, comm, request,
        )
    });
    let passed = pass_on(own, 0, &mut arrived);
    collected.and(exchanged).and(passed)?;
    for (rank, place) in (0..).zip(own.places()) {
        // What a process has sent here is for the processes of this node, behind one another.
        let all = members * layout.block(*place).start;
        let at = all + here.rank as usize * to.bytes;
        // SAFETY: the contract of this function.
        unsafe { to.nth(rank).copy_from(&arrived[at..at + to.bytes], comm) };
    }
    Ok(Served::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_in_the_order_of_the_nodes() {
        // Ranks 0, 3 and 4 are on node 0, ranks 1 and 2 on node 1.
        let places =
            [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2)].map(|(node, rank)| Place { node, rank });
        let layout = Layout::new(&places, |rank| rank + 1);
        assert_eq!(places.map(|place| layout.block(place)), [0..1, 10..12, 12..15, 1..5, 5..10]);
        assert_eq!([0, 1].map(|node| layout.of_node(node)), [0..10, 10..15]);
        assert_eq!([0, 1].map(|node| layout.members(node)), [3, 2]);
        assert_eq!(layout.all(), 15);
        let (counts, displs) = layout.lists(3);
        assert_eq!((&counts[..], &displs[..]), (&[30, 15][..], &[0, 30][..]));
    }
}
