//! Queues to peers: made when they are wanted, connected, and left to others when there are too
//! many.
//!
//! A queue pair is *left* by both sides. Who needs the place finishes what it has on the queue, and
//! sends a last packet; the peer finishes what it has, and answers with its own last packet. What
//! is on a queue keeps its order, so after the peer's last packet nothing comes any more, and after
//! the end of one's own nothing is under way. Then the queue is closed, and both count one
//! *generation* more, by which hellos that speak of an earlier queue are known. It is not closed at
//! once: the peer's last packet may be taken in before it is acknowledged, and a peer to which
//! nobody does that tries it again for seconds. Where registered memory is stays known: who reaches
//! for the peer again only connects.

use super::super::device::{DeviceError, Opcode, PortAddress};
use super::super::handshake::{Handshake, ProcessId, RemoteAddress};
use super::{Batch, Context, Held, LocalBuffer, NO_WINDOW, PostFlags, Purpose};

/// What comes with the last packet of a queue, instead of a window.
pub(super) const DISCONNECT: u32 = u32::MAX;
/// Polls that a queue is wanted before one more than allowed is made: a peer that computes does not
/// answer.
const RECLAIM_POLLS: u64 = 1 << 14;
/// Polls that a queue without use stays when it has been made.
const MIN_AGE_POLLS: u64 = 256;
/// Polls that one stays that waits to be connected to a lower name.
const YIELD_POLLS: u64 = 1 << 10;
/// Polls that a queue stays after the peer's last packet was taken in: its acknowledgement is on
/// its way by then.
const LINGER_POLLS: u64 = 64;

/// How far the connection with a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::rdma) enum ConnectionState {
    /// There is no queue.
    Closed,
    /// There is, and it is not connected.
    Created,
    /// It is, but the peer's may not be.
    Connected,
    Established,
    /// It is being left.
    Disconnecting {
        /// The last packet was handed over.
        said: bool,
        /// The peer's has come, in this poll.
        heard: Option<u64>,
    },
}

/// The queues of a process, counted.
#[derive(Debug)]
pub(super) struct QpQuota {
    /// Those that it has, but for the one that leads back.
    in_use: u32,
    /// Those that it may have.
    most: u32,
    /// Peers whose queues are being left.
    leaving: Vec<u32>,
    /// Peers for which a queue is wanted, and since which poll.
    wanted: Vec<(u32, u64)>,
    pub(super) polls: u64,
    /// There were too few of them at some time.
    short: bool,
    told: bool,
}

impl QpQuota {
    pub(super) fn new(queues: u32) -> Self {
        QpQuota {
            in_use: 0,
            most: queues.max(1),
            leaving: Vec::new(),
            wanted: Vec::new(),
            polls: 0,
            short: false,
            told: false,
        }
    }
}

/// What a hello of this process says of its queue to a peer.
#[derive(Clone, Copy, Debug)]
pub(in crate::transport::rdma) struct QpStatus {
    pub(in crate::transport::rdma) generation: u32,
    /// 0: there is none.
    pub(in crate::transport::rdma) number: u32,
    pub(in crate::transport::rdma) connected: bool,
}

/// What has become of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::rdma) enum HandshakeOutcome {
    /// It may be answered.
    Proceed,
    /// The queue that it wants, or that it speaks of, is not there yet.
    Retry,
    /// Its sender is to make its queue first.
    PeerFirst,
}

impl Context {
    /// Queues that this process may have at a time, beside one to itself; more where a peer does
    /// not answer who is asked to leave.
    pub fn set_max_qps(&mut self, most: u32) {
        self.quota.most = most.clamp(1, self.limits.queues.max(1));
    }

