//! The state of one window in one process, and queries on it.

use std::collections::VecDeque;

use super::activation::{ClosedEpochs, has_lock_active};
use super::epoch::{Epoch, EpochKind, Leg, LockState};
use super::exclusion::Licensing;
use super::fence::Barrier;
use super::flush::{Ages, Flush};
use super::folded::Folded;
use super::lanes::Lanes;
use super::lock;
use super::lock_ops::PendingLockOps;
use super::matching::Matcher;
use super::notify::Notifications;
use super::pattern::Pattern;
use super::peer::Peers;
use super::port::{Port, Rank, ReorderFlags, RequestId, SyncError, Word};
use super::record::Records;
use super::request::Requests;
use super::slab::{Key, Slab};

/// The fence epoch as the application sees it [EP-11].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FenceView {
    /// No fence was called, or its epoch was dissolved by another opening call.
    Dissolved,
    /// A fence was called; its epoch becomes real at its first operation.
    Tentative,
    /// The epoch has had operations. They are complete, so it has no record.
    Folded,
    /// The epoch has operations.
    Real(Key),
}

impl FenceView {
    /// True if the epoch has had operations, so that a fence must close it.
    #[inline]
    pub(super) fn has_operations(self) -> bool {
        matches!(self, FenceView::Folded | FenceView::Real(_))
    }
}

/// Route of the next operation to `target`, cached until the state changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) target: Rank,
    pub(super) epoch: Key,
    /// [`NO_LEG`] until an operation leaves state there.
    pub(super) leg: u32,
    /// The leg is granted and its queue is empty, so operations go straight to the transport.
    pub(super) direct: bool,
    /// The epoch is a passive-target one.
    pub(super) passive: bool,
    /// Operations to all targets of the window go straight to the transport: it is a granted fence
    /// or lock_all epoch that has no leg yet.
    pub(super) to_all: bool,
    /// The first operation of a fence epoch opens it and makes the route direct.
    pub(super) opens_fence: bool,
}

/// The leg of a [`Route`] to a target to which no operation of the epoch has been outstanding yet.
pub(super) const NO_LEG: u32 = u32::MAX;

impl Route {
    /// The route to a target of the folded epoch. `to_all`: it is a lock_all epoch.
    #[inline(always)]
    pub(super) fn folded(target: Rank, to_all: bool) -> Self {
        let (epoch, leg) = (Key::NONE, NO_LEG);
        Route { target, epoch, leg, direct: true, passive: true, to_all, opens_fence: false }
    }
}

/// One window in one process.
///
/// Call the methods in any order that the standard allows:
/// - opening calls (`post`, `start`, `lock`, `lock_all`) never block; an epoch that cannot take
///   effect yet is recorded [EP-1];
/// - communication calls (`issue`, `issue_request`);
/// - closing calls and flushes (`wait`, `complete`, `fence`, `unlock`, `unlock_all`, `flush`,
///   `flush_local`) return an [`Outcome`](super::Outcome);
/// - `progress`, until the outcomes are complete; then `next_completed`.
///
/// A call that the standard forbids in the present state returns a [`SyncError`](super::SyncError)
/// and changes nothing. Every call takes the window's port, because the engine posts operations and
/// sends signals as soon as they are allowed.
#[derive(Debug)]
pub struct Window {
    pub(super) me: Rank,
    pub(super) size: u32,
    /// The first place of the lane that the application's calls are on; see [`super::lanes`].
    pub(super) lane_base: Rank,
    pub(super) flags: ReorderFlags,

    pub(super) requests: Requests,
    pub(super) records: Records,
    pub(super) epochs: Slab<Epoch>,
    pub(super) flushes: Slab<Flush>,
    /// Ages that were used last, so that a flush seldom allocates.
    pub(super) spare_ages: Option<Box<[Ages; 2]>>,
    pub(super) peers: Peers,

    // The application's view: which epochs are open.
    pub(super) access_open: Option<Key>,
    pub(super) exposure_open: Option<Key>,
    pub(super) lock_all_open: Option<Key>,
    pub(super) locks_open: Vec<Key>,
    pub(super) fence_view: FenceView,
    pub(super) route: Option<Route>,
    /// The window's only epoch, while it needs no record.
    pub(super) folded: Option<Folded>,
    /// `None`: all calls were on lane 0.
    pub(super) lanes: Option<Box<Lanes>>,

    // Order of epochs [EP-4, EP-6, EP-7].
    pub(super) closings: u64,
    pub(super) deferred: VecDeque<Key>,
    pub(super) closed_epochs: ClosedEpochs,
    /// Epochs that the application closed and that are not complete.
    pub(super) closed_incomplete: usize,

