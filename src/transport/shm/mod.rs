//! Shared memory of one node.
//!
//! All processes of a window map one segment (`segment`, `layout`): signals, lock words and votes
//! (`words`, `vote`), and the memory of allocated windows. There, put and get are copies, and
//! atomic operations run under the target's accumulate lock (`acc`).
//!
//! The memory of created windows is the application's and cannot be mapped by others. Operations go
//! through a `channel` per ordered pair (`protocol`): the origin's end is the `outbox`, the
//! target's the `inbox`. A target that is away is helped by the `thief`, by cross-memory attach
//! (`cma`), so that it delays nobody; `traffic` decides which way each operation goes.

use std::ffi::CStr;

use crate::engine::*;
use crate::sync::Ordering::{Acquire, Release, SeqCst};
use crate::transport::Ballot;

use super::copy;
use super::datatype::{self, Combine, Shape, Shapes};
use attached::{Attached, Tables};
use card::Kind;
use counters::{Counters, Making};
use protocol::AccumulateLock;
use setup::Mapped;
use shared::Shared;
use tags::{Claimed, Rings, Tags};
use traffic::Traffic;

mod acc;
mod attached;
mod card;
mod channel;
mod cma;
mod counters;
#[doc(hidden)]
pub mod doorbell;
mod inbox;
mod layout;
mod list;
mod outbox;
mod pool;
mod process;
#[doc(hidden)]
pub mod protocol;
mod regions;
mod segment;
mod setup;
mod shared;
#[doc(hidden)]
pub mod tags;
mod thief;
mod traffic;
mod vote;
mod words;

pub use card::node;
pub use counters::{APART as COUNTERS_APART, Counter};
pub use process::{Unreachable, is_rung, take_rung};
pub use regions::AttachError;
pub use setup::{Alone, Bootstrap, Memory, Settings, SetupError};

/// Steps of [`ShmWindow::make_counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterStep {
    /// Says how many this process wants.
    Want,
    /// Makes the memory.
    Create,
    /// Maps it.
    Map,
}

/// One window in one process over shared memory.
///
/// Made by [`new`](Self::new), collectively; then driven through [`Port`] and [`LockMemory`]; torn
/// down after a [`vote`](Self::vote) whose [`verdict`](Self::verdict) raised no objection, by
/// [`release`](Self::release) or by dropping it.
#[derive(Debug)]
pub struct ShmWindow {
    /// The memory of every rank lies in the segment.
    allocated: bool,
    me: Rank,
    /// This process's window memory.
    base: *mut u8,
    mapped: Mapped,
    settings: Settings,
    voter: vote::Voter,
    /// Of operations that are recorded.
    shapes: Shapes,
    /// Created and dynamic windows: operations on the memory of others.
    traffic: Option<Box<Traffic>>,
    /// Dynamic windows: what each process has attached.
    attached: Option<Box<Attached>>,
    /// Notification counters, if there are any.
    counters: Option<Box<Counters>>,
    making: Making,
    tags: Tags,
}

// SAFETY: the raw addresses are of the shared mapping, which the window owns, and of the
// application's window memory, which MPI gives to the library until the window is freed. Neither
// belongs to a thread. The counted references are shared between parts of one window only.
unsafe impl Send for ShmWindow {}

