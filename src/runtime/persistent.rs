//! Persistent requests: those that wait for tagged notifications, those of persistent epochs and
//! operations, those of persistent collectives, and continuation requests.
//!
//! The application holds a request of the host as a token, which is never started. The library
//! answers completion calls on it (`mpi/request/persistent`). This is the table of these requests
//! by handle. While it is empty, completion calls skip it.

use std::cell::Cell;
use std::ffi::c_int;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;

use super::collectives::{self, CollectiveFailure, CollectiveState};
use super::continuations::{self, GroupId, GroupState, any_groups};
use super::recorded::{Kept, Recorded, Recorder};
use super::registry::{HandleHasher, NO_HANDLE, Registry, WindowId};
use super::transport::with_port;
use super::window::{HostHandle, Window};
use crate::engine::slab::{Key, Slab};
use crate::engine::{Arrival, ExpectationId, ExpectationState, Rank, SyncError};

/// Number of requests in the table, for readers without the guard.
static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// True if there is no such request in this process, nor one that was freed and has continuations
/// that have not ended.
#[inline(always)]
pub(crate) fn none_known() -> bool {
    KNOWN.load(Ordering::Relaxed) == 0 && !any_groups()
}

/// The state of a request (MPI-4.1 3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not started, or completed and not started again.
    Inactive,
    /// Started, and not complete.
    Active,
    /// Complete, with the last notification that it took. `None` if its source is `MPI_PROC_NULL`,
    /// and for requests that wait for no notification.
    Complete(Option<Arrival>),
    Failed(Failure),
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It cannot complete: the window is broken. The reason, if a peer was lost.
    Window(Option<&'static str>),
    /// A continuation has failed with this error code.
    Continuation(c_int),
    /// An operation has reached memory that its target has not attached.
    NotAttached,
    Collective(CollectiveFailure),
}

/// Why a request cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotStarted {
    /// It is active.
    Active,
    /// Its window has been freed, or is broken.
    WindowGone,
    /// Its epoch, or another one of its window, is being recorded.
    Recording,
    /// The state of its window forbids the calls that it would make.
    Sync(SyncError),
    /// A pattern fence has not learned the target of its operation.
    NotLearned(Rank),
    /// A pattern fence has not learned this target of its operations, or will not have when they
    /// are made.
    NotInPattern(Rank),
    /// It is a collective that has failed.
    Dead,
}

impl From<SyncError> for NotStarted {
    fn from(error: SyncError) -> Self {
        NotStarted::Sync(error)
    }
}

/// What a request waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Notifications on a window.
    Window(WindowId, ExpectationId),
    /// `MPI_PROC_NULL`: the request completes as soon as it is started.
    ProcNull,
    /// The window has been freed, or is broken.
    WindowGone,
    /// Continuations.
    Continuations(GroupId),
    /// A persistent epoch or operation on a window.
    Recorded(WindowId, Key),
    /// A persistent collective.
    Collective(Key),
}

/// One request.
#[derive(Clone, Copy, Debug)]
struct Notice {
    /// Its window, if it has one.
    handle: Option<HostHandle>,
    source: Source,
    /// For `MPI_PROC_NULL` and windows that are gone.
    state: State,
}

impl Notice {
    #[inline]
    fn state(&self, windows: &Registry) -> State {
        match self.source {
            Source::Window(window, id) => {
                let window = &windows[window];
                match window.engine.expectation_state(id) {
                    ExpectationState::Idle => State::Inactive,
                    ExpectationState::Waiting(_) if window.port.is_broken() => {
                        State::Failed(Failure::Window(window.port.lost().map(|(_, why)| why)))
                    }
                    ExpectationState::Waiting(_) => State::Active,
                    ExpectationState::Met(arrival) => State::Complete(Some(arrival)),
                }
            }
            Source::ProcNull | Source::WindowGone | Source::Recorded(..) => self.state,
            Source::Continuations(group) => match continuations::with(|all| all.state(group)) {
                GroupState::Inactive => State::Inactive,
                GroupState::Active => State::Active,
                GroupState::Complete => State::Complete(None),
                GroupState::Failed(code) => State::Failed(Failure::Continuation(code)),
            },
            Source::Collective(key) => match collectives::state(key) {
                CollectiveState::Inactive | CollectiveState::Dead => State::Inactive,
                CollectiveState::Active => State::Active,
                CollectiveState::Complete => State::Complete(None),
                CollectiveState::Failed(failure) => State::Failed(Failure::Collective(failure)),
            },
        }
    }
}

/// Requests by their handles. Calls on the same one follow each other, so the last one that was
/// looked up is remembered.
struct Table {
    places: HashMap<u64, Key, BuildHasherDefault<HandleHasher>>,
    notices: Slab<Notice>,
    last: Cell<(u64, Key)>,
}

impl Table {
    const NONE: (u64, Key) = (NO_HANDLE, Key::NONE);

