//! The interface to whatever carries the active messages of a window: the host's point-to-point
//! messages, or RDMA sends.

use super::wire::Packet;
use crate::engine::Addr;
use crate::transport::peers::PeerId;

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

/// This process's end of a rendezvous transfer.
#[derive(Clone, Copy, Debug)]
pub struct TransferEnd {
    /// What the other end has, too.
    pub tag: TransferTag,
    /// The data are sent, without a copy where the host can. Else they are received.
    pub sends: bool,
    /// First byte of the memory.
    pub at: Addr,
    /// Its bytes. No more are received.
    pub len: usize,
    /// The caller's number.
    pub id: TransferId,
}

/// Carries packets, in order for each ordered pair of processes, and rendezvous transfers. No
/// method blocks. What has arrived is given to [`Protocol`](super::Protocol).
pub trait Channel {
    /// A packet without records, to be filled and sent.
    fn empty_packet(&mut self) -> Packet;

    /// Sends a packet. Never refuses.
    fn send(&mut self, to: PeerId, packet: Packet);

    /// Whether the limit of packets in flight is reached. New operations then get
    /// [`Posted::NoResource`](crate::engine::Posted::NoResource).
    fn is_busy(&self) -> bool;

    /// A number for a new rendezvous transfer of this process; `None` if too many are in flight.
    fn take_tag(&mut self) -> Option<u32>;

    /// Returns the number of a transfer both of whose ends have matched.
    fn return_tag(&mut self, number: u32);

    /// Starts a rendezvous transfer with a peer.
    ///
    /// # Safety
    /// The memory must stay valid until [`transfer_done`](super::Protocol::transfer_done) is called
    /// with the id: unchanged if it is sent, and else accessed by nobody.
    unsafe fn transfer(&mut self, peer: PeerId, end: TransferEnd);
}
