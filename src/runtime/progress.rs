//! Sweeps over all windows, and the loop in which every blocking call waits.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::collectives;
use super::continuations::{self, Thread, any_runnable};
use super::looks::Pace;
use super::pause;
use super::process::{Guard, Host, State, enter, is_wanted, multiple, try_enter};
use super::registry::{Attendance, Attended, WindowId, nothing_attended};
use super::window::Window;
use crate::transport::am::context::any_in_use;
use crate::transport::shm;

/// Number of windows that we serve. Hooks and waits read it without the guard.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Number of these windows whose peers may contact this process.
static CONTACTABLE: AtomicUsize = AtomicUsize::new(0);
/// See [`oversubscribed`].
static OVERSUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// Publishes how many windows are live. Called with the guard held whenever that changes.
pub(crate) fn note_live(state: &State) {
    CONTACTABLE.store(state.windows.contactable(), Ordering::Relaxed);
    let before = LIVE.swap(state.windows.len(), Ordering::AcqRel);
    if before == 0 {
        super::thread::wake();
    }
}

/// Whether a peer may contact this process at any time and then wait for it. If so, a call that
/// waits must sweep.
#[inline]
pub(crate) fn may_be_contacted() -> bool {
    CONTACTABLE.load(Ordering::Relaxed) != 0
}

/// Sweeps between two polls of a window whose doorbell did not ring.
const SWEEPS_PER_CHECK: u32 = 1024;
static SWEEPS: AtomicU32 = AtomicU32::new(0);

/// Counts a sweep. True if it is time to poll a window whose doorbell did not ring.
#[inline]
fn must_check() -> bool {
    if !may_be_contacted() {
        return false;
    }
    let sweeps = SWEEPS.load(Ordering::Relaxed).wrapping_add(1);
    SWEEPS.store(sweeps, Ordering::Relaxed);
    sweeps.is_multiple_of(SWEEPS_PER_CHECK)
}

/// Number of windows that we serve.
pub(crate) fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// True if there is no window to drive.
#[inline]
pub(crate) fn nothing_lives() -> bool {
    LIVE.load(Ordering::Acquire) == 0
}

/// Called once, at `MPI_Init`.
pub(crate) fn set_oversubscribed(oversubscribed: bool) {
    OVERSUBSCRIBED.store(oversubscribed, Ordering::Relaxed);
}

/// Whether ranks of this node outnumber the cores that they may run on.
#[inline]
pub(crate) fn oversubscribed() -> bool {
    OVERSUBSCRIBED.load(Ordering::Relaxed)
}

/// One bounded sweep over every attended window and active collective. True if anything moved.
pub(crate) fn sweep(state: &mut State) -> bool {
    sweep_some(state, true)
}

/// Least time between two polls of the network by calls that do not wait. A poll takes about half a
/// microsecond, as long as thirty puts to memory of this node.
const BETWEEN_NETWORK_POLLS: Duration = Duration::from_micros(20);

/// A sweep after some calls that did not wait. It polls the network at most every
/// [`BETWEEN_NETWORK_POLLS`].
#[allow(clippy::disallowed_methods, reason = "only to bound what the host's progress costs")]
#[inline(never)]
pub(crate) fn sweep_between_calls(state: &mut State) {
    let mut polls = false;
    if any_in_use() {
        let now = Instant::now();
        polls = state.network_polled.is_none_or(|seen| now - seen >= BETWEEN_NETWORK_POLLS);
        if polls {
            state.network_polled = Some(now);
        }
    }
    sweep_some(state, polls);
}

/// A sweep, with or without a poll of the network.
fn sweep_some(state: &mut State, with_network: bool) -> bool {
    let mut any = with_network && any_in_use() && state.poll_network();
    let host = state.host;
    if shm::is_rung() {
        state.windows.attend_rung();
    }
    if must_check() {
        any |= state.windows.check_next(&host);
    }
    state.windows.pass_resting();
    let mut at = 0;
    state.network.hold();
    loop {
        match state.windows.attended(at, &host) {
            Attended::Busy { window, moved } => {
                any |= moved;
                match window.only_sends() {
                    None => {
                        window.attendance = Attendance::Full;
                        any |= window.advance(&host);
                    }
                    Some(false) => {}
                    Some(true) => {
                        state.windows.rest(at);
                        continue;
                    }
                }
                at += 1;
            }
            Attended::Idle { moved } => any |= moved,
            Attended::End => break,
        }
    }
    state.network.send_held();
    any | collectives::advance_all(&mut state.windows)
}

/// Idle sweeps that a hook makes after one in which something moved.
const AFTER_A_MOVE: u32 = 16;
/// Most sweeps of one call of a hook, before the host gets the CPU back.
const AT_MOST: u32 = 64;
/// Idle sweeps left to make. Kept between calls of the hook.
static EXPECTANT: AtomicU32 = AtomicU32::new(0);

