//! Whole legal programs in blocking, nonblocking and mixed form [EP-7, EP-10, EP-11].

use mpix_rma::engine::*;

use crate::program::How::{Blocking, Nonblocking};
use crate::program::{How, Step, run};
use crate::world::*;

const NONE: Assert = Assert { nocheck: false, noprecede: false, nosucceed: false };
const MODES: [Mode; 3] = [Mode::Immediate, Mode::LocalThenRemote, Mode::Pending];

/// `post; start; put; complete; wait` in every process at once.
fn symmetric(me: Rank, ranks: u32, round: u64, how: [How; 2]) -> Vec<Step> {
    let others: Vec<Rank> = (0..ranks).filter(|r| *r != me).collect();
    let mut steps = vec![Step::Post(others.clone()), Step::Start(others.clone())];
    steps.extend(others.iter().map(|&target| Step::Put {
        target,
        disp: 8 * me as usize,
        value: round,
    }));
    steps.extend([Step::Complete(how[0]), Step::Wait(how[1])]);
    steps
}

fn check_symmetric(w: &World, round: u64) {
    for target in 0..w.size() {
        for origin in (0..w.size()).filter(|o| *o != target) {
            assert_eq!(w.cell(target, 8 * origin as usize), round);
        }
    }
}

fn run_symmetric(
    ranks: u32,
    rounds: u64,
    how: impl Fn(Rank) -> [How; 2],
    behind_fence: bool,
    mode: Mode,
) {
    let steps: Vec<Vec<Step>> = (0..ranks)
        .map(|me| {
            let mut steps = Vec::new();
            for round in 1..=rounds {
                if behind_fence {
                    steps.push(Step::Fence(NONE, Nonblocking));
                }
                steps.extend(symmetric(me, ranks, round, how(me)));
            }
            steps
        })
        .collect();
    let mut w = World::with_mode(ranks, mode);
    run(&mut w, &steps);
    check_symmetric(&w, rounds);
}

#[test]
fn the_symmetric_program_ends_in_blocking_form() {
    for ranks in 2..=16 {
        for mode in MODES {
            run_symmetric(ranks, 3, |_| [Blocking; 2], false, mode);
        }
    }
}

#[test]
fn the_symmetric_program_ends_in_nonblocking_form() {
    for ranks in 2..=16 {
        for mode in MODES {
            run_symmetric(ranks, 3, |_| [Nonblocking; 2], false, mode);
        }
    }
}

#[test]
fn the_symmetric_program_ends_behind_a_pending_fence() {
    for ranks in 2..=16 {
        for how in [
            [Blocking, Blocking],
            [Nonblocking, Nonblocking],
            [Nonblocking, Blocking],
            [Blocking, Nonblocking],
        ] {
            run_symmetric(ranks, 3, |_| how, true, Mode::Pending);
        }
    }
}

#[test]
fn the_symmetric_program_ends_with_different_calls_in_each_process() {
    for ranks in 2..=8 {
        for mixture in 0..16u32 {
            let how = |bit: u32| if mixture >> (bit % 4) & 1 == 1 { Blocking } else { Nonblocking };
            for behind_fence in [false, true] {
                run_symmetric(ranks, 4, |me| [how(me), how(me + 1)], behind_fence, Mode::Pending);
            }
        }
    }
}

/// Ten thousand rounds pending at once, then one after the other.
#[test]
fn the_symmetric_program_ends_ten_thousand_times() {
    run_symmetric(2, 10_000, |_| [Nonblocking; 2], false, Mode::Immediate);
    run_symmetric(3, 10_000, |_| [Blocking; 2], false, Mode::Immediate);
}

/// `fence; put; fence; lock; put; unlock; post; wait`, with the partner's `start; put; complete`
/// [EP-11].
#[test]
fn a_fence_may_be_followed_by_any_epoch() {
    for how in [Blocking, Nonblocking] {
        for mode in MODES {
            let ranks = 4;
            let steps: Vec<Vec<Step>> = (0..ranks)
                .map(|me| {
                    let (next, partner) = ((me + 1) % ranks, me ^ 1);
                    let mut steps = vec![
                        Step::Fence(NONE, how),
                        Step::Put { target: next, disp: 0, value: 10 },
                        Step::Fence(NONE, how),
                        Step::Lock(LockMode::Exclusive, next, Nonblocking),
                        Step::Put { target: next, disp: 8, value: 11 },
                        Step::Unlock(next, how),
                    ];
                    if me % 2 == 0 {
                        steps.extend([Step::Post(vec![partner]), Step::Wait(how)]);
                    } else {
                        steps.extend([
                            Step::Start(vec![partner]),
                            Step::Put { target: partner, disp: 16, value: 12 },
                        ]);
                        steps.push(Step::Complete(how));
                    }
                    steps
                })
                .collect();
            let mut w = World::with_mode(ranks, mode);
            run(&mut w, &steps);
            for me in 0..ranks {
                assert_eq!([w.cell(me, 0), w.cell(me, 8)], [10, 11]);
                assert_eq!(w.cell(me, 16), if me % 2 == 0 { 12 } else { 0 });
            }
        }
    }
}

