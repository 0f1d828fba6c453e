//! Operations on other processes' memory in created windows: which way each takes, who drives it.
//!
//! They go through the channel to their target. While the target polls, two processors work at the
//! same time, and a long transfer takes about as long as one copy. The kernel's copy is slower,
//! because it looks up every page. If the target does not poll, this process assists: it takes the
//! target's part by cross-memory attach, where that is allowed. Long puts and gets then bypass the
//! channel. Accumulates never do, so those of one origin keep their order, and atomic operations
//! have only one path [AT-1].

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use crate::engine::{Op, OpKind, Posted, Rank, Stage, Ticket};
use crate::sync::Ordering::Relaxed;
use crate::sync::yield_now;
use crate::transport::datatype::Shapes;

use super::cma::{self, Direction};
use super::cma_consumer::{CmaConsumer, CmaPeer};
use super::context::Context;
use super::inbox::Inbox;
use super::outbox::{Outbox, SHORT};
use super::regions::Regions;

/// Idle polls before [`Channels::drive_while`] checks whether the target polls. About 1 µs.
const IDLE_POLLS: u32 = 100;

/// After this many checks that find the target polling, the operation is left to later polls.
const IDLE_CHECKS: u32 = 10;

/// Times that this process yields its processor to a target that was preempted while it held the
/// consumer lock: several time slices.
const YIELDS: u32 = 10_000;

/// Result of assisting a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assistance {
    Moved,
    Nothing,
    /// The target holds the consumer lock, but makes no progress.
    TargetPreempted,
}

/// Both ends of this process's channels.
#[derive(Debug)]
pub(super) struct Channels {
    pub(super) context: Context,
    /// Cross-memory attach works.
    cma: bool,
    inbox: Inbox,
    /// One for each target that was ever used.
    outboxes: Vec<Outbox>,
    /// Indices of outboxes with operations in flight.
    active: Vec<u32>,
    /// Index in `active` of the next outbox to collect from.
    cursor: usize,
    cma_consumer: CmaConsumer,
}

impl Channels {
    /// `attached`: what this process has attached, if the window is dynamic.
    pub(super) fn new(context: Context, cma: bool, attached: Option<Rc<RefCell<Regions>>>) -> Self {
        Channels {
            context,
            cma,
            inbox: Inbox::new(attached),
            outboxes: Vec::new(),
            active: Vec::new(),
            cursor: 0,
            cma_consumer: CmaConsumer::default(),
        }
    }