    /// Queues that it has, but for the one to itself.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.quota.in_use
    }

    /// The number by which a process is known here; it may have no queue.
    pub(in crate::transport::rdma) fn conn(&mut self, peer: ProcessId) -> u32 {
        let next = self.connections.len() as u32;
        let index = *self.by_process.entry(peer).or_insert(next);
        if index == next {
            self.connections.push(super::Connection {
                is_above: self.name > peer,
                ..super::Connection::default()
            });
        }
        index
    }

    pub(in crate::transport::rdma) fn connection_state(&self, conn: u32) -> &ConnectionState {
        &self.connections[conn as usize].state
    }

    pub(in crate::transport::rdma) fn qp_status(&self, conn: u32) -> QpStatus {
        let connection = &self.connections[conn as usize];
        QpStatus {
            generation: connection.generation,
            number: if matches!(
                connection.state,
                ConnectionState::Created
                    | ConnectionState::Connected
                    | ConnectionState::Established
            ) {
                connection.number
            } else {
                0
            },
            connected: matches!(
                connection.state,
                ConnectionState::Connected | ConnectionState::Established
            ),
        }
    }

    /// Does for the queue what a hello allows.
    pub(in crate::transport::rdma) fn join(
        &mut self,
        conn: u32,
        handshake: &Handshake,
    ) -> Result<HandshakeOutcome, DeviceError> {
        let asks = handshake.stage.needs_qp();
        let connection = &self.connections[conn as usize];
        let known = handshake.generation != Handshake::UNKNOWN;
        if known && handshake.generation > connection.generation {
            // The peer has left the queue, and this process has still to see it.
            if !self.peer_closed(conn, handshake.generation) {
                return Ok(HandshakeOutcome::Retry);
            }
        }
        let current = known && handshake.generation == self.connections[conn as usize].generation;
        let speaks = current && handshake.number != 0;
        let super::Connection { state, is_above, .. } = self.connections[conn as usize];
        match state {
            ConnectionState::Closed
                if asks && self.quota.short && is_above && handshake.number == 0 =>
            {
                return Ok(HandshakeOutcome::PeerFirst);
            }
            // Nothing is to be done for it; and its sender may have taken leave of all by now, and
            // never answer the last packet.
            ConnectionState::Disconnecting { .. } if speaks && !asks => {
                return Ok(HandshakeOutcome::Proceed);
            }
            _ if !asks && !speaks => self.quota.wanted.retain(|(other, _)| *other != conn),
            _ if self.want(conn)? => {}
            _ => return Ok(HandshakeOutcome::Retry),
        }
        if speaks {
            self.connect(conn, handshake.number, &handshake.address, handshake.flush_target)?;
            if handshake.connected {
                self.mark_established(conn);
            }
        }
        Ok(HandshakeOutcome::Proceed)
    }

    /// Sees to it that there is a queue; false if that takes time.
    pub(in crate::transport::rdma) fn want(&mut self, conn: u32) -> Result<bool, DeviceError> {
        match &self.connections[conn as usize].state {
            ConnectionState::Closed => {}
            ConnectionState::Disconnecting { .. } => return Ok(false),
            _ => return Ok(true),
        }
        let now = self.quota.polls;
        let since = match self.quota.wanted.iter().find(|(other, _)| *other == conn) {
            Some((_, since)) => *since,
            None => {
                self.quota.wanted.push((conn, now));
                now
            }
        };
        let is_loop = self.connections[conn as usize].is_loop;
        let too_many = self.quota.in_use >= self.quota.most && !is_loop;
        if too_many && now - since < RECLAIM_POLLS {
            self.make_room();
            return Ok(false);
        }
        if too_many && !std::mem::replace(&mut self.quota.told, true) {
            log::info!(
                "verbs: more than {} queues, since peers do not answer that are requested to leave theirs",
                self.quota.most
            );
        }
        match self.device.open() {
            Ok((queue, number)) => {
                self.quota.wanted.retain(|(other, _)| *other != conn);
                self.quota.in_use += u32::from(!is_loop);
                self.stats.queues += 1;
                let connection = &mut self.connections[conn as usize];
                (connection.queue, connection.number, connection.state, connection.used) =
                    (Some(queue), number, ConnectionState::Created, now);
                self.queues.insert(queue, conn);
                Ok(true)
            }
            // Their memory is registered too.
            Err(_) if self.registrations.evict_all(&mut *self.device) => Ok(false),
            // The interface has no more: those of others may do, if there are any, and they become
            // free.
            Err(_) if self.quota.in_use > 0 && now - since < RECLAIM_POLLS => {
                self.quota.most = self.quota.most.min(self.quota.in_use);
                self.make_room();
                Ok(false)
            }
            Err(reason) => {
                self.quota.wanted.retain(|(other, _)| *other != conn);
                Err(reason)
            }
        }
    }

    /// Leaves as many queues as are wanted, if there are so many that may be left.
    fn make_room(&mut self) {
        self.quota.short = true;
        loop {
            let free = self.quota.most.saturating_sub(self.quota.in_use) as usize;
            if free + self.quota.leaving.len() >= self.quota.wanted.len() {
                return;
            }
            let candidates =
                (0..self.connections.len() as u32).filter(|index| self.can_disconnect(*index));
            let Some(oldest) =
                candidates.min_by_key(|index| self.connections[*index as usize].used)
            else {
                return;
            };
            if self.connections[oldest as usize].state == ConnectionState::Created {
                // The peer hears of it when it answers.
                self.close_connection(oldest);
            } else {
                self.start_disconnect(oldest, None);
                self.drive_disconnect(oldest);
            }
        }
    }

    /// A queue may be left for another: this process has nothing on it, and has had the time to.
    fn can_disconnect(&self, conn: u32) -> bool {
        let connection = &self.connections[conn as usize];
        if connection.is_loop || connection.generation >= Handshake::UNKNOWN - 1 {
            return false;
        }
        let age = self.quota.polls - connection.used;
        match connection.state {
            ConnectionState::Established => {
                (connection.posted + connection.heard > 0 || age >= MIN_AGE_POLLS)
                    && self.is_idle(conn)
            }
            // It waits for the peer, which may wait for another one in the same way, and so on: not
            // round to this process if each waits for a higher name, and who waits for a lower one
            // gives way.
            ConnectionState::Created => {
                age >= if connection.is_above { YIELD_POLLS } else { RECLAIM_POLLS / 2 }
            }
            _ => false,
        }
    }

    /// Nothing of this process's is under way on a queue whose end does not come with that of the
    /// last packet.
    fn is_idle(&self, conn: u32) -> bool {
        let connection = &self.connections[conn as usize];
        let waits = |piece: &u32| {
            self.word_accesses[*piece as usize].as_ref().is_some_and(|access| access.conn == conn)
        };
        connection.unfenced.is_empty()
            && connection
                .in_flight
                .iter()
                .all(|in_flight| matches!(in_flight.purpose, Purpose::Piece(_)))
            && !self.retry_queue.iter().any(waits)
    }

    fn start_disconnect(&mut self, conn: u32, heard: Option<u64>) {
        self.connections[conn as usize].state =
            ConnectionState::Disconnecting { said: false, heard };
        self.quota.leaving.push(conn);
    }

    /// The peer's last packet has come.
    pub(super) fn on_disconnect(&mut self, conn: u32) {
        let now = Some(self.quota.polls);
        match &mut self.connections[conn as usize].state {
            ConnectionState::Disconnecting { heard, .. } => *heard = now,
            ConnectionState::Closed => {}
            _ => self.start_disconnect(conn, now),
        }
    }

    /// Goes on with the queues that are being left.
    pub(super) fn leave(&mut self) {
        self.quota.polls += 1;
        for at in (0..self.quota.leaving.len()).rev() {
            if let Some(conn) = self.quota.leaving.get(at) {
                self.drive_disconnect(*conn);
            }
        }
    }

    fn drive_disconnect(&mut self, conn: u32) {
        match self.connections[conn as usize].state {
            // If the last packet is all that is under way, then a failure is its own: the peer may
            // have closed its queue before it has acknowledged it.
            ConnectionState::Disconnecting { said: false, .. }
                if !self.connections[conn as usize].in_flight.is_empty() =>
            {
                self.mark(conn, NO_WINDOW);
            }
            ConnectionState::Disconnecting { said: false, heard } if self.is_idle(conn) => {
                let flags = PostFlags { signalled: true, urgent: true, ..PostFlags::default() };
                let purpose = Purpose::Piece(Held::Nothing);
                // SAFETY: nothing is moved.
                let said = unsafe {
                    self.post(
                        conn,
                        NO_WINDOW,
                        Opcode::SendImm(DISCONNECT),
                        LocalBuffer::default(),
                        RemoteAddress::default(),
                        flags,
                        purpose,
                    )
                };
                if said.is_ok() {
                    self.connections[conn as usize].state =
                        ConnectionState::Disconnecting { said: true, heard };
                }
            }
            ConnectionState::Disconnecting { heard: Some(since), .. }
                if self.connections[conn as usize].is_over()
                    && self.quota.polls - since >= LINGER_POLLS =>
            {
                self.close_connection(conn);
            }
            _ => {}
        }
    }

    /// The peer says that it is past the queue of this generation, which so ends here too. False if
    /// there is still something under way.
    fn peer_closed(&mut self, conn: u32, generation: u32) -> bool {
        // Its last packet may have come by now.
        while self.take_batch() != Batch::Empty {}
        self.leave();
        // What is under way to a queue that is gone will fail, and be told.
        if !self.connections[conn as usize].in_flight.is_empty() || !self.is_idle(conn) {
            self.mark(conn, NO_WINDOW);
            return false;
        }
        if self.connections[conn as usize].generation < generation {
            self.close_connection(conn);
            self.connections[conn as usize].generation = generation;
        }
        true
    }

    /// Closes a queue on which nothing is under way, if there is one.
    pub(super) fn close_connection(&mut self, conn: u32) {
        self.destroy_qp(conn);
        let connection = &mut self.connections[conn as usize];
        *connection = super::Connection {
            generation: connection.generation + 1,
            is_above: connection.is_above,
            ..super::Connection::default()
        };
    }

    /// A request has failed. True if nothing was lost by it: it was the last packet of a queue, of
    /// which the peer knows by now.
    pub(super) fn disconnect_failed(&mut self, conn: u32, number: u64) -> bool {
        let connection = &mut self.connections[conn as usize];
        let left = matches!(connection.state, ConnectionState::Disconnecting { said: true, .. })
            && connection.posted == number;
        if left {
            self.complete_up_to(conn, number);
            self.close_connection(conn);
        }
        left
    }

    /// The interface has nothing more of a queue after this.
    pub(super) fn destroy_qp(&mut self, conn: u32) {
        let connection = &mut self.connections[conn as usize];
        let Some(queue) = connection.queue.take() else { return };
        self.quota.in_use -= u32::from(!connection.is_loop);
        self.under_way -= (connection.posted - connection.done) as u32;
        self.device.close(queue, connection.is_over());
        self.queues.remove(&queue);
        self.stats.left += 1;
        self.quota.leaving.retain(|other| *other != conn);
        self.quota.wanted.retain(|(other, _)| *other != conn);
    }

    /// The peer has said where its queue is, and eight bytes that may be read.
    fn connect(
        &mut self,
        conn: u32,
        number: u32,
        address: &PortAddress,
        flush_target: RemoteAddress,
    ) -> Result<(), DeviceError> {
        let connection = &mut self.connections[conn as usize];
        let (ConnectionState::Created, Some(queue)) = (&connection.state, connection.queue) else {
            return Ok(());
        };
        connection.flush_target = flush_target;
        self.device.connect(queue, number, address)?;
        connection.state = ConnectionState::Connected;
        Ok(())
    }

    /// The queue of this process that leads back to it; `None` if that takes time.
    pub(in crate::transport::rdma) fn loopback(&mut self) -> Result<Option<u32>, DeviceError> {
        let conn = self.conn(self.name);
        if *self.connection_state(conn) == ConnectionState::Closed {
            self.connections[conn as usize].is_loop = true;
            if !self.want(conn)? {
                return Ok(None);
            }
            let (number, address, flush_target) =
                (self.qp_status(conn).number, self.address(), self.flush_target());
            // Or the next one who asks would find a queue that nobody connects.
            self.connect(conn, number, &address, flush_target)
                .inspect_err(|_| self.close_connection(conn))?;
            self.mark_established(conn);
        }
        Ok(Some(conn))
    }

    /// The peer is ready.
    pub(super) fn mark_established(&mut self, conn: u32) {
        let connection = &mut self.connections[conn as usize];
        if connection.state == ConnectionState::Connected {
            connection.state = ConnectionState::Established;
        }
    }
}
