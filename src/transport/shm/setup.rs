//! The collective set-up of a window: two gathers, and whatever the kernel needs in between.
//!
//! First gather: everybody's card (node, process, memory). Rank 0 has made the segment before and
//! its card says under which descriptor; or all have kept the same one from an earlier window
//! ([`pool`]). Then all map the segment, or clean their part of the kept one, and write their own
//! block. Second gather: how that went; it also is the barrier after which the blocks may be read.
//! Whatever fails, every process sees the same cards and draws the same conclusion. With a kept
//! segment nothing can fail any more, and mostly nothing is to be found out: then a count of
//! arrivals in it is the barrier.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::engine::{Addr, Rank};
use crate::transport::datatype::element::ForeignReduce;

use super::card::{CARD_BYTES, Card, Kind, PROBE, decode_failure, encode_failure, identity, word};
use super::channel::Channel;
use super::cma;
use super::layout::{Layout, Placement, RING, contact_words, page};
use super::pool::{self, KEPT_BYTES, Kept};
use super::process::{self, Identity};
use super::segment::{self, Failure, Segment, Step};
use super::tags;
use super::words::{Blocks, Header, PairBlock, RankBlock, RankInfo};

/// What the collective set-up needs of the host. Blocking, collective over the window's processes.
pub trait Bootstrap {
    /// Rank of this process in the window.
    fn rank(&self) -> Rank;
    /// Processes of the window.
    fn size(&self) -> u32;
    /// Gathers `mine` (the same length everywhere) of every rank, in rank order, into `all`.
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]);
    /// Asked after the first gather: false if the processes have agreed on something else
    /// meanwhile, all of them.
    fn goes_on(&self) -> bool {
        true
    }
    /// Waits until `done`, which the other processes of the window see to by themselves.
    fn wait(&mut self, done: &mut dyn FnMut() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }
}

/// Set-up of a process by itself.
#[derive(Debug)]
pub struct Alone;

impl Bootstrap for Alone {
    fn rank(&self) -> Rank {
        0
    }
    fn size(&self) -> u32 {
        1
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        all.copy_from_slice(mine);
    }
}

/// Memory that this process puts in the window.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// `MPI_Win_allocate`: the transport allocates this many bytes, shared between the processes.
    Allocate {
        /// Bytes.
        size: u64,
        /// Alignment in bytes, a power of two; 1 if any will do.
        align: u64,
    },
    /// `MPI_Win_allocate_shared`: the same, and each process's memory follows directly that of the
    /// process before it.
    Share {
        /// Bytes.
        size: u64,
        /// Alignment of all of it in bytes, a power of two; 1 if any will do.
        align: u64,
        /// This process does not rely on where the memory of others is (`alloc_shared_noncontig`).
        apart: bool,
    },
    /// `MPI_Win_create`: the application's memory.
    Create {
        /// First byte.
        base: Addr,
        /// Bytes.
        size: u64,
    },
    /// `MPI_Win_create_dynamic`: none yet; memory is attached later, and displacements are
    /// addresses.
    Dynamic,
}

/// Settings of the transport, the same in every process.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Cross-memory attach may be used (`MPIX_RMA_CMA`).
    pub cma: bool,
    /// Reduces elements of the host's datatypes.
    pub foreign_reduce: ForeignReduce,
}

/// Why a window cannot be served by shared memory; the same answer in every process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The processes have agreed on something else: [`Bootstrap::goes_on`].
    #[error("the window is not wanted")]
    Unwanted,
    /// The processes do not share one node.
    #[error("the window's processes are not all on one node")]
    NotOneNode,
    /// A system call failed in some process.
    #[error("{call} failed on rank {rank}: {reason}")]
    System {
        /// Which call.
        call: &'static str,
        /// Where it failed.
        rank: Rank,
        /// errno in words.
        reason: String,
        /// What it was to give is memory.
        memory: bool,
    },
}

impl SetupError {
    fn system(rank: Rank, failure: Failure) -> Self {
        let reason = io::Error::from_raw_os_error(failure.errno).to_string();
        let memory = matches!(failure.step, Step::Resize | Step::Map);
        SetupError::System { call: failure.step.name(), rank, reason, memory }
    }

