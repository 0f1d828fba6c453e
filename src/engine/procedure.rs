//! Procedures of the lock service under way: begun, put aside while an answer is to come, ended.

use super::alphabet::{LockTicket, Port, Rank};
use super::exclusion::{self, Claimed, Retried, Right};
use super::lock::{self, Enqueued, LockRequest, Node, Released};
use super::slab::{Key, Slab};
use super::steps::{Answers, Later, Steps};
use super::window::Window;

/// What is done, and for which epoch. Those without an epoch end on their own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Procedure {
    /// A lock epoch stands at the gate and wants to know which lock_alls wait.
    LookAtIntent(Key),
    /// A lock epoch enters its target's queue.
    Enqueue(Key, LockRequest),
    /// An exclusive lock is first in the queue and asks for its right.
    Claim(Key, LockRequest),
    /// It is registered and waits for the lock_alls that are held.
    LookAtHolders(Key, LockRequest),
    EnterAll(Key),
    RetryAll(Key),
    /// The right of an exclusive lock is given back after the queue was left, where it was not passed on.
    Release(LockRequest, Option<Right>),
    /// As `Release` of a registered lock, but its registration is to become a licence.
    ReleaseKeeping(LockRequest),
    LetReaderIn(Rank, Node),
    LeaveAll,
}

/// What a procedure has come to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Intent(u32, u32),
    Enqueued(Enqueued),
    Claimed(Claimed),
    Drained(bool),
    Entered(bool),
    Retried(Retried),
    /// And whether this process is licensed now, if it asked for that.
    Released(Released, Option<bool>),
    LetIn(Option<Node>),
    Left,
}

impl Procedure {
    #[inline(always)]
    fn run<P: Port>(self, s: &mut Steps<'_, P>, me: Rank) -> Result<Ended, Later> {
        Ok(match self {
            Procedure::LookAtIntent(_) => {
                let (arrived, served) = exclusion::intent(s)?;
                Ended::Intent(arrived, served)
            }
            Procedure::Enqueue(_, request) => Ended::Enqueued(lock::enqueue(s, request)?),
            Procedure::Claim(..) => Ended::Claimed(exclusion::claim(s, me)?),
            Procedure::LookAtHolders(..) => Ended::Drained(exclusion::is_drained(s)?),
            Procedure::EnterAll(_) => Ended::Entered(exclusion::enter_all(s)?),
            Procedure::RetryAll(_) => Ended::Retried(exclusion::retry_all(s)?),
            Procedure::Release(request, right) => {
                let released = lock::release(s, request, right == Some(Right::Registered))?;
                if let Some(right) = right.filter(|_| !released.passed_on) {
                    exclusion::give_back(s, me, right)?;
                }
                Ended::Released(released, None)
            }
            Procedure::ReleaseKeeping(request) => {
                let released = lock::release(s, request, true)?;
                let licensed = if released.passed_on { false } else { exclusion::obtain(s, me)? };
                Ended::Released(released, Some(licensed))
            }
            Procedure::LetReaderIn(target, reader) => Ended::LetIn(lock::let_reader_in(s, target, reader)?),
            Procedure::LeaveAll => {
                exclusion::leave_all(s)?;
                Ended::Left
            }
        })
    }

    fn epoch(self) -> Option<Key> {
        match self {
            Procedure::LookAtIntent(epoch)
            | Procedure::Enqueue(epoch, _)
            | Procedure::Claim(epoch, _)
            | Procedure::LookAtHolders(epoch, _)
            | Procedure::EnterAll(epoch)
            | Procedure::RetryAll(epoch) => Some(epoch),
            _ => None,
        }
    }
}

/// A procedure that waits, and what was answered so far.
#[derive(Debug)]
pub(super) struct Waiting {
    procedure: Procedure,
    answers: Answers,
}

/// Procedures that wait for an answer or for the transport's resources.
#[derive(Debug)]
pub(super) struct Procedures {
    waiting: Slab<Waiting>,
    /// Those that the transport had no resource for.
    stalled: Vec<Key>,
}

impl Procedures {
    pub(super) fn new() -> Self {
        Procedures { waiting: Slab::new(), stalled: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.len() == 0
    }
}

impl Window {
    #[inline(always)]
    pub(super) fn begin(&mut self, port: &mut impl Port, procedure: Procedure) {
        self.run_procedure(port, procedure, Answers::new());
    }

    #[inline(always)]
    fn run_procedure(&mut self, port: &mut impl Port, procedure: Procedure, answers: Answers) {
        let ticket = LockTicket(self.procedures.waiting.next_index());
        let mut steps = Steps::again(port, ticket, answers);
        match procedure.run(&mut steps, self.me) {
            Ok(ended) => {
                if let Some(epoch) = procedure.epoch() {
                    self.epochs[epoch].asking = false;
                }
                self.ended(port, procedure, ended);
            }
            Err(later) => {
                let answers = steps.into_answers();
                self.put_aside(procedure, answers, later);
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

    fn take_up(&mut self, waiting: Key) -> Waiting {
        self.procedures.waiting.take(waiting).expect("a procedure waits once")
    }

    /// Goes on with procedures whose answers have come, and with those that the transport had no resource for.
    pub(super) fn advance_procedures(&mut self, port: &mut impl Port) {
        while let Some((LockTicket(ticket), answer)) = port.next_answer() {
            let waiting = self.procedures.waiting.key_at(ticket).expect("an answer belongs to a procedure that waits");
            let Waiting { procedure, mut answers } = self.take_up(waiting);
            answers.push(answer);
            self.moves += 1;
            self.run_procedure(port, procedure, answers);
        }
        for waiting in std::mem::take(&mut self.procedures.stalled) {
            let Waiting { procedure, answers } = self.take_up(waiting);
            self.run_procedure(port, procedure, answers);
        }
    }
}
