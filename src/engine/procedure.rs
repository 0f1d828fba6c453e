//! Procedures of the lock service that wait for an answer, and how they go on.

use super::alphabet::{LockTicket, Port, Rank};
use super::exclusion::Right;
use super::lock::{LockRequest, Node};
use super::slab::{Key, Slab};
use super::steps::{Answers, Later, Steps};
use super::window::Window;

/// What is done, and for which epoch. Those without an epoch end on their own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Procedure {
    LookAtIntent(Key),
    Enqueue(Key, LockRequest),
    BeginUse(Key, LockRequest),
    Register(Key, LockRequest, Option<u32>),
    LookAtHolders(Key, LockRequest),
    EnterAll(Key),
    RetryAll(Key),
    Release(LockRequest, Option<Right>),
    LetReaderIn(Rank, Node),
    EndUse,
    LeaveAll,
}

impl Procedure {
    fn epoch(self) -> Option<Key> {
        match self {
            Procedure::LookAtIntent(epoch)
            | Procedure::Enqueue(epoch, _)
            | Procedure::BeginUse(epoch, _)
            | Procedure::Register(epoch, ..)
            | Procedure::LookAtHolders(epoch, _)
            | Procedure::EnterAll(epoch)
            | Procedure::RetryAll(epoch) => Some(epoch),
            Procedure::Release(..)
            | Procedure::LetReaderIn(..)
            | Procedure::EndUse
            | Procedure::LeaveAll => None,
        }
    }
}

/// A procedure that waits, and what was answered so far.
#[derive(Debug)]
struct Waiting {
    procedure: Procedure,
    answers: Answers,
}

/// Procedures that wait for an answer or for the transport's resources.
#[derive(Debug)]
pub(super) struct Procedures {
    waiting: Slab<Waiting>,
    /// Those that the transport had no resource for.
    stalled: Vec<Key>,
    /// What was answered to the one that is just taken up.
    answers: Answers,
}

impl Procedures {
    pub(super) fn new() -> Self {
        Procedures { waiting: Slab::new(), stalled: Vec::new(), answers: Answers::new() }
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
        procedure: Procedure,
        steps: impl FnOnce(&mut Steps<'_, P>) -> Result<R, Later>,
    ) -> Option<R> {
        self.attempt_folded(port, |_| procedure, steps)
    }

    /// As [`attempt`](Self::attempt), where only a procedure that waits needs an epoch: `procedure`
    /// makes it.
    #[inline(always)]
    pub(super) fn attempt_folded<P: Port, R>(
        &mut self,
        port: &mut P,
        procedure: impl FnOnce(&mut Self) -> Procedure,
        steps: impl FnOnce(&mut Steps<'_, P>) -> Result<R, Later>,
    ) -> Option<R> {
        let mut taken = if P::ANSWERS_AT_ONCE {
            Steps::new(port, self.me, LockTicket(0))
        } else {
            let ticket = LockTicket(self.procedures.waiting.next_index());
            Steps::again(port, self.me, ticket, std::mem::take(&mut self.procedures.answers))
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
    fn put_aside(&mut self, procedure: Procedure, answers: Answers, later: Later) {
        if let Some(epoch) = procedure.epoch() {
            self.epochs[epoch].asking = true;
        }
        let waiting = self.procedures.waiting.insert(Waiting { procedure, answers });
        if later == Later::Resource {
            self.procedures.stalled.push(waiting);
        }
    }

    /// Goes on with procedures whose answers have come, and with those that the transport had no
    /// resource for.
    pub(super) fn advance_procedures(&mut self, port: &mut impl Port) {
        while let Some((LockTicket(ticket), answer)) = port.next_answer() {
            let waiting = self
                .procedures
                .waiting
                .key_at(ticket)
                .expect("an answer belongs to a procedure that waits");
            self.moves += 1;
            self.take_up(port, waiting, Some(answer));
        }
        for waiting in std::mem::take(&mut self.procedures.stalled) {
            self.take_up(port, waiting, None);
        }
    }

    fn take_up(&mut self, port: &mut impl Port, waiting: Key, answer: Option<u64>) {
        let Waiting { procedure, mut answers } =
            self.procedures.waiting.take(waiting).expect("a procedure waits once");
        answers.extend(answer);
        self.procedures.answers = answers;
        if let Some(epoch) = procedure.epoch() {
            self.epochs[epoch].asking = false;
        }
        match procedure {
            Procedure::LookAtIntent(epoch) => self.look_at_intent(port, epoch),
            Procedure::Enqueue(epoch, request) => self.queue_up(port, epoch, request),
            Procedure::BeginUse(epoch, request) => self.begin_use(port, epoch, request),
            Procedure::Register(epoch, request, push) => self.register(port, epoch, request, push),
            Procedure::LookAtHolders(epoch, request) => self.look_at_holders(port, epoch, request),
            Procedure::EnterAll(epoch) => self.enter_all(port, epoch),
            Procedure::RetryAll(epoch) => self.retry_all(port, epoch),
            Procedure::Release(request, right) => self.release(port, request, right),
            Procedure::LetReaderIn(target, reader) => self.let_reader_in(port, target, reader),
            Procedure::EndUse => self.end_use(port),
            Procedure::LeaveAll => self.leave_all(port),
        }
    }
}
