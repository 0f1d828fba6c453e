//! Notification counters of a window: memory of their own, shared by its processes.
//!
//! Each process has as many as it has asked for; whoever notifies adds 1, after what it has moved.
//! The memory is made anew when the processes agree on other numbers, in three votes: all have said
//! how many they want and have nothing under way; rank 0 has made the memory; all have mapped it. A
//! failure anywhere leaves what there was.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::engine::Rank;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Release};

use super::protocol;
use super::segment::{self, Failure, Segment, Step};
use super::words::Blocks;

/// Up to so many counters of a process lie on cache lines of their own.
pub const APART: u64 = 512;
const LINE: u64 = 64;

/// Counters of all processes, as mapped in this one.
#[derive(Debug)]
pub(super) struct Counters {
    segment: Segment,
    lots: Vec<Lot>,
}

/// A counter of some process.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'a>(&'a AtomicU64);

impl Counter<'_> {
    /// Adds 1, after everything that this process has read and written. Nothing fetches the
    /// counter's cache line before: its owner looks at it all the time and would take it away
    /// again, which costs a turn of the line.
    #[inline(always)]
    pub fn raise(self) {
        protocol::raise(self.0);
    }
}

/// Where the counters of one process lie.
#[derive(Clone, Copy, Debug)]
struct Lot {
    offset: u64,
    stride: u64,
    number: u32,
}

/// Lots of all processes, and the bytes that they take.
fn lots(blocks: Blocks, ranks: u32) -> Option<(Vec<Lot>, u64)> {
    let mut end = 0u64;
    let lots = (0..ranks).map(|rank| {
        let number = blocks.rank(rank).counters.0.wanted.load(Acquire);
        let stride = if number <= APART { LINE } else { 8 };
        let lot = Lot { offset: end, stride, number: u32::try_from(number).ok()? };
        end = end.checked_add(number.checked_mul(stride)?)?.checked_next_multiple_of(LINE)?;
        Some(lot)
    });
    let lots = lots.collect::<Option<Vec<_>>>()?;
    Some((lots, end))
}

impl Counters {
    /// Counters of `rank`.
    #[inline(always)]
    pub(super) fn number(&self, rank: Rank) -> u32 {
        self.lots[rank as usize].number
    }

    /// One of them, if the process has so many.
    #[inline(always)]
    pub(super) fn get(&self, rank: Rank, index: u32) -> Option<Counter<'_>> {
        let lot = self.lots.get(rank as usize).filter(|lot| index < lot.number)?;
        // SAFETY: inside the segment, aligned to 8 bytes; it starts as zeros and is accessed as
        // atomic words alone.
        Some(Counter(unsafe {
            &*self.segment.at(lot.offset + u64::from(index) * lot.stride).cast::<AtomicU64>()
        }))
    }

    #[inline(always)]
    fn word(&self, rank: Rank, index: u32) -> &AtomicU64 {
        let Some(Counter(word)) = self.get(rank, index) else {
            panic!("rank {rank} has no counter {index}")
        };
        word
    }

    /// As [`Counter::raise`].
    #[inline(always)]
    pub(super) fn raise(&self, rank: Rank, index: u32) {
        Counter(self.word(rank, index)).raise();
    }

    /// Its sum; what was written before each addition is visible then.
    #[inline(always)]
    pub(super) fn sum(&self, rank: Rank, index: u32) -> u64 {
        protocol::raised(self.word(rank, index))
    }
}

/// A set of counters that is being made.
#[derive(Debug, Default)]
pub(super) struct Making {
    /// Rank 0: keeps the memory's descriptor open until all have mapped it.
    file: Option<OwnedFd>,
    /// The counters that were in force before, once the new ones are.
    pub(super) before: Option<Option<Box<Counters>>>,
}

impl Making {
    /// First: says how many counters this process wants.
    pub(super) fn want(&self, blocks: Blocks, me: Rank, number: u32) {
        blocks.rank(me).counters.0.wanted.store(number.into(), Release);
    }

    /// Second, when all have said so: rank 0 makes the memory.
    pub(super) fn create(&mut self, blocks: Blocks, me: Rank) -> Result<(), Failure> {
        if me != 0 {
            return Ok(());
        }
        let file = segment::create()?;
        blocks.rank(0).counters.0.file.store(file.as_raw_fd() as u64, Release);
        self.file = Some(file);
        Ok(())
    }

    /// Third, when it is made: maps it. The counters, all of them 0, must be in force before this
    /// process votes: whoever has seen the last vote may notify at once, and this process may take
    /// that in while it still waits for the verdict.
    pub(super) fn map(&self, blocks: Blocks, ranks: u32) -> Result<Counters, Failure> {
        let (lots, len) =
            lots(blocks, ranks).ok_or(Failure { step: Step::Resize, errno: libc::EOVERFLOW })?;
        let first = blocks.rank(0);
        let opened;
        let file = match &self.file {
            Some(file) => file,
            None => {
                opened =
                    segment::open(first.info.0.pid, first.counters.0.file.load(Acquire) as i32)?;
                &opened
            }
        };
        Ok(Counters { segment: Segment::map(file, len.max(LINE))?, lots })
    }
}

/// A failure in words.
pub(super) fn reason(failure: Failure) -> String {
    format!("{}: {}", failure.step.name(), io::Error::from_raw_os_error(failure.errno))
}
