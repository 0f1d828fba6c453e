//! When to look again at words that other processes raise.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Whether waits for a counter usually find more notifications than they wait for, so that they
/// better look less often.
///
/// Each look takes the counter's cache line from an origin that notifies in a row, and the origin
/// waits until it has the line back. If the wait before found several more than it needed, the next
/// one pauses before its first look, longer each time. If not, the pauses become shorter again.
///
/// One more means nothing: processes that notify each other in turns find it now and then, and
/// would find it behind each pause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lead(u32);

impl Lead {
    /// The longest pause is `UNIT << MOST`: about what a line takes to another socket and back.
    const MOST: u32 = 4;
    const UNIT: Duration = Duration::from_nanos(25);

    /// Pauses as long as the waits before suggest.
    #[inline]
    pub(crate) fn pause(self) {
        if self.0 > 0 {
            pause_for(Self::UNIT, 1 << (self.0 - 1));
        }
    }

    /// Notes how many a wait has found beyond those that it waited for.
    #[inline]
    pub(crate) fn learn(&mut self, beyond: u64) {
        self.0 = if beyond > 1 { (self.0 + 1).min(Self::MOST + 1) } else { self.0 / 2 };
    }
}

/// Pauses between the looks of one wait for several notifications, which arrive in a row.
///
/// As with [`Lead`], each look takes the counter's line from the origin. So the next one comes when
/// three quarters of the others should be there, at the rate at which they have arrived since the
/// first was found. To be late costs more than one more look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    before: u64,
    seen: u64,
    /// The value and the time of the look that has found the first ones.
    found: Option<(u64, Instant)>,
}

impl Pace {
    /// A pause that is always short enough, for each notification that the wait has found. If many
    /// origins notify at a time, the rest may come at once.
    const PER_FOUND: Duration = Duration::from_nanos(100);
    /// The longest pause: others may need this process.
    const MOST: Duration = Duration::from_micros(4);

    /// Begins a wait; the counter is known to have been `seen`.
    pub(crate) fn from(seen: u64) -> Self {
        Pace { before: seen, seen, found: None }
    }

    /// Pauses after a look that has read `value`, less than `expected`.
    #[inline]
    pub(crate) fn pause(&mut self, value: u64, expected: u64) {
        let more = value > std::mem::replace(&mut self.seen, value);
        if more && expected - value > 1 {
            self.pause_before_next(value, expected - value);
        }
    }

    #[allow(clippy::disallowed_methods, reason = "only to learn how fast notifications arrive")]
    fn pause_before_next(&mut self, value: u64, missing: u64) {
        let now = Instant::now();
        let (first, since) = *self.found.get_or_insert((value, now));
        let pause = Self::next(value - self.before, value - first, now - since, missing);
        pause_for(Lead::UNIT, (pause.as_nanos() / Lead::UNIT.as_nanos()) as u32);
    }

    /// The pause of a wait that has found so many, `arrived` of them during the time `took`.
    fn next(found: u64, arrived: u64, took: Duration, missing: u64) -> Duration {
        let sure = Self::PER_FOUND.saturating_mul(found.try_into().unwrap_or(u32::MAX));
        let pause = if arrived == 0 {
            sure
        } else {
            let rest =
                took.as_nanos().saturating_mul(u128::from(missing) * 3) / (u128::from(arrived) * 4);
            let rest = Duration::from_nanos(rest.try_into().unwrap_or(u64::MAX));
            // As long again as it took so far: never twice as late.
            rest.min(took.max(sure))
        };
        pause.min(Self::MOST)
    }
}

/// How a call that polls for a moment spaces its looks at words that peers store behind their data.
///
/// A look takes the word's line from a peer that is about to store it, so looks pause before the
/// next one. Where a line takes less time than a few pauses, the answer is there before a pause is
/// over. There, after calls that were answered that soon, looks follow each other at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spacing(u32);

impl Spacing {
    /// So many calls in a row have to be answered soon.
    const SURE: u32 = 4;
    /// An answer within this time has come from near.
    const SOON: Duration = Duration::from_nanos(125);
    /// Looks without a pause, if the answer should come soon.
    const EAGER: u32 = 48;

    /// Begins the looks of a call.
    #[inline]
    pub(crate) fn begin(self) -> SpacedLooks {
        SpacedLooks { made: 0, eager: if self.0 < Self::SURE { 0 } else { Self::EAGER } }
    }

    /// Learns from the looks of a call that has ended.
    #[inline]
    pub(crate) fn learn(&mut self, looks: SpacedLooks) {
        let soon = if looks.eager > 0 { looks.eager } else { spins_of(Self::SOON) };
        if looks.made > soon {
            self.0 = 0;
        } else if looks.made > 0 && self.0 < Self::SURE {
            self.0 += 1;
        }
    }
}

