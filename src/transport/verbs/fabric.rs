//! What a process has of a network interface, for all its windows: queues to peers, buffers, and what is under way.
//!
//! One queue pair for each peer process that is used, whatever windows the two share, and one completion queue. Requests of a queue
//! complete in order, so those that need no answer are not signalled: the completion of a later one tells of them.
//!
//! A write is complete for its origin when it is acknowledged, and that says nothing about the target's processor. It is visible there when
//! something has come back that was behind it: the answer of a read or an atomic; or the signal *done*, which the target sees only after it [FE-2]. Such requests
//! *cover* those before them.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::hello::{Name, Spot};
use super::memory::{Pool, RegionId, Regions};
use super::nic::{Act, Address, Atomics, Completion, Failure, Limits, Nic, Queue, Work};
use crate::engine::{Atomic, LockTicket, NoResource, Stage, Ticket};
use crate::transport::host_mpi::wire::PACKET;
use crate::transport::kernel::copy;

/// Marks numbers of receives, which share a completion queue with requests.
pub(super) const RECEIVE: u64 = 1 << 63;
/// Buffers for packets and for short operations that are copied.
const BUFFERS: u32 = 64;
/// Accesses to lock words under way.
const ANSWERS: u32 = 512;
/// Batches of completions taken in by one poll.
const BATCHES: u32 = 64;
/// Places of a queue that are kept for what must not be refused for long.
const RESERVE: u64 = 4;

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
    /// A piece of a get; with the ticket, the last one. A buffer is copied to `to`.
    Get { ticket: Option<Ticket>, to: usize, len: usize, hold: Hold },
    /// A piece of a put that is not its end, or a packet.
    Piece(Hold),
    /// An access to a lock word.
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

/// How far the connection with a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The queue is not connected.
    Open,
    /// It is, but the peer's may not be.
    Connected,
    Ready,
    /// It has failed: why.
    Failed(String),
}

/// A peer process.
#[derive(Debug)]
struct Endpoint {
    queue: Queue,
    /// By which the peer finds it.
    number: u32,
    state: State,
    /// Requests handed over, and complete.
    posted: u64,
    done: u64,
    last_signalled: u64,
    signalled: u32,
    /// The last request that covers, handed over.
    covering: u64,
    flying: VecDeque<Flying>,
    uncovered: VecDeque<Uncovered>,
    /// The last read of an operation: what must not overtake it is fenced. Who accesses a lock word waits for the answer before anything
    /// depends on it.
    last_read: u64,
    /// Where a read that only covers finds eight bytes.
    ground: Spot,
}

/// An access to a lock word under way.
#[derive(Debug)]
struct Access {
    window: u32,
    endpoint: u32,
    ticket: Option<LockTicket>,
    word: Spot,
    access: Atomic,
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
    Lost(u32),
}

