//! `MPI_Gather`, `MPI_Scatter`, `MPI_Allgather`, `MPI_Alltoall` and `MPI_Allgatherv`: every process
//! knows the lengths of all blocks. Long blocks pass in pieces, each a collective of the board.

mod across;

use std::ffi::{c_int, c_void};
use std::ptr::{copy_nonoverlapping, null_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};

use smallvec::SmallVec;

use super::communicators::{Collective, Communicator};
use super::limits::Row;
use super::message::{Elements, Number, Staged, Triple, Typed};
use super::nodes::Nodes;
use super::serve::{Failed, Host, Served, code, differs, serve_across};
use super::single_copy::{self, Kept};
use crate::collective::schedule::FLAT_MAX;
use crate::collective::{Content, Draft, Mismatch, Published, Work};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;

/// Most bytes that a process publishes among more than a few.
const MANY_MAX: usize = 2048;

/// Where the blocks of a buffer are.
#[derive(Clone, Copy)]
pub(super) enum Blocks<'a> {
    /// There is one, for or from all processes.
    Single(*mut u8, usize),
    /// One of this length for each process, in a row.
    Even(*mut u8, usize),
    /// One for each process.
    Places(&'a [(*mut u8, usize)]),
}

impl Blocks<'_> {
    pub(super) const NONE: Blocks<'static> = Blocks::Single(null_mut(), 0);

    /// Address and length of at most `chunk` bytes of the block of `rank`, from byte `from` on.
    #[inline]
    pub(super) fn piece(&self, rank: u32, from: usize, chunk: usize) -> (*mut u8, usize) {
        let (at, bytes) = match self {
            Blocks::Single(at, bytes) => (*at, *bytes),
            Blocks::Even(at, bytes) => (at.wrapping_add(rank as usize * bytes), *bytes),
            Blocks::Places(places) => places[rank as usize],
        };
        (at.wrapping_add(from), bytes.saturating_sub(from).min(chunk))
    }
}

/// An exchange of blocks.
struct Plan {
    which: Collective,
    code: u32,
    /// Bytes of the longest block.
    longest: usize,
    /// A process publishes a part for each other process. Otherwise they all get the same.
    parts: bool,
    means: Means,
}

/// How blocks move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// By the board, in pieces.
    Pieces,
    /// From buffer to buffer.
    SingleCopy,
}

/// The exchange of one piece of each block.
struct Piece<'a> {
    me: u32,
    ranks: u32,
    called: Content,
    /// First byte, and most bytes.
    from: usize,
    chunk: usize,
    /// Bytes from one part to the next, if there are parts.
    stride: Option<usize>,
    send: Blocks<'a>,
    receive: Blocks<'a>,
}

/// The number of a process among the others of `of`.
pub(super) fn number(rank: u32, of: u32) -> usize {
    (rank - u32::from(rank > of)) as usize
}

impl Work for Piece<'_> {
    #[inline]
    fn write(&mut self, _: Content, draft: &Draft<'_>) {
        let part = |rank: u32| {
            let (at, bytes) = self.send.piece(rank, self.from, self.chunk);
            // SAFETY: a block that the application sends, or a packed one (contract of `run`).
            if bytes == 0 { &[] } else { unsafe { from_raw_parts(at.cast_const(), bytes) } }
        };
        match self.stride {
            None => draft.write(0, part(self.me)),
            Some(stride) => (0..self.ranks)
                .filter(|rank| *rank != self.me)
                .for_each(|rank| draft.write(number(rank, self.me) * stride, part(rank))),
        }
    }

    #[inline]
    fn collect(&mut self, from: u32, published: &Published<'_>) -> Option<Mismatch> {
        let (at, bytes) = self.receive.piece(from, self.from, self.chunk);
        let (place, whole) = match self.stride {
            None => (0, bytes),
            Some(stride) => (number(self.me, from) * stride, self.called.bytes as usize),
        };
        let theirs = published.content;
        let expected = Content { bytes: whole as u32, ..self.called };
        // A block that is shorter than its place is accepted, as by the host.
        let is_shorter = self.stride.is_none() && theirs.bytes < expected.bytes;
        if theirs != expected && !(is_shorter && theirs.note() == expected.note()) {
            return expected.mismatch(theirs);
        }
        let bytes = if self.stride.is_some() { bytes } else { theirs.bytes as usize };
        if bytes > 0 {
            // SAFETY: a block that the application receives, or a packed one (contract of `run`).
            published.read_part(place, unsafe { from_raw_parts_mut(at, bytes) });
        }
        None
    }
}