    /// True if there would be a window if the system had more memory, or a larger address space.
    pub fn lacks_memory(&self) -> bool {
        matches!(self, SetupError::System { memory: true, .. })
    }
}

/// What a successful set-up leaves.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) segment: Segment,
    /// Name of the segment in the pool.
    name: u64,
    pub(super) layout: Layout,
    pub(super) blocks: Blocks,
    pub(super) me: Rank,
    pub(super) size: u32,
    /// Where the memory comes from.
    pub(super) kind: Kind,
    /// Every process may read and write every other one's memory.
    pub(super) cma: bool,
}

impl Mapped {
    /// Keeps the segment for a later window of these processes.
    pub(super) fn keep(self) {
        let Mapped { segment, name, size: ranks, kind, cma: attached, .. } = self;
        pool::keep(Kept { name, segment, ranks, allocated: kind.in_segment(), attached });
    }
}

/// Bit of the last gather's word: this process could read its neighbour.
const ATTACHED: u64 = 1 << 63;

/// Sets the window up. Collective; fails everywhere or nowhere.
pub(super) fn set_up(
    boot: &mut dyn Bootstrap,
    memory: Memory,
    disp_unit: u32,
    settings: Settings,
) -> Result<Mapped, SetupError> {
    let (me, size) = (boot.rank(), boot.size());
    let probe = PROBE;
    let mut card = Card::of(memory, disp_unit, &raw const probe);
    card.cma = settings.cma;
    let in_segment = card.kind.in_segment();
    // A kept segment lies at some page.
    let offer = if card.failure.is_none() && card.align() <= page() {
        pool::take(size, in_segment)
    } else {
        None
    };
    card.kept = offer.as_ref().map_or(0, |kept| kept.name);
    let made = if me == 0 && offer.is_none() { card.make_segment() } else { None };

    let mut bytes = vec![0; CARD_BYTES * size as usize];
    boot.allgather(&card.encode(), &mut bytes);
    let cards = || bytes.chunks_exact(CARD_BYTES).map(Card::decode);
    let first = cards().next().expect("a window has a process");
    let agreed = if boot.goes_on() { agree(cards) } else { Err(SetupError::Unwanted) };
    let reuse = match (offer, &agreed) {
        // All offer the same segment, so all find the same length.
        (Some(kept), Ok(layout))
            if cards().all(|card| card.kept == kept.name)
                && kept.segment.len() >= layout.total
                && layout.align() <= page() =>
        {
            Some(kept)
        }
        (Some(kept), _) => {
            pool::put_back(kept);
            None
        }
        (None, _) => None,
    };
    let layout = agreed?;
    // Processes that were started apart may have been told otherwise.
    let may_attach = cards().all(|card| card.cma);

    let reused = reuse.is_some();
    let (name, known_attached) =
        reuse.as_ref().map_or((first.fresh, false), |kept| (kept.name, kept.attached));
    let mapped = match reuse {
        Some(Kept { segment, .. }) => {
            let blocks = blocks_of(&segment, &layout, size);
            clean(&segment, &layout, me, size, in_segment);
            Ok((segment, blocks, None))
        }
        None => {
            let source = match first.kept {
                0 => Ok((made, first.fd)),
                _ => late_segment(boot, &mut card),
            };
            source.and_then(|(made, fd)| map_new(made, first.pid, fd, &layout, size))
        }
    };
    if let Ok((_, blocks, _)) = &mapped {
        let memory = match in_segment {
            true => layout.memory_after(cards().take(me as usize).map(|card| card.size)),
            false => card.base,
        };
        // Nobody rings for a window of one process.
        let (Identity { fd, name, .. }, window) =
            if size > 1 { process::register() } else { None }.unwrap_or_default();
        blocks.introduce(
            me,
            RankInfo { memory, size: card.size, disp_unit, pid: card.pid, name, fd, window },
        );
    }
    // What is known here was the same for all of them when the segment was new, or is a setting.
    if reused && (in_segment || known_attached || !may_attach) {
        let (segment, blocks, _) = mapped.expect("a kept segment is mapped");
        let header = blocks.header();
        let all = header.arrive(size);
        boot.wait(&mut || header.have_arrived(all));
        let cma = !in_segment && may_attach;
        return Ok(Mapped { segment, name, layout, blocks, me, size, kind: card.kind, cma });
    }
    let attached = in_segment || (may_attach && (known_attached || probe_next(cards, me, size)));
    let status = match &mapped {
        Ok(_) => u64::from(attached) * ATTACHED,
        Err(failure) => encode_failure(*failure),
    };
    bytes.resize(8 * size as usize, 0);
    boot.allgather(&status.to_ne_bytes(), &mut bytes);
    // The probe word must stay where it is until all have tried to read it, which is now.
    std::hint::black_box(&probe);

    let mut cma = !in_segment;
    for (rank, status) in (0..).zip(bytes.chunks_exact(8).map(word)) {
        if let Some(failure) = decode_failure(status & !ATTACHED) {
            return Err(SetupError::system(rank, failure));
        }
        cma &= status & ATTACHED != 0;
    }
    // All have mapped the segment: the descriptors are closed here, and nothing is left but the
    // mappings.
    let (segment, blocks, _) = mapped.expect("a failure of this rank was among the statuses");
    Ok(Mapped { segment, name, layout, blocks, me, size, kind: card.kind, cma })
}