/// What belongs to one window.
#[derive(Debug, Default)]
struct Inbox {
    events: VecDeque<Event>,
    /// Requests under way, and puts that are not covered.
    under_way: u64,
    /// Packets that were taken out, for those that come.
    spare: Vec<Vec<u8>>,
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
    words: Pool,
    accesses: Vec<Option<Access>>,
    /// Accesses that must be tried again and found no room.
    again: Vec<u32>,
    endpoints: Vec<Endpoint>,
    names: HashMap<Name, u32>,
    queues: HashMap<Queue, u32>,
    inboxes: Vec<Option<Inbox>>,
    signalled: u32,
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
pub(super) struct Local {
    pub(super) at: usize,
    pub(super) len: u32,
    pub(super) lkey: u32,
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
            unsafe { nic.receive(piece, incoming.at(piece) as usize, PACKET as u32, incoming.key()) }?;
        }
        Ok(Fabric {
            regions: Regions::default(),
            nic,
            limits,
            name,
            buffers,
            receives: incoming,
            words,
            accesses: (0..ANSWERS).map(|_| None).collect(),
            again: Vec::new(),
            endpoints: Vec::new(),
            names: HashMap::new(),
            queues: HashMap::new(),
            inboxes: Vec::new(),
            signalled: 0,
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

    /// Bytes of one request.
    pub(super) fn message(&self) -> u64 {
        self.limits.message
    }

    /// What atomics are atomic with.
    #[must_use]
    pub fn atomics(&self) -> Atomics {
        self.limits.atomics
    }

    /// What was asked of the interface so far.
    #[must_use]
    pub fn meter(&self) -> Meter {
        self.meter
    }

    /// For the log.
    #[must_use]
    pub fn describe(&self) -> String {
        self.nic.name()
    }

    /// For the log.
    #[must_use]
    pub fn hits(&self) -> super::memory::Hits {
        self.regions.hits
    }

    // Windows.

    /// A number for a new window.
    pub(super) fn open_window(&mut self) -> u32 {
        let free = self.inboxes.iter().position(Option::is_none).unwrap_or(self.inboxes.len());
        if free == self.inboxes.len() {
            self.inboxes.push(None);
        }
        self.inboxes[free] = Some(Inbox::default());
        free as u32
    }

    pub(super) fn close_window(&mut self, window: u32) {
        self.inboxes[window as usize] = None;
    }

    pub(super) fn next_event(&mut self, window: u32) -> Option<Event> {
        self.inboxes[window as usize].as_mut()?.events.pop_front()
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
        if let Some(Some(inbox)) = self.inboxes.get_mut(window as usize) {
            inbox.events.push_back(event);
        }
    }

    // Memory.

    /// Registers memory of this library's, or of a window.
    ///
    /// # Safety
    /// It must stay mapped until it is [forgotten](Self::forget).
    pub(super) unsafe fn keep(&mut self, at: usize, len: usize) -> Result<(RegionId, u32), Failure> {
        // Registered memory is there, all of it: a large one that is mostly untouched would take what others need, or the process with it.
        if len as u64 > memory_here() / 2 {
            return Err(Failure("they are more than half of this machine's memory".into()));
        }
        // SAFETY: the caller's promise.
        let (id, registered) = unsafe { self.regions.keep(&mut *self.nic, at, len) }?;
        Ok((id, registered.rkey))
    }

    pub(super) fn forget(&mut self, id: RegionId) {
        self.regions.forget(&mut *self.nic, id);
    }

    /// Registers memory of an operation.
    ///
    /// # Safety
    /// It must stay mapped until it is released, by the end of the request that holds it or by [`let_go`](Self::let_go).
    pub(super) unsafe fn acquire(&mut self, at: usize, len: usize) -> Result<(RegionId, u32), Failure> {
        // SAFETY: the caller's promise.
        let (id, registered) = unsafe { self.regions.acquire(&mut *self.nic, at, len) }?;
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

    // Peers.

    /// The queue to a process, made if there is none.
    pub(super) fn endpoint(&mut self, peer: Name) -> Result<u32, Failure> {
        if let Some(index) = self.names.get(&peer) {
            return Ok(*index);
        }
        let (index, _) = self.open()?;
        self.names.insert(peer, index);
        Ok(index)
    }

    /// A queue to a process that has not said its name.
    pub(super) fn open(&mut self) -> Result<(u32, u32), Failure> {
        let (queue, number) = self.nic.open()?;
        let index = self.endpoints.len() as u32;
        self.endpoints.push(Endpoint {
            queue,
            number,
            state: State::Open,
            posted: 0,
            done: 0,
            last_signalled: 0,
            signalled: 0,
            covering: 0,
            flying: VecDeque::new(),
            uncovered: VecDeque::new(),
            last_read: 0,
            ground: Spot::default(),
        });
        self.queues.insert(queue, index);
        Ok((index, number))
    }

    pub(super) fn number_of(&self, endpoint: u32) -> u32 {
        self.endpoints[endpoint as usize].number
    }

    pub(super) fn state_of(&self, endpoint: u32) -> &State {
        &self.endpoints[endpoint as usize].state
    }

    /// The peer has said where its queue is, and eight bytes that may be read.
    pub(super) fn connect(&mut self, endpoint: u32, number: u32, address: &Address, ground: Spot) -> Result<(), Failure> {
        let held = &mut self.endpoints[endpoint as usize];
        if held.state != State::Open {
            return Ok(());
        }
        held.ground = ground;
        self.nic.connect(held.queue, number, address)?;
        held.state = State::Connected;
        Ok(())
    }

    /// The peer is ready.
    pub(super) fn made_ready(&mut self, endpoint: u32) {
        let held = &mut self.endpoints[endpoint as usize];
        if held.state == State::Connected {
            held.state = State::Ready;
        }
    }

    // Requests.

    /// Hands a request over. `what` is told to `window` when it is complete; requests without are told of by others.
    ///
    /// # Safety
    /// Local memory must stay as it is until the request is complete, unless it is copied; what it is read into is nobody else's.
    #[expect(clippy::too_many_arguments, reason = "a request has as many parts")]
    pub(super) unsafe fn post(
        &mut self,
        endpoint: u32,
        window: u32,
        act: Act,
        local: Local,
        remote: Spot,
        manner: Manner,
        what: What,
    ) -> Result<(), (NoResource, What)> {
        let held = &mut self.endpoints[endpoint as usize];
        let room = u64::from(self.limits.queue) - if manner.urgent { 0 } else { RESERVE };
        let full = held.posted - held.done >= room || self.signalled + self.receives.len() >= self.limits.completions;
        if held.state != State::Ready || full {
            self.meter.refused += 1;
            return Err((NoResource, what));
        }
        let number = held.posted + 1;
        // So that places become free though nobody waits.
        let signalled = manner.signalled || number - held.last_signalled >= u64::from(self.limits.queue) / 4;
        let work = Work {
            act,
            number,
            local: local.at,
            len: local.len,
            lkey: local.lkey,
            remote: remote.at,
            rkey: remote.rkey,
            signalled,
            inline: manner.inline,
            fence: manner.fence && held.last_read > held.done,
        };
        // SAFETY: the caller's promise.
        if let Err(Failure(reason)) = unsafe { self.nic.post(held.queue, &work) } {
            self.fail(endpoint, reason);
            return Err((NoResource, what));
        }
        held.posted = number;
        self.meter.posted += 1;
        if signalled {
            held.last_signalled = number;
            held.signalled += 1;
            self.signalled += 1;
            self.meter.signalled += 1;
        }
        if matches!(what, What::Get { .. }) {
            held.last_read = number;
        }
        if manner.covers {
            held.covering = number;
        }
        held.flying.push_back(Flying { number, window, what, covers: manner.covers });
        if let Some(Some(inbox)) = self.inboxes.get_mut(window as usize) {
            inbox.under_way += 1;
        }
        Ok(())
    }

    /// Another operation is complete, and covered, with the request that was handed over last.
    pub(super) fn join_last(&mut self, endpoint: u32, window: u32, ticket: Ticket) {
        let held = &mut self.endpoints[endpoint as usize];
        let what = What::Put { ticket, told: true, hold: Hold::Nothing };
        held.flying.push_back(Flying { number: held.posted, window, what, covers: false });
        if let Some(Some(inbox)) = self.inboxes.get_mut(window as usize) {
            inbox.under_way += 1;
        }
    }

    /// Sees to it that the puts so far to a peer will be covered, if some are under way that will not be. False if there was no room.
    pub(super) fn cover(&mut self, endpoint: u32, window: u32) -> bool {
        let held = &self.endpoints[endpoint as usize];
        let last = held.flying.iter().rev().find(|flying| matches!(flying.what, What::Put { .. }));
        let last = last.map_or(held.uncovered.back().map_or(0, |last| last.number), |flying| flying.number);
        last <= held.covering || self.read_behind(endpoint, window)
    }

    /// Sees to it that the end of all requests to a peer so far will be told.
    pub(super) fn mark(&mut self, endpoint: u32, window: u32) {
        let held = &self.endpoints[endpoint as usize];
        if held.posted > held.last_signalled {
            self.read_behind(endpoint, window);
        } else {
            self.cover(endpoint, window);
        }
    }

    /// A read behind all requests to a peer so far. False if there was no room.
    fn read_behind(&mut self, endpoint: u32, window: u32) -> bool {
        let held = &self.endpoints[endpoint as usize];
        if held.state != State::Ready {
            return true;
        }
        let ground = held.ground;
        let Some(piece) = self.words.take() else { return false };
        let local = Local { at: self.words.at(piece) as usize, len: 8, lkey: self.words.key() };
        self.accesses[piece as usize] =
            Some(Access { window, endpoint, ticket: None, word: ground, access: Atomic::Load, guess: 0 });
        let manner = Manner { signalled: true, covers: true, urgent: true, ..Manner::default() };
        // SAFETY: the piece is the request's.
        let posted = unsafe { self.post(endpoint, window, Act::Read, local, ground, manner, What::Access(piece)) };
        if posted.is_err() {
            self.accesses[piece as usize] = None;
            self.words.give_back(piece);
            return false;
        }
        self.meter.covers += 1;
        true
    }

    /// Starts an access to a lock word of a peer; the answer is told. Stores to a word that has one writer are not waited for (`ticket` is
    /// `None`).
    pub(super) fn access(
        &mut self,
        endpoint: u32,
        window: u32,
        ticket: Option<LockTicket>,
        word: Spot,
        access: Atomic,
    ) -> Result<(), NoResource> {
        let Some(piece) = self.words.take() else {
            self.meter.refused += 1;
            return Err(NoResource);
        };
        self.accesses[piece as usize] = Some(Access { window, endpoint, ticket, word, access, guess: 0 });
        self.start_access(piece).inspect_err(|_| {
            self.accesses[piece as usize] = None;
            self.words.give_back(piece);
        })
    }

    fn start_access(&mut self, piece: u32) -> Result<(), NoResource> {
        let Access { window, endpoint, word, access, guess, .. } =
            *self.accesses[piece as usize].as_ref().expect("an access under way");
        let at = self.words.at(piece);
        let act = match access {
            Atomic::Load => Act::Read,
            Atomic::Store(value) => {
                // SAFETY: the piece is this access's.
                unsafe { at.cast::<u64>().write(value) };
                Act::Write
            }
            Atomic::Add(delta) => Act::Add(delta),
            Atomic::CompareSwap { expected, new } => Act::CompareSwap { expected, new },
            // There is no exchange: the word is nearly always empty.
            Atomic::Swap(new) => Act::CompareSwap { expected: guess, new },
        };
        let local = Local { at: at as usize, len: 8, lkey: self.words.key() };
        let store = matches!(access, Atomic::Store(_));
        let manner =
            Manner { signalled: true, inline: store && self.limits.inline >= 8, fence: store, covers: !store, urgent: true };
        // SAFETY: the piece is the request's until it is complete.
        unsafe { self.post(endpoint, window, act, local, word, manner, What::Access(piece)) }.map_err(|(none, _)| none)
    }

    /// An access has been answered.
    fn answered(&mut self, piece: u32) {
        let access = self.accesses[piece as usize].as_mut().expect("an access under way");
        // SAFETY: the interface has written the old value there and is done with it.
        let old = unsafe { self.words.at(piece).cast::<u64>().read() };
        if matches!(access.access, Atomic::Swap(_)) && old != access.guess {
            access.guess = old;
            self.meter.retries += 1;
            if self.start_access(piece).is_err() {
                self.again.push(piece);
            }
            return;
        }
        let Access { window, ticket, .. } = self.accesses[piece as usize].take().expect("just found");
        self.words.give_back(piece);
        if let Some(ticket) = ticket {
            self.tell(window, Event::Answer(ticket, old));
        }
    }

    // Completions.

    /// Takes in what has come to an end. True if there was something.
    pub(super) fn poll(&mut self) -> bool {
        for piece in std::mem::take(&mut self.again) {
            if self.start_access(piece).is_err() {
                self.again.push(piece);
            }
        }
        let mut moved = false;
        // All that has come: who sees that an operation of a peer is over must see what it has told as well.
        for _ in 0..BATCHES {
            if !self.take_batch() {
                break;
            }
            moved = true;
        }
        moved
    }

    fn take_batch(&mut self) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        self.nic.poll(&mut completions);
        let moved = !completions.is_empty();
        for completion in completions.drain(..) {
            match completion {
                Completion::Done(queue, number) => {
                    if let Some(index) = self.queues.get(&queue).copied() {
                        self.retire(index, number);
                    }
                }
                Completion::Received { queue, receive, len, number, bare } => {
                    if let Some(index) = self.queues.get(&queue).copied() {
                        self.received(index, receive, len, number, bare);
                    }
                    self.post_receive(receive);
                }
                Completion::Failed(queue, number, code) => {
                    if let Some(index) = self.queues.get(&queue).copied() {
                        let what = self.name_of(index, number);
                        let reason = format!("{what} has failed: {}", self.nic.explain(code));
                        self.fail(index, reason);
                    }
                }
                Completion::Spoiled(receive, _) => self.post_receive(receive),
            }
        }
        self.completions = completions;
        moved
    }

    fn post_receive(&mut self, receive: u32) {
        let (at, key) = (self.receives.at(receive) as usize, self.receives.key());
        // SAFETY: what it had was taken out; it is the interface's again.
        if let Err(Failure(reason)) = unsafe { self.nic.receive(receive, at, PACKET as u32, key) } {
            log::error!("verbs: a receive buffer is lost: {reason}");
        }
    }

    /// The first 31 bits of what comes with a packet are the number of the window here; what comes with a write tells a number.
    fn received(&mut self, endpoint: u32, receive: u32, len: u32, number: u32, bare: bool) {
        // Whoever sends is ready.
        self.made_ready(endpoint);
        if bare {
            let (window, told) = super::direct::told(number);
            return self.tell(window, Event::Told(endpoint, told));
        }
        let len = (len as usize).min(PACKET);
        let Some(Some(inbox)) = self.inboxes.get_mut(number as usize) else {
            return log::warn!("verbs: a packet for a window that this process does not have");
        };
        let mut bytes = inbox.spare.pop().unwrap_or_else(|| Vec::with_capacity(PACKET));
        bytes.clear();
        // SAFETY: the interface has written so many bytes there.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(self.receives.at(receive), len) });
        inbox.events.push_back(Event::Packet(endpoint, bytes));
    }

    /// Requests of a peer are complete up to this one.
    fn retire(&mut self, endpoint: u32, number: u64) {
        let held = &mut self.endpoints[endpoint as usize];
        held.done = held.done.max(number);
        held.signalled = held.signalled.saturating_sub(1);
        self.signalled = self.signalled.saturating_sub(1);
        let mut covered = 0;
        while let Some(flying) = self.endpoints[endpoint as usize].flying.pop_front_if(|first| first.number <= number) {
            if flying.covers {
                covered = flying.number;
            }
            self.complete(endpoint, flying);
        }
        while let Some(put) = self.endpoints[endpoint as usize].uncovered.pop_front_if(|first| first.number <= covered) {
            self.tell(put.window, Event::Finished(put.ticket, Stage::Remote));
            self.settled(put.window);
        }
    }

    /// One thing less is under way.
    fn settled(&mut self, window: u32) {
        if let Some(Some(inbox)) = self.inboxes.get_mut(window as usize) {
            inbox.under_way -= 1;
        }
    }

    fn complete(&mut self, endpoint: u32, flying: Flying) {
        let Flying { number, window, what, .. } = flying;
        match what {
            What::Put { ticket, told, hold } => {
                self.let_go(hold);
                if !told {
                    self.tell(window, Event::Finished(ticket, Stage::Local));
                }
                self.endpoints[endpoint as usize].uncovered.push_back(Uncovered { number, window, ticket });
                // It stays under way until it is covered.
                return;
            }
            What::Get { ticket, to, len, hold } => {
                if let Hold::Buffer(piece) = hold {
                    // SAFETY: the interface has filled the buffer; the result buffer is the operation's until it is complete [EP-8].
                    unsafe { copy(self.buffers.at(piece), to as *mut u8, len) };
                }
                self.let_go(hold);
                if let Some(ticket) = ticket {
                    self.tell(window, Event::Finished(ticket, Stage::Remote));
                }
            }
            What::Piece(hold) => self.let_go(hold),
            What::Access(piece) => self.answered(piece),
        }
        self.settled(window);
    }

    // Failures.

    fn name_of(&self, endpoint: u32, number: u64) -> String {
        let flying = self.endpoints[endpoint as usize].flying.iter().find(|flying| flying.number >= number);
        match flying.map(|flying| &flying.what) {
            Some(What::Put { .. }) => "a put (RDMA write)".into(),
            Some(What::Get { .. }) => "a get (RDMA read)".into(),
            Some(What::Piece(_)) => "a packet, signal or part of a put".into(),
            Some(What::Access(piece)) => match self.accesses[*piece as usize].as_ref().map(|access| access.access) {
                Some(Atomic::Load) => "a read of a word".into(),
                Some(Atomic::Store(_)) => "a write of a word".into(),
                _ => "an atomic access to a word of the lock service".into(),
            },
            None => "a request".into(),
        }
    }

    /// A queue has failed: nothing more goes there, and what was under way is given up.
    #[cold]
    fn fail(&mut self, endpoint: u32, reason: String) {
        let held = &mut self.endpoints[endpoint as usize];
        if matches!(held.state, State::Failed(_)) {
            return;
        }
        held.state = State::Failed(reason);
        // After this the interface reads and writes nothing of it.
        self.nic.close(held.queue);
        self.queues.remove(&held.queue);
        self.signalled -= held.signalled;
        let (flying, uncovered) = (std::mem::take(&mut held.flying), std::mem::take(&mut held.uncovered));
        for Flying { window, what, .. } in flying {
            match what {
                What::Put { hold, .. } | What::Get { hold, .. } | What::Piece(hold) => self.let_go(hold),
                What::Access(piece) => {
                    self.accesses[piece as usize] = None;
                    self.words.give_back(piece);
                }
            }
            self.settled(window);
        }
        for put in uncovered {
            self.settled(put.window);
        }
        for piece in std::mem::take(&mut self.again) {
            if self.accesses[piece as usize].as_ref().is_some_and(|access| access.endpoint != endpoint) {
                self.again.push(piece);
            } else if self.accesses[piece as usize].take().is_some() {
                self.words.give_back(piece);
            }
        }
        for inbox in self.inboxes.iter_mut().flatten() {
            inbox.events.push_back(Event::Lost(endpoint));
        }
    }
}

/// Bytes of memory that this machine has.
fn memory_here() -> u64 {
    // SAFETY: two numbers of the system.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}

impl Drop for Fabric {
    fn drop(&mut self) {
        log::debug!("verbs: {:?}, registrations {:?}", self.meter, self.regions.hits);
    }
}
