//! The words in shared memory that are not data: signals, lock words, votes, and what each rank is.
//!
//! Who writes what: a [`PairBlock`]'s signals are written by the peer alone and read by the owner
//! alone [MA-1]; lock words are written by whoever takes or hands over the lock [LK-3];
//! [`RankInfo`] is written by its rank during set-up, before the collective that ends it, and is
//! constant afterwards. Words that different processes hammer lie on cache lines of their own.

use crate::engine::{LockWord, Rank};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

use super::doorbell::Arm;
use super::process::{self, Identity};

/// Keeps its content on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct Line<T>(pub(super) T);

/// Words of the window as a whole.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Header {
    pub(super) holders: Line<AtomicU64>,
    pub(super) intent: Line<IntentWords>,
    /// Of even and odd rounds.
    pub(super) ballots: [Line<BallotBox>; 2],
    /// Arrivals of processes that take the segment into use again. The last of the words: it stays
    /// when the others are cleaned.
    pub(super) arrivals: Line<AtomicU64>,
}

impl Header {
    /// Bytes that are cleaned before the segment is used again.
    pub(super) const CLEANED: usize = std::mem::offset_of!(Header, arrivals);

    /// This process has cleaned its part of the segment; gives the number of arrivals when all
    /// have.
    pub(super) fn arrive(&self, ranks: u32) -> u64 {
        let before = self.arrivals.0.fetch_add(1, Ordering::AcqRel);
        (before / u64::from(ranks) + 1) * u64::from(ranks)
    }

    /// True if as many have arrived; what they have written before is then visible.
    pub(super) fn have_arrived(&self, all: u64) -> bool {
        self.arrivals.0.load(Ordering::Acquire) >= all
    }
}

/// One round of votes; see [`super::vote`].
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct BallotBox {
    pub(super) votes: AtomicU64,
    pub(super) objections: AtomicU64,
    /// Votes of processes that have something under way.
    pub(super) busy: AtomicU64,
}

/// What a rank has put in the window. Constant after set-up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RankInfo {
    /// Allocated: offset of its memory in the segment. Created: address of its memory in its own
    /// process.
    pub(super) memory: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Displacement unit in bytes.
    pub(super) disp_unit: u32,
    /// Process.
    pub(super) pid: i32,
    /// Where its doorbell is, and the window's number there; name 0: it has none, and its windows
    /// are never armed.
    pub(super) name: u64,
    pub(super) fd: i32,
    pub(super) window: u32,
}

impl RankInfo {
    /// How the rank's peers find its memory.
    pub(super) fn identity(&self) -> Identity {
        Identity { pid: self.pid, fd: self.fd, name: self.name }
    }
}

/// Words of one rank.
#[repr(C)]
#[derive(Debug)]
pub(super) struct RankBlock {
    pub(super) info: Line<RankInfo>,
    pub(super) tail: Line<AtomicU64>,
    /// Together: the last reader looks for the writer right after it has counted itself out.
    pub(super) readers: Line<ReaderWords>,
    /// Accumulate lock of this rank's memory [AT-1].
    pub(super) accumulate: Line<AtomicU32>,
    /// Rises whenever the rank polls: tells origins whether it is attentive. Written by the rank
    /// alone.
    pub(super) beat: Line<AtomicU32>,
    pub(super) contacts: Line<ContactWords>,
    pub(super) licence: Line<LicenceWords>,
    /// Dynamic windows: what the rank has attached.
    pub(super) regions: Line<RegionWords>,
    pub(super) counters: Line<CounterWords>,
    /// Tagged notifications to the rank: next place of its ring; see [`super::tags`].
    pub(super) tags_tail: Line<AtomicU64>,
    pub(super) tags: Line<TagWords>,
}

/// Words that seldom change, so that origins read their own copies.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ContactWords {
    /// Origins that have ever used their channel to this rank.
    pub(super) origins: AtomicU32,
    /// 1 while the rank does not poll this window; see [`super::doorbell`].
    pub(super) armed: AtomicU32,
}

impl RankBlock {
    /// Whether the rank polls this window.
    #[inline(always)]
    pub(super) fn arm(&self) -> Arm<'_> {
        Arm(&self.contacts.0.armed)
    }

    /// Rings the rank's doorbell if this process has disarmed the window.
    #[inline(always)]
    pub(super) fn ring_if(&self, disarmed: bool) {
        if disarmed {
            let info = &self.info.0;
            process::ring(info.identity(), info.window);
        }
    }
}

/// What the processes tell each other when they make notification counters; see
/// [`super::counters`].
#[repr(C)]
#[derive(Debug)]
pub(super) struct CounterWords {
    /// Counters that the rank wants.
    pub(super) wanted: AtomicU64,
    /// Rank 0: descriptor of the counters' memory in its process.
    pub(super) file: AtomicU64,
}

