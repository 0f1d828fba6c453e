//! The machine and the injected faults of a seed, and an upper bound on the program's run time.

use mpix_rma::engine::{LockMode, OpKind, SyncCall};
use mpix_rma::sim::{Group, How, Machine, PROFILES, Settings, Step};
use mpix_rma::transport::sim::{Carry, FaultInjection, NS, Time, Tree, US, Violation};

use super::player::TEST_PAUSE_MAX;
use super::program::{Call, Program, RecordedCall};

/// A violation of the port's contract, once in this many opportunities.
pub type Broken = Option<(Violation, u32)>;

fn machine(rng: &mut fastrand::Rng, ranks: u32, windows: u32) -> Machine {
    let mut machine = PROFILES[rng.usize(0..PROFILES.len())];
    let network = &mut machine.network;
    network.ranks_per_node = [1, 1, 2, 3, ranks][rng.usize(0..5)];
    network.credits_pair = [1, 1, 2, 4, 64, 64][rng.usize(0..6)];
    // A NIC's credits are shared by its ranks. Leave one for each window that may retry a lock
    // endlessly, and one for anything else.
    let least = network.ranks_per_node.min(ranks) * (windows + 1);
    network.credits_nic = [least, least + 2, 64, 16_384][rng.usize(0..4)].max(least);
    // Without a draw of its own, so that a seed keeps its program.
    network.bulk_window = if network.credits_pair == 2 { 1 } else { u64::MAX };
    network.mtu = [64, 512, 2048][rng.usize(0..3)];
    network.inline_max = [0, 8, 128][rng.usize(0..3)];
    network.local_stage = rng.bool();
    network.shared_lock_words = rng.bool();
    network.tree = rng.bool().then(|| Tree {
        nodes_per_leaf: rng.u32(1..3),
        uplinks: rng.u32(1..3),
        hop: 100 * NS,
    });
    if rng.u8(0..4) == 0 {
        // A CPU that is slow compared with the network, or the reverse.
        network.wire.latency = [50 * NS, 20 * US][rng.usize(0..2)];
        network.wire.handle = [NS, US][rng.usize(0..2)];
    }
    machine
}

fn faults(rng: &mut fastrand::Rng) -> FaultInjection {
    let mut off = FaultInjection { seed: rng.u64(..), ..FaultInjection::default() };
    if rng.bool() {
        off.delay_max = [US, 10 * US, 50 * US][rng.usize(0..3)];
    }
    if rng.u8(0..3) == 0 {
        off.burst_one_in = rng.u32(10..100);
        off.burst = rng.u64(10..200) * US;
    }
    if rng.u8(0..3) == 0 {
        off.refuse_one_in = rng.u32(2..20);
        off.refuse_max = 5 * US;
    }
    if rng.u8(0..3) == 0 {
        off.slow_rank_one_in = 3;
        off.slow_rank_factor = rng.u32(2..20);
    }
    if rng.u8(0..3) == 0 {
        off.slow_nic_one_in = 2;
        off.slow_nic_factor = rng.u32(2..20);
    }
    off
}

/// The settings of a seed's world.
pub fn settings_of(seed: u64, program: &Program) -> Settings {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed_0f5e_a5ed_5eed);
    let machine = machine(&mut rng, program.ranks, program.windows.len() as u32);
    let faults = faults(&mut rng);
    let settings = Settings {
        carry: Carry::Bytes,
        faults,
        progress_thread: rng.bool(),
        ..Settings::new(machine)
    };
    let time_limit = bound(program, &settings);
    Settings { time_limit, event_limit: 2_000_000, ..settings }
}

/// Maximum number of messages that a call causes at any rank, lock words and signals included.
fn messages(step: &Step, ranks: u64) -> u64 {
    let rounds = u64::from(64 - (ranks - 1).leading_zeros());
    let group = |group: &Group| match group {
        Group::One(_) => 1,
        Group::Others => ranks - 1,
        Group::List(list) => list.len() as u64,
    };
    match step {
        // One grant and one done per peer.
        Step::Post { group: to, .. } | Step::Start { group: to, .. } => group(to),
        // With a pattern: a mark and its acknowledgement per neighbour, or a done and a grant.
        Step::Fence { .. } => rounds + 2 * (ranks - 1),
        // Gate 1, queue 6, right 2, polling `Holders` 2. Each licence to revoke adds 6.
        Step::Lock { mode: LockMode::Exclusive, .. } => 11,
        Step::Lock { mode: LockMode::Shared, .. } => 9,
        Step::LockAll { .. } => 8 + 6 * ranks,
        // Queue 4, granting a reader 3, right 2 or licence 6.
        Step::Unlock { .. } => 13,
        Step::UnlockAll { .. } => 1,
        Step::Issue { .. } | Step::IssueRequest { .. } => 1,
        _ => 0,
    }
}

