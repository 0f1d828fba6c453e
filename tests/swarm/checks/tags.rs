//! Tagged notifications are matched by MPI's rules [NA-4], in order, none lost and none duplicated
//! [NA-3].
//!
//! A reference matcher with linear search runs beside each engine. It sees a notification when it
//! takes effect, and an expectation when its call is made; the engine takes notifications from its
//! port later. The matching does not depend on that delay: both sides are totally ordered, and the
//! earliest pair that fits belongs together.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use mpix_rma::engine::*;
use mpix_rma::sim::{Script, Slot, Step, World};

use crate::program::*;

fn accepts(wanted: Wanted, arrival: Arrival) -> bool {
    wanted.source.is_none_or(|source| source == arrival.source)
        && wanted.tag.is_none_or(|tag| tag == arrival.tag)
}

/// The tag of a notification, if it has one.
fn tag_of(notification: Option<Notification>) -> Option<u32> {
    match notification?.kind() {
        NotificationKind::Counter(_) => None,
        NotificationKind::Tag(tag) => Some(tag),
    }
}

/// One start of an expectation.
#[derive(Debug)]
struct Start {
    slot: Slot,
    wanted: Wanted,
    expected: u64,
    matched: Vec<Arrival>,
    /// It was waited for, or abandoned.
    awaited: bool,
}

impl Start {
    fn is_met(&self) -> bool {
        self.matched.len() as u64 == self.expected
    }
}

/// The reference matching of one rank in one window.
#[derive(Default)]
struct Side {
    made: HashMap<Slot, (Wanted, u64)>,
    starts: Vec<Start>,
    unexpected: Vec<Arrival>,
    /// All arrivals.
    came: BTreeMap<(Rank, u32), u64>,
    /// By source: tags that were sent and have not arrived, in call order.
    called: HashMap<Rank, VecDeque<u32>>,
}

impl Side {
    /// Starts the expectation in this slot, which takes unclaimed notifications first.
    fn start(&mut self, slot: Slot) {
        let (wanted, expected) = self.made[&slot];
        let mut start = Start { slot, wanted, expected, matched: Vec::new(), awaited: false };
        self.unexpected.retain(|arrival| {
            let takes = !start.is_met() && accepts(wanted, *arrival);
            if takes {
                start.matched.push(*arrival);
            }
            !takes
        });
        self.starts.push(start);
    }
}

/// The last notification of each start in call order, if it is met, and the notifications that no
/// start takes.
pub type Prediction = Option<(Vec<Option<Arrival>>, Vec<Arrival>)>;

/// The matching of a rank in a window. `None` if it depends on the order in which notifications of
/// several sources arrive, or in which epochs take effect.
pub fn predict(program: &Program, window: u32, rank: Rank) -> Prediction {
    let mut side = Side::default();
    let mut sources = HashSet::new();
    for (source, calls) in (0..).zip(&program.calls) {
        for id in calls.iter().flat_map(Call::ops) {
            if let plan = program.plans[*id]
                && (plan.window, plan.target) == (window, rank)
                && let Some(tag) = tag_of(plan.notification)
            {
                sources.insert(source);
                side.unexpected.push(Arrival { source, tag });
            }
        }
    }
    for call in &program.calls[rank as usize] {
        match call {
            Call::Step(Step::Expect { window: of, wanted, expected, slot }) if *of == window => {
                side.made.insert(*slot, (*wanted, *expected));
            }
            Call::Step(Step::StartExpecting { window: of, slot }) if *of == window => {
                side.start(*slot);
            }
            _ => {}
        }
    }
    let ordered = program.windows[window as usize].flags == ReorderFlags::default();
    let named = side.starts.iter().all(|start| start.wanted.source.is_some());
    let last = |start: &Start| start.matched.last().copied().filter(|_| start.is_met());
    (ordered && (named || sources.len() < 2))
        .then(|| (side.starts.iter().map(last).collect(), side.unexpected))
}

/// The reference matching of all ranks.
pub struct Tags {
    ranks: u32,
    /// By window, then rank.
    sides: Vec<Side>,
    /// By window: epochs take effect in call order.
    ordered: Vec<bool>,
}

impl Tags {
    pub fn new(ranks: u32, flags: impl Iterator<Item = ReorderFlags>) -> Self {
        let ordered: Vec<_> = flags.map(|flags| flags == ReorderFlags::default()).collect();
        let sides = (0..ranks as usize * ordered.len()).map(|_| Side::default()).collect();
        Tags { ranks, sides, ordered }
    }

    fn side(&mut self, window: u32, rank: Rank) -> &mut Side {
        &mut self.sides[(window * self.ranks + rank) as usize]
    }

