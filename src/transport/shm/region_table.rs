//! Dynamic windows: the memory that each process has attached, published to its peers.
//!
//! Attaching is local and sends no message. Each process publishes its regions, sorted, in a table
//! that its peers read. The origin checks an operation against its target's table before anything
//! moves, so memory that is not attached is refused in the call, whatever the target does. A
//! program that detaches memory while others still use it is erroneous, and only the target can
//! notice: its inbox checks again, and drops the operation.
//!
//! A table has one writer, any number of readers, and a version that is odd while it is written. A
//! reader that finds another version after reading reads again. A table begins in the window's
//! segment. When it outgrows its room there, it moves to its process's memory file ([`process`])
//! with twice the capacity, so any number of regions needs no descriptor of the window's own.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::engine::Rank;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence, yield_now};

use super::control::{ControlBlocks, RegionTableWords};
use super::process::{self, Extent, MappedFile, MemoryFileId};
use super::regions::{AttachError, Region, Regions, covered};
use super::segment::{Segment, SystemError};

/// Regions for which a table in the segment has room.
pub(super) const IN_SEGMENT: u64 = 256;
pub(super) const ENTRY: u64 = 16;

/// A region in a table: its first byte, and the byte after its last.
type RegionEntry = [AtomicU64; 2];

/// The tables in the window's segment, in rank order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables(*const RegionEntry);

impl Tables {
    /// # Safety
    /// `first` is aligned and starts [`IN_SEGMENT`] entries per rank of the window, which are
    /// accessed as atomics only and stay mapped as long as the result is used.
    pub(super) unsafe fn new(first: *const u8) -> Self {
        Tables(first.cast())
    }

    fn of(&self, rank: Rank) -> &[RegionEntry] {
        // SAFETY: the caller of `new` keeps this many entries per rank of the window mapped.
        unsafe {
            let first = self.0.add(rank as usize * IN_SEGMENT as usize);
            std::slice::from_raw_parts(first, IN_SEGMENT as usize)
        }
    }
}

/// Where a table is. Encoded in one word, so that readers never combine the offset of one table
/// with the capacity of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableLocation {
    InSegment,
    InMemoryFile {
        /// From the start of the file, in bytes.
        offset: u64,
        /// Entries, a power of two.
        capacity: u64,
    },
}

impl TableLocation {
    fn encode(self) -> u64 {
        match self {
            TableLocation::InSegment => 0,
            // Offsets are multiples of a page, so the low bits are free.
            TableLocation::InMemoryFile { offset, capacity } => {
                offset | u64::from(capacity.trailing_zeros())
            }
        }
    }

    fn decode(word: u64) -> Self {
        match word {
            0 => TableLocation::InSegment,
            _ => TableLocation::InMemoryFile { offset: word & !63, capacity: 1 << (word & 63) },
        }
    }
}

/// The memory that this process has attached, and the tables of its peers.
#[derive(Debug)]
pub(super) struct Attached {
    blocks: ControlBlocks,
    tables: Tables,
    me: Rank,
    /// Shared with this process's inbox.
    own: Rc<RefCell<Regions>>,
    /// This process's table, once it has outgrown the segment.
    extent: Option<Extent>,
    peers: RefCell<HashMap<Rank, PeerTable>>,
}

#[derive(Debug, Default)]
struct PeerTable {
    /// The process's memory file, if its table is there.
    file: Option<Arc<MappedFile>>,
    /// The region found last, and the table's version then: most accesses go to one region.
    last: Option<(u64, Region)>,
}

fn region(entry: &RegionEntry) -> Region {
    Region { start: entry[0].load(Relaxed), end: entry[1].load(Relaxed) }
}

/// Entries in the mapping of a memory file.
fn entries(segment: &Segment, offset: u64, capacity: u64) -> &[RegionEntry] {
    assert!(capacity * ENTRY <= segment.len() && offset <= segment.len() - capacity * ENTRY);
    // SAFETY: the assertion keeps the entries inside the mapping, and their process has extended
    // the file over them. They start at a page, and all processes access them as atomics only.
    unsafe { std::slice::from_raw_parts(segment.at(offset).cast(), capacity as usize) }
}

impl Attached {
    pub(super) fn new(blocks: ControlBlocks, tables: Tables, me: Rank) -> Self {
        Attached { blocks, tables, me, own: Rc::default(), extent: None, peers: RefCell::default() }
    }

    /// What this process has attached, for whoever applies the operations of others here.
    pub(super) fn own(&self) -> Rc<RefCell<Regions>> {
        Rc::clone(&self.own)
    }

    pub(super) fn attach(&mut self, start: u64, len: u64) -> Result<(), AttachError> {
        if self.own.borrow().sorted().len() >= self.table().len() {
            self.grow()?;
        }
        let index = self.own.borrow_mut().attach(start, len)?;
        if let Some(index) = index {
            self.publish(index);
        }
        Ok(())
    }

