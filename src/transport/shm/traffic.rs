//! Operations on the memory of others in a created window: which way each goes, and who drives it.
//!
//! Long puts and gets are copied by the kernel at once, where it allows that. All others go through the
//! channel to their target: accumulates always, so that those of one origin keep their order and there
//! is one path for atomic operations [AT-1].

use std::io;

use crate::engine::{Op, OpKind, Posted, Rank, Stage, Ticket};
use crate::sync::Ordering::Relaxed;

use super::cma;
use super::inbox::Inbox;
use super::outbox::Outbox;
use super::shared::Shared;
use super::thief::{Thief, Victim};

/// Bytes from which the kernel's copy is faster than two copies through the channel.
const ATTACH_BYTES: u64 = 16 * 1024;

/// This process's traffic with the others.
#[derive(Debug)]
pub(super) struct Traffic {
    shared: Shared,
    /// Cross-memory attach works.
    attach: bool,
    inbox: Inbox,
    /// One for each target that was ever used.
    outboxes: Vec<Outbox>,
    /// Those with something in flight.
    active: Vec<u32>,
    /// Whose operations are collected next, in `active`.
    cursor: usize,
    thief: Thief,
}

impl Traffic {
    pub(super) fn new(shared: Shared, attach: bool) -> Self {
        Traffic {
            shared,
            attach,
            inbox: Inbox::default(),
            outboxes: Vec::new(),
            active: Vec::new(),
            cursor: 0,
            thief: Thief::default(),
        }
    }

    /// Starts an operation on another process's memory.
    #[inline]
    pub(super) fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        if op.len >= ATTACH_BYTES && self.attach && matches!(op.kind, OpKind::Put | OpKind::Get) && self.copy(op) {
            return Posted::Complete;
        }
        if op.len == 0 {
            return Posted::Complete;
        }
        let index = self.outbox_of(op.target);
        let outbox = &mut self.outboxes[index as usize];
        let posted = outbox.post(op, ticket);
        if posted != Posted::NoResource && !outbox.active {
            outbox.active = true;
            self.active.push(index);
        }
        posted
    }

    /// Where the outbox to `target` is. It is noted in the pair's block, which only this process reads:
    /// no search, and no table as long as the window is wide.
    #[inline(always)]
    fn outbox_of(&mut self, target: Rank) -> u32 {
        let note = &self.shared.blocks.pair(self.shared.me, target).node.0.note;
        match note.load(Relaxed) {
            0 => self.first_contact(target),
            number => number - 1,
        }
    }

    #[cold]
    fn first_contact(&mut self, target: Rank) -> u32 {
        let index = self.outboxes.len() as u32;
        let channel = self.shared.channel(target, self.shared.me);
        let beat = &self.shared.blocks.rank(target).beat.0;
        // SAFETY: the channel of this pair, in a segment that lives as long as the window; there was no note.
        self.outboxes.push(unsafe { Outbox::new(target, channel, beat) });
        self.shared.blocks.pair(self.shared.me, target).node.0.note.store(index + 1, Relaxed);
        self.shared.make_contact(target);
        index
    }

    /// Lets the kernel copy a long operation. False if it does not, after which the channel takes over.
    #[cold]
    fn copy(&mut self, op: &Op) -> bool {
        let info = &self.shared.blocks.rank(op.target).info.0;
        let (there, len) = (info.memory + op.disp, op.len as usize);
        // SAFETY: the buffers are valid for the operation's length [EP-8]; the caller has checked the place
        // in the target's window.
        let copied = unsafe {
            match op.kind {
                OpKind::Put => cma::write(info.pid, op.origin.0 as *const u8, there, len),
                _ => cma::read(info.pid, there, op.result.0 as *mut u8, len),
            }
        };
        match copied {
            Ok(()) => true,
            Err(error) => {
                self.give_up(&error);
                false
            }
        }
    }

    /// The kernel has refused: everything goes through the channels from now on.
    #[cold]
    fn give_up(&mut self, error: &io::Error) {
        if std::mem::replace(&mut self.attach, false) {
            log::warn!("cross-memory attach failed ({error}); this window goes on with active copying");
        }
    }

    /// Applies what came in, notices what was applied elsewhere, sends what waits, and helps targets that
    /// are away. True if anything moved.
    #[inline]
    pub(super) fn poll(&mut self) -> bool {
        let mut moved = self.inbox.poll(&self.shared);
        for at in 0..self.active.len() {
            let outbox = &mut self.outboxes[self.active[at] as usize];
            if outbox.look() {
                moved = true;
            } else if self.attach && outbox.suspects(&self.shared.blocks.rank(outbox.target).beat.0) {
                moved |= self.help(at);
            }
        }
        moved
    }

    /// Does the work of a target that is away.
    #[cold]
    fn help(&mut self, at: usize) -> bool {
        let outbox = &mut self.outboxes[self.active[at] as usize];
        let block = self.shared.blocks.rank(outbox.target);
        let victim = Victim { pid: block.info.0.pid, base: block.info.0.memory, lock: &block.accumulate.0 };
        match self.thief.drain(outbox.channel(), outbox.tail(), victim, self.shared.foreign) {
            Ok(_) => outbox.look(),
            Err(error) => {
                self.give_up(&error);
                false
            }
        }
    }

    /// The next stage that an operation has reached.
    #[inline]
    pub(super) fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        while let Some(&index) = self.active.get(self.cursor) {
            let outbox = &mut self.outboxes[index as usize];
            if let Some(finished) = outbox.next_finished() {
                return Some(finished);
            }
            if outbox.is_idle() {
                outbox.active = false;
                self.active.swap_remove(self.cursor);
            } else {
                self.cursor += 1;
            }
        }
        self.cursor = 0;
        None
    }
}
