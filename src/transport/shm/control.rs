//! Control words in shared memory: signals, lock words, agreements, and what ranks contribute.
//!
//! The peer alone writes the signals of a [`PairBlock`], and the owner alone reads them [MA-1].
//! Lock words are written by whoever takes or passes on the lock [LK-3]. A rank writes its
//! [`RankInfo`] before the collective that ends the set-up; it is constant afterwards. Words that
//! different processes write often lie on separate cache lines.

use crate::engine::{LockWord, Rank};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

use super::doorbell::Arm;
use super::process::{self, MemoryFileId};
use super::protocol::AccumulateLock;

/// Places its content on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct CacheLine<T>(pub(super) T);

/// Words of the window as a whole.
#[repr(C)]
pub(super) struct Header {
    pub(super) holders: CacheLine<AtomicU64>,
    pub(super) intent: CacheLine<IntentWords>,
    /// One for even and one for odd rounds; see [`super::agreement`].
    pub(super) agreements: [CacheLine<AgreementRound>; 2],
    /// Arrivals of processes that reuse the segment. Must be the last word, since it keeps its
    /// value when the others are cleared.
    pub(super) arrivals: CacheLine<AtomicU64>,
}

impl Header {
    /// Bytes to clear before the segment is reused.
    pub(super) const CLEARED: usize = std::mem::offset_of!(Header, arrivals);

    /// This process has cleared its part. Returns the number of arrivals when all have.
    pub(super) fn arrive(&self, ranks: u32) -> u64 {
        let before = self.arrivals.0.fetch_add(1, Ordering::AcqRel);
        (before / u64::from(ranks) + 1) * u64::from(ranks)
    }

    /// Whether that many have arrived. What they wrote before is visible then.
    pub(super) fn have_arrived(&self, count: u64) -> bool {
        self.arrivals.0.load(Ordering::Acquire) >= count
    }
}

/// Sums of the proposals of all rounds that used this set.
#[repr(C)]
pub(super) struct AgreementRound {
    pub(super) proposals: AtomicU64,
    pub(super) objections: AtomicU64,
    /// Proposals of processes with operations in flight.
    pub(super) busy: AtomicU64,
}

/// What a rank has put in the window. Constant after set-up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RankInfo {
    /// Offset of its memory in the segment (allocated windows) or address in its process.
    pub(super) memory: u64,
    pub(super) size: u64,
    pub(super) disp_unit: u32,
    pub(super) pid: i32,
    /// Its memory file, which has its doorbell, and the number of the window there. Nonce 0: it has
    /// none, and its windows are never armed.
    pub(super) nonce: u64,
    pub(super) fd: i32,
    pub(super) window: u32,
}

impl RankInfo {
    pub(super) fn memory_file(&self) -> MemoryFileId {
        MemoryFileId { pid: self.pid, fd: self.fd, nonce: self.nonce }
    }
}

/// Words of one rank.
#[repr(C)]
pub(super) struct RankBlock {
    pub(super) info: CacheLine<RankInfo>,
    pub(super) tail: CacheLine<AtomicU64>,
    /// On one line: the last reader looks for the writer right after it has counted itself out.
    pub(super) readers: CacheLine<ReaderWords>,
    /// Word of the accumulate lock of this rank's memory [AT-1].
    accumulate_word: CacheLine<AtomicU32>,
    /// Counts the rank's polls, so that origins notice when it stops. Written by the rank alone.
    pub(super) polls: CacheLine<AtomicU32>,
    pub(super) contacts: CacheLine<ContactWords>,
    pub(super) licence: CacheLine<LicenceWords>,
    /// Dynamic windows: the table of the memory that the rank has attached.
    pub(super) region_table: CacheLine<RegionTableWords>,
    pub(super) counter_setup: CacheLine<CounterSetupWords>,
    /// Ring of tagged notifications to the rank: first unclaimed position; see [`super::tags`].
    pub(super) tags_tail: CacheLine<AtomicU64>,
    pub(super) tags: CacheLine<TagWords>,
}

/// Words that seldom change, so that they stay in the caches of the origins.
#[repr(C)]
pub(super) struct ContactWords {
    /// Origins that have ever used their channel to this rank.
    pub(super) origins: AtomicU32,
    /// 1 while the rank does not poll this window; see [`super::doorbell`].
    pub(super) armed: AtomicU32,
}

impl RankBlock {
    /// The accumulate lock of the rank's memory.
    #[inline(always)]
    pub(super) fn accumulate_lock(&self) -> AccumulateLock<'_> {
        AccumulateLock(&self.accumulate_word.0)
    }

    /// The rank's armed word of this window.
    #[inline(always)]
    pub(super) fn arm(&self) -> Arm<'_> {
        Arm(&self.contacts.0.armed)
    }

    /// Rings the rank's doorbell if this process has `disarmed` the window.
    #[inline(always)]
    pub(super) fn ring_if(&self, disarmed: bool) {
        if disarmed {
            let info = &self.info.0;
            process::ring(info.memory_file(), info.window);
        }
    }
}

