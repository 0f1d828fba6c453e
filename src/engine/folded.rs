//! Folded epochs: the short form of a lock or lock_all epoch that is alone in its window.
//!
//! In most lock epochs the lock is free, operations complete as soon as they are posted, and the
//! unlock has nothing to wait for. Such an epoch is *folded*: it takes two words and appears in no
//! list. When another epoch is opened, or an operation does not complete at once, it is *unfolded*
//! into a regular epoch in the state that it would have had. While an epoch is folded the window
//! has no other epoch. With regular epochs only, lock, put and unlock of a free lock would take 2.5
//! times as many instructions (1,516 instead of 595, with MPICH; exclusive: 1,702 instead of 745).

use super::epoch::{Epoch, EpochKind, EpochState, HeldLock, Leg, LockState};
use super::exclusion::{self, ExclusiveRight};
use super::lock::{self, Enqueued, LockRequest, Turn};
use super::lock_ops::LockOp;
use super::port::{LockMode, Port, Rank};
use super::slab::Key;
use super::window::{FenceView, Route, Window};

/// A lock or lock_all epoch that is granted, open, and has no outstanding operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folded {
    kind: EpochKind,
    lock: HeldLock,
}

impl Folded {
    /// True if the epoch covers operations to `rank`.
    #[inline(always)]
    fn covers(&self, rank: Rank) -> bool {
        match self.kind {
            EpochKind::Lock { target, .. } => target == rank,
            _ => true,
        }
    }

    #[inline(always)]
    pub(super) fn is_lock_all(&self) -> bool {
        matches!(self.kind, EpochKind::LockAll { .. })
    }
}

impl Window {
    /// True if an epoch opened now is the only one and no lock operation is pending.
    #[inline(always)]
    fn has_room_to_fold(&self) -> bool {
        self.folded.is_none()
            && self.epochs.len() == 0
            && self.lock_ops.is_empty()
            && self.pattern.is_none()
            && self.fence_view != FenceView::Folded
    }

    /// Opens a lock epoch, folded if its lock is free at once. False if nothing was done.
    #[inline(always)]
    pub(super) fn lock_folded(
        &mut self,
        port: &mut impl Port,
        mode: LockMode,
        target: Rank,
    ) -> bool {
        let kind = EpochKind::Lock { target, mode, nocheck: false, own: target == self.me };
        if self.size == 1 {
            return self.fold_alone(kind);
        }
        if !self.has_room_to_fold() || !self.passes_gate(port, mode) {
            return false;
        }
        self.fence_view = FenceView::Dissolved;
        self.route = None;
        let request = self.next_request(target, mode);
        let op = |window: &mut Window| LockOp::Enqueue(window.awaiting(kind), request);
        match self.attempt_folded(port, op, |mem| lock::enqueue(mem, request)) {
            Some(Enqueued { turn: Turn::Granted { .. }, queued, next_reader: None })
                if mode == LockMode::Shared =>
            {
                self.fold(kind, HeldLock::Shared(request.placed(queued)));
            }
            Some(Enqueued {
                turn: Turn::Granted { inherited: false },
                queued: true,
                next_reader: None,
            }) if self.licensing.begins(port) => {
                self.begin_use_folded(port, kind, request);
            }
            Some(enqueued) => {
                let epoch = self.awaiting(kind);
                self.enqueued(port, epoch, request, enqueued);
            }
            None => {}
        }
        true
    }

    /// Takes the idle licence into use for an exclusive lock.
    #[inline(always)]
    fn begin_use_folded(&mut self, port: &mut impl Port, kind: EpochKind, request: LockRequest) {
        let op = |window: &mut Window| LockOp::BeginUse(window.awaiting(kind), request);
        match self.attempt_folded(port, op, |mem| exclusion::begin_use(mem)) {
            Some(true) => {
                self.licensing.begun_alone();
                self.fold(kind, HeldLock::Exclusive(request, ExclusiveRight::Licensed));
            }
            Some(false) => {
                let epoch = self.awaiting(kind);
                self.licence_begun(port, epoch, request, false);
            }
            None => {}
        }
    }

    /// Opens a lock_all epoch, folded if it is held at once. False if nothing was done.
    #[inline(always)]
    pub(super) fn lock_all_folded(&mut self, port: &mut impl Port) -> bool {
        let kind = EpochKind::LockAll { nocheck: false };
        if self.size == 1 {
            return self.fold_alone(kind);
        }
        if !self.has_room_to_fold() {
            return false;
        }
        self.fence_view = FenceView::Dissolved;
        self.route = None;
        let op = |window: &mut Window| LockOp::EnterAll(window.awaiting(kind));
        match self.attempt_folded(port, op, |mem| exclusion::enter_all(mem)) {
            Some(true) => self.fold(kind, HeldLock::All),
            Some(false) => {
                let epoch = self.awaiting(kind);
                self.all_entered(port, epoch, false);
            }
            None => {}
        }
        true
    }

