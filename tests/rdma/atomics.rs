//! Accumulates of single elements by device atomics.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};
use mpix_rma::transport::rdma::NicAtomics;

use crate::carry::{NIC_ATOMICS, contexts};
use crate::hub::Hub;
use crate::world::*;

type Made = (Arc<Mutex<Hub>>, Vec<Far>);

fn singles(make: impl FnOnce() -> Made) -> Made {
    NIC_ATOMICS.set(NicAtomics::LockWordsAndAccumulates);
    let made = make();
    NIC_ATOMICS.set(NicAtomics::LockWords);
    made
}

fn posted(hub: &Arc<Mutex<Hub>>, rank: usize) -> u64 {
    contexts(hub)[rank].borrow().stats().posted
}

fn poll(w: &mut [Far]) {
    w.iter_mut().for_each(|window| _ = window.poll());
}

/// Executes an operation of rank `me` from start to end.
fn does(w: &mut [Far], me: usize, op: &Op) {
    let mut flight = InFlight::default();
    for turn in 0.. {
        assert!(turn < 100_000, "timeout");
        if flight.is_empty() {
            flight.try_post(&mut w[me], op);
        }
        flight.collect(&mut w[me]);
        if !flight.is_empty() && flight.open == 0 {
            return;
        }
        poll(w);
    }
}

fn at(value: &u64) -> Addr {
    Addr(std::ptr::from_ref(value) as usize)
}

fn reduce(
    kind: OpKind,
    target: Rank,
    disp: u64,
    element: Element,
    reduction: Reduction,
    operand: &u64,
    result: &mut u64,
) -> Op {
    let result = Addr(std::ptr::from_mut(result) as usize);
    Op { origin: at(operand), result, element, reduction, extent: 8, ..op(kind, target, disp, 8) }
}

fn swap(target: Rank, disp: u64, compare: &u64, operand: &u64, result: &mut u64) -> Op {
    let op =
        reduce(OpKind::CompareAndSwap, target, disp, native::U64, Reduction(0), operand, result);
    Op { compare: at(compare), ..op }
}

fn word(w: &[Far], rank: usize, disp: u64) -> u64 {
    unsafe { ((w[rank].base().0 + disp as usize) as *const u64).read() }
}

/// Each takes one request at the origin, and none at the target: its processor is not involved.
#[test]
fn at1_a_fetch_is_one_atomic() {
    let mut memories = vec![vec![0u8; 4096]; 2];
    let (hub, mut w) = singles(|| windows(&mut memories, 4));
    let (one, five, mut result) = (1u64, 5u64, 77u64);
    does(
        &mut w,
        0,
        &reduce(OpKind::GetAccumulate, 1, 8, native::U64, reduction::SUM, &one, &mut result),
    );
    for (kind, reduction, operand, old, new, requests) in [
        (OpKind::GetAccumulate, reduction::SUM, &five, 1, 6, 1),
        (OpKind::Accumulate, reduction::SUM, &five, 1, 11, 1),
        (OpKind::GetAccumulate, reduction::NO_OP, &five, 11, 11, 1),
        // A compare-and-swap loop expects 0 first.
        (OpKind::GetAccumulate, reduction::REPLACE, &one, 11, 1, 2),
        (OpKind::GetAccumulate, reduction::MAX, &five, 1, 5, 2),
    ] {
        let before = (posted(&hub, 0), posted(&hub, 1));
        result = 1;
        does(&mut w, 0, &reduce(kind, 1, 8, native::U64, reduction, operand, &mut result));
        assert_eq!(
            (posted(&hub, 0) - before.0, posted(&hub, 1) - before.1),
            (requests, 0),
            "{kind:?} {reduction:?}"
        );
        assert_eq!((result, word(&w, 1, 8)), (old, new), "{kind:?} {reduction:?}");
    }
    let before = (posted(&hub, 0), posted(&hub, 1));
    does(&mut w, 0, &swap(1, 8, &five, &one, &mut result));
    assert_eq!((result, word(&w, 1, 8)), (5, 1));
    does(&mut w, 0, &swap(1, 8, &five, &five, &mut result));
    assert_eq!((result, word(&w, 1, 8)), (1, 1));
    assert_eq!(
        (posted(&hub, 0) - before.0, posted(&hub, 1) - before.1),
        (2, 0),
        "compare_and_swap"
    );
    end(&hub, w);
}

