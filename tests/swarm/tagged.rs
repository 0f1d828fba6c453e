//! Tagged notifications in random programs: sent behind operations in any epoch, and expected by
//! their targets between other calls.
//!
//! Which expectation a notification matches depends on the order in which several sources' arrive.
//! In any order, a started expectation takes at most as many as it expects, and only expectations
//! started earlier compete with it. So it is met once as many matching notifications were sent as
//! it and those earlier ones expect in total ([`Tags::is_fed`]). Only then a wait for it cannot
//! deadlock [EP-10]. At the end, expectations that are not met are fed.

use mpix_rma::engine::*;
use mpix_rma::sim::{Slot, Step};

use super::generator::Generator;
use super::notifications::Announced;
use super::operations::Open;
use super::program::*;

/// Number of tags that all ranks use.
const SHARED: u32 = 3;
/// Tags from here on are used once each.
const OWN: u32 = 1000;

/// One start of an expectation.
#[derive(Clone, Copy)]
struct Start {
    slot: Slot,
    wanted: Wanted,
    expected: u64,
    /// It was waited for, so it is met.
    met: bool,
    /// No call will wait for it.
    abandoned: bool,
}

/// Tagged notifications of a rank, according to the calls so far.
pub struct Tags {
    /// Expectations also use wildcards. Otherwise tags that are used once are matched by exact
    /// filters only.
    wild: bool,
    called: Vec<(Rank, u32)>,
    own: u32,
    /// Tags that are used once, with source and what the rank may do after the notification.
    announced: Vec<(Rank, u32, Announced)>,
    /// Starts, in call order.
    starts: Vec<Start>,
    /// Idle expectations.
    idle: Vec<(Slot, Wanted, u64)>,
}

fn accepts(wanted: Wanted, source: Rank, tag: u32) -> bool {
    wanted.source.is_none_or(|wanted| wanted == source)
        && wanted.tag.is_none_or(|wanted| wanted == tag)
}

fn overlap(one: Wanted, other: Wanted) -> bool {
    let apart = |one: Option<u32>, other: Option<u32>| {
        one.zip(other).is_some_and(|(one, other)| one != other)
    };
    !apart(one.source, other.source) && !apart(one.tag, other.tag)
}

