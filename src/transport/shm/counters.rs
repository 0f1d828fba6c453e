//! Notification counters of a window, in a segment of their own.
//!
//! Each process asks for a number of counters. A notification adds 1 to a counter, after the data
//! that it announces. To change the numbers, the processes replace the segment in three steps, each
//! ended by an agreement: each process publishes its number and has nothing in flight; rank 0
//! creates the segment; all map it. If any step fails, the counters remain as they were.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::engine::Rank;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Release};

use super::control::Parts;
use super::protocol::{self, CounterLine, OwnCount};
use super::segment::{self, Segment, Step, SystemError};

/// Steps of [`make_counters`](super::ShmWindow::make_counters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterStep {
    /// Publishes how many counters this process asks for.
    Want,
    /// Rank 0 creates the segment.
    Create,
    /// Maps it.
    Map,
}

/// A process with at most this many counters has each on a cache line of its own.
pub const APART: u64 = 512;
const LINE: u32 = 64;

const _: () = assert!(cfg!(loom) || size_of::<CounterLine>() <= LINE as usize);

/// Counters of all processes, as mapped in this one.
#[derive(Debug)]
pub(super) struct Counters {
    /// Keeps the memory of `tables` mapped.
    _segment: Segment,
    tables: Vec<CounterTable>,
    /// This process's name in [`CounterLine`].
    name: u64,
}

/// One counter of one process.
#[derive(Clone, Copy, Debug)]
pub enum Counter<'a> {
    /// It has a line of its own, and this process the name.
    Line(&'a CounterLine, u64),
    /// Any thread may raise the word at any time.
    Word(&'a AtomicU64),
}

/// Bytes of data up to which a store announces them. The processor fetches the line of a store that
/// waits for earlier ones, but the target polls it and takes it back while a longer copy is made.
const ANNOUNCED_BY_STORE: u64 = 4096;

/// A counter that this process has raised before, and in which it has a word of its own.
#[derive(Debug)]
pub struct RaisedBefore {
    /// Address of the [`CounterLine`].
    line: u64,
    /// Address of the process's word.
    own: u64,
    /// The word's value.
    count: u64,
}

impl RaisedBefore {
    /// As [`Counter::raise`].
    ///
    /// # Safety
    /// The segment of the counter is still mapped, and no other thread of this process raises
    /// counters meanwhile, but by [`CounterTable`].
    #[inline(always)]
    pub unsafe fn raise(&mut self, len: u64, answers: bool) {
        // SAFETY: both addresses are in a segment that is mapped (contract of this function), and
        // were made from references. All processes access the words as atomics only.
        unsafe {
            if answers || len > ANNOUNCED_BY_STORE {
                (*(self.line as *const CounterLine)).raise_shared();
            } else {
                self.count += 1;
                (*(self.own as *const OwnCount)).raise_to(self.count);
            }
        }
    }
}

impl Counter<'_> {
    /// Adds 1, after everything that this process has read and written, `len` bytes of it just now.
    /// If this process has a word of its own in the counter, returns what raises it next time.
    ///
    /// `answers`: the target polls for this notification and nothing else. A store would need the
    /// counter's line twice: this process reads the word first, and the target takes the line back.
    #[inline(always)]
    pub fn raise(self, len: u64, answers: bool) -> Option<RaisedBefore> {
        match self {
            Counter::Line(line, name) => {
                let Some(own) = line.claim(name) else {
                    line.raise_shared();
                    return None;
                };
                let (line, count) = (std::ptr::from_ref(line) as u64, own.count());
                let own = std::ptr::from_ref(own) as u64;
                let mut raised = RaisedBefore { line, own, count };
                // SAFETY: the segment is mapped, since `self` borrows the line.
                unsafe { raised.raise(len, answers) };
                Some(raised)
            }
            Counter::Word(word) => {
                protocol::raise(word);
                None
            }
        }
    }

    #[inline(always)]
    fn raised(self) -> u64 {
        match self {
            Counter::Line(line, _) => line.raised(),
            Counter::Word(word) => protocol::raised(word),
        }
    }
}

/// All counters of one process, as mapped in this one, for threads that raise them at any time. The
/// default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterTable {
    /// Address of the first.
    first: u64,
    stride: u32,
    number: u32,
}

impl CounterTable {
    /// The table as two words.
    #[must_use]
    pub fn to_words(self) -> [u64; 2] {
        [self.first, u64::from(self.stride) << 32 | u64::from(self.number)]
    }

    /// The inverse of [`to_words`](Self::to_words).
    #[must_use]
    #[inline(always)]
    pub fn of_words([first, shape]: [u64; 2]) -> Self {
        Self { first, stride: (shape >> 32) as u32, number: shape as u32 }
    }

    /// Address of one counter, if there is one of this index.
    #[inline(always)]
    fn at(self, index: u32) -> Option<usize> {
        let at = self.first + u64::from(index) * u64::from(self.stride);
        (index < self.number).then_some(at as usize)
    }

