//! Puts, gets and notifications.

use super::super::context::{ConnectionId, Context, Held, PostFlags, Purpose};
use super::super::device::Opcode;
use super::super::handshake::RemoteWindow;
use super::{DELAY_PER_PUT, Endpoint, FENCE_DELAY_POLLS, encode_imm};
use crate::engine::{NoResource, NotificationKind, Op, OpKind, Posted, Ticket};
use crate::transport::PACKET;
use crate::transport::peers::PeerId;

impl Endpoint {
    /// Posts a put or get of one run on each side. A put may notify a counter, also without data.
    /// The notification follows all operations that were posted to the peer before. `None`: the
    /// operation has to travel in packets.
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
            return Some(self.post_long(peer, op, None, ticket));
        }
        let Ok(ordered) = self.begin_ordered(peer, conn, op.kind) else {
            return Some(Posted::NoResource);
        };
        let mut context = self.context.borrow();
        let first = !context.has_unfenced_puts(conn);
        let posted =
            post_short_put(&mut context, self.window, (conn, &remote), (op, ordered), ticket);
        drop(context);
        if ordered && posted.is_ok() {
            self.peers[peer.at()].ordered = false;
        }
        let delay = &mut self.peers[peer.at()].fence_delay;
        if op.notification.is_none() {
            *delay = 0;
        } else if posted.is_ok() {
            // No call waits for the completion of this put yet.
            *delay = if first { FENCE_DELAY_POLLS } else { delay.saturating_sub(DELAY_PER_PUT) };
        }
        Some(posted.map_or(Posted::NoResource, |()| Posted::Local))
    }
}

impl Endpoint {
    /// Has later operations to a peer follow all that were posted before [OR-1]. Costs nothing
    /// until the next put, which a read precedes if puts are in flight. Packets follow anyway.
    ///
    /// # Errors
    /// An operation is not posted completely.
    pub fn order(&mut self, peer: PeerId) -> Result<(), NoResource> {
        let Some(at) = self.peers.get_mut(peer.at()) else { return Ok(()) };
        if at.fragmented.is_some() {
            return Err(NoResource);
        }
        // An ended connection has completed its requests.
        at.ordered = at.conn.is_some();
        Ok(())
    }

    /// Whether RDMA would take this operation to a process, if it has memory that is registered.
    #[must_use]
    pub fn may_take(&self, op: &Op) -> bool {
        self.reaches(op.target)
            && (matches!(op.kind, OpKind::Put | OpKind::Get) || self.offloads(op))
    }

    /// Prepares the first request of an operation that follows an order. True if the request needs
    /// the fence flag. Devices execute a read after the writes before it, and keep the order of
    /// reads and atomics.
    ///
    /// # Errors
    /// Not now.
    pub(super) fn begin_ordered(
        &mut self,
        peer: PeerId,
        conn: ConnectionId,
        kind: OpKind,
    ) -> Result<bool, NoResource> {
        if !self.peers[peer.at()].ordered {
            return Ok(false);
        }
        let mut context = self.context.borrow();
        match kind {
            OpKind::Put => context.order(conn, self.window).map(|()| true),
            OpKind::Get if context.has_cas_loops(conn) => Err(NoResource),
            OpKind::Get => Ok(false),
            // An atomic may overtake a read.
            _ if context.has_gets(conn) => Err(NoResource),
            _ => Ok(false),
        }
    }
}

/// The immediate for an operation's notification. `None` if it has none, or one that does not fit.
fn immediate_of(op: &Op, remote: &RemoteWindow) -> Option<u32> {
    match op.notification?.kind() {
        NotificationKind::Counter(counter) => encode_imm(remote.window, counter),
        NotificationKind::Tag(_) => None,
    }
}

/// Whether the requests of an operation can carry its notification. True if it has none.
pub(super) fn carries(op: &Op, remote: &RemoteWindow) -> bool {
    op.notification.is_none() || op.kind == OpKind::Put && immediate_of(op, remote).is_some()
}

/// The opcode of a request of a put or get. The last write of a put carries its notification.
pub(super) fn opcode_of(op: &Op, remote: &RemoteWindow, is_last: bool) -> Opcode {
    match immediate_of(op, remote).filter(|_| is_last) {
        _ if op.kind == OpKind::Get => Opcode::Read,
        Some(imm) => Opcode::WriteImm(imm),
        None => Opcode::Write,
    }
}

/// Whether a request notifies, and so has to follow all earlier requests, gets included.
pub(super) fn notifies(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::WriteImm(_))
}

/// Posts a put of at most [`PACKET`] bytes, which are copied; an empty write if there are none.
/// `ordered`: it follows all earlier requests.
fn post_short_put(
    context: &mut Context,
    window: u32,
    (conn, remote): (ConnectionId, &RemoteWindow),
    (op, ordered): (&Op, bool),
    ticket: Ticket,
) -> Result<(), NoResource> {
    let opcode = opcode_of(op, remote, true);
    let flags = PostFlags { fence: ordered || notifies(opcode), ..PostFlags::default() };
    let purpose = |held| Purpose::Put { ticket, locally_complete: true, held };
    if op.len == 0 {
        return context.post_empty(conn, window, opcode, flags, purpose(Held::Nothing));
    }
    // SAFETY: the application keeps the origin buffer valid until the operation is complete [EP-8],
    // and this call copies it.
    let bytes = unsafe { std::slice::from_raw_parts(op.origin.0 as *const u8, op.len as usize) };
    let to = (opcode, remote.memory.offset(op.disp));
    if op.notification.is_some() {
        // Its remote fence is delayed.
        return context.post_bytes(conn, window, to, bytes, flags, purpose);
    }
    context.post_put(conn, window, to, bytes, flags, purpose)
}
