//! Windows in shared memory, for processes of one node.
//!
//! All processes of a window map one segment (`segment`, `layout`). It holds signals, lock words
//! and agreements (`control`, `agreement`), and the memory of allocated windows. There, put and get
//! are copies, and atomic operations run under the target's accumulate lock (`accumulate`).
//!
//! The memory of created windows belongs to the application, and other processes cannot map it.
//! Operations go through a `channel` per ordered pair (`protocol`). The origin's end is the
//! `outbox`, the target's the `inbox`, and `channels` decides which way each operation goes. If a
//! target does not poll, the origin takes its part by cross-memory attach (`cma_consumer`, `cma`).

use std::ffi::CStr;

use super::copy;
use super::datatype::{self, Combine, Shape, Shapes, compare_swap};
use crate::engine::*;
use crate::sync::Ordering::{Acquire, Release, SeqCst};
use crate::transport::Proposal;
use bootstrap::WindowKind;
use channels::Channels;
use context::Context;
use counters::{CounterSetup, Counters};
use protocol::{AccumulateWords, order_load, order_operations};
use region_table::Attached;
use setup::MappedWindow;
use tags::{Claimed, TagQueue};

pub(crate) mod accumulate;
mod accumulate_reference;
mod adaptive;
mod agreement;
mod bootstrap;
mod channel;
mod channels;
mod cma;
mod cma_consumer;
mod context;
mod control;
mod counters;
#[doc(hidden)]
pub mod doorbell;
mod gather;
mod inbox;
mod layout;
mod outbox;
mod peer_memory;
mod process;
#[doc(hidden)]
pub mod protocol;
mod reference;
mod region_table;
mod regions;
mod run_list;
mod scattered;
mod scratch;
mod segment;
mod segment_cache;
mod setup;
mod short;
mod stall;
#[doc(hidden)]
pub mod tags;
pub mod window_memory;

pub use bootstrap::{Alone, Bootstrap, Memory, node};
pub use cma::Direction;
pub use counters::{APART as COUNTERS_APART, Counter, CounterStep, CounterTable, RaisedBefore};
pub use peer_memory::PeerMemory;
pub use process::{is_rung, take_rung};
pub use reference::BY_KERNEL_MIN;
pub use regions::AttachError;
pub use scratch::Scratch;
pub use segment::SystemError;
pub use setup::{Settings, SetupError};

/// A put or get of contiguous bytes.
#[derive(Clone, Copy, Debug)]
pub struct PlainCopy {
    /// Put or get.
    pub kind: OpKind,
    /// The target.
    pub rank: Rank,
    /// The buffer in this process; a get writes it.
    pub local: *mut u8,
    /// Displacement in the target's window.
    pub disp: u64,
    /// Bytes.
    pub len: u64,
}

/// One window in one process over shared memory.
///
/// Created by [`new`](Self::new), collectively; then driven through [`Port`] and [`LockMemory`].
/// Freed by [`release`](Self::release), or by dropping it, after an agreement
/// ([`propose`](Self::propose), [`decision`](Self::decision)) without objection.
#[derive(Debug)]
pub struct ShmWindow {
    /// The memory of every rank is in the segment.
    allocated: bool,
    me: Rank,
    /// This process's window memory.
    base: *mut u8,
    mapped: MappedWindow,
    settings: Settings,
    agreement: agreement::Agreement,
    /// Shapes of operations that have not been posted.
    shapes: Shapes,
    /// Only in created and dynamic windows with several processes.
    channels: Option<Box<Channels>>,
    /// Only in dynamic windows: what each process has attached.
    attached: Option<Box<Attached>>,
    /// Notification counters, if there are any.
    counters: Option<Box<Counters>>,
    counter_setup: CounterSetup,
    tags: TagQueue,
}

// SAFETY: the raw addresses point into the shared mapping, which the window owns, and into the
// application's window memory, which MPI lends to the library until the window is freed. Neither
// belongs to a thread. Only parts of the same window share its reference-counted regions.
unsafe impl Send for ShmWindow {}

