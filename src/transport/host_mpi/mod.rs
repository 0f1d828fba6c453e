//! Active messages through the host, for peers that shared memory does not reach.
//!
//! A [`MessageWindow`] is a window of which some processes, perhaps all, are reached by messages.
//! The processes of one node share a segment as in a window of one node ([`ShmWindow`]); a process
//! alone on its node has one to itself. So every process's memory and words are reached by the CPUs
//! of its node directly, and by all others through the process itself, which does what their
//! messages say *on the same words, and under the same accumulate lock*: one atomicity domain for
//! each target, the CPU's [LK-7].
//!
//! | module | what it does |
//! |---|---|
//! | [`wire`] | packets and records, written and read |
//! | [`courier`] | what carries them: the host's messages, or memory in tests |
//! | [`members`] | who shares memory with whom; sizes of everybody's memory |
//! | `link` | what is known of one peer: credits, acknowledgements, order |
//! | `origin` | operations of this process, cut into records; what comes back |
//! | `target` | records of others, checked and done |
//! | `straight` | what goes past the messages, where the courier has an interface for that |
//! | `counters` | how many notification counters each process has |
//!
//! Small puts and accumulates are copied into packets, those to one peer together, so that they are
//! locally complete at once; long puts and gets between memory that is one run on each side go as
//! bulk messages from and into the application's memory. Places that are many runs travel as runs
//! with a stride, never as datatypes.
//!
//! Nothing grows without a limit: an operation is refused ([`Posted::NoResource`]) while the peer
//! has [`CREDITS`](link::CREDITS) packets to take out, or while too much of this process's is under
//! way; replies are as many as their askers may have asked for.

use std::collections::VecDeque;
use std::time::Instant;

use hashbrown::HashMap;

use crate::engine::slab::Slab;
use crate::engine::{
    Addr, Answer, Arrival, Atomic, LockMemory, LockTicket, LockWord, NoResource, Op, Port, Posted,
};
use crate::engine::{Rank, Shaped, Stage, Ticket, Word};
use crate::transport::Ballot;
use crate::transport::datatype::element::ForeignReduce;
use crate::transport::datatype::{Shape, Shapes};
use crate::transport::shm::tags::Claimed;
use crate::transport::shm::{AttachError, Counter, ShmWindow, SystemError};

use counters::Counters;
use courier::Courier;
use link::Link;
use members::{Extents, Members};
use origin::{Flight, Part, Use};
use wire::{How, Malformed, Packet};

mod counters;
pub mod courier;
mod link;
pub mod members;
mod origin;
mod straight;
mod target;
pub mod wire;

pub use link::{BULKS, CREDITS};

/// What the transport needs of the host glue.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Reduces elements of the host's datatypes.
    pub foreign_reduce: ForeignReduce,
    /// Bytes from one element to the next, and of one element, of a datatype of the host that has
    /// this reduction. Asked of what messages say, before anything is reduced.
    pub foreign: fn(How) -> Option<(u8, u8)>,
}

/// A message that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of process {peer} of the window is refused: {reason}")]
pub struct Refused {
    /// Who sent it.
    pub peer: Rank,
    /// What is wrong with it.
    pub reason: Malformed,
}

/// An operation of this process that reached for memory that its target has not attached to the
/// window. It was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an operation reaches for {len} bytes at address {disp:#x} of process {target} of the window, which are not attached there"
)]
pub struct OutOfReach {
    /// The process.
    pub target: Rank,
    /// Address of the first byte that it was to reach.
    pub disp: u64,
    /// Bytes.
    pub len: u64,
}

/// One window in one process, some of whose peers are reached by messages.
#[derive(Debug)]
pub struct MessageWindow<C> {
    members: Members,
    /// The segment of this process's node, and the processes that share it.
    near: ShmWindow,
    extents: Extents,
    settings: Settings,
    courier: C,
    /// The courier has an interface that serves locks.
    by_interface: bool,

    links: Vec<Link>,
    index: HashMap<Rank, u32>,
    /// The peer that was looked for last.
    hot: (Rank, u32),
    /// Links that the next poll has to look at.
    active: Vec<u32>,

