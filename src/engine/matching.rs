//! The data structure that matches tagged notifications with the expectations of this process.
//!
//! It follows MPI's rules for matching messages. A notification goes to the expectation that was
//! started first, among those that accept its source and tag. An expectation takes earlier
//! notifications first, in order of arrival. Unclaimed notifications are kept in that order.
//!
//! Neither side is searched linearly. Expectations with equal filters share one queue ([`Group`]),
//! found by hash. A notification checks up to four queues: exact, source with any tag, tag from any
//! source, and any. Unclaimed notifications are chained in order of arrival, and per source and
//! tag, per source or per tag once an expectation has searched that way. Equal neighbours are one
//! entry with a count, so a flood of equal notifications takes no memory.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::port::{Arrival, ExpectationId, Wanted};
use super::slab::{Key, Slab};

const NIL: u32 = u32::MAX;
/// An empty list that had more runs than this frees its memory.
const KEEP: usize = 1024;
/// The four classes of filters: source and tag; source; tag; any.
const CLASSES: usize = 4;
const ANY: usize = 3;

/// Hash key of an arrival within a class.
#[inline]
fn match_key(class: usize, arrival: Arrival) -> u64 {
    match class {
        0 => u64::from(arrival.source) << 32 | u64::from(arrival.tag),
        1 => arrival.source.into(),
        2 => arrival.tag.into(),
        _ => 0,
    }
}

/// Class and hash key of a filter.
#[inline]
fn class_of(wanted: Wanted) -> (usize, u64) {
    let class = match wanted {
        Wanted { source: Some(_), tag: Some(_) } => 0,
        Wanted { source: Some(_), tag: None } => 1,
        Wanted { source: None, tag: Some(_) } => 2,
        Wanted { source: None, tag: None } => ANY,
    };
    (
        class,
        match_key(
            class,
            Arrival { source: wanted.source.unwrap_or(0), tag: wanted.tag.unwrap_or(0) },
        ),
    )
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
}

/// A run of equal notifications that arrived one after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    arrival: Arrival,
    times: u64,
    /// Neighbours in the chain of each class. A free run stores the next free one in the last link.
    links: [Link; CLASSES],
}

/// Notifications that no expectation wanted when they arrived.
#[derive(Debug)]
struct Unexpected {
    runs: Vec<Run>,
    free: u32,
    /// Runs in use.
    used: usize,
    /// Number of notifications.
    number: u64,
    chains: [HashMap<u64, Chain>; CLASSES - 1],
    all: Chain,
    /// Which chains are maintained: those that were searched since the list was last empty.
    kept: [bool; CLASSES - 1],
}

const NO_LINK: Link = Link { before: NIL, after: NIL };
const EMPTY_CHAIN: Chain = Chain { first: NIL, last: NIL };

impl Default for Unexpected {
    fn default() -> Self {
        Unexpected {
            runs: Vec::new(),
            free: NIL,
            used: 0,
            number: 0,
            chains: Default::default(),
            all: EMPTY_CHAIN,
            kept: [false; CLASSES - 1],
        }
    }
}

impl Unexpected {
    fn push(&mut self, arrival: Arrival) {
        self.number += 1;
        if self.all.last != NIL {
            let last = &mut self.runs[self.all.last as usize];
            if last.arrival == arrival {
                last.times += 1;
                return;
            }
        }
        let run = Run { arrival, times: 1, links: [NO_LINK; CLASSES] };
        self.used += 1;
        let at = if self.free == NIL {
            self.runs.push(run);
            u32::try_from(self.runs.len() - 1)
                .ok()
                .filter(|at| *at != NIL)
                .expect("fewer than 2^32 - 1 entries")
        } else {
            let at = self.free;
            self.free = self.runs[at as usize].links[ANY].after;
            self.runs[at as usize] = run;
            at
        };
        self.chain(ANY, at);
        for class in 0..ANY {
            if self.kept[class] {
                self.chain(class, at);
            }
        }
    }

