//! Notification counters: raised by messages and shared memory, behind the data.

use mpix_rma::engine::{self, *};
use mpix_rma::transport::am::CREDITS;
use mpix_rma::transport::shm::CounterStep;

use crate::world::*;

/// Posts an operation; polls all processes while there is no resource.
fn post(w: &mut [Far], me: usize, flight: &mut InFlight, op: &Op) {
    while !flight.try_post(&mut w[me], op) {
        w.iter_mut().for_each(|window| _ = window.poll());
        flight.collect(&mut w[me]);
    }
}

fn finish(w: &mut [Far], me: usize, flight: &mut InFlight) {
    for _ in 0..100_000 {
        if flight.open == 0 {
            return;
        }
        w.iter_mut().for_each(|window| _ = window.poll());
        flight.collect(&mut w[me]);
    }
    panic!("it does not end");
}

/// Data and notification share a packet if they fit, and are sent without a poll.
#[test]
fn a_notification_travels_with_its_data() {
    if !crate::carry::ALL_BY_MESSAGES {
        return;
    }
    for len in [8usize, 900, 1024, 5000, 15_000] {
        let mut memories = vec![vec![0u8; 1 << 20]; 2];
        let (hub, mut w) = windows(&mut memories, 3);
        assert!(count(&mut w, &[0, 1], None));
        let from = vec![5u8; len];
        let mut flight = InFlight::default();
        let notification = Some(Notification::counter(0));
        let origin = Addr(from.as_ptr() as usize);
        let put = Op { origin, notification, ..op(OpKind::Put, 1, 0, len) };
        while !flight.try_post(&mut w[0], &put) {}
        assert_eq!(hub.lock().unwrap().sent, 1, "{len} bytes");
        while w[1].counter(0) == 0 {
            w[1].poll();
        }
        finish(&mut w, 0, &mut flight);
        end(&hub, w);
    }
}

/// [LK-7] Node-mates raise a counter by an atomic addition, all others through its process. No
/// count is lost or doubled, also between resets.
#[test]
fn node_mates_and_remote_peers_raise_one_counter() {
    let nodes: [Vec<Vec<Rank>>; 4] = [
        vec![vec![0, 1], vec![2, 3]],
        vec![vec![0, 2], vec![1, 3]],
        vec![vec![0], vec![1, 2, 3]],
        vec![vec![0, 1, 2, 3]],
    ];
    let ways = [
        Near::Allocated,
        Near::Created { cma: true },
        Near::Created { cma: false },
        Near::Messages,
    ];
    for seed in 0..64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut memories = vec![vec![0u8; 8 * 64]; 4];
        let (nodes, near) = (&nodes[seed as usize % 4], ways[seed as usize / 4 % 4]);
        let (hub, ports) = mixed(nodes, &mut memories, near, seed);
        let mut p: Vec<_> = (0..4)
            .zip(ports)
            .map(|(me, port)| (engine::Window::new(me, 4, ReorderFlags::default()), port))
            .collect();
        let mut ports: Vec<Far> = Vec::new();
        let mut engines: Vec<engine::Window> = Vec::new();
        for (engine, port) in p.drain(..) {
            engines.push(engine);
            ports.push(port);
        }
        assert!(count(&mut ports, &[2, 2, 2, 2], None));
        let cells: Vec<u64> = (0..200).map(|turn| turn + 1).collect();
        // Per rank and counter: the notifications sent to it, and the counts that resets returned.
        let (mut sent, mut taken) = ([[0u64; 4]; 4], [[0u64; 2]; 4]);
        for me in 0..4 {
            engines[me].lock_all(&mut ports[me], Assert::default()).unwrap();
        }
        for turn in 0..200usize {
            let (me, target) = (rng.usize(0..4), rng.usize(0..4));
            let (engine, port) = (&mut engines[me], &mut ports[me]);
            let put = Op {
                origin: Addr(&raw const cells[turn] as usize),
                ..op(OpKind::Put, target as Rank, 8 * me as u64, 8)
            };
            let counter = rng.usize(0..2);
            let told = Notification::counter(counter as u32);
            let alone = Op::notify(target as Rank, told);
            match rng.u8(0..4) {
                0 => engine.issue(port, &alone).unwrap(),
                1 => {
                    engine.issue(port, &put).unwrap();
                    engine.issue(port, &alone).unwrap();
                }
                _ => engine.issue(port, &Op { notification: Some(told), ..put }).unwrap(),
            }
            sent[target][counter] += 1;
            let who = rng.usize(0..4);
            engines[who].progress(&mut ports[who]);
            let which = rng.usize(0..2);
            if rng.u8(0..4) == 0 {
                taken[who][which] += engines[who].reset_counter(&mut ports[who], which as u32);
            }
            assert!(
                taken[who][which] + engines[who].counter(&mut ports[who], which as u32)
                    <= sent[who][which],
                "seed {seed}"
            );
        }
        let outcomes: Vec<Outcome> =
            (0..4).map(|me| engines[me].unlock_all(&mut ports[me]).unwrap()).collect();
        for turn in 0.. {
            assert!(turn < 200_000, "seed {seed}: it does not end");
            for me in 0..4 {
                engines[me].progress(&mut ports[me]);
                while engines[me].next_completed().is_some() {}
            }
            if (0..4).all(
                |me| !matches!(outcomes[me], Outcome::Pending(id) if engines[me].is_pending(id)),
            ) {
                break;
            }
        }
        // One more poll handles what has arrived.
        engines.iter_mut().zip(&mut ports).for_each(|(engine, port)| _ = engine.progress(port));
        for me in 0..4 {
            for which in 0..2 {
                taken[me][which] += engines[me].reset_counter(&mut ports[me], which as u32);
                assert_eq!(
                    taken[me][which], sent[me][which],
                    "seed {seed}, {near:?}: counter {which} of {me}"
                );
                assert_eq!(engines[me].counter(&mut ports[me], which as u32), 0);
            }
        }
        end(&hub, ports);
    }
}

