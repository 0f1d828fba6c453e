//! The RDMA context: a process's connections, completion queue and registered memory, for all its
//! windows.
//!
//! There is one reliable connection (queue pair) per peer process that is used, whatever windows
//! the two share, and one completion queue. Requests of a queue pair complete in order, so most are
//! unsignalled: the completion of a later one implies theirs.
//!
//! **Remote completion.** The completion of a write means that the write was acknowledged. The
//! target's processor may see the data later. They are visible there once the response of a later
//! read or atomic on the same queue pair has arrived [FE-2]. Such a request is a *remote fence* for
//! the puts before it. The signal *done* is one, and the target sees it only after those puts.
//!
//! Methods come in these groups: windows (`open_window` to `take_events`), memory (`register` to
//! `release`), requests (`post`), accesses to remote words (`access`), progress (`completions`,
//! `events`), and connections (`connections`).

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::buffer_pool::BufferPool;
use super::device::{
    Completion, Device, DeviceError, DeviceEvent, DeviceLimits, LocalSegment, Opcode, PortAddress,
    Qp, RegistrationError,
};
use super::handshake::{ProcessId, RemoteAddress};
use super::registration_cache::{CacheStats, RegistrationCache, RegistrationId, default_bound};
use crate::engine::{LockTicket, Stage, Ticket};
use crate::transport::PACKET;
use crate::transport::datatype::Side;

mod access;
mod completions;
mod connections;
mod events;
mod post;

use access::WordAccess;
pub(super) use access::{AtomicOp, Requester};
use completions::Batch;
use connections::QpQuota;
pub(super) use connections::{ConnectionState, HandshakeOutcome};
pub(super) use post::PostedRequest;

/// Number of bounce buffers, for packets and short operations.
const BUFFERS: u32 = 64;
/// Most accesses to remote words in flight.
const WORD_ACCESSES: u32 = 512;
/// Number of closed windows whose numbers are not reused yet.
const RETIRED_WINDOWS: usize = 16;
/// Most packets whose memory is kept for reuse.
const SPARE_PACKETS: usize = 64;
/// Most entries for which an empty event queue keeps memory.
const EVENT_CAPACITY: usize = 1024;

/// Counters of requests, for tests and the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextStats {
    /// Work requests posted.
    pub posted: u64,
    /// Times that the device's doorbell was rung, for one request or two.
    pub doorbells: u64,
    /// Work requests posted with a completion of their own.
    pub signalled: u64,
    /// Flush reads posted, as remote fences or to learn that earlier requests are complete.
    pub remote_fences: u64,
    /// Compare-and-swaps repeated because the word had another value than expected.
    pub retries: u64,
    /// Requests refused for lack of resources.
    pub refused: u64,
    /// Counters of the registration cache.
    pub registrations: CacheStats,
    /// Queue pairs created.
    pub qps_created: u64,
    /// Queue pairs destroyed.
    pub qps_destroyed: u64,
}

/// Why a peer cannot be reached any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say what they mean")]
pub enum ConnectionError {
    #[error("{request} has failed: {status}")]
    RequestFailed { request: &'static str, status: String },
    #[error("its queue pair has failed: {0}")]
    QueuePair(String),
    #[error("the device of this process has failed: {0}")]
    DeviceFailed(String),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("no memory for control words: {0}")]
    ControlWords(RegistrationError),
    #[error("it did not answer while a window that it shares was being aborted")]
    Unresponsive,
    #[error("it cannot connect its queue pair, or the queue pair has failed")]
    Rejected,
    #[error("it asked for control words of a process that is not in the window")]
    InvalidLookup,
}

/// Resources that a request holds until it completes.
#[derive(Debug)]
pub(super) enum Held {
    Nothing,
    Buffer(u32),
    Registration(RegistrationId),
}

