//! Puts and gets of derived datatypes, without the target's processor where that pays.
//!
//! Each run of bytes at the target is a request of its own. On this side a request gathers (or
//! scatters) several runs of the application's memory, if they are long; else the data go through
//! buffers, packed, of which one serves as many requests as its bytes have runs at the target.
//!
//! Many short runs at the target are left to packets, which its processor takes apart: a request
//! costs as much as copying some hundred bytes on both sides, but needs nobody there. So few
//! requests always pay, and more if their runs are long.

use smallvec::SmallVec;

use super::direct::{Direct, Feed, REGISTERED_FROM, lock};
use super::fabric::{Hold, Local, Manner, What};
use super::hello::Spot;
use super::memory::RegionId;
use super::nic::{Act, Part};
use crate::engine::{NoResource, Op, OpKind, Posted, Ticket};
use crate::transport::datatype::{self, Shape, Side};
use crate::transport::host_mpi::wire::PACKET;

/// So many requests always pay.
const FEW: u64 = 16;
/// Bytes of a run at the target, on average, from which on more do.
const LONG: u64 = 1024;
/// Bytes of a run of this side, on average, from which on it is not copied.
const GATHERED: u64 = 2048;
/// Memory that is registered may have so many times the bytes of the data in it.
const SPREAD: u64 = 4;

/// A buffer with a part of a strided operation's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    piece: u32,
    at: usize,
    lkey: u32,
    /// Which bytes of the data.
    from: u64,
    to: u64,
}

/// Runs of a side, if there are no more than so many.
fn runs(side: &Side, most: u64) -> Option<u64> {
    let mut walk = side.walk(0);
    let mut count = 0_u64;
    while let Some(runs) = walk.next_runs(u64::MAX) {
        count = count.checked_add(runs.count).filter(|count| *count <= most)?;
    }
    Some(count)
}

/// The side that is here, and where it is.
fn near<'a>(op: &Op, shape: &'a Shape) -> Option<(usize, &'a Side)> {
    match op.kind {
        OpKind::Put => Some((op.origin.0, shape.origin.as_ref()?)),
        OpKind::Get => Some((op.result.0, shape.result.as_ref()?)),
        _ => None,
    }
}

impl Direct {
    /// Starts an operation with a shape, if the interface is to do it; else (`None`) it is for a
    /// message.
    pub fn post_shaped(&mut self, op: &Op, shape: &Shape, ticket: Ticket) -> Option<Posted> {
        let (at, side) = near(op, shape)?;
        if op.len == 0 || !self.is_able(op.target) {
            return None;
        }
        shape.disp.checked_add(shape.target.bounds().0).filter(|first| *first >= 0)?;
        runs(&shape.target, FEW.max(op.len / LONG))?;
        let index = self.peer(op.target);
        let Some((_, far)) = self.reach(index) else { return Some(Posted::NoResource) };
        if !far.has_memory() {
            return None;
        }
        if !self.release_held(index) || self.peers[index as usize].feed.is_some() {
            return Some(Posted::NoResource);
        }
        self.list(index);
        let region = self.gathered(at, side, op.len);
        let early = region.is_none() && op.kind == OpKind::Put;
        let feed = Feed {
            op: *op,
            ticket,
            at: 0,
            region,
            shape: Some(Box::new(shape.clone())),
            chunk: None,
            early,
        };
        self.peers[index as usize].feed = Some(feed);
        if self.pump(index) {
            return Some(if early { Posted::Local } else { Posted::Pending });
        }
        if let Some(feed) = &mut self.peers[index as usize].feed {
            feed.early = false;
        }
        Some(Posted::Pending)
    }

    /// Registers this side's memory, if that pays.
    fn gathered(&mut self, at: usize, side: &Side, len: u64) -> Option<(RegionId, u32)> {
        let (low, high) = side.bounds();
        let extent = high.checked_sub(low).and_then(|extent| u64::try_from(extent).ok())?;
        if len < REGISTERED_FROM
            || extent > len.saturating_mul(SPREAD)
            || extent > usize::MAX as u64
        {
            return None;
        }
        runs(side, (len / GATHERED).max(1))?;
        let holes = side.run().is_none();
        // SAFETY: the buffers are the library's, and mapped, until the operation is complete
        // [EP-8].
        match unsafe {
            lock(&self.fabric).acquire(at.wrapping_add_signed(low as isize), extent as usize, holes)
        } {
            Ok(found) => Some(found),
            Err(reason) => {
                log::debug!("{len} bytes in {extent} are copied: {reason}");
                None
            }
        }
    }

