//! Matching of tagged notifications with the expectations of this process: a data structure, no
//! more.
//!
//! It follows the rules of message matching. A notification goes to the expectation that was
//! started first, of those that accept its source and tag; an expectation takes those that came
//! before it was started first, in the order in which they came. Those that nobody expects yet are
//! kept in that order.
//!
//! Neither side is searched. Expectations that want the same stand in one queue ([`Group`]), found
//! by what they want; a notification looks at up to four of these: its own source and tag, either
//! one with a wildcard, or two wildcards. Notifications that wait are chained by arrival, and also
//! by source and tag, by source, or by tag as soon as somebody looks for them in that way.
//! Neighbours that are equal are one entry with a count, so a flood of equal notifications takes no
//! memory.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::port::{Arrival, ExpectationId, Wanted};
use super::slab::{Key, Slab};

const NIL: u32 = u32::MAX;
/// Above this many entries an empty list gives its memory back.
const KEEP: usize = 1024;
/// Source and tag; source; tag; anything.
const CLASSES: usize = 4;
const ANY: usize = 3;

/// What is looked for, as a number within its class.
#[inline]
fn name(class: usize, arrival: Arrival) -> u64 {
    match class {
        0 => u64::from(arrival.source) << 32 | u64::from(arrival.tag),
        1 => arrival.source.into(),
        2 => arrival.tag.into(),
        _ => 0,
    }
}

/// ReorderClass and name of what an expectation wants.
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
        name(class, Arrival { source: wanted.source.unwrap_or(0), tag: wanted.tag.unwrap_or(0) }),
    )
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// Equal notifications that came one after the other.
#[derive(Clone, Copy, Debug)]
struct Entry {
    arrival: Arrival,
    times: u64,
    /// Neighbours in the chain of each class. A free entry has the next free one in the last.
    links: [Link; CLASSES],
}

/// Notifications that nobody expected when they came.
#[derive(Debug)]
struct Unexpected {
    entries: Vec<Entry>,
    free: u32,
    /// Entries in use.
    used: usize,
    /// Notifications.
    number: u64,
    chains: [HashMap<u64, Ends>; CLASSES - 1],
    all: Ends,
    /// Chains that are kept: those that somebody has looked at since there was nothing.
    kept: [bool; CLASSES - 1],
}

const NO_LINK: Link = Link { before: NIL, after: NIL };
const NO_ENDS: Ends = Ends { first: NIL, last: NIL };

impl Default for Unexpected {
    fn default() -> Self {
        Unexpected {
            entries: Vec::new(),
            free: NIL,
            used: 0,
            number: 0,
            chains: Default::default(),
            all: NO_ENDS,
            kept: [false; CLASSES - 1],
        }
    }
}

impl Unexpected {
    fn push(&mut self, arrival: Arrival) {
        self.number += 1;
        if self.all.last != NIL {
            let last = &mut self.entries[self.all.last as usize];
            if last.arrival == arrival {
                last.times += 1;
                return;
            }
        }
        let entry = Entry { arrival, times: 1, links: [NO_LINK; CLASSES] };
        self.used += 1;
        let at = if self.free == NIL {
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1)
                .ok()
                .filter(|at| *at != NIL)
                .expect("fewer than 2^32 - 1 entries")
        } else {
            let at = self.free;
            self.free = self.entries[at as usize].links[ANY].after;
            self.entries[at as usize] = entry;
            at
        };
        self.chain(ANY, at);
        for class in 0..ANY {
            if self.kept[class] {
                self.chain(class, at);
            }
        }
    }

    /// Puts an entry at the end of its chain of a class.
    fn chain(&mut self, class: usize, at: u32) {
        let ends = if class == ANY {
            &mut self.all
        } else {
            self.chains[class]
                .entry(name(class, self.entries[at as usize].arrival))
                .or_insert(NO_ENDS)
        };
        let before = std::mem::replace(&mut ends.last, at);
        if before == NIL {
            ends.first = at;
        } else {
            self.entries[before as usize].links[class].after = at;
        }
        self.entries[at as usize].links[class] = Link { before, after: NIL };
    }

    /// Takes an entry out of its chain of a class.
    fn unchain(&mut self, class: usize, at: u32) {
        let Link { before, after } = self.entries[at as usize].links[class];
        if before != NIL {
            self.entries[before as usize].links[class].after = after;
        }
        if after != NIL {
            self.entries[after as usize].links[class].before = before;
        }
        if before != NIL && after != NIL {
            return;
        }
        let change = |ends: &mut Ends| {
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
            let name = name(class, self.entries[at as usize].arrival);
            if before == NIL && after == NIL {
                self.chains[class].remove(&name);
            } else if let Some(ends) = self.chains[class].get_mut(&name) {
                change(ends);
            }
        }
    }

    /// The oldest that is wanted.
    fn first(&mut self, wanted: Wanted) -> Option<u32> {
        if self.number == 0 {
            return None;
        }
        let (class, name) = class_of(wanted);
        if class == ANY {
            return Some(self.all.first);
        }
        if !self.kept[class] {
            self.kept[class] = true;
            let mut at = self.all.first;
            while at != NIL {
                self.chain(class, at);
                at = self.entries[at as usize].links[ANY].after;
            }
        }
        self.chains[class].get(&name).map(|ends| ends.first)
    }

    /// Takes the oldest that is wanted out, up to `most` times where several are equal.
    fn take(&mut self, wanted: Wanted, most: u64) -> Option<(Arrival, u64)> {
        let at = self.first(wanted)?;
        let entry = &mut self.entries[at as usize];
        let arrival = entry.arrival;
        let taken = entry.times.min(most);
        entry.times -= taken;
        self.number -= taken;
        if entry.times == 0 {
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
        self.entries[at as usize].links[ANY].after = self.free;
        self.free = at;
        self.used -= 1;
        if self.used == 0 {
            // Chains begin anew, with the next that is looked for while there is something.
            self.kept = [false; CLASSES - 1];
            if self.entries.len() > KEEP {
                *self = Unexpected::default();
            }
        }
    }
}

