//! The transport of one window: one of several, chosen when the window is made.
//!
//! The engine is generic over its port, so that each transport keeps its constants ([`Port::SIGNALS_FOLLOW`] and its like)
//! and its inlined paths. A window therefore holds an enum of transports, and [`with_port!`](crate::runtime::with_port)
//! runs a call of the engine in the version that was compiled for the one at hand: one predicted branch per call.
//!
//! [`Port::SIGNALS_FOLLOW`]: crate::engine::Port::SIGNALS_FOLLOW

use crate::engine::{Addr, Rank, Shaped};
use crate::transport::shape::Shape;
use crate::transport::shm::ShmWindow;

/// Moves the bytes of one window.
#[derive(Debug)]
pub(crate) enum Transport {
    /// All processes are on one node.
    Shm(ShmWindow),
}

/// Runs `$body` with `$port` bound to the port of a [`Transport`], whichever it is. `$body` is compiled once for each.
macro_rules! with_port {
    ($transport:expr, $port:ident => $body:expr) => {
        match $transport {
            $crate::runtime::transport::Transport::Shm($port) => $body,
        }
    };
}
pub(crate) use with_port;

impl Transport {
    /// First byte of this process's window memory (0 when it is empty).
    pub(crate) fn base(&self) -> Addr {
        with_port!(self, port => port.base())
    }

    /// Bytes and displacement unit of a process's window memory.
    #[inline(always)]
    pub(crate) fn extent_of(&self, rank: Rank) -> (u64, u32) {
        with_port!(self, port => port.extent_of(rank))
    }

    /// Keeps the shape of an operation to `rank` that is about to be issued, until the operation ends.
    #[inline]
    pub(crate) fn add_shape(&mut self, _rank: Rank, shape: Shape) -> Shaped {
        with_port!(self, port => port.add_shape(shape))
    }

    /// Ends the shape of an operation to `rank` that will never be posted.
    #[cold]
    pub(crate) fn drop_shape(&mut self, _rank: Rank, shaped: Shaped) {
        with_port!(self, port => port.drop_shape(shaped));
    }

    /// True if this process reaches the memory of `rank` by load and store.
    #[inline(always)]
    pub(crate) fn load_store(&self, rank: Rank) -> bool {
        with_port!(self, port => port.load_store(rank))
    }

    /// True if peers wait for this process to poll.
    pub(crate) fn needs_polling(&self) -> bool {
        with_port!(self, port => port.needs_polling())
    }

    /// Stays with operations that are on their way as long as they move. True if something has finished.
    #[inline]
    pub(crate) fn settle(&mut self) -> bool {
        with_port!(self, port => port.settle())
    }

    /// Deposits this process's vote in a nonblocking collective vote.
    pub(crate) fn vote(&mut self, objection: bool) {
        with_port!(self, port => port.vote(objection));
    }

    /// The verdict (true: somebody objected) once all have voted.
    pub(crate) fn verdict(&mut self) -> Option<bool> {
        with_port!(self, port => port.verdict())
    }

    /// Ends the window here, after a vote.
    pub(crate) fn release(self) {
        with_port!(self, port => port.release());
    }

    /// Words for the log.
    pub(crate) fn describe(&self) -> String {
        with_port!(self, port => port.describe().into())
    }
}

impl From<ShmWindow> for Transport {
    fn from(port: ShmWindow) -> Self {
        Transport::Shm(port)
    }
}
