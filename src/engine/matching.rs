//! The data structure that matches tagged notifications with the expectations of this process.
//!
//! It follows MPI's rules for matching messages [NA-4]. A notification goes to the expectation that
//! was started first, among those that accept its source and tag. An expectation takes earlier
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
    let arrival = Arrival { source: wanted.source.unwrap_or(0), tag: wanted.tag.unwrap_or(0) };
    (class, match_key(class, arrival))
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

    /// The ends of a run's chain of a class.
    fn ends(&mut self, class: usize, at: u32) -> &mut Chain {
        if class == ANY {
            return &mut self.all;
        }
        let key = match_key(class, self.runs[at as usize].arrival);
        self.chains[class].entry(key).or_insert(EMPTY_CHAIN)
    }

    /// Appends a run to its chain of a class.
    fn chain(&mut self, class: usize, at: u32) {
        let ends = self.ends(class, at);
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
        if class != ANY && before == NIL && after == NIL {
            let key = match_key(class, self.runs[at as usize].arrival);
            self.chains[class].remove(&key);
            return;
        }
        match before {
            NIL => self.ends(class, at).first = after,
            _ => self.runs[before as usize].links[class].after = after,
        }
        match after {
            NIL => self.ends(class, at).last = before,
            _ => self.runs[after as usize].links[class].before = before,
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
    state: ExpectationState,
    /// Freed by its owner, and removed when it is met.
    abandoned: bool,
}

/// Both sides of the matching in one process. The methods of [`Window`](super::Window) with the
/// same names describe those of this type.
#[derive(Debug, Default)]
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
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.started.iter().sum()
    }

    pub(super) fn unexpected(&self) -> u64 {
        self.unexpected.number
    }

    pub(super) fn expect(&mut self, wanted: Wanted, expected: u64) -> ExpectationId {
        debug_assert!(expected > 0);
        let (class, key) = class_of(wanted);
        let groups = &mut self.groups;
        let group = *self.groups_by_key[class].entry(key).or_insert_with(|| {
            groups.insert(Group { wanted, members: 0, started: VecDeque::new() })
        });
        self.groups[group].members += 1;
        let made = Expectation { group, expected, state: ExpectationState::Idle, abandoned: false };
        let Key { index, generation } = self.expectations.insert(made);
        ExpectationId { index, generation }
    }

    pub(super) fn expectation_state(&self, id: ExpectationId) -> ExpectationState {
        self.expectations[key(id)].state
    }

    pub(super) fn start(&mut self, id: ExpectationId) -> ExpectationState {
        let entry = &mut self.expectations[key(id)];
        debug_assert_eq!(entry.state, ExpectationState::Idle);
        let group = &mut self.groups[entry.group];
        let mut missing = entry.expected;
        // If an equal expectation waits already, it has taken everything that matches.
        while missing > 0
            && group.started.is_empty()
            && let Some((arrival, taken)) = self.unexpected.take(group.wanted, missing)
        {
            missing -= taken;
            entry.state = ExpectationState::Met(arrival);
        }
        if missing > 0 {
            entry.state = ExpectationState::Waiting(missing);
            self.starts += 1;
            group.started.push_back((self.starts, key(id)));
            self.started[class_of(group.wanted).0] += 1;
        }
        entry.state
    }

    /// Matches a notification that has arrived.
    pub(super) fn arrived(&mut self, arrival: Arrival) {
        let first_started = |class: usize| {
            let group = *self.groups_by_key[class].get(&match_key(class, arrival))?;
            let (start, expectation) = *self.groups[group].started.front()?;
            Some((start, class, group, expectation))
        };
        let earliest = (0..CLASSES)
            .filter(|class| self.started[*class] > 0)
            .filter_map(first_started)
            .min_by_key(|(start, ..)| *start);
        let Some((_, class, group, expectation)) = earliest else {
            return self.unexpected.push(arrival);
        };
        let entry = &mut self.expectations[expectation];
        match &mut entry.state {
            ExpectationState::Waiting(missing) if *missing > 1 => *missing -= 1,
            state => {
                *state = ExpectationState::Met(arrival);
                self.groups[group].started.pop_front();
                self.started[class] -= 1;
                if entry.abandoned {
                    self.remove(expectation);
                }
            }
        }
    }

    pub(super) fn make_idle(&mut self, id: ExpectationId) {
        let entry = &mut self.expectations[key(id)];
        debug_assert!(matches!(entry.state, ExpectationState::Met(_)));
        entry.state = ExpectationState::Idle;
    }

    pub(super) fn abandon(&mut self, id: ExpectationId) {
        let entry = &mut self.expectations[key(id)];
        entry.abandoned = true;
        if !matches!(entry.state, ExpectationState::Waiting(_)) {
            self.remove(key(id));
        }
    }

    fn remove(&mut self, expectation: Key) {
        let Some(Expectation { group, .. }) = self.expectations.take(expectation) else { return };
        let entry = &mut self.groups[group];
        entry.members -= 1;
        if entry.members == 0 {
            let (class, key) = class_of(entry.wanted);
            self.groups_by_key[class].remove(&key);
            self.groups.remove(group);
        }
    }

    pub(super) fn probe(&mut self, wanted: Wanted) -> Option<Arrival> {
        self.unexpected.first(wanted).map(|at| self.unexpected.runs[at as usize].arrival)
    }
}
