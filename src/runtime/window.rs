//! The windows of this process.

use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::process::{Host, multiple};
use super::shortcut::{self, Shortcut};
use super::transport::{Transport, with_port};
use crate::engine::{self, Notified, Outcome, Rank, RequestId};
use crate::transport::shm::{self, doorbell::slot};

/// A window handle of the host, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostHandle(pub(crate) u64);

/// A pending request of the host, by the number that the host glue gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostRequest(pub(crate) NonZeroU32);

/// How a pending request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// What it stands for is done.
    Done,
    /// An operation was not done, since its target has not attached what it reaches. The log has
    /// said more.
    Unattached,
    /// What it stands for may never be done: a peer cannot be reached any more, and this is why, or
    /// a message was refused. The log has named the peer.
    Broken(Option<&'static str>),
}

/// What a request of the host stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One operation.
    Operation,
    /// Whatever was to be done at this target, or at all.
    Target(Option<Rank>),
}

/// What `MPI_Win_get_attr` tells of a window; MPI gives out the addresses of these, so they live in
/// the window.
#[derive(Debug)]
pub(crate) struct Attributes {
    /// `MPI_WIN_BASE`
    pub(crate) base: usize,
    /// `MPI_WIN_SIZE`
    pub(crate) size: isize,
    /// `MPI_WIN_DISP_UNIT`
    pub(crate) disp_unit: libc::c_int,
    /// `MPI_WIN_CREATE_FLAVOR`
    pub(crate) flavor: libc::c_int,
    /// `MPI_WIN_MODEL`
    pub(crate) model: libc::c_int,
    /// `MPIX_WIN_NOTIFICATION_NUM_SB`
    pub(crate) notification_num_sb: libc::c_int,
}

/// What `MPI_Win_get_info` tells of a window, and `MPI_Win_set_info` may change (MPI-4.1 12.2.1,
/// 12.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    /// `no_locks`: a lock is served all the same, and the log warns once.
    pub(crate) no_locks: bool,
    /// `accumulate_ordering`: which of rar, raw, war, waw the application relies on, in this order
    /// from the lowest bit. All are kept in any case.
    pub(crate) ordering: u8,
    /// `accumulate_ops` is `same_op` and not `same_op_no_op`. Any mix is atomic here.
    pub(crate) same_op: bool,
    /// `same_size`
    pub(crate) same_size: bool,
    /// `same_disp_unit`
    pub(crate) same_disp_unit: bool,
    /// `alloc_shared_noncontig`
    pub(crate) noncontig: bool,
    /// `mpi_accumulate_granularity`: bytes; 0 if the application does not say.
    pub(crate) granularity: u64,
    /// `acc_single_intrinsic`: every accumulate is of one element of a predefined datatype; kept
    /// from the window's beginning.
    pub(crate) single: bool,
    /// `mpi_minimum_memory_alignment`: bytes, of memory that we allocate.
    pub(crate) alignment: u64,
    /// The reorder flags that the engine was given.
    pub(crate) flags: engine::ReorderFlags,
    /// `mpi_assert_max_num_notify`: notification counters that this process will ask for at most; 0
    /// if the application does not say.
    pub(crate) max_counters: u32,
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            no_locks: false,
            ordering: 0b1111,
            same_op: false,
            same_size: false,
            same_disp_unit: false,
            noncontig: false,
            granularity: 0,
            single: false,
            alignment: 1,
            flags: engine::ReorderFlags::default(),
            max_counters: 0,
        }
    }
}

/// Where a wait for counters tells what it has found: the application's places, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) index: *mut libc::c_int,
    pub(crate) value: *mut i64,
}

impl Places {
    pub(crate) fn none() -> Self {
        Self { index: std::ptr::null_mut(), value: std::ptr::null_mut() }
    }

