//! What a process has of a network interface, for all its windows: queues to peers, buffers, and
//! what is under way.
//!
//! One queue pair for each peer process that is used, whatever windows the two share, and one
//! completion queue. Requests of a queue complete in order, so those that need no answer are not
//! signalled: the completion of a later one tells of them.
//!
//! A write is complete for its origin when it is acknowledged, and that says nothing about the
//! target's processor. It is visible there when something has come back that was behind it: the
//! answer of a read or an atomic, such as the signal *done*, which the target sees only after it
//! [FE-2]. Such requests *cover* those before them.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::handshake::{ProcessId, RemoteAddress};
use super::registration_cache::{CacheStats, RegistrationCache, RegistrationId, default_bound};

use super::buffer_pool::BufferPool;
use super::device::{
    AtomicCapability, Completion, Device, DeviceError, DeviceLimits, LocalSegment, PortAddress, Qp,
};
use crate::engine::{Atomic, LockTicket, Stage, Ticket};
use crate::transport::host_mpi::wire::PACKET;
use crate::transport::kernel::Combine;
use crate::transport::shape::Side;

mod completions;
mod connections;
mod post;

use completions::Batch;
use connections::QpQuota;
pub(super) use connections::{ConnectionState, HandshakeOutcome, QpStatus};
pub(super) use post::PostedRequest;

/// Marks numbers of receives, which share a completion queue with requests.
pub(super) const RECEIVE: u64 = 1 << 63;
/// Buffers for packets and for short operations that are copied.
const BUFFERS: u32 = 64;
/// The window of requests that are no window's.
const NO_WINDOW: u32 = u32::MAX;
/// Accesses to lock words under way.
const ATOMIC_BUFFERS: u32 = 512;
/// Numbers of windows that are left alone before one is given out again.
const RETIRED_WINDOWS: usize = 16;

/// What the library has asked of the interface, for tests and for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextStats {
    /// Requests; each is handed over alone, so there are as many doorbells.
    pub posted: u64,
    /// Requests that were signalled.
    pub signalled: u64,
    /// Requests that nobody asked for but to know that others are complete.
    pub remote_fences: u64,
    /// Exchanges that had to be tried again, since the word was not what was guessed.
    pub retries: u64,
    /// Times that there was no room.
    pub refused: u64,
    /// Registrations of the application's memory.
    pub registrations: CacheStats,
    /// Queues that were made.
    pub queues: u64,
    /// Those that were closed.
    pub left: u64,
}

/// What a request holds until it is complete.
#[derive(Debug)]
pub(super) enum Held {
    Nothing,
    Buffer(u32),
    Registration(RegistrationId),
}

/// What a request was for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The end of a put. `told`: its origin buffer was given back before.
    Put { ticket: Ticket, told: bool, hold: Held },
    /// A piece of a get; with the ticket, the last one. A buffer is copied to `to`, or taken apart:
    /// a side that begins there, from which of its bytes on, and how many.
    Get {
        ticket: Option<Ticket>,
        to: usize,
        len: usize,
        hold: Held,
        unpack: Option<Box<(Side, u64, usize)>>,
    },
    /// A piece of a put that is not its end, or a packet.
    Piece(Held),
    /// An access to a word.
    WordAccess(u32),
}

#[derive(Debug)]
struct InFlight {
    number: u64,
    window: u32,
    purpose: Purpose,
    remote_fence: bool,
}

/// A put that is acknowledged, or will be by the next completion, and not covered.
#[derive(Clone, Copy, Debug)]
struct UnfencedPut {
    number: u64,
    window: u32,
    ticket: Ticket,
}

/// A peer process.
#[derive(Debug)]
struct Connection {
    state: ConnectionState,
    queue: Option<Qp>,
    /// By which the peer finds the queue.
    number: u32,
    /// Queues that the two have had before.
    generation: u32,
    /// It leads back to this process, and stays.
    is_loop: bool,
    /// This process has a higher name than the peer.
    is_above: bool,
    /// When it was used last, in polls.
    used: u64,
    /// What has come by it.
    heard: u64,
    /// Requests handed over, and complete.
    posted: u64,
    done: u64,
    last_signalled: u64,
    signalled: u32,
    /// The last request that covers, handed over.
    last_remote_fence: u64,
    /// The last request with a put, handed over.
    last_put: u64,
    in_flight: VecDeque<InFlight>,
    unfenced: VecDeque<UnfencedPut>,
    /// Operations that are exchanges, under way: what they do may still have to be tried again.
    cas_loops: u32,
    /// Operations on words, those included, under way.
    atomics_in_flight: u32,
    /// The last read of an operation: what must not overtake it is fenced. Who accesses a lock word
    /// waits for the answer before anything depends on it.
    last_read: u64,
    /// Where a read that only covers finds eight bytes.
    flush_target: RemoteAddress,
}

