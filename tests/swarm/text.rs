//! Programs as text, which `tests/random/executor.c` runs on real ranks. One item per line, words
//! separated by spaces; displacements and lengths are in bytes.
//!
//! | line | meaning |
//! |---|---|
//! | `program SEED RANKS` | begins a program; `done` ends it |
//! | `window KIND UNIT FAST FLAGS BYTES COUNTER PATTERN` | a window; displacement unit, fast path on or off, reorder flags (`tfft`), the counter that its operations raise, or -1, and whether fences learn a pattern |
//! | `counters WINDOW RANK NUMBER` | notification counters of a rank |
//! | `begin WINDOW RANK DISP LEN VALUE` | initial memory: the bytes of a value (`bytes_of`) |
//! | `type CONSTRUCTOR ...` | a datatype, which may use earlier ones by number; `side` counts items of it |
//! | `side TYPE COUNT EXTENT BEFORE SPAN DISP ...` | one side of an operation, with the displacement of each word |
//! | `op KIND WINDOW TARGET DISP LEN REDUCTION SOURCE VALUE COMPARE NOTIFY NUMBER SINGLE ORIGIN RESULT TARGET` | an operation; the last three are sides or -1 |
//! | `call RANK NAME ARGUMENT ...` | the next call of a rank; a request slot of -1 means the blocking form |
//! | `call RANK record WINDOW NUMBER` | begins a persistent epoch, which `record_end` ends; the calls between them are recorded |
//! | `call RANK handle WINDOW LANE` | its next calls on the window use the handle with this number, 0 for the original |
//! | `call RANK restart NUMBER SLOT OP ...` | starts it, with the data of these operations |
//! | `call RANK restart_refused NUMBER` | a start that must be refused |
//! | `call RANK collect NUMBER OP ...` | the start of these operations is complete |
//! | `call RANK wrong WINDOW NAME CLASS BLOCKING TARGET` | a call with an error of this class |
//! | `fetch OP WORD ...` | the words that an operation must fetch |
//! | `end WINDOW RANK DISP LEN VALUE`, `region WINDOW RANK DISP HEX` | expected memory at the end |
//! | `count WINDOW RANK COUNTER NUMBER` | notifications in total |
//! | `sent WINDOW RANK SOURCE TAG` | a tagged notification, in the order of its source's calls |
//! | `left WINDOW RANK SOURCE TAG`, `predicted WINDOW RANK` | what no expectation takes, where that is known |
//! | `announced WINDOW RANK SOURCE TAG DISP LEN VALUE` | memory announced by a tag |
//! | `cell WINDOW RANK DISP` | a word of memory at the end, numbered after the operations |
//! | `permutation ID ...`, `sums TOTAL (ID VALUE) ...`, `election CELL (ID VALUE) ...`, `twins COUNT VALUE ... (ID ID) ...` | the groups of `program::Group` |
//!
//! What MPI leaves open is drawn here: the kinds of the windows, the form of opening calls, and how
//! a rank waits for several requests.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::rc::Rc;

use mpix_rma::engine::*;
use mpix_rma::sim::{Group as Ranks, How, Slot, Step};
use mpix_rma::transport::datatype::element::reduction;
use mpix_rma::transport::sim::NS;

use super::checks::tags::{Prediction, predict};
use super::notifications::PUTS;
use super::program::*;
use super::wrong::Epochs;

const KINDS: [&str; 6] = ["allocate", "allocate", "shared", "create", "create", "dynamic"];

struct Writer<'a> {
    program: &'a Program,
    rng: fastrand::Rng,
    text: String,
    types: usize,
    sides: usize,
    cells: usize,
    /// Slots of the current rank with a request that must not be freed: of an R-form (MPI-4.1
    /// section 12.3.5), or of a wait for counters.
    kept: HashSet<Slot>,
    /// Open epochs of the current rank, and whether the window is dynamic, by window.
    epochs: Vec<Epochs>,
    dynamic: Vec<bool>,
    /// Share of calls with an error in front of them, one in this many.
    wrong: u32,
    /// Predicted matching, by window and rank.
    matching: BTreeMap<(u32, Rank), Prediction>,
    /// Expectations of the current rank: the start that a slot belongs to, and starts per window.
    started: BTreeMap<(u32, Slot), usize>,
    starts: BTreeMap<u32, usize>,
}

