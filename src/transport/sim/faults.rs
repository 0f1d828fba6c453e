//! Seeded faults, for random testing: what a reliable network may do at its worst.

use super::Time;

/// What goes wrong, and how often. All fields 0 (the default): nothing. The same seed does the
/// same.
///
/// Few credits are a matter of [`Parameters`](super::Parameters), late ranks one of scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultInjection {
    /// Of the random numbers.
    pub seed: u64,
    /// Each message, acknowledgement and answer is late by up to this. The order of one pair is
    /// kept; others overtake one another.
    pub delay_max: Time,
    /// One message in so many opens a burst: nothing that is sent in the next
    /// [`burst`](Self::burst) arrives before its end.
    pub burst_one_in: u32,
    /// How long a burst lasts.
    pub burst: Time,
    /// One post, signal or access in so many is refused for no reason (`NoResource`) ...
    pub refuse_one_in: u32,
    /// ... and its rank is woken within this time.
    pub refuse_max: Time,
    /// One rank in so many is slow ...
    pub slow_rank_one_in: u32,
    /// ... its CPU takes so many times as long.
    pub slow_rank_factor: u32,
    /// One node in so many has a slow NIC ...
    pub slow_nic_one_in: u32,
    /// ... that takes so many times as long for each message.
    pub slow_nic_factor: u32,
}

/// FaultInjection at work.
pub(super) struct FaultInjector {
    faults: FaultInjection,
    rng: fastrand::Rng,
    burst_until: Time,
    slow_ranks: Vec<bool>,
    slow_nics: Vec<bool>,
}

impl FaultInjector {
    pub(super) fn new(faults: FaultInjection, ranks: u32, nodes: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(faults.seed);
        let mut chosen = |count: u32, one_in: u32| {
            (0..count).map(|_| one_in > 0 && rng.u32(0..one_in) == 0).collect()
        };
        let slow_ranks = chosen(ranks, faults.slow_rank_one_in);
        let slow_nics = chosen(nodes, faults.slow_nic_one_in);
        FaultInjector { faults, rng, burst_until: 0, slow_ranks, slow_nics }
    }

    /// How late something is that sets out at `now`.
    pub(super) fn delay(&mut self, now: Time) -> Time {
        let FaultInjection { delay_max, burst_one_in, burst, .. } = self.faults;
        let mut delay = if delay_max > 0 { self.rng.u64(0..=delay_max) } else { 0 };
        if now < self.burst_until {
            delay += self.burst_until - now;
        } else if burst_one_in > 0 && self.rng.u32(0..burst_one_in) == 0 {
            self.burst_until = now + burst;
        }
        delay
    }

    /// Whether a post is refused, and for how long then.
    pub(super) fn refuses(&mut self) -> Option<Time> {
        let FaultInjection { refuse_one_in, refuse_max, .. } = self.faults;
        (refuse_one_in > 0 && self.rng.u32(0..refuse_one_in) == 0)
            .then(|| self.rng.u64(1..=refuse_max.max(1)))
    }

    pub(super) fn cpu_time(&self, rank: u32, time: Time) -> Time {
        if self.slow_ranks[rank as usize] {
            time * u64::from(self.faults.slow_rank_factor.max(1))
        } else {
            time
        }
    }

    pub(super) fn nic_time(&self, node: u32, time: Time) -> Time {
        if self.slow_nics[node as usize] {
            time * u64::from(self.faults.slow_nic_factor.max(1))
        } else {
            time
        }
    }
}
