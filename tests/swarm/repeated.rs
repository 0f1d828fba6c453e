//! Transactions with persistent epochs: rounds of the same epochs, which some ranks start as
//! records, and others make by calls.

use std::collections::BTreeMap;

use mpix_rma::engine::*;
use mpix_rma::sim::{Group, Step};

use super::generator::{Exposure, Generator, Item, Pattern, Regime};
use super::operations::Open;
use super::program::*;
use super::records::{Held, Part};
use super::transactions::NOTHING;

/// The records of a transaction, by rank.
type Records = BTreeMap<Rank, RecordId>;

/// Epochs that every origin opens to every target, in several rounds.
#[derive(Clone)]
struct Party {
    window: u32,
    origins: Vec<Rank>,
    targets: Vec<Rank>,
    records: Records,
    rounds: u32,
}

/// Fence epochs of all ranks, in several rounds.
#[derive(Clone)]
struct Circle {
    window: u32,
    records: Records,
    /// The targets of each record.
    targets: BTreeMap<Rank, Vec<Rank>>,
    /// Of the fence that opens the epoch, and of the one that closes it.
    asserts: [Assert; 2],
    /// Each round happens in the epoch that is open already. A record has its second fence only.
    inside: bool,
    rounds: u32,
}

impl Generator {
    /// The items of a transaction with persistent epochs.
    pub fn repeated(&mut self, window: u32) -> Vec<Item> {
        loop {
            let features = &self.features;
            match self.rng.u8(0..4) {
                0 if features.accesses => return self.repeated_accesses(window),
                1 if features.fences => return self.repeated_fences(window),
                2 if features.locks => return self.repeated_locks(window, false),
                3 if features.lock_alls => return self.repeated_locks(window, true),
                _ if !features.accesses && !features.fences && !features.locks => {
                    return self.repeated_locks(window, true);
                }
                _ => {}
            }
        }
    }

    fn check_all(&mut self, me: Rank, puts: &[Content]) {
        puts.iter().filter(|put| put.rank == me).for_each(|put| self.call(me, Call::Check(*put)));
    }

    fn retire_all(&mut self, records: &Records) {
        records.values().for_each(|record| self.retire(*record));
    }

    // ---- accesses ----

    fn repeated_accesses(&mut self, window: u32) -> Vec<Item> {
        let (origins, targets) = (self.any_group(), self.any_group());
        // Under a reorder flag, a put may take effect before that of the round before.
        let rounds = if self.ordered(window) { self.rng.u32(1..4) } else { 1 };
        vec![Box::new(move |g| {
            let mut records = Records::new();
            for me in 0..g.ranks {
                let (origin, target) = (origins.contains(&me), targets.contains(&me));
                if !(origin || target) || g.one_in(3) {
                    continue;
                }
                let mut parts = Vec::new();
                if target {
                    parts.push(Part::Sync(SyncCall::Post(origins.clone().into())));
                }
                if origin {
                    parts.push(Part::Sync(SyncCall::Start(targets.clone().into())));
                    parts.push(Part::Ops(targets.clone()));
                    parts.push(Part::Sync(SyncCall::Complete));
                }
                if target {
                    parts.push(Part::Sync(SyncCall::Wait));
                }
                records.insert(me, g.record(window, me, parts));
            }
            g.accesses_again(Party { window, origins, targets, records, rounds });
        })]
    }

    fn accesses_again(&mut self, mut party: Party) {
        let window = party.window;
        if party.rounds == 0 {
            return self.retire_all(&party.records);
        }
        party.rounds -= 1;
        self.first(window, Box::new(move |g| g.post_again(party)));
    }

    fn post_again(&mut self, party: Party) {
        let window = party.window;
        let mut held = Vec::new();
        for &me in &party.targets {
            self.end_exposure(window, me);
            if let Some(record) = party.records.get(&me) {
                held.push(self.restart(*record));
                continue;
            }
            self.step(me, Step::Post { window, group: Group::List(party.origins.clone()) });
            self.exposures[window as usize][me as usize] = Some(Exposure { sees: Vec::new() });
        }
        self.first(window, Box::new(move |g| g.start_again(party, held)));
    }

    fn start_again(&mut self, party: Party, mut held: Vec<Held>) {
        let window = party.window;
        let mut opens = Vec::new();
        for &me in &party.origins {
            if let Some(record) = party.records.get(&me) {
                if !party.targets.contains(&me) {
                    held.push(self.restart(*record));
                }
                continue;
            }
            self.step(me, Step::Start { window, group: Group::List(party.targets.clone()) });
            let mut open = Open::new(me, window, false, false);
            party.targets.iter().for_each(|target| self.operations(&mut open, *target));
            opens.push(open);
        }
        self.first(window, Box::new(move |g| g.complete_again(party, opens, held)));
    }