    /// Of operations that are recorded, to peers that are reached by messages.
    shapes: Shapes,
    flights: Slab<Flight>,
    parts: Slab<Part>,
    bulks: Slab<Use>,
    /// Accesses to lock words that have not been answered, and who was asked.
    asked: HashMap<u32, Rank>,
    finished: VecDeque<(Ticket, Stage)>,
    answers: VecDeque<(LockTicket, u64)>,
    counters: Counters,
    /// Tagged notifications that came and were not taken out.
    told: VecDeque<Arrival>,
    /// Where elements of the host's are laid out as it wants them.
    scratch: Vec<u128>,
    refused: VecDeque<Refused>,
    /// Packets that were taken in; given back by the next poll, since replies and completions are
    /// waited for and this is not.
    taken: Vec<Packet>,
    /// Operations that were not done, told before they are told as finished.
    failed: VecDeque<Ticket>,
    /// Those of them that the application has not heard of: one of each target.
    faults: Vec<OutOfReach>,
    /// Something was refused, or a peer was lost: nothing more comes in or leaves.
    broken: bool,
    /// Of a window that is broken: nothing of it reaches memory any more, and since when that is
    /// waited for.
    ended: bool,
    ending: Option<Instant>,
    /// The first peer that was lost, and why, in a text that stays: error handlers may ask for it
    /// at any time.
    lost: Option<(Rank, &'static str)>,
}

// SAFETY: the raw addresses are those of operations that the application has issued, whose buffers
// are the library's until they are complete [EP-8], and of window memory. Neither belongs to a
// thread.
unsafe impl<C: Send> Send for MessageWindow<C> {}

impl<C: Courier> MessageWindow<C> {
    /// `near` is the window of the processes of `members` that share a segment, in that order;
    /// `extents` are those of all processes.
    #[must_use]
    pub fn new(
        mut courier: C,
        members: Members,
        near: ShmWindow,
        extents: Extents,
        settings: Settings,
    ) -> Self {
        MessageWindow {
            members,
            near,
            extents,
            settings,
            by_interface: courier.direct().is_some_and(|direct| direct.serves_locks()),
            courier,
            links: Vec::new(),
            index: HashMap::new(),
            hot: (Rank::MAX, 0),
            active: Vec::new(),
            shapes: Shapes::new(),
            flights: Slab::new(),
            parts: Slab::new(),
            bulks: Slab::new(),
            asked: HashMap::new(),
            finished: VecDeque::new(),
            answers: VecDeque::new(),
            counters: Counters::default(),
            told: VecDeque::new(),
            scratch: Vec::new(),
            refused: VecDeque::new(),
            taken: Vec::new(),
            failed: VecDeque::new(),
            faults: Vec::new(),
            broken: false,
            ended: false,
            ending: None,
            lost: None,
        }
    }

    /// The link to a peer, made at first contact.
    #[inline]
    fn link_to(&mut self, peer: Rank) -> u32 {
        if self.hot.0 == peer {
            return self.hot.1;
        }
        let links = &mut self.links;
        let index = *self.index.entry(peer).or_insert_with(|| {
            links.push(Link::new(peer));
            (links.len() - 1) as u32
        });
        self.hot = (peer, index);
        index
    }

    #[inline]
    fn list(&mut self, index: u32) {
        let link = &mut self.links[index as usize];
        if !link.listed {
            link.listed = true;
            self.active.push(index);
        }
    }

    /// Takes in what has come, sends what waits. True if anything moved.
    fn drive(&mut self) -> bool {
        for packet in self.taken.drain(..) {
            self.courier.give_back(packet);
        }
        // What is ready leaves first: a look at the host takes a microsecond over a network.
        let mut moved = self.send_ready();
        self.courier.drive();
        moved |= self.take_straight();
        moved |= self.take_packets();
        while let Some((bulk, bytes)) = self.courier.next_bulk() {
            moved = true;
            self.bulk_moved(bulk, bytes);
        }
        moved |= self.send_ready();
        if self.broken && !self.ended {
            moved |= self.wind_up();
        }
        if let Some(failure) = self.courier.next_failure() {
            log::error!("{failure}");
        }
        moved
    }

    /// Sends what waits, as far as there is room. True if an operation went on.
    fn send_ready(&mut self) -> bool {
        if self.broken {
            self.active.clear();
        }
        let (mut at, mut moved) = (0, false);
        while let Some(&index) = self.active.get(at) {
            moved |= self.feed(index);
            let link = &mut self.links[index as usize];
            link.flush_or_tell(&mut self.courier);
            if link.rests() {
                link.listed = false;
                self.active.swap_remove(at);
            } else {
                at += 1;
            }
        }
        moved
    }