/// Expectations that want the same.
#[derive(Debug)]
struct Group {
    wanted: Wanted,
    /// Those that exist.
    members: u32,
    /// Those that are started, with the numbers of their starts.
    started: VecDeque<(u64, Key)>,
}

/// How an expectation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectationState {
    /// It is not started.
    Idle,
    /// It waits for so many.
    Waiting(u64),
    /// It has taken all that it expects; this was the last.
    Met(Arrival),
}

#[derive(Debug)]
struct Expectation {
    group: Key,
    expected: u64,
    standing: ExpectationState,
    /// Nobody asks any more: it goes when it is met.
    abandoned: bool,
}

/// Both sides of the matching in one process.
#[derive(Debug)]
pub(super) struct Matcher {
    unexpected: Unexpected,
    expectations: Slab<Expectation>,
    groups: Slab<Group>,
    /// Groups by what they want.
    names: [HashMap<u64, Key>; CLASSES],
    /// Expectations of each class that are started: where there are none nothing is looked up.
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
            names: Default::default(),
            started: [0; CLASSES],
            starts: 0,
        }
    }

    /// Expectations that are started and not met.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.started.iter().sum()
    }

    /// Notifications that have come and were not taken.
    pub(super) fn unexpected(&self) -> u64 {
        self.unexpected.number
    }

    /// Makes an expectation of `expected` notifications, at least 1. It is not started.
    pub(super) fn expect(&mut self, wanted: Wanted, expected: u64) -> ExpectationId {
        debug_assert!(expected > 0);
        let (class, name) = class_of(wanted);
        let groups = &mut self.groups;
        let group = *self.names[class].entry(name).or_insert_with(|| {
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

    /// Starts an idle expectation: it takes what it wants, and waits for the rest.
    pub(super) fn start(&mut self, id: ExpectationId) -> ExpectationState {
        let held = &mut self.expectations[key(id)];
        debug_assert_eq!(held.standing, ExpectationState::Idle);
        let group = &mut self.groups[held.group];
        let mut missing = held.expected;
        // Those that were started before have taken what there was; then nothing is left for this
        // one.
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

    /// A notification has come.
    pub(super) fn arrived(&mut self, arrival: Arrival) {
        let mut earliest: Option<(u64, usize, Key)> = None;
        for class in 0..CLASSES {
            if self.started[class] == 0 {
                continue;
            }
            if let Some(group) = self.names[class].get(&name(class, arrival))
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

    /// An expectation that was met may be started again.
    pub(super) fn rest(&mut self, id: ExpectationId) {
        let held = &mut self.expectations[key(id)];
        debug_assert!(matches!(held.standing, ExpectationState::Met(_)));
        held.standing = ExpectationState::Idle;
    }

    /// Nobody asks for an expectation any more. One that waits goes when it is met.
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
            let (class, name) = class_of(held.wanted);
            self.names[class].remove(&name);
            self.groups.remove(group);
        }
    }

    /// The oldest notification that is wanted and was not taken.
    pub(super) fn probe(&mut self, wanted: Wanted) -> Option<Arrival> {
        self.unexpected.first(wanted).map(|at| self.unexpected.entries[at as usize].arrival)
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

    /// An expectation in the middle of what it waits for, and one of the same kind started behind
    /// it: the first has no part of the second's, and nothing that was left over is taken out of
    /// order.
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
        assert_eq!((m.unexpected.entries.len(), m.unexpected()), (1, 1_000_000));
        for tag in 0..10_000 {
            m.arrived(arrival(3, tag));
        }
        let all = m.expect(wanted(Some(3), None), 1_010_000);
        assert_eq!(m.start(all), ExpectationState::Met(arrival(3, 9_999)));
        assert_eq!((m.unexpected.entries.capacity(), m.unexpected()), (0, 0));
    }

    /// What the rules say, by searching lists.
    #[derive(Default)]
    struct Naive {
        unexpected: Vec<Arrival>,
        /// Started: number, what is wanted, how many are missing.
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
                                    m.rest(id);
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
