//! Schedules of this library: contents in steps, over rings of slots that the processes share
//! [CL-5].
//!
//! What a call moves is a [`Movement`]: for each process, the bytes that this process sends to it,
//! and those that it receives from it, which it stores or reduces. [`set_up`] exchanges the
//! lengths, so all processes see whether they match, and all choose alike. Long contents need no
//! rings, if processes can read each other's buffers ([`in_place`]).

use std::ffi::c_void;
use std::ops::{Range, RangeInclusive};

use super::folding::Folding;
use super::{NotServed, divided, in_place, over_nodes, scratch, serves_always};
use crate::collective::steps::{Content, DEPTH, INLINE, Mover, Pieces, Plan, Rings, Turn};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::{Carrier, bytes_of};
use crate::mpi::datatype::{predefined, reduction_of};
use crate::mpi::progress::drive;
use crate::runtime::collectives::{Advance, PersistentCollective};
use crate::sync::AtomicU64;
use crate::transport::copy::{copy, prefetch, prefetch_to_write};
use crate::transport::crossing::{Stores, copy_in, copy_out, second_level_cache};
use crate::transport::datatype::Combine;
use crate::transport::shm::{self, Scratch};

/// Most processes of a communicator that has schedules. Each reads what all others publish.
pub(super) const RANKS_MAX: u32 = 64;
/// Least and most bytes of a slot of long contents: pieces for all others together.
const SLOT: RangeInclusive<usize> = 16 * 1024..=128 * 1024;
/// Pieces are multiples of a cache line, and so of every element.
pub(super) const LINE: usize = 64;

/// A part of a buffer of the application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) at: *mut u8,
    pub(super) bytes: usize,
}

impl Part {
    pub(super) const NONE: Part = Part { at: std::ptr::null_mut(), bytes: 0 };
}

/// What one process does in a collective.
pub(super) struct Movement {
    /// A code of the call and its root, which all processes compare.
    pub(super) call: u64,
    /// What goes to each process. If `is_same`, all that get anything get the same.
    pub(super) sends: Vec<Part>,
    pub(super) is_same: bool,
    /// What comes from each process, this one included, and where it is stored or reduced to.
    pub(super) receives: Vec<Part>,
    /// What is received is reduced, in the order of ranks, to the place of the first.
    pub(super) combine: Option<Combine>,
    /// The result takes the place of contributions.
    pub(super) in_place: bool,
}

/// An element that can be moved as bytes: its size. `None`: it is derived or has padding.
pub(super) fn dense(datatype: MPI_Datatype) -> Option<usize> {
    let known = predefined(datatype).filter(|known| known.is_dense())?;
    Some(usize::from(known.size)).filter(|size| LINE.is_multiple_of(*size))
}

/// How elements are reduced. `None`: by a function of the application, or MPI does not define it.
pub(super) fn combine(datatype: MPI_Datatype, op: MPI_Op) -> Option<Combine> {
    let known = predefined(datatype).filter(|known| known.is_dense())?;
    dense(datatype)?;
    known.combine(reduction_of(op)?)
}

/// Elements of a buffer, from the `from`-th on.
pub(super) fn part(buffer: *const c_void, size: usize, from: i64, count: i64) -> Option<Part> {
    let bytes = usize::try_from(count).ok()?.checked_mul(size)?;
    if bytes == 0 {
        return Some(Part::NONE);
    }
    // At MPI_BOTTOM, only derived datatypes have data.
    let at = (!buffer.is_null()).then_some(buffer)?;
    let skipped = isize::try_from(from).ok()?.checked_mul(size as isize)?;
    Some(Part { at: at.cast_mut().cast::<u8>().wrapping_offset(skipped), bytes })
}

/// What a process tells the others: whether it can, the call, the reduction, whether it would
/// divide reductions, its second-level cache, its node, then the bytes to each and from each.
const HEAD: usize = NODE.end;
/// Where the node is.
const NODE: Range<usize> = 5..8;

/// Lengths and terms of all processes.
pub(super) struct Exchanged {
    words: Vec<u64>,
    pub(super) ranks: usize,
}