impl Tags {
    pub fn new(wild: bool) -> Self {
        Tags {
            wild,
            called: Vec::new(),
            own: OWN,
            announced: Vec::new(),
            starts: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// How many matching notifications these starts may take, and how many were sent.
    fn demand_and_supply(&self, starts: &[Start], wanted: Wanted) -> (u64, u64) {
        let demand = starts
            .iter()
            .filter(|start| overlap(start.wanted, wanted))
            .map(|start| start.expected)
            .sum();
        let supply =
            self.called.iter().filter(|(source, tag)| accepts(wanted, *source, *tag)).count();
        (demand, supply as u64)
    }

    /// How many notifications must still be sent until this start is met in any order.
    fn lacks(&self, at: usize) -> u64 {
        let (demand, supply) = self.demand_and_supply(&self.starts[..=at], self.starts[at].wanted);
        if self.starts[at].met { 0 } else { demand.saturating_sub(supply) }
    }

    /// How many notifications a start may expect to be fed already.
    fn surplus(&self, wanted: Wanted) -> u64 {
        let (demand, supply) = self.demand_and_supply(&self.starts, wanted);
        supply.saturating_sub(demand)
    }

    fn is_fed(&self, at: usize) -> bool {
        self.lacks(at) == 0
    }

    /// Starts that may be waited for.
    fn open(&self) -> Vec<usize> {
        (0..self.starts.len())
            .filter(|at| !self.starts[*at].met && !self.starts[*at].abandoned)
            .collect()
    }
}

impl Generator {
    fn tags(&mut self, window: u32, me: Rank) -> &mut Tags {
        &mut self.cells(window, me).tags
    }

    /// A notification to `target`.
    fn tell(&mut self, open: &Open, target: Rank, tag: u32) {
        self.notify_alone(open, target, Notification::tag(tag));
        self.tags(open.window, target).called.push((open.me, tag));
    }

    /// A tag that all ranks use.
    pub fn shared_tag(&mut self) -> u32 {
        self.rng.u32(0..SHARED)
    }

    /// A rank sends this notification, if it is a tagged one.
    pub fn told(&mut self, window: u32, target: Rank, me: Rank, told: Option<Notification>) {
        if let Some(NotificationKind::Tag(tag)) = told.map(Notification::kind) {
            self.tags(window, target).called.push((me, tag));
        }
    }

    /// An operation and its notification, or notifications alone.
    pub fn telling(&mut self, open: &mut Open, target: Rank) {
        if !self.features.tags {
            return;
        }
        if self.rng.bool() {
            let (window, me) = (open.window, open.me);
            let tag = self.tags(window, target).own;
            let announced = self.own_operation(open, target, Notification::tag(tag));
            let tags = self.tags(window, target);
            tags.own += 1;
            tags.called.push((me, tag));
            tags.announced.push((me, tag, announced));
            if let Announced::There(content) = announced {
                self.program.announced.insert((window, target, me, tag), content);
            }
            return self.count("operation with tagged notification");
        }
        let same = self.rng.bool().then(|| self.rng.u32(0..SHARED));
        for _ in 0..self.rng.u32(1..5) {
            let tag = same.unwrap_or_else(|| self.rng.u32(0..SHARED));
            self.tell(open, target, tag);
        }
        self.count("tagged notification alone");
    }

    fn any_wanted(&mut self, window: u32, me: Rank) -> Wanted {
        let source = self.rng.bool().then(|| self.any_rank());
        let tag = self.rng.u32(0..SHARED);
        if !self.tags(window, me).wild {
            return Wanted { source, tag: Some(tag) };
        }
        let called = self.tags(window, me).called.len();
        match self.rng.u8(0..4) {
            0 => Wanted { source, tag: Some(tag) },
            // A filter for something that was sent, or at least for its source or tag.
            1 if called > 0 => {
                let at = self.rng.usize(0..called);
                let (source, tag) = self.tags(window, me).called[at];
                Wanted { source: self.rng.bool().then_some(source), tag: Some(tag) }
            }
            _ => Wanted { source, tag: None },
        }
    }

    fn make(&mut self, window: u32, me: Rank, wanted: Wanted, expected: u64) -> Slot {
        let slot = self.expectation_slot(me);
        self.step(me, Step::Expect { window, wanted, expected, slot });
        slot
    }

    fn start(&mut self, window: u32, me: Rank, slot: Slot, wanted: Wanted, expected: u64) -> usize {
        self.step(me, Step::StartExpecting { window, slot });
        self.count(match wanted {
            Wanted { source: Some(_), tag: Some(_) } => "expectation",
            Wanted { source: None, tag: Some(_) } => "expectation of any source",
            Wanted { source: Some(_), tag: None } => "expectation of any tag",
            Wanted { source: None, tag: None } => "expectation of anything",
        });
        let starts = &mut self.tags(window, me).starts;
        starts.push(Start { slot, wanted, expected, met: false, abandoned: false });
        starts.len() - 1
    }

    /// Waits for a start that is fed.
    fn await_start(&mut self, window: u32, me: Rank, at: usize) {
        let slot = self.tags(window, me).starts[at].slot;
        if self.features.tests && self.one_in(3) {
            self.call(me, Call::TestExpectationLoop { window, slot });
        } else {
            self.step(me, Step::AwaitExpectation { window, slot });
        }
        self.call(me, Call::CheckAnnounced(window));
        self.count("expectation met");
        let tags = self.tags(window, me);
        let start = &mut tags.starts[at];
        start.met = true;
        tags.idle.push((slot, start.wanted, start.expected));
    }

    fn abandon_start(&mut self, window: u32, me: Rank, at: usize) {
        let start = &mut self.tags(window, me).starts[at];
        start.abandoned = true;
        let slot = start.slot;
        self.step(me, Step::Abandon { window, slot });
        self.count("expectation abandoned");
    }

    /// Between two items a rank may expect, wait or probe.
    pub fn expecting(&mut self, me: Rank) {
        if !self.features.tags {
            return;
        }
        let window = self.rng.u32(0..self.windows);
        match self.rng.u8(0..10) {
            0..=2 => {
                let wanted = self.any_wanted(window, me);
                let surplus = self.tags(window, me).surplus(wanted);
                let expected = if surplus > 0 && self.rng.bool() {
                    self.rng.u64(1..=surplus)
                } else {
                    self.rng.u64(1..4)
                };
                let slot = self.make(window, me, wanted, expected);
                if self.one_in(8) {
                    self.tags(window, me).idle.push((slot, wanted, expected));
                } else {
                    self.start(window, me, slot, wanted, expected);
                }
            }
            3 => {
                let idle = self.tags(window, me).idle.len();
                if idle > 0 {
                    let which = self.rng.usize(0..idle);
                    let (slot, wanted, expected) = self.tags(window, me).idle.swap_remove(which);
                    if self.one_in(4) {
                        self.step(me, Step::Abandon { window, slot });
                    } else {
                        self.start(window, me, slot, wanted, expected);
                    }
                }
            }
            4..=6 => {
                let tags = self.tags(window, me);
                let fed: Vec<_> = tags.open().into_iter().filter(|at| tags.is_fed(*at)).collect();
                if !fed.is_empty() {
                    let at = fed[self.rng.usize(0..fed.len())];
                    self.await_start(window, me, at);
                }
            }
            7 => {
                let open = self.tags(window, me).open();
                if !open.is_empty() && self.one_in(2) {
                    let at = open[self.rng.usize(0..open.len())];
                    self.abandon_start(window, me, at);
                } else {
                    let wanted = self.any_wanted(window, me);
                    self.step(me, Step::Probe { window, wanted });
                    self.count("probe");
                }
            }
            _ => self.hear_tag(window, me),
        }
    }

    /// Memory announced by a unique tag is visible as soon as the notification was awaited, without
    /// other synchronization.
    fn hear_tag(&mut self, window: u32, me: Rank) {
        let tags = &self.cells[window as usize][me as usize].tags;
        if tags.wild || tags.announced.is_empty() {
            return;
        }
        let which = self.rng.usize(0..tags.announced.len());
        let (source, tag, announced) = self.tags(window, me).announced.swap_remove(which);
        let wanted = Wanted { source: self.rng.bool().then_some(source), tag: Some(tag) };
        let slot = self.make(window, me, wanted, 1);
        let at = self.start(window, me, slot, wanted, 1);
        self.await_start(window, me, at);
        self.count("data seen by their tag");
        self.handle_notification(me, announced);
    }

    /// At the end, sends what started expectations still miss.
    pub fn feed(&mut self) {
        for window in 0..self.windows {
            for target in 0..self.ranks {
                let mut at = 0;
                while at < self.tags(window, target).starts.len() {
                    let tags = self.tags(window, target);
                    let (lacks, wanted) = (tags.lacks(at), tags.starts[at].wanted);
                    at += 1;
                    if lacks == 0 {
                        continue;
                    }
                    let source = wanted.source.unwrap_or_else(|| self.any_rank());
                    let mode = self.any_mode();
                    self.locked(window, source, mode, target, |g, open| {
                        for _ in 0..lacks {
                            let tag = wanted.tag.unwrap_or_else(|| g.rng.u32(0..SHARED));
                            g.tell(open, target, tag);
                        }
                    });
                    self.count("expectation fed at the end");
                }
            }
        }
    }

    /// True if [`feed`](Self::feed) must send something.
    pub fn hungers(&mut self) -> bool {
        let tags = || self.cells.iter().flatten().map(|cells| &cells.tags);
        tags().any(|tags| (0..tags.starts.len()).any(|at| !tags.is_fed(at)))
    }

    /// At the end each rank waits for the remaining notifications, or leaves them unclaimed.
    pub fn hear_rest_of_tags(&mut self, window: u32, me: Rank) {
        let (waits, abandons) = (self.rng.bool(), self.rng.bool());
        let mut open = self.tags(window, me).open();
        self.rng.shuffle(&mut open);
        for at in open {
            match (waits, abandons) {
                (true, _) => self.await_start(window, me, at),
                (false, true) => self.abandon_start(window, me, at),
                (false, false) => {}
            }
        }
        if waits {
            let wanted = self.any_wanted(window, me);
            let surplus = self.tags(window, me).surplus(wanted);
            if surplus > 0 {
                let slot = self.make(window, me, wanted, surplus);
                let at = self.start(window, me, slot, wanted, surplus);
                self.await_start(window, me, at);
                self.count("expectation of all that is left");
            }
            for _ in 0..self.tags(window, me).announced.len() {
                self.hear_tag(window, me);
            }
        }
    }

    /// Memory announced to a rank that the rank did not change.
    pub fn conclude_tags(&mut self, window: u32, rank: Rank) {
        let announced = &self.cells[window as usize][rank as usize].tags.announced;
        self.program
            .end
            .extend(announced.iter().filter_map(|(_, _, announced)| announced.left_alone()));
    }
}
