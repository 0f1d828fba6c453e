//! Requests to peers: handed over, covered, and those that access words.

use super::super::device::{DeviceError, Opcode, WorkRequest};
use super::super::handshake::RemoteAddress;
use super::{
    AtomicOp, ConnectionState, Context, Held, InFlight, LocalBuffer, NO_WINDOW, PostFlags, Purpose,
    Requester, WindowEvent, WordAccess,
};
use crate::engine::{Atomic, NoResource, Stage, Ticket};
use crate::transport::kernel::copy;

/// Names a request to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::transport::rdma) struct PostedRequest {
    generation: u32,
    number: u64,
}

/// Places of a queue that are kept for what must not be refused for long.
const RESERVED_SLOTS: u64 = 4;

impl Context {
    /// Hands a request over. `what` is told to `window` when it is complete. If it is refused, its
    /// buffer is given back; a registration is its operation's, which tries again.
    ///
    /// # Safety
    /// Local memory must stay as it is until the request is complete, unless it is copied; what it
    /// is read into is nobody else's.
    #[expect(clippy::too_many_arguments, reason = "a request has as many parts")]
    pub(in crate::transport::rdma) unsafe fn post(
        &mut self,
        conn: u32,
        window: u32,
        act: Opcode,
        local: LocalBuffer<'_>,
        remote: RemoteAddress,
        flags: PostFlags,
        purpose: Purpose,
    ) -> Result<(), NoResource> {
        let full = self.places(conn, window, flags.urgent) == 0;
        let connection = &mut self.connections[conn as usize];
        let fence = flags.fence && connection.last_read > connection.done;
        let open = match connection.state {
            ConnectionState::Established => true,
            // What was begun is brought to its end.
            ConnectionState::Disconnecting { said, .. } => !said && flags.urgent,
            _ => false,
        };
        let (Some(queue), true, false) =
            (connection.queue, open && (self.limits.fences || !fence), full)
        else {
            self.stats.refused += 1;
            return Err(self.refuse(purpose));
        };
        let number = connection.posted + 1;
        // So that places become free though nobody waits.
        let signalled = flags.signalled
            || number - connection.last_signalled >= u64::from(self.limits.queue) / 4;
        let work = WorkRequest {
            act,
            number,
            local: local.at,
            len: local.len,
            lkey: local.lkey,
            remote: remote.at,
            rkey: remote.rkey,
            signalled,
            inline: flags.inline,
            fence,
        };
        // SAFETY: the caller's promise.
        if let Err(DeviceError(reason)) = unsafe { self.device.post(queue, &work, local.parts) } {
            self.fail(conn, &reason);
            return Err(self.refuse(purpose));
        }
        connection.posted = number;
        connection.used = self.quota.polls;
        self.stats.posted += 1;
        self.under_way += 1;
        if signalled {
            connection.last_signalled = number;
            connection.signalled += 1;
            self.stats.signalled += 1;
        }
        match purpose {
            Purpose::Get { .. } => connection.last_read = number,
            Purpose::Put { .. } => connection.last_put = number,
            _ => {}
        }
        if flags.remote_fence {
            connection.last_remote_fence = number;
        }
        connection.in_flight.push_back(InFlight {
            number,
            window,
            purpose,
            remote_fence: flags.remote_fence,
        });
        if let Some(Some(slot)) = self.slots.get_mut(window as usize) {
            slot.under_way += 1;
        }
        Ok(())
    }

    /// Requests of a window that a queue takes now.
    fn places(&self, conn: u32, window: u32, urgent: bool) -> u64 {
        let connection = &self.connections[conn as usize];
        let room = u64::from(self.limits.queue) - if urgent { 0 } else { RESERVED_SLOTS };
        room.saturating_sub(connection.posted - connection.done)
            .min(self.free(window, urgent).into())
    }

    /// Requests for which there are completions: all those of a queue that fails have one, not only
    /// those that are signalled. The last places are for reads behind others, which make places
    /// free.
    fn free(&self, window: u32, urgent: bool) -> u32 {
        let all = self.limits.completions - self.receive_buffers.len();
        let kept = match urgent {
            _ if window == NO_WINDOW => 0,
            true => all / 8,
            false => all / 4,
        };
        (all - kept).saturating_sub(self.under_way)
    }

    /// Where completions run short, has those told that nobody waits for: a place is free only when
    /// a later one of its queue was.
    pub(super) fn free_completions(&mut self) {
        if self.under_way < (self.limits.completions - self.receive_buffers.len()) / 2 {
            return;
        }
        for conn in 0..self.connections.len() as u32 {
            let connection = &self.connections[conn as usize];
            if connection.posted > connection.last_signalled {
                self.post_flush_read(conn, NO_WINDOW);
            }
        }
    }

    /// True if a request is not refused, but for a queue that fails.
    pub(in crate::transport::rdma) fn has_slot(&mut self, conn: u32) -> bool {
        let room = self.connections[conn as usize].state == ConnectionState::Established
            && self.places(conn, 0, false) > 0;
        self.stats.refused += u64::from(!room);
        room
    }

