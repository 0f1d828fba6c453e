//! The network without engines, against the closed forms of its model.

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};
use mpix_rma::transport::sim::*;

use crate::worlds::op;

/// Parameters that are easy to add up. Each rank is on its own node.
pub fn plain() -> Parameters {
    Parameters {
        ranks_per_node: 1,
        wire: LinkClass {
            latency: 1000 * NS,
            post: 100 * NS,
            handle: 50 * NS,
            gap: 20 * NS,
            byte_fs: 1_000_000,
        },
        local: LinkClass {
            latency: 200 * NS,
            post: 10 * NS,
            handle: 10 * NS,
            gap: 30 * NS,
            byte_fs: 500_000,
        },
        bus_byte_fs: 250_000,
        loopback: 700 * NS,
        mtu: 1000,
        inline_max: 100,
        local_stage: false,
        shared_lock_words: false,
        atomic_gap: 300 * NS,
        atomics_by_rank: false,
        accumulate_byte_fs: 2_000_000,
        credits_pair: 1000,
        credits_nic: 10_000,
        bulk_window: u64::MAX,
        tree: None,
    }
}

const POST: Time = 100 * NS;
const L: Time = 1000 * NS;
const fn serial(bytes: u64) -> Time {
    bytes * NS
}

struct Net {
    net: Network,
    /// Time that each rank's CPU has reached.
    clocks: Vec<Time>,
    tickets: u32,
}

impl Net {
    fn new(ranks: u32, parameters: Parameters) -> Self {
        Self::with(ranks, parameters, Carry::Nothing, FaultInjection::default())
    }

    fn with(ranks: u32, parameters: Parameters, carry: Carry, faults: FaultInjection) -> Self {
        let mut net = Network::new(ranks, parameters, carry, faults);
        net.add_window(1 << 16);
        Net { net, clocks: vec![0; ranks as usize], tickets: 0 }
    }

    /// Makes a call of a rank at the current time. Its CPU's clock continues from call to call.
    fn call<R>(&mut self, rank: u32, call: impl FnOnce(&mut SimPort<'_>) -> R) -> R {
        let now = self.net.now();
        self.net.begin(rank, now);
        let ahead = self.clocks[rank as usize].saturating_sub(now);
        self.net.spend(ahead);
        let result = call(&mut self.net.port(0, rank));
        self.clocks[rank as usize] = self.net.clock();
        result
    }

    fn post(&mut self, rank: u32, op: Op) -> (Ticket, Posted) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let posted = self.call(rank, |port| port.post(&op, ticket));
        (ticket, posted)
    }

    fn put(&mut self, rank: u32, target: u32, len: u64) -> Ticket {
        let (ticket, posted) = self.post(rank, op(OpKind::Put, target, len));
        assert!(matches!(posted, Posted::Pending | Posted::Local), "{posted:?}");
        ticket
    }

    /// Runs to the end. Records when each rank's tickets reached their last stage.
    fn run(&mut self) -> Vec<(u32, Ticket, Time)> {
        let mut done = Vec::new();
        while self.net.advance().is_some() {
            while let Some(rank) = self.net.next_woken() {
                let now = self.net.now();
                let mut port = self.net.port(0, rank);
                port.poll();
                while let Some((ticket, stage)) = port.next_finished() {
                    if stage == Stage::Remote {
                        done.push((rank, ticket, now));
                    }
                }
            }
        }
        done
    }

    fn when(&mut self, ticket: Ticket) -> Time {
        self.run().into_iter().find(|(_, done, _)| *done == ticket).expect("finished").2
    }
}

/// LogGP: o + n G + L to the target, and L for the acknowledgement. A get adds its request.
#[test]
fn a_single_message_takes_the_loggp_time() {
    for bytes in [1, 8, 1000, 1001, 50_000, 1 << 20] {
        let mut net = Net::new(2, plain());
        let put = net.put(0, 1, bytes);
        assert_eq!(net.when(put), POST + serial(bytes) + 2 * L, "put of {bytes}");

        let mut net = Net::new(2, plain());
        let (get, posted) = net.post(0, op(OpKind::Get, 1, bytes));
        assert_eq!(posted, Posted::Pending);
        // A landing comes one picosecond after its predecessor, to keep the order.
        assert!(
            net.when(get).abs_diff(POST + serial(8) + L + serial(bytes) + L) <= 2,
            "get of {bytes}"
        );
    }
}

