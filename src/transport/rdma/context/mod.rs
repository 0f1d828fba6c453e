//! The RDMA context: what a process has of an RDMA device, for all its windows.
//!
//! There is one reliable connection (queue pair) per peer process that is used, whatever windows
//! the two share, and one completion queue. Requests of a queue pair complete in order, so most are
//! unsignalled: the completion of a later one implies theirs.
//!
//! **Remote completion.** The completion of a write means that it was acknowledged. The target's
//! processor may see it later. It is visible there once the response of a later read or atomic on
//! the same queue pair has arrived [FE-2]. Such a request is a *remote fence* for the puts before
//! it. The signal *done* is one, and the target sees it only after those puts.
//!
//! Methods come in these groups: windows (`open_window` to `take_events`), memory (`register` to
//! `release`), requests (`post`), accesses to remote words (`access`), progress (`completions`),
//! and connections (`connections`).

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::buffer_pool::BufferPool;
use super::device::{
    Completion, Device, DeviceError, DeviceLimits, LocalSegment, Opcode, PortAddress, Qp,
    RegistrationError,
};
use super::handshake::{ProcessId, RemoteAddress};
use super::registration_cache::{CacheStats, RegistrationCache, RegistrationId, default_bound};
use crate::engine::{LockTicket, Stage, Ticket};
use crate::transport::PACKET;
use crate::transport::datatype::Side;

mod access;
mod completions;
mod connections;
mod post;

use access::WordAccess;
pub(super) use access::{AtomicOp, Requester};
use completions::Batch;
use connections::QpQuota;
pub(super) use connections::{ConnectionState, HandshakeOutcome, QpStatus};
pub(super) use post::PostedRequest;

/// Bounce buffers, for packets and short operations.
const BUFFERS: u32 = 64;
/// The window of requests that belong to no window.
const NO_WINDOW: u32 = u32::MAX;
/// Outstanding accesses to remote words.
const WORD_ACCESSES: u32 = 512;
/// Closed windows whose numbers are not reused yet.
const RETIRED_WINDOWS: usize = 16;
/// Packets whose memory is kept for reuse.
const SPARE_PACKETS: usize = 64;
/// Capacity that an empty event queue keeps.
const EVENT_CAPACITY: usize = 1024;

/// Counters of the requests made of the device, for tests and the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextStats {
    /// Work requests posted; each rings the doorbell by itself.
    pub posted: u64,
    /// Those that were signalled.
    pub signalled: u64,
    /// Reads posted only as remote fences, or to learn of the completion of earlier requests.
    pub remote_fences: u64,
    /// Compare-and-swaps repeated because the word had another value than expected.
    pub retries: u64,
    /// Requests refused for lack of resources.
    pub refused: u64,
    /// The registration cache.
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
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("no memory for control words: {0}")]
    ControlWords(RegistrationError),
    #[error("it does not answer, and a window that it shares has lost a process")]
    Unresponsive,
    #[error("its queue pair cannot be connected, or has failed")]
    Rejected,
    #[error("it has asked for control words of a process that the window does not have")]
    InvalidLookup,
}

/// Resources that a request holds until it completes.
#[derive(Debug)]
pub(super) enum Held {
    Nothing,
    Buffer(u32),
    Registration(RegistrationId),
}

/// What a request is for, and so what its completion does.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The last request of a put. `locally_complete`: its origin buffer was reported free before.
    Put { ticket: Ticket, locally_complete: bool, held: Held },
    /// A request of a get; the last one has the ticket. Data in a buffer are copied to `to`, or
    /// unpacked: to a side that begins there, from which of its bytes on, and how many.
    Get {
        ticket: Option<Ticket>,
        to: usize,
        len: usize,
        held: Held,
        unpack: Option<Box<(Side, u64, usize)>>,
    },
    /// An earlier request of a put, or a packet.
    Fragment(Held),
    /// An access to a remote word.
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

/// A put that waits for a remote fence.
#[derive(Clone, Copy, Debug)]
struct UnfencedPut {
    number: u64,
    window: u32,
    ticket: Ticket,
}

pub(super) type ConnectionId = u32;

#[derive(Debug, Default)]
struct Connection {
    state: ConnectionState,
    qp: Option<Qp>,
    /// The queue pair's number for the peer.
    qp_number: u32,
    /// Queue pairs that the two processes have had before.
    generation: u32,
    /// The peer is this process. Such a connection is never closed.
    is_loopback: bool,
    /// This process has a higher id than the peer.
    is_higher: bool,
    /// Time of the last use, in polls.
    used: u64,
    received: u64,
    /// Number of the last request posted, and of the last one known to be complete.
    posted: u64,
    completed: u64,
    last_signalled: u64,
    /// Signalled requests in flight.
    signalled: u32,
    /// The last remote fence, put and read of a get. (Whoever depends on an access to a word waits
    /// for its response, so accesses need no fence.)
    last_remote_fence: u64,
    last_put: u64,
    last_read: u64,
    in_flight: VecDeque<InFlight>,
    unfenced: VecDeque<UnfencedPut>,
    /// Accumulates in flight, and those among them that may have to repeat a compare-and-swap.
    accumulates: u32,
    cas_loops: u32,
    /// Where flush reads go.
    flush_target: RemoteAddress,
}

