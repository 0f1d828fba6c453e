//! Which of several ways to do the same is the fastest here and now, learned from their times.
//!
//! Processors differ in what they do fast, and virtual ones move. So all ways are tried again and
//! again, more and more seldom while the best one stays the best.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Turns of a trial that each way has, if nothing else is said.
const EACH: u32 = 3;
/// Turns between two trials, at first and at most.
const INTERVAL_MIN: u32 = 16;
const INTERVAL_MAX: u32 = 512;

/// The ways by number, and the trial of them, which has `TURNS` turns of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trials<const WAYS: usize, const TURNS: u32 = EACH> {
    best: usize,
    /// Least times of the trial, in picoseconds per byte.
    least: [u64; WAYS],
    /// Turns until the end of the next trial.
    left: u32,
    interval: u32,
}

/// How to take a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// In the best way.
    Best(usize),
    /// In the way on trial: its time is to be noted.
    Trial(usize),
}

impl<const WAYS: usize, const TURNS: u32> Trials<WAYS, TURNS> {
    const TRIAL: u32 = TURNS * WAYS as u32;

    /// `best`: what is used until the first trial.
    pub(crate) const fn new(best: usize) -> Self {
        let (left, interval) = (INTERVAL_MIN + Self::TRIAL, INTERVAL_MIN);
        Trials { best, least: [u64::MAX; WAYS], left, interval }
    }

    /// The next turn.
    #[inline]
    pub(crate) fn next(&mut self) -> Turn {
        self.left -= 1;
        if self.left >= Self::TRIAL {
            return Turn::Best(self.best);
        }
        Turn::Trial(WAYS - 1 - (self.left / TURNS) as usize)
    }

    /// Takes all turns before the next trial in the best way. Returns their number.
    fn take_best(&mut self) -> u32 {
        let rest = self.left.saturating_sub(Self::TRIAL);
        self.left -= rest;
        rest
    }

    /// Notes the time of a turn on trial. At the end of a trial, returns the least times of all
    /// ways, in picoseconds per byte; [`settle`](Self::settle) says what follows from them.
    #[cold]
    pub(crate) fn note(&mut self, way: usize, took: Duration, bytes: usize) -> Option<[u64; WAYS]> {
        let took = took.as_nanos() as u64 * 1000 / bytes as u64;
        self.least[way] = took.max(1).min(self.least[way]);
        (self.left == 0).then_some(self.least)
    }

    /// Ends a trial: the way of the least time is the best, which this returns.
    pub(crate) fn settle_for_least(&mut self, least: [u64; WAYS]) -> usize {
        let best = (0..WAYS).min_by_key(|way| least[*way]).unwrap_or(0);
        self.settle(best);
        best
    }

    /// Ends a trial.
    pub(super) fn settle(&mut self, best: usize) {
        let interval = (2 * self.interval).min(INTERVAL_MAX);
        self.interval = if best == self.best { interval } else { INTERVAL_MIN };
        *self = Trials {
            left: self.interval + Self::TRIAL,
            interval: self.interval,
            ..Self::new(best)
        };
    }
}

/// Trials that all threads of the process share. Threads may take a turn too many before a trial;
/// one at a time is on trial.
#[derive(Debug)]
pub(super) struct SharedTrials<const WAYS: usize> {
    best: AtomicUsize,
    /// Turns until the next trial.
    until_trial: AtomicU32,
    trials: Mutex<Trials<WAYS>>,
}

impl<const WAYS: usize> SharedTrials<WAYS> {
    /// `best`: what is used until the first trial.
    pub(super) const fn new(best: usize) -> Self {
        SharedTrials {
            best: AtomicUsize::new(best),
            until_trial: AtomicU32::new(INTERVAL_MIN),
            trials: Mutex::new(Trials { left: Trials::<WAYS>::TRIAL, ..Trials::new(best) }),
        }
    }

    /// Runs `turn` in the best way, or in one that is on trial: then `turn` returns its time.
    /// `bytes`: the length of the turn.
    #[inline(always)]
    pub(super) fn take(&self, bytes: usize, turn: impl Fn(Turn) -> Duration) {
        match self.until_trial.load(Relaxed) {
            0 => self.try_out(bytes, turn),
            left => {
                self.until_trial.store(left - 1, Relaxed);
                turn(Turn::Best(self.best.load(Relaxed)));
            }
        }
    }

    #[cold]
    fn try_out(&self, bytes: usize, turn: impl Fn(Turn) -> Duration) {
        let Ok(mut trials) = self.trials.try_lock() else {
            turn(Turn::Best(self.best.load(Relaxed)));
            return;
        };
        let next = trials.next();
        let took = turn(next);
        let Turn::Trial(way) = next else { return };
        if let Some(least) = trials.note(way, took, bytes) {
            let best = trials.settle_for_least(least);
            self.best.store(best, Relaxed);
            self.until_trial.store(trials.take_best(), Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shared_trials_find_the_best_way_again_when_times_change() {
        let trials = SharedTrials::<2>::new(0);
        let second_of = |count: u32, times: [u64; 2]| {
            let second = AtomicU32::new(0);
            for _ in 0..count {
                trials.take(1000, |turn| {
                    let (Turn::Best(way) | Turn::Trial(way)) = turn;
                    second.fetch_add(way as u32, Relaxed);
                    Duration::from_nanos(times[way])
                });
            }
            second.into_inner()
        };
        assert!(second_of(1000, [100, 120]) < 40);
        assert!(second_of(2000, [100, 80]) > 1400, "the second became faster");
        assert!(second_of(10_000, [100, 80]) > 9900, "trials become rare");
        assert!(second_of(2000, [60, 80]) < 600, "the first became faster");
    }

    /// Takes turns of 1000 bytes in ways that take these times, in nanoseconds. Returns how many
    /// were taken in the second way.
    fn turns(trials: &mut Trials<2>, count: u32, times: [u64; 2]) -> u32 {
        let mut second = 0;
        for _ in 0..count {
            let turn = trials.next();
            let (Turn::Best(way) | Turn::Trial(way)) = turn;
            second += way as u32;
            if turn == Turn::Trial(way)
                && let Some([first, other]) =
                    trials.note(way, Duration::from_nanos(times[way]), 1000)
            {
                trials.settle(usize::from(other < first));
            }
        }
        second
    }

    #[test]
    fn the_best_way_is_found_again_when_times_change() {
        let mut trials = Trials::new(0);
        assert!(turns(&mut trials, 1000, [100, 120]) < 40);
        assert!(turns(&mut trials, 2000, [100, 80]) > 1400, "the second became faster");
        assert!(turns(&mut trials, 10_000, [100, 80]) > 9900, "trials become rare");
        assert!(turns(&mut trials, 2000, [60, 80]) < 600, "the first became faster");
    }

    #[test]
    fn a_single_long_time_does_not_decide() {
        let mut trials = Trials::<2>::new(0);
        let mut slow = true;
        loop {
            if let Turn::Trial(way) = trials.next() {
                let took =
                    if way == 1 && std::mem::take(&mut slow) { 900 } else { 100 + way as u64 };
                if let Some(least) = trials.note(way, Duration::from_nanos(took), 1000) {
                    assert_eq!(least, [100, 101], "in picoseconds per byte");
                    break;
                }
            }
        }
    }
}