/// A signal is visible after o + 8 G + L, and the change is reported.
#[test]
fn a_signal_takes_one_latency() {
    let mut net = Net::new(2, plain());
    net.call(0, |port| port.signal(1, Word::Grant, 7)).unwrap();
    while net.net.next_woken().is_none() {
        assert_eq!(net.call(1, |port| port.observe(0, Word::Grant)), 0);
        net.net.advance().unwrap();
    }
    assert_eq!(net.net.now(), POST + serial(8) + L);
    assert_eq!(net.call(1, |port| port.observe(0, Word::Grant)), 7);
    assert_eq!(net.call(1, |port| port.next_change()), Some(Change::Signal(0, Word::Grant)));
    assert_eq!(net.call(1, |port| port.next_change()), None);
}

/// Bandwidth: bulk messages of a node are serialized. The ranks of a node share its NIC.
#[test]
fn a_nodes_ranks_share_its_nic() {
    let mut net = Net::new(6, Parameters { ranks_per_node: 2, ..plain() });
    let bytes = 100_000;
    // The targets are on different nodes, so only the sender's port is shared.
    let first = net.put(0, 2, bytes);
    let second = net.put(1, 4, bytes);
    let done = net.run();
    assert_eq!(done[0], (0, first, POST + serial(bytes) + 2 * L));
    assert_eq!(done[1], (1, second, POST + 2 * serial(bytes) + 2 * L));
}

/// The gap limits the rate of short messages.
#[test]
fn short_messages_leave_at_the_rate_of_the_gap() {
    let mut net = Net::new(20, Parameters { ranks_per_node: 10, ..plain() });
    for rank in 0..10 {
        net.put(rank, 10 + rank, 4);
    }
    let done = net.run();
    assert_eq!(done.last().unwrap().2, POST + 9 * 20 * NS + serial(4) + 2 * L);
}

/// The two directions of a port are independent.
#[test]
fn ports_are_full_duplex() {
    let mut net = Net::new(2, plain());
    net.put(0, 1, 100_000);
    net.put(1, 0, 100_000);
    assert!(net.run().iter().all(|(.., at)| *at == POST + serial(100_000) + 2 * L));
}

/// With many senders and one receiver, the receiver's port is the bottleneck.
#[test]
fn an_incast_is_as_slow_as_the_targets_port() {
    let mut net = Net::new(9, plain());
    for rank in 1..9 {
        net.put(rank, 0, 100_000);
    }
    assert_eq!(net.run().last().unwrap().2, POST + 8 * serial(100_000) + 2 * L);
}

/// A short message beside a long one waits for one packet at each port, and delays the long one by
/// its own time.
#[test]
fn a_short_message_waits_for_a_packet_of_a_long_one() {
    let mut net = Net::new(6, Parameters { ranks_per_node: 2, ..plain() });
    let long = net.put(0, 2, 1_000_000);
    let short = net.put(1, 4, 50);
    let after = net.put(0, 4, 1_000_000);
    let done = net.run();
    let at = |ticket| done.iter().find(|(_, done, _)| *done == ticket).unwrap().2;
    assert_eq!(at(short), POST + serial(1000) + serial(50) + 2 * L);
    assert_eq!(at(long), POST + serial(1_000_000) + 2 * L);
    assert_eq!(at(after), POST + 2 * serial(1_000_000) + serial(50) + 2 * L);
}

/// A message that follows a long one to the same peer arrives after it.
#[test]
fn one_connection_keeps_its_order() {
    let mut net = Net::new(2, plain());
    let bytes = 1_000_000;
    net.put(0, 1, bytes);
    net.call(0, |port| port.signal(1, Word::Done, 1)).unwrap();
    while net.call(1, |port| port.observe(0, Word::Done)) == 0 {
        net.net.advance().unwrap();
    }
    let arrived = POST + serial(bytes) + L;
    assert!(
        net.net.now() > arrived && net.net.now() <= arrived + serial(1000),
        "{}",
        net.net.now()
    );
}