/// The purpose of a request, which decides what its completion does.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The last request of a put. `locally_complete`: the put was already reported as locally
    /// complete.
    Put { ticket: Ticket, locally_complete: bool, held: Held },
    /// A request of a get; the last one has the ticket. `len` bytes in a buffer are copied to `to`.
    /// With `unpack`, they are unpacked to a side that begins at `to`: the side, the first of its
    /// bytes, and their number.
    Get {
        ticket: Option<Ticket>,
        to: usize,
        len: usize,
        held: Held,
        unpack: Option<Box<(Side, u64, usize)>>,
    },
    /// A packet or signal, or a request of a put before its last one.
    Fragment(Held),
    /// An access to a remote word, by the number of its buffer.
    Access(u32),
}

/// A posted request.
#[derive(Debug)]
struct InFlight {
    number: u64,
    window: u32,
    purpose: Purpose,
    remote_fence: bool,
}

/// A put that has completed locally and waits for a remote fence.
#[derive(Clone, Copy, Debug)]
struct UnfencedPut {
    number: u64,
    window: u32,
    ticket: Ticket,
}

pub(super) type ConnectionId = usize;

#[derive(Debug, Default)]
struct Connection {
    state: ConnectionState,
    qp: Option<Qp>,
    /// The queue pair's number for the peer.
    qp_number: u32,
    /// Number of queue pairs that the two processes have had before.
    generation: u32,
    /// The peer is this process. A loopback connection is never closed.
    is_loopback: bool,
    /// This process has a higher id than the peer.
    is_higher: bool,
    /// Time of the last use, in polls.
    used: u64,
    /// Messages received.
    received: u64,
    /// Number of the last request posted, and of the last one known to be complete.
    posted: u64,
    completed: u64,
    last_signalled: u64,
    /// Signalled requests in flight.
    signalled: u32,
    /// Numbers of the last remote fence, put, read of a get, and atomic of an accumulate. (Accesses
    /// to control words need no fence, because whoever depends on one waits for its response.)
    last_remote_fence: u64,
    last_put: u64,
    last_read: u64,
    last_accumulate: u64,
    /// The next request with the fence flag must follow those up to this number [OR-1].
    ordered: u64,
    /// Number of the last flush read.
    last_flush_read: u64,
    /// Puts since the last remote fence before them.
    puts_together: u32,
    /// Number of puts in a row that were followed by a flush read each, and waited for.
    flushed_alone: u32,
    in_flight: VecDeque<InFlight>,
    unfenced: VecDeque<UnfencedPut>,
    /// Accumulates in flight, and how many of them may have to repeat a compare-and-swap.
    accumulates: u32,
    cas_loops: u32,
    /// The peer's memory that flush reads read.
    flush_target: RemoteAddress,
}

/// Events of one window, by kind. The context fills the queues; its owner takes them by swapping.
#[derive(Debug, Default)]
pub(super) struct WindowEvents {
    pub(super) finished: VecDeque<(Ticket, Stage)>,
    /// Old values of lock words, from accesses to them.
    pub(super) answers: VecDeque<(LockTicket, u64)>,
    /// Counters of this process that peers have raised.
    pub(super) notifications: VecDeque<(ConnectionId, u32)>,
    pub(super) packets: VecDeque<(ConnectionId, Vec<u8>)>,
    pub(super) lost: VecDeque<(ConnectionId, ConnectionError)>,
}

impl WindowEvents {
    pub(super) fn is_empty(&self) -> bool {
        self.finished.is_empty()
            && self.answers.is_empty()
            && self.notifications.is_empty()
            && self.packets.is_empty()
            && self.lost.is_empty()
    }

    /// Moves all events of `from` to the end of these queues.
    fn take_from(&mut self, from: &mut WindowEvents) {
        fn take<T>(to: &mut VecDeque<T>, from: &mut VecDeque<T>) {
            if from.is_empty() && to.capacity() <= EVENT_CAPACITY {
                return;
            }
            if to.is_empty() {
                to.shrink_to(EVENT_CAPACITY);
                std::mem::swap(to, from);
            } else {
                to.append(from);
            }
        }
        take(&mut self.finished, &mut from.finished);
        take(&mut self.answers, &mut from.answers);
        take(&mut self.notifications, &mut from.notifications);
        take(&mut self.packets, &mut from.packets);
        take(&mut self.lost, &mut from.lost);
    }
}