    /// For calls that close an epoch or start a flush: what is in packets leaves. True if
    /// [`Port::next_finished`] has something now.
    pub fn settle(&mut self) -> bool {
        for at in 0..if self.broken { 0 } else { self.active.len() } {
            let index = self.active[at];
            self.feed(index);
            self.links[index as usize].flush_or_tell(&mut self.courier);
        }
        if let Some(direct) = self.courier.direct() {
            direct.fence_puts();
            self.take_straight();
        }
        self.near.settle() || !self.finished.is_empty()
    }

    /// Rank of this process.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.members.me()
    }

    /// First byte of this process's window memory (0 when it is empty).
    #[must_use]
    pub fn base(&self) -> Addr {
        self.near.base()
    }

    /// Bytes and displacement unit of a process's window memory.
    #[inline]
    #[must_use]
    pub fn extent_of(&self, rank: Rank) -> (u64, u32) {
        self.extents.of(rank)
    }

    /// True if this process reaches the memory of `rank` by load and store.
    #[inline]
    #[must_use]
    pub fn load_store(&self, rank: Rank) -> bool {
        self.members.place_of(rank).is_some_and(|place| self.near.load_store(place))
    }

    /// Whether each of the `len` bytes at `at` of the memory of `rank` may be accessed, as far as
    /// this process knows: only a peer on another node knows what it has attached, and refuses the
    /// rest.
    ///
    /// # Errors
    /// What a peer on this node has attached cannot be seen from here.
    pub fn reaches(&self, rank: Rank, at: u64, len: u64) -> Result<bool, SystemError> {
        self.members.place_of(rank).map_or(Ok(true), |place| self.near.reaches(place, at, len))
    }

    /// Adds memory of this process to a dynamic window.
    ///
    /// # Errors
    /// It cannot be attached.
    pub fn attach(&mut self, base: Addr, len: u64) -> Result<(), AttachError> {
        self.near.attach(base, len)
    }

    /// Takes memory of this process out of a dynamic window.
    ///
    /// # Errors
    /// Nothing was attached there.
    pub fn detach(&mut self, base: Addr) -> Result<(), AttachError> {
        self.near.detach(base)
    }

    /// Where this process finds the memory of `rank`, if it reaches it by load and store and there
    /// is any.
    #[must_use]
    pub fn address_of(&self, rank: Rank) -> Option<Addr> {
        self.members.place_of(rank).and_then(|place| self.near.address_of(place))
    }

    /// The memory of a process that this one has mapped, in allocated windows: its first byte here,
    /// its bytes, and its displacement unit.
    #[inline]
    #[must_use]
    pub fn place_of(&self, rank: Rank) -> Option<(Addr, u64, u32)> {
        self.near.place_of(self.members.near(rank)?)
    }