/// The numbers of counters are agreed. A change sets all counters to 0; an objection at any step
/// leaves them unchanged.
#[test]
fn numbers_of_counters_are_agreed() {
    let mut memories = vec![vec![0u8; 64]; 3];
    let (hub, mut w) = mixed(&[vec![0, 2], vec![1]], &mut memories, Near::Allocated, 1);
    assert!((0..3).all(|rank| w[0].counters_of(rank) == 0));
    assert!(count(&mut w, &[0, 700, 2], None));
    let raise = |w: &mut [Far], target, index| {
        let mut flight = InFlight::default();
        for me in 0..3 {
            post(w, me, &mut flight, &Op::notify(target, Notification::counter(index)));
            finish(w, me, &mut flight);
        }
    };
    raise(&mut w, 1, 699);
    raise(&mut w, 2, 1);
    for (step, who) in [(CounterStep::Want, 0), (CounterStep::Create, 1), (CounterStep::Map, 2)] {
        assert!(!count(&mut w, &[1, 5, 1], Some((who, step))), "somebody has objected");
        for window in &w {
            assert_eq!(
                [0, 1, 2].map(|rank| window.counters_of(rank)),
                [0, 700, 2],
                "after an objection at {step:?}"
            );
        }
        assert_eq!((w[1].counter(699), w[2].counter(1)), (3, 3));
    }
    raise(&mut w, 1, 699);
    assert!(count(&mut w, &[4, 3, 2], None));
    assert_eq!(w[2].counter(1), 0, "a counter that stays begins anew");
    raise(&mut w, 2, 1);
    assert!(count(&mut w, &[4, 700, 2], None));
    assert_eq!((w[1].counter(699), w[2].counter(1)), (0, 0), "so does one that goes and comes");
    raise(&mut w, 1, 699);
    assert_eq!(w[1].counter(699), 3);
    end(&hub, w);
}

/// Packets to a target that does not poll are bounded, and no notification is lost.
#[test]
fn a_million_notifications_for_a_late_target() {
    const MANY: u64 = 1_000_000;
    let mut memories = vec![Vec::new(), vec![0u8; 64]];
    let (hub, mut w) = windows(&mut memories, 1);
    assert!(count(&mut w, &[0, 2], None));
    let mut flight = InFlight::default();
    let told = Op::notify(1, Notification::counter(1));
    let (mut posted, mut refused) = (0u64, 0u64);
    for _ in 0..MANY {
        if flight.try_post(&mut w[0], &told) {
            posted += 1;
        } else {
            refused += 1;
            w[0].poll();
            flight.collect(&mut w[0]);
        }
    }
    assert!(refused > 0 && posted < MANY, "{posted} posted");
    let waiting = hub.lock().unwrap().waiting_for(1) as u64;
    assert!(waiting <= 2 * CREDITS + 2, "packets of the host: {waiting}");
    assert!(w[1].counter(1) == 0);
    while posted < MANY || flight.open > 0 {
        if posted == MANY || !flight.try_post(&mut w[0], &told) {
            w.iter_mut().for_each(|window| _ = window.poll());
            flight.collect(&mut w[0]);
        } else {
            posted += 1;
        }
    }
    w[1].poll();
    assert_eq!((w[1].counter(0), w[1].counter(1)), (0, MANY));
    end(&hub, w);
}
