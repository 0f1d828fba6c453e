//! The paper's section VIII.A: its reference figure and its ten patterns, figures 2 to 11, as
//! scripts.
//!
//! Every rank is on a node of its own. All meet in a barrier that costs nothing, which is time 0;
//! who is late, or works, does so for 1000 µs. The series *blocking* and *nonblocking* are the
//! paper's "New" and "New nonblocking"; the other pair is a reorder flag off and on, nonblocking
//! calls only. Nothing but the calibration of the profile (one 1 MB put epoch) is taken from the
//! paper.

use serde::Serialize;

use super::profile::Machine;
use super::script::{Group, How, Moment, Script, Slot, Step};
use super::world::{Settings, Stuck, WindowSpec, World};
use crate::engine::{Addr, Assert, LockMode, Op, OpKind, Rank, ReorderFlags};
use crate::transport::datatype::element::{native, reduction};
use crate::transport::sim::{Time, US};

/// Between what is prepared and the start.
const SETTLED: Time = 50 * US;
/// 1 MB as the paper means it.
const MEGABYTE: u64 = 1 << 20;
/// How late, how long at work.
const DELAY: Time = 1000 * US;

/// A value of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Paper {
    /// The text gives the number.
    Stated(f64),
    /// The text says in words what the number is made of (delay, work, transfers of 340 µs).
    Described(f64),
}

impl Paper {
    /// In microseconds.
    #[must_use]
    pub fn us(self) -> f64 {
        match self {
            Paper::Stated(us) | Paper::Described(us) => us,
        }
    }
}

/// One value of one pattern.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// Pattern.
    pub case: &'static str,
    /// Its figure in the paper; 0: the reference.
    pub figure: u32,
    /// `blocking`, `nonblocking`, `flag_off`, `flag_on`.
    pub series: &'static str,
    /// Of one put.
    pub bytes: u64,
    /// What is measured.
    pub metric: &'static str,
    /// In microseconds.
    pub value: f64,
    /// What the paper says.
    pub paper: Option<Paper>,
}

impl Measure {
    /// How far it is from the paper's, as a part of that.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        self.paper.map(|paper| self.value / paper.us() - 1.0)
    }
}