impl Default for Connection {
    fn default() -> Self {
        Connection {
            state: ConnectionState::Closed,
            queue: None,
            number: 0,
            generation: 0,
            is_loop: false,
            is_above: false,
            used: 0,
            heard: 0,
            posted: 0,
            done: 0,
            last_signalled: 0,
            signalled: 0,
            last_remote_fence: 0,
            last_put: 0,
            in_flight: VecDeque::new(),
            unfenced: VecDeque::new(),
            cas_loops: 0,
            atomics_in_flight: 0,
            last_read: 0,
            flush_target: RemoteAddress::default(),
        }
    }
}

impl Connection {
    /// Both sides have said their last packets on the queue, and nothing is under way.
    fn is_over(&self) -> bool {
        matches!(self.state, ConnectionState::Disconnecting { said: true, heard: Some(_) })
            && self.in_flight.is_empty()
    }
}

/// What is done to a word of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum AtomicOp {
    /// A lock word is accessed.
    Word(Atomic),
    /// An element of eight bytes is reduced.
    Reduce(Combine, u64),
}

impl AtomicOp {
    /// What the word becomes, if that depends on what it was: there is no such atomic, but an
    /// exchange that is tried until it supposes right.
    fn from(self, old: u64) -> Option<u64> {
        match self {
            // The word is nearly always empty.
            AtomicOp::Word(Atomic::Swap(new)) => Some(new),
            AtomicOp::Word(_) => None,
            AtomicOp::Reduce(combine, operand) => {
                let mut new = old;
                // SAFETY: eight bytes each, one element of a native datatype.
                unsafe { combine.apply((&raw const operand).cast(), (&raw mut new).cast(), 8) };
                Some(new)
            }
        }
    }
}

/// Who has asked for an access to a word.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requester {
    Nobody,
    /// Nobody waits for it, but what it tells must not be true before what comes before it.
    Signal,
    Lock(LockTicket),
    /// An operation, and where the old value goes; 0: nowhere.
    Operation(Ticket, usize),
}

/// An access to a word under way.
#[derive(Clone, Copy, Debug)]
struct WordAccess {
    window: u32,
    conn: u32,
    /// Of the queue for which it was begun.
    generation: u32,
    requester: Requester,
    word: RemoteAddress,
    op: AtomicOp,
    /// What an exchange supposes the word to be.
    expected: u64,
}

/// Something that a window is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WindowEvent {
    Finished(Ticket, Stage),
    Answer(LockTicket, u64),
    /// The peer's process has been told a number.
    Notified(u32, u32),
    Packet(u32, Vec<u8>),
    /// A queue has failed: why.
    Lost(u32, String),
}

/// What belongs to one window.
#[derive(Debug, Default)]
struct WindowSlot {
    events: VecDeque<WindowEvent>,
    /// Requests under way, and puts that are not covered.
    under_way: u64,
    /// Packets that were taken out, for those that come.
    spare: Vec<Vec<u8>>,
    /// The window is gone, and something of it still under way.
    closed: bool,
}

/// The interface, shared by the windows of a process.
#[derive(Debug)]
pub struct Context {
    // Before the interface, which must end after them.
    registrations: RegistrationCache,
    device: Box<dyn Device>,
    limits: DeviceLimits,
    name: ProcessId,
    buffers: BufferPool,
    receive_buffers: BufferPool,
    /// Receives that were taken out and are not posted again as yet.
    unposted_receives: Vec<u32>,
    atomic_buffers: BufferPool,
    word_accesses: Vec<Option<WordAccess>>,
    /// Accesses that must be tried again and found no room.
    retry_queue: Vec<u32>,
    connections: Vec<Connection>,
    by_process: HashMap<ProcessId, u32>,
    queues: HashMap<Qp, u32>,
    quota: QpQuota,
    slots: Vec<Option<WindowSlot>>,
    /// Numbers of windows that are gone, in the order in which they went.
    free: VecDeque<u32>,
    /// Requests handed over and not complete, of all queues.
    under_way: u32,
    completions: Vec<Completion>,
    stats: ContextStats,
}