/// Exchanged while notification counters are set up; see [`super::counters`].
#[repr(C)]
pub(super) struct CounterSetupWords {
    /// Number of counters that the rank has asked for.
    pub(super) wanted: AtomicU64,
    /// Rank 0: descriptor of the counters' memory in its process.
    pub(super) file: AtomicU64,
}

/// Words of a ring of tagged notifications that the consumer reads and writes; see [`super::tags`].
#[repr(C)]
pub(super) struct TagWords {
    pub(super) head: AtomicU64,
    pub(super) used: AtomicU64,
}

/// A rank's table of attached memory; see [`super::region_table`]. Written by the rank alone.
#[repr(C)]
pub(super) struct RegionTableWords {
    /// Odd while the table is being written.
    pub(super) version: AtomicU64,
    pub(super) count: AtomicU64,
    /// Where the table is, and its capacity.
    pub(super) location: AtomicU64,
}

/// Words used only when exclusive locks and lock_alls compete.
#[repr(C)]
pub(super) struct IntentWords {
    pub(super) intent: AtomicU64,
    pub(super) licensed: AtomicU64,
}

/// The rank's licence to hold exclusive locks, which lasts until a lock_all revokes it.
#[repr(C)]
pub(super) struct LicenceWords {
    pub(super) licence: AtomicU64,
    pub(super) next: AtomicU64,
}

/// The shared side of a target's lock.
#[repr(C)]
pub(super) struct ReaderWords {
    pub(super) readers: AtomicU64,
    pub(super) next_writer: AtomicU64,
}

/// Words of an ordered pair (owner, peer).
#[repr(C)]
pub(super) struct PairBlock {
    /// Indexed by [`crate::engine::Word`]: written by the peer, read by the owner.
    pub(super) signals: CacheLine<[AtomicU64; 3]>,
    pub(super) lock_node: CacheLine<LockNode>,
}

/// The owner's node in the lock queue of the peer as a target.
#[repr(C)]
pub(super) struct LockNode {
    pub(super) next: [AtomicU64; 2],
    pub(super) grant: AtomicU64,
    /// Private to the owner: index of its outbox to the peer, plus 1. Saves a hash table.
    pub(super) outbox_index: AtomicU32,
}

// These sizes keep hot words on separate lines. Under loom atomics are larger and live elsewhere.
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 320);
    assert!(size_of::<RankBlock>() == 704);
    assert!(size_of::<PairBlock>() == 128);
};

/// Addresses of the control blocks in a mapped segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlBlocks {
    header: *const Header,
    ranks: *const RankBlock,
    pairs: *const PairBlock,
    size: usize,
}

impl ControlBlocks {
    /// # Safety
    /// The pointers must be aligned and valid for one header, `size` ranks and `size * size` pairs
    /// as long as the result is used. The blocks are zeros initially, and all processes access them
    /// as atomics only.
    pub(super) unsafe fn new(
        header: *const Header,
        ranks: *const RankBlock,
        pairs: *const PairBlock,
        size: u32,
    ) -> Self {
        ControlBlocks { header, ranks, pairs, size: size as usize }
    }

    /// The block of the window as a whole.
    #[inline(always)]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: the caller of `new` keeps the header valid.
        unsafe { &*self.header }
    }

    /// The block of `rank`, which must belong to the window.
    #[inline(always)]
    pub(super) fn rank(&self, rank: Rank) -> &RankBlock {
        debug_assert!((rank as usize) < self.size);
        // SAFETY: the caller of `new` keeps a block per rank valid, and `rank` is one of the
        // window's.
        unsafe { &*self.ranks.add(rank as usize) }
    }

    /// Writes the block's info. Called during set-up by `rank` alone.
    pub(super) fn set_rank_info(&self, rank: Rank, info: RankInfo) {
        // SAFETY: the address lies in the block of `rank`, and no process reads the info before the
        // collective that ends the set-up.
        unsafe { (&raw const (*self.ranks.add(rank as usize)).info.0).cast_mut().write(info) }
    }

    #[inline(always)]
    pub(super) fn pair(&self, owner: Rank, peer: Rank) -> &PairBlock {
        debug_assert!((owner as usize) < self.size && (peer as usize) < self.size);
        // SAFETY: the caller of `new` keeps a block per ordered pair valid, and both are ranks of
        // the window. The layout has checked that the number of pairs does not overflow.
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
                &self.pair(home, target).lock_node.0.next[usize::from(parity & 1)]
            }
            LockWord::Grant { target } => &self.pair(home, target).lock_node.0.grant,
        }
    }
}
