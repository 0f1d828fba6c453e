//! Queues to peers: made when they are wanted, connected, and left to others when there are too
//! many.
//!
//! A queue pair is *left* by both sides. Who needs the place finishes what it has on the queue, and
//! sends a last packet; the peer finishes what it has, and answers with its own last packet. What
//! is on a queue keeps its order, so after the peer's last packet nothing comes any more, and after
//! the end of one's own nothing is under way. Then the queue is closed, and both count one
//! *generation* more, by which hellos that speak of an earlier queue are known. It is not closed at
//! once: the peer's last packet may be taken in before it is acknowledged, and a peer to which
//! nobody does that tries it again for seconds. Where registered memory is stays known: who reaches
//! for the peer again only connects.

use super::super::hello::{Hello, Name, Spot};
use super::super::nic::{Act, Address, Failure};
use super::{Batch, Fabric, Hold, Local, Manner, NOBODY, What};

/// What comes with the last packet of a queue, instead of a window.
pub(super) const LAST: u32 = u32::MAX;
/// Polls that a queue is wanted before one more than allowed is made: a peer that computes does not
/// answer.
const PATIENCE: u64 = 1 << 14;
/// Polls that a queue without use stays when it has been made.
const SETTLING: u64 = 256;
/// Polls that one stays that waits to be connected to a lower name.
const HASTE: u64 = 1 << 10;
/// Polls that a queue stays after the peer's last packet was taken in: its acknowledgement is on
/// its way by then.
const ANSWERING: u64 = 64;

/// How far the connection with a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::verbs) enum State {
    /// There is no queue.
    Vacant,
    /// There is, and it is not connected.
    Open,
    /// It is, but the peer's may not be.
    Connected,
    Ready,
    /// It is being left.
    Leaving {
        /// The last packet was handed over.
        said: bool,
        /// The peer's has come, in this poll.
        heard: Option<u64>,
    },
}

/// The queues of a process, counted.
#[derive(Debug)]
pub(super) struct Count {
    /// Those that it has, but for the one that leads back.
    held: u32,
    /// Those that it may have.
    most: u32,
    /// Peers whose queues are being left.
    leaving: Vec<u32>,
    /// Peers for which a queue is wanted, and since which poll.
    wanted: Vec<(u32, u64)>,
    pub(super) polls: u64,
    /// There were too few of them at some time.
    short: bool,
    told: bool,
}

impl Count {
    pub(super) fn new(queues: u32) -> Self {
        Count {
            held: 0,
            most: queues.max(1),
            leaving: Vec::new(),
            wanted: Vec::new(),
            polls: 0,
            short: false,
            told: false,
        }
    }
}

/// What a hello of this process says of its queue to a peer.
#[derive(Clone, Copy, Debug)]
pub(in crate::transport::verbs) struct Stand {
    pub(in crate::transport::verbs) generation: u32,
    /// 0: there is none.
    pub(in crate::transport::verbs) number: u32,
    pub(in crate::transport::verbs) connected: bool,
}

/// What has become of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::verbs) enum Joined {
    /// It may be answered.
    Now,
    /// The queue that it wants, or that it speaks of, is not there yet.
    Later,
    /// Its sender is to make its queue first.
    YoursFirst,
}

impl Fabric {
    /// Queues that this process may have at a time, beside one to itself; more where a peer does
    /// not answer who is asked to leave.
    pub fn limit_queues(&mut self, most: u32) {
        self.count.most = most.clamp(1, self.limits.queues.max(1));
    }

