//! Programs: lists of blocking and nonblocking calls per process, run side by side in a [`World`].

use mpix_rma::engine::*;

use crate::world::*;

/// Whether a call blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The process's next call follows completion.
    Blocking,
    Nonblocking,
}

/// One call of a process. Cells have 64 bits, displacements are in bytes.
#[derive(Clone, Debug)]
pub enum Step {
    Post(Vec<Rank>),
    Start(Vec<Rank>),
    /// Blocking: returns when the lock is held, as if it protected loads and stores [EP-1].
    Lock(LockMode, Rank, How),
    LockAll(How),
    Put {
        target: Rank,
        disp: usize,
        value: u64,
    },
    /// R-form, followed by a wait for its request.
    RequestPut {
        target: Rank,
        disp: usize,
        value: u64,
    },
    Add {
        target: Rank,
        disp: usize,
        value: u64,
    },
    FetchAdd {
        target: Rank,
        disp: usize,
        value: u64,
    },
    Get {
        target: Rank,
        disp: usize,
        expect: u64,
    },
    /// Reads a cell.
    Read {
        target: Rank,
        disp: usize,
    },
    /// Writes the value read, plus one. A blocking flush must precede it.
    WriteBackPlusOne {
        target: Rank,
        disp: usize,
    },
    Complete(How),
    Wait(How),
    /// `MPI_Win_test` in a loop.
    TestLoop,
    Fence(Assert, How),
    Unlock(Rank, How),
    UnlockAll(How),
    Flush(Option<Rank>, How),
    FlushLocal(Option<Rank>, How),
}

/// What a process waits for before its next call.
#[derive(Clone, Copy, Debug)]
enum Waits {
    Request(Req),
    Lock(Rank),
    LockAll,
    Test,
}

#[derive(Debug, Default)]
struct Process {
    next: usize,
    waits: Option<Waits>,
    read: Option<Buf>,
    gets: Vec<(Buf, u64)>,
}

/// A running program.
pub struct Run<'p> {
    steps: &'p [Vec<Step>],
    processes: Vec<Process>,
    /// All requests, in the call order of each process.
    pub requests: Vec<Req>,
}

impl<'p> Run<'p> {
    pub fn new(steps: &'p [Vec<Step>]) -> Self {
        let processes = steps.iter().map(|_| Process::default()).collect();
        Run { steps, processes, requests: Vec::new() }
    }

    fn has_ended(&self, me: Rank) -> bool {
        let process = &self.processes[me as usize];
        process.waits.is_none() && process.next == self.steps[me as usize].len()
    }

    /// Runs the process up to and including its next call. False if it waits or has ended.
    pub fn advance(&mut self, w: &mut World, me: Rank) -> bool {
        if let Some(waits) = self.processes[me as usize].waits {
            let over = match waits {
                Waits::Request(req) => w.done(req),
                Waits::Lock(target) => w.holds(me, target),
                Waits::LockAll => w.window(me).holds_lock_all(),
                Waits::Test => w.rank(me).test(),
            };
            if over {
                self.processes[me as usize].waits = None;
            }
            return over;
        }
        let Some(step) = self.steps[me as usize].get(self.processes[me as usize].next) else {
            return false;
        };
        self.processes[me as usize].next += 1;
        self.call(w, me, step);
        true
    }

