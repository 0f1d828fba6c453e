//! Progress: handling completions, and failing connections.

use super::super::device::{Completion, DeviceError};
use super::super::endpoint::decode_imm;
use super::access::WordAccess;
use super::connections::DISCONNECT;
use super::{
    AtomicOp, ConnectionError, ConnectionId, Context, Held, InFlight, Purpose, Requester,
    UnfencedPut,
};
use crate::engine::{Atomic, Stage};
use crate::transport::PACKET;
use crate::transport::copy;
use crate::transport::datatype;

/// Most batches of completions that one poll handles.
const MAX_BATCHES: u32 = 64;
/// Receives are posted again when 1/8 of the receive buffers are unposted.
const REPOST_FRACTION: u32 = 8;

/// What one poll of the completion queue has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Batch {
    Empty,
    /// All completions that there were.
    All,
    /// Some completions; there may be more.
    More,
}

impl Context {
    /// Makes progress: handles completions, and retries what waits for resources. Returns whether
    /// there were completions.
    pub fn poll(&mut self) -> bool {
        for buffer in std::mem::take(&mut self.retry_queue) {
            self.retry_access(buffer);
        }
        self.registrations.drop_stale(&mut *self.device);
        let mut moved = false;
        // Handles all completions, because a process that sees the end of a peer's operation must
        // also see what the peer has sent before.
        for _ in 0..MAX_BATCHES {
            let batch = self.take_batch();
            moved |= batch != Batch::Empty;
            if batch != Batch::More {
                break;
            }
        }
        if !moved {
            self.repost_receives();
        }
        self.reclaim_completions();
        self.drive_disconnects();
        self.look_for_events();
        moved
    }

    /// Handles a bounded number of completions.
    pub(in super::super) fn take_batch(&mut self) -> Batch {
        let more = !self.completions.is_empty() || self.device.poll(&mut self.completions);
        let count = self.completions.len();
        for _ in 0..count {
            // A failed connection drops completions from the queue.
            let Some(completion) = self.completions.pop_front() else { break };
            self.handle_completion(completion);
        }
        if self.unposted_receives.len() as u32 >= self.receive_buffers.len() / REPOST_FRACTION {
            self.repost_receives();
        }
        match (count, more) {
            (0, _) => Batch::Empty,
            (_, false) => Batch::All,
            (_, true) => Batch::More,
        }
    }

