//! What has come to an end, or has come in; and what becomes of a queue that fails.

use super::super::direct::told;
use super::super::nic::{Completion, Failure};
use super::queues::LAST;
use super::{Access, Asker, Change, Event, Fabric, Flying, Hold, Inbox, Uncovered, What};
use crate::engine::{Atomic, Stage};
use crate::transport::copy;
use crate::transport::datatype;
use crate::transport::host_mpi::wire::PACKET;

/// Batches of completions taken in by one poll.
const BATCHES: u32 = 64;
/// The part of the receive buffers that may be without a receive while more comes in.
const SPENT: u32 = 8;

/// What there was to be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::verbs) enum Batch {
    Empty,
    /// Completions, and there were no others.
    All,
    /// Completions, and perhaps there are more.
    Some,
}

impl Fabric {
    /// Takes in what has come to an end. True if there was something.
    pub(in crate::transport::verbs) fn poll(&mut self) -> bool {
        for piece in std::mem::take(&mut self.again) {
            self.go_on(piece);
        }
        self.regions.tidy(&mut *self.nic);
        let mut moved = false;
        // All that has come: who sees that an operation of a peer is over must see what it has told
        // as well.
        for _ in 0..BATCHES {
            let batch = self.take_batch();
            moved |= batch != Batch::Empty;
            if batch != Batch::Some {
                break;
            }
        }
        if !moved {
            self.post_receives();
        }
        self.free_completions();
        self.leave();
        moved
    }