impl Card {
    /// What this process knows.
    fn of(memory: Memory, disp_unit: u32, probe: *const u64) -> Self {
        // SAFETY: has no precondition.
        let pid = unsafe { libc::getpid() };
        let (kind, base, size, align, apart) = match memory {
            Memory::Allocate { size, align } => (Kind::Allocated, 0, size, align, true),
            Memory::Share { size, align, apart } => (Kind::Shared, 0, size, align, apart),
            Memory::Create { base, size } => (Kind::Created, base.0 as u64, size, 1, true),
            Memory::Dynamic => (Kind::Dynamic, 0, 0, 1, true),
        };
        let align = align.next_power_of_two().trailing_zeros() as u8;
        let mut card = Card {
            pid,
            kind,
            apart,
            align,
            base,
            size,
            disp_unit,
            probe: probe as u64,
            ..Card::default()
        };
        match identity() {
            Ok(node) => card.node = node,
            Err(failure) => card.failure = Some(failure),
        }
        if base.checked_add(size).is_none() {
            card.failure = Some(Failure { step: Step::Arguments, errno: libc::EOVERFLOW });
        }
        card.fresh = pool::fresh_name(pid);
        card
    }

    /// Alignment of the memory in bytes.
    fn align(&self) -> u64 {
        1 << self.align
    }

    /// Makes a segment and says on the card how that went.
    fn make_segment(&mut self) -> Option<OwnedFd> {
        if self.failure.is_some() {
            return None;
        }
        match segment::create() {
            Ok(fd) => {
                self.fd = fd.as_raw_fd();
                Some(fd)
            }
            Err(failure) => {
                self.failure = Some(failure);
                None
            }
        }
    }
}

/// Rank 0 had a kept segment to offer, which cannot be used: it makes a new one now. One more
/// gather.
fn late_segment(
    boot: &mut dyn Bootstrap,
    card: &mut Card,
) -> Result<(Option<OwnedFd>, i32), Failure> {
    let made = if boot.rank() == 0 { card.make_segment() } else { None };
    let mut bytes = vec![0; CARD_BYTES * boot.size() as usize];
    boot.allgather(&card.encode(), &mut bytes);
    let first = Card::decode(&bytes);
    match first.failure {
        Some(failure) => Err(failure),
        None => Ok((made, first.fd)),
    }
}

/// What all conclude from the cards: the layout, or the error.
fn agree<I: Iterator<Item = Card>>(cards: impl Fn() -> I) -> Result<Layout, SetupError> {
    let mut first = None;
    for (rank, card) in (0..).zip(cards()) {
        if let Some(failure) = card.failure {
            return Err(SetupError::system(rank, failure));
        }
        let first = *first.get_or_insert(card);
        if card.node != first.node {
            return Err(SetupError::NotOneNode);
        }
        if card.kind != first.kind {
            return Err(SetupError::system(
                rank,
                Failure { step: Step::Arguments, errno: libc::EINVAL },
            ));
        }
    }
    let in_segment = first.is_some_and(|first| first.kind.in_segment());
    let ranks = cards().count() as u32;
    let memory = cards().map(|card| if in_segment { card.size } else { 0 });
    // One process that relies on its neighbours' places is enough.
    let placement = Placement {
        packed: !cards().all(|card| card.apart),
        align: cards().map(|card| card.align()).max().unwrap_or(1).max(page()),
    };
    Layout::new(ranks, !in_segment, placement, memory).ok_or_else(|| {
        SetupError::system(0, Failure { step: Step::Resize, errno: libc::EOVERFLOW })
    })
}

