//! Epochs: what the application opened, and how far the engine has come with it.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::exclusion::ExclusiveRight;
use super::flush::Ages;
use super::lock::LockRequest;
use super::port::{LockMode, Rank, RequestId};
use super::record::NIL;
use super::slab::Key;

/// What an epoch is. Lock epochs on self differ from others in what may overtake them [AC-2].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochKind {
    Fence,
    Access,
    Exposure,
    Lock { target: Rank, mode: LockMode, nocheck: bool, own: bool },
    LockAll { nocheck: bool },
}

/// Where the engine stands with an epoch. (A complete one is gone.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochState {
    /// Recorded, not activated.
    Deferred,
    /// Activated, not completed.
    Active,
}

/// What a lock or lock_all epoch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldLock {
    All,
    Shared(LockRequest),
    Exclusive(LockRequest, ExclusiveRight),
}

/// How far a lock or lock_all epoch has come with its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockState {
    /// Not requested, or its request is on its way.
    No,
    /// Behind waiting lock_alls that arrived before; `served` must reach this count, once it is
    /// known [LK-6].
    Gate(Option<u32>),
    /// In the target's queue; once first there, it asks for its right.
    Queued(LockRequest),
    /// Registered; lock_alls are still held.
    Draining(LockRequest),
    /// lock_all: rights are out; holds nothing itself.
    AllWaiting,
    Held(HeldLock),
    /// `NOCHECK`: nothing to take, nothing to release [MA-3].
    Unchecked,
}

/// One target of an epoch.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) target: Rank,
    /// Queue of recorded operations, by [`super::record::Records`].
    pub(super) head: u32,
    pub(super) tail: u32,
    /// Operations recorded or in flight whose local stage is outstanding ...
    pub(super) local: u32,
    /// ... and whose remote stage is.
    pub(super) remote: u32,
    /// A of an access epoch: `++a` at activation.
    pub(super) access: u64,
    pub(super) granted: bool,
    /// The done has been handed out (access epochs).
    pub(super) finished: bool,
    /// Waits in the window's `stalled` list for the transport's resources.
    pub(super) stalled: bool,
    /// Made by the first flush that has to wait: ages of the local and of the remote stage [FL-1].
    pub(super) ages: Option<Box<[Ages; 2]>>,
}

impl Leg {
    pub(super) fn new(target: Rank, granted: bool) -> Self {
        Leg {
            target,
            head: NIL,
            tail: NIL,
            local: 0,
            remote: 0,
            access: 0,
            granted,
            finished: false,
            stalled: false,
            ages: None,
        }
    }
}

/// The targets of an epoch: the first inline, the others found by scan up to eight, by hash beyond.
#[derive(Debug, Default)]
pub(super) struct Legs {
    first: Option<Leg>,
    more: Option<Box<MoreLegs>>,
}

#[derive(Debug, Default)]
struct MoreLegs {
    list: Vec<Leg>,
    by_rank: HashMap<Rank, u32>,
}

const SCAN: usize = 8;

impl Legs {
    #[inline]
    pub(super) fn find(&self, target: Rank) -> Option<u32> {
        let first = self.first.as_ref()?;
        if first.target == target {
            return Some(0);
        }
        let more = self.more.as_ref()?;
        if more.by_rank.is_empty() {
            more.list.iter().position(|leg| leg.target == target).map(|at| at as u32 + 1)
        } else {
            more.by_rank.get(&target).copied()
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
            more.by_rank = more.list.iter().zip(1..).map(|(leg, at)| (leg.target, at)).collect();
        }
        let index = more.list.len() as u32 + 1;
        if more.list.len() >= SCAN {
            more.by_rank.insert(leg.target, index);
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

const LEG: &str = "a leg that was made";

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
    /// By the application [EP-9].
    pub(super) closed: bool,
    /// Operations may leave: fence and NOCHECK epochs when active, locks when held. Access epochs
    /// grant per leg.
    pub(super) granted: bool,
    /// The window's count of closings when this epoch was opened: what was closed later overlaps it
    /// [EP-7].
    pub(super) opened_at: u64,
    /// Of the closing call, if it had to wait.
    pub(super) request: Option<RequestId>,
    /// Targets (access: all from the start; others: at their first operation).
    pub(super) legs: Legs,
    /// Origins of an exposure epoch.
    pub(super) origins: SmallVec<[Rank; 2]>,
    /// Access: legs without a done. Exposure: origins that are not done.
    pub(super) awaited: u32,
    /// Operations recorded or in flight, remote stage.
    pub(super) outstanding: u64,
    /// Flushes that wait for the lock [EP-1].
    pub(super) flushes_for_grant: Vec<Key>,
    pub(super) locking: LockState,
    /// A procedure of its lock waits for an answer.
    pub(super) lock_op_pending: bool,
    /// In the window's `lock_watch`.
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
            locking: LockState::No,
            lock_op_pending: false,
            watched: false,
        }
    }

    pub(super) fn is_passive(&self) -> bool {
        matches!(self.kind, EpochKind::Lock { .. } | EpochKind::LockAll { .. })
    }

    /// A lock or lock_all epoch that is granted, and whose operations are complete so far.
    #[inline]
    pub(super) fn has_nothing_outstanding(&self) -> bool {
        self.granted && self.outstanding == 0
    }

    /// The leg to `target`, made now if the epoch makes legs as it needs them.
    pub(super) fn leg_to(&mut self, target: Rank) -> u32 {
        match self.legs.find(target) {
            Some(leg) => leg,
            None => self.legs.push(Leg::new(target, self.granted)),
        }
    }
}