impl Plan {
    /// Runs the exchange, and copies the block that this process keeps.
    ///
    /// # Safety
    /// The blocks that the plan sends and receives are valid, and none that is received overlaps
    /// one that is sent, unless a process gets a block at the place of that which it gives.
    unsafe fn run(
        &self,
        own: &mut Communicator,
        send: Blocks<'_>,
        receive: Blocks<'_>,
    ) -> Result<(), Fault> {
        let (me, ranks) = (own.me(), own.ranks());
        // SAFETY: the contract of this function.
        let kept = unsafe { kept(send, receive, me) };
        if ranks == 1 {
            (kept.copy)();
            return Ok(());
        }
        // SAFETY: the contract of this function.
        unsafe {
            match self.means {
                Means::Pieces => {
                    let done = self.run_pieces(own, send, receive);
                    // Where calls differ, too: a node's first process passes it on in any case.
                    (kept.copy)();
                    done
                }
                Means::SingleCopy => {
                    let which = (self.which, self.code);
                    single_copy::exchange(own, which, send, receive, kept)
                }
            }
        }
    }

    /// Runs an exchange by the board.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn run_pieces(
        &self,
        own: &mut Communicator,
        send: Blocks<'_>,
        receive: Blocks<'_>,
    ) -> Result<(), Fault> {
        let (me, ranks) = (own.me(), own.ranks());
        let others = ranks as usize - 1;
        let room = if self.parts { (own.content_max() / others) & !7 } else { own.content_max() };
        let pieces = self.longest.div_ceil(room);
        for from in (0..self.longest).step_by(room) {
            let chunk = room.min(self.longest - from);
            let stride = self.parts.then(|| chunk.next_multiple_of(8));
            let bytes = match stride {
                Some(stride) => others * stride,
                None => send.piece(me, from, chunk).1,
            };
            let called =
                Content { bytes: bytes as u32, code: self.code | (pieces as u32 - 1) << 16 };
            let mut piece = Piece { me, ranks, called, from, chunk, stride, send, receive };
            if let (_, Some(mismatch)) = own.run_with(self.which, called, &mut piece) {
                return Err(differs(mismatch, MPI_ERR_OTHER, MPI_ERR_OTHER));
            }
        }
        Ok(())
    }
}

/// How blocks of so many bytes are exchanged here, as all processes know. `None`: at the host.
fn means(own: &Communicator, row: Row, block: usize, parts: bool) -> Option<Means> {
    let max = match own.ranks() {
        few @ ..=FLAT_MAX => row.most(few),
        many if parts => MANY_MAX / (many as usize - 1),
        _ => MANY_MAX,
    };
    means_of(own, block, (1..=max).contains(&block))
}

/// The same of blocks of so many bytes at most, which suit the board if they are `short`.
fn means_of(own: &Communicator, longest: usize, short: bool) -> Option<Means> {
    match short {
        true => Some(Means::Pieces),
        false => single_copy::serves(own, longest).then_some(Means::SingleCopy),
    }
}

/// The block that a process keeps: nothing if it is in its place.
///
/// # Safety
/// When it is copied, the block of `from` may be read, and that of `to` written.
unsafe fn kept(from: Blocks<'_>, to: Blocks<'_>, me: u32) -> Kept<impl FnOnce()> {
    let ((from, bytes), (to, room)) = (from.piece(me, 0, usize::MAX), to.piece(me, 0, usize::MAX));
    let bytes = if from == to { 0 } else { bytes.min(room) };
    let copy = move || {
        if bytes > 0 {
            // SAFETY: the contract of this function.
            unsafe { copy_nonoverlapping(from, to, bytes) };
        }
    };
    Kept { bytes, copy }
}

