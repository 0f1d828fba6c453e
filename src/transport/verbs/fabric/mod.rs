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

use super::hello::{Name, Spot};
use super::memory::{Hits, RegionId, Regions, default_bound};

use super::nic::{Address, Atomics, Completion, Failure, Limits, Nic, Part, Queue};
use super::pool::Pool;
use crate::engine::{Atomic, LockTicket, Stage, Ticket};
use crate::transport::datatype::{Combine, Side};
use crate::transport::host_mpi::wire::PACKET;

mod completions;
mod queues;
mod requests;

use completions::Batch;
use queues::Count;
pub(super) use queues::{Joined, Stand, State};
pub(super) use requests::Last;

/// Marks numbers of receives, which share a completion queue with requests.
pub(super) const RECEIVE: u64 = 1 << 63;
/// Buffers for packets and for short operations that are copied.
const BUFFERS: u32 = 64;
/// The window of requests that are no window's.
const NOBODY: u32 = u32::MAX;
/// Accesses to lock words under way.
const ANSWERS: u32 = 512;
/// Numbers of windows that are left alone before one is given out again.
const RESTING: usize = 16;

/// What the library has asked of the interface, for tests and for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Requests; each is handed over alone, so there are as many doorbells.
    pub posted: u64,
    /// Requests that were signalled.
    pub signalled: u64,
    /// Requests that nobody asked for but to know that others are complete.
    pub covers: u64,
    /// Exchanges that had to be tried again, since the word was not what was guessed.
    pub retries: u64,
    /// Times that there was no room.
    pub refused: u64,
    /// Registrations of the application's memory.
    pub registrations: Hits,
    /// Queues that were made.
    pub queues: u64,
    /// Those that were closed.
    pub left: u64,
}

/// What a request holds until it is complete.
#[derive(Debug)]
pub(super) enum Hold {
    Nothing,
    Buffer(u32),
    Region(RegionId),
}

/// What a request was for.
#[derive(Debug)]
pub(super) enum What {
    /// The end of a put. `told`: its origin buffer was given back before.
    Put { ticket: Ticket, told: bool, hold: Hold },
    /// A piece of a get; with the ticket, the last one. A buffer is copied to `to`, or taken apart:
    /// a side that begins there, from which of its bytes on, and how many.
    Get {
        ticket: Option<Ticket>,
        to: usize,
        len: usize,
        hold: Hold,
        unpack: Option<Box<(Side, u64, usize)>>,
    },
    /// A piece of a put that is not its end, or a packet.
    Piece(Hold),
    /// An access to a word.
    Access(u32),
}

#[derive(Debug)]
struct Flying {
    number: u64,
    window: u32,
    what: What,
    covers: bool,
}

/// A put that is acknowledged, or will be by the next completion, and not covered.
#[derive(Clone, Copy, Debug)]
struct Uncovered {
    number: u64,
    window: u32,
    ticket: Ticket,
}

/// A peer process.
#[derive(Debug)]
struct Endpoint {
    state: State,
    queue: Option<Queue>,
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
    covering: u64,
    /// The last request with a put, handed over.
    last_put: u64,
    flying: VecDeque<Flying>,
    uncovered: VecDeque<Uncovered>,
    /// Operations that are exchanges, under way: what they do may still have to be tried again.
    exchanges: u32,
    /// Operations on words, those included, under way.
    operations: u32,
    /// The last read of an operation: what must not overtake it is fenced. Who accesses a lock word
    /// waits for the answer before anything depends on it.
    last_read: u64,
    /// Where a read that only covers finds eight bytes.
    ground: Spot,
}

impl Default for Endpoint {
    fn default() -> Self {
        Endpoint {
            state: State::Vacant,
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
            covering: 0,
            last_put: 0,
            flying: VecDeque::new(),
            uncovered: VecDeque::new(),
            exchanges: 0,
            operations: 0,
            last_read: 0,
            ground: Spot::default(),
        }
    }
}

impl Endpoint {
    /// Both sides have said their last packets on the queue, and nothing is under way.
    fn is_over(&self) -> bool {
        matches!(self.state, State::Leaving { said: true, heard: Some(_) })
            && self.flying.is_empty()
    }
}

/// What is done to a word of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A lock word is accessed.
    Word(Atomic),
    /// An element of eight bytes is reduced.
    Reduce(Combine, u64),
}

