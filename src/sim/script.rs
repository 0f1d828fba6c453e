//! Scripts of ranks, and their steps.

use crate::engine::{Addr, Arrival, Assert, LockMode, Op, OpKind, Rank, SyncCall, Wanted};
use crate::transport::datatype::element::{native, reduction};
use crate::transport::sim::{Network, Time};

/// Index of a request slot, chosen by the script. Use small numbers: a rank keeps a table up to the
/// largest.
pub type Slot = u32;

/// Which form of a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The blocking form: the next step follows its completion.
    Blocking,
    /// The nonblocking form, with its request in this slot, which must be free.
    Slot(Slot),
}

/// The group of a post or start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// One rank.
    One(Rank),
    /// All ranks but the caller, in ascending order.
    Others,
    /// These ranks, in this order.
    List(Vec<Rank>),
}

/// A call of a persistent epoch [PE-1].
#[derive(Clone, Debug)]
pub enum Recorded {
    /// It opens or closes an epoch.
    Sync(SyncCall),
    /// It issues an operation.
    Issue(Op),
}

/// One call, or time without calls. `window` is the window's number in the world.
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
    /// `MPI_Win_test`; sets [`Moment::flag`].
    Test { window: u32 },
    /// `MPI_Win_fence`
    Fence { window: u32, assert: Assert, how: How },
    /// `MPI_Win_lock`. Blocking: waits for locks that the rank requested earlier, and for this one
    /// if the target is reached by load and store [EP-1].
    Lock { window: u32, mode: LockMode, target: Rank, assert: Assert, blocking: bool },
    /// `MPI_Win_lock_all`. Blocking: waits until it is held.
    LockAll { window: u32, assert: Assert, blocking: bool },
    /// `MPI_Win_unlock`
    Unlock { window: u32, target: Rank, how: How },
    /// `MPI_Win_unlock_all`
    UnlockAll { window: u32, how: How },
    /// `MPI_Win_flush` and its variants: `local`, and `target: None` for all targets.
    Flush { window: u32, target: Option<Rank>, local: bool, how: How },
    /// `MPIX_Win_flush_wins`, with `target: None` for `MPIX_RANK_ALL`.
    FlushWins { windows: Vec<u32>, target: Option<Rank>, how: How },
    /// No call: the next ones on the window are made on its handle with this lane [DU-1].
    SelectLane { window: u32, lane: u32 },
    /// `MPIX_Win_order`, or `MPIX_Win_order_all` for `None`.
    Order { window: u32, target: Option<Rank> },
    /// `MPIX_Win_notify_ithreshold`, or `MPIX_Win_notify_iwaitsome` for several counters.
    AwaitCounters { window: u32, first: u32, number: u32, expected: u64, how: How },
    /// `MPIX_Win_reset_notify_value`; sets [`Moment::value`].
    ResetCounter { window: u32, counter: u32 },
    /// `MPIX_Notify_init`, into a free expectation slot. Expectation slots are separate from those
    /// of other requests.
    Expect { window: u32, wanted: Wanted, expected: u64, slot: Slot },
    /// `MPI_Start` on an expectation.
    StartExpecting { window: u32, slot: Slot },
    /// `MPI_Wait` on a started expectation. Sets [`Moment::arrival`] to its last notification; the
    /// expectation may then be started again.
    AwaitExpectation { window: u32, slot: Slot },
    /// `MPI_Test` on a started expectation; sets [`Moment::flag`]. If true, as
    /// [`Step::AwaitExpectation`].
    TestExpectation { window: u32, slot: Slot },
    /// `MPI_Request_free` on an expectation, started or not. Frees the slot.
    Abandon { window: u32, slot: Slot },
    /// `MPIX_Notify_iprobe`; sets [`Moment::arrival`] to the oldest matching unclaimed
    /// notification.
    Probe { window: u32, wanted: Wanted },
    /// A communication call.
    Issue { window: u32, op: Op },
    /// A communication call that the engine must refuse, since a pattern fence has not learned its
    /// target [FE-4]. The run ends if it is accepted, or refused for another reason.
    IssueUnlearned { window: u32, target: Rank },
    /// A communication call in its R-form.
    IssueRequest { window: u32, op: Op, slot: Slot },
    /// `MPI_Start` on a persistent epoch with these calls. The slot holds its request until it is
    /// complete [PE-2].
    Restart { window: u32, calls: Vec<Recorded>, slot: Slot },
    /// The same, which the engine must refuse. The run ends if it is accepted.
    RestartRefused { window: u32, calls: Vec<Recorded> },
    /// The same call to every other rank, in the order rank + 1, rank + 2, ... modulo ranks.
    IssueOthers { window: u32, op: Op },
    /// `MPI_Wait` on the request in this slot. Frees the slot.
    Await(Slot),
    /// `MPI_Waitall` on all slots of the rank.
    AwaitAll,
    /// `MPI_Test`; sets [`Moment::flag`]. Frees the slot if true.
    TestSlot(Slot),
    /// `MPI_Request_free` on the request in this slot. Frees the slot [RQ-2].
    Free(Slot),
    /// Computes for this time, without any call.
    Compute(Time),
    /// Computes `flops` floating-point operations on `bytes` bytes, at the machine's rate for data
    /// inside or outside the cache.
    Flops { flops: f64, bytes: u64 },
    /// `MPI_Send`
    Send { to: Rank, bytes: u64 },
    /// `MPI_Recv` of the next message from this rank.
    Receive { from: Rank },
    /// A barrier that costs nothing.
    Barrier,
    /// Finalizes: the rank completes what is pending. Its script is not asked again.
    End,
}

/// An operation on contiguous bytes, without buffers.
pub(super) fn byte_op(kind: OpKind, target: Rank, disp: u64, len: u64) -> Op {
    Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp,
        len,
        target,
        kind,
        element: native::BYTE,
        reduction: reduction::REPLACE,
        extent: 1,
        shape: None,
        notification: None,
    }
}

/// The context in which a script returns its next step.
pub struct Moment<'a> {
    /// The rank.
    pub me: Rank,
    /// The rank's time.
    pub now: Time,
    /// Result of the last test.
    pub flag: bool,
    /// Result of the last reset.
    pub value: u64,
    /// Last notification of the last expectation that was met, or the result of the last probe.
    pub arrival: Option<Arrival>,
    /// The network, with the rank's memory if the world carries bytes.
    pub net: &'a mut Network,
}

/// The program of one rank.
pub trait Script {
    /// The next step. The previous one has returned.
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
