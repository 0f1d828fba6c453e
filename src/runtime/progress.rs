//! Sweeps over all windows, and the loop in which every blocking call waits.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::process::{Guard, Host, State, enter, multiple, try_enter};
use super::registry::{Attended, WindowId, nothing_attended};
use super::window::Window;
use crate::transport::am::context::any_in_use;
use crate::transport::shm;

/// Windows that we serve: read by hooks and waits without entering.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Those of them whose peers may contact this process.
static CONTACTABLE: AtomicUsize = AtomicUsize::new(0);
/// Ranks of this node outnumber the cores that they may run on.
static OVERSUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// Notes how many windows are live; called with the guard held whenever that changes.
pub(crate) fn note_live(state: &State) {
    CONTACTABLE.store(state.windows.contactable(), Ordering::Relaxed);
    let before = LIVE.swap(state.windows.len(), Ordering::AcqRel);
    if before == 0 {
        super::thread::wake();
    }
}

/// True if a peer may contact this process at any time, and then waits for it: so a call that waits
/// must sweep.
#[inline]
pub(crate) fn may_be_contacted() -> bool {
    CONTACTABLE.load(Ordering::Relaxed) != 0
}

/// Sweeps between two looks at a window whose doorbell did not ring.
const SWEEPS_PER_CHECK: u32 = 1024;
static SWEEPS: AtomicU32 = AtomicU32::new(0);

/// Counts a sweep. True if it is time for such a look, where any peer could want one.
#[inline]
fn must_check() -> bool {
    if !may_be_contacted() {
        return false;
    }
    let sweeps = SWEEPS.load(Ordering::Relaxed).wrapping_add(1);
    SWEEPS.store(sweeps, Ordering::Relaxed);
    sweeps.is_multiple_of(SWEEPS_PER_CHECK)
}

/// Windows that we serve.
pub(crate) fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// True if there is no window to drive.
#[inline]
pub(crate) fn nothing_lives() -> bool {
    LIVE.load(Ordering::Acquire) == 0
}

/// Set once, at `MPI_Init`: ranks of this node outnumber the cores.
pub(crate) fn set_oversubscribed(oversubscribed: bool) {
    OVERSUBSCRIBED.store(oversubscribed, Ordering::Relaxed);
}

/// Ranks of this node outnumber the cores that they may run on.
#[inline]
pub(crate) fn oversubscribed() -> bool {
    OVERSUBSCRIBED.load(Ordering::Relaxed)
}

/// One bounded sweep over every window that waits for something. True if anything moved.
pub(crate) fn sweep(state: &mut State) -> bool {
    sweep_some(state, true)
}

/// Looks at the host that calls which do not wait cause at most: each takes about half a
/// microsecond, as much as thirty puts to memory of this node.
const BETWEEN_LOOKS_AT_HOST: Duration = Duration::from_micros(20);

/// A sweep after some calls that did not wait. It polls the network now and then.
#[allow(clippy::disallowed_methods, reason = "only to bound what the host's progress costs")]
#[inline(never)]
pub(crate) fn sweep_between_calls(state: &mut State) {
    let mut polls = false;
    if any_in_use() {
        let now = Instant::now();
        polls = state.network_polled.is_none_or(|seen| now - seen >= BETWEEN_LOOKS_AT_HOST);
        if polls {
            state.network_polled = Some(now);
        }
    }
    sweep_some(state, polls);
}

/// A sweep; whether the network is polled as well.
fn sweep_some(state: &mut State, with_network: bool) -> bool {
    let mut any = with_network && any_in_use() && state.poll_network();
    let host = state.host;
    if shm::is_rung() {
        state.windows.attend_rung();
    }
    if must_check() {
        any |= state.windows.check_next(&host);
    }
    let mut at = 0;
    loop {
        match state.windows.attended(at, &host) {
            Attended::Busy { window, moved } => {
                any |= window.advance(&host) | moved;
                at += 1;
            }
            Attended::Idle { moved } => any |= moved,
            Attended::End => return any,
        }
    }
}

/// Idle sweeps that follow one in which something moved, and sweeps at most, before the host gets
/// the CPU back.
const AFTER_A_MOVE: u32 = 16;
const AT_MOST: u32 = 64;
/// Idle sweeps that are still to follow, over the hook's calls.
static EXPECTANT: AtomicU32 = AtomicU32::new(0);

/// Whether no window is to be visited, no doorbell was rung and there is no network to poll.
#[inline]
fn nothing_to_look_at() -> bool {
    nothing_attended() && !shm::is_rung() && !any_in_use()
}

