//! Every input and output of the engine, on one page.
//!
//! Inputs are the methods of [`Window`](super::Window); outputs are the methods of [`Port`], which
//! the engine calls and a transport answers at once. An answer may be "not yet"
//! ([`Posted::Pending`]) or "no resource now" ([`Posted::NoResource`], [`NoResource`]): both are
//! normal and driven again by [`Window::progress`](super::Window::progress).

use std::num::NonZeroU32;

/// A process of the window, numbered as in the window's group.
pub type Rank = u32;

/// An address in this process. The engine carries it and never looks behind it [EP-8].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Addr(pub usize);

/// What a communication call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// origin -> target
    Put,
    /// target -> result
    Get,
    /// target = target (op) origin
    Accumulate,
    /// result = target; target = target (op) origin. Also `MPI_Fetch_and_op`.
    GetAccumulate,
    /// result = target; if target == compare then target = origin
    CompareAndSwap,
    /// counter `disp` of the target += 1, behind all that was posted to this target before
    /// [`Port::counter`]
    Notify,
    /// the target is told the tag `disp`, behind all that was posted to this target before
    /// [`Port::next_arrival`]
    NotifyTagged,
}

/// A tagged notification that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Who has sent it.
    pub source: Rank,
    /// What it says.
    pub tag: u32,
}

/// Tagged notifications that are wanted; `None` is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// From whom.
    pub source: Option<Rank>,
    /// With which tag.
    pub tag: Option<u32>,
}

/// Names an expectation of tagged notifications, until it is [abandoned](super::Window::abandon).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpectationId {
    /// Slot.
    pub index: u32,
    /// Tells uses of one slot apart.
    pub generation: NonZeroU32,
}

/// Code of a predefined datatype (`transport::datatype::element`); opaque to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Element(pub u8);

/// Code of a predefined reduction (`transport::datatype::element`); opaque to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Reduction(pub u8);

/// Names the places of an operation's data where they are not one run of bytes on each side
/// (`transport::datatype`); opaque to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Shaped(pub NonZeroU32);

/// One communication call, recorded by address and never copied [EP-8].
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Origin buffer: source of put, accumulate, get_accumulate and compare_and_swap.
    pub origin: Addr,
    /// Result buffer: destination of get, get_accumulate and compare_and_swap.
    pub result: Addr,
    /// Compare buffer of compare_and_swap.
    pub compare: Addr,
    /// Displacement in the target's window, in bytes from its base. 0 for a shaped operation, whose
    /// shape has it.
    pub disp: u64,
    /// Bytes moved.
    pub len: u64,
    /// Where the data lie, unless they are one run of bytes on each side.
    pub shape: Option<Shaped>,
    /// Process to reach.
    pub target: Rank,
    /// What is done there.
    pub kind: OpKind,
    /// Datatype of the elements.
    pub element: Element,
    /// Reduction of accumulate and get_accumulate.
    pub reduction: Reduction,
    /// Extent of one element in bytes, at most 32.
    pub extent: u8,
}

/// Names one operation that the transport accepted and has not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Ticket(pub u32);

/// A transport's answer to [`Port::post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Posted {
    /// Complete at origin and target; the ticket is not used.
    Complete,
    /// The origin's buffers may be reused; [`Stage::Remote`] follows under the ticket.
    Local,
    /// Both stages follow under the ticket.
    Pending,
    /// Nothing was done; post it again later.
    NoResource,
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The origin's buffers may be reused and results are in place.
    Local,
    /// Visible to the target's CPU [FE-2]. Implies [`Stage::Local`].
    Remote,
}

/// The transport cannot take a signal now; it is driven again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoResource;

/// A word of a pair of processes: written by one side alone, read by the other, only ever rising
/// [MA-1, MA-2].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Word {
    /// Exposures that the writer has opened to the reader: `g` of the reader's triple.
    Grant = 0,
    /// Accesses of the writer to the reader that are done, in order.
    Done = 1,
    /// Last fence for which the writer's barrier hop has been made [FE-1]. A pair has one distance,
    /// so one round.
    Fence = 2,
}