    /// What waits for a queue that is closed, or for one in a window that is broken, will not go.
    pub(super) fn abandon(&mut self, index: u32) {
        self.peers[index as usize].held = None;
        let Some(feed) = self.peers[index as usize].feed.take() else { return };
        let mut fabric = lock(&self.fabric);
        if let Some((id, _)) = feed.region {
            fabric.let_go(Hold::Region(id));
        }
        if let Some(chunk) = feed.chunk {
            fabric.let_go(Hold::Buffer(chunk.piece));
        }
    }

    /// Hands over the next run at the target, or as much of it as one request takes.
    pub(super) fn strided_piece(&mut self, index: u32, feed: &mut Feed) -> Result<(), NoResource> {
        let (endpoint, far) = self.reach(index).ok_or(NoResource)?;
        let mut fabric = lock(&self.fabric);
        // What is refused gives its buffer back, which may be others' too.
        if !fabric.has_room(endpoint) {
            return Err(NoResource);
        }
        let op = &feed.op;
        let is_put = op.kind == OpKind::Put;
        let shape = feed.shape.as_deref().expect("an operation with a shape");
        let (here, side) = near(op, shape).expect("a put or get");
        let there = shape.target.walk(feed.at).next_runs(self.message).expect("data are left");
        let remote = Spot {
            at: far.memory.at.wrapping_add_signed(shape.disp + there.at),
            rkey: far.memory.rkey,
        };
        let mut parts: SmallVec<[Part; 16]> = SmallVec::new();
        let (mut local, mut hold, mut unpack) = (Local::default(), Hold::Nothing, None);
        let len;
        if let Some((id, lkey)) = feed.region {
            let most = fabric.parts(is_put);
            let mut walk = side.walk(feed.at);
            let mut gathered = 0;
            while parts.len() < most && gathered < there.len {
                let runs = walk.next_runs(there.len - gathered).expect("as many data as there");
                for run in 0..runs.count.min((most - parts.len()) as u64) {
                    let at = runs.at.wrapping_add((run as i64).wrapping_mul(runs.stride));
                    parts.push(Part {
                        at: here.wrapping_add_signed(at as isize),
                        len: runs.len as u32,
                    });
                    gathered += runs.len;
                }
            }
            len = gathered;
            local = Local {
                at: parts[0].at,
                len: len as u32,
                lkey,
                parts: if parts.len() > 1 { &parts } else { &[] },
            };
            if feed.at + len == op.len {
                hold = Hold::Region(id);
            }
        } else {
            let chunk = match feed.chunk {
                Some(chunk) => chunk,
                None => {
                    let (piece, at, lkey) = fabric.buffer().ok_or(NoResource)?;
                    let to = op.len.min(feed.at + PACKET as u64);
                    if is_put {
                        // SAFETY: the origin's buffers are valid until the operation is complete
                        // [EP-8]; the buffer has room.
                        unsafe {
                            datatype::pack(
                                here as *const u8,
                                side,
                                feed.at,
                                at,
                                (to - feed.at) as usize,
                            )
                        };
                    }
                    *feed.chunk.insert(Chunk { piece, at: at as usize, lkey, from: feed.at, to })
                }
            };
            len = there.len.min(chunk.to - feed.at);
            local.at = chunk.at + (feed.at - chunk.from) as usize;
            (local.len, local.lkey) = (len as u32, chunk.lkey);
            if feed.at + len == chunk.to {
                feed.chunk = None;
                hold = Hold::Buffer(chunk.piece);
                unpack = (!is_put).then(|| {
                    Box::new((side.clone(), chunk.from, (chunk.to - chunk.from) as usize))
                });
            }
        }
        let ticket = (feed.at + len == op.len).then_some(feed.ticket);
        let holds = !matches!(hold, Hold::Nothing);
        let what = match ticket {
            Some(ticket) if is_put => What::Put { ticket, told: feed.early, hold },
            None if is_put => What::Piece(hold),
            ticket => What::Get { ticket, to: here, len: 0, hold, unpack },
        };
        let inline = is_put && feed.region.is_none() && len <= fabric.inline();
        // Who gets something waits for the last of it; buffers are few.
        let signalled = holds && (!is_put || feed.region.is_none()) || !is_put && ticket.is_some();
        let manner = Manner { signalled, inline, covers: !is_put, ..Manner::default() };
        let act = if is_put { Act::Write } else { Act::Read };
        // SAFETY: the memory is the operation's or the buffer's until the last request that needs
        // it is complete.
        unsafe { fabric.post(endpoint, self.window, act, local, remote, manner, what) }?;
        feed.at += len;
        Ok(())
    }
}