impl ShmWindow {
    /// Makes a window. Collective; fails in every process or in none. `disp_unit` is in bytes.
    ///
    /// # Errors
    /// The processes are not on one node, or a system call failed in one of them.
    pub fn new(
        boot: &mut dyn Bootstrap,
        memory: Memory,
        disp_unit: u32,
        settings: Settings,
    ) -> Result<Self, SetupError> {
        let mapped = setup::set_up(boot, memory, disp_unit, settings)?;
        let (me, size, parts) = (mapped.me, mapped.size, mapped.parts);
        let own = parts.rank(me).info.0.memory;
        let allocated = mapped.kind.in_segment();
        let base = if allocated { mapped.segment.at(own) } else { own as usize as *mut u8 };
        let attached =
            (mapped.kind == WindowKind::Dynamic).then(|| Box::new(Attached::new(parts, me)));
        let channels = (!allocated && size > 1).then(|| {
            let context = Context::new(parts, me, base, settings.foreign_reduce);
            let own = attached.as_deref().map(Attached::own);
            Box::new(Channels::new(context, mapped.cma, settings.oversubscribed, own))
        });
        Ok(ShmWindow {
            allocated,
            me,
            base,
            settings,
            agreement: agreement::Agreement::default(),
            shapes: Shapes::new(),
            channels,
            attached,
            counters: None,
            counter_setup: CounterSetup::default(),
            tags: TagQueue::new((size > 1).then_some(parts), me, size),
            mapped,
        })
    }

    /// Frees the window in this process, after all have agreed that nobody uses it any more. Unlike
    /// dropping it, caches a small segment for the next window of the same processes.
    pub fn release(self) {
        self.mapped.release();
    }

    /// Drives the operations in flight until they are applied or stop moving, and assists targets
    /// that do not poll. Takes about one round trip, and is bounded. For calls that close an epoch
    /// or start a flush: the application may compute for long afterwards, and the *done* should not
    /// wait for its next call [PR-3]. True if [`Port::next_finished`] has something now.
    pub fn flush_and_poll(&mut self) -> bool {
        self.channels.as_mut().is_some_and(|channels| channels.drive_all())
    }

    /// Stores the shape of an operation about to be issued, until the operation ends.
    #[inline]
    pub fn add_shape(&mut self, shape: Shape) -> Shaped {
        self.shapes.add(shape)
    }

    /// Takes back the shape of an operation that will never be posted.
    pub fn take_shape(&mut self, shaped: Shaped) -> Shape {
        self.shapes.take(shaped)
    }

    /// Number of shapes of operations that have not been posted.
    #[must_use]
    pub fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// Address of this process's window memory; 0 if it is empty.
    #[must_use]
    pub fn base(&self) -> Addr {
        if self.extent_of(self.me).0 == 0 { Addr(0) } else { Addr(self.base as usize) }
    }

    /// Bytes and displacement unit of a process's window memory.
    #[must_use]
    pub fn extent_of(&self, rank: Rank) -> (u64, u32) {
        let info = &self.mapped.parts.rank(rank).info.0;
        (info.size, info.disp_unit)
    }