/// The context's part of one window.
#[derive(Debug, Default)]
struct WindowSlot {
    events: WindowEvents,
    has_events: bool,
    /// What [`Context::next_contacted`] reports when there are events.
    cookie: Option<u64>,
    /// The window is in `contacted`.
    is_listed: bool,
    /// Requests in flight, and puts that wait for a remote fence.
    in_flight: u64,
    /// The window was closed while requests of it were in flight.
    closed: bool,
}

/// The RDMA context of a process.
#[derive(Debug)]
pub struct Context {
    // Declared before the pools, so that it is dropped before the memory that it has registered.
    device: Box<dyn Device>,
    registrations: RegistrationCache,
    pub(super) limits: DeviceLimits,
    pub(super) process: ProcessId,
    buffers: BufferPool,
    receive_buffers: BufferPool,
    /// Receive buffers that are not posted.
    unposted_receives: Vec<u32>,
    /// Where the results of accesses to remote words arrive.
    word_buffers: BufferPool,
    /// By word buffer.
    accesses: Vec<Option<WordAccess>>,
    /// Word buffers of accesses to repeat when there is room.
    retry_queue: Vec<u32>,
    connections: Vec<Connection>,
    by_process: HashMap<ProcessId, ConnectionId>,
    /// By queue pair.
    by_qp: Vec<Option<ConnectionId>>,
    quota: QpQuota,
    windows: Vec<Option<WindowSlot>>,
    /// Numbers of closed windows, oldest first.
    free_windows: VecDeque<u32>,
    /// Windows with a cookie that have events.
    contacted: Vec<u32>,
    /// Requests in flight on all connections.
    in_flight: u32,
    completions: VecDeque<Completion>,
    /// The device has reported that its port is down, and not yet that it is up again.
    port_is_down: bool,
    /// Failures that the device has reported and that were not handled yet.
    failures: VecDeque<DeviceEvent>,
    /// Memory of packets, for reuse.
    pub(super) spare_packets: Vec<Vec<u8>>,
    stats: ContextStats,
}

/// How a request is posted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PostFlags {
    pub(super) signalled: bool,
    pub(super) inline: bool,
    /// Start after earlier gets and accumulates: to the target, the request means that they are
    /// complete.
    pub(super) fence: bool,
    /// The completion implies that earlier puts are visible at the target.
    pub(super) remote_fence: bool,
    /// The request may use the reserved slots of the send queue.
    pub(super) urgent: bool,
    /// Another request follows at once, on the same connection.
    pub(super) more: bool,
}

/// Local memory of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LocalBuffer<'a> {
    pub(super) addr: usize,
    pub(super) len: u32,
    pub(super) lkey: u32,
    /// The segments, if there are more than one.
    pub(super) segments: &'a [LocalSegment],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) opcode: Opcode,
    pub(super) local: LocalBuffer<'a>,
    pub(super) remote: RemoteAddress,
    pub(super) flags: PostFlags,
}

impl Context {
    /// A context over `device`. `process` identifies this process to all peers.
    pub fn new(mut device: Box<dyn Device>, process: ProcessId) -> Result<Self, DeviceError> {
        let limits = device.limits();
        let receives = limits.receive_depth.min(limits.cq_depth / 4).max(1);
        let buffers = BufferPool::new(&mut *device, BUFFERS, PACKET)?;
        let mut receive_buffers = BufferPool::new(&mut *device, receives, PACKET)?;
        let word_buffers = BufferPool::new(&mut *device, WORD_ACCESSES, 64)?;
        let unposted_receives = std::iter::from_fn(|| receive_buffers.take()).collect();
        let mut context = Context {
            device,
            registrations: RegistrationCache::new(default_bound()),
            limits,
            process,
            buffers,
            receive_buffers,
            unposted_receives,
            word_buffers,
            accesses: (0..WORD_ACCESSES).map(|_| None).collect(),
            retry_queue: Vec::new(),
            connections: Vec::new(),
            by_process: HashMap::new(),
            by_qp: Vec::new(),
            quota: QpQuota::new(limits.max_qps),
            windows: Vec::new(),
            free_windows: VecDeque::new(),
            contacted: Vec::new(),
            in_flight: 0,
            completions: VecDeque::new(),
            port_is_down: false,
            failures: VecDeque::new(),
            spare_packets: Vec::new(),
            stats: ContextStats::default(),
        };
        context.post_receives()?;
        Ok(context)
    }

