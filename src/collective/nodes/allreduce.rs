//! Allreduce between nodes. Every process has the same bits in the end [CL-2]: all fold the same
//! operands in the same order, or copy one result.

use std::ops::Range;

use super::placement::{Placement, share, share_of};
use super::program::{Area, Place, Program, StepId, length, offsets, place};

/// How nodes exchange their sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allreduce {
    /// All sums reach all nodes in ⌈log(nodes)/log(radix)⌉ rounds, and each process folds them. In
    /// a round a node puts to `radix - 1` others, by different processes.
    Gather {
        /// At least 2.
        radix: u32,
    },
    /// Recursive doubling: the first processes of two nodes exchange their sums, in each round.
    Doubling,
    /// A reduce-scatter by recursive halving, and an allgather by recursive doubling
    /// (Rabenseifner), by the first processes of the nodes.
    Halving,
    /// A reduce-scatter and an allgather in which each node puts to every other one once.
    Direct,
}

/// Groups of segments that a process copies at a time, while later ones arrive.
const GROUPS: u32 = 16;

/// Counters of the first process of a node, in all algorithms.
mod counter {
    /// Processes of the node that have entered, or published.
    pub(super) const ENTERED: u32 = 0;
    /// The node's sum, or result, is ready.
    pub(super) const READY: u32 = 1;
    /// A node beyond the power of two has put its sum.
    pub(super) const EXTRA: u32 = 2;
    /// It has got the result.
    pub(super) const RESULT: u32 = 3;
    /// Rounds follow.
    pub(super) const ROUNDS: u32 = 4;
}
use counter::{ENTERED, EXTRA, READY, RESULT, ROUNDS};

impl Allreduce {
    /// The program of a process, for a contribution of `bytes` bytes.
    #[must_use]
    pub fn program(self, placement: &Placement, me: u32, bytes: u32) -> Program {
        let node = placement.node_of(me);
        let at = At { placement, me, node, home: placement.home(node), bytes };
        match self {
            Allreduce::Gather { radix } => at.gather(radix),
            Allreduce::Doubling => at.doubling(),
            Allreduce::Halving => at.halving(),
            Allreduce::Direct => at.direct(),
        }
    }
}

/// Rounds of exchanges with radix `radix`: the distances at which each begins.
pub(super) fn spans(nodes: u32, radix: u32) -> impl Iterator<Item = u32> {
    let next = move |span: &u32| span.checked_mul(radix).filter(|next| *next < nodes);
    std::iter::successors((nodes > 1).then_some(1), next)
}

/// Distances of the nodes to which a node puts in a round.
pub(super) fn distances(nodes: u32, radix: u32, span: u32) -> impl Iterator<Item = u32> {
    (1..radix).map(move |turn| turn * span).take_while(move |distance| *distance < nodes)
}

/// Where a process takes part.
struct At<'a> {
    placement: &'a Placement,
    me: u32,
    node: u32,
    home: u32,
    bytes: u32,
}

/// Nodes that exchange in pairs: a power of two, to which each further node gives its sum.
struct Pairs {
    /// Nodes beyond the power of two.
    extra: u32,
    /// Rounds.
    rounds: u32,
}

impl Pairs {
    fn of(nodes: u32) -> Self {
        Pairs { extra: nodes - (1 << nodes.ilog2()), rounds: nodes.ilog2() }
    }

    /// The number of a node among the exchanging ones. `None`: it gives its sum to the next node.
    fn number(&self, node: u32) -> Option<u32> {
        match node < 2 * self.extra {
            true => (node % 2 == 1).then_some(node / 2),
            false => Some(node - self.extra),
        }
    }

    fn node(&self, number: u32) -> u32 {
        if number < self.extra { 2 * number + 1 } else { number + self.extra }
    }

    /// The node that this one stands in for.
    fn ward(&self, node: u32) -> Option<u32> {
        (node < 2 * self.extra && node % 2 == 1).then(|| node - 1)
    }
}

