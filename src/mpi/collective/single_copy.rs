//! Long collectives within a node, which copy each byte once: by cross-memory attach, from the
//! buffer of the process that has it to that of the process that gets it.
//!
//! Each process publishes the address of its buffer on the board. Those that get data read them
//! there. Between a root and the others, both ends copy: the root would have nothing else to do.
//! Another collective of the board follows, so that nobody returns while others use its buffer.

use std::cmp::Ordering;
use std::io;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::communicators::{Collective, Communicator, bytes_of};
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
/// Bytes of operands that are folded at a time.
const FOLDED: usize = 64 << 10;

/// Most bytes of all blocks. Packed data need as much memory, and their length is an int of MPI.
const BYTES_MAX: usize = 1 << 30;

/// Whether long collectives of so many processes are served here, if these reach each other.
pub(super) fn suits(ranks: u32) -> bool {
    ranks <= FLAT_MAX
}

/// Whether a collective of so many bytes, or so long blocks, is served here, as all processes know.
pub(super) fn serves(own: &Communicator, block: usize) -> bool {
    own.attached().is_some() && (1..=BYTES_MAX / own.ranks() as usize).contains(&block)
}

/// The buffer of a process: its address there, and the bytes of the buffer or of a block of it.
#[derive(Clone, Copy, Default)]
struct Place {
    address: u64,
    bytes: u64,
    /// From one block to the next, of a root.
    stride: u64,
    /// Where the result of a reduction is.
    result: u64,
}

const WORDS: usize = 4;

impl Place {
    fn of(base: *const u8, bytes: usize) -> Self {
        Place { address: base as u64, bytes: bytes as u64, ..Place::default() }
    }

    fn words(self) -> [u64; WORDS] {
        [self.address, self.bytes, self.stride, self.result]
    }

    fn of_words([address, bytes, stride, result]: [u64; WORDS]) -> Self {
        Place { address, bytes, stride, result }
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

/// Why a block of so many bytes is not received in such a place. Gathers and allgathers accept
/// blocks that are shorter, as hosts do.
fn refusal(bytes: usize, room: usize, accepts_less: bool) -> Option<Mismatch> {
    mismatch(bytes, room).filter(|mismatch| !accepts_less || *mismatch == Mismatch::Longer)
}

/// Places that processes publish.
struct Announced<'a> {
    called: Content,
    mine: Place,
    found: &'a mut [Place],
}

impl Work for Announced<'_> {
    fn write(&mut self, _: Content, draft: &Draft<'_>) {
        draft.write(0, bytes_of(&mut self.mine.words()));
    }

    fn collect(&mut self, from: u32, published: &Published<'_>) -> Option<Mismatch> {
        let mismatch = self.called.mismatch(published.content);
        if mismatch.is_none() {
            let mut words = [0u64; WORDS];
            published.read_part(0, bytes_of(&mut words));
            self.found[from as usize] = Place::of_words(words);
        }
        mismatch
    }
}

fn differing(mismatch: Mismatch) -> Fault {
    differs(mismatch, MPI_ERR_OTHER, MPI_ERR_OTHER)
}

/// Publishes a place, as `which` says. Returns those of the others that it collects.
fn announce(
    own: &mut Communicator,
    which: Collective,
    code: u32,
    mine: Place,
) -> Result<PerRank<Place>, Mismatch> {
    let mut found: PerRank<Place> = smallvec::smallvec![Place::default(); own.ranks() as usize];
    let called = Content { bytes: size_of::<[u64; WORDS]>() as u32, code: code | NOTE };
    let mut work = Announced { called, mine, found: &mut found };
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
    // Of the root, the address of its first block, which all other processes count from.
    let (base, bytes) = block(if is_root { 0 } else { me });
    let which = Collective::AnnouncedGather { root };
    let mut mine = Place::of(base, bytes);
    mine.stride = block(1).0.addr().wrapping_sub(block(0).0.addr()) as u64;
    let found = announce(own, which, code, mine).map_err(differing)?;
    let mut done = Ok(());
    for peer in (0..own.ranks()).filter(|peer| (*peer != root) == is_root && *peer != me) {
        let (here, room) = block(if is_root { peer } else { me });
        let place = found[peer as usize];
        let there = match is_root {
            true => place.address,
            false => place.address + u64::from(me) * place.stride,
        };
        // What is sent, and the room for it.
        let (sent, room) = match receives {
            true => (place.bytes as usize, room),
            false => (room, place.bytes as usize),
        };
        let accepts_less = toward == Toward::Root;
        if let Some(mismatch) = refusal(sent, room, accepts_less) {
            if receives {
                done = Err(differing(mismatch));
            }
            continue;
        }
        let share = own_share(own, sent);
        let (from, to) = if is_root { (share, sent) } else { (0, share) };
        let (here, there) = (here.wrapping_add(from), there + from as u64);
        // SAFETY: within the blocks at both ends (contract of this function).
        let moved = unsafe {
            match receives {
                true => read(own, peer, there, here, to - from),
                false => write(own, peer, there, here, to - from),
            }
        };
        done = done.and(moved);
    }
    announce(own, which, code, Place::default()).map_err(differing)?;
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
    parts: bool,
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
            _ => exchange_all(own, code, parts, send, receive),
        }
    }
}

