//! Posting requests, and remote fences.

use super::super::device::{Opcode, WorkRequest};
use super::super::handshake::{NO_WINDOW, RemoteAddress};
use super::{
    AtomicOp, Connection, ConnectionError, ConnectionId, ConnectionState, Context, Held, InFlight,
    LocalBuffer, PostFlags, Purpose, Request, Requester,
};
use crate::engine::{Atomic, NoResource};
use crate::transport::copy;

/// Identifies a posted request of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct PostedRequest {
    generation: u32,
    number: u64,
}

/// Slots of each send queue that only urgent requests may use.
const RESERVED_SLOTS: u64 = 4;

impl Connection {
    /// Whether requests that an order names may be in flight.
    fn has_order(&self) -> bool {
        self.ordered > self.completed
    }

    /// Whether a request posted now could overtake gets or accumulates without the fence flag.
    ///
    /// A queue pair may execute a write or a send before an earlier read or atomic, and an atomic
    /// before an earlier read. It keeps the order of atomics (InfiniBand Architecture
    /// Specification, volume 1, 10.8.3).
    fn needs_fence(&self, opcode: Opcode) -> bool {
        let is_atomic = matches!(opcode, Opcode::FetchAdd(_) | Opcode::CompareSwap { .. });
        self.last_read > self.completed || !is_atomic && self.last_accumulate > self.completed
    }

    /// Whether the put that is about to be posted is probably followed by another one, with which
    /// it may share a doorbell.
    fn is_within_row(&self) -> bool {
        const ROW: u32 = 16;
        const PER_DOORBELL: u32 = 4;
        self.puts_together > ROW && !self.puts_together.is_multiple_of(PER_DOORBELL)
    }
}

impl Context {
    /// Posts a request for `window`. Its completion does what the purpose says.
    ///
    /// If the request is refused, a buffer of the purpose is returned to its pool. A registration
    /// stays with the caller, who tries again.
    ///
    /// # Safety
    /// Unless the request is inline, its local memory must stay valid and unchanged until the
    /// request completes. If it writes local memory, nothing else may access that until then.
    ///
    /// # Errors
    /// The send queue or the completion queue is full, the connection is not established, or the
    /// device refuses the request, which fails the connection.
    pub(in super::super) unsafe fn post(
        &mut self,
        conn: ConnectionId,
        window: u32,
        request: &Request<'_>,
        purpose: Purpose,
    ) -> Result<(), NoResource> {
        let Request { opcode, local, remote, flags } = *request;
        let full = self.free_slots(conn, window, flags.urgent) == 0;
        let connection = &self.connections[conn];
        let fence = flags.fence && (connection.needs_fence(opcode) || connection.has_order());
        let ordered = !flags.fence || self.may_follow(conn, opcode);
        let open = match connection.state {
            ConnectionState::Established => true,
            // Only urgent requests are accepted, so that operations in progress can complete.
            ConnectionState::Disconnecting { sent, .. } => !sent && flags.urgent,
            _ => false,
        };
        let connection = &mut self.connections[conn];
        let (Some(qp), true, false) = (connection.qp, open && ordered, full) else {
            self.stats.refused += 1;
            return Err(self.refuse(purpose));
        };
        let number = connection.posted + 1;
        // At least one request per quarter of the queue is signalled, so that slots become free.
        let signalled = flags.signalled
            || number - connection.last_signalled >= u64::from(self.limits.send_depth) / 4;
        let work = WorkRequest {
            opcode,
            id: number,
            local: local.addr,
            len: local.len,
            lkey: local.lkey,
            remote: remote.addr,
            rkey: remote.rkey,
            signalled,
            inline: flags.inline,
            fence,
            more: flags.more,
        };
        // SAFETY: the local memory stays valid until the request completes (contract of this
        // function).
        if let Err(error) = unsafe { self.device.post_send(qp, &work, local.segments) } {
            self.fail_connection(conn, &ConnectionError::Device(error));
            return Err(self.refuse(purpose));
        }
        connection.posted = number;
        connection.used = self.quota.polls;
        self.stats.posted += 1;
        self.stats.doorbells += u64::from(!flags.more);
        self.in_flight += 1;
        if signalled {
            connection.last_signalled = number;
            connection.signalled += 1;
            self.stats.signalled += 1;
        }
        match purpose {
            Purpose::Get { .. } => connection.last_read = number,
            Purpose::Put { .. } => connection.last_put = number,
            Purpose::Access(buffer)
                if self.accesses[buffer as usize].is_some_and(|access| access.is_accumulate()) =>
            {
                connection.last_accumulate = number;
            }
            _ => {}
        }
        if flags.remote_fence {
            connection.last_remote_fence = number;
        }
        let request = InFlight { number, window, purpose, remote_fence: flags.remote_fence };
        connection.in_flight.push_back(request);
        if let Some(slot) = self.slot(window) {
            slot.in_flight += 1;
        }
        Ok(())
    }