    /// Detaches what was attached at this address.
    pub(super) fn detach(&mut self, start: u64) -> Result<(), AttachError> {
        let index = self.own.borrow_mut().detach(start)?;
        if let Some(index) = index {
            self.publish(index);
        }
        Ok(())
    }

    /// Whether `rank` has attached each of the `len` bytes at `start`.
    pub(super) fn covers(&self, rank: Rank, start: u64, len: u64) -> Result<bool, SystemError> {
        if len == 0 {
            return Ok(true);
        }
        if rank == self.me {
            return Ok(self.own.borrow().cover(start, len));
        }
        let block = self.blocks.rank(rank);
        let mut peers = self.peers.borrow_mut();
        let (words, file) = (&block.region_table.0, block.info.0.memory_file());
        let peer = peers.entry(rank).or_default();
        peer.covers(words, self.tables.of(rank), file, (start, len))
    }

    fn table(&self) -> &[RegionEntry] {
        match &self.extent {
            Some(extent) => entries(&extent.segment, 0, extent.segment.len() / ENTRY),
            None => self.tables.of(self.me),
        }
    }

    /// Whether this process has attached `count` runs; see [`Regions::cover_runs`].
    pub(super) fn covers_runs_here(&self, start: u64, len: u64, stride: i64, count: u64) -> bool {
        self.own.borrow().cover_runs(start, len, stride, count)
    }

    /// Moves the table to an extent with twice the capacity.
    #[cold]
    fn grow(&mut self) -> Result<(), AttachError> {
        let capacity = 2 * self.table().len() as u64;
        let larger = Extent::new(capacity * ENTRY).map_err(|error| {
            log::warn!("out of memory while attaching memory to a dynamic window: {error}");
            AttachError::NoRoom
        })?;
        // Readers of the old table find another version afterwards, and read again.
        let before = self.extent.replace(larger);
        self.publish(0);
        drop(before);
        Ok(())
    }

    /// Writes the regions from index `first` on, and the location of the table.
    fn publish(&mut self, first: usize) {
        let words = &self.blocks.rank(self.me).region_table.0;
        let version = words.version.load(Relaxed);
        words.version.store(version + 1, Relaxed);
        // The odd version is visible before any store below.
        fence(Release);
        let own = self.own.borrow();
        let table = self.table();
        for (entry, region) in table.iter().zip(own.sorted()).skip(first) {
            entry[0].store(region.start, Relaxed);
            entry[1].store(region.end, Relaxed);
        }
        let location = match &self.extent {
            Some(Extent { offset, .. }) => {
                TableLocation::InMemoryFile { offset: *offset, capacity: table.len() as u64 }
            }
            None => TableLocation::InSegment,
        };
        words.location.store(location.encode(), Relaxed);
        words.count.store(own.sorted().len() as u64, Relaxed);
        words.version.store(version + 2, Release);
    }
}

impl PeerTable {
    fn covers(
        &mut self,
        words: &RegionTableWords,
        in_segment: &[RegionEntry],
        file: MemoryFileId,
        (start, len): (u64, u64),
    ) -> Result<bool, SystemError> {
        let Some(end) = start.checked_add(len) else { return Ok(false) };
        loop {
            let version = words.version.load(Acquire);
            if let Some((seen, region)) = self.last
                && seen == version
                && region.start <= start
                && end <= region.end
            {
                return Ok(true);
            }
            if version.is_multiple_of(2) {
                let found = self.find(words, in_segment, file, (start, len));
                // What was read belongs to this version if the version is still the same.
                fence(Acquire);
                if words.version.load(Relaxed) == version {
                    let found = found?;
                    self.last = found.map(|region| (version, region)).or(self.last);
                    return Ok(found.is_some());
                }
            }
            // The writer may have been descheduled while it writes.
            yield_now();
        }
    }

