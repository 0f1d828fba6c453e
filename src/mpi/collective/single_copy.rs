//! Long collectives within a node, which copy each byte once: by cross-memory attach, from the
//! buffer of the process that has it to that of the process that gets it.
//!
//! Each process publishes on the board where its blocks are. Those that get data read them there.
//! Between a root and the others, both ends copy: the root would have nothing else to do. Another
//! collective of the board follows, so that nobody returns while others use its buffer.

mod folds;

use std::cmp::Ordering;
use std::io;
use std::slice::from_raw_parts;

pub(super) use self::folds::{Operand, allreduce, reduce, reduce_scatter};
use super::communicators::{Collective, Communicator};
use super::exchanges::{Blocks, PerRank};
use super::serve::{assemble, code, differs};
use crate::collective::schedule::FLAT_MAX;
use crate::collective::{Content, Draft, Mismatch, Published, Work};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::runtime::progress::sweep_from_hook;

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
}

impl Span {
    const BYTES: usize = 2 * 8;

    fn of((base, bytes): (*mut u8, usize)) -> Self {
        Span { address: base as u64, bytes: bytes as u64 }
    }

    fn encode(self) -> [u8; Self::BYTES] {
        let (mut all, [address, bytes]) =
            ([0; Self::BYTES], [self.address, self.bytes].map(u64::to_ne_bytes));
        all[..8].copy_from_slice(&address);
        all[8..].copy_from_slice(&bytes);
        all
    }

    fn decode(all: [u8; Self::BYTES]) -> Self {
        let [address, bytes] =
            [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|byte| all[at + byte])));
        Span { address, bytes }
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
            draft.write(peer * Span::BYTES, &(self.mine)(peer as u32).encode());
        }
    }

    fn collect(&mut self, from: u32, published: &Published<'_>) -> Option<Mismatch> {
        let mismatch = self.called.mismatch(published.content);
        if mismatch.is_none() {
            let mut span = [0; Span::BYTES];
            published.read_part(self.me as usize * Span::BYTES, &mut span);
            self.found[from as usize] = Span::decode(span);
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

/// Transfers bytes in chunks, and makes progress in between. `part` gets the first byte and the
/// number of a chunk.
fn in_chunks(bytes: usize, part: impl Fn(usize, usize) -> io::Result<()>) -> Result<(), Fault> {
    for at in (0..bytes).step_by(CHUNK) {
        if at > 0 {
            sweep_from_hook();
        }
        if let Err(error) = part(at, CHUNK.min(bytes - at)) {
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

/// Reads bytes of process `from`.
///
/// # Safety
/// `to` is valid for so many bytes.
unsafe fn read(
    own: &Communicator,
    from: u32,
    address: u64,
    to: *mut u8,
    bytes: usize,
) -> Result<(), Fault> {
    let Some(attached) = own.attached() else { return Ok(()) };
    in_chunks(bytes, |at, part| {
        // SAFETY: within the caller's bytes.
        unsafe { attached.read(from, address + at as u64, to.wrapping_add(at), part) }
    })
}

/// Writes bytes to process `to`, which expects them.
///
/// # Safety
/// `from` is valid for so many bytes.
unsafe fn write(
    own: &Communicator,
    to: u32,
    address: u64,
    from: *const u8,
    bytes: usize,
) -> Result<(), Fault> {
    let Some(attached) = own.attached() else { return Ok(()) };
    in_chunks(bytes, |at, part| {
        // SAFETY: within the caller's bytes.
        unsafe { attached.write(to, address + at as u64, from.wrapping_add(at), part) }
    })
}

/// The direction of data between a root and the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Toward {
    Root,
    Others,
}

/// Bytes of a block that its process copies; the root copies those behind. As many for each of
/// them, unless ranks share cores.
fn own_share(own: &Communicator, bytes: usize) -> usize {
    let share = (bytes / own.ranks() as usize) & !63;
    if own.is_crowded() || share < SHARE_MIN { bytes } else { bytes - share }
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
) -> Result<(), Fault> {
    let (me, is_root) = (own.me(), own.me() == root);
    let receives = is_root == (toward == Toward::Root);
    let block_with = |peer: u32| block(if is_root { peer } else { me });
    let which = (Collective::AnnouncedGather { root }, code);
    let found = announce(own, which, |peer| Span::of(block_with(peer))).map_err(differing)?;
    let mut done = Ok(());
    for peer in (0..own.ranks()).filter(|peer| (*peer != root) == is_root && *peer != me) {
        let ((here, mine), there) = (block_with(peer), found[peer as usize]);
        let theirs = there.bytes as usize;
        let (sent, room) = if receives { (theirs, mine) } else { (mine, theirs) };
        if let Some(mismatch) = refusal(code, sent, room) {
            if receives {
                done = Err(differing(mismatch));
            }
            continue;
        }
        let share = own_share(own, sent);
        let (from, to) = if is_root { (share, sent) } else { (0, share) };
        let (here, there) = (here.wrapping_add(from), there.address + from as u64);
        // SAFETY: within the blocks at both ends (contract of this function).
        let moved = unsafe {
            match receives {
                true => read(own, peer, there, here, to - from),
                false => write(own, peer, there, here, to - from),
            }
        };
        done = done.and(moved);
    }
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
    // SAFETY: the contract of this function.
    unsafe { rooted(own, (root, code::BROADCAST), Toward::Others, |_| (base, bytes)) }
}

/// Exchanges blocks. The own block is left to the caller.
///
/// # Safety
/// The blocks that are sent and received are valid, and none that is received overlaps one that is
/// sent, unless all blocks are received at the places of those that are sent.
pub(super) unsafe fn exchange(
    own: &mut Communicator,
    (which, code): (Collective, u32),
    send: Blocks<'_>,
    receive: Blocks<'_>,
) -> Result<(), Fault> {
    // SAFETY: the contract of this function.
    unsafe {
        match which {
            Collective::Gather { root } => {
                let blocks = if own.me() == root { receive } else { send };
                rooted(own, (root, code), Toward::Root, |rank| blocks.piece(rank, 0, usize::MAX))
            }
            Collective::Scatter { root } => {
                let blocks = if own.me() == root { send } else { receive };
                rooted(own, (root, code), Toward::Others, |rank| blocks.piece(rank, 0, usize::MAX))
            }
            _ => exchange_all(own, code, send, receive),
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
            None => unsafe { read(own, from, place.address, to, bytes) },
        };
        done = done.and(taken);
    }
    assemble(own).and(done)
}
