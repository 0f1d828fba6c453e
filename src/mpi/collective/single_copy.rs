//! Long collectives within a node, which copy each byte once: by cross-memory attach, from the
//! buffer of the process that has it to that of the process that gets it.
//!
//! Each process publishes on the board where its blocks are. Those that get data read them there.
//! Between a root and the others, both ends copy if that is faster: the root would have nothing
//! else to do. Another collective of the board follows, so that nobody returns while others use its
//! buffer.

mod folds;

use std::cmp::Ordering;
use std::slice::from_raw_parts;
use std::time::{Duration, Instant};

pub(super) use self::folds::{Operand, allreduce, reduce, reduce_scatter};
use super::communicators::{Collective, Communicator, bytes_of};
use super::exchanges::{Blocks, PerRank};
use super::serve::{assemble, code, differs};
use crate::collective::schedule::FLAT_MAX;
use crate::collective::{Content, Draft, Mismatch, Published, Work};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::runtime::progress::sweep_from_hook;
use crate::transport::shm::Direction;
use crate::transport::trials::{Trials, Turn};

/// Note of the contents: what is announced is longer than what passes in pieces.
const NOTE: u32 = 0xffff << 16;
/// Bytes that are copied between two rounds of progress [PR-1].
const CHUNK: usize = 4 << 20;
/// Shortest part of a block that a root copies.
const SHARE_MIN: usize = 16 << 10;

/// Most bytes of all blocks. Packed data need as much memory, and their length is an int of MPI.
pub(super) const BYTES_MAX: usize = 1 << 30;

/// Whether long collectives of so many processes are served here, if these reach each other.
pub(super) fn suits(ranks: u32) -> bool {
    ranks <= FLAT_MAX
}

/// Whether a collective of so many bytes, or so long blocks, is served here, as all processes know.
pub(super) fn serves(own: &Communicator, block: usize) -> bool {
    own.attached().is_some() && (1..=BYTES_MAX / own.ranks() as usize).contains(&block)
}

/// Bytes in the memory of a process: what it has for another one, or the place for it.
#[derive(Clone, Copy, Default)]
struct Span {
    address: u64,
    bytes: u64,
    /// Of a root's block: the part of the other process.
    share: u64,
}

impl Span {
    const BYTES: usize = 3 * 8;

    fn of((base, bytes): (*mut u8, usize)) -> Self {
        Span { address: base as u64, bytes: bytes as u64, share: 0 }
    }

    fn words(self) -> [u64; 3] {
        [self.address, self.bytes, self.share]
    }

    fn of_words([address, bytes, share]: [u64; 3]) -> Self {
        Span { address, bytes, share }
    }
}

/// How a length differs from what is expected.
fn mismatch(bytes: usize, expected: usize) -> Option<Mismatch> {
    match bytes.cmp(&expected) {
        Ordering::Greater => Some(Mismatch::Longer),
        Ordering::Less => Some(Mismatch::Shorter),
        Ordering::Equal => None,
    }
}

/// Why a block of so many bytes is not received in such a place. In some collectives, hosts accept
/// blocks that are shorter.
fn refusal(code: u32, bytes: usize, room: usize) -> Option<Mismatch> {
    let must_fill = [code::BROADCAST, code::SCATTER, code::ALLTOALL].contains(&code);
    mismatch(bytes, room).filter(|mismatch| must_fill || *mismatch == Mismatch::Longer)
}

/// Spans that processes publish, one for each process.
struct Announced<'a, M> {
    me: u32,
    called: Content,
    mine: M,
    found: &'a mut [Span],
}

impl<M: Fn(u32) -> Span> Work for Announced<'_, M> {
    fn write(&mut self, _: Content, draft: &Draft<'_>) {
        for peer in 0..self.found.len() {
            let mut words = (self.mine)(peer as u32).words();
            draft.write(peer * Span::BYTES, bytes_of(&mut words));
        }
    }

    fn collect(&mut self, from: u32, published: &Published<'_>) -> Option<Mismatch> {
        let mismatch = self.called.mismatch(published.content);
        if mismatch.is_none() {
            let mut words = [0u64; 3];
            published.read_part(self.me as usize * Span::BYTES, bytes_of(&mut words));
            self.found[from as usize] = Span::of_words(words);
        }
        mismatch
    }
}

