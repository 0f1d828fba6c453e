//! How many requests each call takes (docs/design/rdma.md), and windows that share connections.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};
use mpix_rma::transport::rdma::context::ContextStats;

use crate::carry::{COMPLETIONS, contexts, device, net, queues};
use crate::hub::Hub;
use crate::world::*;

pub fn stats_of(hub: &Arc<Mutex<Hub>>, rank: usize) -> ContextStats {
    contexts(hub)[rank].borrow().stats()
}

/// Requests that `what` takes at rank 0: posted, signalled, only for remote fences.
pub fn counted(hub: &Arc<Mutex<Hub>>, what: impl FnOnce()) -> (u64, u64, u64) {
    let before = stats_of(hub, 0);
    what();
    let after = stats_of(hub, 0);
    assert_eq!(after.retries, before.retries, "nobody was in the way");
    (
        after.posted - before.posted,
        after.signalled - before.signalled,
        after.remote_fences - before.remote_fences,
    )
}

pub fn poll(w: &mut [Far]) {
    w.iter_mut().for_each(|window| _ = window.poll());
}

pub fn drain(w: &mut [Far], flight: &mut InFlight) {
    for turn in 0.. {
        assert!(turn < 100_000, "operations do not complete");
        poll(w);
        flight.collect(&mut w[0]);
        if flight.open == 0 {
            break;
        }
    }
}

pub type Met = (Arc<Mutex<Hub>>, Vec<Far>, Vec<Vec<u8>>, InFlight);

/// Two connected processes.
pub fn met() -> Met {
    let mut memories = vec![vec![0u8; 1 << 20]; 2];
    let (hub, mut w) = windows(&mut memories, 1);
    assert!(count(&mut w, &[1, 1], None));
    let mut flight = InFlight::default();
    let value = 1u64;
    let first = Op { origin: Addr(&raw const value as usize), ..op(OpKind::Put, 1, 0, 8) };
    while !flight.try_post(&mut w[0], &first) {
        poll(&mut w);
    }
    drain(&mut w, &mut flight);
    (hub, w, memories, flight)
}

#[test]
fn a_put_is_one_request_and_its_flush_another() {
    let (hub, mut w, _memories, mut flight) = met();
    for len in [8usize, 64, 5000, 16 * 1024, 300_000] {
        let from = vec![3u8; len];
        let put = Op { origin: Addr(from.as_ptr() as usize), ..op(OpKind::Put, 1, 0, len) };
        // The in-memory device takes 64 KB at a time.
        let pieces =
            if crate::carry::device().is_none() { len.div_ceil(1 << 16) as u64 } else { 1 };
        let (posted, _, fences) = counted(&hub, || assert!(flight.try_post(&mut w[0], &put)));
        assert_eq!((posted, fences), (pieces, 0), "{len} bytes");
        let (posted, signalled, fences) = counted(&hub, || {
            w[0].flush_and_poll();
        });
        assert_eq!((posted, signalled, fences), (1, 1, 1), "{len} bytes: the flush");
        drain(&mut w, &mut flight);
    }
    end(&hub, w);
}

#[test]
fn many_puts_have_one_flush() {
    let (hub, mut w, _memories, mut flight) = met();
    let value = 9u64;
    let put =
        |at: u64| Op { origin: Addr(&raw const value as usize), ..op(OpKind::Put, 1, 8 * at, 8) };
    let (posted, signalled, _) =
        counted(&hub, || (0..7).for_each(|at| assert!(flight.try_post(&mut w[0], &put(at)))));
    assert_eq!((posted, signalled), (7, 0), "only the last of a chain is signalled");
    assert_eq!(counted(&hub, || _ = w[0].flush_and_poll()), (1, 1, 1));
    drain(&mut w, &mut flight);
    end(&hub, w);
}

