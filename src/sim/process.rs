//! One rank of a world: how far its script is, and what it waits for.

use hashbrown::HashMap;

use super::script::{Slot, Step};
use super::two_sided::Mailbox;
use crate::engine::{Arrival, ExpectationId, LockHeld, Op, Rank, RequestId};
use crate::transport::sim::Time;

/// What a rank that waits needs before its script goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Request(u32, RequestId),
    Slot(Slot),
    AllSlots,
    Lock(u32, LockHeld),
    /// Locks asked for before; then the step that is put off.
    OlderLocks,
    /// The expectation in this place of a window.
    Expectation(u32, Slot),
    Sent,
    Received(Rank),
    Barrier,
}

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankState {
    /// Between two steps, or computing.
    Busy,
    Waiting(Wait),
    Ended,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    Free,
    Pending,
    Complete,
}

/// A step that takes more than one go.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// To be tried again.
    Step(Step),
    /// The next of the calls to all others.
    Others { window: u32, op: Op, distance: u32 },
}

/// Bytes that one rank's engine holds, if an allocator counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Now.
    pub bytes: i64,
    /// At most so far.
    pub peak: i64,
}

/// No request of the engine is bound to this slot.
pub(super) const UNBOUND: Slot = Slot::MAX;

/// One rank.
pub(super) struct Process<S> {
    pub(super) script: S,
    pub(super) state: RankState,
    /// How far its CPU is; never before what was seen of it.
    pub(super) clock: Time,
    /// How far its progress thread is.
    pub(super) helper: Time,
    /// The alarm that counts: others are out of date.
    pub(super) alarm: Option<u32>,
    pub(super) alarms: u32,
    pub(super) helping: bool,
    /// Something came, or may be tried again, since it last looked.
    pub(super) called: bool,
    pub(super) slots: Vec<SlotState>,
    pub(super) slots_pending: u32,
    /// Per window: slot of each of the engine's requests, by index.
    pub(super) bound: Vec<Vec<Slot>>,
    pub(super) unfinished: Option<Unfinished>,
    pub(super) flag: bool,
    pub(super) value: u64,
    pub(super) arrival: Option<Arrival>,
    /// Expectations of tagged notifications, by place; each is of one window.
    pub(super) expectations: HashMap<Slot, ExpectationId>,
    /// Communication calls so far, to sweep now and then.
    pub(super) communications: u32,
    pub(super) mailbox: Option<Box<Mailbox>>,
    pub(super) memory: Memory,
    /// Time spent in calls, waits included.
    pub(super) in_calls: Time,
}

impl<S> Process<S> {
    pub(super) fn new(script: S, windows: u32) -> Self {
        Process {
            script,
            state: RankState::Busy,
            clock: 0,
            helper: 0,
            alarm: None,
            alarms: 0,
            helping: false,
            called: false,
            slots: Vec::new(),
            slots_pending: 0,
            bound: (0..windows).map(|_| Vec::new()).collect(),
            unfinished: None,
            flag: false,
            value: 0,
            arrival: None,
            expectations: HashMap::new(),
            communications: 0,
            mailbox: None,
            memory: Memory::default(),
            in_calls: 0,
        }
    }

    /// What a slot holds; free if it was never used.
    pub(super) fn held(&self, slot: Slot) -> SlotState {
        self.slots.get(slot as usize).copied().unwrap_or(SlotState::Free)
    }

    pub(super) fn set(&mut self, slot: Slot, held: SlotState) {
        let at = slot as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, SlotState::Free);
        }
        self.slots_pending -= u32::from(self.slots[at] == SlotState::Pending);
        self.slots_pending += u32::from(held == SlotState::Pending);
        self.slots[at] = held;
    }

    /// Ties a request of the engine to a slot.
    pub(super) fn bind(&mut self, window: u32, id: RequestId, slot: Slot) {
        let bound = &mut self.bound[window as usize];
        let at = id.index as usize;
        if at >= bound.len() {
            bound.resize(at + 1, UNBOUND);
        }
        assert_eq!(bound[at], UNBOUND, "the engine reused a request before it was reported");
        bound[at] = slot;
    }

    /// The engine reports a request: its slot, if it has one, holds a complete request now.
    pub(super) fn completed(&mut self, window: u32, id: RequestId) {
        let Some(bound) = self.bound[window as usize].get_mut(id.index as usize) else { return };
        let slot = std::mem::replace(bound, UNBOUND);
        if slot != UNBOUND {
            self.set(slot, SlotState::Complete);
        }
    }

    /// The slot is free; a pending request goes on without one.
    pub(super) fn free(&mut self, slot: Slot) {
        assert_ne!(self.held(slot), SlotState::Free, "slot {slot} holds no request");
        if self.held(slot) == SlotState::Pending {
            let bound = self
                .bound
                .iter_mut()
                .flatten()
                .find(|bound| **bound == slot)
                .expect("a pending request is tied to its slot");
            *bound = UNBOUND;
        }
        self.set(slot, SlotState::Free);
    }
}
