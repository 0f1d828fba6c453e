//! Operations on other processes' memory in created windows: which way each takes, who drives it.
//!
//! Short ones go through the channel to their target. So do accumulates of any length, which keeps
//! those of one origin in order, and atomic operations have only one path [AT-1]; the target may
//! read the data of long ones by itself ([`super::accumulate_reference`]). If the target does not
//! poll, this process assists: it takes the target's part by cross-memory attach, where that is
//! allowed.
//!
//! Other puts and gets are copied by cross-memory attach from the start: several by one system call
//! ([`super::short`]), or by both processes ([`super::reference`]). Of three ways to copy a long
//! one, the fastest is learned: alone, divided, and through the channel, where both processors copy
//! all bytes. Those of derived datatypes have two ways ([`super::scattered`]).

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::engine::{NoResource, Op, OpKind, Posted, Rank, Stage, Ticket};
use crate::sync::Ordering::Relaxed;
use crate::sync::yield_now;
use crate::transport::datatype::Shapes;

use super::accumulate_reference::{self, ACCUMULATE_MIN};
use super::adaptive::{self, Choice, Way};
use super::cma::{self, Batch, Direction};
use super::cma_consumer::{CmaConsumer, CmaPeer};
use super::context::Context;
use super::inbox::Inbox;
use super::outbox::{Outbox, SHORT};
use super::reference::{BY_KERNEL_MIN, DIVIDED_MIN, buffer_of};
use super::regions::Regions;
use super::scattered::SCATTERED_MIN;

/// After this many checks that find the target polling, and nothing moved since, the operation is
/// left to later polls.
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
    /// Shortest put or get that is copied by it. A shorter one waits for a target that polls, which
    /// takes less than a system call, unless the target has to wait for a core.
    by_kernel_min: u64,
    inbox: Inbox,
    /// One for each target that was ever used.
    pub(super) outboxes: Vec<Outbox>,
    /// Indices of outboxes with operations in flight.
    active: Vec<u32>,
    /// Index in `active` of the next outbox to collect from.
    cursor: usize,
    cma_consumer: CmaConsumer,
    /// Runs for a system call, kept for reuse.
    pub(super) runs: Batch,
}

impl super::ShmWindow {
    /// Whether an operation of this process is in flight in a channel.
    #[inline]
    pub(crate) fn has_operations(&self) -> bool {
        self.channels.as_ref().is_some_and(|channels| !channels.active.is_empty())
    }

    /// Whether a node-mate has left work for this process: an operation in a channel, or a tagged
    /// notification.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.tags.has_work() || self.channels.as_ref().is_some_and(|channels| channels.has_work())
    }
}

impl Channels {
    /// `attached`: what this process has attached, if the window is dynamic.
    /// `oversubscribed`: as in [`Settings`](super::Settings).
    pub(super) fn new(
        context: Context,
        cma: bool,
        oversubscribed: bool,
        attached: Option<Rc<RefCell<Regions>>>,
    ) -> Self {
        Channels {
            context,
            cma,
            by_kernel_min: if oversubscribed { 1 } else { BY_KERNEL_MIN },
            inbox: Inbox::new(attached),
            outboxes: Vec::new(),
            active: Vec::new(),
            cursor: 0,
            cma_consumer: CmaConsumer::default(),
            runs: Batch::default(),
        }
    }

    /// Starts an operation on another process's memory.
    #[inline]
    pub(super) fn post(&mut self, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        if op.notification.is_some() {
            // It follows all earlier operations [NA-1].
            let index = self.outbox_of(op.target);
            if !self.copy_all(index) {
                return Posted::NoResource;
            }
        }
        if op.shape.is_some() {
            return self.post_shaped(op, ticket, shapes);
        }
        if op.len == 0 && op.notification.is_none() {
            return Posted::Complete;
        }
        let index = self.outbox_of(op.target);
        let is_free = self.outboxes[index as usize].is_free();
        if !is_free && op.kind == OpKind::Get {
            return self.refuse_get(index);
        }
        if op.len >= self.by_kernel_min
            && self.cma
            && is_free
            && is_copy(op)
            && op.notification.is_none()
        {
            return self.post_copy(index, op, ticket, shapes);
        }
        if op.len > SHORT as u64 {
            return match self.cma && accumulate_reference::suits(op) {
                true => self.post_accumulate(index, op, ticket, shapes),
                false => self.post_long(index, op, ticket, shapes),
            };
        }
        self.post_slot(index, op, ticket)
    }

