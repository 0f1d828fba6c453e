//! Operations on the memory of others in a created window: which way each goes, and who drives it.
//!
//! All go through the channel to their target. While the target polls, the two processors work at
//! the same time, and a long transfer takes about as long as one copy, which the kernel's copy
//! never does: it looks up every page. Only when the target is away does this process do its work,
//! by cross-memory attach where that is allowed; long puts and gets then leave out the channel.
//! Accumulates never do, so that those of one origin keep their order and there is one path for
//! atomic operations [AT-1].

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use crate::engine::{Op, OpKind, Posted, Rank, Stage, Ticket};
use crate::sync::Ordering::Relaxed;
use crate::sync::yield_now;
use crate::transport::datatype::Shapes;

use super::cma;
use super::counters::Counters;
use super::inbox::Inbox;
use super::outbox::{Outbox, SHORT};
use super::regions::Regions;
use super::shared::Shared;
use super::thief::{Drained, Thief, Victim};

/// Looks without any movement, while staying with an operation, after which it is left to later
/// polls, or the target is found away. About a microsecond.
const LOOKS: u32 = 100;

/// Times that a target may poll and yet leave the channel alone for so long.
const PATIENCE: u32 = 10;

/// Times that this process gives its processor away for a target that was interrupted in the
/// channel: some time slices.
const INTERRUPTIONS: u32 = 10_000;

