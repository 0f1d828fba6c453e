//! Dynamic windows: the memory that each process has attached, published to its peers.
//!
//! Attaching is local and sends no message. Each process publishes its regions, sorted, in a table
//! that its peers read. The origin checks an operation against its target's table before anything
//! moves, so a call that accesses memory which is not attached fails, whatever the target does. A
//! program that detaches memory while others still use it is erroneous, and only the target can
//! notice: its inbox checks again, and drops the operation.
//!
//! A table has one writer, any number of readers, and a version, which is odd during a write. A
//! reader that finds another version afterwards reads again. A table begins in the window's
//! segment. When it outgrows its room there, it moves to its process's memory file ([`process`])
//! with twice the capacity. So no window needs a descriptor of its own for its regions.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::engine::Rank;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence, yield_now};

use super::control::Parts;
use super::process::{self, Extent, MappedFile};
use super::regions::{AttachError, Region, Regions, covered};
use super::segment::{Segment, SystemError};

/// Regions for which a table in the segment has room.
pub(super) const IN_SEGMENT: usize = 256;
/// Bytes of an entry.
pub(super) const ENTRY: u64 = 16;

/// A region in a table: its first byte, and the byte after its last.
pub(super) type RegionEntry = [AtomicU64; 2];

/// The memory that this process has attached, and the tables of its peers.
#[derive(Debug)]
pub(super) struct Attached {
    parts: Parts,
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
    pub(super) fn new(parts: Parts, me: Rank) -> Self {
        Attached { parts, me, own: Rc::default(), extent: None, peers: RefCell::default() }
    }

    /// What this process has attached, for whoever applies the operations of others here.
    pub(super) fn own(&self) -> Rc<RefCell<Regions>> {
        Rc::clone(&self.own)
    }

    pub(super) fn attach(&mut self, start: u64, len: u64) -> Result<(), AttachError> {
        if self.own.borrow().sorted().len() >= self.table().len() {
            self.grow()?;
        }
        let first = self.own.borrow_mut().attach(start, len)?;
        self.publish(first);
        Ok(())
    }

    /// Detaches what was attached at this address.
    pub(super) fn detach(&mut self, start: u64) -> Result<(), AttachError> {
        let first = self.own.borrow_mut().detach(start)?;
        self.publish(first);
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
        self.peers.borrow_mut().entry(rank).or_default().covers(&self.parts, rank, start, len)
    }

    fn table(&self) -> &[RegionEntry] {
        match &self.extent {
            Some(extent) => entries(&extent.segment, 0, extent.segment.len() / ENTRY),
            None => self.parts.region_table(self.me),
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
        self.publish(Some(0));
        drop(before);
        Ok(())
    }

    /// Writes the regions from index `first` on, and the location of the table. Does nothing if no
    /// region has changed.
    fn publish(&mut self, first: Option<usize>) {
        let Some(first) = first else { return };
        let words = &self.parts.rank(self.me).region_table.0;
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
        let location =
            self.extent.as_ref().map_or(0, |extent| extent.offset | table.len().ilog2() as u64);
        words.location.store(location, Relaxed);
        words.count.store(own.sorted().len() as u64, Relaxed);
        words.version.store(version + 2, Release);
    }
}

impl PeerTable {
    fn covers(
        &mut self,
        parts: &Parts,
        rank: Rank,
        start: u64,
        len: u64,
    ) -> Result<bool, SystemError> {
        let Some(end) = start.checked_add(len) else { return Ok(false) };
        let words = &parts.rank(rank).region_table.0;
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
                let found = self.find(parts, rank, start, len);
                // All that was read belongs to this version if the version has not changed.
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
        parts: &Parts,
        rank: Rank,
        start: u64,
        len: u64,
    ) -> Result<Option<Region>, SystemError> {
        let block = parts.rank(rank);
        let words = &block.region_table.0;
        let table = match words.location.load(Relaxed) {
            0 => parts.region_table(rank),
            location => {
                let (offset, capacity) = (location & !63, 1 << (location & 63));
                let needed = offset + capacity * ENTRY;
                if self.file.as_ref().is_none_or(|file| file.segment().len() < needed) {
                    self.file = Some(process::map(block.info.0.process, needed)?);
                }
                let file = self.file.as_ref();
                file.map_or(&[][..], |file| entries(file.segment(), offset, capacity))
            }
        };
        let count = (words.count.load(Relaxed) as usize).min(table.len());
        Ok(covered(&table[..count], start, len, region))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;
    use crate::transport::shm::control::RankInfo;
    use crate::transport::shm::layout::{Layout, Placement};
    use crate::transport::shm::segment;

    /// The segment of a window of two ranks, both of which are this process.
    fn window() -> (Segment, Parts) {
        let layout = Layout::new(2, true, Placement::PAGES, std::iter::empty()).unwrap();
        let segment = Segment::map(&segment::create().unwrap(), layout.total, 1).unwrap();
        // SAFETY: a new segment is zeros, and the caller keeps it mapped.
        let parts = unsafe { Parts::new(&segment, &layout, 2) };
        let (process, window) = process::register().unwrap();
        for rank in 0..2 {
            let info = RankInfo { memory: 0, size: 0, disp_unit: 1, window, process };
            parts.set_rank_info(rank, info);
        }
        (segment, parts)
    }

    #[test]
    fn peers_see_attached_regions() {
        let (_segment, parts) = window();
        let (mut owner, other) = (Attached::new(parts, 0), Attached::new(parts, 1));
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
        struct Shared(Parts);
        // SAFETY: one thread writes the words of rank 0, by atomics; the other only reads them.
        unsafe impl Send for Shared {}
        let (_segment, parts) = window();
        let mut owner = Attached::new(parts, 0);
        let covers = |who: &Attached, rank, start, len| who.covers(rank, start, len).unwrap();
        for at in 0..40u64 {
            owner.attach(10_000 + at * 1000, 100).unwrap();
        }
        let over = AtomicBool::new(false);
        let shared = Shared(parts);
        std::thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                let shared = shared;
                let other = Attached::new(shared.0, 1);
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
                    for at in 0..2 * IN_SEGMENT as u64 {
                        owner.attach(1_000_000 + at * 10, 5).unwrap();
                    }
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