    fn complete_again(&mut self, party: Party, opens: Vec<Open>, held: Vec<Held>) {
        let window = party.window;
        let mut puts: Vec<Content> = held.iter().flat_map(|held| held.puts.clone()).collect();
        for open in opens {
            let (blocks, ids) = (self.blocks(), open.ids(None));
            self.closing(open.me, blocks, &ids, |how| Step::Complete { window, how });
            puts.extend(open.puts);
        }
        for content in &puts {
            if let Some(exposure) = &mut self.exposures[window as usize][content.rank as usize] {
                exposure.sees.push(*content);
            }
        }
        for held in held {
            let me = held.me;
            if self.release(held, party.rounds == 0) && party.targets.contains(&me) {
                self.check_all(me, &puts);
            }
        }
        self.accesses_again(party);
    }

    // ---- fences ----

    fn repeated_fences(&mut self, window: u32) -> Vec<Item> {
        let rounds = self.rng.u32(1..4);
        vec![Box::new(move |g| {
            let learns = g.patterns[window as usize] != Pattern::Never;
            let asserts = g.features.asserts;
            let inside = g.one_in(3);
            // With operations in an epoch that the first fence of each record closes.
            let joins = !inside && !learns && g.one_in(3);
            // In the epoch that is learned, each rank reaches the targets of its record.
            let noprecede = !joins && (learns || asserts && g.rng.bool());
            let nosucceed = !joins && !inside && asserts && g.rng.bool();
            let asserts = [Assert { noprecede, ..NOTHING }, Assert { nosucceed, ..NOTHING }];
            let (mut records, mut targets) = (Records::new(), BTreeMap::new());
            for me in 0..g.ranks {
                if g.one_in(3) {
                    continue;
                }
                let group = g.fence_targets(window, me);
                let mut parts = vec![
                    Part::Sync(SyncCall::Fence(asserts[0])),
                    Part::Ops(group.clone()),
                    Part::Sync(SyncCall::Fence(asserts[1])),
                ];
                if inside {
                    parts.remove(0);
                    g.count("record in an open fence epoch");
                }
                records.insert(me, g.record(window, me, parts));
                targets.insert(me, g.reached(records[&me]));
            }
            let circle = Circle { window, records, targets, asserts, inside, rounds };
            if inside {
                g.all_fence(window, asserts[0]);
            }
            if joins {
                g.all_fence(window, NOTHING);
                g.first(
                    window,
                    Box::new(move |g| {
                        let opens = (0..g.ranks).map(|me| g.fence_operations(window, me)).collect();
                        g.fences_again(circle, opens);
                    }),
                );
            } else {
                g.fences_again(circle, Vec::new());
            }
        })]
    }

    /// All ranks call a fence, and then none has an exposure.
    pub fn all_fence(&mut self, window: u32, assert: Assert) {
        for me in 0..self.ranks {
            self.end_exposure(window, me);
            let blocks = self.blocks();
            self.closing(me, blocks, &[], |how| Step::Fence { window, assert, how });
        }
        self.learn(window, assert, &[]);
    }

    /// Targets of a record with fences; sometimes one that the pattern lacks.
    fn fence_targets(&mut self, window: u32, me: Rank) -> Vec<Rank> {
        let group = self.any_group();
        match &self.patterns[window as usize] {
            Pattern::Learned(targets) if self.rng.u8(0..4) > 0 => {
                let learned = targets[me as usize].clone();
                group.into_iter().filter(|to| *to == me || learned.contains(to)).collect()
            }
            _ => group,
        }
    }

    fn reached(&self, record: RecordId) -> Vec<Rank> {
        self.program.records[record].ops().map(|id| self.program.plans[id].target).collect()
    }

    fn fences_again(&mut self, mut circle: Circle, before: Vec<Open>) {
        let window = circle.window;
        if circle.rounds == 0 {
            return self.retire_all(&circle.records);
        }
        circle.rounds -= 1;
        self.first(window, Box::new(move |g| g.open_fences(circle, before)));
    }

    /// `before`: the epochs that the first fences close, if they have operations.
    fn open_fences(&mut self, circle: Circle, before: Vec<Open>) {
        let (window, assert) = (circle.window, circle.asserts[0]);
        let (mut held, mut opens): (Vec<Held>, Vec<Open>) = Default::default();
        for me in 0..self.ranks {
            if !circle.inside {
                self.end_exposure(window, me);
            }
            let record = circle.records.get(&me).copied();
            let record = record.filter(|record| self.may_reach(window, me, *record));
            if let Some(record) = record {
                held.push(self.restart(record));
                let reached = circle.targets[&me].clone();
                let mut open = Open::in_fence(me, window);
                open.reached = reached;
                opens.push(open);
                continue;
            }
            if !circle.inside {
                let ids = before.get(me as usize).map_or(Vec::new(), |open| open.ids(None));
                let blocks = self.blocks();
                self.closing(me, blocks, &ids, |how| Step::Fence { window, assert, how });
            }
        }
        if !circle.inside {
            self.learn(window, assert, &[]);
        }
        self.first(
            window,
            Box::new(move |g| {
                for me in 0..g.ranks {
                    if !held.iter().any(|held| held.me == me) {
                        let open = g.fence_operations(window, me);
                        opens.push(open);
                    }
                }
                g.first(window, Box::new(move |g| g.close_fences(circle, opens, held)));
            }),
        );
    }

