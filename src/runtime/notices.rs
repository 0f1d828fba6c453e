//! Persistent requests that wait for tagged notifications.
//!
//! The host's request under which the application knows one is a token: it is never started, and
//! all completion calls on it are answered here (`mpi/request/persistent`). A table by handle; where it is
//! empty, nobody asks.

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;

use super::registry::{HandleHasher, Registry};
use super::transport::with_port;
use super::window::{HostHandle, Window, WindowId};
use crate::engine::{Arrival, ExpectationId, ExpectationState};

/// Requests in the table, for a look without entering.
static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// True if there is no such request in this process.
#[inline(always)]
pub(crate) fn none_known() -> bool {
    KNOWN.load(Ordering::Relaxed) == 0
}

/// What was last known of a started request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not started.
    Idle,
    /// It waits.
    Waiting,
    /// Complete, with the last notification that it took; nothing if it is from no process.
    Met(Option<Arrival>),
    /// It will never be met: the window is broken, for this reason if a peer was lost.
    Failed(Option<&'static str>),
}

/// Why a request is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotStarted {
    /// It is started.
    Active,
    /// Its window has been freed, or is broken.
    Gone,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Notifications on a window.
    Window(WindowId, ExpectationId),
    /// `MPI_PROC_NULL`: nothing.
    Nobody,
    /// The window is gone.
    Gone,
}

/// One request.
#[derive(Clone, Copy, Debug)]
struct Notice {
    handle: HostHandle,
    source: Source,
    /// Of one that does not wait on a window.
    state: State,
}

impl Notice {
    #[inline]
    fn state(&self, windows: &Registry) -> State {
        match self.source {
            Source::Window(window, id) => {
                let window = &windows[window];
                match window.engine.expectation_state(id) {
                    ExpectationState::Idle => State::Idle,
                    ExpectationState::Waiting(_) if window.port.is_broken() => {
                        State::Failed(window.port.lost().map(|(_, why)| why))
                    }
                    ExpectationState::Waiting(_) => State::Waiting,
                    ExpectationState::Met(arrival) => State::Met(Some(arrival)),
                }
            }
            Source::Nobody | Source::Gone => self.state,
        }
    }
}

/// All of them.
pub(crate) struct Notices {
    table: HashMap<u64, Notice, BuildHasherDefault<HandleHasher>>,
}

impl Notices {
    pub(crate) const fn new() -> Self {
        Notices { table: HashMap::with_hasher(BuildHasherDefault::new()) }
    }

    fn note(&self) {
        KNOWN.store(self.table.len(), Ordering::Relaxed);
    }

    /// Adds a request: of a window's notifications, or of none.
    pub(crate) fn insert(
        &mut self,
        request: u64,
        handle: HostHandle,
        source: Option<(WindowId, ExpectationId)>,
    ) {
        let source = source.map_or(Source::Nobody, |(window, id)| Source::Window(window, id));
        self.table.insert(request, Notice { handle, source, state: State::Idle });
        self.note();
    }

    pub(crate) fn is_known(&self, request: u64) -> bool {
        self.table.contains_key(&request)
    }

    /// The host's window of a request, for errors.
    pub(crate) fn window_of(&self, request: u64) -> Option<HostHandle> {
        self.table.get(&request).map(|notice| notice.handle)
    }

    /// What a request waits for on which window.
    pub(crate) fn waits_on(&self, request: u64) -> Option<(WindowId, ExpectationId)> {
        match self.table.get(&request)?.source {
            Source::Window(window, id) => Some((window, id)),
            Source::Nobody | Source::Gone => None,
        }
    }

    /// How a request stands.
    #[inline]
    pub(crate) fn state(&self, windows: &Registry, request: u64) -> Option<State> {
        self.table.get(&request).map(|notice| notice.state(windows))
    }

    /// Starts a request that is known. Its window is to be attended.
    pub(crate) fn start(&mut self, windows: &mut Registry, request: u64) -> Result<(), NotStarted> {
        if self.state(windows, request) != Some(State::Idle) {
            return Err(NotStarted::Active);
        }
        let Some(notice) = self.table.get_mut(&request) else { return Err(NotStarted::Gone) };
        match notice.source {
            Source::Window(window, id) => {
                let window = &mut windows[window];
                look(window);
                window.engine.start_expecting(id);
            }
            Source::Nobody => notice.state = State::Met(None),
            Source::Gone => return Err(NotStarted::Gone),
        }
        Ok(())
    }

    /// True if a request can be started.
    pub(crate) fn may_start(&self, windows: &Registry, request: u64) -> Result<(), NotStarted> {
        match (self.table.get(&request), self.state(windows, request)) {
            (Some(Notice { source: Source::Gone, .. }), Some(State::Idle)) => Err(NotStarted::Gone),
            (_, Some(State::Idle)) => Ok(()),
            _ => Err(NotStarted::Active),
        }
    }

    /// The application has been told that a request is complete: it may be started again, unless it
    /// has failed.
    pub(crate) fn rest(&mut self, windows: &mut Registry, request: u64) {
        let state = self.state(windows, request);
        let Some(notice) = self.table.get_mut(&request) else { return };
        match (state, notice.source) {
            (Some(State::Met(_)), Source::Window(window, id)) => {
                windows[window].engine.make_idle(id)
            }
            (Some(State::Failed(_)), Source::Window(window, id)) => {
                windows[window].engine.abandon(id);
                (notice.source, notice.state) = (Source::Gone, State::Idle);
            }
            (Some(State::Met(_) | State::Failed(_)), _) => notice.state = State::Idle,
            _ => {}
        }
    }

    /// The application has freed a request. True if it was one of ours.
    pub(crate) fn remove(&mut self, windows: &mut Registry, request: u64) -> bool {
        let Some(notice) = self.table.remove(&request) else { return false };
        if let Source::Window(window, id) = notice.source {
            windows[window].engine.abandon(id);
        }
        self.note();
        true
    }

    /// A window goes, on which nothing waits, or which is broken: its requests stay, and cannot be
    /// started again.
    pub(crate) fn forget(&mut self, windows: &Registry, window: WindowId) {
        self.table.retain(|_, notice| {
            if matches!(notice.source, Source::Window(of, _) if of == window) {
                (notice.state, notice.source) = (notice.state(windows), Source::Gone);
            }
            true
        });
    }
}

/// Takes what has come to a window out and matches it, and nothing else: the shortest look of a
/// wait.
#[inline]
pub(crate) fn look(window: &mut Window) {
    with_port!(&mut window.port, port => window.engine.take_arrivals(port));
}
