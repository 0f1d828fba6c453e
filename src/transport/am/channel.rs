//! The interface to whatever carries the active messages of a window: the host's point-to-point
//! messages, or RDMA sends. Rendezvous transfers always go through the host.

use super::window_channel::WindowChannel;
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

/// The tag by which the two ends of a rendezvous transfer match. The origin of the operation
/// chooses the number and announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferTag {
    /// Direction of the data.
    pub kind: TransferKind,
    /// Below [`MAX_TAGS`]. No other transfer of this kind with the same origin has it.
    pub number: u32,
}

/// Number of tags. MPI guarantees tags up to 32,767; each number takes two, and packets take one.
pub const MAX_TAGS: u32 = 16_000;

/// The caller's number for one end of a rendezvous transfer in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferId(pub u32);

/// This process's end of a rendezvous transfer.
#[derive(Clone, Copy, Debug)]
pub struct TransferEnd {
    /// The tag of both ends.
    pub tag: TransferTag,
    /// Whether this end sends the data (without a copy where the host can). Else it receives them.
    pub sends: bool,
    /// First byte of the memory.
    pub at: Addr,
    /// Bytes to send, or the most to receive.
    pub len: usize,
    /// The caller's number.
    pub id: TransferId,
}

/// Carries packets, in order for each ordered pair of processes. No method blocks. The owner hands
/// received packets to [`Protocol`](super::Protocol).
pub trait Channel {
    /// A packet without records.
    fn empty_packet(&mut self) -> Packet;

    /// Sends a packet. Never refuses.
    fn send(&mut self, to: PeerId, packet: Packet);

    /// Whether the limit of packets in flight is reached. New operations then get
    /// [`Posted::NoResource`](crate::engine::Posted::NoResource).
    fn is_busy(&self) -> bool;

    /// The window's channel through the host, which moves the data of rendezvous transfers.
    fn host(&mut self) -> &mut WindowChannel;
}
