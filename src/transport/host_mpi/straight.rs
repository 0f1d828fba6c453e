//! What goes past the messages: operations, signals and lock words that the courier's interface
//! does without the target's processor.
//!
//! Messages and what goes past them use the same queues, so messages keep their place behind it. It
//! is not so the other way round: a message has arrived long before the target's process has done
//! what it says. Whatever must be behind operations that are messages is a message itself.

use std::time::{Duration, Instant};

use super::MessageWindow;
use super::courier::Courier;
use super::origin::as_single_run;
use crate::engine::{
    Answer, Atomic, LockTicket, LockWord, NoResource, Op, OpKind, Posted, Rank, Ticket, Word,
};

/// Time for what is under way in a window that is broken.
const PATIENCE: Duration = Duration::from_secs(10);

impl<C: Courier> MessageWindow<C> {
    /// True if nothing that this process has asked of a peer by messages may still have to be done.
    fn has_no_messages(&mut self, peer: Rank) -> bool {
        let index = self.link_to(peer);
        let link = &self.links[index as usize];
        link.issued == link.done && link.feed.is_none()
    }

    /// Starts an operation past the messages; `None` if it has to be one.
    #[inline]
    pub(super) fn post_straight(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        self.courier.direct()?;
        if self.broken {
            return Some(Posted::NoResource);
        }
        if op.kind == OpKind::Notify {
            if !self.has_no_messages(op.target) {
                return None;
            }
            let posted = self.courier.direct()?.notify(op, ticket)?;
            let index = self.link_to(op.target);
            self.links[index as usize].notified = false;
            return Some(posted);
        }
        if !matches!(op.kind, OpKind::Put | OpKind::Get) {
            return self.reduce_straight(op, ticket);
        }
        let Some(shaped) = op.shape else { return self.courier.direct()?.post(op, ticket) };
        let (direct, shape) = (self.courier.direct()?, self.shapes.get(shaped));
        let posted = match as_single_run(op, shape) {
            Some(single) => direct.post(&Op { shape: None, ..single }, ticket)?,
            None => direct.post_shaped(op, shape, ticket)?,
        };
        if posted != Posted::NoResource {
            drop(self.shapes.take(shaped));
        }
        Some(posted)
    }

    /// Starts a put and the notification behind it, in one request.
    #[inline]
    pub(super) fn post_notified_straight(
        &mut self,
        put: &Op,
        notification: &Op,
        ticket: Ticket,
    ) -> Option<Posted> {
        let simple =
            put.kind == OpKind::Put && put.shape.is_none() && notification.kind == OpKind::Notify;
        if !simple
            || self.broken
            || self.courier.direct_ref().is_none()
            || !self.has_no_messages(put.target)
        {
            return None;
        }
        self.courier.direct()?.put_notified(put, notification.disp as u32, ticket)
    }

    /// Starts an accumulate that is the interface's, on whichever process; `None` if it is the
    /// target's processor's.
    #[inline]
    pub(super) fn reduce_straight(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        if !matches!(op.kind, OpKind::Accumulate | OpKind::GetAccumulate | OpKind::CompareAndSwap) {
            return None;
        }
        let broken = self.broken;
        let direct = self.courier.direct().filter(|direct| direct.offloads(op))?;
        if broken { Some(Posted::NoResource) } else { direct.post_atomic(op, ticket) }
    }

    /// A notification of a process of this node, or of this process, is the processor's, and must
    /// not overtake accumulates that are the interface's.
    #[inline]
    pub(super) fn overtakes(&self, op: &Op) -> bool {
        matches!(op.kind, OpKind::Notify | OpKind::NotifyTagged) && self.is_reducing(op.target)
    }

    /// Whether the interface has accumulates to `rank` under way.
    #[inline]
    pub(super) fn is_reducing(&self, rank: Rank) -> bool {
        self.courier.direct_ref().is_some_and(|direct| direct.has_accumulates_in_flight(rank))
    }

    /// Raises a word of a peer past the messages; `None` if it has to be one.
    #[inline]
    pub(super) fn signal_straight(
        &mut self,
        peer: Rank,
        word: Word,
        value: u64,
    ) -> Option<Result<(), NoResource>> {
        if !self.courier.direct()?.reaches(peer) || self.broken || !self.has_no_messages(peer) {
            return None;
        }
        Some(self.courier.direct()?.signal(peer, word, value))
    }