/// An exposure stays open while its process is an origin, by starts and by locks [EP-7].
#[test]
fn an_exposure_overlaps_other_epochs_of_its_process() {
    for how in [Blocking, Nonblocking] {
        let steps = vec![
            vec![
                Step::Post(vec![1]),
                Step::Lock(LockMode::Exclusive, 2, how),
                Step::Put { target: 2, disp: 0, value: 1 },
                Step::Unlock(2, how),
                Step::Start(vec![2]),
                Step::Put { target: 2, disp: 8, value: 2 },
                Step::Complete(how),
                Step::Wait(how),
            ],
            vec![
                // Process 1 starts here only after process 2 was accessed, and delays no other
                // process.
                Step::Start(vec![2]),
                Step::Put { target: 2, disp: 16, value: 3 },
                Step::Complete(Blocking),
                Step::Start(vec![0]),
                Step::Put { target: 0, disp: 0, value: 4 },
                Step::Complete(how),
            ],
            vec![Step::Post(vec![0]), Step::Wait(Blocking), Step::Post(vec![1]), Step::Wait(how)],
        ];
        let mut w = World::new(3);
        run(&mut w, &steps);
        assert_eq!([w.cell(2, 0), w.cell(2, 8), w.cell(2, 16), w.cell(0, 0)], [1, 2, 3, 4]);
    }
}

/// Several locks at once, taken in a common order, opened and closed in every nesting. In
/// nonblocking form each process here enters all queues before another process runs. In general,
/// locks that are granted independently [EP-7] need a blocking lock or a flush between them before
/// a process may wait while it holds them.
#[test]
fn locks_of_several_targets_nest_and_cross() {
    for how in [Blocking, Nonblocking] {
        for close in [[1, 2, 3], [3, 2, 1], [2, 1, 3], [2, 3, 1]] {
            let steps: Vec<Vec<Step>> = (0..4u32)
                .map(|me| {
                    let mut steps = Vec::new();
                    for _ in 0..5 {
                        steps.extend(
                            [1, 2, 3].map(|target| Step::Lock(LockMode::Exclusive, target, how)),
                        );
                        for target in 1..4 {
                            steps.push(Step::Read { target, disp: 0 });
                            steps.push(Step::Flush(Some(target), Blocking));
                            steps.push(Step::WriteBackPlusOne { target, disp: 0 });
                            steps.push(Step::Add { target, disp: 8, value: u64::from(me) });
                        }
                        steps.extend(close.map(|target| Step::Unlock(target, how)));
                    }
                    steps
                })
                .collect();
            let mut w = World::new(4);
            run(&mut w, &steps);
            for target in 1..4 {
                assert_eq!(
                    [w.cell(target, 0), w.cell(target, 8)],
                    [20, 30],
                    "{how:?}, closed in order {close:?}"
                );
            }
        }
    }
}

/// Exclusive locks, shared locks and lock_alls of many processes at once all end, and count
/// correctly.
#[test]
fn locks_of_all_kinds_contend() {
    for ranks in [2, 3, 5, 8] {
        for how in [Blocking, Nonblocking] {
            let steps: Vec<Vec<Step>> = (0..ranks)
                .map(|me| {
                    let mut steps = Vec::new();
                    for round in 0..12u32 {
                        match (me + round) % 4 {
                            0 => steps.extend([
                                Step::LockAll(how),
                                Step::Add { target: round % ranks, disp: 0, value: 1 },
                                Step::UnlockAll(how),
                            ]),
                            1 => steps.extend([
                                Step::Lock(LockMode::Shared, 0, how),
                                Step::FetchAdd { target: 0, disp: 0, value: 1 },
                                Step::Unlock(0, how),
                            ]),
                            _ => {
                                let target = (me * round) % ranks;
                                steps.extend([
                                    Step::Lock(LockMode::Exclusive, target, how),
                                    Step::Read { target, disp: 8 },
                                    Step::Flush(Some(target), Blocking),
                                    Step::WriteBackPlusOne { target, disp: 8 },
                                    Step::Unlock(target, how),
                                ]);
                            }
                        }
                    }
                    steps
                })
                .collect();
            let count =
                |f: fn(&Step) -> bool| steps.iter().flatten().filter(|s| f(s)).count() as u64;
            let adds = count(|s| matches!(s, Step::Add { .. } | Step::FetchAdd { .. }));
            let increments = count(|s| matches!(s, Step::WriteBackPlusOne { .. }));
            let mut w = World::new(ranks);
            run(&mut w, &steps);
            let sum = |disp| (0..ranks).map(|r| w.cell(r, disp)).sum::<u64>();
            assert_eq!((sum(0), sum(8)), (adds, increments));
        }
    }
}
