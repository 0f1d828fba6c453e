//! Sweeps over all windows, and the loop in which every blocking call waits.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::process::{Guard, Host, State, enter, multiple, try_enter};
use super::registry::{Attended, nothing_attended};
use super::window::{Window, WindowId};
use crate::transport::shm;

/// Windows that we serve: read by hooks and waits without entering.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Those of them whose peers may contact this process.
static TELLABLE: AtomicUsize = AtomicUsize::new(0);
/// Ranks of this node outnumber the cores that they may run on.
static CROWDED: AtomicBool = AtomicBool::new(false);

/// Notes how many windows are live; called with the guard held whenever that changes.
pub(crate) fn note_live(state: &State) {
    TELLABLE.store(state.windows.contactable(), Ordering::Relaxed);
    let before = LIVE.swap(state.windows.len(), Ordering::AcqRel);
    if before == 0 {
        super::thread::wake();
    }
}

/// True if a peer may contact this process at any time, and then waits for it: so a call that waits
/// must sweep.
#[inline]
pub(crate) fn may_be_told() -> bool {
    TELLABLE.load(Ordering::Relaxed) != 0
}

/// Sweeps between two looks at a window whose doorbell did not ring.
const SWEEPS_PER_CHECK: u32 = 1024;
static SWEEPS: AtomicU32 = AtomicU32::new(0);

/// Counts a sweep. True if it is time for such a look, where any peer could want one.
#[inline]
fn must_check() -> bool {
    if !may_be_told() {
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
pub(crate) fn set_crowded(crowded: bool) {
    CROWDED.store(crowded, Ordering::Relaxed);
}

/// Ranks of this node outnumber the cores that they may run on.
#[inline]
pub(crate) fn crowded() -> bool {
    CROWDED.load(Ordering::Relaxed)
}

/// Windows with messages that one sweep looks at: each look drives the host, which on a busy
/// machine gives the core away then. The next sweep goes on with the next ones.
const FAR_PER_SWEEP: usize = 8;
/// Windows with messages that the last sweep has met, and which of them it looks at first.
static FAR: AtomicUsize = AtomicUsize::new(0);
static FAR_NEXT: AtomicUsize = AtomicUsize::new(0);

/// The turn of windows with messages in one sweep.
struct Turns {
    all: usize,
    first: usize,
    met: usize,
}

impl Turns {
    fn begin() -> Self {
        let all = FAR.load(Ordering::Relaxed);
        let first = if all > FAR_PER_SWEEP { FAR_NEXT.load(Ordering::Relaxed) % all } else { 0 };
        Turns { all, first, met: 0 }
    }

    /// Meets one. True if it is its turn.
    fn next(&mut self) -> bool {
        let at = self.met;
        self.met += 1;
        // What is new since the last sweep is looked at.
        self.all <= FAR_PER_SWEEP
            || at >= self.all
            || (at + self.all - self.first) % self.all < FAR_PER_SWEEP
    }

    fn end(self) {
        if self.met == 0 && self.all == 0 {
            return;
        }
        FAR.store(self.met, Ordering::Relaxed);
        FAR_NEXT.store(self.first + FAR_PER_SWEEP, Ordering::Relaxed);
    }
}

/// One bounded sweep over every window that waits for something. True if anything moved.
pub(crate) fn sweep(state: &mut State) -> bool {
    sweep_some(state, true)
}

/// Looks at the host that calls which do not wait cause at most: each takes about half a
/// microsecond, as much as thirty puts to memory of this node.
const BETWEEN_LOOKS_AT_HOST: Duration = Duration::from_micros(20);

/// A sweep after some calls that did not wait. Windows whose messages go through the host have
/// their turn in it now and then.
#[allow(clippy::disallowed_methods, reason = "only to bound what the host's progress costs")]
#[inline(never)]
pub(crate) fn sweep_between_calls(state: &mut State) {
    let mut far = FAR.load(Ordering::Relaxed) == 0;
    if !far {
        let now = Instant::now();
        far = state.host_seen.is_none_or(|seen| now - seen >= BETWEEN_LOOKS_AT_HOST);
        if far {
            state.host_seen = Some(now);
        }
    }
    sweep_some(state, far);
}

/// A sweep. `far`: over windows that drive the host, too.
fn sweep_some(state: &mut State, far: bool) -> bool {
    let (mut at, mut any) = (0, false);
    let host = state.host;
    if shm::is_rung() {
        state.windows.attend_rung();
    }
    if must_check() {
        any |= state.windows.check_next(&host);
    }
    let mut turns = Turns::begin();
    loop {
        match state.windows.attended(at, &host) {
            Attended::Busy { window, moved } => {
                if !window.port.drives_host() || (far && turns.next()) {
                    any |= window.advance(&host);
                }
                any |= moved;
                at += 1;
            }
            Attended::Idle { moved } => any |= moved,
            Attended::End => break,
        }
    }
    if far {
        turns.end();
    }
    any
}

/// Idle sweeps that follow one in which something moved, and sweeps at most, before the host gets
/// the CPU back.
const AFTER_A_MOVE: u32 = 16;
const AT_MOST: u32 = 64;
/// Idle sweeps that are still to follow, over the hook's calls.
static EXPECTANT: AtomicU32 = AtomicU32::new(0);

/// What a hook of the host calls: a sweep, unless somebody is inside already. One that moves
/// something is followed by more: a peer that has just been answered asks again sooner than the
/// host's own progress takes. True if anything moved.
pub(crate) fn sweep_from_hook() -> bool {
    if nothing_attended() && !shm::is_rung() && !must_check() {
        return false;
    }
    let Some(mut guard) = try_enter() else { return false };
    if nothing_attended() && !shm::is_rung() {
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
    if multiple() {
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
        let spins = if crowded() || !alone { 32 } else { 2_000 };
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
    loop {
        let window = &mut guard[id];
        window.advance(&host);
        if done(window) {
            window.waiting -= 1;
            return guard;
        }
        let driven = window.port.drives_host();
        let round = backoff.round();
        if round {
            sweep(&mut guard);
        }
        drop(guard);
        if round && !driven {
            (host.poke)();
        }
        backoff.pause();
        guard = enter();
        if driven {
            guard[id].spin_briefly();
        }
    }
}

/// One step of everything, ours and the host's, for a call that does not wait: a program may do
/// nothing else than such calls [PR-1].
pub(crate) fn step(mut guard: Guard) {
    sweep(&mut guard);
    let poke = guard.host.poke;
    drop(guard);
    poke();
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
        let looks =
            if window.port.drives_host() && self.rounds > EAGER_ROUNDS { LOOKS / 8 } else { LOOKS };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_with_messages_has_its_turn() {
        for all in [1, FAR_PER_SWEEP, FAR_PER_SWEEP + 1, 3 * FAR_PER_SWEEP + 5] {
            let mut looks = vec![0; all];
            // The first sweep counts them.
            for sweep in 0..2 * all {
                let mut turns = Turns::begin();
                let served: Vec<bool> = (0..all).map(|_| turns.next()).collect();
                turns.end();
                if sweep > 0 {
                    assert!(served.iter().filter(|served| **served).count() <= FAR_PER_SWEEP);
                    looks
                        .iter_mut()
                        .zip(served)
                        .for_each(|(looks, served)| *looks += usize::from(served));
                }
            }
            let (least, most) = (looks.iter().min().unwrap(), looks.iter().max().unwrap());
            assert!(*least > 0 && most - least <= 2, "{all} windows: {looks:?}");
        }
    }
}
