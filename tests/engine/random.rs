//! Small random programs, run in random order over a network with injected faults, and checked
//! against a reference.
//!
//! A program is a list of transactions (fences, accesses, locks of every kind). Each process
//! performs its part of each transaction in that order. So a program in blocking form under the
//! strongest synchronization ends, and every mix of blocking and nonblocking calls must end too
//! [EP-10]. Every cell has one writer, is only added to, or is written under an exclusive lock, so
//! the final memory is known. Most programs run with the reorder flags off [EP-10].
//!
//! To replay one program: `MPIX_WORLD_SEED=<seed> cargo test --test engine random -- --nocapture`.
//! To run more of them: `MPIX_WORLD_PROGRAMS=<number>`.

use mpix_rma::engine::*;

use crate::program::{How, Run, Step};
use crate::world::*;

/// Number of programs by default, starting with seed 1.
const PROGRAMS: u64 = 5000;

/// Cells, as displacements in each window.
const CONSTANTS: usize = 0;
const COUNTERS: usize = 64;
const INCREMENTS: usize = 128;
/// One cell per origin, written by each of its epochs. The last value remains.
const LAST: usize = 192;
/// From here on each put has a cell of its own.
const OWN: usize = 256;

const SHARED_CELLS: usize = 4;
const WINDOW: usize = 4096;

struct Generator {
    rng: fastrand::Rng,
    ranks: u32,
    steps: Vec<Vec<Step>>,
    /// Expected memory at the end.
    expected: Vec<Vec<u64>>,
    own_cells: Vec<usize>,
    values: u64,
    /// Exposures whose wait is still to be generated.
    open_exposures: Vec<bool>,
    /// Share of blocking calls, in eighths.
    blocking: u8,
    /// Off in most programs.
    flags: ReorderFlags,
}

fn constant(rank: Rank, cell: usize) -> u64 {
    1_000_000 * (u64::from(rank) + 1) + cell as u64
}

