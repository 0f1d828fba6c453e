//! The origin as the consumer of its own channel, by cross-memory attach. So a target that computes
//! without calling MPI delays nobody.

use std::io;

use crate::engine::{OpKind, Rank};
use crate::sync::Ordering::Relaxed;

use super::accumulate::LOCK_HOLD_BYTES;
use super::accumulate_reference::next_piece;
use super::channel::{Channel, Consuming, PublishedSlot};
use super::cma::{self, Batch, Direction};
use super::context::Context;
use super::inbox::combine_slot;
use super::run_list::{RunList, combine_packed};

/// Target bytes that a batch of atomic operations may read without need, to save system calls.
const SLACK: u64 = 4096;

/// The target in whose place this process applies operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct CmaPeer<'a> {
    pub(super) rank: Rank,
    pub(super) context: &'a Context,
}

impl CmaPeer<'_> {
    fn pid(self) -> i32 {
        self.context.parts.rank(self.rank).info.0.process.pid
    }

    /// Address of its window memory in its own process.
    fn base(self) -> u64 {
        self.context.parts.rank(self.rank).info.0.memory
    }
}

/// Buffers for the system calls, kept for reuse.
#[derive(Debug, Default)]
pub(super) struct CmaConsumer {
    batch: Batch,
    scratch: Vec<u8>,
}

/// The first position that was not applied, and the error that kept it from being applied.
type Advanced = (u64, io::Result<()>);

impl CmaConsumer {
    /// Applies the operations of `channel` at positions below `end`. The caller must be the origin
    /// and have published them. False if the target holds the consumer lock. Operations that were
    /// not applied, after an error or because a ring of tagged notifications is full, stay in the
    /// channel.
    pub(super) fn consume(
        &mut self,
        channel: &Channel,
        end: u64,
        peer: CmaPeer<'_>,
    ) -> io::Result<bool> {
        let Some(mut consuming) = channel.try_consume() else { return Ok(false) };
        let mut position = consuming.consumer.position();
        while position < end {
            let slot = own_slot(&consuming, position);
            let tag = slot.tag;
            let result;
            (position, result) = match tag.kind {
                _ if let Some(notification) = slot.notification() => {
                    if !peer.context.notify(peer.rank, peer.context.me, notification) {
                        return Ok(true);
                    }
                    (position + 1, Ok(()))
                }
                _ if tag.is_reference && tag.is_atomic() => self.by_reference(slot, position, peer),
                // This process has copied what the target had not.
                _ if tag.is_reference => (position + 1, Ok(())),
                OpKind::Put | OpKind::Get => self.copies(&consuming, position, end, peer),
                _ if tag.has_run_list => self.scattered(&consuming, position, peer),
                _ => self.atomics(&consuming, position, end, peer),
            };
            consuming.consumer.advance(position);
            result?;
        }
        Ok(true)
    }

    /// Applies consecutive puts or gets from `first` on.
    fn copies(
        &mut self,
        consuming: &Consuming<'_>,
        first: u64,
        end: u64,
        peer: CmaPeer<'_>,
    ) -> Advanced {
        let kind = own_slot(consuming, first).tag.kind;
        let direction = Direction::of(kind);
        self.batch.clear();
        for position in first..end {
            let PublishedSlot { tag, disp, len, data } = own_slot(consuming, position);
            if tag.kind != kind || len == 0 || tag.is_reference {
                break;
            }
            match direction {
                _ if tag.has_run_list => {
                    // SAFETY: this process wrote and published the list, and holds the consumer
                    // lock.
                    let list = unsafe { RunList::read(data) };
                    self.push_list(list, peer);
                }
                Direction::Write => self.batch.push_over(data, peer.base() + disp, len),
                Direction::Read => self.batch.push(data, peer.base() + disp, len),
            }
        }
        // SAFETY: the local pieces are payloads of slots, which belong to the consumer lock's
        // holder.
        let (count, result) = unsafe { self.batch.run(direction, peer.pid()) };
        (first + count as u64, result)
    }

    /// Adds a list to the batch as one operation.
    fn push_list(&mut self, list: RunList<'_>, peer: CmaPeer<'_>) {
        let mut runs = list.runs().peekable();
        while let Some((disp, len, data)) = runs.next() {
            self.batch.push_part(data, peer.base() + disp, len, runs.peek().is_none());
        }
    }

    /// Applies one atomic operation with a run list, as [`atomics`](Self::atomics) does.
    fn scattered(
        &mut self,
        consuming: &Consuming<'_>,
        position: u64,
        peer: CmaPeer<'_>,
    ) -> Advanced {
        let PublishedSlot { tag, len, data, .. } = own_slot(consuming, position);
        // SAFETY: this process wrote and published the list, and holds the consumer lock.
        let list = unsafe { RunList::read(data) };
        self.scratch.resize(len, 0);
        let packed = RunList { data: self.scratch.as_mut_ptr(), ..list };
        let _held = peer.context.parts.rank(peer.rank).accumulate_lock.lock_all();
        for direction in [Direction::Read, Direction::Write] {
            self.batch.clear();
            self.push_list(packed, peer);
            // SAFETY: the local pieces lie in the scratch buffer, which has room for all data.
            let (_, result) = unsafe { self.batch.run(direction, peer.pid()) };
            if result.is_err() {
                return (position, result);
            }
            if direction == Direction::Read {
                // SAFETY: the scratch buffer now holds the target's elements, packed; it and the
                // list belong to this process, which holds the consumer lock.
                unsafe {
                    combine_packed(list, tag, &tag.combine(peer.context.foreign), packed.data)
                };
            }
        }
        (position + 1, Ok(()))
    }

