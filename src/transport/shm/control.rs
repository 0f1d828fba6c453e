//! Control blocks: signals, lock words, agreements, and what ranks contribute. [`Parts`] has the
//! addresses of all parts of a segment.
//!
//! The peer alone writes the signals of a [`PairBlock`], and the owner alone reads them [MA-1].
//! Lock words are written by whoever takes or passes on the lock [LK-3]. A rank writes its
//! [`RankInfo`] before the collective that ends the set-up; it is constant afterwards. Words that
//! different processes write often lie on separate cache lines.

use crate::engine::{LockWord, Rank};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::transport::copy::prefetch;

use super::channel::Channel;
use super::doorbell::Arm;
use super::layout::{Layout, contact_words};
use super::process::{self, MemoryFileId};
use super::protocol::AccumulateWords;
use super::region_table::{IN_SEGMENT, RegionEntry};
use super::segment::Segment;
use super::tags::{self, TagRing};

/// A value on a cache line of its own.
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

    /// Counts this process in, once it has cleared its part. Returns the count to wait for.
    pub(super) fn arrive(&self, ranks: u32) -> u64 {
        let before = self.arrivals.0.fetch_add(1, Ordering::AcqRel);
        (before / u64::from(ranks) + 1) * u64::from(ranks)
    }

    /// Whether `count` processes have arrived. What they wrote before is visible then.
    pub(super) fn have_arrived(&self, count: u64) -> bool {
        self.arrivals.0.load(Ordering::Acquire) >= count
    }
}

/// Counts of proposals, summed over all rounds that used this set.
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
    /// Number of the window in its process, by which peers ring.
    pub(super) window: u32,
    /// Its process, and the memory file with its doorbell. Nonce 0: it has no file, and its windows
    /// are never armed.
    pub(super) process: MemoryFileId,
}

/// Words of one rank.
#[repr(C)]
pub(super) struct RankBlock {
    pub(super) info: CacheLine<RankInfo>,
    pub(super) lock: CacheLine<TargetLockWords>,
    /// The accumulate lock of this rank's memory [AT-1].
    pub(super) accumulate_lock: AccumulateWords,
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
            process::ring(info.process, info.window);
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
    /// 0 while the table is in the segment. Then its offset in the process's memory file, a
    /// multiple of a page, plus the binary logarithm of its capacity: in one word, so that readers
    /// never combine the offset of one table with the capacity of another.
    pub(super) location: AtomicU64,
}

/// Words that only competing exclusive locks and lock_alls use.
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

/// The words of a target's lock. They share a line, because a reader enters by one and leaves by
/// another.
#[repr(C)]
pub(super) struct TargetLockWords {
    pub(super) tail: AtomicU64,
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
    assert!(size_of::<RankBlock>() == 1152);
    assert!(size_of::<PairBlock>() == 128);
};

/// Addresses of the parts of a mapped segment. Its window uses only the parts that it has; see
/// [`Layout`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    header: *const Header,
    ranks: *const RankBlock,
    pairs: *const PairBlock,
    contacts: *const AtomicU64,
    rings: *const tags::Slot,
    regions: *const RegionEntry,
    channels: *const Channel,
    size: usize,
}

impl Parts {
    /// # Safety
    /// `layout` must be that of the segment, for `size` processes. The parts are zeros initially,
    /// processes access them by this transport's protocols only, and the segment stays mapped as
    /// long as the result is used.
    pub(super) unsafe fn new(segment: &Segment, layout: &Layout, size: u32) -> Self {
        Parts {
            header: segment.base().cast(),
            ranks: segment.at(layout.ranks).cast(),
            pairs: segment.at(layout.pairs).cast(),
            contacts: segment.at(layout.contacts).cast(),
            rings: segment.at(layout.rings).cast(),
            regions: segment.at(layout.regions).cast(),
            channels: segment.at(layout.channels).cast(),
            size: size as usize,
        }
    }

