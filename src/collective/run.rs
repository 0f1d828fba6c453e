//! The execution of a schedule over a board.

use super::board::{Board, Content, Draft, Position, Published};
use super::schedule::{Action, Schedule};

/// How what another process has published differs from what this one expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It has more bytes.
    Longer,
    /// It has fewer bytes.
    Shorter,
    /// It is of another operation.
    Operation,
}

impl Content {
    /// How what another process has published differs from this, which this one has called for.
    #[inline]
    #[must_use]
    pub fn mismatch(self, other: Content) -> Option<Mismatch> {
        if other == self {
            return None;
        }
        let length = |content: Content| (content.note(), content.bytes);
        Some(match length(other).cmp(&length(self)) {
            std::cmp::Ordering::Greater => Mismatch::Longer,
            std::cmp::Ordering::Less => Mismatch::Shorter,
            std::cmp::Ordering::Equal => Mismatch::Operation,
        })
    }
}

/// The memory that a run works on.
#[derive(Debug)]
pub struct Buffers<'a> {
    /// The block: the contribution at first, in the end the result.
    pub block: &'a mut [u8],
    /// As long, for what is folded.
    pub operand: &'a mut [u8],
}

/// A schedule in progress.
///
/// Made by [`new`](Self::new), which begins the next collective of the board; then
/// [`advance`](Self::advance) until it returns true.
#[derive(Debug)]
pub struct Run {
    /// A bit for each step that is not done.
    pending: u64,
    /// What this process has called for.
    called: Content,
    /// What the block has.
    content: Content,
    mismatch: Option<Mismatch>,
    /// Other processes that [`Action::CollectAll`] has collected from.
    collected: u32,
}

impl Run {
    /// Begins a collective. The block has a content like `called`, or will have.
    pub fn new(
        schedule: &Schedule,
        board: &Board<'_>,
        position: &mut Position,
        called: Content,
    ) -> Self {
        assert!(called.bytes as usize <= board.content_max());
        board.begin(position);
        Run { pending: schedule.all(), called, content: called, mismatch: None, collected: 0 }
    }

    /// What this process has called for, or what it has taken from another one.
    #[must_use]
    pub fn content(&self) -> Content {
        self.content
    }

    /// The first difference that was found between processes.
    #[must_use]
    pub fn mismatch(&self) -> Option<Mismatch> {
        self.mismatch
    }

    /// Does all steps that can be done. True if the collective is complete. Do not call it again
    /// then.
    /// `fold` reduces its first argument into its second, as the left operand.
    #[inline]
    pub fn advance(
        &mut self,
        schedule: &Schedule,
        board: &Board<'_>,
        position: &Position,
        buffers: &mut Buffers<'_>,
        fold: impl FnMut(&[u8], &mut [u8]),
    ) -> bool {
        self.advance_with(schedule, board, position, &mut InBlock { buffers, input: None, fold })
    }

    /// As [`advance`](Self::advance), with contents that `work` writes and collects.
    #[inline]
    pub fn advance_with(
        &mut self,
        schedule: &Schedule,
        board: &Board<'_>,
        position: &Position,
        work: &mut impl Work,
    ) -> bool {
        // Predecessors come first, so one pass finds all that can be done.
        let mut rest = self.pending;
        while rest != 0 {
            let at = rest.trailing_zeros();
            rest &= rest - 1;
            let step = schedule.steps()[at as usize];
            if step.after & self.pending == 0 && self.perform(step.action, board, position, work) {
                self.pending &= !(1 << at);
            }
        }
        if self.pending == 0 {
            board.finish(position, schedule.synchronizes());
        }
        self.pending == 0
    }

