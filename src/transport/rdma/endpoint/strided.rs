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

use super::super::context::{Held, LocalBuffer, PostFlags, Purpose};
use super::super::device::{LocalSegment, Opcode};
use super::super::handshake::RemoteAddress;
use super::super::registration_cache::RegistrationId;
use super::{Endpoint, FragmentedOp, REGISTER_FROM, lock};
use crate::engine::{NoResource, Op, OpKind, Posted, Ticket};
use crate::transport::host_mpi::wire::PACKET;
use crate::transport::shape::{Shape, Side, moves};

/// So many requests always pay.
const ALWAYS_OFFLOADED: u64 = 16;
/// Bytes of a run at the target, on average, from which on more do.
const MIN_REMOTE_RUN: u64 = 1024;
/// Bytes of a run of this side, on average, from which on it is not copied.
const MIN_GATHERED_RUN: u64 = 2048;
/// Memory that is registered may have so many times the bytes of the data in it.
const MAX_EXTENT_RATIO: u64 = 4;

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
fn local_side<'a>(op: &Op, shape: &'a Shape) -> Option<(usize, &'a Side)> {
    match op.kind {
        OpKind::Put => Some((op.origin.0, shape.origin.as_ref()?)),
        OpKind::Get => Some((op.result.0, shape.result.as_ref()?)),
        _ => None,
    }
}

impl Endpoint {
    /// Starts an operation with a shape, if the interface is to do it; else (`None`) it is for a
    /// message.
    pub fn post_shaped(&mut self, op: &Op, shape: &Shape, ticket: Ticket) -> Option<Posted> {
        let (at, side) = local_side(op, shape)?;
        if op.len == 0 || !self.reaches(op.target) {
            return None;
        }
        shape.disp.checked_add(shape.target.bounds().0).filter(|first| *first >= 0)?;
        runs(&shape.target, ALWAYS_OFFLOADED.max(op.len / MIN_REMOTE_RUN))?;
        let index = self.peer(op.target);
        let Some((_, remote)) = self.reach(index) else { return Some(Posted::NoResource) };
        if !remote.has_memory() {
            return None;
        }
        if !self.post_held_put(index) || self.peers[index as usize].fragments.is_some() {
            return Some(Posted::NoResource);
        }
        self.schedule(index);
        let region = self.gathered(at, side, op.len);
        let early = region.is_none() && op.kind == OpKind::Put;
        let fragments = FragmentedOp {
            op: *op,
            ticket,
            at: 0,
            region,
            shape: Some(Box::new(shape.clone())),
            chunk: None,
            early,
        };
        self.peers[index as usize].fragments = Some(fragments);
        if self.post_fragments(index) {
            return Some(if early { Posted::Local } else { Posted::Pending });
        }
        if let Some(fragments) = &mut self.peers[index as usize].fragments {
            fragments.early = false;
        }
        Some(Posted::Pending)
    }

