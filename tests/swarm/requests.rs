//! Requests of a rank: where they are kept, and when it waits for them.

use mpix_rma::engine::*;
use mpix_rma::sim::{How, Slot, Step};

use super::generator::Generator;
use super::program::*;

/// A request that is not waited for yet.
pub struct Outstanding {
    slot: Slot,
    /// Operations whose buffers it frees.
    ops: Vec<OpId>,
    /// It is that of a start.
    record: Option<RecordId>,
}

/// Requests of a rank.
#[derive(Default)]
pub struct Pending {
    slots: Vec<Outstanding>,
    free: Vec<Slot>,
    /// Number of requests that may not be waited for yet.
    held_back: u32,
    used: Slot,
    /// Expectation slots used so far.
    places: Slot,
}

impl Generator {
    pub fn blocks(&mut self) -> bool {
        self.rng.u8(0..8) < self.features.blocking
    }

    fn free_slot(&mut self, me: Rank) -> Slot {
        let pending = &mut self.pending[me as usize];
        pending.free.pop().unwrap_or_else(|| {
            pending.used += 1;
            pending.used - 1
        })
    }

    pub fn slot_for(&mut self, me: Rank, ops: Vec<OpId>) -> Slot {
        let slot = self.free_slot(me);
        self.pending[me as usize].slots.push(Outstanding { slot, ops, record: None });
        slot
    }

    /// A slot for a request that no call waits for until it is released.
    pub fn hold_slot(&mut self, me: Rank) -> Slot {
        self.pending[me as usize].held_back += 1;
        self.free_slot(me)
    }

    /// A request that was held back may be waited for.
    pub fn release_slot(&mut self, me: Rank, slot: Slot, ops: Vec<OpId>, record: RecordId) {
        let pending = &mut self.pending[me as usize];
        pending.held_back -= 1;
        pending.slots.push(Outstanding { slot, ops, record: Some(record) });
    }

    /// A free expectation slot.
    pub fn expectation_slot(&mut self, me: Rank) -> Slot {
        let pending = &mut self.pending[me as usize];
        pending.places += 1;
        pending.places - 1
    }

    /// Makes a call that returns a request. `ops`: their buffers are free when it completes. True
    /// if it blocks.
    pub fn closing(
        &mut self,
        me: Rank,
        blocks: bool,
        ops: &[OpId],
        make: impl FnOnce(How) -> Step,
    ) -> bool {
        let how = if blocks { How::Blocking } else { How::Slot(self.slot_for(me, ops.to_vec())) };
        self.step(me, make(how));
        if blocks {
            self.scribble(me, ops.to_vec());
        }
        blocks
    }

    pub fn scribble(&mut self, me: Rank, ops: Vec<OpId>) {
        if !ops.is_empty() {
            self.call(me, Call::Scribble(ops));
        }
    }

    /// The rank waits for a request, or frees it.
    pub fn settle(&mut self, me: Rank) {
        let pending = &mut self.pending[me as usize];
        if pending.slots.is_empty() {
            return;
        }
        let Outstanding { slot, record, .. } =
            pending.slots[self.rng.usize(0..pending.slots.len())];
        if record.is_none() && self.features.frees && self.one_in(5) {
            self.take_outstanding(me, slot);
            self.freed = true;
            self.count("request free");
            return self.step(me, Step::Free(slot));
        }
        self.settle_slot(me, slot);
    }

    fn take_outstanding(&mut self, me: Rank, slot: Slot) -> Outstanding {
        let pending = &mut self.pending[me as usize];
        let at = pending.slots.iter().position(|outstanding| outstanding.slot == slot);
        pending.free.push(slot);
        pending.slots.swap_remove(at.expect("the slot holds a request"))
    }

    /// The rank waits for the request in a slot.
    pub fn settle_slot(&mut self, me: Rank, slot: Slot) {
        let outstanding = self.take_outstanding(me, slot);
        if self.features.tests && self.one_in(3) {
            self.count("test loop");
            self.call(me, Call::TestSlotLoop(slot));
        } else {
            self.step(me, Step::Await(slot));
        }
        self.is_settled(me, outstanding);
    }

    /// The rank waits for all starts.
    pub fn settle_starts(&mut self, me: Rank) {
        let started = |outstanding: &&Outstanding| outstanding.record.is_some();
        while let Some(start) = self.pending[me as usize].slots.iter().find(started) {
            self.settle_slot(me, start.slot);
        }
    }

    fn is_settled(&mut self, me: Rank, outstanding: Outstanding) {
        if let Some(record) = outstanding.record {
            self.collect(me, record, outstanding.ops.clone());
        }
        self.scribble(me, outstanding.ops);
    }

    pub fn settle_all(&mut self, me: Rank) {
        let pending = &mut self.pending[me as usize];
        let outstanding = std::mem::take(&mut pending.slots);
        pending.free.extend(outstanding.iter().map(|outstanding| outstanding.slot));
        if pending.held_back == 0 {
            self.step(me, Step::AwaitAll);
        } else {
            let slots: Vec<Slot> = outstanding.iter().map(|outstanding| outstanding.slot).collect();
            slots.into_iter().for_each(|slot| self.step(me, Step::Await(slot)));
        }
        outstanding.into_iter().for_each(|outstanding| self.is_settled(me, outstanding));
    }
}
