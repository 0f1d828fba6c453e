//! Fewer queue pairs than peers: connections are closed for others, and nothing is lost.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::native::U64;
use mpix_rma::transport::datatype::element::reduction::SUM;

use crate::carry::{contexts, device, net};
use crate::hub::Hub;
use crate::world::*;

const RANKS: usize = 6;
const ROUNDS: u64 = 40;

fn limited(most: u32, seed: u64) -> (Arc<Mutex<Hub>>, Vec<Far>, Vec<Vec<u8>>) {
    let mut memories = vec![vec![0u8; 4096]; RANKS];
    let (hub, w) = windows(&mut memories, seed);
    contexts(&hub).iter().for_each(|context| context.borrow().set_max_qps(most));
    (hub, w, memories)
}

/// The most queue pairs that any process has now, and how many all have destroyed so far.
fn queues(hub: &Arc<Mutex<Hub>>) -> (u32, u64) {
    let contexts = contexts(hub);
    let held = contexts.iter().map(|context| context.borrow().qps_in_use()).max().unwrap();
    (held, contexts.iter().map(|context| context.borrow().stats().qps_destroyed).sum())
}

/// What each process has still to do, as (target, round, step); the next one is last.
type Todo = Vec<Vec<(usize, u64, u8)>>;

fn plan(seed: u64) -> Todo {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut of_one = |me: usize| {
        let mut list: Vec<_> = (0..ROUNDS)
            .map(|round| (rng.usize(0..RANKS), round))
            .filter(|(to, _)| *to != me)
            .collect();
        list.reverse();
        list.into_iter()
            .flat_map(|(to, round)| [(to, round, 2), (to, round, 1), (to, round, 0)])
            .collect()
    };
    (0..RANKS).map(&mut of_one).collect()
}

fn value(me: usize, round: u64) -> u64 {
    1000 * (me as u64 + 1) + round
}

/// The last round in which `me` works on `to`.
fn last_round(planned: &Todo, me: usize, to: usize) -> Option<u64> {
    planned[me].iter().filter(|(other, ..)| *other == to).map(|(_, round, _)| *round).max()
}

/// How often processes go on to another peer, for which both sides need a queue pair.
fn changes(planned: &Todo) -> u64 {
    planned
        .iter()
        .map(|list| list.windows(2).filter(|two| two[0].0 != two[1].0).count() as u64)
        .sum()
}

/// All signals have arrived.
fn all_told(w: &mut [Far], planned: &Todo) -> bool {
    let mut told = |me: usize, to: usize| {
        w[to].observe(me as Rank, Word::Done)
            == last_round(planned, me, to).map_or(0, |round| round + 1)
    };
    (0..RANKS).all(|to| (0..RANKS).all(|me| me == to || told(me, to)))
}

/// Each process puts a number of its own at each other process, adds to a sum there by a message,
/// and signals, one target after the other. Returns the number of unacknowledged disconnects.
fn take_turns(most: u32, seed: u64, ack_within: u32) -> u32 {
    let (hub, mut w, _memories) = limited(most, seed);
    net(&hub).lock().unwrap().ack_within = ack_within;
    let planned = plan(seed);
    let mut todo = planned.clone();
    let mut flights: Vec<InFlight> = (0..RANKS).map(|_| InFlight::default()).collect();
    let values: Vec<Vec<u64>> =
        (0..RANKS).map(|me| (0..ROUNDS).map(|round| value(me, round)).collect()).collect();
    let one = 1u64;
    let mut most_held = 0;
    for turn in 0.. {
        let left = || todo.iter().map(Vec::len).collect::<Vec<_>>();
        assert!(turn < 300_000, "limit {most}, seed {seed}: timeout: {:?}", left());
        for me in 0..RANKS {
            if let Some((to, round, step)) = todo[me].last().copied() {
                let target = to as Rank;
                let gone = match step {
                    0 => {
                        let origin = Addr(&raw const values[me][round as usize] as usize);
                        flights[me].try_post(
                            &mut w[me],
                            &Op { origin, ..op(OpKind::Put, target, 8 * me as u64, 8) },
                        )
                    }
                    1 => {
                        let add = op(OpKind::Accumulate, target, 8 * RANKS as u64, 8);
                        let origin = Addr(&raw const one as usize);
                        let add = Op { origin, extent: 8, element: U64, reduction: SUM, ..add };
                        flights[me].try_post(&mut w[me], &add)
                    }
                    _ => w[me].signal(target, Word::Done, round + 1).is_ok(),
                };
                if gone {
                    todo[me].pop();
                }
            }
            flights[me].collect(&mut w[me]);
            w[me].poll();
        }
        most_held = most_held.max(queues(&hub).0);
        if todo.iter().all(Vec::is_empty)
            && flights.iter().all(|flight| flight.open == 0)
            && all_told(&mut w, &planned)
        {
            break;
        }
    }
    for to in 0..RANKS {
        let base = w[to].base().0 as *const u64;
        let mut sum = 0;
        for me in (0..RANKS).filter(|me| *me != to) {
            let there = unsafe { base.add(me).read() };
            let last = last_round(&planned, me, to).map_or(0, |round| value(me, round));
            assert_eq!(there, last, "limit {most}, seed {seed}: from {me} at {to}");
            assert_eq!(
                w[to].observe(me as Rank, Word::Done),
                last_round(&planned, me, to).map_or(0, |round| round + 1)
            );
            sum += planned[me].iter().filter(|(other, ..)| *other == to).count() as u64 / 3;
        }
        assert_eq!(
            unsafe { base.add(RANKS).read() },
            sum,
            "limit {most}, seed {seed}: the sum at {to}"
        );
    }
    let (_, left) = queues(&hub);
    assert!(left > 0, "limit {most}, seed {seed}: no queue pair was destroyed");
    let wanted = 2 * changes(&planned);
    assert!(
        left <= 2 * wanted,
        "limit {most}, seed {seed}: {left} were destroyed, but {wanted} would do"
    );
    assert!(most_held <= most, "{most_held} queues, not {most}");
    let unacknowledged = net(&hub).lock().unwrap().unacknowledged;
    end(&hub, w);
    unacknowledged
}

