//! What the engine asks of a [`Direct`]: operations, signals, lock words.

use super::direct::{Direct, Far, Feed, HeldPut, REGISTERED_FROM, Signalled, lock, telling};
use super::fabric::{Asker, Change, Fabric, Hold, Local, Manner, State, What};
use super::hello::Spot;
use super::nic::{Act, Atomics};
use super::words::{Block, OWN, place, signal_place, spot};
use crate::engine::{
    Answer, Atomic, LockTicket, LockWord, NoResource, Op, OpKind, Posted, Rank, Stage, Ticket, Word,
};
use crate::transport::copy;
use crate::transport::host_mpi::wire::PACKET;

impl Direct {
    /// Starts an operation, if it is one that the interface does; else (`None`) it is for a
    /// message.
    #[inline]
    pub fn post(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        if op.shape.is_some()
            || !matches!(op.kind, OpKind::Put | OpKind::Get)
            || !self.is_able(op.target)
        {
            return None;
        }
        let index = self.peer(op.target);
        let short = op.kind == OpKind::Put && op.len <= PACKET as u64;
        if short && self.wait_for_notification(index, op, ticket) {
            return Some(Posted::Pending);
        }
        let Some((endpoint, far)) = self.reach(index) else { return Some(Posted::NoResource) };
        if !far.has_memory() {
            return None;
        }
        if op.len == 0 {
            return Some(Posted::Complete);
        }
        if !self.release_held(index) || self.peers[index as usize].feed.is_some() {
            return Some(Posted::NoResource);
        }
        self.peers[index as usize].announced = false;
        self.list(index);
        if !short {
            return Some(self.begin(index, op, ticket));
        }
        Some(
            match put_short(
                &mut lock(&self.fabric),
                self.window,
                endpoint,
                far.memory,
                op,
                ticket,
                Act::Write,
            ) {
                Ok(()) => Posted::Local,
                Err(NoResource) => Posted::NoResource,
            },
        )
    }

    /// A short put goes with the notification that has been announced, in one request.
    #[inline]
    fn wait_for_notification(&mut self, index: u32, op: &Op, ticket: Ticket) -> bool {
        let peer = &mut self.peers[index as usize];
        let has_memory = peer.far.as_ref().is_some_and(Far::has_memory);
        if !peer.announced
            || op.len == 0
            || !has_memory
            || peer.held.is_some()
            || peer.feed.is_some()
        {
            return false;
        }
        peer.announced = false;
        peer.held = Some(HeldPut { op: *op, ticket });
        self.list_told(index, false);
        true
    }

    /// Starts a put or get of one run that may go in pieces.
    fn begin(&mut self, index: u32, op: &Op, ticket: Ticket) -> Posted {
        let mut region = None;
        if op.len >= REGISTERED_FROM {
            let at = if op.kind == OpKind::Put { op.origin } else { op.result };
            // SAFETY: the buffer is the library's, and mapped, until the operation is complete
            // [EP-8].
            match unsafe { lock(&self.fabric).acquire(at.0, op.len as usize, false) } {
                Ok(found) => region = Some(found),
                // There are always the buffers.
                Err(reason) => log::debug!("{} bytes are copied: {reason}", op.len),
            }
        }
        self.peers[index as usize].feed =
            Some(Feed { op: *op, ticket, at: 0, region, shape: None, chunk: None, early: false });
        self.pump(index);
        Posted::Pending
    }

    /// Hands over pieces of the operation that waits for room. True if all of it has gone.
    pub(super) fn pump(&mut self, index: u32) -> bool {
        let Some(mut feed) = self.peers[index as usize].feed.take() else { return true };
        while feed.at < feed.op.len {
            let gone = if feed.shape.is_some() {
                self.strided_piece(index, &mut feed)
            } else {
                self.piece(index, &mut feed)
            };
            if gone.is_err() {
                self.peers[index as usize].feed = Some(feed);
                return false;
            }
        }
        true
    }

