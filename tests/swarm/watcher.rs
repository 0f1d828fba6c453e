//! Observes a running world and passes events to the rules.

use std::collections::HashMap;

use mpix_rma::engine::*;
use mpix_rma::sim::{Group, Slot, Step, Watch};
use mpix_rma::transport::sim::{EventKind, Network, Time};

use super::checks::tags::Tags;
use super::rules::{Kind, Meaning, Model, OpId};

/// The meaning of the call that a rank makes.
enum Called {
    Nothing,
    Request(Meaning),
    /// A test, which closes the exposure if it is true.
    Test,
}

/// The rules of every window, and the state of requests.
pub struct Watcher {
    ranks: u32,
    models: Vec<Model>,
    called: Vec<Called>,
    alive: HashMap<(Rank, u32, RequestId), Meaning>,
    /// Posted operations, by rank and buffers.
    posted: HashMap<(Rank, usize, usize), OpId>,
    /// Notifications taken by resets, by rank, window and counter.
    bases: HashMap<(Rank, u32, u32), u64>,
    /// The reference matching of tagged notifications.
    pub tags: Tags,
    /// Flushes that completed in the current engine call.
    flushed: Vec<(Rank, u32, Vec<usize>)>,
    /// The last events, if a trace is wanted.
    pub trace: Option<Vec<String>>,
}

/// Identifies an operation: no two operations of a rank share their buffers.
fn buffers(rank: Rank, op: &Op) -> (Rank, usize, usize) {
    (rank, op.origin.0, op.result.0)
}

impl Watcher {
    pub fn new(ranks: u32, flags: impl Iterator<Item = ReorderFlags> + Clone) -> Self {
        let model = |flags| {
            let mut model = Model::new(ranks, vec![flags; ranks as usize]);
            model.signals_follow = true;
            model
        };
        Watcher {
            ranks,
            tags: Tags::new(ranks, flags.clone()),
            models: flags.map(model).collect(),
            called: (0..ranks).map(|_| Called::Nothing).collect(),
            alive: HashMap::new(),
            posted: HashMap::new(),
            bases: HashMap::new(),
            flushed: Vec::new(),
            trace: None,
        }
    }