/// Puts that are flushed one by one take their remote fences along, after a few: one doorbell.
#[test]
fn puts_that_are_flushed_alone_ring_once() {
    let (hub, mut w, _memories, mut flight) = met();
    let doorbells = |hub: &Arc<Mutex<Hub>>| stats_of(hub, 0).doorbells;
    let put = |value: &u64, at: u64| Op {
        origin: Addr(std::ptr::from_ref(value) as usize),
        ..op(OpKind::Put, 1, 8 * at, 8)
    };
    let put_and_flush = |w: &mut Vec<Far>, flight: &mut InFlight, value: u64| {
        let before = doorbells(&hub);
        let (posted, signalled, fences) = counted(&hub, || {
            assert!(flight.try_post(&mut w[0], &put(&value, 2)));
            w[0].flush_and_poll();
        });
        assert_eq!((posted, signalled, fences), (2, 1, 1), "put {value}");
        drain(w, flight);
        doorbells(&hub) - before
    };
    let first: Vec<u64> = (0..8).map(|value| put_and_flush(&mut w, &mut flight, value)).collect();
    assert_eq!(first[..3], [2; 3], "nothing is known yet");
    assert_eq!(first[6..], [1; 2], "{first:?}");
    let settled: Vec<u64> =
        (8..20).map(|value| put_and_flush(&mut w, &mut flight, value)).collect();
    assert_eq!(settled, [1; 12]);

    // A row of puts: only its first was taken for one that is flushed alone.
    let row = |w: &mut Vec<Far>, flight: &mut InFlight, values: &[u64; 7]| {
        let before = doorbells(&hub);
        let requests = counted(&hub, || {
            for (at, value) in values.iter().enumerate() {
                assert!(flight.try_post(&mut w[0], &put(value, 10 + at as u64)));
            }
            w[0].flush_and_poll();
        });
        drain(w, flight);
        (requests, doorbells(&hub) - before)
    };
    assert_eq!(row(&mut w, &mut flight, &[1, 2, 3, 4, 5, 6, 7]), ((9, 2, 2), 8));
    assert_eq!(row(&mut w, &mut flight, &[8, 7, 6, 5, 4, 3, 2]), ((8, 1, 1), 8));
    assert_eq!(put_and_flush(&mut w, &mut flight, 99), 2, "the row is remembered");
    end(&hub, w);
}

/// In a long row of puts, four share a doorbell. Whatever comes next rings for those that wait: a
/// flush, or a poll.
#[test]
fn a_long_row_of_puts_shares_doorbells() {
    const ALONE: u64 = 16;
    let (hub, mut w, memories, mut flight) = met();
    for (puts, by_poll) in [(16, false), (24, false), (27, false), (25, true), (27, true)] {
        let value_of = |at: u64| 1000 * puts + at;
        let arrived = |at: u64| memories[1][8 * at as usize..][..8] == value_of(at).to_ne_bytes();
        let before = stats_of(&hub, 0).doorbells;
        for at in 0..puts {
            // Gone when the put returns: the request has a copy.
            let value = value_of(at);
            let origin = Addr(&raw const value as usize);
            let put = Op { origin, ..op(OpKind::Put, 1, 8 * at, 8) };
            assert!(flight.try_post(&mut w[0], &put));
        }
        let rung = stats_of(&hub, 0).doorbells - before;
        assert_eq!(rung, puts.min(ALONE) + puts.saturating_sub(ALONE) / 4, "{puts} puts");
        for _ in 0..if by_poll { 100_000 } else { 0 } {
            if (0..puts).all(arrived) {
                break;
            }
            poll(&mut w);
        }
        assert!(!by_poll || (0..puts).all(arrived), "{puts} puts");
        w[0].flush_and_poll();
        drain(&mut w, &mut flight);
        assert!((0..puts).all(arrived), "{puts} puts");
    }
    end(&hub, w);
}

/// Nobody waits for these puts, so none takes a remote fence along.
#[test]
fn puts_that_nobody_waits_for_share_remote_fences() {
    let (hub, mut w, _memories, mut flight) = met();
    let value = 9u64;
    let put = Op { origin: Addr(&raw const value as usize), ..op(OpKind::Put, 1, 8, 8) };
    let (posted, _, fences) = counted(&hub, || {
        for _ in 0..200 {
            while !flight.try_post(&mut w[0], &put) {
                poll(&mut w);
            }
        }
    });
    assert!(posted - fences == 200 && fences < 50, "{posted} requests, {fences} fences");
    drain(&mut w, &mut flight);
    end(&hub, w);
}

#[test]
fn a_get_is_one_request() {
    let (hub, mut w, _memories, mut flight) = met();
    let mut result = vec![0u8; 4000];
    let get = Op { result: Addr(result.as_mut_ptr() as usize), ..op(OpKind::Get, 1, 0, 4000) };
    assert_eq!(counted(&hub, || assert!(flight.try_post(&mut w[0], &get))), (1, 1, 0));
    drain(&mut w, &mut flight);
    assert_eq!(result[..8], 1u64.to_ne_bytes());
    end(&hub, w);
}

#[test]
fn a_done_is_a_remote_fence_for_its_puts() {
    let (hub, mut w, _memories, mut flight) = met();
    let value = 9u64;
    let put = Op { origin: Addr(&raw const value as usize), ..op(OpKind::Put, 1, 8, 8) };
    let requests = counted(&hub, || {
        assert!(flight.try_post(&mut w[0], &put));
        w[0].signal(1, Word::Done, 1).unwrap();
        w[0].flush_and_poll();
    });
    assert_eq!(requests, (2, 1, 0), "one write and one signal");
    drain(&mut w, &mut flight);
    assert_eq!(w[1].observe(0, Word::Done), 1);
    end(&hub, w);
}