    /// # Safety
    /// Each place is NULL or may be written.
    pub(crate) unsafe fn write(self, found: Notified) {
        // SAFETY: the caller's promise.
        unsafe {
            if !self.index.is_null() {
                self.index.write(found.index as libc::c_int);
            }
            if !self.value.is_null() {
                self.value.write(found.value as i64);
            }
        }
    }
}

/// One window that we serve.
#[derive(Debug)]
pub(crate) struct Window {
    /// Decides.
    pub(crate) engine: engine::Window,
    /// Moves bytes.
    pub(crate) port: Transport,
    /// The host's window under which the application knows it.
    pub(crate) handle: HostHandle,
    /// Processes of the window.
    pub(crate) size: u32,
    /// Operations of this process on others may stay in flight, so calls that close an epoch stay
    /// with them.
    pub(crate) polls: bool,
    /// Looks for which the window is still polled though it is idle: a peer has contacted it a
    /// short while ago.
    lingers: u32,
    /// The window's group at the host, made at the first post or start.
    pub(crate) group: Option<HostHandle>,
    /// See [`Attributes`].
    pub(crate) attributes: Attributes,
    /// See [`Hints`].
    pub(crate) hints: Hints,
    /// Calls that wait in this window without holding the guard: it may not be freed under them.
    pub(crate) waiting: u32,
    /// Those of [`waiting`](Self::waiting) that wait for a request: they leave by themselves when
    /// it has ended.
    pub(crate) request_waits: u32,
    /// The log has said that the application locks a window with `no_locks=true`.
    pub(crate) warned_of_locks: bool,
    /// Calls so far that did not wait, to sweep over the rest of the process now and then.
    pub(crate) calls: u32,
    /// Of allocated windows, under `MPI_THREAD_MULTIPLE`.
    shortcut: Option<&'static Shortcut>,
    /// In the registry's list of windows that a sweep looks at.
    attended: bool,
    /// Looks since the last one at the clock, whatever they moved.
    looks: u32,
    /// Since when this window waits for something of its own, or when its peers were last asked
    /// whether they are still there.
    waits_since: Option<Instant>,
    /// Something has moved since then: of others, perhaps, so that it tells nothing of what is
    /// waited for.
    stirred: bool,
    /// A test has found nothing since then: a loop of tests is a wait.
    tested: bool,
    /// What was reported last.
    reported: String,
    /// The host's request of each pending request of the engine that has one, by its index.
    requests: Vec<Option<(HostRequest, Scope)>>,
    /// Where pending waits for counters tell what they find, by the request's index.
    places: HashMap<u32, Places>,
    /// The last request of an operation that was not done.
    failed: Option<RequestId>,
}

impl Window {
    pub(crate) fn new(
        engine: engine::Window,
        port: Transport,
        handle: HostHandle,
        size: u32,
        attributes: Attributes,
        hints: Hints,
    ) -> Self {
        let polls = port.needs_polling();
        let shortcut = (multiple() && port.is_mapped()).then(|| shortcut::make(handle.0));
        Self {
            engine,
            port,
            handle,
            size,
            polls,
            lingers: 0,
            group: None,
            attributes,
            hints,
            waiting: 0,
            request_waits: 0,
            warned_of_locks: false,
            calls: 0,
            shortcut,
            attended: false,
            looks: 0,
            waits_since: None,
            stirred: false,
            tested: false,
            reported: String::new(),
            requests: Vec::new(),
            places: HashMap::new(),
            failed: None,
        }
    }

    /// Other threads may do as the operation that this one has just issued, without entering.
    #[inline]
    pub(crate) fn open_shortcut(&self, target: Rank) {
        if let Some(shortcut) = self.shortcut
            && self.engine.has_direct_route(target)
        {
            shortcut.open(target, || self.port.place_of(target));
        }
    }

    /// Before anything that opens or closes an access epoch.
    #[inline]
    pub(crate) fn close_shortcuts(&self) {
        if let Some(shortcut) = self.shortcut {
            shortcut.close();
        }
    }

