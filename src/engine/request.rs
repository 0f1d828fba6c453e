//! Requests of closing calls, flushes and R-form operations.

use std::collections::VecDeque;

use super::peer::shrink;
use super::port::RequestId;
use super::slab::{Key, Slab};

/// Live requests, and the queue of those that completed but are not reported.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// `true`: complete, and queued in `completed`. A slot is reused only after the report.
    slots: Slab<bool>,
    completed: VecDeque<RequestId>,
    /// Requests whose operation failed; rarely any.
    failed: Vec<RequestId>,
}

fn key(id: RequestId) -> Key {
    Key { index: id.index, generation: id.generation }
}

fn request(Key { index, generation }: Key) -> RequestId {
    RequestId { index, generation }
}

impl Requests {
    pub(super) fn open(&mut self) -> RequestId {
        request(self.slots.insert(false))
    }

    pub(super) fn complete(&mut self, id: RequestId) {
        let done = &mut self.slots[key(id)];
        assert!(!*done, "a request completes once");
        *done = true;
        self.completed.push_back(id);
    }

    pub(super) fn complete_opt(&mut self, id: Option<RequestId>) {
        if let Some(id) = id {
            self.complete(id);
        }
    }

    /// Marks a pending request's operation as failed.
    #[cold]
    pub(super) fn fail(&mut self, id: Option<RequestId>) {
        if let Some(id) = id
            && self.is_pending(id)
            && !self.failed.contains(&id)
        {
            self.failed.push(id);
        }
    }

    #[inline]
    pub(super) fn take_failed(&mut self, id: RequestId) -> bool {
        let at = self.failed.iter().position(|failed| *failed == id);
        at.map(|at| self.failed.swap_remove(at)).is_some()
    }

    pub(super) fn is_pending(&self, id: RequestId) -> bool {
        self.slots.get(key(id)).is_some_and(|done| !done)
    }

    pub(super) fn next_completed(&mut self) -> Option<RequestId> {
        let id = self.completed.pop_front()?;
        self.slots.remove(key(id));
        shrink(&mut self.completed);
        Some(id)
    }

    /// Drops a pending request, which is then never reported.
    pub(super) fn withdraw(&mut self, id: RequestId) {
        debug_assert!(self.is_pending(id), "only a pending request can be withdrawn");
        self.slots.remove(key(id));
    }

    pub(super) fn alive(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Packs a request into 64 bits for an operation's record. 0 means no request.
    pub(super) fn pack(id: Option<RequestId>) -> u64 {
        id.map_or(0, |id| key(id).to_word())
    }

    pub(super) fn unpack(bits: u64) -> Option<RequestId> {
        Key::of_word(bits).map(request)
    }
}
