//! Puts and gets that may take several requests: long ones, and those of derived datatypes.
//!
//! Each run of bytes at the target takes a request. On this side, a request gathers or scatters
//! several runs of the application's memory if they are long. Otherwise the data are packed into
//! bounce buffers, each of which may serve several requests.
//!
//! Many short runs at the target travel in packets. A request costs as much as copying some hundred
//! bytes on both sides, but does not need the target's processor. So a few requests are always
//! better than packets, and many requests only if their runs are long.

use smallvec::SmallVec;

use super::super::context::{Held, LocalBuffer, PostFlags, Purpose, Request};
use super::super::device::{LocalSegment, Opcode};
use super::super::registration_cache::RegistrationId;
use super::operations::{carries, notifies, opcode_of};
use super::{Endpoint, FragmentedOp};
use crate::engine::{NoResource, Op, OpKind, Posted, Ticket};
use crate::transport::datatype::{self, Shape, Side};
use crate::transport::peers::PeerId;
use crate::transport::{PACKET, copy};

/// Operations of at least so many bytes register the application's memory. Shorter ones are copied.
const REGISTER_FROM: u64 = 32 * 1024;
/// Up to so many runs at the target become requests, whatever their length.
const ALWAYS_OFFLOADED: u64 = 16;
/// More runs at the target become requests if they have at least so many bytes on average.
const MIN_REMOTE_RUN: u64 = 1024;
/// Runs on this side are gathered if they have at least so many bytes on average, otherwise copied.
const MIN_GATHERED_RUN: u64 = 2048;
/// Data are gathered if their extent, which is registered, is at most so many times their size.
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

/// Number of runs of a side. `None` if there are more than `most`.
fn count_runs(side: &Side, most: u64) -> Option<u64> {
    let mut walk = side.walk(0);
    let mut count = 0_u64;
    while let Some(runs) = walk.next_runs(u64::MAX) {
        count = count.checked_add(runs.count).filter(|count| *count <= most)?;
    }
    Some(count)
}

/// Address of the data on this side, and their layout unless they are one run.
fn local_data<'a>(op: &Op, shape: Option<&'a Shape>) -> (usize, Option<&'a Side>) {
    let buffer = if op.kind == OpKind::Put { op.origin } else { op.result };
    (buffer.0, shape.and_then(|shape| shape.local(op.kind)))
}

impl Endpoint {
    /// Posts a put or get of derived datatypes. `None`: it has to travel in packets.
    pub fn post_shaped(
        &mut self,
        peer: PeerId,
        op: &Op,
        shape: &Shape,
        ticket: Ticket,
    ) -> Option<Posted> {
        local_data(op, Some(shape)).1?;
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
        Some(self.post_long(peer, op, Some(shape), ticket))
    }

    /// Starts a put or get that may take several requests, when no other one is in progress.
    pub(super) fn post_long(
        &mut self,
        peer: PeerId,
        op: &Op,
        shape: Option<&Shape>,
        ticket: Ticket,
    ) -> Posted {
        let conn = self.peers[peer.at()].conn;
        if conn.is_some_and(|conn| self.begin_ordered(peer, conn, op.kind).is_err()) {
            return Posted::NoResource;
        }
        let region = self.register_buffer(op, shape);
        let locally_complete = region.is_none() && op.kind == OpKind::Put;
        let shape = shape.cloned().map(Box::new);
        let at_peer = &mut self.peers[peer.at()];
        at_peer.fence_delay = 0;
        at_peer.fragmented = Some(FragmentedOp {
            op: *op,
            ticket,
            at: 0,
            region,
            shape,
            chunk: None,
            locally_complete,
        });
        if self.post_fragments(peer) {
            return if locally_complete { Posted::Local } else { Posted::Pending };
        }
        if let Some(fragmented) = &mut self.peers[peer.at()].fragmented {
            fragmented.locally_complete = false;
        }
        Posted::Pending
    }

    /// Registers the application's buffer, unless its data are to be copied.
    fn register_buffer(&mut self, op: &Op, shape: Option<&Shape>) -> Option<(RegistrationId, u32)> {
        if op.len < REGISTER_FROM {
            return None;
        }
        let flat = Side::flat(op.len);
        let (addr, side) = local_data(op, shape);
        let side = side.unwrap_or(&flat);
        let (low, high) = side.bounds();
        let extent = high.checked_sub(low).and_then(|extent| u64::try_from(extent).ok())?;
        if extent > op.len.saturating_mul(MAX_SPREAD) || extent > usize::MAX as u64 {
            return None;
        }
        count_runs(side, op.len / MIN_GATHERED_RUN)?;
        let (start, holes) = (addr.wrapping_add_signed(low as isize), side.run().is_none());
        // SAFETY: the application keeps its data mapped until the operation is complete [EP-8]; the
        // last request, or `abandon`, releases the registration. The gaps between the data are not
        // accessed through it.
        match unsafe { self.context.borrow().acquire(start, extent as usize, holes) } {
            Ok(found) => Some(found),
            Err(reason) => {
                log::debug!("verbs: {} bytes are copied, not registered: {reason}", op.len);
                None
            }
        }
    }

    /// Posts fragments of the operation in progress. Returns whether all of them were posted.
    pub(super) fn post_fragments(&mut self, peer: PeerId) -> bool {
        let Some(mut fragmented) = self.peers[peer.at()].fragmented.take() else {
            return true;
        };
        while fragmented.at < fragmented.op.len {
            if self.post_fragment(peer, &mut fragmented).is_err() {
                self.peers[peer.at()].fragmented = Some(fragmented);
                return false;
            }
        }
        true
    }