    fn call(&mut self, w: &mut World, me: Rank, step: &Step) {
        let process = &mut self.processes[me as usize];
        let closing = match *step {
            Step::Post(ref group) => {
                w.rank(me).post(group);
                None
            }
            Step::Start(ref group) => {
                w.rank(me).start(group);
                None
            }
            Step::Lock(mode, target, how) => {
                w.rank(me).lock(mode, target);
                process.waits = (how == How::Blocking).then_some(Waits::Lock(target));
                None
            }
            Step::LockAll(how) => {
                w.rank(me).lock_all();
                process.waits = (how == How::Blocking).then_some(Waits::LockAll);
                None
            }
            Step::Put { target, disp, value } => {
                w.put(me, target, disp, &value.to_le_bytes());
                None
            }
            Step::RequestPut { target, disp, value } => {
                let op = w.put_op(me, target, disp, &value.to_le_bytes());
                Some((w.issue_request(me, op).1, How::Blocking))
            }
            Step::Add { target, disp, value } => {
                w.add(me, target, disp, value);
                None
            }
            Step::FetchAdd { target, disp, value } => {
                w.fetch_add(me, target, disp, value);
                None
            }
            Step::Get { target, disp, expect } => {
                let (_, buf) = w.get(me, target, disp, 8);
                process.gets.push((buf, expect));
                None
            }
            Step::Read { target, disp } => {
                process.read = Some(w.get(me, target, disp, 8).1);
                None
            }
            Step::WriteBackPlusOne { target, disp } => {
                let read = process.read.expect("read before");
                let value = w.value(read) + 1;
                w.put(me, target, disp, &value.to_le_bytes());
                None
            }
            Step::Complete(how) => Some((w.rank(me).complete(), how)),
            Step::Wait(how) => Some((w.rank(me).wait(), how)),
            Step::TestLoop => {
                process.waits = Some(Waits::Test);
                None
            }
            Step::Fence(assert, how) => Some((w.rank(me).fence_with(assert), how)),
            Step::Unlock(target, how) => Some((w.rank(me).unlock(target), how)),
            Step::UnlockAll(how) => Some((w.rank(me).unlock_all(), how)),
            Step::Flush(target, how) => Some((w.rank(me).flush(target), how)),
            Step::FlushLocal(target, how) => Some((w.rank(me).flush_local(target), how)),
        };
        if let Some((req, how)) = closing {
            self.requests.push(req);
            if how == How::Blocking {
                process.waits = Some(Waits::Request(req));
            }
        }
    }

    /// Runs to the end in rounds, each process as far as possible. Panics on a deadlock.
    pub fn run_in_rounds(&mut self, w: &mut World) {
        loop {
            let mut moved = false;
            for me in 0..w.size() {
                while self.advance(w, me) {
                    moved = true;
                }
            }
            if (0..w.size()).all(|me| self.has_ended(me)) {
                break;
            }
            if !w.step() && !moved {
                self.panic_stuck(w);
            }
        }
        self.check(w);
    }

    /// Runs to the end in random order.
    pub fn run_at_random(&mut self, w: &mut World, rng: &mut fastrand::Rng) {
        while !(0..w.size()).all(|me| self.has_ended(me)) {
            let mut moved = false;
            for _ in 0..2 * w.size() {
                let me = rng.u32(0..w.size());
                match rng.u8(0..4) {
                    0 => moved |= w.progress(me),
                    _ => moved |= self.advance(w, me),
                }
            }
            if rng.bool() {
                w.shuffle(rng);
            }
            // A process may compute while the others continue.
            if rng.u8(0..4) > 0
                && !w.step()
                && !moved
                && !(0..w.size()).any(|me| self.advance(w, me))
            {
                self.panic_stuck(w);
            }
        }
        self.check(w);
    }

    fn check(&self, w: &mut World) {
        w.finish();
        for (me, process) in self.processes.iter().enumerate() {
            for (buf, expect) in &process.gets {
                assert_eq!(w.value(*buf), *expect, "a get of rank {me}");
            }
        }
    }

    fn panic_stuck(&self, w: &World) -> ! {
        for (me, process) in self.processes.iter().enumerate() {
            let last = process.next.checked_sub(1).map(|i| &self.steps[me][i]);
            eprintln!(
                "rank {me}: call {} of {}, {:?} ({last:?})",
                process.next,
                self.steps[me].len(),
                process.waits
            );
        }
        panic!("deadlock at time {}: every process waits and nothing is under way", w.now());
    }
}

/// Runs a program and returns its requests.
pub fn run(w: &mut World, steps: &[Vec<Step>]) -> Vec<Req> {
    let mut run = Run::new(steps);
    run.run_in_rounds(w);
    run.requests
}
