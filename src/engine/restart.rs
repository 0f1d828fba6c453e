//! Persistent epochs: the calls of an epoch as data, which a caller keeps and makes again.
//!
//! The caller records the calls of one or more epochs. A [`Rehearsal`] checks their order once, as
//! the calls would be checked, since it is a window of its own whose peers never answer. To restart
//! the epochs, the caller asks [`may_restart`](Window::may_restart), which compares them with what
//! the application has open, and then makes the calls [PE-1, PE-2].
//!
//! Operations before the first of these calls belong to the fence epoch that is open at the start.

use super::port::{
    Answer, Assert, Atomic, LockMemory, LockMode, LockTicket, LockWord, NoResource, Op, Outcome,
    Port, Posted, Rank, ReorderFlags, Stage, SyncError, Ticket, Word,
};
use super::window::{FenceView, Window};

/// A call that opens or closes an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncCall {
    /// [`Window::post`] to this group.
    Post(Box<[Rank]>),
    /// [`Window::wait`]
    Wait,
    /// [`Window::start`] to this group.
    Start(Box<[Rank]>),
    /// [`Window::complete`]
    Complete,
    /// [`Window::fence`]
    Fence(Assert),
    /// [`Window::lock`]
    Lock(LockMode, Rank, Assert),
    /// [`Window::unlock`]
    Unlock(Rank),
    /// [`Window::lock_all`]
    LockAll(Assert),
    /// [`Window::unlock_all`]
    UnlockAll,
}

/// What recorded calls do in fence epochs, for [`Window::may_make_fences`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFences {
    /// A fence with this assertion.
    Fence(Assert),
    /// An operation to this target.
    Access(Rank),
}

impl Window {
    /// Makes a call that opens or closes an epoch. A call that only opens one is complete.
    ///
    /// # Errors
    /// As of the call.
    #[inline]
    pub fn synchronize(
        &mut self,
        port: &mut impl Port,
        call: &SyncCall,
    ) -> Result<Outcome, SyncError> {
        match call {
            SyncCall::Post(group) => self.post(port, group, Assert::default())?,
            SyncCall::Start(group) => self.start(port, group, Assert::default())?,
            SyncCall::Lock(mode, target, assert) => self.lock(port, *mode, *target, *assert)?,
            SyncCall::LockAll(assert) => self.lock_all(port, *assert)?,
            SyncCall::Wait => return self.wait(port),
            SyncCall::Complete => return self.complete(port),
            SyncCall::Fence(assert) => return self.fence(port, *assert),
            SyncCall::Unlock(target) => return self.unlock(port, *target),
            SyncCall::UnlockAll => return self.unlock_all(port),
        }
        Ok(Outcome::Complete)
    }

    /// Whether the application has no epoch open that could conflict with a restarted one. A fence
    /// epoch without operations conflicts with none.
    #[inline]
    pub fn has_nothing_open(&self) -> bool {
        !self.has_open_epoch() && !self.fence_view.has_operations()
    }

