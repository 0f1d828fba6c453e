//! Connections: queue pairs are created on demand, connected by a handshake, and disconnected when
//! others need their place.
//!
//! **Disconnecting.** A process that needs the place of a queue pair waits until its requests there
//! are complete, and sends a *disconnect* message. The peer does the same. A queue pair keeps its
//! order, so nothing arrives behind the peer's disconnect, and nothing is in flight once one's own
//! disconnect is complete. Then both sides destroy the queue pair and start the next *generation*
//! of the connection, which tells its handshake messages from earlier ones. Addresses of registered
//! memory stay known, so connecting again takes only a handshake.
//!
//! A queue pair outlives the peer's disconnect by some polls. A device may deliver the disconnect
//! before it acknowledges it, and a peer without an acknowledgement retries for seconds.

use super::super::device::{DeviceError, Opcode, PortAddress};
use super::super::handshake::{Handshake, NO_WINDOW, ProcessId, QpStatus, RemoteAddress};
use super::{Batch, Completion, Connection, ConnectionId, Context, Held, PostFlags, Purpose};

/// The immediate of a disconnect message, in place of a window.
pub(super) const DISCONNECT: u32 = NO_WINDOW;
/// Polls after which a queue pair is created in spite of the limit, because a peer that computes
/// does not answer a disconnect.
const MAX_WAIT_POLLS: u64 = 1 << 14;
/// Polls for which a new queue pair is kept although it is unused.
const UNUSED_POLLS: u64 = 256;
/// Polls for which an unconnected queue pair is kept for a process with a lower id.
const YIELD_POLLS: u64 = 1 << 10;
/// Polls for which a queue pair outlives the peer's disconnect.
const TIME_WAIT_POLLS: u64 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum ConnectionState {
    /// There is no queue pair.
    #[default]
    Closed,
    /// The queue pair is not connected.
    Created,
    /// The queue pair is connected (RTS). The peer's may not be.
    Connected,
    /// Both queue pairs are connected.
    Established,
    /// The connection is being closed.
    Disconnecting {
        /// This process has sent its disconnect.
        sent: bool,
        /// When the peer's disconnect arrived, in polls.
        received: Option<u64>,
    },
}

/// The number of queue pairs, and the connections that need one.
#[derive(Debug, Default)]
pub(super) struct QpQuota {
    /// Queue pairs, without that of the loopback connection.
    in_use: u32,
    limit: u32,
    disconnecting: Vec<ConnectionId>,
    /// Connections that need a queue pair, each with the poll since which it waits.
    waiting: Vec<(ConnectionId, u64)>,
    /// Polls so far: the clock of this file.
    pub(super) polls: u64,
    /// The limit was reached at some time.
    was_short: bool,
    /// The log already says that the limit is exceeded.
    warned: bool,
}

impl QpQuota {
    pub(super) fn new(limit: u32) -> Self {
        QpQuota { limit: limit.max(1), ..QpQuota::default() }
    }

    fn forget(&mut self, conn: ConnectionId) {
        self.waiting.retain(|(other, _)| *other != conn);
    }
}

/// How to go on with a handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum HandshakeOutcome {
    /// Answer it.
    Proceed,
    /// Handle it again later, because a queue pair is not available yet.
    Retry,
    /// Answer that the sender has to create its queue pair first.
    PeerFirst,
}

impl Context {
    /// Limits the number of queue pairs, not counting that of the loopback connection. The limit is
    /// exceeded if peers do not answer a disconnect.
    pub fn set_max_qps(&mut self, limit: u32) {
        self.quota.limit = limit.clamp(1, self.limits.max_qps.max(1));
    }

    /// Queue pairs in use, without that of the loopback connection.
    #[must_use]
    pub fn qps_in_use(&self) -> u32 {
        self.quota.in_use
    }

    /// The connection to a process. It may be closed.
    pub(in super::super) fn connection_to(&mut self, peer: ProcessId) -> ConnectionId {
        let next = self.connections.len();
        let conn = *self.by_process.entry(peer).or_insert(next);
        if conn == next {
            let is_higher = self.process > peer;
            self.connections.push(Connection { is_higher, ..Connection::default() });
        }
        conn
    }

    pub(in super::super) fn connection_state(&self, conn: ConnectionId) -> ConnectionState {
        self.connections[conn].state
    }

    /// The state of a connection's queue pair, for the peer.
    pub(in super::super) fn qp_status(&self, conn: ConnectionId) -> QpStatus {
        let Connection { state, generation, qp_number, .. } = self.connections[conn];
        let connected = matches!(state, ConnectionState::Connected | ConnectionState::Established);
        let exists = connected || state == ConnectionState::Created;
        QpStatus { generation, number: if exists { qp_number } else { 0 }, connected }
    }

