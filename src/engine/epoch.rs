//! Epochs: what the application opened, and how far the engine has taken it.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::exclusion::ExclusiveRight;
use super::fence::FenceKind;
use super::flush::Ages;
use super::lock::LockRequest;
use super::port::{LockMode, Rank, RequestId};
use super::record::NIL;
use super::slab::Key;

/// The kind of an epoch. A lock on self counts as its own kind in the reorder rules [AC-2].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochKind {
    Fence(FenceKind),
    Access,
    Exposure,
    Lock { target: Rank, mode: LockMode, nocheck: bool, own: bool },
    LockAll { nocheck: bool },
}

/// The engine's state of an epoch. A completed epoch is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochState {
    /// Recorded, not activated yet.
    Deferred,
    /// Activated, not complete yet.
    Active,
}

/// The lock that a lock or lock_all epoch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldLock {
    /// That of a window's only process, whose lock epochs never overlap [AC-1, AC-3]: no word.
    Alone,
    All,
    Shared(LockRequest),
    Exclusive(LockRequest, ExclusiveRight),
}

/// The progress of a lock or lock_all epoch towards its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockState {
    /// Not requested, or the request's atomics are in flight.
    NotRequested,
    /// Lets earlier lock_alls pass: waits until this many lock_alls were served. `None` until the
    /// count was read [LK-6].
    Gate(Option<u32>),
    /// In the target's queue. An exclusive lock that is first there asks for its right.
    Queued(LockRequest),
    /// Registered, and waiting for the lock_alls that are still held.
    Draining(LockRequest),
    /// A lock_all that waits until no right is out. It holds nothing.
    AllWaiting,
    Held(HeldLock),
    /// `NOCHECK`: acquires and releases nothing [MA-3].
    Unchecked,
}

/// One target of an epoch.
#[derive(Debug, Default)]
pub(super) struct Leg {
    /// The target, and the lane in a passive-target epoch; see [`super::lanes`].
    pub(super) place: Rank,
    /// First and last operation of the leg's queue, in [`super::record::Records`].
    pub(super) head: u32,
    pub(super) tail: u32,
    /// Operations, recorded or in flight, whose local stage is outstanding.
    pub(super) local: u32,
    /// Operations, recorded or in flight, whose remote stage is outstanding.
    pub(super) remote: u32,
    /// Access id of an access epoch: `++a` at activation.
    pub(super) access: u64,
    pub(super) granted: bool,
    /// The access is done; its done has been sent or is queued behind an earlier one.
    pub(super) finished: bool,
    /// Listed in the window's `stalled`.
    pub(super) stalled: bool,
    /// The next operation must take effect after those before, and the port does not know it yet
    /// [OR-1].
    pub(super) ordered: bool,
    /// Ages by [`Stage`](super::Stage) [FL-1], made by the first flush that has to wait.
    pub(super) ages: Option<Box<[Ages; 2]>>,
}

const _: () = assert!(size_of::<Leg>() == 40, "an epoch keeps a leg per target");

impl Leg {
    pub(super) fn new(place: Rank, granted: bool) -> Self {
        Leg { place, head: NIL, tail: NIL, granted, ..Leg::default() }
    }

    /// Whether the next operation goes straight to the transport.
    #[inline]
    pub(super) fn posts_at_once(&self) -> bool {
        self.granted && self.head == NIL && !self.ordered
    }
}

/// The targets of an epoch: the first is inline, up to eight more are scanned, beyond that hashed.
#[derive(Debug, Default)]
pub(super) struct Legs {
    first: Option<Leg>,
    more: Option<Box<MoreLegs>>,
}

#[derive(Debug, Default)]
struct MoreLegs {
    list: Vec<Leg>,
    by_place: HashMap<Rank, u32>,
}

const SCAN: usize = 8;

impl Legs {
    #[inline]
    pub(super) fn find(&self, place: Rank) -> Option<u32> {
        let first = self.first.as_ref()?;
        if first.place == place {
            return Some(0);
        }
        let more = self.more.as_ref()?;
        if more.by_place.is_empty() {
            more.list.iter().position(|leg| leg.place == place).map(|at| at as u32 + 1)
        } else {
            more.by_place.get(&place).copied()
        }
    }