/// The looks of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpacedLooks {
    made: u32,
    eager: u32,
}

impl SpacedLooks {
    /// Pauses after a look that has found nothing. False after `most` pauses.
    #[inline(always)]
    pub(crate) fn pause(&mut self, most: u32) -> bool {
        // The first pause is for the data, whose lines the peer gets before that of the word.
        if self.made == 0 || self.made >= self.eager {
            std::hint::spin_loop();
        }
        self.made += 1;
        self.made < most + self.eager
    }
}

/// Spins for `times` as long as `unit`, without a look at the clock.
#[inline]
pub(crate) fn pause_for(unit: Duration, times: u32) {
    for _ in 0..spins_of(unit) * times {
        std::hint::spin_loop();
    }
}

/// Number of spin-loop hints that take about as long. They take 5 to 50 ns each, depending on the
/// processor, so this is measured once.
#[allow(clippy::disallowed_methods, reason = "only to measure how long a hint takes")]
fn spins_of(span: Duration) -> u32 {
    const SAMPLE: u32 = 200;
    static SPINS_PER_US: OnceLock<u32> = OnceLock::new();
    let per_us = *SPINS_PER_US.get_or_init(|| {
        let begin = Instant::now();
        (0..SAMPLE).for_each(|_| std::hint::spin_loop());
        let nanoseconds = begin.elapsed().as_nanos().max(1) as u32;
        (SAMPLE * 1000 / nanoseconds).clamp(1, 1000)
    });
    (per_us * span.as_nanos() as u32 / 1000).max(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn the_next_look_comes_when_three_quarters_of_the_rest_should_be_there() {
        assert_eq!(Pace::next(9, 8, US, 8), US * 3 / 4);
        assert_eq!(Pace::next(9, 8, US, 4), US * 3 / 8);
    }

    #[test]
    fn who_finds_one_more_does_not_pause() {
        let mut lead = Lead::default();
        (0..9).for_each(|_| lead.learn(1));
        assert_eq!(lead.0, 0, "two processes that exchange");
        (0..9).for_each(|_| lead.learn(2));
        assert_eq!(lead.0, Lead::MOST + 1, "an origin that is ahead");
        (0..3).for_each(|_| lead.learn(1));
        assert_eq!(lead.0, 0);
    }

    /// A call that is answered after so many looks.
    fn answered_after(spacing: &mut Spacing, looks: u32) {
        let mut made = spacing.begin();
        (0..looks).for_each(|_| _ = made.pause(1000));
        spacing.learn(made);
    }

    #[test]
    fn looks_follow_at_once_where_answers_come_soon() {
        let mut spacing = Spacing::default();
        (0..3).for_each(|_| answered_after(&mut spacing, 1));
        assert_eq!(spacing.begin().eager, 0, "not sure yet");
        (0..9).for_each(|_| answered_after(&mut spacing, 0));
        assert_eq!(spacing.begin().eager, 0, "a peer that was first says nothing");
        answered_after(&mut spacing, 1);
        assert_eq!(spacing.begin().eager, Spacing::EAGER);
        (0..9).for_each(|_| answered_after(&mut spacing, Spacing::EAGER));
        assert_eq!(spacing.begin().eager, Spacing::EAGER);
        answered_after(&mut spacing, Spacing::EAGER + 1);
        assert_eq!(spacing.begin().eager, 0, "the peer is far or late");
    }

    #[test]
    fn looks_end() {
        let mut looks = Spacing::default().begin();
        assert_eq!((1..).find(|_| !looks.pause(9)), Some(9));
        let mut looks = Spacing(Spacing::SURE).begin();
        assert_eq!((1..).find(|_| !looks.pause(9)), Some(9 + Spacing::EAGER));
    }

    #[test]
    fn a_pause_is_never_longer_than_what_has_passed() {
        assert_eq!(Pace::next(9, 8, US, 800), US);
        assert_eq!(Pace::next(9, 8, 100 * US, 800), Pace::MOST);
        assert_eq!(Pace::next(2, 0, Duration::ZERO, 62), 2 * Pace::PER_FOUND, "no rate yet");
        assert_eq!(Pace::next(u64::MAX, 0, Duration::ZERO, 62), Pace::MOST);
        assert_eq!(Pace::next(u64::MAX, 1, Duration::MAX, u64::MAX), Pace::MOST);
    }

    #[test]
    fn a_wait_that_has_found_nothing_learns_nothing() {
        let mut pace = Pace::from(5);
        pace.pause(5, 69);
        assert!(pace.found.is_none(), "nothing has come");
        pace.pause(68, 69);
        assert!(pace.found.is_none(), "the last one may come at any moment");
        let mut pace = Pace::from(5);
        pace.pause(6, 69);
        assert_eq!(pace.found.map(|(value, _)| value), Some(6));
    }
}
