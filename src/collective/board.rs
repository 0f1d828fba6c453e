//! The board of a communicator: shared memory in which each process publishes.
//!
//! # Slots
//! Every process writes its own part, and reads those of others. A part has one slot for each
//! stage of each of the last [`BoardShape::depth`] collectives. A slot is a cache line: a stamp, a
//! description of the content, and 48 bytes of it. Longer contents are in a separate block of the
//! slot. So a short content arrives with the stamp, in one cache miss. So does the *lead* of a
//! longer one, if it has any: what a reader needs before it reads the rest.
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
/// Bytes of the longest lead of a content.
pub const LEAD: usize = INLINE;

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
        BoardShape { ranks, depth: 16, stages: STAGES, content_max: 8192 }
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
    /// A code of the operation, which processes compare, in the lower half. A note in the upper
    /// half: of a content in pieces their number, so that processes compare the whole length.
    pub code: u32,
}

impl Content {
    /// The code of the operation.
    #[must_use]
    pub fn kind(self) -> u32 {
        self.code & 0xffff
    }

    /// The note.
    #[must_use]
    pub fn note(self) -> u32 {
        self.code >> 16
    }

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

    /// Processes.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.shape.ranks
    }

    /// The rank of this process.
    #[must_use]
    pub fn me(&self) -> u32 {
        self.me
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
        let data = &data[..content.bytes as usize];
        self.publish_parts(position, stage, content, |draft| draft.write(0, data))
    }

    /// Publishes likewise a content that `write` writes, in one part or several.
    pub fn publish_parts(
        &self,
        position: &Position,
        stage: u8,
        content: Content,
        write: impl FnOnce(&Draft<'_>),
    ) -> bool {
        if !self.has_room(position) {
            return false;
        }
        let slot = self.slot(self.me, position.number, stage);
        write(&Draft { words: slot.words(content.bytes as usize), lead: slot.lead() });
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

/// A slot that this process writes.
#[derive(Debug)]
pub struct Draft<'a> {
    words: &'a [AtomicU64],
    lead: &'a [AtomicU64],
}

impl Draft<'_> {
    /// Writes a part of the content, from byte `at` on, which is a multiple of 8.
    pub fn write(&self, at: usize, data: &[u8]) {
        content::store(&self.words[at / 8..], data);
    }

    /// Writes at most [`LEAD`] bytes that readers find without another cache miss. They are the
    /// first ones of a content that is no longer than that, and go beside a longer one. To be
    /// written last: readers poll this line, and would take it away while the rest is written.
    pub fn write_lead(&self, data: &[u8]) {
        content::store(self.lead, data);
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
        self.read_part(0, &mut data[..bytes]);
    }

    /// Copies a part of the content, from byte `at` on, which is a multiple of 8.
    ///
    /// # Panics
    /// The content is shorter.
    pub fn read_part(&self, at: usize, data: &mut [u8]) {
        let bytes = self.content.bytes as usize;
        assert!(at.is_multiple_of(8) && at + data.len() <= bytes, "beyond the content");
        content::load(&self.slot.words(bytes)[at / 8..], data);
    }

    /// Copies a part of the lead, from byte `at` on, which is a multiple of 8. The writer has
    /// written so much of it.
    pub fn read_lead(&self, at: usize, data: &mut [u8]) {
        content::load(&self.slot.lead()[at / 8..], data);
    }

    /// Runs `body` on the content, which it may copy to the beginning of `room` for that.
    pub fn with<T>(&self, room: &mut [u8], body: impl FnOnce(&[u8]) -> T) -> T {
        let bytes = self.content.bytes as usize;
        content::with(self.slot.words(bytes), &mut room[..bytes], body)
    }
}

/// Access to the words of a content. They have one writer, and readers only while the stamp says
/// so. So they are accessed like memory that is not shared, at the speed of plain copies.
#[cfg(not(loom))]
mod content {
    use std::ptr::copy_nonoverlapping;

    use super::AtomicU64;

    #[inline]
    pub(super) fn store(words: &[AtomicU64], data: &[u8]) {
        assert!(data.len() <= size_of_val(words));
        // SAFETY: the words have room, as was just checked, and may change behind a shared
        // reference. Until this process publishes them, no other accesses them: all have finished
        // the collective that used the slot before (see `Reuse`).
        unsafe {
            let to = words.as_ptr().cast_mut().cast();
            copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
    }

    #[inline]
    pub(super) fn load(words: &[AtomicU64], data: &mut [u8]) {
        assert!(data.len() <= size_of_val(words));
        // SAFETY: there are as many bytes, as was just checked. The writer has published them and
        // changes none until this process has finished the collective (see `Reuse`).
        unsafe { copy_nonoverlapping(words.as_ptr().cast(), data.as_mut_ptr(), data.len()) };
    }

    #[inline]
    pub(super) fn with<T>(
        words: &[AtomicU64],
        room: &mut [u8],
        body: impl FnOnce(&[u8]) -> T,
    ) -> T {
        assert!(room.len() <= size_of_val(words));
        // SAFETY: as in `load`; `body` cannot keep the reference.
        body(unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), room.len()) })
    }
}

/// The same under loom, word by word.
#[cfg(loom)]
mod content {
    use super::{AtomicU64, Relaxed};

    pub(super) fn store(words: &[AtomicU64], data: &[u8]) {
        for (word, bytes) in words.iter().zip(data.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Relaxed);
        }
    }

    pub(super) fn load(words: &[AtomicU64], data: &mut [u8]) {
        for (word, bytes) in words.iter().zip(data.chunks_mut(8)) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..bytes.len()]);
        }
    }

    pub(super) fn with<T>(
        words: &[AtomicU64],
        room: &mut [u8],
        body: impl FnOnce(&[u8]) -> T,
    ) -> T {
        load(words, room);
        body(room)
    }
}

/// One slot.
#[derive(Clone, Copy, Debug)]
struct Slot<'a> {
    line: &'a [AtomicU64],
    /// For contents that do not fit into the line.
    block: &'a [AtomicU64],
}

impl<'a> Slot<'a> {
    /// The words of a lead.
    fn lead(&self) -> &'a [AtomicU64] {
        &self.line[HEAD..]
    }

    /// The words of a content of so many bytes.
    fn words(&self, bytes: usize) -> &'a [AtomicU64] {
        if bytes <= INLINE { self.lead() } else { self.block }
    }
}