/// What is asked of [`Fabric::post`] beside the act and the places.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PostFlags {
    pub(super) signalled: bool,
    pub(super) inline: bool,
    /// Behind reads: what it tells must not be true before.
    pub(super) fence: bool,
    pub(super) remote_fence: bool,
    /// It may use the last places of the queue.
    pub(super) urgent: bool,
}

/// Local memory of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LocalBuffer<'a> {
    pub(super) at: usize,
    pub(super) len: u32,
    pub(super) lkey: u32,
    /// If it is more than one run.
    pub(super) parts: &'a [LocalSegment],
}

impl Context {
    /// Takes over an interface. `name` tells this process from all others that it may meet.
    ///
    /// # Errors
    /// The buffers cannot be registered: in words.
    pub fn new(mut device: Box<dyn Device>, name: ProcessId) -> Result<Self, DeviceError> {
        let limits = device.limits();
        let receive_buffers = limits.receives.min(limits.completions / 4).max(1);
        let buffers = BufferPool::new(&mut *device, BUFFERS, PACKET)?;
        let mut incoming = BufferPool::new(&mut *device, receive_buffers, PACKET)?;
        let atomic_buffers = BufferPool::new(&mut *device, ATOMIC_BUFFERS, 64)?;
        while let Some(piece) = incoming.take() {
            // SAFETY: the piece is the interface's until it comes back.
            unsafe {
                device.receive(piece, incoming.at(piece) as usize, PACKET as u32, incoming.key())
            }?;
        }
        Ok(Context {
            registrations: RegistrationCache::new(default_bound()),
            device,
            limits,
            name,
            buffers,
            receive_buffers: incoming,
            unposted_receives: Vec::new(),
            atomic_buffers,
            word_accesses: (0..ATOMIC_BUFFERS).map(|_| None).collect(),
            retry_queue: Vec::new(),
            connections: Vec::new(),
            by_process: HashMap::new(),
            queues: HashMap::new(),
            quota: QpQuota::new(limits.queues),
            slots: Vec::new(),
            free: VecDeque::new(),
            under_way: 0,
            completions: Vec::new(),
            stats: ContextStats::default(),
        })
    }

    pub(super) fn name(&self) -> ProcessId {
        self.name
    }

    /// Eight bytes that peers may read at any time.
    pub(super) fn flush_target(&self) -> RemoteAddress {
        RemoteAddress {
            at: self.atomic_buffers.at(0) as u64,
            rkey: self.atomic_buffers.remote_key(),
        }
    }

    pub(super) fn address(&self) -> PortAddress {
        self.device.address()
    }

    /// Bytes of a write that are copied when it is handed over.
    pub(super) fn inline(&self) -> u64 {
        self.limits.inline.into()
    }

    /// Runs of local memory of one write, or read.
    pub(super) fn parts(&self, write: bool) -> usize {
        self.limits.parts[usize::from(!write)].max(1) as usize
    }

    /// Bytes of one request.
    pub(super) fn message(&self) -> u64 {
        self.limits.message
    }

    /// What atomics are atomic with.
    #[must_use]
    pub fn atomics(&self) -> AtomicCapability {
        self.limits.atomics
    }

    /// For the log: how far the queue to a peer is.
    pub(super) fn describe_connections(&self, conn: u32) -> String {
        let connection = &self.connections[conn as usize];
        let first = connection.in_flight.front().map_or_else(String::new, |first| {
            format!(", the first {}", self.describe_request(conn, first.number))
        });
        let Connection { number, state, posted, done, signalled, unfenced, .. } = connection;
        let unfenced = unfenced.len();
        format!(
            "queue {number} {state:?}: {posted} posted, {done} complete, {signalled} signalled{first}, {unfenced} puts not covered"
        )
    }

    /// True on InfiniBand, false on Ethernet: only the former has local addresses.
    #[must_use]
    pub fn is_infiniband(&self) -> bool {
        self.address().lid != 0
    }

    /// What was asked of the interface so far.
    #[must_use]
    pub fn stats(&self) -> ContextStats {
        ContextStats { registrations: self.registrations.stats(), ..self.stats }
    }

    /// Sets of how many bytes of the application's memory registrations are kept after use; none,
    /// if it is 0.
    pub fn set_registration_bound(&mut self, bytes: u64) {
        self.registrations.set_bound(&mut *self.device, bytes);
    }

    /// For the log.
    #[must_use]
    pub fn describe(&self) -> String {
        self.device.name()
    }

