//! The interface to whatever carries active messages: the host's point-to-point messages, RDMA
//! sends, or memory in tests.

use std::fmt::Debug;

use super::wire::Packet;
use crate::engine::{Addr, Rank};
use crate::transport::Proposal;
use crate::transport::rdma::Endpoint;

/// Kinds of rendezvous transfers between an ordered pair of processes. Transfers of one kind match
/// in order: the n-th that is sent is the n-th that is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TransferKind {
    /// Data of puts: from origin to target.
    Put = 0,
    /// Data of gets: from target to origin.
    Get = 1,
}

/// The caller's number for one end of a rendezvous transfer in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferId(pub u32);

/// The active-message channel of a window. It carries packets and rendezvous transfers, in order
/// for each ordered pair of processes, and the window's agreements. No method blocks.
pub trait Channel: Debug {
    /// A packet without records, to be filled and sent.
    fn empty_packet(&mut self) -> Packet;

    /// Sends a packet to `peer`. Never refuses.
    fn send(&mut self, peer: Rank, packet: Packet);

    /// Whether the limit of packets in flight is reached. New operations then get
    /// [`Posted::NoResource`](crate::engine::Posted::NoResource).
    fn is_busy(&self) -> bool;

    /// The next received packet and its sender. [Recycle](Self::recycle) it after use.
    fn receive(&mut self) -> Option<(Rank, Packet)>;

    /// Returns a received packet. Call in the order of [`receive`](Self::receive).
    fn recycle(&mut self, packet: Packet);

    /// Makes progress. Call before asking what has been received or sent.
    fn poll(&mut self);

    /// Starts to send `len` bytes at `from` to `peer`, without a copy where the host can.
    ///
    /// # Safety
    /// The memory must stay valid and unchanged until [`next_transfer`](Self::next_transfer) has
    /// returned `id`.
    unsafe fn send_data(
        &mut self,
        peer: Rank,
        kind: TransferKind,
        from: Addr,
        len: usize,
        id: TransferId,
    );

    /// Starts to receive at most `len` bytes from `peer` at `to`.
    ///
    /// # Safety
    /// The memory must stay valid, and nobody else may access it, until
    /// [`next_transfer`](Self::next_transfer) has returned `id`.
    unsafe fn receive_data(
        &mut self,
        peer: Rank,
        kind: TransferKind,
        to: Addr,
        len: usize,
        id: TransferId,
    );

    /// The next completed transfer and its bytes; `usize::MAX` if it failed or was too long.
    fn next_transfer(&mut self) -> Option<(TransferId, usize)>;

    /// Cancels all receives of transfers, which releases their memory. Cancelled receives complete
    /// like others.
    fn cancel_receives(&mut self);

    /// The next error of the layer below, as text for the log.
    fn next_failure(&mut self) -> Option<String>;

    /// Starts a nonblocking agreement of all processes of the window with this process's proposal.
    fn propose(&mut self, proposal: Proposal);

    /// The highest proposal, once all processes have proposed.
    fn decision(&mut self) -> Option<Proposal>;

    /// Starts a nonblocking allgather of one number per process. It is collective like an
    /// agreement, and all processes start both in the same order.
    fn start_allgather(&mut self, number: u32);

    /// The numbers in rank order, once all are known; or what failed.
    fn finish_allgather(&mut self) -> Option<Result<Vec<u32>, String>>;

    /// Whether all that this process has sent is complete.
    fn is_quiet(&mut self) -> bool;

    /// Ends the channel and cancels its receives. `clean`: no message is in flight anywhere, so the
    /// communicator may serve another window.
    fn release(&mut self, clean: bool);

    /// The RDMA endpoint whose queue pairs also carry the packets, if there is one.
    #[inline]
    fn endpoint_mut(&mut self) -> Option<&mut Endpoint> {
        None
    }

    /// As [`endpoint_mut`](Self::endpoint_mut).
    #[inline]
    fn endpoint(&self) -> Option<&Endpoint> {
        None
    }
}
