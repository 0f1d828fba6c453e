//! The kinds of transactions, each a sequence of items.

use mpix_rma::engine::*;
use mpix_rma::sim::{Group, Step};

use super::generator::{Exposure, Generator, Item, Pattern, Regime};
use super::operations::Open;
use super::program::Call;

pub const NOTHING: Assert = Assert { nocheck: false, noprecede: false, nosucceed: false };

/// How a rank takes several locks without a deadlock: it must not wait for a lock while it holds a
/// later one that another rank may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nesting {
    /// Each is requested when the previous one is held.
    Blocking,
    /// As `Blocking`, but a completed flush shows that the previous lock is held.
    Flushed,
    /// All are requested at once, and the rank waits for nothing until all are closed.
    Nonblocking,
}

impl Generator {
    /// The items of a new transaction in a window.
    pub fn transaction(&mut self, window: u32) -> Vec<Item> {
        loop {
            let features = &self.features;
            let learns = self.patterns[window as usize] != Pattern::Never;
            match self.rng.u8(0..9) {
                0 if features.fences => return self.fences(window),
                1 | 3 if features.fences && learns => return self.fences(window),
                1..=2 if features.accesses => return self.accesses(window),
                3..=4 if features.locks => return self.locks(window),
                5 if features.lock_alls => return self.lock_alls(window),
                6 if features.contention && self.regimes[window as usize] == Regime::Contended => {
                    return vec![Box::new(move |g| g.increments(window))];
                }
                7 => return vec![Box::new(move |g| g.twins(window))],
                8 if features.records => return self.repeated(window),
                _ => {}
            }
        }
    }

    // ---- fences ----

    fn fences(&mut self, window: u32) -> Vec<Item> {
        let asserts = self.features.asserts;
        let noprecede = asserts && self.rng.bool();
        let learns = self.patterns[window as usize] != Pattern::Never;
        let sections = self.rng.u32(0..if learns { 5 } else { 3 });
        let mut items: Vec<Item> = vec![Box::new(move |g| {
            // No rank has accessed another, so the epoch is not the one to be learned.
            let noprecede = noprecede || g.patterns[window as usize] == Pattern::Learning;
            let assert = Assert { noprecede, ..NOTHING };
            g.all_fence(window, assert);
            g.count("fence");
        })];
        for section in 0..sections {
            let nosucceed = asserts && section + 1 == sections && self.rng.bool();
            items.push(Box::new(move |g| {
                let opens: Vec<Open> =
                    (0..g.ranks).map(|me| g.fence_operations(window, me)).collect();
                let puts: Vec<_> = opens.iter().flat_map(|open| open.puts.clone()).collect();
                let close: Item = Box::new(move |g| {
                    let assert = Assert { nosucceed, ..NOTHING };
                    g.learn(window, assert, &opens);
                    for open in opens {
                        let blocks = g.blocks();
                        let ids = open.ids(None);
                        if g.closing(open.me, blocks, &ids, |how| Step::Fence {
                            window,
                            assert,
                            how,
                        }) {
                            let own = puts.iter().filter(|content| content.rank == open.me);
                            own.for_each(|content| g.call(open.me, Call::Check(*content)));
                        }
                    }
                });
                g.first(window, close);
            }));
        }
        items
    }

    pub fn fence_operations(&mut self, window: u32, me: Rank) -> Open {
        let mut open = Open::in_fence(me, window);
        let learned = match &self.patterns[window as usize] {
            Pattern::Learned(targets) => Some(targets[me as usize].clone()),
            _ => None,
        };
        let may = |target: Rank| {
            learned.as_ref().is_none_or(|learned| target == me || learned.contains(&target))
        };
        let before = self.program.plans.len();
        if !self.one_in(4) {
            for target in self.any_group() {
                if may(target) {
                    self.operations(&mut open, target);
                } else if self.one_in(4) {
                    self.step(me, Step::IssueUnlearned { window, target });
                    self.count("access that was not learned");
                }
            }
        }
        open.reached = self.program.plans[before..].iter().map(|plan| plan.target).collect();
        open
    }