/// What a process gives: as the call says, or what is at the place of its own block. `None`: the
/// arguments are wrong.
fn given(send: Triple, own: Elements) -> Option<Elements> {
    if send.0 == MPI_IN_PLACE.cast_const() {
        return Some(own);
    }
    Elements::new(send).filter(|from| from.bytes <= own.bytes && !from.is_same_as(&own))
}

/// One block, or one of this length for each process.
#[derive(Clone, Copy)]
enum Held {
    One(Elements),
    Each(Elements, usize),
}

impl Held {
    fn each(block: Elements, ranks: u32) -> Self {
        Held::Each(block.times(ranks), block.bytes)
    }

    fn elements(&self) -> &Elements {
        match self {
            Held::One(elements) | Held::Each(elements, _) => elements,
        }
    }

    fn blocks(&self, staged: &Staged) -> Blocks<'static> {
        match self {
            Held::One(elements) => Blocks::Single(staged.base(), elements.bytes),
            Held::Each(_, bytes) => Blocks::Even(staged.base(), *bytes),
        }
    }
}

/// Runs an exchange of blocks of equal length.
///
/// # Safety
/// The application may read and write the elements.
unsafe fn even(
    own: &mut Communicator,
    plan: &Plan,
    send: Option<Held>,
    receive: Option<Held>,
    comm: MPI_Comm,
) -> Result<Served, Failed> {
    // SAFETY: the contract of this function.
    let source = send.map(|held| unsafe { Staged::source(held.elements(), comm) });
    let sink = receive.map(|held| Staged::sink(held.elements()));
    let blocks = |held: Option<Held>, staged: &Option<Staged>| match (held, staged) {
        (Some(held), Some(staged)) => held.blocks(staged),
        _ => Blocks::NONE,
    };
    let (sent, received) = (blocks(send, &source), blocks(receive, &sink));
    // SAFETY: the contract of this function; the staged bytes live as long as their owners.
    unsafe {
        plan.run(own, sent, received)?;
        if let (Some(held), Some(sink)) = (receive, sink) {
            sink.deliver(held.elements(), comm);
        }
    }
    Ok(Served::Done)
}

/// The valid rank that a root is.
pub(super) fn valid_root(own: &Communicator, root: c_int) -> Option<u32> {
    u32::try_from(root).ok().filter(|root| *root < own.ranks())
}

/// # Safety
/// As MPI says of `MPI_Allgather`.
pub(super) unsafe fn allgather(
    send: Triple,
    receive: Triple,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // What this process gives, and a block that it gets.
    let arguments = |me: u32| {
        let to = Elements::new(receive).ok_or(Failed::Wrong)?;
        Ok::<_, Failed>((given(send, to.nth(me)).ok_or(Failed::Wrong)?, to))
    };
    let across = |own: &mut Nodes| {
        let (from, to) = arguments(own.me())?;
        let to: PerRank<Elements> = (0..own.ranks()).map(|rank| to.nth(rank)).collect();
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { across::allgather(own, code::ALLGATHER, &from, &to, comm) }
    };
    let ours = |own: &mut Communicator| {
        let (from, to) = arguments(own.me())?;
        let Some(means) = means(own, Row::Allgather, to.bytes, false) else {
            return Ok(Served::AtHost);
        };
        let which = Collective::Exchange;
        let plan = Plan { which, code: code::ALLGATHER, longest: to.bytes, parts: false, means };
        let to = Held::each(to, own.ranks());
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { even(own, &plan, Some(Held::One(from)), Some(to), comm) }
    };
    serve_across("MPI_Allgather", comm, host, ours, across)
}