    /// A rank makes a call.
    pub fn called(&mut self, rank: Rank, step: &Step) {
        match *step {
            Step::Issue { window, ref op } | Step::IssueRequest { window, ref op, .. }
                if let Some(tag) = tag_of(op.notification) =>
            {
                self.side(window, op.target).called.entry(rank).or_default().push_back(tag);
            }
            Step::Expect { window, wanted, expected, slot } => {
                self.side(window, rank).made.insert(slot, (wanted, expected));
            }
            Step::StartExpecting { window, slot } => {
                self.side(window, rank).start(slot);
            }
            Step::Abandon { window, slot } => {
                let side = self.side(window, rank);
                side.made.remove(&slot);
                side.starts
                    .iter_mut()
                    .filter(|start| start.slot == slot)
                    .for_each(|start| start.awaited = true);
            }
            _ => {}
        }
    }

    /// A notification takes effect.
    pub fn came(&mut self, window: u32, source: Rank, op: &Op) {
        let Some(tag) = tag_of(op.notification) else { return };
        let arrival = Arrival { source, tag };
        let ordered = self.ordered[window as usize];
        let side = self.side(window, op.target);
        *side.came.entry((arrival.source, arrival.tag)).or_insert(0) += 1;
        let called = side.called.get_mut(&source).expect("what comes was called for");
        let at =
            called.iter().position(|tag| *tag == arrival.tag).expect("what comes was called for");
        assert!(
            at == 0 || !ordered,
            "[match] {arrival:?} comes to rank {} in window {window} before earlier ones of its \
             source: {called:?}",
            op.target
        );
        called.remove(at);
        match side.starts.iter_mut().find(|start| !start.is_met() && accepts(start.wanted, arrival))
        {
            Some(start) => start.matched.push(arrival),
            None => side.unexpected.push(arrival),
        }
    }

    /// An engine reports that an expectation is met, and its last notification.
    pub fn met(&mut self, window: u32, rank: Rank, slot: Slot, last: Arrival) {
        let start = self
            .side(window, rank)
            .starts
            .iter_mut()
            .find(|start| start.slot == slot && !start.awaited);
        let start = start.expect("what is waited for was started");
        assert!(
            start.is_met() && start.matched.last() == Some(&last),
            "[match] the expectation in slot {slot} of rank {rank} in window {window} is met by \
             {last:?}, expected {start:?}"
        );
        start.awaited = true;
    }

    /// An engine reports the oldest unclaimed notification that matches a filter.
    pub fn probed(&mut self, window: u32, rank: Rank, wanted: Wanted, found: Option<Arrival>) {
        let first = self
            .side(window, rank)
            .unexpected
            .iter()
            .copied()
            .find(|arrival| accepts(wanted, *arrival));
        assert_eq!(found, first, "[match] rank {rank} probes for {wanted:?} in window {window}");
    }

    /// Checks the end of a run, and takes unclaimed notifications.
    pub fn check<S: Script>(&mut self, program: &Program, world: &mut World<S>) {
        let mut called: HashMap<(u32, Rank), BTreeMap<(Rank, u32), u64>> = HashMap::new();
        for (source, calls) in (0..).zip(&program.calls) {
            for id in calls.iter().flat_map(Call::ops) {
                if let Plan { notification, window, target, .. } = program.plans[*id]
                    && let Some(tag) = tag_of(notification)
                {
                    *called
                        .entry((window, target))
                        .or_default()
                        .entry((source, tag))
                        .or_insert(0) += 1;
                }
            }
        }
        for window in 0..self.ordered.len() as u32 {
            for rank in 0..self.ranks {
                let left = world.take_unexpected(window, rank);
                let side = self.side(window, rank);
                let open = side.starts.iter().find(|start| !start.is_met());
                assert!(
                    open.is_none(),
                    "[match] an expectation of rank {rank} in window {window} was never met: \
                     {open:?}"
                );
                assert_eq!(
                    left, side.unexpected,
                    "[match] unclaimed notifications of rank {rank} in window {window}"
                );
                let mut all: BTreeMap<(Rank, u32), u64> = BTreeMap::new();
                for arrival in side.starts.iter().flat_map(|start| &start.matched).chain(&left) {
                    *all.entry((arrival.source, arrival.tag)).or_insert(0) += 1;
                }
                let called = called.remove(&(window, rank)).unwrap_or_default();
                assert_eq!(
                    all, called,
                    "[match] rank {rank} in window {window}: arrivals differ from what was sent"
                );
                assert_eq!(
                    side.came, called,
                    "[match] rank {rank} in window {window}: arrivals differ from what was sent"
                );
            }
        }
    }
}