    // What sweeps wait for. Each list holds only what a sweep must look at.
    /// Peers whose `Grant` an access epoch waits for, and peers whose `Done` an exposure epoch
    /// waits for. Empty if the port names changes.
    pub(super) word_watch: [Vec<u32>; 2],
    /// Lock epochs whose request has not been made, oldest first: requests leave in the order of
    /// opening [EP-10].
    pub(super) lock_gate: VecDeque<Key>,
    /// Lock and lock_all epochs that sweeps poll, because the port does not report their progress.
    pub(super) lock_watch: Vec<Key>,
    /// Active lock and lock_all epochs whose lock is not held yet.
    pub(super) locks_awaited: u32,
    /// Number of lock and lock_all epochs that are held and still open. The application may need
    /// another lock before it closes them, so a process that has any passes the gate [LK-6].
    pub(super) open_locks_held: u32,
    pub(super) licensing: Licensing,
    pub(super) lock_ops: PendingLockOps,
    /// Fences that were begun, in the units of `Word::Fence`.
    pub(super) fences: u64,
    pub(super) barrier: Option<Barrier>,
    /// The neighbours, if fences wait for neighbours only [FE-3].
    pub(super) pattern: Option<Box<Pattern>>,
    pub(super) notifications: Notifications,
    pub(super) matcher: Matcher,
    /// Legs whose queued operations were refused for lack of resources.
    pub(super) stalled: Vec<(Key, u32)>,
    /// Signals that were refused for lack of resources. Words only rise, so only the latest value
    /// is sent.
    pub(super) unsent: Vec<(u32, Word)>,
    /// An epoch completed: check the deferred epochs again.
    pub(super) recheck: bool,
    /// Counts state changes, to detect a sweep that did nothing.
    pub(super) state_changes: u64,
}

impl Window {
    /// A window of `size` processes, in the process of rank `me`.
    pub fn new(me: Rank, size: u32, flags: ReorderFlags) -> Self {
        assert!(me < size, "rank {me} of {size}");
        Window {
            me,
            size,
            lane_base: 0,
            flags,
            requests: Requests::default(),
            records: Records::new(size),
            epochs: Slab::new(),
            flushes: Slab::new(),
            spare_ages: None,
            peers: Peers::new(),
            access_open: None,
            exposure_open: None,
            lock_all_open: None,
            locks_open: Vec::new(),
            fence_view: FenceView::Dissolved,
            route: None,
            folded: None,
            lanes: None,
            closings: 0,
            deferred: VecDeque::new(),
            closed_epochs: ClosedEpochs::default(),
            closed_incomplete: 0,
            word_watch: Default::default(),
            lock_gate: VecDeque::new(),
            lock_watch: Vec::new(),
            locks_awaited: 0,
            open_locks_held: 0,
            licensing: Licensing::new(),
            lock_ops: PendingLockOps::default(),
            fences: 0,
            barrier: None,
            pattern: None,
            notifications: Notifications::default(),
            matcher: Matcher::default(),
            stalled: Vec::new(),
            unsent: Vec::new(),
            recheck: false,
            state_changes: 0,
        }
    }

    /// Rank of this process.
    pub fn rank(&self) -> Rank {
        self.me
    }

    /// Returns each completed request once, in the order of completion.
    pub fn next_completed(&mut self) -> Option<RequestId> {
        self.requests.next_completed()
    }

    /// True, once, if the operation of this completed request failed.
    #[inline]
    pub fn take_failed(&mut self, request: RequestId) -> bool {
        self.requests.take_failed(request)
    }

    /// True while the request is not complete.
    pub fn is_pending(&self, request: RequestId) -> bool {
        self.requests.is_pending(request)
    }

    /// Requests that were handed out and not yet reported complete.
    pub fn requests_alive(&self) -> u32 {
        self.requests.alive()
    }

    /// True if nothing here needs progress: no deferred or closed epoch, operation, lock request,
    /// flush, signal or expectation.
    pub fn is_quiet(&self) -> bool {
        self.deferred.is_empty()
            && self.closed_incomplete == 0
            && self.records.len() == 0
            && self.locks_awaited == 0
            && self.lock_ops.is_empty()
            && self.unsent.is_empty()
            && self.requests.alive() == 0
            && self.matcher.waiting() == 0
            && self.pattern.as_ref().is_none_or(|pattern| pattern.has_sent_all())
    }

    /// True if the application has a start, post, lock or lock_all epoch open [RQ-5].
    pub fn has_open_epoch(&self) -> bool {
        self.folded.is_some()
            || self.access_open.is_some()
            || self.exposure_open.is_some()
            || self.lock_all_open.is_some()
            || !self.locks_open.is_empty()
    }