/// What the device does not execute goes to the target's processor, by datatype and address alone.
#[test]
fn at1_other_elements_are_the_processors() {
    let mut memories = vec![vec![0u8; 4096]; 2];
    let (hub, mut w) = singles(|| windows(&mut memories, 4));
    let (one, mut result) = (1u64, 0u64);
    // Unaligned; 4 bytes; two elements.
    does(
        &mut w,
        0,
        &reduce(OpKind::GetAccumulate, 1, 12, native::U64, reduction::SUM, &one, &mut result),
    );
    let four = reduce(OpKind::GetAccumulate, 1, 32, native::U32, reduction::SUM, &one, &mut result);
    does(&mut w, 0, &Op { len: 4, extent: 4, ..four });
    let (two, mut results) = ([1u64, 2], [0u64; 2]);
    let more =
        reduce(OpKind::GetAccumulate, 1, 64, native::U64, reduction::SUM, &two[0], &mut results[0]);
    let answers = posted(&hub, 1);
    does(
        &mut w,
        0,
        &Op {
            origin: Addr(two.as_ptr() as usize),
            result: Addr(results.as_mut_ptr() as usize),
            len: 16,
            ..more
        },
    );
    assert!(posted(&hub, 1) > answers, "the target has answered");
    let there = unsafe { ((w[1].base().0 + 12) as *const u64).read_unaligned() };
    assert_eq!((there, word(&w, 1, 32), word(&w, 1, 64), word(&w, 1, 72)), (1, 1, 1, 2));
    end(&hub, w);
}

/// All processes, the target and its node included, accumulate into the same words: no update is
/// lost.
#[test]
fn lk7_accumulates_of_all_are_atomic() {
    for nodes in [vec![vec![0], vec![1], vec![2]], vec![vec![0, 1], vec![2]]] {
        for seed in 0..10 {
            let mut memories = vec![vec![0u8; 4096]; 3];
            let (hub, mut w) = singles(|| mixed(&nodes, &mut memories, Near::Allocated, seed));
            let mut rng = fastrand::Rng::with_seed(seed);
            // Allocated memory may hold data of an earlier window.
            unsafe { std::ptr::write_bytes(w[0].base().0 as *mut u8, 0, 32) };
            const ROUNDS: usize = 30;
            // Integers, floating point, maximum, bits.
            let kinds = [
                (native::U64, reduction::SUM, 0),
                (native::F64, reduction::SUM, 8),
                (native::I64, reduction::MAX, 16),
                (native::U64, reduction::BXOR, 24),
            ];
            let operand = |rank: usize, round: usize, which: usize| match which {
                1 => f64::from((rank * 100 + round) as u32).to_bits(),
                _ => (rank * 100 + round) as u64,
            };
            let plan: Vec<Vec<(usize, u64)>> = (0..3)
                .map(|rank| {
                    let which = |round| (rng.usize(0..4), round);
                    (0..ROUNDS)
                        .map(which)
                        .map(|(which, round)| (which, operand(rank, round, which)))
                        .collect()
                })
                .collect();
            let mut olds = vec![vec![0u64; ROUNDS]; 3];
            let mut flights: Vec<InFlight> = (0..3).map(|_| InFlight::default()).collect();
            let mut next = [0; 3];
            let before: Vec<u64> = (0..3).map(|rank| posted(&hub, rank)).collect();
            for turn in 0.. {
                assert!(turn < 200_000, "seed {seed}: timeout");
                for me in 0..3 {
                    if let Some((which, value)) = plan[me].get(next[me]) {
                        let (element, reduction, disp) = kinds[*which];
                        let kind = if next[me] % 3 == 0 {
                            OpKind::Accumulate
                        } else {
                            OpKind::GetAccumulate
                        };
                        let old = &mut olds[me][next[me]];
                        if flights[me].try_post(
                            &mut w[me],
                            &reduce(kind, 0, disp, element, reduction, value, old),
                        ) {
                            next[me] += 1;
                        }
                    }
                    flights[me].collect(&mut w[me]);
                    w[me].poll();
                }
                if next == [ROUNDS; 3] && flights.iter().all(|flight| flight.open == 0) {
                    break;
                }
            }
            let all = |which: usize| {
                plan.iter()
                    .flatten()
                    .filter(move |(kind, _)| *kind == which)
                    .map(|(_, value)| *value)
            };
            assert_eq!(word(&w, 0, 0), all(0).sum::<u64>(), "seed {seed}");
            assert_eq!(
                f64::from_bits(word(&w, 0, 8)),
                all(1).map(f64::from_bits).sum::<f64>(),
                "seed {seed}"
            );
            assert_eq!(word(&w, 0, 16), all(2).max().unwrap_or(0), "seed {seed}");
            assert_eq!(word(&w, 0, 24), all(3).fold(0, |bits, value| bits ^ value), "seed {seed}");
            // The sums that each process fetched rise [AT-2].
            for me in 0..3 {
                let mut last = 0;
                for round in (0..ROUNDS).filter(|round| plan[me][*round].0 == 0 && round % 3 != 0) {
                    assert!(olds[me][round] >= last, "seed {seed}");
                    last = olds[me][round] + plan[me][round].1;
                }
                assert!(
                    posted(&hub, me) - before[me] >= ROUNDS as u64,
                    "seed {seed}: rank {me} has not used the device"
                );
            }
            end(&hub, w);
        }
    }
}

