//! Generates legal programs from a seed.
//!
//! A program is a sequence of *transactions*. Each is a sequence of *items*: the calls of some
//! ranks in one phase, such as all posts, or all starts with their operations. Items of
//! transactions on different windows are interleaved, and every rank makes its calls in the order
//! of the items. A call that may block waits only for earlier items or for a lock. So there is no
//! cyclic wait in blocking form under the strongest synchronization, and none in any mix of
//! blocking and nonblocking calls [EP-10]. Programs are divided into eras by barriers, and in each
//! era every window has a [`Regime`] for its locks.
//!
//! Each transaction has its own random numbers. Leaving one out hardly changes the others, which is
//! how failing programs are shrunk.

use std::collections::{BTreeMap, HashMap, VecDeque};

use mpix_rma::engine::*;
use mpix_rma::sim::{Step, WindowSpec};
use mpix_rma::transport::sim::{NS, Time, US};

use super::notifications::Counts;
use super::program::*;
use super::records::Draft;
use super::requests::Pending;
use super::tagged::Tags;

/// The features of a seed's programs, a random selection.
#[derive(Clone, Debug)]
pub struct Features {
    pub fences: bool,
    pub accesses: bool,
    pub locks: bool,
    pub lock_alls: bool,
    pub contention: bool,
    /// Interleave transactions of several windows.
    pub overlap: bool,
    /// Share of blocking calls, in eighths.
    pub blocking: u8,
    pub requests: bool,
    pub flushes: bool,
    pub orders: bool,
    pub frees: bool,
    pub tests: bool,
    pub bulk: bool,
    /// Some transfers are longer than any limit below which a transport copies them.
    pub long_transfers: bool,
    pub asserts: bool,
    pub computes: bool,
    pub late_ranks: bool,
    /// Some eras hold locks across other calls.
    pub long_holds: bool,
    pub notifications: bool,
    pub tags: bool,
    pub records: bool,
    pub duplicates: bool,
}

/// What the next fence of a window means, if its fences learn a pattern [FE-4].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// They do not.
    Never,
    /// No fence has opened an epoch yet.
    Unopened,
    /// The epoch to be learned is open.
    Learning,
    /// The targets of each rank.
    Learned(Vec<Vec<Rank>>),
}

/// How the locks of a window are used in an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// By all ranks, in any mode. A rank that holds one waits only for later locks in the common
    /// order.
    Contended,
    /// Each target is locked by one rank only, which may hold the lock for any time. The value is
    /// the distance from target to that rank.
    Private(u32),
    /// Shared locks and lock_alls only, which may be held for any time.
    Shared,
}

/// Number of handles of a window with duplicates.
const LANES: u32 = 3;

pub type Item = Box<dyn FnOnce(&mut Generator)>;

/// Cells of a rank's window that several ranks use.
pub struct Cells {
    pub constants: Vec<(usize, u64)>,
    pub counter: usize,
    pub ticket: usize,
    pub increment: usize,
    pub twins: [usize; 2],
    pub total: u64,
    pub sums: Vec<(OpId, u64)>,
    pub tickets: Vec<OpId>,
    pub increments: Vec<OpId>,
    pub twins_written: Vec<u64>,
    pub twins_read: Vec<[OpId; 2]>,
    pub election: Option<(usize, Vec<(OpId, u64)>)>,
    /// Per origin: a cell that only it writes, and one that only it accumulates to, with their
    /// current values.
    pub last: BTreeMap<Rank, (usize, u64)>,
    pub sequence: BTreeMap<Rank, (usize, u64)>,
    /// Per origin: memory that only it accumulates to, with any datatypes, and the current words.
    pub block: BTreeMap<Rank, (usize, Vec<u64>)>,
    pub counts: Counts,
    pub tags: Tags,
}

impl Cells {
    /// A compare-and-swap to this value.
    pub fn elects(&mut self, id: OpId, value: u64) {
        self.election.as_mut().expect("the cell exists").1.push((id, value));
    }
}

/// An exposure that is still to be waited for, with the memory to check then.
pub struct Exposure {
    pub sees: Vec<Content>,
}