    /// All ranks call a fence with this assertion, which ends the epoch with these operations.
    pub fn learn(&mut self, window: u32, assert: Assert, opens: &[Open]) {
        match &self.patterns[window as usize] {
            Pattern::Never => (),
            Pattern::Learned(_) => self.count("fence of neighbours"),
            Pattern::Learning if !assert.noprecede => {
                let mut targets = vec![Vec::new(); self.ranks as usize];
                for open in opens {
                    targets[open.me as usize] = open.reached.clone();
                }
                self.patterns[window as usize] = Pattern::Learned(targets);
            }
            _ if assert.nosucceed => self.patterns[window as usize] = Pattern::Unopened,
            _ => self.patterns[window as usize] = Pattern::Learning,
        }
    }

    // ---- accesses and exposures ----

    /// Every origin accesses every target. A rank may be both.
    fn accesses(&mut self, window: u32) -> Vec<Item> {
        let (origins, targets) = (self.any_group(), self.any_group());
        let post: Item = {
            let (origins, targets) = (origins.clone(), targets.clone());
            Box::new(move |g| {
                for &me in &targets {
                    g.end_exposure(window, me);
                    let mut group = origins.clone();
                    g.rng.shuffle(&mut group);
                    g.step(me, Step::Post { window, group: Group::List(group) });
                    g.exposures[window as usize][me as usize] = Some(Exposure { sees: Vec::new() });
                }
                g.count("post");
            })
        };
        let start: Item = Box::new(move |g| {
            let mut opens = Vec::new();
            for &me in &origins {
                g.step(me, Step::Start { window, group: Group::List(targets.clone()) });
                let mut open = Open::new(me, window, false, false);
                if !g.one_in(5) {
                    targets.iter().for_each(|target| g.operations(&mut open, *target));
                }
                opens.push(open);
                if origins.contains(&me) && targets.contains(&me) {
                    g.count("post and start open together");
                }
            }
            g.count("start");
            let targets = targets.clone();
            let complete: Item = Box::new(move |g| {
                for open in opens {
                    g.on_any_lane(window, open.me);
                    let blocks = g.blocks();
                    let ids = open.ids(None);
                    g.closing(open.me, blocks, &ids, |how| Step::Complete { window, how });
                    for content in open.puts {
                        if let Some(exposure) =
                            &mut g.exposures[window as usize][content.rank as usize]
                        {
                            exposure.sees.push(content);
                        }
                    }
                }
                for me in targets {
                    if g.rng.bool() {
                        g.end_exposure(window, me);
                    }
                }
            });
            g.first(window, complete);
        });
        vec![post, start]
    }

    // ---- locks ----

    fn locks(&mut self, window: u32) -> Vec<Item> {
        match self.regimes[window as usize] {
            Regime::Contended => vec![Box::new(move |g| g.short_locks(window))],
            regime => {
                let ranks = self.any_group();
                vec![Box::new(move |g| g.long_locks(window, regime, ranks))]
            }
        }
    }

    /// Locks that other ranks also want, one after the other, without other calls meanwhile.
    fn short_locks(&mut self, window: u32) {
        let mut ranks = self.any_group();
        ranks.truncate(2);
        for me in ranks {
            let mut places: Vec<(u32, Rank)> =
                self.any_group().into_iter().map(|target| (window, target)).collect();
            // A lock that overtakes an earlier epoch may be held while the next one waits for that
            // epoch. Under a reorder flag the program itself must avoid hold-and-wait, because
            // EP-10 covers programs without flags only.
            // Behind a pattern fence, a lock waits for its target's fence [FE-3], and that may wait
            // for a rank that wants the lock held here.
            let nests = |g: &Self, window: u32| {
                g.ordered(window) && g.patterns[window as usize] == Pattern::Never
            };
            places.truncate(if nests(self, window) { 2 } else { 1 });
            let second = self.rng.u32(0..self.windows);
            let free =
                !self.is_active(second) && self.regimes[second as usize] == Regime::Contended;
            let free = free && !self.freed && nests(self, window) && nests(self, second);
            if second != window && free && self.rng.bool() {
                // A lock waits for earlier epochs of its own window. Take it under another window's
                // lock only if there are none.
                [window, second].into_iter().for_each(|window| self.end_exposure(window, me));
                self.settle_all(me);
                places.push((second, self.any_rank()));
                self.count("locks in two windows");
            }
            places.sort();
            self.nested_locks(me, &places);
        }
    }