fn recorded_messages(call: &RecordedCall, ranks: u64) -> u64 {
    let (window, how) = (0, How::Blocking);
    let step = match call {
        RecordedCall::Op(_) | RecordedCall::Sync(SyncCall::Complete | SyncCall::Wait) => return 1,
        RecordedCall::Sync(SyncCall::Post(group) | SyncCall::Start(group)) => {
            return group.len() as u64;
        }
        RecordedCall::Sync(SyncCall::Fence(assert)) => Step::Fence { window, assert: *assert, how },
        &RecordedCall::Sync(SyncCall::Lock(mode, target, assert)) => {
            Step::Lock { window, mode, target, assert, blocking: false }
        }
        RecordedCall::Sync(SyncCall::LockAll(assert)) => {
            Step::LockAll { window, assert: *assert, blocking: false }
        }
        RecordedCall::Sync(SyncCall::Unlock(target)) => {
            Step::Unlock { window, target: *target, how }
        }
        RecordedCall::Sync(SyncCall::UnlockAll) => Step::UnlockAll { window, how },
    };
    messages(&step, ranks)
}

/// An upper bound on the program's run time.
///
/// Until the program ends, some rank computes, or a message that something depends on is in flight,
/// or its reader handles it. So the time is at most the sum of all computations and of all
/// messages, each at its slowest. A message takes at most two refusals, its time at the ports, two
/// trips with the maximum delay and one burst each, and on both sides a CPU that is busy with a
/// call. (The time of other messages at the ports is counted with those messages.) A reader in a
/// loop of tests does not listen for one pause.
fn bound(program: &Program, settings: &Settings) -> Time {
    let (network, faults) = (&settings.machine.network, &settings.faults);
    let ranks = u64::from(program.ranks);
    let slow = u64::from(faults.slow_rank_factor.max(1));
    let slow_nic = u64::from(faults.slow_nic_factor.max(1));
    let loops = program.calls.iter().flatten().any(|call| {
        matches!(call, Call::TestLoop(_) | Call::TestSlotLoop(_) | Call::TestExpectationLoop { .. })
    });
    let hops = network.tree.map_or(0, |tree| 2 * tree.hop);
    let latency = network.wire.latency.max(network.loopback).max(network.local.latency);
    let cpu = slow * (settings.machine.call + network.wire.post + network.wire.handle);
    let way = latency + hops + faults.delay_max + faults.burst;
    // Messages of ranks that retry locks endlessly also occupy the ports.
    let port = (1 + ranks) * (slow_nic * network.wire.gap + network.atomic_gap);
    let refused = if faults.refuse_one_in > 0 { 2 * faults.refuse_max } else { 0 };
    let deaf = if loops { slow * TEST_PAUSE_MAX } else { 0 };
    let message = 2 * way + port + refused + 2 * cpu + deaf;
    let of = |call: &Call| match call {
        Call::Step(step) => messages(step, ranks),
        // At most one round per notification.
        Call::TakeLoop { until, .. } => 1 + until,
        Call::Restart { record, .. } => {
            let calls = program.records[*record].calls.iter();
            calls.map(|call| recorded_messages(call, ranks)).sum()
        }
        _ => 1,
    };
    let count: u64 = program.calls.iter().flatten().map(of).sum();
    let bytes = |plan: &super::program::Plan| {
        let fetched = u64::from(plan.kind == OpKind::GetAccumulate);
        network.wire.serial(plan.len as u64) * slow_nic * (3 + fetched)
            + network.local.serial(plan.len as u64) * slow
    };
    slow * program.computes()
        + (count + 10) * message
        + program.plans.iter().map(bytes).sum::<Time>()
}