    /// Registers this side's memory, if that pays.
    fn gathered(&mut self, at: usize, side: &Side, len: u64) -> Option<(RegistrationId, u32)> {
        let (low, high) = side.bounds();
        let extent = high.checked_sub(low).and_then(|extent| u64::try_from(extent).ok())?;
        if len < REGISTER_FROM
            || extent > len.saturating_mul(MAX_EXTENT_RATIO)
            || extent > usize::MAX as u64
        {
            return None;
        }
        runs(side, (len / MIN_GATHERED_RUN).max(1))?;
        let holes = side.run().is_none();
        // SAFETY: the buffers are the library's, and mapped, until the operation is complete
        // [EP-8].
        match unsafe {
            lock(&self.context).acquire(
                at.wrapping_add_signed(low as isize),
                extent as usize,
                holes,
            )
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
        let Some(fragments) = self.peers[index as usize].fragments.take() else { return };
        let mut context = lock(&self.context);
        if let Some((id, _)) = fragments.region {
            context.release(Held::Registration(id));
        }
        if let Some(chunk) = fragments.chunk {
            context.release(Held::Buffer(chunk.piece));
        }
    }

    /// Hands over the next run at the target, or as much of it as one request takes.
    pub(super) fn post_strided_fragment(
        &mut self,
        index: u32,
        fragments: &mut FragmentedOp,
    ) -> Result<(), NoResource> {
        let (conn, remote) = self.reach(index).ok_or(NoResource)?;
        let mut context = lock(&self.context);
        // What is refused gives its buffer back, which may be others' too.
        if !context.has_slot(conn) {
            return Err(NoResource);
        }
        let op = &fragments.op;
        let is_put = op.kind == OpKind::Put;
        let shape = fragments.shape.as_deref().expect("an operation with a shape");
        let (here, side) = local_side(op, shape).expect("a put or get");
        let there = shape.target.walk(fragments.at).next_runs(self.message).expect("data are left");
        let remote = RemoteAddress {
            at: remote.memory.at.wrapping_add_signed(shape.disp + there.at),
            rkey: remote.memory.rkey,
        };
        let mut parts: SmallVec<[LocalSegment; 16]> = SmallVec::new();
        let (mut local, mut hold, mut unpack) = (LocalBuffer::default(), Held::Nothing, None);
        let len;
        if let Some((id, lkey)) = fragments.region {
            let most = context.parts(is_put);
            let mut walk = side.walk(fragments.at);
            let mut gathered = 0;
            while parts.len() < most && gathered < there.len {
                let runs = walk.next_runs(there.len - gathered).expect("as many data as there");
                for run in 0..runs.count.min((most - parts.len()) as u64) {
                    let at = runs.at.wrapping_add((run as i64).wrapping_mul(runs.stride));
                    parts.push(LocalSegment {
                        at: here.wrapping_add_signed(at as isize),
                        len: runs.len as u32,
                    });
                    gathered += runs.len;
                }
            }
            len = gathered;
            local = LocalBuffer {
                at: parts[0].at,
                len: len as u32,
                lkey,
                parts: if parts.len() > 1 { &parts } else { &[] },
            };
            if fragments.at + len == op.len {
                hold = Held::Registration(id);
            }
        } else {
            let chunk = match fragments.chunk {
                Some(chunk) => chunk,
                None => {
                    let (piece, at, lkey) = context.buffer().ok_or(NoResource)?;
                    let to = op.len.min(fragments.at + PACKET as u64);
                    if is_put {
                        // SAFETY: the origin's buffers are valid until the operation is complete
                        // [EP-8]; the buffer has room.
                        unsafe {
                            moves::pack(
                                here as *const u8,
                                side,
                                fragments.at,
                                at,
                                (to - fragments.at) as usize,
                            )
                        };
                    }
                    *fragments.chunk.insert(Chunk {
                        piece,
                        at: at as usize,
                        lkey,
                        from: fragments.at,
                        to,
                    })
                }
            };
            len = there.len.min(chunk.to - fragments.at);
            local.at = chunk.at + (fragments.at - chunk.from) as usize;
            (local.len, local.lkey) = (len as u32, chunk.lkey);
            if fragments.at + len == chunk.to {
                fragments.chunk = None;
                hold = Held::Buffer(chunk.piece);
                unpack = (!is_put).then(|| {
                    Box::new((side.clone(), chunk.from, (chunk.to - chunk.from) as usize))
                });
            }
        }
        let ticket = (fragments.at + len == op.len).then_some(fragments.ticket);
        let holds = !matches!(hold, Held::Nothing);
        let purpose = match ticket {
            Some(ticket) if is_put => Purpose::Put { ticket, told: fragments.early, hold },
            None if is_put => Purpose::Piece(hold),
            ticket => Purpose::Get { ticket, to: here, len: 0, hold, unpack },
        };
        let inline = is_put && fragments.region.is_none() && len <= context.inline();
        // Who gets something waits for the last of it; buffers are few.
        let signalled =
            holds && (!is_put || fragments.region.is_none()) || !is_put && ticket.is_some();
        let flags = PostFlags { signalled, inline, remote_fence: !is_put, ..PostFlags::default() };
        let act = if is_put { Opcode::Write } else { Opcode::Read };
        // SAFETY: the memory is the operation's or the buffer's until the last request that needs
        // it is complete.
        unsafe { context.post(conn, self.window, act, local, remote, flags, purpose) }?;
        fragments.at += len;
        Ok(())
    }
}