pub struct Generator {
    pub rng: fastrand::Rng,
    pub features: Features,
    pub reductions: &'static [Reduction],
    pub ranks: u32,
    pub windows: u32,
    pub flags: Vec<ReorderFlags>,
    pub regimes: Vec<Regime>,
    pub patterns: Vec<Pattern>,
    /// By window and rank.
    pub cells: Vec<Vec<Cells>>,
    space: Vec<Vec<usize>>,
    pub exposures: Vec<Vec<Option<Exposure>>>,
    active: Vec<VecDeque<Item>>,
    pub pending: Vec<Pending>,
    /// By record.
    pub drafts: Vec<Draft>,
    /// By rank: windows with a lock, and its target; `None` for a lock_all.
    pub held: Vec<Vec<(u32, Option<Rank>)>>,
    /// By rank and window: the lane of the handle that makes the next calls.
    pub lanes: Vec<Vec<u32>>,
    /// A request was freed, so its completion cannot be observed.
    pub freed: bool,
    values: u64,
    pub program: Program,
}

fn mixed(seed: u64, stream: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(
        seed.wrapping_mul(0xD134_2543_DE82_EF95)
            .wrapping_add(stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
    )
}

/// Fences learn a pattern in one of three windows.
fn patterns(seed: u64, windows: u32) -> Vec<Pattern> {
    let mut rng = mixed(seed, u64::MAX);
    let draw = |_| if rng.u8(0..3) == 0 { Pattern::Unopened } else { Pattern::Never };
    (0..windows).map(draw).collect()
}

/// The program of a seed without the transactions in `skip`. The seed also draws the number of
/// ranks, unless it is given.
pub fn generate(seed: u64, skip: &[u32], ranks: Option<u32>) -> Program {
    let mut generator = Generator::new(seed, ranks);
    let transactions = generator.rng.u32(1..14);
    generator.program.transactions = transactions;
    for number in 0..transactions {
        generator.rng = mixed(seed, u64::from(number) + 2);
        if !skip.contains(&number) {
            generator.slot();
        }
    }
    generator.finish()
}

impl Generator {
    fn new(seed: u64, ranks: Option<u32>) -> Self {
        let mut rng = mixed(seed, 1);
        let drawn = if rng.u8(0..8) == 0 { rng.u32(6..=9) } else { rng.u32(2..=5) };
        let ranks = ranks.unwrap_or(drawn);
        let windows = [1, 1, 2, 2, 3][rng.usize(0..5)];
        let mut on = |of: u8| rng.u8(0..of) > 0;
        let features = Features {
            fences: on(3),
            accesses: on(4),
            locks: on(4),
            lock_alls: on(3),
            contention: on(3),
            overlap: on(4),
            requests: on(2),
            flushes: on(4),
            frees: on(2),
            tests: on(2),
            bulk: on(2),
            long_transfers: mixed(seed, 0).u8(0..12) == 0,
            asserts: on(2),
            computes: on(2),
            late_ranks: on(2),
            long_holds: on(2),
            notifications: on(3),
            tags: on(3),
            orders: on(3),
            records: on(3),
            duplicates: mixed(seed, u64::MAX - 1).u8(0..3) == 0,
            blocking: 0,
        };
        // The completion of a freed request cannot be observed.
        let features = Features { frees: features.frees && !features.long_holds, ..features };
        let features = Features { blocking: [0, 2, 4, 6, 8][rng.usize(0..5)], ..features };
        let flags = (0..windows)
            .map(|_| match rng.u8(0..4) {
                0 => ReorderFlags {
                    access_after_access: rng.bool(),
                    access_after_exposure: rng.bool(),
                    exposure_after_exposure: rng.bool(),
                    exposure_after_access: rng.bool(),
                },
                _ => ReorderFlags::default(),
            })
            .collect();
        let counted = (0..windows).map(|_| features.notifications && rng.u8(0..4) == 0).collect();
        let calls = vec![Vec::new(); ranks as usize];
        let mut generator = Generator {
            rng,
            features,
            reductions: reductions(seed),
            ranks,
            windows,
            flags,
            regimes: Vec::new(),
            patterns: patterns(seed, windows),
            cells: Vec::new(),
            space: vec![vec![0; ranks as usize]; windows as usize],
            exposures: (0..windows).map(|_| (0..ranks).map(|_| None).collect()).collect(),
            active: (0..windows).map(|_| VecDeque::new()).collect(),
            pending: (0..ranks).map(|_| Pending::default()).collect(),
            drafts: Vec::new(),
            held: vec![Vec::new(); ranks as usize],
            lanes: vec![vec![0; windows as usize]; ranks as usize],
            freed: false,
            values: 0,
            program: Program {
                ranks,
                windows: Vec::new(),
                counted,
                calls,
                records: Vec::new(),
                plans: Vec::new(),
                sides: Vec::new(),
                words: Vec::new(),
                regions: Vec::new(),
                begin: Vec::new(),
                end: Vec::new(),
                counts: Vec::new(),
                announced: HashMap::new(),
                groups: Vec::new(),
                coverage: BTreeMap::new(),
                transactions: 0,
            },
        };
        for window in 0..windows {
            let cells = (0..ranks).map(|rank| generator.new_cells(window, rank)).collect();
            generator.cells.push(cells);
        }
        generator.choose_regimes();
        for me in 0..ranks {
            if generator.features.late_ranks && generator.one_in(3) {
                let time = generator.rng.u64(0..300) * US;
                generator.step(me, Step::Compute(time));
            }
        }
        generator
    }

    fn new_cells(&mut self, window: u32, rank: Rank) -> Cells {
        let mut cell = || self.alloc(window, rank, 8);
        let (constants, rest) = ([cell(), cell()], [cell(), cell(), cell(), cell(), cell()]);
        let constants: Vec<_> = (0..)
            .zip(constants)
            .map(|(i, disp)| (disp, 1_000_000 * (u64::from(rank) + 1) + i))
            .collect();
        for &(disp, value) in &constants {
            self.program.begin.push(Content { window, rank, disp, len: 8, value });
        }
        let [counter, ticket, increment, one, other] = rest;
        Cells {
            constants,
            counter,
            ticket,
            increment,
            twins: [one, other],
            total: 0,
            sums: Vec::new(),
            tickets: Vec::new(),
            increments: Vec::new(),
            twins_written: Vec::new(),
            twins_read: Vec::new(),
            election: None,
            last: BTreeMap::new(),
            sequence: BTreeMap::new(),
            block: BTreeMap::new(),
            counts: Counts::new(),
            tags: Tags::new(self.rng.bool()),
        }
    }

    // ---- helpers ----

    pub fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    pub fn any_rank(&mut self) -> Rank {
        self.rng.u32(0..self.ranks)
    }

    pub fn any_mode(&mut self) -> LockMode {
        if self.rng.bool() { LockMode::Shared } else { LockMode::Exclusive }
    }

    /// At least one rank, in random order.
    pub fn any_group(&mut self) -> Vec<Rank> {
        let mut all: Vec<Rank> = (0..self.ranks).collect();
        self.rng.shuffle(&mut all);
        all.truncate(self.rng.usize(1..=self.ranks as usize));
        all
    }

    pub fn value(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    /// Memory of a rank's window for one use.
    pub fn alloc(&mut self, window: u32, rank: Rank, len: usize) -> usize {
        let next = &mut self.space[window as usize][rank as usize];
        let disp = *next;
        *next += len.next_multiple_of(8);
        disp
    }

    pub fn cells(&mut self, window: u32, rank: Rank) -> &mut Cells {
        &mut self.cells[window as usize][rank as usize]
    }

    /// Under a reorder flag, epochs may take effect in any order, so the program must not use a
    /// cell in two of them.
    pub fn ordered(&self, window: u32) -> bool {
        self.flags[window as usize] == ReorderFlags::default()
    }

    pub fn count(&mut self, what: &'static str) {
        *self.program.coverage.entry(what).or_insert(0) += 1;
    }

    pub fn call(&mut self, me: Rank, call: Call) {
        self.program.calls[me as usize].push(call);
    }

    pub fn step(&mut self, me: Rank, step: Step) {
        let held = &mut self.held[me as usize];
        match step {
            Step::Lock { window, target, .. } => held.push((window, Some(target))),
            Step::LockAll { window, .. } => held.push((window, None)),
            Step::Unlock { window, target, .. } => held.retain(|at| *at != (window, Some(target))),
            Step::UnlockAll { window, .. } => held.retain(|at| *at != (window, None)),
            _ => {}
        }
        self.call(me, Call::Step(step));
    }

    /// The next calls of a rank on a window are made on the handle with this lane [DU-1].
    pub fn on_lane(&mut self, window: u32, me: Rank, lane: u32) {
        let current = &mut self.lanes[me as usize][window as usize];
        if std::mem::replace(current, lane) != lane {
            self.step(me, Step::SelectLane { window, lane });
            self.count("calls on another handle");
        }
    }

    /// As [`on_lane`](Self::on_lane), with any lane. Its completion and order are its own [DU-2].
    pub fn on_any_lane(&mut self, window: u32, me: Rank) {
        if self.features.duplicates && self.one_in(2) {
            let lane = self.rng.u32(0..LANES);
            self.on_lane(window, me, lane);
        }
    }

    /// Bytes of a transfer.
    pub fn length(&mut self) -> usize {
        if !self.features.bulk || !self.one_in(3) {
            return self.rng.usize(1..40);
        }
        let most = if self.features.long_transfers && self.one_in(4) { 300_000 } else { 6000 };
        self.rng.usize(1..most)
    }

    pub fn plan(&mut self, plan: Plan) -> OpId {
        self.program.plans.push(plan);
        self.program.plans.len() - 1
    }

    // ---- pauses ----

    /// Between two items a rank may compute or wait for requests.
    fn pause(&mut self, me: Rank) {
        if self.one_in(4) {
            self.settle(me);
        }
        if self.one_in(2) {
            self.listen(me);
        }
        for _ in 0..self.rng.u32(0..3) {
            self.expecting(me);
        }
        self.maybe_compute(me);
    }

    pub fn maybe_compute(&mut self, me: Rank) {
        if self.features.computes && self.one_in(8) {
            let time: Time = [100 * NS, US, 10 * US, 100 * US][self.rng.usize(0..4)];
            let time = self.rng.u64(0..=time);
            self.step(me, Step::Compute(time));
        }
    }

    // ---- exposures ----

    /// Waits for an open exposure before a call that it must not overlap.
    pub fn end_exposure(&mut self, window: u32, me: Rank) {
        let Some(exposure) = self.exposures[window as usize][me as usize].take() else { return };
        if self.features.tests && self.one_in(4) {
            self.count("Win_test loop");
            self.call(me, Call::TestLoop(window));
        } else {
            let blocks = self.blocks();
            if !self.closing(me, blocks, &[], |how| Step::Wait { window, how }) {
                return;
            }
        }
        exposure.sees.into_iter().for_each(|content| self.call(me, Call::Check(content)));
    }

    // ---- interleaving of transactions ----

    /// Starts a transaction, then makes some of the pending items.
    fn slot(&mut self) {
        if self.one_in(6) {
            self.new_era();
        }
        let window = self.rng.u32(0..self.windows);
        self.drain(window);
        let items = self.transaction(window);
        self.active[window as usize].extend(items);
        if !self.features.overlap {
            return self.drain(window);
        }
        while self.one_in(3) {
            let window = self.rng.u32(0..self.windows);
            self.next_item(window);
        }
        let under_way: usize = self.active.iter().map(VecDeque::len).sum();
        for _ in 0..self.rng.usize(0..=under_way) {
            let window = self.rng.u32(0..self.windows);
            self.next_item(window);
        }
        if self.active.iter().filter(|items| !items.is_empty()).count() > 1 {
            self.count("overlap of windows");
        }
    }

    fn next_item(&mut self, window: u32) -> bool {
        let Some(item) = self.active[window as usize].pop_front() else { return false };
        item(self);
        let me = self.any_rank();
        self.pause(me);
        true
    }

    /// Makes the next item of a transaction.
    pub fn first(&mut self, window: u32, item: Item) {
        self.active[window as usize].push_front(item);
    }

    pub fn drain(&mut self, window: u32) {
        while self.next_item(window) {}
    }

    pub fn is_active(&self, window: u32) -> bool {
        !self.active[window as usize].is_empty()
    }

    fn choose_regimes(&mut self) {
        self.regimes = (0..self.windows)
            .map(|_| match self.rng.u8(0..6) {
                0 | 1 if self.features.long_holds => Regime::Private(self.rng.u32(0..self.ranks)),
                2 if self.features.long_holds => Regime::Shared,
                _ => Regime::Contended,
            })
            .collect();
    }

    /// A barrier of all ranks, which starts a new era.
    fn new_era(&mut self) {
        for window in 0..self.windows {
            self.drain(window);
        }
        // A barrier does not order a lock that was closed and not waited for. In an era with other
        // uses of locks, it could wait for a lock that is held for long, and a `NOCHECK` lock could
        // conflict with it.
        let all = self.features.long_holds || self.one_in(2);
        self.meet(all);
        self.choose_regimes();
        self.count("era");
    }

    fn meet(&mut self, all: bool) {
        for me in 0..self.ranks {
            if all {
                (0..self.windows).for_each(|window| self.end_exposure(window, me));
            }
        }
        for me in 0..self.ranks {
            if all {
                self.settle_all(me);
            }
            self.step(me, Step::Barrier);
        }
    }

    fn finish(mut self) -> Program {
        for window in 0..self.windows {
            self.drain(window);
            for me in 0..self.ranks {
                self.end_exposure(window, me);
            }
        }
        if self.hungers() {
            // The next era may use locks in any way.
            self.meet(true);
            self.feed();
        }
        for window in 0..self.windows {
            for me in 0..self.ranks {
                self.hear_rest(window, me);
                self.hear_rest_of_tags(window, me);
            }
        }
        for me in 0..self.ranks {
            if self.one_in(2) {
                self.settle_all(me);
            }
            self.settle_starts(me);
        }
        for window in 0..self.windows {
            for rank in 0..self.ranks {
                self.conclude(window, rank);
            }
            let bytes = self.space[window as usize].iter().copied().max().unwrap_or(0);
            let (flags, pattern) = (self.flags[window as usize], &self.patterns[window as usize]);
            let pattern_fences = *pattern != Pattern::Never;
            self.program.windows.push(WindowSpec { bytes, flags, pattern_fences });
        }
        self.program
    }

    /// Expected content of the shared cells at the end.
    fn conclude(&mut self, window: u32, rank: Rank) {
        for (disp, words) in self.cells(window, rank).block.values().cloned().collect::<Vec<_>>() {
            self.block_ends(window, rank, disp, &words);
        }
        self.conclude_counts(window, rank);
        self.conclude_tags(window, rank);
        let content = |disp, value| Content { window, rank, disp, len: 8, value };
        let cells = &self.cells[window as usize][rank as usize];
        let program = &mut self.program;
        program.end.extend(cells.constants.iter().map(|&(disp, value)| content(disp, value)));
        program.end.extend(
            cells
                .last
                .values()
                .chain(cells.sequence.values())
                .map(|&(disp, value)| content(disp, value)),
        );
        program.end.push(content(cells.counter, cells.total));
        program.end.push(content(cells.ticket, cells.tickets.len() as u64));
        program.end.push(content(cells.increment, cells.increments.len() as u64));
        program.groups.push(Group::Permutation(cells.tickets.clone()));
        program.groups.push(Group::Permutation(cells.increments.clone()));
        program.groups.push(Group::Sums { fetches: cells.sums.clone(), total: cells.total });
        let twins = cells.twins.map(|disp| content(disp, 0));
        program.groups.push(Group::Twins {
            cells: twins,
            written: cells.twins_written.clone(),
            reads: cells.twins_read.clone(),
        });
        // A record of which every start was refused has no compare-and-swaps.
        if let Some((disp, ops)) = cells.election.as_ref().filter(|(_, ops)| !ops.is_empty()) {
            program.groups.push(Group::Election { cell: content(*disp, 0), ops: ops.clone() });
        }
    }
}
