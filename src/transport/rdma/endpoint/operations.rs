//! Puts, gets and notifications.

use super::super::context::{
    ConnectionId, Context, Held, LocalBuffer, PostFlags, Purpose, Request,
};
use super::super::device::Opcode;
use super::super::handshake::RemoteAddress;
use super::{
    DELAY_PER_PUT, Endpoint, FENCE_DELAY_POLLS, FragmentedOp, REGISTER_FROM, RemoteWindow,
    encode_imm,
};
use crate::engine::{NoResource, NotificationKind, Op, OpKind, Posted, Ticket};
use crate::transport::PACKET;
use crate::transport::copy;
use crate::transport::peers::PeerId;

impl Endpoint {
    /// Posts a put or get of one run on each side. A put may notify a counter, also without data;
    /// the notification follows all operations posted to the peer before. `None`: it has to be a
    /// message.
    #[inline]
    pub fn post(&mut self, peer: PeerId, op: &Op, ticket: Ticket) -> Option<Posted> {
        if op.shape.is_some()
            || !matches!(op.kind, OpKind::Put | OpKind::Get)
            || !self.reaches(op.target)
        {
            return None;
        }
        let Some((conn, remote)) = self.connected(peer) else { return Some(Posted::NoResource) };
        if !carries(op, &remote) || op.len > 0 && !remote.has_memory() {
            return None;
        }
        if op.len == 0 && op.notification.is_none() {
            return Some(Posted::Complete);
        }
        if self.peers[peer.at()].fragmented.is_some() {
            return Some(Posted::NoResource);
        }
        if op.kind == OpKind::Get || op.len > PACKET as u64 {
            self.peers[peer.at()].fence_delay = 0;
            return Some(self.post_long(peer, op, ticket));
        }
        let mut context = self.context.borrow();
        let first = !context.has_unfenced_puts(conn);
        let posted = post_short_put(&mut context, self.window, (conn, &remote), op, ticket);
        drop(context);
        let delay = &mut self.peers[peer.at()].fence_delay;
        if op.notification.is_none() {
            *delay = 0;
        } else if posted.is_ok() {
            // Nobody waits for its completion yet.
            *delay = if first { FENCE_DELAY_POLLS } else { delay.saturating_sub(DELAY_PER_PUT) };
        }
        Some(posted.map_or(Posted::NoResource, |()| Posted::Local))
    }

    /// Starts a put or get that may take several requests.
    fn post_long(&mut self, peer: PeerId, op: &Op, ticket: Ticket) -> Posted {
        let mut region = None;
        if op.len >= REGISTER_FROM {
            let addr = if op.kind == OpKind::Put { op.origin } else { op.result };
            // SAFETY: the application keeps the buffer mapped until the operation is complete
            // [EP-8]; its last request releases the registration.
            match unsafe { self.context.borrow().acquire(addr.0, op.len as usize, false) } {
                Ok(found) => region = Some(found),
                Err(reason) => log::debug!("verbs: {} bytes are copied: {reason}", op.len),
            }
        }
        let fragmented = FragmentedOp {
            op: *op,
            ticket,
            at: 0,
            region,
            shape: None,
            chunk: None,
            locally_complete: false,
        };
        self.peers[peer.at()].fragmented = Some(fragmented);
        self.post_fragments(peer);
        Posted::Pending
    }

    /// Posts fragments of the operation in progress. Returns whether all of them were posted.
    pub(super) fn post_fragments(&mut self, peer: PeerId) -> bool {
        let Some(mut fragmented) = self.peers[peer.at()].fragmented.take() else {
            return true;
        };
        while fragmented.at < fragmented.op.len {
            let posted = if fragmented.shape.is_some() {
                self.post_strided_fragment(peer, &mut fragmented)
            } else {
                self.post_fragment(peer, &mut fragmented)
            };
            if posted.is_err() {
                self.peers[peer.at()].fragmented = Some(fragmented);
                return false;
            }
        }
        true
    }

