//! The collective set-up of a window: two gathers, and whatever the kernel needs in between.
//!
//! First gather: everybody's card (node, process, memory). Rank 0 has made the segment before and its
//! card says under which descriptor. Then all map the segment and write their own block. Second gather:
//! how that went; it also is the barrier after which the blocks may be read. Whatever fails, every
//! process sees the same cards and draws the same conclusion.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use crate::engine::{Addr, Rank};
use crate::transport::element::ForeignReduce;

use super::cma;
use super::layout::Layout;
use super::segment::{self, Failure, Segment, Step};
use super::words::{Blocks, RankInfo};

/// What the collective set-up needs of the host. Blocking, collective over the window's processes.
pub trait Bootstrap {
    /// Rank of this process in the window.
    fn rank(&self) -> Rank;
    /// Processes of the window.
    fn size(&self) -> u32;
    /// Gathers `mine` (the same length everywhere) of every rank, in rank order, into `all`.
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]);
}

/// Memory that this process puts in the window.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// `MPI_Win_allocate`: the transport allocates this many bytes, shared between the processes.
    Allocate {
        /// Bytes.
        size: u64,
    },
    /// `MPI_Win_create`: the application's memory.
    Create {
        /// First byte.
        base: Addr,
        /// Bytes.
        size: u64,
    },
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
    },
}

impl SetupError {
    fn system(rank: Rank, failure: Failure) -> Self {
        let reason = io::Error::from_raw_os_error(failure.errno).to_string();
        SetupError::System { call: failure.step.name(), rank, reason }
    }
}

/// What a successful set-up leaves.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) segment: Segment,
    pub(super) layout: Layout,
    pub(super) blocks: Blocks,
    pub(super) me: Rank,
    pub(super) size: u32,
    /// The memory lies in the segment.
    pub(super) allocated: bool,
    /// Every process may read and write every other one's memory.
    pub(super) cma: bool,
}

/// Numbers on a process's card.
const CARD: usize = 9;
/// Bytes of a card.
const CARD_BYTES: usize = CARD * 8;

/// What a process tells the others first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Card {
    node: Node,
    pid: i32,
    allocated: bool,
    base: u64,
    size: u64,
    disp_unit: u32,
    /// Rank 0: descriptor of the segment.
    fd: i32,
    /// Address of a word that others may try to read, see [`PROBE`].
    probe: u64,
    /// What failed already.
    failure: Option<Failure>,
}

/// Node and process namespace: where these are equal, a pid names the same process and a segment can be shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node([u64; 3]);

/// Content of the word that the others try to read.
const PROBE: u64 = 0x6d70_6978_2d72_6d61;

