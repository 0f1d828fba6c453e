//! What carries messages between the processes of a window.

use std::fmt::Debug;

use super::wire::Packet;
use crate::engine::{Addr, Rank};
use crate::transport::Ballot;
use crate::transport::rdma::Endpoint;

/// Which of the two streams of bulk messages of an ordered pair. In each, the n-th that is sent is
/// the n-th that is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stream {
    /// Data of puts: from origin to target.
    Put = 0,
    /// Data of gets: from target to origin.
    Get = 1,
}

/// Names one bulk message that is on its way, to the one who sends it or the one who receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bulk(pub u32);

/// Carries packets and bulk messages, in order for each ordered pair of processes, and votes.
/// Nothing here waits.
pub trait Courier: Debug {
    /// A packet without records, to be filled and sent.
    fn packet(&mut self) -> Packet;

    /// Sends a packet. It is the courier's.
    fn send(&mut self, peer: Rank, packet: Packet);

    /// True if so much is under way that operations are better refused for now.
    fn is_busy(&self) -> bool;

    /// The next packet that has come in, and who sent it. To be given back.
    fn receive(&mut self) -> Option<(Rank, Packet)>;

    /// Gives back a packet that came in.
    fn give_back(&mut self, packet: Packet);

    /// Drives what is under way. To be called before the questions about what has come in and what
    /// has gone.
    fn drive(&mut self);

    /// Sends bytes of the caller's memory without copying them, where that can be had.
    ///
    /// # Safety
    /// The memory must stay valid and unchanged until [`next_bulk`](Self::next_bulk) has given the
    /// message.
    unsafe fn send_bulk(&mut self, peer: Rank, stream: Stream, from: Addr, len: usize, bulk: Bulk);

    /// Receives into the caller's memory.
    ///
    /// # Safety
    /// The memory must stay valid, and nobody else's, until [`next_bulk`](Self::next_bulk) has
    /// given the message.
    unsafe fn receive_bulk(&mut self, peer: Rank, stream: Stream, to: Addr, len: usize, bulk: Bulk);

    /// The next bulk message that was sent or received, and how many bytes it had. One that is
    /// longer than it was to be has `usize::MAX`.
    fn next_bulk(&mut self) -> Option<(Bulk, usize)>;

    /// Gives up bulk messages that were to be received: the caller's memory is its own again. They
    /// are told as any others.
    fn cancel_bulks(&mut self);

    /// What went wrong below, once, in words.
    fn next_failure(&mut self) -> Option<String>;

    /// Deposits this process's vote in a nonblocking collective vote of all processes of the window
    /// ...
    fn vote(&mut self, ballot: Ballot);

    /// ... and gives the verdict, the highest ballot, once all have voted.
    fn verdict(&mut self) -> Option<Ballot>;

    /// Gives a number to all processes of the window in a nonblocking collective exchange, which
    /// keeps its place among the votes ...
    fn gather(&mut self, number: u32);

    /// ... and gives those of all, in rank order, once they are there; or what went wrong.
    fn gathered(&mut self) -> Option<Result<Vec<u32>, String>>;

    /// True if nothing that this process has sent is under way.
    fn is_quiet(&mut self) -> bool;

    /// Ends it: what was to be received is given up. `clean`: nothing is under way, so that what
    /// carried it may carry another window.
    fn release(&mut self, clean: bool);

    /// What reaches the memory of peers without their processors, through the same queues as the
    /// packets, if there is such a thing.
    #[inline]
    fn direct(&mut self) -> Option<&mut Endpoint> {
        None
    }

    /// The same, to look at.
    #[inline]
    fn direct_ref(&self) -> Option<&Endpoint> {
        None
    }
}

impl Courier for Box<dyn Courier> {
    fn packet(&mut self) -> Packet {
        (**self).packet()
    }
    fn send(&mut self, peer: Rank, packet: Packet) {
        (**self).send(peer, packet);
    }
    fn is_busy(&self) -> bool {
        (**self).is_busy()
    }
    fn receive(&mut self) -> Option<(Rank, Packet)> {
        (**self).receive()
    }
    fn give_back(&mut self, packet: Packet) {
        (**self).give_back(packet);
    }
    fn drive(&mut self) {
        (**self).drive();
    }
    unsafe fn send_bulk(&mut self, peer: Rank, stream: Stream, from: Addr, len: usize, bulk: Bulk) {
        // SAFETY: the caller's promise.
        unsafe { (**self).send_bulk(peer, stream, from, len, bulk) }
    }
    unsafe fn receive_bulk(
        &mut self,
        peer: Rank,
        stream: Stream,
        to: Addr,
        len: usize,
        bulk: Bulk,
    ) {
        // SAFETY: the caller's promise.
        unsafe { (**self).receive_bulk(peer, stream, to, len, bulk) }
    }
    fn next_bulk(&mut self) -> Option<(Bulk, usize)> {
        (**self).next_bulk()
    }
    fn cancel_bulks(&mut self) {
        (**self).cancel_bulks();
    }
    fn next_failure(&mut self) -> Option<String> {
        (**self).next_failure()
    }
    fn vote(&mut self, ballot: Ballot) {
        (**self).vote(ballot);
    }
    fn verdict(&mut self) -> Option<Ballot> {
        (**self).verdict()
    }
    fn gather(&mut self, number: u32) {
        (**self).gather(number);
    }
    fn gathered(&mut self) -> Option<Result<Vec<u32>, String>> {
        (**self).gathered()
    }
    fn is_quiet(&mut self) -> bool {
        (**self).is_quiet()
    }
    fn release(&mut self, clean: bool) {
        (**self).release(clean);
    }
    fn direct(&mut self) -> Option<&mut Endpoint> {
        (**self).direct()
    }
    fn direct_ref(&self) -> Option<&Endpoint> {
        (**self).direct_ref()
    }
}
