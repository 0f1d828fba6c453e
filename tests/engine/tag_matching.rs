//! Matching of tagged notifications with expectations, by MPI's rules for messages, against a
//! linear search.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mpix_rma::engine::*;

use crate::alloc;

/// A port that delivers tagged notifications and does nothing else.
#[derive(Default)]
struct Arrivals(VecDeque<Arrival>);

impl LockMemory for Arrivals {
    fn atomic(&mut self, _: Rank, _: LockWord, _: Atomic, _: LockTicket) -> Answer {
        unreachable!("no locks")
    }
    fn look(&mut self, _: LockWord) -> u64 {
        unreachable!("no locks")
    }
}

impl Port for Arrivals {
    fn post(&mut self, _: &Op, _: Ticket) -> Posted {
        unreachable!("no operations")
    }
    fn signal(&mut self, _: Rank, _: Word, _: u64) -> Result<(), NoResource> {
        unreachable!("no epochs")
    }
    fn observe(&mut self, _: Rank, _: Word) -> u64 {
        unreachable!("no epochs")
    }
    fn poll(&mut self) -> bool {
        false
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        None
    }
    fn next_arrival(&mut self) -> Option<Arrival> {
        self.0.pop_front()
    }
}

/// The tagged notifications of one process.
struct Matcher {
    window: Window,
    port: Arrivals,
}

impl Matcher {
    fn new() -> Self {
        Matcher { window: Window::new(0, 16, ReorderFlags::default()), port: Arrivals::default() }
    }
    fn arrived(&mut self, arrival: Arrival) {
        self.port.0.push_back(arrival);
        self.window.take_arrivals(&mut self.port);
    }
    fn expect(&mut self, wanted: Wanted, expected: u64) -> ExpectationId {
        self.window.expect(wanted, expected)
    }
    fn start(&mut self, id: ExpectationId) -> ExpectationState {
        self.window.start_expecting(id)
    }
    fn expectation_state(&self, id: ExpectationId) -> ExpectationState {
        self.window.expectation_state(id)
    }
    fn make_idle(&mut self, id: ExpectationId) {
        self.window.make_idle(id);
    }
    fn abandon(&mut self, id: ExpectationId) {
        self.window.abandon(id);
    }
    fn probe(&mut self, wanted: Wanted) -> Option<Arrival> {
        self.window.probe(&mut self.port, wanted)
    }
    fn waiting(&self) -> u32 {
        self.window.expectations_waiting()
    }
    fn unexpected(&self) -> u64 {
        self.window.unexpected()
    }
}

fn wanted(source: Option<Rank>, tag: Option<u32>) -> Wanted {
    Wanted { source, tag }
}

fn arrival(source: Rank, tag: u32) -> Arrival {
    Arrival { source, tag }
}

#[test]
fn the_oldest_notification_is_taken_first() {
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
fn the_expectation_started_first_is_served_first() {
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
fn equal_expectations_are_served_in_order() {
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
fn an_abandoned_expectation_still_takes_its_notifications() {
    let mut m = Matcher::new();
    let id = m.expect(wanted(Some(0), Some(0)), 2);
    m.start(id);
    m.arrived(arrival(0, 0));
    m.abandon(id);
    assert_eq!(m.waiting(), 1);
    m.arrived(arrival(0, 0));
    assert_eq!((m.waiting(), m.unexpected()), (0, 0));
    let state = catch_unwind(AssertUnwindSafe(|| m.expectation_state(id)));
    assert!(state.is_err(), "the abandoned expectation is removed: {state:?}");
    m.arrived(arrival(0, 0));
    assert_eq!(m.unexpected(), 1);
}

#[test]
fn a_flood_of_equal_notifications_takes_no_memory() {
    const SMALL: i64 = 16 << 10;
    let mut m = Matcher::new();
    let before = alloc::live();
    for _ in 0..1_000_000 {
        m.arrived(arrival(3, 7));
    }
    assert_eq!(m.unexpected(), 1_000_000);
    assert!(alloc::live() - before < SMALL, "equal notifications share an entry");
    for tag in 0..10_000 {
        m.arrived(arrival(3, tag));
    }
    assert!(alloc::live() - before > SMALL);
    let all = m.expect(wanted(Some(3), None), 1_010_000);
    assert_eq!(m.start(all), ExpectationState::Met(arrival(3, 9_999)));
    assert_eq!(m.unexpected(), 0);
    assert!(alloc::live() - before < SMALL, "memory is freed");
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
            && let Some(at) = self.unexpected.iter().position(|arrival| accepts(wanted, *arrival))
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
fn random_traffic_is_matched_as_by_linear_search() {
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
                        naive.unexpected.iter().copied().find(|arrival| accepts(wanted, *arrival))
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