    /// A counter of a process that this one raises by an atomic operation of its own, right behind
    /// copies.
    #[inline]
    pub(crate) fn counter_of(&self, rank: Rank, index: u32) -> Option<Counter<'_>> {
        let place = self.members.near(rank).filter(|_| !self.is_reducing(rank))?;
        self.near.counter_of(place, index)
    }

    /// A place for a tagged notification to a process whose memory this one has mapped, to be
    /// published behind copies.
    #[inline]
    pub(crate) fn claim_tag(&self, rank: Rank, tag: u32) -> Option<Claimed<'_>> {
        let place = self.members.near(rank).filter(|_| !self.is_reducing(rank))?;
        self.near.claim_tag(place, tag)
    }

    /// Alignment of the memory that was allocated for this process, in bytes; 1 where none was.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.near.alignment()
    }

    /// What progresses without calls of the target.
    #[must_use]
    pub fn progresses(&self) -> &'static std::ffi::CStr {
        if self.by_interface { c"rdma" } else { c"target_calls" }
    }

    /// Peers always wait for this process to poll.
    #[must_use]
    pub fn needs_polling(&self) -> bool {
        self.members.size() > 1
    }

    /// Keeps the shape of an operation to `rank` that is about to be issued, until the operation
    /// ends.
    pub fn add_shape(&mut self, rank: Rank, shape: Shape) -> Shaped {
        match self.members.near(rank) {
            Some(_) => self.near.add_shape(shape),
            None => self.shapes.add(shape),
        }
    }

    /// Ends the shape of an operation to `rank` that will never be posted.
    pub fn drop_shape(&mut self, rank: Rank, shaped: Shaped) {
        match self.members.near(rank) {
            Some(_) => self.near.drop_shape(shaped),
            None => drop(self.shapes.take(shaped)),
        }
    }

    /// Words for the log.
    #[must_use]
    pub fn describe(&mut self) -> String {
        let (near, all) = (self.members.count(), self.members.size());
        let alone =
            (0..all).all(|rank| rank == self.members.me() || self.members.near(rank).is_none());
        let far = self
            .courier
            .direct()
            .map_or_else(|| "messages".into(), |direct| format!("verbs on {}", direct.describe()));
        if alone {
            far
        } else {
            format!("{} for {near} of them, {far} for the others", self.near.describe())
        }
    }

    /// A message that was refused since the last call.
    pub fn next_refused(&mut self) -> Option<Refused> {
        self.refused.pop_front()
    }

    /// An operation on memory that was not attached, of which the application has not heard; with a
    /// target, one to this target.
    #[inline]
    pub fn take_fault(&mut self, target: Option<Rank>) -> Option<OutOfReach> {
        if self.faults.is_empty() {
            return None;
        }
        let at = self
            .faults
            .iter()
            .position(|fault| target.is_none_or(|target| fault.target == target))?;
        let fault = self.faults.remove(at);
        if target.is_none() {
            self.faults.clear();
        }
        Some(fault)
    }

    /// True if a message was refused, here or by a peer: what is under way never ends, and nothing
    /// more of it touches memory.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.ended
    }

    /// The first peer that cannot be reached any more, and why.
    #[must_use]
    pub fn lost(&self) -> Option<(Rank, &'static str)> {
        self.lost
    }

    /// Deposits this process's vote in a nonblocking collective vote.
    pub fn vote(&mut self, ballot: Ballot) {
        self.courier.vote(ballot);
    }

    /// The verdict, the highest ballot, once all have voted.
    pub fn verdict(&mut self) -> Option<Ballot> {
        if self.has_gathered() { self.courier.verdict() } else { None }
    }

    /// True if all that this process has sent has arrived; asks the peers about it.
    pub fn is_quiet(&mut self) -> bool {
        let mut quiet = self.asked.is_empty();
        for link in self.links.iter_mut().filter(|link| link.met && !link.broken) {
            if link.rests() && link.sent != link.credited {
                link.inquire(&mut self.courier);
            }
            quiet &= link.is_quiet();
        }
        quiet && self.courier.direct().is_none_or(|direct| direct.is_quiet())
    }

    /// After a vote of processes that were all [quiet](Self::is_quiet): tells all peers that
    /// nothing more is coming, once, and gives true when they all have said so. Then no message of
    /// this window is under way anywhere.
    pub fn farewell(&mut self) -> bool {
        let mut left = true;
        for link in self.links.iter_mut().filter(|link| link.met && !link.broken) {
            if !link.farewell {
                link.farewell = true;
                link.reply(&mut self.courier, 0).farewell();
                link.flush(&mut self.courier, false);
            }
            left &= link.left;
        }
        left && (self.broken || self.courier.is_quiet())
    }

    /// Ends the window here, after a farewell.
    pub fn release(mut self) {
        self.courier.release(!self.broken);
        // What others were sending when it broke may still come.
        std::mem::forget(self.bulks);
        self.near.release();
    }

    /// A word of this process as its owner sees it: `Some` if it lies in the segment.
    #[inline]
    fn word_here(&self, word: LockWord) -> Option<LockWord> {
        match word {
            LockWord::Next { target, parity } => {
                self.members.place_of(target).map(|target| LockWord::Next { target, parity })
            }
            LockWord::Grant { target } => {
                self.members.place_of(target).map(|target| LockWord::Grant { target })
            }
            word => Some(word),
        }
    }

    /// Accesses a word of this process that lies outside the segment: nobody else does.
    fn own_word(&mut self, word: LockWord, access: Atomic) -> u64 {
        let (LockWord::Next { target, .. } | LockWord::Grant { target }) = word else {
            unreachable!("all other words lie in the segment")
        };
        let index = self.link_to(target);
        let words = &mut self.links[index as usize].words;
        let place = match word {
            LockWord::Next { parity, .. } => &mut words.next[usize::from(parity & 1)],
            _ => &mut words.grant,
        };
        let old = *place;
        *place = access.applied_to(old);
        old
    }

    /// Accesses a word of this process.
    fn access_here(&mut self, word: LockWord, access: Atomic) -> u64 {
        match self.word_here(word) {
            None => self.own_word(word, access),
            Some(near) => match self.near.atomic(self.members.place(), near, access, LockTicket(0))
            {
                Answer::Now(old) => old,
                answer => unreachable!("{answer:?} from shared memory"),
            },
        }
    }
}

