//! Accesses to 8-byte words of peers: lock words, signals, single elements, and flush reads.

use super::super::device::Opcode;
use super::super::handshake::RemoteAddress;
use super::{ConnectionId, Context, Held, LocalBuffer, PostFlags, Purpose, Request};
use crate::engine::{Atomic, LockTicket, NoResource, Stage, Ticket};
use crate::transport::datatype::Combine;

/// An operation on a word of a peer.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum AtomicOp {
    /// An access to a lock word, or an accumulate for which the device has an atomic.
    Word(Atomic),
    /// Any other reduction of an 8-byte element, with this operand.
    Reduce(Combine, u64),
}

impl AtomicOp {
    /// The new value for a word that holds `old`, if the device has no such atomic. The operation
    /// is then emulated by a loop of compare-and-swaps.
    fn emulated(self, old: u64) -> Option<u64> {
        match self {
            // The loop first expects 0, which the word nearly always holds.
            AtomicOp::Word(Atomic::Swap(new)) => Some(new),
            AtomicOp::Word(_) => None,
            AtomicOp::Reduce(combine, operand) => {
                let mut new = old;
                // SAFETY: operand and target are one element of 8 bytes each, of a native datatype.
                unsafe { combine.apply((&raw const operand).cast(), (&raw mut new).cast(), 8) };
                Some(new)
            }
        }
    }
}