fn differing(mismatch: Mismatch) -> Fault {
    differs(mismatch, MPI_ERR_OTHER, MPI_ERR_OTHER)
}

/// Publishes a span for each process, as `which` says. Returns what those that it collects from
/// have published for this one.
fn announce(
    own: &mut Communicator,
    (which, code): (Collective, u32),
    mine: impl Fn(u32) -> Span,
) -> Result<PerRank<Span>, Mismatch> {
    let ranks = own.ranks() as usize;
    let mut found: PerRank<Span> = smallvec::smallvec![Span::default(); ranks];
    let called = Content { bytes: (ranks * Span::BYTES) as u32, code: code | NOTE };
    let mut work = Announced { me: own.me(), called, mine, found: &mut found };
    match own.run_with(which, called, &mut work).1 {
        Some(mismatch) => Err(mismatch),
        None => Ok(found),
    }
}

/// Copies bytes at `there` in process `peer` to or from `here`, in chunks, and makes progress in
/// between.
///
/// # Safety
/// There are so many bytes at `here`, and the other process expects what is written there.
unsafe fn copy(
    own: &Communicator,
    (direction, peer): (Direction, u32),
    there: u64,
    here: *mut u8,
    bytes: usize,
) -> Result<(), Fault> {
    let Some(attached) = own.attached() else { return Ok(()) };
    for at in (0..bytes).step_by(CHUNK) {
        if at > 0 {
            sweep_from_hook();
        }
        let (there, here) = (there + at as u64, here.wrapping_add(at));
        // SAFETY: within the caller's bytes.
        let copied = unsafe { attached.copy(direction, peer, there, here, CHUNK.min(bytes - at)) };
        if let Err(error) = copied {
            log::error!(
                "cross-memory attach in a collective failed: {error}; with MPIX_RMA_CMA=off, long \
                 collectives are left to the host"
            );
            return Err(Fault::new(
                MPI_ERR_OTHER,
                "the memory of another process cannot be reached; standard error says why",
            ));
        }
    }
    Ok(())
}

/// The direction of data between a root and the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Toward {
    Root,
    Others,
}

/// Whether a root better helps to copy, as its times say. Between near processors a scatter takes
/// half as long then, and between distant ones up to 1.4 times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Help([Trials<2>; 2]);

/// The ways of [`Help`].
const HELPS: usize = 1;

impl Help {
    pub(super) const NEW: Help = Help([Trials::new(HELPS); 2]);
}

/// A call whose root may help, in the root.
struct Helped {
    toward: Toward,
    turn: Turn,
    begin: Option<Instant>,
}

impl Helped {
    /// Begins a call of the root.
    fn begin(own: &mut Communicator, toward: Toward, bytes: usize) -> Option<Self> {
        let is_suited = !own.is_crowded() && bytes / own.ranks() as usize >= SHARE_MIN;
        let turn = is_suited.then(|| own.help().0[toward as usize].next())?;
        Some(Helped { toward, turn, begin: None })
    }

    fn helps(&self) -> bool {
        let (Turn::Best(way) | Turn::Trial(way)) = self.turn;
        way == HELPS
    }

    /// The processes have come.
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is faster")]
    fn meet(&mut self) {
        self.begin = matches!(self.turn, Turn::Trial(_)).then(Instant::now);
    }

    /// Ends the call, in which blocks had so many bytes.
    fn end(self, own: &mut Communicator, bytes: usize) {
        const FAILED: Duration = Duration::from_secs(1);
        if let Turn::Trial(way) = self.turn {
            let took = self.begin.map_or(FAILED, |begin| begin.elapsed());
            let trials = &mut own.help().0[self.toward as usize];
            if let Some(least) = trials.note(way, took, bytes) {
                trials.settle_for_least(least);
            }
        }
    }
}