    /// Applies what is left of one accumulate by reference.
    fn by_reference(&mut self, slot: PublishedSlot, position: u64, peer: CmaPeer<'_>) -> Advanced {
        let combine = slot.tag.combine(peer.context.foreign);
        // SAFETY: the slot is by reference and published, and this process holds the consumer lock.
        while let Some((reference, at, len)) = unsafe { next_piece(&slot) } {
            self.scratch.resize(self.scratch.len().max(len), 0);
            let scratch = self.scratch.as_mut_ptr();
            let input = (reference.address as usize as *const u8).wrapping_add(at);
            let disp = slot.disp + at as u64;
            let there = peer.base() + disp;
            let _held = peer.context.parts.rank(peer.rank).accumulate_lock.lock(disp, len as u64);
            // SAFETY: the scratch buffer has room for the piece. The application keeps its buffers
            // valid for the operation's length until it completes [EP-8], and the accumulate lock
            // is held [AT-1].
            let moved = unsafe {
                cma::transfer(Direction::Read, peer.pid(), scratch, there, len).and_then(|()| {
                    combine.apply(input, scratch, len);
                    cma::transfer(Direction::Write, peer.pid(), scratch, there, len)
                })
            };
            if moved.is_err() {
                return (position, moved);
            }
            reference.claimed.store((at + len) as u64, Relaxed);
        }
        (position + 1, Ok(()))
    }

    /// Applies atomic operations from `first` on that lie close together: reads the target's
    /// elements, combines them and writes them back, under the target's accumulate lock [AT-1].
    fn atomics(
        &mut self,
        consuming: &Consuming<'_>,
        first: u64,
        end: u64,
        peer: CmaPeer<'_>,
    ) -> Advanced {
        let (from, to, last) = hull(consuming, first, end);
        self.scratch.resize((to - from) as usize, 0);
        let scratch = self.scratch.as_mut_ptr();
        self.batch.clear();
        let _held = peer.context.parts.rank(peer.rank).accumulate_lock.lock(from, to - from);
        let (there, len) = (peer.base() + from, self.scratch.len());
        // SAFETY: the scratch buffer has room for the hull.
        let read = unsafe { cma::transfer(Direction::Read, peer.pid(), scratch, there, len) };
        if read.is_err() {
            return (first, read);
        }
        for position in first..last {
            let PublishedSlot { tag, disp, len, data } = own_slot(consuming, position);
            let place = scratch.wrapping_add((disp - from) as usize);
            // SAFETY: the hull contains the slot's target bytes, so they are in the scratch buffer;
            // the payload belongs to the holder of the consumer lock.
            unsafe { combine_slot(tag, data, place, len, peer.context.foreign) };
            // Write back exactly the operation's bytes, since other processes may write the bytes
            // beside them. An element that occurs twice is written twice with its final value.
            self.batch.push_over(place, peer.base() + disp, len);
        }
        // The same bytes were just read, so this fails only if the window's memory has been
        // unmapped meanwhile. Only then could an operation be applied a second time later.
        // SAFETY: all local pieces lie in the scratch buffer.
        let (count, result) = unsafe { self.batch.run(Direction::Write, peer.pid()) };
        (first + count as u64, result)
    }
}

/// The byte range of atomic operations from `first` on, and the position after the last of them.
fn hull(consuming: &Consuming<'_>, first: u64, end: u64) -> (u64, u64, u64) {
    let PublishedSlot { disp, len, .. } = own_slot(consuming, first);
    let (mut from, mut to, mut bytes) = (disp, disp + len as u64, len as u64);
    let mut position = first + 1;
    while position < end {
        let PublishedSlot { tag, disp, len, .. } = own_slot(consuming, position);
        if tag.has_run_list || tag.is_reference || !tag.is_atomic() {
            break;
        }
        let (wider_from, wider_to) = (from.min(disp), to.max(disp + len as u64));
        let wider = wider_to - wider_from;
        if wider > LOCK_HOLD_BYTES as u64 || wider > SLACK.max(2 * (bytes + len as u64)) {
            break;
        }
        (from, to, bytes) = (wider_from, wider_to, bytes + len as u64);
        position += 1;
    }
    (from, to, position)
}

/// A slot that this process has published.
fn own_slot(consuming: &Consuming<'_>, position: u64) -> PublishedSlot {
    consuming.slot(position).expect("the origin consumes only what it has published")
}