    /// Starts an operation on another process's memory.
    #[inline]
    pub(super) fn post(&mut self, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        if op.shape.is_some() {
            return self.post_shaped(op, ticket, shapes);
        }
        if op.len == 0 && op.notification.is_none() {
            return Posted::Complete;
        }
        let index = self.outbox_of(op.target);
        let outbox = &mut self.outboxes[index as usize];
        if op.len > SHORT as u64 {
            return self.post_long(index, op, ticket, shapes);
        }
        let posted = outbox.post(op, ticket);
        if posted != Posted::NoResource {
            self.activate(index);
        }
        self.wake(index);
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

    /// Starts a long operation and drives it while it moves. After this call the origin may compute
    /// without delaying the transfer, unless the target does not poll and cross-memory attach is
    /// not allowed.
    #[cold]
    fn post_long(&mut self, index: u32, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        let outbox = &mut self.outboxes[index as usize];
        let parts = self.context.parts;
        let polls = &parts.rank(op.target).polls.0;
        let bypasses = self.cma && is_copy(op) && outbox.known_unresponsive(polls);
        if bypasses && op.notification.is_none() && self.copy(op, 0) {
            return Posted::Complete;
        }
        if !self.outboxes[index as usize].begin_long(op, ticket, shapes) {
            return Posted::NoResource;
        }
        self.activate(index);
        if bypasses && op.notification.is_some() && self.copy(op, 0) {
            self.outboxes[index as usize].finish_long();
        }
        self.drive_while(index, |outbox| outbox.pending_long().is_some());
        self.wake(index);
        self.outboxes[index as usize].posted_long(op, ticket)
    }

    /// Rings the target's doorbell if the target does not poll this window. Call after publishing.
    #[inline(always)]
    fn wake(&mut self, index: u32) {
        let outbox = &mut self.outboxes[index as usize];
        let block = self.context.parts.rank(outbox.target);
        // After a notification this process may never poll again.
        block.ring_if(if std::mem::take(&mut outbox.notified) {
            block.arm().trigger_fenced()
        } else {
            block.arm().trigger()
        });
    }

    /// Starts a shaped operation. Drives a long one as [`post_long`](Self::post_long) does.
    #[inline(never)]
    fn post_shaped(&mut self, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        let index = self.outbox_of(op.target);
        if !self.outboxes[index as usize].begin_long(op, ticket, shapes) {
            return Posted::NoResource;
        }
        self.activate(index);
        if op.len > SHORT as u64 {
            self.drive_while(index, |outbox| outbox.pending_long().is_some());
        } else {
            self.outboxes[index as usize].drive();
        }
        self.wake(index);
        self.outboxes[index as usize].posted_long(op, ticket)
    }

    /// Drives all operations in flight until they are applied or stop moving, because a target is
    /// slow or cannot be assisted. True if there is something to collect.
    pub(super) fn drive_all(&mut self) -> bool {
        for at in 0..self.active.len() {
            self.drive_while(self.active[at], |outbox| !outbox.is_applied());
        }
        self.active.iter().any(|index| self.outboxes[*index as usize].has_finished())
    }

    /// Drives an outbox while `unfinished`, or until it stops moving and cannot be assisted.
    fn drive_while(&mut self, index: u32, unfinished: impl Fn(&Outbox) -> bool) {
        let parts = self.context.parts;
        let polls = &parts.rank(self.outboxes[index as usize].target).polls.0;
        let (mut idle, mut checks_left, mut yields) = (0, IDLE_CHECKS, 0);
        while unfinished(&self.outboxes[index as usize]) {
            if self.outboxes[index as usize].drive() {
                idle = 0;
                continue;
            }
            self.wake(index);
            // Two processes that send to each other both wait here, so each must serve the other.
            self.inbox.poll(&self.context);
            idle += 1;
            let outbox = &mut self.outboxes[index as usize];
            if idle < IDLE_POLLS && !outbox.known_unresponsive(polls) {
                continue;
            }
            idle = 0;
            if outbox.is_unresponsive_now(polls) {
                match if self.cma { self.assist(index) } else { Assistance::Nothing } {
                    Assistance::Moved => {}
                    Assistance::TargetPreempted if yields < YIELDS => {
                        yields += 1;
                        yield_now();
                    }
                    Assistance::TargetPreempted | Assistance::Nothing => break,
                }
            } else {
                checks_left -= 1;
                if checks_left == 0 {
                    break;
                }
            }
        }
    }

    /// Index of the outbox to `target`. The pair's block has it in a word that no other process
    /// uses, which saves a table with an entry per process of the window.
    #[inline(always)]
    fn outbox_of(&mut self, target: Rank) -> u32 {
        let index = &self.context.parts.pair(self.context.me, target).lock_node.0.outbox_index;
        match index.load(Relaxed) {
            0 => self.first_contact(target),
            number => number - 1,
        }
    }

    #[cold]
    fn first_contact(&mut self, target: Rank) -> u32 {
        let Context { me, parts, .. } = self.context;
        let index = self.outboxes.len() as u32;
        let channel = parts.channel(target, me);
        // SAFETY: the channel from this process to `target`, in a segment that stays mapped as long
        // as the window. No outbox has used it, or the pair's block would have its index.
        let outbox = unsafe { Outbox::new(target, channel, &parts.rank(target).polls.0) };
        self.outboxes.push(outbox);
        parts.pair(me, target).lock_node.0.outbox_index.store(index + 1, Relaxed);
        parts.make_contact(me, target);
        index
    }

    /// Copies a put or get from byte `at` on by cross-memory attach. False if the kernel refuses.
    fn copy(&mut self, op: &Op, at: usize) -> bool {
        let info = &self.context.parts.rank(op.target).info.0;
        let (there, len) = (info.memory + op.disp + at as u64, op.len as usize - at);
        let (direction, local) = match op.kind {
            OpKind::Put => (Direction::Write, op.origin.0 as *mut u8),
            _ => (Direction::Read, op.result.0 as *mut u8),
        };
        // SAFETY: the application's buffers are valid for the operation's length until it completes
        // [EP-8]; the caller has checked the target bytes against the target's window.
        let copied = unsafe {
            cma::transfer(direction, info.process.pid, local.wrapping_add(at), there, len)
        };
        copied.inspect_err(|error| self.disable_cma(error)).is_ok()
    }

    /// From now on, uses only the channels.
    #[cold]
    fn disable_cma(&mut self, error: &io::Error) {
        if std::mem::replace(&mut self.cma, false) {
            log::warn!(
                "cross-memory attach failed ({error}); this window goes on with active copying"
            );
        }
    }

    /// Applies the operations of others, notices which of this process's are applied, sends what
    /// waits, and assists targets that do not poll. True if anything moved.
    #[inline]
    pub(super) fn poll(&mut self) -> bool {
        let mut moved = self.inbox.poll(&self.context);
        for at in 0..self.active.len() {
            let index = self.active[at];
            let outbox = &mut self.outboxes[index as usize];
            let moves = outbox.poll();
            moved |= moves;
            let polls = &self.context.parts.rank(outbox.target).polls.0;
            let assists = !moves && self.cma && outbox.is_unresponsive(polls);
            // Even if something moved, because the poll may have published more.
            self.wake(index);
            if assists {
                moved |= self.assist(index) == Assistance::Moved;
            }
        }
        moved
    }

    /// Takes the part of a target that does not poll.
    #[cold]
    fn assist(&mut self, index: u32) -> Assistance {
        let outbox = &mut self.outboxes[index as usize];
        let block = self.context.parts.rank(outbox.target);
        let peer = CmaPeer { rank: outbox.target, context: &self.context };
        match self.cma_consumer.consume(outbox.channel(), outbox.tail(), peer) {
            Ok(true) => {}
            Ok(false) => return Assistance::TargetPreempted,
            Err(error) => {
                self.disable_cma(&error);
                return Assistance::Nothing;
            }
        }
        // Tagged notifications may have been among the operations.
        block.ring_if(block.arm().trigger_fenced());
        let moved = if outbox.poll() { Assistance::Moved } else { Assistance::Nothing };
        match outbox.pending_long() {
            Some((op, at)) if is_copy(op) && op.shape.is_none() && at < op.len as usize => {
                let op = *op;
                if !self.copy(&op, at) {
                    return moved;
                }
                self.outboxes[index as usize].finish_long();
                Assistance::Moved
            }
            _ => moved,
        }
    }

    /// Whether other processes have sent operations that have not been applied.
    pub(super) fn has_work(&self) -> bool {
        self.inbox.has_work(&self.context)
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

/// Whether the operation is a put or a get, which cross-memory attach can do without the channel.
fn is_copy(op: &Op) -> bool {
    matches!(op.kind, OpKind::Put | OpKind::Get)
}