    const fn new() -> Self {
        Table {
            places: HashMap::with_hasher(BuildHasherDefault::new()),
            notices: Slab::new(),
            last: Cell::new(Self::NONE),
        }
    }

    #[inline]
    fn find(&self, request: u64) -> Option<Key> {
        let (last, key) = self.last.get();
        if last == request { Some(key) } else { self.look_up(request) }
    }

    #[inline(never)]
    fn look_up(&self, request: u64) -> Option<Key> {
        let key = *self.places.get(&request)?;
        self.last.set((request, key));
        Some(key)
    }

    #[inline]
    fn get(&self, request: u64) -> Option<&Notice> {
        self.notices.get(self.find(request)?)
    }

    #[inline]
    fn get_mut(&mut self, request: u64) -> Option<&mut Notice> {
        self.notices.get_mut(self.find(request)?)
    }

    fn insert(&mut self, request: u64, notice: Notice) {
        // A request that the application has not freed by this library may have had the handle.
        self.remove(request);
        self.places.insert(request, self.notices.insert(notice));
    }

    fn remove(&mut self, request: u64) -> Option<Notice> {
        self.last.set(Self::NONE);
        self.notices.take(self.places.remove(&request)?)
    }
}

/// All persistent requests of this library.
pub(crate) struct PersistentRequests {
    table: Table,
    recorded: Slab<Recorded>,
}

impl PersistentRequests {
    pub(crate) const fn new() -> Self {
        PersistentRequests { table: Table::new(), recorded: Slab::new() }
    }

    fn note(&self) {
        KNOWN.store(self.table.notices.len(), Ordering::Relaxed);
    }

    /// Adds a request for notifications on a window, or from `MPI_PROC_NULL`.
    pub(crate) fn insert(
        &mut self,
        request: u64,
        handle: HostHandle,
        source: Option<(WindowId, ExpectationId)>,
    ) {
        let source = source.map_or(Source::ProcNull, |(window, id)| Source::Window(window, id));
        self.add(request, Some(handle), source);
    }

    /// Adds a continuation request.
    pub(crate) fn insert_continuations(&mut self, request: u64, group: GroupId) {
        self.add(request, None, Source::Continuations(group));
    }

    /// Adds the request of a persistent collective.
    pub(crate) fn insert_collective(&mut self, request: u64, key: Key) {
        self.add(request, None, Source::Collective(key));
    }

    /// Adds a request for a persistent epoch or operation on a window.
    pub(crate) fn insert_recorded(
        &mut self,
        request: u64,
        (handle, window, lane): (HostHandle, WindowId, u32),
        kept: Kept,
    ) -> Key {
        let key = self.recorded.insert(Recorded::new(kept, lane));
        self.add(request, Some(handle), Source::Recorded(window, key));
        key
    }

    /// Ends a record. If its request was freed meanwhile, the record is dropped.
    pub(crate) fn end_record(&mut self, window: &Window, recorder: Recorder) {
        if let Some(recorded) = self.recorded.get_mut(recorder.key) {
            recorded.kept = Kept::Epochs(recorder.finish(window));
        }
    }

    /// What a request waits for. `None`: it is not in the table.
    #[inline]
    pub(crate) fn source(&self, request: u64) -> Option<Source> {
        self.table.get(request).map(|notice| notice.source)
    }

    /// A persistent epoch or operation. `None` once its request or window has been freed.
    #[inline]
    pub(crate) fn recorded(&mut self, key: Key) -> Option<&mut Recorded> {
        self.recorded.get_mut(key)
    }

    fn add(&mut self, request: u64, handle: Option<HostHandle>, source: Source) {
        self.table.insert(request, Notice { handle, source, state: State::Inactive });
        self.note();
    }

    /// The continuations of a request, if it is a continuation request.
    pub(crate) fn continuation_request(&self, request: u64) -> Option<GroupId> {
        match self.source(request)? {
            Source::Continuations(group) => Some(group),
            _ => None,
        }
    }

    pub(crate) fn is_known(&self, request: u64) -> bool {
        self.table.find(request).is_some()
    }

    /// The host's window of a request, for errors.
    pub(crate) fn window_of(&self, request: u64) -> Option<HostHandle> {
        self.table.get(request)?.handle
    }

    /// The state of a request. `None`: it is not in the table.
    #[inline]
    pub(crate) fn state(&mut self, windows: &mut Registry, request: u64) -> Option<State> {
        let notice = self.table.get(request)?;
        Some(match notice.source {
            Source::Recorded(window, key) => self.recorded[key].state(&mut windows[window]),
            _ => notice.state(windows),
        })
    }

