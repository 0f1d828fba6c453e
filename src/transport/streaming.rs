//! Whether streaming stores make a long copy faster.
//!
//! Not if the copy goes where one has gone shortly before, since that place is then in a cache
//! ([`Recent`]). For other copies, it is learned from the times of both ways ([`Faster`]).

use std::time::Duration;

/// How to make a long copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through the caches.
    Cached,
    /// By streaming stores, past the caches.
    Streaming,
}

/// Copies of a trial, and those at its end whose times count. The first ones find the caches as the
/// other way has left them, or touch pages for the first time.
const TRIAL: u32 = 4;
const COUNTED: u32 = 2;
/// Copies between two trials of copies through the caches, at first and at most.
const INTERVAL_MIN: u32 = 8;
const INTERVAL_MAX: u32 = 512;

/// Shortest copy that has a choice. A shorter one is made mostly within the caches.
pub(super) const SHORTEST: usize = 512 * 1024;
/// Bytes of the latest long copies whose places are likely in a cache. Where copies took turns
/// among places of 1 MiB, copies through the caches took 75 µs each up to this sum, and 155 µs
/// from twice as many bytes on; streaming stores 80 and 120 µs.
const NEAR: usize = 32 << 20;
/// Copies that are remembered: as many of the shortest as make up [`NEAR`] bytes.
const REMEMBERED: usize = NEAR / SHORTEST;

/// The latest long copies of a thread.
///
/// A copy to the place of one of them finds that place in a cache, if the earlier one went through
/// the caches. Times do not tell: if streaming stores made it, the place is in no cache, and a copy
/// through the caches is slow too.
#[derive(Debug)]
pub(super) struct Recent {
    /// Where they went, and their bytes. A ring.
    copies: [(usize, usize); REMEMBERED],
    next: usize,
}

impl Recent {
    pub(super) const fn new() -> Self {
        Recent { copies: [(0, 0); REMEMBERED], next: 0 }
    }

    /// Notes a copy of `len` bytes to the address `to`. True if one to there is among the latest
    /// [`NEAR`] bytes.
    pub(super) fn note(&mut self, to: usize, len: usize) -> bool {
        let (newer, older) = self.copies.split_at(self.next);
        let mut bytes = 0;
        let is_near = newer.iter().rev().chain(older.iter().rev()).any(|(earlier, length)| {
            bytes += length;
            *earlier == to && bytes <= NEAR
        });
        self.copies[self.next] = (to, len);
        self.next = (self.next + 1) % REMEMBERED;
        is_near
    }
}

/// The faster way to make copies of about one length to places that are in no cache.
///
/// As long as the time through the caches does not change, streaming stores are not tried again:
/// a trial moves data out of the caches, if they are there after all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faster {
    /// Moving averages of the times, in nanoseconds, by way. 0: not known.
    times: [u32; 2],
    /// The time through the caches when streaming stores were last tried.
    cached_at_trial: u32,
    best: Way,
    /// The way in use: the best, or one on trial.
    way: Way,
    /// Copies left of a trial, or of those between two.
    left: u32,
    interval: u32,
}

impl Faster {
    pub(super) const fn new() -> Self {
        let (best, way) = (Way::Cached, Way::Cached);
        let (times, cached_at_trial) = ([0; 2], 0);
        Faster { times, cached_at_trial, best, way, left: TRIAL, interval: INTERVAL_MIN }
    }

    /// The way of the next copy.
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Notes the time of the copy that was made by [`way`](Self::way).
    pub(super) fn note(&mut self, took: Duration) {
        let on_trial = self.way != self.best || self.times[self.way as usize] == 0;
        self.left = self.left.saturating_sub(1);
        if !on_trial || self.left < COUNTED {
            self.average(took);
        }
        let may_change = match (on_trial, self.best) {
            (false, Way::Cached) => self.cached_has_changed(),
            _ => self.left == 0,
        };
        match on_trial {
            _ if !may_change => {}
            true => self.end_trial(),
            false => {
                self.way = if self.best == Way::Cached { Way::Streaming } else { Way::Cached };
                self.left = TRIAL;
            }
        }
    }

    fn average(&mut self, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).max(1);
        let time = &mut self.times[self.way as usize];
        // A single long time says little: the processor may have been taken away.
        *time = match *time {
            0 => took,
            known if took < known => took + (known - took) / 2,
            known => known + (took - known).min(known) / 4,
        };
    }

    /// Whether the time through the caches differs by a third from that at the last trial.
    fn cached_has_changed(&self) -> bool {
        let (now, before) = (u64::from(self.times[0]), u64::from(self.cached_at_trial));
        3 * now > 4 * before || 4 * now < 3 * before
    }

    fn end_trial(&mut self) {
        let [cached, streaming] = self.times;
        let best = if streaming != 0 && streaming < cached { Way::Streaming } else { Way::Cached };
        self.interval =
            if best == self.best { (2 * self.interval).min(INTERVAL_MAX) } else { INTERVAL_MIN };
        if streaming != 0 {
            self.cached_at_trial = cached;
        }
        (self.best, self.way, self.left) = (best, best, self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes copies that take these times, in microseconds. Returns the number of streaming ones.
    fn copies(faster: &mut Faster, count: u32, [cached, streaming]: [u64; 2]) -> u32 {
        let mut streamed = 0;
        for _ in 0..count {
            let way = faster.way();
            streamed += u32::from(way == Way::Streaming);
            let took = if way == Way::Streaming { streaming } else { cached };
            faster.note(Duration::from_micros(took));
        }
        streamed
    }

    #[test]
    fn the_faster_way_is_found_again_when_times_change() {
        let mut faster = Faster::new();
        assert_eq!(copies(&mut faster, 1000, [40, 45]), TRIAL);
        let streamed = copies(&mut faster, 1000, [90, 95]);
        assert!(streamed <= 4 * TRIAL, "{streamed} copies, though the times change once");
        assert!(copies(&mut faster, 1000, [120, 80]) > 900, "out of the caches");
        assert!(copies(&mut faster, 2000, [30, 80]) < 600, "back in the caches");
        assert!(copies(&mut faster, 1000, [30, 80]) < 20);
    }

    #[test]
    fn a_copy_to_the_place_of_one_of_the_latest_is_near() {
        let mut recent = Recent::new();
        let mut cycle = |places: usize, len: usize| {
            let near = (0..3 * places).filter(|i| recent.note(4096 + i % places * len, len));
            near.count()
        };
        assert_eq!(cycle(4, 1 << 20), 8, "all but the first to each place");
        assert_eq!(cycle(64, 1 << 20), 4, "only the four places of before");
        assert_eq!(cycle(1, NEAR + 1), 0);
        assert_eq!(cycle(64, SHORTEST), 128);
        assert_eq!(cycle(65, SHORTEST), 64, "only those of before");
    }

    #[test]
    fn a_first_touch_does_not_decide() {
        let mut faster = Faster::new();
        copies(&mut faster, 8, [400, 300]);
        assert!(copies(&mut faster, 1000, [30, 45]) < 100);
        let mut faster = Faster::new();
        copies(&mut faster, 8, [300, 400]);
        assert!(copies(&mut faster, 1000, [120, 80]) > 900);
    }
}