    /// Ties a pending request of the engine to one of the host.
    pub(crate) fn bind(&mut self, id: RequestId, request: HostRequest, scope: Scope) {
        let at = id.index as usize;
        // Requests on which blocking calls wait have places too, which stay empty.
        if at >= self.requests.len() {
            self.requests.resize(at + 1, None);
        }
        debug_assert!(
            self.requests[at].is_none(),
            "the engine reused a request before it was reported"
        );
        self.requests[at] = Some((request, scope));
    }

    /// Notes where a pending wait for counters tells what it finds.
    pub(crate) fn promise(&mut self, id: RequestId, places: Places) {
        if !places.index.is_null() || !places.value.is_null() {
            self.places.insert(id.index, places);
        }
    }

    /// Up to `looks` looks at counters that a pending request waits for, and at nothing else. True
    /// if it has ended so: then its places are written, and nothing reports it.
    #[inline]
    pub(crate) fn take_awaited(&mut self, id: RequestId, looks: u32) -> bool {
        let found = with_port!(&mut self.port, port => self.engine.take_awaited(port, id, looks));
        let Some(found) = found else { return false };
        if let Some(bound) = self.requests.get_mut(id.index as usize) {
            *bound = None;
        }
        if let Some(places) = self.places.remove(&id.index) {
            // SAFETY: as in `report`.
            unsafe { places.write(found) };
        }
        true
    }

    /// True if a lock that is open is not held yet, and may still come.
    #[inline]
    pub(crate) fn awaits_open_lock(&self) -> bool {
        self.engine.awaits_open_lock() && !self.port.is_broken()
    }

    /// True if nothing more will happen by itself.
    pub(crate) fn is_settled(&self) -> bool {
        self.engine.is_quiet() || self.port.is_broken()
    }

    /// Rank of this process.
    pub(crate) fn rank(&self) -> Rank {
        self.engine.rank()
    }

    /// Tells the host about the requests that the engine has completed. True if there were any.
    #[inline]
    pub(crate) fn report(&mut self, host: &Host) -> bool {
        let mut any = false;
        while let Some(id) = self.engine.next_completed() {
            any = true;
            if let Some(found) = self.engine.found(id)
                && let Some(places) = self.places.remove(&id.index)
            {
                // SAFETY: the application's places, which are the library's until this request is
                // complete, as the header says.
                unsafe { places.write(found) };
            }
            // Blocking calls wait on requests of the engine that the host knows nothing of.
            let failed = self.engine.take_failed(id);
            if failed {
                self.failed = Some(id);
            }
            if let Some((request, scope)) =
                self.requests.get_mut(id.index as usize).and_then(Option::take)
            {
                let ending = match scope {
                    Scope::Operation if failed => Ending::Unattached,
                    Scope::Target(target) if self.port.take_fault(target).is_some() => {
                        Ending::Unattached
                    }
                    _ => Ending::Done,
                };
                (host.complete)(request, ending);
            }
        }
        if self.port.is_broken() {
            any |= self.end_requests(host);
        }
        if any && self.requests.len() > KEPT && self.engine.requests_alive() == 0 {
            self.requests = Vec::new();
        }
        any
    }

    /// Nothing that is pending may ever be done.
    #[cold]
    fn end_requests(&mut self, host: &Host) -> bool {
        let pending = std::mem::take(&mut self.requests);
        // Nobody waits for what they stand for.
        self.engine
            .withdraw_waits(|id| pending.get(id.index as usize).is_some_and(Option::is_some));
        let any = pending.iter().any(Option::is_some);
        let why = self.port.lost().map(|(_, why)| why);
        pending
            .into_iter()
            .flatten()
            .for_each(|(request, _)| (host.complete)(request, Ending::Broken(why)));
        self.places.clear();
        any
    }