    /// Opens a folded epoch in a window of one process, whose locks are free. False if nothing was
    /// done.
    #[inline(always)]
    pub(super) fn fold_alone(&mut self, kind: EpochKind) -> bool {
        if !self.has_room_to_fold() {
            return false;
        }
        self.fence_view = FenceView::Dissolved;
        self.route = None;
        self.fold(kind, HeldLock::Alone);
        true
    }

    #[inline(always)]
    fn fold(&mut self, kind: EpochKind, lock: HeldLock) {
        self.folded = Some(Folded { kind, lock });
        if let EpochKind::Lock { target, .. } = kind {
            // A lock of a window of one process is in no queue.
            if !matches!(lock, HeldLock::Alone) {
                self.peers.of(target).lock_active = Some(Key::NONE);
            }
            self.route = Some(Route::folded(target, false));
        }
    }

    /// Closes the folded epoch if `wanted` accepts it. False if nothing was done.
    #[inline(always)]
    fn close_folded(&mut self, port: &mut impl Port, wanted: impl FnOnce(&Folded) -> bool) -> bool {
        let Some(Folded { lock, .. }) = self.folded.take_if(|folded| wanted(folded)) else {
            return false;
        };
        self.route = None;
        self.release_lock(port, lock);
        true
    }

    /// Unlocks `target` if its lock epoch is folded. False if it is not.
    #[inline(always)]
    pub(super) fn unlock_folded(&mut self, port: &mut impl Port, target: Rank) -> bool {
        self.close_folded(port, |folded| !folded.is_lock_all() && folded.covers(target))
    }

    /// Unlocks all targets if a lock_all epoch is folded. False if none is.
    #[inline(always)]
    pub(super) fn unlock_all_folded(&mut self, port: &mut impl Port) -> bool {
        self.close_folded(port, Folded::is_lock_all)
    }

    /// True if the folded epoch covers `target`; with `None`, if an epoch is folded. All operations
    /// of a folded epoch are complete.
    #[inline(always)]
    pub(super) fn is_folded_over(&self, target: Option<Rank>) -> bool {
        self.folded.is_some_and(|folded| target.is_none_or(|target| folded.covers(target)))
    }

    /// True if a lock_all epoch is folded.
    #[inline(always)]
    pub(super) fn is_lock_all_folded(&self) -> bool {
        self.folded.is_some_and(|folded| folded.is_lock_all())
    }

    /// The route to a target of the folded epoch.
    pub(super) fn folded_route(&mut self, target: Rank) -> Option<Route> {
        if target >= self.size || !self.is_folded_over(Some(target)) {
            return None;
        }
        self.route = Some(Route::folded(target, self.is_lock_all_folded()));
        self.route
    }

    /// Replaces the folded epoch, if any, with a regular one.
    #[inline(always)]
    pub(super) fn unfold(&mut self) {
        if let Some(folded) = self.folded.take() {
            self.unfolded(folded);
        }
    }

    #[cold]
    #[inline(never)]
    fn unfolded(&mut self, folded: Folded) {
        let epoch = self.opened(folded.kind);
        let entry = &mut self.epochs[epoch];
        entry.granted = true;
        entry.locking = LockState::Held(folded.lock);
        if entry.legs.len() > 0 {
            entry.legs[0].granted = true;
        }
        self.open_locks_held += 1;
    }

    /// Opens an active epoch whose lock is being requested.
    #[cold]
    #[inline(never)]
    fn awaiting(&mut self, kind: EpochKind) -> Key {
        self.locks_awaited += 1;
        self.opened(kind)
    }

    /// Opens an active epoch without requesting its lock.
    fn opened(&mut self, kind: EpochKind) -> Key {
        self.route = None;
        self.state_changes += 1;
        let epoch = self
            .epochs
            .insert(Epoch { state: EpochState::Active, ..Epoch::new(kind, self.closings) });
        if let EpochKind::Lock { target, .. } = kind {
            let place = self.place(epoch, target);
            self.epochs[epoch].legs.push(Leg::new(place, false));
            self.locks_open.push(epoch);
            let peer = self.peers.of(target);
            (peer.lock_open, peer.lock_active) = (Some(epoch), Some(epoch));
        } else {
            self.lock_all_open = Some(epoch);
        }
        epoch
    }
}
