//! Closing calls, and the activation and completion of each kind of epoch.

use super::activation::{ReorderClass, may_activate};
use super::epoch::{EpochKind, EpochState, LockState};
use super::fence::{Barrier, FenceKind};
use super::peer::{Waiter, shrink};
use super::port::{Assert, Outcome, Port, Rank, RequestId, SyncError, Word};
use super::record::NIL;
use super::slab::Key;
use super::window::{FenceView, Window};

impl Window {
    /// `MPI_Win_complete`: closes the access epoch. The request completes when every operation of
    /// the epoch is complete and every done has been sent.
    ///
    /// # Errors
    /// If no access epoch is open.
    pub fn complete(&mut self, port: &mut impl Port) -> Result<Outcome, SyncError> {
        let epoch = self.access_open.take().ok_or(SyncError::NotStarted)?;
        Ok(self.close(port, epoch))
    }

    /// `MPI_Win_wait`: closes the exposure epoch. The request completes when every origin is done.
    ///
    /// # Errors
    /// If no exposure epoch is open.
    pub fn wait(&mut self, port: &mut impl Port) -> Result<Outcome, SyncError> {
        let epoch = self.exposure_open.take().ok_or(SyncError::NotPosted)?;
        Ok(self.close(port, epoch))
    }

    /// `MPI_Win_test`: closes the exposure epoch if every origin is done. Otherwise returns false
    /// and leaves it open, as for a deferred epoch [RQ-4].
    ///
    /// # Errors
    /// If no exposure epoch is open. One that was closed by `wait` is not open.
    pub fn test(&mut self, port: &mut impl Port) -> Result<bool, SyncError> {
        let epoch = self.exposure_open.ok_or(SyncError::NotPosted)?;
        self.progress(port);
        let entry = &self.epochs[epoch];
        if entry.state == EpochState::Deferred || entry.awaited > 0 {
            return Ok(false);
        }
        self.exposure_open = None;
        let outcome = self.close(port, epoch);
        debug_assert_eq!(outcome, Outcome::Complete);
        Ok(true)
    }

    /// `MPI_Win_fence`: closes the current fence epoch, if any, and opens the next one tentatively
    /// [EP-11]. The request completes when the operations of this process are complete and every
    /// process has called the fence [EP-5, FE-1]; with a pattern, every learned origin [FE-3].
    ///
    /// # Errors
    /// If an access, exposure, lock or lock_all epoch is open.
    pub fn fence(&mut self, port: &mut impl Port, assert: Assert) -> Result<Outcome, SyncError> {
        self.fence_patiently(port, assert, || false)
    }

    /// As [`fence`](Self::fence), for a call that waits: polls the words of peers as long as
    /// `waits` returns true, since a fence that completes meanwhile needs no request.
    ///
    /// # Errors
    /// As of `fence`.
    #[inline]
    pub fn fence_patiently(
        &mut self,
        port: &mut impl Port,
        assert: Assert,
        waits: impl FnMut() -> bool,
    ) -> Result<Outcome, SyncError> {
        let kind = self.closing_kind(assert);
        if kind != FenceKind::Learns && self.has_room_for_fence() {
            return Ok(self.close_folded_fence(port, kind, assert, waits));
        }
        self.fence_regularly(port, assert)
    }

    fn fence_regularly(
        &mut self,
        port: &mut impl Port,
        assert: Assert,
    ) -> Result<Outcome, SyncError> {
        self.unfold();
        if self.exposure_open.is_some() {
            return Err(SyncError::ExposureOpen);
        }
        if self.access_open.is_some() || self.lock_all_open.is_some() || !self.locks_open.is_empty()
        {
            return Err(SyncError::AccessOpen);
        }
        let kind = self.closing_kind(assert);
        let opened = match self.fence_view {
            FenceView::Real(epoch) => {
                self.epochs[epoch].kind = EpochKind::Fence(kind);
                epoch
            }
            // No operation is incomplete: open an epoch for its barrier alone.
            FenceView::Tentative | FenceView::Folded | FenceView::Dissolved => {
                let epoch = self.open(EpochKind::Fence(kind));
                self.ready(port, epoch);
                epoch
            }
        };
        self.fence_view = FenceView::after_fence(assert);
        if self.pattern.is_some() {
            self.fence_called(Some(opened), kind, assert);
        }
        Ok(self.close(port, opened))
    }

    /// `MPI_Win_unlock`: closes the lock epoch. The request completes when the operations are
    /// complete at the target and the lock is released.
    ///
    /// # Errors
    /// If this process has not locked the target.
    pub fn unlock(&mut self, port: &mut impl Port, target: Rank) -> Result<Outcome, SyncError> {
        if self.unlock_folded(port, target) {
            return Ok(Outcome::Complete);
        }
        self.unfold();
        let epoch = self.peers.of(target).lock_open.take().ok_or(SyncError::NotLocked)?;
        let at =
            self.locks_open.iter().position(|open| *open == epoch).expect("an open lock is listed");
        self.locks_open.swap_remove(at);
        Ok(self.close(port, epoch))
    }

