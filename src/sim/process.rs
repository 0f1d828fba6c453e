//! One rank of a world: the state of its script and what it waits for.

use hashbrown::HashMap;

use super::script::{Slot, Step};
use super::two_sided::Mailbox;
use crate::engine::{Arrival, ExpectationId, LockHeld, Op, Rank, RequestId};
use crate::transport::sim::Time;

/// What a waiting rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Request(u32, RequestId),
    Slot(Slot),
    AllSlots,
    Lock(u32, LockHeld),
    /// Locks requested earlier. The unfinished step follows.
    OlderLocks,
    /// The expectation in this slot of a window.
    Expectation(u32, Slot),
    Sent,
    Received(Rank),
    Barrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankState {
    /// Between two steps, or computing.
    Busy,
    Waiting(Wait),
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    Free,
    /// So many requests of the engine are pending.
    Pending(u32),
    Complete,
}

/// A step that takes several attempts or calls.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// A step that waits for older locks.
    Step(Step),
    /// The next call of an `IssueOthers`.
    Others { window: u32, op: Op, distance: u32 },
    /// A call that blocks until these requests of the engine are complete.
    Requests(Vec<(u32, RequestId)>),
}

/// Memory of one rank's engine, if the allocator counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Current number of bytes.
    pub bytes: i64,
    /// Maximum so far.
    pub peak: i64,
}

/// A request of the engine that belongs to no slot.
pub(super) const UNBOUND: Slot = Slot::MAX;

pub(super) struct Process<S> {
    pub(super) script: S,
    pub(super) state: RankState,
    /// Time that its CPU has reached.
    pub(super) clock: Time,
    /// Time until which its progress thread is busy.
    pub(super) helper: Time,
    /// The valid alarm; earlier ones are ignored.
    pub(super) alarm: Option<u32>,
    /// Tag of the last alarm.
    pub(super) alarms: u32,
    /// An alarm for the progress thread is set.
    pub(super) helping: bool,
    /// Something arrived, or a refused call may be retried, since the last sweep.
    pub(super) called: bool,
    pub(super) slots: Vec<SlotState>,
    pub(super) slots_pending: u32,
    /// By window: the slot of each engine request, by its index.
    pub(super) bound: Vec<Vec<Slot>>,
    pub(super) unfinished: Option<Unfinished>,
    pub(super) flag: bool,
    pub(super) value: u64,
    pub(super) arrival: Option<Arrival>,
    /// Expectations of tagged notifications, by slot.
    pub(super) expectations: HashMap<Slot, ExpectationId>,
    /// Number of communication calls: every 64th sweeps.
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
            bound: vec![Vec::new(); windows as usize],
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

    /// State of a slot. A slot that was never used is free.
    pub(super) fn held(&self, slot: Slot) -> SlotState {
        self.slots.get(slot as usize).copied().unwrap_or(SlotState::Free)
    }

    pub(super) fn set(&mut self, slot: Slot, held: SlotState) {
        let at = slot as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, SlotState::Free);
        }
        let is_pending = |held| u32::from(matches!(held, SlotState::Pending(_)));
        self.slots_pending -= is_pending(self.slots[at]);
        self.slots_pending += is_pending(held);
        self.slots[at] = held;
    }

    /// Binds a pending request of the engine to a slot, which may have others already.
    pub(super) fn bind(&mut self, window: u32, id: RequestId, slot: Slot) {
        let bound = &mut self.bound[window as usize];
        let at = id.index as usize;
        if at >= bound.len() {
            bound.resize(at + 1, UNBOUND);
        }
        assert_eq!(bound[at], UNBOUND, "the engine reused a request before it was reported");
        bound[at] = slot;
        let others = if let SlotState::Pending(others) = self.held(slot) { others } else { 0 };
        self.set(slot, SlotState::Pending(others + 1));
    }

    /// Handles a completed request of the engine.
    pub(super) fn completed(&mut self, window: u32, id: RequestId) {
        let Some(bound) = self.bound[window as usize].get_mut(id.index as usize) else { return };
        let slot = std::mem::replace(bound, UNBOUND);
        match self.held(slot) {
            _ if slot == UNBOUND => {}
            SlotState::Pending(parts) if parts > 1 => {
                self.set(slot, SlotState::Pending(parts - 1));
            }
            _ => self.set(slot, SlotState::Complete),
        }
    }

    /// Frees a slot. A pending request continues without one.
    pub(super) fn free(&mut self, slot: Slot) {
        assert_ne!(self.held(slot), SlotState::Free, "slot {slot} holds no request");
        for bound in self.bound.iter_mut().flatten().filter(|bound| **bound == slot) {
            *bound = UNBOUND;
        }
        self.set(slot, SlotState::Free);
    }
}
