//! Choices that are learned from how earlier ones turned out.

use std::time::Duration;

/// Operations between two tries of a choice that does not pay, at most.
const SKIPPED_MAX: u32 = 255;

/// Whether to make a choice that pays in some programs only: always while it does, and after each
/// failure half as often.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tendency {
    /// Operations until the next try.
    skip: u32,
    /// Value of `skip` after the last failure; 0 after a success.
    skipped: u32,
}

impl Tendency {
    /// Whether to try it with this operation.
    pub(super) fn tries(&mut self) -> bool {
        !self.skips()
    }

    /// Whether not to try it with this operation. If so, the operation counts.
    pub(super) fn skips(&mut self) -> bool {
        let skips = self.skip > 0;
        self.skip = self.skip.saturating_sub(1);
        skips
    }

    /// Notes whether a try paid.
    pub(super) fn note(&mut self, paid: bool) {
        self.skipped = if paid { 0 } else { (2 * self.skipped + 1).min(SKIPPED_MAX) };
        self.skip = self.skipped;
    }
}

/// How to make a long put, get or accumulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the kernel, all in one process: this one, or for an accumulate the target.
    Alone,
    /// By the kernel, part in this process and part in the target.
    Divided,
    /// Through the channel, piece by piece.
    Channel,
}

/// Classes of lengths; see [`class`].
pub(super) const CLASSES: usize = 10;

/// The class of a length from `shortest` on: one for each doubling, and one for all above.
pub(super) fn class(len: u64, shortest: u64) -> usize {
    ((len / shortest).ilog2() as usize).min(CLASSES - 1)
}

/// The ways of dense puts and gets, and those of accumulates and of derived datatypes. The last is
/// [`Way::Channel`].
pub(super) const COPIES: &[Way] = &[Way::Alone, Way::Divided, Way::Channel];
pub(super) const TWO_WAYS: &[Way] = &[Way::Alone, Way::Channel];
/// Operations between two trials, at first and at most: of long operations, and of short ones, in
/// which a trial of the slower way weighs more.
const INTERVAL_MIN: u32 = 8;
const INTERVAL_MAX: u32 = 256;
const SHORT_INTERVAL_MAX: u32 = 4096;
/// Operations of a trial, and those at its end that are timed. The first ones may find the data in
/// the caches of the other processor, where the way before has left them.
const TRIAL: u32 = 4;
const TIMED: u32 = 2;

/// The fastest [`Way`], by the times that they take in trials. Each is on trial in turn,
/// less often as long as that changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fastest {
    ways: &'static [Way],
    /// Moving average of the time of each way, in nanoseconds. 0: not tried.
    times: [u32; COPIES.len()],
    best: Way,
    /// Operations until the next trial, and the interval after that.
    until_trial: u32,
    interval: u32,
    interval_max: u32,
    /// Index of the way that is or was last on trial, and the operations left of the trial.
    trial: usize,
    left: u32,
}

/// How to copy one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) way: Way,
    /// The caller must complete the operation and [`note`](Fastest::note) its time.
    pub(super) timed: bool,
}

impl Fastest {
    pub(super) fn of(ways: &'static [Way]) -> Self {
        Fastest {
            ways,
            times: [0; COPIES.len()],
            best: Way::Alone,
            until_trial: 0,
            interval: INTERVAL_MIN,
            interval_max: INTERVAL_MAX,
            trial: ways.len() - 1, // so that the first trial is of the first
            left: 0,
        }
    }

    /// As [`of`](Self::of), for short operations.
    pub(super) fn of_short(ways: &'static [Way]) -> Self {
        Fastest { interval_max: SHORT_INTERVAL_MAX, ..Self::of(ways) }
    }

    /// The way to use now.
    pub(super) fn choose(&mut self) -> Choice {
        if self.left == 0 {
            if self.until_trial > 0 && self.knows_all() {
                self.until_trial -= 1;
                return Choice { way: self.best, timed: false };
            }
            self.until_trial = self.interval;
            self.interval = (2 * self.interval).min(self.interval_max);
            self.trial = (self.trial + 1) % self.ways.len();
            self.left = TRIAL;
        }
        self.left -= 1;
        Choice { way: self.ways[self.trial], timed: self.left < TIMED }
    }

