//! The windows of this process: those that this library serves, and those left to the host.

mod alone;
mod attendance;
mod duplicates;

use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU64;
use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use super::checked::note_change;
use super::fast_path::{self, MappedTarget};
use super::process::forget_order;
use super::transport::with_port;
use super::window::{HostHandle, Window};
use crate::engine::Rank;
use crate::engine::slab::{Key, Slab};
use crate::transport::shm::doorbell::slot;
use crate::transport::shm::protocol::{load_waits, order_load};
pub(crate) use alone::is_alone;
pub(crate) use attendance::{Attendance, Attended, nothing_attended};

/// A window of this process, by number.
///
/// The number of a freed window finds nothing, even if another window reuses its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowId(NonZeroU64);

impl WindowId {
    /// A number that no window has.
    const NONE: WindowId = WindowId(NonZeroU64::MAX);

    /// A number is one word, because every call compares it.
    fn of(key: Key) -> Self {
        Self::of_word(key.to_word())
    }

    /// The number as a word, to be passed through code that does not know windows.
    pub(crate) fn word(self) -> u64 {
        self.0.get()
    }

    /// The inverse of [`word`](Self::word).
    pub(crate) fn of_word(word: u64) -> Self {
        WindowId(NonZeroU64::new(word).unwrap_or(Self::NONE.0))
    }

    fn key(self) -> Key {
        Key::of_word(self.0.get()).unwrap_or(Key::NONE)
    }
}

/// What the registry knows of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleState {
    /// This library serves the window. The handle's lane is 0 for the original [DU-1].
    Ours(WindowId, u32),
    /// As [`Ours`](Self::Ours), while calls on this handle are recorded for a persistent epoch.
    Recording(WindowId, u32),
    /// Made by an interposed constructor and left to the host.
    Host,
    /// Freed. The host has not reused the handle since.
    Freed,
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

/// Most freed handles that are remembered, so that a program may make and free windows forever.
const MAX_FREED: usize = 1 << 16;

/// Calls that do not wait between two sweeps.
const CALLS_PER_SWEEP: u32 = 64;

/// No host handle has all bits set.
pub(super) const NO_HANDLE: u64 = u64::MAX;

/// The last handle whose window was found to be left to the host.
static LEFT_TO_HOST: AtomicU64 = AtomicU64::new(NO_HANDLE);

/// Whether this is the window that was last found to be left to the host. Calls check it before
/// they enter the runtime, so such a window costs them only this check.
#[inline(always)]
pub(crate) fn is_left_to_host(handle: HostHandle) -> bool {
    LEFT_TO_HOST.load(Ordering::Acquire) == handle.0
}

/// All windows that interposed constructors have made, by handle. Owns those that we serve.
pub(crate) struct Registry {
    windows: WindowSlab,
    handles: HashMap<u64, HandleState, BuildHasherDefault<HandleHasher>>,
    /// Windows that were called or contacted since they were last found without work. Sweeps visit
    /// only these.
    attended: Vec<WindowId>,
    /// Windows that left the list above with something in flight, which only messages move.
    resting: Vec<WindowId>,
    /// Sweeps since polls were last counted for those.
    passed_resting: u32,
    /// The window of the present call rested or was idle before it.
    was_woken: bool,
    /// Windows whose peers can ring, by their slot at the doorbell.
    by_doorbell: HashMap<u32, Vec<WindowId>, BuildHasherDefault<HandleHasher>>,
    /// The slot that [`check_next`](Registry::check_next) visits next.
    next_checked: u32,
    /// Windows of more than one process.
    shared: usize,
    /// Number of calls that did not wait: every [`CALLS_PER_SWEEP`]th one sweeps.
    calls: u32,
    /// Handles that are [`HandleState::Freed`].
    freed: usize,
}

impl Registry {
    pub(crate) const fn new() -> Self {
        Self {
            windows: WindowSlab::new(),
            handles: HashMap::with_hasher(BuildHasherDefault::new()),
            attended: Vec::new(),
            resting: Vec::new(),
            passed_resting: 0,
            was_woken: false,
            by_doorbell: HashMap::with_hasher(BuildHasherDefault::new()),
            next_checked: 0,
            shared: 0,
            calls: 0,
            freed: 0,
        }
    }

    /// Number of windows that we serve.
    pub(crate) fn len(&self) -> usize {
        self.windows.slots.len()
    }

    /// Number of windows that peers may contact at any time.
    pub(crate) fn contactable(&self) -> usize {
        self.shared
    }