impl Change {
    /// What the word becomes, if that depends on what it was: there is no such atomic, but an
    /// exchange that is tried until it supposes right.
    fn from(self, old: u64) -> Option<u64> {
        match self {
            // The word is nearly always empty.
            Change::Word(Atomic::Swap(new)) => Some(new),
            Change::Word(_) => None,
            Change::Reduce(combine, operand) => {
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
pub(super) enum Asker {
    Nobody,
    /// Nobody waits for it, but what it tells must not be true before what comes before it.
    Signal,
    Lock(LockTicket),
    /// An operation, and where the old value goes; 0: nowhere.
    Operation(Ticket, usize),
}

/// An access to a word under way.
#[derive(Clone, Copy, Debug)]
struct Access {
    window: u32,
    endpoint: u32,
    /// Of the queue for which it was begun.
    generation: u32,
    asker: Asker,
    word: Spot,
    change: Change,
    /// What an exchange supposes the word to be.
    guess: u64,
}

/// Something that a window is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Finished(Ticket, Stage),
    Answer(LockTicket, u64),
    /// The peer's process has been told a number.
    Told(u32, u32),
    Packet(u32, Vec<u8>),
    /// A queue has failed: why.
    Lost(u32, String),
}

/// What belongs to one window.
#[derive(Debug, Default)]
struct Inbox {
    events: VecDeque<Event>,
    /// Requests under way, and puts that are not covered.
    under_way: u64,
    /// Packets that were taken out, for those that come.
    spare: Vec<Vec<u8>>,
    /// The window is gone, and something of it still under way.
    closed: bool,
}

/// The interface, shared by the windows of a process.
#[derive(Debug)]
pub struct Fabric {
    // Before the interface, which must end after them.
    regions: Regions,
    nic: Box<dyn Nic>,
    limits: Limits,
    name: Name,
    buffers: Pool,
    receives: Pool,
    /// Receives that were taken out and are not posted again as yet.
    spent: Vec<u32>,
    words: Pool,
    accesses: Vec<Option<Access>>,
    /// Accesses that must be tried again and found no room.
    again: Vec<u32>,
    endpoints: Vec<Endpoint>,
    names: HashMap<Name, u32>,
    queues: HashMap<Queue, u32>,
    count: Count,
    inboxes: Vec<Option<Inbox>>,
    /// Numbers of windows that are gone, in the order in which they went.
    free: VecDeque<u32>,
    /// Requests handed over and not complete, of all queues.
    under_way: u32,
    completions: Vec<Completion>,
    meter: Meter,
}

/// What is asked of [`Fabric::post`] beside the act and the places.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    pub(super) signalled: bool,
    pub(super) inline: bool,
    /// Behind reads: what it tells must not be true before.
    pub(super) fence: bool,
    pub(super) covers: bool,
    /// It may use the last places of the queue.
    pub(super) urgent: bool,
}

/// Local memory of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Local<'a> {
    pub(super) at: usize,
    pub(super) len: u32,
    pub(super) lkey: u32,
    /// If it is more than one run.
    pub(super) parts: &'a [Part],
}

impl Fabric {
    /// Takes over an interface. `name` tells this process from all others that it may meet.
    ///
    /// # Errors
    /// The buffers cannot be registered: in words.
    pub fn new(mut nic: Box<dyn Nic>, name: Name) -> Result<Self, Failure> {
        let limits = nic.limits();
        let receives = limits.receives.min(limits.completions / 4).max(1);
        let buffers = Pool::new(&mut *nic, BUFFERS, PACKET)?;
        let mut incoming = Pool::new(&mut *nic, receives, PACKET)?;
        let words = Pool::new(&mut *nic, ANSWERS, 64)?;
        while let Some(piece) = incoming.take() {
            // SAFETY: the piece is the interface's until it comes back.
            unsafe {
                nic.receive(piece, incoming.at(piece) as usize, PACKET as u32, incoming.key())
            }?;
        }
        Ok(Fabric {
            regions: Regions::new(default_bound()),
            nic,
            limits,
            name,
            buffers,
            receives: incoming,
            spent: Vec::new(),
            words,
            accesses: (0..ANSWERS).map(|_| None).collect(),
            again: Vec::new(),
            endpoints: Vec::new(),
            names: HashMap::new(),
            queues: HashMap::new(),
            count: Count::new(limits.queues),
            inboxes: Vec::new(),
            free: VecDeque::new(),
            under_way: 0,
            completions: Vec::new(),
            meter: Meter::default(),
        })
    }

    pub(super) fn name(&self) -> Name {
        self.name
    }

    /// Eight bytes that peers may read at any time.
    pub(super) fn ground(&self) -> Spot {
        Spot { at: self.words.at(0) as u64, rkey: self.words.remote_key() }
    }