/// What the consumer of a ring of tagged notifications reads and writes; see [`super::tags`].
#[repr(C)]
#[derive(Debug)]
pub(super) struct TagWords {
    pub(super) head: AtomicU64,
    pub(super) used: AtomicU64,
}

/// Where a rank's table of attached memory is, and how much of it holds; see [`super::attached`].
/// Written by the rank alone.
#[repr(C)]
#[derive(Debug)]
pub(super) struct RegionWords {
    /// Odd while the table is being written.
    pub(super) version: AtomicU64,
    /// Regions in the table.
    pub(super) count: AtomicU64,
    /// Where the table is, and its room: see [`super::attached`].
    pub(super) table: AtomicU64,
}

/// What exclusive locks and lock_alls look at when they meet, and seldom else.
#[repr(C)]
#[derive(Debug)]
pub(super) struct IntentWords {
    pub(super) intent: AtomicU64,
    pub(super) licensed: AtomicU64,
}

/// The rank's licence to hold exclusive locks: its own, as long as no lock_all revokes it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct LicenceWords {
    pub(super) licence: AtomicU64,
    pub(super) next: AtomicU64,
}

/// The shared side of a target's lock.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ReaderWords {
    pub(super) readers: AtomicU64,
    pub(super) next_writer: AtomicU64,
}

/// Words of an ordered pair (owner, peer).
#[repr(C)]
#[derive(Debug)]
pub(super) struct PairBlock {
    /// Indexed by [`crate::engine::Word`]: written by the peer, read by the owner.
    pub(super) signals: Line<[AtomicU64; 3]>,
    pub(super) node: Line<LockNode>,
}

/// The owner's node in the lock queue of the peer as a target.
#[repr(C)]
#[derive(Debug)]
pub(super) struct LockNode {
    pub(super) next: [AtomicU64; 2],
    pub(super) grant: AtomicU64,
    /// Private to the owner: where it keeps its end of the channel to the peer, plus 1. Saves a
    /// hash table.
    pub(super) note: AtomicU32,
}

// The numbers that keep hot words apart; under loom atomics are larger and live elsewhere.
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 320);
    assert!(size_of::<RankBlock>() == 704);
    assert!(size_of::<PairBlock>() == 128);
};

/// The blocks, wherever they are mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    header: *const Header,
    ranks: *const RankBlock,
    pairs: *const PairBlock,
    size: usize,
}

impl Blocks {
    /// # Safety
    /// The three pointers must be aligned and valid for one header, `size` ranks and `size * size`
    /// pairs, shared and zeroed or in use by this protocol, for as long as the result is used.
    pub(super) unsafe fn new(
        header: *const Header,
        ranks: *const RankBlock,
        pairs: *const PairBlock,
        size: u32,
    ) -> Self {
        Blocks { header, ranks, pairs, size: size as usize }
    }

    /// The window's own words.
    #[inline(always)]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: valid by the contract of `new`.
        unsafe { &*self.header }
    }

    /// The block of `rank`, which must belong to the window.
    #[inline(always)]
    pub(super) fn rank(&self, rank: Rank) -> &RankBlock {
        debug_assert!((rank as usize) < self.size);
        // SAFETY: valid by the contract of `new`; ranks are the engine's, which are the window's.
        unsafe { &*self.ranks.add(rank as usize) }
    }

    /// Writes what `rank` is. Only during set-up, by that rank.
    pub(super) fn introduce(&self, rank: Rank, info: RankInfo) {
        // SAFETY: inside the block of `rank`; nobody reads it before the collective that ends the
        // set-up.
        unsafe { (&raw const (*self.ranks.add(rank as usize)).info.0).cast_mut().write(info) }
    }

    /// The block of an ordered pair.
    #[inline(always)]
    pub(super) fn pair(&self, owner: Rank, peer: Rank) -> &PairBlock {
        debug_assert!((owner as usize) < self.size && (peer as usize) < self.size);
        // SAFETY: as in `rank`; the square of the ranks was checked against overflow by the layout.
        unsafe { &*self.pairs.add(owner as usize * self.size + peer as usize) }
    }

    /// A word of the lock service.
    #[inline(always)]
    pub(super) fn lock_word(&self, home: Rank, word: LockWord) -> &AtomicU64 {
        match word {
            LockWord::Holders => &self.header().holders.0,
            LockWord::Intent => &self.header().intent.0.intent,
            LockWord::Licensed => &self.header().intent.0.licensed,
            LockWord::Licence => &self.rank(home).licence.0.licence,
            LockWord::NextLicensed => &self.rank(home).licence.0.next,
            LockWord::Tail => &self.rank(home).tail.0,
            LockWord::Readers => &self.rank(home).readers.0.readers,
            LockWord::NextWriter => &self.rank(home).readers.0.next_writer,
            LockWord::Next { target, parity } => {
                &self.pair(home, target).node.0.next[usize::from(parity & 1)]
            }
            LockWord::Grant { target } => &self.pair(home, target).node.0.grant,
        }
    }
}
