//! The channel of one window over the process's active-message context.

use super::carrier::{PortNumber, Process};
use super::channel::{TransferEnd, TransferId};
use super::collective::{Collectives, Message};
use super::context::{Port, SharedContext};
use super::wire::{Malformed, Packet};
use crate::engine::Rank;
use crate::transport::Proposal;
use crate::transport::members::RankTable;

/// The address of a window's process for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerAddress {
    /// The process, in the carrier's communicator.
    pub process: Process,
    /// The number of its port.
    pub port: PortNumber,
}

/// The channel of one window.
#[derive(Debug)]
pub struct WindowChannel {
    context: SharedContext,
    port: PortNumber,
    me: Rank,
    size: u32,
    /// Process minus rank, and port, of each process. Most windows have one such pair for all
    /// ranks: the processes of their communicator in rising order, and equal port numbers.
    addresses: RankTable<(u32, PortNumber)>,
    collectives: Collectives,
    /// Collective operations without a result, and rendezvous transfers in flight.
    pending: u32,
    /// The owner waits for messages.
    expects: bool,
}

impl WindowChannel {
    /// The channel of process `me` over its `port` in the context. `addresses` are those of all
    /// processes of the window, in rank order; this process's is among them.
    #[must_use]
    pub fn new(
        context: SharedContext,
        port: PortNumber,
        me: Rank,
        addresses: impl ExactSizeIterator<Item = PeerAddress>,
    ) -> Self {
        let size = addresses.len() as u32;
        let relative = |(rank, to): (Rank, PeerAddress)| (to.process.wrapping_sub(rank), to.port);
        let mut held = context.borrow();
        // The first window starts the carrier: posted receives slow the host's own messages a bit.
        held.carrier().start();
        held.expect(port, true);
        drop(held);
        WindowChannel {
            context,
            port,
            me,
            size,
            addresses: RankTable::new((0..).zip(addresses).map(relative)),
            collectives: Collectives::new(me, size),
            pending: 0,
            expects: true,
        }
    }

    #[inline]
    fn address_of(&self, rank: Rank) -> PeerAddress {
        let (offset, port) = self.addresses.of(rank);
        PeerAddress { process: rank.wrapping_add(offset), port }
    }

    /// Starts an agreement of all processes with this process's value. The highest value decides.
    pub fn propose_value(&mut self, value: u32) {
        self.collectives.propose(value);
        self.start_collective();
    }

    /// The highest value, once all processes have proposed theirs.
    pub fn decided_value(&mut self) -> Option<u32> {
        self.advance_collectives();
        let decided = self.collectives.decided.take()?;
        self.end_pending();
        Some(decided)
    }

    fn start_collective(&mut self) {
        self.start_pending();
        self.send_collectives();
    }

    fn start_pending(&mut self) {
        self.pending += 1;
        if !self.expects {
            self.update_expects();
        }
    }

    fn end_pending(&mut self) {
        self.pending -= 1;
        if !self.expects {
            self.update_expects();
        }
    }

    /// Tells the context whether the window waits for messages.
    fn update_expects(&mut self) {
        let expects = self.expects || self.pending > 0;
        self.context.borrow().expect(self.port, expects);
    }

    fn send_collectives(&mut self) {
        while let Some((to, message)) = self.collectives.outgoing.pop_front() {
            let packet = self.empty_packet();
            self.send(to, message.write(packet));
        }
    }

    /// Handles received messages of collective operations, and sends the messages that follow.
    fn advance_collectives(&mut self) {
        loop {
            let mut context = self.context.borrow();
            let Some((process, packet)) =
                context.port(self.port).and_then(|port| port.collectives.pop_front())
            else {
                break;
            };
            drop(context);
            let taken = self
                .sender(process, &packet)
                .ok_or(Malformed::UnknownProcess)
                .and_then(|from| self.collectives.receive(from, &Message::read(&packet)?));
            if let Err(reason) = taken {
                log::error!("dropped a collective message of process {process}: {reason}");
            }
            self.context.borrow().carrier().recycle(packet);
        }
        self.send_collectives();
    }

    /// The rank of a process whose packet does not name it. A linear search: such packets are rare.
    #[cold]
    fn rank_of(&self, process: Process) -> Option<Rank> {
        (0..self.size).find(|rank| self.address_of(*rank).process == process)
    }

    /// The sender's rank according to the packet, if it is that of `process`.
    fn sender(&self, process: Process, packet: &Packet) -> Option<Rank> {
        let (_, rank) = packet.addressee()?;
        (rank < self.size && self.address_of(rank).process == process).then_some(rank)
    }

    /// A packet without records.
    #[must_use]
    pub fn empty_packet(&self) -> Packet {
        self.context.borrow().carrier().empty_packet()
    }

    /// Sends a packet to process `peer` of the window. Never refuses.
    pub fn send(&self, peer: Rank, mut packet: Packet) {
        let PeerAddress { process, port } = self.address_of(peer);
        packet.address(port, self.me);
        self.context.borrow().send(self.port, process, packet);
    }