    /// Eight bytes of this process that peers may read at any time: the target of flush reads.
    pub(super) fn flush_target(&self) -> RemoteAddress {
        RemoteAddress {
            addr: self.word_buffers.addr(0) as u64,
            rkey: self.word_buffers.region.rkey,
        }
    }

    pub(super) fn address(&self) -> PortAddress {
        self.device.address()
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> ContextStats {
        ContextStats { registrations: self.registrations.stats(), ..self.stats }
    }

    /// Bounds the registration cache, in bytes. 0 disables it.
    pub fn set_registration_bound(&mut self, bytes: u64) {
        self.registrations.set_bound(&mut *self.device, bytes);
    }

    /// Device and port, for the log.
    #[must_use]
    pub fn describe(&self) -> String {
        self.device.name()
    }

    /// The state of a connection, for the log.
    pub(super) fn describe_connection(&self, conn: ConnectionId) -> String {
        let connection = &self.connections[conn];
        let first = connection.in_flight.front().map_or_else(String::new, |first| {
            format!(", the first {}", self.describe_request(conn, first.number))
        });
        let Connection { qp_number, state, posted, completed, signalled, unfenced, .. } =
            connection;
        let unfenced = unfenced.len();
        format!(
            "queue pair {qp_number} {state:?}: {posted} posted, {completed} complete, \
             {signalled} signalled{first}, {unfenced} puts without remote fence"
        )
    }

    /// The connection of a queue pair. `None` if it was destroyed.
    #[inline]
    fn connection_of(&self, qp: Qp) -> Option<ConnectionId> {
        self.by_qp.get(qp.0 as usize).copied().flatten()
    }

    // Windows.

    /// Opens a window and returns its number. The numbers of windows closed last are not reused,
    /// because packets for a broken window may still arrive.
    pub(super) fn open_window(&mut self) -> u32 {
        let reuse = self.free_windows.len() > RETIRED_WINDOWS;
        let free = if reuse { self.free_windows.pop_front() } else { None };
        let window = free.unwrap_or(self.windows.len() as u32);
        if window as usize == self.windows.len() {
            self.windows.push(None);
        }
        self.windows[window as usize] = Some(WindowSlot::default());
        window
    }

    /// Closes a window. Its number is freed when none of its requests is in flight.
    pub(super) fn close_window(&mut self, window: u32) {
        // Completions that have arrived for this window must not reach a later one.
        while self.take_batch() != Batch::Empty {}
        match &mut self.windows[window as usize] {
            Some(slot) if slot.in_flight > 0 => {
                *slot =
                    WindowSlot { closed: true, in_flight: slot.in_flight, ..WindowSlot::default() }
            }
            _ => self.free_window(window),
        }
    }

    fn free_window(&mut self, window: u32) {
        self.windows[window as usize] = None;
        self.free_windows.push_back(window);
    }

    fn slot(&mut self, window: u32) -> Option<&mut WindowSlot> {
        self.windows.get_mut(window as usize)?.as_mut()
    }

    /// The slot of a window that is not closed.
    fn open_slot(&mut self, window: u32) -> Option<&mut WindowSlot> {
        self.slot(window).filter(|slot| !slot.closed)
    }

    /// The queues for a new event of a window, unless it is closed. The caller pushes the event.
    #[inline]
    fn events_of(&mut self, window: u32) -> Option<&mut WindowEvents> {
        let slot = self.windows.get_mut(window as usize)?.as_mut().filter(|slot| !slot.closed)?;
        slot.has_events = true;
        if slot.cookie.is_some() && !std::mem::replace(&mut slot.is_listed, true) {
            self.contacted.push(window);
        }
        Some(&mut slot.events)
    }

    /// Has [`next_contacted`](Self::next_contacted) report `cookie` when a window has events.
    pub(super) fn set_cookie(&mut self, window: u32, cookie: u64) {
        if let Some(slot) = self.open_slot(window) {
            slot.cookie = Some(cookie);
            if slot.has_events {
                self.events_of(window);
            }
        }
    }

    /// The cookie of a window that has had events since its cookie was reported last.
    pub fn next_contacted(&mut self) -> Option<u64> {
        while let Some(window) = self.contacted.pop() {
            if let Some(slot) = self.open_slot(window) {
                slot.is_listed = false;
                return slot.cookie;
            }
        }
        None
    }

    pub(super) fn push_finished(&mut self, window: u32, ticket: Ticket, stage: Stage) {
        if let Some(events) = self.events_of(window) {
            events.finished.push_back((ticket, stage));
        }
    }

    /// Moves a window's events to `into`. Returns whether there were any.
    pub(super) fn take_events(&mut self, window: u32, into: &mut WindowEvents) -> bool {
        let Some(slot) = self.slot(window).filter(|slot| slot.has_events) else { return false };
        slot.has_events = false;
        into.take_from(&mut slot.events);
        true
    }

    #[inline]
    pub(super) fn has_events(&self, window: u32) -> bool {
        self.windows[window as usize].as_ref().is_some_and(|slot| slot.has_events)
    }

    /// Whether a window has events, or there are completions of any window.
    pub(super) fn has_completions(&mut self, window: u32) -> bool {
        if self.has_events(window) {
            return true;
        }
        if self.completions.is_empty() {
            self.device.poll(&mut self.completions);
        }
        !self.completions.is_empty()
    }

    /// Keeps the memory of a packet for another one.
    pub(super) fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare_packets.len() < SPARE_PACKETS {
            self.spare_packets.push(bytes);
        }
    }