    /// One counter, if there is one of this index.
    ///
    /// # Safety
    /// The segment that the table was made of is still mapped.
    #[must_use]
    #[inline(always)]
    pub unsafe fn get<'a>(self, index: u32) -> Option<Counter<'a>> {
        let at = self.at(index)?;
        // SAFETY: the word lies in the segment, which is mapped (contract of this function),
        // aligned to 8 bytes and accessed as atomics only. It is a counter, or the first word of a
        // `CounterLine`, which any thread may raise.
        Some(Counter::Word(unsafe { &*(at as *const AtomicU64) }))
    }
}

/// The counters of all processes in a segment at address 0, and their bytes in total. `None` if the
/// sizes overflow.
fn tables(parts: Parts, ranks: u32) -> Option<(Vec<CounterTable>, u64)> {
    let mut end = 0u64;
    let tables = (0..ranks).map(|rank| {
        let number = parts.rank(rank).counter_setup.0.wanted.load(Acquire);
        let stride = if number <= APART { LINE } else { 8 };
        let table = CounterTable { first: end, stride, number: u32::try_from(number).ok()? };
        let bytes = number.checked_mul(stride.into())?;
        end = end.checked_add(bytes)?.checked_next_multiple_of(LINE.into())?;
        Some(table)
    });
    Some((tables.collect::<Option<_>>()?, end))
}

impl Counters {
    #[inline(always)]
    pub(super) fn number(&self, rank: Rank) -> u32 {
        self.table(rank).number
    }

    #[inline(always)]
    pub(super) fn table(&self, rank: Rank) -> CounterTable {
        self.tables[rank as usize]
    }

    /// The counter `index` of `rank`, if there is one. To be used by one thread at a time.
    #[inline(always)]
    pub(super) fn get(&self, rank: Rank, index: u32) -> Option<Counter<'_>> {
        let table = self.tables.get(rank as usize)?;
        let at = table.at(index)?;
        if table.stride == LINE {
            // SAFETY: the line lies in the segment, which is mapped as long as `self` lives, and is
            // aligned to its size. The segment starts as zeros and is accessed as atomics only.
            return Some(Counter::Line(unsafe { &*(at as *const CounterLine) }, self.name));
        }
        // SAFETY: the word lies in the segment, which is mapped as long as `self` lives, aligned to
        // 8 bytes. The segment starts as zeros and is accessed as atomics only.
        Some(Counter::Word(unsafe { &*(at as *const AtomicU64) }))
    }

    #[inline(always)]
    fn existing(&self, rank: Rank, index: u32) -> Counter<'_> {
        self.get(rank, index).unwrap_or_else(|| panic!("rank {rank} has no counter {index}"))
    }

    /// Adds 1 to a counter, after everything that this process has read and written. It leaves the
    /// process's own word alone, whose value a [`RaisedBefore`] may know.
    #[inline(always)]
    pub(super) fn raise(&self, rank: Rank, index: u32) {
        match self.existing(rank, index) {
            Counter::Line(line, _) => line.raise_shared(),
            Counter::Word(word) => protocol::raise(word),
        }
    }

    /// As [`protocol::raised`].
    #[inline(always)]
    pub(super) fn sum(&self, rank: Rank, index: u32) -> u64 {
        self.existing(rank, index).raised()
    }
}

/// Counters that are being set up.
#[derive(Debug, Default)]
pub(super) struct CounterSetup {
    /// Rank 0: keeps the descriptor open until all processes have mapped the segment.
    file: Option<File>,
    /// After the last step, the counters that were replaced.
    pub(super) before: Option<Option<Box<Counters>>>,
}

impl CounterSetup {
    /// Second step, when all numbers are published: rank 0 creates the segment.
    pub(super) fn create(&mut self, parts: Parts, me: Rank) -> Result<(), SystemError> {
        if me != 0 {
            return Ok(());
        }
        let file = segment::create()?;
        parts.rank(0).counter_setup.0.file.store(file.as_raw_fd() as u64, Release);
        self.file = Some(file);
        Ok(())
    }

    /// Third step: maps the segment, whose counters are 0. The caller must switch to the new
    /// counters before it proposes. A peer that has seen all proposals may notify at once, and this
    /// process may apply that notification while it still waits for the decision.
    pub(super) fn map(&self, parts: Parts, me: Rank, ranks: u32) -> Result<Counters, SystemError> {
        let overflow = SystemError { step: Step::Resize, errno: libc::EOVERFLOW };
        let (mut tables, len) = tables(parts, ranks).ok_or(overflow)?;
        let creator = parts.rank(0);
        let fd = creator.counter_setup.0.file.load(Acquire) as i32;
        let place = (creator.info.0.process.pid, fd);
        let segment = Segment::map_shared(self.file.as_ref(), place, len.max(LINE.into()), 1)?;
        tables.iter_mut().for_each(|table| table.first += segment.at(0) as u64);
        Ok(Counters { _segment: segment, tables, name: u64::from(me) + 1 })
    }
}