impl Exchanged {
    /// Exchanges what each process tells of its movement, if it has one. Collective. `None`: the
    /// host could not.
    pub(super) fn of(carrier: &mut Carrier, movement: Option<&Movement>) -> Option<Self> {
        let ranks = carrier.ranks as usize;
        let mut mine = vec![0u64; HEAD + 2 * ranks];
        if let Some(movement) = movement {
            let code = movement.combine.map_or(0, |combine| {
                1 + u64::from(combine.element.0) + (u64::from(combine.reduction.0) << 8)
            });
            mine[..NODE.start].copy_from_slice(&[
                1,
                movement.call,
                code,
                divided::is_wanted().into(),
                second_level_cache() as u64,
            ]);
            mine[NODE].copy_from_slice(&shm::node().unwrap_or_default());
            for at in 0..ranks {
                mine[HEAD + at] = movement.sends[at].bytes as u64;
                mine[HEAD + ranks + at] = movement.receives[at].bytes as u64;
            }
        }
        let mut all = vec![0u64; mine.len() * ranks];
        let (sent, room) = (bytes_of(&mut mine), bytes_of(&mut all));
        // SAFETY: the communicator is live, since the application has just called with it, and
        // there is room for as much of each process.
        let code = unsafe { drive::allgather(carrier.comm, sent, room) };
        (code == MPI_SUCCESS).then_some(Exchanged { words: all, ranks })
    }

    fn of_rank(&self, rank: usize) -> &[u64] {
        let length = HEAD + 2 * self.ranks;
        &self.words[rank * length..][..length]
    }

    /// Whether all processes would divide reductions.
    pub(super) fn all_divide(&self) -> bool {
        (0..self.ranks).all(|rank| self.of_rank(rank)[3] != 0)
    }

    /// Bytes of a slot of long contents. The rings that a process reads are together as large as a
    /// second-level cache: then their writers find most slots in the third level, and need not take
    /// them away from the reader.
    pub(super) fn slot_bytes(&self) -> usize {
        let cache = (0..self.ranks).map(|rank| self.of_rank(rank)[4] as usize).max();
        let others = (self.ranks - 1).max(1);
        let slot = cache.unwrap_or(0) / (others * DEPTH);
        slot.next_multiple_of(LINE).clamp(*SLOT.start(), *SLOT.end())
    }

    /// The nodes of all processes.
    fn nodes(&self) -> Vec<over_nodes::Node> {
        let node_of = |rank| self.of_rank(rank)[NODE].try_into().unwrap_or_default();
        (0..self.ranks).map(node_of).collect()
    }

    /// Bytes from one process to another.
    pub(super) fn sent(&self, from: usize, to: usize) -> usize {
        self.of_rank(from)[HEAD + to] as usize
    }

    fn received(&self, from: usize, to: usize) -> usize {
        self.of_rank(to)[HEAD + self.ranks + from] as usize
    }

    /// All pairs of processes: the sender and the receiver.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let ranks = self.ranks;
        (0..ranks * ranks).map(move |at| (at / ranks, at % ranks))
    }

    /// Whether a process reads what another one sends.
    pub(super) fn reads(&self, from: usize, to: usize) -> bool {
        from != to && self.sent(from, to) > 0
    }

    /// The other processes that one reads from.
    pub(super) fn sources(&self, to: usize) -> impl Iterator<Item = usize> {
        (0..self.ranks).filter(move |from| self.reads(*from, to))
    }

    /// The other processes that read from one.
    pub(super) fn readers(&self, from: usize) -> impl Iterator<Item = usize> {
        (0..self.ranks).filter(move |to| self.reads(from, *to))
    }

    /// Whether all processes have told of a movement.
    pub(super) fn all_can(&self) -> bool {
        (0..self.ranks).all(|rank| self.of_rank(rank)[0] != 0)
    }

    /// Whether each process receives as much as is sent to it.
    pub(super) fn lengths_match(&self) -> bool {
        self.pairs().all(|(from, to)| self.sent(from, to) == self.received(from, to))
    }

    /// Whether all processes can, and their calls match. The same in all of them.
    fn agree(&self) -> Result<(), NotServed> {
        let refused = |class, text| Err(NotServed::Refused(Fault::new(class, text)));
        let heads = || (0..self.ranks).map(|rank| self.of_rank(rank));
        if !self.all_can() {
            return Err(NotServed::LeftToHost(
                "a datatype is derived or has padding, or an operation is not predefined",
            ));
        }
        if heads().any(|head| head[1] != self.of_rank(0)[1]) {
            return refused(MPI_ERR_ROOT, "the processes call with different roots");
        }
        if heads().any(|head| head[2] != self.of_rank(0)[2]) {
            return refused(
                MPI_ERR_OP,
                "the processes call with different operations or datatypes",
            );
        }
        if !self.lengths_match() {
            return refused(MPI_ERR_TRUNCATE, "a process sends more or less than another receives");
        }
        Ok(())
    }
}