    /// Refuses a get until all is applied that it must follow: the processor of the target may
    /// execute a load before earlier stores are visible.
    #[cold]
    fn refuse_get(&mut self, index: u32) -> Posted {
        self.wake(index);
        Posted::NoResource
    }

    /// Has later operations on the memory of `target` follow all earlier ones [OR-1]. Slots keep
    /// their order. What both ends may copy is copied first, and nothing overtakes slots until they
    /// are applied.
    ///
    /// # Errors
    /// Not now: a long operation is being sent, or the target copies one by reference.
    pub(super) fn order(&mut self, target: Rank) -> Result<(), NoResource> {
        let Some(index) = self.known_outbox(target) else { return Ok(()) };
        self.copy_waiting(index, true);
        self.outboxes[index as usize].order()
    }

    /// Whether what bypasses the channel to `target` overtakes nothing that it must follow.
    pub(super) fn is_free(&mut self, target: Rank) -> bool {
        self.known_outbox(target).is_none_or(|index| self.outboxes[index as usize].is_free())
    }

    fn known_outbox(&self, target: Rank) -> Option<u32> {
        let pair = self.context.parts.pair(self.context.me, target);
        pair.lock_node.0.outbox_index.load(Relaxed).checked_sub(1)
    }

    /// Starts an operation of at most [`SHORT`] bytes through the channel.
    #[inline(always)]
    pub(super) fn post_slot(&mut self, index: u32, op: &Op, ticket: Ticket) -> Posted {
        let posted = self.outboxes[index as usize].post(op, ticket);
        if posted != Posted::NoResource {
            self.activate(index);
        }
        self.wake(index);
        posted
    }

    /// Copies a put or get that [`post`](Self::post) would complete at once. False: post it.
    ///
    /// # Safety
    /// `local` is valid for `len` bytes, for a get also writable. The bytes at `at` lie in the
    /// target's window.
    pub(super) unsafe fn copy_at_once(
        &mut self,
        kind: OpKind,
        target: Rank,
        local: *mut u8,
        at: u64,
        len: u64,
    ) -> bool {
        if !self.cma || len < BY_KERNEL_MIN {
            return false;
        }
        let (index, learns) = (self.outbox_of(target), self.learns());
        let outbox = &mut self.outboxes[index as usize];
        if !outbox.is_free() || !outbox.copies_at_once(len, learns) {
            return false;
        }
        // SAFETY: the buffer is valid and the target's bytes lie in its window (contract of this
        // function).
        unsafe { self.transfer(kind, target, local, at, len as usize) }
    }

    #[inline(always)]
    pub(super) fn activate(&mut self, index: u32) {
        let outbox = &mut self.outboxes[index as usize];
        if !outbox.active {
            outbox.active = true;
            self.active.push(index);
        }
    }

    /// Copies a put or get by cross-memory attach: alone, together with others, or together with
    /// the target. See [`super::short`] and [`super::reference`].
    #[inline(never)]
    fn post_copy(&mut self, index: u32, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        if op.len >= DIVIDED_MIN {
            return self.post_divided(index, op, ticket, shapes);
        }
        self.post_short(index, op, ticket, shapes)
    }

    /// Whether puts and gets of less than [`DIVIDED_MIN`] bytes are copied in the way that has been
    /// the faster. Where ranks share cores, the kernel copies them all.
    pub(super) fn learns(&self) -> bool {
        self.by_kernel_min == BY_KERNEL_MIN
    }

    /// Copies a put or get by cross-memory attach.
    pub(super) fn post_alone(
        &mut self,
        index: u32,
        op: &Op,
        ticket: Ticket,
        shapes: &mut Shapes,
    ) -> Posted {
        if self.copy(op, 0, op.len as usize) {
            Posted::Complete
        } else {
            self.post_long(index, op, ticket, shapes)
        }
    }

    /// Copies a long put or get in the way that has been the fastest for its length.
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is the fastest")]
    fn post_divided(&mut self, index: u32, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        let class = adaptive::class(op.len, DIVIDED_MIN);
        let Choice { way, timed } = self.outboxes[index as usize].long_ways[class].choose();
        let begin = timed.then(Instant::now);
        let posted = match way {
            Way::Divided if self.outboxes[index as usize].post_reference(op, ticket) => {
                self.activate(index);
                self.wake(index);
                self.copy_waiting(index, false);
                match self.outboxes[index as usize].is_last_complete() {
                    true => Posted::Complete,
                    false => Posted::Pending,
                }
            }
            Way::Channel => self.post_long(index, op, ticket, shapes),
            _ => self.post_alone(index, op, ticket, shapes),
        };
        if let Some(took) = self.end_trial(index, begin, posted) {
            self.outboxes[index as usize].long_ways[class].note(way, took);
        }
        posted
    }