/// Maps a new segment: rank 0's own, or the one that it has under descriptor `fd`.
fn map_new(
    made: Option<OwnedFd>,
    pid: i32,
    fd: i32,
    layout: &Layout,
    size: u32,
) -> Result<(Segment, Blocks, Option<OwnedFd>), Failure> {
    let fd = match made {
        Some(fd) => fd,
        None => segment::open(pid, fd)?,
    };
    // A little more than is needed, where it may serve a slightly larger window later.
    let len =
        if layout.total <= KEPT_BYTES { layout.total.next_power_of_two() } else { layout.total };
    let segment = Segment::map_aligned(&fd, len, layout.align())?;
    let blocks = blocks_of(&segment, layout, size);
    // Rank 0 must not close its descriptor before the others have opened it.
    Ok((segment, blocks, Some(fd)))
}

fn blocks_of(segment: &Segment, layout: &Layout, size: u32) -> Blocks {
    // SAFETY: the layout put these parts at these offsets, page or line aligned, inside the
    // segment; they are zeros in a new one, and before they are used in a kept one; it lives as
    // long as the window.
    unsafe {
        Blocks::new(
            segment.base().cast(),
            segment.at(layout.ranks).cast(),
            segment.at(layout.pairs).cast(),
            size,
        )
    }
}

/// Makes this rank's part of a kept segment as it was when it was new. What follows tells the
/// others.
fn clean(segment: &Segment, layout: &Layout, me: Rank, size: u32, allocated: bool) {
    let zero = |offset: u64, len: u64| {
        // SAFETY: inside the segment, whose layout depends on the number of ranks and the kind of
        // window up to here, and both are the same as before; all processes have let go of it and
        // each cleans its own part.
        unsafe { segment.at(offset).write_bytes(0, len as usize) }
    };
    let (me, ranks) = (u64::from(me), u64::from(size));
    if !allocated && ranks > 1 {
        let words = contact_words(ranks);
        let contacts = layout.contacts + me * words * 8;
        for origin in 0..ranks {
            // SAFETY: inside this rank's contact words.
            let word = unsafe { segment.at(contacts + origin / 64 * 8).cast::<u64>().read() };
            if word & 1 << (origin % 64) != 0 {
                let channel = layout.channels + (me * ranks + origin) * size_of::<Channel>() as u64;
                zero(channel, Channel::WORDS);
            }
        }
        zero(contacts, words * 8);
    }
    if ranks > 1 {
        // SAFETY: this rank's block and ring, in a segment that all have let go of.
        unsafe {
            let block = segment.at(layout.ranks).cast::<RankBlock>().add(me as usize);
            tags::clean(&(*block).tags_tail.0, segment.at(layout.rings + me * RING).cast());
        }
    }
    zero(
        layout.pairs + me * ranks * size_of::<PairBlock>() as u64,
        ranks * size_of::<PairBlock>() as u64,
    );
    zero(layout.ranks + me * size_of::<RankBlock>() as u64, size_of::<RankBlock>() as u64);
    if me == 0 {
        zero(0, Header::CLEANED as u64);
    }
}

/// Tries to read a word of the next rank's process.
fn probe_next<I: Iterator<Item = Card>>(cards: impl Fn() -> I, me: Rank, size: u32) -> bool {
    let next = cards().nth(((me + 1) % size) as usize).expect("ranks are below the size");
    let mut word = 0u64;
    // SAFETY: `word` is valid for its eight bytes; the remote side is checked by the kernel.
    let read = unsafe { cma::read(next.pid, next.probe, (&raw mut word).cast(), 8) };
    read.is_ok() && word == PROBE
}