    /// Takes in a bounded number of completions.
    pub(in crate::transport::verbs) fn take_batch(&mut self) -> Batch {
        let mut completions = std::mem::take(&mut self.completions);
        let more = self.nic.poll(&mut completions);
        let batch = match (completions.is_empty(), more) {
            (true, _) => Batch::Empty,
            (false, false) => Batch::All,
            (false, true) => Batch::Some,
        };
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
                    self.spent.push(receive);
                }
                Completion::Failed(queue, number, code) => {
                    if let Some(index) = self.queues.get(&queue).copied()
                        && !self.failed_leaving(index, number)
                    {
                        let what = self.name_of(index, number);
                        let reason = format!("{what} has failed: {}", self.nic.explain(code));
                        self.fail(index, &reason);
                    }
                }
                Completion::Spoiled(receive, _) => self.spent.push(receive),
            }
        }
        self.completions = completions;
        if self.spent.len() as u32 >= self.receives.len() / SPENT {
            self.post_receives();
        }
        batch
    }

    /// What was taken out of them comes first: whoever waits for it does not wait for this.
    fn post_receives(&mut self) {
        while let Some(receive) = self.spent.pop() {
            self.post_receive(receive);
        }
    }

    fn post_receive(&mut self, receive: u32) {
        let (at, key) = (self.receives.at(receive) as usize, self.receives.key());
        // SAFETY: what it had was taken out; it is the interface's again.
        if let Err(Failure(reason)) = unsafe { self.nic.receive(receive, at, PACKET as u32, key) } {
            log::error!("verbs: a receive buffer is lost: {reason}");
        }
    }

    /// The first 31 bits of what comes with a packet are the number of the window here; what comes
    /// with a write tells a number.
    fn received(&mut self, endpoint: u32, receive: u32, len: u32, number: u32, bare: bool) {
        // Whoever sends is ready.
        self.made_ready(endpoint);
        self.endpoints[endpoint as usize].heard += 1;
        if bare {
            let (window, told) = told(number);
            return self.tell(window, Event::Told(endpoint, told));
        }
        if number == LAST {
            return self.heard_last(endpoint);
        }
        let len = (len as usize).min(PACKET);
        let Some(Some(inbox @ Inbox { closed: false, .. })) = self.inboxes.get_mut(number as usize)
        else {
            return log::warn!("verbs: a packet for a window that this process does not have");
        };
        let mut bytes = inbox.spare.pop().unwrap_or_else(|| Vec::with_capacity(PACKET));
        bytes.clear();
        // SAFETY: the interface has written so many bytes there.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(self.receives.at(receive), len)
        });
        inbox.events.push_back(Event::Packet(endpoint, bytes));
    }

    /// Requests of a peer are complete up to this one.
    pub(super) fn retire(&mut self, endpoint: u32, number: u64) {
        let held = &mut self.endpoints[endpoint as usize];
        self.under_way -= number.saturating_sub(held.done) as u32;
        held.done = held.done.max(number);
        held.signalled = held.signalled.saturating_sub(1);
        let mut covered = 0;
        while let Some(flying) =
            self.endpoints[endpoint as usize].flying.pop_front_if(|first| first.number <= number)
        {
            if flying.covers {
                covered = flying.number;
            }
            self.complete(endpoint, flying);
        }
        while let Some(put) = self.endpoints[endpoint as usize]
            .uncovered
            .pop_front_if(|first| first.number <= covered)
        {
            self.tell(put.window, Event::Finished(put.ticket, Stage::Remote));
            self.settled(put.window);
        }
    }

    /// One thing less is under way.
    fn settled(&mut self, window: u32) {
        let Some(Some(inbox)) = self.inboxes.get_mut(window as usize) else { return };
        inbox.under_way -= 1;
        if inbox.closed && inbox.under_way == 0 {
            self.free_window(window);
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
                self.endpoints[endpoint as usize].uncovered.push_back(Uncovered {
                    number,
                    window,
                    ticket,
                });
                // It stays under way until it is covered.
                return;
            }
            What::Get { ticket, to, len, hold, unpack } => {
                if !self.is_open(window) {
                    // Nobody waits for it, and its result buffer may be gone.
                } else if let (Hold::Buffer(piece), Some(unpack)) = (&hold, unpack) {
                    let (side, from, len) = *unpack;
                    // SAFETY: as below.
                    unsafe {
                        datatype::unpack(self.buffers.at(*piece), to as *mut u8, &side, from, len)
                    };
                } else if let Hold::Buffer(piece) = &hold {
                    // SAFETY: the interface has filled the buffer; the result buffer is the
                    // operation's until it is complete [EP-8].
                    unsafe { copy(self.buffers.at(*piece), to as *mut u8, len) };
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

    pub(super) fn name_of(&self, endpoint: u32, number: u64) -> String {
        let flying =
            self.endpoints[endpoint as usize].flying.iter().find(|flying| flying.number >= number);
        match flying.map(|flying| &flying.what) {
            Some(What::Put { .. }) => "a put (RDMA write)".into(),
            Some(What::Get { .. }) => "a get (RDMA read)".into(),
            Some(What::Piece(_)) => "a packet, signal or part of a put".into(),
            Some(What::Access(piece)) => match self.accesses[*piece as usize] {
                Some(Access { asker: Asker::Operation(..), .. }) => {
                    "an accumulate (RDMA atomic)".into()
                }
                Some(Access { asker: Asker::Signal, .. }) => "a signal (RDMA atomic)".into(),
                Some(Access { change: Change::Word(Atomic::Load), .. }) => {
                    "a read of a word".into()
                }
                Some(Access { change: Change::Word(Atomic::Store(_)), .. }) => {
                    "a write of a word".into()
                }
                _ => "an atomic access to a word of the lock service".into(),
            },
            None => "a request".into(),
        }
    }

    /// The queues on which something of a window does not end are taken for failed.
    #[cold]
    pub(in crate::transport::verbs) fn give_up(&mut self, window: u32) {
        for endpoint in 0..self.endpoints.len() as u32 {
            let held = &self.endpoints[endpoint as usize];
            let mut windows = held
                .flying
                .iter()
                .map(|flying| flying.window)
                .chain(held.uncovered.iter().map(|put| put.window));
            if windows.any(|other| other == window) {
                self.fail(
                    endpoint,
                    "it does not answer, and a window that it shares has lost a process",
                );
            }
        }
    }

    /// A queue has failed: what was under way on it is given up. Windows that meet the peer after
    /// this make a new one.
    #[cold]
    pub(super) fn fail(&mut self, endpoint: u32, reason: &str) {
        // After this the interface reads and writes nothing of it.
        self.drop_queue(endpoint);
        let held = &mut self.endpoints[endpoint as usize];
        let (flying, uncovered) =
            (std::mem::take(&mut held.flying), std::mem::take(&mut held.uncovered));
        for Flying { window, what, .. } in flying {
            match what {
                What::Put { hold, .. } | What::Get { hold, .. } | What::Piece(hold) => {
                    self.let_go(hold)
                }
                What::Access(piece) => self.end_access(piece),
            }
            self.settled(window);
        }
        for put in uncovered {
            self.settled(put.window);
        }
        for piece in std::mem::take(&mut self.again) {
            if self.accesses[piece as usize]
                .as_ref()
                .is_some_and(|access| access.endpoint != endpoint)
            {
                self.again.push(piece);
            } else {
                self.end_access(piece);
            }
        }
        for inbox in self.inboxes.iter_mut().flatten().filter(|inbox| !inbox.closed) {
            inbox.events.push_back(Event::Lost(endpoint, reason.to_owned()));
        }
        self.vacate(endpoint);
    }
}
