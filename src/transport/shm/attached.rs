//! Dynamic windows: what each process has attached, told to those who access it.
//!
//! Attaching is local: nobody is told by a message. Each process keeps its regions, sorted, in a table that the others map when they
//! first want to reach it, and checks an operation against the table of its target before anything moves. So memory that is not
//! attached is refused where the call is made, whatever its target does meanwhile. A program that detaches memory while others
//! still use it is wrong, and only the target can notice: its inbox looks again, and leaves out what it may not touch any more.
//!
//! The table has one writer and any number of readers, and a version that is odd while it is being written: a reader that finds
//! another version after reading than before reads again. It is a memory file of its own, made at the first attachment, which
//! only grows; so any number of regions can be attached.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use hashbrown::HashMap;

use crate::engine::Rank;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence, yield_now};
use crate::transport::regions::{Refusal, Region, Regions, covered};

use super::segment::{self, Segment};
use super::words::{Blocks, RegionWords};

/// Regions for which a new table has room: one page.
const FIRST: u64 = 4096 / ENTRY;
/// Bytes of an entry: first byte, and the byte behind the last.
const ENTRY: u64 = 16;

/// Attached memory of this process, and views of what others have attached.
#[derive(Debug)]
pub(super) struct Attached {
    blocks: Blocks,
    me: Rank,
    /// Shared with the inbox of this process.
    own: Rc<RefCell<Regions>>,
    table: Option<Table>,
    views: RefCell<HashMap<Rank, View>>,
}

/// The table of this process.
#[derive(Debug)]
struct Table {
    file: OwnedFd,
    segment: Segment,
}

/// The table of another process, as far as it was mapped.
#[derive(Debug, Default)]
struct View {
    segment: Option<Segment>,
    /// What was found last, and the version of the table then: most accesses are to where the last one was.
    last: Option<(u64, Region)>,
}

impl Attached {
    pub(super) fn new(blocks: Blocks, me: Rank) -> Self {
        Attached { blocks, me, own: Rc::default(), table: None, views: RefCell::default() }
    }

    /// What this process has attached, for whoever applies the operations of others here.
    pub(super) fn own(&self) -> Rc<RefCell<Regions>> {
        Rc::clone(&self.own)
    }

    /// Attaches memory of this process.
    pub(super) fn attach(&mut self, start: u64, len: u64) -> Result<(), Refusal> {
        if self.own.borrow().sorted().len() as u64 >= self.room() {
            self.grow()?;
        }
        let place = self.own.borrow_mut().attach(start, len)?;
        if let Some(at) = place {
            self.publish(at);
        }
        Ok(())
    }

    /// Detaches what was attached at this address.
    pub(super) fn detach(&mut self, start: u64) -> Result<(), Refusal> {
        let place = self.own.borrow_mut().detach(start)?;
        if let Some(at) = place {
            self.publish(at);
        }
        Ok(())
    }

    /// True if `rank` has attached each of the `len` bytes at `start`.
    pub(super) fn covers(&self, rank: Rank, start: u64, len: u64) -> bool {
        if len == 0 {
            return true;
        }
        if rank == self.me {
            return self.own.borrow().cover(start, len);
        }
        let block = self.blocks.rank(rank);
        let mut views = self.views.borrow_mut();
        views.entry(rank).or_default().covers(&block.regions.0, block.info.0.pid, start, len)
    }

    fn room(&self) -> u64 {
        self.table.as_ref().map_or(0, |table| table.segment.len() / ENTRY)
    }

    /// Makes the table, or doubles it. Readers notice by its capacity.
    #[cold]
    fn grow(&mut self) -> Result<(), Refusal> {
        let words = &self.blocks.rank(self.me).regions.0;
        let room = (2 * self.room()).max(FIRST);
        let larger = match &mut self.table {
            // The same file, which readers may have mapped: what is in it stays.
            Some(table) => {
                Segment::map(&table.file, room * ENTRY).map(|segment| table.segment = segment)
            }
            None => segment::create().and_then(|file| {
                let segment = Segment::map(&file, room * ENTRY)?;
                words.file.store(file.as_raw_fd() as u64, Relaxed);
                self.table = Some(Table { file, segment });
                Ok(())
            }),
        };
        if let Err(failure) = larger {
            log::warn!(
                "no more memory can be attached: {} failed with errno {}",
                failure.step.name(),
                failure.errno
            );
            return Err(Refusal::NoRoom);
        }
        words.capacity.store(room, Release);
        Ok(())
    }

    /// Writes the regions from place `first` on.
    fn publish(&mut self, first: usize) {
        let words = &self.blocks.rank(self.me).regions.0;
        let Some(table) = &self.table else { return };
        let version = words.version.load(Relaxed);
        words.version.store(version + 1, Relaxed);
        // Nothing below is seen before the version is odd.
        fence(Release);
        let own = self.own.borrow();
        for (at, region) in own.sorted().iter().enumerate().skip(first) {
            let [start, end] = entry(&table.segment, at);
            start.store(region.start, Relaxed);
            end.store(region.end, Relaxed);
        }
        words.count.store(own.sorted().len() as u64, Relaxed);
        words.version.store(version + 2, Release);
    }
}