    // Windows.

    /// A number for a new window: not one of those that went last, of which a peer's last words may
    /// still come if they were broken.
    pub(super) fn open_window(&mut self) -> u32 {
        let free = if self.free.len() > RETIRED_WINDOWS { self.free.pop_front() } else { None };
        let window = free.unwrap_or(self.slots.len() as u32);
        if window as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[window as usize] = Some(WindowSlot::default());
        window
    }

    /// A window is gone. Its number is, when nothing of it is under way any more.
    pub(super) fn close_window(&mut self, window: u32) {
        // What has come for it must not be taken for another's.
        while self.take_batch() != Batch::Empty {}
        match &mut self.slots[window as usize] {
            Some(slot) if slot.under_way > 0 => {
                *slot =
                    WindowSlot { closed: true, under_way: slot.under_way, ..WindowSlot::default() }
            }
            _ => self.free_window(window),
        }
    }

    fn free_window(&mut self, window: u32) {
        self.slots[window as usize] = None;
        self.free.push_back(window);
    }

    /// The window is not gone.
    fn is_open(&self, window: u32) -> bool {
        matches!(self.slots.get(window as usize), Some(Some(slot)) if !slot.closed)
    }

    /// Moves what a window has been told since the last call to `into`, which is empty.
    pub(super) fn take_events(&mut self, window: u32, into: &mut VecDeque<WindowEvent>) {
        if let Some(slot) = &mut self.slots[window as usize] {
            std::mem::swap(&mut slot.events, into);
        }
    }

    /// True if a poll would find something, for this window or another one.
    pub(super) fn stirs(&mut self, window: u32) -> bool {
        self.slots[window as usize].as_ref().is_some_and(|slot| !slot.events.is_empty())
            || self.device.stirs()
    }

    pub(super) fn recycle_packet(&mut self, window: u32, bytes: Vec<u8>) {
        if let Some(Some(slot)) = self.slots.get_mut(window as usize)
            && slot.spare.len() < 64
        {
            slot.spare.push(bytes);
        }
    }

    /// True if nothing of a window is under way.
    pub(super) fn is_quiet(&self, window: u32) -> bool {
        self.slots[window as usize].as_ref().is_none_or(|slot| slot.under_way == 0)
    }

    fn push_event(&mut self, window: u32, event: WindowEvent) {
        if let Some(Some(slot)) = self.slots.get_mut(window as usize)
            && !slot.closed
        {
            slot.events.push_back(event);
        }
    }

    // Memory.

    /// Registers memory of this library's, or of a window.
    ///
    /// # Safety
    /// It must stay mapped until it is [let go](Self::let_go).
    pub(super) unsafe fn keep(
        &mut self,
        at: usize,
        len: usize,
    ) -> Result<(RegistrationId, u32), DeviceError> {
        // SAFETY: the caller's promise.
        let (id, registered) = unsafe { self.registrations.add(&mut *self.device, at, at + len) }?;
        Ok((id, registered.rkey))
    }

    /// Registers memory of an operation; with `holes` it uses but parts of it.
    ///
    /// # Safety
    /// It must stay mapped until it is released, by the end of the request that holds it or by
    /// [`let_go`](Self::let_go).
    pub(super) unsafe fn acquire(
        &mut self,
        at: usize,
        len: usize,
        holes: bool,
    ) -> Result<(RegistrationId, u32), DeviceError> {
        // SAFETY: the caller's promise.
        let (id, registered) =
            unsafe { self.registrations.acquire(&mut *self.device, at, len, holes) }?;
        Ok((id, registered.lkey))
    }

    /// A buffer of [`PACKET`] bytes.
    pub(super) fn buffer(&mut self) -> Option<(u32, *mut u8, u32)> {
        let piece = self.buffers.take();
        self.stats.refused += u64::from(piece.is_none());
        piece.map(|piece| (piece, self.buffers.at(piece), self.buffers.key()))
    }

    pub(super) fn release(&mut self, hold: Held) {
        match hold {
            Held::Nothing => {}
            Held::Buffer(piece) => self.buffers.give_back(piece),
            Held::Registration(id) => self.registrations.release(&mut *self.device, id),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let CacheStats { hits, misses, .. } = self.registrations.stats();
        let percent = 100 * hits / (hits + misses).max(1);
        log::debug!(
            "verbs: {percent} % of the buffers were registered already; {:?}",
            self.stats()
        );
        self.registrations.end(&mut *self.device);
    }
}
