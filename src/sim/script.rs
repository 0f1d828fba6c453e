//! What ranks do: scripts, and their steps.

use crate::engine::{Arrival, Assert, LockMode, Op, Rank, Wanted};
use crate::transport::sim::{Network, Time};

/// A place for a request in a rank, chosen by its script. Small numbers: a rank keeps a table up to
/// the largest.
pub type Slot = u32;

/// How a call that may wait is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// MPI's own form: the next step comes when it has completed.
    Blocking,
    /// The nonblocking form, with its request in this slot, which must be free.
    Slot(Slot),
}

/// The other side of a post or start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// One rank.
    One(Rank),
    /// All but the caller, by number.
    Others,
    /// These, in this order.
    List(Vec<Rank>),
}

/// One call, or time without calls. `window` is the number of the window in the world.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are the parameters of the calls")]
pub enum Step {
    /// `MPI_Win_post`
    Post { window: u32, group: Group },
    /// `MPI_Win_start`
    Start { window: u32, group: Group },
    /// `MPI_Win_complete`
    Complete { window: u32, how: How },
    /// `MPI_Win_wait`
    Wait { window: u32, how: How },
    /// `MPI_Win_test`; the next [`Moment::flag`] tells its result.
    Test { window: u32 },
    /// `MPI_Win_fence`
    Fence { window: u32, assert: Assert, how: How },
    /// `MPI_Win_lock`. Blocking: waits for locks that the rank has asked for before, and for this
    /// one where the target is reached by load and store [EP-1].
    Lock { window: u32, mode: LockMode, target: Rank, assert: Assert, blocking: bool },
    /// `MPI_Win_lock_all`. Blocking: waits until it is held.
    LockAll { window: u32, assert: Assert, blocking: bool },
    /// `MPI_Win_unlock`
    Unlock { window: u32, target: Rank, how: How },
    /// `MPI_Win_unlock_all`
    UnlockAll { window: u32, how: How },
    /// `MPI_Win_flush`, `_local`, `_all` (`target`: `None`)
    Flush { window: u32, target: Option<Rank>, local: bool, how: How },
    /// `MPIX_Win_notify_ithreshold`, or with more than one counter `MPIX_Win_notify_iwaitsome`
    AwaitCounters { window: u32, first: u32, number: u32, expected: u64, how: How },
    /// `MPIX_Win_reset_notify_value`; the next [`Moment::value`] tells what was taken.
    ResetCounter { window: u32, counter: u32 },
    /// `MPIX_Notify_init`. Its request is named by a place of the rank's, which is like a [`Slot`]
    /// but of another table, and must be free.
    Expect { window: u32, wanted: Wanted, expected: u64, place: Slot },
    /// `MPI_Start` on the expectation in this place.
    StartExpecting { window: u32, place: Slot },
    /// `MPI_Wait` on the expectation in this place, which was started; [`Moment::arrival`] tells
    /// its last notification, and it may be started again.
    AwaitExpectation { window: u32, place: Slot },
    /// `MPI_Test` on it: [`Moment::flag`] tells the result; if it is true, as after the wait.
    TestExpectation { window: u32, place: Slot },
    /// `MPI_Request_free` on it, started or not: the place is free afterwards.
    Abandon { window: u32, place: Slot },
    /// `MPIX_Notify_iprobe`: [`Moment::arrival`] tells the oldest that is wanted and not taken.
    Probe { window: u32, wanted: Wanted },
    /// A communication call.
    Issue { window: u32, op: Op },
    /// The R-form of one.
    IssueRequest { window: u32, op: Op, slot: Slot },
    /// The same call to every other rank, in the order rank + 1, rank + 2, ... modulo ranks.
    IssueOthers { window: u32, op: Op },
    /// `MPI_Wait` on the request in this slot, which is free afterwards.
    Await(Slot),
    /// `MPI_Waitall` on all slots of the rank.
    AwaitAll,
    /// `MPI_Test`: [`Moment::flag`] tells its result, and the slot is free if it is true.
    TestSlot(Slot),
    /// `MPI_Request_free` on the request in this slot, which is free afterwards [RQ-2].
    Free(Slot),
    /// Computes for so long, without any call.
    Compute(Time),
    /// Computes so many floating-point operations on so many bytes, at the machine's rate for what
    /// is or is not in cache.
    Flops { flops: f64, bytes: u64 },
    /// `MPI_Send`
    Send { to: Rank, bytes: u64 },
    /// `MPI_Recv` of the next message from this rank.
    Receive { from: Rank },
    /// A barrier that costs nothing and ends when the last rank comes.
    Barrier,
    /// Finalizes: the rank completes what is left, and its script is not asked again.
    End,
}

/// When and where a script is asked for its next step.
pub struct Moment<'a> {
    /// The rank.
    pub me: Rank,
    /// Its time.
    pub now: Time,
    /// What the last test said.
    pub flag: bool,
    /// What the last reset has taken.
    pub value: u64,
    /// The last tagged notification of the last expectation that was met, or what the last probe
    /// has found.
    pub arrival: Option<Arrival>,
    /// The rank's memory is there, if the world carries bytes.
    pub net: &'a mut Network,
}

/// The program of one rank.
pub trait Script {
    /// What the rank does next; the step before has returned.
    fn next(&mut self, at: &mut Moment<'_>) -> Step;
}

impl<F: FnMut(&mut Moment<'_>) -> Step> Script for F {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        self(at)
    }
}

impl Script for Box<dyn Script> {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        self.as_mut().next(at)
    }
}

/// A script that is a list; it notes when each step began, and when the last one ended.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Steps.
    pub steps: Vec<Step>,
    /// When each began, and one more time: when the last one had returned.
    pub began: Vec<Time>,
}

impl Steps {
    /// The list as it is.
    #[must_use]
    pub fn new(steps: Vec<Step>) -> Self {
        Steps { steps, began: Vec::new() }
    }
}

impl Script for Steps {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        let index = self.began.len();
        self.began.push(at.now);
        self.steps.get(index).cloned().unwrap_or(Step::End)
    }
}