    fn handle_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Success(qp, number) => {
                if let Some(conn) = self.connection_of(qp) {
                    self.complete_up_to(conn, number);
                }
            }
            Completion::Received { qp, receive, len, imm, from_write } => {
                if let Some(conn) = self.connection_of(qp) {
                    self.handle_receive(conn, receive, len, imm, from_write);
                }
                self.unposted_receives.push(receive);
            }
            Completion::Error(qp, number, status) => {
                if let Some(conn) = self.connection_of(qp)
                    && !self.disconnect_failed(conn, number)
                {
                    let request = self.describe_request(conn, number);
                    let mut status = self.device.status_text(status);
                    self.read_events();
                    if self.port_is_down {
                        status.push_str("; the port of this process is down");
                    }
                    let error = ConnectionError::RequestFailed { request, status };
                    self.fail_connection(conn, &error);
                }
            }
            Completion::ReceiveReturned(receive) => self.unposted_receives.push(receive),
        }
    }

    /// Posts used receives again. Call it after their messages were handled, because the
    /// application may wait for those.
    fn repost_receives(&mut self) {
        while let Err(reason) = self.post_receives() {
            log::error!("verbs: a receive buffer is lost: {reason}");
        }
    }

    /// Posts unposted receives, up to the first that the device refuses.
    pub(super) fn post_receives(&mut self) -> Result<(), DeviceError> {
        while let Some(receive) = self.unposted_receives.pop() {
            let addr = self.receive_buffers.addr(receive) as usize;
            let lkey = self.receive_buffers.region.lkey;
            // SAFETY: the buffer is in no posted receive, its contents have been copied out, and it
            // is not touched before the receive completes.
            unsafe { self.device.post_receive(receive, addr, PACKET as u32, lkey) }?;
        }
        Ok(())
    }

    /// Handles a received message. The immediate of a write names a window and a counter. The
    /// immediate of a send names the window of the packet.
    fn handle_receive(
        &mut self,
        conn: ConnectionId,
        receive: u32,
        len: u32,
        imm: u32,
        from_write: bool,
    ) {
        // A message from the peer implies that its queue pair is in RTS.
        self.mark_established(conn);
        self.connections[conn].received += 1;
        if from_write {
            let (window, counter) = decode_imm(imm);
            if let Some(events) = self.events_of(window) {
                events.notifications.push_back((conn, counter));
            }
            return;
        }
        if imm == DISCONNECT {
            return self.handle_disconnect(conn);
        }
        let len = (len as usize).min(PACKET);
        let data = self.receive_buffers.addr(receive).cast_const();
        if self.open_slot(imm).is_none() {
            return log::warn!("verbs: dropped a packet of {len} bytes for unknown window {imm}");
        }
        let mut bytes = self.spare_packets.pop().unwrap_or_else(|| Vec::with_capacity(PACKET));
        bytes.clear();
        // SAFETY: the receive is complete, so the device has written `len` bytes to its buffer of
        // `PACKET` bytes and no longer accesses it.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(data, len) });
        if let Some(events) = self.events_of(imm) {
            events.packets.push_back((conn, bytes));
        }
    }

    /// Completes the requests of a connection up to `number`.
    pub(super) fn complete_up_to(&mut self, conn: ConnectionId, number: u64) {
        let connection = &mut self.connections[conn];
        self.in_flight -= number.saturating_sub(connection.completed) as u32;
        connection.completed = connection.completed.max(number);
        connection.signalled = connection.signalled.saturating_sub(1);
        let mut fenced = 0;
        while let Some(request) =
            self.connections[conn].in_flight.pop_front_if(|first| first.number <= number)
        {
            if request.remote_fence {
                fenced = request.number;
            }
            self.complete(conn, request);
        }
        while let Some(put) =
            self.connections[conn].unfenced.pop_front_if(|first| first.number <= fenced)
        {
            self.push_finished(put.window, put.ticket, Stage::Remote);
            self.end_request(put.window);
        }
    }

    /// Counts a request of a window as no longer in flight.
    fn end_request(&mut self, window: u32) {
        let Some(slot) = self.slot(window) else { return };
        slot.in_flight -= 1;
        if slot.closed && slot.in_flight == 0 {
            self.free_window(window);
        }
    }

    fn complete(&mut self, conn: ConnectionId, request: InFlight) {
        let InFlight { number, window, purpose, .. } = request;
        match purpose {
            Purpose::Put { ticket, locally_complete, held } => {
                self.release(held);
                if !locally_complete {
                    self.push_finished(window, ticket, Stage::Local);
                }
                let put = UnfencedPut { number, window, ticket };
                self.connections[conn].unfenced.push_back(put);
                // The put counts as in flight until a remote fence completes.
                return;
            }
            Purpose::Get { ticket, to, len, held, unpack } => {
                // If the window is closed, the result buffer may no longer exist.
                if let (Held::Buffer(buffer), true) = (&held, self.open_slot(window).is_some()) {
                    let (from, to) = (self.buffers.addr(*buffer), to as *mut u8);
                    // SAFETY: the device has filled the buffer. The application keeps the result
                    // buffer valid and untouched until the operation is complete [EP-8], which is
                    // reported after this.
                    unsafe {
                        match unpack {
                            Some(unpack) => {
                                let (side, first, len) = *unpack;
                                datatype::unpack(from, to, &side, first, len);
                            }
                            None => copy(from, to, len),
                        }
                    }
                }
                self.release(held);
                if let Some(ticket) = ticket {
                    self.push_finished(window, ticket, Stage::Remote);
                }
            }
            Purpose::Fragment(held) => self.release(held),
            Purpose::Access(buffer) => self.finish_access(buffer),
        }
        self.end_request(window);
    }

    /// Describes a request, for errors and the log.
    pub(super) fn describe_request(&self, conn: ConnectionId, number: u64) -> &'static str {
        let requests = &self.connections[conn].in_flight;
        let found = requests.iter().find(|request| request.number >= number);
        match found.map(|request| &request.purpose) {
            Some(Purpose::Put { .. }) => "a put (RDMA write)",
            Some(Purpose::Get { .. }) => "a get (RDMA read)",
            Some(Purpose::Fragment(_)) => "a packet, signal or part of a put",
            Some(Purpose::Access(buffer)) => match self.accesses[*buffer as usize] {
                Some(WordAccess { requester: Requester::Operation(..), .. }) => {
                    "an accumulate (RDMA atomic)"
                }
                Some(WordAccess { requester: Requester::Signal, .. }) => "a signal (RDMA atomic)",
                Some(WordAccess { op: AtomicOp::Word(Atomic::Load), .. }) => "a read of a word",
                Some(WordAccess { op: AtomicOp::Word(Atomic::Store(_)), .. }) => {
                    "a write of a word"
                }
                _ => "an atomic access to a lock word",
            },
            None => "a request",
        }
    }

    /// Fails the connections on which requests of a window are still in flight.
    #[cold]
    pub(in super::super) fn abort_window(&mut self, window: u32) {
        for conn in 0..self.connections.len() {
            let connection = &self.connections[conn];
            let requests = connection.in_flight.iter().map(|request| request.window);
            let mut windows = requests.chain(connection.unfenced.iter().map(|put| put.window));
            if windows.any(|other| other == window) {
                self.fail_connection(conn, &ConnectionError::Unresponsive);
            }
        }
    }

    /// Closes a failed connection: drops its requests, and reports the loss to all open windows. A
    /// window that is made later may connect to the peer again.
    #[cold]
    pub(super) fn fail_connection(&mut self, conn: ConnectionId, error: &ConnectionError) {
        // Done first, so that the device no longer accesses the memory of the requests.
        self.destroy_qp(conn);
        let connection = &mut self.connections[conn];
        let (in_flight, unfenced) =
            (std::mem::take(&mut connection.in_flight), std::mem::take(&mut connection.unfenced));
        for InFlight { window, purpose, .. } in in_flight {
            match purpose {
                Purpose::Put { held, .. } | Purpose::Get { held, .. } | Purpose::Fragment(held) => {
                    self.release(held)
                }
                Purpose::Access(buffer) => self.free_access(buffer),
            }
            self.end_request(window);
        }
        unfenced.into_iter().for_each(|put| self.end_request(put.window));
        for buffer in std::mem::take(&mut self.retry_queue) {
            match &self.accesses[buffer as usize] {
                Some(access) if access.conn != conn => self.retry_queue.push(buffer),
                _ => self.free_access(buffer),
            }
        }
        for window in 0..self.windows.len() as u32 {
            if let Some(events) = self.events_of(window) {
                events.lost.push_back((conn, error.clone()));
            }
        }
        self.close_connection(conn);
    }
}