    /// One bounded sweep over this window.
    #[inline]
    pub(crate) fn advance(&mut self, host: &Host) -> bool {
        let moved = with_port!(&mut self.port, port => self.engine.progress(port));
        let moved = self.report(host) | moved;
        if moved {
            self.stirred = true;
            if !self.port.is_armed() {
                self.lingers = LOOKS_BEFORE_ARMING;
            }
        }
        self.looks += 1;
        if self.looks >= LOOKS_PER_CLOCK {
            self.look_at_clock();
        }
        moved
    }

    /// Between two looks of a wait: stays with the interface, unless what is waited for is memory.
    #[inline]
    pub(crate) fn linger(&self) {
        if !self.engine.watches_words() {
            self.port.linger();
        }
    }

    /// A test has found nothing, and is about to drive everything.
    #[inline]
    pub(crate) fn tested_in_vain(&mut self) {
        self.tested = true;
        self.looks += LOOKS_OF_A_TEST;
    }

    /// Has the peers asked now and then, while this window waits, whether they are still there:
    /// also while others keep it busy, who may do so for ever. Says in the log, once, what a wait
    /// in which nothing moves waits for [EP-10].
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "only to say how long a wait has lasted")]
    fn look_at_clock(&mut self) {
        self.looks = 0;
        let quiet = self.engine.is_quiet();
        let waits = !quiet || self.waiting != 0 || self.engine.expectations_waiting() != 0;
        if !waits && !self.tested {
            // A window that polls for others is looked at all the same: its own next wait begins
            // anew.
            self.waits_since = None;
            return;
        }
        let now = Instant::now();
        match self.waits_since {
            Some(since) if now.duration_since(since) < LONG_WAIT => return,
            Some(_) => {
                let standing = self.port.probe();
                if waits && !self.stirred {
                    self.report_wait(quiet, &standing);
                }
                self.tested = false;
            }
            None => {}
        }
        self.waits_since = Some(now);
        self.stirred = false;
    }

    #[cold]
    fn report_wait(&mut self, quiet: bool, standing: &str) {
        let waits =
            if quiet { "no epoch is pending".to_owned() } else { self.engine.waits().to_string() };
        if waits != self.reported {
            log::info!(
                "window {:#x} has waited for {LONG_WAIT:?}: {waits}{standing}",
                self.handle.0
            );
            self.reported = waits;
        }
    }

    /// After a call that closes an epoch or starts a flush, when the application may compute for
    /// long: stays with operations that are on their way as long as they move, so that the *done*
    /// need not wait for the next call [PR-3]. Gives what became of the outcome.
    #[inline]
    pub(crate) fn settle(&mut self, outcome: Outcome) -> Outcome {
        let Outcome::Pending(id) = outcome else { return outcome };
        if self.polls {
            while self.engine.is_pending(id) && self.port.settle() {
                with_port!(&mut self.port, port => self.engine.progress(port));
            }
        }
        if self.engine.is_pending(id) { outcome } else { Outcome::Complete }
    }

    /// Looks a few times before a pending request gets one of the host, which costs more than what
    /// it often waits for: the neighbour hands over a lock or posts at this moment. Not where the
    /// epoch stands behind others. True if the request is complete.
    #[inline]
    pub(crate) fn completes_soon(&mut self, id: RequestId, host: &Host) -> bool {
        if self.engine.defers() {
            return false;
        }
        if self.engine.awaits(id) {
            // Was looked at just now.
            return false;
        }
        (0..LOOKS_BEFORE_A_REQUEST).any(|_| {
            self.advance(host);
            !self.engine.is_pending(id)
        })
    }

    /// True if the request was that of an operation that was not done. Asked at once after it was
    /// complete.
    pub(crate) fn has_failed(&mut self, id: RequestId) -> bool {
        self.failed.take() == Some(id)
    }

    /// True if nobody need poll this window: it waits for nothing, and a peer will ring.
    /// One that was contacted a short while ago is polled a little longer, since more may follow;
    /// `briefly`: not even that.
    #[inline]
    pub(crate) fn is_idle(&mut self, briefly: bool) -> bool {
        self.engine.is_quiet() && (self.port.is_armed() || self.falls_idle(briefly))
    }

    #[inline(never)]
    fn falls_idle(&mut self, briefly: bool) -> bool {
        if self.lingers > 0 && !briefly {
            self.lingers -= 1;
            return false;
        }
        self.port.arm()
    }
}

