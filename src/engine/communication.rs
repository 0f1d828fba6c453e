//! Communication calls. An operation is posted at once if its target has granted access, and is
//! recorded otherwise.

use super::epoch::EpochKind;
use super::fence::FenceKind;
use super::flush::Ages;
use super::port::{Op, Outcome, Port, Posted, Rank, RequestId, SyncError, Ticket};
use super::record::{Account, NIL};
use super::slab::Key;
use super::window::{FenceView, NO_LEG, Route, Window};

impl Route {
    #[inline(always)]
    pub(super) fn covers(&self, target: Rank, size: u32) -> bool {
        self.target == target || self.to_all && target < size
    }

    /// True if an operation to `target` goes straight to the transport. `size`: of the window.
    #[inline(always)]
    fn is_direct(&self, target: Rank, size: u32) -> bool {
        self.direct && self.covers(target, size)
    }
}

impl Window {
    /// Issues an operation. The caller has validated rank, displacement, size and datatype.
    ///
    /// # Errors
    /// If no open epoch covers the target, or a pattern fence has not learned it.
    #[inline]
    pub fn issue(&mut self, port: &mut impl Port, op: &Op) -> Result<(), SyncError> {
        match self.route {
            Some(route) if route.is_direct(op.target, self.size) => {
                let answer = port.post(op, self.records.next_ticket());
                if answer != Posted::Complete {
                    let route = self.unfolded_route(Route { target: op.target, ..route });
                    self.account_for(route, op, answer, false);
                }
                Ok(())
            }
            _ => self.issue_elsewhere(port, op, false).map(|_| ()),
        }
    }

    /// True if an operation to this target goes straight to the transport, and leaves no state here
    /// if the transport completes it. Holds until an epoch is opened or closed or an operation is
    /// queued.
    #[inline]
    pub fn has_direct_route(&self, target: Rank) -> bool {
        matches!(self.route, Some(route) if route.is_direct(target, self.size))
    }

    /// As [`has_direct_route`](Self::has_direct_route), but looks up and caches the route for the
    /// first operation of an epoch to this target. Opens nothing: the first operation of a fence
    /// epoch must go through [`issue`](Self::issue) or
    /// [`enters_direct_route`](Self::enters_direct_route).
    #[inline]
    pub fn finds_direct_route(&mut self, target: Rank) -> bool {
        match self.route {
            Some(route) if route.target == target => route.direct,
            Some(route) if route.is_direct(target, self.size) => true,
            _ if self.folded.is_some() => self.folded_route(target).is_some(),
            _ => target < self.size && self.find_route(target),
        }
    }

    /// As [`finds_direct_route`](Self::finds_direct_route), but may open a fence epoch: the caller
    /// carries its first operation out.
    #[inline]
    pub fn enters_direct_route(&mut self, target: Rank) -> bool {
        match self.route {
            Some(route) if route.opens_fence => self.opens_fence_by(route, target),
            _ => self.finds_direct_route(target),
        }
    }

    /// True if a flush of this target has nothing to wait for: it has a direct route in a
    /// passive-target epoch, and no operation is outstanding there.
    #[inline(always)]
    pub fn flushes_at_once(&self, target: Rank) -> bool {
        let Some(route) = self.route else { return false };
        route.passive
            && route.is_direct(target, self.size)
            && (self.folded.is_some() || self.has_nothing_outstanding(route))
    }

    /// True if a flush of all targets has nothing to wait for: a lock_all epoch is granted, and no
    /// operation is outstanding.
    #[inline(always)]
    pub fn flushes_all_at_once(&self) -> bool {
        self.is_lock_all_folded()
            || self.lock_all_open.is_some_and(|epoch| self.epochs[epoch].has_nothing_outstanding())
    }

    /// True if no flush of this window has anything to wait for: all operations are complete, and
    /// all locks are held.
    #[inline(always)]
    pub fn has_nothing_to_flush(&self) -> bool {
        self.records.len() == 0 && self.locks_awaited == 0 && self.deferred.is_empty()
    }

    /// True if a flush of this target, or of all, would be complete at once. Without an open
    /// passive-target epoch there, true if nothing is in flight in this window.
    pub fn is_flushed(&self, target: Option<Rank>) -> bool {
        if self.has_nothing_to_flush() {
            return true;
        }
        let single = self.lock_all_open.or_else(|| self.peers.find(target?)?.lock_open);
        match (single, target) {
            (Some(epoch), Some(target)) => {
                let entry = &self.epochs[epoch];
                entry.granted
                    && entry.legs.find(target).is_none_or(|leg| entry.legs[leg].remote == 0)
            }
            (None, Some(_)) => false,
            (_, None) => {
                let mut open = self.lock_all_open.iter().chain(&self.locks_open).peekable();
                open.peek().is_some()
                    && open.all(|epoch| self.epochs[*epoch].has_nothing_outstanding())
            }
        }
    }

    #[inline(never)]
    pub(super) fn has_nothing_outstanding(&self, route: Route) -> bool {
        let Some(entry) = self.epochs.get(route.epoch) else { return false };
        route.leg == NO_LEG || entry.legs[route.leg].remote == 0
    }