/// The order is kept under all injected faults, for all kinds of messages, sizes and paths. Each
/// signal carries the number of earlier puts and accumulates.
#[test]
fn injected_faults_keep_the_order_of_a_connection() {
    for seed in 0..200 {
        let faults = FaultInjection {
            seed,
            delay_max: 20_000 * NS,
            burst_one_in: 20,
            burst: 100_000 * NS,
            slow_nic_one_in: 2,
            slow_nic_factor: 7,
            ..FaultInjection::default()
        };
        let tree = Some(Tree { nodes_per_leaf: 1, uplinks: 1, hop: 100 * NS });
        let parameters =
            Parameters { ranks_per_node: 2, tree: tree.filter(|_| seed % 2 == 0), ..plain() };
        let mut net = Net::with(4, parameters, Carry::Bytes, faults);
        net.net.record();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut posted = [[0u64; 4]; 4];
        let mut landed = [[0u64; 4]; 4];
        let mut seen = [[0u64; 4]; 4];
        let (mut late, mut messages) = (0, 0);
        loop {
            if messages < 200 && (rng.bool() || net.net.next_time().is_none()) {
                messages += 1;
                let (from, to) = (rng.u32(0..4), rng.u32(0..4));
                let len = [8, 96, 800, 5000, 40_000][rng.usize(0..5)];
                let kind = [OpKind::Put, OpKind::Accumulate, OpKind::GetAccumulate, OpKind::Get]
                    [rng.usize(0..4)];
                let origin = net.net.allocate(from, len);
                let _ = net.post(from, Op { origin, result: origin, ..op(kind, to, len as u64) });
                posted[from as usize][to as usize] += 1;
                let value = posted[from as usize][to as usize];
                net.call(from, |port| port.signal(to, Word::Done, value)).unwrap();
            } else if net.net.advance().is_none() {
                break;
            }
            while let Some(event) = net.net.next_event() {
                if let EventKind::Effect(op) = event.kind {
                    landed[event.by as usize][op.target as usize] += 1;
                }
            }
            for from in 0..4usize {
                for to in 0..4usize {
                    let told = net.call(to as u32, |port| port.observe(from as u32, Word::Done));
                    // A completed get has read the target's memory when it took effect there.
                    assert!(
                        told <= landed[from][to],
                        "seed {seed}: {from} told {to} of {told}, {} landed",
                        landed[from][to]
                    );
                    late += u32::from(told > seen[from][to]);
                    seen[from][to] = told;
                }
            }
        }
        assert!(net.net.in_flight() == 0 && late > 20);
        assert_eq!(posted, landed);
    }
}

/// Atomics take effect in a NIC at its rate, in order of arrival. Each answer is the old value.
#[test]
fn atomics_take_effect_one_after_the_other() {
    let mut net = Net::new(9, plain());
    for rank in 1..9 {
        let answer =
            net.call(rank, |port| port.atomic(0, LockWord::Tail, Atomic::Add(1), LockTicket(rank)));
        assert_eq!(answer, Answer::Later);
    }
    let mut answers = Vec::new();
    while net.net.advance().is_some() {
        while let Some(rank) = net.net.next_woken() {
            let now = net.net.now();
            let (ticket, old) = net.net.port(0, rank).next_answer().unwrap();
            assert_eq!(ticket, LockTicket(rank));
            answers.push((old, now));
        }
    }
    let first = POST + serial(8) + L + 300 * NS + L + serial(8);
    let expected: Vec<_> = (0..8).map(|old| (old, first + old * 300 * NS)).collect();
    assert!(
        answers.iter().zip(&expected).all(|(a, b)| a.0 == b.0 && a.1.abs_diff(b.1) < NS),
        "{answers:?}"
    );
    assert_eq!(net.net.lock_word(0, 0, LockWord::Tail), 8);
}

/// A rank's own lock words: loads and stores by the CPU, other accesses through the NIC [LK-7].
#[test]
fn own_lock_words_are_exchanged_through_the_nic() {
    let mut net = Net::new(2, plain());
    let store = net.call(0, |port| port.atomic(0, LockWord::Tail, Atomic::Store(5), LockTicket(0)));
    assert_eq!(store, Answer::Now(0));
    assert_eq!(net.call(0, |port| port.look(LockWord::Tail)), 5);
    assert_eq!(
        net.call(0, |port| port.atomic(0, LockWord::Tail, Atomic::Swap(6), LockTicket(0))),
        Answer::Later
    );
    assert_eq!(net.call(0, |port| port.look(LockWord::Tail)), 5);
    net.run();
    assert_eq!(net.call(0, |port| port.next_answer()), Some((LockTicket(0), 5)));
    assert_eq!(net.call(0, |port| port.look(LockWord::Tail)), 6);
}