    /// Whether the pattern has all targets of a record. If not, its start is refused.
    fn may_reach(&mut self, window: u32, me: Rank, record: RecordId) -> bool {
        let Pattern::Learned(targets) = &self.patterns[window as usize] else { return true };
        let learned = &targets[me as usize];
        let known = self.reached(record).iter().all(|to| *to == me || learned.contains(to));
        if !known {
            self.call(me, Call::RestartRefused(record));
            self.count("start with an access that was not learned");
        }
        known
    }

    fn close_fences(&mut self, circle: Circle, opens: Vec<Open>, held: Vec<Held>) {
        let (window, assert) = (circle.window, circle.asserts[1]);
        self.learn(window, assert, &opens);
        let recorded: Vec<Rank> = held.iter().map(|held| held.me).collect();
        let mut puts: Vec<Content> = opens.iter().flat_map(|open| open.puts.clone()).collect();
        // Between epochs that are closed and opened by the same fence, the next start may already
        // overwrite what this one has written.
        if !circle.inside || circle.rounds == 0 {
            puts.extend(held.iter().flat_map(|held| held.puts.clone()));
        }
        for open in opens.iter().filter(|open| !recorded.contains(&open.me)) {
            let (blocks, ids) = (self.blocks(), open.ids(None));
            if self.closing(open.me, blocks, &ids, |how| Step::Fence { window, assert, how }) {
                self.check_all(open.me, &puts);
            }
        }
        for held in held {
            let me = held.me;
            if self.release(held, circle.rounds == 0) {
                self.check_all(me, &puts);
            }
        }
        self.fences_again(circle, Vec::new());
    }

    // ---- locks ----

    /// Records with one or several lock epochs, or with a lock_all.
    fn repeated_locks(&mut self, window: u32, all: bool) -> Vec<Item> {
        let regime = self.regimes[window as usize];
        if all && matches!(regime, Regime::Private(_)) {
            // Other ranks hold exclusive locks here for long.
            return self.repeated_locks(window, false);
        }
        let rounds = self.rng.u32(1..4);
        vec![Box::new(move |g| {
            let mut ranks = g.any_group();
            if regime == Regime::Contended {
                ranks.truncate(2);
            }
            let mut records = Records::new();
            for me in ranks {
                let parts = if all { g.lock_all_parts(regime) } else { g.lock_parts(regime, me) };
                if !parts.is_empty() {
                    records.insert(me, g.record(window, me, parts));
                }
            }
            g.locks_again(window, regime, records, rounds);
        })]
    }

    fn lock_all_parts(&mut self, regime: Regime) -> Vec<Part> {
        let assert = if regime == Regime::Contended { NOTHING } else { self.unchecked_lock() };
        let targets = self.any_group();
        vec![
            Part::Sync(SyncCall::LockAll(assert)),
            Part::Ops(targets),
            Part::Sync(SyncCall::UnlockAll),
        ]
    }

    fn lock_parts(&mut self, regime: Regime, me: Rank) -> Vec<Part> {
        let mut targets = self.any_group();
        if let Regime::Private(shift) = regime {
            targets.retain(|target| (target + shift) % self.ranks == me);
        }
        targets.truncate(3);
        let mut parts = Vec::new();
        for target in targets {
            let mode = if regime == Regime::Shared { LockMode::Shared } else { self.any_mode() };
            let assert = if regime == Regime::Contended { NOTHING } else { self.unchecked_lock() };
            parts.push(Part::Sync(SyncCall::Lock(mode, target, assert)));
            parts.push(Part::Ops(vec![target]));
            parts.push(Part::Sync(SyncCall::Unlock(target)));
        }
        parts
    }

    fn locks_again(&mut self, window: u32, regime: Regime, records: Records, rounds: u32) {
        if rounds == 0 {
            return self.retire_all(&records);
        }
        let mut held = Vec::new();
        for (&me, &record) in &records {
            self.end_exposure(window, me);
            held.push(self.restart(record));
        }
        let rest: Item = Box::new(move |g| {
            for held in held {
                g.release(held, rounds == 1);
            }
            g.locks_again(window, regime, records, rounds - 1);
        });
        // Other ranks may want contended locks before the next item.
        if regime == Regime::Contended { rest(self) } else { self.first(window, rest) }
    }
}