    /// All windows that we serve.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        self.windows.iter_mut()
    }

    /// Called first in a call on a window: whether we serve the window of this handle. If so, it
    /// becomes the [`called`](Self::called) window, and the next sweeps visit it.
    #[inline(always)]
    pub(crate) fn call(&mut self, handle: HostHandle) -> bool {
        match self.windows.last(handle.0) {
            Some(window) if window.attendance == Attendance::Full => {
                self.was_woken = false;
                true
            }
            _ => self.look_up(handle),
        }
    }

    /// The window of the present call. Valid until the guard is given up, since other threads call
    /// too.
    #[inline(always)]
    pub(crate) fn called(&mut self) -> &mut Window {
        self.windows.last.as_deref_mut().expect("a window was called")
    }

    /// The number of the window of the present call.
    #[inline(always)]
    pub(crate) fn called_id(&self) -> WindowId {
        self.windows.last_id
    }

    /// Makes this the window of the present call again, after other threads may have called.
    pub(crate) fn call_again(&mut self, id: WindowId, lane: u32) {
        self.select(id, lane);
        if self.windows.last_id != id {
            self.windows.set_last(id);
        }
        if self.windows.last.as_deref().is_some_and(|window| window.recorder.is_some()) {
            // The next calls are to be recorded.
            self.windows.last_handle = NO_HANDLE;
        }
    }

    /// As [`call`](Self::call); returns the window's number, also while calls are recorded.
    pub(crate) fn ours(&mut self, handle: HostHandle) -> Option<WindowId> {
        if self.call(handle) {
            return Some(self.called_id());
        }
        match self.state(handle) {
            Some(HandleState::Recording(id, lane)) => {
                self.select(id, lane);
                Some(id)
            }
            _ => None,
        }
    }

    /// Has calls on the handle of the present call find [`HandleState::Recording`] from now on, or
    /// no longer.
    pub(crate) fn set_recording(&mut self, id: WindowId, recording: bool) {
        let (handle, lane) = (self[id].handle, self[id].lane());
        let state = if recording { HandleState::Recording } else { HandleState::Ours };
        self.set(handle, state(id, lane));
    }

    /// Whether the next call must sweep.
    #[inline(always)]
    fn sweeps_next(&self) -> bool {
        self.calls % CALLS_PER_SWEEP == CALLS_PER_SWEEP - 1
    }

    /// The window of a handle and the memory of `target`, if the call before was on the same window
    /// and operations to `target` are copies now. Counts the call; also `None` if it must sweep.
    /// Sweeps need not visit the window, since a copy leaves no work behind. Never panics, so the
    /// caller need not catch anything.
    #[inline(always)]
    pub(crate) fn direct(
        &mut self,
        handle: HostHandle,
        target: Rank,
    ) -> Option<(&mut Window, MappedTarget)> {
        if self.sweeps_next() {
            return None;
        }
        let found = self.windows.direct(handle.0, target)?;
        self.calls += 1;
        Some(found)
    }

    /// The memory of `target`, if the call before was on the same window, and the present one need
    /// not sweep.
    #[inline(always)]
    pub(crate) fn mapped(&mut self, handle: HostHandle, target: Rank) -> Option<MappedTarget> {
        if self.sweeps_next() { None } else { self.windows.memory_of(handle.0, target) }
    }

    /// Whether a copy to `target`, whose memory is [`mapped`](Self::mapped), is the first operation
    /// of a fence epoch that needs no record. The caller makes it then. Counts the call.
    #[inline(always)]
    pub(crate) fn opens_fence_epoch(&mut self, target: Rank) -> bool {
        let Some(window) = self.windows.last.as_deref_mut() else { return false };
        let opens = window.engine.enters_direct_route(target)
            || with_port!(&mut window.port, port => window.engine.folds_fence(port, target));
        self.calls += u32::from(opens);
        opens
    }

    /// As [`direct`](Self::direct), in a window whose operations all raise a counter at their
    /// targets [NA-6]. Returns the counter too.
    pub(crate) fn counted(
        &mut self,
        handle: HostHandle,
        target: Rank,
    ) -> Option<(&mut Window, MappedTarget, u32)> {
        if self.sweeps_next() {
            return None;
        }
        let window = self.windows.last(handle.0)?;
        let (memory, counter) = window.counted_target(target)?;
        self.calls += 1;
        Some((window, memory, counter))
    }

    /// As [`direct`](Self::direct), for a get. `None` after [`order_gets`](Self::order_gets).
    #[inline(always)]
    pub(crate) fn direct_to_get(
        &mut self,
        handle: HostHandle,
        target: Rank,
    ) -> Option<(&mut Window, MappedTarget)> {
        if handle.0 != self.windows.last_to_get {
            return None;
        }
        self.direct(handle, target)
    }

    /// The next get must leave the fast path and call [`admit_gets`](Self::admit_gets), since
    /// earlier operations come first [OR-1]. Other gets need not look for that.
    #[inline(always)]
    pub(crate) fn order_gets(&mut self) {
        self.windows.last_to_get = NO_HANDLE;
    }

    /// Orders the loads of gets behind earlier operations, if an order asked for that.
    #[inline(always)]
    pub(crate) fn admit_gets(&mut self) {
        forget_order();
        order_load();
        self.windows.last_to_get = self.windows.last_handle;
    }

    /// As [`direct`](Self::direct), for a target whose memory this process has not mapped: the
    /// window, if the transport may complete an operation to `target` now.
    pub(crate) fn unmapped(&mut self, handle: HostHandle, target: Rank) -> Option<&mut Window> {
        if self.sweeps_next() {
            return None;
        }
        let window = self.windows.last(handle.0).filter(|window| window.only_copies)?;
        if !window.engine.finds_direct_route(target) {
            return None;
        }
        self.calls += 1;
        Some(window)
    }

    /// Whether the call before was on the window of this handle, whose operations are all copies by
    /// load and store, and a flush of all targets has nothing to wait for. Counts the call; also
    /// false if it must sweep.
    #[inline(always)]
    pub(crate) fn flushes_all(&mut self, handle: HostHandle) -> bool {
        if self.sweeps_next() {
            return false;
        }
        let flushes =
            self.windows.copies(handle.0).is_some_and(|window| window.engine.flushes_all_at_once());
        self.calls += u32::from(flushes);
        flushes
    }

    /// The window of a handle, if the call before was on the same window.
    #[inline(always)]
    pub(crate) fn called_before(&mut self, handle: HostHandle) -> Option<&mut Window> {
        self.windows.last(handle.0)
    }

    /// Counts a call that did not wait: it communicates, or closes an epoch that is complete at
    /// once. True if the call must sweep, since a program may make no other calls [PR-1]: for
    /// example, it locks its own memory again and again until a peer has changed it.
    #[inline(always)]
    pub(crate) fn count_call(&mut self) -> bool {
        self.calls = self.calls.wrapping_add(1);
        self.calls.is_multiple_of(CALLS_PER_SWEEP)
    }

    #[inline(never)]
    fn look_up(&mut self, handle: HostHandle) -> bool {
        if self.windows.last(handle.0).is_some() {
            self.wake(self.windows.last_id);
            return true;
        }
        match self.state(handle) {
            Some(HandleState::Ours(id, lane)) => {
                self.select(id, lane);
                self.windows.set_last(id);
                self.wake(id);
                true
            }
            Some(HandleState::Host) => {
                LEFT_TO_HOST.store(handle.0, Ordering::Release);
                false
            }
            Some(HandleState::Recording(..) | HandleState::Freed) | None => false,
        }
    }

    /// The state of a handle. `None` if no interposed constructor has returned it.
    pub(crate) fn state(&self, handle: HostHandle) -> Option<HandleState> {
        self.handles.get(&handle.0).copied()
    }

    /// A window that may have been freed.
    #[inline]
    pub(crate) fn get(&self, id: WindowId) -> Option<&Window> {
        self.windows.get(id)
    }

    /// A window that may have been freed.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: WindowId) -> Option<&mut Window> {
        self.windows.get_mut(id)
    }

    /// A window in which an open lock is not held yet. To be used within a call on a window.
    #[inline(always)]
    pub(crate) fn awaiting_lock(&mut self) -> Option<WindowId> {
        // A window that waits for a lock has work, so it is attended. So is the called window.
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

    /// Adds a window that we serve.
    pub(crate) fn insert_ours(&mut self, window: Box<Window>) -> WindowId {
        let (handle, number) = (window.handle, window.port.number());
        self.shared += usize::from(window.size > 1);
        let id = self.windows.insert(window);
        if let Some(window) = self.windows.get_mut(id) {
            window.port.set_cookie(id.word());
        }
        self.set(handle, HandleState::Ours(id, 0));
        if let Some(number) = number {
            self.by_doorbell.entry(slot(number)).or_default().push(id);
        }
        self.attend(id);
        id
    }

    /// Adds a window that is left to the host.
    pub(crate) fn insert_host(&mut self, handle: HostHandle) {
        self.set(handle, HandleState::Host);
    }

    /// Removes a window that was left to the host. Its handle is remembered as freed.
    pub(crate) fn remove_host(&mut self, handle: HostHandle) {
        self.mark_freed(handle, HandleState::Host);
    }

    /// Removes a window that we served. Its handle is remembered as freed.
    pub(crate) fn remove_ours(&mut self, id: WindowId) -> Option<Box<Window>> {
        let window = self.windows.remove(id)?;
        self.mark_freed(window.handle, HandleState::Ours(id, 0));
        self.shared -= usize::from(window.size > 1);
        self.forget_attended(id);
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

    fn mark_freed(&mut self, handle: HostHandle, old: HandleState) {
        // The host may have given the handle to another thread's window already.
        if self.state(handle) == Some(old) {
            self.set(handle, HandleState::Freed);
        }
    }

    fn set(&mut self, handle: HostHandle, state: HandleState) {
        note_change();
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

/// Windows by [`WindowId`].
///
/// Most calls are on the same window as the call before. That window is kept outside the slab: one
/// comparison finds it by its handle or number, and another the memory of its last target.
struct WindowSlab {
    last_handle: u64,
    /// The same handle, unless the next get must leave the fast path.
    last_to_get: u64,
    last_id: WindowId,
    last: Option<Box<Window>>,
    /// The last target that [`last`](Self::last) has accessed by load and store, and its memory.
    last_target: Rank,
    last_memory: MappedTarget,
    /// A slot is empty while its window is [`last`](Self::last).
    slots: Slab<Option<Box<Window>>>,
}

impl WindowSlab {
    const fn new() -> Self {
        Self {
            last_handle: NO_HANDLE,
            last_to_get: NO_HANDLE,
            last_id: WindowId::NONE,
            last: None,
            last_target: Rank::MAX,
            last_memory: MappedTarget { base: 0, size: 0, unit: 1 },
            slots: Slab::new(),
        }
    }

    #[inline(always)]
    fn get(&self, id: WindowId) -> Option<&Window> {
        if id == self.last_id { self.last.as_deref() } else { self.slots.get(id.key())?.as_deref() }
    }

    #[inline(always)]
    fn get_mut(&mut self, id: WindowId) -> Option<&mut Window> {
        if id == self.last_id {
            self.last.as_deref_mut()
        } else {
            self.slots.get_mut(id.key())?.as_deref_mut()
        }
    }

    /// The window that was called last, if this is its handle.
    #[inline(always)]
    fn last(&mut self, handle: u64) -> Option<&mut Window> {
        if handle == self.last_handle { self.last.as_deref_mut() } else { None }
    }

    /// The window that was called last, if this is its handle, it has accessed a target by load and
    /// store, and does so with all.
    #[inline(always)]
    fn copies(&mut self, handle: u64) -> Option<&mut Window> {
        let found = handle == self.last_handle && self.last_target != Rank::MAX;
        self.last.as_deref_mut().filter(|window| found && window.port.maps_all())
    }

    /// See [`Registry::direct`].
    #[inline(always)]
    fn direct(&mut self, handle: u64, target: Rank) -> Option<(&mut Window, MappedTarget)> {
        let memory = self.memory_of(handle, target)?;
        let window = self.last.as_deref_mut()?;
        let goes_directly = window.engine.has_direct_route(target)
            // The first operation of an epoch to this target.
            || window.engine.finds_direct_route(target);
        goes_directly.then_some((window, memory))
    }

    /// The memory of a target of the window that was called last, if this is its handle.
    #[inline(always)]
    fn memory_of(&mut self, handle: u64, target: Rank) -> Option<MappedTarget> {
        if handle != self.last_handle {
            return None;
        }
        if target != self.last_target {
            self.last_memory = self.last.as_deref_mut()?.known_target(target)?;
            self.last_target = target;
        }
        Some(self.last_memory)
    }

    /// Makes this window the one that was called last.
    fn set_last(&mut self, id: WindowId) {
        self.clear_last();
        let Some(window) = self.slots.get_mut(id.key()).and_then(Option::take) else { return };
        (self.last_handle, self.last_id) = (window.handle.0, id);
        self.last_to_get = if load_waits() { NO_HANDLE } else { self.last_handle };
        alone::note(&window);
        self.last = Some(window);
    }

    /// As [`clear_last`](Self::clear_last), if this window was called last.
    fn forget_last(&mut self, id: WindowId) {
        if self.last_id == id {
            self.clear_last();
        }
    }

    /// Puts the window that was called last back into its slot.
    fn clear_last(&mut self) {
        if let Some(window) = self.last.take()
            && let Some(slot) = self.slots.get_mut(self.last_id.key())
        {
            *slot = Some(window);
        }
        (self.last_handle, self.last_id) = (NO_HANDLE, WindowId::NONE);
        self.last_to_get = NO_HANDLE;
        alone::forget();
        self.last_target = Rank::MAX;
    }

    fn insert(&mut self, window: Box<Window>) -> WindowId {
        WindowId::of(self.slots.insert(Some(window)))
    }

    fn remove(&mut self, id: WindowId) -> Option<Box<Window>> {
        self.clear_last();
        self.slots.take(id.key()).flatten()
    }

    /// The first window at or after this slot, cyclically, and its slot.
    fn next_from(&self, slot: u32) -> Option<(u32, WindowId)> {
        let end = self.slots.end();
        (slot..end)
            .chain(0..slot.min(end))
            .find_map(|slot| Some((slot, WindowId::of(self.slots.key_at(slot)?))))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        self.clear_last();
        self.slots.iter_mut().filter_map(|slot| slot.as_deref_mut())
    }
}