    /// Whether the limit of packets in flight is reached.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.context.borrow().carrier().is_busy()
    }

    /// The next received packet and its sender. A packet with a wrong sender is replaced by an
    /// empty one of the true sender, which the protocol refuses.
    #[inline]
    pub fn receive(&self) -> Option<(Rank, Packet)> {
        loop {
            let (process, packet) = self.context.borrow().port(self.port)?.packets.pop_front()?;
            if let Some(rank) = self.sender(process, &packet) {
                return Some((rank, packet));
            }
            self.recycle(packet);
            if let Some(rank) = self.rank_of(process) {
                return Some((rank, Packet::default()));
            }
        }
    }

    /// Returns the memory of a received packet for reuse.
    pub fn recycle(&self, packet: Packet) {
        self.context.borrow().carrier().recycle(packet);
    }

    /// Handles messages of collective operations, also of ones this process has not started yet.
    #[inline]
    pub fn poll(&mut self) {
        let due = |port: &mut Port| !port.collectives.is_empty();
        if self.context.borrow().port(self.port).is_some_and(due) {
            self.advance_collectives();
        }
    }

    /// A number for a new rendezvous transfer of this process; `None` if too many are in flight.
    pub fn take_tag(&mut self) -> Option<u32> {
        self.context.borrow().take_tag()
    }

    /// Frees the number of a transfer. Call after both of its ends have matched.
    pub fn return_tag(&mut self, number: u32) {
        self.context.borrow().return_tag(number);
    }

    /// Starts a rendezvous transfer with a peer.
    ///
    /// # Safety
    /// The memory must stay valid until [`next_transfer`](Self::next_transfer) has returned the id:
    /// unchanged if it is sent, and else accessed by nobody.
    pub unsafe fn transfer(&mut self, peer: Rank, end: TransferEnd) {
        let TransferEnd { tag, sends, at, len, id } = end;
        self.start_pending();
        let (process, port) = (self.address_of(peer).process, (self.port, id));
        let mut context = self.context.borrow();
        // SAFETY: the caller keeps the memory valid, and unchanged or unused, until the transfer is
        // complete (contract of this function).
        unsafe {
            match sends {
                true => context.carrier().send_data(port, process, tag, at, len),
                false => context.carrier().receive_data(port, process, tag, at, len),
            }
        }
    }

    /// The next completed transfer and its bytes; `usize::MAX` if it failed or was too long.
    pub fn next_transfer(&mut self) -> Option<(TransferId, usize)> {
        let next = self.context.borrow().port(self.port)?.transfers.pop_front()?;
        self.end_pending();
        Some(next)
    }

    /// Cancels all receives of transfers, which releases their memory. Cancelled receives complete
    /// like others.
    pub fn cancel_receives(&mut self) {
        self.context.borrow().carrier().cancel_receives(self.port);
    }

    /// Starts a nonblocking agreement of all processes of the window with this process's proposal.
    pub fn propose(&mut self, proposal: Proposal) {
        self.propose_value(proposal as u32);
    }

    /// The highest proposal, once all processes have proposed.
    pub fn decision(&mut self) -> Option<Proposal> {
        let decided = self.decided_value()?;
        let is = |proposal: &Proposal| *proposal as u32 == decided;
        Some([Proposal::Ready, Proposal::Busy].into_iter().find(is).unwrap_or(Proposal::Objection))
    }

    /// Starts a nonblocking allgather of one number per process. All processes start allgathers and
    /// agreements in the same order.
    pub fn start_allgather(&mut self, number: u32) {
        self.collectives.gather(number);
        self.start_collective();
    }

    /// The numbers in rank order, once all are known.
    pub fn finish_allgather(&mut self) -> Option<Vec<u32>> {
        self.advance_collectives();
        let gathered = self.collectives.gathered.take()?;
        self.end_pending();
        Some(gathered)
    }

    /// Whether all packets of this process have left.
    pub fn is_quiet(&mut self) -> bool {
        !self.context.borrow().is_sending(self.port)
    }

    /// Whether all that has arrived was handled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.context.borrow().port(self.port).is_none_or(|port| port.is_empty())
    }

    /// Sets whether the owner waits for messages, so that the carrier is polled at every look.
    /// Initially true.
    pub fn expect(&mut self, expects: bool) {
        if self.expects != expects {
            self.expects = expects;
            self.update_expects();
        }
    }

    /// Has the context report the owner's `cookie` when something arrives for the window.
    pub fn set_cookie(&mut self, cookie: u64) {
        self.context.borrow().set_cookie(self.port, cookie);
    }

    /// Ends the channel and cancels its receives.
    pub fn release(&mut self) {
        let mut context = self.context.borrow();
        context.carrier().cancel_receives(self.port);
        context.close(self.port);
    }
}
