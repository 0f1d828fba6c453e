//! Puts, gets and notifications.

use super::super::context::{
    ConnectionId, ConnectionState, Context, Held, LocalBuffer, PostFlags, Purpose, Request,
};
use super::super::device::Opcode;
use super::super::handshake::RemoteAddress;
use super::{Endpoint, FragmentedOp, HeldPut, REGISTER_FROM, RemoteWindow, encode_imm, lock};
use crate::engine::{NoResource, Op, OpKind, Posted, Rank, Stage, Ticket};
use crate::transport::am::wire::PACKET;
use crate::transport::copy;

impl Endpoint {
    /// Posts a put or get of one run on each side. `None`: it has to be a message.
    #[inline]
    pub fn post(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        if op.shape.is_some()
            || !matches!(op.kind, OpKind::Put | OpKind::Get)
            || !self.reaches(op.target)
        {
            return None;
        }
        let index = self.peer(op.target);
        let short = op.kind == OpKind::Put && op.len <= PACKET as u64;
        if short && self.hold_for_notification(index, op, ticket) {
            return Some(Posted::Pending);
        }
        let Some((conn, remote)) = self.connected(index) else { return Some(Posted::NoResource) };
        if !remote.has_memory() {
            return None;
        }
        if op.len == 0 {
            return Some(Posted::Complete);
        }
        if !self.post_held_put(index) || self.peers[index as usize].fragmented.is_some() {
            return Some(Posted::NoResource);
        }
        self.peers[index as usize].notification_announced = false;
        self.schedule(index);
        if !short {
            return Some(self.post_long(index, op, ticket));
        }
        let mut context = lock(&self.context);
        let to = (conn, remote.memory);
        Some(match post_short_put(&mut context, self.window, to, op, ticket, Opcode::Write) {
            Ok(()) => Posted::Local,
            Err(NoResource) => Posted::NoResource,
        })
    }

    /// Holds a short put back if a notification behind it was announced: one request does for both.
    #[inline]
    fn hold_for_notification(&mut self, index: u32, op: &Op, ticket: Ticket) -> bool {
        let peer = &mut self.peers[index as usize];
        if !peer.notification_announced
            || op.len == 0
            || !peer.remote.as_ref().is_some_and(RemoteWindow::has_memory)
            || peer.held.is_some()
            || peer.fragmented.is_some()
        {
            return false;
        }
        peer.notification_announced = false;
        peer.held = Some(HeldPut { op: *op, ticket });
        self.schedule_fence(index, false);
        true
    }

