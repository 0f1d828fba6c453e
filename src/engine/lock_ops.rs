//! Lock operations that are suspended until an answer or a resource is available
//! ([`replay`](super::replay)).

use super::exclusion::ExclusiveRight;
use super::lock::{LockRequest, Node};
use super::port::{LockTicket, Port, Rank};
use super::replay::{Answers, Replay, Suspended};
use super::slab::{Key, Slab};
use super::window::Window;

/// A lock operation and its arguments. The variants without an epoch may end after their epoch.
#[derive(Clone, Copy, Debug)]
pub(super) enum LockOp {
    ReadIntent(Key),
    Enqueue(Key, LockRequest),
    BeginUse(Key, LockRequest),
    Register(Key, LockRequest, Option<u32>),
    AwaitDrain(Key, LockRequest),
    EnterAll(Key),
    RetryAll(Key),
    Release(LockRequest, Option<ExclusiveRight>),
    GrantReader(Rank, Node),
    EndUse,
    LeaveAll,
}

impl LockOp {
    fn epoch(self) -> Option<Key> {
        match self {
            LockOp::ReadIntent(epoch)
            | LockOp::Enqueue(epoch, _)
            | LockOp::BeginUse(epoch, _)
            | LockOp::Register(epoch, ..)
            | LockOp::AwaitDrain(epoch, _)
            | LockOp::EnterAll(epoch)
            | LockOp::RetryAll(epoch) => Some(epoch),
            LockOp::Release(..) | LockOp::GrantReader(..) | LockOp::EndUse | LockOp::LeaveAll => {
                None
            }
        }
    }
}

/// A suspended operation and the answers so far.
#[derive(Debug)]
struct SuspendedOp {
    op: LockOp,
    answers: Answers,
}

/// The suspended lock operations of a window.
#[derive(Debug, Default)]
pub(super) struct PendingLockOps {
    suspended: Slab<SuspendedOp>,
    /// Those that lacked a resource and are retried by each sweep.
    stalled: Vec<Key>,
    /// Recorded answers of the operation that is being resumed.
    answers: Answers,
}

impl PendingLockOps {
    pub(super) fn is_empty(&self) -> bool {
        self.suspended.len() == 0
    }
}

impl Window {
    /// Runs the `body` of a lock operation. `None` if it is suspended; it is resumed as `op`.
    #[inline(always)]
    pub(super) fn attempt<P: Port, R>(
        &mut self,
        port: &mut P,
        op: LockOp,
        body: impl FnOnce(&mut Replay<'_, P>) -> Result<R, Suspended>,
    ) -> Option<R> {
        self.attempt_folded(port, |_| op, body)
    }

    /// As [`attempt`](Self::attempt) for a folded epoch: `op` makes the regular epoch that a
    /// suspended operation needs.
    #[inline(always)]
    pub(super) fn attempt_folded<P: Port, R>(
        &mut self,
        port: &mut P,
        op: impl FnOnce(&mut Self) -> LockOp,
        body: impl FnOnce(&mut Replay<'_, P>) -> Result<R, Suspended>,
    ) -> Option<R> {
        let mut replay = if P::ANSWERS_AT_ONCE {
            Replay::new(port, self.me, LockTicket(0))
        } else {
            let ticket = LockTicket(self.lock_ops.suspended.next_index());
            Replay::resume(port, self.me, ticket, std::mem::take(&mut self.lock_ops.answers))
        };
        match body(&mut replay) {
            Ok(result) => Some(result),
            Err(why) => {
                let answers = replay.into_answers();
                let op = op(self);
                self.suspend(op, answers, why);
                None
            }
        }
    }

    #[cold]
    fn suspend(&mut self, op: LockOp, answers: Answers, why: Suspended) {
        if let Some(epoch) = op.epoch() {
            self.epochs[epoch].lock_op_pending = true;
        }
        let key = self.lock_ops.suspended.insert(SuspendedOp { op, answers });
        if why == Suspended::NoResource {
            self.lock_ops.stalled.push(key);
        }
    }

    /// Resumes the operations whose answers have arrived, and those that lacked a resource.
    pub(super) fn advance_lock_ops(&mut self, port: &mut impl Port) {
        while let Some((LockTicket(ticket), answer)) = port.next_answer() {
            let key = self
                .lock_ops
                .suspended
                .key_at(ticket)
                .expect("an answer belongs to a suspended operation");
            self.state_changes += 1;
            self.resume(port, key, Some(answer));
        }
        for key in std::mem::take(&mut self.lock_ops.stalled) {
            self.resume(port, key, None);
        }
    }

    fn resume(&mut self, port: &mut impl Port, key: Key, answer: Option<u64>) {
        let SuspendedOp { op, mut answers } =
            self.lock_ops.suspended.take(key).expect("a suspended operation is resumed once");
        if let Some(answer) = answer {
            answers.push(answer);
        }
        self.lock_ops.answers = answers;
        if let Some(epoch) = op.epoch() {
            self.epochs[epoch].lock_op_pending = false;
        }
        match op {
            LockOp::ReadIntent(epoch) => self.read_intent(port, epoch),
            LockOp::Enqueue(epoch, request) => self.queue_up(port, epoch, request),
            LockOp::BeginUse(epoch, request) => self.begin_use(port, epoch, request),
            LockOp::Register(epoch, request, push) => self.register(port, epoch, request, push),
            LockOp::AwaitDrain(epoch, request) => self.await_drain(port, epoch, request),
            LockOp::EnterAll(epoch) => self.enter_all(port, epoch),
            LockOp::RetryAll(epoch) => self.retry_all(port, epoch),
            LockOp::Release(request, right) => self.release(port, request, right),
            LockOp::GrantReader(target, reader) => self.grant_reader(port, target, reader),
            LockOp::EndUse => self.end_use(port),
            LockOp::LeaveAll => self.leave_all(port),
        }
    }
}
