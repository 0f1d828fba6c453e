//! Pattern fences: who has learned whom [FE-4], and what fences of neighbours wait for [FE-3].

use mpix_rma::engine::*;

use super::{Model, OpRecord};

/// By so much a fence raises its words in a window with a pattern, and the bits of a fence.
const STEP: u64 = 8;
const ACKNOWLEDGED: u64 = 2;
const DONE: u64 = 4;
const GRANTED: u64 = 5;

/// The fences between two calls that ask for a pattern, or end it.
#[derive(Debug, Default)]
pub struct Era {
    /// Fences called before, and the value of the words then.
    before: u64,
    words: u64,
    pattern: bool,
    /// The fences whose assertions were seen, and whether the last one opens an epoch.
    seen: u64,
    opens: bool,
    /// The fence that ends the learned epoch.
    learns: Option<u64>,
}

impl Model {
    /// Fences learn a pattern from here on, or no more. All processes have called equally many.
    pub fn set_pattern(&mut self, pattern: bool) {
        let pattern = pattern && self.ranks.len() > 1;
        let before = self.ranks[0].fences;
        let last = self.fence_words.last().expect("there is one");
        let words = last.words + (before - last.before) * if last.pattern { STEP } else { 1 };
        self.fence_words.push(Era { before, words, pattern, seen: before, ..Era::default() });
    }

    fn era(&self, number: u64) -> &Era {
        let mut eras = self.fence_words.iter().rev();
        eras.find(|era| era.before < number).unwrap_or(&self.fence_words[0])
    }

    /// The rules of the epoch after a fence. Where all processes have agreed on new rules between
    /// two fences, they hold for the epoch between them.
    fn era_of_epoch(&self, number: u64) -> &Era {
        let last = self.fence_words.last().expect("there is one");
        if last.before == number { last } else { self.era(number) }
    }

    /// True if the epoch after this fence is granted by neighbours.
    pub(super) fn is_granted_by_neighbours(&self, number: u64) -> bool {
        self.era_of_epoch(number).learns.is_some_and(|learns| number > learns)
    }

    /// The number of the fence that a word speaks of, and whether it only acknowledges a mark.
    pub(super) fn fence_of(&self, value: u64) -> (u64, bool) {
        let era = self.fence_words.iter().rev().find(|era| era.words < value).expect("not 0");
        if !era.pattern {
            return (era.before + value - era.words, false);
        }
        let value = value - era.words;
        (era.before + value / STEP + 1, value % STEP == ACKNOWLEDGED)
    }

    /// A process calls this fence. All give it the same assertions.
    pub(super) fn learn(&mut self, number: u64, assert: Assert) {
        let era = self.fence_words.last_mut().expect("there is one");
        if !era.pattern || era.seen >= number || era.learns.is_some() {
            return;
        }
        era.seen = number;
        if era.opens && !assert.noprecede {
            era.learns = Some(number);
        } else {
            era.opens = !assert.nosucceed;
        }
    }

    /// True if this fence waits for neighbours only.
    pub(super) fn is_by_neighbours(&self, number: u64) -> bool {
        self.era(number).learns.is_some_and(|learns| number > learns)
    }

    fn has_learned(&self, number: u64, origin: Rank, target: Rank) -> bool {
        let learned = self.era(number).learns.expect("it is by neighbours");
        self.fence_ops.get(&(learned - 1)).is_some_and(|ops| {
            ops.iter().any(|op| self.ops[*op].rank == origin && self.ops[*op].target == target)
        })
    }

    /// An operation of fence epochs before this fence that is not over.
    pub(super) fn fence_op_open(
        &self,
        number: u64,
        which: impl Fn(&OpRecord) -> bool,
    ) -> Option<&OpRecord> {
        let ops = self.fence_ops.range(..number).flat_map(|(_, ops)| ops);
        ops.map(|op| &self.ops[*op]).find(|op| which(op) && !op.is_over())
    }

    /// The epoch after this fence was learned with an access of `origin` to `target`.
    pub(super) fn check_learned(&self, origin: Rank, target: Rank, number: u64) {
        let era = self.era_of_epoch(number);
        let learned = era.learns.is_some_and(|learns| number >= learns);
        assert!(
            !learned || origin == target || self.has_learned(number, origin, target),
            "[order] {origin} accesses {target}, which it has not learned [FE-4]"
        );
    }

    /// `target` may be accessed in the epoch after this fence.
    pub(super) fn check_granted(&self, target: Rank, number: u64) {
        assert!(
            self.ranks[target as usize].fences >= number,
            "[order] an operation after fence {number} before rank {target} called it [FE-3]"
        );
        let open = self.fence_op_open(number, |op| op.target == target || op.rank == target);
        assert!(
            open.is_none(),
            "[order] {target} is accessed after fence {number} over an operation before it: \
             {open:?} [FE-3]"
        );
    }

    /// A fence of neighbours is complete.
    pub(super) fn check_origins_came(&self, rank: Rank, number: u64) {
        let late = (0..self.ranks.len() as Rank).find(|&origin| {
            self.ranks[origin as usize].fences < number && self.has_learned(number, origin, rank)
        });
        assert!(
            late.is_none(),
            "[completion] fence {number} of rank {rank} complete before its origin {late:?} called \
             it [FE-3]"
        );
        let open = self.fence_op_open(number, |op| op.target == rank || op.rank == rank);
        assert!(
            open.is_none(),
            "[completion] rank {rank} passes fence {number} over an operation in flight: {open:?} \
             [FE-3]"
        );
    }

    /// A process tells a neighbour how far it is with a fence.
    pub(super) fn check_neighbour_signal(&self, from: Rank, to: Rank, value: u64) {
        let (number, _) = self.fence_of(value);
        let bits = (value - self.era(number).words) % STEP;
        let expected = match bits {
            DONE => self.has_learned(number, from, to),
            GRANTED => self.has_learned(number, to, from),
            _ => false,
        };
        assert!(expected, "[order] {from} signals {value} to {to}, no such neighbour [FE-3]");
        let follows = bits == DONE && self.signals_follow;
        let open = self.fence_op_open(number, |op| {
            let at_target = op.target == to && !(follows && op.posted.is_some());
            op.rank == from && (at_target || bits == GRANTED)
                || bits == GRANTED && op.target == from && op.rank != to
        });
        assert!(
            open.is_none(),
            "[completion] rank {from} signals fence {number} to {to} over an operation in flight: \
             {open:?} [FE-3]"
        );
    }

    /// A neighbour sees how far a process is with a fence.
    pub(super) fn check_neighbour_seen(&self, from: Rank, to: Rank, value: u64) {
        let (number, acknowledges) = self.fence_of(value);
        if acknowledges || !self.is_by_neighbours(number) {
            return;
        }
        let open = self.fence_op_open(number, |op| op.rank == from && op.target == to);
        assert!(
            open.is_none(),
            "[completion] {to} sees that {from} is done with fence {number} over an operation in \
             flight: {open:?} [FE-3, PR-3]"
        );
    }
}