    /// `MPI_Win_unlock_all`: closes the lock_all epoch, or leaves it to other lanes [DU-1].
    ///
    /// # Errors
    /// If no lock_all epoch is open.
    pub fn unlock_all(&mut self, port: &mut impl Port) -> Result<Outcome, SyncError> {
        if self.lanes.is_some()
            && let Some(outcome) = self.leave_lock_all(port)?
        {
            return Ok(outcome);
        }
        if self.unlock_all_folded(port) {
            return Ok(Outcome::Complete);
        }
        self.unfold();
        let epoch = self.lock_all_open.take().ok_or(SyncError::NotLocked)?;
        Ok(self.close(port, epoch))
    }

    /// Closes an epoch. Makes a request unless the epoch completes at once.
    pub(super) fn close(&mut self, port: &mut impl Port, epoch: Key) -> Outcome {
        self.route = None;
        self.closings += 1;
        self.closed_incomplete += 1;
        let entry = &mut self.epochs[epoch];
        entry.closed = true;
        if entry.granted && entry.is_passive() {
            self.open_locks_held -= 1;
        }
        self.try_complete(port, epoch);
        if let Some(entry) = self.epochs.get(epoch) {
            self.closed_epochs.close(ReorderClass::of(entry.kind), self.closings, epoch);
        }
        self.run(port);
        match self.epochs.get_mut(epoch) {
            None => Outcome::Complete,
            Some(entry) => {
                let request = self.requests.open();
                entry.request = Some(request);
                Outcome::Pending(request)
            }
        }
    }

    /// The call that has just closed an epoch, with this request, returns only when it is complete.
    /// So epochs that other threads open meanwhile overlap it, and do not wait for it [EP-7].
    #[cold]
    pub fn overlap_closing(&mut self, request: RequestId) {
        let epochs = &self.epochs;
        let asked = |epoch| epochs.get(epoch).is_some_and(|entry| entry.request == Some(request));
        self.closed_epochs.forget(self.closings, asked);
    }

    /// Activates deferred epochs in order, up to the first that is blocked [EP-4]. Repeats while
    /// activation completes epochs.
    #[inline]
    pub(super) fn run(&mut self, port: &mut impl Port) {
        if self.recheck {
            self.run_deferred(port);
        }
    }

    fn run_deferred(&mut self, port: &mut impl Port) {
        while std::mem::take(&mut self.recheck) {
            while let Some(&epoch) = self.deferred.front() {
                self.closed_epochs.drop_completed(&self.epochs);
                let entry = &self.epochs[epoch];
                if may_activate(entry, &self.closed_epochs, &self.peers, self.flags).is_err()
                    || self.awaits_neighbours(port, epoch)
                {
                    break;
                }
                self.deferred.pop_front();
                self.activate(port, epoch);
            }
            shrink(&mut self.deferred);
        }
    }

    /// Activates an epoch and replays its recorded calls, the closing call included.
    pub(super) fn activate(&mut self, port: &mut impl Port, epoch: Key) {
        self.state_changes += 1;
        let entry = &mut self.epochs[epoch];
        debug_assert_eq!(entry.state, EpochState::Deferred);
        entry.state = EpochState::Active;
        match entry.kind {
            EpochKind::Access => self.activate_access(port, epoch),
            EpochKind::Exposure => self.activate_exposure(port, epoch),
            EpochKind::Fence(FenceKind::Neighbours) => self.activate_by_neighbours(port, epoch),
            EpochKind::Fence(_) => self.grant(port, epoch),
            EpochKind::Lock { target, nocheck, .. } => {
                self.peers.of(target).lock_active = Some(epoch);
                if nocheck {
                    entry.locking = LockState::Unchecked;
                    self.grant(port, epoch);
                } else {
                    self.request_lock(port, epoch);
                }
            }
            EpochKind::LockAll { nocheck: true } => {
                entry.locking = LockState::Unchecked;
                self.grant(port, epoch);
            }
            EpochKind::LockAll { nocheck: false } => self.request_lock_all(port, epoch),
        }
        if self.epochs.get(epoch).is_some_and(|entry| entry.closed) {
            self.try_complete(port, epoch);
        }
    }