    /// Creates or connects the queue pair of a connection, as far as a handshake message allows.
    pub(in super::super) fn handle_handshake(
        &mut self,
        conn: ConnectionId,
        message: &Handshake,
    ) -> Result<HandshakeOutcome, DeviceError> {
        self.address().check_partition(&message.address)?;
        let needs_qp = message.step.needs_qp();
        let peers = message.qp;
        let known = peers.generation != QpStatus::UNKNOWN.generation;
        // In a later generation, the peer has closed the connection that this process still has.
        if known
            && peers.generation > self.connections[conn].generation
            && !self.peer_closed(conn, peers.generation)
        {
            return Ok(HandshakeOutcome::Retry);
        }
        let Connection { state, is_higher, generation, .. } = self.connections[conn];
        let has_number = known && peers.generation == generation && peers.number != 0;
        match state {
            ConnectionState::Closed
                if needs_qp && self.quota.was_short && is_higher && peers.number == 0 =>
            {
                return Ok(HandshakeOutcome::PeerFirst);
            }
            // Nothing is left to do. Waiting could take forever, because the sender may already be
            // finalizing and never disconnect.
            ConnectionState::Disconnecting { .. } if has_number && !needs_qp => {
                return Ok(HandshakeOutcome::Proceed);
            }
            _ if !needs_qp && !has_number => self.quota.forget(conn),
            _ if self.ensure_qp(conn)? => {}
            _ => return Ok(HandshakeOutcome::Retry),
        }
        if has_number {
            self.connect_qp(conn, peers.number, &message.address, message.flush_target)?;
            if peers.connected {
                self.mark_established(conn);
            }
        }
        Ok(HandshakeOutcome::Proceed)
    }

    /// Creates the queue pair of a connection if it has none. Returns false if another call is
    /// needed.
    fn ensure_qp(&mut self, conn: ConnectionId) -> Result<bool, DeviceError> {
        match self.connections[conn].state {
            ConnectionState::Closed => {}
            ConnectionState::Disconnecting { .. } => return Ok(false),
            _ => return Ok(true),
        }
        let now = self.quota.polls;
        let since = match self.quota.waiting.iter().find(|(other, _)| *other == conn) {
            Some((_, since)) => *since,
            None => {
                self.quota.waiting.push((conn, now));
                now
            }
        };
        let is_loopback = self.connections[conn].is_loopback;
        let too_many = self.quota.in_use >= self.quota.limit && !is_loopback;
        let waits = too_many && now - since < MAX_WAIT_POLLS;
        if waits && self.quota.in_use - self.unresponsive() >= self.quota.limit {
            self.make_room();
            return Ok(false);
        }
        if too_many && !std::mem::replace(&mut self.quota.warned, true) {
            log::info!(
                "verbs: more than {} queue pairs: peers do not answer disconnect requests",
                self.quota.limit
            );
        }
        match self.device.create_qp() {
            Ok((qp, number)) => {
                self.quota.forget(conn);
                self.quota.in_use += u32::from(!is_loopback);
                self.stats.qps_created += 1;
                let connection = &mut self.connections[conn];
                (connection.qp, connection.qp_number) = (Some(qp), number);
                (connection.state, connection.used) = (ConnectionState::Created, now);
                let at = qp.0 as usize;
                if at >= self.by_qp.len() {
                    self.by_qp.resize(at + 1, None);
                }
                self.by_qp[at] = Some(conn);
                Ok(true)
            }
            // Queue pairs need locked memory, which cached registrations may have exhausted.
            Err(_) if self.registrations.evict(&mut *self.device, 1) => Ok(false),
            // The device is exhausted. Lower the limit, and disconnect another connection.
            Err(_) if self.quota.in_use > 0 && now - since < MAX_WAIT_POLLS => {
                self.quota.limit = self.quota.limit.min(self.quota.in_use);
                self.make_room();
                Ok(false)
            }
            Err(error) => {
                self.quota.forget(conn);
                Err(error)
            }
        }
    }

    /// Number of connections whose peers have not answered a disconnect for `MAX_WAIT_POLLS`. This
    /// process does not wait for them again. If it did, a peer that has created a queue pair for it
    /// would give that up before the wait is over and ask again, and the two would never connect.
    fn unresponsive(&self) -> u32 {
        let waits_long = |conn: &&ConnectionId| {
            let Connection { state, used, .. } = self.connections[**conn];
            matches!(state, ConnectionState::Disconnecting { sent: true, received: None })
                && self.quota.polls - used >= MAX_WAIT_POLLS
        };
        self.quota.disconnecting.iter().filter(waits_long).count() as u32
    }

