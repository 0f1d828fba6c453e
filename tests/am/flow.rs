//! Flow control: packets in flight to a target that does not poll are bounded.

use mpix_rma::engine::*;
use mpix_rma::transport::am::CREDITS;

use crate::world::*;

#[test]
fn a_late_target_holds_its_origin_back() {
    const PUTS: u64 = 1_000_000;
    let mut memories = vec![Vec::new(), vec![0u8; 8 * 4096]];
    let (hub, mut w) = windows(&mut memories, 1);
    let mut flight = InFlight::default();
    let (mut posted, mut refused) = (0u64, 0u64);
    let values: Vec<u64> = (0..PUTS).collect();
    let put = |at: u64| Op {
        origin: Addr(&raw const values[at as usize] as usize),
        ..op(OpKind::Put, 1, at % 4096 * 8, 8)
    };
    // The target does not poll.
    for _ in 0..PUTS {
        if flight.try_post(&mut w[0], &put(posted)) {
            posted += 1;
        } else {
            refused += 1;
            w[0].poll();
            flight.collect(&mut w[0]);
        }
    }
    assert!(refused > 0 && posted < PUTS);
    assert!(
        hub.lock().unwrap().waiting_for(1) as u64 <= 2 * CREDITS + 2,
        "packets of the host: {}",
        hub.lock().unwrap().waiting_for(1)
    );
    // Now it polls.
    while posted < PUTS || flight.open > 0 {
        if posted == PUTS || !flight.try_post(&mut w[0], &put(posted)) {
            w.iter_mut().for_each(|window| _ = window.poll());
            flight.collect(&mut w[0]);
        } else {
            posted += 1;
        }
    }
    end(&hub, w);
    let last = PUTS - PUTS % 4096;
    for at in 0..4096u64 {
        let expected = if last + at < PUTS { last + at } else { last + at - 4096 };
        assert_eq!(
            u64::from_ne_bytes(memories[1][8 * at as usize..][..8].try_into().unwrap()),
            expected
        );
    }
}

/// A host may copy what a transfer sends, so that its origin is done before the target has begun.
/// The target serves a bounded number of them, which the origin must not exceed.
#[test]
fn a_late_target_gets_no_more_transfers_than_it_serves() {
    const LEN: usize = 20_000;
    for kind in [OpKind::Put, OpKind::Get] {
        for seed in 0..20 {
            let mut memories = vec![Vec::new(), vec![7u8; 64 * LEN]];
            let (hub, mut w) = windows(&mut memories, seed);
            hub.lock().unwrap().copies = true;
            let mut own = vec![3u8; 64 * LEN];
            let mut flight = InFlight::default();
            for at in 0..64 {
                let place = Addr(own[at * LEN..].as_mut_ptr() as usize);
                let transfer =
                    Op { origin: place, result: place, ..op(kind, 1, (at * LEN) as u64, LEN) };
                let mut tries = 0;
                while !flight.try_post(&mut w[0], &transfer) {
                    tries += 1;
                    // The target polls only when nothing moves without it.
                    let late = if tries < 50 { 1 } else { 2 };
                    w[..late].iter_mut().for_each(|window| _ = window.poll());
                    flight.collect(&mut w[0]);
                    assert!(w.iter().all(|window| !window.is_broken()), "seed {seed}: {kind:?}");
                }
            }
            while flight.open > 0 {
                w.iter_mut().for_each(|window| _ = window.poll());
                flight.collect(&mut w[0]);
                assert!(w.iter().all(|window| !window.is_broken()), "seed {seed}: {kind:?}");
            }
            end(&hub, w);
            let expected = if kind == OpKind::Put { 3 } else { 7 };
            let all = own.iter().chain(&memories[1]);
            assert!(all.copied().all(|byte| byte == expected), "seed {seed}: {kind:?}");
        }
    }
}

#[test]
fn small_puts_share_packets() {
    let mut memories = vec![Vec::new(), vec![0u8; 4096]];
    let (hub, mut w) = windows(&mut memories, 1);
    let mut flight = InFlight::default();
    let value = 5u64;
    for at in 0..300 {
        let put = Op { origin: Addr(&raw const value as usize), ..op(OpKind::Put, 1, at, 8) };
        while !flight.try_post(&mut w[0], &put) {}
    }
    while flight.open > 0 {
        w.iter_mut().for_each(|window| _ = window.poll());
        flight.collect(&mut w[0]);
    }
    // Mainly one with the puts and one with the acknowledgement.
    assert!(hub.lock().unwrap().sent <= 4, "{} packets", hub.lock().unwrap().sent);
    end(&hub, w);
}

/// All processes get more from all others than a target may send at once.
#[test]
fn everybody_fetches_from_everybody() {
    for seed in 0..5 {
        let ranks = 4u32;
        let mut memories: Vec<Vec<u8>> = (0..ranks).map(|rank| vec![rank as u8; 300_000]).collect();
        let (hub, mut w) = windows(&mut memories, seed);
        let mut flights: Vec<InFlight> = (0..ranks).map(|_| InFlight::default()).collect();
        let mut results = vec![vec![9u8; 15_000 * 30]; (ranks * ranks) as usize];
        for round in 0..30usize {
            for me in 0..ranks as usize {
                for target in 0..ranks {
                    let result = &mut results[me * ranks as usize + target as usize]
                        [round * 15_000..][..15_000];
                    let get = Op {
                        result: Addr(result.as_mut_ptr() as usize),
                        ..op(OpKind::Get, target, round as u64, 15_000)
                    };
                    while !flights[me].try_post(&mut w[me], &get) {
                        for (window, flight) in w.iter_mut().zip(&mut flights) {
                            window.poll();
                            flight.collect(window);
                        }
                    }
                }
            }
        }
        while flights.iter().any(|flight| flight.open > 0) {
            for (window, flight) in w.iter_mut().zip(&mut flights) {
                window.poll();
                flight.collect(window);
            }
        }
        end(&hub, w);
        for (at, result) in results.iter().enumerate() {
            assert!(
                result.iter().all(|byte| usize::from(*byte) == at % ranks as usize),
                "seed {seed}, pair {at}"
            );
        }
    }
}

#[test]
fn a_window_serves_operations_without_a_poll_but_not_signals() {
    let mut memories = vec![Vec::new(), vec![0u8; 8]];
    let (hub, mut w) = windows(&mut memories, 1);
    (hub.lock().unwrap().delay, hub.lock().unwrap().busy) = (0, 0);
    let value = 7u64.to_ne_bytes();
    let mut flight = InFlight::default();
    let put = Op { origin: Addr(value.as_ptr() as usize), ..op(OpKind::Put, 1, 0, 8) };
    assert!(flight.try_post(&mut w[0], &put));
    assert!(w[0].only_sends(), "only the put is to be sent");
    w[1].poll_contexts();
    assert!(w[1].serve_packets(), "no epoch of the target depends on a put");
    w[0].poll_contexts();
    assert!(w[0].serve_packets(), "the acknowledgement is all that has arrived");
    assert!(!w[0].only_sends(), "the put's completion is to be reported");
    flight.collect(&mut w[0]);
    assert_eq!(flight.open, 0);
    assert!(w[0].only_sends(), "nothing is left");

    w[0].signal(1, Word::Done, 1).unwrap();
    w[1].poll_contexts();
    assert!(!w[1].serve_packets(), "an epoch may wait for the signal");
    assert_eq!(w[1].observe(0, Word::Done), 1);
    end(&hub, w);
    assert_eq!(memories[1], value);
}
