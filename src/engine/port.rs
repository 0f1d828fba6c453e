//! The engine's interface: every input and output, on one page.
//!
//! The application's calls enter as methods of [`Window`](super::Window). The engine calls the
//! transport through the methods of [`Port`], which answer at once. [`Posted::Pending`] ("not yet")
//! and [`Posted::NoResource`] or [`NoResource`] ("no resource now") are normal answers; the engine
//! retries in [`Window::progress`](super::Window::progress).

use std::num::NonZeroU32;

/// A process of the window, by its rank in the window's group.
pub type Rank = u32;

/// An address in this process. The engine stores it but never dereferences it [EP-8].
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
}

/// What an operation delivers at its target when its data, and all operations posted to that target
/// before, have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notification(NonZeroU32);

/// The kinds of a [`Notification`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotificationKind {
    /// This counter of the target += 1; see [`Port::counter`].
    Counter(u32),
    /// The target receives this tag; see [`Port::next_arrival`].
    Tag(u32),
}

impl Notification {
    /// The bit that distinguishes tags from counters.
    const TAG: NonZeroU32 = NonZeroU32::new(1 << 31).expect("not 0");

    /// Raises the counter `index`, which is below 2^31 - 1.
    #[inline]
    pub fn counter(index: u32) -> Self {
        debug_assert!(index < Self::TAG.get() - 1);
        Notification(NonZeroU32::MIN.saturating_add(index))
    }

    /// Delivers `tag`, which is below 2^31.
    #[inline]
    pub fn tag(tag: u32) -> Self {
        debug_assert!(tag < Self::TAG.get());
        Notification(Self::TAG | tag)
    }

    /// Kind and number packed into 32 bits, which are never 0.
    #[inline]
    pub fn bits(self) -> u32 {
        self.0.get()
    }

    /// Unpacks [`bits`](Self::bits). `None` if they are 0.
    #[inline]
    pub fn from_bits(bits: u32) -> Option<Self> {
        NonZeroU32::new(bits).map(Notification)
    }

    /// Unpacked form.
    #[inline]
    pub fn kind(self) -> NotificationKind {
        let bits = self.0.get();
        if bits & Self::TAG.get() == 0 {
            NotificationKind::Counter(bits - 1)
        } else {
            NotificationKind::Tag(bits ^ Self::TAG.get())
        }
    }
}

/// A tagged notification that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// The sender.
    pub source: Rank,
    /// The sender's tag.
    pub tag: u32,
}

/// A filter for tagged notifications; `None` matches any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Sender to match.
    pub source: Option<Rank>,
    /// Tag to match.
    pub tag: Option<u32>,
}

/// Identifies an expectation of tagged notifications until it is
/// [abandoned](super::Window::abandon).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpectationId {
    /// Slot number.
    pub index: u32,
    /// Distinguishes successive uses of one slot.
    pub generation: NonZeroU32,
}

/// Code of a predefined datatype (`transport::datatype::element`). Opaque to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Element(pub u8);

/// Code of a predefined reduction (`transport::datatype::element`). Opaque to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Reduction(pub u8);

/// Identifies the memory layout of an operation that is not contiguous on both sides
/// (`transport::datatype`). Opaque to the engine.
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
    /// Displacement in the target's window, in bytes from its base. 0 if `shape` is set, because
    /// the shape contains the displacement.
    pub disp: u64,
    /// Bytes moved.
    pub len: u64,
    /// Memory layout, unless both sides are contiguous.
    pub shape: Option<Shaped>,
    /// Notification behind the data, if any.
    pub notification: Option<Notification>,
    /// Target process.
    pub target: Rank,
    /// Which communication call.
    pub kind: OpKind,
    /// Datatype of the elements.
    pub element: Element,
    /// Reduction of accumulate and get_accumulate.
    pub reduction: Reduction,
    /// Extent of one element in bytes, at most 32.
    pub extent: u8,
}

impl Op {
    /// A notification alone: a put of no bytes.
    #[inline]
    pub fn notify(target: Rank, notification: Notification) -> Self {
        Op {
            origin: Addr(0),
            result: Addr(0),
            compare: Addr(0),
            disp: 0,
            len: 0,
            shape: None,
            notification: Some(notification),
            target,
            kind: OpKind::Put,
            element: Element(0),
            reduction: Reduction(0),
            extent: 1,
        }
    }
}

/// Identifies an operation that the transport accepted and has not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Ticket(pub u32);