    /// Disconnects idle connections, as many as there are others that wait for a queue pair.
    fn make_room(&mut self) {
        self.quota.was_short = true;
        loop {
            let unresponsive = self.unresponsive();
            let in_use = self.quota.in_use - unresponsive;
            let free = self.quota.limit.saturating_sub(in_use) as usize;
            let soon_free = self.quota.disconnecting.len() - unresponsive as usize;
            if free + soon_free >= self.quota.waiting.len() {
                return;
            }
            let candidates = (0..self.connections.len()).filter(|conn| self.can_disconnect(*conn));
            let Some(oldest) = candidates.min_by_key(|conn| self.connections[*conn].used) else {
                return;
            };
            if self.connections[oldest].state == ConnectionState::Created {
                // The peer learns of this when it answers.
                self.close_connection(oldest);
            } else {
                self.start_disconnect(oldest, None);
                self.drive_disconnect(oldest);
            }
        }
    }

    /// Whether a connection may be closed for another one: it is idle, and was used or had time
    /// enough to be used.
    fn can_disconnect(&self, conn: ConnectionId) -> bool {
        let connection = &self.connections[conn];
        if connection.is_loopback || connection.generation >= QpStatus::UNKNOWN.generation - 1 {
            return false;
        }
        let age = self.quota.polls - connection.used;
        match connection.state {
            ConnectionState::Established => {
                (connection.posted + connection.received > 0 || age >= UNUSED_POLLS)
                    && self.is_idle(conn)
            }
            // The peer may hold a queue pair and wait for a third process, and so on. If each waits
            // only for a process with a higher id, there is no cycle. So the others give up soon.
            ConnectionState::Created => {
                age >= if connection.is_higher { YIELD_POLLS } else { MAX_WAIT_POLLS / 2 }
            }
            _ => false,
        }
    }

    /// Whether nothing is left in flight once a last message is complete.
    fn is_idle(&self, conn: ConnectionId) -> bool {
        let connection = &self.connections[conn];
        let is_here = |buffer: &u32| {
            self.accesses[*buffer as usize].as_ref().is_some_and(|access| access.conn == conn)
        };
        let is_fragment = |purpose: &Purpose| matches!(purpose, Purpose::Fragment(_));
        connection.unfenced.is_empty()
            && connection.in_flight.iter().all(|request| is_fragment(&request.purpose))
            && !self.retry_queue.iter().any(is_here)
    }

    fn start_disconnect(&mut self, conn: ConnectionId, received: Option<u64>) {
        self.connections[conn].state = ConnectionState::Disconnecting { sent: false, received };
        self.quota.disconnecting.push(conn);
    }

    /// Handles the peer's disconnect.
    pub(super) fn handle_disconnect(&mut self, conn: ConnectionId) {
        let now = Some(self.quota.polls);
        match &mut self.connections[conn].state {
            ConnectionState::Disconnecting { received, .. } => *received = now,
            ConnectionState::Closed => {}
            _ => self.start_disconnect(conn, now),
        }
    }

    /// Makes progress with all connections that are being closed.
    pub(super) fn drive_disconnects(&mut self) {
        self.quota.polls += 1;
        for at in (0..self.quota.disconnecting.len()).rev() {
            if let Some(conn) = self.quota.disconnecting.get(at) {
                self.drive_disconnect(*conn);
            }
        }
    }

    fn drive_disconnect(&mut self, conn: ConnectionId) {
        let ConnectionState::Disconnecting { sent, received } = self.connections[conn].state else {
            return;
        };
        if sent {
            if received.is_some_and(|since| self.quota.polls - since >= TIME_WAIT_POLLS)
                && self.is_drained(conn)
            {
                self.close_connection(conn);
            }
        } else if !self.connections[conn].in_flight.is_empty() {
            // The disconnect is posted when nothing else is in flight. It fails if the peer
            // destroys its queue pair before the acknowledgement, and then nothing else is lost.
            self.request_completion(conn, NO_WINDOW);
        } else if self.is_idle(conn) {
            let flags = PostFlags { signalled: true, urgent: true, ..PostFlags::default() };
            let purpose = Purpose::Fragment(Held::Nothing);
            let opcode = Opcode::SendImm(DISCONNECT);
            if self.post_empty(conn, NO_WINDOW, opcode, flags, purpose).is_ok() {
                self.connections[conn].state =
                    ConnectionState::Disconnecting { sent: true, received };
            }
        }
    }

