//! The origin as the consumer of its own channel, by cross-memory attach. A target that computes
//! without calling MPI therefore delays nobody.

use std::io;

use crate::engine::{OpKind, Rank};

use super::accumulate::LOCK_HOLD_BYTES;
use super::channel::{Channel, Consuming, PublishedSlot};
use super::cma::{self, Batch, Direction};
use super::context::Context;
use super::inbox::combine_slot;
use super::run_list::{RunList, combine_packed};

/// Target bytes that a batch of atomic operations may read without need, to save system calls.
const SLACK: u64 = 4096;

/// The target whose part this process takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CmaPeer<'a> {
    pub(super) rank: Rank,
    pub(super) context: &'a Context,
}

impl CmaPeer<'_> {
    fn pid(self) -> i32 {
        self.context.blocks.rank(self.rank).info.0.pid
    }

    /// Address of its window memory in its own process.
    fn base(self) -> u64 {
        self.context.blocks.rank(self.rank).info.0.memory
    }
}

/// Buffers for the system calls, kept for reuse.
#[derive(Debug, Default)]
pub(super) struct CmaConsumer {
    batch: Batch,
    scratch: Vec<u8>,
}

/// How far [`CmaConsumer::consume`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consumed {
    /// Applied everything up to the end.
    All,
    /// The target holds the consumer lock.
    TargetBusy,
    /// The target's ring of tagged notifications is full.
    TagRingFull,
}

/// The position after the applied operations. On error, the first that was not applied, and why.
type Advanced = Result<u64, (u64, io::Error)>;

impl CmaConsumer {
    /// Applies the operations of `channel` below `end`, which the caller, the origin, has
    /// published. After an error the operations that were not applied are still in the channel.
    pub(super) fn consume(
        &mut self,
        channel: &Channel,
        end: u64,
        peer: CmaPeer<'_>,
    ) -> io::Result<Consumed> {
        let Some(mut consuming) = channel.try_consume() else { return Ok(Consumed::TargetBusy) };
        let mut position = consuming.position();
        while position < end {
            let slot = own_slot(&consuming, position);
            let tag = slot.tag;
            let run = match tag.kind {
                _ if let Some(notification) = slot.notification() => {
                    if !peer.context.notify(peer.rank, peer.context.me, notification) {
                        return Ok(Consumed::TagRingFull);
                    }
                    Ok(position + 1)
                }
                OpKind::Put => self.copies(&consuming, position, end, peer, Direction::Write),
                OpKind::Get => self.copies(&consuming, position, end, peer, Direction::Read),
                _ if tag.has_run_list => self.scattered(&consuming, position, peer),
                _ => self.atomics(&consuming, position, end, peer),
            };
            let (next, error) = match run {
                Ok(next) => (next, None),
                Err((next, error)) => (next, Some(error)),
            };
            position = next;
            consuming.advance(position);
            if let Some(error) = error {
                return Err(error);
            }
        }
        Ok(Consumed::All)
    }

    /// Applies consecutive puts or gets from `first` on.
    fn copies(
        &mut self,
        consuming: &Consuming<'_>,
        first: u64,
        end: u64,
        peer: CmaPeer<'_>,
        direction: Direction,
    ) -> Advanced {
        let kind = if direction == Direction::Write { OpKind::Put } else { OpKind::Get };
        self.batch.clear();
        let mut position = first;
        while position < end {
            let PublishedSlot { tag, disp, len, data } = own_slot(consuming, position);
            if tag.kind != kind || len == 0 {
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
            position += 1;
        }
        // SAFETY: the local pieces are payloads of slots, which belong to the consumer lock's
        // holder.
        match unsafe { self.batch.run(direction, peer.pid()) } {
            Ok(()) => Ok(position),
            Err((whole, error)) => Err((first + whole as u64, error)),
        }
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
        let _held = peer.context.blocks.rank(peer.rank).accumulate_lock().lock();
        for direction in [Direction::Read, Direction::Write] {
            self.batch.clear();
            self.push_list(packed, peer);
            // SAFETY: the local pieces lie in the scratch buffer, which has room for all data.
            unsafe { self.batch.run(direction, peer.pid()) }
                .map_err(|(_, error)| (position, error))?;
            if direction == Direction::Read {
                // SAFETY: the scratch buffer now holds the target's elements, packed; it and the
                // list belong to this process, which holds the consumer lock.
                unsafe {
                    combine_packed(list, tag, &tag.combine(peer.context.foreign), packed.data)
                };
            }
        }
        Ok(position + 1)
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
        let _held = peer.context.blocks.rank(peer.rank).accumulate_lock().lock();
        // SAFETY: the scratch buffer has room for the hull.
        unsafe {
            cma::transfer(
                Direction::Read,
                peer.pid(),
                scratch,
                peer.base() + from,
                self.scratch.len(),
            )
        }
        .map_err(|error| (first, error))?;
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
        // The same bytes were just read, so an error here means that the window's memory has been
        // unmapped meanwhile. Only then could an operation be applied again later.
        // SAFETY: all local pieces lie in the scratch buffer.
        match unsafe { self.batch.run(Direction::Write, peer.pid()) } {
            Ok(()) => Ok(last),
            Err((whole, error)) => Err((first + whole as u64, error)),
        }
    }
}

/// The byte range of atomic operations from `first` on, and the position after the last of them.
fn hull(consuming: &Consuming<'_>, first: u64, end: u64) -> (u64, u64, u64) {
    let PublishedSlot { disp, len, .. } = own_slot(consuming, first);
    let (mut from, mut to, mut bytes) = (disp, disp + len as u64, len as u64);
    let mut position = first + 1;
    while position < end {
        let PublishedSlot { tag, disp, len, .. } = own_slot(consuming, position);
        if tag.has_run_list || matches!(tag.kind, OpKind::Put | OpKind::Get) {
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
