//! Synchronization calls that open epochs or flush. `completion.rs` has those that close epochs.

use smallvec::SmallVec;

use super::epoch::{EpochKind, Leg};
use super::flush::{Ages, Flush};
use super::port::{Assert, LockMode, Outcome, Port, Rank, Stage, SyncError};
use super::slab::Key;
use super::window::{FenceView, Window};

impl Window {
    /// `MPI_Win_post`: opens an exposure epoch to the processes of `group` (distinct ranks).
    ///
    /// # Errors
    /// If an exposure epoch, or a fence epoch with operations, is open.
    pub fn post(
        &mut self,
        port: &mut impl Port,
        group: &[Rank],
        _assert: Assert,
    ) -> Result<(), SyncError> {
        self.unfold();
        if self.exposure_open.is_some() {
            return Err(SyncError::ExposureOpen);
        }
        if self.fence_view.has_operations() {
            return Err(SyncError::FenceOpen);
        }
        // A tentative fence epoch loses its exposure part only. A later operation still makes its
        // access part real [EP-11].
        let epoch = self.open(EpochKind::Exposure);
        self.epochs[epoch].origins = SmallVec::from_slice(group);
        self.exposure_open = Some(epoch);
        self.ready(port, epoch);
        Ok(())
    }

    /// `MPI_Win_start`: opens an access epoch to the processes of `group` (distinct ranks).
    ///
    /// # Errors
    /// If an access, lock or lock_all epoch, or a fence epoch with operations, is open.
    pub fn start(
        &mut self,
        port: &mut impl Port,
        group: &[Rank],
        _assert: Assert,
    ) -> Result<(), SyncError> {
        self.unfold();
        self.no_access_open()?;
        self.fence_view = FenceView::Dissolved;
        let epoch = self.open(EpochKind::Access);
        let legs = &mut self.epochs[epoch].legs;
        for target in group {
            legs.push(Leg::new(*target, false));
        }
        self.access_open = Some(epoch);
        self.ready(port, epoch);
        Ok(())
    }

    /// `MPI_Win_lock`: opens a lock epoch on `target`.
    ///
    /// # Errors
    /// If this process has locked the target, or an access epoch, a lock_all epoch, or a fence
    /// epoch with operations is open.
    pub fn lock(
        &mut self,
        port: &mut impl Port,
        mode: LockMode,
        target: Rank,
        assert: Assert,
    ) -> Result<(), SyncError> {
        if !assert.nocheck && self.lock_folded(port, mode, target) {
            return Ok(());
        }
        self.may_lock(target)?;
        self.fence_view = FenceView::Dissolved;
        let own = target == self.me;
        let epoch = self.open(EpochKind::Lock { target, mode, nocheck: assert.nocheck, own });
        let place = self.place(epoch, target);
        self.epochs[epoch].legs.push(Leg::new(place, false));
        self.locks_open.push(epoch);
        self.peers.of(target).lock_open = Some(epoch);
        self.ready(port, epoch);
        Ok(())
    }

    /// Checks the state as [`lock`](Self::lock) does, and opens nothing.
    ///
    /// # Errors
    /// As of `lock`.
    pub fn may_lock(&mut self, target: Rank) -> Result<(), SyncError> {
        self.unfold();
        if self.lock_all_open.is_some() || self.peers.of(target).lock_open.is_some() {
            return Err(SyncError::AlreadyLocked);
        }
        self.no_group_access_open()
    }

    /// Checks the state as [`lock_all`](Self::lock_all) does, and opens nothing.
    ///
    /// # Errors
    /// As of `lock_all`.
    pub fn may_lock_all(&mut self) -> Result<(), SyncError> {
        if self.joins_lock_all() {
            return Ok(());
        }
        self.unfold();
        if self.lock_all_open.is_some() || !self.locks_open.is_empty() {
            return Err(SyncError::AlreadyLocked);
        }
        self.no_group_access_open()
    }

    /// `MPI_Win_lock_all`: opens a lock_all epoch, or joins the one that was opened on other lanes
    /// [DU-1].
    ///
    /// # Errors
    /// If any access epoch is open, but for a lock_all epoch of other lanes only.
    pub fn lock_all(&mut self, port: &mut impl Port, assert: Assert) -> Result<(), SyncError> {
        if self.joins_lock_all() {
            return self.join_lock_all(assert);
        }
        if !assert.nocheck && self.lock_all_folded(port) {
            self.note_lock_all();
            return Ok(());
        }
        self.may_lock_all()?;
        self.note_lock_all();
        self.fence_view = FenceView::Dissolved;
        let epoch = self.open(EpochKind::LockAll { nocheck: assert.nocheck });
        self.lock_all_open = Some(epoch);
        self.ready(port, epoch);
        Ok(())
    }