/// A transport's answer to [`Port::post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Posted {
    /// Complete at origin and target. The ticket is not used.
    Complete,
    /// The origin's buffers may be reused; [`Stage::Remote`] follows under the ticket.
    Local,
    /// Both stages follow under the ticket.
    Pending,
    /// Nothing was done. Post the operation again later.
    NoResource,
}

/// How far an operation has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The origin's buffers may be reused and results are in place.
    Local,
    /// Visible to the target's CPU [FE-2]. Implies [`Stage::Local`].
    Remote,
}

/// The transport cannot take a signal now. The engine sends it again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoResource;

/// A word shared by a pair of processes. One side writes it, the other reads it, and its value only
/// rises [MA-1, MA-2].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Word {
    /// Exposures that the writer has opened to the reader: `g` in the reader's triple.
    Grant = 0,
    /// Accesses of the writer to the reader that are done, in order of access id.
    Done = 1,
    /// Sequence number of the last fence for which the writer made its barrier hop [FE-1]. Two
    /// processes meet in at most one round of the barrier, so one word per pair is enough.
    Fence = 2,
}

/// A word of the queue locks [LK-1 to LK-6].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockWord {
    /// At rank 0: number of lock_all holders (low 32 bits) and of rights to hold exclusive locks
    /// (high 32 bits).
    Holders,
    /// At rank 0: number of waiting lock_alls that arrived (low 32 bits) and were served (high 32
    /// bits).
    Intent,
    /// At rank 0: top of the stack of licensed processes (low 32 bits: rank + 1, or 0 if empty).
    Licensed,
    /// At each process: the state of its licence to hold exclusive locks.
    Licence,
    /// At each licensed process: the value of `Licensed` below it.
    NextLicensed,
    /// At each target: the last node of its queue. Without a node: how many readers have entered
    /// since there was one (high 31 bits).
    Tail,
    /// At each target: readers that have entered and `Tail` does not count, less those that have
    /// left (high 31 bits), and a flag that a writer waits for the last of them.
    Readers,
    /// At each target: the node of the waiting writer.
    NextWriter,
    /// At each origin, per target: where the request with this parity meets its successor.
    Next {
        /// Target of the lock request that owns the node.
        target: Rank,
        /// Lowest bit of the request's sequence number.
        parity: u8,
    },
    /// At each origin, per target: the lock-grant word. Only the process that hands the lock over
    /// writes it [LK-2].
    Grant {
        /// Target of the lock request.
        target: Rank,
    },
}

/// One access to a lock word. Loads acquire, stores release, and read-modify-writes are
/// sequentially consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Atomic read.
    Load,
    /// Atomic write.
    Store(u64),
    /// Exchange.
    Swap(u64),
    /// Fetch and add, wrapping.
    Add(u64),
    /// Stores `new` if the word equals `expected`.
    CompareSwap {
        /// The value to compare with.
        expected: u64,
        /// The value to store if they are equal.
        new: u64,
    },
}

impl Atomic {
    /// The word's new value if its old value was `old`.
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

/// Identifies a lock operation. Each has at most one access in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct LockTicket(pub u32);

/// A transport's answer to [`LockMemory::atomic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Done, with the word's old value (unspecified for a store).
    Now(u64),
    /// The old value follows under the ticket, by [`Port::next_answer`].
    Later,
    /// Nothing was done. Try again later.
    NoResource,
}

/// Remote atomics on the lock words.
pub trait LockMemory {
    /// Every answer is [`Answer::Now`], so the engine need not record answers for a replay.
    const ANSWERS_AT_ONCE: bool = false;

    /// Accesses a word at `home`, which may be this process itself.
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer;

    /// Reads a word of this process (acquire).
    fn look(&mut self, word: LockWord) -> u64;
}

/// A word of this process that a peer has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The word that this peer writes in this process.
    Signal(Rank, Word),
    /// [`LockWord::Grant`] for the lock request to this target.
    LockGrant(Rank),
}

/// What the engine needs from a transport, for one window in one process.
pub trait Port: LockMemory {
    /// True if [`next_change`](Self::next_change) reports every changed word. Otherwise each sweep
    /// polls every word that the engine waits for, at a cost proportional to the number of peers.
    const NAMES_CHANGES: bool = false;

    /// True if a signal becomes visible after every operation *posted* to that peer before,
    /// finished or not. A done may then follow its transfers at once, and leaves while this process
    /// computes [PR-3, FE-2].
    const SIGNALS_FOLLOW: bool = false;

