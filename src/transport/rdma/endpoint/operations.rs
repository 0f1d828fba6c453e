//! What the engine asks of a [`Direct`]: operations, signals, lock words.

use super::super::context::{
    AtomicOp, ConnectionState, Context, Held, LocalBuffer, PostFlags, Purpose, Requester,
};
use super::super::device::{AtomicCapability, Opcode};
use super::super::handshake::RemoteAddress;
use super::control_words::{Block, OWN_BLOCK, place, signal_place, spot};
use super::{
    Endpoint, FragmentedOp, HeldPut, REGISTER_FROM, RemoteWindow, SignalState, encode_imm, lock,
};
use crate::engine::{
    Answer, Atomic, LockTicket, LockWord, NoResource, Op, OpKind, Posted, Rank, Stage, Ticket, Word,
};
use crate::transport::host_mpi::wire::PACKET;
use crate::transport::kernel::copy;

impl Endpoint {
    /// Starts an operation, if it is one that the interface does; else (`None`) it is for a
    /// message.
    #[inline]
    pub fn post(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        if op.shape.is_some()
            || !matches!(op.kind, OpKind::Put | OpKind::Get)
            || !self.reaches(op.target)
        {
            return None;
        }
        let index = self.peer(op.target);
        let short = op.kind == OpKind::Put && op.len <= PACKET as u64;
        if short && self.hold_for_notification(index, op, ticket) {
            return Some(Posted::Pending);
        }
        let Some((conn, remote)) = self.reach(index) else { return Some(Posted::NoResource) };
        if !remote.has_memory() {
            return None;
        }
        if op.len == 0 {
            return Some(Posted::Complete);
        }
        if !self.post_held_put(index) || self.peers[index as usize].fragments.is_some() {
            return Some(Posted::NoResource);
        }
        self.peers[index as usize].announced = false;
        self.schedule(index);
        if !short {
            return Some(self.begin(index, op, ticket));
        }
        Some(
            match post_short_put(
                &mut lock(&self.context),
                self.window,
                conn,
                remote.memory,
                op,
                ticket,
                Opcode::Write,
            ) {
                Ok(()) => Posted::Local,
                Err(NoResource) => Posted::NoResource,
            },
        )
    }

    /// A short put goes with the notification that has been announced, in one request.
    #[inline]
    fn hold_for_notification(&mut self, index: u32, op: &Op, ticket: Ticket) -> bool {
        let peer = &mut self.peers[index as usize];
        let has_memory = peer.remote.as_ref().is_some_and(RemoteWindow::has_memory);
        if !peer.announced
            || op.len == 0
            || !has_memory
            || peer.held.is_some()
            || peer.fragments.is_some()
        {
            return false;
        }
        peer.announced = false;
        peer.held = Some(HeldPut { op: *op, ticket });
        self.defer_fence(index, false);
        true
    }

    /// Starts a put or get of one run that may go in pieces.
    fn begin(&mut self, index: u32, op: &Op, ticket: Ticket) -> Posted {
        let mut region = None;
        if op.len >= REGISTER_FROM {
            let at = if op.kind == OpKind::Put { op.origin } else { op.result };
            // SAFETY: the buffer is the library's, and mapped, until the operation is complete
            // [EP-8].
            match unsafe { lock(&self.context).acquire(at.0, op.len as usize, false) } {
                Ok(found) => region = Some(found),
                // There are always the buffers.
                Err(reason) => log::debug!("{} bytes are copied: {reason}", op.len),
            }
        }
        self.peers[index as usize].fragments = Some(FragmentedOp {
            op: *op,
            ticket,
            at: 0,
            region,
            shape: None,
            chunk: None,
            early: false,
        });
        self.post_fragments(index);
        Posted::Pending
    }