/// What happened to one window, by kind. Filled by the context; handed over by exchanging queues.
#[derive(Debug, Default)]
pub(super) struct WindowEvents {
    pub(super) finished: VecDeque<(Ticket, Stage)>,
    /// Values of lock words.
    pub(super) answers: VecDeque<(LockTicket, u64)>,
    /// Counters that peers have raised.
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

    /// Moves all events of `from` here, behind those that are here.
    fn take_from(&mut self, from: &mut WindowEvents) {
        fn take<T>(to: &mut VecDeque<T>, from: &mut VecDeque<T>) {
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
    /// What the owner of the window wants to hear when there are.
    cookie: Option<u64>,
    /// It is in the list of windows that have events.
    is_listed: bool,
    /// Requests in flight, and puts without a remote fence.
    in_flight: u64,
    /// The window is gone, but not all of its requests.
    closed: bool,
}

/// The RDMA context of a process.
#[derive(Debug)]
pub struct Context {
    // Dropped before the pools, whose memory it has registered.
    device: Box<dyn Device>,
    registrations: RegistrationCache,
    limits: DeviceLimits,
    process: ProcessId,
    buffers: BufferPool,
    receive_buffers: BufferPool,
    /// Receive buffers to be posted again.
    unposted_receives: Vec<u32>,
    /// Results of accesses to remote words.
    word_buffers: BufferPool,
    accesses: Vec<Option<WordAccess>>,
    /// Accesses to repeat when there is room.
    retry_queue: Vec<u32>,
    connections: Vec<Connection>,
    by_process: HashMap<ProcessId, ConnectionId>,
    by_qp: HashMap<Qp, ConnectionId>,
    quota: QpQuota,
    windows: Vec<Option<WindowSlot>>,
    /// Numbers of closed windows, oldest first.
    free_windows: VecDeque<u32>,
    /// Windows with a cookie that have events.
    contacted: Vec<u32>,
    /// Requests in flight on all connections.
    in_flight: u32,
    completions: VecDeque<Completion>,
    /// Memory of packets for reuse.
    pub(super) spare_packets: Vec<Vec<u8>>,
    stats: ContextStats,
}

/// How a request is posted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PostFlags {
    pub(super) signalled: bool,
    pub(super) inline: bool,
    /// Wait for earlier reads: the request says that they are over.
    pub(super) fence: bool,
    /// Its completion implies that earlier puts are visible at the target.
    pub(super) remote_fence: bool,
    /// It may use the reserved slots of the send queue.
    pub(super) urgent: bool,
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
    /// Takes over a device. `process` identifies this process among all that it may connect to.
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
            by_qp: HashMap::new(),
            quota: QpQuota::new(limits.max_qps),
            windows: Vec::new(),
            free_windows: VecDeque::new(),
            contacted: Vec::new(),
            in_flight: 0,
            completions: VecDeque::new(),
            spare_packets: Vec::new(),
            stats: ContextStats::default(),
        };
        context.post_receives()?;
        Ok(context)
    }

    pub(super) fn process(&self) -> ProcessId {
        self.process
    }

    /// Eight bytes of this process that peers may read at any time.
    pub(super) fn flush_target(&self) -> RemoteAddress {
        RemoteAddress { addr: self.word_buffers.addr(0) as u64, rkey: self.word_buffers.rkey() }
    }

    pub(super) fn address(&self) -> PortAddress {
        self.device.address()
    }

    pub(super) fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// Whether the port is on InfiniBand, and not on Ethernet: only the former has LIDs.
    #[must_use]
    pub fn is_infiniband(&self) -> bool {
        self.address().lid != 0
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

    /// State of a connection, for the log.
    pub(super) fn describe_connection(&self, conn: ConnectionId) -> String {
        let connection = &self.connections[conn as usize];
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

    // Windows.

    /// A number for a new window. The last ones closed are not reused: packets for them may still
    /// arrive if they were broken.
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

    /// Closes a window. Its number is free when none of its requests is in flight.
    pub(super) fn close_window(&mut self, window: u32) {
        // Events that have arrived for it must not reach a later window.
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

    /// The queues for new events of a window, unless it is closed.
    #[inline]
    fn events_of(&mut self, window: u32) -> Option<&mut WindowEvents> {
        let slot = self.windows.get_mut(window as usize)?.as_mut().filter(|slot| !slot.closed)?;
        slot.has_events = true;
        if slot.cookie.is_some() && !std::mem::replace(&mut slot.is_listed, true) {
            self.contacted.push(window);
        }
        Some(&mut slot.events)
    }

    /// Reports `cookie` when there are events of a window.
    pub(super) fn set_cookie(&mut self, window: u32, cookie: u64) {
        if let Some(slot) = self.open_slot(window) {
            slot.cookie = Some(cookie);
            if slot.has_events {
                self.events_of(window);
            }
        }
    }

    /// The cookie of the next window that has events.
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

    /// Takes the memory of a packet for another one.
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
    /// `holes`: the operation uses parts of the memory only.
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

    /// A bounce buffer of [`PACKET`] bytes: its number, address and local key.
    pub(super) fn buffer(&mut self) -> Option<(u32, *mut u8, u32)> {
        let buffer = self.buffers.take();
        self.stats.refused += u64::from(buffer.is_none());
        buffer.map(|buffer| (buffer, self.buffers.addr(buffer), self.buffers.lkey()))
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
