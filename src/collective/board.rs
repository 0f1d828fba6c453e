//! The board of a communicator: shared memory in which each process publishes.
//!
//! # Slots
//! Every process writes its own part, and reads those of others. A part has one slot for each
//! stage of each of the last [`BoardShape::depth`] collectives. A slot is a cache line: a stamp, a
//! description of the content, and 48 bytes of it. Longer contents are in a separate block of the
//! slot. So a short content arrives with the stamp, in one cache miss.
//!
//! # Order
//! Collectives of a communicator are numbered from 1, alike in all processes. A writer stores the
//! content, then the number as the stamp (release). A reader that sees the number (acquire) may
//! read the content.
//!
//! # Reuse
//! A process counts the collectives that it has finished, after its last read (release). A writer
//! reuses a slot for collective `n` when all processes have finished `n - depth` (acquire), so that
//! nobody reads the slot meanwhile. It remembers the least count that it has seen. A collective
//! that synchronizes raises it without a look: all others have begun it, so they have finished the
//! one before.
//!
//! The board borrows its words, so that loom can run it on words of its own.

use std::cell::Cell;

use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// Stages of a collective.
pub const STAGES: u8 = 8;
/// Stages that may have contents longer than a line.
const DATA_STAGES: u8 = 2;
/// Words of a cache line.
const LINE: usize = 8;
/// Words of a line before the content: the stamp and the description.
const HEAD: usize = 2;
/// Bytes of content in a line.
const INLINE: usize = (LINE - HEAD) * 8;

/// Sizes of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardShape {
    /// Processes.
    pub ranks: u32,
    /// Collectives that may be in progress at a time.
    pub depth: u32,
    /// Stages of a collective, at most [`STAGES`].
    pub stages: u8,
    /// Bytes of the longest content, a multiple of 64.
    pub content_max: usize,
}

impl BoardShape {
    /// The board of so many processes.
    #[must_use]
    pub fn of(ranks: u32) -> Self {
        BoardShape { ranks, depth: 16, stages: STAGES, content_max: 2048 }
    }

    /// Words of one process's part, whole cache lines.
    fn part(&self) -> usize {
        let data_stages = usize::from(self.stages.min(DATA_STAGES));
        let blocks = if self.content_max > INLINE { data_stages * self.content_max / 8 } else { 0 };
        LINE + self.depth as usize * (usize::from(self.stages) * LINE + blocks)
    }

    /// Words of the board.
    #[must_use]
    pub fn words(&self) -> usize {
        self.part() * self.ranks as usize
    }
}

/// What describes a content. The two numbers travel with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Bytes.
    pub bytes: u32,
    /// A code of the operation. Processes compare it.
    pub code: u32,
}

impl Content {
    fn encode(self) -> u64 {
        u64::from(self.bytes) | u64::from(self.code) << 32
    }

    fn decode(word: u64) -> Self {
        Content { bytes: word as u32, code: (word >> 32) as u32 }
    }
}

/// This process's position in the sequence of collectives on a board.
#[derive(Debug, Default)]
pub struct Position {
    /// Number of the current collective, or of the last one.
    number: u64,
    /// All processes have finished this one.
    finished: Cell<u64>,
}

/// The board as one process sees it.
#[derive(Clone, Copy, Debug)]
pub struct Board<'a> {
    words: &'a [AtomicU64],
    shape: BoardShape,
    me: u32,
}