    fn piece(&mut self, index: u32, feed: &mut Feed) -> Result<(), NoResource> {
        let (endpoint, far) = self.reach(index).ok_or(NoResource)?;
        let mut fabric = lock(&self.fabric);
        let op = &feed.op;
        let is_put = op.kind == OpKind::Put;
        let left = op.len - feed.at;
        let here = if is_put { op.origin.0 } else { op.result.0 } + feed.at as usize;
        let (len, local_at, lkey, buffer) = match feed.region {
            Some((_, lkey)) => (left.min(self.message), here, lkey, None),
            None => {
                let (piece, at, lkey) = fabric.buffer().ok_or(NoResource)?;
                let len = left.min(PACKET as u64);
                if is_put {
                    // SAFETY: as above.
                    unsafe { copy(here as *const u8, at, len as usize) };
                }
                (len, at as usize, lkey, Some(piece))
            }
        };
        let last = len == left;
        // The region is held by the last piece: requests complete in order.
        let hold = match (buffer, feed.region) {
            (Some(piece), _) => Hold::Buffer(piece),
            (None, Some((id, _))) if last => Hold::Region(id),
            _ => Hold::Nothing,
        };
        let ticket = last.then_some(feed.ticket);
        let what = match ticket {
            Some(ticket) if is_put => What::Put { ticket, told: false, hold },
            None if is_put => What::Piece(hold),
            ticket => What::Get { ticket, to: here, len: len as usize, hold, unpack: None },
        };
        let local = Local { at: local_at, len: len as u32, lkey, parts: &[] };
        let remote = Spot { at: far.memory.at + op.disp + feed.at, rkey: far.memory.rkey };
        let act = if is_put { Act::Write } else { Act::Read };
        // Buffers are few, and who gets something waits for it.
        let manner =
            Manner { signalled: !is_put || buffer.is_some(), covers: !is_put, ..Manner::default() };
        // SAFETY: the memory is the operation's or the buffer's until the request is complete.
        unsafe { fabric.post(endpoint, self.window, act, local, remote, manner, what) }?;
        feed.at += len;
        Ok(())
    }

    /// A put that waited for its notification goes without. False if there is no room.
    pub(super) fn release_held(&mut self, index: u32) -> bool {
        let Some(HeldPut { op, ticket }) = self.peers[index as usize].held.take() else {
            return true;
        };
        let gone = match self.reach(index) {
            Some((endpoint, far)) => put_short(
                &mut lock(&self.fabric),
                self.window,
                endpoint,
                far.memory,
                &op,
                ticket,
                Act::Write,
            ),
            None => Err(NoResource),
        };
        match gone {
            Ok(()) => {
                self.finished.push_back((ticket, Stage::Local));
                true
            }
            Err(NoResource) => {
                self.peers[index as usize].held = Some(HeldPut { op, ticket });
                false
            }
        }
    }

    /// A notification of a counter is about to be posted behind the next put.
    pub fn announce(&mut self, rank: Rank) {
        if self.is_able(rank) {
            let index = self.peer(rank);
            self.peers[index as usize].announced = true;
        }
    }

    /// Starts a short put that raises a counter of the peer, in one request; `None` if that cannot
    /// be, or not now.
    #[inline]
    pub fn put_telling(&mut self, put: &Op, counter: u32, ticket: Ticket) -> Option<Posted> {
        if put.len == 0 || put.len > PACKET as u64 || !self.is_able(put.target) {
            return None;
        }
        let index = self.peer(put.target);
        let peer = &self.peers[index as usize];
        let (endpoint, far) = (peer.endpoint?, peer.far.as_ref()?);
        let number = telling(far.window, counter)?;
        if !far.has_memory() || peer.held.is_some() || peer.feed.is_some() {
            return None;
        }
        let mut fabric = lock(&self.fabric);
        if *fabric.state_of(endpoint) != State::Ready || fabric.is_exchanging(endpoint) {
            return None;
        }
        let alone = !fabric.has_uncovered(endpoint);
        put_short(
            &mut fabric,
            self.window,
            endpoint,
            far.memory,
            put,
            ticket,
            Act::WriteTelling(number),
        )
        .ok()?;
        drop(fabric);
        self.list_told(index, alone);
        Some(Posted::Local)
    }