    /// Hands over pieces of the operation that waits for room. True if all of it has gone.
    pub(super) fn post_fragments(&mut self, index: u32) -> bool {
        let Some(mut fragments) = self.peers[index as usize].fragments.take() else { return true };
        while fragments.at < fragments.op.len {
            let gone = if fragments.shape.is_some() {
                self.post_strided_fragment(index, &mut fragments)
            } else {
                self.piece(index, &mut fragments)
            };
            if gone.is_err() {
                self.peers[index as usize].fragments = Some(fragments);
                return false;
            }
        }
        true
    }

    fn piece(&mut self, index: u32, fragments: &mut FragmentedOp) -> Result<(), NoResource> {
        let (conn, remote) = self.reach(index).ok_or(NoResource)?;
        let mut context = lock(&self.context);
        let op = &fragments.op;
        let is_put = op.kind == OpKind::Put;
        let left = op.len - fragments.at;
        let here = if is_put { op.origin.0 } else { op.result.0 } + fragments.at as usize;
        let (len, local_at, lkey, buffer) = match fragments.region {
            Some((_, lkey)) => (left.min(self.message), here, lkey, None),
            None => {
                let (piece, at, lkey) = context.buffer().ok_or(NoResource)?;
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
        let hold = match (buffer, fragments.region) {
            (Some(piece), _) => Held::Buffer(piece),
            (None, Some((id, _))) if last => Held::Registration(id),
            _ => Held::Nothing,
        };
        let ticket = last.then_some(fragments.ticket);
        let purpose = match ticket {
            Some(ticket) if is_put => Purpose::Put { ticket, told: false, hold },
            None if is_put => Purpose::Piece(hold),
            ticket => Purpose::Get { ticket, to: here, len: len as usize, hold, unpack: None },
        };
        let local = LocalBuffer { at: local_at, len: len as u32, lkey, parts: &[] };
        let remote = RemoteAddress {
            at: remote.memory.at + op.disp + fragments.at,
            rkey: remote.memory.rkey,
        };
        let act = if is_put { Opcode::Write } else { Opcode::Read };
        // Buffers are few, and who gets something waits for it.
        let flags = PostFlags {
            signalled: !is_put || buffer.is_some(),
            remote_fence: !is_put,
            ..PostFlags::default()
        };
        // SAFETY: the memory is the operation's or the buffer's until the request is complete.
        unsafe { context.post(conn, self.window, act, local, remote, flags, purpose) }?;
        fragments.at += len;
        Ok(())
    }

    /// A put that waited for its notification goes without. False if there is no room.
    pub(super) fn post_held_put(&mut self, index: u32) -> bool {
        let Some(HeldPut { op, ticket }) = self.peers[index as usize].held.take() else {
            return true;
        };
        let gone = match self.reach(index) {
            Some((conn, remote)) => post_short_put(
                &mut lock(&self.context),
                self.window,
                conn,
                remote.memory,
                &op,
                ticket,
                Opcode::Write,
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
        if self.reaches(rank) {
            let index = self.peer(rank);
            self.peers[index as usize].announced = true;
        }
    }

    /// Starts a short put that raises a counter of the peer, in one request; `None` if that cannot
    /// be, or not now.
    #[inline]
    pub fn put_notified(&mut self, put: &Op, counter: u32, ticket: Ticket) -> Option<Posted> {
        if put.len == 0 || put.len > PACKET as u64 || !self.reaches(put.target) {
            return None;
        }
        let index = self.peer(put.target);
        let peer = &self.peers[index as usize];
        let (conn, remote) = (peer.conn?, peer.remote.as_ref()?);
        let number = encode_imm(remote.window, counter)?;
        if !remote.has_memory() || peer.held.is_some() || peer.fragments.is_some() {
            return None;
        }
        let mut context = lock(&self.context);
        if *context.connection_state(conn) != ConnectionState::Established
            || context.has_cas_loops(conn)
        {
            return None;
        }
        let alone = !context.has_unfenced_puts(conn);
        post_short_put(
            &mut context,
            self.window,
            conn,
            remote.memory,
            put,
            ticket,
            Opcode::WriteImm(number),
        )
        .ok()?;
        drop(context);
        self.defer_fence(index, alone);
        Some(Posted::Local)
    }

    /// Raises a counter of the peer behind all that was posted to it before; `None` if a message
    /// has to do it.
    pub fn notify(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        if op.kind != OpKind::Notify || !self.reaches(op.target) {
            return None;
        }
        let index = self.peer(op.target);
        let Some((conn, remote)) = self.reach(index) else { return Some(Posted::NoResource) };
        self.peers[index as usize].announced = false;
        let number = encode_imm(remote.window, op.disp as u32);
        if number.is_none() && self.post_held_put(index) {
            return None;
        }
        let (Some(number), true) = (number, self.post_fragments(index)) else {
            return Some(Posted::NoResource);
        };
        let held = self.peers[index as usize].held.take();
        let mut context = lock(&self.context);
        let alone = !context.has_unfenced_puts(conn);
        let act = Opcode::WriteImm(number);
        let gone = match &held {
            _ if context.has_cas_loops(conn) => Err(NoResource),
            Some(put) => post_short_put(
                &mut context,
                self.window,
                conn,
                remote.memory,
                &put.op,
                put.ticket,
                act,
            ),
            None => {
                let flags = PostFlags { fence: true, ..PostFlags::default() };
                let purpose = Purpose::Put { ticket, told: true, hold: Held::Nothing };
                // SAFETY: nothing is moved.
                unsafe {
                    context.post(
                        conn,
                        self.window,
                        act,
                        LocalBuffer::default(),
                        RemoteAddress::default(),
                        flags,
                        purpose,
                    )
                }
            }
        };
        if gone.is_err() {
            drop(context);
            self.peers[index as usize].held = held;
            return Some(Posted::NoResource);
        }
        if let Some(put) = held {
            // One request, which is covered for both.
            context.attach_to_last(conn, self.window, ticket);
            self.finished.push_back((put.ticket, Stage::Local));
        }
        drop(context);
        self.defer_fence(index, alone);
        Some(Posted::Local)
    }

    /// Writes a word of the pair, behind all that was posted to the peer.
    ///
    /// An interface may place the bytes of a write after those of a later one; what an *atomic*
    /// finds in its place is there to stay. So a done, which tells of the transfers before it, adds
    /// to its word; and so does what follows a write of the same word that may still be on its way.
    pub fn signal(&mut self, rank: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        let index = self.peer(rank);
        let (conn, remote) = self.reach(index).ok_or(NoResource)?;
        if !self.post_held_put(index) || !self.post_fragments(index) {
            return Err(NoResource);
        }
        let to = spot(remote.pair, signal_place(word));
        let mut context = lock(&self.context);
        if context.has_cas_loops(conn) {
            return Err(NoResource);
        }
        let before = self.peers[index as usize].signals[word as usize];
        let ended = context.is_complete(conn, before.last);
        if self.nic_locks && (word == Word::Done || !ended) {
            let change = AtomicOp::Word(Atomic::Add(value.wrapping_sub(before.value)));
            context.access(conn, self.window, Requester::Signal, to, change)?;
        } else if ended {
            let bytes = value.to_ne_bytes();
            // SAFETY: eight bytes, which stay until they are handed over.
            let (local, hold) = unsafe { context.copied(bytes.as_ptr(), bytes.len()) }?;
            let inline = matches!(hold, Held::Nothing);
            let flags = PostFlags { fence: true, urgent: true, inline, ..PostFlags::default() };
            // SAFETY: the bytes are copied now, or lie in the buffer.
            unsafe {
                context.post(
                    conn,
                    self.window,
                    Opcode::Write,
                    local,
                    to,
                    flags,
                    Purpose::Piece(hold),
                )
            }?;
        } else {
            context.mark(conn, self.window);
            return Err(NoResource);
        }
        self.peers[index as usize].signals[word as usize] =
            SignalState { value, last: context.last(conn) };
        Ok(())
    }

    /// A done tells of all transfers that were posted to the peer before it [FE-2]; else it has to
    /// wait until they are complete.
    #[inline]
    #[must_use]
    pub fn signals_follow(&self, rank: Rank) -> bool {
        self.nic_locks || !self.reaches(rank)
    }

    /// Accumulates are under way to a peer, this process or one of its node among them, that the
    /// interface has still to do.
    #[must_use]
    pub fn has_accumulates_in_flight(&self, rank: Rank) -> bool {
        let conn = self.index.get(&rank).and_then(|index| self.peers[*index as usize].conn);
        conn.is_some_and(|conn| lock(&self.context).has_atomics_in_flight(conn))
    }

    /// The word that a peer writes here.
    #[inline]
    #[must_use]
    pub fn observe(&self, rank: Rank, word: Word) -> u64 {
        self.index.get(&rank).map_or(0, |index| {
            self.words.read_lock_word(self.peers[*index as usize].block, signal_place(word))
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
            && (self.atomics == AtomicCapability::Global
                || matches!(access, Atomic::Load | Atomic::Store(_)))
        {
            let block = self.block_of(word);
            return Answer::Now(self.words.access(block, place(word), access));
        }
        let Some(to) = self.find(home, word) else { return Answer::NoResource };
        let index = self.peer(home);
        let Some((conn, _)) = self.reach(index) else { return Answer::NoResource };
        match lock(&self.context).access(
            conn,
            self.window,
            Requester::Lock(ticket),
            to,
            AtomicOp::Word(access),
        ) {
            Ok(()) => Answer::Later,
            Err(NoResource) => Answer::NoResource,
        }
    }

    /// Reads a lock word of this process.
    #[must_use]
    pub fn read_lock_word(&mut self, word: LockWord) -> u64 {
        let block = self.block_of(word);
        self.words.read_lock_word(block, place(word))
    }

    /// The block of this process in which a lock word lies.
    fn block_of(&mut self, word: LockWord) -> Block {
        match word {
            LockWord::Next { target, .. } | LockWord::Grant { target } => {
                let index = self.peer(target);
                self.peers[index as usize].block
            }
            _ => OWN_BLOCK,
        }
    }

    /// Where a lock word of a process is, if that is known.
    fn find(&mut self, home: Rank, word: LockWord) -> Option<RemoteAddress> {
        if home == self.me {
            let block = self.block_of(word);
            return Some(spot(self.words.spot(block), place(word)));
        }
        let index = self.peer(home);
        let (_, remote) = self.reach(index)?;
        let block = match word {
            LockWord::Next { target, .. } | LockWord::Grant { target } if target == self.me => {
                remote.pair
            }
            LockWord::Next { target, .. } | LockWord::Grant { target } => {
                self.third_party_words(home, target)?
            }
            _ => remote.words,
        };
        Some(spot(block, place(word)))
    }
}

/// A put whose bytes are copied.
fn post_short_put(
    context: &mut Context,
    window: u32,
    conn: u32,
    memory: RemoteAddress,
    op: &Op,
    ticket: Ticket,
    act: Opcode,
) -> Result<(), NoResource> {
    // SAFETY: the origin's buffer is valid until the operation is complete [EP-8]; it is short.
    let (local, hold) = unsafe { context.copied(op.origin.0 as *const u8, op.len as usize) }?;
    let remote = RemoteAddress { at: memory.at + op.disp, rkey: memory.rkey };
    let inline = matches!(hold, Held::Nothing);
    let flags =
        PostFlags { inline, fence: matches!(act, Opcode::WriteImm(_)), ..PostFlags::default() };
    let purpose = Purpose::Put { ticket, told: true, hold };
    // SAFETY: the bytes are copied now, or lie in the buffer.
    unsafe { context.post(conn, window, act, local, remote, flags, purpose) }
}