    /// Locks `len` bytes at `at` of this process's memory, to apply operations of processes that do
    /// not share it [LK-7].
    pub(crate) fn lock_accumulate(&self, at: u64, len: u64) -> protocol::AccumulateGuard<'_> {
        self.mapped.parts.rank(self.me).accumulate_lock.lock(at, len)
    }

    /// The lock of `rank`'s memory for accumulates, which are applied by load and store.
    #[inline(always)]
    pub(crate) fn accumulate_lock(&self, rank: Rank) -> Option<&AccumulateWords> {
        self.load_store(rank).then(|| &self.mapped.parts.rank(rank).accumulate_lock)
    }

    /// Whether the `len` bytes at `at` of this process's memory may be accessed: they lie in its
    /// window or are attached to it.
    #[must_use]
    pub fn reaches_own(&self, at: u64, len: u64) -> bool {
        self.reaches(self.me, at, len).unwrap_or(false)
    }

    /// The same for the memory of `rank`.
    pub fn reaches(&self, rank: Rank, at: u64, len: u64) -> Result<bool, SystemError> {
        match &self.attached {
            Some(attached) => attached.covers(rank, at, len),
            None => {
                let (size, _) = self.extent_of(rank);
                Ok(at <= size && len <= size - at)
            }
        }
    }

    /// Whether each of `count` runs of `len` bytes is attached here, the first at `start` and
    /// `stride` bytes apart. False in windows that are not dynamic, where checking the bounds of
    /// all runs together with [`reaches`](Self::reaches) is enough.
    #[must_use]
    pub(crate) fn has_attached_runs(&self, start: u64, len: u64, stride: i64, count: u64) -> bool {
        self.attached
            .as_ref()
            .is_some_and(|attached| attached.covers_runs_here(start, len, stride, count))
    }

    /// Whether the window is dynamic, so that what may be accessed changes without notice.
    #[must_use]
    pub(crate) fn is_dynamic(&self) -> bool {
        self.attached.is_some()
    }

    /// Attaches memory of this process to a dynamic window.
    pub fn attach(&mut self, base: Addr, len: u64) -> Result<(), AttachError> {
        self.attached.as_mut().ok_or(AttachError::Unknown)?.attach(base.0 as u64, len)
    }

    /// Detaches memory of this process from a dynamic window.
    pub fn detach(&mut self, base: Addr) -> Result<(), AttachError> {
        self.attached.as_mut().ok_or(AttachError::Unknown)?.detach(base.0 as u64)
    }

    /// Address of the memory of `rank` in this process, if it is mapped and not empty.
    #[must_use]
    pub fn address_of(&self, rank: Rank) -> Option<Addr> {
        let there = self.load_store(rank) && self.extent_of(rank).0 > 0;
        there.then(|| Addr(self.mapped_memory(rank) as usize))
    }

    /// Address of the memory of `rank` here, its bytes and displacement unit, if it is mapped: in
    /// allocated windows, and own memory in created ones.
    #[must_use]
    pub fn place_of(&self, rank: Rank) -> Option<(Addr, u64, u32)> {
        let (size, unit) = self.extent_of(rank);
        let is_mapped = self.load_store(rank) && self.attached.is_none();
        is_mapped.then(|| (Addr(self.mapped_memory(rank) as usize), size, unit))
    }

    /// Whether the processes of the node map each other's memory.
    #[inline]
    #[must_use]
    pub fn is_allocated(&self) -> bool {
        self.allocated
    }

    /// Created windows: copies by cross-memory attach, if that is how [`Port::post`] would complete
    /// this put or get at once. False: it must be posted, which also reports any fault.
    ///
    /// # Safety
    /// The buffer in this process is valid for the operation.
    pub unsafe fn copy_by_kernel(&mut self, copy: &PlainCopy) -> bool {
        let PlainCopy { kind, rank, local, disp, len } = *copy;
        let (size, unit) = self.extent_of(rank);
        let Some(channels) = self.channels.as_mut().filter(|_| self.attached.is_none()) else {
            return false;
        };
        let at = disp.checked_mul(unit.into()).filter(|at| *at <= size && len <= size - at);
        // SAFETY: `local` is valid for the operation (contract of this function), and the bytes lie
        // in the target's window.
        rank != self.me
            && at.is_some_and(|at| unsafe { channels.copy_at_once(kind, rank, local, at, len) })
    }

    /// Whether an operation on the memory of `rank` that another transport carries out overtakes
    /// none here that it must follow [OR-1].
    pub(crate) fn is_free(&mut self, rank: Rank) -> bool {
        self.channels.as_mut().is_none_or(|channels| rank == self.me || channels.is_free(rank))
    }

    /// Whether this process reaches the memory of `rank` by load and store, as it does its own.
    #[inline]
    #[must_use]
    pub fn load_store(&self, rank: Rank) -> bool {
        self.allocated || rank == self.me
    }

    /// Alignment of this process's memory in bytes; 1 if the application provided it.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        if !self.allocated {
            return 1;
        }
        // In packed memory the alignment depends on the sizes of the ranks before.
        let offset = self.mapped.parts.rank(self.me).info.0.memory;
        self.mapped.layout.align().min(1 << offset.trailing_zeros().min(63))
    }

    /// The info value for how operations progress while the target makes no calls.
    #[must_use]
    pub fn progresses(&self) -> &'static CStr {
        match (self.allocated || self.mapped.size == 1, self.mapped.cma) {
            (true, _) => c"load_store",
            (false, true) => c"cross_memory_attach",
            (false, false) => c"target_calls",
        }
    }

    /// Whether remote progress depends on this process polling: created windows. With cross-memory
    /// attach, peers only take longer while it does not poll.
    #[must_use]
    pub fn needs_polling(&self) -> bool {
        !self.allocated && self.mapped.size > 1
    }

    /// Number of notification counters of a process.
    #[must_use]
    #[inline(always)]
    pub fn counters_of(&self, rank: Rank) -> u32 {
        self.counters.as_ref().map_or(0, |counters| counters.number(rank))
    }

    /// A counter of a process whose memory is mapped here, if it has one of this index.
    #[inline(always)]
    pub(crate) fn counter_of(&self, rank: Rank, index: u32) -> Option<Counter<'_>> {
        self.counters.as_ref().filter(|_| self.load_store(rank))?.get(rank, index)
    }

    /// All counters of a process whose memory is mapped here.
    pub(crate) fn counter_table(&self, rank: Rank) -> CounterTable {
        let counters = self.counters.as_ref().filter(|_| self.allocated);
        counters.map_or(CounterTable::default(), |counters| counters.table(rank))
    }

    /// Adds 1 to a counter of this process, after everything that this process has done before. For
    /// notifications from processes that do not share its memory [LK-7].
    #[inline]
    pub(crate) fn notify_here(&self, index: u32) {
        if let Some(counters) = &self.counters {
            counters.raise(self.me, index);
        }
    }

    /// Gives each process the `number` of notification counters that it asks for. Collective, in
    /// steps with an agreement after each, where a process whose step failed objects. Nobody may
    /// notify until [`counters_made`](Self::counters_made), which follows the last step or an
    /// objection.
    ///
    /// # Errors
    /// A system call failed in this process, or the numbers need too much memory.
    pub fn make_counters(&mut self, step: CounterStep, number: u32) -> Result<(), SystemError> {
        let (parts, me) = (self.mapped.parts, self.me);
        match step {
            CounterStep::Want => {
                parts.rank(me).counter_setup.0.wanted.store(number.into(), Release);
                Ok(())
            }
            CounterStep::Create => self.counter_setup.create(parts, me),
            CounterStep::Map => self.counter_setup.map(parts, me, self.mapped.size).map(|made| {
                let before = self.set_counters(Some(Box::new(made)));
                self.counter_setup.before = Some(before);
            }),
        }
    }

    /// Ends [`make_counters`](Self::make_counters). Keeps the new counters only if all agreed.
    pub fn counters_made(&mut self, agreed: bool) {
        let before = std::mem::take(&mut self.counter_setup).before;
        if let Some(before) = before.filter(|_| !agreed) {
            self.set_counters(before);
        }
    }

    /// Replaces the counters; returns the previous ones.
    fn set_counters(&mut self, counters: Option<Box<Counters>>) -> Option<Box<Counters>> {
        let before = std::mem::replace(&mut self.counters, counters);
        if let Some(channels) = &mut self.channels {
            // SAFETY: the boxed counters do not move, and live until they are replaced here or the
            // window is dropped with its channels.
            unsafe { channels.context.set_counters(self.counters.as_deref()) };
        }
        before
    }

    /// Claims a position for a tagged notification to a process whose memory is mapped here. The
    /// caller publishes it after the copies that the notification follows.
    #[inline(always)]
    pub(crate) fn claim_tag(&self, rank: Rank, tag: u32) -> Option<Claimed<'_>> {
        if self.allocated { self.tags.claim(rank, tag) } else { None }
    }

    /// The window's number in this process, by which peers ring. `None` if it has no doorbell.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let info = &self.mapped.parts.rank(self.me).info.0;
        (info.process.nonce != 0).then_some(info.window)
    }

    /// Whether the window is armed and no peer has contacted it since, so that nobody polls it.
    #[must_use]
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.mapped.parts.rank(self.me).arm().is_set()
    }

    /// Arms the window, unless something published waits for it or peers cannot ring. If true, it
    /// need not be polled until the doorbell rings.
    pub fn arm(&mut self) -> bool {
        if self.mapped.size == 1 {
            // Notifications to itself must still be delivered.
            return !self.has_work();
        }
        if self.number().is_none() {
            return false;
        }
        let arm = self.mapped.parts.rank(self.me).arm();
        arm.set();
        let has_work = self.has_work();
        if has_work {
            arm.clear();
        }
        !has_work
    }

    /// Starts a nonblocking agreement of all processes with this process's proposal.
    pub fn propose(&mut self, proposal: Proposal) {
        self.agreement.propose(self.mapped.parts.header(), proposal);
    }

    /// The highest proposal, once all processes have proposed; `None` before.
    pub fn decision(&mut self) -> Option<Proposal> {
        self.agreement.decision(self.mapped.parts.header(), self.mapped.size)
    }

    /// Transport name for `MPIX_RMA_LOG`: "shared memory", "shared memory + cross-memory attach" or
    /// "shared memory + active copying".
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match (self.allocated, self.mapped.cma) {
            (true, _) => "shared memory",
            (false, true) => "shared memory + cross-memory attach",
            (false, false) => "shared memory + active copying",
        }
    }

    /// Address of the memory of `target`, which is mapped here.
    #[inline(always)]
    fn mapped_memory(&self, target: Rank) -> *mut u8 {
        if target == self.me {
            return self.base;
        }
        self.mapped.segment.at(self.mapped.parts.rank(target).info.0.memory)
    }

    /// Completes an operation by load and store, or refuses it.
    #[inline(always)]
    fn direct(&mut self, op: &Op) -> Posted {
        if op.kind == OpKind::Get {
            order_load();
        }
        if op.shape.is_none() && op.notification.is_none() {
            self.apply(op);
            return Posted::Complete;
        }
        self.direct_with_extras(op)
    }

    /// As [`direct`](Self::direct), for an operation with a notification, a shape or both.
    #[inline(never)]
    fn direct_with_extras(&mut self, op: &Op) -> Posted {
        let notification = op.notification.map(Notification::kind);
        let claimed = match notification {
            // Claim first, because an operation that finds the ring full must have no effect.
            Some(NotificationKind::Tag(tag)) if op.target != self.me => {
                self.tags.prepare();
                match self.tags.claim(op.target, tag) {
                    None => return Posted::NoResource,
                    claimed => claimed,
                }
            }
            _ => None,
        };
        if op.len > 0 {
            self.apply(op);
        }
        match (claimed, notification) {
            (Some(claimed), _) => claimed.publish(std::ptr::null()),
            (None, Some(NotificationKind::Tag(tag))) => self.tags.notify_self(tag),
            (None, Some(NotificationKind::Counter(index))) => {
                if let Some(counters) = &self.counters {
                    counters.raise(op.target, index);
                }
            }
            (None, None) => {}
        }
        if let Some(shaped) = op.shape {
            self.shapes.take(shaped);
        }
        Posted::Complete
    }

    /// Applies an operation's data by load and store.
    #[inline(always)]
    fn apply(&self, op: &Op) {
        if let Some(shaped) = op.shape {
            return self.apply_shaped(op, shaped);
        }
        let target = self.mapped_memory(op.target).wrapping_add(op.disp as usize);
        let (origin, result) = (op.origin.0 as *const u8, op.result.0 as *mut u8);
        let len = op.len as usize;
        match op.kind {
            // SAFETY: the caller has checked rank, displacement and length against the target's
            // memory. The application keeps the buffers valid until the operation completes [EP-8].
            OpKind::Put => unsafe { copy(origin, target, len) },
            // SAFETY: the caller has checked the target bytes, and the application keeps the
            // buffers valid until the operation completes [EP-8].
            OpKind::Get => unsafe { copy(target, result, len) },
            _ => self.apply_atomic(op, target),
        }
    }

    /// Applies a shaped operation by load and store.
    #[inline(never)]
    fn apply_shaped(&self, op: &Op, shaped: Shaped) {
        let Shape { origin, result, target, disp } = self.shapes.get(shaped);
        let there = self.mapped_memory(op.target).wrapping_offset(*disp as isize);
        let (from, to) = (op.origin.0 as *const u8, op.result.0 as *mut u8);
        match (op.kind, origin, result) {
            // SAFETY: the caller has checked the bounds of the target's side against its memory.
            // The application keeps the buffers valid until the operation completes [EP-8].
            (OpKind::Put, Some(origin), _) => unsafe {
                datatype::transfer(from, origin, there, target)
            },
            // SAFETY: the caller has checked the target bytes, and the application keeps the
            // buffers valid until the operation completes [EP-8].
            (OpKind::Get, _, Some(result)) => unsafe {
                datatype::transfer(there, target, to, result)
            },
            _ => {
                let lock = &self.mapped.parts.rank(op.target).accumulate_lock;
                let input = origin.as_ref().map(|side| (from, side));
                let output = result.as_ref().map(|side| (to, side));
                // SAFETY: the sides are checked and valid as for a put; the callee accesses the
                // target's memory under its accumulate lock.
                unsafe {
                    accumulate::accumulate_shaped(
                        lock,
                        &self.combine(op),
                        input,
                        (there, target),
                        output,
                    )
                };
            }
        }
    }

    /// Applies an atomic operation by load and store, under the target's lock [AT-1].
    #[inline(always)]
    fn apply_atomic(&self, op: &Op, target: *mut u8) {
        let (origin, result) = (op.origin.0 as *const u8, op.result.0 as *mut u8);
        let lock = &self.mapped.parts.rank(op.target).accumulate_lock;
        let (there, len) = ((target, op.disp), op.len as usize);
        let combine = self.combine(op);
        // SAFETY: the caller has checked the target bytes, and the application keeps the buffers
        // valid until the operation completes [EP-8]. The target's accumulate lock is held here, or
        // taken by the callee.
        unsafe {
            match op.kind {
                OpKind::GetAccumulate => {
                    accumulate::accumulate(Some(lock), &combine, origin, there, Some(result), len)
                }
                OpKind::CompareAndSwap => {
                    let _held = lock.lock(op.disp, op.len);
                    compare_swap(target, op.compare.0 as *const u8, origin, result, len);
                }
                _ => accumulate::accumulate(Some(lock), &combine, origin, there, None, len),
            }
        }
    }

    #[inline(always)]
    fn combine(&self, op: &Op) -> Combine {
        Combine {
            element: op.element,
            reduction: op.reduction,
            extent: op.extent,
            foreign: self.settings.foreign_reduce,
        }
    }
}