impl<'a> Board<'a> {
    /// The words are zeros before the first collective.
    ///
    /// # Panics
    /// The number of words is not that of the shape.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], shape: BoardShape, me: u32) -> Self {
        assert_eq!(words.len(), shape.words());
        assert!(me < shape.ranks && shape.stages <= STAGES);
        Board { words, shape, me }
    }

    /// Bytes of the longest content.
    #[must_use]
    pub fn content_max(&self) -> usize {
        self.shape.content_max
    }

    fn part(&self, rank: u32) -> &'a [AtomicU64] {
        let part = self.shape.part();
        &self.words[rank as usize * part..][..part]
    }

    fn slot(&self, rank: u32, number: u64, stage: u8) -> Slot<'a> {
        let (shape, part) = (&self.shape, self.part(rank));
        let at = (number % u64::from(shape.depth)) as usize;
        let stages = usize::from(shape.stages);
        let line = &part[LINE + (at * stages + usize::from(stage)) * LINE..][..LINE];
        let block = match stage < DATA_STAGES {
            true => {
                let words = shape.content_max / 8;
                let blocks = &part[LINE + shape.depth as usize * stages * LINE..];
                let place = at * usize::from(shape.stages.min(DATA_STAGES)) + usize::from(stage);
                blocks.get(place * words..(place + 1) * words).unwrap_or(&[])
            }
            false => &[],
        };
        Slot { line, block }
    }

    /// Begins the next collective.
    pub fn begin(&self, position: &mut Position) {
        position.number += 1;
    }

    /// Publishes a content in the slot of a stage. False if another process may still read the
    /// slot's last one.
    pub fn publish(&self, position: &Position, stage: u8, content: Content, data: &[u8]) -> bool {
        if !self.has_room(position) {
            return false;
        }
        let slot = self.slot(self.me, position.number, stage);
        slot.write(&data[..content.bytes as usize]);
        slot.line[1].store(content.encode(), Relaxed);
        slot.line[0].store(position.number, Release);
        true
    }

    fn has_room(&self, position: &Position) -> bool {
        let depth = u64::from(self.shape.depth);
        if position.number <= position.finished.get() + depth {
            return true;
        }
        let others = (0..self.shape.ranks).filter(|rank| *rank != self.me);
        let least = others.map(|rank| self.part(rank)[0].load(Acquire)).min();
        position.finished.set(least.unwrap_or(position.number));
        position.number <= position.finished.get() + depth
    }

    /// What process `from` has published in the slot of a stage. `None`: nothing yet.
    #[inline]
    #[must_use]
    pub fn look(&self, position: &Position, from: u32, stage: u8) -> Option<Published<'a>> {
        let slot = self.slot(from, position.number, stage);
        let stamp = slot.line[0].load(Acquire);
        debug_assert!(stamp <= position.number, "a slot was reused before it was read");
        if stamp < position.number {
            return None;
        }
        let content = Content::decode(slot.line[1].load(Relaxed));
        Some(Published { content, slot })
    }

    /// Ends the collective: this process reads nothing of it any more. `synchronized`: all others
    /// have begun it.
    pub fn finish(&self, position: &Position, synchronized: bool) {
        self.part(self.me)[0].store(position.number, Release);
        if synchronized {
            position.finished.set(position.number - 1);
        }
    }
}

/// What a process has published.
#[derive(Clone, Copy, Debug)]
pub struct Published<'a> {
    /// Its description.
    pub content: Content,
    slot: Slot<'a>,
}

impl Published<'_> {
    /// Copies the content to the beginning of `data`, as far as it fits.
    pub fn read(&self, data: &mut [u8]) {
        let bytes = (self.content.bytes as usize).min(data.len());
        self.slot.read(&mut data[..bytes]);
    }
}

/// One slot.
#[derive(Clone, Copy, Debug)]
struct Slot<'a> {
    line: &'a [AtomicU64],
    /// For contents that do not fit into the line.
    block: &'a [AtomicU64],
}

impl Slot<'_> {
    fn words(&self, bytes: usize) -> &[AtomicU64] {
        if bytes <= INLINE { &self.line[HEAD..] } else { self.block }
    }

    fn write(&self, data: &[u8]) {
        let words = self.words(data.len());
        let (whole, rest) = data.as_chunks();
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[whole.len()].store(u64::from_ne_bytes(last), Relaxed);
        }
    }

    fn read(&self, data: &mut [u8]) {
        let words = self.words(data.len());
        let (whole, rest) = data.as_chunks_mut();
        for (word, bytes) in words.iter().zip(&mut *whole) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        if !rest.is_empty() {
            let last = words[whole.len()].load(Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}