    #[inline]
    pub(super) fn push(&mut self, leg: Leg) -> u32 {
        if self.first.is_none() {
            self.first = Some(leg);
            return 0;
        }
        let more = self.more.get_or_insert_default();
        if more.list.len() == SCAN {
            more.by_place = more.list.iter().zip(1..).map(|(leg, at)| (leg.place, at)).collect();
        }
        let index = more.list.len() as u32 + 1;
        if more.list.len() >= SCAN {
            more.by_place.insert(leg.place, index);
        }
        more.list.push(leg);
        index
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        u32::from(self.first.is_some())
            + self.more.as_ref().map_or(0, |more| more.list.len() as u32)
    }
}

const LEG: &str = "the index of a leg";

impl std::ops::Index<u32> for Legs {
    type Output = Leg;
    #[inline]
    fn index(&self, index: u32) -> &Leg {
        match index {
            0 => self.first.as_ref().expect(LEG),
            at => &self.more.as_ref().expect(LEG).list[at as usize - 1],
        }
    }
}

impl std::ops::IndexMut<u32> for Legs {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Leg {
        match index {
            0 => self.first.as_mut().expect(LEG),
            at => &mut self.more.as_mut().expect(LEG).list[at as usize - 1],
        }
    }
}

/// One epoch of this process.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) kind: EpochKind,
    pub(super) state: EpochState,
    /// Closed by the application [EP-9].
    pub(super) closed: bool,
    /// Operations may be posted. True of fence and `NOCHECK` epochs once active, and of locks once
    /// held. Access epochs are granted per leg.
    pub(super) granted: bool,
    /// The window's number of closings when this epoch was opened. An epoch closed later overlaps
    /// it [EP-7].
    pub(super) opened_at: u64,
    /// Request of the closing call, if it had to wait.
    pub(super) request: Option<RequestId>,
    /// Targets. An access epoch has all from its start, other kinds add one at its first operation.
    pub(super) legs: Legs,
    /// Origins of an exposure epoch.
    pub(super) origins: SmallVec<[Rank; 2]>,
    /// Access: legs whose done has not been sent. Exposure: origins that are not done.
    pub(super) awaited: u32,
    /// Operations, recorded or in flight, whose remote stage is outstanding.
    pub(super) outstanding: u64,
    /// Flushes that wait for the lock [EP-1].
    pub(super) flushes_for_grant: Vec<Key>,
    pub(super) locking: LockState,
    /// A lock operation of this epoch is suspended.
    pub(super) lock_op_pending: bool,
    /// Listed in the window's `lock_watch`.
    pub(super) watched: bool,
}

impl Epoch {
    #[inline]
    pub(super) fn new(kind: EpochKind, opened_at: u64) -> Self {
        Epoch {
            kind,
            state: EpochState::Deferred,
            closed: false,
            granted: false,
            opened_at,
            request: None,
            legs: Legs::default(),
            origins: SmallVec::new(),
            awaited: 0,
            outstanding: 0,
            flushes_for_grant: Vec::new(),
            locking: LockState::NotRequested,
            lock_op_pending: false,
            watched: false,
        }
    }

    pub(super) fn is_passive(&self) -> bool {
        matches!(self.kind, EpochKind::Lock { .. } | EpochKind::LockAll { .. })
    }

    /// True if the epoch holds no lock, since `NOCHECK` was asserted.
    pub(super) fn is_unchecked(&self) -> bool {
        matches!(
            self.kind,
            EpochKind::Lock { nocheck: true, .. } | EpochKind::LockAll { nocheck: true }
        )
    }

    /// True if the epoch's lock is granted and all operations issued so far are complete.
    #[inline]
    pub(super) fn has_nothing_outstanding(&self) -> bool {
        self.granted && self.outstanding == 0
    }

    /// The leg of `place`, made if there is none.
    pub(super) fn leg_at(&mut self, place: Rank) -> u32 {
        match self.legs.find(place) {
            Some(leg) => leg,
            None => self.legs.push(Leg::new(place, self.granted)),
        }
    }
}