/// Whether no window is attended, no doorbell has rung, and there is neither an active collective
/// nor a network to poll.
#[inline]
fn nothing_to_look_at() -> bool {
    nothing_attended() && !shm::is_rung() && !any_in_use() && !collectives::any_active()
}

/// Called once before each [`sweep_found`]: whether a sweep from a hook would do nothing. Never
/// panics, so the caller need not catch anything.
#[inline]
pub(crate) fn finds_nothing() -> bool {
    nothing_to_look_at() && !must_check()
}

/// Called by hooks of the host: sweeps, unless a thread is already inside. True if anything moved.
pub(crate) fn sweep_from_hook() -> bool {
    !finds_nothing() && sweep_found()
}

/// The sweep of a hook for which there is [something to do](finds_nothing). After one that moved
/// something come more, because a peer that was just answered often asks again sooner than the host
/// calls the hook again. True if anything moved.
pub(crate) fn sweep_found() -> bool {
    let Some(mut guard) = try_enter() else { return false };
    if nothing_to_look_at() {
        let host = guard.host;
        return guard.windows.check_next(&host);
    }
    let mut any = false;
    let mut expectant = EXPECTANT.load(Ordering::Relaxed);
    for _ in 0..AT_MOST {
        if sweep(&mut guard) {
            any = true;
            expectant = AFTER_A_MOVE;
        } else if expectant == 0 {
            break;
        } else {
            expectant -= 1;
        }
        // A continuation may be all that the caller waits for.
        if is_wanted() || any_runnable() {
            break;
        }
    }
    EXPECTANT.store(expectant, Ordering::Relaxed);
    any
}

/// Whether some window or collective may need progress while a call of the host blocks. Under
/// `MPI_THREAD_MULTIPLE`, another thread may start something meanwhile.
pub(crate) fn must_drive() -> bool {
    if collectives::any_active() {
        return true;
    }
    if nothing_lives() {
        return false;
    }
    if multiple() || any_in_use() {
        return true;
    }
    let mut guard = enter();
    let host = guard.host;
    loop {
        // An idle window leaves the list and another takes its place, so check place 0 each time.
        match guard.windows.attended(0, &host) {
            Attended::Busy { .. } => return true,
            Attended::Idle { .. } => {}
            Attended::End => return false,
        }
    }
}

/// The pause between two polls of a waiting call: it spins first, and later yields the CPU [PR-4].
pub(crate) struct Backoff {
    looks: u32,
    spins: u32,
    /// Looks between two yields, after the spins.
    per_yield: u32,
    /// Counted in [`WAITING`].
    counted: bool,
    /// Pauses are pauses of the task that this thread runs.
    in_task: bool,
}