    /// Queues that it has, but for the one to itself.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.count.held
    }

    /// The number by which a process is known here; it may have no queue.
    pub(in crate::transport::verbs) fn endpoint(&mut self, peer: Name) -> u32 {
        let next = self.endpoints.len() as u32;
        let index = *self.names.entry(peer).or_insert(next);
        if index == next {
            self.endpoints
                .push(super::Endpoint { is_above: self.name > peer, ..super::Endpoint::default() });
        }
        index
    }

    pub(in crate::transport::verbs) fn state_of(&self, endpoint: u32) -> &State {
        &self.endpoints[endpoint as usize].state
    }

    pub(in crate::transport::verbs) fn stand_of(&self, endpoint: u32) -> Stand {
        let held = &self.endpoints[endpoint as usize];
        Stand {
            generation: held.generation,
            number: if matches!(held.state, State::Open | State::Connected | State::Ready) {
                held.number
            } else {
                0
            },
            connected: matches!(held.state, State::Connected | State::Ready),
        }
    }

    /// Does for the queue what a hello allows.
    pub(in crate::transport::verbs) fn join(
        &mut self,
        endpoint: u32,
        hello: &Hello,
    ) -> Result<Joined, Failure> {
        let asks = hello.stage.wants_queue();
        let held = &self.endpoints[endpoint as usize];
        let known = hello.generation != Hello::UNKNOWN;
        if known && hello.generation > held.generation {
            // The peer has left the queue, and this process has still to see it.
            if !self.left_alone(endpoint, hello.generation) {
                return Ok(Joined::Later);
            }
        }
        let current = known && hello.generation == self.endpoints[endpoint as usize].generation;
        let speaks = current && hello.number != 0;
        let super::Endpoint { state, is_above, .. } = self.endpoints[endpoint as usize];
        match state {
            State::Vacant if asks && self.count.short && is_above && hello.number == 0 => {
                return Ok(Joined::YoursFirst);
            }
            // Nothing is to be done for it; and its sender may have taken leave of all by now, and
            // never answer the last packet.
            State::Leaving { .. } if speaks && !asks => return Ok(Joined::Now),
            _ if !asks && !speaks => self.count.wanted.retain(|(other, _)| *other != endpoint),
            _ if self.want(endpoint)? => {}
            _ => return Ok(Joined::Later),
        }
        if speaks {
            self.connect(endpoint, hello.number, &hello.address, hello.ground)?;
            if hello.connected {
                self.made_ready(endpoint);
            }
        }
        Ok(Joined::Now)
    }

    /// Sees to it that there is a queue; false if that takes time.
    pub(in crate::transport::verbs) fn want(&mut self, endpoint: u32) -> Result<bool, Failure> {
        match &self.endpoints[endpoint as usize].state {
            State::Vacant => {}
            State::Leaving { .. } => return Ok(false),
            _ => return Ok(true),
        }
        let now = self.count.polls;
        let since = match self.count.wanted.iter().find(|(other, _)| *other == endpoint) {
            Some((_, since)) => *since,
            None => {
                self.count.wanted.push((endpoint, now));
                now
            }
        };
        let is_loop = self.endpoints[endpoint as usize].is_loop;
        let too_many = self.count.held >= self.count.most && !is_loop;
        if too_many && now - since < PATIENCE {
            self.make_room();
            return Ok(false);
        }
        if too_many && !std::mem::replace(&mut self.count.told, true) {
            log::info!(
                "verbs: more than {} queues, since peers do not answer that are asked to leave theirs",
                self.count.most
            );
        }
        match self.nic.open() {
            Ok((queue, number)) => {
                self.count.wanted.retain(|(other, _)| *other != endpoint);
                self.count.held += u32::from(!is_loop);
                self.meter.queues += 1;
                let held = &mut self.endpoints[endpoint as usize];
                (held.queue, held.number, held.state, held.used) =
                    (Some(queue), number, State::Open, now);
                self.queues.insert(queue, endpoint);
                Ok(true)
            }
            // Their memory is registered too.
            Err(_) if self.regions.evict_all(&mut *self.nic) => Ok(false),
            // The interface has no more: those of others may do, if there are any, and they become
            // free.
            Err(_) if self.count.held > 0 && now - since < PATIENCE => {
                self.count.most = self.count.most.min(self.count.held);
                self.make_room();
                Ok(false)
            }
            Err(reason) => {
                self.count.wanted.retain(|(other, _)| *other != endpoint);
                Err(reason)
            }
        }
    }

    /// Leaves as many queues as are wanted, if there are so many that may be left.
    fn make_room(&mut self) {
        self.count.short = true;
        loop {
            let free = self.count.most.saturating_sub(self.count.held) as usize;
            if free + self.count.leaving.len() >= self.count.wanted.len() {
                return;
            }
            let candidates =
                (0..self.endpoints.len() as u32).filter(|index| self.may_leave(*index));
            let Some(oldest) = candidates.min_by_key(|index| self.endpoints[*index as usize].used)
            else {
                return;
            };
            if self.endpoints[oldest as usize].state == State::Open {
                // The peer hears of it when it answers.
                self.vacate(oldest);
            } else {
                self.start_leaving(oldest, None);
                self.go_on_leaving(oldest);
            }
        }
    }

    /// A queue may be left for another: this process has nothing on it, and has had the time to.
    fn may_leave(&self, endpoint: u32) -> bool {
        let held = &self.endpoints[endpoint as usize];
        if held.is_loop || held.generation >= Hello::UNKNOWN - 1 {
            return false;
        }
        let age = self.count.polls - held.used;
        match held.state {
            State::Ready => {
                (held.posted + held.heard > 0 || age >= SETTLING) && self.is_idle(endpoint)
            }
            // It waits for the peer, which may wait for another one in the same way, and so on: not
            // round to this process if each waits for a higher name, and who waits for a lower one
            // gives way.
            State::Open => age >= if held.is_above { HASTE } else { PATIENCE / 2 },
            _ => false,
        }
    }

    /// Nothing of this process's is under way on a queue whose end does not come with that of the
    /// last packet.
    fn is_idle(&self, endpoint: u32) -> bool {
        let held = &self.endpoints[endpoint as usize];
        let waits = |piece: &u32| {
            self.accesses[*piece as usize]
                .as_ref()
                .is_some_and(|access| access.endpoint == endpoint)
        };
        held.uncovered.is_empty()
            && held.flying.iter().all(|flying| matches!(flying.what, What::Piece(_)))
            && !self.again.iter().any(waits)
    }

    fn start_leaving(&mut self, endpoint: u32, heard: Option<u64>) {
        self.endpoints[endpoint as usize].state = State::Leaving { said: false, heard };
        self.count.leaving.push(endpoint);
    }

    /// The peer's last packet has come.
    pub(super) fn heard_last(&mut self, endpoint: u32) {
        let now = Some(self.count.polls);
        match &mut self.endpoints[endpoint as usize].state {
            State::Leaving { heard, .. } => *heard = now,
            State::Vacant => {}
            _ => self.start_leaving(endpoint, now),
        }
    }

    /// Goes on with the queues that are being left.
    pub(super) fn leave(&mut self) {
        self.count.polls += 1;
        for at in (0..self.count.leaving.len()).rev() {
            if let Some(endpoint) = self.count.leaving.get(at) {
                self.go_on_leaving(*endpoint);
            }
        }
    }

    fn go_on_leaving(&mut self, endpoint: u32) {
        match self.endpoints[endpoint as usize].state {
            // If the last packet is all that is under way, then a failure is its own: the peer may
            // have closed its queue before it has acknowledged it.
            State::Leaving { said: false, .. }
                if !self.endpoints[endpoint as usize].flying.is_empty() =>
            {
                self.mark(endpoint, NOBODY);
            }
            State::Leaving { said: false, heard } if self.is_idle(endpoint) => {
                let manner = Manner { signalled: true, urgent: true, ..Manner::default() };
                let what = What::Piece(Hold::Nothing);
                // SAFETY: nothing is moved.
                let said = unsafe {
                    self.post(
                        endpoint,
                        NOBODY,
                        Act::Send(LAST),
                        Local::default(),
                        Spot::default(),
                        manner,
                        what,
                    )
                };
                if said.is_ok() {
                    self.endpoints[endpoint as usize].state = State::Leaving { said: true, heard };
                }
            }
            State::Leaving { heard: Some(since), .. }
                if self.endpoints[endpoint as usize].is_over()
                    && self.count.polls - since >= ANSWERING =>
            {
                self.vacate(endpoint);
            }
            _ => {}
        }
    }

    /// The peer says that it is past the queue of this generation, which so ends here too. False if
    /// there is still something under way.
    fn left_alone(&mut self, endpoint: u32, generation: u32) -> bool {
        // Its last packet may have come by now.
        while self.take_batch() != Batch::Empty {}
        self.leave();
        // What is under way to a queue that is gone will fail, and be told.
        if !self.endpoints[endpoint as usize].flying.is_empty() || !self.is_idle(endpoint) {
            self.mark(endpoint, NOBODY);
            return false;
        }
        if self.endpoints[endpoint as usize].generation < generation {
            self.vacate(endpoint);
            self.endpoints[endpoint as usize].generation = generation;
        }
        true
    }

    /// Closes a queue on which nothing is under way, if there is one.
    pub(super) fn vacate(&mut self, endpoint: u32) {
        self.drop_queue(endpoint);
        let held = &mut self.endpoints[endpoint as usize];
        *held = super::Endpoint {
            generation: held.generation + 1,
            is_above: held.is_above,
            ..super::Endpoint::default()
        };
    }

    /// A request has failed. True if nothing was lost by it: it was the last packet of a queue, of
    /// which the peer knows by now.
    pub(super) fn failed_leaving(&mut self, endpoint: u32, number: u64) -> bool {
        let held = &mut self.endpoints[endpoint as usize];
        let left = matches!(held.state, State::Leaving { said: true, .. }) && held.posted == number;
        if left {
            self.retire(endpoint, number);
            self.vacate(endpoint);
        }
        left
    }

    /// The interface has nothing more of a queue after this.
    pub(super) fn drop_queue(&mut self, endpoint: u32) {
        let held = &mut self.endpoints[endpoint as usize];
        let Some(queue) = held.queue.take() else { return };
        self.count.held -= u32::from(!held.is_loop);
        self.under_way -= (held.posted - held.done) as u32;
        self.nic.close(queue, held.is_over());
        self.queues.remove(&queue);
        self.meter.left += 1;
        self.count.leaving.retain(|other| *other != endpoint);
        self.count.wanted.retain(|(other, _)| *other != endpoint);
    }

    /// The peer has said where its queue is, and eight bytes that may be read.
    fn connect(
        &mut self,
        endpoint: u32,
        number: u32,
        address: &Address,
        ground: Spot,
    ) -> Result<(), Failure> {
        let held = &mut self.endpoints[endpoint as usize];
        let (State::Open, Some(queue)) = (&held.state, held.queue) else { return Ok(()) };
        held.ground = ground;
        self.nic.connect(queue, number, address)?;
        held.state = State::Connected;
        Ok(())
    }

    /// The queue of this process that leads back to it; `None` if that takes time.
    pub(in crate::transport::verbs) fn loop_back(&mut self) -> Result<Option<u32>, Failure> {
        let endpoint = self.endpoint(self.name);
        if *self.state_of(endpoint) == State::Vacant {
            self.endpoints[endpoint as usize].is_loop = true;
            if !self.want(endpoint)? {
                return Ok(None);
            }
            let (number, address, ground) =
                (self.stand_of(endpoint).number, self.address(), self.ground());
            // Or the next one who asks would find a queue that nobody connects.
            self.connect(endpoint, number, &address, ground)
                .inspect_err(|_| self.vacate(endpoint))?;
            self.made_ready(endpoint);
        }
        Ok(Some(endpoint))
    }

    /// The peer is ready.
    pub(super) fn made_ready(&mut self, endpoint: u32) {
        let held = &mut self.endpoints[endpoint as usize];
        if held.state == State::Connected {
            held.state = State::Ready;
        }
    }
}
