//! Puts and gets of derived datatypes by RDMA, where that pays.
//!
//! Each run of bytes at the target takes a request. On this side a request gathers or scatters
//! several runs of the application's memory if they are long. Otherwise the data are packed into
//! bounce buffers, each of which may serve several requests.
//!
//! Many short runs at the target are left to packets. A request costs as much as copying some
//! hundred bytes on both sides, but needs no processor at the target. So few requests always pay,
//! and more of them if their runs are long.

use smallvec::SmallVec;

use super::super::context::{Held, LocalBuffer, PostFlags, Purpose, Request};
use super::super::device::LocalSegment;
use super::super::handshake::RemoteAddress;
use super::super::registration_cache::RegistrationId;
use super::operations::{carries, notifies, opcode_of};
use super::{Endpoint, FragmentedOp, REGISTER_FROM};
use crate::engine::{NoResource, Op, OpKind, Posted, Ticket};
use crate::transport::PACKET;
use crate::transport::datatype::{self, Shape, Side};
use crate::transport::peers::PeerId;

/// Requests that always pay.
const ALWAYS_OFFLOADED: u64 = 16;
/// Average bytes of a run at the target from which more requests pay.
const MIN_REMOTE_RUN: u64 = 1024;
/// Average bytes of a run on this side from which it is gathered, and not copied.
const MIN_GATHERED_RUN: u64 = 2048;
/// Gathered data may be spread over so many times their size, all of which is registered.
const MAX_SPREAD: u64 = 4;

/// A bounce buffer with part of an operation's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    buffer: u32,
    addr: usize,
    lkey: u32,
    /// The range of the data in it.
    from: u64,
    to: u64,
}

/// Number of runs of a side, if at most `most`.
fn count_runs(side: &Side, most: u64) -> Option<u64> {
    let mut walk = side.walk(0);
    let mut count = 0_u64;
    while let Some(runs) = walk.next_runs(u64::MAX) {
        count = count.checked_add(runs.count).filter(|count| *count <= most)?;
    }
    Some(count)
}

/// Address and layout of the data on this side.
fn local_side<'a>(op: &Op, shape: &'a Shape) -> Option<(usize, &'a Side)> {
    match op.kind {
        OpKind::Put => Some((op.origin.0, shape.origin.as_ref()?)),
        OpKind::Get => Some((op.result.0, shape.result.as_ref()?)),
        _ => None,
    }
}

impl Endpoint {
    /// Posts a put or get of derived datatypes. `None`: it has to be a message.
    pub fn post_shaped(
        &mut self,
        peer: PeerId,
        op: &Op,
        shape: &Shape,
        ticket: Ticket,
    ) -> Option<Posted> {
        let (addr, side) = local_side(op, shape)?;
        if op.len == 0 || !self.reaches(op.target) {
            return None;
        }
        shape.disp.checked_add(shape.target.bounds().0).filter(|first| *first >= 0)?;
        count_runs(&shape.target, ALWAYS_OFFLOADED.max(op.len / MIN_REMOTE_RUN))?;
        let Some((_, remote)) = self.connected(peer) else { return Some(Posted::NoResource) };
        if !remote.has_memory() || !carries(op, &remote) {
            return None;
        }
        if self.peers[peer.at()].fragmented.is_some() {
            return Some(Posted::NoResource);
        }
        self.peers[peer.at()].fence_delay = 0;
        let region = self.register_for_gather(addr, side, op.len);
        let locally_complete = region.is_none() && op.kind == OpKind::Put;
        self.peers[peer.at()].fragmented = Some(FragmentedOp {
            op: *op,
            ticket,
            at: 0,
            region,
            shape: Some(Box::new(shape.clone())),
            chunk: None,
            locally_complete,
        });
        if self.post_fragments(peer) {
            return Some(if locally_complete { Posted::Local } else { Posted::Pending });
        }
        if let Some(fragmented) = &mut self.peers[peer.at()].fragmented {
            fragmented.locally_complete = false;
        }
        Some(Posted::Pending)
    }

    /// Registers this side's memory for gathering, if that pays.
    fn register_for_gather(
        &mut self,
        addr: usize,
        side: &Side,
        len: u64,
    ) -> Option<(RegistrationId, u32)> {
        let (low, high) = side.bounds();
        let extent = high.checked_sub(low).and_then(|extent| u64::try_from(extent).ok())?;
        if len < REGISTER_FROM
            || extent > len.saturating_mul(MAX_SPREAD)
            || extent > usize::MAX as u64
        {
            return None;
        }
        count_runs(side, (len / MIN_GATHERED_RUN).max(1))?;
        let (start, holes) = (addr.wrapping_add_signed(low as isize), side.run().is_none());
        // SAFETY: the application keeps its data mapped until the operation is complete [EP-8]; the
        // last request, or `abandon`, releases the registration. What lies between the data is not
        // accessed through it.
        match unsafe { self.context.borrow().acquire(start, extent as usize, holes) } {
            Ok(found) => Some(found),
            Err(reason) => {
                log::debug!("verbs: {len} bytes in {extent} are copied: {reason}");
                None
            }
        }
    }

