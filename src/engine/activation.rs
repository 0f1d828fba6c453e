//! The predicate that decides when a deferred epoch may be activated [EP-4, EP-6, EP-7, AC-1, AC-2,
//! AC-3].

use std::collections::VecDeque;

use super::epoch::{Epoch, EpochKind};
use super::peer::{Peers, shrink};
use super::port::{Rank, ReorderFlags};
use super::slab::{Key, Slab};

/// The kinds of epochs that the reorder flags distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReorderClass {
    Fence,
    Access,
    Exposure,
    Lock,
    OwnLock,
    LockAll,
}

const CLASSES: [ReorderClass; 6] = [
    ReorderClass::Fence,
    ReorderClass::Access,
    ReorderClass::Exposure,
    ReorderClass::Lock,
    ReorderClass::OwnLock,
    ReorderClass::LockAll,
];

impl ReorderClass {
    pub(super) fn of(kind: EpochKind) -> Self {
        match kind {
            EpochKind::Fence(_) => ReorderClass::Fence,
            EpochKind::Access => ReorderClass::Access,
            EpochKind::Exposure => ReorderClass::Exposure,
            EpochKind::Lock { own: false, .. } => ReorderClass::Lock,
            EpochKind::Lock { own: true, .. } => ReorderClass::OwnLock,
            EpochKind::LockAll { .. } => ReorderClass::LockAll,
        }
    }
}

/// May an epoch of class `later` overtake one of class `earlier` [AC-1]? Nothing overtakes a fence
/// or lock_all epoch, nor the reverse; an exposure and a lock on self never overtake each other
/// [AC-2].
fn may_overtake(flags: ReorderFlags, earlier: ReorderClass, later: ReorderClass) -> bool {
    use ReorderClass::{Access, Exposure, Fence, Lock, LockAll, OwnLock};
    match (earlier, later) {
        (Fence | LockAll, _) | (_, Fence | LockAll) => false,
        (Exposure, OwnLock) | (OwnLock, Exposure) => false,
        (Access | Lock | OwnLock, Access | Lock | OwnLock) => flags.access_after_access,
        (Exposure, Access | Lock) => flags.access_after_exposure,
        (Exposure, Exposure) => flags.exposure_after_exposure,
        (Access | Lock, Exposure) => flags.exposure_after_access,
    }
}

/// Closed epochs that may be incomplete, per class in the order of closing. Only the front of each
/// queue is inspected, so the predicate's cost does not depend on the number of pending epochs.
#[derive(Debug, Default)]
pub(super) struct ClosedEpochs {
    closed: [VecDeque<(u64, Key)>; CLASSES.len()],
}

impl ClosedEpochs {
    /// Adds an epoch that the window's `closing`-th closing call has closed.
    pub(super) fn close(&mut self, class: ReorderClass, closing: u64, epoch: Key) {
        self.closed[class as usize].push_back((closing, epoch));
    }

    /// Forgets the epoch that the `closing`-th closing call, the latest, has closed, if `which`
    /// selects it. Later epochs then do not wait for it. Fence and lock_all epochs stay.
    pub(super) fn forget(&mut self, closing: u64, which: impl Fn(Key) -> bool) {
        use ReorderClass::{Access, Exposure, Lock, OwnLock};
        for class in [Access, Exposure, Lock, OwnLock] {
            self.closed[class as usize].pop_back_if(|(at, epoch)| *at == closing && which(*epoch));
        }
    }

    /// Forgets all epochs. The caller has found that every closed epoch is complete.
    #[inline]
    pub(super) fn clear(&mut self) {
        for queue in self.closed.iter_mut().filter(|queue| !queue.is_empty()) {
            queue.clear();
            shrink(queue);
        }
    }

    /// True if a closed fence epoch is incomplete. Call [`drop_completed`](Self::drop_completed)
    /// first.
    pub(super) fn has_fence(&self) -> bool {
        !self.closed[ReorderClass::Fence as usize].is_empty()
    }

    /// Removes completed epochs from the front of each queue.
    pub(super) fn drop_completed(&mut self, epochs: &Slab<Epoch>) {
        for queue in &mut self.closed {
            while queue.front().is_some_and(|(_, key)| epochs.get(*key).is_none()) {
                queue.pop_front();
            }
            shrink(queue);
        }
    }
}

/// Why an epoch may not be activated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockedBy {
    /// An epoch closed before this one was opened is incomplete [EP-6].
    Earlier(ReorderClass),
    /// An active lock epoch on the same target [AC-3].
    SameTarget,
}

/// May `epoch`, the oldest deferred one [EP-4], be activated? Call [`ClosedEpochs::drop_completed`]
/// first.
///
/// Every earlier incomplete epoch is active. An epoch that was closed after `epoch` was opened
/// overlaps it and never blocks it [EP-7]. Of the others, the oldest of each class decides, unless
/// a flag relaxes that class.
pub(super) fn may_activate(
    epoch: &Epoch,
    closed_epochs: &ClosedEpochs,
    peers: &Peers,
    flags: ReorderFlags,
) -> Result<(), BlockedBy> {
    let class = ReorderClass::of(epoch.kind);
    for earlier in CLASSES {
        if let Some((closing, _)) = closed_epochs.closed[earlier as usize].front()
            && *closing <= epoch.opened_at
            && !may_overtake(flags, earlier, class)
        {
            return Err(BlockedBy::Earlier(earlier));
        }
    }
    if let EpochKind::Lock { target, .. } = epoch.kind
        && has_lock_active(peers, target)
    {
        return Err(BlockedBy::SameTarget);
    }
    Ok(())
}

/// True if a lock epoch on this target is active or still releasing.
pub(super) fn has_lock_active(peers: &Peers, target: Rank) -> bool {
    peers.find(target).is_some_and(|peer| peer.lock_active.is_some())
}