    /// Starts a request that is in the table. The caller then has its window attended.
    pub(crate) fn start(&mut self, windows: &mut Registry, request: u64) -> Result<(), NotStarted> {
        self.may_start(windows, request)?;
        let Some(notice) = self.table.get_mut(request) else { return Ok(()) };
        match notice.source {
            Source::Window(window, id) => start(&mut windows[window], id),
            Source::Continuations(group) => {
                continuations::with(|all| all.start(group));
            }
            Source::Recorded(window, key) => {
                let recorded = &mut self.recorded[key];
                recorded.start(windows.on_lane(window, recorded.lane))?;
            }
            // Started without the guard.
            Source::Collective(_) => {}
            Source::ProcNull | Source::WindowGone => notice.state = State::Complete(None),
        }
        Ok(())
    }

    /// Whether a request can be started.
    pub(crate) fn may_start(
        &mut self,
        windows: &mut Registry,
        request: u64,
    ) -> Result<(), NotStarted> {
        let Some(notice) = self.table.get(request) else { return Err(NotStarted::Active) };
        if let Source::Recorded(window, key) = notice.source {
            let recorded = &mut self.recorded[key];
            return recorded.may_start(windows.on_lane(window, recorded.lane));
        }
        match (notice.state(windows), notice.source) {
            (State::Inactive, Source::WindowGone) => Err(NotStarted::WindowGone),
            (State::Inactive, Source::Collective(key))
                if collectives::state(key) == CollectiveState::Dead =>
            {
                Err(NotStarted::Dead)
            }
            (State::Inactive, _) => Ok(()),
            _ => Err(NotStarted::Active),
        }
    }

    /// Makes a request inactive after a call has completed it. A request that has failed cannot be
    /// started again.
    pub(crate) fn deactivate(&mut self, windows: &mut Registry, request: u64) {
        let Some(notice) = self.table.get_mut(request) else { return };
        if let Source::Recorded(_, key) = notice.source {
            return self.recorded[key].deactivate();
        }
        match (notice.state(windows), notice.source) {
            (State::Complete(_), Source::Window(window, id)) => {
                windows[window].engine.make_idle(id);
            }
            (State::Failed(_), Source::Window(window, id)) => {
                windows[window].engine.abandon(id);
                (notice.source, notice.state) = (Source::WindowGone, State::Inactive);
            }
            // Another thread may have added a continuation since the call saw that it is complete.
            // That one then belongs to the next start.
            (_, Source::Continuations(group)) => {
                continuations::with(|all| all.deactivate(group));
            }
            (_, Source::Collective(key)) => collectives::deactivate(key),
            (State::Complete(_) | State::Failed(_), _) => notice.state = State::Inactive,
            (State::Inactive | State::Active, _) => {}
        }
    }

    /// Removes a request that the application frees. True if it was in the table.
    pub(crate) fn remove(&mut self, windows: &mut Registry, request: u64) -> bool {
        let Some(notice) = self.table.remove(request) else { return false };
        match notice.source {
            Source::Window(window, id) => windows[window].engine.abandon(id),
            Source::Continuations(group) => continuations::with(|all| all.free(group)),
            Source::Recorded(_, key) => {
                self.recorded.remove(key);
            }
            // Removed without the guard, since it may call the host.
            Source::Collective(_) => {}
            Source::ProcNull | Source::WindowGone => {}
        }
        self.note();
        true
    }

    /// Has the requests of a duplicate that is about to be freed name the original.
    pub(crate) fn rename(&mut self, duplicate: HostHandle, original: HostHandle) {
        let all = self.table.notices.iter_mut();
        all.filter(|notice| notice.handle == Some(duplicate))
            .for_each(|notice| notice.handle = Some(original));
    }

    /// Detaches the requests of a window that is about to be freed. They keep their state and
    /// cannot be started again. None of them is active, unless the window is broken.
    pub(crate) fn forget(&mut self, windows: &mut Registry, window: WindowId) {
        let PersistentRequests { table, recorded } = self;
        for notice in table.notices.iter_mut() {
            let state = match notice.source {
                Source::Window(of, _) if of == window => notice.state(windows),
                Source::Recorded(of, key) if of == window => {
                    let recorded = recorded.take(key);
                    recorded.map_or(State::Inactive, |mut old| old.state(&mut windows[window]))
                }
                _ => continue,
            };
            (notice.state, notice.source) = (state, Source::WindowGone);
        }
    }
}

/// Matches the tagged notifications that have arrived at a window, and does nothing else: the
/// cheapest poll of a wait.
#[inline]
pub(crate) fn look(window: &mut Window) {
    with_port!(&mut window.port, port => window.engine.take_arrivals(port));
}

/// Starts an expectation that is idle.
#[inline]
pub(crate) fn start(window: &mut Window, id: ExpectationId) {
    window.engine.start_expecting(id);
    state_after_look(window, id);
}

/// The state of an expectation. Looks for notifications only if it needs one, because a peer that
/// is about to store the next one would lose its cache line to each look.
#[inline]
pub(crate) fn state_after_look(window: &mut Window, id: ExpectationId) -> ExpectationState {
    let state = window.engine.expectation_state(id);
    if !matches!(state, ExpectationState::Waiting(_)) {
        return state;
    }
    look(window);
    window.engine.expectation_state(id)
}