/// Who gets the old value of a word.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Requester {
    Nobody,
    /// Nobody, and the access must not overtake earlier gets.
    Signal,
    Lock(LockTicket),
    /// An accumulate. The old value is stored at this address, unless that is 0.
    Operation(Ticket, usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WordAccess {
    window: u32,
    pub(super) conn: ConnectionId,
    /// The generation of the connection in which the access began.
    generation: u32,
    pub(super) requester: Requester,
    word: RemoteAddress,
    pub(super) op: AtomicOp,
    /// The old value that an emulated operation expects.
    expected: u64,
}

impl WordAccess {
    /// Whether later requests on the connection may take effect before this access does.
    fn is_cas_loop(&self) -> bool {
        self.is_accumulate() && matches!(self.op, AtomicOp::Reduce(..))
    }

    pub(super) fn is_accumulate(&self) -> bool {
        matches!(self.requester, Requester::Operation(..))
    }
}

impl Context {
    /// Starts an access to a word of a peer. The result becomes an event of `window`.
    pub(in super::super) fn access(
        &mut self,
        conn: ConnectionId,
        window: u32,
        requester: Requester,
        word: RemoteAddress,
        op: AtomicOp,
    ) -> Result<(), NoResource> {
        let Some(buffer) = self.word_buffers.take() else {
            self.stats.refused += 1;
            return Err(NoResource);
        };
        let generation = self.connections[conn].generation;
        let access = WordAccess { window, conn, generation, requester, word, op, expected: 0 };
        self.accesses[buffer as usize] = Some(access);
        self.post_access(buffer).inspect_err(|_| {
            self.accesses[buffer as usize] = None;
            self.word_buffers.give_back(buffer);
        })?;
        let connection = &mut self.connections[conn];
        connection.cas_loops += u32::from(access.is_cas_loop());
        connection.accumulates += u32::from(access.is_accumulate());
        Ok(())
    }

    /// Whether an accumulate may have to repeat its compare-and-swap. Until then, nothing that must
    /// be ordered behind it may be posted.
    pub(in super::super) fn has_cas_loops(&self, conn: ConnectionId) -> bool {
        self.connections[conn].cas_loops > 0
    }

    pub(in super::super) fn has_accumulates(&self, conn: ConnectionId) -> bool {
        self.connections[conn].accumulates > 0
    }

    /// Posts an access again, now or when there is room.
    pub(super) fn retry_access(&mut self, buffer: u32) {
        if self.post_access(buffer).is_ok() {
            return;
        }
        let WordAccess { conn, generation, .. } =
            self.accesses[buffer as usize].expect("an access in flight");
        if self.connections[conn].generation == generation {
            self.retry_queue.push(buffer);
        } else {
            // The connection has failed.
            self.free_access(buffer);
        }
    }

    fn post_access(&mut self, buffer: u32) -> Result<(), NoResource> {
        let WordAccess { window, conn, requester, word, op, expected, .. } =
            self.accesses[buffer as usize].expect("an access in flight");
        let opcode = match (op.emulated(expected), op) {
            (Some(new), _) => Opcode::CompareSwap { expected, new },
            (_, AtomicOp::Word(Atomic::Add(delta))) => Opcode::FetchAdd(delta),
            (_, AtomicOp::Word(Atomic::CompareSwap { expected, new })) => {
                Opcode::CompareSwap { expected, new }
            }
            _ => Opcode::Read,
        };
        let addr = self.word_buffers.addr(buffer);
        let lkey = self.word_buffers.region.lkey;
        let local = LocalBuffer { addr: addr as usize, len: 8, lkey, segments: &[] };
        if let AtomicOp::Word(Atomic::Store(value)) = op {
            // A store is a write and a read behind it, which makes the write visible. Both are
            // posted or none: repeating the write could undo a later write of another process.
            if self.free_slots(conn, window, true) < 2 {
                self.stats.refused += 1;
                return Err(NoResource);
            }
            // SAFETY: the buffer has 64 bytes, aligned to 64, and belongs to this access, which has
            // no request in flight.
            unsafe { addr.cast::<u64>().write(value) };
            let inline = self.limits.max_inline >= 8;
            let flags = PostFlags { inline, urgent: true, more: true, ..PostFlags::default() };
            let write = Request { opcode: Opcode::Write, local, remote: word, flags };
            // SAFETY: the buffer belongs to this access until it is freed. The read behind the
            // write stores into it after the write was executed, because a queue keeps its order.
            unsafe { self.post(conn, window, &write, Purpose::Fragment(Held::Nothing)) }?;
        }
        let fence = matches!(requester, Requester::Signal);
        let flags = PostFlags {
            signalled: true,
            remote_fence: true,
            urgent: true,
            fence,
            ..PostFlags::default()
        };
        let request = Request { opcode, local, remote: word, flags };
        // SAFETY: the buffer belongs to this access until it is freed, after the completion.
        unsafe { self.post(conn, window, &request, Purpose::Access(buffer)) }
    }

    /// Handles the response of an access: repeats the access, or passes on the old value.
    pub(super) fn finish_access(&mut self, buffer: u32) {
        let access = self.accesses[buffer as usize].as_mut().expect("an access in flight");
        // SAFETY: the buffer belongs to this access and is aligned to 64; the device has completed
        // its request.
        let old = unsafe { self.word_buffers.addr(buffer).cast::<u64>().read() };
        if access.op.emulated(old).is_some() && old != access.expected {
            access.expected = old;
            self.stats.retries += 1;
            return self.retry_access(buffer);
        }
        let WordAccess { window, requester, .. } = *access;
        self.free_access(buffer);
        match requester {
            Requester::Nobody | Requester::Signal => {}
            Requester::Lock(ticket) => {
                if let Some(events) = self.events_of(window) {
                    events.answers.push_back((ticket, old));
                }
            }
            Requester::Operation(ticket, to) => {
                if to != 0 && self.open_slot(window).is_some() {
                    // SAFETY: the application keeps the result buffer valid and untouched until the
                    // operation is complete [EP-8], which is reported after this.
                    unsafe { (to as *mut u64).write_unaligned(old) };
                }
                self.push_finished(window, ticket, Stage::Remote);
            }
        }
    }

    /// Ends an access that is complete or abandoned.
    pub(super) fn free_access(&mut self, buffer: u32) {
        let Some(access) = self.accesses[buffer as usize].take() else { return };
        self.word_buffers.give_back(buffer);
        let connection = &mut self.connections[access.conn];
        if connection.generation == access.generation {
            connection.cas_loops -= u32::from(access.is_cas_loop());
            connection.accumulates -= u32::from(access.is_accumulate());
        }
    }
}