    /// Raises a counter of the peer behind all that was posted to it before; `None` if a message
    /// has to do it.
    pub fn notify(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        if op.kind != OpKind::Notify || !self.is_able(op.target) {
            return None;
        }
        let index = self.peer(op.target);
        let Some((endpoint, far)) = self.reach(index) else { return Some(Posted::NoResource) };
        self.peers[index as usize].announced = false;
        let number = telling(far.window, op.disp as u32);
        if number.is_none() && self.release_held(index) {
            return None;
        }
        let (Some(number), true) = (number, self.pump(index)) else {
            return Some(Posted::NoResource);
        };
        let held = self.peers[index as usize].held.take();
        let mut fabric = lock(&self.fabric);
        let alone = !fabric.has_uncovered(endpoint);
        let act = Act::WriteTelling(number);
        let gone = match &held {
            _ if fabric.is_exchanging(endpoint) => Err(NoResource),
            Some(put) => {
                put_short(&mut fabric, self.window, endpoint, far.memory, &put.op, put.ticket, act)
            }
            None => {
                let manner = Manner { fence: true, ..Manner::default() };
                let what = What::Put { ticket, told: true, hold: Hold::Nothing };
                // SAFETY: nothing is moved.
                unsafe {
                    fabric.post(
                        endpoint,
                        self.window,
                        act,
                        Local::default(),
                        Spot::default(),
                        manner,
                        what,
                    )
                }
            }
        };
        if gone.is_err() {
            drop(fabric);
            self.peers[index as usize].held = held;
            return Some(Posted::NoResource);
        }
        if let Some(put) = held {
            // One request, which is covered for both.
            fabric.join_last(endpoint, self.window, ticket);
            self.finished.push_back((put.ticket, Stage::Local));
        }
        drop(fabric);
        self.list_told(index, alone);
        Some(Posted::Local)
    }

    /// Writes a word of the pair, behind all that was posted to the peer.
    ///
    /// An interface may place the bytes of a write after those of a later one; what an *atomic*
    /// finds in its place is there to stay. So a done, which tells of the transfers before it, adds
    /// to its word; and so does what follows a write of the same word that may still be on its way.
    pub fn signal(&mut self, rank: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        let index = self.peer(rank);
        let (endpoint, far) = self.reach(index).ok_or(NoResource)?;
        if !self.release_held(index) || !self.pump(index) {
            return Err(NoResource);
        }
        let to = spot(far.pair, signal_place(word));
        let mut fabric = lock(&self.fabric);
        if fabric.is_exchanging(endpoint) {
            return Err(NoResource);
        }
        let before = self.peers[index as usize].signals[word as usize];
        let ended = fabric.has_ended(endpoint, before.last);
        if self.locks && (word == Word::Done || !ended) {
            let change = Change::Word(Atomic::Add(value.wrapping_sub(before.value)));
            fabric.access(endpoint, self.window, Asker::Signal, to, change)?;
        } else if ended {
            let bytes = value.to_ne_bytes();
            // SAFETY: eight bytes, which stay until they are handed over.
            let (local, hold) = unsafe { fabric.copied(bytes.as_ptr(), bytes.len()) }?;
            let inline = matches!(hold, Hold::Nothing);
            let manner = Manner { fence: true, urgent: true, inline, ..Manner::default() };
            // SAFETY: the bytes are copied now, or lie in the buffer.
            unsafe {
                fabric.post(endpoint, self.window, Act::Write, local, to, manner, What::Piece(hold))
            }?;
        } else {
            fabric.mark(endpoint, self.window);
            return Err(NoResource);
        }
        self.peers[index as usize].signals[word as usize] =
            Signalled { value, last: fabric.last(endpoint) };
        Ok(())
    }