    /// Appends a run to its chain of a class.
    fn chain(&mut self, class: usize, at: u32) {
        let ends = if class == ANY {
            &mut self.all
        } else {
            self.chains[class]
                .entry(match_key(class, self.runs[at as usize].arrival))
                .or_insert(EMPTY_CHAIN)
        };
        let before = std::mem::replace(&mut ends.last, at);
        if before == NIL {
            ends.first = at;
        } else {
            self.runs[before as usize].links[class].after = at;
        }
        self.runs[at as usize].links[class] = Link { before, after: NIL };
    }

    /// Removes a run from its chain of a class.
    fn unchain(&mut self, class: usize, at: u32) {
        let Link { before, after } = self.runs[at as usize].links[class];
        if before != NIL {
            self.runs[before as usize].links[class].after = after;
        }
        if after != NIL {
            self.runs[after as usize].links[class].before = before;
        }
        if before != NIL && after != NIL {
            return;
        }
        let change = |ends: &mut Chain| {
            if before == NIL {
                ends.first = after;
            }
            if after == NIL {
                ends.last = before;
            }
        };
        if class == ANY {
            change(&mut self.all);
        } else {
            let key = match_key(class, self.runs[at as usize].arrival);
            if before == NIL && after == NIL {
                self.chains[class].remove(&key);
            } else if let Some(ends) = self.chains[class].get_mut(&key) {
                change(ends);
            }
        }
    }

    /// The oldest run that matches `wanted`.
    fn first(&mut self, wanted: Wanted) -> Option<u32> {
        if self.number == 0 {
            return None;
        }
        let (class, key) = class_of(wanted);
        if class == ANY {
            return Some(self.all.first);
        }
        if !self.kept[class] {
            self.kept[class] = true;
            let mut at = self.all.first;
            while at != NIL {
                self.chain(class, at);
                at = self.runs[at as usize].links[ANY].after;
            }
        }
        self.chains[class].get(&key).map(|ends| ends.first)
    }

    /// Removes up to `most` equal notifications from the oldest run that matches `wanted`.
    fn take(&mut self, wanted: Wanted, most: u64) -> Option<(Arrival, u64)> {
        let at = self.first(wanted)?;
        let run = &mut self.runs[at as usize];
        let arrival = run.arrival;
        let taken = run.times.min(most);
        run.times -= taken;
        self.number -= taken;
        if run.times == 0 {
            self.remove(at);
        }
        Some((arrival, taken))
    }

    fn remove(&mut self, at: u32) {
        for class in 0..CLASSES {
            if class == ANY || self.kept[class] {
                self.unchain(class, at);
            }
        }
        self.runs[at as usize].links[ANY].after = self.free;
        self.free = at;
        self.used -= 1;
        if self.used == 0 {
            // Restart the chains lazily, at the next search.
            self.kept = [false; CLASSES - 1];
            if self.runs.len() > KEEP {
                *self = Unexpected::default();
            }
        }
    }
}

/// Expectations with equal filters.
#[derive(Debug)]
struct Group {
    wanted: Wanted,
    /// Number of expectations in the group.
    members: u32,
    /// Started expectations, each with the number of its start.
    started: VecDeque<(u64, Key)>,
}

/// The state of an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectationState {
    /// Not started.
    Idle,
    /// Started, and missing this many notifications.
    Waiting(u64),
    /// All notifications were taken. This was the last of them.
    Met(Arrival),
}

#[derive(Debug)]
struct Expectation {
    group: Key,
    expected: u64,
    standing: ExpectationState,
    /// Nobody uses it any more: remove it when it is met.
    abandoned: bool,
}

/// Both sides of the matching in one process.
#[derive(Debug)]
pub(super) struct Matcher {
    unexpected: Unexpected,
    expectations: Slab<Expectation>,
    groups: Slab<Group>,
    /// Groups by the hash key of their filter.
    groups_by_key: [HashMap<u64, Key>; CLASSES],
    /// Number of started expectations per class. A class without any needs no lookup.
    started: [u32; CLASSES],
    starts: u64,
}

fn key(id: ExpectationId) -> Key {
    Key { index: id.index, generation: id.generation }
}

impl Matcher {
    pub(super) fn new() -> Self {
        Matcher {
            unexpected: Unexpected::default(),
            expectations: Slab::new(),
            groups: Slab::new(),
            groups_by_key: Default::default(),
            started: [0; CLASSES],
            starts: 0,
        }
    }