    pub(super) fn address(&self) -> Address {
        self.nic.address()
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
    pub fn atomics(&self) -> Atomics {
        self.limits.atomics
    }

    /// For the log: how far the queue to a peer is.
    pub(super) fn standing(&self, endpoint: u32) -> String {
        let held = &self.endpoints[endpoint as usize];
        let first = held.flying.front().map_or_else(String::new, |first| {
            format!(", the first {}", self.name_of(endpoint, first.number))
        });
        let Endpoint { number, state, posted, done, signalled, uncovered, .. } = held;
        let uncovered = uncovered.len();
        format!(
            "queue {number} {state:?}: {posted} posted, {done} complete, {signalled} signalled{first}, {uncovered} puts not covered"
        )
    }

    /// True on InfiniBand, false on Ethernet: only the former has local addresses.
    #[must_use]
    pub fn is_infiniband(&self) -> bool {
        self.address().lid != 0
    }

    /// What was asked of the interface so far.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter { registrations: self.regions.hits(), ..self.meter }
    }

    /// Sets of how many bytes of the application's memory registrations are kept after use; none,
    /// if it is 0.
    pub fn keep_registrations(&mut self, bytes: u64) {
        self.regions.set_bound(&mut *self.nic, bytes);
    }

    /// For the log.
    #[must_use]
    pub fn describe(&self) -> String {
        self.nic.name()
    }

    // Windows.

    /// A number for a new window: not one of those that went last, of which a peer's last words may
    /// still come if they were broken.
    pub(super) fn open_window(&mut self) -> u32 {
        let free = if self.free.len() > RESTING { self.free.pop_front() } else { None };
        let window = free.unwrap_or(self.inboxes.len() as u32);
        if window as usize == self.inboxes.len() {
            self.inboxes.push(None);
        }
        self.inboxes[window as usize] = Some(Inbox::default());
        window
    }

    /// A window is gone. Its number is, when nothing of it is under way any more.
    pub(super) fn close_window(&mut self, window: u32) {
        // What has come for it must not be taken for another's.
        while self.take_batch() != Batch::Empty {}
        match &mut self.inboxes[window as usize] {
            Some(inbox) if inbox.under_way > 0 => {
                *inbox = Inbox { closed: true, under_way: inbox.under_way, ..Inbox::default() }
            }
            _ => self.free_window(window),
        }
    }

    fn free_window(&mut self, window: u32) {
        self.inboxes[window as usize] = None;
        self.free.push_back(window);
    }

    /// The window is not gone.
    fn is_open(&self, window: u32) -> bool {
        matches!(self.inboxes.get(window as usize), Some(Some(inbox)) if !inbox.closed)
    }

    /// Moves what a window has been told since the last call to `into`, which is empty.
    pub(super) fn take_events(&mut self, window: u32, into: &mut VecDeque<Event>) {
        if let Some(inbox) = &mut self.inboxes[window as usize] {
            std::mem::swap(&mut inbox.events, into);
        }
    }

    /// True if a poll would find something, for this window or another one.
    pub(super) fn stirs(&mut self, window: u32) -> bool {
        self.inboxes[window as usize].as_ref().is_some_and(|inbox| !inbox.events.is_empty())
            || self.nic.stirs()
    }

    pub(super) fn keep_packet(&mut self, window: u32, bytes: Vec<u8>) {
        if let Some(Some(inbox)) = self.inboxes.get_mut(window as usize)
            && inbox.spare.len() < 64
        {
            inbox.spare.push(bytes);
        }
    }

    /// True if nothing of a window is under way.
    pub(super) fn is_quiet(&self, window: u32) -> bool {
        self.inboxes[window as usize].as_ref().is_none_or(|inbox| inbox.under_way == 0)
    }

    fn tell(&mut self, window: u32, event: Event) {
        if let Some(Some(inbox)) = self.inboxes.get_mut(window as usize)
            && !inbox.closed
        {
            inbox.events.push_back(event);
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
    ) -> Result<(RegionId, u32), Failure> {
        // SAFETY: the caller's promise.
        let (id, registered) = unsafe { self.regions.add(&mut *self.nic, at, at + len) }?;
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
    ) -> Result<(RegionId, u32), Failure> {
        // SAFETY: the caller's promise.
        let (id, registered) = unsafe { self.regions.acquire(&mut *self.nic, at, len, holes) }?;
        Ok((id, registered.lkey))
    }

    /// A buffer of [`PACKET`] bytes.
    pub(super) fn buffer(&mut self) -> Option<(u32, *mut u8, u32)> {
        let piece = self.buffers.take();
        self.meter.refused += u64::from(piece.is_none());
        piece.map(|piece| (piece, self.buffers.at(piece), self.buffers.key()))
    }

    pub(super) fn let_go(&mut self, hold: Hold) {
        match hold {
            Hold::Nothing => {}
            Hold::Buffer(piece) => self.buffers.give_back(piece),
            Hold::Region(id) => self.regions.release(&mut *self.nic, id),
        }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let Hits { hits, misses, .. } = self.regions.hits();
        let percent = 100 * hits / (hits + misses).max(1);
        log::debug!(
            "verbs: {percent} % of the buffers were registered already; {:?}",
            self.meter()
        );
        self.regions.end(&mut *self.nic);
    }
}
