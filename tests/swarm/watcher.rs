//! Observes a running world and passes events to the rules.

use std::collections::HashMap;

use mpix_rma::engine::*;
use mpix_rma::sim::{Group, Slot, Step, Watch};
use mpix_rma::transport::sim::{EventKind, Network, Time};

use super::checks::tags::Tags;
use super::rules::{Kind, Meaning, Model};

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
    /// Notifications taken by resets, by rank, window and counter.
    bases: HashMap<(Rank, u32, u32), u64>,
    /// The reference matching of tagged notifications.
    pub tags: Tags,
    /// The last events, if a trace is wanted.
    pub trace: Option<Vec<String>>,
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
            bases: HashMap::new(),
            trace: None,
        }
    }

    /// The fences of this window learn a pattern.
    pub fn learns(&mut self, window: u32) {
        self.model(window).set_pattern(true);
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
            self.model(event.window).event(&event);
            if let EventKind::Notified(op) = event.kind {
                self.tags.came(event.window, event.by, &op);
            }
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
            "[count] counter {} of rank {rank} in window {window}: {came} arrived, {base} were \
             taken",
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
                self.model(window).open(rank, Kind::Exposure(group));
                Called::Nothing
            }
            Step::Start { window, ref group } => {
                let group = self.group(rank, group);
                self.model(window).open(rank, Kind::Access(group));
                Called::Nothing
            }
            Step::Lock { window, mode, target, assert, .. } => {
                let kind = Kind::Lock { target, mode, nocheck: assert.nocheck };
                self.model(window).open(rank, kind);
                Called::Nothing
            }
            Step::LockAll { window, assert, .. } => {
                self.model(window).lock_all(rank, assert.nocheck);
                Called::Nothing
            }
            Step::SelectLane { window, lane } => {
                self.model(window).select_lane(rank, lane);
                Called::Nothing
            }
            Step::Complete { window, .. } => Called::Request(self.model(window).close_access(rank)),
            Step::Wait { window, .. } => Called::Request(self.model(window).close_exposure(rank)),
            Step::Unlock { window, target, .. } => {
                Called::Request(self.model(window).close_lock(rank, target))
            }
            Step::UnlockAll { window, .. } => Called::Request(self.model(window).unlock_all(rank)),
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
            Called::Test => self.model(window).close_exposure(rank),
        };
        match outcome {
            Outcome::Complete => self.model(window).complete(rank, &meaning),
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
        self.model(window).complete(rank, &meaning);
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
        for (model, engine) in self.models.iter_mut().zip(windows) {
            model.check_after(rank, engine);
        }
    }

    fn event(&mut self, net: &mut Network) {
        self.look(net);
    }
}