impl Generator {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let ranks = rng.u32(2..=5);
        let mut expected = vec![vec![0; WINDOW / 8]; ranks as usize];
        for (rank, cells) in expected.iter_mut().enumerate() {
            (0..SHARED_CELLS)
                .for_each(|cell| cells[CONSTANTS / 8 + cell] = constant(rank as Rank, cell));
        }
        let blocking = [0, 2, 4, 8][rng.usize(0..4)];
        let reorder = rng.u8(0..4) == 0;
        let flags = ReorderFlags {
            access_after_access: reorder && rng.bool(),
            access_after_exposure: reorder && rng.bool(),
            exposure_after_exposure: reorder && rng.bool(),
            exposure_after_access: reorder && rng.bool(),
        };
        Generator {
            rng,
            ranks,
            steps: vec![Vec::new(); ranks as usize],
            expected,
            own_cells: vec![OWN; ranks as usize],
            values: 0,
            open_exposures: vec![false; ranks as usize],
            blocking,
            flags,
        }
    }

    fn how(&mut self) -> How {
        if self.rng.u8(0..8) < self.blocking { How::Blocking } else { How::Nonblocking }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    fn any_rank(&mut self) -> Rank {
        self.rng.u32(0..self.ranks)
    }

    fn any_mode(&mut self) -> LockMode {
        if self.rng.bool() { LockMode::Shared } else { LockMode::Exclusive }
    }

    /// At least one process, in random order.
    fn any_group(&mut self) -> Vec<Rank> {
        let mut all: Vec<Rank> = (0..self.ranks).collect();
        self.rng.shuffle(&mut all);
        all.truncate(self.rng.usize(1..=self.ranks as usize));
        all
    }

    fn push(&mut self, me: Rank, step: Step) {
        self.steps[me as usize].push(step);
    }

    /// Generates the wait of an open exposure, before a call that it must not overlap.
    fn end_exposure(&mut self, me: Rank) {
        if std::mem::take(&mut self.open_exposures[me as usize]) {
            let wait = if self.one_in(4) { Step::TestLoop } else { Step::Wait(self.how()) };
            self.push(me, wait);
        }
    }

    fn maybe_end_exposure(&mut self, me: Rank) {
        if self.one_in(2) {
            self.end_exposure(me);
        }
    }

    /// Some operations of `me` to `target`; `flushes` in a passive-target epoch.
    fn operations(&mut self, me: Rank, target: Rank, flushes: bool) {
        // Under a reorder flag epochs may take effect in another order, so their cells must be
        // disjoint.
        if self.flags == ReorderFlags::default() && self.one_in(2) {
            self.values += 1;
            let (disp, value) = (LAST + 8 * me as usize, self.values);
            self.expected[target as usize][disp / 8] = value;
            self.push(me, Step::Put { target, disp, value });
        }
        for _ in 0..self.rng.u32(0..4) {
            let cell = self.rng.usize(0..SHARED_CELLS);
            let disp = COUNTERS + 8 * cell;
            let value = self.rng.u64(1..100);
            match self.rng.u8(0..10) {
                0..=3 if self.own_cells[target as usize] < WINDOW => {
                    let disp = self.own_cells[target as usize];
                    self.own_cells[target as usize] += 8;
                    self.expected[target as usize][disp / 8] = value;
                    let put = if self.one_in(4) {
                        Step::RequestPut { target, disp, value }
                    } else {
                        Step::Put { target, disp, value }
                    };
                    // R-forms are for passive-target epochs only. The wait for one needs the grant.
                    let put = if flushes { put } else { Step::Put { target, disp, value } };
                    self.push(me, put);
                }
                4..=5 => {
                    self.expected[target as usize][disp / 8] += value;
                    self.push(me, Step::Add { target, disp, value });
                }
                6 => {
                    self.expected[target as usize][disp / 8] += value;
                    self.push(me, Step::FetchAdd { target, disp, value });
                }
                7 => {
                    let expect = constant(target, cell);
                    self.push(me, Step::Get { target, disp: CONSTANTS + 8 * cell, expect });
                }
                _ if flushes => {
                    let (how, of) = (self.how(), self.rng.bool().then_some(target));
                    let flush = if self.rng.bool() {
                        Step::Flush(of, how)
                    } else {
                        Step::FlushLocal(of, how)
                    };
                    self.push(me, flush);
                }
                _ => {}
            }
        }
    }

    fn transaction(&mut self) {
        match self.rng.u8(0..12) {
            0..=1 => self.fences(),
            2..=4 => self.accesses(),
            5..=7 => self.locks(),
            8 => self.lock_all(),
            _ => self.increments(),
        }
    }

    fn fences(&mut self) {
        let noprecede = self.rng.bool();
        let sections = self.rng.u32(0..3);
        for me in 0..self.ranks {
            self.end_exposure(me);
            let how = self.how();
            self.push(me, Step::Fence(Assert { noprecede, ..Default::default() }, how));
        }
        for section in 0..sections {
            let nosucceed = section + 1 == sections && self.rng.bool();
            for me in 0..self.ranks {
                for target in self.any_group() {
                    self.operations(me, target, false);
                }
                let how = self.how();
                self.push(me, Step::Fence(Assert { nosucceed, ..Default::default() }, how));
            }
        }
    }

    /// Every origin accesses every target. A process may be both.
    fn accesses(&mut self) {
        let (origins, targets) = (self.any_group(), self.any_group());
        for &me in &targets {
            self.end_exposure(me);
            self.push(me, Step::Post(origins.clone()));
            self.open_exposures[me as usize] = true;
        }
        for &me in &origins {
            self.push(me, Step::Start(targets.clone()));
            for &target in &targets {
                self.operations(me, target, false);
            }
            let how = self.how();
            self.push(me, Step::Complete(how));
        }
        targets.iter().for_each(|&me| self.maybe_end_exposure(me));
    }

    /// A process locks one or more targets, in a common order.
    fn locks(&mut self) {
        let me = self.any_rank();
        let mut targets = self.any_group();
        // A lock that overtakes an earlier epoch may be held while the next one waits for that
        // epoch. Under a reorder flag the program itself must avoid hold-and-wait, because EP-10
        // covers programs without flags only.
        targets.truncate(if self.flags == ReorderFlags::default() { 2 } else { 1 });
        targets.sort();
        // A process must not lock its own window while it is exposed.
        if targets.contains(&me) {
            self.end_exposure(me);
        }
        for (i, &target) in targets.iter().enumerate() {
            // Locks of different targets are granted independently [EP-7], so a common order of
            // calls does not prevent hold-and-wait. A process that blocks between lock and unlock
            // must hold the earlier locks.
            let how = if i + 1 < targets.len() { How::Blocking } else { self.how() };
            let mode = self.any_mode();
            self.push(me, Step::Lock(mode, target, how));
        }
        for &target in &targets {
            self.operations(me, target, true);
        }
        self.rng.shuffle(&mut targets);
        for &target in &targets {
            let how = self.how();
            self.push(me, Step::Unlock(target, how));
        }
        self.maybe_end_exposure(me);
    }

    fn lock_all(&mut self) {
        let me = self.any_rank();
        self.end_exposure(me);
        let how = self.how();
        self.push(me, Step::LockAll(how));
        for target in self.any_group() {
            self.operations(me, target, true);
        }
        let how = self.how();
        self.push(me, Step::UnlockAll(how));
    }

    /// Read, increment, write back, by several processes under an exclusive lock.
    fn increments(&mut self) {
        let (target, cell) = (self.any_rank(), self.rng.usize(0..SHARED_CELLS));
        let disp = INCREMENTS + 8 * cell;
        for me in self.any_group() {
            if me == target {
                self.end_exposure(me);
            }
            self.expected[target as usize][disp / 8] += 1;
            let (lock, unlock) = (self.how(), self.how());
            self.push(me, Step::Lock(LockMode::Exclusive, target, lock));
            self.push(me, Step::Read { target, disp });
            self.push(me, Step::Flush(Some(target), How::Blocking));
            self.push(me, Step::WriteBackPlusOne { target, disp });
            self.push(me, Step::Unlock(target, unlock));
        }
    }
}

