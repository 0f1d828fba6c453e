//! Fault injection within the port's contract: the worst that a reliable network may do, drawn from
//! a seed.

use super::Time;

/// Which faults are injected, and how often. The default (all 0) injects none. Equal seeds give
/// equal runs.
///
/// [`Parameters`](super::Parameters) sets scarce credits, and scripts make ranks late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultInjection {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Maximum delay of each message, acknowledgement and answer. Messages of one pair stay in
    /// order, those of different pairs may overtake each other.
    pub delay_max: Time,
    /// One message in this many starts a burst: messages sent during it arrive after its end.
    pub burst_one_in: u32,
    /// Length of a burst.
    pub burst: Time,
    /// One post, signal or access in this many is refused with `NoResource`.
    pub refuse_one_in: u32,
    /// Maximum time until a refused rank is woken.
    pub refuse_max: Time,
    /// One rank in this many is slow.
    pub slow_rank_one_in: u32,
    /// Factor by which the CPU of a slow rank is slower.
    pub slow_rank_factor: u32,
    /// One node in this many has a slow NIC.
    pub slow_nic_one_in: u32,
    /// Factor by which a slow NIC is slower.
    pub slow_nic_factor: u32,
}

/// Draws the faults of a run.
pub(super) struct FaultInjector {
    faults: FaultInjection,
    rng: fastrand::Rng,
    burst_until: Time,
    /// Factor by which the CPU of each rank is slower.
    cpu_factors: Vec<Time>,
    /// Factor by which the NIC of each node is slower.
    nic_factors: Vec<Time>,
}

impl FaultInjector {
    pub(super) fn new(faults: FaultInjection, ranks: u32, nodes: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(faults.seed);
        let mut factors = |count: u32, one_in: u32, factor: u32| {
            let mut is_slow = || one_in > 0 && rng.u32(0..one_in) == 0;
            (0..count).map(|_| if is_slow() { factor.max(1).into() } else { 1 }).collect()
        };
        let cpu_factors = factors(ranks, faults.slow_rank_one_in, faults.slow_rank_factor);
        let nic_factors = factors(nodes, faults.slow_nic_one_in, faults.slow_nic_factor);
        FaultInjector { faults, rng, burst_until: 0, cpu_factors, nic_factors }
    }

    /// Injected delay for a message sent at `now`.
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

    /// Draws whether a post is refused. If so, returns the time until its rank is woken.
    pub(super) fn refuses(&mut self) -> Option<Time> {
        let FaultInjection { refuse_one_in, refuse_max, .. } = self.faults;
        (refuse_one_in > 0 && self.rng.u32(0..refuse_one_in) == 0)
            .then(|| self.rng.u64(1..=refuse_max.max(1)))
    }

    pub(super) fn cpu_time(&self, rank: u32, time: Time) -> Time {
        time * self.cpu_factors[rank as usize]
    }

    pub(super) fn nic_time(&self, node: u32, time: Time) -> Time {
        time * self.nic_factors[node as usize]
    }
}