    /// Posts a request with a copy of `bytes`: inline if they are few, otherwise in a buffer.
    /// `flags.signalled` applies only to a request with a buffer; `flags.inline` is ignored.
    pub(in super::super) fn post_bytes(
        &mut self,
        conn: ConnectionId,
        window: u32,
        (opcode, remote): (Opcode, RemoteAddress),
        bytes: &[u8],
        flags: PostFlags,
        purpose: impl FnOnce(Held) -> Purpose,
    ) -> Result<(), NoResource> {
        let len = bytes.len() as u32;
        let inline = len <= self.limits.max_inline;
        let (local, held) = if inline {
            let addr = bytes.as_ptr() as usize;
            (LocalBuffer { addr, len, ..LocalBuffer::default() }, Held::Nothing)
        } else {
            let (buffer, addr, lkey) = self.buffer().ok_or(NoResource)?;
            assert!(bytes.len() <= super::PACKET, "{len} bytes do not fit into a buffer");
            // SAFETY: `bytes` is a slice; the buffer is ours alone and has `PACKET` bytes.
            unsafe { copy(bytes.as_ptr(), addr, bytes.len()) };
            (LocalBuffer { addr: addr as usize, len, lkey, segments: &[] }, Held::Buffer(buffer))
        };
        let flags = PostFlags { inline, signalled: flags.signalled && !inline, ..flags };
        let request = Request { opcode, local, remote, flags };
        // SAFETY: inline bytes are copied by the call; a buffer is held by the purpose until the
        // request completes.
        unsafe { self.post(conn, window, &request, purpose(held)) }
    }

    /// Posts a request without data.
    pub(in super::super) fn post_empty(
        &mut self,
        conn: ConnectionId,
        window: u32,
        opcode: Opcode,
        flags: PostFlags,
        purpose: Purpose,
    ) -> Result<(), NoResource> {
        let (local, remote) = (LocalBuffer::default(), RemoteAddress::default());
        // SAFETY: the request has no local memory.
        unsafe { self.post(conn, window, &Request { opcode, local, remote, flags }, purpose) }
    }

    /// How many requests of a window a connection accepts now.
    pub(super) fn free_slots(&self, conn: ConnectionId, window: u32, urgent: bool) -> u64 {
        let connection = &self.connections[conn];
        let slots = u64::from(self.limits.send_depth) - if urgent { 0 } else { RESERVED_SLOTS };
        slots
            .saturating_sub(connection.posted - connection.completed)
            .min(self.free_completions(window, urgent).into())
    }

    /// Entries of the completion queue for send requests. Unsignalled requests need one as well,
    /// because if their queue pair fails, each of them completes with an error.
    fn completion_entries(&self) -> u32 {
        self.limits.cq_depth - self.receive_buffers.len()
    }

    /// How many requests the completion queue has room for. The last entries are reserved for
    /// urgent requests and flush reads, which free others.
    fn free_completions(&self, window: u32, urgent: bool) -> u32 {
        let all = self.completion_entries();
        let reserved = match urgent {
            _ if window == NO_WINDOW => 0,
            true => all / 8,
            false => all / 4,
        };
        (all - reserved).saturating_sub(self.in_flight)
    }

    /// If half of the completion queue is taken, posts flush reads behind unsignalled requests, so
    /// that their entries become free.
    pub(super) fn reclaim_completions(&mut self) {
        if self.in_flight < self.completion_entries() / 2 {
            return;
        }
        for conn in 0..self.connections.len() {
            let connection = &self.connections[conn];
            if connection.posted > connection.last_signalled {
                self.post_flush_read(conn, NO_WINDOW);
            }
        }
    }

    /// Whether a request would be accepted now, unless the connection fails.
    pub(in super::super) fn has_slot(&mut self, conn: ConnectionId) -> bool {
        let free = self.connections[conn].state == ConnectionState::Established
            && self.free_slots(conn, 0, false) > 0;
        self.stats.refused += u64::from(!free);
        free
    }

    /// Whether a request that must be ordered behind gets and accumulates may be posted.
    pub(in super::super) fn may_follow(&self, conn: ConnectionId, opcode: Opcode) -> bool {
        let connection = &self.connections[conn];
        (self.limits.fences || !connection.needs_fence(opcode) && !connection.has_order())
            && !self.has_cas_loops(conn)
    }

    /// Has the next request with the fence flag follow all that were posted before. A device may
    /// place the bytes of a write after those of a later write; a read in between is executed when
    /// the earlier ones are in place, and the fence flag waits for the read.
    ///
    /// # Errors
    /// There is no room, or an accumulate may be repeated.
    pub(in super::super) fn order(
        &mut self,
        conn: ConnectionId,
        window: u32,
    ) -> Result<(), NoResource> {
        if self.has_cas_loops(conn) || !self.fence_puts(conn, window) {
            return Err(NoResource);
        }
        if !self.limits.fences {
            // The next request waits until this process knows that the earlier ones are complete.
            self.request_completion(conn, window);
        }
        let connection = &mut self.connections[conn];
        connection.ordered = connection.posted;
        Ok(())
    }