/// # Safety
/// As MPI says of `MPI_Alltoall`.
pub(super) unsafe fn alltoall(
    send: Triple,
    receive: Triple,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // A block that this process gives, and one that it gets.
    let arguments = || {
        let to = Elements::new(receive).ok_or(Failed::Wrong)?;
        Ok::<_, Failed>((given(send, to).ok_or(Failed::Wrong)?, to))
    };
    let across = |own: &mut Nodes| {
        let (from, to) = arguments()?;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { across::alltoall(own, &from, &to, comm) }
    };
    let ours = |own: &mut Communicator| {
        let (from, to) = arguments()?;
        let Some(means) = means(own, Row::Alltoall, to.bytes, true) else {
            return Ok(Served::AtHost);
        };
        let which = Collective::Exchange;
        let plan = Plan { which, code: code::ALLTOALL, longest: to.bytes, parts: true, means };
        let (from, to) = (Held::each(from, own.ranks()), Held::each(to, own.ranks()));
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { even(own, &plan, Some(from), Some(to), comm) }
    };
    serve_across("MPI_Alltoall", comm, host, ours, across)
}

/// # Safety
/// As MPI says of `MPI_Gather`.
pub(super) unsafe fn gather(
    send: Triple,
    receive: Triple,
    root: c_int,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // What this process gives, and a block of the root.
    let arguments = |me: u32| {
        let is_root = me as c_int == root;
        let block = Elements::new(if is_root { receive } else { send }).ok_or(Failed::Wrong)?;
        let from = if is_root { given(send, block.nth(me)) } else { Some(block) };
        Ok::<_, Failed>((from.ok_or(Failed::Wrong)?, block, is_root))
    };
    let across = |own: &mut Nodes| {
        let (from, block, is_root) = arguments(own.me())?;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { across::gather(own, (&from, block.bytes), root, is_root.then_some(&block), comm) }
    };
    let ours = |own: &mut Communicator| {
        let root = valid_root(own, root).ok_or(Failed::Wrong)?;
        let (from, block, is_root) = arguments(own.me())?;
        let Some(means) = means(own, Row::Gather, block.bytes, false) else {
            return Ok(Served::AtHost);
        };
        let which = Collective::Gather { root };
        let plan = Plan { which, code: code::GATHER, longest: block.bytes, parts: false, means };
        let to = is_root.then(|| Held::each(block, own.ranks()));
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { even(own, &plan, Some(Held::One(from)), to, comm) }
    };
    serve_across("MPI_Gather", comm, host, ours, across)
}

/// # Safety
/// As MPI says of `MPI_Scatter`.
pub(super) unsafe fn scatter(
    send: Triple,
    receive: Triple,
    root: c_int,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // What this process gets, and a block of the root.
    let arguments = |me: u32| {
        let is_root = me as c_int == root;
        let block = Elements::new(if is_root { send } else { receive }).ok_or(Failed::Wrong)?;
        let to = match receive.0 == MPI_IN_PLACE.cast_const() {
            _ if !is_root => Some(block),
            true => Some(block.nth(me)),
            false => Elements::new(receive)
                .filter(|to| to.bytes >= block.bytes && !to.is_same_as(&block.nth(me))),
        };
        Ok::<_, Failed>((to.ok_or(Failed::Wrong)?, block, is_root))
    };
    let across = |own: &mut Nodes| {
        let (to, block, is_root) = arguments(own.me())?;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { across::scatter(own, is_root.then_some(&block), root, (&to, block.bytes), comm) }
    };
    let ours = |own: &mut Communicator| {
        let root = valid_root(own, root).ok_or(Failed::Wrong)?;
        let (to, block, is_root) = arguments(own.me())?;
        let Some(means) = means(own, Row::Scatter, block.bytes, true) else {
            return Ok(Served::AtHost);
        };
        let which = Collective::Scatter { root };
        let plan = Plan { which, code: code::SCATTER, longest: block.bytes, parts: true, means };
        let from = is_root.then(|| Held::each(block, own.ranks()));
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { even(own, &plan, from, Some(Held::One(to)), comm) }
    };
    serve_across("MPI_Scatter", comm, host, ours, across)
}

