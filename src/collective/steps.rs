//! Collectives in steps, over rings of slots that processes share.
//!
//! Contents are cut into pieces. In step `k`, a process publishes its `k`-th pieces in a slot of
//! its ring, and takes those of others from the slots of theirs. Steps are numbered over all
//! starts, alike in all processes, so this needs no other words than those of one collective.
//!
//! # Order
//! A slot has a stamp, which is the number of the last step that was published there, plus one. A
//! writer stores the content, then the stamp (release). A reader that sees the stamp (acquire) may
//! read the content. A process publishes its own pieces of a step before it takes those of others,
//! so a result may take the place of what has been published.
//!
//! # Reuse
//! A ring has [`DEPTH`] slots. A process counts the steps that it has finished, and publishes the
//! count (release). A writer reuses the slot of step `k - DEPTH` when its readers have finished
//! that step (acquire). Nobody publishes more than [`AHEAD`] steps ahead of its own takes. So if
//! everybody takes something from everybody in each step, a process that has finished step `j`
//! knows that all others have finished `j - AHEAD`. `DEPTH` is twice `AHEAD`, so it needs no counts
//! then, and none are published.

use std::ops::Range;

use crate::sync::{AtomicU64, Ordering};

/// Slots of a ring.
pub const DEPTH: usize = if cfg!(loom) { 2 } else { 16 };
/// Steps that a process publishes ahead of its own takes.
const AHEAD: u32 = DEPTH as u32 / 2;
/// Words of a cache line.
const LINE: usize = 8;
/// Bytes of a content that fits into the line of the stamp.
pub const INLINE: usize = 56;

/// A content that is cut into pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes.
    pub total: usize,
    /// Bytes of each piece but the last, not 0.
    pub piece: usize,
}

impl Pieces {
    /// The bytes of a step. `None`: there are none.
    #[inline]
    #[must_use]
    pub fn of(&self, step: u32) -> Option<Range<usize>> {
        let start = step as usize * self.piece;
        (start < self.total).then(|| start..self.total.min(start + self.piece))
    }

    /// Steps that have a piece.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.total.div_ceil(self.piece.max(1)) as u32
    }
}

/// What passes in the steps of one start, as one process sees it: the pieces of a content. If the
/// content is *divided*, each piece has a part for each process. Then one part of each piece passes
/// first, and in as many more steps another one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Content {
    pieces: Pieces,
    /// Pieces, and parts of each.
    number: u32,
    parts: u32,
    first: Option<u32>,
    second: Option<u32>,
}

/// Parts begin at multiples of so many bytes.
const PART: usize = 64;

impl Content {
    /// A content that passes whole.
    #[must_use]
    pub fn whole(pieces: Pieces) -> Self {
        Content { pieces, number: pieces.steps(), parts: 1, first: Some(0), second: None }
    }

    /// A divided content, and the number of the part that passes in its first and in its second
    /// steps. `None`: nothing does.
    #[must_use]
    pub fn divided(pieces: Pieces, parts: u32, first: Option<u32>, second: Option<u32>) -> Self {
        Content { pieces, number: pieces.steps(), parts, first, second }
    }

    /// The piece of a step, and whether that is one of the second steps.
    #[must_use]
    pub fn piece(&self, step: u32) -> Option<(Range<usize>, bool)> {
        let is_second = step >= self.number;
        let step = if is_second { step - self.number } else { step };
        Some((self.pieces.of(step)?, is_second))
    }

    /// Steps that a process publishes of it ahead of its own takes. In the second ones it publishes
    /// what it has taken in the first.
    #[inline]
    fn ahead(&self) -> u32 {
        if self.second.is_some() { self.number.min(AHEAD) } else { AHEAD }
    }

    /// The bytes of a step. `None`: there are none.
    #[inline]
    #[must_use]
    pub fn of(&self, step: u32) -> Option<Range<usize>> {
        if self.parts <= 1 {
            return self.pieces.of(step);
        }
        let (piece, is_second) = self.piece(step)?;
        let part = if is_second { self.second } else { self.first }?;
        let length = piece.len().div_ceil(self.parts as usize).next_multiple_of(PART);
        let start = piece.start + part as usize * length;
        (start < piece.end).then(|| start..piece.end.min(start + length))
    }
}

/// What one process does in each start. All processes have the same number of steps.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Steps of one start.
    pub steps: u32,
    /// The longest of the contents that this process publishes.
    pub publishes: Content,
    /// What it takes in each step, in this order: the process, possibly this one, and the content.
    pub takes: Vec<(u32, Content)>,
    /// The processes that take from this one.
    pub readers: Vec<u32>,
    /// Everybody takes something from everybody in each step. The same in all processes.
    pub synchronizes: bool,
}

/// The step of a take, and its place among those of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The step, counted from the start.
    pub step: u32,
    /// It is the first one.
    pub is_first: bool,
    /// It is the last one.
    pub is_last: bool,
}

/// Moves the contents.
pub trait Mover {
    /// Copies this process's pieces of a step to a slot.
    fn publish(&mut self, step: u32, slot: &[AtomicU64]);
    /// Takes bytes of what process `from` contributes from a slot. `None`: it is this process,
    /// whose contribution is in no slot.
    fn take(&mut self, from: u32, range: Range<usize>, turn: Turn, slot: Option<&[AtomicU64]>);
    /// Fetches the line of a word that is read soon, or written soon. A hint.
    fn expect(&self, _word: &AtomicU64, _writes: bool) {}
}