/// Memory for the rings of all processes, of which this one's are present: its own, if it publishes
/// something, and those that it takes from. Collective.
pub(super) fn memory(
    carrier: &mut Carrier,
    rings: &Rings,
    publishes: bool,
    takes: impl Iterator<Item = u32>,
) -> Result<Scratch, NotServed> {
    let scratch = scratch(carrier, rings.words())?;
    let own = publishes.then_some(carrier.me);
    for rank in takes.filter(|from| *from != carrier.me).chain(own) {
        scratch.populate(rings.ring(rank));
    }
    Ok(scratch)
}

/// Sets up a collective. `movement` is `None` if this process cannot. Collective.
pub(super) fn set_up(
    carrier: &mut Carrier,
    movement: Option<Movement>,
) -> Result<Box<dyn PersistentCollective>, NotServed> {
    if carrier.ranks > RANKS_MAX {
        return Err(NotServed::LeftToHost("the communicator has more than 64 processes"));
    }
    let exchanged = Exchanged::of(carrier, movement.as_ref());
    let Some(exchanged) = exchanged else {
        return Err(NotServed::LeftToHost("the host could not exchange the arguments"));
    };
    exchanged.agree()?;
    let movement = movement.expect("all processes have one");
    if serves_always()
        && let Some(order) = over_nodes::order(&exchanged.nodes())
    {
        return over_nodes::set_up(carrier, order, &exchanged, &movement);
    }
    let me = carrier.me as usize;
    // All processes have the same layout of slots and the same number of steps.
    let most = |pairs: &mut dyn Iterator<Item = (usize, usize)>| {
        pairs.map(|(from, to)| exchanged.sent(from, to)).max().unwrap_or(0)
    };
    let own_most = most(&mut (0..exchanged.ranks).map(|rank| (rank, rank)));
    let mut longest = most(&mut exchanged.pairs().filter(|(from, to)| from != to));
    if movement.combine.is_some() {
        longest = longest.max(own_most);
    }
    if divided::is_worthwhile(&exchanged, &movement, longest) {
        return divided::set_up(carrier, &exchanged, movement, longest);
    }
    if in_place::is_worthwhile(&exchanged, longest)
        && let Some(found) = in_place::agree(carrier, &exchanged, &movement, longest)
    {
        return Ok(Box::new(in_place::set_up(carrier, &exchanged, &movement, found)?));
    }
    let parts = if movement.is_same { 1 } else { (exchanged.ranks - 1).max(1) };
    let mut piece = longest;
    if parts * longest > INLINE {
        let room = (exchanged.slot_bytes() / parts).max(LINE) / LINE * LINE;
        piece = longest.next_multiple_of(LINE).min(room);
    }
    let piece = piece.max(1);
    let steps = longest.div_ceil(piece).max(usize::from(own_most > 0)) as u32;
    let pieces = |bytes| Pieces { total: bytes, piece };
    let synchronizes = exchanged
        .pairs()
        .filter(|(from, to)| from != to)
        .all(|(from, to)| pieces(exchanged.sent(from, to)).steps() == steps);
    let readers = exchanged.readers(me).map(|to| to as u32).collect();
    let sent = (0..exchanged.ranks).filter(|to| *to != me).map(|to| exchanged.sent(me, to)).max();
    // Without a reduction, the own part comes first: it is there already.
    let first = if movement.combine.is_some() { 0 } else { me };
    let own_piece =
        exchanged.sent(me, me).div_ceil(steps.max(1) as usize).next_multiple_of(LINE).max(1);
    let takes: Vec<(u32, Content)> = (0..exchanged.ranks)
        .map(|at| (first + at) % exchanged.ranks)
        .filter(|from| movement.receives[*from].bytes > 0)
        .map(|from| {
            let bytes = movement.receives[from].bytes;
            // What is reduced must be cut alike.
            let is_own = from == me && movement.combine.is_none();
            let piece = if is_own { own_piece } else { piece };
            (from as u32, Content::whole(Pieces { total: bytes, piece }))
        })
        .collect();
    let sent = sent.unwrap_or(0);
    let publishes = Content::whole(pieces(sent));
    let rings = Rings::new(carrier.me, carrier.ranks, parts * piece);
    let scratch = memory(carrier, &rings, sent > 0, takes.iter().map(|(from, _)| *from))?;
    let plan = Plan { steps, publishes, takes, readers, synchronizes };
    let folding = movement.combine.map(|combine| {
        // The result takes the place of contributions.
        let apart = if movement.in_place { piece } else { 0 };
        Folding::new(combine, apart)
    });
    let moves = Moves { movement, me, piece, stores: Stores::new(), folding };
    Ok(Box::new(Schedule { scratch, rings, plan, moves }))
}