/// Looks at a window that find nothing before it is armed: some 10 us, several round trips of a peer
/// that uses it.
const LOOKS_BEFORE_ARMING: u32 = 256;
/// Windows that are polled for that long at a time: with more of them the polls would cost more
/// than the doorbell.
const LINGERING_MOST: usize = 4;

/// More of them gain nothing.
const LOOKS_BEFORE_A_REQUEST: u32 = 4;
/// Places for requests that a window keeps when none is pending.
const KEPT: usize = 1024;
/// Looks between two looks at the clock: few, since on a busy machine each look that gives the CPU
/// away may take milliseconds.
const LOOKS_PER_CLOCK: u32 = 1 << 8;
/// Looks that a test counts for beside its own: a program may compute for long between two of them.
const LOOKS_OF_A_TEST: u32 = LOOKS_PER_CLOCK / 4;
/// A wait that is reported, and in which the peers are asked whether they are still there.
const LONG_WAIT: Duration = Duration::from_secs(2);

/// What the registry knows of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// We serve it.
    Ours(NonNull<Window>),
    /// Made by one of the constructors that we see, and left to the host.
    Host,
    /// Freed, and not given out again since.
    Freed,
}

/// What stands at a place of the list of attended windows.
pub(crate) enum Attended {
    /// A window that waits for something; `moved` tells whether requests of it were reported.
    Busy { window: NonNull<Window>, moved: bool },
    /// One that did not, and left the list.
    Idle { moved: bool },
    /// Nothing: the list ends before.
    End,
}

/// Mixes a handle: MPICH's differ in the low bits, Open MPI's are addresses.
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

/// Freed handles that are remembered at most, so that a program that makes windows for ever does
/// not grow.
const FREED_MOST: usize = 1 << 16;

/// All windows that passed through our constructors, by handle. Owns the windows that we serve.
pub(crate) struct Registry {
    /// The handle that was asked for last, and its window if it is ours.
    hot: (u64, Option<NonNull<Window>>),
    entries: HashMap<u64, Entry, BuildHasherDefault<HandleHasher>>,
    /// Windows that we serve.
    live: Vec<NonNull<Window>>,
    /// Those of them that were called or contacted since they were last found idle: all that a
    /// sweep has to look at.
    attended: Vec<NonNull<Window>>,
    /// Those of them whose peers can ring, by their slot at the doorbell.
    by_slot: HashMap<u32, Vec<NonNull<Window>>, BuildHasherDefault<HandleHasher>>,
    /// Which of them is looked at next without having rung; see [`Registry::check_next`].
    next_checked: usize,
    /// Entries that are [`Entry::Freed`].
    freed: usize,
}

/// No handle of a host has all bits set.
const NOBODY: u64 = u64::MAX;

/// The handle that was asked for last of those that are left to the host.
static LEFT_TO_HOST: AtomicU64 = AtomicU64::new(NOBODY);
/// How many windows are attended.
static ATTENDED: AtomicUsize = AtomicUsize::new(0);

/// True of the window that was last found to be left to the host. Asked before anything is entered:
/// what such a window costs beside its plain host is this question.
#[inline(always)]
pub(crate) fn is_left_to_host(handle: HostHandle) -> bool {
    LEFT_TO_HOST.load(Ordering::Acquire) == handle.0
}

/// True if a sweep would look at nothing. Asked by hooks before they enter.
#[inline(always)]
pub(crate) fn nothing_attended() -> bool {
    ATTENDED.load(Ordering::Acquire) == 0
}