    fn find_route(&mut self, target: Rank) -> bool {
        if self.epochs.len() == 0 && self.fence_view != FenceView::Folded {
            // No epoch is open, but perhaps that of a fence, which has had no operation yet.
            return false;
        }
        let open =
            self.lock_all_open.or(self.access_open).or_else(|| self.peers.find(target)?.lock_open);
        let epoch = match (open, self.fence_view) {
            (Some(epoch), _) | (None, FenceView::Real(epoch)) => epoch,
            (None, FenceView::Folded) => return self.finds_folded_route(target),
            _ => return false,
        };
        self.route_by(epoch, target).is_some_and(|route| route.direct)
    }

    /// Unfolds the folded epoch, if any, and returns `route` as it is in the regular epoch.
    #[inline]
    fn unfolded_route(&mut self, route: Route) -> Route {
        if route.epoch != Key::NONE {
            return route;
        }
        if self.fence_view == FenceView::Folded {
            return self.unfold_fence(route);
        }
        self.unfold();
        let epoch = self
            .lock_all_open
            .or_else(|| self.peers.find(route.target)?.lock_open)
            .expect("the folded epoch was unfolded");
        self.route_by(epoch, route.target).expect("a lock epoch covers its target")
    }

    /// Caches the route to `target` in an epoch. `None` if the epoch does not cover the target.
    fn route_by(&mut self, epoch: Key, target: Rank) -> Option<Route> {
        let entry = &self.epochs[epoch];
        let (leg, direct) = match entry.legs.find(self.place(epoch, target)) {
            Some(leg) => (leg, entry.legs[leg].posts_at_once()),
            // A window that learns or has neighbours keeps a leg for each target [FE-3].
            None if !matches!(entry.kind, EpochKind::Fence(FenceKind::Barrier))
                && !entry.is_passive() =>
            {
                return None;
            }
            None => (NO_LEG, entry.granted),
        };
        let to_all = direct && entry.legs.len() == 0;
        let passive = entry.is_passive();
        let opens_fence = false;
        self.route = Some(Route { target, epoch, leg, direct, passive, to_all, opens_fence });
        self.route
    }

    /// Issues an operation in its R-form. The request completes when the origin's buffers may be
    /// reused and results are in place.
    ///
    /// # Errors
    /// If no open epoch covers the target.
    pub fn issue_request(&mut self, port: &mut impl Port, op: &Op) -> Result<Outcome, SyncError> {
        self.issue_elsewhere(port, op, true)
    }

    fn issue_elsewhere(
        &mut self,
        port: &mut impl Port,
        op: &Op,
        wants_request: bool,
    ) -> Result<Outcome, SyncError> {
        self.unfold();
        if self.may_fold_fence(port, op.target) {
            return Ok(self.issue_folded(port, op, wants_request));
        }
        let epoch = self.epoch_covering(port, op.target)?;
        let route = self.route_by(epoch, op.target).ok_or(SyncError::NoAccessEpoch)?;
        let answer = match route.direct || self.begin_ordered(port, route) {
            true => port.post(op, self.records.next_ticket()),
            false => Posted::NoResource,
        };
        let request = self.account_for(route, op, answer, wants_request);
        Ok(request.map_or(Outcome::Complete, Outcome::Pending))
    }

    /// Issues an operation of a fence epoch that is folded from here on.
    fn issue_folded(&mut self, port: &mut impl Port, op: &Op, wants_request: bool) -> Outcome {
        let route = self.fold_fence(op.target);
        let answer = port.post(op, self.records.next_ticket());
        if answer == Posted::Complete {
            return Outcome::Complete;
        }
        let route = self.unfold_fence(route);
        let request = self.account_for(route, op, answer, wants_request);
        request.map_or(Outcome::Complete, Outcome::Pending)
    }

    /// The open epoch that covers `target`. Makes a tentative fence epoch real [EP-11].
    fn epoch_covering(&mut self, port: &mut impl Port, target: Rank) -> Result<Key, SyncError> {
        if let Some(epoch) = self.lock_all_open.or(self.access_open) {
            return Ok(epoch);
        }
        if let Some(epoch) = self.peers.of(target).lock_open {
            return Ok(epoch);
        }
        if self.fence_view == FenceView::Dissolved {
            return Err(SyncError::NoAccessEpoch);
        }
        if !self.fence_covers(target) {
            return Err(SyncError::NotLearned);
        }
        let epoch = match self.fence_view {
            FenceView::Real(epoch) => epoch,
            _ => {
                let epoch = self.open(EpochKind::Fence(self.fence_kind()));
                self.fence_view = FenceView::Real(epoch);
                self.ready(port, epoch);
                epoch
            }
        };
        if self.pattern.is_some() {
            self.add_fence_leg(port, epoch, target);
        }
        Ok(epoch)
    }