    /// Starts a put or get that may take several requests.
    fn post_long(&mut self, index: u32, op: &Op, ticket: Ticket) -> Posted {
        let mut region = None;
        if op.len >= REGISTER_FROM {
            let addr = if op.kind == OpKind::Put { op.origin } else { op.result };
            // SAFETY: the application keeps the buffer mapped until the operation is complete
            // [EP-8]; its last request releases the registration.
            match unsafe { lock(&self.context).acquire(addr.0, op.len as usize, false) } {
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
        self.peers[index as usize].fragmented = Some(fragmented);
        self.post_fragments(index);
        Posted::Pending
    }

    /// Posts whatever waits for room at a peer. Returns whether all of it was posted.
    pub(super) fn post_waiting(&mut self, index: u32) -> bool {
        self.post_held_put(index) && self.post_fragments(index)
    }

    /// Posts fragments of the operation in progress. Returns whether all of them were posted.
    pub(super) fn post_fragments(&mut self, index: u32) -> bool {
        let Some(mut fragmented) = self.peers[index as usize].fragmented.take() else {
            return true;
        };
        while fragmented.at < fragmented.op.len {
            let posted = if fragmented.shape.is_some() {
                self.post_strided_fragment(index, &mut fragmented)
            } else {
                self.post_fragment(index, &mut fragmented)
            };
            if posted.is_err() {
                self.peers[index as usize].fragmented = Some(fragmented);
                return false;
            }
        }
        true
    }

    fn post_fragment(
        &mut self,
        index: u32,
        fragmented: &mut FragmentedOp,
    ) -> Result<(), NoResource> {
        let (conn, remote) = self.connected(index).ok_or(NoResource)?;
        let mut context = lock(&self.context);
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
            remote_fence: !is_put,
            ..PostFlags::default()
        };
        let RemoteAddress { addr: base, rkey } = remote.memory;
        let request = Request {
            opcode: if is_put { Opcode::Write } else { Opcode::Read },
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

    /// Posts the held put without its notification, if there is one. False if there is no room.
    pub(super) fn post_held_put(&mut self, index: u32) -> bool {
        let Some(HeldPut { op, ticket }) = self.peers[index as usize].held.take() else {
            return true;
        };
        let posted = self.connected(index).ok_or(NoResource).and_then(|(conn, remote)| {
            let mut context = lock(&self.context);
            let to = (conn, remote.memory);
            post_short_put(&mut context, self.window, to, &op, ticket, Opcode::Write)
        });
        if posted.is_err() {
            self.peers[index as usize].held = Some(HeldPut { op, ticket });
            return false;
        }
        self.events.finished.push_back((ticket, Stage::Local));
        true
    }

    /// Announces that a notification of a counter follows the next put.
    pub fn announce_notification(&mut self, rank: Rank) {
        if self.reaches(rank) {
            let index = self.peer(rank);
            self.peers[index as usize].notification_announced = true;
        }
    }

    /// Posts a short put that notifies a counter of the peer, in one request. `None`: it takes
    /// more, or there is no room now.
    #[inline]
    pub fn put_notified(&mut self, put: &Op, counter: u32, ticket: Ticket) -> Option<Posted> {
        if put.len == 0 || put.len > PACKET as u64 || !self.reaches(put.target) {
            return None;
        }
        let index = self.peer(put.target);
        let peer = &self.peers[index as usize];
        let (conn, remote) = (peer.conn?, peer.remote.as_ref()?);
        let imm = encode_imm(remote.window, counter)?;
        if !remote.has_memory() || peer.held.is_some() || peer.fragmented.is_some() {
            return None;
        }
        let mut context = lock(&self.context);
        if context.connection_state(conn) != ConnectionState::Established
            || context.has_cas_loops(conn)
        {
            return None;
        }
        let first = !context.has_unfenced_puts(conn);
        let (to, opcode) = ((conn, remote.memory), Opcode::WriteImm(imm));
        post_short_put(&mut context, self.window, to, put, ticket, opcode).ok()?;
        drop(context);
        self.schedule_fence(index, first);
        Some(Posted::Local)
    }

    /// Notifies a counter of the peer, behind all operations posted there before. `None`: it has to
    /// be a message.
    pub fn notify(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        if op.kind != OpKind::Notify || !self.reaches(op.target) {
            return None;
        }
        let index = self.peer(op.target);
        let Some((conn, remote)) = self.connected(index) else { return Some(Posted::NoResource) };
        self.peers[index as usize].notification_announced = false;
        let imm = encode_imm(remote.window, op.disp as u32);
        if imm.is_none() && self.post_held_put(index) {
            return None;
        }
        let (Some(imm), true) = (imm, self.post_fragments(index)) else {
            return Some(Posted::NoResource);
        };
        let held = self.peers[index as usize].held.take();
        let mut context = lock(&self.context);
        let first = !context.has_unfenced_puts(conn);
        let opcode = Opcode::WriteImm(imm);
        let posted = match &held {
            _ if context.has_cas_loops(conn) => Err(NoResource),
            Some(put) => {
                let to = (conn, remote.memory);
                post_short_put(&mut context, self.window, to, &put.op, put.ticket, opcode)
            }
            None => {
                let flags = PostFlags { fence: true, ..PostFlags::default() };
                let purpose = Purpose::Put { ticket, locally_complete: true, held: Held::Nothing };
                context.post_empty(conn, self.window, opcode, flags, purpose)
            }
        };
        if posted.is_err() {
            drop(context);
            self.peers[index as usize].held = held;
            return Some(Posted::NoResource);
        }
        if let Some(put) = held {
            // The put's request is the notification's as well.
            context.attach_to_last(conn, self.window, ticket);
            self.events.finished.push_back((put.ticket, Stage::Local));
        }
        drop(context);
        self.schedule_fence(index, first);
        Some(Posted::Local)
    }
}

/// Posts a put of at most [`PACKET`] bytes, which are copied.
fn post_short_put(
    context: &mut Context,
    window: u32,
    (conn, memory): (ConnectionId, RemoteAddress),
    op: &Op,
    ticket: Ticket,
    opcode: Opcode,
) -> Result<(), NoResource> {
    // SAFETY: the application keeps the origin buffer valid until the operation is complete [EP-8],
    // and this call copies it.
    let bytes = unsafe { std::slice::from_raw_parts(op.origin.0 as *const u8, op.len as usize) };
    let remote = RemoteAddress { addr: memory.addr + op.disp, rkey: memory.rkey };
    let fence = matches!(opcode, Opcode::WriteImm(_));
    let flags = PostFlags { fence, ..PostFlags::default() };
    context.post_bytes(conn, window, (opcode, remote), bytes, flags, |held| Purpose::Put {
        ticket,
        locally_complete: true,
        held,
    })
}