    /// Completes an operation on trial that was posted; returns its time. `begin`: if it is timed.
    pub(super) fn end_trial(
        &mut self,
        index: u32,
        begin: Option<Instant>,
        posted: Posted,
    ) -> Option<Duration> {
        let begin = begin.filter(|_| posted != Posted::NoResource)?;
        self.drive_while(index, |outbox| !outbox.is_applied());
        Some(begin.elapsed())
    }

    /// Copies the operations that wait for a common system call.
    pub(super) fn copy_gathered(&mut self, index: u32) -> bool {
        let outbox = &mut self.outboxes[index as usize];
        if outbox.gather.is_empty() {
            return false;
        }
        let pid = self.context.parts.rank(outbox.target).info.0.process.pid;
        if let Err(error) = outbox.run_gathered(pid) {
            self.disable_cma(&error);
        }
        true
    }

    /// Copies what is gathered, and what the target has not begun to copy of operations by
    /// reference. True if there was anything. `waits`: this process has nothing else to do.
    fn copy_waiting(&mut self, index: u32, waits: bool) -> bool {
        let mut copied = self.copy_gathered(index);
        while let Some(range) = self.outboxes[index as usize].claim(waits) {
            let done = self.cma && self.copy(&range.op, range.start, range.len);
            self.outboxes[index as usize].note_copied(&range, done);
            copied = true;
        }
        copied
    }

    /// Copies what the target has not begun to copy. What the target has begun, it copies before it
    /// goes on with the next slot; but it would go on while this process still copies what it has
    /// claimed. False: an operation has failed, and must be sent again first.
    fn copy_all(&mut self, index: u32) -> bool {
        self.copy_waiting(index, true);
        !self.outboxes[index as usize].sends_again()
    }

    /// Starts a long operation through the channel and drives it while it moves. After this call
    /// the origin may compute without delaying the transfer, unless the target does not poll and
    /// cross-memory attach is not allowed. A put or get with a notification is copied by
    /// cross-memory attach, and only its notification goes through the channel.
    #[cold]
    pub(super) fn post_long(
        &mut self,
        index: u32,
        op: &Op,
        ticket: Ticket,
        shapes: &mut Shapes,
    ) -> Posted {
        if !self.outboxes[index as usize].begin_long(op, ticket, shapes, false) {
            return Posted::NoResource;
        }
        self.drive_long(index, op, ticket)
    }

    /// Starts a long accumulate in the way that has been the fastest for its length.
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is the fastest")]
    fn post_accumulate(
        &mut self,
        index: u32,
        op: &Op,
        ticket: Ticket,
        shapes: &mut Shapes,
    ) -> Posted {
        let outbox = &mut self.outboxes[index as usize];
        let class = adaptive::class(op.len, ACCUMULATE_MIN);
        let Choice { way, timed } = outbox.accumulate_ways[class].choose();
        let begin = timed.then(Instant::now);
        if !outbox.begin_long(op, ticket, shapes, way == Way::Alone) {
            return Posted::NoResource;
        }
        let posted = self.drive_long(index, op, ticket);
        if let Some(took) = self.end_trial(index, begin, posted) {
            self.outboxes[index as usize].accumulate_ways[class].note(way, took);
        }
        posted
    }

    /// Drives a long operation that has begun.
    fn drive_long(&mut self, index: u32, op: &Op, ticket: Ticket) -> Posted {
        self.activate(index);
        let copies = op.notification.is_some()
            && is_copy(op)
            && self.cma
            && self.outboxes[index as usize].is_free();
        if copies && self.copy(op, 0, op.len as usize) {
            self.outboxes[index as usize].finish_long();
        }
        self.drive_while(index, |outbox| outbox.pending_long().is_some());
        self.wake(index);
        self.outboxes[index as usize].posted_long(op, ticket)
    }

    /// Rings the target's doorbell if the target does not poll this window. Call after publishing.
    #[inline(always)]
    pub(super) fn wake(&mut self, index: u32) {
        let outbox = &mut self.outboxes[index as usize];
        let block = self.context.parts.rank(outbox.target);
        // After a notification this process may never poll again.
        block.ring_if(if std::mem::take(&mut outbox.notified) {
            block.arm().trigger_fenced()
        } else {
            block.arm().trigger()
        });
    }