/// Writes a line of words.
macro_rules! line {
    ($writer:expr, $($word:tt)*) => {
        writeln!($writer.text, $($word)*).expect("memory suffices")
    };
}

fn slot_of(how: How) -> i64 {
    match how {
        How::Blocking => -1,
        How::Slot(slot) => slot.into(),
    }
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
}

fn pairs(ops: &[(OpId, u64)]) -> String {
    list(ops.iter().map(|(id, value)| format!("{id} {value}")))
}

/// The window of a call that opens or closes an epoch.
fn window_of(step: &Step) -> Option<u32> {
    match step {
        Step::Start { window, .. }
        | Step::Complete { window, .. }
        | Step::Post { window, .. }
        | Step::Wait { window, .. }
        | Step::Lock { window, .. }
        | Step::Unlock { window, .. }
        | Step::LockAll { window, .. }
        | Step::UnlockAll { window, .. }
        | Step::Fence { window, .. } => Some(*window),
        _ => None,
    }
}

fn name_of(reduction: Reduction) -> &'static str {
    match reduction {
        reduction::REPLACE => "replace",
        reduction::SUM => "sum",
        reduction::PROD => "prod",
        reduction::MIN => "min",
        reduction::MAX => "max",
        reduction::LAND => "land",
        reduction::LOR => "lor",
        reduction::LXOR => "lxor",
        reduction::BAND => "band",
        reduction::BOR => "bor",
        reduction::BXOR => "bxor",
        reduction::NO_OP => "no_op",
        other => unreachable!("not generated: {other:?}"),
    }
}

/// The program as text.
pub fn text_of(seed: u64, program: &Program) -> String {
    let windows = program.windows.len() as u32;
    let all = (0..windows).flat_map(|window| (0..program.ranks).map(move |rank| (window, rank)));
    let mut writer = Writer {
        program,
        rng: fastrand::Rng::with_seed(seed ^ 0x7465_7874),
        text: String::new(),
        types: 0,
        sides: 0,
        cells: program.plans.len(),
        kept: HashSet::new(),
        epochs: Vec::new(),
        dynamic: Vec::new(),
        wrong: 0,
        matching: all
            .map(|(window, rank)| ((window, rank), predict(program, window, rank)))
            .collect(),
        started: BTreeMap::new(),
        starts: BTreeMap::new(),
    };
    line!(writer, "program {seed} {}", program.ranks);
    writer.wrong = [0, 0, 10, 40][writer.rng.usize(0..4)];
    writer.windows();
    writer.operations();
    for rank in 0..program.ranks {
        writer.calls(rank);
    }
    writer.outcome();
    line!(writer, "done");
    writer.text
}