/// What came of helping a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Help {
    Moved,
    Nothing,
    /// The target is in the channel itself, but does not move.
    Interrupted,
}

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
    /// `attached`: what this process has attached, if it is a dynamic window.
    pub(super) fn new(
        shared: Shared,
        attach: bool,
        attached: Option<Rc<RefCell<Regions>>>,
    ) -> Self {
        Traffic {
            shared,
            attach,
            inbox: Inbox::new(attached),
            outboxes: Vec::new(),
            active: Vec::new(),
            cursor: 0,
            thief: Thief::default(),
        }
    }

    /// Starts an operation on another process's memory.
    #[inline]
    pub(super) fn post(&mut self, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        if op.shape.is_some() {
            return self.post_shaped(op, ticket, shapes);
        }
        if op.len == 0 && !matches!(op.kind, OpKind::Notify | OpKind::NotifyTagged) {
            return Posted::Complete;
        }
        let index = self.outbox_of(op.target);
        let outbox = &mut self.outboxes[index as usize];
        if op.len > SHORT as u64 {
            return self.post_long(index, op, ticket);
        }
        let posted = outbox.post(op, ticket);
        if posted != Posted::NoResource {
            self.activate(index);
        }
        let block = self.shared.blocks.rank(op.target);
        block.ring_if(match op.kind {
            // Its origin may never look again.
            OpKind::Notify | OpKind::NotifyTagged => block.arm().trigger_fenced(),
            _ => block.arm().trigger(),
        });
        posted
    }

    #[inline(always)]
    fn activate(&mut self, index: u32) {
        let outbox = &mut self.outboxes[index as usize];
        if !outbox.active {
            outbox.active = true;
            self.active.push(index);
        }
    }

    /// Starts a long operation and stays with it while it moves: when this returns, the origin may
    /// go on computing without delaying the transfer, unless the target is away and attach is not
    /// allowed.
    #[cold]
    fn post_long(&mut self, index: u32, op: &Op, ticket: Ticket) -> Posted {
        let outbox = &mut self.outboxes[index as usize];
        let blocks = self.shared.blocks;
        let beat = &blocks.rank(op.target).beat.0;
        if self.attach && is_copy(op) && outbox.knows_away(beat) && self.copy(op, 0) {
            return Posted::Complete;
        }
        let outbox = &mut self.outboxes[index as usize];
        if !outbox.begin(op, ticket) {
            return Posted::NoResource;
        }
        self.activate(index);
        self.stay_with(index, |outbox| outbox.waiting().is_none());
        self.wake(op.target);
        self.outboxes[index as usize].posted(op, ticket)
    }

    /// Wakes a target that does not poll this window, after something was published for it.
    #[inline(always)]
    fn wake(&self, target: Rank) {
        let block = self.shared.blocks.rank(target);
        block.ring_if(block.arm().trigger());
    }

    /// As [`post_long`](Self::post_long) where the bytes are not one run on both sides; a short one
    /// is not stayed with.
    #[inline(never)]
    fn post_shaped(&mut self, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        let index = self.outbox_of(op.target);
        if !self.outboxes[index as usize].begin_shaped(op, ticket, shapes) {
            return Posted::NoResource;
        }
        self.activate(index);
        if op.len > SHORT as u64 {
            self.stay_with(index, |outbox| outbox.waiting().is_none());
        } else {
            self.outboxes[index as usize].advance();
        }
        self.wake(op.target);
        self.outboxes[index as usize].posted(op, ticket)
    }

    /// Stays with what is in flight while it moves, and helps targets that are away: afterwards
    /// nothing is, unless attach is not allowed or a target is busy elsewhere. True if there is
    /// something to collect.
    pub(super) fn settle(&mut self) -> bool {
        for at in 0..self.active.len() {
            self.stay_with(self.active[at], Outbox::is_applied);
        }
        self.active.iter().any(|index| self.outboxes[*index as usize].has_finished())
    }

    /// Drives an outbox until `enough`, or until it stands still and cannot be helped.
    fn stay_with(&mut self, index: u32, enough: impl Fn(&Outbox) -> bool) {
        let blocks = self.shared.blocks;
        let beat = &blocks.rank(self.outboxes[index as usize].target).beat.0;
        let (mut idle, mut patience, mut interruptions) = (0, PATIENCE, 0);
        while !enough(&self.outboxes[index as usize]) {
            if self.outboxes[index as usize].advance() {
                idle = 0;
                continue;
            }
            self.wake(self.outboxes[index as usize].target);
            // Two processes that send to each other at once serve each other here.
            self.inbox.poll(&self.shared);
            idle += 1;
            let outbox = &mut self.outboxes[index as usize];
            if idle < LOOKS && !outbox.knows_away(beat) {
                continue;
            }
            idle = 0;
            if outbox.suspect_now(beat) {
                match if self.attach { self.help(index) } else { Help::Nothing } {
                    Help::Moved => {}
                    // It has lost its processor while it takes entries out, and gets it back before
                    // long.
                    Help::Interrupted if interruptions < INTERRUPTIONS => {
                        interruptions += 1;
                        yield_now();
                    }
                    Help::Interrupted | Help::Nothing => break,
                }
            } else {
                patience -= 1;
                if patience == 0 {
                    break;
                }
            }
        }
    }

    /// Other notification counters are in force.
    ///
    /// # Safety
    /// As [`Shared::set_counters`].
    pub(super) unsafe fn set_counters(&mut self, counters: Option<&Counters>) {
        // SAFETY: the caller's promise.
        unsafe { self.shared.set_counters(counters) };
    }

    /// Where the outbox to `target` is. It is noted in the pair's block, which only this process
    /// reads: no search, and no table as long as the window is wide.
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
        // SAFETY: the channel of this pair, in a segment that lives as long as the window; there
        // was no note.
        self.outboxes.push(unsafe { Outbox::new(target, channel, beat) });
        self.shared.blocks.pair(self.shared.me, target).node.0.note.store(index + 1, Relaxed);
        self.shared.make_contact(target);
        index
    }

    /// Lets the kernel copy a put or get from byte `at` on. False if it does not; then the channel
    /// takes over.
    fn copy(&mut self, op: &Op, at: usize) -> bool {
        let info = &self.shared.blocks.rank(op.target).info.0;
        let (there, len) = (info.memory + op.disp + at as u64, op.len as usize - at);
        // SAFETY: the buffers are valid for the operation's length [EP-8]; the caller has checked
        // the place in the target's window.
        let copied = unsafe {
            match op.kind {
                OpKind::Put => {
                    cma::write(info.pid, (op.origin.0 as *const u8).wrapping_add(at), there, len)
                }
                _ => cma::read(info.pid, there, (op.result.0 as *mut u8).wrapping_add(at), len),
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
            log::warn!(
                "cross-memory attach failed ({error}); this window goes on with active copying"
            );
        }
    }

    /// Applies what came in, notices what was applied elsewhere, sends what waits, and helps
    /// targets that are away. True if anything moved.
    #[inline]
    pub(super) fn poll(&mut self) -> bool {
        let mut moved = self.inbox.poll(&self.shared);
        for at in 0..self.active.len() {
            let index = self.active[at];
            let outbox = &mut self.outboxes[index as usize];
            let moves = outbox.look();
            moved |= moves;
            let block = self.shared.blocks.rank(outbox.target);
            // Also where something moves: that may have published more.
            block.ring_if(block.arm().trigger());
            if !moves && self.attach && outbox.suspects(&block.beat.0) {
                moved |= self.help(index) == Help::Moved;
            }
        }
        moved
    }

    /// Does the work of a target that is away.
    #[cold]
    fn help(&mut self, index: u32) -> Help {
        let outbox = &mut self.outboxes[index as usize];
        let block = self.shared.blocks.rank(outbox.target);
        let (rank, shared) = (outbox.target, &self.shared);
        let victim = Victim {
            pid: block.info.0.pid,
            base: block.info.0.memory,
            lock: &block.accumulate.0,
            rank,
            shared,
        };
        match self.thief.drain(outbox.channel(), outbox.tail(), victim, self.shared.foreign) {
            Ok(Drained::Done | Drained::Full) => {}
            Ok(Drained::Held) => return Help::Interrupted,
            Err(error) => {
                self.give_up(&error);
                return Help::Nothing;
            }
        }
        // It may have been told tags.
        block.ring_if(block.arm().trigger_fenced());
        let moved = if outbox.look() { Help::Moved } else { Help::Nothing };
        match outbox.waiting() {
            Some((op, at)) if is_copy(op) && op.shape.is_none() => {
                let op = *op;
                if !self.copy(&op, at) {
                    return moved;
                }
                self.outboxes[index as usize].waiting_is_done();
                Help::Moved
            }
            _ => moved,
        }
    }

    /// Whether others have sent something that was not taken out.
    pub(super) fn has_work(&self) -> bool {
        self.inbox.has_work(&self.shared)
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

/// True if the kernel's copy does the whole operation.
fn is_copy(op: &Op) -> bool {
    matches!(op.kind, OpKind::Put | OpKind::Get)
}