    /// Whether a window has nothing in flight.
    pub(super) fn is_quiet(&self, window: u32) -> bool {
        self.windows[window as usize].as_ref().is_none_or(|slot| slot.in_flight == 0)
    }

    // Memory.

    /// Registers memory of the library, or of a window. Returns the remote key.
    ///
    /// # Safety
    /// The memory must stay mapped until it is [released](Self::release).
    pub(super) unsafe fn register(
        &mut self,
        addr: usize,
        len: usize,
    ) -> Result<(RegistrationId, u32), RegistrationError> {
        // SAFETY: the memory stays mapped until its release (contract of this function).
        let (id, region) = unsafe { self.registrations.add(&mut *self.device, addr, addr + len) }?;
        Ok((id, region.rkey))
    }

    /// Registers memory of an operation, or finds its registration. Returns the local key.
    /// `holes`: the operation uses only parts of the memory.
    ///
    /// # Safety
    /// The memory must stay mapped until the registration is released, by the completion of the
    /// request that holds it or by [`release`](Self::release).
    pub(super) unsafe fn acquire(
        &mut self,
        addr: usize,
        len: usize,
        holes: bool,
    ) -> Result<(RegistrationId, u32), RegistrationError> {
        // SAFETY: the memory stays mapped until its release (contract of this function).
        let (id, region) =
            unsafe { self.registrations.acquire(&mut *self.device, addr, len, holes) }?;
        Ok((id, region.lkey))
    }

    /// Takes a bounce buffer of [`PACKET`] bytes. Returns its number, address and local key.
    pub(super) fn buffer(&mut self) -> Option<(u32, *mut u8, u32)> {
        let buffer = self.buffers.take();
        self.stats.refused += u64::from(buffer.is_none());
        buffer.map(|buffer| (buffer, self.buffers.addr(buffer), self.buffers.region.lkey))
    }

    pub(super) fn release(&mut self, held: Held) {
        match held {
            Held::Nothing => {}
            Held::Buffer(buffer) => self.buffers.give_back(buffer),
            Held::Registration(id) => self.registrations.release(&mut *self.device, id),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let CacheStats { hits, misses, .. } = self.registrations.stats();
        let percent = 100 * hits / (hits + misses).max(1);
        log::debug!("verbs: {percent} % registration cache hits; {:?}", self.stats());
        self.registrations.end(&mut *self.device);
    }
}