/// A device may place the bytes of later writes earlier.
#[test]
fn ma2_a_signal_word_only_rises() {
    const LAST: u64 = 200;
    let (hub, mut w, _memories, _) = met();
    for word in [Word::Grant, Word::Done, Word::Fence] {
        let (mut sent, mut seen) = (0, 0);
        for turn in 0.. {
            assert!(turn < 100_000, "{word:?} {seen} of {sent}");
            while sent < LAST && w[0].signal(1, word, sent + 1).is_ok() {
                sent += 1;
            }
            poll(&mut w);
            let now = w[1].observe(0, word);
            assert!(now >= seen && now <= sent, "{word:?}: {now} after {seen}");
            seen = now;
            if seen == LAST {
                break;
            }
        }
    }
    end(&hub, w);
}

/// Processes of which the first is connected to all others, with so many completion queue entries.
fn met_many(
    peers: usize,
    completions: u32,
    memories: &mut Vec<Vec<u8>>,
) -> (Arc<Mutex<Hub>>, Vec<Far>, InFlight) {
    *memories = vec![vec![0u8; 4096]; peers + 1];
    COMPLETIONS.set(completions);
    let (hub, mut w) = windows(memories, 3);
    COMPLETIONS.set(256);
    let mut flight = InFlight::default();
    let value = 7u64;
    for peer in 1..=peers as Rank {
        let put = Op { origin: Addr(&raw const value as usize), ..op(OpKind::Put, peer, 0, 8) };
        while !flight.try_post(&mut w[0], &put) {
            poll(&mut w);
        }
    }
    drain(&mut w, &mut flight);
    (hub, w, flight)
}

/// Each request has an entry in the completion queue, signalled or not: all need one if their queue
/// pair fails.
#[test]
fn requests_never_exceed_the_completion_queue() {
    if device().is_some() || queues().is_some() {
        return;
    }
    let mut memories = Vec::new();
    let (hub, mut w, mut flight) = met_many(12, 256, &mut memories);
    let before = flight.refusals;
    let value = 7u64;
    for peer in 1..=12 {
        for at in 0..27 {
            flight.try_post(
                &mut w[0],
                &Op { origin: Addr(&raw const value as usize), ..op(OpKind::Put, peer, 8 * at, 8) },
            );
        }
    }
    assert!(flight.refusals > before, "no request was refused");
    (1..=12).for_each(|peer| net(&hub).lock().unwrap().kill(peer));
    while !w[0].is_broken() {
        w[0].poll();
    }
}

/// Requests that nobody waits for give their entries back too.
#[test]
fn completion_queue_entries_are_reclaimed() {
    const PEERS: usize = 26;
    if device().is_some() || queues().is_some() {
        return;
    }
    let mut memories = Vec::new();
    let (hub, mut w, _) = met_many(PEERS, 64, &mut memories);
    for word in [Word::Grant, Word::Fence] {
        for peer in 1..=PEERS {
            for turn in 0.. {
                assert!(turn < 100_000, "there is no room for a signal to {peer}");
                if w[0].signal(peer as Rank, word, 1).is_ok() {
                    break;
                }
                poll(&mut w);
            }
        }
    }
    end(&hub, w);
}

#[test]
fn lk4_an_uncontended_exclusive_lock_is_two_atomics() {
    let (hub, mut ports, _memories, _) = met();
    let mut engine = Window::new(0, 2, ReorderFlags::default());
    let mut cycle = |ports: &mut Vec<Far>, counted_lock: bool| {
        let before = stats_of(&hub, 0);
        engine.lock(&mut ports[0], LockMode::Exclusive, 1, Assert::default()).unwrap();
        for turn in 0.. {
            assert!(turn < 100_000, "the lock is not granted");
            engine.progress(&mut ports[0]);
            ports[1].poll();
            if !engine.awaits_open_lock() {
                break;
            }
        }
        let held = stats_of(&hub, 0);
        let Outcome::Pending(request) = engine.unlock(&mut ports[0], 1).unwrap() else { return };
        while engine.is_pending(request) {
            engine.progress(&mut ports[0]);
            ports[1].poll();
        }
        // The release ends after the request.
        for _ in 0..50 {
            engine.progress(&mut ports[0]);
        }
        if counted_lock {
            assert_eq!(held.posted - before.posted, 2, "the licence, and the target's word");
            assert_eq!(held.retries, before.retries);
        }
    };
    // The first ones get the licence.
    for _ in 0..4 {
        cycle(&mut ports, false);
    }
    for _ in 0..4 {
        cycle(&mut ports, true);
    }
    end(&hub, ports);
}