    /// `MPI_Win_flush`, or `MPI_Win_flush_all` for `None`. Completes when all older operations are
    /// complete at their targets, and never before the lock is held [FL-1, EP-1].
    ///
    /// # Errors
    /// If no passive-target epoch covers the target (for `None`: none is open).
    pub fn flush(
        &mut self,
        port: &mut impl Port,
        target: Option<Rank>,
    ) -> Result<Outcome, SyncError> {
        self.flush_stage(port, target, Stage::Remote)
    }

    /// Checks the state as [`flush`](Self::flush) does, and flushes nothing.
    ///
    /// # Errors
    /// As of `flush`.
    pub fn may_flush(&self, target: Option<Rank>) -> Result<(), SyncError> {
        let covers = match target {
            Some(target) => self.covers_passively(target),
            None => {
                self.is_folded_over(None)
                    || self.lock_all_open.is_some()
                    || !self.locks_open.is_empty()
            }
        };
        if covers { Ok(()) } else { Err(SyncError::NoPassiveEpoch) }
    }

    /// `MPI_Win_flush_local`, or `MPI_Win_flush_local_all` for `None`: as [`flush`](Self::flush),
    /// but waits only for completion at the origin.
    ///
    /// # Errors
    /// If no passive-target epoch covers the target (for `None`: none is open).
    pub fn flush_local(
        &mut self,
        port: &mut impl Port,
        target: Option<Rank>,
    ) -> Result<Outcome, SyncError> {
        self.flush_stage(port, target, Stage::Local)
    }

    fn no_group_access_open(&self) -> Result<(), SyncError> {
        if self.access_open.is_some() {
            return Err(SyncError::AccessOpen);
        }
        if self.fence_view.has_operations() {
            return Err(SyncError::FenceOpen);
        }
        Ok(())
    }

    fn no_access_open(&self) -> Result<(), SyncError> {
        if self.lock_all_open.is_some() || !self.locks_open.is_empty() {
            return Err(SyncError::AccessOpen);
        }
        self.no_group_access_open()
    }

    pub(super) fn flush_stage(
        &mut self,
        port: &mut impl Port,
        target: Option<Rank>,
        stage: Stage,
    ) -> Result<Outcome, SyncError> {
        if self.is_folded_over(target) {
            return Ok(Outcome::Complete);
        }
        self.unfold();
        let single = self.lock_all_open.or_else(|| self.peers.find(target?)?.lock_open);
        if single.is_some_and(|epoch| self.epochs[epoch].has_nothing_outstanding()) {
            return Ok(Outcome::Complete);
        }
        if self.has_operations() || self.locks_awaited > 0 {
            self.progress(port);
        }
        let covering: SmallVec<[Key; 4]> = match (self.lock_all_open, target) {
            (Some(epoch), _) => SmallVec::from_slice(&[epoch]),
            (None, Some(target)) => self.peers.of(target).lock_open.into_iter().collect(),
            (None, None) => SmallVec::from_slice(&self.locks_open),
        };
        if covering.is_empty() {
            return Err(SyncError::NoPassiveEpoch);
        }
        let mut waiting: Option<Key> = None;
        for epoch in covering {
            if self.awaits_lock(epoch) {
                let flush = self.add_flush_dependency(&mut waiting);
                self.epochs[epoch].flushes_for_grant.push(flush);
            }
            for leg in self.legs_to(epoch, target) {
                if self.is_of_lane(epoch, leg) {
                    self.stamp(epoch, leg, stage, &mut waiting);
                }
            }
        }
        Ok(waiting.map_or(Outcome::Complete, |flush| Outcome::Pending(self.flushes[flush].request)))
    }

    /// Makes the flush wait for one more leg or lock grant. The first one creates the flush.
    fn add_flush_dependency(&mut self, flush: &mut Option<Key>) -> Key {
        let key = *flush.get_or_insert_with(|| {
            let request = self.requests.open();
            self.flushes.insert(Flush { request, remaining: 0 })
        });
        self.flushes[key].remaining += 1;
        key
    }

    /// Makes the flush wait for the leg's outstanding operations, if there are any.
    fn stamp(&mut self, epoch: Key, leg: u32, stage: Stage, flush: &mut Option<Key>) {
        let Leg { local, remote, .. } = self.epochs[epoch].legs[leg];
        let outstanding = [local, remote];
        if outstanding[stage as usize] == 0 {
            return;
        }
        let flush = self.add_flush_dependency(flush);
        let ages = &mut self.epochs[epoch].legs[leg].ages;
        let ages = ages.get_or_insert_with(|| match self.spare_ages.take() {
            Some(mut spare) => {
                spare.iter_mut().zip(outstanding).for_each(|(ages, count)| ages.renew(count));
                spare
            }
            None => Box::new(outstanding.map(Ages::new)),
        });
        ages[stage as usize].stamp(flush);
    }
}