impl Writer<'_> {
    fn windows(&mut self) {
        for (spec, counted) in self.program.windows.iter().zip(&self.program.counted) {
            let kind = KINDS[self.rng.usize(0..KINDS.len())];
            self.dynamic.push(kind == "dynamic");
            let unit = if kind == "dynamic" || self.rng.bool() { 1 } else { WORD };
            let fast = self.rng.u8(0..4) > 0;
            let ReorderFlags {
                access_after_access,
                access_after_exposure,
                exposure_after_exposure,
                exposure_after_access,
            } = spec.flags;
            let flags: String = [
                access_after_access,
                access_after_exposure,
                exposure_after_exposure,
                exposure_after_access,
            ]
            .map(|on| if on { 't' } else { 'f' })
            .iter()
            .collect();
            let (fast, bytes, pattern) =
                (u8::from(fast), spec.bytes, u8::from(spec.pattern_fences));
            let counter = if *counted { i64::from(PUTS) } else { -1 };
            line!(self, "window {kind} {unit} {fast} {flags} {bytes} {counter} {pattern}");
        }
        let mut counters: BTreeMap<(u32, Rank), u32> = BTreeMap::new();
        for count in &self.program.counts {
            let most = counters.entry((count.window, count.rank)).or_default();
            *most = (*most).max(count.counter + 1);
        }
        for ((window, rank), number) in counters {
            line!(self, "counters {window} {rank} {number}");
        }
        for content in &self.program.begin {
            self.content("begin", content);
        }
    }

    fn content(&mut self, what: &str, content: &Content) {
        let Content { window, rank, disp, len, value } = content;
        line!(self, "{what} {window} {rank} {disp} {len} {value}");
    }

    /// Writes a datatype, innermost first. Returns its number.
    fn datatype(&mut self, datatype: &Datatype) -> usize {
        match datatype {
            Datatype::Word => line!(self, "type word"),
            Datatype::Contiguous { count, of } => {
                let of = self.datatype(of);
                line!(self, "type contiguous {of} {count}");
            }
            Datatype::Hvector { count, block, stride, of } => {
                let of = self.datatype(of);
                line!(self, "type hvector {of} {count} {block} {stride}");
            }
            Datatype::Hindexed { blocks, of } => {
                let of = self.datatype(of);
                let blocks =
                    list(blocks.iter().map(|block| format!("{} {}", block.count, block.at)));
                line!(self, "type hindexed {of} {blocks}");
            }
            Datatype::Struct { members: [(at, of), (other_at, other)] } => {
                let (of, other) = (self.datatype(of), self.datatype(other));
                line!(self, "type struct {of} {at} {other} {other_at}");
            }
            Datatype::Resized { lower, extent, of } => {
                let of = self.datatype(of);
                line!(self, "type resized {of} {lower} {extent}");
            }
        }
        self.types += 1;
        self.types - 1
    }

    fn side(&mut self, places: &Places) -> usize {
        let datatype = self.datatype(&places.items.0);
        let (count, before, span) = (places.items.1, places.before, places.span);
        let extent = places.side.layout().map_or(WORD as i64, |(layout, _)| layout.extent());
        let words = list(&places.words);
        line!(self, "side {datatype} {count} {extent} {before} {span} {words}");
        self.sides += 1;
        self.sides - 1
    }

    fn operations(&mut self) {
        for (id, plan) in self.program.plans.iter().enumerate() {
            let Plan { window, target, disp, len, compare, .. } = plan;
            let mut sides = [-1; 3];
            if let Some(which) = plan.sides {
                let known = Rc::clone(&self.program.sides[which as usize]);
                sides = [&known.origin, &known.result, &known.target]
                    .map(|places| self.side(places) as i64);
            }
            let kind = match plan.kind {
                OpKind::Put if *len == 0 => "notify",
                OpKind::Put => "put",
                OpKind::Get => "get",
                OpKind::Accumulate => "accumulate",
                OpKind::GetAccumulate => "get_accumulate",
                OpKind::CompareAndSwap => "compare_and_swap",
            };
            let (source, value) = match plan.source {
                Source::Nothing => ("none", 0),
                Source::Value(value) => ("value", value),
                Source::OneMoreThan(get) => ("one_more_than", get as u64),
            };
            let (notify, number) = match plan.notification.map(Notification::kind) {
                // The window adds it.
                None | Some(NotificationKind::Counter(PUTS)) => ("none", 0),
                Some(NotificationKind::Counter(number)) => ("counter", number),
                Some(NotificationKind::Tag(number)) => ("tag", number),
            };
            line!(
                self,
                "op {kind} {window} {target} {disp} {len} {} {source} {value} {compare} {notify} \
                 {number} {} {}",
                name_of(plan.reduction),
                self.rng.u8(0..2),
                list(sides)
            );
            match plan.expect {
                Expect::Open => {}
                Expect::Exactly(word) => line!(self, "fetch {id} {word}"),
                Expect::Words(which) => {
                    line!(self, "fetch {id} {}", list(&self.program.words[which as usize]));
                }
            }
        }
    }

    fn calls(&mut self, rank: Rank) {
        (self.kept, self.started, self.starts) = Default::default();
        self.epochs = self.dynamic.iter().map(|_| Epochs::default()).collect();
        let program = self.program;
        for call in &program.calls[rank as usize] {
            if let Call::Step(Step::SelectLane { window, .. }) = call {
                self.epochs[*window as usize].has_duplicates = true;
            }
        }
        for call in &program.calls[rank as usize] {
            if let Call::Record(record) = call {
                self.record(rank, *record);
                continue;
            }
            if self.wrong > 0 && self.rng.u32(0..self.wrong) == 0 {
                self.wrong_call(rank);
            }
            let text = match call {
                Call::Step(step) => self.step(rank, step),
                Call::Op(id) => format!("op {id}"),
                Call::Request(id, slot) => {
                    self.kept.insert(*slot);
                    format!("request {id} {slot}")
                }
                Call::TestLoop(window) => {
                    self.epochs[*window as usize].exposure_ended();
                    format!("win_test {window}")
                }
                Call::TestSlotLoop(slot) => {
                    self.kept.remove(slot);
                    format!("test {slot} {}", self.rng.u8(0..2))
                }
                Call::Scribble(ids) => format!("scribble {}", list(ids)),
                Call::Check(Content { window, disp, len, value, .. }) => {
                    format!("check {window} {disp} {len} {value}")
                }
                Call::Store(Content { window, disp, len, value, .. }) => {
                    format!("store {window} {disp} {len} {value}")
                }
                Call::TestExpectationLoop { window, slot } => self.met(rank, *window, *slot, true),
                Call::CheckAnnounced(window) => format!("check_announced {window}"),
                Call::TakeLoop { window, counter, until } => {
                    format!("take {window} {counter} {until}")
                }
                Call::Restart { record, ids, slot } => {
                    self.restarted(*record, *slot);
                    format!("restart {record} {slot} {}", list(ids))
                }
                Call::RestartRefused(record) => format!("restart_refused {record}"),
                Call::Collect { record, ids } => format!("collect {record} {}", list(ids)),
                Call::Record(_) => unreachable!("written above"),
            };
            line!(self, "call {rank} {text}");
        }
        let last = self.await_all();
        line!(self, "call {rank} {last}");
        // The fence follows all earlier epochs, including those whose request was freed.
        let freed = |call: &Call| matches!(call, Call::Step(Step::Free(_)));
        if program.calls.iter().flatten().any(freed) {
            for window in 0..program.windows.len() {
                line!(self, "call {rank} fence {window} 0 1 -1");
            }
        }
        line!(self, "call {rank} barrier");
    }

    /// Writes the calls of a record. Opening calls have any form, closing calls the blocking one.
    fn record(&mut self, rank: Rank, number: RecordId) {
        let program = self.program;
        let Record { window, calls, .. } = &program.records[number];
        line!(self, "call {rank} record {window} {number}");
        for call in calls {
            let text = match call {
                RecordedCall::Op(id) => format!("op {id}"),
                RecordedCall::Sync(call) => self.recorded(*window, call),
            };
            line!(self, "call {rank} {text}");
        }
        line!(self, "call {rank} record_end {window} {number}");
    }

    fn recorded(&mut self, window: u32, call: &SyncCall) -> String {
        let form = self.rng.u8(0..4);
        match call {
            SyncCall::Post(ranks) => format!("post {window} {form} {}", list(ranks)),
            SyncCall::Start(ranks) => format!("start {window} {form} {}", list(ranks)),
            SyncCall::Wait => format!("wait {window} -1"),
            SyncCall::Complete => format!("complete {window} -1"),
            SyncCall::Fence(Assert { noprecede, nosucceed, .. }) => {
                format!("fence {window} {} {} -1", u8::from(*noprecede), u8::from(*nosucceed))
            }
            SyncCall::Lock(mode, target, assert) => {
                let exclusive = u8::from(*mode == LockMode::Exclusive);
                format!("lock {window} {form} {target} {exclusive} {}", u8::from(assert.nocheck))
            }
            SyncCall::Unlock(target) => format!("unlock {window} {target} -1"),
            SyncCall::LockAll(assert) => {
                format!("lock_all {window} {form} {}", u8::from(assert.nocheck))
            }
            SyncCall::UnlockAll => format!("unlock_all {window} -1"),
        }
    }

    /// A start of a record, whose request must not be freed.
    fn restarted(&mut self, record: RecordId, slot: Slot) {
        self.kept.insert(slot);
        let Record { window, calls, .. } = &self.program.records[record];
        let has_fence =
            calls.iter().any(|call| matches!(call, RecordedCall::Sync(SyncCall::Fence(_))));
        if has_fence {
            let (window, how) = (*window, How::Slot(slot));
            let fence = Step::Fence { window, assert: Assert::default(), how };
            self.epochs[window as usize].called(&fence);
        }
    }

    /// A wait for all requests, in one of six ways, alone or with requests of the host.
    fn await_all(&mut self) -> String {
        format!("await_all {} {}", self.rng.u8(0..6), self.rng.u8(0..2))
    }

    fn wrong_call(&mut self, rank: Rank) {
        let window = self.rng.usize(0..self.epochs.len());
        let target = self.rng.u32(0..self.program.ranks);
        let dynamic = self.dynamic[window];
        let (name, class) = self.epochs[window].wrong(&mut self.rng, target, dynamic);
        let blocks = self.rng.u8(0..2);
        line!(self, "call {rank} wrong {window} {name} {class} {blocks} {target}");
    }

    /// A wait for an expectation, with the notification that meets it if that is known.
    fn met(&mut self, rank: Rank, window: u32, slot: Slot, tests: bool) -> String {
        let which = self.started[&(window, slot)];
        let known = self.matching[&(window, rank)].as_ref();
        let (source, tag) = known.map_or((-1, -1), |(last, _)| {
            let Arrival { source, tag } = last[which].expect("what is waited for is met");
            (i64::from(source), i64::from(tag))
        });
        format!("await_expectation {window} {slot} {} {source} {tag}", u8::from(tests))
    }

    fn step(&mut self, rank: Rank, step: &Step) -> String {
        let form = |rng: &mut fastrand::Rng| rng.u8(0..4);
        let wanted = |Wanted { source, tag }: Wanted| {
            let number = |known: Option<u32>| known.map_or(-1, i64::from);
            format!("{} {}", number(source), number(tag))
        };
        if let Some(window) = window_of(step) {
            self.epochs[window as usize].called(step);
        }
        match step {
            Step::Post { window, group: Ranks::List(ranks) } => {
                format!("post {window} {} {}", form(&mut self.rng), list(ranks))
            }
            Step::Start { window, group: Ranks::List(ranks) } => {
                format!("start {window} {} {}", form(&mut self.rng), list(ranks))
            }
            Step::Complete { window, how } => format!("complete {window} {}", slot_of(*how)),
            Step::Wait { window, how } => format!("wait {window} {}", slot_of(*how)),
            Step::IssueUnlearned { window, target } => {
                format!("wrong {window} put rma_sync {} {target}", self.rng.u8(0..2))
            }
            Step::Fence { window, assert, how } => {
                let Assert { noprecede, nosucceed, .. } = assert;
                let (noprecede, nosucceed) = (u8::from(*noprecede), u8::from(*nosucceed));
                format!("fence {window} {noprecede} {nosucceed} {}", slot_of(*how))
            }
            Step::Lock { window, mode, target, assert, blocking } => {
                let exclusive = u8::from(*mode == LockMode::Exclusive);
                let form = if *blocking { 0 } else { self.rng.u8(1..4) };
                format!("lock {window} {form} {target} {exclusive} {}", u8::from(assert.nocheck))
            }
            Step::LockAll { window, assert, blocking } => {
                let form = if *blocking { 0 } else { self.rng.u8(1..4) };
                format!("lock_all {window} {form} {}", u8::from(assert.nocheck))
            }
            Step::Unlock { window, target, how } => {
                format!("unlock {window} {target} {}", slot_of(*how))
            }
            Step::UnlockAll { window, how } => format!("unlock_all {window} {}", slot_of(*how)),
            Step::Flush { window, target, local, how } => {
                let target = target.map_or(-1, i64::from);
                format!("flush {window} {target} {} {}", u8::from(*local), slot_of(*how))
            }
            Step::FlushWins { windows, target, how } => {
                let target = target.map_or(-1, i64::from);
                format!("flush_wins {target} {} {}", slot_of(*how), list(windows))
            }
            Step::SelectLane { window, lane } => format!("handle {window} {lane}"),
            Step::Order { window, target } => {
                format!("order {window} {}", target.map_or(-1, i64::from))
            }
            Step::AwaitCounters { window, first, number, expected, how } => {
                if let How::Slot(slot) = how {
                    self.kept.insert(*slot);
                }
                format!("await_counters {window} {first} {number} {expected} {}", slot_of(*how))
            }
            Step::Expect { window, wanted: filter, expected, slot } => {
                format!("expect {window} {slot} {expected} {}", wanted(*filter))
            }
            Step::StartExpecting { window, slot } => {
                let starts = self.starts.entry(*window).or_default();
                self.started.insert((*window, *slot), *starts);
                *starts += 1;
                format!("start_expecting {window} {slot}")
            }
            Step::AwaitExpectation { window, slot } => self.met(rank, *window, *slot, false),
            Step::Abandon { slot, .. } => format!("abandon {slot}"),
            Step::Probe { window, wanted: filter } => {
                format!("probe {window} {}", wanted(*filter))
            }
            Step::Await(slot) => {
                self.kept.remove(slot);
                format!("await {slot}")
            }
            Step::AwaitAll => {
                self.kept.clear();
                self.await_all()
            }
            Step::Free(slot) if self.kept.remove(slot) => format!("await {slot}"),
            Step::Free(slot) => format!("free {slot}"),
            Step::Compute(time) => format!("compute {}", time / NS),
            Step::Barrier => "barrier".to_owned(),
            other => unreachable!("not generated: {other:?}"),
        }
    }

    fn outcome(&mut self) {
        let program = self.program;
        for content in &program.end {
            self.content("end", content);
        }
        for Region { window, rank, disp, bytes } in &program.regions {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            line!(self, "region {window} {rank} {disp} {hex}");
        }
        for Count { window, rank, counter, raised } in &program.counts {
            line!(self, "count {window} {rank} {counter} {raised}");
        }
        for (source, calls) in program.calls.iter().enumerate() {
            for id in calls.iter().flat_map(Call::ops) {
                if let Plan { notification: Some(told), window, target, .. } = program.plans[*id]
                    && let NotificationKind::Tag(tag) = told.kind()
                {
                    line!(self, "sent {window} {target} {source} {tag}");
                }
            }
        }
        let announced: BTreeMap<_, _> = program.announced.iter().collect();
        for ((window, rank, source, tag), Content { disp, len, value, .. }) in announced {
            line!(self, "announced {window} {rank} {source} {tag} {disp} {len} {value}");
        }
        for ((window, rank), prediction) in std::mem::take(&mut self.matching) {
            let Some((_, left)) = prediction else { continue };
            line!(self, "predicted {window} {rank}");
            for Arrival { source, tag } in left {
                line!(self, "left {window} {rank} {source} {tag}");
            }
        }
        program.groups.iter().for_each(|group| self.group(group));
    }

    fn cell(&mut self, content: &Content) -> usize {
        line!(self, "cell {} {} {}", content.window, content.rank, content.disp);
        self.cells += 1;
        self.cells - 1
    }

    fn group(&mut self, group: &Group) {
        match group {
            Group::Permutation(ops) => line!(self, "permutation {}", list(ops)),
            Group::Sums { fetches, total } => line!(self, "sums {total} {}", pairs(fetches)),
            Group::Election { cell, ops } => {
                let cell = self.cell(cell);
                line!(self, "election {cell} {}", pairs(ops));
            }
            Group::Twins { cells, written, reads } => {
                let [one, other] = cells.each_ref().map(|content| self.cell(content));
                let reads = list(reads.iter().map(|[one, other]| format!("{one} {other}")));
                line!(self, "twins {} {} {one} {other} {reads}", written.len(), list(written));
            }
        }
    }
}