    /// Checks that the epochs that a [`Rehearsal`] has accepted may be opened beside those that the
    /// application has open. `in_fence`: operations precede these calls. Changes nothing [PE-2].
    ///
    /// # Errors
    /// As the first of these calls that the state forbids; [`SyncError::NoFenceEpoch`] for
    /// operations before them without a fence epoch.
    pub fn may_restart<'a>(
        &mut self,
        in_fence: bool,
        calls: impl Iterator<Item = &'a SyncCall>,
    ) -> Result<(), SyncError> {
        if in_fence && self.fence_view == FenceView::Dissolved {
            return Err(SyncError::NoFenceEpoch);
        }
        if self.has_nothing_open() {
            return Ok(());
        }
        self.unfold();
        // The first fence of the record closes it.
        let mut fence_open = self.fence_view.has_operations();
        for call in calls {
            self.may_open_beside(call, fence_open)?;
            fence_open &= !matches!(call, SyncCall::Fence(_));
        }
        Ok(())
    }

    fn may_open_beside(&self, call: &SyncCall, fence_open: bool) -> Result<(), SyncError> {
        let locks_open = self.lock_all_open.is_some() || !self.locks_open.is_empty();
        let access_open = self.access_open.is_some();
        let no_access_but = |conflict: bool, error| match () {
            () if conflict => Err(error),
            () if access_open => Err(SyncError::AccessOpen),
            () if fence_open => Err(SyncError::FenceOpen),
            () => Ok(()),
        };
        match call {
            SyncCall::Post(_) if self.exposure_open.is_some() => Err(SyncError::ExposureOpen),
            SyncCall::Post(_) if fence_open => Err(SyncError::FenceOpen),
            SyncCall::Start(_) => no_access_but(locks_open, SyncError::AccessOpen),
            SyncCall::Lock(_, target, _) => {
                let locked = self.peers.find(*target).is_some_and(|peer| peer.lock_open.is_some());
                no_access_but(locked || self.lock_all_open.is_some(), SyncError::AlreadyLocked)
            }
            SyncCall::LockAll(_) => no_access_but(locks_open, SyncError::AlreadyLocked),
            SyncCall::Fence(_) if self.exposure_open.is_some() => Err(SyncError::ExposureOpen),
            SyncCall::Fence(_) if access_open || locks_open => Err(SyncError::AccessOpen),
            _ => Ok(()),
        }
    }
}

/// Checks the order of calls that are recorded for a persistent epoch [PE-1].
#[derive(Debug)]
pub struct Rehearsal {
    window: Window,
    /// Nothing has been rehearsed.
    is_empty: bool,
}

impl Rehearsal {
    /// For calls of process `me` of `size`.
    pub fn new(me: Rank, size: u32) -> Self {
        Rehearsal { window: Window::new(me, size, ReorderFlags::default()), is_empty: true }
    }

    /// Checks a call that opens or closes an epoch.
    ///
    /// # Errors
    /// As of the call.
    pub fn synchronize(&mut self, call: &SyncCall) -> Result<(), SyncError> {
        self.window.synchronize(&mut Silent, call).map(|_| self.is_empty = false)
    }

    /// Checks an operation. If it is the first call, a fence epoch is open.
    ///
    /// # Errors
    /// If no epoch covers the target.
    pub fn issue(&mut self, op: &Op) -> Result<(), SyncError> {
        if std::mem::take(&mut self.is_empty) {
            _ = self.window.fence(&mut Silent, Assert::default())?;
        }
        self.window.issue(&mut Silent, op)
    }

    /// Whether [`issue`](Self::issue) would accept an operation to `target`.
    pub fn covers(&self, target: Rank) -> bool {
        self.is_empty || self.window.covers(target)
    }

    /// Whether the epoch that covers `target` is a fence epoch.
    pub fn covers_by_fence(&self, target: Rank) -> bool {
        self.window.covers(target) && !self.window.covers_otherwise(target)
    }

    /// Whether each epoch that was opened has been closed.
    pub fn is_closed(&self) -> bool {
        self.window.has_nothing_open()
    }
}

/// A transport whose peers never answer.
struct Silent;

impl LockMemory for Silent {
    fn atomic(&mut self, _: Rank, _: LockWord, _: Atomic, _: LockTicket) -> Answer {
        Answer::NoResource
    }
    fn look(&mut self, _: LockWord) -> u64 {
        0
    }
}

impl Port for Silent {
    fn post(&mut self, _: &Op, _: Ticket) -> Posted {
        Posted::NoResource
    }
    fn signal(&mut self, _: Rank, _: Word, _: u64) -> Result<(), NoResource> {
        Err(NoResource)
    }
    fn observe(&mut self, _: Rank, _: Word) -> u64 {
        0
    }
    fn poll(&mut self) -> bool {
        false
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        None
    }
}