/// A number for each process.
///
/// # Safety
/// The array has that many, and lives as long as the slice is used.
pub(super) unsafe fn list<'a, N>(numbers: *const N, ranks: u32) -> Option<&'a [N]> {
    // SAFETY: the contract of this function.
    (!numbers.is_null()).then(|| unsafe { from_raw_parts(numbers, ranks as usize) })
}

/// Arguments of what each process sends or receives in its turn.
pub(super) struct Lists<C, D> {
    pub(super) buffer: *const c_void,
    pub(super) counts: *const C,
    pub(super) displacements: *const D,
    pub(super) datatype: MPI_Datatype,
}

/// A list of one entry for each process. A few are in place: they are moved with the list.
pub(super) type PerRank<T> = SmallVec<[T; 4]>;

impl<C: Number, D: Number> Lists<C, D> {
    /// The elements of each process. `None`: the arguments are wrong.
    ///
    /// # Safety
    /// The arrays have a number for each process.
    pub(super) unsafe fn elements(&self, ranks: u32) -> Option<PerRank<Elements>> {
        // SAFETY: the contract of this function.
        let (counts, displacements) =
            unsafe { (list(self.counts, ranks)?, list(self.displacements, ranks)?) };
        let none = counts.iter().all(|count| count.wide() == 0);
        let typed = Typed::of_any(self.datatype, none)?;
        counts
            .iter()
            .zip(displacements)
            .map(|(count, displacement)| {
                let elements = Elements::typed(self.buffer, count.wide(), typed)?;
                Some(elements.moved(displacement.wide() as isize))
            })
            .collect()
    }
}

/// # Safety
/// As MPI says of `MPI_Allgatherv`.
pub(super) unsafe fn allgatherv<C: Number, D: Number>(
    send: Triple,
    receive: Lists<C, D>,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // What this process gives, and what it gets.
    let arguments = |me: u32, ranks: u32| {
        // SAFETY: the application's arrays, as MPI says of the call.
        let to = unsafe { receive.elements(ranks) }.ok_or(Failed::Wrong)?;
        let from = given(send, to[me as usize]).ok_or(Failed::Wrong)?;
        let is_wrong = receive.buffer == MPI_IN_PLACE.cast_const();
        if is_wrong { Err(Failed::Wrong) } else { Ok((from, to)) }
    };
    let across = |own: &mut Nodes| {
        let (from, to) = arguments(own.me(), own.ranks())?;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { across::allgather(own, code::ALLGATHERV, &from, &to, comm) }
    };
    let ours = |own: &mut Communicator| {
        let (from, to) = arguments(own.me(), own.ranks())?;
        let all = to.iter().map(|block| block.bytes).try_fold(0, usize::checked_add);
        let longest = to.iter().map(|block| block.bytes).max().unwrap_or(0);
        let all_max = Row::Allgather.most(own.ranks()).saturating_mul(own.ranks() as usize);
        let is_short = all.is_some_and(|all| (1..=all_max).contains(&all))
            && (own.ranks() <= FLAT_MAX || longest <= MANY_MAX);
        let Some(means) = means_of(own, longest, is_short) else {
            return Ok(Served::AtHost);
        };
        let (which, parts) = (Collective::Exchange, false);
        let plan = Plan { which, code: code::ALLGATHERV, longest, parts, means };
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let source = Staged::source(&from, comm);
            let sinks: PerRank<Staged> = to.iter().map(Staged::sink).collect();
            let places: PerRank<(*mut u8, usize)> =
                sinks.iter().zip(&to).map(|(sink, block)| (sink.base(), block.bytes)).collect();
            let sent = Blocks::Single(source.base(), from.bytes);
            let received = Blocks::Places(&places);
            plan.run(own, sent, received)?;
            sinks.iter().zip(&to).for_each(|(sink, block)| sink.deliver(block, comm));
        }
        Ok(Served::Done)
    };
    serve_across("MPI_Allgatherv", comm, host, ours, across)
}