/// An unacknowledged disconnect is retried for seconds, so the receiver must live long enough.
#[test]
fn more_peers_than_queue_pairs() {
    for most in [1, 2, 3] {
        for seed in 0..12 {
            assert_eq!(
                take_turns(most, seed, 8),
                0,
                "limit {most}, seed {seed}: unacknowledged disconnects"
            );
        }
    }
}

/// If the receiver is gone before it acknowledges, nothing is lost.
#[test]
fn unacknowledged_disconnects_lose_nothing() {
    let unacknowledged: u32 = [1, 2].into_iter().map(|most| take_turns(most, 7, 2000)).sum();
    assert!(unacknowledged > 0 || device().is_some(), "each was answered");
}

/// All processes lock one target in turns, and add to a word there.
#[test]
fn locks_with_few_queue_pairs() {
    for most in [1, 2] {
        let (hub, mut w, _memories) = limited(most, 5);
        let mut engines: Vec<Window> = (0..RANKS as Rank)
            .map(|me| Window::new(me, RANKS as u32, ReorderFlags::default()))
            .collect();
        let rounds = 4;
        let mut held: Vec<(u32, Option<RequestId>)> = vec![(0, None); RANKS];
        let one = 1u64;
        let again = |engine: &mut Window, port: &mut Far, done: u32| {
            if done < rounds {
                engine.lock(port, LockMode::Exclusive, 0, Assert::default()).unwrap();
            }
        };
        (0..RANKS).for_each(|me| again(&mut engines[me], &mut w[me], 0));
        for turn in 0.. {
            assert!(turn < 300_000, "limit {most}: timeout: {held:?}");
            for me in 0..RANKS {
                engines[me].progress(&mut w[me]);
                let (done, closing) = &mut held[me];
                match closing {
                    Some(request) if engines[me].is_pending(*request) => {}
                    Some(_) => {
                        *closing = None;
                        *done += 1;
                        again(&mut engines[me], &mut w[me], *done);
                    }
                    None if *done < rounds && !engines[me].awaits_open_lock() => {
                        let add = op(OpKind::Accumulate, 0, 0, 8);
                        let origin = Addr(&raw const one as usize);
                        engines[me]
                            .issue(
                                &mut w[me],
                                &Op { origin, extent: 8, element: U64, reduction: SUM, ..add },
                            )
                            .unwrap();
                        match engines[me].unlock(&mut w[me], 0).unwrap() {
                            Outcome::Pending(request) => *closing = Some(request),
                            Outcome::Complete => {
                                *done += 1;
                                again(&mut engines[me], &mut w[me], *done);
                            }
                        }
                    }
                    None => {}
                }
            }
            if held.iter().all(|(done, _)| *done >= rounds) {
                break;
            }
        }
        assert_eq!(
            unsafe { (w[0].base().0 as *const u64).read() },
            u64::from(rounds) * RANKS as u64,
            "limit {most}"
        );
        let unacknowledged = net(&hub).lock().unwrap().unacknowledged;
        assert_eq!(unacknowledged, 0, "limit {most}: unacknowledged disconnects");
        end(&hub, w);
    }
}