    fn nested_locks(&mut self, me: Rank, places: &[(u32, Rank)]) {
        let nesting =
            [Nesting::Blocking, Nesting::Flushed, Nesting::Nonblocking][self.rng.usize(0..3)];
        let alone = places.len() == 1;
        let may_wait = alone || nesting != Nesting::Nonblocking;
        if !alone {
            self.count("nested locks");
        }
        let mut opens = Vec::new();
        for &(window, target) in places {
            if target == me {
                self.end_exposure(window, me);
            }
            opens.push(Open::new(me, window, true, may_wait));
        }
        for (at, &(window, target)) in places.iter().enumerate() {
            let mode = self.any_mode();
            let blocking = match nesting {
                _ if alone => self.blocks(),
                Nesting::Blocking => true,
                Nesting::Flushed | Nesting::Nonblocking => false,
            };
            self.step(me, Step::Lock { window, mode, target, assert: NOTHING, blocking });
            self.count("lock");
            if nesting == Nesting::Flushed && at + 1 < places.len() {
                let local = self.rng.bool();
                self.flush_how(&opens[at], Some(target), local, true);
            }
        }
        for (open, &(_, target)) in opens.iter_mut().zip(places) {
            self.operations(open, target);
        }
        let mut order: Vec<usize> = (0..places.len()).collect();
        self.rng.shuffle(&mut order);
        for (at, &which) in order.iter().enumerate() {
            let (window, target) = places[which];
            // Once all are closed, waiting for one blocks no other rank.
            let blocks = (may_wait || at + 1 == order.len()) && self.blocks();
            let ids = opens[which].ids(Some(target));
            self.closing(me, blocks, &ids, |how| Step::Unlock { window, target, how });
        }
    }

    /// Locks that no other rank wants in a conflicting mode, held across other calls.
    fn long_locks(&mut self, window: u32, regime: Regime, ranks: Vec<Rank>) {
        let mut held: Vec<(Open, Vec<Rank>)> = Vec::new();
        for me in ranks {
            let mut targets: Vec<Rank> = self.any_group();
            if let Regime::Private(shift) = regime {
                targets.retain(|target| (target + shift) % self.ranks == me);
            }
            targets.truncate(3);
            if targets.contains(&me) {
                self.end_exposure(window, me);
            }
            for &target in &targets {
                let mode =
                    if regime == Regime::Shared { LockMode::Shared } else { self.any_mode() };
                let assert = self.unchecked_lock();
                let blocking = self.blocks();
                self.step(me, Step::Lock { window, mode, target, assert, blocking });
                self.count("lock held across other calls");
            }
            held.push((Open::new(me, window, true, true), targets));
        }
        let operate: Item = Box::new(move |g| {
            for (open, targets) in &mut held {
                targets.iter().for_each(|target| g.operations(open, *target));
            }
            let unlock: Item = Box::new(move |g| {
                for (open, mut targets) in held {
                    g.rng.shuffle(&mut targets);
                    for target in targets {
                        g.on_any_lane(window, open.me);
                        let blocks = g.blocks();
                        let ids = open.ids(Some(target));
                        g.closing(open.me, blocks, &ids, |how| Step::Unlock {
                            window,
                            target,
                            how,
                        });
                    }
                }
            });
            g.first(window, unlock);
        });
        self.first(window, operate);
    }

    /// `NOCHECK` sometimes, where no conflicting lock is held or requested.
    pub fn unchecked_lock(&mut self) -> Assert {
        let nocheck = self.features.asserts && self.one_in(4);
        if nocheck {
            self.count("NOCHECK");
        }
        Assert { nocheck, ..NOTHING }
    }