/// Without a credit nothing is done. A refused rank is woken when a credit returns.
#[test]
fn credits_are_bounded_and_come_back() {
    for (pair, nic) in [(2, 1000), (1000, 2)] {
        let mut net = Net::new(2, Parameters { credits_pair: pair, credits_nic: nic, ..plain() });
        net.put(0, 1, 10);
        net.call(0, |port| port.signal(1, Word::Done, 1)).unwrap();
        assert_eq!(net.post(0, op(OpKind::Put, 1, 10)).1, Posted::NoResource);
        assert_eq!(net.call(0, |port| port.signal(1, Word::Done, 2)), Err(NoResource));
        assert_eq!(
            net.call(0, |port| port.atomic(1, LockWord::Tail, Atomic::Load, LockTicket(0))),
            Answer::NoResource
        );
        let mut woken = Vec::new();
        while net.net.advance().is_some() && woken.is_empty() {
            while let Some(rank) = net.net.next_woken() {
                woken.push(rank);
            }
        }
        assert!(woken.contains(&0), "{woken:?}");
        assert_eq!(net.call(0, |port| port.signal(1, Word::Done, 2)), Ok(()));
        net.run();
        assert_eq!(net.net.in_flight(), 0);
    }
}

/// Refuses bulk operations beyond the window, but no short ones. A refused rank is woken when one
/// is acknowledged. An operation that is longer than the window goes alone.
#[test]
fn a_bulk_window_bounds_the_bytes_of_a_rank_at_its_nic() {
    let mut net = Net::new(3, Parameters { bulk_window: 5000, ..plain() });
    let (long, short) = (op(OpKind::Put, 1, 2500), op(OpKind::Put, 1, 10));
    net.put(0, 1, 2500);
    net.put(0, 2, 2500);
    assert_eq!(net.post(0, long).1, Posted::NoResource);
    assert_eq!(net.post(0, short).1, Posted::Local);
    assert_eq!(net.post(1, op(OpKind::Put, 2, 2500)).1, Posted::Pending, "another rank's window");
    let first = loop {
        net.net.advance().expect("an acknowledgement");
        if std::iter::from_fn(|| net.net.next_woken()).any(|rank| rank == 0) {
            break net.net.now();
        }
    };
    assert_eq!(first, POST + serial(2500) + 2 * L);
    assert_eq!(net.post(0, long).1, Posted::Pending);
    assert_eq!(net.post(0, long).1, Posted::NoResource);
    net.run();
    assert_eq!(net.post(0, op(OpKind::Put, 1, 9000)).1, Posted::Pending);
    assert_eq!(net.post(0, long).1, Posted::NoResource);
    net.run();
    assert_eq!(net.net.in_flight(), 0);
}

/// An adapter sends in order of posting. With a bulk window, what a rank posts waits there behind
/// one window of its neighbour, not behind all that the neighbour has to send.
#[test]
fn a_bulk_window_lets_neighbours_pass_at_the_adapter() {
    for (window, ahead) in [(5000, 2), (u64::MAX, 10)] {
        let parameters = Parameters { ranks_per_node: 2, bulk_window: window, ..plain() };
        let mut net = Net::new(4, parameters);
        let posted = (0..10)
            .take_while(|_| net.post(0, op(OpKind::Put, 2, 2500)).1 == Posted::Pending)
            .count() as u64;
        assert_eq!(posted, ahead);
        let (ticket, posted) = net.post(1, op(OpKind::Put, 3, 2500));
        assert_eq!(posted, Posted::Pending);
        let done = loop {
            net.net.advance().expect("a completion");
            if let Some((done, _)) = net.net.port(0, 1).next_finished() {
                assert_eq!(done, ticket);
                break net.net.now();
            }
        };
        assert_eq!(done, POST + (ahead + 1) * serial(2500) + 2 * L);
    }
}

