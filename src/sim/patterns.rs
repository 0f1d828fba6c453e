//! The paper's section VIII.A as scripts: the reference figure, and the ten patterns of figures 2
//! to 11.
//!
//! Every rank is on a node of its own. Time 0 is a barrier of all ranks that costs nothing. Late or
//! working ranks compute for 1000 µs. The series *blocking* and *nonblocking* are the paper's "New"
//! and "New nonblocking". The other two have a reorder flag off and on, with nonblocking calls.
//! Only the calibration of the profile (one 1 MB put epoch) is taken from the paper.

use serde::Serialize;

use super::profile::Machine;
use super::script::{Group, How, Moment, Script, Slot, Step, byte_op};
use super::world::{Settings, Stuck, WindowSpec, World};
use crate::engine::{Assert, LockMode, OpKind, Rank, ReorderFlags};
use crate::transport::sim::{Time, US};

/// Time between the preparation and the common start.
const SETUP_TIME: Time = 50 * US;
/// The paper's 1 MB.
const MEGABYTE: u64 = 1 << 20;
/// Time that a rank is late or works.
const DELAY: Time = 1000 * US;

const DELAY_US: f64 = (DELAY / US) as f64;
/// Least part of a value beside the delay that says anything about the transfers.
const OWN_MIN_US: f64 = 100.0;

/// A value stated in the paper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Paper {
    /// The text states the number.
    Stated(f64),
    /// The text describes its terms (delay, work, transfers of 340 µs).
    Described(f64),
}

impl Paper {
    /// The value in microseconds.
    #[must_use]
    pub fn us(self) -> f64 {
        match self {
            Paper::Stated(us) | Paper::Described(us) => us,
        }
    }
}

/// One measured value of a pattern.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// Name of the pattern.
    pub case: &'static str,
    /// Figure in the paper; 0: the reference.
    pub figure: u32,
    /// `blocking`, `nonblocking`, `flag_off`, `flag_on`.
    pub series: &'static str,
    /// Size of a put, in bytes.
    pub bytes: u64,
    /// Name of the value.
    pub metric: &'static str,
    /// Value in microseconds.
    pub value: f64,
    /// The paper's value.
    pub paper: Option<Paper>,
}

impl Measure {
    /// Difference to the paper's value, relative to the part of it that is not the delay or work of
    /// 1000 µs, which the scripts put in themselves. `None` if that part is small or nothing.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        let paper = self.paper?.us();
        let delay = if paper >= DELAY_US { DELAY_US } else { 0.0 };
        let own = paper - delay;
        (own >= OWN_MIN_US).then(|| (self.value - paper) / own)
    }
}