    /// Number of expectations that are started and not met.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.started.iter().sum()
    }

    /// Number of unclaimed notifications.
    pub(super) fn unexpected(&self) -> u64 {
        self.unexpected.number
    }

    /// Creates an idle expectation of `expected` (at least 1) notifications.
    pub(super) fn expect(&mut self, wanted: Wanted, expected: u64) -> ExpectationId {
        debug_assert!(expected > 0);
        let (class, key) = class_of(wanted);
        let groups = &mut self.groups;
        let group = *self.groups_by_key[class].entry(key).or_insert_with(|| {
            groups.insert(Group { wanted, members: 0, started: VecDeque::new() })
        });
        self.groups[group].members += 1;
        let made =
            Expectation { group, expected, standing: ExpectationState::Idle, abandoned: false };
        let Key { index, generation } = self.expectations.insert(made);
        ExpectationId { index, generation }
    }

    pub(super) fn expectation_state(&self, id: ExpectationId) -> ExpectationState {
        self.expectations[key(id)].standing
    }

    /// Starts an idle expectation. It takes matching unclaimed notifications and waits for the
    /// rest.
    pub(super) fn start(&mut self, id: ExpectationId) -> ExpectationState {
        let held = &mut self.expectations[key(id)];
        debug_assert_eq!(held.standing, ExpectationState::Idle);
        let group = &mut self.groups[held.group];
        let mut missing = held.expected;
        // If an equal expectation waits already, it has taken everything that matches.
        while missing > 0
            && group.started.is_empty()
            && let Some((arrival, taken)) = self.unexpected.take(group.wanted, missing)
        {
            missing -= taken;
            held.standing = ExpectationState::Met(arrival);
        }
        if missing > 0 {
            held.standing = ExpectationState::Waiting(missing);
            self.starts += 1;
            group.started.push_back((self.starts, key(id)));
            self.started[class_of(group.wanted).0] += 1;
        }
        held.standing
    }

    /// Matches a notification that has arrived.
    pub(super) fn arrived(&mut self, arrival: Arrival) {
        let mut earliest: Option<(u64, usize, Key)> = None;
        for class in 0..CLASSES {
            if self.started[class] == 0 {
                continue;
            }
            if let Some(group) = self.groups_by_key[class].get(&match_key(class, arrival))
                && let Some((start, _)) = self.groups[*group].started.front()
                && earliest.is_none_or(|(before, ..)| *start < before)
            {
                earliest = Some((*start, class, *group));
            }
        }
        let Some((_, class, group)) = earliest else { return self.unexpected.push(arrival) };
        let Some((_, expectation)) = self.groups[group].started.front().copied() else { return };
        let held = &mut self.expectations[expectation];
        match &mut held.standing {
            ExpectationState::Waiting(missing) if *missing > 1 => *missing -= 1,
            standing => {
                *standing = ExpectationState::Met(arrival);
                self.groups[group].started.pop_front();
                self.started[class] -= 1;
                if held.abandoned {
                    self.remove(expectation);
                }
            }
        }
    }

    /// Makes a met expectation idle.
    pub(super) fn make_idle(&mut self, id: ExpectationId) {
        let held = &mut self.expectations[key(id)];
        debug_assert!(matches!(held.standing, ExpectationState::Met(_)));
        held.standing = ExpectationState::Idle;
    }

    /// Frees an expectation. One that waits is removed when it is met.
    pub(super) fn abandon(&mut self, id: ExpectationId) {
        let held = &mut self.expectations[key(id)];
        held.abandoned = true;
        if !matches!(held.standing, ExpectationState::Waiting(_)) {
            self.remove(key(id));
        }
    }

    fn remove(&mut self, expectation: Key) {
        let Some(Expectation { group, .. }) = self.expectations.take(expectation) else { return };
        let held = &mut self.groups[group];
        held.members -= 1;
        if held.members == 0 {
            let (class, key) = class_of(held.wanted);
            self.groups_by_key[class].remove(&key);
            self.groups.remove(group);
        }
    }

    /// The oldest unclaimed notification that matches `wanted`.
    pub(super) fn probe(&mut self, wanted: Wanted) -> Option<Arrival> {
        self.unexpected.first(wanted).map(|at| self.unexpected.runs[at as usize].arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rank;

    fn wanted(source: Option<Rank>, tag: Option<u32>) -> Wanted {
        Wanted { source, tag }
    }

    fn arrival(source: Rank, tag: u32) -> Arrival {
        Arrival { source, tag }
    }

    #[test]
    fn what_came_first_is_taken_first() {
        let mut m = Matcher::new();
        for (source, tag) in [(1, 5), (2, 5), (1, 6), (1, 5)] {
            m.arrived(arrival(source, tag));
        }
        let any = m.expect(wanted(None, None), 1);
        let five = m.expect(wanted(None, Some(5)), 1);
        let one = m.expect(wanted(Some(1), None), 2);
        assert_eq!(m.start(five), ExpectationState::Met(arrival(1, 5)));
        assert_eq!(m.start(one), ExpectationState::Met(arrival(1, 5)), "6, then 5");
        assert_eq!(m.start(any), ExpectationState::Met(arrival(2, 5)));
        assert_eq!(m.unexpected(), 0);
    }

    #[test]
    fn who_was_started_first_is_served_first() {
        let mut m = Matcher::new();
        let any = m.expect(wanted(None, None), 1);
        let exact = m.expect(wanted(Some(1), Some(5)), 2);
        assert_eq!(m.start(exact), ExpectationState::Waiting(2));
        assert_eq!(m.start(any), ExpectationState::Waiting(1));
        m.arrived(arrival(1, 5));
        assert_eq!(
            (m.expectation_state(exact), m.expectation_state(any)),
            (ExpectationState::Waiting(1), ExpectationState::Waiting(1))
        );
        m.arrived(arrival(1, 4));
        assert_eq!(m.expectation_state(any), ExpectationState::Met(arrival(1, 4)));
        m.arrived(arrival(1, 5));
        assert_eq!(m.expectation_state(exact), ExpectationState::Met(arrival(1, 5)));
        m.arrived(arrival(1, 5));
        assert_eq!(m.unexpected(), 1);
    }

    /// An expectation is partly satisfied when an equal one is started behind it. The first keeps
    /// its claim, and nothing is taken out of order.
    #[test]
    fn equal_expectations_stand_in_line() {
        let mut m = Matcher::new();
        let first = m.expect(wanted(None, Some(1)), 3);
        let second = m.expect(wanted(None, Some(1)), 1);
        m.start(first);
        m.start(second);
        for source in 0..3 {
            m.arrived(arrival(source, 1));
        }
        assert_eq!(
            (m.expectation_state(first), m.expectation_state(second)),
            (ExpectationState::Met(arrival(2, 1)), ExpectationState::Waiting(1))
        );
        m.arrived(arrival(9, 1));
        assert_eq!(m.expectation_state(second), ExpectationState::Met(arrival(9, 1)));
    }

    #[test]
    fn an_abandoned_expectation_still_takes_what_it_waits_for() {
        let mut m = Matcher::new();
        let id = m.expect(wanted(Some(0), Some(0)), 2);
        m.start(id);
        m.arrived(arrival(0, 0));
        m.abandon(id);
        assert_eq!(m.waiting(), 1);
        m.arrived(arrival(0, 0));
        assert_eq!(
            (m.waiting(), m.unexpected(), m.expectations.len(), m.groups.len()),
            (0, 0, 0, 0)
        );
        m.arrived(arrival(0, 0));
        assert_eq!(m.unexpected(), 1);
    }

    #[test]
    fn a_flood_of_equal_notifications_is_one_entry_and_memory_returns() {
        let mut m = Matcher::new();
        for _ in 0..1_000_000 {
            m.arrived(arrival(3, 7));
        }
        assert_eq!((m.unexpected.runs.len(), m.unexpected()), (1, 1_000_000));
        for tag in 0..10_000 {
            m.arrived(arrival(3, tag));
        }
        let all = m.expect(wanted(Some(3), None), 1_010_000);
        assert_eq!(m.start(all), ExpectationState::Met(arrival(3, 9_999)));
        assert_eq!((m.unexpected.runs.capacity(), m.unexpected()), (0, 0));
    }

    /// The reference: the same rules by linear search.
    #[derive(Default)]
    struct Naive {
        unexpected: Vec<Arrival>,
        /// Started expectations: number, filter, notifications missing.
        started: Vec<(usize, Wanted, u64)>,
        met: Vec<Option<Arrival>>,
    }

    fn accepts(wanted: Wanted, arrival: Arrival) -> bool {
        wanted.source.is_none_or(|source| source == arrival.source)
            && wanted.tag.is_none_or(|tag| tag == arrival.tag)
    }

    impl Naive {
        fn arrived(&mut self, arrival: Arrival) {
            let Some(at) = self.started.iter().position(|(_, wanted, _)| accepts(*wanted, arrival))
            else {
                return self.unexpected.push(arrival);
            };
            self.started[at].2 -= 1;
            if self.started[at].2 == 0 {
                self.met[self.started[at].0] = Some(arrival);
                self.started.remove(at);
            }
        }
        fn start(&mut self, number: usize, wanted: Wanted, mut missing: u64) {
            while missing > 0
                && let Some(at) =
                    self.unexpected.iter().position(|arrival| accepts(wanted, *arrival))
            {
                missing -= 1;
                self.met[number] = Some(self.unexpected.remove(at));
            }
            if missing > 0 {
                self.met[number] = None;
                self.started.push((number, wanted, missing));
            }
        }
    }

    #[test]
    fn random_traffic_is_matched_as_by_searching_lists() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (sources, tags, bias) = (rng.u32(1..6), rng.u32(1..6), rng.u32(1..8));
            let mut m = Matcher::new();
            let mut naive = Naive::default();
            let mut ids: Vec<(ExpectationId, Wanted, u64)> = Vec::new();
            for _ in 0..400 {
                match rng.u32(0..10) {
                    0 if ids.len() < 20 => {
                        let wanted = wanted(
                            rng.bool().then(|| rng.u32(0..sources)),
                            rng.bool().then(|| rng.u32(0..tags)),
                        );
                        let expected = rng.u64(1..6);
                        ids.push((m.expect(wanted, expected), wanted, expected));
                        naive.met.push(None);
                    }
                    1..5 if !ids.is_empty() => {
                        let number = rng.usize(0..ids.len());
                        let (id, wanted, expected) = ids[number];
                        match m.expectation_state(id) {
                            ExpectationState::Waiting(_) => {}
                            standing => {
                                if let ExpectationState::Met(_) = standing {
                                    m.make_idle(id);
                                }
                                m.start(id);
                                naive.start(number, wanted, expected);
                            }
                        }
                    }
                    5 => {
                        let wanted = wanted(
                            rng.bool().then(|| rng.u32(0..sources)),
                            rng.bool().then(|| rng.u32(0..tags)),
                        );
                        assert_eq!(
                            m.probe(wanted),
                            naive
                                .unexpected
                                .iter()
                                .copied()
                                .find(|arrival| accepts(wanted, *arrival))
                        );
                    }
                    _ => {
                        for _ in 0..rng.u32(0..bias) {
                            let arrival = arrival(rng.u32(0..sources), rng.u32(0..tags));
                            m.arrived(arrival);
                            naive.arrived(arrival);
                        }
                    }
                }
                for (number, (id, ..)) in ids.iter().enumerate() {
                    let met = match m.expectation_state(*id) {
                        ExpectationState::Met(arrival) => Some(arrival),
                        ExpectationState::Waiting(missing) => {
                            let here = naive.started.iter().find(|(other, ..)| *other == number);
                            assert_eq!(here.map(|(.., left)| *left), Some(missing), "seed {seed}");
                            None
                        }
                        ExpectationState::Idle => naive.met[number],
                    };
                    assert_eq!(met, naive.met[number], "seed {seed}");
                }
                assert_eq!(m.unexpected() as usize, naive.unexpected.len(), "seed {seed}");
            }
        }
    }
}