    /// Drops the fragments that are not posted, because the connection failed or the window is
    /// broken or closed.
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
    fn post_fragment(
        &mut self,
        peer: PeerId,
        fragmented: &mut FragmentedOp,
    ) -> Result<(), NoResource> {
        let (conn, remote) = self.connected(peer).ok_or(NoResource)?;
        let mut context = self.context.borrow();
        // Checked first, because a refused request returns its buffer, which other requests share.
        let ordered = fragmented.op.kind == OpKind::Put && self.peers[peer.at()].ordered;
        let follows = ordered || fragmented.op.notification.is_some();
        if !context.has_slot(conn) || follows && !context.may_follow(conn, Opcode::Write) {
            return Err(NoResource);
        }
        let (op, at) = (&fragmented.op, fragmented.at);
        let is_put = op.kind == OpKind::Put;
        let shape = fragmented.shape.as_deref();
        let (user, side) = local_data(op, shape);
        let (disp, run) = match shape {
            None => (op.disp.wrapping_add(at), context.limits.max_message.min(op.len - at)),
            Some(shape) => {
                let mut walk = shape.target.walk(at);
                let run = walk.next_runs(context.limits.max_message).expect("data are left");
                (shape.disp.wrapping_add(run.at) as u64, run.len)
            }
        };
        let mut segments: SmallVec<[LocalSegment; 16]> = SmallVec::new();
        let (mut local, mut held) = (LocalBuffer::default(), Held::Nothing);
        let (mut to, mut filled, mut unpack) = (0, 0, None);
        let mut len = run;
        if let Some((id, lkey)) = fragmented.region {
            local = LocalBuffer { addr: user + at as usize, lkey, ..local };
            if let Some(side) = side {
                let most = context.limits.max_sge[usize::from(!is_put)].max(1) as usize;
                let mut walk = side.walk(at);
                len = 0;
                while segments.len() < most && len < run {
                    let runs = walk.next_runs(run - len).expect("as many data as there");
                    for number in 0..runs.count.min((most - segments.len()) as u64) {
                        let at = runs.at.wrapping_add((number as i64).wrapping_mul(runs.stride));
                        let addr = user.wrapping_add_signed(at as isize);
                        segments.push(LocalSegment { addr, len: runs.len as u32 });
                        len += runs.len;
                    }
                }
                local.addr = segments[0].addr;
                local.segments = if segments.len() > 1 { &segments } else { &[] };
            }
            if at + len == op.len {
                held = Held::Registration(id);
            }
        } else {
            let chunk = match fragmented.chunk {
                Some(chunk) => chunk,
                None => {
                    let (buffer, addr, lkey) = context.buffer().ok_or(NoResource)?;
                    let end = op.len.min(at + PACKET as u64);
                    let bytes = (end - at) as usize;
                    // SAFETY: the application keeps the origin data valid until the operation is
                    // complete [EP-8]; the buffer is ours and has `PACKET` bytes.
                    unsafe {
                        match side {
                            _ if !is_put => {}
                            Some(side) => datatype::pack(user as *const u8, side, at, addr, bytes),
                            None => copy((user + at as usize) as *const u8, addr, bytes),
                        }
                    }
                    let chunk = Chunk { buffer, addr: addr as usize, lkey, from: at, to: end };
                    *fragmented.chunk.insert(chunk)
                }
            };
            len = run.min(chunk.to - at);
            local.addr = chunk.addr + (at - chunk.from) as usize;
            local.lkey = chunk.lkey;
            if at + len == chunk.to {
                fragmented.chunk = None;
                held = Held::Buffer(chunk.buffer);
                filled = (chunk.to - chunk.from) as usize;
                to = user.wrapping_add(if side.is_none() { chunk.from as usize } else { 0 });
                unpack = side
                    .filter(|_| !is_put)
                    .map(|side| Box::new((side.clone(), chunk.from, filled)));
            }
        }
        local.len = len as u32;
        let ticket = (at + len == op.len).then_some(fragmented.ticket);
        // Signalled, because buffers are few, and the last request of a get completes it.
        let signalled = matches!(held, Held::Buffer(_)) || !is_put && ticket.is_some();
        let purpose = match ticket {
            Some(ticket) if is_put => {
                Purpose::Put { ticket, locally_complete: fragmented.locally_complete, held }
            }
            None if is_put => Purpose::Fragment(held),
            ticket => Purpose::Get { ticket, to, len: filled, held, unpack },
        };
        let inline =
            is_put && fragmented.region.is_none() && len <= u64::from(context.limits.max_inline);
        let opcode = opcode_of(op, &remote, ticket.is_some());
        let fence = ordered || notifies(opcode);
        let request = Request {
            opcode,
            local,
            remote: remote.memory.offset(disp),
            flags: PostFlags {
                signalled,
                inline,
                fence,
                remote_fence: !is_put,
                ..PostFlags::default()
            },
        };
        // SAFETY: the local memory is a bounce buffer, held by the last request that uses it, or
        // the application's, which stays valid and untouched until the operation is complete
        // [EP-8].
        unsafe { context.post(conn, self.window, &request, purpose) }?;
        fragmented.at += len;
        self.peers[peer.at()].ordered &= !ordered;
        Ok(())
    }
}