    /// `A_i = ++a` for each target; access i may proceed iff `A_i <= g` [MA-1], with `NOCHECK` too
    /// [MA-3]. So accesses match exposures in order [EP-3].
    fn activate_access(&mut self, port: &mut impl Port, epoch: Key) {
        let legs = self.epochs[epoch].legs.len();
        self.epochs[epoch].awaited = legs;
        for leg in 0..legs {
            let target = self.leg(epoch, leg).place;
            let index = self.peers.index(target);
            self.peers[index].accesses += 1;
            let access = self.peers[index].accesses;
            let granted = self.has_reached(port, index, Word::Grant, access, epoch);
            let entry = self.leg(epoch, leg);
            entry.access = access;
            entry.granted = granted;
            if granted {
                self.post_queued(port, epoch, leg);
            }
        }
    }

    /// `e_i = ++e` for each origin, stored one-sidedly as the origin's `g` [MA-1].
    fn activate_exposure(&mut self, port: &mut impl Port, epoch: Key) {
        let origins = std::mem::take(&mut self.epochs[epoch].origins);
        for &origin in &origins {
            let index = self.peers.index(origin);
            self.peers[index].exposures += 1;
            self.signal(port, index, Word::Grant);
        }
        self.await_dones(port, epoch, &origins);
    }

    /// Has an exposure epoch, whose grants have been sent, wait for its origins.
    pub(super) fn await_dones(&mut self, port: &mut impl Port, epoch: Key, origins: &[Rank]) {
        self.epochs[epoch].awaited = origins.len() as u32;
        for &origin in origins {
            let index = self.peers.index(origin);
            let exposure = self.peers[index].exposures;
            if self.has_reached(port, index, Word::Done, exposure, epoch) {
                self.epochs[epoch].awaited -= 1;
            }
        }
    }

    /// True if `word` of the peer has reached `value`. Otherwise `epoch` now waits for it.
    #[inline(always)]
    pub(super) fn has_reached<P: Port>(
        &mut self,
        port: &mut P,
        index: u32,
        word: Word,
        value: u64,
        epoch: Key,
    ) -> bool {
        let peer = &mut self.peers[index];
        let awaited = &mut peer.words[word as usize];
        if awaited.seen < value {
            awaited.seen = port.observe(peer.rank, word);
        }
        let reached = value <= awaited.seen;
        if !reached {
            if !P::NAMES_CHANGES && awaited.waiters.is_empty() {
                self.word_watch[word as usize].push(index);
            }
            awaited.waiters.push_back(Waiter { value, epoch });
        }
        reached
    }

    /// Lets a fence, lock or lock_all epoch post its operations.
    pub(super) fn grant(&mut self, port: &mut impl Port, epoch: Key) {
        self.state_changes += 1;
        self.route = None;
        let entry = &mut self.epochs[epoch];
        entry.granted = true;
        if entry.is_passive() && !entry.closed {
            self.open_locks_held += 1;
        }
        if !entry.flushes_for_grant.is_empty() {
            for flush in std::mem::take(&mut entry.flushes_for_grant) {
                self.resolve_flush_dependency(flush);
            }
        }
        for leg in 0..self.epochs[epoch].legs.len() {
            self.leg(epoch, leg).granted = true;
            self.post_queued(port, epoch, leg);
        }
    }

    /// Lets one leg of an access epoch post its operations: its target has granted access.
    pub(super) fn grant_leg(&mut self, port: &mut impl Port, epoch: Key, target: Rank) {
        // An epoch without operations to this target may have ended already: its done needs no
        // grant.
        let Some(leg) = self.epochs.get(epoch).and_then(|entry| entry.legs.find(target)) else {
            return;
        };
        self.state_changes += 1;
        self.route = None;
        self.leg(epoch, leg).granted = true;
        self.post_queued(port, epoch, leg);
        self.try_finish_leg(port, epoch, leg);
    }

    /// Moves a closed epoch as far towards completion as possible.
    pub(super) fn try_complete(&mut self, port: &mut impl Port, epoch: Key) {
        let entry = &self.epochs[epoch];
        debug_assert!(entry.closed);
        if entry.state == EpochState::Deferred {
            return;
        }
        match entry.kind {
            EpochKind::Access if entry.awaited == 0 => self.end_access(epoch),
            EpochKind::Access => {
                for leg in 0..entry.legs.len() {
                    if self.epochs.get(epoch).is_some() {
                        self.try_finish_leg(port, epoch, leg);
                    }
                }
            }
            EpochKind::Exposure if entry.awaited == 0 => self.end_epoch(epoch),
            EpochKind::Lock { .. } | EpochKind::LockAll { .. }
                if entry.granted && entry.outstanding == 0 =>
            {
                self.unlock_now(port, epoch);
                self.end_epoch(epoch);
            }
            EpochKind::Fence(FenceKind::Neighbours) => self.close_by_neighbours(port, epoch),
            EpochKind::Fence(kind) if entry.outstanding == 0 => {
                debug_assert!(self.barrier.is_none(), "fence epochs complete one by one");
                let hop = self.count_fence();
                if kind == FenceKind::Learns {
                    self.begin_marks(port, epoch, hop);
                } else {
                    self.barrier = Some(Barrier::new(epoch, hop));
                    self.advance_barrier(port);
                }
            }
            _ => {}
        }
    }