    fn post_fragment(
        &mut self,
        peer: PeerId,
        fragmented: &mut FragmentedOp,
    ) -> Result<(), NoResource> {
        let (conn, remote) = self.connected(peer).ok_or(NoResource)?;
        let mut context = self.context.borrow();
        let op = &fragmented.op;
        let is_put = op.kind == OpKind::Put;
        let left = op.len - fragmented.at;
        let user = if is_put { op.origin.0 } else { op.result.0 } + fragmented.at as usize;
        let (len, addr, lkey, buffer) = match fragmented.region {
            Some((_, lkey)) => (left.min(self.max_message), user, lkey, None),
            None => {
                let (buffer, addr, lkey) = context.buffer().ok_or(NoResource)?;
                let len = left.min(PACKET as u64);
                if is_put {
                    // SAFETY: the application keeps the origin buffer valid until the operation is
                    // complete [EP-8]; the bounce buffer is ours and has `PACKET` bytes.
                    unsafe { copy(user as *const u8, addr, len as usize) };
                }
                (len, addr as usize, lkey, Some(buffer))
            }
        };
        let last = len == left;
        let opcode = opcode_of(op, &remote, last);
        // The last fragment holds the registration: requests complete in order.
        let held = match (buffer, fragmented.region) {
            (Some(buffer), _) => Held::Buffer(buffer),
            (None, Some((id, _))) if last => Held::Registration(id),
            _ => Held::Nothing,
        };
        let purpose = match last.then_some(fragmented.ticket) {
            Some(ticket) if is_put => Purpose::Put { ticket, locally_complete: false, held },
            None if is_put => Purpose::Fragment(held),
            ticket => Purpose::Get { ticket, to: user, len: len as usize, held, unpack: None },
        };
        // Signalled: buffers are few, and somebody waits for the data of a get.
        let flags = PostFlags {
            signalled: !is_put || buffer.is_some(),
            fence: notifies(opcode),
            remote_fence: !is_put,
            ..PostFlags::default()
        };
        let RemoteAddress { addr: base, rkey } = remote.memory;
        let request = Request {
            opcode,
            local: LocalBuffer { addr, len: len as u32, lkey, segments: &[] },
            remote: RemoteAddress { addr: base + op.disp + fragmented.at, rkey },
            flags,
        };
        // SAFETY: the local memory is a bounce buffer that the purpose holds, or the application's,
        // which stays valid and untouched until the operation is complete [EP-8].
        unsafe { context.post(conn, self.window, &request, purpose) }?;
        fragmented.at += len;
        Ok(())
    }
}

/// The immediate with an operation's notification; `None` if it has none, or none that fits.
fn immediate_of(op: &Op, remote: &RemoteWindow) -> Option<u32> {
    match op.notification?.kind() {
        NotificationKind::Counter(counter) => encode_imm(remote.window, counter),
        NotificationKind::Tag(_) => None,
    }
}

/// Whether the requests of an operation can carry its notification, if it has one.
pub(super) fn carries(op: &Op, remote: &RemoteWindow) -> bool {
    op.notification.is_none() || op.kind == OpKind::Put && immediate_of(op, remote).is_some()
}

/// What a request of a put or get is. The last write of a put carries its notification.
pub(super) fn opcode_of(op: &Op, remote: &RemoteWindow, is_last: bool) -> Opcode {
    match immediate_of(op, remote).filter(|_| is_last) {
        _ if op.kind == OpKind::Get => Opcode::Read,
        Some(imm) => Opcode::WriteImm(imm),
        None => Opcode::Write,
    }
}

/// Whether a request notifies. It then has to follow what was posted before, gets too.
pub(super) fn notifies(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::WriteImm(_))
}

/// Posts a put of at most [`PACKET`] bytes, which are copied, or an empty write.
fn post_short_put(
    context: &mut Context,
    window: u32,
    (conn, remote): (ConnectionId, &RemoteWindow),
    op: &Op,
    ticket: Ticket,
) -> Result<(), NoResource> {
    let opcode = opcode_of(op, remote, true);
    let flags = PostFlags { fence: notifies(opcode), ..PostFlags::default() };
    let purpose = |held| Purpose::Put { ticket, locally_complete: true, held };
    if op.len == 0 {
        return context.post_empty(conn, window, opcode, flags, purpose(Held::Nothing));
    }
    // SAFETY: the application keeps the origin buffer valid until the operation is complete [EP-8],
    // and this call copies it.
    let bytes = unsafe { std::slice::from_raw_parts(op.origin.0 as *const u8, op.len as usize) };
    let RemoteAddress { addr, rkey } = remote.memory;
    let to = (opcode, RemoteAddress { addr: addr + op.disp, rkey });
    context.post_bytes(conn, window, to, bytes, flags, purpose)
}
