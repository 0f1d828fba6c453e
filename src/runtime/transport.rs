//! The transport of one window: one of several, chosen when the window is made.
//!
//! The engine is generic over its port, so that each transport keeps its constants (such as
//! [`Port::SIGNALS_FOLLOW`]) and its inlined paths. A window holds an enum of transports, and
//! [`with_port!`](crate::runtime::with_port) selects the engine code that was compiled for its
//! transport: one predicted branch per call.
//!
//! [`Port::SIGNALS_FOLLOW`]: crate::engine::Port::SIGNALS_FOLLOW

use std::ffi::CStr;

use super::fast_path::MappedTarget;
use crate::engine::{Addr, Rank, Shaped};
use crate::transport::Proposal;
use crate::transport::am::OutOfReach;
pub(crate) use crate::transport::am::any_skipped;
use crate::transport::datatype::Shape;
use crate::transport::router::Router;
use crate::transport::shm::protocol::AccumulateWords;
use crate::transport::shm::tags::Claimed;
use crate::transport::shm::{
    AttachError, Counter, CounterStep, CounterTable, PlainCopy, ShmWindow, SystemError,
};

/// Moves the bytes of one window.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the common variant needs no pointer to reach it")]
pub(crate) enum Transport {
    /// All processes are on one node.
    Shm(ShmWindow),
    /// Some are on other nodes.
    Routed(Box<Router>),
}

/// Runs `$body` with `$port` bound to the port of a [`Transport`]. `$body` is compiled once for
/// each type of port.
macro_rules! with_port {
    ($transport:expr, $port:ident => $body:expr) => {
        match $transport {
            $crate::runtime::transport::Transport::Shm($port) => $body,
            $crate::runtime::transport::Transport::Routed(window) => {
                let $port = &mut **window;
                $body
            }
        }
    };
}
pub(crate) use with_port;

/// Calls a method that both transports have under the same name, outside the trait of ports.
macro_rules! either {
    ($transport:expr, $port:ident => $body:expr) => {
        match $transport {
            Transport::Shm($port) => $body,
            Transport::Routed($port) => $body,
        }
    };
}

impl Transport {
    /// First byte of this process's window memory (0 when it is empty).
    pub(crate) fn base(&self) -> Addr {
        either!(self, port => port.base())
    }

    /// Bytes and displacement unit of a process's window memory.
    #[inline(always)]
    pub(crate) fn extent_of(&self, rank: Rank) -> (u64, u32) {
        either!(self, port => port.extent_of(rank))
    }

    /// Whether `rank` has attached each of the `len` bytes at `at`. For dynamic windows, whose
    /// extent is 0; check other windows by [`extent_of`](Self::extent_of).
    ///
    /// # Errors
    /// This process cannot read the region table of `rank`.
    pub(crate) fn reaches(&self, rank: Rank, at: u64, len: u64) -> Result<bool, SystemError> {
        either!(self, port => port.reaches(rank, at, len))
    }

    /// Adds memory of this process to a dynamic window.
    pub(crate) fn attach(&mut self, base: Addr, len: u64) -> Result<(), AttachError> {
        either!(self, port => port.attach(base, len))
    }

    /// Removes memory of this process from a dynamic window.
    pub(crate) fn detach(&mut self, base: Addr) -> Result<(), AttachError> {
        either!(self, port => port.detach(base))
    }

    /// Address in this process of the memory of `rank`, if it is reached by load and store and not
    /// empty.
    pub(crate) fn address_of(&self, rank: Rank) -> Option<Addr> {
        either!(self, port => port.address_of(rank))
    }

    /// Keeps the shape of an operation to `rank` that is about to be issued, until the operation
    /// ends.
    #[inline]
    pub(crate) fn add_shape(&mut self, rank: Rank, shape: Shape) -> Shaped {
        match self {
            Transport::Shm(port) => port.add_shape(shape),
            Transport::Routed(port) => port.add_shape(rank, shape),
        }
    }

    /// Takes back the shape of an operation to `rank` that will never be posted.
    #[cold]
    pub(crate) fn take_shape(&mut self, rank: Rank, shaped: Shaped) -> Shape {
        match self {
            Transport::Shm(port) => port.take_shape(shaped),
            Transport::Routed(port) => port.take_shape(rank, shaped),
        }
    }