    fn model(&mut self, window: u32) -> &mut Model {
        &mut self.models[window as usize]
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(text());
        }
    }

    fn group(&self, me: Rank, group: &Group) -> Vec<Rank> {
        match group {
            Group::One(other) => vec![*other],
            Group::Others => (0..self.ranks).filter(|other| *other != me).collect(),
            Group::List(list) => list.clone(),
        }
    }

    /// Passes the events since the last call to the rules.
    fn look(&mut self, net: &mut Network) {
        while let Some(event) = net.next_event() {
            self.note(|| {
                format!(
                    "{:>12} rank {} window {}: {:?}",
                    event.at, event.by, event.window, event.kind
                )
            });
            let (at, by) = (event.at, event.by);
            let model = &mut self.models[event.window as usize];
            match event.kind {
                EventKind::Posted(op) => {
                    let id = model.check_post(by, &op);
                    model.op_posted(id, &op, at);
                    self.posted.insert(buffers(by, &op), id);
                }
                EventKind::Local(op) => model.op_local(self.posted[&buffers(by, &op)], at),
                EventKind::Effect(op) => model.op_remote(self.posted[&buffers(by, &op)], at),
                EventKind::Notified(op) => {
                    model.op_notified(self.posted[&buffers(by, &op)], at);
                    self.tags.came(event.window, by, &op);
                }
                EventKind::Signalled { to, word, value } => {
                    model.check_signal(by, to, word, value);
                    model.signalled(by, to, word, value);
                }
                EventKind::Seen { to, word, value } => model.check_seen(by, to, word, value),
                EventKind::Accessed {
                    home,
                    word: LockWord::Tail,
                    access: Atomic::Swap(node),
                    ..
                } => model.queued(by, home, node),
                EventKind::Accessed { .. } => {}
            }
        }
    }

    fn complete(&mut self, rank: Rank, window: u32, meaning: &Meaning) {
        if let Meaning::Flush { epochs, .. } = meaning {
            self.flushed.push((rank, window, epochs.clone()));
        }
        self.model(window).complete(rank, meaning);
    }

    fn open(&mut self, rank: Rank, window: u32, kind: Kind) {
        let epoch = self.model(window).open(rank, kind.clone());
        let state = self.model(window).of(rank);
        match kind {
            Kind::Access(_) => state.access = Some(epoch),
            Kind::Exposure(_) => state.exposure = Some(epoch),
            Kind::Lock { target, .. } => {
                state.locks.insert(target, epoch);
            }
            Kind::LockAll { .. } => state.lock_all = Some(epoch),
            Kind::Barrier(_) | Kind::Fence(_) => unreachable!("opened by fences"),
        }
    }

    fn close(&mut self, window: u32, epoch: Option<usize>) -> Called {
        let epoch = epoch.expect("the program closes what it has opened");
        self.model(window).close(epoch);
        Called::Request(Meaning::Close(epoch))
    }

    /// Checks which rank holds which lock, and that no flush completed without its lock [LK-1,
    /// FL-1].
    fn check_locks(&mut self, rank: Rank, window: u32, engine: &Window) {
        let model = &mut self.models[window as usize];
        let state = &model.ranks[rank as usize];
        let mut held: Vec<(usize, Rank)> = Vec::new();
        for (&target, &epoch) in &state.locks {
            if engine.holds_lock(target) {
                held.push((epoch, target));
            } else {
                let posted = !model.epochs[epoch].nocheck() && model.has_posted(epoch);
                assert!(
                    !posted,
                    "[exclusion] rank {rank} operates on {target} and does not hold its lock"
                );
                let flushed = self.flushed.iter().any(|(by, of, epochs)| {
                    (*by, *of) == (rank, window) && epochs.contains(&epoch)
                });
                assert!(
                    !flushed,
                    "[completion] a flush of rank {rank} is complete before the lock of {target} is held [FL-1]"
                );
            }
        }
        if let Some(epoch) = state.lock_all {
            if engine.holds_lock_all() {
                held.extend((0..self.ranks).map(|target| (epoch, target)));
            } else {
                let posted = !model.epochs[epoch].nocheck() && model.has_posted(epoch);
                assert!(
                    !posted,
                    "[exclusion] rank {rank} operates under a lock_all that it does not hold"
                );
            }
        }
        for (epoch, target) in held {
            model.hold(epoch, target);
        }
    }

    /// Checks a counter value that an engine returned: notifications that arrived minus those that
    /// were taken.
    fn check_value(&mut self, rank: Rank, window: u32, read: Notified) {
        let base = self.bases.get(&(rank, window, read.index)).copied().unwrap_or(0);
        let came = self.model(window).counter(rank, read.index);
        assert_eq!(
            read.value,
            came - base,
            "[count] counter {} of rank {rank} in window {window}: {came} arrived, {base} were taken",
            read.index
        );
    }

    /// Checks that nothing that the application closed is left.
    pub fn finish(&mut self) {
        self.models.iter().for_each(Model::assert_finished);
        assert!(self.alive.is_empty(), "[leak] requests were never reported: {:?}", self.alive);
    }
}