impl Card {
    fn encode(&self) -> [u8; CARD_BYTES] {
        let failure = self.failure.map_or(0, encode_failure);
        let numbers: [u64; CARD] = [
            self.node.0[0],
            self.node.0[1],
            self.node.0[2],
            u64::from(self.pid as u32) | u64::from(self.fd as u32) << 32,
            self.base,
            self.size,
            u64::from(self.disp_unit) | u64::from(self.allocated) << 32,
            self.probe,
            failure,
        ];
        let mut bytes = [0; CARD_BYTES];
        for (slot, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let number = |i: usize| word(&bytes[i * 8..]);
        Card {
            node: Node([number(0), number(1), number(2)]),
            pid: number(3) as u32 as i32,
            fd: (number(3) >> 32) as u32 as i32,
            base: number(4),
            size: number(5),
            disp_unit: number(6) as u32,
            allocated: number(6) >> 32 != 0,
            probe: number(7),
            failure: decode_failure(number(8)),
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// 0 means success, so steps count from 1.
fn encode_failure(failure: Failure) -> u64 {
    u64::from(failure.step as u8) << 32 | u64::from(failure.errno as u32)
}

fn decode_failure(number: u64) -> Option<Failure> {
    Step::from_code((number >> 32) as u8).map(|step| Failure { step, errno: number as u32 as i32 })
}

/// Bit of the second gather's word: this process could read its neighbour.
const ATTACHED: u64 = 1 << 63;

/// Sets the window up. Collective; fails everywhere or nowhere.
pub(super) fn set_up(boot: &mut dyn Bootstrap, memory: Memory, disp_unit: u32, settings: Settings) -> Result<Mapped, SetupError> {
    let (me, size) = (boot.rank(), boot.size());
    let probe = PROBE;
    let mut card = Card { disp_unit, probe: &raw const probe as u64, ..Card::default() };
    let segment = card.fill(me, memory);

    let mut bytes = vec![0; CARD_BYTES * size as usize];
    boot.allgather(&card.encode(), &mut bytes);
    let cards = || bytes.chunks_exact(CARD_BYTES).map(Card::decode);
    let layout = agree(cards)?;

    let mapped = map(segment, &layout, cards, me, size);
    let attached = card.allocated || (settings.cma && probe_next(cards, me, size));
    let status = match &mapped {
        Ok(_) => u64::from(attached) * ATTACHED,
        Err(failure) => encode_failure(*failure),
    };
    bytes.resize(8 * size as usize, 0);
    boot.allgather(&status.to_ne_bytes(), &mut bytes);
    // The probe word must stay where it is until all have tried to read it, which is now.
    std::hint::black_box(&probe);

    let mut cma = !card.allocated;
    for (rank, status) in (0..).zip(bytes.chunks_exact(8).map(word)) {
        if let Some(failure) = decode_failure(status & !ATTACHED) {
            return Err(SetupError::system(rank, failure));
        }
        cma &= status & ATTACHED != 0;
    }
    // All have mapped the segment: the descriptors are closed here, and nothing is left but the mappings.
    let (segment, blocks, _) = mapped.expect("a failure of this rank was among the statuses");
    Ok(Mapped { segment, layout, blocks, me, size, allocated: card.allocated, cma })
}

impl Card {
    /// Fills in what this process knows, and makes the segment on rank 0.
    fn fill(&mut self, me: Rank, memory: Memory) -> Option<OwnedFd> {
        // SAFETY: has no precondition.
        self.pid = unsafe { libc::getpid() };
        (self.allocated, self.base, self.size) = match memory {
            Memory::Allocate { size } => (true, 0, size),
            Memory::Create { base, size } => (false, base.0 as u64, size),
        };
        if self.base.checked_add(self.size).is_none() {
            self.failure = Some(Failure { step: Step::Arguments, errno: libc::EOVERFLOW });
        }
        match identity() {
            Ok(node) => self.node = node,
            Err(failure) => self.failure = Some(failure),
        }
        if me != 0 || self.failure.is_some() {
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
        if card.allocated != first.allocated {
            return Err(SetupError::system(rank, Failure { step: Step::Arguments, errno: libc::EINVAL }));
        }
    }
    let allocated = first.is_some_and(|first| first.allocated);
    let ranks = cards().count() as u32;
    let memory = cards().map(|card| if allocated { card.size } else { 0 });
    Layout::new(ranks, !allocated && ranks > 1, memory)
        .ok_or_else(|| SetupError::system(0, Failure { step: Step::Resize, errno: libc::EOVERFLOW }))
}

/// Maps the segment and introduces this rank in it.
fn map<I: Iterator<Item = Card>>(
    segment: Option<OwnedFd>,
    layout: &Layout,
    cards: impl Fn() -> I,
    me: Rank,
    size: u32,
) -> Result<(Segment, Blocks, OwnedFd), Failure> {
    let first = cards().next().expect("a window has a process");
    let mine = cards().nth(me as usize).expect("this process is among them");
    let fd = match segment {
        Some(fd) => fd,
        None => segment::open(first.pid, first.fd)?,
    };
    let segment = Segment::map(&fd, layout.total)?;
    let at = |offset: u64| segment.base().wrapping_add(offset as usize);
    // SAFETY: the layout put these parts at these offsets, page or line aligned, inside the segment,
    // which starts as zeros and lives as long as the window.
    let blocks = unsafe { Blocks::new(segment.base().cast(), at(layout.ranks).cast(), at(layout.pairs).cast(), size) };
    let memory = match mine.allocated {
        true => layout.memory_after(cards().take(me as usize).map(|card| card.size)),
        false => mine.base,
    };
    blocks.introduce(me, RankInfo { memory, size: mine.size, disp_unit: mine.disp_unit, pid: mine.pid });
    // Rank 0 must not close its descriptor before the others have opened it.
    Ok((segment, blocks, fd))
}

/// Tries to read a word of the next rank's process.
fn probe_next<I: Iterator<Item = Card>>(cards: impl Fn() -> I, me: Rank, size: u32) -> bool {
    let next = cards().nth(((me + 1) % size) as usize).expect("ranks are below the size");
    let mut word = 0u64;
    // SAFETY: `word` is valid for its eight bytes; the remote side is checked by the kernel.
    let read = unsafe { cma::read(next.pid, next.probe, (&raw mut word).cast(), 8) };
    read.is_ok() && word == PROBE
}

/// This process's node and process namespace. Read once: neither can change.
fn identity() -> Result<Node, Failure> {
    static NODE: OnceLock<Node> = OnceLock::new();
    if let Some(node) = NODE.get() {
        return Ok(*node);
    }
    let failed = |error: io::Error| Failure { step: Step::Identity, errno: error.raw_os_error().unwrap_or(libc::EIO) };
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed)?;
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&digits, 16).map_err(|_| Failure { step: Step::Identity, errno: libc::EINVAL })?;
    let pids = std::fs::metadata("/proc/self/ns/pid").map_err(failed)?;
    let pids = std::os::unix::fs::MetadataExt::ino(&pids);
    Ok(*NODE.get_or_init(|| Node([(boot >> 64) as u64, boot as u64, pids])))
}