enum Item {
    Step(Step),
    Mark(&'static str),
}

/// A list of steps with marks between them.
#[derive(Default)]
struct Role {
    items: std::collections::VecDeque<Item>,
    marks: Vec<(&'static str, Time)>,
}

impl Script for Role {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        loop {
            match self.items.pop_front() {
                None => return Step::End,
                Some(Item::Step(step)) => return step,
                Some(Item::Mark(name)) => self.marks.push((name, at.now)),
            }
        }
    }
}

/// Writes a role.
struct Pen {
    role: Role,
    nonblocking: bool,
    bytes: u64,
}

impl Pen {
    fn step(mut self, step: Step) -> Self {
        self.role.items.push_back(Item::Step(step));
        self
    }
    fn mark(mut self, name: &'static str) -> Self {
        self.role.items.push_back(Item::Mark(name));
        self
    }
    /// The common start, when all that was prepared has arrived.
    fn begin(self) -> Self {
        self.step(Step::Compute(SETTLED)).step(Step::Barrier).mark("start")
    }
    fn late(self) -> Self {
        self.step(Step::Compute(DELAY))
    }
    fn how(&self, slot: Slot) -> How {
        if self.nonblocking { How::Slot(slot) } else { How::Blocking }
    }
    /// The end of the epoch closed with this slot, in the nonblocking series.
    fn settle(self, slot: Slot) -> Self {
        if self.nonblocking { self.step(Step::Await(slot)) } else { self }
    }
    fn put(self, target: Rank) -> Self {
        let op = Op {
            origin: Addr(0),
            result: Addr(0),
            compare: Addr(0),
            disp: 0,
            len: self.bytes,
            target,
            kind: OpKind::Put,
            element: native::BYTE,
            reduction: reduction::REPLACE,
            extent: 1,
            shape: None,
        };
        self.step(Step::Issue { window: 0, op })
    }
    fn post(self, origin: Rank) -> Self {
        self.step(Step::Post { window: 0, group: Group::One(origin) })
    }
    fn wait(self, slot: Slot) -> Self {
        let how = self.how(slot);
        self.step(Step::Wait { window: 0, how })
    }
    fn start(self, target: Rank) -> Self {
        self.step(Step::Start { window: 0, group: Group::One(target) })
    }
    fn complete(self, slot: Slot) -> Self {
        let how = self.how(slot);
        self.step(Step::Complete { window: 0, how })
    }
    fn lock(self, target: Rank) -> Self {
        let assert = Assert::default();
        self.step(Step::Lock {
            window: 0,
            mode: LockMode::Exclusive,
            target,
            assert,
            blocking: false,
        })
    }
    fn unlock(self, target: Rank, slot: Slot) -> Self {
        let how = self.how(slot);
        self.step(Step::Unlock { window: 0, target, how })
    }
    /// The lock is held when this returns.
    fn held(self, target: Rank) -> Self {
        self.step(Step::Flush { window: 0, target: Some(target), local: false, how: How::Blocking })
    }
    fn open_fence(self) -> Self {
        self.step(Step::Fence { window: 0, assert: Assert::default(), how: How::Blocking })
    }
    fn fence(self, slot: Slot) -> Self {
        let how = self.how(slot);
        self.step(Step::Fence {
            window: 0,
            assert: Assert { nosucceed: true, ..Assert::default() },
            how,
        })
    }
    /// Closes by `close` before or after 1000 µs of work: nonblocking closes can be early, blocking
    /// ones would forbid the overlap.
    fn work_and(self, slot: Slot, close: impl FnOnce(Self) -> Self) -> Self {
        if self.nonblocking { close(self).late().settle(slot) } else { close(self.late()) }
    }
    /// An access epoch with one put, or an exposure epoch; closed, not awaited.
    fn access(self, target: Rank, slot: Slot) -> Self {
        self.start(target).put(target).complete(slot)
    }
    fn expose(self, origin: Rank, slot: Slot) -> Self {
        self.post(origin).wait(slot)
    }
    fn all(self) -> Self {
        self.step(Step::AwaitAll).mark("end")
    }
}

/// What is measured: from the common start to this mark of this rank.
type Metric = (&'static str, Rank, &'static str, [Option<Paper>; 2]);

struct Case {
    name: &'static str,
    figure: u32,
    /// The flag of the flag series; `None`: blocking and nonblocking.
    flag: Option<ReorderFlags>,
    sizes: &'static [u64],
    roles: fn(&dyn Fn() -> Pen) -> Vec<Pen>,
    /// Paper's values for 1 MB, of the first and the second series.
    metrics: &'static [Metric],
}

const ONE_MB: &[u64] = &[MEGABYTE];
const OFF: ReorderFlags = ReorderFlags {
    access_after_access: false,
    access_after_exposure: false,
    exposure_after_exposure: false,
    exposure_after_access: false,
};

const fn stated(first: f64, second: f64) -> [Option<Paper>; 2] {
    [Some(Paper::Stated(first)), Some(Paper::Stated(second))]
}
const fn described(first: f64, second: f64) -> [Option<Paper>; 2] {
    [Some(Paper::Described(first)), Some(Paper::Described(second))]
}

const CASES: &[Case] = &[
    Case {
        name: "reference_gats",
        figure: 0,
        flag: None,
        sizes: ONE_MB,
        roles: |pen| {
            vec![
                pen().begin().access(1, 0).settle(0).mark("end"),
                pen().begin().expose(0, 0).settle(0).mark("end"),
            ]
        },
        metrics: &[
            ("origin_epoch", 0, "end", stated(340.0, 340.0)),
            ("target_epoch", 1, "end", stated(340.0, 340.0)),
        ],
    },
    Case {
        name: "reference_fence",
        figure: 0,
        flag: None,
        sizes: ONE_MB,
        roles: |pen| {
            let closes = |pen: Pen| pen.fence(0).settle(0).mark("end");
            vec![closes(pen().open_fence().begin().put(1)), closes(pen().open_fence().begin())]
        },
        metrics: &[
            ("origin_epoch", 0, "end", stated(340.0, 340.0)),
            ("target_epoch", 1, "end", stated(340.0, 340.0)),
        ],
    },
    Case {
        name: "reference_lock",
        figure: 0,
        flag: None,
        sizes: ONE_MB,
        roles: |pen| {
            vec![pen().begin().lock(1).put(1).unlock(1, 0).settle(0).mark("end"), pen().begin()]
        },
        metrics: &[("origin_epoch", 0, "end", stated(340.0, 340.0))],
    },
    Case {
        name: "late_post",
        figure: 2,
        flag: None,
        sizes: ONE_MB,
        roles: |pen| {
            let origin = pen().begin().access(0, 0);
            let send = Step::Send { to: 1, bytes: origin.bytes };
            let origin = if origin.nonblocking {
                origin.step(send).mark("activity").settle(0).mark("epoch")
            } else {
                origin.mark("epoch").step(send).mark("activity")
            };
            vec![
                pen().begin().late().expose(2, 0).settle(0),
                pen().begin().step(Step::Receive { from: 2 }),
                origin.mark("end"),
            ]
        },
        metrics: &[
            ("access_epoch", 2, "epoch", stated(1340.0, 1340.0)),
            ("next_activity", 2, "activity", stated(1660.0, 340.0)),
            ("cumulative", 2, "end", [Some(Paper::Stated(1660.0)), Some(Paper::Stated(1340.0))]),
        ],
    },
    Case {
        name: "late_complete",
        figure: 3,
        flag: None,
        sizes: &[4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, MEGABYTE],
        roles: |pen| {
            vec![
                pen().begin().start(1).put(1).work_and(0, |pen| pen.complete(0)).mark("end"),
                pen().post(0).begin().wait(0).settle(0).mark("end"),
            ]
        },
        metrics: &[
            ("origin_epoch", 0, "end", stated(1000.0, 1000.0)),
            ("target_epoch", 1, "end", described(1000.0, 340.0)),
        ],
    },
    Case {
        name: "early_fence",
        figure: 4,
        flag: None,
        sizes: &[1 << 18, MEGABYTE],
        roles: |pen| {
            let target = pen().open_fence().begin().fence(0).late().settle(0).mark("end");
            vec![pen().open_fence().begin().put(1).fence(0).settle(0), target]
        },
        metrics: &[(
            "cumulative",
            1,
            "end",
            [Some(Paper::Described(1340.0)), Some(Paper::Stated(1010.0))],
        )],
    },
    Case {
        name: "wait_at_fence",
        figure: 5,
        flag: None,
        sizes: ONE_MB,
        roles: |pen| {
            vec![
                pen().open_fence().begin().put(1).work_and(0, |pen| pen.fence(0)).mark("end"),
                pen().open_fence().begin().fence(0).settle(0).mark("end"),
            ]
        },
        metrics: &[("target_epoch", 1, "end", described(1000.0, 340.0))],
    },
    Case {
        name: "late_unlock",
        figure: 6,
        flag: None,
        sizes: ONE_MB,
        roles: |pen| {
            vec![
                pen()
                    .lock(2)
                    .held(2)
                    .begin()
                    .put(2)
                    .work_and(0, |pen| pen.unlock(2, 0))
                    .mark("end"),
                pen().begin().lock(2).put(2).unlock(2, 0).settle(0).mark("end"),
                pen().begin(),
            ]
        },
        metrics: &[
            ("first_lock", 0, "end", described(1000.0, 1000.0)),
            ("second_lock", 1, "end", described(1340.0, 680.0)),
        ],
    },
    Case {
        name: "aaar_gats",
        figure: 7,
        flag: Some(ReorderFlags { access_after_access: true, ..OFF }),
        sizes: ONE_MB,
        roles: |pen| {
            vec![
                pen().begin().access(1, 0).access(2, 1).all(),
                pen().begin().late().expose(0, 0).all(),
                pen().begin().expose(0, 0).all(),
            ]
        },
        metrics: &[
            ("second_target", 2, "end", described(1680.0, 340.0)),
            ("cumulative", 0, "end", described(1680.0, 1340.0)),
        ],
    },
    Case {
        name: "aaar_lock",
        figure: 8,
        flag: Some(ReorderFlags { access_after_access: true, ..OFF }),
        sizes: ONE_MB,
        roles: |pen| {
            vec![
                pen().lock(2).held(2).begin().put(2).late().unlock(2, 0).all(),
                pen().begin().lock(2).put(2).unlock(2, 0).lock(3).put(3).unlock(3, 1).all(),
                pen().begin(),
                pen().begin(),
            ]
        },
        metrics: &[(
            "cumulative",
            1,
            "end",
            [Some(Paper::Described(1680.0)), Some(Paper::Stated(1340.0))],
        )],
    },
    Case {
        name: "aaer",
        figure: 9,
        flag: Some(ReorderFlags { access_after_exposure: true, ..OFF }),
        sizes: ONE_MB,
        roles: |pen| {
            vec![
                pen().begin().late().access(2, 0).all(),
                pen().begin().expose(2, 0).all(),
                pen().begin().expose(0, 0).access(1, 1).all(),
            ]
        },
        metrics: &[
            ("second_target", 1, "end", described(1680.0, 340.0)),
            ("cumulative", 2, "end", described(1680.0, 1340.0)),
        ],
    },
    Case {
        name: "eaer",
        figure: 10,
        flag: Some(ReorderFlags { exposure_after_exposure: true, ..OFF }),
        sizes: ONE_MB,
        roles: |pen| {
            vec![
                pen().begin().late().access(2, 0).all(),
                pen().begin().access(2, 0).all(),
                pen().begin().expose(0, 0).expose(1, 1).all(),
            ]
        },
        metrics: &[
            ("second_origin", 1, "end", described(1680.0, 340.0)),
            ("cumulative", 2, "end", described(1680.0, 1340.0)),
        ],
    },
    Case {
        name: "eaar",
        figure: 11,
        flag: Some(ReorderFlags { exposure_after_access: true, ..OFF }),
        sizes: ONE_MB,
        roles: |pen| {
            vec![
                pen().begin().late().expose(2, 0).all(),
                pen().begin().access(2, 0).all(),
                pen().begin().access(0, 0).expose(1, 1).all(),
            ]
        },
        metrics: &[
            ("second_origin", 1, "end", described(1680.0, 340.0)),
            ("cumulative", 2, "end", described(1680.0, 1340.0)),
        ],
    },
];

/// Names of the patterns, the reference first.
pub fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

/// Runs the patterns whose name contains `name`, in both of their series.
///
/// # Errors
/// If one does not end.
pub fn measure(
    machine: &Machine,
    progress_thread: bool,
    name: &str,
) -> Result<Vec<Measure>, Stuck> {
    let mut measures = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(name)) {
        for second in [false, true] {
            for &bytes in case.sizes {
                run(case, second, bytes, machine, progress_thread, &mut measures)?;
            }
        }
    }
    Ok(measures)
}

