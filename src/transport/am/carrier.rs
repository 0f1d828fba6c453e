//! The interface to the carrier, which moves the messages of all windows between processes: the
//! host's point-to-point messages, or memory in tests.

use std::fmt::Debug;

use super::channel::{TransferId, TransferTag};
use super::wire::Packet;
use crate::engine::Addr;

/// Rank of a process in the carrier's communicator.
pub type Process = u32;

/// Identifies a window's part of a context in this process; see
/// [`Context`](super::context::Context).
pub type PortNumber = u64;

/// An event of a carrier.
#[derive(Debug)]
pub enum Event {
    /// A packet of a process has arrived.
    Arrived(Process, Packet),
    /// A transfer of this port has ended. The bytes moved; `usize::MAX` if it failed or was too
    /// long.
    Moved(PortNumber, TransferId, usize),
}

/// Carries packets, in order for each ordered pair of processes, and rendezvous transfers, which
/// match by their tags. No method blocks. Errors of the layer below are logged.
pub trait Carrier: Debug + Send {
    /// Starts to receive packets, including those sent before. Later calls do nothing.
    fn start(&mut self);

    /// A packet without records.
    fn empty_packet(&mut self) -> Packet;

    /// Returns a received packet for reuse.
    fn recycle(&mut self, packet: Packet);

    /// Sends a packet for a port. Never refuses.
    fn send(&mut self, port: PortNumber, to: Process, packet: Packet);

    /// Whether some packet sent for a port has not left yet.
    fn is_sending(&self, port: PortNumber) -> bool;

    /// Whether the limit of packets in flight is reached.
    fn is_busy(&self) -> bool;

    /// Starts to send `len` bytes at `from`, for a port.
    ///
    /// # Safety
    /// The memory must stay valid and unchanged until the transfer is complete.
    unsafe fn send_data(
        &mut self,
        port: (PortNumber, TransferId),
        to: Process,
        tag: TransferTag,
        from: Addr,
        len: usize,
    );

    /// Starts to receive at most `len` bytes at `to`, for a port.
    ///
    /// # Safety
    /// The memory must stay valid, and nobody else may access it, until the transfer is complete.
    unsafe fn receive_data(
        &mut self,
        port: (PortNumber, TransferId),
        from: Process,
        tag: TransferTag,
        to: Addr,
        len: usize,
    );

    /// Cancels the receives of a port's transfers. Cancelled receives complete like others.
    fn cancel_receives(&mut self, port: PortNumber);

    /// Makes progress. Call before [`next_event`](Self::next_event).
    fn poll(&mut self);

    /// The next event.
    fn next_event(&mut self) -> Option<Event>;

    /// Ends the carrier: completes its sends and cancels its receives.
    fn close(&mut self);
}