/// The block that a process keeps, and the copy of it, which is made while others are busy.
pub(super) struct Kept<F: FnOnce()> {
    pub(super) bytes: usize,
    pub(super) copy: F,
}

/// Bytes of a block that its process copies; the root copies those behind. If the root helps, it
/// has as much to do as each of the others. It has `kept` bytes of its own to copy, too, which take
/// some two fifths of the time of bytes of another process.
fn own_share(ranks: u32, helped: Option<&Helped>, bytes: usize, kept: usize) -> usize {
    let share = (bytes.saturating_sub(kept / 5 * 2) / ranks as usize) & !63;
    let helps = helped.is_some_and(Helped::helps) && share >= SHARE_MIN;
    if helps { bytes - share } else { bytes }
}

/// Moves blocks between the root and the others. `block` says where the block of a process is in
/// this one, which is the root or that process, and how long.
///
/// # Safety
/// The blocks are valid, for data that they get also writable.
unsafe fn rooted(
    own: &mut Communicator,
    (root, code): (u32, u32),
    toward: Toward,
    block: impl Fn(u32) -> (*mut u8, usize),
    kept: Kept<impl FnOnce()>,
) -> Result<(), Fault> {
    let (me, ranks) = (own.me(), own.ranks());
    let others = (0..ranks).filter(|peer| me == root && *peer != me);
    let longest = others.map(|peer| block(peer).1).max().unwrap_or(0);
    let mut helped = Helped::begin(own, toward, longest);
    // SAFETY: the contract of this function.
    let done = unsafe { rooted_with(own, (root, code), toward, &mut helped, block, kept) };
    if let Some(helped) = helped {
        helped.end(own, longest);
    }
    done
}

/// The same, in a call that is helped or not.
///
/// # Safety
/// As [`rooted`].
unsafe fn rooted_with(
    own: &mut Communicator,
    (root, code): (u32, u32),
    toward: Toward,
    helped: &mut Option<Helped>,
    block: impl Fn(u32) -> (*mut u8, usize),
    kept: Kept<impl FnOnce()>,
) -> Result<(), Fault> {
    let (me, ranks, is_root) = (own.me(), own.ranks(), own.me() == root);
    let receives = is_root == (toward == Toward::Root);
    let block_with = |peer: u32| block(if is_root { peer } else { me });
    let which = (Collective::AnnouncedGather { root }, code);
    let span = |peer| {
        let block = block_with(peer);
        let share = own_share(ranks, helped.as_ref(), block.1, kept.bytes) as u64;
        Span { share, ..Span::of(block) }
    };
    let found = announce(own, which, span).map_err(differing)?;
    if let Some(helped) = helped {
        helped.meet();
    }
    let mut done = Ok(());
    for peer in (0..ranks).filter(|peer| (*peer != root) == is_root && *peer != me) {
        let ((here, mine), there) = (block_with(peer), found[peer as usize]);
        let theirs = there.bytes as usize;
        let (sent, room) = if receives { (theirs, mine) } else { (mine, theirs) };
        if let Some(mismatch) = refusal(code, sent, room) {
            if receives {
                done = Err(differing(mismatch));
            }
            continue;
        }
        let (from, to) = match is_root {
            true => (own_share(ranks, helped.as_ref(), mine, kept.bytes).min(sent), sent),
            false => (0, sent.min(there.share as usize)),
        };
        let (here, there) = (here.wrapping_add(from), there.address + from as u64);
        let direction = if receives { Direction::Read } else { Direction::Write };
        // SAFETY: within the blocks at both ends (contract of this function).
        let moved = unsafe { copy(own, (direction, peer), there, here, to - from) };
        done = done.and(moved);
    }
    (kept.copy)();
    announce(own, which, |_| Span::default()).map_err(differing)?;
    done
}

