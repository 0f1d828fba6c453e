//! Dynamic windows: what each process has attached, and how its peers see it.
//!
//! Attaching is local: no message is sent. Each process keeps its regions, sorted, in a table that
//! its peers can read, and checks an operation against the table of its target before anything
//! moves. So memory that is not attached is refused where the call is made, whatever its target
//! does meanwhile. A program that detaches memory while others still use it is wrong, and only the
//! target can notice: its inbox looks again, and leaves out what it may not touch any more.
//!
//! A table has one writer and any number of readers, and a version that is odd while it is being
//! written: a reader that finds another version after reading than before reads again. It begins in
//! the window's segment. One that has outgrown its place there moves to its process's memory
//! ([`process`]), to twice the room each time, so that any number of regions can be attached
//! without a descriptor per window.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use super::regions::{AttachError, Region, Regions, covered};
use crate::engine::Rank;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence, yield_now};

use super::process::{self, Extent, Identity, Unreachable};
use super::segment::Segment;
use super::words::{Blocks, RegionWords};

/// Regions for which a table has room in the segment.
pub(super) const IN_SEGMENT: u64 = 256;
/// Bytes of an entry: first byte, and the byte behind the last.
pub(super) const ENTRY: u64 = 16;

/// The words of one region.
type Entry = [AtomicU64; 2];

/// The tables in the window's segment, one after another in order of ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables(*const Entry);

impl Tables {
    /// # Safety
    /// `first` begins tables of [`IN_SEGMENT`] entries for each rank of the window, aligned, shared
    /// and accessed as atomics alone, for as long as the result is used.
    pub(super) unsafe fn new(first: *const u8) -> Self {
        Tables(first.cast())
    }

    fn of(&self, rank: Rank) -> &[Entry] {
        // SAFETY: by the promise made to `new`.
        unsafe {
            std::slice::from_raw_parts(
                self.0.add(rank as usize * IN_SEGMENT as usize),
                IN_SEGMENT as usize,
            )
        }
    }
}

/// Where a table is: in the segment, or at a page of its process's memory file. In one word, so
/// that readers never see the place of one table with the room of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    InSegment,
    InMemory {
        /// From the beginning of the file, in bytes.
        offset: u64,
        /// Entries, a power of two.
        room: u64,
    },
}

impl Place {
    fn encode(self) -> u64 {
        match self {
            Place::InSegment => 0,
            // Offsets are multiples of a page.
            Place::InMemory { offset, room } => offset | u64::from(room.trailing_zeros()),
        }
    }

    fn decode(word: u64) -> Self {
        match word {
            0 => Place::InSegment,
            _ => Place::InMemory { offset: word & !63, room: 1 << (word & 63) },
        }
    }
}

/// Attached memory of this process, and views of what others have attached.
#[derive(Debug)]
pub(super) struct Attached {
    blocks: Blocks,
    tables: Tables,
    me: Rank,
    /// Shared with the inbox of this process.
    own: Rc<RefCell<Regions>>,
    /// This process's table, once it has outgrown the segment.
    extent: Option<Extent>,
    views: RefCell<HashMap<Rank, View>>,
}

/// The table of another process.
#[derive(Debug, Default)]
struct View {
    /// The process's memory, if its table is there.
    memory: Option<Arc<Segment>>,
    /// What was found last, and the version of the table then: most accesses are to where the last
    /// one was.
    last: Option<(u64, Region)>,
}

/// A region as the words of an entry say it.
fn region(entry: &Entry) -> Region {
    Region { start: entry[0].load(Relaxed), end: entry[1].load(Relaxed) }
}

/// Entries in the mapping of a memory file.
fn entries(segment: &Segment, offset: u64, room: u64) -> &[Entry] {
    assert!(room * ENTRY <= segment.len() && offset <= segment.len() - room * ENTRY);
    // SAFETY: inside the mapping and of the file, page-aligned, and accessed as atomics by
    // everybody.
    unsafe { std::slice::from_raw_parts(segment.at(offset).cast::<Entry>(), room as usize) }
}

impl Attached {
    pub(super) fn new(blocks: Blocks, tables: Tables, me: Rank) -> Self {
        Attached { blocks, tables, me, own: Rc::default(), extent: None, views: RefCell::default() }
    }

    /// What this process has attached, for whoever applies the operations of others here.
    pub(super) fn own(&self) -> Rc<RefCell<Regions>> {
        Rc::clone(&self.own)
    }

    /// Attaches memory of this process.
    pub(super) fn attach(&mut self, start: u64, len: u64) -> Result<(), AttachError> {
        if self.own.borrow().sorted().len() >= self.table().len() {
            self.grow()?;
        }
        let place = self.own.borrow_mut().attach(start, len)?;
        if let Some(at) = place {
            self.publish(at);
        }
        Ok(())
    }

    /// Detaches what was attached at this address.
    pub(super) fn detach(&mut self, start: u64) -> Result<(), AttachError> {
        let place = self.own.borrow_mut().detach(start)?;
        if let Some(at) = place {
            self.publish(at);
        }
        Ok(())
    }

    /// Whether `rank` has attached each of the `len` bytes at `start`.
    ///
    /// # Errors
    /// The table of `rank` cannot be mapped.
    pub(super) fn covers(&self, rank: Rank, start: u64, len: u64) -> Result<bool, Unreachable> {
        if len == 0 {
            return Ok(true);
        }
        if rank == self.me {
            return Ok(self.own.borrow().cover(start, len));
        }
        let block = self.blocks.rank(rank);
        let mut views = self.views.borrow_mut();
        let view = views.entry(rank).or_default();
        view.covers(&block.regions.0, self.tables.of(rank), block.info.0.identity(), (start, len))
    }