enum Item {
    Step(Step),
    Mark(&'static str),
}

/// A list of steps, with marks that record the time.
#[derive(Default)]
struct MarkedScript {
    items: std::collections::VecDeque<Item>,
    marks: Vec<(&'static str, Time)>,
}

impl Script for MarkedScript {
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

struct ScriptBuilder {
    role: MarkedScript,
    nonblocking: bool,
    bytes: u64,
}

impl ScriptBuilder {
    fn step(mut self, step: Step) -> Self {
        self.role.items.push_back(Item::Step(step));
        self
    }
    fn mark(mut self, name: &'static str) -> Self {
        self.role.items.push_back(Item::Mark(name));
        self
    }
    /// The common start, after the preparation.
    fn begin(self) -> Self {
        self.step(Step::Compute(SETUP_TIME)).step(Step::Barrier).mark("start")
    }
    fn late(self) -> Self {
        self.step(Step::Compute(DELAY))
    }
    fn how(&self, slot: Slot) -> How {
        if self.nonblocking { How::Slot(slot) } else { How::Blocking }
    }
    /// In the nonblocking series, waits for the request in this slot.
    fn finish(self, slot: Slot) -> Self {
        if self.nonblocking { self.step(Step::Await(slot)) } else { self }
    }
    fn put(self, target: Rank) -> Self {
        let op = byte_op(OpKind::Put, target, 0, self.bytes);
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
    /// Waits until the lock is held.
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
    /// Closes by `close` and works for 1000 µs. A nonblocking close comes first; a blocking one
    /// must come last, or it would forbid the overlap.
    fn close_and_work(self, slot: Slot, close: impl FnOnce(Self) -> Self) -> Self {
        if self.nonblocking { close(self).late().finish(slot) } else { close(self.late()) }
    }
    /// An access epoch with one put, closed.
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

/// Name, rank, mark and the paper's values: the time from the common start to this mark.
type Metric = (&'static str, Rank, &'static str, [Paper; 2]);

struct Case {
    name: &'static str,
    figure: u32,
    /// The flag that the two series differ in; `None`: blocking and nonblocking.
    flag: Option<ReorderFlags>,
    sizes: &'static [u64],
    roles: Roles,
    /// The paper's values are for 1 MB, in the first and second series.
    metrics: &'static [Metric],
}

/// Makes the script of each rank, from an empty one.
type Roles = fn(&dyn Fn() -> ScriptBuilder) -> Vec<ScriptBuilder>;

/// A pattern with puts of 1 MB, blocking and nonblocking.
const fn case(name: &'static str, figure: u32, roles: Roles) -> Case {
    Case { name, figure, flag: None, sizes: &[MEGABYTE], roles, metrics: &[] }
}

impl Case {
    const fn metrics(self, metrics: &'static [Metric]) -> Self {
        Case { metrics, ..self }
    }
    const fn sizes(self, sizes: &'static [u64]) -> Self {
        Case { sizes, ..self }
    }
    const fn flag(self, flag: ReorderFlags) -> Self {
        Case { flag: Some(flag), ..self }
    }
}

const OFF: ReorderFlags = ReorderFlags {
    access_after_access: false,
    access_after_exposure: false,
    exposure_after_exposure: false,
    exposure_after_access: false,
};

const fn stated(first: f64, second: f64) -> [Paper; 2] {
    [Paper::Stated(first), Paper::Stated(second)]
}
const fn described(first: f64, second: f64) -> [Paper; 2] {
    [Paper::Described(first), Paper::Described(second)]
}
const fn mixed(described: f64, stated: f64) -> [Paper; 2] {
    [Paper::Described(described), Paper::Stated(stated)]
}

const CASES: &[Case] = &[
    case("reference_gats", 0, |script| {
        vec![
            script().begin().access(1, 0).finish(0).mark("end"),
            script().begin().expose(0, 0).finish(0).mark("end"),
        ]
    })
    .metrics(&[
        ("origin_epoch", 0, "end", stated(340.0, 340.0)),
        ("target_epoch", 1, "end", stated(340.0, 340.0)),
    ]),
    case("reference_fence", 0, |script| {
        let closes = |script: ScriptBuilder| script.fence(0).finish(0).mark("end");
        vec![closes(script().open_fence().begin().put(1)), closes(script().open_fence().begin())]
    })
    .metrics(&[
        ("origin_epoch", 0, "end", stated(340.0, 340.0)),
        ("target_epoch", 1, "end", stated(340.0, 340.0)),
    ]),
    case("reference_lock", 0, |script| {
        vec![script().begin().lock(1).put(1).unlock(1, 0).finish(0).mark("end"), script().begin()]
    })
    .metrics(&[("origin_epoch", 0, "end", stated(340.0, 340.0))]),
    case("late_post", 2, |script| {
        let origin = script().begin().access(0, 0);
        let send = Step::Send { to: 1, bytes: origin.bytes };
        let origin = if origin.nonblocking {
            origin.step(send).mark("activity").finish(0).mark("epoch")
        } else {
            origin.mark("epoch").step(send).mark("activity")
        };
        vec![
            script().begin().late().expose(2, 0).finish(0),
            script().begin().step(Step::Receive { from: 2 }),
            origin.mark("end"),
        ]
    })
    .metrics(&[
        ("access_epoch", 2, "epoch", stated(1340.0, 1340.0)),
        ("next_activity", 2, "activity", stated(1660.0, 340.0)),
        ("cumulative", 2, "end", stated(1660.0, 1340.0)),
    ]),
    case("late_complete", 3, |script| {
        vec![
            script()
                .begin()
                .start(1)
                .put(1)
                .close_and_work(0, |script| script.complete(0))
                .mark("end"),
            script().post(0).begin().wait(0).finish(0).mark("end"),
        ]
    })
    .metrics(&[
        ("origin_epoch", 0, "end", stated(1000.0, 1000.0)),
        ("target_epoch", 1, "end", described(1000.0, 340.0)),
    ])
    .sizes(&[4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, MEGABYTE]),
    case("early_fence", 4, |script| {
        let target = script().open_fence().begin().fence(0).late().finish(0).mark("end");
        vec![script().open_fence().begin().put(1).fence(0).finish(0), target]
    })
    .metrics(&[("cumulative", 1, "end", mixed(1340.0, 1010.0))])
    .sizes(&[1 << 18, MEGABYTE]),
    case("wait_at_fence", 5, |script| {
        vec![
            script()
                .open_fence()
                .begin()
                .put(1)
                .close_and_work(0, |script| script.fence(0))
                .mark("end"),
            script().open_fence().begin().fence(0).finish(0).mark("end"),
        ]
    })
    .metrics(&[("target_epoch", 1, "end", described(1000.0, 340.0))]),
    case("late_unlock", 6, |script| {
        vec![
            script()
                .lock(2)
                .held(2)
                .begin()
                .put(2)
                .close_and_work(0, |script| script.unlock(2, 0))
                .mark("end"),
            script().begin().lock(2).put(2).unlock(2, 0).finish(0).mark("end"),
            script().begin(),
        ]
    })
    .metrics(&[
        ("first_lock", 0, "end", described(1000.0, 1000.0)),
        ("second_lock", 1, "end", described(1340.0, 680.0)),
    ]),
    case("aaar_gats", 7, |script| {
        vec![
            script().begin().access(1, 0).access(2, 1).all(),
            script().begin().late().expose(0, 0).all(),
            script().begin().expose(0, 0).all(),
        ]
    })
    .metrics(&[
        ("second_target", 2, "end", described(1680.0, 340.0)),
        ("cumulative", 0, "end", described(1680.0, 1340.0)),
    ])
    .flag(ReorderFlags { access_after_access: true, ..OFF }),
    case("aaar_lock", 8, |script| {
        vec![
            script().lock(2).held(2).begin().put(2).late().unlock(2, 0).all(),
            script().begin().lock(2).put(2).unlock(2, 0).lock(3).put(3).unlock(3, 1).all(),
            script().begin(),
            script().begin(),
        ]
    })
    .metrics(&[("cumulative", 1, "end", mixed(1680.0, 1340.0))])
    .flag(ReorderFlags { access_after_access: true, ..OFF }),
    case("aaer", 9, |script| {
        vec![
            script().begin().late().access(2, 0).all(),
            script().begin().expose(2, 0).all(),
            script().begin().expose(0, 0).access(1, 1).all(),
        ]
    })
    .metrics(&[
        ("second_target", 1, "end", described(1680.0, 340.0)),
        ("cumulative", 2, "end", described(1680.0, 1340.0)),
    ])
    .flag(ReorderFlags { access_after_exposure: true, ..OFF }),
    case("eaer", 10, |script| {
        vec![
            script().begin().late().access(2, 0).all(),
            script().begin().access(2, 0).all(),
            script().begin().expose(0, 0).expose(1, 1).all(),
        ]
    })
    .metrics(&[
        ("second_origin", 1, "end", described(1680.0, 340.0)),
        ("cumulative", 2, "end", described(1680.0, 1340.0)),
    ])
    .flag(ReorderFlags { exposure_after_exposure: true, ..OFF }),
    case("eaar", 11, |script| {
        vec![
            script().begin().late().expose(2, 0).all(),
            script().begin().access(2, 0).all(),
            script().begin().access(0, 0).expose(1, 1).all(),
        ]
    })
    .metrics(&[
        ("second_origin", 1, "end", described(1680.0, 340.0)),
        ("cumulative", 2, "end", described(1680.0, 1340.0)),
    ])
    .flag(ReorderFlags { exposure_after_access: true, ..OFF }),
];

/// Names of the patterns, the references first.
pub fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

/// Runs the patterns whose name contains `name`, each in both series.
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
    let builders =
        (case.roles)(&|| ScriptBuilder { role: MarkedScript::default(), nonblocking, bytes });
    let mut roles = builders.into_iter().map(|script| script.role).collect::<Vec<_>>().into_iter();
    let mut world = World::new(
        roles.len() as u32,
        settings,
        &[WindowSpec { flags, ..Default::default() }],
        |_| roles.next().expect("a script for each rank"),
    );
    world.run()?;
    for &(metric, rank, mark, paper) in case.metrics {
        let marks = &world.script(rank).marks;
        let at = |name: &str| marks.iter().find(|(mark, _)| *mark == name).map_or(0, |(_, at)| *at);
        // The paper's values are those of 1 MB, except where the size does not matter.
        let paper = Some(paper[usize::from(second)])
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
