//! The state of this process, and the flag that guards it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut, Index, IndexMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use super::checked::CheckedList;
use super::config::Settings;
use super::network::Network;
use super::persistent::PersistentRequests;
use super::registry::{NO_HANDLE, Registry, WindowId};
use super::window::{Completion, HostHandle, HostRequest, Window};
use crate::engine::Rank;
use crate::sync::Exclusive;

/// The functions of the host that the runtime calls.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    /// Drives the host's own progress. Called without the guard.
    pub(crate) progress_host: fn(),
    /// Completes a pending request. Called with the guard held; must not enter the runtime again.
    pub(crate) complete: fn(HostRequest, Completion),
}

/// The state of this process.
pub(crate) struct State {
    /// Windows by handle.
    pub(crate) windows: Registry,
    /// Functions of the host.
    pub(crate) host: Host,
    /// Settings, agreed over the job.
    pub(crate) settings: Option<Settings>,
    /// When a call that does not wait last polled the network.
    pub(crate) network_polled: Option<Instant>,
    /// Reads of notification counters since the last sweep.
    pub(crate) polls: u32,
    /// The contexts by which windows reach other nodes.
    pub(crate) network: Network,
    /// Persistent requests for tagged notifications.
    pub(crate) persistent: PersistentRequests,
    /// The windows of the last flush of many.
    pub(crate) checked: CheckedList,
    /// Windows that something has arrived for; memory to be used again.
    pub(super) contacted: Vec<WindowId>,
}

impl State {
    /// Polls the network, and serves or attends the windows that something has arrived for. True if
    /// anything has.
    pub(crate) fn poll_network(&mut self) -> bool {
        let State { network, contacted, .. } = self;
        let any = network.poll(|cookie| contacted.push(WindowId::of_word(cookie)));
        if !contacted.is_empty() {
            self.serve_contacted();
        }
        any
    }

    #[inline(never)]
    fn serve_contacted(&mut self) {
        let State { network, windows, contacted, host, .. } = self;
        network.hold();
        for id in contacted.drain(..) {
            take_contact(windows, id, host);
        }
        network.send_held();
    }
}

/// Handles what has arrived for a window that sweeps do not visit: answers packets at once if that
/// is all, and has the next sweeps visit the window otherwise.
pub(super) fn take_contact(windows: &mut Registry, id: WindowId, host: &Host) {
    if !windows.get_mut(id).is_some_and(|window| window.serves_contact(host)) {
        windows.attend(id);
    }
}

struct Process {
    /// A thread is in the runtime. Under `MPI_THREAD_MULTIPLE` this is a lock. Below that level
    /// only hooks need it, since the host may run them inside a call that this library makes.
    inside: AtomicBool,
    /// The thread level is `MPI_THREAD_MULTIPLE`.
    multiple: AtomicBool,
    /// Threads that have waited for a while to enter. Hooks and the progress thread leave and stay
    /// out meanwhile.
    waiting: AtomicU32,
    state: UnsafeCell<State>,
}

// SAFETY: `state` is reached through `Guard` alone. Under MPI_THREAD_MULTIPLE a guard exists only
// while its thread has set `inside` from false to true with acquire ordering; below that level MPI
// forbids calls from two threads at once.
unsafe impl Sync for Process {}

static PROCESS: Process = Process {
    inside: AtomicBool::new(false),
    multiple: AtomicBool::new(false),
    waiting: AtomicU32::new(0),
    state: UnsafeCell::new(State {
        windows: Registry::new(),
        host: Host { progress_host: || (), complete: |_, _| () },
        settings: None,
        network_polled: None,
        polls: 0,
        network: Network::new(),
        persistent: PersistentRequests::new(),
        checked: CheckedList::new(),
        contacted: Vec::new(),
    }),
};

/// The window and target that are known to be in order, since the call of `MPIX_Win_order` before
/// found them so and nothing has happened since that could change it. Unused under
/// `MPI_THREAD_MULTIPLE`. Programs read it (`mpix_inline.h`), so its layout is part of the
/// interface.
#[repr(C)]
struct InOrder {
    window: AtomicU64,
    target: AtomicU32,
}

// SAFETY: no other symbol of this name exists, and the header only reads it.
#[unsafe(export_name = "mpix_rma_in_order")]
static IN_ORDER: InOrder = InOrder { window: AtomicU64::new(NO_HANDLE), target: AtomicU32::new(0) };

/// Whether operations to the target of the window are known to be in order.
#[inline(always)]
pub(crate) fn is_in_order(window: HostHandle, target: Rank) -> bool {
    IN_ORDER.window.load(Ordering::Relaxed) == window.0
        && IN_ORDER.target.load(Ordering::Relaxed) == target
}

/// Notes that they are, until [`forget_order`] or [`enter`] is called.
#[inline(always)]
pub(crate) fn note_order(window: HostHandle, target: Rank) {
    IN_ORDER.window.store(window.0, Ordering::Relaxed);
    IN_ORDER.target.store(target, Ordering::Relaxed);
}

/// Called before anything that needs a new order, or that may change which calls are allowed.
#[inline(always)]
pub(crate) fn forget_order() {
    IN_ORDER.window.store(NO_HANDLE, Ordering::Relaxed);
}

