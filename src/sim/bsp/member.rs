//! The script of one rank.

use std::collections::VecDeque;

use super::super::script::{Group, How, Moment, Script, Step, byte_op};
use super::{Program, Series, Work};
use crate::engine::{Assert, Notification, Op, OpKind, Rank};
use crate::transport::sim::Time;

const WINDOW: u32 = 0;

/// One rank of a run: an opening, the supersteps, and a closing.
pub(super) struct Member {
    work: Work,
    me: Rank,
    targets: Vec<Rank>,
    origins: Vec<Rank>,
    /// Steps to make before the next superstep.
    ahead: VecDeque<Step>,
    /// Number of parts that were begun: the opening is the first one.
    begun: u32,
    /// Counted notifications that this rank has waited for, by counter.
    notified: [u64; 2],
    /// Begin and end of the measurement.
    measured: [Time; 2],
    /// Time computed in the measurement.
    pub(super) computed: Time,
}

impl Script for Member {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        let of_iteration = self.work.program.supersteps();
        let first = self.work.warm_up * of_iteration;
        let end = first + self.work.iterations * of_iteration;
        loop {
            if let Some(step) = self.ahead.pop_front() {
                return step;
            }
            let part = self.begun;
            self.begun += 1;
            if part == 0 {
                self.opening();
                continue;
            }
            let superstep = part - 1;
            if superstep == first {
                self.measured[0] = at.now;
            }
            if superstep == end {
                self.measured[1] = at.now;
                self.closing();
            } else if superstep > end {
                return Step::End;
            } else {
                self.superstep(superstep, superstep >= first);
            }
        }
    }
}

impl Member {
    pub(super) fn new(work: Work, me: Rank) -> Self {
        Member {
            work,
            me,
            targets: work.program.targets(me, work.ranks),
            origins: work.program.origins(me, work.ranks),
            ahead: VecDeque::new(),
            begun: 0,
            notified: [0; 2],
            measured: [0; 2],
            computed: 0,
        }
    }

    pub(super) fn measured_time(&self) -> Time {
        self.measured[1] - self.measured[0]
    }

    fn opening(&mut self) {
        match self.work.series {
            Series::Barrier | Series::Pattern => {
                self.fence(Assert { noprecede: true, ..Assert::default() });
                // The first epoch of a pattern has all accesses of the later ones.
                if self.work.program == Program::GaussSeidel {
                    self.puts(None);
                    self.fence(Assert::default());
                }
            }
            Series::Notified => {
                let assert = Assert { nocheck: true, ..Assert::default() };
                self.ahead.push_back(Step::LockAll { window: WINDOW, assert, blocking: true });
            }
            Series::Pscw | Series::TwoSided => {}
        }
    }

    fn closing(&mut self) {
        match self.work.series {
            Series::Barrier | Series::Pattern => {
                self.fence(Assert { nosucceed: true, ..Assert::default() });
            }
            Series::Notified => {
                self.ahead.push_back(Step::UnlockAll { window: WINDOW, how: How::Blocking });
            }
            Series::Pscw | Series::TwoSided => {}
        }
    }

    fn superstep(&mut self, superstep: u32, is_measured: bool) {
        let alternates = self.work.program == Program::GaussSeidel;
        let turn = (superstep + self.me).is_multiple_of(2);
        // In the Gauss-Seidel method a rank either accesses or is accessed.
        let (accesses, exposes) = (!alternates || turn, !alternates || !turn);
        let compute = accesses.then(|| self.work.compute_time(self.me, superstep));
        if is_measured {
            self.computed += compute.unwrap_or(0);
        }
        if exposes && self.work.series == Series::Pscw {
            self.ahead
                .push_back(Step::Post { window: WINDOW, group: Group::List(self.origins.clone()) });
        }
        let compute = compute.map(Step::Compute);
        if self.work.program.is_ring() {
            // What a rank passes on does not depend on its computation.
            self.send(superstep);
            self.ahead.extend(compute);
        } else if accesses {
            self.ahead.extend(compute);
            self.send(superstep);
        }
        self.synchronize(superstep, accesses, exposes);
    }

    /// Sends to all targets.
    fn send(&mut self, superstep: u32) {
        match self.work.series {
            Series::Barrier | Series::Pattern => self.puts(None),
            Series::Pscw => {
                let group = Group::List(self.targets.clone());
                self.ahead.push_back(Step::Start { window: WINDOW, group });
                self.puts(None);
            }
            Series::Notified => self.puts(Some(self.counter(superstep))),
            Series::TwoSided => {
                let bytes = self.work.bytes;
                self.ahead.extend(self.targets.iter().map(|&to| Step::Send { to, bytes }));
            }
        }
    }

    fn synchronize(&mut self, superstep: u32, accesses: bool, exposes: bool) {
        match self.work.series {
            Series::Barrier | Series::Pattern => self.fence(Assert::default()),
            Series::Pscw => {
                if accesses {
                    self.ahead.push_back(Step::Complete { window: WINDOW, how: How::Blocking });
                }
                if exposes {
                    self.ahead.push_back(Step::Wait { window: WINDOW, how: How::Blocking });
                }
            }
            Series::Notified => self.await_counter(superstep, accesses, exposes),
            Series::TwoSided if exposes => {
                self.ahead.extend(self.origins.iter().map(|&from| Step::Receive { from }));
            }
            Series::TwoSided => {}
        }
    }

    /// Supersteps count in turn in two counters, since a neighbour may be one ahead.
    fn counter(&self, superstep: u32) -> u32 {
        if self.work.program == Program::GaussSeidel { 0 } else { superstep % 2 }
    }

    fn await_counter(&mut self, superstep: u32, accesses: bool, exposes: bool) {
        let counter = self.counter(superstep);
        if accesses {
            // The origin buffers may be written again.
            self.ahead.push_back(Step::Flush {
                window: WINDOW,
                target: None,
                local: true,
                how: How::Blocking,
            });
        }
        let mut expected = self.origins.len();
        if self.work.program.is_ring() {
            // The block was used: its buffer is free. The target says so too.
            for &origin in &self.origins {
                let op = Op::notify(origin, Notification::counter(counter));
                self.ahead.push_back(Step::Issue { window: WINDOW, op });
            }
            expected += self.targets.len();
        }
        if exposes {
            let notified = &mut self.notified[counter as usize];
            *notified += expected as u64;
            self.ahead.push_back(Step::AwaitCounters {
                window: WINDOW,
                first: counter,
                number: 1,
                expected: *notified,
                how: How::Blocking,
            });
        }
    }

    fn fence(&mut self, assert: Assert) {
        self.ahead.push_back(Step::Fence { window: WINDOW, assert, how: How::Blocking });
    }

    fn puts(&mut self, counter: Option<u32>) {
        let (bytes, notification) = (self.work.bytes, counter.map(Notification::counter));
        self.ahead.extend(self.targets.iter().map(|&target| Step::Issue {
            window: WINDOW,
            op: Op { notification, ..byte_op(OpKind::Put, target, 0, bytes) },
        }));
    }
}