    /// This process's table.
    fn table(&self) -> &[Entry] {
        match &self.extent {
            Some(extent) => entries(&extent.segment, 0, extent.segment.len() / ENTRY),
            None => self.tables.of(self.me),
        }
    }

    /// True if this process has attached each of `count` runs of `len` bytes, the first at `start`,
    /// `stride` apart.
    pub(super) fn covers_runs_here(&self, start: u64, len: u64, stride: i64, count: u64) -> bool {
        self.own.borrow().cover_runs(start, len, stride, count)
    }

    /// Moves the table to a place with twice the room.
    #[cold]
    fn grow(&mut self) -> Result<(), AttachError> {
        let room = 2 * self.table().len() as u64;
        let larger = Extent::new(room * ENTRY).map_err(|failure| {
            log::warn!("no more memory can be attached: {}", Unreachable(failure));
            AttachError::NoRoom
        })?;
        // Readers of the old table find another version when they have read it.
        let before = self.extent.replace(larger);
        self.publish(0);
        drop(before);
        Ok(())
    }

    /// Writes the regions from number `first` on, and where the table is.
    fn publish(&mut self, first: usize) {
        let words = &self.blocks.rank(self.me).regions.0;
        let version = words.version.load(Relaxed);
        words.version.store(version + 1, Relaxed);
        // Nothing below is seen before the version is odd.
        fence(Release);
        let own = self.own.borrow();
        let table = self.table();
        for (entry, region) in table.iter().zip(own.sorted()).skip(first) {
            entry[0].store(region.start, Relaxed);
            entry[1].store(region.end, Relaxed);
        }
        let place = match &self.extent {
            Some(extent) => Place::InMemory { offset: extent.offset, room: table.len() as u64 },
            None => Place::InSegment,
        };
        words.table.store(place.encode(), Relaxed);
        words.count.store(own.sorted().len() as u64, Relaxed);
        words.version.store(version + 2, Release);
    }
}

impl View {
    fn covers(
        &mut self,
        words: &RegionWords,
        in_segment: &[Entry],
        whose: Identity,
        (start, len): (u64, u64),
    ) -> Result<bool, Unreachable> {
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
                let found = self.look(words, in_segment, whose, (start, len));
                // What was read belongs to this version if it is still the same.
                fence(Acquire);
                if words.version.load(Relaxed) == version {
                    let found = found?;
                    self.last = found.map(|region| (version, region)).or(self.last);
                    return Ok(found.is_some());
                }
            }
            // The writer may have lost its processor in the middle.
            yield_now();
        }
    }

    /// The regions that cover these bytes, if the table does not change meanwhile.
    fn look(
        &mut self,
        words: &RegionWords,
        in_segment: &[Entry],
        whose: Identity,
        (start, len): (u64, u64),
    ) -> Result<Option<Region>, Unreachable> {
        let table = match Place::decode(words.table.load(Relaxed)) {
            Place::InSegment => in_segment,
            Place::InMemory { offset, room } => {
                let needed = offset + room * ENTRY;
                if self.memory.as_ref().is_none_or(|memory| memory.len() < needed) {
                    self.memory = Some(process::map(whose, needed).map_err(Unreachable)?);
                }
                self.memory.as_ref().map_or(&[][..], |memory| entries(memory, offset, room))
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
    use crate::transport::shm::words::{Header, PairBlock, RankBlock, RankInfo};

    /// The words and tables of a window of two ranks that are both this process.
    struct Words(Vec<u128>);

    impl Words {
        fn new() -> Self {
            let bytes =
                size_of::<Header>() + 2 * size_of::<RankBlock>() + 4 * size_of::<PairBlock>() + 64;
            Words(vec![0; bytes.div_ceil(16) + 2 * IN_SEGMENT as usize])
        }

        fn tables(&mut self) -> Tables {
            let place = self.0.len() - 2 * IN_SEGMENT as usize;
            // SAFETY: aligned, zeroed, long enough, and kept by the test as long as it uses them.
            unsafe { Tables::new(self.0.as_mut_ptr().wrapping_add(place).cast()) }
        }

        fn blocks(&mut self) -> Blocks {
            let start = self.0.as_mut_ptr().cast::<u8>();
            let header = start.wrapping_add(start.align_offset(64));
            let ranks = header.wrapping_add(size_of::<Header>());
            let pairs = ranks.wrapping_add(2 * size_of::<RankBlock>());
            // SAFETY: aligned, zeroed, long enough, and kept by the test as long as it uses them.
            let blocks = unsafe { Blocks::new(header.cast(), ranks.cast(), pairs.cast(), 2) };
            let (Identity { pid, fd, name }, window) = process::register().unwrap();
            for rank in 0..2 {
                blocks.introduce(
                    rank,
                    RankInfo { memory: 0, size: 0, disp_unit: 1, pid, name, fd, window },
                );
            }
            blocks
        }
    }

    #[test]
    fn others_see_what_is_attached() {
        let mut words = Words::new();
        let (blocks, tables) = (words.blocks(), words.tables());
        let (mut owner, other) =
            (Attached::new(blocks, tables, 0), Attached::new(blocks, tables, 1));
        let covers = |who: &Attached, rank, start, len| who.covers(rank, start, len).unwrap();
        assert!(!covers(&other, 0, 1000, 1) && covers(&other, 0, 1000, 0));
        // More than the segment has room for, in an order that is not that of the addresses.
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

    /// What does not change is found at every moment, and what is never there at none.
    #[test]
    fn looks_during_changes_are_true() {
        struct Shared(Blocks, Tables);
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
                // The table outgrows the segment in the middle.
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