/// The right of one thread to use the process's state. Not `Send`.
pub(crate) struct Guard(std::marker::PhantomData<*mut ()>);

/// Enters the runtime, waiting for other threads under `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub(crate) fn enter() -> Guard {
    if PROCESS.multiple.load(Ordering::Relaxed) {
        if PROCESS.inside.swap(true, Ordering::Acquire) {
            contended();
        }
    } else {
        if PROCESS.inside.load(Ordering::Relaxed) {
            reentered();
        }
        PROCESS.inside.store(true, Ordering::Relaxed);
        forget_order();
    }
    Guard(std::marker::PhantomData)
}

/// Enters the runtime unless a thread is already inside, or waits to enter. For hooks, which run
/// inside calls of the host and must not wait, and for the progress thread.
#[inline]
pub(crate) fn try_enter() -> Option<Guard> {
    if PROCESS.inside.load(Ordering::Relaxed)
        || is_wanted()
        || PROCESS.inside.swap(true, Ordering::Acquire)
    {
        return None;
    }
    forget_order();
    Some(Guard(std::marker::PhantomData))
}

/// Whether a thread has waited for a while to enter. Calls of the host may yield the processor
/// inside the runtime. If the thread inside left and entered again at once, another one on the same
/// processor would then run only while it cannot enter.
#[inline]
pub(crate) fn is_wanted() -> bool {
    PROCESS.waiting.load(Ordering::Relaxed) > 0
}

/// True if no thread is in the runtime, so that this one is not.
#[inline]
pub(crate) fn is_outside() -> bool {
    !PROCESS.inside.load(Ordering::Relaxed)
}

/// Enters the runtime below `MPI_THREAD_MULTIPLE`, unless this thread is already inside.
#[inline(always)]
pub(crate) fn enter_alone() -> Option<Guard> {
    if multiple() || PROCESS.inside.load(Ordering::Relaxed) {
        return None;
    }
    PROCESS.inside.store(true, Ordering::Relaxed);
    Some(Guard(std::marker::PhantomData))
}

#[cold]
#[inline(never)]
fn contended() {
    const POLLS_PER_YIELD: u64 = 64;
    let mut polls = 0u64;
    loop {
        while PROCESS.inside.load(Ordering::Relaxed) {
            polls += 1;
            if polls == POLLS_PER_YIELD {
                PROCESS.waiting.fetch_add(1, Ordering::Relaxed);
            }
            if polls.is_multiple_of(POLLS_PER_YIELD) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        if !PROCESS.inside.swap(true, Ordering::Acquire) {
            if polls >= POLLS_PER_YIELD {
                PROCESS.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        }
    }
}

#[cold]
#[inline(never)]
fn reentered() -> ! {
    panic!(
        "this library was entered from inside one of its own calls, or by two threads below \
         MPI_THREAD_MULTIPLE"
    )
}

/// Sets whether the thread level is `MPI_THREAD_MULTIPLE`. Called once, at `MPI_Init`.
pub(crate) fn set_multiple(multiple: bool) {
    PROCESS.multiple.store(multiple, Ordering::SeqCst);
    crate::transport::expect_several_threads(multiple);
}

/// True under `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub(crate) fn multiple() -> bool {
    PROCESS.multiple.load(Ordering::Relaxed)
}

/// A value of this process with a lock of its own, which is taken under `MPI_THREAD_MULTIPLE` only.
/// It may be used with or without the guard.
pub(crate) struct Own<T>(Exclusive<T>);

impl<T> Own<T> {
    /// # Safety
    /// Any thread may use the value and drop what is in it.
    #[cfg(not(loom))]
    pub(crate) const unsafe fn new(value: T) -> Self {
        // SAFETY: the contract of this function.
        Self(unsafe { Exclusive::new(value) })
    }

    /// Runs `body`, which neither panics nor calls the host, on the value.
    #[inline]
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: below MPI_THREAD_MULTIPLE, MPI lets one thread at a time call, and the
        // application orders these calls. `body` does not come back here, since it calls nothing
        // outside this library.
        unsafe { self.0.with(multiple(), body) }
    }
}

/// The flag that is set while a thread is in the runtime, for [`Guarded`] contexts.
///
/// [`Guarded`]: crate::transport::guarded::Guarded
pub(crate) fn guard_flag() -> &'static AtomicBool {
    &PROCESS.inside
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        PROCESS.inside.store(false, Ordering::Release);
    }
}

impl Deref for Guard {
    type Target = State;
    #[inline(always)]
    fn deref(&self) -> &State {
        // SAFETY: the guard is the only way to the state, and there is one guard at a time (see
        // `Process`).
        unsafe { &*PROCESS.state.get() }
    }
}

impl DerefMut for Guard {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: the guard is the only way to the state, there is one guard at a time (see
        // `Process`), and it is borrowed exclusively.
        unsafe { &mut *PROCESS.state.get() }
    }
}

impl Index<WindowId> for Guard {
    type Output = Window;
    #[inline(always)]
    fn index(&self, id: WindowId) -> &Window {
        &self.windows[id]
    }
}

impl IndexMut<WindowId> for Guard {
    #[inline(always)]
    fn index_mut(&mut self, id: WindowId) -> &mut Window {
        &mut self.windows[id]
    }
}