    /// Records an operation that the transport has not completed. If `answer` is
    /// [`Posted::NoResource`], which also stands for access not granted yet, queues it on its leg.
    /// Returns the request, if one was wanted and the local stage is outstanding.
    fn account_for(
        &mut self,
        route: Route,
        op: &Op,
        answer: Posted,
        wants_request: bool,
    ) -> Option<RequestId> {
        if answer == Posted::Complete {
            return None;
        }
        let (epoch, leg) = (route.epoch, self.leg_of(route));
        let local_done = answer == Posted::Local;
        let request = (wants_request && !local_done).then(|| self.requests.open());
        let entry = &mut self.epochs[epoch];
        entry.outstanding += 1;
        let entry = &mut entry.legs[leg];
        entry.remote += 1;
        entry.local += u32::from(!local_done);
        let (age_local, age_remote) = match &mut entry.ages {
            None => (0, 0),
            Some(ages) => (if local_done { 0 } else { ages[0].issue() }, ages[1].issue()),
        };
        let account = Account {
            epoch: epoch.index,
            place: entry.place,
            age_local,
            age_remote,
            request,
            local_done,
        };
        let record = self.records.insert(op, account);
        if answer == Posted::NoResource {
            self.enqueue(epoch, leg, record);
        }
        request
    }

    /// The leg of the present route, made if there is none.
    fn leg_of(&mut self, route: Route) -> u32 {
        if route.leg != NO_LEG {
            return route.leg;
        }
        let place = self.place(route.epoch, route.target);
        let leg = self.epochs[route.epoch].leg_at(place);
        self.route = Some(Route { leg, to_all: false, ..route });
        leg
    }

    fn enqueue(&mut self, epoch: Key, leg: u32, record: u32) {
        self.records.set_next(record, NIL);
        let entry = &mut self.epochs[epoch].legs[leg];
        if std::mem::take(&mut entry.ordered) {
            self.records.set_ordered(record);
        }
        let tail = std::mem::replace(&mut entry.tail, record);
        if entry.head == NIL {
            entry.head = record;
        } else {
            self.records.set_next(tail, record);
        }
        if entry.granted && !entry.stalled {
            entry.stalled = true;
            self.stalled.push((epoch, leg));
        }
        if let Some(route) = &mut self.route {
            route.direct = false;
        }
    }

    /// Posts the queued operations of a granted leg in order, until the transport has no resource.
    /// Never completes the epoch.
    pub(super) fn post_queued(&mut self, port: &mut impl Port, epoch: Key, leg: u32) {
        loop {
            let entry = &mut self.epochs[epoch].legs[leg];
            debug_assert!(entry.granted);
            let record = entry.head;
            if record == NIL {
                entry.tail = NIL;
                entry.stalled = false;
                return;
            }
            let op = self.records.op(record);
            let answer = match self.records.is_ordered(record) && port.order(op.target).is_err() {
                true => Posted::NoResource,
                false => port.post(&op, Ticket(record)),
            };
            if answer == Posted::NoResource {
                if !entry.stalled {
                    entry.stalled = true;
                    self.stalled.push((epoch, leg));
                }
                return;
            }
            entry.head = self.records.dequeue(record, epoch.index);
            self.state_changes += 1;
            self.route = None;
            match answer {
                Posted::Complete => self.retire_remote(epoch, leg, record),
                Posted::Local => self.retire_local(epoch, leg, record),
                Posted::Pending | Posted::NoResource => {}
            }
        }
    }

    /// Accounts for an operation whose local stage is complete.
    pub(super) fn retire_local(&mut self, epoch: Key, leg: u32, record: u32) {
        let account = self.records.account(record);
        if account.local_done {
            return;
        }
        self.records.set_local_done(record);
        self.requests.complete_opt(account.request);
        let entry = &mut self.epochs[epoch].legs[leg];
        entry.local -= 1;
        if let Some(ages) = &mut entry.ages {
            for flush in ages[0].retire(account.age_local) {
                self.resolve_flush_dependency(flush);
            }
        }
    }

    /// Accounts for an operation whose remote stage is complete, and frees its record.
    pub(super) fn retire_remote(&mut self, epoch: Key, leg: u32, record: u32) {
        self.retire_local(epoch, leg, record);
        let account = self.records.account(record);
        self.records.remove(record);
        let entry = &mut self.epochs[epoch];
        entry.outstanding -= 1;
        let entry = &mut entry.legs[leg];
        entry.remote -= 1;
        if let Some(ages) = &mut entry.ages {
            let satisfied = ages[1].retire(account.age_remote);
            if entry.remote == 0 {
                // No operation is outstanding, so no flush waits here. The next flush that has to
                // wait begins with new ages, in the memory of these.
                self.spare_ages = entry.ages.take().filter(|ages| !ages.iter().any(Ages::is_large));
            }
            for flush in satisfied {
                self.resolve_flush_dependency(flush);
            }
        }
    }

    /// Removes a leg or a lock grant that the flush waits for. The last one completes the flush.
    pub(super) fn resolve_flush_dependency(&mut self, flush: Key) {
        let entry = &mut self.flushes[flush];
        entry.remaining -= 1;
        if entry.remaining == 0 {
            let request = entry.request;
            self.flushes.remove(flush);
            self.requests.complete(request);
        }
    }
}