/// The words of one region.
fn entry(segment: &Segment, at: usize) -> &[AtomicU64; 2] {
    debug_assert!((at as u64 + 1) * ENTRY <= segment.len());
    // SAFETY: inside the mapping, aligned, and accessed as atomics by everybody.
    unsafe { &*segment.at(at as u64 * ENTRY).cast::<[AtomicU64; 2]>() }
}

impl View {
    fn covers(&mut self, words: &RegionWords, pid: i32, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        loop {
            let version = words.version.load(Acquire);
            if let Some((seen, region)) = self.last
                && seen == version
                && region.start <= start
                && end <= region.end
            {
                return true;
            }
            if version.is_multiple_of(2) {
                let found = self.look(words, pid, start, len);
                // What was read belongs to this version if it is still the same.
                fence(Acquire);
                if words.version.load(Relaxed) == version {
                    self.last = found.map(|region| (version, region)).or(self.last);
                    return found.is_some();
                }
            }
            // The writer may have lost its processor in the middle.
            yield_now();
        }
    }

    /// The regions that cover these bytes, if the table does not change meanwhile.
    fn look(&mut self, words: &RegionWords, pid: i32, start: u64, len: u64) -> Option<Region> {
        let capacity = words.capacity.load(Acquire);
        if capacity == 0 {
            return None;
        }
        if self.segment.as_ref().is_none_or(|segment| segment.len() < capacity * ENTRY) {
            let file = words.file.load(Relaxed) as i32;
            match segment::open(pid, file)
                .and_then(|file| Segment::map_part(&file, capacity * ENTRY))
            {
                Ok(segment) => self.segment = Some(segment),
                Err(failure) => {
                    log::error!(
                        "what process {pid} has attached cannot be seen: {} failed with errno {}",
                        failure.step.name(),
                        failure.errno
                    );
                    return None;
                }
            }
        }
        let segment = self.segment.as_ref()?;
        let count = words.count.load(Relaxed).min(segment.len() / ENTRY) as usize;
        covered(count, start, len, |at| {
            let [start, end] = entry(segment, at);
            Region { start: start.load(Relaxed), end: end.load(Relaxed) }
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;
    use crate::transport::shm::words::{Header, PairBlock, RankBlock, RankInfo};

    /// The words of a window of two ranks that are both this process.
    struct Words(Vec<u128>);

    impl Words {
        fn new() -> Self {
            let bytes =
                size_of::<Header>() + 2 * size_of::<RankBlock>() + 4 * size_of::<PairBlock>() + 64;
            Words(vec![0; bytes.div_ceil(16)])
        }

        fn blocks(&mut self) -> Blocks {
            let start = self.0.as_mut_ptr().cast::<u8>();
            let header = start.wrapping_add(start.align_offset(64));
            let ranks = header.wrapping_add(size_of::<Header>());
            let pairs = ranks.wrapping_add(2 * size_of::<RankBlock>());
            // SAFETY: aligned, zeroed, long enough, and kept by the test as long as it uses them.
            let blocks = unsafe { Blocks::new(header.cast(), ranks.cast(), pairs.cast(), 2) };
            for rank in 0..2 {
                blocks.introduce(
                    rank,
                    RankInfo { memory: 0, size: 0, disp_unit: 1, pid: std::process::id() as i32 },
                );
            }
            blocks
        }
    }

    #[test]
    fn others_see_what_is_attached() {
        let mut words = Words::new();
        let blocks = words.blocks();
        let (mut owner, other) = (Attached::new(blocks, 0), Attached::new(blocks, 1));
        assert!(!other.covers(0, 1000, 1) && other.covers(0, 1000, 0));
        // More than one table of the first size, in an order that is not that of the addresses.
        for at in (0..2000u64).rev() {
            owner.attach(at * 100, 50).unwrap();
            assert!(other.covers(0, at * 100, 50) && owner.covers(0, at * 100, 50));
            assert!(!other.covers(0, at * 100 + 49, 2) && !owner.covers(0, at * 100 + 49, 2));
        }
        assert_eq!(owner.attach(149, 1), Err(Refusal::Overlaps));
        for at in (0..2000u64).step_by(3) {
            owner.detach(at * 100).unwrap();
            assert!(!other.covers(0, at * 100, 1));
        }
        assert_eq!(owner.detach(0), Err(Refusal::Unknown));
        assert!(other.covers(0, 199_900, 50) && !other.covers(1, 100, 1));
    }

    /// What does not change is found at every moment, and what is never there at none.
    #[test]
    fn looks_during_changes_are_true() {
        struct Shared(Blocks);
        // SAFETY: one thread writes the words of rank 0, by atomics; the other only reads them.
        unsafe impl Send for Shared {}
        let mut words = Words::new();
        let blocks = words.blocks();
        let mut owner = Attached::new(blocks, 0);
        for at in 0..40u64 {
            owner.attach(10_000 + at * 1000, 100).unwrap();
        }
        let over = AtomicBool::new(false);
        let shared = Shared(blocks);
        std::thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                let shared = shared;
                let other = Attached::new(shared.0, 1);
                while !over.load(SeqCst) {
                    for at in 0..40u64 {
                        assert!(other.covers(0, 10_000 + at * 1000, 100));
                        assert!(!other.covers(0, 10_000 + at * 1000 + 100, 1));
                        assert!(!other.covers(0, 10_000 + at * 1000 + 50, 100));
                    }
                }
            });
            for turn in 0..300u64 {
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