/// CPUs that serve atomics do not wait for their neighbours.
#[test]
fn atomics_by_rank_are_served_by_each_target() {
    // Alone, the second waits for the port of the node only.
    for (by_rank, wait) in [(false, 300 * NS), (true, 20 * NS)] {
        let parameters = Parameters { ranks_per_node: 2, atomics_by_rank: by_rank, ..plain() };
        let mut net = Net::new(6, parameters);
        for (rank, target) in [(2, 0), (4, 1)] {
            let answer = net.call(rank, |port| {
                port.atomic(target, LockWord::Tail, Atomic::Add(1), LockTicket(0))
            });
            assert_eq!(answer, Answer::Later);
        }
        let mut times = Vec::new();
        while net.net.advance().is_some() {
            while let Some(rank) = net.net.next_woken() {
                let now = net.net.now();
                times.extend(net.net.port(0, rank).next_answer().map(|_| now));
            }
        }
        assert!((times[1] - times[0]).abs_diff(wait) < NS, "{times:?}");
        assert_eq!(
            net.net.atomics_busy().filter(|busy| *busy > 0).count(),
            1 + usize::from(by_rank)
        );
    }
}

/// Copies inside a node take CPU time and share the memory bus.
#[test]
fn copies_inside_a_node_take_the_cpu_and_share_the_bus() {
    let bytes = 10_000;
    let alone = 30 * NS + bytes * NS / 2;
    let mut net = Net::new(8, Parameters { ranks_per_node: 8, ..plain() });
    assert_eq!(net.post(0, op(OpKind::Put, 1, bytes)).1, Posted::Complete);
    assert_eq!(net.clocks[0], alone);
    for rank in 1..8 {
        assert_eq!(net.post(rank, op(OpKind::Get, 0, bytes)).1, Posted::Complete);
    }
    // Eight copies, at a quarter nanosecond per byte of the bus.
    assert_eq!(net.clocks[7], 8 * bytes * NS / 4);
    assert_eq!(net.net.next_time(), None);
}

/// Another leaf is two hops further, and each uplink is a port of its own.
#[test]
fn a_tree_has_hops_and_uplinks() {
    let tree = |uplinks| Parameters {
        tree: Some(Tree { nodes_per_leaf: 4, uplinks, hop: 100 * NS }),
        ..plain()
    };
    let bytes = 100_000;
    let mut net = Net::new(8, tree(4));
    let near = net.put(0, 1, bytes);
    assert_eq!(net.when(near), POST + serial(bytes) + 2 * L);
    let mut net = Net::new(8, tree(4));
    let far = net.put(0, 4, bytes);
    assert_eq!(net.when(far), POST + serial(bytes) + 2 * L + 4 * 100 * NS);
    for (uplinks, rounds) in [(4, 1), (2, 2), (1, 4)] {
        let mut net = Net::new(8, tree(uplinks));
        for rank in 0..4 {
            net.put(rank, 4 + rank, bytes);
        }
        let last = net.run().last().unwrap().2;
        assert_eq!(last, POST + rounds * serial(bytes) + 2 * L + 4 * 100 * NS, "{uplinks} uplinks");
    }
}

/// If the network reports a local stage, it is reached when the last byte has left.
#[test]
fn the_local_stage_comes_when_the_last_byte_has_left() {
    let mut net = Net::new(2, Parameters { local_stage: true, ..plain() });
    assert_eq!(net.post(0, op(OpKind::Put, 1, 100)).1, Posted::Local);
    let (ticket, posted) = net.post(0, op(OpKind::Put, 1, 101));
    assert_eq!(posted, Posted::Pending);
    let mut stages = Vec::new();
    while net.net.advance().is_some() {
        let now = net.net.now();
        while let Some(finished) = net.net.port(0, 0).next_finished() {
            stages.push((finished, now));
        }
    }
    assert_eq!(stages[0], ((ticket, Stage::Local), 2 * POST + serial(101)));
    assert!(stages.iter().any(|(finished, at)| *finished == (ticket, Stage::Remote)
        && *at >= 2 * POST + serial(101) + 2 * L));
}