impl Registry {
    pub(crate) const fn new() -> Self {
        Self {
            hot: (NOBODY, None),
            entries: HashMap::with_hasher(BuildHasherDefault::new()),
            live: Vec::new(),
            attended: Vec::new(),
            by_slot: HashMap::with_hasher(BuildHasherDefault::new()),
            next_checked: 0,
            freed: 0,
        }
    }

    /// The window of a handle, if we serve it, for a call on it. Valid while the guard is held or
    /// [`Window::waiting`] is not 0.
    #[inline(always)]
    pub(crate) fn ours(&mut self, handle: HostHandle) -> Option<NonNull<Window>> {
        let window = if self.hot.0 == handle.0 { self.hot.1 } else { self.look_up(handle) }?;
        // SAFETY: windows in the registry are live, and the caller holds the guard.
        if !unsafe { window.as_ref() }.attended {
            self.attend(window);
        }
        Some(window)
    }

    /// The window that was asked for last, if this is its handle. It is not attended for that: for
    /// calls that leave nothing behind.
    #[inline(always)]
    pub(crate) fn hot(&self, handle: HostHandle) -> Option<NonNull<Window>> {
        if self.hot.0 == handle.0 { self.hot.1 } else { None }
    }

    #[inline(never)]
    fn attend(&mut self, window: NonNull<Window>) {
        Self::add_attended(&mut self.attended, window);
        self.note_attended();
    }

    fn add_attended(attended: &mut Vec<NonNull<Window>>, mut window: NonNull<Window>) {
        // SAFETY: as in `ours`.
        unsafe { window.as_mut() }.attended = true;
        attended.push(window);
    }

    /// The window at this place of the list that a sweep goes through, if it is not idle; an idle
    /// one leaves the list, and another takes its place.
    #[inline]
    pub(crate) fn attended(&mut self, at: usize, host: &Host) -> Attended {
        let Some(mut found) = self.attended.get(at).copied() else { return Attended::End };
        // SAFETY: as in `ours`; callers keep pointers only across a sweep, so no other reference is
        // alive.
        let window = unsafe { found.as_mut() };
        // A call may have completed a request without leaving anything to wait for, so reporting
        // comes first.
        let moved = window.report(host);
        if window.is_idle(self.attended.len() > LINGERING_MOST) {
            window.attended = false;
            self.attended.swap_remove(at);
            self.note_attended();
            return Attended::Idle { moved };
        }
        Attended::Busy { window: found, moved }
    }

    /// Attends the windows that peers have contacted since the last call.
    #[cold]
    pub(crate) fn attend_rung(&mut self) {
        shm::take_rung(|slot| {
            let Some(windows) = self.by_slot.get_mut(&slot) else { return };
            for window in windows {
                // SAFETY: as in `ours`.
                let found = unsafe { window.as_mut() };
                if !found.port.is_armed() {
                    found.lingers = LOOKS_BEFORE_ARMING;
                    if !found.attended {
                        Self::add_attended(&mut self.attended, *window);
                    }
                }
            }
        });
        self.note_attended();
    }

    /// Looks at one window that nobody attends, another one each time: a peer that could not ring
    /// is served in the end.
    #[cold]
    pub(crate) fn check_next(&mut self, host: &Host) -> bool {
        if self.live.is_empty() {
            return false;
        }
        self.next_checked = (self.next_checked + 1) % self.live.len();
        let mut window = self.live[self.next_checked];
        // SAFETY: as in `attended`.
        let found = unsafe { window.as_mut() };
        let moved = !found.attended && found.advance(host);
        if moved {
            self.attend(window);
        }
        moved
    }

    /// Windows whose peers may tell this process something at any time.
    pub(crate) fn tellable(&self) -> usize {
        // SAFETY: as in `ours`.
        self.live.iter().filter(|window| unsafe { window.as_ref() }.size > 1).count()
    }

    fn note_attended(&self) {
        ATTENDED.store(self.attended.len(), Ordering::Release);
    }