    /// Drops what has not been posted to a peer whose connection failed, or in a broken window.
    pub(super) fn abandon(&mut self, at: usize) {
        let Some(fragmented) = self.peers[at].fragmented.take() else { return };
        let mut context = self.context.borrow();
        if let Some((id, _)) = fragmented.region {
            context.release(Held::Registration(id));
        }
        if let Some(chunk) = fragmented.chunk {
            context.release(Held::Buffer(chunk.buffer));
        }
    }

    /// Posts the next run at the target, or as much of it as one request takes.
    pub(super) fn post_strided_fragment(
        &mut self,
        peer: PeerId,
        fragmented: &mut FragmentedOp,
    ) -> Result<(), NoResource> {
        let (conn, remote) = self.connected(peer).ok_or(NoResource)?;
        let mut context = self.context.borrow();
        // A refused request returns its buffer, which later requests may share. So ask first.
        let follows = fragmented.op.notification.is_some();
        if !context.has_slot(conn) || follows && !context.may_follow(conn) {
            return Err(NoResource);
        }
        let op = &fragmented.op;
        let is_put = op.kind == OpKind::Put;
        let shape = fragmented.shape.as_deref().expect("an operation with a shape");
        let (user, side) = local_side(op, shape).expect("a put or get");
        let run =
            shape.target.walk(fragmented.at).next_runs(self.max_message).expect("data are left");
        let mut segments: SmallVec<[LocalSegment; 16]> = SmallVec::new();
        let (mut local, mut held, mut unpack) = (LocalBuffer::default(), Held::Nothing, None);
        let len;
        if let Some((id, lkey)) = fragmented.region {
            let most = context.limits().max_sge[usize::from(!is_put)].max(1) as usize;
            let mut walk = side.walk(fragmented.at);
            let mut gathered = 0;
            while segments.len() < most && gathered < run.len {
                let runs = walk.next_runs(run.len - gathered).expect("as many data as there");
                for number in 0..runs.count.min((most - segments.len()) as u64) {
                    let at = runs.at.wrapping_add((number as i64).wrapping_mul(runs.stride));
                    let addr = user.wrapping_add_signed(at as isize);
                    segments.push(LocalSegment { addr, len: runs.len as u32 });
                    gathered += runs.len;
                }
            }
            len = gathered;
            local = LocalBuffer {
                addr: segments[0].addr,
                len: len as u32,
                lkey,
                segments: if segments.len() > 1 { &segments } else { &[] },
            };
            if fragmented.at + len == op.len {
                held = Held::Registration(id);
            }
        } else {
            let chunk = match fragmented.chunk {
                Some(chunk) => chunk,
                None => {
                    let (buffer, addr, lkey) = context.buffer().ok_or(NoResource)?;
                    let (from, to) = (fragmented.at, op.len.min(fragmented.at + PACKET as u64));
                    if is_put {
                        let bytes = (to - from) as usize;
                        // SAFETY: the application keeps the origin data valid until the operation
                        // is complete [EP-8]; the buffer is ours and has `PACKET` bytes.
                        unsafe { datatype::pack(user as *const u8, side, from, addr, bytes) };
                    }
                    let chunk = Chunk { buffer, addr: addr as usize, lkey, from, to };
                    *fragmented.chunk.insert(chunk)
                }
            };
            len = run.len.min(chunk.to - fragmented.at);
            local.addr = chunk.addr + (fragmented.at - chunk.from) as usize;
            (local.len, local.lkey) = (len as u32, chunk.lkey);
            if fragmented.at + len == chunk.to {
                fragmented.chunk = None;
                held = Held::Buffer(chunk.buffer);
                let bytes = (chunk.to - chunk.from) as usize;
                unpack = (!is_put).then(|| Box::new((side.clone(), chunk.from, bytes)));
            }
        }
        let ticket = (fragmented.at + len == op.len).then_some(fragmented.ticket);
        let holds = !matches!(held, Held::Nothing);
        let purpose = match ticket {
            Some(ticket) if is_put => {
                Purpose::Put { ticket, locally_complete: fragmented.locally_complete, held }
            }
            None if is_put => Purpose::Fragment(held),
            ticket => Purpose::Get { ticket, to: user, len: 0, held, unpack },
        };
        let inline =
            is_put && fragmented.region.is_none() && len <= u64::from(context.limits().max_inline);
        // Somebody waits for the last request of a get; buffers are few.
        let signalled =
            holds && (!is_put || fragmented.region.is_none()) || !is_put && ticket.is_some();
        let opcode = opcode_of(op, &remote, ticket.is_some());
        let fence = notifies(opcode);
        let request = Request {
            opcode,
            local,
            remote: RemoteAddress {
                addr: remote.memory.addr.wrapping_add_signed(shape.disp + run.at),
                rkey: remote.memory.rkey,
            },
            flags: PostFlags { signalled, inline, fence, remote_fence: !is_put, urgent: false },
        };
        // SAFETY: the local memory is a bounce buffer, held by the last request that uses it, or
        // the application's, which stays valid and untouched until the operation is complete
        // [EP-8].
        unsafe { context.post(conn, self.window, &request, purpose) }?;
        fragmented.at += len;
        Ok(())
    }
}
