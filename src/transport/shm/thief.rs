//! The origin as the consumer of its own channel, by cross-memory attach: a target that computes
//! without calling MPI delays nobody.

use std::io;

use crate::engine::{OpKind, Rank};
use crate::sync::AtomicU32;
use crate::transport::datatype::element::ForeignReduce;

use super::acc::HOLD;
use super::channel::{Channel, Tag};
use super::cma::{self, Batch, Way};
use super::inbox::combine_slot;
use super::list::{List, combine_packed};
use super::protocol::{AccumulateLock, published};
use super::shared::Shared;

/// Memory read for a batch of atomic operations although no operation needs it, to save system
/// calls.
const SLACK: u64 = 4096;

/// The process whose work is done for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim<'a> {
    pub(super) pid: i32,
    /// Its window memory, in its own addresses.
    pub(super) base: u64,
    /// Its accumulate lock.
    pub(super) lock: &'a AtomicU32,
    /// Its rank, and what it shares with this process.
    pub(super) rank: Rank,
    pub(super) shared: &'a Shared,
}

/// Memory for the batches, kept.
#[derive(Debug, Default)]
pub(super) struct Thief {
    batch: Batch,
    scratch: Vec<u8>,
}

/// A published slot.
#[derive(Clone, Copy)]
struct Loot {
    tag: Tag,
    disp: u64,
    len: usize,
    data: *mut u8,
}

/// What came of taking entries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// All up to the end.
    Done,
    /// The target is about it.
    Held,
    /// The target has not taken out its tagged notifications, and there is no room for the next.
    Full,
}

impl Thief {
    /// Applies the operations of `channel` below `end`, which the caller, the origin, has
    /// published. After an error the operations that were not applied are still in the channel.
    pub(super) fn drain(
        &mut self,
        channel: &Channel,
        end: u64,
        victim: Victim<'_>,
        foreign: ForeignReduce,
    ) -> io::Result<Drained> {
        let Some(mut drain) = channel.ends().try_drain() else { return Ok(Drained::Held) };
        let first = drain.position();
        let mut position = first;
        while position < end {
            let tag = loot(channel, position).tag;
            let run = match tag.kind {
                OpKind::Put => self.copies(channel, position, end, victim, Way::Write),
                OpKind::Get => self.copies(channel, position, end, victim, Way::Read),
                OpKind::Notify => {
                    victim.shared.raise(victim.rank, loot(channel, position).disp);
                    Ok(position + 1)
                }
                OpKind::NotifyTagged => {
                    if !victim.shared.tell(
                        victim.rank,
                        victim.shared.me,
                        loot(channel, position).disp,
                    ) {
                        return Ok(Drained::Full);
                    }
                    Ok(position + 1)
                }
                _ if tag.listed => self.scattered(channel, position, victim, foreign),
                _ => self.atomics(channel, position, end, victim, foreign),
            };
            let (next, error) = match run {
                Ok(next) => (next, None),
                Err((next, error)) => (next, Some(error)),
            };
            position = next;
            drain.advance(position);
            if let Some(error) = error {
                return Err(error);
            }
        }
        Ok(Drained::Done)
    }

    /// Puts or gets from `first` on; gives the position after them.
    fn copies(
        &mut self,
        channel: &Channel,
        first: u64,
        end: u64,
        victim: Victim<'_>,
        way: Way,
    ) -> Result<u64, (u64, io::Error)> {
        let kind = if way == Way::Write { OpKind::Put } else { OpKind::Get };
        self.batch.clear();
        let mut position = first;
        while position < end {
            let Loot { tag, disp, len, data } = loot(channel, position);
            if tag.kind != kind {
                break;
            }
            match way {
                _ if tag.listed => {
                    // SAFETY: published by this process itself, and the drain is held.
                    let list = unsafe { List::read(data) };
                    self.push_list(list, victim);
                }
                Way::Write => self.batch.push_over(data, victim.base + disp, len),
                Way::Read => self.batch.push(data, victim.base + disp, len),
            }
            position += 1;
        }
        // SAFETY: the slots are published and the drain is held, so their payloads are ours.
        match unsafe { self.batch.run(way, victim.pid) } {
            Ok(()) => Ok(position),
            Err((whole, error)) => Err((first + whole as u64, error)),
        }
    }

    /// Adds a list to the batch as one operation.
    fn push_list(&mut self, list: List<'_>, victim: Victim<'_>) {
        let mut runs = list.runs().peekable();
        while let Some((disp, len, data)) = runs.next() {
            self.batch.push_part(data, victim.base + disp, len, runs.peek().is_none());
        }
    }

