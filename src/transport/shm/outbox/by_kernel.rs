//! Operations of an outbox that cross-memory attach moves: gathered, or by reference.

use std::io;

use crate::engine::{Op, Stage, Ticket};

use super::super::accumulate_reference;
use super::super::adaptive::{self, Way};
use super::super::channel::{IN_SLOT, SLOTS, Tag};
use super::super::gather::GATHERED_MAX;
use super::super::protocol::publish;
use super::super::reference::{BY_KERNEL_MIN, DIVIDED_MIN, Range, Reference, buffer_of};
use super::{LongOp, Means, Outbox, SentSlot};

/// What was seen of an accumulate by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Referred {
    NothingNew,
    Moved,
    /// All is applied.
    Applied,
}

impl Outbox {
    /// Notices what was applied while a long operation or slots by reference are open. True if
    /// there was anything new.
    #[inline(never)]
    pub(super) fn see_long(&mut self, head: u64) -> bool {
        let before = self.applied;
        let referred = match self.long {
            Some(LongOp { means: Means::Referred(position), .. }) => {
                self.see_referred(position, head)
            }
            _ => Referred::NothingNew,
        };
        if self.references.is_empty() {
            (self.applied, self.passed) = (head, head);
        } else {
            self.see_references(head);
        }
        if referred == Referred::Applied {
            // So that the call that posted it finds it complete.
            self.collect_applied();
        }
        self.applied != before || referred != Referred::NothingNew
    }

    /// Notices how much of the accumulate by reference at `position` is applied. If its slot has
    /// been passed, ends it, or lets what is left be sent in pieces.
    fn see_referred(&mut self, position: u64, head: u64) -> Referred {
        // SAFETY: this process published the reference at `position`, and writes no slot that it
        // has not collected; it collects this one after it has been passed.
        let seen = unsafe { accumulate_reference::progress(self.channel(), position) };
        let Some(long) = &mut self.long else { return Referred::NothingNew };
        let moved = seen.applied > long.at;
        long.at = seen.applied;
        if head <= position {
            return if moved { Referred::Moved } else { Referred::NothingNew };
        }
        if seen.applied >= long.op.len as usize {
            self.long = None;
            self.begin_redone();
            return Referred::Applied;
        }
        self.accumulates_refused |= seen.refused;
        long.means = Means::Pieces;
        self.slots[position as usize % SLOTS].ends = None;
        Referred::Moved
    }

    /// Notices what was applied while slots by reference are open. Does not count a slot as applied
    /// if it is to be sent again.
    fn see_references(&mut self, head: u64) {
        while let Some(missing) = self.references.pass(self.channel(), head) {
            if let Some((position, op, ticket)) = missing {
                self.slots[position as usize % SLOTS].ends = None;
                self.redone.push_back(LongOp::redone(op, ticket));
            }
        }
        (self.applied, self.passed) = (head.max(self.applied), head);
        while self.applied < self.tail && self.references.is_complete(self.applied) {
            self.applied += 1;
        }
        self.begin_redone();
    }

    /// Whether a put or get of `len` bytes is copied at once, alone. `learns`: one of less than
    /// [`DIVIDED_MIN`] bytes may also go through the channel.
    pub(in super::super) fn copies_at_once(&mut self, len: u64, learns: bool) -> bool {
        let may_be_left = len >= GATHERED_MAX;
        if len >= DIVIDED_MIN || (may_be_left && !self.references.skips()) {
            return false;
        }
        if !learns {
            return may_be_left || self.gather.skips();
        }
        let class = adaptive::class(len, BY_KERNEL_MIN);
        self.gather.skips() && self.short_ways[class].uses(Way::Alone)
    }

    /// Adds an operation that is complete, and of which the next poll is to tell.
    pub(in super::super) fn add_finished(&mut self, ticket: Ticket) {
        self.finished.push_back((ticket, Stage::Remote));
    }

    /// Publishes a put or get by reference, if the target may well copy it, or a part of it.
    pub(in super::super) fn post_reference(&mut self, op: &Op, ticket: Ticket) -> bool {
        if !self.references.is_empty() {
            self.see_applied();
        }
        if self.long.is_some() || self.free_slots() == 0 || !self.references.shares(op.len) {
            return false;
        }
        self.references.push(self.tail, op, ticket);
        // SAFETY: a slot is free.
        unsafe { self.publish_reference(op, buffer_of(op), ticket) };
        true
    }

    /// Publishes the long operation, an accumulate, by reference. False if there is no free slot.
    pub(super) fn send_reference(&mut self, op: &Op) -> bool {
        if self.free_slots() == 0 {
            return false;
        }
        let Some(long) = &mut self.long else { return false };
        long.means = Means::Referred(self.tail);
        let ticket = long.ticket;
        // SAFETY: a slot is free.
        unsafe { self.publish_reference(op, op.origin.0, ticket) };
        true
    }

    /// Publishes an operation by reference to the buffer at `address`, in the slot at the tail.
    ///
    /// # Safety
    /// A slot is free.
    unsafe fn publish_reference(&mut self, op: &Op, address: usize, ticket: Ticket) {
        let channel = self.channel();
        let slot = channel.slot(self.tail);
        // SAFETY: a slot is free, so that at the tail is the origin's to write, with its payload,
        // which has room for a reference, aligned to its words.
        unsafe {
            slot.fill(op.disp, op.len as u32, IN_SLOT);
            channel.data(slot, IN_SLOT).cast::<Reference>().write(Reference::new(address));
        }
        self.slots[self.tail as usize % SLOTS] = SentSlot {
            ends: Some((ticket, Stage::Remote)),
            has_last: true,
            payload_end: self.payload_tail,
            ..SentSlot::default()
        };
        let tag = Tag { is_reference: true, ..Tag::of(op, false) };
        publish(&slot.stamp, self.tail, tag.encode());
        self.tail += 1;
    }

    /// Copies the operations that are gathered, in the target's process `pid`. If the kernel
    /// refuses, they are sent through the channel.
    pub(in super::super) fn run_gathered(&mut self, pid: i32) -> io::Result<()> {
        let Outbox { gather, finished, redone, .. } = self;
        let result = gather.run(pid, |op, ticket, copied| {
            if copied {
                finished.push_back((ticket, Stage::Remote));
            } else {
                redone.push_back(LongOp::redone(*op, ticket));
            }
        });
        self.begin_redone();
        result
    }

    /// Claims bytes of an operation by reference, which the caller must copy.
    #[inline]
    pub(in super::super) fn claim(&mut self, waits: bool) -> Option<Range> {
        if self.references.is_empty() {
            return None;
        }
        self.references.claim(self.channel(), waits)
    }

    /// Notes whether a claimed range was copied.
    pub(in super::super) fn note_copied(&mut self, range: &Range, copied: bool) {
        self.references.note(range, copied);
    }
}
