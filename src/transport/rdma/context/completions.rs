//! What has come to an end, or has come in; and what becomes of a queue that fails.

use super::super::device::{Completion, DeviceError};
use super::super::endpoint::told;
use super::connections::DISCONNECT;
use super::{
    AtomicOp, Context, Held, InFlight, Purpose, Requester, UnfencedPut, WindowEvent, WindowSlot,
    WordAccess,
};
use crate::engine::{Atomic, Stage};
use crate::transport::host_mpi::wire::PACKET;
use crate::transport::kernel::copy;
use crate::transport::shape::moves;

/// Batches of completions taken in by one poll.
const BATCHES: u32 = 64;
/// The part of the receive buffers that may be without a receive while more comes in.
const SPENT: u32 = 8;

/// What there was to be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::rdma) enum Batch {
    Empty,
    /// Completions, and there were no others.
    All,
    /// Completions, and perhaps there are more.
    More,
}

impl Context {
    /// Takes in what has come to an end. True if there was something.
    pub(in crate::transport::rdma) fn poll(&mut self) -> bool {
        for piece in std::mem::take(&mut self.retry_queue) {
            self.retry_access(piece);
        }
        self.registrations.tidy(&mut *self.device);
        let mut moved = false;
        // All that has come: who sees that an operation of a peer is over must see what it has told
        // as well.
        for _ in 0..BATCHES {
            let batch = self.take_batch();
            moved |= batch != Batch::Empty;
            if batch != Batch::More {
                break;
            }
        }
        if !moved {
            self.post_receives();
        }
        self.free_completions();
        self.leave();
        moved
    }

    /// Takes in a bounded number of completions.
    pub(in crate::transport::rdma) fn take_batch(&mut self) -> Batch {
        let mut completions = std::mem::take(&mut self.completions);
        let more = self.device.poll(&mut completions);
        let batch = match (completions.is_empty(), more) {
            (true, _) => Batch::Empty,
            (false, false) => Batch::All,
            (false, true) => Batch::More,
        };
        for completion in completions.drain(..) {
            match completion {
                Completion::Success(queue, number) => {
                    if let Some(index) = self.queues.get(&queue).copied() {
                        self.complete_up_to(index, number);
                    }
                }
                Completion::Received { queue, receive, len, number, bare } => {
                    if let Some(index) = self.queues.get(&queue).copied() {
                        self.received(index, receive, len, number, bare);
                    }
                    self.unposted_receives.push(receive);
                }
                Completion::Error(queue, number, code) => {
                    if let Some(index) = self.queues.get(&queue).copied()
                        && !self.disconnect_failed(index, number)
                    {
                        let purpose = self.describe_request(index, number);
                        let reason = format!("{purpose} has failed: {}", self.device.explain(code));
                        self.fail(index, &reason);
                    }
                }
                Completion::ReceiveError(receive, _) => self.unposted_receives.push(receive),
            }
        }
        self.completions = completions;
        if self.unposted_receives.len() as u32 >= self.receive_buffers.len() / SPENT {
            self.post_receives();
        }
        batch
    }

    /// What was taken out of them comes first: whoever waits for it does not wait for this.
    fn post_receives(&mut self) {
        while let Some(receive) = self.unposted_receives.pop() {
            self.post_receive(receive);
        }
    }

    fn post_receive(&mut self, receive: u32) {
        let (at, key) = (self.receive_buffers.at(receive) as usize, self.receive_buffers.key());
        // SAFETY: what it had was taken out; it is the interface's again.
        if let Err(DeviceError(reason)) =
            unsafe { self.device.receive(receive, at, PACKET as u32, key) }
        {
            log::error!("verbs: a receive buffer is lost: {reason}");
        }
    }