    /// Starts a shaped operation. One of long runs is copied by cross-memory attach; see
    /// [`super::scattered`]. Drives any other long one as [`post_long`](Self::post_long) does.
    #[inline(never)]
    fn post_shaped(&mut self, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        let index = self.outbox_of(op.target);
        let is_free = self.outboxes[index as usize].is_free();
        if !is_free && op.kind == OpKind::Get {
            return self.refuse_get(index);
        }
        if op.len >= SCATTERED_MIN
            && self.cma
            && is_free
            && is_copy(op)
            && op.notification.is_none()
        {
            let posted = self.post_scattered(index, op, ticket, shapes);
            if let Some(posted) = posted {
                return posted;
            }
        }
        self.send_shaped(index, op, ticket, shapes)
    }

    /// Sends a shaped operation through the channel.
    pub(super) fn send_shaped(
        &mut self,
        index: u32,
        op: &Op,
        ticket: Ticket,
        shapes: &mut Shapes,
    ) -> Posted {
        if !self.outboxes[index as usize].begin_long(op, ticket, shapes, false) {
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
    pub(super) fn drive_while(&mut self, index: u32, unfinished: impl Fn(&Outbox) -> bool) {
        let parts = self.context.parts;
        let polls = &parts.rank(self.outboxes[index as usize].target).polls.0;
        let (mut idle, mut checks_left, mut yields) = (0, IDLE_CHECKS, 0);
        while unfinished(&self.outboxes[index as usize]) {
            if self.outboxes[index as usize].drive() || self.copy_waiting(index, true) {
                (idle, checks_left) = (0, IDLE_CHECKS);
                continue;
            }
            self.wake(index);
            // Two processes that send to each other both wait here, so each must serve the other.
            self.inbox.poll(&self.context);
            idle += 1;
            let outbox = &mut self.outboxes[index as usize];
            if idle < outbox.stall.patience() && !outbox.stall.known_unresponsive(polls) {
                continue;
            }
            idle = 0;
            if outbox.stall.is_unresponsive_now(polls) {
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

    /// Copies `len` bytes of a put or get, from byte `at` on, by cross-memory attach. False if the
    /// kernel refuses.
    fn copy(&mut self, op: &Op, at: usize, len: usize) -> bool {
        let local = (buffer_of(op) as *mut u8).wrapping_add(at);
        // SAFETY: the application's buffers are valid for the operation's length until it completes
        // [EP-8]; the caller has checked the target bytes against the target's window.
        unsafe { self.transfer(op.kind, op.target, local, op.disp + at as u64, len) }
    }

    /// Copies between `local` and the target's bytes at `at`. False if the kernel refuses.
    ///
    /// # Safety
    /// `local` is valid for `len` bytes, for a get also writable. The bytes at `at` lie in the
    /// target's window.
    #[inline]
    unsafe fn transfer(
        &mut self,
        kind: OpKind,
        target: Rank,
        local: *mut u8,
        at: u64,
        len: usize,
    ) -> bool {
        let info = &self.context.parts.rank(target).info.0;
        // SAFETY: the contract of this function.
        let copied = unsafe {
            cma::transfer(Direction::of(kind), info.process.pid, local, info.memory + at, len)
        };
        copied.inspect_err(|error| self.disable_cma(error)).is_ok()
    }

    /// From now on, uses only the channels.
    #[cold]
    pub(super) fn disable_cma(&mut self, error: &io::Error) {
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
            let moves = moves || self.copy_waiting(index, true);
            moved |= moves;
            let outbox = &mut self.outboxes[index as usize];
            let polls = &self.context.parts.rank(outbox.target).polls.0;
            let assists = !moves && self.cma && outbox.stall.is_unresponsive(polls);
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
        self.copy_waiting(index, true);
        let outbox = &mut self.outboxes[index as usize];
        let block = self.context.parts.rank(outbox.target);
        let peer = CmaPeer { rank: outbox.target, context: &self.context };
        match self.cma_consumer.consume(outbox.channel(), outbox.tail(), peer) {
            Ok(true) => outbox.stall.assisted(&block.polls.0),
            Ok(false) => return Assistance::TargetPreempted,
            Err(error) => {
                self.disable_cma(&error);
                return Assistance::Nothing;
            }
        }
        // Tagged notifications may have been among the operations.
        block.ring_if(block.arm().trigger_fenced());
        let moved = if outbox.poll() { Assistance::Moved } else { Assistance::Nothing };
        if !outbox.is_free() {
            return moved;
        }
        match outbox.pending_long() {
            Some((op, at)) if is_copy(op) && op.shape.is_none() && at < op.len as usize => {
                let op = *op;
                if !self.copy(&op, at, op.len as usize - at) {
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
                outbox.end_burst();
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