fn run(
    case: &Case,
    second: bool,
    bytes: u64,
    machine: &Machine,
    progress_thread: bool,
    measures: &mut Vec<Measure>,
) -> Result<(), Stuck> {
    let nonblocking = second || case.flag.is_some();
    let series = match (case.flag, second) {
        (None, false) => "blocking",
        (None, true) => "nonblocking",
        (Some(_), false) => "flag_off",
        (Some(_), true) => "flag_on",
    };
    let flags = case.flag.filter(|_| second).unwrap_or_default();
    let mut machine = *machine;
    machine.network.ranks_per_node = 1;
    let settings = Settings { progress_thread, time_limit: 100 * DELAY, ..Settings::new(machine) };
    let pens = (case.roles)(&|| Pen { role: Role::default(), nonblocking, bytes });
    let mut roles = pens.into_iter().map(|pen| pen.role).collect::<Vec<_>>().into_iter();
    let mut world =
        World::new(roles.len() as u32, settings, &[WindowSpec { bytes: 0, flags }], |_| {
            roles.next().expect("a role for each rank")
        });
    world.run()?;
    for &(metric, rank, mark, paper) in case.metrics {
        let marks = &world.script(rank).marks;
        let at = |name: &str| marks.iter().find(|(mark, _)| *mark == name).map_or(0, |(_, at)| *at);
        // The paper's numbers are those of 1 MB, but for what does not depend on it.
        let paper = paper[usize::from(second)]
            .filter(|paper| bytes == MEGABYTE || paper.us() == 1000.0 || paper.us() == 1010.0);
        let value = (at(mark) - at("start")) as f64 / US as f64;
        measures.push(Measure {
            case: case.name,
            figure: case.figure,
            series,
            bytes,
            metric,
            value,
            paper,
        });
    }
    Ok(())
}