    /// The first 31 bits of what comes with a packet are the number of the window here; what comes
    /// with a write tells a number.
    fn received(&mut self, conn: u32, receive: u32, len: u32, number: u32, bare: bool) {
        // Whoever sends is ready.
        self.mark_established(conn);
        self.connections[conn as usize].heard += 1;
        if bare {
            let (window, told) = told(number);
            return self.push_event(window, WindowEvent::Notified(conn, told));
        }
        if number == DISCONNECT {
            return self.on_disconnect(conn);
        }
        let len = (len as usize).min(PACKET);
        let Some(Some(slot @ WindowSlot { closed: false, .. })) =
            self.slots.get_mut(number as usize)
        else {
            return log::warn!("verbs: a packet for a window that this process does not have");
        };
        let mut bytes = slot.spare.pop().unwrap_or_else(|| Vec::with_capacity(PACKET));
        bytes.clear();
        // SAFETY: the interface has written so many bytes there.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(self.receive_buffers.at(receive), len)
        });
        slot.events.push_back(WindowEvent::Packet(conn, bytes));
    }

    /// Requests of a peer are complete up to this one.
    pub(super) fn complete_up_to(&mut self, conn: u32, number: u64) {
        let connection = &mut self.connections[conn as usize];
        self.under_way -= number.saturating_sub(connection.done) as u32;
        connection.done = connection.done.max(number);
        connection.signalled = connection.signalled.saturating_sub(1);
        let mut covered = 0;
        while let Some(in_flight) =
            self.connections[conn as usize].in_flight.pop_front_if(|first| first.number <= number)
        {
            if in_flight.remote_fence {
                covered = in_flight.number;
            }
            self.complete(conn, in_flight);
        }
        while let Some(put) =
            self.connections[conn as usize].unfenced.pop_front_if(|first| first.number <= covered)
        {
            self.push_event(put.window, WindowEvent::Finished(put.ticket, Stage::Remote));
            self.request_done(put.window);
        }
    }

    /// One thing less is under way.
    fn request_done(&mut self, window: u32) {
        let Some(Some(slot)) = self.slots.get_mut(window as usize) else { return };
        slot.under_way -= 1;
        if slot.closed && slot.under_way == 0 {
            self.free_window(window);
        }
    }

    fn complete(&mut self, conn: u32, in_flight: InFlight) {
        let InFlight { number, window, purpose, .. } = in_flight;
        match purpose {
            Purpose::Put { ticket, told, hold } => {
                self.release(hold);
                if !told {
                    self.push_event(window, WindowEvent::Finished(ticket, Stage::Local));
                }
                self.connections[conn as usize].unfenced.push_back(UnfencedPut {
                    number,
                    window,
                    ticket,
                });
                // It stays under way until it is covered.
                return;
            }
            Purpose::Get { ticket, to, len, hold, unpack } => {
                if !self.is_open(window) {
                    // Nobody waits for it, and its result buffer may be gone.
                } else if let (Held::Buffer(piece), Some(unpack)) = (&hold, unpack) {
                    let (side, from, len) = *unpack;
                    // SAFETY: as below.
                    unsafe {
                        moves::unpack(self.buffers.at(*piece), to as *mut u8, &side, from, len)
                    };
                } else if let Held::Buffer(piece) = &hold {
                    // SAFETY: the interface has filled the buffer; the result buffer is the
                    // operation's until it is complete [EP-8].
                    unsafe { copy(self.buffers.at(*piece), to as *mut u8, len) };
                }
                self.release(hold);
                if let Some(ticket) = ticket {
                    self.push_event(window, WindowEvent::Finished(ticket, Stage::Remote));
                }
            }
            Purpose::Piece(hold) => self.release(hold),
            Purpose::WordAccess(piece) => self.finish_access(piece),
        }
        self.request_done(window);
    }

    pub(super) fn describe_request(&self, conn: u32, number: u64) -> String {
        let in_flight = self.connections[conn as usize]
            .in_flight
            .iter()
            .find(|in_flight| in_flight.number >= number);
        match in_flight.map(|in_flight| &in_flight.purpose) {
            Some(Purpose::Put { .. }) => "a put (RDMA write)".into(),
            Some(Purpose::Get { .. }) => "a get (RDMA read)".into(),
            Some(Purpose::Piece(_)) => "a packet, signal or part of a put".into(),
            Some(Purpose::WordAccess(piece)) => match self.word_accesses[*piece as usize] {
                Some(WordAccess { requester: Requester::Operation(..), .. }) => {
                    "an accumulate (RDMA atomic)".into()
                }
                Some(WordAccess { requester: Requester::Signal, .. }) => {
                    "a signal (RDMA atomic)".into()
                }
                Some(WordAccess { op: AtomicOp::Word(Atomic::Load), .. }) => {
                    "a read of a word".into()
                }
                Some(WordAccess { op: AtomicOp::Word(Atomic::Store(_)), .. }) => {
                    "a write of a word".into()
                }
                _ => "an atomic access to a word of the lock service".into(),
            },
            None => "a request".into(),
        }
    }

    /// The queues on which something of a window does not end are taken for failed.
    #[cold]
    pub(in crate::transport::rdma) fn give_up(&mut self, window: u32) {
        for conn in 0..self.connections.len() as u32 {
            let connection = &self.connections[conn as usize];
            let mut windows = connection
                .in_flight
                .iter()
                .map(|in_flight| in_flight.window)
                .chain(connection.unfenced.iter().map(|put| put.window));
            if windows.any(|other| other == window) {
                self.fail(
                    conn,
                    "it does not answer, and a window that it shares has lost a process",
                );
            }
        }
    }

    /// A queue has failed: what was under way on it is given up. Windows that meet the peer after
    /// this make a new one.
    #[cold]
    pub(super) fn fail(&mut self, conn: u32, reason: &str) {
        // After this the interface reads and writes nothing of it.
        self.destroy_qp(conn);
        let connection = &mut self.connections[conn as usize];
        let (in_flight, unfenced) =
            (std::mem::take(&mut connection.in_flight), std::mem::take(&mut connection.unfenced));
        for InFlight { window, purpose, .. } in in_flight {
            match purpose {
                Purpose::Put { hold, .. } | Purpose::Get { hold, .. } | Purpose::Piece(hold) => {
                    self.release(hold)
                }
                Purpose::WordAccess(piece) => self.free_access(piece),
            }
            self.request_done(window);
        }
        for put in unfenced {
            self.request_done(put.window);
        }
        for piece in std::mem::take(&mut self.retry_queue) {
            if self.word_accesses[piece as usize].as_ref().is_some_and(|access| access.conn != conn)
            {
                self.retry_queue.push(piece);
            } else {
                self.free_access(piece);
            }
        }
        for slot in self.slots.iter_mut().flatten().filter(|slot| !slot.closed) {
            slot.events.push_back(WindowEvent::Lost(conn, reason.to_owned()));
        }
        self.close_connection(conn);
    }
}