    fn refuse(&mut self, purpose: Purpose) -> NoResource {
        if let Purpose::Put { hold: Held::Buffer(piece), .. }
        | Purpose::Get { hold: Held::Buffer(piece), .. }
        | Purpose::Piece(Held::Buffer(piece)) = purpose
        {
            self.buffers.give_back(piece);
        }
        NoResource
    }

    /// Local memory for so many bytes of the caller's, which are copied, and what holds it: into
    /// the request itself, or into a buffer.
    ///
    /// # Safety
    /// The bytes can be read until the request is handed over, and are no more than [`PACKET`].
    pub(in crate::transport::rdma) unsafe fn copied(
        &mut self,
        at: *const u8,
        len: usize,
    ) -> Result<(LocalBuffer<'static>, Held), NoResource> {
        if len as u64 <= self.inline() {
            return Ok((
                LocalBuffer { at: at as usize, len: len as u32, ..LocalBuffer::default() },
                Held::Nothing,
            ));
        }
        let (piece, buffer, lkey) = self.buffer().ok_or(NoResource)?;
        // SAFETY: the caller's promise; a buffer has room for so many.
        unsafe { copy(at, buffer, len) };
        Ok((
            LocalBuffer { at: buffer as usize, len: len as u32, lkey, parts: &[] },
            Held::Buffer(piece),
        ))
    }

    /// Another operation is complete, and covered, with the request that was handed over last.
    pub(in crate::transport::rdma) fn attach_to_last(
        &mut self,
        conn: u32,
        window: u32,
        ticket: Ticket,
    ) {
        let connection = &mut self.connections[conn as usize];
        let purpose = Purpose::Put { ticket, told: true, hold: Held::Nothing };
        connection.in_flight.push_back(InFlight {
            number: connection.posted,
            window,
            purpose,
            remote_fence: false,
        });
        if let Some(Some(slot)) = self.slots.get_mut(window as usize) {
            slot.under_way += 1;
        }
    }

    /// Sees to it that the puts so far to a peer will be covered, if some are under way that will
    /// not be. False if there was no room.
    pub(in crate::transport::rdma) fn cover(&mut self, conn: u32, window: u32) -> bool {
        !self.has_unfenced_puts(conn) || self.post_flush_read(conn, window)
    }

    /// The number of the last request handed over to a peer, with the generation of its queue.
    pub(in crate::transport::rdma) fn last(&self, conn: u32) -> PostedRequest {
        let connection = &self.connections[conn as usize];
        PostedRequest { generation: connection.generation, number: connection.posted }
    }

    /// A request is known to be complete.
    pub(in crate::transport::rdma) fn is_complete(
        &self,
        conn: u32,
        request: PostedRequest,
    ) -> bool {
        let connection = &self.connections[conn as usize];
        request.generation != connection.generation || request.number <= connection.done
    }

    /// Puts are under way, or acknowledged, that nothing on the queue covers.
    pub(in crate::transport::rdma) fn has_unfenced_puts(&self, conn: u32) -> bool {
        let connection = &self.connections[conn as usize];
        connection.last_put > connection.last_remote_fence
    }

    /// Sees to it that the end of all requests to a peer so far will be told.
    pub(in crate::transport::rdma) fn mark(&mut self, conn: u32, window: u32) {
        let connection = &self.connections[conn as usize];
        if connection.posted > connection.last_signalled {
            self.post_flush_read(conn, window);
        } else {
            self.cover(conn, window);
        }
    }

    /// Asks a peer whether it is still there, if no answer of it is under way.
    pub(in crate::transport::rdma) fn probe(&mut self, conn: u32, window: u32) {
        if self.connections[conn as usize].signalled == 0 {
            self.post_flush_read(conn, window);
        }
    }

    /// A read behind all requests to a peer so far. False if there was no room.
    fn post_flush_read(&mut self, conn: u32, window: u32) -> bool {
        let connection = &self.connections[conn as usize];
        if !matches!(
            connection.state,
            ConnectionState::Established | ConnectionState::Disconnecting { said: false, .. }
        ) {
            return true;
        }
        let flush_target = connection.flush_target;
        let posted = self
            .access(conn, window, Requester::Nobody, flush_target, AtomicOp::Word(Atomic::Load))
            .is_ok();
        self.stats.remote_fences += u64::from(posted);
        posted
    }

    /// Starts an access to a word of a peer; whoever has asked for it is told of its end.
    pub(in crate::transport::rdma) fn access(
        &mut self,
        conn: u32,
        window: u32,
        requester: Requester,
        word: RemoteAddress,
        op: AtomicOp,
    ) -> Result<(), NoResource> {
        let Some(piece) = self.atomic_buffers.take() else {
            self.stats.refused += 1;
            return Err(NoResource);
        };
        let generation = self.connections[conn as usize].generation;
        let access = WordAccess { window, conn, generation, requester, word, op, expected: 0 };
        self.word_accesses[piece as usize] = Some(access);
        self.start_access(piece).inspect_err(|_| {
            self.word_accesses[piece as usize] = None;
            self.atomic_buffers.give_back(piece);
        })?;
        let connection = &mut self.connections[conn as usize];
        connection.cas_loops += u32::from(access.holds_up());
        connection.atomics_in_flight += u32::from(access.is_operation());
        Ok(())
    }