/// A word of the lock service [LK-1 to LK-6].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockWord {
    /// At rank 0: holders of lock_all in the low 32 bits, rights to hold exclusive locks in the
    /// high 32 bits.
    Holders,
    /// At rank 0: waiting lock_alls that arrived (low 32 bits) and that were served (high 32 bits).
    Intent,
    /// At rank 0: top of the stack of licensed processes (rank + 1 in the low 32 bits, or 0).
    Licensed,
    /// At each process: its licence to hold exclusive locks.
    Licence,
    /// At each licensed process: the value of `Licensed` below it.
    NextLicensed,
    /// At each target: the last node of its queue; without a node, readers that hold the lock (high
    /// 32 bits).
    Tail,
    /// At each target: active readers not counted in `Tail`, and a flag that a writer waits for the
    /// last of them.
    Readers,
    /// At each target: the node of that writer.
    NextWriter,
    /// At each origin, per target: meeting point with the successor of the request with this
    /// parity.
    Next {
        /// Target of the lock request that owns the node.
        target: Rank,
        /// Lowest bit of the request's sequence number.
        parity: u8,
    },
    /// At each origin, per target: the lock-grant word, written only by whoever hands over [LK-2].
    Grant {
        /// Target of the lock request.
        target: Rank,
    },
}

/// One access to a word of the lock service. Loads acquire, stores release, and the others are
/// sequentially consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Reads.
    Load,
    /// Writes.
    Store(u64),
    /// Exchanges.
    Swap(u64),
    /// Adds, wrapping.
    Add(u64),
    /// Stores `new` if the word is `expected`.
    CompareSwap {
        /// What the word must be.
        expected: u64,
        /// What is stored then.
        new: u64,
    },
}

impl Atomic {
    /// What the word holds afterwards, if it held `old`.
    pub fn applied_to(self, old: u64) -> u64 {
        match self {
            Atomic::Load => old,
            Atomic::Store(value) | Atomic::Swap(value) => value,
            Atomic::Add(delta) => old.wrapping_add(delta),
            Atomic::CompareSwap { expected, new } if old == expected => new,
            Atomic::CompareSwap { .. } => old,
        }
    }
}

/// Names one procedure of the lock service. It has at most one access under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct LockTicket(pub u32);

/// A transport's answer to [`LockMemory::atomic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Done; this is the word's old value (of a store: anything).
    Now(u64),
    /// The old value follows under the ticket ([`Port::next_answer`]).
    Later,
    /// Nothing was done; try it again later.
    NoResource,
}

/// The lock service's words, by remote atomics.
pub trait LockMemory {
    /// Every answer is [`Answer::Now`], so that nothing need be kept for a later one.
    const ANSWERS_AT_ONCE: bool = false;

    /// Accesses a word at `home`, which may be this process.
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer;

    /// Reads a word of this process (acquire).
    fn look(&mut self, word: LockWord) -> u64;
}

/// Something of this process that a peer has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The word that this peer writes.
    Signal(Rank, Word),
    /// [`LockWord::Grant`] of the lock request to this target.
    LockGrant(Rank),
}

/// What the engine asks of a transport, for one window in one process.
pub trait Port: LockMemory {
    /// The transport says what has changed ([`next_change`](Self::next_change)). Else the engine
    /// reads every word that it waits for, which costs the more the more peers it waits for.
    const NAMES_CHANGES: bool = false;

    /// A signal is seen by its peer after every operation to that peer that was *posted* before it,
    /// and not only after those that have finished. Then a done may follow its transfers at once,
    /// and leaves while this process computes [PR-3, FE-2].
    const SIGNALS_FOLLOW: bool = false;

    /// [`SIGNALS_FOLLOW`](Self::SIGNALS_FOLLOW) for one peer, where that is not the same for all.
    #[inline(always)]
    fn signals_follow(&self, _peer: Rank) -> bool {
        Self::SIGNALS_FOLLOW
    }

    /// Starts an operation. Called only for a target that has granted access. A shape is the
    /// transport's to end, when the operation has; until it is posted it stays. Operations of one
    /// origin on one target take effect in the order of these calls where they are accumulates.
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted;

    /// Starts a put and the [notification](OpKind::Notify) behind it as one operation, of which the
    /// put's ticket and stages are told. `None` if that cannot be done, or not now: then they are
    /// two.
    #[inline]
    fn post_notified(&mut self, put: &Op, notification: &Op, ticket: Ticket) -> Option<Posted> {
        let _ = (put, notification, ticket);
        None
    }

    /// Writes `value` to `word` at `peer`, after every operation to `peer` that is
    /// [`Posted::Complete`] or [`Stage::Remote`] has become visible there (release). `peer` may be
    /// this process.
    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource>;

