//! The engine on windows of active messages, with several processes in one thread.

use mpix_rma::engine::{self, *};

use crate::world::*;

struct Process {
    engine: engine::Window,
    port: Far,
}

impl Process {
    fn all(windows: Vec<Far>) -> Vec<Process> {
        let ranks = windows.len() as u32;
        (0..)
            .zip(windows)
            .map(|(me, port)| Process {
                engine: engine::Window::new(me, ranks, ReorderFlags::default()),
                port,
            })
            .collect()
    }
}

/// Polls all processes until the outcomes are complete.
fn finish(processes: &mut [Process], outcomes: &[(usize, Outcome)]) {
    for _ in 0..200_000 {
        let pending = outcomes.iter().any(|(at, outcome)| match outcome {
            Outcome::Complete => false,
            Outcome::Pending(id) => processes[*at].engine.is_pending(*id),
        });
        if !pending {
            return;
        }
        for process in processes.iter_mut() {
            process.engine.progress(&mut process.port);
            while process.engine.next_completed().is_some() {}
        }
    }
    let waits: Vec<String> =
        processes.iter().map(|process| process.engine.waits().to_string()).collect();
    panic!("it does not end: {waits:#?}");
}

fn put(from: &u64, target: Rank, disp: u64) -> Op {
    Op { origin: Addr(from as *const u64 as usize), ..op(OpKind::Put, target, disp, 8) }
}

fn word(memory: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(memory[8 * at..8 * at + 8].try_into().unwrap())
}

#[test]
fn post_start_complete_wait_in_a_ring() {
    for seed in 0..40 {
        let ranks = 3;
        let mut memories = vec![vec![0u8; 800]; ranks];
        let (hub, windows) = windows(&mut memories, seed);
        let mut p = Process::all(windows);
        let values: Vec<u64> = (0..100).map(|round| round + 1).collect();
        let mut outcomes = Vec::new();
        for round in 0..100 {
            for me in 0..ranks {
                let Process { engine, port } = &mut p[me];
                let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
                engine.post(port, &[before as Rank], Assert::default()).unwrap();
                engine.start(port, &[next as Rank], Assert::default()).unwrap();
                engine.issue(port, &put(&values[round], next as Rank, 8 * round as u64)).unwrap();
                outcomes.push((me, engine.complete(port).unwrap()));
                outcomes.push((me, engine.wait(port).unwrap()));
            }
        }
        finish(&mut p, &outcomes);
        end(&hub, p.into_iter().map(|process| process.port).collect());
        for memory in &memories {
            assert!((0..100).all(|at| word(memory, at) == at as u64 + 1), "seed {seed}");
        }
    }
}

#[test]
fn fences() {
    for seed in 0..40 {
        let ranks = 5;
        let mut memories = vec![vec![0u8; 8 * 20 * 5]; ranks];
        let (hub, windows) = windows(&mut memories, seed);
        let mut p = Process::all(windows);
        let values: Vec<u64> = (0..20).map(|round| round + 7).collect();
        let mut outcomes = Vec::new();
        for round in 0..20 {
            for me in 0..ranks {
                let Process { engine, port } = &mut p[me];
                outcomes.push((me, engine.fence(port, Assert::default()).unwrap()));
                for target in 0..ranks {
                    let op = put(&values[round], target as Rank, 8 * (round * ranks + me) as u64);
                    engine.issue(port, &op).unwrap();
                }
            }
        }
        for me in 0..ranks {
            let Process { engine, port } = &mut p[me];
            let assert = Assert { nosucceed: true, ..Assert::default() };
            outcomes.push((me, engine.fence(port, assert).unwrap()));
        }
        finish(&mut p, &outcomes);
        end(&hub, p.into_iter().map(|process| process.port).collect());
        for memory in &memories {
            assert!((0..100).all(|at| word(memory, at) == (at / 5) as u64 + 7), "seed {seed}");
        }
    }
}

/// [LK-1, LK-7] All processes read and write one counter under an exclusive lock.
#[test]
fn exclusive_locks_exclude() {
    for seed in 0..40 {
        let ranks = 4;
        let mut memories = vec![vec![0u8; 64]; ranks];
        let (hub, windows) = windows(&mut memories, seed);
        let mut p = Process::all(windows);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut left = vec![25u32; ranks];
        // Per process: the stage of its transaction, and the outcome that it waits for.
        let mut stage = vec![0u8; ranks];
        let mut outcome = vec![Outcome::Complete; ranks];
        let mut read = vec![0u64; ranks];
        let mut turns = 0;
        while left.iter().any(|left| *left > 0) {
            turns += 1;
            assert!(turns < 1_000_000, "seed {seed}: it does not end");
            let me = rng.usize(0..ranks);
            let Process { engine, port } = &mut p[me];
            engine.progress(port);
            while engine.next_completed().is_some() {}
            if left[me] == 0 || matches!(outcome[me], Outcome::Pending(id) if engine.is_pending(id))
            {
                continue;
            }
            let all = me == 3 && left[me].is_multiple_of(5);
            let get = Op { result: Addr(&raw mut read[me] as usize), ..op(OpKind::Get, 1, 8, 8) };
            match stage[me] {
                0 if all => {
                    engine.lock_all(port, Assert::default()).unwrap();
                    outcome[me] = engine.unlock_all(port).unwrap();
                    left[me] -= 1;
                    continue;
                }
                0 => {
                    engine.lock(port, LockMode::Exclusive, 1, Assert::default()).unwrap();
                    engine.issue(port, &get).unwrap();
                    outcome[me] = engine.flush(port, Some(1)).unwrap();
                }
                1 => {
                    read[me] += 1;
                    engine.issue(port, &put(&read[me], 1, 8)).unwrap();
                    outcome[me] = engine.unlock(port, 1).unwrap();
                }
                _ => {
                    left[me] -= 1;
                    stage[me] = 0;
                    continue;
                }
            }
            stage[me] += 1;
        }
        for _ in 0..10_000 {
            for process in &mut p {
                process.engine.progress(&mut process.port);
            }
        }
        assert!(p.iter().all(|process| process.engine.is_quiet()), "seed {seed}");
        end(&hub, p.into_iter().map(|process| process.port).collect());
        assert_eq!(
            word(&memories[1], 1),
            3 * 25 + 20,
            "seed {seed}: an exclusive lock did not exclude"
        );
    }
}