    /// An operation on a peer may still have to be tried again: nothing may go there that must be
    /// behind it.
    pub(in crate::transport::rdma) fn has_cas_loops(&self, conn: u32) -> bool {
        self.connections[conn as usize].cas_loops > 0
    }

    /// Operations on words of a peer are under way.
    pub(in crate::transport::rdma) fn has_atomics_in_flight(&self, conn: u32) -> bool {
        self.connections[conn as usize].atomics_in_flight > 0
    }

    /// Tries an access once more: now, or when there is room.
    pub(super) fn retry_access(&mut self, piece: u32) {
        if self.start_access(piece).is_ok() {
            return;
        }
        let WordAccess { conn, generation, .. } =
            self.word_accesses[piece as usize].expect("an access under way");
        if self.connections[conn as usize].generation == generation {
            self.retry_queue.push(piece);
        } else {
            // Its queue has failed.
            self.free_access(piece);
        }
    }

    fn start_access(&mut self, piece: u32) -> Result<(), NoResource> {
        let WordAccess { window, conn, requester, word, op, expected, .. } =
            self.word_accesses[piece as usize].expect("an access under way");
        let at = self.atomic_buffers.at(piece);
        let act = match (op.from(expected), op) {
            (Some(new), _) => Opcode::CompareSwap { expected: expected, new },
            (_, AtomicOp::Word(Atomic::Add(delta))) => Opcode::FetchAdd(delta),
            (_, AtomicOp::Word(Atomic::CompareSwap { expected, new })) => {
                Opcode::CompareSwap { expected, new }
            }
            _ => Opcode::Read,
        };
        let local =
            LocalBuffer { at: at as usize, len: 8, lkey: self.atomic_buffers.key(), parts: &[] };
        if let AtomicOp::Word(Atomic::Store(value)) = op {
            // It is there for everybody when what is read behind it has come. A write that is
            // repeated might undo what others did: both go, or none.
            if self.places(conn, window, true) < 2 {
                self.stats.refused += 1;
                return Err(NoResource);
            }
            // SAFETY: the piece is this access's.
            unsafe { at.cast::<u64>().write(value) };
            let flags =
                PostFlags { inline: self.limits.inline >= 8, urgent: true, ..PostFlags::default() };
            // SAFETY: as below.
            unsafe {
                self.post(
                    conn,
                    window,
                    Opcode::Write,
                    local,
                    word,
                    flags,
                    Purpose::Piece(Held::Nothing),
                )
            }?;
        }
        let fence = matches!(requester, Requester::Signal);
        let flags =
            PostFlags { signalled: true, remote_fence: true, urgent: true, fence, inline: false };
        // SAFETY: the piece is the request's until it is complete.
        unsafe { self.post(conn, window, act, local, word, flags, Purpose::WordAccess(piece)) }
    }

    /// An access has been answered.
    pub(super) fn finish_access(&mut self, piece: u32) {
        let access = self.word_accesses[piece as usize].as_mut().expect("an access under way");
        // SAFETY: the interface has written the old value there and is done with it.
        let old = unsafe { self.atomic_buffers.at(piece).cast::<u64>().read() };
        if access.op.from(old).is_some() && old != access.expected {
            access.expected = old;
            self.stats.retries += 1;
            return self.retry_access(piece);
        }
        let access = *access;
        self.free_access(piece);
        match access.requester {
            Requester::Nobody | Requester::Signal => {}
            Requester::Lock(ticket) => {
                self.push_event(access.window, WindowEvent::Answer(ticket, old))
            }
            Requester::Operation(ticket, to) => {
                if to != 0 && self.is_open(access.window) {
                    // SAFETY: the result buffer is the operation's until it is complete [EP-8].
                    unsafe { (to as *mut u64).write_unaligned(old) };
                }
                self.push_event(access.window, WindowEvent::Finished(ticket, Stage::Remote));
            }
        }
    }

    /// An access is over, or given up.
    pub(super) fn free_access(&mut self, piece: u32) {
        let Some(access) = self.word_accesses[piece as usize].take() else { return };
        self.atomic_buffers.give_back(piece);
        let connection = &mut self.connections[access.conn as usize];
        if connection.generation == access.generation {
            connection.cas_loops -= u32::from(access.holds_up());
            connection.atomics_in_flight -= u32::from(access.is_operation());
        }
    }
}

impl WordAccess {
    /// What follows it on the queue may come before its end.
    fn holds_up(&self) -> bool {
        matches!((self.requester, self.op), (Requester::Operation(..), AtomicOp::Reduce(..)))
    }

    fn is_operation(&self) -> bool {
        matches!(self.requester, Requester::Operation(..))
    }
}