/// A schedule in steps.
pub(super) struct Schedule<M> {
    pub(super) scratch: Scratch,
    pub(super) rings: Rings,
    pub(super) plan: Plan,
    pub(super) moves: M,
}

impl<M: Mover + Send> PersistentCollective for Schedule<M> {
    fn start(&mut self) -> Advance {
        self.rings.start(&self.plan);
        self.advance()
    }

    #[inline]
    fn advance(&mut self) -> Advance {
        let (complete, moved) =
            self.rings.advance(&self.plan, self.scratch.words(), &mut self.moves);
        if complete { Advance::Complete } else { Advance::Pending { moved } }
    }
}

struct Moves {
    movement: Movement,
    me: usize,
    /// Bytes of a piece, and between the pieces for two processes in a slot.
    piece: usize,
    /// How it fills its slots.
    stores: Stores,
    folding: Option<Folding>,
}

// SAFETY: the application's buffers, which belong to the library while the collective is active;
// any thread may use them then.
unsafe impl Send for Moves {}

/// The bytes of a slot, from one on.
pub(super) fn place(slot: &[AtomicU64], at: usize) -> *mut u8 {
    slot.as_ptr().cast::<u8>().cast_mut().wrapping_add(at)
}

impl Moves {
    /// Where the piece for a process begins in a slot of `writer`, which has none for itself.
    fn offset(&self, writer: usize, reader: usize) -> usize {
        if self.movement.is_same { 0 } else { (reader - usize::from(reader > writer)) * self.piece }
    }
}

impl Mover for Moves {
    fn publish(&mut self, step: u32, slot: &[AtomicU64]) {
        let (me, piece) = (self.me, self.piece);
        let sends = self.movement.sends.iter().enumerate();
        let others = sends.filter(|(to, part)| *to != me && part.bytes > 0);
        let number = if self.movement.is_same { 1 } else { usize::MAX };
        let pieces = others.take(number).filter_map(|(to, part)| {
            let range = Pieces { total: part.bytes, piece }.of(step)?;
            Some((part.at.wrapping_add(range.start), self.offset(me, to), range.len()))
        });
        let bytes = pieces.clone().map(|(_, _, bytes)| bytes).sum();
        let mut stores = self.stores;
        stores.fill(bytes, |way| {
            for (from, at, bytes) in pieces {
                // SAFETY: the range lies in the application's buffer, which belongs to the library
                // now; the slot has room for the piece of each process, and nobody reads it now.
                unsafe { copy_out(way, from, place(slot, at), bytes) };
            }
        });
        self.stores = stores;
    }

    fn expect(&self, word: &AtomicU64, writes: bool) {
        let line = std::ptr::from_ref(word).cast();
        if writes { prefetch_to_write(line) } else { prefetch(line) }
    }

    fn take(&mut self, from: u32, range: Range<usize>, turn: Turn, slot: Option<&[AtomicU64]>) {
        let (from, bytes) = (from as usize, range.len());
        let to = self.movement.receives[from].at.wrapping_add(range.start);
        let source = match slot {
            Some(slot) => place(slot, self.offset(from, self.me)),
            None => self.movement.sends[self.me].at.wrapping_add(range.start),
        };
        // SAFETY: all ranges lie in the application's buffers, which belong to the library now, or
        // in a slot that has been published and is not reused before the step is finished. The
        // result is written where nothing is read any more.
        unsafe {
            match (&mut self.folding, slot) {
                (Some(folding), _) => folding.add(source, to, bytes, turn),
                (None, Some(_)) => copy_in(source, to, bytes),
                (None, None) if source == to => {}
                (None, None) => copy(source, to, bytes),
            }
        }
    }
}