    /// A window in which a lock that is open is not held yet.
    #[inline]
    pub(crate) fn awaiting_lock(&self) -> Option<NonNull<Window>> {
        // SAFETY: as in `ours`. A window that waits for a lock is not idle, so it is on this list.
        self.attended.iter().copied().find(|window| unsafe { window.as_ref() }.awaits_open_lock())
    }

    #[inline(never)]
    fn look_up(&mut self, handle: HostHandle) -> Option<NonNull<Window>> {
        match self.entries.get(&handle.0)? {
            Entry::Ours(window) => {
                self.hot = (handle.0, Some(*window));
                Some(*window)
            }
            Entry::Host => {
                self.hot = (handle.0, None);
                LEFT_TO_HOST.store(handle.0, Ordering::Release);
                None
            }
            Entry::Freed => None,
        }
    }

    /// What is known of a handle.
    pub(crate) fn entry(&self, handle: HostHandle) -> Option<Entry> {
        self.entries.get(&handle.0).copied()
    }

    /// Takes over a window that we serve.
    pub(crate) fn insert_ours(&mut self, window: Box<Window>) -> NonNull<Window> {
        let (handle, number) = (window.handle, window.port.number());
        let window = NonNull::from(Box::leak(window));
        self.set(handle, Entry::Ours(window));
        if let Some(number) = number {
            self.by_slot.entry(slot(number)).or_default().push(window);
        }
        self.live.push(window);
        self.attend(window);
        window
    }

    /// Notes a window that is left to the host.
    pub(crate) fn insert_host(&mut self, handle: HostHandle) {
        self.set(handle, Entry::Host);
    }

    /// Forgets a window that was left to the host, remembering that its handle is no longer valid.
    pub(crate) fn remove_host(&mut self, handle: HostHandle) {
        // Another thread may have been given the handle again already.
        if self.entries.get(&handle.0) == Some(&Entry::Host) {
            self.set(handle, Entry::Freed);
        }
    }

    /// Forgets a window that we served, remembering that its handle is no longer valid.
    pub(crate) fn remove_ours(
        &mut self,
        handle: HostHandle,
        window: NonNull<Window>,
    ) -> Box<Window> {
        // Another thread may have been given the handle again already.
        if self.entries.get(&handle.0) == Some(&Entry::Ours(window)) {
            self.set(handle, Entry::Freed);
        }
        self.hot = (NOBODY, None);
        let at = self.live.iter().position(|other| *other == window).expect("a live window");
        self.live.remove(at);
        self.attended.retain(|other| *other != window);
        self.note_attended();
        // SAFETY: as in `ours`.
        if let Some(number) = unsafe { window.as_ref() }.port.number()
            && let Some(windows) = self.by_slot.get_mut(&slot(number))
        {
            windows.retain(|other| *other != window);
        }
        // SAFETY: as in `ours`.
        if let Some(shortcut) = unsafe { window.as_ref() }.shortcut {
            shortcut::give_back(shortcut);
        }
        // SAFETY: `insert_ours` leaked this box and listed it as live; it was just taken from that
        // list, so it comes back once.
        unsafe { Box::from_raw(window.as_ptr()) }
    }

    fn set(&mut self, handle: HostHandle, entry: Entry) -> Option<Entry> {
        self.hot = (NOBODY, None);
        LEFT_TO_HOST.store(NOBODY, Ordering::Release);
        if entry == Entry::Freed && self.freed >= FREED_MOST {
            self.entries.retain(|_, entry| *entry != Entry::Freed);
            self.freed = 0;
        }
        let old = self.entries.insert(handle.0, entry);
        self.freed += usize::from(entry == Entry::Freed);
        self.freed -= usize::from(old == Some(Entry::Freed));
        old
    }

    /// Windows that we serve.
    pub(crate) fn live(&self) -> &[NonNull<Window>] {
        &self.live
    }
}
