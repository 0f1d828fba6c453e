//! The interface to whatever carries active messages: the host's point-to-point messages, RDMA
//! sends, or memory in tests.

use std::fmt::Debug;

use super::wire::Packet;
use crate::engine::{Addr, Rank};
use crate::transport::Proposal;
use crate::transport::rdma::Endpoint;

/// Kinds of rendezvous transfers between an ordered pair of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TransferKind {
    /// Data of puts: from origin to target.
    Put = 0,
    /// Data of gets: from target to origin.
    Get = 1,
}

/// What the two ends of a rendezvous transfer match by. The origin of the operation chooses the
/// number and announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferTag {
    /// Which way the data go.
    pub kind: TransferKind,
    /// Below [`MAX_TAGS`]. No other transfer of this kind with the same origin has it.
    pub number: u32,
}

/// Numbers of tags: MPI guarantees tags up to 32,767, and packets take one.
pub const MAX_TAGS: u32 = 16_000;

/// The caller's number for one end of a rendezvous transfer in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferId(pub u32);

/// The active-message channel of a window. It carries packets, in order for each ordered pair of
/// processes, rendezvous transfers, and the window's agreements. No method blocks.
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

    /// Makes progress with what is this window's own. Call before asking what has been received or
    /// sent. What all windows share is polled before.
    fn poll(&mut self);

    /// A number for a new rendezvous transfer of this process; `None` if too many are in flight.
    fn take_tag(&mut self) -> Option<u32>;

    /// Returns the number of a transfer both of whose ends have matched.
    fn return_tag(&mut self, number: u32);

    /// Starts to send `len` bytes at `from` to `peer`, without a copy where the host can.
    ///
    /// # Safety
    /// The memory must stay valid and unchanged until [`next_transfer`](Self::next_transfer) has
    /// returned `id`.
    unsafe fn send_data(
        &mut self,
        peer: Rank,
        tag: TransferTag,
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
        tag: TransferTag,
        to: Addr,
        len: usize,
        id: TransferId,
    );

    /// The next completed transfer and its bytes; `usize::MAX` if it failed or was too long.
    fn next_transfer(&mut self) -> Option<(TransferId, usize)>;

    /// Cancels all receives of transfers, which releases their memory. Cancelled receives complete
    /// like others.
    fn cancel_receives(&mut self);

    /// Starts a nonblocking agreement of all processes of the window with this process's proposal.
    fn propose(&mut self, proposal: Proposal);

    /// The highest proposal, once all processes have proposed.
    fn decision(&mut self) -> Option<Proposal>;

    /// Starts a nonblocking allgather of one number per process. It is collective like an
    /// agreement, and all processes start both in the same order.
    fn start_allgather(&mut self, number: u32);

    /// The numbers in rank order, once all are known.
    fn finish_allgather(&mut self) -> Option<Vec<u32>>;

    /// Whether all that this process has sent is complete.
    fn is_quiet(&mut self) -> bool;

    /// Whether nothing has arrived that this process has not handled, and nothing is due but what
    /// peers may send.
    fn is_idle(&self) -> bool;

    /// Says whether messages are due, so that their carrier is polled at every look: true at first.
    fn expect(&mut self, _: bool) {}

    /// Has the owner's `cookie` reported when something arrives for the window.
    fn set_cookie(&mut self, cookie: u64);

    /// Ends the channel and cancels its receives.
    fn release(&mut self);

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