impl<C: Courier> LockMemory for MessageWindow<C> {
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer {
        if let Some(answer) = self.atomic_straight(home, word, access, ticket) {
            return answer;
        }
        if home == self.members.me() {
            return Answer::Now(self.access_here(word, access));
        }
        // [LK-7] Whether a word lies in the segment depends on its home and name alone.
        if let Some(home) = self.members.near(home)
            && let Some(word) = self.word_here(word)
        {
            return self.near.atomic(home, word, access, ticket);
        }
        let index = self.link_to(home);
        let link = &mut self.links[index as usize];
        if self.broken || link.room(&mut self.courier, 0).is_none() {
            return Answer::NoResource;
        }
        link.own().access(word, access, ticket.0);
        self.asked.insert(ticket.0, home);
        link.flush(&mut self.courier, false);
        self.list(index);
        Answer::Later
    }

    fn look(&mut self, word: LockWord) -> u64 {
        if let Some(value) = self.look_straight(word) {
            return value;
        }
        self.access_here(word, Atomic::Load)
    }
}

impl<C: Courier> Port for MessageWindow<C> {
    #[inline]
    fn signals_follow(&self, peer: Rank) -> bool {
        self.members.near(peer).is_none()
            && self.courier.direct_ref().is_none_or(|direct| direct.signals_follow(peer))
    }

    #[inline]
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        match self.members.near(op.target) {
            Some(target) => match self.reduce_straight(op, ticket) {
                Some(posted) => posted,
                None if self.overtakes(op) => Posted::NoResource,
                None => self.near.post(&Op { target, ..*op }, ticket),
            },
            None => match self.post_straight(op, ticket) {
                Some(posted) => posted,
                None => self.post_far(op, ticket),
            },
        }
    }

    #[inline]
    fn post_notified(&mut self, put: &Op, notification: &Op, ticket: Ticket) -> Option<Posted> {
        match self.members.near(put.target) {
            Some(_) => None,
            None => self.post_notified_straight(put, notification, ticket),
        }
    }

    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        if let Some(peer) = self.members.near(peer) {
            return self.near.signal(peer, word, value);
        }
        if let Some(signalled) = self.signal_straight(peer, word, value) {
            return signalled;
        }
        let index = self.link_to(peer);
        let link = &mut self.links[index as usize];
        // The target holds it back until the operations before it are done [FE-2]. Those that are
        // not in packets yet go first.
        if self.broken || link.feed.is_some() || link.room(&mut self.courier, 0).is_none() {
            return Err(NoResource);
        }
        link.own().signal(word, value);
        link.flush(&mut self.courier, false);
        self.list(index);
        Ok(())
    }

    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        match self.members.near(peer) {
            Some(peer) => self.near.observe(peer, word),
            None => {
                let told = self
                    .index
                    .get(&peer)
                    .map_or(0, |index| self.links[*index as usize].words.signals[word as usize]);
                told.max(self.observe_straight(peer, word))
            }
        }
    }

    #[inline]
    fn counter(&mut self, index: u32) -> u64 {
        self.near.counter(index)
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        self.told.pop_front().or_else(|| self.next_told_near())
    }

    fn poll(&mut self) -> bool {
        let moved = self.near.poll();
        self.drive() | moved
    }

    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.finished.pop_front().or_else(|| self.near.next_finished())
    }

    fn next_failed(&mut self) -> Option<Ticket> {
        self.failed.pop_front()
    }

    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        self.answers.pop_front()
    }
}