    /// [`SIGNALS_FOLLOW`](Self::SIGNALS_FOLLOW) for one peer, for transports where peers differ.
    #[inline(always)]
    fn signals_follow(&self, _peer: Rank) -> bool {
        Self::SIGNALS_FOLLOW
    }

    /// Starts an operation. The engine calls it only for a target that has granted access. The
    /// transport frees the operation's shape when the operation is done; a shape outlives
    /// [`Posted::NoResource`]. Accumulates of one origin to one target take effect in the order of
    /// these calls. An operation with a notification reaches [`Stage::Remote`] when both have taken
    /// effect.
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted;

    /// Has every operation posted to `target` from now on take effect there after all operations
    /// that were posted to it before [OR-1]. A get takes effect when the target's memory is read.
    /// The default is for ports whose operations take effect in the order of posting.
    ///
    /// # Errors
    /// Not now. The engine then calls this again before it posts the next operation to `target`.
    fn order(&mut self, target: Rank) -> Result<(), NoResource> {
        let _ = target;
        Ok(())
    }

    /// Writes `value` to `word` at `peer` (release): it becomes visible after every operation to
    /// `peer` that was answered [`Posted::Complete`] or has reached [`Stage::Remote`]. `peer` may
    /// be this process.
    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource>;

    /// Reads the word that `peer` writes in this process (acquire). It is 0 before the first
    /// signal.
    fn observe(&mut self, peer: Rank, word: Word) -> u64;

    /// Number of notifications that have arrived for a counter of this process (acquire). The data
    /// of each, and every operation that its origin posted to this process before, have taken
    /// effect: puts are visible and gets have been read. 0 where the port has no counters.
    fn counter(&mut self, index: u32) -> u64 {
        let _ = index;
        0
    }

    /// The next tagged notification that has arrived, with the guarantees of
    /// [`counter`](Self::counter). Those of one origin arrive in the order of posting. `None` where
    /// the port has none.
    fn next_arrival(&mut self) -> Option<Arrival> {
        None
    }

    /// Progresses the transport: incoming work and outgoing fragments. True if anything moved.
    fn poll(&mut self) -> bool;

    /// The next completion stage that a pending operation has reached.
    fn next_finished(&mut self) -> Option<(Ticket, Stage)>;

    /// The next pending operation that failed because its target refused it.
    /// [`next_finished`](Self::next_finished) still reports its stages, later.
    fn next_failed(&mut self) -> Option<Ticket> {
        None
    }

    /// The next completed access that was answered [`Answer::Later`], with the word's old value.
    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        None
    }

    /// The next changed word. Several changes of one word may be reported as one. Always `None`
    /// unless [`NAMES_CHANGES`](Self::NAMES_CHANGES).
    fn next_change(&mut self) -> Option<Change> {
        None
    }
}

/// Lock type.
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

/// Identifies the request of a closing call, flush or R-form. Invalid once
/// [`Window::next_completed`](super::Window::next_completed) has returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Slot number, small and reused: callers may index a table with it.
    pub index: u32,
    /// Distinguishes successive uses of one slot.
    pub generation: NonZeroU32,
}

/// Result of a closing call, a flush or an R-form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Already complete. No request was made.
    Complete,
    /// Completes later. [`Window::next_completed`](super::Window::next_completed) reports it once.
    Pending(RequestId),
}

/// The MPI standard forbids the call in the window's present state. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// Communication without an epoch that covers the target.
    #[error("no access epoch is open for this target")]
    NoAccessEpoch,
    /// Restarted operations of a fence epoch that is not open [PE-2].
    #[error("no fence epoch is open for the operations with which the record begins")]
    NoFenceEpoch,
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
    /// A lock_all without `NOCHECK` on a duplicate, beside one with it on another handle [DU-1].
    #[error("the lock_all epoch of the window's other handles has MPI_MODE_NOCHECK")]
    UncheckedByOther,
    /// The call would open an access epoch while another one is open.
    #[error("an access epoch is already open")]
    AccessOpen,
    /// The call would open an exposure epoch while another one is open.
    #[error("an exposure epoch is already open")]
    ExposureOpen,
    /// The fence epoch's pattern was learned without an access to this target [FE-3].
    #[error("the pattern fence has not learned this target")]
    NotLearned,
    /// The call conflicts with a fence epoch that has operations.
    #[error("a fence epoch with operations is open")]
    FenceOpen,
}