/// Broadcasts bytes.
///
/// # Safety
/// There are so many bytes at `base`, which this process may read, and write if it is not the root.
pub(super) unsafe fn broadcast(
    own: &mut Communicator,
    root: u32,
    base: *mut u8,
    bytes: usize,
) -> Result<(), Fault> {
    let kept = Kept { bytes: 0, copy: || () };
    // SAFETY: the contract of this function.
    unsafe { rooted(own, (root, code::BROADCAST), Toward::Others, |_| (base, bytes), kept) }
}

/// Exchanges blocks.
///
/// # Safety
/// The blocks that are sent and received are valid, and none that is received overlaps one that is
/// sent, unless all blocks are received at the places of those that are sent.
pub(super) unsafe fn exchange(
    own: &mut Communicator,
    (which, code): (Collective, u32),
    send: Blocks<'_>,
    receive: Blocks<'_>,
    kept: Kept<impl FnOnce()>,
) -> Result<(), Fault> {
    let place = |blocks: Blocks<'_>, rank| blocks.piece(rank, 0, usize::MAX);
    // SAFETY: the contract of this function.
    unsafe {
        match which {
            Collective::Gather { root } | Collective::AnnouncedGather { root } => {
                let blocks = if own.me() == root { receive } else { send };
                rooted(own, (root, code), Toward::Root, |rank| place(blocks, rank), kept)
            }
            Collective::Scatter { root } => {
                let blocks = if own.me() == root { send } else { receive };
                rooted(own, (root, code), Toward::Others, |rank| place(blocks, rank), kept)
            }
            _ => exchange_all(own, code, send, receive, kept),
        }
    }
}

/// Copies of blocks, for others to read while the blocks are overwritten.
///
/// # Safety
/// The blocks may be read.
unsafe fn copies(ranks: u32, blocks: Blocks<'_>) -> (Vec<u8>, PerRank<(*mut u8, usize)>) {
    let pieces = || (0..ranks).map(|rank| blocks.piece(rank, 0, usize::MAX));
    let mut all: Vec<u8> = Vec::with_capacity(pieces().map(|(_, bytes)| bytes).sum());
    let places = pieces()
        .map(|(at, bytes)| {
            let place = all.as_mut_ptr().wrapping_add(all.len());
            if bytes > 0 {
                // SAFETY: the contract of this function.
                all.extend_from_slice(unsafe { from_raw_parts(at, bytes) });
            }
            (place, bytes)
        })
        .collect();
    (all, places)
}

/// # Safety
/// As [`exchange`].
unsafe fn exchange_all(
    own: &mut Communicator,
    code: u32,
    send: Blocks<'_>,
    receive: Blocks<'_>,
    kept: Kept<impl FnOnce()>,
) -> Result<(), Fault> {
    let (me, ranks) = (own.me(), own.ranks());
    let others = || (1..ranks).map(move |step| (me + step) % ranks);
    // Others would read what this process has received.
    let in_place = others().any(|rank| {
        let (at, bytes) = send.piece(rank, 0, usize::MAX);
        bytes > 0 && at == receive.piece(rank, 0, usize::MAX).0
    });
    // SAFETY: the contract of this function.
    let copies = in_place.then(|| unsafe { copies(ranks, send) });
    let sent = |peer| match &copies {
        Some((_, places)) => places[peer as usize],
        None => send.piece(peer, 0, usize::MAX),
    };
    let which = (Collective::Exchange, code);
    let found = announce(own, which, |peer| Span::of(sent(peer))).map_err(differing)?;
    let mut done = Ok(());
    // Not all from the same process at a time.
    for from in others() {
        let (place, (to, room)) = (found[from as usize], receive.piece(from, 0, usize::MAX));
        let bytes = place.bytes as usize;
        let taken = match refusal(code, bytes, room) {
            Some(mismatch) => Err(differing(mismatch)),
            // SAFETY: the contract of this function; the block is no longer than its place.
            None => unsafe { copy(own, (Direction::Read, from), place.address, to, bytes) },
        };
        done = done.and(taken);
    }
    (kept.copy)();
    assemble(own).and(done)
}