impl LockMemory for ShmWindow {
    const ANSWERS_AT_ONCE: bool = true;

    #[inline(always)]
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, _: LockTicket) -> Answer {
        let word = self.mapped.parts.lock_word(home, word);
        Answer::Now(match access {
            Atomic::Load => word.load(Acquire),
            Atomic::Store(value) => {
                word.store(value, Release);
                0
            }
            Atomic::Swap(value) => word.swap(value, SeqCst),
            Atomic::Add(delta) => word.fetch_add(delta, SeqCst),
            Atomic::CompareSwap { expected, new } => {
                match word.compare_exchange(expected, new, SeqCst, SeqCst) {
                    Ok(old) | Err(old) => old,
                }
            }
        })
    }

    #[inline(always)]
    fn look(&mut self, word: LockWord) -> u64 {
        self.mapped.parts.lock_word(self.me, word).load(Acquire)
    }
}

impl Port for ShmWindow {
    #[inline]
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        if self.allocated || op.target == self.me {
            return self.direct(op);
        }
        let channels =
            self.channels.as_mut().expect("a created window with several processes has channels");
        channels.post(op, ticket, &mut self.shapes)
    }

    fn order(&mut self, target: Rank) -> Result<(), NoResource> {
        order_operations();
        match &mut self.channels {
            Some(channels) if target != self.me => channels.order(target),
            _ => Ok(()),
        }
    }

    /// [FE-2] Completed operations were written by this CPU, or released to it by whoever applied
    /// them. This release makes them visible to whoever acquires the signal.
    #[inline]
    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        self.mapped.parts.pair(peer, self.me).signals.0[word as usize].store(value, Release);
        Ok(())
    }

    #[inline]
    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        self.mapped.parts.pair(self.me, peer).signals.0[word as usize].load(Acquire)
    }

    #[inline]
    fn counter(&mut self, index: u32) -> u64 {
        self.counters.as_ref().map_or(0, |counters| counters.sum(self.me, index))
    }

    #[inline]
    fn next_arrival(&mut self) -> Option<Arrival> {
        self.tags.next()
    }

    #[inline]
    fn poll(&mut self) -> bool {
        self.channels.as_mut().is_some_and(|channels| channels.poll())
    }

    #[inline]
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.channels.as_mut()?.next_finished()
    }
}