impl Watch for Watcher {
    fn called(&mut self, at: Time, rank: Rank, step: &Step) {
        self.note(|| format!("{at:>12} rank {rank} calls {step:?}"));
        self.tags.called(rank, step);
        let called = match *step {
            Step::Post { window, ref group } => {
                let group = self.group(rank, group);
                self.open(rank, window, Kind::Exposure(group));
                Called::Nothing
            }
            Step::Start { window, ref group } => {
                let group = self.group(rank, group);
                self.open(rank, window, Kind::Access(group));
                Called::Nothing
            }
            Step::Lock { window, mode, target, assert, .. } => {
                self.open(rank, window, Kind::Lock { target, mode, nocheck: assert.nocheck });
                Called::Nothing
            }
            Step::LockAll { window, assert, .. } => {
                self.open(rank, window, Kind::LockAll { nocheck: assert.nocheck });
                Called::Nothing
            }
            Step::Complete { window, .. } => {
                let epoch = self.model(window).of(rank).access.take();
                self.close(window, epoch)
            }
            Step::Wait { window, .. } => {
                let epoch = self.model(window).of(rank).exposure.take();
                self.close(window, epoch)
            }
            Step::Unlock { window, target, .. } => {
                let epoch = self.model(window).of(rank).locks.remove(&target);
                self.close(window, epoch)
            }
            Step::UnlockAll { window, .. } => {
                let epoch = self.model(window).of(rank).lock_all.take();
                self.close(window, epoch)
            }
            Step::Fence { window, assert, .. } => {
                Called::Request(self.model(window).fence(rank, assert))
            }
            Step::Flush { window, target, local, .. } => {
                Called::Request(self.model(window).flush(rank, target, local))
            }
            Step::Issue { window, ref op } => {
                self.model(window).issue(rank, op);
                Called::Nothing
            }
            Step::IssueRequest { window, ref op, .. } => {
                Called::Request(Meaning::Operation(self.model(window).issue(rank, op)))
            }
            Step::AwaitCounters { window, first, number, expected, .. } => {
                // Counters that are reset are waited for one by one.
                let base = self.bases.get(&(rank, window, first)).copied().unwrap_or(0);
                Called::Request(Meaning::Counters { first, number, sum: base + expected })
            }
            Step::Test { .. } => Called::Test,
            _ => Called::Nothing,
        };
        self.called[rank as usize] = called;
    }

    fn outcome(&mut self, rank: Rank, window: u32, outcome: Outcome, net: &mut Network) {
        self.look(net);
        let called = std::mem::replace(&mut self.called[rank as usize], Called::Nothing);
        let meaning = match called {
            Called::Nothing => unreachable!("calls without an outcome"),
            Called::Request(meaning) => meaning,
            Called::Test => {
                let epoch = self
                    .model(window)
                    .of(rank)
                    .exposure
                    .take()
                    .expect("an open exposure is tested");
                self.model(window).close(epoch);
                Meaning::Close(epoch)
            }
        };
        match outcome {
            Outcome::Complete => self.complete(rank, window, &meaning),
            Outcome::Pending(id) => {
                let before = self.alive.insert((rank, window, id), meaning);
                assert!(
                    before.is_none(),
                    "[leak] request {id:?} of rank {rank} was given out twice"
                );
            }
        }
    }

    fn completed(&mut self, rank: Rank, window: u32, id: RequestId, net: &mut Network) {
        self.look(net);
        let meaning = self.alive.remove(&(rank, window, id));
        let meaning = meaning.unwrap_or_else(|| {
            panic!("[completion] rank {rank} completes {id:?}, which is not alive")
        });
        self.note(|| {
            format!("{:>12} rank {rank} window {window}: complete {meaning:?}", net.clock())
        });
        self.complete(rank, window, &meaning);
    }

    fn notified(&mut self, rank: Rank, window: u32, found: Notified, net: &mut Network) {
        self.look(net);
        self.check_value(rank, window, found);
    }

    fn taken(&mut self, rank: Rank, window: u32, taken: Notified, net: &mut Network) {
        self.look(net);
        self.check_value(rank, window, taken);
        *self.bases.entry((rank, window, taken.index)).or_insert(0) += taken.value;
    }

    fn met(&mut self, rank: Rank, window: u32, slot: Slot, last: Arrival, net: &mut Network) {
        self.look(net);
        self.note(|| {
            format!(
                "{:>12} rank {rank} window {window}: slot {slot} is met by {last:?}",
                net.clock()
            )
        });
        self.tags.met(window, rank, slot, last);
    }

    fn probed(
        &mut self,
        rank: Rank,
        window: u32,
        wanted: Wanted,
        found: Option<Arrival>,
        net: &mut Network,
    ) {
        self.look(net);
        self.tags.probed(window, rank, wanted, found);
    }

    fn after(&mut self, rank: Rank, windows: &mut dyn Iterator<Item = &Window>, net: &mut Network) {
        self.look(net);
        self.models.iter_mut().for_each(Model::check_postponed);
        for (window, engine) in (0..).zip(windows) {
            self.check_locks(rank, window, engine);
        }
        self.flushed.clear();
    }

    fn event(&mut self, net: &mut Network) {
        self.look(net);
    }
}