    /// Reads the word that `peer` writes in this process (acquire). 0 before the first signal.
    fn observe(&mut self, peer: Rank, word: Word) -> u64;

    /// Reads a counter of this process (acquire): how many [`OpKind::Notify`] have come in for it.
    /// What this process's peers have posted before them, to this process, has taken effect: puts
    /// are visible, gets have read. 0 where the port has no counters.
    fn counter(&mut self, index: u32) -> u64 {
        let _ = index;
        0
    }

    /// The next tagged notification that has come to this process ([`OpKind::NotifyTagged`]),
    /// acquired like a counter. Those of one origin come in the order in which they were posted.
    /// `None` where the port has none.
    fn next_arrival(&mut self) -> Option<Arrival> {
        None
    }

    /// Drives the transport: incoming work, outgoing pieces. True if anything moved.
    fn poll(&mut self) -> bool;

    /// The next stage that a pending operation has reached since the last call.
    fn next_finished(&mut self) -> Option<(Ticket, Stage)>;

    /// The next pending operation that was not done, since its target has refused it. Its stages
    /// are told all the same, later.
    fn next_failed(&mut self) -> Option<Ticket> {
        None
    }

    /// The next access to a lock word that was answered [`Answer::Later`] and is done, with the
    /// word's old value.
    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        None
    }

    /// The next change since the last call; several of one word may be told as one. `None` for ever
    /// unless [`NAMES_CHANGES`](Self::NAMES_CHANGES).
    fn next_change(&mut self) -> Option<Change> {
        None
    }
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// `MPI_LOCK_SHARED`
    Shared,
    /// `MPI_LOCK_EXCLUSIVE`
    Exclusive,
}

/// The assertions of MPI-4.1 section 12.5.5 that the engine uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assert {
    /// `MPI_MODE_NOCHECK`: on a lock, no conflicting lock is held or will be. Without effect on
    /// start and post [MA-3].
    pub nocheck: bool,
    /// `MPI_MODE_NOPRECEDE`: the fence ends no epoch with local operations.
    pub noprecede: bool,
    /// `MPI_MODE_NOSUCCEED`: the fence opens no epoch.
    pub nosucceed: bool,
}

/// The four reorder flags of the paper's section VI.B [AC-1]. All off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderFlags {
    /// A_A_A_R: an access or lock epoch may overtake an earlier access or lock epoch.
    pub access_after_access: bool,
    /// A_A_E_R: an access or lock epoch may overtake an earlier exposure epoch.
    pub access_after_exposure: bool,
    /// E_A_E_R: an exposure epoch may overtake an earlier exposure epoch.
    pub exposure_after_exposure: bool,
    /// E_A_A_R: an exposure epoch may overtake an earlier access or lock epoch.
    pub exposure_after_access: bool,
}

/// Names a closing, flush or operation request. Dead once it has been given by
/// [`Window::next_completed`](super::Window::next_completed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Slot, small and reused: callers may index a table with it.
    pub index: u32,
    /// Tells uses of one slot apart.
    pub generation: NonZeroU32,
}

/// The state in which a closing call or a flush left its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Already complete; no request was made.
    Complete,
    /// Completes later, reported once by [`Window::next_completed`](super::Window::next_completed).
    Pending(RequestId),
}

/// A call that the standard forbids in the window's present state. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// Communication without an epoch that covers the target.
    #[error("no access epoch is open for this target")]
    NoAccessEpoch,
    /// Complete without start.
    #[error("no access epoch is open (start was not called)")]
    NotStarted,
    /// Wait or test without post.
    #[error("no exposure epoch is open (post was not called)")]
    NotPosted,
    /// Unlock of a target that is not locked, or unlock_all without lock_all.
    #[error("the target is not locked")]
    NotLocked,
    /// Flush without a passive-target epoch that covers the target.
    #[error("no passive-target epoch is open for this target")]
    NoPassiveEpoch,
    /// A second lock on one target, or a lock under lock_all.
    #[error("the target is already locked by this process")]
    AlreadyLocked,
    /// The call would open an access epoch while another one is open.
    #[error("an access epoch is already open")]
    AccessOpen,
    /// The call would open an exposure epoch while another one is open.
    #[error("an exposure epoch is already open")]
    ExposureOpen,
    /// The call conflicts with a fence epoch that has operations.
    #[error("a fence epoch with operations is open")]
    FenceOpen,
}
