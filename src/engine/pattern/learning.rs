//! How a fence learns the pattern: marks, acknowledgements, and a barrier behind them.

use super::{ACK, GRANT, HOP, MARK, Pattern, STEP, Stage};
use crate::engine::fence::Barrier;
use crate::engine::port::{Port, Rank, Word};
use crate::engine::slab::Key;
use crate::engine::window::Window;

impl Window {
    /// Sends the marks of the epoch to be learned, which is complete here.
    pub(in crate::engine) fn begin_marks(&mut self, port: &mut impl Port, epoch: Key, hop: u64) {
        let Some(pattern) = &mut self.pattern else { return };
        let mut unacknowledged = 0;
        for at in 0..pattern.neighbours.len() {
            if pattern.neighbours[at].target {
                unacknowledged += 1;
                pattern.add_mark(port, at as u32, hop - HOP, MARK, 0);
            }
        }
        pattern.stage = Stage::Marks { epoch, unacknowledged };
        self.advance_marks(port);
    }

    /// Looks for marks and acknowledgements, and enters the barrier behind the last one.
    pub(super) fn advance_marks<P: Port>(&mut self, port: &mut P) {
        if !P::NAMES_CHANGES {
            // Any process may be an origin. This is so in the learning fence only.
            for distance in 1..self.size {
                let rank = (u64::from(self.me) + u64::from(distance)) % u64::from(self.size);
                self.read_marks(port, rank as Rank);
            }
        }
        let Some(pattern) = &mut self.pattern else { return };
        if let Stage::Marks { epoch, unacknowledged: 0 } = pattern.stage {
            pattern.stage = Stage::Barrier;
            self.barrier = Some(Barrier::new(epoch, self.fences - STEP + HOP));
            self.advance_barrier(port);
        }
    }

    /// Takes the mark and the acknowledgement of a process, as far as they have arrived.
    pub(super) fn read_marks(&mut self, port: &mut impl Port, rank: Rank) {
        let Some(pattern) = &mut self.pattern else { return };
        // A mark may arrive before this process begins the fence.
        let base = self.fences - if pattern.stage == Stage::Idle { 0 } else { STEP };
        let word = port.observe(rank, Word::Fence);
        let Some(bits) = word.checked_sub(base).filter(|bits| *bits < STEP) else { return };
        if bits & MARK != 0 {
            let at = pattern.neighbour(rank);
            if !std::mem::replace(&mut pattern.neighbours[at as usize].origin, true) {
                let hop =
                    hop_sent_to(pattern.stage, self.barrier.as_ref(), rank, self.me, self.size);
                pattern.add_mark(port, at, base, ACK, hop);
                self.state_changes += 1;
            }
        }
        if bits & ACK != 0
            && let Some(at) = pattern.find(rank)
            && let Stage::Marks { unacknowledged, .. } = &mut pattern.stage
            && !std::mem::replace(&mut pattern.neighbours[at as usize].acknowledged, true)
        {
            *unacknowledged -= 1;
            self.state_changes += 1;
        }
    }

    /// A barrier was passed. If it ended the learned epoch, the neighbours are known, and every
    /// process has granted the next epoch.
    pub(in crate::engine) fn barrier_passed(&mut self) {
        let Some(pattern) = &mut self.pattern else { return };
        if pattern.stage != Stage::Barrier {
            return;
        }
        pattern.stage = Stage::Idle;
        pattern.learned = true;
        pattern.grant_at = self.fences - STEP + GRANT;
        for neighbour in &mut pattern.neighbours {
            neighbour.seen = pattern.grant_at;
        }
    }
}

impl Pattern {
    /// What the word of this process says besides a hop, in the fence whose hops are `hop`.
    pub(in crate::engine) fn marks_to(&self, rank: Rank, hop: u64) -> u64 {
        if self.stage != Stage::Barrier {
            return 0;
        }
        let due = self.find(rank).map_or(0, |at| self.neighbours[at as usize].due);
        due.saturating_sub(hop - HOP)
    }

    /// Adds a bit to the word of a neighbour, in the fence whose words begin at `base`.
    fn add_mark(&mut self, port: &mut impl Port, at: u32, base: u64, bit: u64, hop: u64) {
        let due = self.neighbours[at as usize].due.max(base) + bit;
        self.raise(port, at, due, hop);
    }
}

/// The hop that the learning fence's barrier has sent to a process, which its word must keep.
pub(super) fn hop_sent_to(
    stage: Stage,
    barrier: Option<&Barrier>,
    to: Rank,
    me: Rank,
    size: u32,
) -> u64 {
    let distance = (u64::from(to) + u64::from(size) - u64::from(me)) % u64::from(size);
    let sent = stage == Stage::Barrier && barrier.is_some_and(|b| b.has_sent_hop(distance));
    if sent { HOP } else { 0 }
}