/// Prints how to replay a failing program.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "seed {seed} fails; replay: MPIX_WORLD_SEED={seed} cargo test --test engine \
                 random -- --nocapture"
            );
        }
    }
}

fn run_program(seed: u64, print: bool) {
    let _replay = Replay(seed);
    let mut g = Generator::new(seed);
    for _ in 0..g.rng.u32(1..12) {
        g.transaction();
    }
    (0..g.ranks).for_each(|me| g.end_exposure(me));
    if print {
        for (me, steps) in g.steps.iter().enumerate() {
            steps.iter().enumerate().for_each(|(i, step)| eprintln!("rank {me} {i}: {step:?}"));
        }
    }

    let mut w = World::with_flags(g.ranks, g.flags);
    for rank in 0..g.ranks {
        for cell in 0..SHARED_CELLS {
            let disp = CONSTANTS + 8 * cell;
            w.mem_mut(rank, disp, 8).copy_from_slice(&constant(rank, cell).to_le_bytes());
        }
        for to in 0..g.ranks {
            let mode = [Mode::Immediate, Mode::LocalThenRemote, Mode::Pending][g.rng.usize(0..3)];
            let credits = if g.one_in(4) { 1 } else { u32::MAX };
            w.net.link(rank, to, Link { credits, ..Link::with_mode(mode) });
        }
    }
    w.net.faults = Some(FaultInjection {
        rng: g.rng.fork(),
        latency_max: [0, 10, 200][g.rng.usize(0..3)],
        refuse_one_in: [0, 3, 10][g.rng.usize(0..3)],
    });
    w.net.slow_locks = g.rng.bool();
    let in_rounds = g.one_in(4);
    let mut run = Run::new(&g.steps);
    if in_rounds {
        run.run_in_rounds(&mut w);
    } else {
        run.run_at_random(&mut w, &mut g.rng);
    }
    for rank in 0..g.ranks {
        for (cell, expected) in g.expected[rank as usize].iter().enumerate() {
            assert_eq!(w.cell(rank, 8 * cell), *expected, "rank {rank}, displacement {}", 8 * cell);
        }
    }
}

#[test]
fn random_programs_end_with_the_reference_memory() {
    if let Ok(seed) = std::env::var("MPIX_WORLD_SEED") {
        return run_program(seed.parse().expect("a number"), true);
    }
    let programs =
        std::env::var("MPIX_WORLD_PROGRAMS").map_or(PROGRAMS, |n| n.parse().expect("a number"));
    for seed in 1..=programs {
        run_program(seed, false);
    }
}

/// Equal seeds give equal runs.
#[test]
fn equal_seeds_give_equal_runs() {
    for seed in [7, 77, 777] {
        let trace = || {
            let mut g = Generator::new(seed);
            (0..8).for_each(|_| g.transaction());
            (0..g.ranks).for_each(|me| g.end_exposure(me));
            let mut w = World::with_flags(g.ranks, g.flags);
            for rank in 0..g.ranks {
                for cell in 0..SHARED_CELLS {
                    let disp = CONSTANTS + 8 * cell;
                    w.mem_mut(rank, disp, 8).copy_from_slice(&constant(rank, cell).to_le_bytes());
                }
            }
            w.net.faults =
                Some(FaultInjection { rng: g.rng.fork(), latency_max: 50, refuse_one_in: 5 });
            Run::new(&g.steps).run_at_random(&mut w, &mut g.rng);
            (w.now(), w.net.signals.clone(), w.net.calls.clone())
        };
        assert_eq!(trace(), trace());
    }
}