    /// The region or adjacent regions that cover these bytes, if the version does not change.
    fn find(
        &mut self,
        words: &RegionTableWords,
        in_segment: &[RegionEntry],
        file: MemoryFileId,
        (start, len): (u64, u64),
    ) -> Result<Option<Region>, SystemError> {
        let table = match TableLocation::decode(words.location.load(Relaxed)) {
            TableLocation::InSegment => in_segment,
            TableLocation::InMemoryFile { offset, capacity } => {
                let needed = offset + capacity * ENTRY;
                if self.file.as_ref().is_none_or(|file| file.segment().len() < needed) {
                    self.file = Some(process::map(file, needed)?);
                }
                let file = self.file.as_ref();
                file.map_or(&[][..], |file| entries(file.segment(), offset, capacity))
            }
        };
        let count = (words.count.load(Relaxed) as usize).min(table.len());
        Ok(covered(count, start, len, |at| region(&table[at])))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;
    use crate::transport::shm::control::{Header, PairBlock, RankBlock, RankInfo};

    /// Control words and tables of a window of two ranks, both of which are this process.
    struct Words(Vec<u128>);

    impl Words {
        fn new() -> Self {
            let bytes =
                size_of::<Header>() + 2 * size_of::<RankBlock>() + 4 * size_of::<PairBlock>() + 64;
            Words(vec![0; bytes.div_ceil(16) + 2 * IN_SEGMENT as usize])
        }

        fn tables(&mut self) -> Tables {
            let place = self.0.len() - 2 * IN_SEGMENT as usize;
            // SAFETY: aligned, zeroed, long enough, and alive as long as the test uses them.
            unsafe { Tables::new(self.0.as_mut_ptr().wrapping_add(place).cast()) }
        }

        fn blocks(&mut self) -> ControlBlocks {
            let start = self.0.as_mut_ptr().cast::<u8>();
            let header = start.wrapping_add(start.align_offset(64));
            let ranks = header.wrapping_add(size_of::<Header>());
            let pairs = ranks.wrapping_add(2 * size_of::<RankBlock>());
            // SAFETY: aligned, zeroed, long enough, and alive as long as the test uses them.
            let blocks =
                unsafe { ControlBlocks::new(header.cast(), ranks.cast(), pairs.cast(), 2) };
            let (MemoryFileId { pid, fd, nonce }, window) = process::register().unwrap();
            for rank in 0..2 {
                blocks.set_rank_info(
                    rank,
                    RankInfo { memory: 0, size: 0, disp_unit: 1, pid, nonce, fd, window },
                );
            }
            blocks
        }
    }

    #[test]
    fn peers_see_attached_regions() {
        let mut words = Words::new();
        let (blocks, tables) = (words.blocks(), words.tables());
        let (mut owner, other) =
            (Attached::new(blocks, tables, 0), Attached::new(blocks, tables, 1));
        let covers = |who: &Attached, rank, start, len| who.covers(rank, start, len).unwrap();
        assert!(!covers(&other, 0, 1000, 1) && covers(&other, 0, 1000, 0));
        // More regions than fit the segment, in descending order.
        for at in (0..2000u64).rev() {
            owner.attach(at * 100, 50).unwrap();
            assert!(covers(&other, 0, at * 100, 50) && covers(&owner, 0, at * 100, 50));
            assert!(!covers(&other, 0, at * 100 + 49, 2) && !covers(&owner, 0, at * 100 + 49, 2));
        }
        assert_eq!(owner.attach(149, 1), Err(AttachError::Overlaps));
        for at in (0..2000u64).step_by(3) {
            owner.detach(at * 100).unwrap();
            assert!(!covers(&other, 0, at * 100, 1));
        }
        assert_eq!(owner.detach(0), Err(AttachError::Unknown));
        assert!(covers(&other, 0, 199_900, 50) && !covers(&other, 1, 100, 1));
    }

    /// Regions that stay attached are always found; bytes that never are attached are never found.
    #[test]
    fn readers_during_changes_are_consistent() {
        struct Shared(ControlBlocks, Tables);
        // SAFETY: one thread writes the words of rank 0, by atomics; the other only reads them.
        unsafe impl Send for Shared {}
        let mut words = Words::new();
        let (blocks, tables) = (words.blocks(), words.tables());
        let mut owner = Attached::new(blocks, tables, 0);
        let covers = |who: &Attached, rank, start, len| who.covers(rank, start, len).unwrap();
        for at in 0..40u64 {
            owner.attach(10_000 + at * 1000, 100).unwrap();
        }
        let over = AtomicBool::new(false);
        let shared = Shared(blocks, tables);
        std::thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                let shared = shared;
                let other = Attached::new(shared.0, shared.1, 1);
                while !over.load(SeqCst) {
                    for at in 0..40u64 {
                        assert!(covers(&other, 0, 10_000 + at * 1000, 100));
                        assert!(!covers(&other, 0, 10_000 + at * 1000 + 100, 1));
                        assert!(!covers(&other, 0, 10_000 + at * 1000 + 50, 100));
                    }
                }
            });
            for turn in 0..300u64 {
                // The table outgrows the segment in this round.
                if turn == 100 {
                    (0..2 * IN_SEGMENT)
                        .for_each(|at| owner.attach(1_000_000 + at * 10, 5).unwrap());
                }
                for at in 0..40u64 {
                    owner.attach(10_500 + (at * 7 + turn) % 40 * 1000, 100).unwrap();
                }
                for at in 0..40u64 {
                    owner.detach(10_500 + at * 1000).unwrap();
                }
            }
            over.store(true, SeqCst);
        });
    }
}