/// What a hook of the host calls: a sweep, unless somebody is inside already. One that moves
/// something is followed by more: a peer that has just been answered asks again sooner than the
/// host's own progress takes. True if anything moved.
pub(crate) fn sweep_from_hook() -> bool {
    if nothing_to_look_at() && !must_check() {
        return false;
    }
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
    }
    EXPECTANT.store(expectant, Ordering::Relaxed);
    any
}

/// True if a call of the host that blocks would leave something of ours undriven. With many
/// threads, another one may start something while this one blocks.
#[cfg_attr(mpi_host = "openmpi", allow(dead_code))]
pub(crate) fn must_drive() -> bool {
    if nothing_lives() {
        return false;
    }
    if multiple() || any_in_use() {
        return true;
    }
    let mut guard = enter();
    let host = guard.host;
    loop {
        // Idle windows leave the list, so the first place is looked at until it is taken or the
        // list is empty.
        match guard.windows.attended(0, &host) {
            Attended::Busy { .. } => return true,
            Attended::Idle { .. } => {}
            Attended::End => return false,
        }
    }
}

/// How a waiting call passes the time: it spins, then yields the CPU at every look [PR-4].
pub(crate) struct Backoff {
    looks: u32,
    spins: u32,
    /// In [`WAITING`].
    counted: bool,
}

impl Drop for Backoff {
    fn drop(&mut self) {
        if self.counted {
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Looks between two visits to the rest of the process (other windows, the host).
const LOOKS_PER_ROUND: u32 = 32;
/// Looks that follow one another without a pause: a look takes about as long as a pause, and the
/// first ones find most hand-overs.
const EAGER: u32 = 128;

/// Threads of this process that wait, under `MPI_THREAD_MULTIPLE`.
static WAITING: AtomicU32 = AtomicU32::new(0);

impl Backoff {
    pub(crate) fn new() -> Self {
        let counted = multiple();
        // One thread that spins drives for all of them; more would take the cores of those that
        // they wait for.
        let alone = !counted || WAITING.fetch_add(1, Ordering::Relaxed) == 0;
        // Alone on its core, a waiting rank spins for some 20 µs, which is longer than a hand-over
        // takes; where ranks share cores, the one that is waited for may not be running at all.
        let spins = if oversubscribed() || !alone { 32 } else { 2_000 };
        Self { looks: 0, spins, counted }
    }

    /// Counts a look that found nothing. True if it is time to look after the rest of the process.
    #[inline]
    pub(crate) fn round(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        self.looks.is_multiple_of(LOOKS_PER_ROUND)
    }

    /// Lets the time pass.
    #[inline]
    pub(crate) fn pause(&self) {
        if self.looks > self.spins {
            std::thread::yield_now();
        } else if self.looks > EAGER {
            std::hint::spin_loop();
        }
    }
}

/// Waits until `done`, driving this window at each look, and the other windows and the host now and
/// then [PR-1]. The guard is given up between looks; the window is kept alive by its count of
/// waiting calls.
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
            // What has moved may let more move. Other threads may take in what this one waits for.
            must_advance = window.advance(&host) | multiple();
        } else {
            window.count_poll();
            // Looks that follow each other faster hinder the host's delivery: sender and receiver
            // use the same cache lines.
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
        backoff.pause();
        guard = enter();
        if by_network {
            guard[id].spin_briefly();
        }
    }
}

/// One step of everything, ours and the host's, for a call that does not wait: a program may do
/// nothing else than such calls [PR-1].
pub(crate) fn step(mut guard: Guard) {
    sweep(&mut guard);
    let progress_host = guard.host.progress_host;
    drop(guard);
    progress_host();
}

/// Polls the one thing that a blocking call waits for, between two rounds of general progress. It
/// does not pause: on some processors a pause takes longer than a notification takes to arrive.
#[derive(Debug, Default)]
pub(crate) struct FocusedPoll {
    rounds: u32,
}

impl FocusedPoll {
    /// One round of such looks. True if one has found it.
    pub(crate) fn look(
        &mut self,
        window: &mut Window,
        mut look: impl FnMut(&mut Window) -> bool,
    ) -> bool {
        const LOOKS: u32 = 64;
        // A look at an interface takes as long as several at memory, but a round trip is over in a
        // few hundred of them.
        const EAGER_ROUNDS: u32 = 4;
        self.rounds = self.rounds.saturating_add(1);
        let looks = if window.port.uses_network() && self.rounds > EAGER_ROUNDS {
            LOOKS / 8
        } else {
            LOOKS
        };
        for _ in 0..looks {
            if look(window) {
                return true;
            }
            if !window.port.poll_notifications() {
                return look(window);
            }
        }
        false
    }
}

/// True if no window waits for anything of its own.
pub(crate) fn all_quiet() -> bool {
    let mut guard = enter();
    let host = guard.host;
    guard.windows.iter_mut().all(|window| {
        window.report(&host);
        window.is_settled()
    })
}