    /// True if this process reaches the memory of `rank` by load and store.
    #[inline(always)]
    pub(crate) fn load_store(&self, rank: Rank) -> bool {
        either!(self, port => port.load_store(rank))
    }

    /// Alignment of the memory that was allocated for this process, in bytes; 1 where none was.
    pub(crate) fn alignment(&self) -> u64 {
        either!(self, port => port.alignment())
    }

    /// Value of the info key `mpix_rma_progress`, which `mpix_rma.h` documents.
    pub(crate) fn progresses(&self) -> &'static CStr {
        either!(self, port => port.progresses())
    }

    /// Whether put and get to all processes of the node are copies by load and store.
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        either!(self, port => port.is_allocated())
    }

    /// Whether put and get to all processes of the window are.
    #[inline(always)]
    pub(crate) fn maps_all(&self) -> bool {
        matches!(self, Transport::Shm(port) if port.is_allocated())
    }

    /// The memory of `rank` in this process, if put and get to it are copies by load and store.
    #[inline(always)]
    pub(crate) fn mapped_target(&self, rank: Rank) -> Option<MappedTarget> {
        let (base, size, unit) = either!(self, port => port.place_of(rank))?;
        Some(MappedTarget { base: base.0 as u64, size, unit: unit.into() })
    }

    /// Copies by the kernel, a put or get that the transport would complete at once. False: it must
    /// be posted.
    ///
    /// # Safety
    /// The buffer in this process is valid for the operation.
    pub(crate) unsafe fn copy_by_kernel(&mut self, copy: &PlainCopy) -> bool {
        // SAFETY: the buffer is valid for the operation (contract of this function).
        either!(self, port => unsafe { port.copy_by_kernel(copy) })
    }

    /// True if operations of peers need this process to poll, or are slower while it does not.
    pub(crate) fn needs_polling(&self) -> bool {
        either!(self, port => port.needs_polling())
    }

    /// Whether only a message can move this window, and it has handled all that have arrived.
    #[inline]
    pub(crate) fn waits_for_messages(&self) -> bool {
        matches!(self, Transport::Routed(port) if port.waits_for_messages())
    }

    /// True if some peers are reached by messages or RDMA, whose contexts all windows share.
    #[inline]
    pub(crate) fn uses_network(&self) -> bool {
        matches!(self, Transport::Routed(_))
    }

    /// Polls the RDMA completion queue, at most `polls` times, until it has an entry. This is much
    /// cheaper than a full poll. True if it had an entry. Returns at once without RDMA.
    #[inline]
    pub(crate) fn poll_completions(&mut self, polls: u32) -> bool {
        match self {
            Transport::Shm(_) => false,
            Transport::Routed(port) => port.poll_completions(polls),
        }
    }

    /// Polls only for notifications that peers send by RDMA. False if a full poll may find more.
    #[inline]
    pub(crate) fn poll_notifications(&mut self) -> bool {
        match self {
            Transport::Routed(port) => port.poll_notifications(),
            Transport::Shm(_) => true,
        }
    }

    /// Sends partly filled packets and polls operations in flight until they stop moving. True if
    /// one has finished.
    #[inline]
    pub(crate) fn flush_and_poll(&mut self) -> bool {
        either!(self, port => port.flush_and_poll())
    }

    /// The accumulate lock of `rank`, if all accumulates on its memory are applied by load and
    /// store. Between nodes, a device may apply some.
    #[inline(always)]
    pub(crate) fn accumulate_lock(&self, rank: Rank) -> Option<&AccumulateWords> {
        match self {
            Transport::Shm(port) => port.accumulate_lock(rank),
            Transport::Routed(_) => None,
        }
    }

    /// Counters of `rank` that may be raised by a store after a copy.
    pub(crate) fn counter_table(&self, rank: Rank) -> CounterTable {
        either!(self, port => port.counter_table(rank))
    }

    /// Notification counters of a process.
    #[inline(always)]
    pub(crate) fn counters_of(&self, rank: Rank) -> u32 {
        either!(self, port => port.counters_of(rank))
    }

    /// A counter of `rank`, for this process to raise, if puts to `rank` are copies.
    #[inline(always)]
    pub(crate) fn counter_of(&self, rank: Rank, index: u32) -> Option<Counter<'_>> {
        either!(self, port => port.counter_of(rank, index))
    }

    /// Claims a place in the tag ring of `rank`, if puts to `rank` are copies. The caller publishes
    /// the notification after the copy.
    #[inline(always)]
    pub(crate) fn claim_tag(&self, rank: Rank, tag: u32) -> Option<Claimed<'_>> {
        either!(self, port => port.claim_tag(rank, tag))
    }

    /// A step of making counters; see [`ShmWindow::make_counters`].
    pub(crate) fn make_counters(&mut self, step: CounterStep, number: u32) -> Result<(), String> {
        either!(self, port => port.make_counters(step, number).map_err(|e| e.to_string()))
    }

    /// Ends [`make_counters`](Self::make_counters).
    pub(crate) fn counters_made(&mut self, agreed: bool) {
        either!(self, port => port.counters_made(agreed));
    }

    /// The window's number at this process's doorbell; see [`ShmWindow::number`].
    pub(crate) fn number(&self) -> Option<u32> {
        either!(self, port => port.number())
    }

    /// Sets the `cookie` by which contexts report that a message or an RDMA event has arrived for
    /// the window.
    pub(crate) fn set_cookie(&mut self, cookie: u64) {
        if let Transport::Routed(port) = self {
            port.set_cookie(cookie);
        }
    }

    /// Whether the window is armed; see [`ShmWindow::is_armed`].
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        either!(self, port => port.is_armed())
    }

    /// Arms the window where that is possible; see [`ShmWindow::arm`].
    pub(crate) fn arm(&mut self) -> bool {
        either!(self, port => port.arm())
    }

    /// Starts a nonblocking agreement of all processes with this process's proposal.
    pub(crate) fn propose(&mut self, proposal: Proposal) {
        either!(self, port => port.propose(proposal));
    }

    /// The highest proposal, once all processes have proposed.
    pub(crate) fn decision(&mut self) -> Option<Proposal> {
        either!(self, port => port.decision())
    }

    /// Whether the window has failed, because a message was refused or a peer was lost: operations
    /// in flight never complete. The log names the peer.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Transport::Routed(port) if port.is_broken())
    }

    /// The first peer that cannot be reached any more, and why.
    #[cold]
    pub(crate) fn lost(&self) -> Option<(Rank, &'static str)> {
        match self {
            Transport::Shm(_) => None,
            Transport::Routed(port) => port.lost(),
        }
    }

    /// Probes the peers, for a process that has waited for long. Returns the state of the
    /// connections to them, for the log.
    #[cold]
    pub(crate) fn probe(&mut self) -> String {
        match self {
            Transport::Shm(_) => String::new(),
            Transport::Routed(port) => port.probe(),
        }
    }

    /// A fault that the application has not seen yet: an operation on memory that `target`, or any
    /// process, had not attached. Without a target, clears all faults.
    #[inline]
    pub(crate) fn take_fault(&mut self, target: Option<Rank>) -> Option<OutOfReach> {
        match self {
            Transport::Shm(_) => None,
            Transport::Routed(port) => port.take_fault(target),
        }
    }

    /// Whether all messages of this process have arrived. Call it when all operations are complete,
    /// before the closing agreement.
    pub(crate) fn is_quiet(&mut self) -> bool {
        match self {
            Transport::Shm(_) => true,
            Transport::Routed(port) => port.is_quiet(),
        }
    }

    /// After the closing agreement: true once no message of the window is in flight anywhere.
    pub(crate) fn drain(&mut self) -> bool {
        match self {
            Transport::Shm(_) => true,
            Transport::Routed(port) => port.drain(),
        }
    }

    /// Frees local resources after the closing agreement and [`drain`](Self::drain).
    pub(crate) fn release(self) {
        either!(self, port => port.release())
    }

    /// The transports of this window, for the log.
    pub(crate) fn describe(&mut self) -> String {
        match self {
            Transport::Shm(port) => port.describe().into(),
            Transport::Routed(port) => port.describe(),
        }
    }
}

impl From<Router> for Transport {
    fn from(port: Router) -> Self {
        Transport::Routed(Box::new(port))
    }
}

impl From<ShmWindow> for Transport {
    fn from(port: ShmWindow) -> Self {
        Transport::Shm(port)
    }
}