    /// The block of the window as a whole.
    #[inline(always)]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: the caller of `new` keeps the header mapped.
        unsafe { &*self.header }
    }

    /// Bytes from the start of the segment to an address in it.
    #[inline(always)]
    pub(super) fn offset(&self, address: *const u8) -> u64 {
        (address.addr() - self.header.addr()) as u64
    }

    /// Fetches the cache line at an offset that a peer has named.
    #[inline(always)]
    pub(super) fn prefetch(&self, offset: u64) {
        prefetch(self.header.cast::<u8>().wrapping_add(offset as usize));
    }

    /// The block of `rank`, which must belong to the window.
    #[inline(always)]
    pub(super) fn rank(&self, rank: Rank) -> &RankBlock {
        debug_assert!((rank as usize) < self.size);
        // SAFETY: the caller of `new` keeps a block per rank mapped, and `rank` is one of the
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
        // SAFETY: the caller of `new` keeps a block per ordered pair mapped.
        unsafe { &*self.pairs.add(self.pair_index(owner, peer)) }
    }

    /// The channel from `origin` to `target`. Channels to one target are adjacent.
    #[inline(always)]
    pub(super) fn channel<'a>(&self, target: Rank, origin: Rank) -> &'a Channel {
        // SAFETY: the caller of `new` keeps a channel per ordered pair mapped. The window unmaps
        // its segment only after it has dropped all users of its channels.
        unsafe { &*self.channels.add(self.pair_index(target, origin)) }
    }

    /// Index of an ordered pair of ranks, which must belong to the window. The layout has checked
    /// that the number of pairs does not overflow.
    #[inline(always)]
    fn pair_index(&self, first: Rank, second: Rank) -> usize {
        debug_assert!((first as usize) < self.size && (second as usize) < self.size);
        first as usize * self.size + second as usize
    }

    /// Bit `origin` is set once that origin has used its channel to `target`.
    pub(super) fn contacts(&self, target: Rank) -> &[AtomicU64] {
        let words = contact_words(self.size as u64) as usize;
        // SAFETY: the caller of `new` keeps this many words per rank mapped.
        unsafe { std::slice::from_raw_parts(self.contacts.add(target as usize * words), words) }
    }

    /// Registers `origin` with `target`, once. Writes the count with release after the bit; the
    /// target reads the count before the bits.
    pub(super) fn make_contact(&self, origin: Rank, target: Rank) {
        self.contacts(target)[origin as usize / 64].fetch_or(1 << (origin % 64), Ordering::Relaxed);
        self.rank(target).contacts.0.origins.fetch_add(1, Ordering::Release);
    }

    /// The ring of tagged notifications to `rank`.
    #[inline(always)]
    pub(super) fn ring(&self, rank: Rank) -> TagRing<'_> {
        let block = self.rank(rank);
        let at = rank as usize * tags::SLOTS;
        // SAFETY: the caller of `new` keeps this many slots per rank mapped.
        let slots = unsafe { std::slice::from_raw_parts(self.rings.add(at), tags::SLOTS) };
        let TagWords { head, used } = &block.tags.0;
        TagRing { tail: &block.tags_tail.0, head, used, slots }
    }

    /// The table of the memory that `rank` has attached, unless it has outgrown the segment.
    pub(super) fn region_table(&self, rank: Rank) -> &[RegionEntry] {
        let at = rank as usize * IN_SEGMENT;
        // SAFETY: the caller of `new` keeps this many entries per rank mapped.
        unsafe { std::slice::from_raw_parts(self.regions.add(at), IN_SEGMENT) }
    }

    /// Clears the part of `rank` in a segment that an earlier window has used. `created`: the
    /// windows have channels if they have several processes.
    ///
    /// # Safety
    /// No process uses the earlier window any more, and only `rank` calls this for itself, before
    /// the processes tell each other that they have.
    pub(super) unsafe fn clear(&self, rank: Rank, created: bool) {
        let at = rank as usize;
        // SAFETY: all addresses lie in parts of `rank`, which nobody else accesses now (contract),
        // and zeros are the initial state of each part. Rank 0 clears the header for all.
        unsafe {
            if created && self.size > 1 {
                for origin in 0..self.size as Rank {
                    let word = &self.contacts(rank)[origin as usize / 64];
                    if word.load(Ordering::Relaxed) & 1 << (origin % 64) != 0 {
                        let channel = self.channels.add(self.pair_index(rank, origin));
                        channel.cast_mut().cast::<u8>().write_bytes(0, Channel::WORDS);
                    }
                }
                let contacts = self.contacts(rank);
                contacts.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            }
            if self.size > 1 && self.rank(rank).tags_tail.0.load(Ordering::Relaxed) != 0 {
                let ring = self.rings.add(at * tags::SLOTS);
                ring.cast_mut().write_bytes(0, tags::SLOTS);
            }
            self.pairs.add(at * self.size).cast_mut().write_bytes(0, self.size);
            self.ranks.add(at).cast_mut().write_bytes(0, 1);
            if rank == 0 {
                self.header.cast_mut().cast::<u8>().write_bytes(0, Header::CLEARED);
            }
        }
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
            LockWord::Tail => &self.rank(home).lock.0.tail,
            LockWord::Readers => &self.rank(home).lock.0.readers,
            LockWord::NextWriter => &self.rank(home).lock.0.next_writer,
            LockWord::Next { target, parity } => {
                &self.pair(home, target).lock_node.0.next[usize::from(parity & 1)]
            }
            LockWord::Grant { target } => &self.pair(home, target).lock_node.0.grant,
        }
    }
}
