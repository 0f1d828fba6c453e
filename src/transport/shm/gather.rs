//! Puts or gets to one target that the origin collects and copies by one system call.
//!
//! Half of the time of a short copy is that of the system call. So the origin lets a few operations
//! come together, at most [`BYTES_MAX`] bytes, and copies them when there are enough or when it has
//! nothing else to do. It learns whether operations come together at all ([`Tendency`]).

use crate::engine::{Op, OpKind, Ticket};

use super::adaptive::Tendency;
use super::cma::{Batch, Direction};
use super::reference::buffer_of;

/// Operations of this length and longer are copied alone.
pub(super) const GATHERED_MAX: u64 = 16 * 1024;
/// Bytes and operations that are copied together.
const BYTES_MAX: u64 = 32 * 1024;
const OPS_MAX: usize = 64;

/// The operations that are being collected, all puts or all gets.
#[derive(Debug, Default)]
pub(super) struct Gather {
    batch: Batch,
    ops: Vec<(Op, Ticket)>,
    bytes: u64,
    tendency: Tendency,
}

impl Gather {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Whether an operation is copied at once. If so, it counts.
    pub(super) fn skips(&mut self) -> bool {
        self.is_empty() && self.tendency.skips()
    }

    /// Whether an operation is to be collected. If not, it counts.
    pub(super) fn tries(&mut self) -> bool {
        !self.is_empty() || self.tendency.tries()
    }

    /// Notes whether operations came together that were not collected here.
    pub(super) fn note(&mut self, together: bool) {
        self.tendency.note(together);
    }

    /// Adds an operation on memory of the target at `there`. The caller must first
    /// [`run`](Self::run) what is of another kind.
    pub(super) fn add(&mut self, op: &Op, ticket: Ticket, there: u64) {
        self.batch.push(buffer_of(op) as *mut u8, there, op.len as usize);
        self.ops.push((*op, ticket));
        self.bytes += op.len;
    }

    /// Whether an operation of this kind may be added.
    pub(super) fn takes(&self, kind: OpKind) -> bool {
        self.ops.first().is_none_or(|(op, _)| op.kind == kind)
    }

    /// Whether there is enough for a system call.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX || self.ops.len() >= OPS_MAX
    }

    /// Copies all, and removes them: `done` gets those that were copied, then the others, with the
    /// error that kept them from being copied.
    pub(super) fn run(
        &mut self,
        pid: i32,
        mut done: impl FnMut(&Op, Ticket, bool),
    ) -> std::io::Result<()> {
        let Some((first, _)) = self.ops.first() else { return Ok(()) };
        let direction = Direction::of(first.kind);
        self.tendency.note(self.ops.len() > 1);
        // SAFETY: the application's buffers are valid until the operations complete [EP-8]; the
        // engine has checked the target bytes against the target's window.
        let (copied, result) = unsafe { self.batch.run(direction, pid) };
        for (at, (op, ticket)) in self.ops.drain(..).enumerate() {
            done(&op, ticket, at < copied);
        }
        self.batch.clear();
        self.bytes = 0;
        result
    }
}