/// A second window uses the same connections. Packets may arrive before the sender's handshake.
#[test]
fn windows_share_connections() {
    for seed in 0..40 {
        let mut memories = vec![vec![0u8; 4096]; 2];
        let (hub, mut w) = windows(&mut memories, seed);
        let mut flights = [InFlight::default(), InFlight::default()];
        let mut more = vec![vec![0u8; 4096]; 2];
        for round in 0..2u64 {
            if round == 1 {
                let second = windows_over(&hub, &mut more);
                // The first window is still there.
                let first = std::mem::replace(&mut w, second);
                end(&hub, first);
            }
            let values = [round + 10, round + 20];
            let mut posted = [false; 2];
            for turn in 0.. {
                assert!(turn < 100_000, "seed {seed}: timeout");
                for me in 0..2 {
                    let from = Addr(&raw const values[me] as usize);
                    let kind = if seed % 2 == 0 { OpKind::Put } else { OpKind::Accumulate };
                    let put = Op {
                        origin: from,
                        extent: 8,
                        element: native::U64,
                        reduction: reduction::REPLACE,
                        ..op(kind, 1 - me as Rank, 8, 8)
                    };
                    posted[me] = posted[me] || flights[me].try_post(&mut w[me], &put);
                    flights[me].collect(&mut w[me]);
                }
                poll(&mut w);
                if posted == [true; 2] && flights.iter().all(|flight| flight.open == 0) {
                    break;
                }
            }
            for me in 0..2 {
                let there = unsafe { ((w[me].base().0 + 8) as *const u64).read() };
                assert_eq!(there, values[1 - me], "seed {seed}");
            }
        }
        end(&hub, w);
    }
}

/// The flush reads of one window are the remote fences of all puts on the connection [FL-2].
#[test]
fn a_flush_of_many_windows_is_one_read() {
    const WINDOWS: usize = 10;
    let (hub, first, _memories, _) = met();
    let mut more = vec![vec![vec![0u8; 4096]; 2]; WINDOWS - 1];
    let mut all = vec![first];
    all.extend(more.iter_mut().map(|memories| windows_over(&hub, memories)));
    let mut flights: Vec<_> = all.iter().map(|_| InFlight::default()).collect();
    let mut values = [0u64; WINDOWS];
    for round in 1..4u64 {
        values = values.map(|_| round);
        for (at, (w, flight)) in all.iter_mut().zip(&mut flights).enumerate() {
            let from = Addr(&raw const values[at] as usize);
            let put = Op { origin: from, ..op(OpKind::Put, 1, 8 * at as u64, 8) };
            // The first round connects the windows.
            while !flight.try_post(&mut w[0], &put) {
                assert_eq!(round, 1, "the windows are connected");
                poll(w);
            }
        }
        let requests = counted(&hub, || all.iter_mut().for_each(|w| _ = w[0].flush_and_poll()));
        if round > 1 {
            assert_eq!(requests, (1, 1, 1), "round {round}");
        }
        for (at, (w, flight)) in all.iter_mut().zip(&mut flights).enumerate() {
            drain(w, flight);
            let there = unsafe { ((w[1].base().0 + 8 * at) as *const u64).read() };
            assert_eq!(there, round, "window {at}");
        }
    }
    for w in all {
        end(&hub, w);
    }
}

/// Where the fence flag does not work, requests that must not overtake a read wait for its
/// completion.
#[test]
fn fe2_requests_wait_for_reads_where_fences_do_not_work() {
    if crate::carry::device().is_some() {
        return;
    }
    crate::carry::FENCES.set(false);
    let (hub, mut w, _memories, mut flight) = met();
    let (mut result, three) = (vec![0u8; 4000], 3u64);
    let get = Op { result: Addr(result.as_mut_ptr() as usize), ..op(OpKind::Get, 1, 0, 4000) };
    let add = Op {
        extent: 8,
        element: native::U64,
        reduction: mpix_rma::transport::datatype::element::reduction::SUM,
        origin: Addr(&raw const three as usize),
        ..op(OpKind::Accumulate, 1, 4096, 8)
    };
    for round in 1..20 {
        assert!(flight.try_post(&mut w[0], &get));
        assert_eq!(w[0].signal(1, Word::Done, round), Err(NoResource), "the read is under way");
        for next in [&add, &get] {
            while !flight.try_post(&mut w[0], next) {
                poll(&mut w);
            }
        }
        drain(&mut w, &mut flight);
        assert!((0..1000).any(|_| w[0].signal(1, Word::Done, round).is_ok()));
        w[0].flush_and_poll();
        for turn in 0.. {
            assert!(turn < 100_000, "the signal does not arrive");
            poll(&mut w);
            if w[1].observe(0, Word::Done) == round {
                break;
            }
        }
        assert_eq!(unsafe { ((w[1].base().0 + 4096) as *const u64).read() }, 3 * round);
    }
    end(&hub, w);
}
