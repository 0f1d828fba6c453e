//! The simulated network with injected faults: delays, refusals and slow processes.
#![cfg(feature = "sim")]

use mpix_rma::engine::*;
use mpix_rma::transport::sim::*;

use crate::conformance::World;

/// A window of the simulated network.
pub struct Simulated {
    net: Network,
    /// Time that each process has reached.
    clocks: Vec<Time>,
}

fn class(latency: Time) -> LinkClass {
    LinkClass { latency, post: 10 * NS, handle: 10 * NS, gap: 20 * NS, byte_fs: 100_000 }
}

impl World for Simulated {
    type Port<'a> = SimPort<'a>;

    fn new(ranks: u32, bytes: usize, seed: u64) -> Self {
        let parameters = Parameters {
            ranks_per_node: 1 + seed as u32 % 2,
            wire: class(1000 * NS),
            local: class(200 * NS),
            bus_byte_fs: 100_000,
            loopback: 500 * NS,
            mtu: 2000,
            inline_max: 100,
            local_stage: seed.is_multiple_of(3),
            shared_lock_words: seed.is_multiple_of(5),
            atomic_gap: 100 * NS,
            atomics_by_rank: false,
            accumulate_byte_fs: 100_000,
            credits_pair: 8,
            credits_nic: 24,
            bulk_window: [1, u64::MAX][usize::from(seed.is_multiple_of(7))],
            tree: None,
        };
        let faults = FaultInjection {
            seed,
            delay_max: 5 * US,
            refuse_one_in: 5,
            refuse_max: 3 * US,
            ..FaultInjection::default()
        };
        let mut net = Network::new(ranks, parameters, Carry::Bytes, faults);
        net.add_window(bytes);
        Simulated { net, clocks: vec![0; ranks as usize] }
    }

    fn port(&mut self, me: Rank) -> Self::Port<'_> {
        let now = self.net.now();
        self.net.begin(me, now);
        self.net.port(0, me)
    }

    fn step(&mut self) {
        self.net.advance();
        while self.net.next_woken().is_some() {}
        for me in 0..self.clocks.len() as Rank {
            self.port(me).poll();
            while self.port(me).next_change().is_some() {}
        }
    }

    fn buffer(&mut self, me: Rank, content: &[u8]) -> Addr {
        let at = self.net.allocate(me, content.len());
        self.net.private_mut(me, at, content.len()).copy_from_slice(content);
        at
    }

    fn read(&self, me: Rank, at: Addr, len: usize) -> Vec<u8> {
        self.net.private(me, at, len).to_vec()
    }

    fn write(&mut self, me: Rank, at: Addr, content: &[u8]) {
        self.net.private_mut(me, at, content.len()).copy_from_slice(content);
    }

    fn memory(&self, me: Rank) -> Vec<u8> {
        self.net.window(0, me).to_vec()
    }

    fn set_memory(&mut self, me: Rank, disp: usize, content: &[u8]) {
        self.net.window_mut(0, me)[disp..disp + content.len()].copy_from_slice(content);
    }

    fn make_counters(&mut self, _: u32) {}

    fn end(self) {
        assert!(self.net.is_idle(), "messages are in flight");
    }
}
