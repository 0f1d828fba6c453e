//! PendingLockOps of the lock service that wait for an answer, and how they go on.

use super::exclusion::ExclusiveRight;
use super::lock::{LockRequest, Node};
use super::port::{LockTicket, Port, Rank};
use super::replay::{Answers, Replay, Suspended};
use super::slab::{Key, Slab};
use super::window::Window;

/// What is done, and for which epoch. Those without an epoch end on their own.
#[derive(Clone, Copy, Debug)]
pub(super) enum LockOp {
    LookAtIntent(Key),
    Enqueue(Key, LockRequest),
    BeginUse(Key, LockRequest),
    Register(Key, LockRequest, Option<u32>),
    LookAtHolders(Key, LockRequest),
    EnterAll(Key),
    RetryAll(Key),
    Release(LockRequest, Option<ExclusiveRight>),
    LetReaderIn(Rank, Node),
    EndUse,
    LeaveAll,
}

impl LockOp {
    fn epoch(self) -> Option<Key> {
        match self {
            LockOp::LookAtIntent(epoch)
            | LockOp::Enqueue(epoch, _)
            | LockOp::BeginUse(epoch, _)
            | LockOp::Register(epoch, ..)
            | LockOp::LookAtHolders(epoch, _)
            | LockOp::EnterAll(epoch)
            | LockOp::RetryAll(epoch) => Some(epoch),
            LockOp::Release(..) | LockOp::LetReaderIn(..) | LockOp::EndUse | LockOp::LeaveAll => {
                None
            }
        }
    }
}

/// A procedure that waits, and what was answered so far.
#[derive(Debug)]
struct Waiting {
    procedure: LockOp,
    answers: Answers,
}

/// PendingLockOps that wait for an answer or for the transport's resources.
#[derive(Debug)]
pub(super) struct PendingLockOps {
    waiting: Slab<Waiting>,
    /// Those that the transport had no resource for.
    stalled: Vec<Key>,
    /// What was answered to the one that is just taken up.
    answers: Answers,
}

impl PendingLockOps {
    pub(super) fn new() -> Self {
        PendingLockOps { waiting: Slab::new(), stalled: Vec::new(), answers: Answers::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.len() == 0
    }
}

impl Window {
    /// Runs the steps of a procedure. `None`: it waits, and is taken up again as `procedure`.
    #[inline(always)]
    pub(super) fn attempt<P: Port, R>(
        &mut self,
        port: &mut P,
        procedure: LockOp,
        steps: impl FnOnce(&mut Replay<'_, P>) -> Result<R, Suspended>,
    ) -> Option<R> {
        self.attempt_folded(port, |_| procedure, steps)
    }

    /// As [`attempt`](Self::attempt), where only a procedure that waits needs an epoch: `procedure`
    /// makes it.
    #[inline(always)]
    pub(super) fn attempt_folded<P: Port, R>(
        &mut self,
        port: &mut P,
        procedure: impl FnOnce(&mut Self) -> LockOp,
        steps: impl FnOnce(&mut Replay<'_, P>) -> Result<R, Suspended>,
    ) -> Option<R> {
        let mut taken = if P::ANSWERS_AT_ONCE {
            Replay::new(port, self.me, LockTicket(0))
        } else {
            let ticket = LockTicket(self.lock_ops.waiting.next_index());
            Replay::again(port, self.me, ticket, std::mem::take(&mut self.lock_ops.answers))
        };
        match steps(&mut taken) {
            Ok(result) => Some(result),
            Err(later) => {
                let answers = taken.into_answers();
                let procedure = procedure(self);
                self.put_aside(procedure, answers, later);
                None
            }
        }
    }

    #[cold]
    fn put_aside(&mut self, procedure: LockOp, answers: Answers, later: Suspended) {
        if let Some(epoch) = procedure.epoch() {
            self.epochs[epoch].lock_op_pending = true;
        }
        let waiting = self.lock_ops.waiting.insert(Waiting { procedure, answers });
        if later == Suspended::NoResource {
            self.lock_ops.stalled.push(waiting);
        }
    }

    /// Goes on with lock_ops whose answers have come, and with those that the transport had no
    /// resource for.
    pub(super) fn advance_lock_ops(&mut self, port: &mut impl Port) {
        while let Some((LockTicket(ticket), answer)) = port.next_answer() {
            let waiting = self
                .lock_ops
                .waiting
                .key_at(ticket)
                .expect("an answer belongs to a procedure that waits");
            self.moves += 1;
            self.take_up(port, waiting, Some(answer));
        }
        for waiting in std::mem::take(&mut self.lock_ops.stalled) {
            self.take_up(port, waiting, None);
        }
    }

    fn take_up(&mut self, port: &mut impl Port, waiting: Key, answer: Option<u64>) {
        let Waiting { procedure, mut answers } =
            self.lock_ops.waiting.take(waiting).expect("a procedure waits once");
        answers.extend(answer);
        self.lock_ops.answers = answers;
        if let Some(epoch) = procedure.epoch() {
            self.epochs[epoch].lock_op_pending = false;
        }
        match procedure {
            LockOp::LookAtIntent(epoch) => self.look_at_intent(port, epoch),
            LockOp::Enqueue(epoch, request) => self.queue_up(port, epoch, request),
            LockOp::BeginUse(epoch, request) => self.begin_use(port, epoch, request),
            LockOp::Register(epoch, request, push) => self.register(port, epoch, request, push),
            LockOp::LookAtHolders(epoch, request) => self.look_at_holders(port, epoch, request),
            LockOp::EnterAll(epoch) => self.enter_all(port, epoch),
            LockOp::RetryAll(epoch) => self.retry_all(port, epoch),
            LockOp::Release(request, right) => self.release(port, request, right),
            LockOp::LetReaderIn(target, reader) => self.let_reader_in(port, target, reader),
            LockOp::EndUse => self.end_use(port),
            LockOp::LeaveAll => self.leave_all(port),
        }
    }
}