    /// Whether both disconnects have been delivered, and nothing is in flight.
    fn is_drained(&self, conn: ConnectionId) -> bool {
        let Connection { state, in_flight, .. } = &self.connections[conn];
        matches!(state, ConnectionState::Disconnecting { sent: true, received: Some(_) })
            && in_flight.is_empty()
    }

    /// Ends this generation of a connection, because the peer is in a later one. Returns false if
    /// something is still in flight.
    fn peer_closed(&mut self, conn: ConnectionId, generation: u32) -> bool {
        // The peer's disconnect may have arrived by now.
        while self.take_batch() != Batch::Empty {}
        self.drive_disconnects();
        // Otherwise, requests to the destroyed queue pair will fail and close the connection.
        if !self.connections[conn].in_flight.is_empty() || !self.is_idle(conn) {
            self.request_completion(conn, NO_WINDOW);
            return false;
        }
        if self.connections[conn].generation < generation {
            self.close_connection(conn);
            self.connections[conn].generation = generation;
        }
        true
    }

    /// Destroys the queue pair of a connection that has no requests, and starts the next
    /// generation.
    pub(super) fn close_connection(&mut self, conn: ConnectionId) {
        self.destroy_qp(conn);
        let connection = &mut self.connections[conn];
        *connection = Connection {
            generation: connection.generation + 1,
            is_higher: connection.is_higher,
            ..Connection::default()
        };
    }

    /// Closes the connection if the failed request is the disconnect, which the peer must have
    /// received. Returns whether it is.
    pub(super) fn disconnect_failed(&mut self, conn: ConnectionId, number: u64) -> bool {
        let connection = &self.connections[conn];
        let sent = matches!(connection.state, ConnectionState::Disconnecting { sent: true, .. });
        let is_disconnect = sent && connection.posted == number;
        if is_disconnect {
            self.complete_up_to(conn, number);
            self.close_connection(conn);
        }
        is_disconnect
    }

    /// Destroys the queue pair of a connection. From then on the device does not access the memory
    /// of its requests.
    pub(super) fn destroy_qp(&mut self, conn: ConnectionId) {
        let drained = self.is_drained(conn);
        let connection = &mut self.connections[conn];
        let Some(qp) = connection.qp.take() else { return };
        self.quota.in_use -= u32::from(!connection.is_loopback);
        self.in_flight -= (connection.posted - connection.completed) as u32;
        self.device.destroy_qp(qp, drained, &mut self.completions);
        // Its completions are dropped, because a later queue pair may get the same handle. Receives
        // stay in the queue, without their messages, so that they are posted again.
        self.completions.retain_mut(|completion| match *completion {
            Completion::Success(of, _) | Completion::Error(of, ..) => of != qp,
            Completion::Received { qp: of, receive, .. } if of == qp => {
                *completion = Completion::ReceiveReturned(receive);
                true
            }
            _ => true,
        });
        self.forget_events(qp);
        self.by_qp[qp.0 as usize] = None;
        self.stats.qps_destroyed += 1;
        self.quota.disconnecting.retain(|other| *other != conn);
        self.quota.forget(conn);
    }

    /// Connects a queue pair to the peer's.
    fn connect_qp(
        &mut self,
        conn: ConnectionId,
        number: u32,
        address: &PortAddress,
        flush_target: RemoteAddress,
    ) -> Result<(), DeviceError> {
        let connection = &mut self.connections[conn];
        let (ConnectionState::Created, Some(qp)) = (connection.state, connection.qp) else {
            return Ok(());
        };
        connection.flush_target = flush_target;
        self.device.connect_qp(qp, number, address)?;
        connection.state = ConnectionState::Connected;
        Ok(())
    }

    /// The connection of this process to itself. `None` if another call is needed.
    pub(in super::super) fn loopback(&mut self) -> Result<Option<ConnectionId>, DeviceError> {
        let conn = self.connection_to(self.process);
        if self.connection_state(conn) == ConnectionState::Closed {
            self.connections[conn].is_loopback = true;
            if !self.ensure_qp(conn)? {
                return Ok(None);
            }
            let (number, address) = (self.qp_status(conn).number, self.address());
            // Closed on error, because the next caller would wait for a queue pair that nobody
            // connects.
            self.connect_qp(conn, number, &address, self.flush_target())
                .inspect_err(|_| self.close_connection(conn))?;
            self.mark_established(conn);
        }
        Ok(Some(conn))
    }

    /// Notes that the peer's queue pair is connected.
    pub(super) fn mark_established(&mut self, conn: ConnectionId) {
        let connection = &mut self.connections[conn];
        if connection.state == ConnectionState::Connected {
            connection.state = ConnectionState::Established;
        }
    }
}