/// A message with its own times keeps them, whatever was sent before it.
#[test]
fn timed_messages_overtake() {
    let mut net = Net::new(2, Parameters { local_stage: true, ..plain() });
    let get = op(OpKind::Get, 1, 1000);
    let slow = Times { left: 10, lands: 900, done: 950 };
    let fast = Times { left: 20, lands: 30, done: 40 };
    let now = Times { left: 0, lands: 0, done: 0 };
    let mut post = |op, number, times| net.net.port(0, 0).timed(times).post(&op, Ticket(number));
    assert_eq!(post(op(OpKind::Put, 1, 1000), 0, slow), Posted::Pending);
    assert_eq!(post(get, 1, fast), Posted::Pending);
    assert_eq!(post(get, 2, now), Posted::Complete);
    let signal = Times { left: 35, lands: 35, done: 35 };
    net.net.port(0, 0).timed(signal).signal(1, Word::Done, 7).expect("there are credits");
    let mut stages = Vec::new();
    while net.net.advance().is_some() {
        let at = net.net.now();
        stages.extend(std::iter::from_fn(|| net.net.port(0, 0).next_finished()).map(|s| (s, at)));
        assert_eq!(net.net.port(0, 1).observe(0, Word::Done), if at < 35 { 0 } else { 7 });
    }
    let stage = |number, stage, at| ((Ticket(number), stage), at);
    let expected =
        [stage(0, Stage::Local, 10), stage(1, Stage::Remote, 40), stage(0, Stage::Remote, 950)];
    assert_eq!(stages, expected);
    assert!(net.net.is_idle() && net.net.credits_out() == 0);
}

/// Every kind of operation changes memory as MPI requires, within and between nodes. Buffers are
/// read as late as allowed.
#[test]
fn operations_carry_their_bytes() {
    for ranks_per_node in [1, 2] {
        let mut net = Net::with(
            2,
            Parameters { ranks_per_node, ..plain() },
            Carry::Bytes,
            FaultInjection::default(),
        );
        let word = |net: &mut Net, value: i64| {
            let at = net.net.allocate(0, 8);
            net.net.private_mut(0, at, 8).copy_from_slice(&value.to_ne_bytes());
            at
        };
        let far = |net: &Net, disp: usize| {
            i64::from_ne_bytes(net.net.window(0, 1)[disp..][..8].try_into().unwrap())
        };
        let [a, b, c, result] = [30, 12, 41, -1].map(|value| word(&mut net, value));
        let near =
            |net: &Net, at| i64::from_ne_bytes(net.net.private(0, at, 8).try_into().unwrap());
        let both = |kind, origin| Op { origin, result, compare: b, disp: 16, ..op(kind, 1, 8) };
        let step = |net: &mut Net, op: Op| {
            let _ = net.post(0, op);
            net.run();
        };
        step(&mut net, both(OpKind::Put, a));
        assert_eq!(far(&net, 16), 30);
        step(&mut net, both(OpKind::Accumulate, b));
        assert_eq!(far(&net, 16), 42);
        step(&mut net, both(OpKind::GetAccumulate, b));
        assert_eq!((near(&net, result), far(&net, 16)), (42, 54));
        step(&mut net, Op { reduction: reduction::NO_OP, ..both(OpKind::GetAccumulate, Addr(0)) });
        assert_eq!((near(&net, result), far(&net, 16)), (54, 54));
        step(
            &mut net,
            Op { reduction: reduction::MIN, element: native::I64, ..both(OpKind::Accumulate, b) },
        );
        assert_eq!(far(&net, 16), 12);
        step(&mut net, both(OpKind::CompareAndSwap, c));
        assert_eq!((near(&net, result), far(&net, 16)), (12, 41));
        step(&mut net, both(OpKind::CompareAndSwap, a));
        assert_eq!((near(&net, result), far(&net, 16)), (41, 41));
        step(&mut net, both(OpKind::Get, a));
        assert_eq!(near(&net, result), 41);
        // A long put reads its buffer when the bytes leave, not before.
        let long = net.net.allocate(0, 4000);
        let _ = net.post(0, Op { origin: long, disp: 100, ..op(OpKind::Put, 1, 4000) });
        net.net.private_mut(0, long, 4000).fill(9);
        net.run();
        assert_eq!(net.net.window(0, 1)[100], if ranks_per_node == 1 { 9 } else { 0 });
    }
}