    /// Tries one action. True if it is done.
    #[inline]
    fn perform(
        &mut self,
        action: Action,
        board: &Board<'_>,
        position: &Position,
        work: &mut impl Work,
    ) -> bool {
        let (from, stage) = match action {
            Action::Publish { stage } => {
                let content = self.content;
                return board
                    .publish_parts(position, stage, content, |draft| work.write(content, draft));
            }
            Action::CollectAll { stage } => {
                while self.collected + 1 < board.ranks() {
                    let from = (board.me() + 1 + self.collected) % board.ranks();
                    let Some(published) = board.look(position, from, stage) else { return false };
                    self.collect(from, &published, work);
                    self.collected += 1;
                }
                return true;
            }
            Action::Await { from, stage }
            | Action::Take { from, stage }
            | Action::Fold { from, stage }
            | Action::Append { from, stage }
            | Action::Collect { from, stage } => (from, stage),
        };
        let Some(published) = board.look(position, from, stage) else { return false };
        if let Action::Collect { .. } = action {
            self.collect(from, &published, work);
            return true;
        }
        let mismatch = self.called.mismatch(published.content);
        self.note(mismatch);
        match action {
            Action::Take { .. } => {
                // Passed on as it came, so that all processes see what the first one has called.
                work.take(&published);
                self.content = published.content;
            }
            Action::Fold { .. } if mismatch.is_none() => work.fold(&published, Side::Left),
            Action::Append { .. } if mismatch.is_none() => work.fold(&published, Side::Right),
            _ => {}
        }
        true
    }

    fn collect(&mut self, from: u32, published: &Published<'_>, work: &mut impl Work) {
        let mismatch = match self.called.kind() == published.content.kind() {
            true => work.collect(from, published),
            false => Some(Mismatch::Operation),
        };
        self.note(mismatch);
    }

    /// Notes the first difference.
    #[inline]
    fn note(&mut self, mismatch: Option<Mismatch>) {
        self.mismatch = self.mismatch.or(mismatch);
    }
}

/// Where what is folded in stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before the block.
    Left,
    /// After it.
    Right,
}

/// What a collective does with contents: its memory, and the operation.
pub trait Work {
    /// Writes what this process publishes.
    fn write(&mut self, content: Content, draft: &Draft<'_>);
    /// Replaces the block by what another process has published.
    fn take(&mut self, _published: &Published<'_>) {}
    /// Reduces what another process has published into the block.
    fn fold(&mut self, _published: &Published<'_>, _side: Side) {}
    /// Collects what process `from` has published. Returns a difference from what this process has
    /// called for.
    fn collect(&mut self, _from: u32, _published: &Published<'_>) -> Option<Mismatch> {
        None
    }
}

/// A collective on a block.
#[derive(Debug)]
pub struct InBlock<'a, 'b, F> {
    /// The memory.
    pub buffers: &'a mut Buffers<'b>,
    /// The contribution, as long as it is not in the block.
    pub input: Option<&'a [u8]>,
    /// Reduces its first argument into its second, as the left operand.
    pub fold: F,
}

impl<F> InBlock<'_, '_, F> {
    /// Copies the contribution to the block, unless it is there or has been replaced.
    pub fn settle(&mut self) {
        if let Some(input) = self.input.take() {
            self.buffers.block[..input.len()].copy_from_slice(input);
        }
    }
}

impl<F: FnMut(&[u8], &mut [u8])> Work for InBlock<'_, '_, F> {
    #[inline]
    fn write(&mut self, content: Content, draft: &Draft<'_>) {
        let data = self.input.unwrap_or(&*self.buffers.block);
        draft.write(0, &data[..content.bytes as usize]);
    }

    #[inline]
    fn take(&mut self, published: &Published<'_>) {
        self.input = None;
        // A block that is too short is an error, and keeps its content.
        if published.content.bytes as usize <= self.buffers.block.len() {
            published.read(self.buffers.block);
        }
    }

    #[inline]
    fn fold(&mut self, published: &Published<'_>, side: Side) {
        self.settle();
        let bytes = published.content.bytes as usize;
        let (block, operand) =
            (&mut self.buffers.block[..bytes], &mut self.buffers.operand[..bytes]);
        match side {
            Side::Left => published.with(operand, |operand| (self.fold)(operand, block)),
            Side::Right => {
                published.read(operand);
                (self.fold)(block, operand);
                block.copy_from_slice(operand);
            }
        }
    }
}