    /// One atomic operation on a list of places: as [`atomics`](Self::atomics). Gives the position
    /// after it.
    fn scattered(
        &mut self,
        channel: &Channel,
        position: u64,
        victim: Victim<'_>,
        foreign: ForeignReduce,
    ) -> Result<u64, (u64, io::Error)> {
        let Loot { tag, len, data, .. } = loot(channel, position);
        // SAFETY: published by this process itself, and the drain is held.
        let list = unsafe { List::read(data) };
        self.scratch.resize(len, 0);
        let packed = List { data: self.scratch.as_mut_ptr(), ..list };
        let _held = AccumulateLock(victim.lock).hold();
        for way in [Way::Read, Way::Write] {
            self.batch.clear();
            self.push_list(packed, victim);
            // SAFETY: the scratch memory has room for all data.
            unsafe { self.batch.run(way, victim.pid) }.map_err(|(_, error)| (position, error))?;
            if way == Way::Read {
                // SAFETY: the list is ours, the drain being held; the scratch memory holds the
                // target's elements, packed.
                unsafe { combine_packed(list, tag, &tag.combine(foreign), packed.data) };
            }
        }
        Ok(position + 1)
    }

    /// Atomic operations from `first` on that lie close together: read, combined here and written
    /// back, in one hold of the target's lock [AT-1]. Gives the position after them.
    fn atomics(
        &mut self,
        channel: &Channel,
        first: u64,
        end: u64,
        victim: Victim<'_>,
        foreign: ForeignReduce,
    ) -> Result<u64, (u64, io::Error)> {
        let (from, to, last) = hull(channel, first, end);
        self.scratch.resize((to - from) as usize, 0);
        let scratch = self.scratch.as_mut_ptr();
        self.batch.clear();
        let _held = AccumulateLock(victim.lock).hold();
        // SAFETY: the scratch memory has room for the hull.
        unsafe { cma::read(victim.pid, victim.base + from, scratch, self.scratch.len()) }
            .map_err(|error| (first, error))?;
        for position in first..last {
            let Loot { tag, disp, len, data } = loot(channel, position);
            let place = scratch.wrapping_add((disp - from) as usize);
            // SAFETY: the slot lies in the hull; its payload is ours, the drain being held.
            unsafe { combine_slot(tag, data, place, len, foreign) };
            // Exactly the bytes of the operation: its neighbours may be written by others
            // meanwhile. A place that comes twice is written twice, both times with its final
            // content.
            self.batch.push_over(place, victim.base + disp, len);
        }
        // An error here, after the same bytes were read, means that the window's memory was
        // unmapped meanwhile; only then might an operation whose place came twice be applied again
        // later. SAFETY: all pieces lie in the scratch memory.
        match unsafe { self.batch.run(Way::Write, victim.pid) } {
            Ok(()) => Ok(last),
            Err((whole, error)) => Err((first + whole as u64, error)),
        }
    }
}

/// The bytes that contain atomic operations from `first` on, and the position after the last of
/// them.
fn hull(channel: &Channel, first: u64, end: u64) -> (u64, u64, u64) {
    let Loot { disp, len, .. } = loot(channel, first);
    let (mut from, mut to, mut bytes) = (disp, disp + len as u64, len as u64);
    let mut position = first + 1;
    while position < end {
        let Loot { tag, disp, len, .. } = loot(channel, position);
        if tag.listed
            || matches!(tag.kind, OpKind::Put | OpKind::Get | OpKind::Notify | OpKind::NotifyTagged)
        {
            break;
        }
        let (wider_from, wider_to) = (from.min(disp), to.max(disp + len as u64));
        let wider = wider_to - wider_from;
        if wider > HOLD as u64 || wider > SLACK.max(2 * (bytes + len as u64)) {
            break;
        }
        (from, to, bytes) = (wider_from, wider_to, bytes + len as u64);
        position += 1;
    }
    (from, to, position)
}

/// A slot that this process has published.
fn loot(channel: &Channel, position: u64) -> Loot {
    let slot = channel.slot(position);
    let tag = published(&slot.stamp, position)
        .map(Tag::decode)
        .expect("the origin takes only what it has published");
    // SAFETY: published by this process itself, and the drain is held.
    let (disp, len, payload) = unsafe { slot.fields() };
    Loot { tag, disp, len: len as usize, data: channel.data(slot, payload) }
}