impl At<'_> {
    fn members(&self) -> u32 {
        self.placement.size(self.node)
    }

    fn is_home(&self) -> bool {
        self.me == self.home
    }

    fn own(&self, area: Area, at: u32) -> Place {
        place(self.me, area, at)
    }

    fn at_home(&self, area: Area, at: u32) -> Place {
        place(self.home, area, at)
    }

    /// A program whose first process also has these areas.
    fn program(&self, work: u32, inbox: u32) -> Program {
        let (work, inbox) = if self.is_home() { (work, inbox) } else { (0, 0) };
        Program::new(self.me, [self.bytes, self.bytes, work, inbox])
    }

    /// Publishes the contributions of the node at `Work`, and folds them into `sum`, by the first
    /// process. Returns the step after which that process may use the sum. Nothing to do for a node
    /// of one process: the sum is its contribution.
    fn sum_small(&self, program: &mut Program, sum: Place) -> Option<StepId> {
        let (bytes, members) = (self.bytes, self.members());
        let slot = self.at_home(Area::Work, (self.me - self.home) * bytes);
        let mine = program.step(&[]).copy(self.own(Area::Send, 0), slot, bytes);
        let mine = mine.notifies(self.home, ENTERED).add();
        if !self.is_home() {
            return None;
        }
        let all = program.wait(&[mine], self.home, ENTERED, members);
        let first = program.step(&[all]).copy(self.at_home(Area::Work, 0), sum, bytes).add();
        let others = self.at_home(Area::Work, bytes);
        Some(program.step(&[first]).fold(others, sum, bytes, members - 1, bytes).add())
    }

    fn gather(&self, radix: u32) -> Program {
        let &At { placement, node, bytes, home, .. } = self;
        let (nodes, members) = (placement.nodes(), self.members());
        let work = if members > 1 { members * bytes } else { 0 };
        let mut program = self.program(work, nodes * bytes);
        let sum = self.at_home(Area::Inbox, 0);
        let ready = if members == 1 {
            program.step(&[]).copy(self.own(Area::Send, 0), sum, bytes).add()
        } else if let Some(sum) = self.sum_small(&mut program, sum) {
            program.step(&[sum]).notifies(home, READY).add()
        } else {
            program.wait(&[], home, READY, 1)
        };
        let mut before = ready;
        for (round, span) in (ROUNDS..).zip(spans(nodes, radix)) {
            let mut arrivals = 0;
            for (turn, distance) in (0..).zip(distances(nodes, radix, span)) {
                arrivals += 1;
                if placement.worker(node, turn) != self.me {
                    continue;
                }
                let target = placement.home((node + nodes - distance) % nodes);
                let blocks = span.min(nodes - distance);
                let to = place(target, Area::Inbox, distance * bytes);
                let put = program.step(&[before]).put(sum, to, blocks * bytes);
                put.notifies(target, round).add();
            }
            before = program.wait(&[before], home, round, arrivals);
        }
        // In the order of the nodes. Node `node` is at place 0.
        let result = self.own(Area::Receive, 0);
        let first = (nodes - node) % nodes * bytes;
        let begun = program.step(&[before]).copy(sum.plus(first), result, bytes).add();
        let (lower, upper) = match node {
            0 => (nodes - 1, 0),
            _ => (node - 1, nodes - node),
        };
        let lower =
            program.step(&[begun]).fold(sum.plus(first + bytes), result, bytes, lower, bytes);
        let lower = lower.add();
        program.step(&[lower]).fold(sum, result, bytes, upper, bytes).add();
        program
    }

    /// Gives the result, which the first process has, to the other ones of the node.
    fn share_result(&self, program: &mut Program, done: Option<StepId>) {
        let result = self.at_home(Area::Receive, 0);
        match done {
            Some(done) if self.members() > 1 => {
                program.step(&[done]).notifies(self.home, READY).add();
            }
            Some(_) => {}
            None => {
                let copy = program.step(&[]).awaits(self.home, READY, 1);
                copy.copy(result, self.own(Area::Receive, 0), self.bytes).add();
            }
        }
    }

    fn doubling(&self) -> Program {
        let &At { placement, node, bytes, home, .. } = self;
        let (members, pairs) = (self.members(), Pairs::of(placement.nodes()));
        let base = if members > 1 { members * bytes } else { 0 };
        let slots = pairs.rounds + 2;
        let mut program = self.program(base + slots * bytes, slots * bytes);
        let mut sum = self.own(Area::Send, 0);
        let mut before: Vec<StepId> = Vec::new();
        if members > 1 {
            sum = self.at_home(Area::Work, base);
            let Some(step) = self.sum_small(&mut program, sum) else {
                self.share_result(&mut program, None);
                return program;
            };
            before.push(step);
        }
        let result = self.own(Area::Receive, 0);
        let inbox = |rank, slot: u32| place(rank, Area::Inbox, slot * bytes);
        let Some(number) = pairs.number(node) else {
            let to = placement.home(node + 1);
            program.step(&before).put(sum, inbox(to, 0), bytes).notifies(to, EXTRA).add();
            let copy = program.step(&before).awaits(home, RESULT, 1);
            let done = copy.copy(inbox(home, 1), result, bytes).add();
            self.share_result(&mut program, Some(done));
            return program;
        };
        // What arrives, in order: its slot and its counter.
        let extra = pairs.ward(node).map(|_| (0, EXTRA, None));
        let rounds = (0..pairs.rounds).map(|round| {
            let partner = placement.home(pairs.node(number ^ 1 << round));
            (2 + round, ROUNDS + round, Some(partner))
        });
        let exchanges: Vec<_> = extra.into_iter().chain(rounds).collect();
        for (turn, &(slot, counter, partner)) in (1..).zip(&exchanges) {
            if let Some(partner) = partner {
                let put = program.step(&before).put(sum, inbox(partner, slot), bytes);
                put.notifies(partner, counter).add();
            }
            // A put may still read the last sum, so the next one has a place of its own.
            let last = turn == exchanges.len() as u32;
            let to = if last { result } else { self.at_home(Area::Work, base + turn * bytes) };
            let step = program.step(&before).awaits(home, counter, 1);
            before = vec![step.combine(inbox(home, slot), sum, to, bytes).add()];
            sum = to;
        }
        if exchanges.is_empty() {
            before = vec![program.step(&before).copy(sum, result, bytes).add()];
        }
        let done = before[0];
        if let Some(ward) = pairs.ward(node) {
            let to = placement.home(ward);
            program.step(&[done]).put(result, inbox(to, 1), bytes).notifies(to, RESULT).add();
        }
        self.share_result(&mut program, Some(done));
        program
    }

    /// Folds the contributions of the node into `to`, each process a part of the range. Returns the
    /// steps that end it for this process; each raises `done.1` of the process `done.0`.
    fn sum_large(
        &self,
        program: &mut Program,
        (entered, range): (StepId, Range<u32>),
        to: Place,
        done: (u32, u32),
    ) -> StepId {
        let (members, index) = (self.members(), self.me - self.home);
        let bytes = length(&range);
        let of = |turn: u32| place(self.home + (index + turn) % members, Area::Send, range.start);
        let mut last = entered;
        for turn in 1..members {
            let step = program.step(&[last]);
            let step = match turn {
                1 => step.combine(of(1), of(0), to, bytes),
                _ => step.fold(of(turn), to, bytes, 1, 0),
            };
            let ends = turn + 1 == members;
            last = if ends { step.notifies(done.0, done.1).add() } else { step.add() };
        }
        last
    }

    /// Enters, and waits until all processes of the node have done so.
    fn enter(&self, program: &mut Program) -> StepId {
        let mine = program.step(&[]).notifies(self.home, ENTERED).add();
        program.wait(&[mine], self.home, ENTERED, self.members())
    }

    fn halving(&self) -> Program {
        let &At { placement, node, bytes, home, .. } = self;
        let (members, pairs) = (self.members(), Pairs::of(placement.nodes()));
        // Of the ranges that arrive in the rounds, and of an extra node's contribution behind them.
        let places: Vec<u32> =
            offsets((0..pairs.rounds).map(|round| bytes.div_ceil(1 << (round + 1))));
        let extra = places[pairs.rounds as usize];
        let work = if members > 1 { bytes } else { 0 };
        let mut program = self.program(work, extra + bytes);
        let result = self.at_home(Area::Receive, 0);
        let mut current = self.own(Area::Send, 0);
        let mut before = Vec::new();
        if members > 1 {
            let entered = self.enter(&mut program);
            let range = share(bytes, members, self.me - home);
            let to = self.at_home(Area::Work, range.start);
            let mine = self.sum_large(&mut program, (entered, range), to, (home, RESULT + 1));
            if !self.is_home() {
                self.share_result(&mut program, None);
                return program;
            }
            current = self.at_home(Area::Work, 0);
            before.push(program.wait(&[mine], home, RESULT + 1, members));
        }
        let rounds = ROUNDS + 1;
        let Some(number) = pairs.number(node) else {
            let to = placement.home(node + 1);
            let inbox = place(to, Area::Inbox, extra);
            program.step(&before).put(current, inbox, bytes).notifies(to, EXTRA).add();
            let done = program.wait(&before, home, RESULT, 1);
            self.share_result(&mut program, Some(done));
            return program;
        };
        if pairs.ward(node).is_some() {
            let from = self.at_home(Area::Inbox, extra);
            let step = program.step(&before).awaits(home, EXTRA, 1);
            before = vec![step.combine(from, current, result, bytes).add()];
            current = result;
        }
        let mut ranges: Vec<_> = std::iter::once(0..bytes).collect();
        for round in 0..pairs.rounds {
            let range = ranges[round as usize].clone();
            let halves = [0, 1].map(|half| share_of(range.clone(), 2, half));
            let bit = number >> round & 1;
            let (kept, given) = (halves[bit as usize].clone(), halves[1 - bit as usize].clone());
            let partner = placement.home(pairs.node(number ^ 1 << round));
            let at = places[round as usize];
            let inbox = place(partner, Area::Inbox, at);
            let put = program.step(&before).put(current.plus(given.start), inbox, length(&given));
            put.notifies(partner, rounds + round).add();
            let step = program.step(&before).awaits(home, rounds + round, 1);
            let to = result.plus(kept.start);
            let with = current.plus(kept.start);
            let from = self.at_home(Area::Inbox, at);
            before = vec![step.combine(from, with, to, length(&kept)).add()];
            current = result;
            ranges.push(kept);
        }
        for round in (0..pairs.rounds).rev() {
            let owned = &ranges[round as usize + 1];
            let partner = placement.home(pairs.node(number ^ 1 << round));
            let to = place(partner, Area::Receive, owned.start);
            let arrival = rounds + pairs.rounds + round;
            let put = program.step(&before).put(result.plus(owned.start), to, length(owned));
            put.notifies(partner, arrival).add();
            before = vec![program.wait(&before, home, arrival, 1)];
        }
        let done = match current == result {
            true => before[0],
            false => program.step(&before).copy(current, result, bytes).add(),
        };
        if let Some(ward) = pairs.ward(node) {
            let to = placement.home(ward);
            let there = place(to, Area::Receive, 0);
            program.step(&[done]).put(result, there, bytes).notifies(to, RESULT).add();
        }
        self.share_result(&mut program, Some(done));
        program
    }

    fn direct(&self) -> Program {
        let &At { placement, node, bytes, home, me } = self;
        let (nodes, members, index) = (placement.nodes(), self.members(), me - home);
        let segment = |of: u32| share(bytes, nodes, of);
        let own = segment(node);
        // Counters: parts of the node's sum by segment, contributions to the own segment, parts of
        // it that are reduced, and segments of the result by group.
        let (parts, arrived) = (1, 1 + nodes);
        let (reduced, groups) = (2 + nodes, nodes.min(GROUPS));
        let group_of =
            |of: u32| (0..groups).find(|group| share(nodes, groups, *group).contains(&of));
        let group = |of: u32| 3 + nodes + group_of(of).unwrap_or(0);
        let mut program = self.program(2 * bytes, nodes * length(&own));
        let work = self.at_home(Area::Work, 0);
        let outcome = self.at_home(Area::Work, bytes);
        let inbox = |of: u32, from: u32| {
            place(placement.home(of), Area::Inbox, from * length(&segment(of)))
        };
        // Next node first, so that all nodes put to different ones.
        let others = |turn: u32| (node + turn) % nodes;
        let entered = self.enter(&mut program);
        // A segment is divided if there are fewer than processes.
        let divided = members.div_ceil(nodes);
        for turn in 1..=nodes {
            let to = others(turn);
            let range = segment(to);
            // A process that is alone puts its contribution from where it is.
            let alone = members == 1 && to != node;
            let source = match to == node {
                true => inbox(node, node),
                false if alone => self.own(Area::Send, range.start),
                false => work.plus(range.start),
            };
            for part in 0..if alone { 0 } else { divided } {
                if placement.worker(node, turn * divided + part) != me {
                    continue;
                }
                let some = share_of(range.clone(), divided, part);
                let into = source.plus(some.start - range.start);
                match members {
                    1 => {
                        let from = self.own(Area::Send, some.start);
                        let copy = program.step(&[entered]).copy(from, into, length(&some));
                        copy.notifies(home, parts + to).add()
                    }
                    _ => self.sum_large(&mut program, (entered, some), into, (home, parts + to)),
                };
            }
            if to != node && placement.worker(node, turn) == me {
                let ready = if alone { 0 } else { divided };
                let put = program.step(&[entered]).awaits(home, parts + to, ready);
                let target = placement.home(to);
                put.put(source, inbox(to, node), length(&range)).notifies(target, arrived).add();
            }
        }
        let mine = share_of(own.clone(), members, index);
        let ready = program.wait(&[entered], home, parts + node, divided);
        let ready = program.wait(&[ready], home, arrived, nodes - 1);
        let from = inbox(node, 0).plus(mine.start - own.start);
        let to = outcome.plus(mine.start);
        let first = program.step(&[ready]).copy(from, to, length(&mine)).add();
        let (step, count) = (length(&own), nodes - 1);
        let fold = program.step(&[first]).fold(from.plus(step), to, length(&mine), count, step);
        fold.notifies(home, reduced).add();
        for turn in 1..nodes {
            if placement.worker(node, turn) == me {
                let target = placement.home(others(turn));
                let to = place(target, Area::Work, bytes + own.start);
                let put = program.step(&[entered]).awaits(home, reduced, members);
                let put = put.put(outcome.plus(own.start), to, length(&own));
                put.notifies(target, group(node)).add();
            }
        }
        for number in 0..groups {
            let of = share(nodes, groups, number);
            let others = length(&of) - u32::from(of.contains(&node));
            let mut before = program.wait(&[entered], home, 3 + nodes + number, others);
            if of.contains(&node) {
                before = program.wait(&[before], home, reduced, members);
            }
            let range = segment(of.start).start..segment(of.end - 1).end;
            let (from, to) = (outcome.plus(range.start), self.own(Area::Receive, range.start));
            program.step(&[before]).copy(from, to, length(&range)).add();
        }
        program
    }
}
