//! Requests to peers: handed over, covered, and those that access words.

use super::super::hello::Spot;
use super::super::nic::{Act, Failure, Work};
use super::{
    Access, Asker, Change, Event, Fabric, Flying, Hold, Local, Manner, NOBODY, State, What,
};
use crate::engine::{Atomic, NoResource, Stage, Ticket};
use crate::transport::copy;

/// Names a request to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::transport::verbs) struct Last {
    generation: u32,
    number: u64,
}

/// Places of a queue that are kept for what must not be refused for long.
const RESERVE: u64 = 4;

impl Fabric {
    /// Hands a request over. `what` is told to `window` when it is complete. If it is refused, its
    /// buffer is given back; a registration is its operation's, which tries again.
    ///
    /// # Safety
    /// Local memory must stay as it is until the request is complete, unless it is copied; what it
    /// is read into is nobody else's.
    #[expect(clippy::too_many_arguments, reason = "a request has as many parts")]
    pub(in crate::transport::verbs) unsafe fn post(
        &mut self,
        endpoint: u32,
        window: u32,
        act: Act,
        local: Local<'_>,
        remote: Spot,
        manner: Manner,
        what: What,
    ) -> Result<(), NoResource> {
        let full = self.places(endpoint, window, manner.urgent) == 0;
        let held = &mut self.endpoints[endpoint as usize];
        let fence = manner.fence && held.last_read > held.done;
        let open = match held.state {
            State::Ready => true,
            // What was begun is brought to its end.
            State::Leaving { said, .. } => !said && manner.urgent,
            _ => false,
        };
        let (Some(queue), true, false) = (held.queue, open && (self.limits.fences || !fence), full)
        else {
            self.meter.refused += 1;
            return Err(self.refuse(what));
        };
        let number = held.posted + 1;
        // So that places become free though nobody waits.
        let signalled =
            manner.signalled || number - held.last_signalled >= u64::from(self.limits.queue) / 4;
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
            fence,
        };
        // SAFETY: the caller's promise.
        if let Err(Failure(reason)) = unsafe { self.nic.post(queue, &work, local.parts) } {
            self.fail(endpoint, &reason);
            return Err(self.refuse(what));
        }
        held.posted = number;
        held.used = self.count.polls;
        self.meter.posted += 1;
        self.under_way += 1;
        if signalled {
            held.last_signalled = number;
            held.signalled += 1;
            self.meter.signalled += 1;
        }
        match what {
            What::Get { .. } => held.last_read = number,
            What::Put { .. } => held.last_put = number,
            _ => {}
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

    /// Requests of a window that a queue takes now.
    fn places(&self, endpoint: u32, window: u32, urgent: bool) -> u64 {
        let held = &self.endpoints[endpoint as usize];
        let room = u64::from(self.limits.queue) - if urgent { 0 } else { RESERVE };
        room.saturating_sub(held.posted - held.done).min(self.free(window, urgent).into())
    }

    /// Requests for which there are completions: all those of a queue that fails have one, not only
    /// those that are signalled. The last places are for reads behind others, which make places
    /// free.
    fn free(&self, window: u32, urgent: bool) -> u32 {
        let all = self.limits.completions - self.receives.len();
        let kept = match urgent {
            _ if window == NOBODY => 0,
            true => all / 8,
            false => all / 4,
        };
        (all - kept).saturating_sub(self.under_way)
    }

    /// Where completions run short, has those told that nobody waits for: a place is free only when
    /// a later one of its queue was.
    pub(super) fn free_completions(&mut self) {
        if self.under_way < (self.limits.completions - self.receives.len()) / 2 {
            return;
        }
        for endpoint in 0..self.endpoints.len() as u32 {
            let held = &self.endpoints[endpoint as usize];
            if held.posted > held.last_signalled {
                self.read_behind(endpoint, NOBODY);
            }
        }
    }

    /// True if a request is not refused, but for a queue that fails.
    pub(in crate::transport::verbs) fn has_room(&mut self, endpoint: u32) -> bool {
        let room = self.endpoints[endpoint as usize].state == State::Ready
            && self.places(endpoint, 0, false) > 0;
        self.meter.refused += u64::from(!room);
        room
    }

    fn refuse(&mut self, what: What) -> NoResource {
        if let What::Put { hold: Hold::Buffer(piece), .. }
        | What::Get { hold: Hold::Buffer(piece), .. }
        | What::Piece(Hold::Buffer(piece)) = what
        {
            self.buffers.give_back(piece);
        }
        NoResource
    }

    /// Local memory for so many bytes of the caller's, which are copied, and what holds it: into
    /// the request itself, or into a buffer.
    ///
    /// # Safety
    /// The bytes can be read until the request is handed over, and are no more than [`PACKET`].
    pub(in crate::transport::verbs) unsafe fn copied(
        &mut self,
        at: *const u8,
        len: usize,
    ) -> Result<(Local<'static>, Hold), NoResource> {
        if len as u64 <= self.inline() {
            return Ok((
                Local { at: at as usize, len: len as u32, ..Local::default() },
                Hold::Nothing,
            ));
        }
        let (piece, buffer, lkey) = self.buffer().ok_or(NoResource)?;
        // SAFETY: the caller's promise; a buffer has room for so many.
        unsafe { copy(at, buffer, len) };
        Ok((Local { at: buffer as usize, len: len as u32, lkey, parts: &[] }, Hold::Buffer(piece)))
    }

    /// Another operation is complete, and covered, with the request that was handed over last.
    pub(in crate::transport::verbs) fn join_last(
        &mut self,
        endpoint: u32,
        window: u32,
        ticket: Ticket,
    ) {
        let held = &mut self.endpoints[endpoint as usize];
        let what = What::Put { ticket, told: true, hold: Hold::Nothing };
        held.flying.push_back(Flying { number: held.posted, window, what, covers: false });
        if let Some(Some(inbox)) = self.inboxes.get_mut(window as usize) {
            inbox.under_way += 1;
        }
    }

    /// Sees to it that the puts so far to a peer will be covered, if some are under way that will
    /// not be. False if there was no room.
    pub(in crate::transport::verbs) fn cover(&mut self, endpoint: u32, window: u32) -> bool {
        !self.has_uncovered(endpoint) || self.read_behind(endpoint, window)
    }

    /// The number of the last request handed over to a peer, with the generation of its queue.
    pub(in crate::transport::verbs) fn last(&self, endpoint: u32) -> Last {
        let held = &self.endpoints[endpoint as usize];
        Last { generation: held.generation, number: held.posted }
    }

    /// A request is known to be complete.
    pub(in crate::transport::verbs) fn has_ended(&self, endpoint: u32, request: Last) -> bool {
        let held = &self.endpoints[endpoint as usize];
        request.generation != held.generation || request.number <= held.done
    }

    /// Puts are under way, or acknowledged, that nothing on the queue covers.
    pub(in crate::transport::verbs) fn has_uncovered(&self, endpoint: u32) -> bool {
        let held = &self.endpoints[endpoint as usize];
        held.last_put > held.covering
    }

    /// Sees to it that the end of all requests to a peer so far will be told.
    pub(in crate::transport::verbs) fn mark(&mut self, endpoint: u32, window: u32) {
        let held = &self.endpoints[endpoint as usize];
        if held.posted > held.last_signalled {
            self.read_behind(endpoint, window);
        } else {
            self.cover(endpoint, window);
        }
    }

    /// Asks a peer whether it is still there, if no answer of it is under way.
    pub(in crate::transport::verbs) fn probe(&mut self, endpoint: u32, window: u32) {
        if self.endpoints[endpoint as usize].signalled == 0 {
            self.read_behind(endpoint, window);
        }
    }

    /// A read behind all requests to a peer so far. False if there was no room.
    fn read_behind(&mut self, endpoint: u32, window: u32) -> bool {
        let held = &self.endpoints[endpoint as usize];
        if !matches!(held.state, State::Ready | State::Leaving { said: false, .. }) {
            return true;
        }
        let ground = held.ground;
        let posted = self
            .access(endpoint, window, Asker::Nobody, ground, Change::Word(Atomic::Load))
            .is_ok();
        self.meter.covers += u64::from(posted);
        posted
    }

    /// Starts an access to a word of a peer; whoever has asked for it is told of its end.
    pub(in crate::transport::verbs) fn access(
        &mut self,
        endpoint: u32,
        window: u32,
        asker: Asker,
        word: Spot,
        change: Change,
    ) -> Result<(), NoResource> {
        let Some(piece) = self.words.take() else {
            self.meter.refused += 1;
            return Err(NoResource);
        };
        let generation = self.endpoints[endpoint as usize].generation;
        let access = Access { window, endpoint, generation, asker, word, change, guess: 0 };
        self.accesses[piece as usize] = Some(access);
        self.start_access(piece).inspect_err(|_| {
            self.accesses[piece as usize] = None;
            self.words.give_back(piece);
        })?;
        let held = &mut self.endpoints[endpoint as usize];
        held.exchanges += u32::from(access.holds_up());
        held.operations += u32::from(access.is_operation());
        Ok(())
    }

    /// An operation on a peer may still have to be tried again: nothing may go there that must be
    /// behind it.
    pub(in crate::transport::verbs) fn is_exchanging(&self, endpoint: u32) -> bool {
        self.endpoints[endpoint as usize].exchanges > 0
    }

    /// Operations on words of a peer are under way.
    pub(in crate::transport::verbs) fn is_operating(&self, endpoint: u32) -> bool {
        self.endpoints[endpoint as usize].operations > 0
    }

    /// Tries an access once more: now, or when there is room.
    pub(super) fn go_on(&mut self, piece: u32) {
        if self.start_access(piece).is_ok() {
            return;
        }
        let Access { endpoint, generation, .. } =
            self.accesses[piece as usize].expect("an access under way");
        if self.endpoints[endpoint as usize].generation == generation {
            self.again.push(piece);
        } else {
            // Its queue has failed.
            self.end_access(piece);
        }
    }

    fn start_access(&mut self, piece: u32) -> Result<(), NoResource> {
        let Access { window, endpoint, asker, word, change, guess, .. } =
            self.accesses[piece as usize].expect("an access under way");
        let at = self.words.at(piece);
        let act = match (change.from(guess), change) {
            (Some(new), _) => Act::CompareSwap { expected: guess, new },
            (_, Change::Word(Atomic::Add(delta))) => Act::Add(delta),
            (_, Change::Word(Atomic::CompareSwap { expected, new })) => {
                Act::CompareSwap { expected, new }
            }
            _ => Act::Read,
        };
        let local = Local { at: at as usize, len: 8, lkey: self.words.key(), parts: &[] };
        if let Change::Word(Atomic::Store(value)) = change {
            // It is there for everybody when what is read behind it has come. A write that is
            // repeated might undo what others did: both go, or none.
            if self.places(endpoint, window, true) < 2 {
                self.meter.refused += 1;
                return Err(NoResource);
            }
            // SAFETY: the piece is this access's.
            unsafe { at.cast::<u64>().write(value) };
            let manner =
                Manner { inline: self.limits.inline >= 8, urgent: true, ..Manner::default() };
            // SAFETY: as below.
            unsafe {
                self.post(
                    endpoint,
                    window,
                    Act::Write,
                    local,
                    word,
                    manner,
                    What::Piece(Hold::Nothing),
                )
            }?;
        }
        let fence = matches!(asker, Asker::Signal);
        let manner = Manner { signalled: true, covers: true, urgent: true, fence, inline: false };
        // SAFETY: the piece is the request's until it is complete.
        unsafe { self.post(endpoint, window, act, local, word, manner, What::Access(piece)) }
    }

    /// An access has been answered.
    pub(super) fn answered(&mut self, piece: u32) {
        let access = self.accesses[piece as usize].as_mut().expect("an access under way");
        // SAFETY: the interface has written the old value there and is done with it.
        let old = unsafe { self.words.at(piece).cast::<u64>().read() };
        if access.change.from(old).is_some() && old != access.guess {
            access.guess = old;
            self.meter.retries += 1;
            return self.go_on(piece);
        }
        let access = *access;
        self.end_access(piece);
        match access.asker {
            Asker::Nobody | Asker::Signal => {}
            Asker::Lock(ticket) => self.tell(access.window, Event::Answer(ticket, old)),
            Asker::Operation(ticket, to) => {
                if to != 0 && self.is_open(access.window) {
                    // SAFETY: the result buffer is the operation's until it is complete [EP-8].
                    unsafe { (to as *mut u64).write_unaligned(old) };
                }
                self.tell(access.window, Event::Finished(ticket, Stage::Remote));
            }
        }
    }

    /// An access is over, or given up.
    pub(super) fn end_access(&mut self, piece: u32) {
        let Some(access) = self.accesses[piece as usize].take() else { return };
        self.words.give_back(piece);
        let held = &mut self.endpoints[access.endpoint as usize];
        if held.generation == access.generation {
            held.exchanges -= u32::from(access.holds_up());
            held.operations -= u32::from(access.is_operation());
        }
    }
}

impl Access {
    /// What follows it on the queue may come before its end.
    fn holds_up(&self) -> bool {
        matches!((self.asker, self.change), (Asker::Operation(..), Change::Reduce(..)))
    }

    fn is_operation(&self) -> bool {
        matches!(self.asker, Asker::Operation(..))
    }
}