    /// True if an open access epoch covers `target`, so that an operation to it is accepted.
    pub fn covers(&self, target: Rank) -> bool {
        self.covering(target).is_ok()
    }

    /// What an operation to `target` returns: an error unless an open access epoch covers it.
    ///
    /// # Errors
    /// As of [`issue`](Self::issue).
    pub fn covering(&self, target: Rank) -> Result<(), SyncError> {
        match () {
            () if self.covers_otherwise(target) => Ok(()),
            () if self.access_open.is_some() || self.fence_view == FenceView::Dissolved => {
                Err(SyncError::NoAccessEpoch)
            }
            () if self.fence_covers(target) => Ok(()),
            () => Err(SyncError::NotLearned),
        }
    }

    /// True if an epoch other than a fence epoch covers `target`.
    pub(super) fn covers_otherwise(&self, target: Rank) -> bool {
        self.covers_passively(target)
            || self.access_open.is_some_and(|epoch| self.epochs[epoch].legs.find(target).is_some())
    }

    /// True if an open lock or lock_all epoch covers `target`.
    pub fn covers_passively(&self, target: Rank) -> bool {
        self.is_folded_over(Some(target))
            || self.lock_all_open.is_some()
            || self.peers.find(target).is_some_and(|peer| peer.lock_open.is_some())
    }

    /// The process that was the last to ask for the lock of `target`, if it still holds the lock or
    /// waits for it. `None` also if the transport cannot tell at once.
    pub fn last_in_queue(&self, port: &mut impl Port, target: Rank) -> Option<Rank> {
        lock::last_in_queue(port, target)
    }

    /// True if the application has `target` locked and the lock is held [EP-1].
    pub fn holds_lock(&self, target: Rank) -> bool {
        if self.folded.is_some() {
            return !self.is_lock_all_folded() && self.is_folded_over(Some(target));
        }
        self.peers
            .find(target)
            .and_then(|peer| peer.lock_open)
            .is_some_and(|epoch| self.epochs[epoch].granted)
    }

    /// True if the application has a lock_all open and it is held.
    pub fn holds_lock_all(&self) -> bool {
        self.is_lock_all_folded()
            || self.lock_all_open.is_some_and(|epoch| self.epochs[epoch].granted)
    }

    /// True if the application has opened a lock or lock_all that is not held yet [EP-10].
    #[inline]
    pub fn awaits_open_lock(&self) -> bool {
        self.lock_all_open.iter().chain(&self.locks_open).any(|epoch| !self.epochs[*epoch].granted)
    }

    /// True if an epoch is deferred.
    pub fn defers(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Number of epochs that are open, deferred or active, for tests and measurements.
    pub fn epochs_pending(&self) -> usize {
        let folded = self.folded.is_some() || self.fence_view == FenceView::Folded;
        self.epochs.len() + usize::from(folded)
    }

    /// Number of processes that this one has had contact with, for tests and measurements.
    pub fn peers_touched(&self) -> usize {
        self.peers.iter().count()
    }

    /// Opens an epoch. The caller fills it in and then calls [`ready`](Self::ready).
    #[inline]
    pub(super) fn open(&mut self, kind: EpochKind) -> Key {
        self.route = None;
        self.epochs.insert(Epoch::new(kind, self.closings))
    }

    /// Activates or defers an epoch that was just opened and filled in.
    #[inline]
    pub(super) fn ready(&mut self, port: &mut impl Port, epoch: Key) {
        if self.closed_incomplete == 0
            && self.deferred.is_empty()
            && self.lock_is_released(epoch)
            && !self.awaits_neighbours(port, epoch)
        {
            // Every earlier epoch is complete or still open, so none blocks this one [EP-6, EP-7].
            self.activate(port, epoch);
        } else {
            self.deferred.push_back(epoch);
            self.recheck = true;
        }
        self.run(port);
    }

    /// True unless an earlier lock epoch on the same target is still releasing [AC-3].
    #[inline]
    fn lock_is_released(&self, epoch: Key) -> bool {
        match self.epochs[epoch].kind {
            EpochKind::Lock { target, .. } => {
                self.lock_ops.is_empty() || !has_lock_active(&self.peers, target)
            }
            _ => true,
        }
    }

    pub(super) fn leg(&mut self, epoch: Key, leg: u32) -> &mut Leg {
        &mut self.epochs[epoch].legs[leg]
    }

    /// True if the lock of this epoch has not been granted.
    pub(super) fn awaits_lock(&self, epoch: Key) -> bool {
        !matches!(self.epochs[epoch].locking, LockState::Held(_) | LockState::Unchecked)
    }
}