    /// The word that a peer has written past the messages.
    #[inline]
    pub(super) fn observe_straight(&mut self, peer: Rank, word: Word) -> u64 {
        self.courier.direct().map_or(0, |direct| direct.observe(peer, word))
    }

    /// Accesses a lock word, if those are the interface's [LK-7].
    #[inline]
    pub(super) fn atomic_straight(
        &mut self,
        home: Rank,
        word: LockWord,
        access: Atomic,
        ticket: LockTicket,
    ) -> Option<Answer> {
        let broken = self.broken;
        let direct = self.courier.direct().filter(|direct| direct.serves_locks())?;
        Some(if broken { Answer::NoResource } else { direct.atomic(home, word, access, ticket) })
    }

    /// The same, of this process's own words.
    #[inline]
    pub(super) fn look_straight(&mut self, word: LockWord) -> Option<u64> {
        let direct = self.courier.direct().filter(|direct| direct.serves_locks())?;
        Some(direct.read_lock_word(word))
    }

    /// Waits for a moment, or until the interface has something to tell.
    #[inline]
    pub fn linger(&self) {
        const LOOKS: u32 = 8;
        if let Some(direct) = self.courier.direct_ref() {
            let _ = (0..LOOKS).any(|_| direct.has_completions());
        }
    }

    /// Takes in what has come past the messages, and nothing else. False if there was something, or
    /// if only a look at everything can tell.
    #[inline]
    pub fn hear(&mut self) -> bool {
        let Some(direct) = self.courier.direct() else { return false };
        if !direct.poll_completions() {
            return true;
        }
        self.take_told();
        false
    }

    /// Takes in what has come past the messages. True if there was something.
    pub(super) fn take_straight(&mut self) -> bool {
        let Some(direct) = self.courier.direct() else { return false };
        let before = self.finished.len() + self.answers.len();
        self.finished.extend(std::iter::from_fn(|| direct.next_finished()));
        self.answers.extend(std::iter::from_fn(|| direct.next_answer()));
        let mut moved = self.finished.len() + self.answers.len() > before;
        moved |= self.take_told();
        while let Some((peer, reason)) =
            self.courier.direct().and_then(crate::transport::rdma::Endpoint::next_lost)
        {
            moved = true;
            self.lose(peer, &reason.to_string());
        }
        moved
    }

    /// Counters of this process that peers have raised past the messages. True if there was one.
    fn take_told(&mut self) -> bool {
        let mut moved = false;
        while let Some((peer, counter)) =
            self.courier.direct().and_then(crate::transport::rdma::Endpoint::next_notification)
        {
            moved = true;
            if counter < self.near.counters_of(self.members.place()) {
                self.near.notify_here(counter);
            } else {
                let index = self.link_to(peer);
                self.refuse(peer, Some(index), super::wire::Malformed::UnknownCounter);
            }
        }
        moved
    }

    /// This process has waited for long, and asks whether its peers are still there. For the log:
    /// where it stands with them.
    #[cold]
    pub fn probe(&mut self) -> String {
        let Some(direct) = self.courier.direct().filter(|_| !self.broken) else {
            return String::new();
        };
        direct.probe();
        direct.describe_connections()
    }

    /// The window has ended for its users when nothing of it reaches their memory any more:
    /// interfaces go on with what they have, of peers that are well too. True if it has just come
    /// to that.
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "only to say when it is enough")]
    pub(super) fn wind_up(&mut self) -> bool {
        let Some(direct) = self.courier.direct() else {
            return !std::mem::replace(&mut self.ended, true);
        };
        if !direct.quiesce() {
            // Whoever is gone fails by itself. A peer that has nothing posted for what it is sent
            // may leave it at that for ever.
            if self.ending.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
                return false;
            }
            direct.abort();
        }
        !std::mem::replace(&mut self.ended, true)
    }

    /// A peer cannot be reached any more.
    #[cold]
    pub(super) fn lose(&mut self, peer: Rank, reason: &str) {
        let text = format!("process {peer} of the window cannot be reached any more: {reason}");
        log::error!("{text}");
        // Once in the life of a window.
        self.lost.get_or_insert_with(|| (peer, text.leak()));
        let index = self.link_to(peer);
        self.links[index as usize].broken = true;
        self.break_off();
    }
}