    /// A done tells of all transfers that were posted to the peer before it [FE-2]; else it has to
    /// wait until they are complete.
    #[inline]
    #[must_use]
    pub fn signals_follow(&self, rank: Rank) -> bool {
        self.locks || !self.is_able(rank)
    }

    /// Accumulates are under way to a peer, this process or one of its node among them, that the
    /// interface has still to do.
    #[must_use]
    pub fn is_reducing(&self, rank: Rank) -> bool {
        let endpoint = self.index.get(&rank).and_then(|index| self.peers[*index as usize].endpoint);
        endpoint.is_some_and(|endpoint| lock(&self.fabric).is_operating(endpoint))
    }

    /// The word that a peer writes here.
    #[inline]
    #[must_use]
    pub fn observe(&self, rank: Rank, word: Word) -> u64 {
        self.index.get(&rank).map_or(0, |index| {
            self.words.look(self.peers[*index as usize].block, signal_place(word))
        })
    }

    /// Accesses a lock word, if those are the interface's ([`serves_locks`](Self::serves_locks)).
    pub fn atomic(
        &mut self,
        home: Rank,
        word: LockWord,
        access: Atomic,
        ticket: LockTicket,
    ) -> Answer {
        // The interface's atomics are not the processor's, but what nobody else writes meanwhile
        // needs none.
        if home == self.me
            && (self.atomics == Atomics::Everything
                || matches!(access, Atomic::Load | Atomic::Store(_)))
        {
            let block = self.block_of(word);
            return Answer::Now(self.words.access(block, place(word), access));
        }
        let Some(to) = self.find(home, word) else { return Answer::NoResource };
        let index = self.peer(home);
        let Some((endpoint, _)) = self.reach(index) else { return Answer::NoResource };
        match lock(&self.fabric).access(
            endpoint,
            self.window,
            Asker::Lock(ticket),
            to,
            Change::Word(access),
        ) {
            Ok(()) => Answer::Later,
            Err(NoResource) => Answer::NoResource,
        }
    }

    /// Reads a lock word of this process.
    #[must_use]
    pub fn look(&mut self, word: LockWord) -> u64 {
        let block = self.block_of(word);
        self.words.look(block, place(word))
    }

    /// The block of this process in which a lock word lies.
    fn block_of(&mut self, word: LockWord) -> Block {
        match word {
            LockWord::Next { target, .. } | LockWord::Grant { target } => {
                let index = self.peer(target);
                self.peers[index as usize].block
            }
            _ => OWN,
        }
    }

    /// Where a lock word of a process is, if that is known.
    fn find(&mut self, home: Rank, word: LockWord) -> Option<Spot> {
        if home == self.me {
            let block = self.block_of(word);
            return Some(spot(self.words.spot(block), place(word)));
        }
        let index = self.peer(home);
        let (_, far) = self.reach(index)?;
        let block = match word {
            LockWord::Next { target, .. } | LockWord::Grant { target } if target == self.me => {
                far.pair
            }
            LockWord::Next { target, .. } | LockWord::Grant { target } => {
                self.words_of_third(home, target)?
            }
            _ => far.words,
        };
        Some(spot(block, place(word)))
    }
}

/// A put whose bytes are copied.
fn put_short(
    fabric: &mut Fabric,
    window: u32,
    endpoint: u32,
    memory: Spot,
    op: &Op,
    ticket: Ticket,
    act: Act,
) -> Result<(), NoResource> {
    // SAFETY: the origin's buffer is valid until the operation is complete [EP-8]; it is short.
    let (local, hold) = unsafe { fabric.copied(op.origin.0 as *const u8, op.len as usize) }?;
    let remote = Spot { at: memory.at + op.disp, rkey: memory.rkey };
    let inline = matches!(hold, Hold::Nothing);
    let manner = Manner { inline, fence: matches!(act, Act::WriteTelling(_)), ..Manner::default() };
    let what = What::Put { ticket, told: true, hold };
    // SAFETY: the bytes are copied now, or lie in the buffer.
    unsafe { fabric.post(endpoint, window, act, local, remote, manner, what) }
}