/// The rings as one process sees them, and its position.
#[derive(Clone, Debug)]
pub struct Rings {
    me: usize,
    ranks: usize,
    /// Words of a slot, with its stamp.
    slot: usize,
    /// Contents are in the line of the stamp.
    is_inline: bool,
    /// Steps of earlier starts.
    base: u64,
    /// In the current start: steps published, steps finished, takes done of the next one.
    published: u32,
    finished: u32,
    taken: usize,
    /// All readers have finished so many steps.
    read: u64,
}

impl Rings {
    /// Rings whose slots have room for `bytes`.
    #[must_use]
    pub fn new(me: u32, ranks: u32, bytes: usize) -> Self {
        assert!(me < ranks);
        let is_inline = bytes <= INLINE;
        let block = if is_inline { 0 } else { bytes.div_ceil(8 * LINE) * LINE };
        Rings {
            me: me as usize,
            ranks: ranks as usize,
            slot: LINE + block,
            is_inline,
            base: 0,
            published: 0,
            finished: 0,
            taken: 0,
            read: 0,
        }
    }

    /// Words that the processes share. They are zeros at first.
    #[must_use]
    pub fn words(&self) -> usize {
        self.ranks * (LINE + DEPTH * self.slot)
    }

    /// The words of a process's ring.
    #[must_use]
    pub fn ring(&self, rank: u32) -> Range<usize> {
        let words = DEPTH * self.slot;
        let first = self.ranks * LINE + rank as usize * words;
        first..first + words
    }

    /// The number of steps that a process has finished.
    fn count<'a>(&self, words: &'a [AtomicU64], rank: usize) -> &'a AtomicU64 {
        &words[rank * LINE]
    }

    /// The stamp and the content of a slot.
    #[inline]
    fn slot<'a>(
        &self,
        words: &'a [AtomicU64],
        rank: usize,
        step: u64,
    ) -> (&'a AtomicU64, &'a [AtomicU64]) {
        let at = rank * DEPTH + (step % DEPTH as u64) as usize;
        let slot = &words[self.ranks * LINE + at * self.slot..][..self.slot];
        (&slot[0], if self.is_inline { &slot[1..] } else { &slot[LINE..] })
    }

    /// Begins the next start. The last one is complete.
    pub fn start(&mut self, plan: &Plan) {
        if self.finished != 0 {
            debug_assert!(self.is_complete(plan));
            self.base += u64::from(plan.steps);
        }
        (self.published, self.finished, self.taken) = (0, 0, 0);
    }

    fn is_complete(&self, plan: &Plan) -> bool {
        self.published == plan.steps && self.finished == plan.steps
    }

    /// Does what can be done. Returns whether the start is complete, and whether anything was done.
    #[inline]
    pub fn advance(
        &mut self,
        plan: &Plan,
        words: &[AtomicU64],
        mover: &mut impl Mover,
    ) -> (bool, bool) {
        let (mut any, ahead) = (false, plan.publishes.ahead());
        loop {
            let mut moved = false;
            if self.published < plan.steps
                && self.published < self.finished + ahead
                && self.publish(plan, words, mover)
            {
                moved = true;
            }
            if self.finished < self.published {
                moved |= self.take(plan, words, mover);
            }
            if !moved {
                return (self.is_complete(plan), any);
            }
            any = true;
        }
    }

    /// Publishes a step. False: there is no room yet.
    fn publish(&mut self, plan: &Plan, words: &[AtomicU64], mover: &mut impl Mover) -> bool {
        if plan.publishes.of(self.published).is_some() {
            let step = self.base + u64::from(self.published);
            if !self.has_room(plan, words, step) {
                return false;
            }
            let (stamp, content) = self.slot(words, self.me, step);
            mover.publish(self.published, content);
            stamp.store(step + 1, Ordering::Release);
            if step + 1 < self.read + DEPTH as u64 {
                mover.expect(self.slot(words, self.me, step + 1).0, true);
            }
        }
        self.published += 1;
        true
    }

    fn has_room(&mut self, plan: &Plan, words: &[AtomicU64], step: u64) -> bool {
        let depth = DEPTH as u64;
        if plan.synchronizes || step < self.read + depth {
            return true;
        }
        let counts = plan.readers.iter().map(|reader| {
            // Acquire: the reader has read the slot before this process writes it again.
            self.count(words, *reader as usize).load(Ordering::Acquire)
        });
        self.read = counts.min().unwrap_or(step);
        step < self.read + depth
    }

    /// Takes what is there of the first step that is not finished. True if anything was done.
    fn take(&mut self, plan: &Plan, words: &[AtomicU64], mover: &mut impl Mover) -> bool {
        let step = self.base + u64::from(self.finished);
        let before = self.taken;
        while let Some((from, content)) = plan.takes.get(self.taken) {
            if let Some(range) = content.of(self.finished) {
                let rank = *from;
                let from = rank as usize;
                let slot = if from == self.me {
                    None
                } else {
                    let (stamp, content) = self.slot(words, from, step);
                    if stamp.load(Ordering::Acquire) <= step {
                        return self.taken != before;
                    }
                    Some(content)
                };
                let is_last = self.taken + 1 == plan.takes.len();
                let turn = Turn { step: self.finished, is_first: self.taken == 0, is_last };
                mover.take(rank, range, turn, slot);
                if slot.is_some() {
                    // A writer that is ahead has filled them.
                    mover.expect(self.slot(words, from, step + 1).0, false);
                    mover.expect(self.slot(words, from, step + 2).0, false);
                }
            }
            self.taken += 1;
        }
        self.taken = 0;
        self.finished += 1;
        if !plan.synchronizes {
            // Release: the slots have been read.
            self.count(words, self.me).store(step + 1, Ordering::Release);
        }
        true
    }
}
