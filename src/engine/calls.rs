//! Synchronization calls: opening, closing and flushing epochs.

use smallvec::SmallVec;

use super::activation::ReorderClass;
use super::epoch::{EpochKind, EpochState, Leg};
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
        if matches!(self.fence_view, FenceView::Real(_)) {
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
        self.unfold();
        if self.lock_all_open.is_some() || self.peers.of(target).lock_open.is_some() {
            return Err(SyncError::AlreadyLocked);
        }
        self.no_group_access_open()?;
        self.fence_view = FenceView::Dissolved;
        let own = target == self.me;
        let epoch = self.open(EpochKind::Lock { target, mode, nocheck: assert.nocheck, own });
        self.epochs[epoch].legs.push(Leg::new(target, false));
        self.locks_open.push(epoch);
        self.peers.of(target).lock_open = Some(epoch);
        self.ready(port, epoch);
        Ok(())
    }

    /// `MPI_Win_lock_all`: opens a lock_all epoch.
    ///
    /// # Errors
    /// If any access epoch is open.
    pub fn lock_all(&mut self, port: &mut impl Port, assert: Assert) -> Result<(), SyncError> {
        if !assert.nocheck && self.lock_all_folded(port) {
            return Ok(());
        }
        self.unfold();
        if self.lock_all_open.is_some() || !self.locks_open.is_empty() {
            return Err(SyncError::AlreadyLocked);
        }
        self.no_group_access_open()?;
        self.fence_view = FenceView::Dissolved;
        let epoch = self.open(EpochKind::LockAll { nocheck: assert.nocheck });
        self.lock_all_open = Some(epoch);
        self.ready(port, epoch);
        Ok(())
    }

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
    /// process has called the fence [EP-5, FE-1].
    ///
    /// # Errors
    /// If an access, exposure, lock or lock_all epoch is open.
    pub fn fence(&mut self, port: &mut impl Port, assert: Assert) -> Result<Outcome, SyncError> {
        self.unfold();
        if self.exposure_open.is_some() {
            return Err(SyncError::ExposureOpen);
        }
        if self.access_open.is_some() || self.lock_all_open.is_some() || !self.locks_open.is_empty()
        {
            return Err(SyncError::AccessOpen);
        }
        let epoch = match self.fence_view {
            FenceView::Real(epoch) => epoch,
            // No operation has made the epoch real: open one for its barrier alone.
            FenceView::Tentative | FenceView::Dissolved => {
                let epoch = self.open(EpochKind::Fence);
                self.ready(port, epoch);
                epoch
            }
        };
        self.fence_view =
            if assert.nosucceed { FenceView::Dissolved } else { FenceView::Tentative };
        Ok(self.close(port, epoch))
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

    /// `MPI_Win_unlock_all`: closes the lock_all epoch.
    ///
    /// # Errors
    /// If no lock_all epoch is open.
    pub fn unlock_all(&mut self, port: &mut impl Port) -> Result<Outcome, SyncError> {
        if self.unlock_all_folded(port) {
            return Ok(Outcome::Complete);
        }
        self.unfold();
        let epoch = self.lock_all_open.take().ok_or(SyncError::NotLocked)?;
        Ok(self.close(port, epoch))
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
        match self.fence_view {
            FenceView::Real(_) => Err(SyncError::FenceOpen),
            FenceView::Tentative | FenceView::Dissolved => Ok(()),
        }
    }

    fn no_access_open(&self) -> Result<(), SyncError> {
        if self.lock_all_open.is_some() || !self.locks_open.is_empty() {
            return Err(SyncError::AccessOpen);
        }
        self.no_group_access_open()
    }

    /// Closes an epoch. Makes a request unless the epoch completes at once.
    fn close(&mut self, port: &mut impl Port, epoch: Key) -> Outcome {
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

    fn flush_stage(
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
            let legs = match target {
                Some(target) => {
                    self.epochs[epoch].legs.find(target).map_or(0..0, |leg| leg..leg + 1)
                }
                None => 0..self.epochs[epoch].legs.len(),
            };
            for leg in legs {
                self.stamp(epoch, leg, stage, &mut waiting);
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