/// Reads the block of process `from`.
///
/// # Safety
/// As [`exchange`].
unsafe fn take(
    own: &Communicator,
    from: u32,
    place: Place,
    parts: bool,
    receive: Blocks<'_>,
) -> Result<(), Fault> {
    let (to, room) = receive.piece(from, 0, usize::MAX);
    if let Some(mismatch) = refusal(place.bytes as usize, room, !parts) {
        return Err(differing(mismatch));
    }
    let before = if parts { u64::from(own.me()) * place.bytes } else { 0 };
    // SAFETY: the contract of this function; the block is no longer than its place.
    unsafe { read(own, from, place.address + before, to, place.bytes as usize) }
}

/// # Safety
/// As [`exchange`].
unsafe fn exchange_all(
    own: &mut Communicator,
    code: u32,
    parts: bool,
    send: Blocks<'_>,
    receive: Blocks<'_>,
) -> Result<(), Fault> {
    let (me, ranks) = (own.me(), own.ranks());
    let (mut base, bytes) = send.base();
    // Others would read what this process has received.
    let mut copy = Vec::new();
    if parts && base == receive.base().0 {
        // SAFETY: the blocks that are sent lie in a row.
        copy.extend_from_slice(unsafe { from_raw_parts(base, bytes * ranks as usize) });
        base = copy.as_mut_ptr();
    }
    let mine = Place::of(base, bytes);
    let found = announce(own, Collective::Exchange, code, mine).map_err(differing)?;
    let mut done = Ok(());
    // Not all from the same process at a time.
    for from in (1..ranks).map(|step| (me + step) % ranks) {
        // SAFETY: the contract of this function.
        let taken = unsafe { take(own, from, found[from as usize], parts, receive) };
        done = done.and(taken);
    }
    assemble(own).and(done)
}

/// The elements of a reduction.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    /// Code of the call and its operation.
    pub(super) code: u32,
    pub(super) input: *const u8,
    pub(super) output: *mut u8,
    pub(super) count: usize,
    /// Bytes from one element to the next, and from the first to the last.
    pub(super) extent: usize,
    pub(super) bytes: usize,
}

impl Operand {
    /// First byte, and behind the last one, of the elements that process `rank` of `ranks` folds.
    fn part(&self, rank: u32, ranks: u32) -> (usize, usize) {
        let at = |rank: u32| {
            let elements = self.count as u128 * u128::from(rank) / u128::from(ranks);
            (elements as usize * self.extent).min(self.bytes)
        };
        (at(rank), at(rank + 1))
    }
}

/// Reduces operands to all processes: each folds a part of the elements, from the last rank to the
/// first, and then reads the parts of the others. `fold` reduces its first argument into its
/// second, as the left operand.
///
/// # Safety
/// Input and output have all elements, and are the same or do not overlap.
pub(super) unsafe fn allreduce(
    own: &mut Communicator,
    operand: Operand,
    fold: impl Fn(&[u8], &mut [u8]),
) -> Result<(), Fault> {
    let Operand { code, input, output, bytes, .. } = operand;
    let (me, ranks) = (own.me(), own.ranks());
    let mine = Place { result: output as u64, ..Place::of(input, bytes) };
    let differing = |mismatch| differs(mismatch, MPI_ERR_TRUNCATE, MPI_ERR_OP);
    let found = announce(own, Collective::Exchange, code, mine).map_err(differing)?;
    let others = || (1..ranks).map(|step| (me + step) % ranks);
    if let Some(mismatch) =
        others().find_map(|rank| mismatch(found[rank as usize].bytes as usize, bytes))
    {
        // All processes see one.
        return Err(differing(mismatch));
    }
    // SAFETY: the contract of this function.
    let mut done = unsafe { fold_part(own, operand, &found, fold) };
    assemble(own)?;
    for rank in others() {
        let (from, to) = operand.part(rank, ranks);
        let address = found[rank as usize].result + from as u64;
        // SAFETY: within the output; its process has folded the part.
        let taken = unsafe { read(own, rank, address, output.wrapping_add(from), to - from) };
        done = done.and(taken);
    }
    assemble(own).and(done)
}

/// Folds the part of the elements that this process folds.
///
/// # Safety
/// As [`allreduce`].
unsafe fn fold_part(
    own: &Communicator,
    operand: Operand,
    found: &[Place],
    fold: impl Fn(&[u8], &mut [u8]),
) -> Result<(), Fault> {
    let Operand { input, output, extent, .. } = operand;
    let (me, ranks) = (own.me(), own.ranks());
    let (from, to) = operand.part(me, ranks);
    let step = FOLDED / extent * extent;
    let words = FOLDED.div_ceil(size_of::<u128>());
    let (mut theirs, mut sum) = (vec![0u128; words], vec![0u128; words]);
    let last = ranks - 1;
    for at in (from..to).step_by(step) {
        let bytes = step.min(to - at);
        let sum = &mut bytes_of(&mut sum)[..bytes];
        // SAFETY: within the elements.
        let mine = unsafe { from_raw_parts(input.add(at), bytes) };
        let theirs = &mut bytes_of(&mut theirs)[..bytes];
        let read_of = |rank: u32, to: &mut [u8]| {
            let address = found[rank as usize].address + at as u64;
            // SAFETY: the slice has room for the bytes.
            unsafe { read(own, rank, address, to.as_mut_ptr(), bytes) }
        };
        match last == me {
            true => sum.copy_from_slice(mine),
            false => read_of(last, sum)?,
        }
        for rank in (0..last).rev() {
            if rank == me {
                fold(mine, sum);
            } else {
                read_of(rank, theirs)?;
                fold(theirs, sum);
            }
        }
        // SAFETY: within the elements. No process reads these of the input any more.
        unsafe { from_raw_parts_mut(output.add(at), bytes) }.copy_from_slice(sum);
    }
    Ok(())
}
