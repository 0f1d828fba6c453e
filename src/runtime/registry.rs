//! Which windows this process has: those that this library serves, and those left to the host.

use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;

use super::fast_path;
use super::process::Host;
use super::window::{HostHandle, Window, WindowId, WindowSlab};
use crate::transport::shm::{self, doorbell::slot};

/// What the registry knows of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleState {
    /// This library serves the window.
    Ours(WindowId),
    /// Made by an interposed constructor and left to the host.
    Host,
    /// Freed, and not given out again since.
    Freed,
}

/// A place in the list of windows that a sweep visits.
pub(crate) enum Attended<'a> {
    /// A window with work. `moved`: requests of it were reported just now.
    Busy { window: &'a mut Window, moved: bool },
    /// A window without work; it has just left the list, and another one has its place.
    Idle { moved: bool },
    /// The list ends before this place.
    End,
}

/// Hashes a handle: MPICH's differ in the low bits, Open MPI's are addresses.
#[derive(Default)]
pub(crate) struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    #[inline]
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// Freed handles that are remembered. A program that makes and frees windows forever must not grow.
const MAX_FREED: usize = 1 << 16;
/// Above this many attended windows, one without work is armed at once: polling all of them a
/// little longer would cost more than the doorbell.
const MAX_POLLED_LONGER: usize = 4;

/// No host handle has all bits set.
const NO_HANDLE: u64 = u64::MAX;

/// The handle that was last found to be left to the host.
static LEFT_TO_HOST: AtomicU64 = AtomicU64::new(NO_HANDLE);
/// Number of attended windows.
static ATTENDED: AtomicUsize = AtomicUsize::new(0);

/// Whether this is the window that was last found to be left to the host.
///
/// Calls ask before they enter the runtime: this question is all that such a window costs.
#[inline(always)]
pub(crate) fn is_left_to_host(handle: HostHandle) -> bool {
    LEFT_TO_HOST.load(Ordering::Acquire) == handle.0
}

/// Whether a sweep would visit no window. Hooks ask before they enter the runtime.
#[inline(always)]
pub(crate) fn nothing_attended() -> bool {
    ATTENDED.load(Ordering::Acquire) == 0
}

/// All windows that passed through our constructors, by handle. Owns those that we serve.
pub(crate) struct Registry {
    windows: WindowSlab,
    handles: HashMap<u64, HandleState, BuildHasherDefault<HandleHasher>>,
    /// Windows that were called or contacted since they were last found without work: all that a
    /// sweep visits.
    attended: Vec<WindowId>,
    /// Windows whose peers can ring, by their slot at the doorbell.
    by_doorbell: HashMap<u32, Vec<WindowId>, BuildHasherDefault<HandleHasher>>,
    /// The slot that [`check_next`](Registry::check_next) visits next.
    next_checked: u32,
    /// Windows of more than one process.
    shared: usize,
    /// Handles that are [`HandleState::Freed`].
    freed: usize,
}

impl Registry {
    pub(crate) const fn new() -> Self {
        Self {
            windows: WindowSlab::new(),
            handles: HashMap::with_hasher(BuildHasherDefault::new()),
            attended: Vec::new(),
            by_doorbell: HashMap::with_hasher(BuildHasherDefault::new()),
            next_checked: 0,
            shared: 0,
            freed: 0,
        }
    }

    /// Number of windows that we serve.
    pub(crate) fn len(&self) -> usize {
        self.windows.len()
    }

    /// Number of windows that peers may contact at any time.
    pub(crate) fn contactable(&self) -> usize {
        self.shared
    }