    /// Whether gets are in flight.
    pub(in super::super) fn has_gets(&self, conn: ConnectionId) -> bool {
        let connection = &self.connections[conn];
        connection.last_read > connection.completed
    }

    fn refuse(&mut self, purpose: Purpose) -> NoResource {
        if let Purpose::Put { held: Held::Buffer(buffer), .. }
        | Purpose::Get { held: Held::Buffer(buffer), .. }
        | Purpose::Fragment(Held::Buffer(buffer)) = purpose
        {
            self.buffers.give_back(buffer);
        }
        NoResource
    }

    pub(in super::super) fn last_posted(&self, conn: ConnectionId) -> PostedRequest {
        let connection = &self.connections[conn];
        PostedRequest { generation: connection.generation, number: connection.posted }
    }

    /// Whether a request is known to be complete.
    pub(in super::super) fn is_complete(&self, conn: ConnectionId, request: PostedRequest) -> bool {
        let connection = &self.connections[conn];
        request.generation != connection.generation || request.number <= connection.completed
    }

    // Remote fences.

    /// Whether a put was posted without a remote fence behind it.
    pub(in super::super) fn has_unfenced_puts(&self, conn: ConnectionId) -> bool {
        let connection = &self.connections[conn];
        connection.last_put > connection.last_remote_fence
    }

    /// Posts a remote fence behind the puts so far, unless there is one. Returns false if there was
    /// no room.
    pub(in super::super) fn fence_puts(&mut self, conn: ConnectionId, window: u32) -> bool {
        !self.has_unfenced_puts(conn) || self.post_flush_read(conn, window)
    }

    /// Makes sure that the completion of all requests so far will be reported.
    pub(in super::super) fn request_completion(&mut self, conn: ConnectionId, window: u32) {
        let connection = &self.connections[conn];
        if connection.posted > connection.last_signalled {
            self.post_flush_read(conn, window);
        } else {
            self.fence_puts(conn, window);
        }
    }

    /// Posts a read to learn whether the peer is alive, unless a completion is due anyway.
    pub(in super::super) fn probe(&mut self, conn: ConnectionId, window: u32) {
        if self.connections[conn].signalled == 0 {
            self.post_flush_read(conn, window);
        }
    }

    /// Posts an 8-byte read behind all requests so far. Returns false if there was no room.
    fn post_flush_read(&mut self, conn: ConnectionId, window: u32) -> bool {
        let connection = &self.connections[conn];
        if !matches!(
            connection.state,
            ConnectionState::Established | ConnectionState::Disconnecting { sent: false, .. }
        ) {
            return true;
        }
        let (target, load) = (connection.flush_target, AtomicOp::Word(Atomic::Load));
        let posted = self.access(conn, window, Requester::Nobody, target, load).is_ok();
        if posted {
            self.stats.remote_fences += 1;
            let connection = &mut self.connections[conn];
            connection.last_flush_read = connection.posted;
        }
        posted
    }

    // Puts that are flushed one by one.

    /// Posts a put of a few bytes, together with its remote fence if it is likely to be flushed
    /// next: one doorbell instead of two, and the fence leaves before the flush is called. In a
    /// long row of puts, several share a doorbell.
    pub(in super::super) fn post_put(
        &mut self,
        conn: ConnectionId,
        window: u32,
        to: (Opcode, RemoteAddress),
        bytes: &[u8],
        flags: PostFlags,
        purpose: impl FnOnce(Held) -> Purpose,
    ) -> Result<(), NoResource> {
        let inline = bytes.len() <= self.limits.max_inline as usize;
        let fenced =
            self.is_flushed_next(conn) && inline && self.has_room_for_flush_read(conn, window);
        let more = fenced || inline && self.connections[conn].is_within_row();
        self.post_bytes(conn, window, to, bytes, PostFlags { more, ..flags }, purpose)?;
        if fenced {
            // Fails only with the connection, which then loses the put too.
            self.post_flush_read(conn, window);
        }
        Ok(())
    }

    /// Notes that a put is about to be posted. Whether it is likely to be flushed next: so were
    /// several puts before, each alone, and each flush read is complete, so somebody has waited.
    fn is_flushed_next(&mut self, conn: ConnectionId) -> bool {
        const ENOUGH: u32 = 4;
        let connection = &mut self.connections[conn];
        let fence = connection.last_remote_fence;
        let is_first = connection.last_put <= fence;
        if is_first
            && connection.puts_together == 1
            && fence == connection.last_flush_read
            && fence <= connection.completed
        {
            connection.flushed_alone = connection.flushed_alone.saturating_add(1);
        } else {
            connection.flushed_alone = 0;
        }
        connection.puts_together =
            if is_first { 1 } else { connection.puts_together.saturating_add(1) };
        connection.flushed_alone >= ENOUGH
    }

    /// Whether a request and a flush read behind it would be accepted now.
    fn has_room_for_flush_read(&self, conn: ConnectionId, window: u32) -> bool {
        self.connections[conn].state == ConnectionState::Established
            && self.free_slots(conn, window, false) >= 2
            && self.word_buffers.has_free()
    }
}
