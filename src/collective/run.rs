//! The execution of a schedule over a board.

use super::board::{Board, Content, Position};
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
        Run { pending: schedule.all(), called, content: called, mismatch: None }
    }

    /// The first difference that was found between processes.
    #[must_use]
    pub fn mismatch(&self) -> Option<Mismatch> {
        self.mismatch
    }

    /// Does all steps that can be done. True if the collective is complete. Do not call it again
    /// then.
    /// `fold` reduces its first argument into its second.
    #[inline]
    pub fn advance(
        &mut self,
        schedule: &Schedule,
        board: &Board<'_>,
        position: &Position,
        buffers: &mut Buffers<'_>,
        mut fold: impl FnMut(&[u8], &mut [u8]),
    ) -> bool {
        // Predecessors come first, so one pass finds all that can be done.
        let mut rest = self.pending;
        while rest != 0 {
            let at = rest.trailing_zeros();
            rest &= rest - 1;
            let step = schedule.steps()[at as usize];
            if step.after & self.pending == 0
                && self.perform(step.action, board, position, buffers, &mut fold)
            {
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
        buffers: &mut Buffers<'_>,
        fold: &mut impl FnMut(&[u8], &mut [u8]),
    ) -> bool {
        let (from, stage) = match action {
            Action::Publish { stage } => {
                return board.publish(position, stage, self.content, buffers.block);
            }
            Action::Await { from, stage }
            | Action::Take { from, stage }
            | Action::Fold { from, stage } => (from, stage),
        };
        let Some(published) = board.look(position, from, stage) else { return false };
        let differs = self.compare(published.content);
        match action {
            Action::Take { .. } => {
                // Passed on as it came, so that all processes see what the first one has called.
                published.read(buffers.block);
                self.content = published.content;
            }
            Action::Fold { .. } if !differs => {
                published.read(buffers.operand);
                let bytes = self.called.bytes as usize;
                fold(&buffers.operand[..bytes], &mut buffers.block[..bytes]);
            }
            _ => {}
        }
        true
    }

    /// Whether a content differs from what this process has called for. Notes the first difference.
    #[inline]
    fn compare(&mut self, content: Content) -> bool {
        if content == self.called {
            return false;
        }
        let mismatch = match content.bytes.cmp(&self.called.bytes) {
            std::cmp::Ordering::Greater => Mismatch::Longer,
            std::cmp::Ordering::Less => Mismatch::Shorter,
            std::cmp::Ordering::Equal => Mismatch::Operation,
        };
        self.mismatch.get_or_insert(mismatch);
        true
    }
}