    /// All windows that we serve.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        self.windows.iter_mut()
    }

    /// Whether we serve the window of this handle, for a call on it. If so, it is
    /// [`called`](Self::called), and the next sweeps visit it.
    #[inline(always)]
    pub(crate) fn call(&mut self, handle: HostHandle) -> bool {
        match self.windows.last(handle.0) {
            Some(window) if window.attended => true,
            _ => self.look_up(handle),
        }
    }

    /// The window of the present call. Only until the guard is given up, since other threads call
    /// too.
    #[inline(always)]
    pub(crate) fn called(&mut self) -> &mut Window {
        self.windows.any_last().expect("a window was called")
    }

    /// The number of the window of the present call.
    #[inline(always)]
    pub(crate) fn called_id(&self) -> WindowId {
        self.windows.last_id()
    }

    /// Makes this the window of the present call again, after others may have called.
    pub(crate) fn call_again(&mut self, id: WindowId) {
        if self.windows.last_id() != id {
            self.windows.set_last(id);
        }
    }

    /// The window of a handle for a call on it, if we serve it. The next sweeps visit it.
    pub(crate) fn ours(&mut self, handle: HostHandle) -> Option<WindowId> {
        self.call(handle).then(|| self.called_id())
    }

    /// The window that was called last, if this is its handle. Sweeps need not visit it: for calls
    /// that leave no work behind.
    #[inline(always)]
    pub(crate) fn last(&mut self, handle: HostHandle) -> Option<&mut Window> {
        self.windows.last(handle.0)
    }

    #[inline(never)]
    fn look_up(&mut self, handle: HostHandle) -> bool {
        if self.windows.last(handle.0).is_some() {
            self.attend(self.windows.last_id());
            return true;
        }
        match self.state(handle) {
            Some(HandleState::Ours(id)) => {
                self.windows.set_last(id);
                self.attend(id);
                true
            }
            Some(HandleState::Host) => {
                LEFT_TO_HOST.store(handle.0, Ordering::Release);
                false
            }
            Some(HandleState::Freed) | None => false,
        }
    }

    /// What is known of a handle.
    pub(crate) fn state(&self, handle: HostHandle) -> Option<HandleState> {
        self.handles.get(&handle.0).copied()
    }

    /// The next sweeps visit this window.
    #[inline(never)]
    pub(crate) fn attend(&mut self, id: WindowId) {
        let Some(window) = self.windows.get_mut(id) else { return };
        if !window.attended {
            window.attended = true;
            self.attended.push(id);
            self.publish_attended();
        }
    }

    fn publish_attended(&self) {
        ATTENDED.store(self.attended.len(), Ordering::Release);
    }

    /// The window at this place of the list that a sweep goes through.
    #[inline]
    pub(crate) fn attended(&mut self, at: usize, host: &Host) -> Attended<'_> {
        let Some(id) = self.attended.get(at).copied() else { return Attended::End };
        let window = self.windows.get_mut(id).expect("attended windows are live");
        // A call may have completed a request and left nothing to wait for: report first.
        let moved = window.report(host);
        if window.is_idle(self.attended.len() > MAX_POLLED_LONGER) {
            window.attended = false;
            self.attended.swap_remove(at);
            ATTENDED.store(self.attended.len(), Ordering::Release);
            return Attended::Idle { moved };
        }
        Attended::Busy { window, moved }
    }

    /// Attends the windows that peers have contacted since the last call.
    #[cold]
    pub(crate) fn attend_rung(&mut self) {
        shm::take_rung(|slot| {
            for id in self.by_doorbell.get(&slot).into_iter().flatten() {
                let Some(window) = self.windows.get_mut(*id) else { continue };
                if window.was_contacted() && !window.attended {
                    window.attended = true;
                    self.attended.push(*id);
                }
            }
        });
        self.publish_attended();
    }

    /// Looks at one window that is not attended, another one each time: this serves a peer that
    /// could not ring the doorbell.
    #[cold]
    pub(crate) fn check_next(&mut self, host: &Host) -> bool {
        let Some((slot, id)) = self.windows.next_from(self.next_checked) else { return false };
        self.next_checked = slot + 1;
        let window = self.windows.get_mut(id).expect("a live window");
        let moved = !window.attended && window.advance(host);
        if moved {
            self.attend(id);
        }
        moved
    }

    /// A window in which an open lock is not held yet. For a call on a window.
    #[inline(always)]
    pub(crate) fn awaiting_lock(&mut self) -> Option<WindowId> {
        // A window that waits for a lock has work, so it is attended, as is the one that is called.
        if let [only] = self.attended[..] {
            self.called().awaits_open_lock().then_some(only)
        } else {
            self.find_awaiting_lock()
        }
    }

    #[inline(never)]
    fn find_awaiting_lock(&self) -> Option<WindowId> {
        let awaits = |id: &WindowId| self.windows.get(*id).is_some_and(Window::awaits_open_lock);
        self.attended.iter().copied().find(awaits)
    }

    /// Takes over a window that we serve.
    pub(crate) fn insert_ours(&mut self, window: Box<Window>) -> WindowId {
        let (handle, number) = (window.handle, window.port.number());
        self.shared += usize::from(window.size > 1);
        let id = self.windows.insert(window);
        if let Some(window) = self.windows.get_mut(id) {
            window.port.set_cookie(id.word());
        }
        self.set(handle, HandleState::Ours(id));
        if let Some(number) = number {
            self.by_doorbell.entry(slot(number)).or_default().push(id);
        }
        self.attend(id);
        id
    }

    /// Notes a window that is left to the host.
    pub(crate) fn insert_host(&mut self, handle: HostHandle) {
        self.set(handle, HandleState::Host);
    }

    /// Forgets a window that was left to the host. Its handle is remembered as freed.
    pub(crate) fn remove_host(&mut self, handle: HostHandle) {
        // The host may have given the handle to another thread's window already.
        if self.state(handle) == Some(HandleState::Host) {
            self.set(handle, HandleState::Freed);
        }
    }

    /// Gives up a window that we served. Its handle is remembered as freed.
    pub(crate) fn remove_ours(&mut self, id: WindowId) -> Option<Box<Window>> {
        let window = self.windows.remove(id)?;
        // The host may have given the handle to another thread's window already.
        if self.state(window.handle) == Some(HandleState::Ours(id)) {
            self.set(window.handle, HandleState::Freed);
        }
        self.shared -= usize::from(window.size > 1);
        self.attended.retain(|other| *other != id);
        self.publish_attended();
        if let Some(number) = window.port.number()
            && let Some(windows) = self.by_doorbell.get_mut(&slot(number))
        {
            windows.retain(|other| *other != id);
        }
        if let Some(fast_path) = window.fast_path {
            fast_path::give_back(fast_path);
        }
        Some(window)
    }

    fn set(&mut self, handle: HostHandle, state: HandleState) {
        self.windows.clear_last();
        LEFT_TO_HOST.store(NO_HANDLE, Ordering::Release);
        if state == HandleState::Freed && self.freed >= MAX_FREED {
            self.handles.retain(|_, state| *state != HandleState::Freed);
            self.freed = 0;
        }
        let old = self.handles.insert(handle.0, state);
        self.freed += usize::from(state == HandleState::Freed);
        self.freed -= usize::from(old == Some(HandleState::Freed));
    }
}

impl Index<WindowId> for Registry {
    type Output = Window;
    #[inline(always)]
    fn index(&self, id: WindowId) -> &Window {
        self.windows.get(id).expect("a live window")
    }
}

impl IndexMut<WindowId> for Registry {
    #[inline(always)]
    fn index_mut(&mut self, id: WindowId) -> &mut Window {
        self.windows.get_mut(id).expect("a live window")
    }
}