impl ShmWindow {
    /// Collective. `disp_unit` in bytes. Fails in every process or in none.
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
        let own = &mapped.blocks.rank(mapped.me).info.0;
        let allocated = mapped.kind.in_segment();
        let base = match allocated {
            true => mapped.segment.at(own.memory),
            false => own.memory as usize as *mut u8,
        };
        let (me, voter) = (mapped.me, vote::Voter::default());
        let attached = (mapped.kind == Kind::Dynamic).then(|| {
            // SAFETY: the layout has the tables in a window of this kind; the segment is dropped
            // with the window.
            let tables = unsafe { Tables::new(mapped.segment.at(mapped.layout.regions)) };
            Box::new(Attached::new(mapped.blocks, tables, me))
        });
        // SAFETY: the layout has a ring for each rank where there are several; the segment is
        // dropped with the window.
        let rings =
            unsafe { Rings::new(mapped.blocks, mapped.segment.at(mapped.layout.rings).cast()) };
        let tags = Tags::new((mapped.size > 1).then_some(rings), me, mapped.size);
        let traffic = (!allocated && mapped.size > 1).then(|| {
            let contacts = mapped.segment.at(mapped.layout.contacts).cast();
            let channels = mapped.segment.at(mapped.layout.channels).cast();
            // SAFETY: the layout has these parts for this window; the segment is dropped with the
            // window, after the traffic.
            let shared = unsafe {
                Shared::new(
                    rings,
                    contacts,
                    channels,
                    me,
                    mapped.size,
                    base,
                    settings.foreign_reduce,
                )
            };
            let own = attached.as_deref().map(Attached::own);
            Box::new(Traffic::new(shared, mapped.cma, own))
        });
        let (counters, making) = (None, Making::default());
        Ok(ShmWindow {
            traffic,
            attached,
            allocated,
            me,
            base,
            settings,
            voter,
            shapes: Shapes::new(),
            counters,
            making,
            tags,
            mapped,
        })
    }

    /// Ends the window here, once all processes have agreed by a vote that nobody uses it any more.
    /// As dropping it, but a small segment is kept, and makes the next window of the same processes
    /// cheap.
    pub fn release(self) {
        self.mapped.keep();
    }

    /// For calls that close an epoch or start a flush, after which the application may compute for
    /// long: stays with the operations in flight as long as they move, about one round trip, and
    /// does the work of targets that are away. [PR-3] So the *done* need not wait for the next
    /// call. Bounded; true if [`Port::next_finished`] has something now.
    pub fn settle(&mut self) -> bool {
        self.traffic.as_mut().is_some_and(|traffic| traffic.settle())
    }

    /// Keeps the shape of an operation that is about to be issued, until the operation ends.
    #[inline]
    pub fn add_shape(&mut self, shape: Shape) -> Shaped {
        self.shapes.add(shape)
    }

    /// Ends the shape of an operation that will never be posted.
    pub fn drop_shape(&mut self, shaped: Shaped) {
        self.shapes.take(shaped);
    }

    /// How many shapes are kept for operations that have not been posted.
    #[must_use]
    pub fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// First byte of this process's window memory (0 when it is empty).
    #[must_use]
    pub fn base(&self) -> Addr {
        if self.extent_of(self.me).0 == 0 { Addr(0) } else { Addr(self.base as usize) }
    }

    /// Bytes and displacement unit of a process's window memory.
    #[must_use]
    pub fn extent_of(&self, rank: Rank) -> (u64, u32) {
        let info = &self.mapped.blocks.rank(rank).info.0;
        (info.size, info.disp_unit)
    }

    /// Takes the accumulate lock of this process's memory, for work on it in the name of a process
    /// that does not share it [LK-7].
    pub(crate) fn hold_accumulate(&self) -> protocol::Hold<'_> {
        AccumulateLock(&self.mapped.blocks.rank(self.me).accumulate.0).hold()
    }

    /// Whether each of the `len` bytes at `at` of this process's memory may be accessed: inside its
    /// window, or attached to it.
    #[must_use]
    pub fn reaches_own(&self, at: u64, len: u64) -> bool {
        self.reaches(self.me, at, len).unwrap_or(false)
    }

    /// The same for the memory of `rank`.
    ///
    /// # Errors
    /// What `rank` has attached cannot be seen from here.
    pub fn reaches(&self, rank: Rank, at: u64, len: u64) -> Result<bool, Unreachable> {
        match &self.attached {
            Some(attached) => attached.covers(rank, at, len),
            None => {
                let (size, _) = self.extent_of(rank);
                Ok(at <= size && len <= size - at)
            }
        }
    }

    /// True if each of `count` runs of `len` bytes is attached to the memory of this process, the
    /// first at `start`, `stride` apart. False in windows that are not dynamic: there the ends of
    /// all runs together tell ([`reaches`](Self::reaches)).
    #[must_use]
    pub(crate) fn has_attached_runs(&self, start: u64, len: u64, stride: i64, count: u64) -> bool {
        self.attached
            .as_ref()
            .is_some_and(|attached| attached.covers_runs_here(start, len, stride, count))
    }

    /// True if memory is attached to the window: what may be accessed changes, and no peer need
    /// know.
    #[must_use]
    pub(crate) fn is_dynamic(&self) -> bool {
        self.attached.is_some()
    }

    /// Adds memory of this process to a dynamic window.
    ///
    /// # Errors
    /// It cannot be attached.
    pub fn attach(&mut self, base: Addr, len: u64) -> Result<(), AttachError> {
        self.attached
            .as_mut()
            .map_or(Err(AttachError::Unknown), |attached| attached.attach(base.0 as u64, len))
    }

    /// Takes memory of this process out of a dynamic window.
    ///
    /// # Errors
    /// Nothing was attached there.
    pub fn detach(&mut self, base: Addr) -> Result<(), AttachError> {
        self.attached
            .as_mut()
            .map_or(Err(AttachError::Unknown), |attached| attached.detach(base.0 as u64))
    }

    /// Where this process finds the memory of `rank`, if it reaches it by load and store and there
    /// is any.
    #[must_use]
    pub fn address_of(&self, rank: Rank) -> Option<Addr> {
        let there = self.load_store(rank) && self.extent_of(rank).0 > 0;
        there.then(|| Addr(self.mapped_memory(rank) as usize))
    }

    /// Allocated windows: first byte of the memory of `rank` in this process, its bytes, and its
    /// displacement unit.
    #[must_use]
    pub fn place_of(&self, rank: Rank) -> Option<(Addr, u64, u32)> {
        let (size, unit) = self.extent_of(rank);
        self.allocated.then(|| (Addr(self.mapped_memory(rank) as usize), size, unit))
    }

    /// True if this process reaches the memory of `rank` by load and store (allocated windows;
    /// itself always).
    #[must_use]
    pub fn load_store(&self, rank: Rank) -> bool {
        self.allocated || rank == self.me
    }

    /// Alignment of the memory that was allocated for this process, in bytes; 1 where none was.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        if !self.allocated {
            return 1;
        }
        // In packed memory it depends on what stands before.
        let offset = self.mapped.blocks.rank(self.me).info.0.memory;
        self.mapped.layout.align().min(1 << offset.trailing_zeros().min(63))
    }

    /// What progresses without calls of the target.
    #[must_use]
    pub fn progresses(&self) -> &'static CStr {
        match (self.allocated || self.mapped.size == 1, self.mapped.cma) {
            (true, _) => c"load_store",
            (false, true) => c"cross_memory_attach",
            (false, false) => c"target_calls",
        }
    }

    /// True if peers wait for this process to `poll`: created windows. Without cross-memory attach
    /// their operations stand still until it does; with it they only take longer.
    #[must_use]
    pub fn needs_polling(&self) -> bool {
        !self.allocated && self.mapped.size > 1
    }

    /// Notification counters of a process.
    #[must_use]
    #[inline(always)]
    pub fn counters_of(&self, rank: Rank) -> u32 {
        self.counters.as_ref().map_or(0, |counters| counters.number(rank))
    }

    /// A counter of a process whose memory this one reaches by load and store, if there is such a
    /// counter.
    #[inline(always)]
    pub(crate) fn counter_of(&self, rank: Rank, index: u32) -> Option<Counter<'_>> {
        self.counters
            .as_ref()
            .filter(|_| self.allocated)
            .and_then(|counters| counters.get(rank, index))
    }

    /// Raises a counter of this process in the name of one that does not share its memory, after
    /// all that this process has done for it [LK-7].
    #[inline]
    pub(crate) fn notify_here(&self, index: u32) {
        if let Some(counters) = &self.counters {
            counters.raise(self.me, index);
        }
    }

    /// Collective, in steps with a [`vote`](Self::vote) after each, in which whoever has failed
    /// objects: gives each process `number` counters of its own. After the last step, and after an
    /// objection, [`counters_made`](Self::counters_made). Nobody notifies meanwhile.
    ///
    /// # Errors
    /// The memory cannot be had, in words.
    pub fn make_counters(&mut self, step: CounterStep, number: u32) -> Result<(), String> {
        let (blocks, me) = (self.mapped.blocks, self.me);
        let done = match step {
            CounterStep::Want => {
                self.making.want(blocks, me, number);
                Ok(())
            }
            CounterStep::Create => self.making.create(blocks, me),
            CounterStep::Map => self.making.map(blocks, self.mapped.size).map(|made| {
                let before = self.set_counters(Some(Box::new(made)));
                self.making.before = Some(before);
            }),
        };
        done.map_err(counters::reason)
    }

    /// Ends the making of counters: with the new ones, or with those that there were.
    pub fn counters_made(&mut self, agreed: bool) {
        let before = std::mem::take(&mut self.making).before;
        if let Some(before) = before.filter(|_| !agreed) {
            self.set_counters(before);
        }
    }

    /// Brings counters into force; gives those that were.
    fn set_counters(&mut self, counters: Option<Box<Counters>>) -> Option<Box<Counters>> {
        let before = std::mem::replace(&mut self.counters, counters);
        if let Some(traffic) = &mut self.traffic {
            // SAFETY: they stay where they are until they are replaced, here, or the window is
            // dropped with its traffic.
            unsafe { traffic.set_counters(self.counters.as_deref()) };
        }
        before
    }

    #[inline(always)]
    fn raise(&self, op: &Op) -> Posted {
        if let Some(counters) = &self.counters {
            counters.raise(op.target, op.disp as u32);
        }
        Posted::Complete
    }

    #[inline]
    fn tell(&mut self, op: &Op) -> Posted {
        if self.tags.tell(op.target, op.disp as u32) {
            Posted::Complete
        } else {
            Posted::NoResource
        }
    }

    /// A place for a tagged notification to a process whose memory this one has mapped, to be
    /// published behind operations that are copies.
    #[inline(always)]
    pub(crate) fn claim_tag(&self, rank: Rank, tag: u32) -> Option<Claimed<'_>> {
        if self.allocated { self.tags.claim(rank, tag) } else { None }
    }

    /// The window's number in this process, by which peers ring its doorbell. `None`: they cannot.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let info = &self.mapped.blocks.rank(self.me).info.0;
        (info.name != 0).then_some(info.window)
    }

    /// Whether the window is armed, and no peer has contacted it since: it need not be polled until
    /// the doorbell rings.
    #[must_use]
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.mapped.blocks.rank(self.me).arm().is_set()
    }

    /// Arms the window, unless peers have published something that was not taken out, or cannot
    /// ring. True if it is armed: then it need not be polled until the doorbell rings.
    pub fn arm(&mut self) -> bool {
        if self.mapped.size == 1 {
            // What it has told itself must still be taken out.
            return !self.tags.has_work();
        }
        if self.number().is_none() {
            return false;
        }
        let arm = self.mapped.blocks.rank(self.me).arm();
        arm.set();
        let has_work =
            self.tags.has_work() || self.traffic.as_ref().is_some_and(|traffic| traffic.has_work());
        if has_work {
            arm.clear();
        }
        !has_work
    }

    /// Nonblocking collective vote, used to tear down: deposits this process's vote ...
    pub fn vote(&mut self, ballot: Ballot) {
        self.voter.vote(self.mapped.blocks.header(), ballot);
    }

    /// ... and gives the verdict, the highest ballot, once every process has voted, `None` before.
    /// Reusable.
    pub fn verdict(&mut self) -> Option<Ballot> {
        self.voter.verdict(self.mapped.blocks.header(), self.mapped.size)
    }

    /// Words for `MPIX_RMA_LOG`: "shared memory", "shared memory + cross-memory attach", "shared
    /// memory + active copying".
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match (self.allocated, self.mapped.cma) {
            (true, _) => "shared memory",
            (false, true) => "shared memory + cross-memory attach",
            (false, false) => "shared memory + active copying",
        }
    }

    /// The memory of `target`, which this process can reach by load and store.
    #[inline(always)]
    fn mapped_memory(&self, target: Rank) -> *mut u8 {
        if target == self.me {
            return self.base;
        }
        self.mapped.segment.at(self.mapped.blocks.rank(target).info.0.memory)
    }

    /// Does an operation by load and store.
    #[inline(always)]
    fn direct(&mut self, op: &Op) -> Posted {
        if let Some(shaped) = op.shape {
            return self.direct_shaped(op, shaped);
        }
        let target = self.mapped_memory(op.target).wrapping_add(op.disp as usize);
        let (origin, result) = (op.origin.0 as *const u8, op.result.0 as *mut u8);
        let len = op.len as usize;
        match op.kind {
            // SAFETY: the caller has checked rank, displacement and length against the target's
            // memory; the buffers are the application's and stay valid until the operation is
            // complete [EP-8].
            OpKind::Put => unsafe { copy(origin, target, len) },
            // SAFETY: as above.
            OpKind::Get => unsafe { copy(target, result, len) },
            OpKind::Notify => return self.raise(op),
            OpKind::NotifyTagged => return self.tell(op),
            _ => self.direct_atomic(op, target),
        }
        Posted::Complete
    }

    /// Does an operation by load and store, piece by piece.
    #[inline(never)]
    fn direct_shaped(&mut self, op: &Op, shaped: Shaped) -> Posted {
        let Shape { origin, result, target, disp } = &self.shapes.take(shaped);
        let there = self.mapped_memory(op.target).wrapping_offset(*disp as isize);
        let (from, to) = (op.origin.0 as *const u8, op.result.0 as *mut u8);
        match (op.kind, origin, result) {
            // SAFETY: the caller has checked the bounds of the target's side against its memory;
            // the buffers are the application's and stay valid until the operation is complete
            // [EP-8].
            (OpKind::Put, Some(origin), _) => unsafe {
                datatype::transfer(from, origin, there, target)
            },
            // SAFETY: as above.
            (OpKind::Get, _, Some(result)) => unsafe {
                datatype::transfer(there, target, to, result)
            },
            _ => {
                let lock = AccumulateLock(&self.mapped.blocks.rank(op.target).accumulate.0);
                let input = origin.as_ref().map(|side| (from, side));
                let output = result.as_ref().map(|side| (to, side));
                // SAFETY: as above; all access to the memory by atomic operations is under the
                // lock.
                unsafe {
                    acc::accumulate_shaped(lock, &self.combine(op), input, (there, target), output)
                };
            }
        }
        Posted::Complete
    }

    /// Does an atomic operation by load and store, under the target's lock [AT-1].
    #[inline]
    fn direct_atomic(&mut self, op: &Op, target: *mut u8) {
        let (origin, result) = (op.origin.0 as *const u8, op.result.0 as *mut u8);
        let lock = AccumulateLock(&self.mapped.blocks.rank(op.target).accumulate.0);
        let len = op.len as usize;
        let combine = self.combine(op);
        // SAFETY: as in `direct`; all access to the memory by atomic operations is under the lock.
        unsafe {
            match op.kind {
                OpKind::GetAccumulate => {
                    acc::accumulate(lock, &combine, origin, target, Some(result), len)
                }
                OpKind::CompareAndSwap => {
                    acc::compare_and_swap(
                        lock,
                        target,
                        op.compare.0 as *const u8,
                        origin,
                        result,
                        len,
                    );
                }
                _ => acc::accumulate(lock, &combine, origin, target, None, len),
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
        let word = self.mapped.blocks.lock_word(home, word);
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
        self.mapped.blocks.lock_word(self.me, word).load(Acquire)
    }
}

impl Port for ShmWindow {
    #[inline]
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        if self.allocated || op.target == self.me {
            return self.direct(op);
        }
        let traffic =
            self.traffic.as_mut().expect("a created window with several processes has traffic");
        traffic.post(op, ticket, &mut self.shapes)
    }

    /// [FE-2] What is complete was written by this CPU, or released to it by who applied it; so
    /// this release makes it visible to whoever acquires the signal.
    #[inline]
    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        self.mapped.blocks.pair(peer, self.me).signals.0[word as usize].store(value, Release);
        Ok(())
    }

    #[inline]
    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        self.mapped.blocks.pair(self.me, peer).signals.0[word as usize].load(Acquire)
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
        match &mut self.traffic {
            Some(traffic) => traffic.poll(),
            None => false,
        }
    }

    #[inline]
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        match &mut self.traffic {
            Some(traffic) => traffic.next_finished(),
            None => None,
        }
    }
}