/// A compare-and-swap loop ends when its connection fails during a retry.
#[test]
fn a_cas_loop_ends_with_its_connection() {
    if crate::carry::device().is_some() {
        return;
    }
    let mut memories = vec![vec![0u8; 4096]; 2];
    let (hub, mut w) = singles(|| windows(&mut memories, 4));
    let (one, ten, mut result) = (1u64, 10u64, 0u64);
    does(
        &mut w,
        0,
        &reduce(OpKind::Accumulate, 1, 8, native::U64, reduction::SUM, &one, &mut result),
    );
    let mut flight = InFlight::default();
    // It expects 0, and finds 1.
    let product = reduce(OpKind::Accumulate, 1, 8, native::U64, reduction::PROD, &ten, &mut result);
    assert!(flight.try_post(&mut w[0], &product));
    crate::carry::net(&hub).lock().unwrap().refuses = true;
    for turn in 0.. {
        assert!(turn < 100_000, "the failure is not reported");
        poll(&mut w);
        if w.iter().all(|window| window.is_broken()) {
            break;
        }
        crate::carry::net(&hub).lock().unwrap().refuses = w[0].lost().is_none();
    }
    // A later connection must not be held up by a leftover of the loop.
    let mut more = vec![vec![0u8; 4096]; 2];
    let mut later = singles(|| (Arc::clone(&hub), windows_over(&hub, &mut more))).1;
    does(
        &mut later,
        0,
        &reduce(OpKind::Accumulate, 1, 8, native::U64, reduction::PROD, &one, &mut result),
    );
    for turn in 0.. {
        assert!(turn < 100_000, "a leftover loop holds the signal up");
        if later[0].signal(1, Word::Done, 1).is_ok() {
            break;
        }
        poll(&mut later);
    }
    for turn in 0.. {
        assert!(turn < 100_000, "the signal does not arrive");
        poll(&mut later);
        if later[1].observe(0, Word::Done) == 1 {
            break;
        }
    }
    assert_eq!(word(&w, 1, 8), 1, "it was executed on the later connection");
}

/// Signals and notifications behind a compare-and-swap loop arrive after its end, however often it
/// retries: at a target on another node, on this node, and at the process itself.
#[test]
fn fe2_nothing_overtakes_a_cas_loop() {
    overtaking(windows, true);
    overtaking(
        |memories, seed| mixed(&[vec![0, 1], vec![2]], memories, Near::Allocated, seed),
        false,
    );
}

/// `far`: signals go through the device too. In shared memory the engine holds them back.
fn overtaking(make: impl Fn(&mut [Vec<u8>], u64) -> Made, far: bool) {
    for seed in 0..30 {
        let mut memories = vec![vec![0u8; 4096]; 3];
        let (hub, mut w) = singles(|| make(&mut memories, seed));
        // Allocated memory may hold data of an earlier window.
        unsafe { std::ptr::write_bytes(w[1].base().0 as *mut u8, 0, 32) };
        assert!(count(&mut w, &[1; 3], None));
        let (ten, one, mut result) = (10u64, 1u64, 99u64);
        let mut flights = [InFlight::default(), InFlight::default()];
        does(
            &mut w,
            0,
            &reduce(OpKind::Accumulate, 1, 8, native::U64, reduction::SUM, &one, &mut result),
        );
        does(
            &mut w,
            2,
            &reduce(OpKind::Accumulate, 1, 8, native::U64, reduction::SUM, &one, &mut result),
        );
        // Another process interferes.
        let others = reduce(OpKind::Accumulate, 1, 8, native::U64, reduction::SUM, &one, &mut 0);
        let product = reduce(OpKind::Accumulate, 1, 8, native::U64, reduction::PROD, &ten, &mut 0);
        let fetch =
            reduce(OpKind::GetAccumulate, 1, 8, native::U64, reduction::NO_OP, &one, &mut result);
        let (mut step, mut theirs) = (0, 0);
        for turn in 0.. {
            assert!(turn < 100_000, "seed {seed}: timeout");
            theirs += u64::from(theirs < 5 && flights[1].try_post(&mut w[2], &others));
            let gone = match step {
                0 => flights[0].try_post(&mut w[0], &product),
                // A fetch waits for the loop by itself.
                1 => !far && seed % 2 == 0 || flights[0].try_post(&mut w[0], &fetch),
                2 if far && seed % 2 == 0 => w[0].signal(1, Word::Done, 1).is_ok(),
                2 => flights[0].try_post(&mut w[0], &Op::notify(1, Notification::counter(0))),
                _ => false,
            };
            step += u32::from(gone);
            if gone && !far {
                // Without a poll, so that the notification comes as early as possible.
                continue;
            }
            poll(&mut w);
            if w[1].observe(0, Word::Done) == 1 || w[1].counter(0) == 1 {
                assert!(
                    word(&w, 1, 8) >= 20,
                    "seed {seed}: notified, but the value is {}",
                    word(&w, 1, 8)
                );
            }
            flights[0].collect(&mut w[0]);
            flights[1].collect(&mut w[2]);
            if step == 3 && theirs == 5 && flights.iter().all(|flight| flight.open == 0) {
                break;
            }
        }
        assert!(
            (result >= 20 && result != 99) || (!far && seed % 2 == 0),
            "seed {seed}: the fetch has found {result}"
        );
        end(&hub, w);
    }
}