impl Drop for Backoff {
    fn drop(&mut self) {
        if self.counted {
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Looks between two rounds of progress of the rest of the process (other windows, the host).
const LOOKS_PER_ROUND: u32 = 64;
/// Looks without a pause between them. A look takes about as long as a pause, and most hand-overs
/// end within the first ones.
const EAGER: u32 = 128;

/// Looks between two yields of a rank with a core of its own: some 20 µs. In the kernel, a
/// yield writes to the cache lines that a peer needs for cross-memory attach to this process.
const LOOKS_PER_YIELD: u32 = 256;

/// Number of threads of this process that wait, under `MPI_THREAD_MULTIPLE`.
static WAITING: AtomicU32 = AtomicU32::new(0);

impl Backoff {
    pub(crate) fn new() -> Self {
        let in_task = pause::in_task();
        let counted = multiple() && !in_task;
        // One spinning thread makes progress for all. More would take cores from the threads that
        // they wait for.
        let alone = !counted || WAITING.fetch_add(1, Ordering::Relaxed) == 0;
        // A rank with a core of its own spins for some 20 µs, which is longer than a hand-over
        // takes. Where ranks share cores, the peer is probably not running: each look that finds
        // nothing yields. (Fences of 4 to 16 ranks on two cores took 20 to 40 % longer with 32
        // looks before that.)
        let shares = oversubscribed() || !alone;
        let (spins, per_yield) = if shares { (0, 1) } else { (2_000, LOOKS_PER_YIELD) };
        Self { looks: 0, spins, per_yield, counted, in_task }
    }

    /// Counts a look that found nothing. True if it is time for a round of progress.
    #[inline]
    pub(crate) fn round(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        self.looks.is_multiple_of(LOOKS_PER_ROUND) || self.rests()
    }

    /// Whether each pause is one of the task.
    #[inline]
    fn rests(&self) -> bool {
        self.in_task && self.looks > EAGER
    }

    #[inline]
    pub(crate) fn pause(&self) {
        if self.rests() {
            pause::rest();
        } else if self.looks > self.spins && self.looks.is_multiple_of(self.per_yield) {
            std::thread::yield_now();
        } else if self.looks > EAGER {
            std::hint::spin_loop();
        }
    }
}

/// Waits until `done`. Drives this window at each look, and the other windows and the host once per
/// round [PR-1]. Gives the guard up between looks; the window's count of waiting calls keeps it
/// alive.
pub(crate) fn wait_until(
    mut guard: Guard,
    id: WindowId,
    mut done: impl FnMut(&mut Window) -> bool,
) -> Guard {
    let host: Host = guard.host;
    let window = &mut guard[id];
    if done(window) {
        return guard;
    }
    window.waiting += 1;
    let mut backoff = Backoff::new();
    let mut must_advance = true;
    loop {
        let mut window = &mut guard[id];
        let by_network = window.port.uses_network();
        if by_network {
            must_advance |= guard.poll_network();
            window = &mut guard[id];
        }
        if must_advance || !window.port.waits_for_messages() {
            // Progress often enables more progress. Other threads may receive what this one awaits.
            must_advance = window.advance(&host) | multiple();
        } else {
            window.count_poll();
            // Faster looks would slow the host's delivery, since sender and receiver share cache
            // lines.
            std::hint::spin_loop();
        }
        if done(window) {
            window.waiting -= 1;
            return guard;
        }
        let round = backoff.round();
        if round {
            sweep(&mut guard);
        }
        drop(guard);
        if round && !by_network {
            (host.progress_host)();
        }
        if round || any_runnable() {
            continuations::run(Thread::Application);
        }
        backoff.pause();
        guard = enter();
        if by_network && guard[id].spin_briefly(&host) {
            // Usually that is what the call waits for, and a full look would take longer.
            must_advance = true;
            let window = &mut guard[id];
            if done(window) {
                window.waiting -= 1;
                return guard;
            }
        }
    }
}

/// One round of progress, ours and the host's, for a call that does not wait. A program may make
/// only such calls [PR-1].
pub(crate) fn step(mut guard: Guard) {
    sweep(&mut guard);
    let progress_host = guard.host.progress_host;
    drop(guard);
    progress_host();
}

/// Polls only what a blocking call waits for, between two rounds of general progress.
///
/// Pauses between looks: each fetches the cache line of a word that a peer stores right behind the
/// data, and while the peer waits for the lines of its data, it would lose that line again and
/// again.
#[derive(Debug, Default)]
pub(crate) struct FocusedPoll {
    rounds: u32,
}

impl FocusedPoll {
    /// One round of looks. True if `look` has returned true.
    pub(crate) fn look(
        &mut self,
        window: &mut Window,
        mut look: impl FnMut(&mut Window) -> bool,
    ) -> bool {
        const LOOKS: u32 = 32;
        // A poll of the network interface takes as long as several looks at memory, but a round
        // trip takes only a few hundred of them.
        const EAGER_ROUNDS: u32 = 4;
        self.rounds = self.rounds.saturating_add(1);
        let rare = window.port.uses_network() && self.rounds > EAGER_ROUNDS;
        for _ in 0..if rare { LOOKS / 4 } else { LOOKS } {
            if look(window) {
                return true;
            }
            if !window.port.poll_notifications() {
                return look(window);
            }
            std::hint::spin_loop();
        }
        false
    }
}

/// The looks of a call that waits until a counter is at least as high as expected.
#[derive(Debug)]
pub(crate) struct CounterWait {
    counter: u32,
    expected: u64,
    focused: FocusedPoll,
    pace: Pace,
}

impl CounterWait {
    /// Begins to wait. Pauses, if the waits before suggest it.
    pub(crate) fn begin(window: &Window, counter: u32, expected: u64) -> Self {
        window.lead.pause();
        let pace = Pace::from(window.engine.last_count(counter).unwrap_or(0));
        CounterWait { counter, expected, focused: FocusedPoll::default(), pace }
    }

    /// One round of looks. True if the counter is high enough.
    pub(crate) fn look(&mut self, window: &mut Window) -> bool {
        let CounterWait { counter, expected, focused, pace } = self;
        let (counter, expected) = (*counter, *expected);
        focused.look(window, |window| {
            if window.has_counted(counter, expected) {
                let found = window.engine.last_count(counter).unwrap_or(expected);
                window.lead.learn(found - expected);
                return true;
            }
            pace.pause(window.engine.last_count(counter).unwrap_or(0), expected);
            false
        })
    }
}

/// Whether no window has a pending epoch or operation of this process.
pub(crate) fn all_quiet() -> bool {
    let mut guard = enter();
    let host = guard.host;
    guard.windows.iter_mut().all(|window| {
        window.report(&host);
        window.is_settled()
    })
}