    fn lock_alls(&mut self, window: u32) -> Vec<Item> {
        let mut ranks = self.any_group();
        match self.regimes[window as usize] {
            // Other ranks hold exclusive locks here for long.
            Regime::Private(_) => self.locks(window),
            Regime::Contended => {
                ranks.truncate(2);
                vec![Box::new(move |g| {
                    for me in ranks {
                        let mut open = g.lock_all(window, me, NOTHING);
                        g.any_group()
                            .into_iter()
                            .for_each(|target| g.operations(&mut open, target));
                        g.unlock_all(open);
                    }
                })]
            }
            Regime::Shared => vec![Box::new(move |g| {
                let mut opens: Vec<Open> = Vec::new();
                for me in ranks {
                    let assert = g.unchecked_lock();
                    opens.push(g.lock_all(window, me, assert));
                }
                let operate: Item = Box::new(move |g| {
                    for open in &mut opens {
                        g.any_group().into_iter().for_each(|target| g.operations(open, target));
                    }
                    let unlock: Item =
                        Box::new(move |g| opens.into_iter().for_each(|open| g.unlock_all(open)));
                    g.first(window, unlock);
                });
                g.first(window, operate);
            })],
        }
    }

    fn lock_all(&mut self, window: u32, me: Rank, assert: Assert) -> Open {
        self.end_exposure(window, me);
        let mut open = Open::new(me, window, true, true);
        loop {
            self.on_any_lane(window, me);
            let lane = self.lanes[me as usize][window as usize];
            if open.lock_alls.contains(&lane) {
                return open;
            }
            open.lock_alls.push(lane);
            let blocking = self.blocks();
            self.step(me, Step::LockAll { window, assert, blocking });
            self.count(if open.lock_alls.len() == 1 { "lock_all" } else { "lock_all that joins" });
        }
    }

    fn unlock_all(&mut self, open: Open) {
        let (window, mut lanes) = (open.window, open.lock_alls.clone());
        self.rng.shuffle(&mut lanes);
        while let Some(lane) = lanes.pop() {
            self.on_lane(window, open.me, lane);
            let ids = if lanes.is_empty() { open.ids(None) } else { open.ids_of_lane(lane, None) };
            let blocks = self.blocks();
            self.closing(open.me, blocks, &ids, |how| Step::UnlockAll { window, how });
        }
    }

    /// A short lock epoch with some operations.
    pub fn locked(
        &mut self,
        window: u32,
        me: Rank,
        mode: LockMode,
        target: Rank,
        inside: impl FnOnce(&mut Self, &mut Open),
    ) {
        if me == target {
            self.end_exposure(window, me);
        }
        self.on_any_lane(window, me);
        let blocking = self.blocks();
        self.step(me, Step::Lock { window, mode, target, assert: NOTHING, blocking });
        let mut open = Open::new(me, window, true, true);
        inside(self, &mut open);
        let (ids, blocks) = (open.ids(None), self.blocks());
        self.closing(me, blocks, &ids, |how| Step::Unlock { window, target, how });
    }

    /// Several ranks increment one cell under exclusive locks, some more than once.
    fn increments(&mut self, window: u32) {
        let target = self.any_rank();
        let times = self.rng.u32(1..4);
        for me in self.any_group() {
            for _ in 0..times {
                self.locked(window, me, LockMode::Exclusive, target, |g, open| {
                    g.increment(open, target)
                });
            }
        }
    }

    /// Writers under exclusive locks, readers under any lock.
    fn twins(&mut self, window: u32) {
        let regime = self.regimes[window as usize];
        let target = self.any_rank();
        let times = self.rng.usize(1..4);
        for me in (0..times).flat_map(|_| self.any_group()).collect::<Vec<_>>() {
            let owner = match regime {
                Regime::Private(shift) if (target + shift) % self.ranks != me => continue,
                Regime::Private(_) | Regime::Contended => true,
                Regime::Shared => false,
            };
            match self.rng.u8(0..4) {
                0..=1 if owner => {
                    self.locked(window, me, LockMode::Exclusive, target, |g, open| {
                        g.write_twins(open, target)
                    })
                }
                3 if !matches!(regime, Regime::Private(_)) => {
                    let mut open = self.lock_all(window, me, NOTHING);
                    self.read_twins(&mut open, target);
                    self.unlock_all(open);
                }
                mode => {
                    let exclusive = owner && mode == 2 && self.rng.bool();
                    let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
                    self.locked(window, me, mode, target, |g, open| g.read_twins(open, target));
                }
            }
        }
    }
}
