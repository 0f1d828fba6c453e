//! Folded fence epochs: fence epochs that need no record.
//!
//! In most fence epochs each target has granted access when the first operation is called, and each
//! operation is complete as soon as it is posted. The only trace of such an epoch is that it has
//! had operations ([`FenceView::Folded`]). Its fence completes without a record too, if the peers
//! reach it while the call polls. Otherwise the epoch becomes a regular one, in the state that it
//! would have had. While it is folded, the window has no other epoch.

use super::activation::ReorderClass;
use super::epoch::{Epoch, EpochKind, EpochState, Leg};
use super::fence::{Barrier, FenceKind};
use super::port::{Assert, Outcome, Port, Rank};
use super::slab::Key;
use super::window::{FenceView, NO_LEG, Route, Window};

impl FenceView {
    /// The epoch that a fence with this assertion opens.
    pub(super) fn after_fence(assert: Assert) -> Self {
        if assert.nosucceed { FenceView::Dissolved } else { FenceView::Tentative }
    }
}

impl Window {
    /// True if no epoch has a record, and no fence is in progress.
    #[inline]
    pub(super) fn has_room_for_fence(&self) -> bool {
        self.epochs.len() == 0
            && self.folded.is_none()
            && self.lock_ops.is_empty()
            && self.pattern_rests()
    }

    /// True if an operation to `target` belongs to a fence epoch that may be folded, and may be
    /// posted at once.
    #[inline]
    pub fn may_fold_fence(&mut self, port: &mut impl Port, target: Rank) -> bool {
        match self.fence_view {
            FenceView::Folded => {}
            FenceView::Tentative if self.has_room_for_fence() => {}
            _ => return false,
        }
        match self.fence_kind() {
            FenceKind::Barrier => true,
            FenceKind::Neighbours => self.is_granted_by(port, target),
            // The pattern is learned from the legs of a regular epoch.
            FenceKind::Learns => false,
        }
    }

    /// Folds the fence epoch at an operation to `target`, which
    /// [`may_fold_fence`](Self::may_fold_fence) has allowed. Returns its route.
    #[inline]
    pub(super) fn fold_fence(&mut self, target: Rank) -> Route {
        self.fence_view = FenceView::Folded;
        let route = self.folded_fence_route(target);
        self.route = Some(route);
        route
    }

    /// As [`may_fold_fence`](Self::may_fold_fence). If so, folds the epoch: the caller carries the
    /// operation out itself.
    #[inline]
    pub fn folds_fence(&mut self, port: &mut impl Port, target: Rank) -> bool {
        let folds = self.may_fold_fence(port, target);
        if folds {
            self.fold_fence(target);
        }
        folds
    }

    #[inline]
    fn folded_fence_route(&self, target: Rank) -> Route {
        let to_all = self.fence_kind() == FenceKind::Barrier;
        let (epoch, leg) = (Key::NONE, NO_LEG);
        Route { target, epoch, leg, direct: true, passive: false, to_all, opens_fence: false }
    }

    /// Caches the route of the next fence epoch's first operation, if the fence that has just been
    /// completed shows that nothing stands in its way. Any call that changes this drops the route.
    #[inline]
    pub(super) fn prepare_fence_route(&mut self) {
        let first = match &self.pattern {
            None => Some(self.me),
            Some(pattern) => pattern.first_target_granted(),
        };
        let first = first.filter(|_| self.fence_view == FenceView::Tentative);
        self.route = first.map(|target| {
            let route = self.folded_fence_route(target);
            Route { direct: false, opens_fence: true, ..route }
        });
    }

    /// Opens a fence epoch by an operation to `target`, on its
    /// [prepared](Self::prepare_fence_route) route. False if the route does not lead there.
    #[inline]
    pub(super) fn opens_fence_by(&mut self, route: Route, target: Rank) -> bool {
        debug_assert!(self.fence_view == FenceView::Tentative && self.has_room_for_fence());
        let opens = route.covers(target, self.size);
        if opens {
            self.fence_view = FenceView::Folded;
            self.route = Some(Route { target, direct: true, opens_fence: false, ..route });
        }
        opens
    }

    /// Caches the route to another target of the folded epoch, if the target has granted it.
    pub(super) fn finds_folded_route(&mut self, target: Rank) -> bool {
        let granted = self.was_granted_by(target);
        if granted {
            self.route = Some(self.folded_fence_route(target));
        }
        granted
    }

    /// Makes the folded epoch a regular one. Returns `route` as it is there.
    #[cold]
    #[inline(never)]
    pub(super) fn unfold_fence(&mut self, route: Route) -> Route {
        let kind = self.fence_kind();
        let epoch = self.insert_fence(kind);
        self.fence_view = FenceView::Real(epoch);
        let mut leg = NO_LEG;
        if kind != FenceKind::Barrier {
            leg = self.epochs[epoch].legs.push(Leg::new(route.target, true));
            self.note_active_fence(epoch);
        }
        let route = Route { epoch, leg, ..route };
        self.route = Some(route);
        route
    }

    fn insert_fence(&mut self, kind: FenceKind) -> Key {
        self.state_changes += 1;
        let epoch = Epoch::new(EpochKind::Fence(kind), self.closings);
        let granted = kind == FenceKind::Barrier;
        self.epochs.insert(Epoch { state: EpochState::Active, granted, ..epoch })
    }

    /// Closes a fence epoch without a record. Polls while `waits` returns true; if the fence is not
    /// complete then, the epoch gets a record.
    #[inline]
    pub(super) fn close_folded_fence(
        &mut self,
        port: &mut impl Port,
        kind: FenceKind,
        assert: Assert,
        waits: impl FnMut() -> bool,
    ) -> Outcome {
        self.route = None;
        self.fence_view = FenceView::after_fence(assert);
        let complete = match kind {
            FenceKind::Neighbours => self.pass_neighbours(port, waits),
            FenceKind::Barrier | FenceKind::Learns => {
                self.fence_called(None, kind, assert);
                self.pass_barrier(port, waits)
            }
        };
        if !complete {
            return self.record_fence(kind);
        }
        self.state_changes += 1;
        self.prepare_fence_route();
        Outcome::Complete
    }

    /// The barrier of a fence without a record, which learns nothing, so there are no marks. It
    /// reads only the word that it waits for, so that the next hop leaves sooner. False if it is
    /// not complete when `waits` returns false.
    #[inline]
    fn pass_barrier(&mut self, port: &mut impl Port, mut waits: impl FnMut() -> bool) -> bool {
        let mut barrier = Barrier::new(Key::NONE, self.count_fence());
        while !barrier.advance(port, self.me, self.size, |_, _| 0) {
            if !waits() {
                self.barrier = Some(barrier);
                return false;
            }
            port.poll();
        }
        true
    }

    /// Gives the closed epoch, whose fence is in progress, a record and a request.
    #[inline(never)]
    fn record_fence(&mut self, kind: FenceKind) -> Outcome {
        let epoch = self.insert_fence(kind);
        self.closings += 1;
        self.closed_incomplete += 1;
        self.closed_epochs.close(ReorderClass::Fence, self.closings, epoch);
        match &mut self.barrier {
            Some(barrier) => barrier.epoch = epoch,
            None => self.name_pattern_fence(epoch),
        }
        let request = self.requests.open();
        let entry = &mut self.epochs[epoch];
        (entry.closed, entry.request) = (true, Some(request));
        Outcome::Pending(request)
    }
}
