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

    /// Starts to send `len` bytes at `from`, without a copy where the host can.
    ///
    /// # Safety
    /// The memory must stay valid and unchanged until
    /// [`transfer_done`](super::Protocol::transfer_done) is called with `id`.
    unsafe fn send_data(
        &mut self,
        to: PeerId,
        tag: TransferTag,
        from: Addr,
        len: usize,
        id: TransferId,
    );

    /// Starts to receive at most `len` bytes at `to`.
    ///
    /// # Safety
    /// The memory must stay valid, and nobody else may access it, until
    /// [`transfer_done`](super::Protocol::transfer_done) is called with `id`.
    unsafe fn receive_data(
        &mut self,
        from: PeerId,
        tag: TransferTag,
        to: Addr,
        len: usize,
        id: TransferId,
    );
}