    /// Sends the done of a leg, or completes the epoch, if the operations to its target allow it.
    pub(super) fn try_finish_leg<P: Port>(&mut self, port: &mut P, epoch: Key, leg: u32) {
        let entry = &mut self.epochs[epoch];
        if !entry.closed || entry.state == EpochState::Deferred {
            return;
        }
        if entry.kind != EpochKind::Access {
            let by_neighbours = entry.kind == EpochKind::Fence(FenceKind::Neighbours);
            if entry.outstanding == 0 || by_neighbours && entry.legs[leg].remote == 0 {
                self.try_complete(port, epoch);
            }
            return;
        }
        let leg = &mut entry.legs[leg];
        if leg.finished {
            return self.end_access(epoch);
        }
        // [PR-3]: a target does not wait for the epoch's other targets. Nor does its done wait for
        // its transfers where it cannot overtake them.
        if if port.signals_follow(leg.place) { leg.head != NIL } else { leg.remote > 0 } {
            return;
        }
        leg.finished = true;
        let (target, access) = (leg.place, leg.access);
        self.send_done(port, target, access, epoch);
    }

    /// Sends the done of an access. Dones of one pair leave in order, as one rising word [MA-2].
    fn send_done(&mut self, port: &mut impl Port, target: Rank, access: u64, epoch: Key) {
        let index = self.peers.index(target);
        let peer = &mut self.peers[index];
        let in_order = access == peer.done + 1;
        if in_order {
            peer.done = access;
            while peer.dones_held.contains_key(&(peer.done + 1)) {
                peer.done += 1;
            }
        }
        if in_order && self.signal(port, index, Word::Done) {
            self.done_left(epoch);
        } else {
            self.peers[index].dones_held.insert(access, epoch);
        }
    }

    /// Counts a done of an access epoch that has been sent.
    fn done_left(&mut self, epoch: Key) {
        self.epochs[epoch].awaited -= 1;
        self.end_access(epoch);
    }

    /// Ends a closed access epoch once its dones are sent and its operations are complete.
    fn end_access(&mut self, epoch: Key) {
        let entry = &self.epochs[epoch];
        if entry.awaited == 0 && entry.outstanding == 0 {
            self.end_epoch(epoch);
        }
    }

    /// Sends the current value of a word. False if there was no resource: a later sweep then sends
    /// the value of that time.
    pub(super) fn signal(&mut self, port: &mut impl Port, index: u32, word: Word) -> bool {
        let peer = &mut self.peers[index];
        let value = match word {
            Word::Grant => peer.exposures,
            Word::Done => peer.done,
            Word::Fence => unreachable!("the barrier sends its own word"),
        };
        if peer.unsent[word as usize] {
            // An earlier value was refused. The sweep that retries it sends this value instead.
            return false;
        }
        if port.signal(peer.rank, word, value).is_err() {
            peer.unsent[word as usize] = true;
            self.unsent.push((index, word));
            return false;
        }
        if word == Word::Done && !peer.dones_held.is_empty() {
            let later = peer.dones_held.split_off(&(value + 1));
            for epoch in std::mem::replace(&mut peer.dones_held, later).into_values() {
                self.done_left(epoch);
            }
        }
        true
    }

    pub(super) fn advance_barrier(&mut self, port: &mut impl Port) {
        let pattern = self.pattern.as_deref();
        let marks = |to, hop| pattern.map_or(0, |pattern| pattern.marks_to(to, hop));
        if let Some(barrier) = &mut self.barrier
            && barrier.advance(port, self.me, self.size, marks)
        {
            let epoch = barrier.epoch;
            self.barrier = None;
            if self.pattern.is_some() {
                self.barrier_passed();
            }
            self.end_epoch(epoch);
        }
    }

    /// Ends a closed epoch that is complete.
    pub(super) fn end_epoch(&mut self, epoch: Key) {
        let entry = &self.epochs[epoch];
        debug_assert!(entry.closed && entry.outstanding == 0 && entry.flushes_for_grant.is_empty());
        self.requests.complete_opt(entry.request);
        self.epochs.remove(epoch);
        self.closed_incomplete -= 1;
        if self.closed_incomplete == 0 {
            self.closed_epochs.clear();
        }
        self.recheck = !self.deferred.is_empty();
        self.state_changes += 1;
    }
}