    /// Whether `way` is the one to use now, without a trial. If so, the operation counts.
    pub(super) fn uses(&mut self, way: Way) -> bool {
        let uses = self.left == 0 && self.until_trial > 0 && self.best == way && self.knows_all();
        self.until_trial -= u32::from(uses);
        uses
    }

    fn knows_all(&self) -> bool {
        self.ways.iter().all(|way| self.times[*way as usize] > 0)
    }

    /// Notes the time of one operation by a way.
    pub(super) fn note(&mut self, way: Way, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).max(1);
        let time = &mut self.times[way as usize];
        // A single long time says little: the processor may have been taken away.
        *time = match *time {
            0 => took,
            known if took < known => took + (known - took) / 2,
            known => known + (took - known).min(known) / 4,
        };
        let time_of = |way: &Way| self.times[*way as usize];
        let tried = self.ways.iter().copied().filter(|way| time_of(way) > 0);
        let best = tried.min_by_key(time_of).unwrap_or(way);
        if best != self.best {
            (self.best, self.interval) = (best, INTERVAL_MIN);
            self.until_trial = self.until_trial.min(INTERVAL_MIN);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_choice_that_does_not_pay_is_tried_less_and_less() {
        let mut tendency = Tendency::default();
        let mut tries = 0;
        for _ in 0..10_000 {
            if tendency.tries() {
                tries += 1;
                tendency.note(false);
            }
        }
        assert!((20..60).contains(&tries), "{tries} tries");
        while !tendency.tries() {}
        tendency.note(true);
        assert!((0..100).all(|_| tendency.tries()));
    }

    #[test]
    fn the_fastest_way_is_used_most_and_found_again_when_times_change() {
        let mut ways = Fastest::of(COPIES);
        let run = |ways: &mut Fastest, times: [u64; COPIES.len()], operations: u32| {
            let mut used = [0; COPIES.len()];
            for _ in 0..operations {
                let Choice { way, timed } = ways.choose();
                if timed {
                    ways.note(way, Duration::from_nanos(times[way as usize]));
                }
                used[way as usize] += 1;
            }
            used
        };
        let used = run(&mut ways, [5_000, 9_000, 20_000], 10_000);
        assert!(used[0] > 9_800, "{used:?}");
        // The way in use has become slow.
        let used = run(&mut ways, [30_000, 9_000, 20_000], 10_000);
        assert!(used[1] > 7_000, "{used:?}");
        // Another has become fast.
        let used = run(&mut ways, [30_000, 9_000, 2_000], 10_000);
        assert!(used[2] > 7_000, "{used:?}");
    }

    #[test]
    fn the_way_in_use_can_be_asked_for_between_trials() {
        let mut ways = Fastest::of_short(TWO_WAYS);
        assert!(!ways.uses(Way::Alone) && !ways.uses(Way::Channel), "nothing is known");
        let (mut alone, mut trials) = (0, 0);
        for _ in 0..20_000 {
            if ways.uses(Way::Alone) {
                alone += 1;
                continue;
            }
            assert!(!ways.uses(Way::Channel), "the slower way");
            let Choice { way, timed } = ways.choose();
            trials += 1;
            if timed {
                ways.note(way, Duration::from_nanos(if way == Way::Alone { 300 } else { 900 }));
            }
        }
        assert!(alone > 19_900, "{alone} alone, {trials} on trial");
    }

    #[test]
    fn only_the_ways_that_there_are_come_on_trial() {
        let mut ways = Fastest::of(TWO_WAYS);
        for _ in 0..1000 {
            let Choice { way, timed } = ways.choose();
            assert_ne!(way, Way::Divided);
            if timed {
                ways.note(way, Duration::from_micros(if way == Way::Channel { 3 } else { 5 }));
            }
        }
        assert_eq!(ways.best, Way::Channel);
    }
}
