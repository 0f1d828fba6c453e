//! `progress`: one bounded sweep over everything that waits.

use super::peer::shrink;
use super::port::{Change, Port, Stage, Ticket, Word};
use super::window::Window;

impl Window {
    /// Makes progress without blocking: one sweep in the order of the paper's section VII.D.
    /// Completions come first, then transfers, notifications and locks, then the epochs that
    /// complete or are activated by them. True if anything moved.
    pub fn progress<P: Port>(&mut self, port: &mut P) -> bool {
        let before = self.state_changes;
        let mut moved = port.poll();
        while let Some(ticket) = port.next_failed() {
            self.requests.fail(self.records.account(ticket.0).request);
        }
        while let Some((ticket, stage)) = port.next_finished() {
            self.finished(port, ticket, stage);
            moved = true;
        }
        self.take_arrivals(port);
        if !self.stalled.is_empty() {
            self.retry_stalled(port);
        }
        if !self.unsent.is_empty() {
            for (index, word) in std::mem::take(&mut self.unsent) {
                self.peers[index].unsent[word as usize] = false;
                self.signal(port, index, word);
            }
        }
        self.run(port);
        if P::NAMES_CHANGES {
            self.take_changes(port);
        }
        if !self.grant_watch.is_empty() {
            self.poll_grants(port);
        }
        if !self.done_watch.is_empty() {
            self.poll_dones(port);
        }
        if self.barrier.is_some() {
            self.advance_barrier(port);
        }
        if !self.lock_ops.is_empty() {
            self.advance_lock_ops(port);
        }
        if !self.lock_watch.is_empty() {
            self.poll_lock_watch(port);
        }
        if !self.lock_gate.is_empty() {
            self.advance_gate(port);
        }
        if self.notifications.are_awaited() {
            self.poll_counter_waits(port);
        }
        self.run(port);
        moved || self.state_changes != before
    }

    /// True if an epoch waits for words that peers write into this process's memory, unnoticed by
    /// the transport.
    #[inline]
    pub fn watches_words(&self) -> bool {
        !self.grant_watch.is_empty()
            || !self.done_watch.is_empty()
            || !self.lock_watch.is_empty()
            || self.barrier.is_some()
    }

    /// Accounts for a stage of an operation that the transport has finished.
    fn finished(&mut self, port: &mut impl Port, ticket: Ticket, stage: Stage) {
        let account = self.records.account(ticket.0);
        let epoch = self.epochs.key_at(account.epoch).expect("an epoch outlives its operations");
        let leg = self.epochs[epoch].legs.find(account.target).expect("the operation's leg");
        match stage {
            Stage::Local => self.retire_local(epoch, leg, ticket.0),
            Stage::Remote => {
                self.retire_remote(epoch, leg, ticket.0);
                self.try_finish_leg(port, epoch, leg);
            }
        }
    }

    fn retry_stalled(&mut self, port: &mut impl Port) {
        for (epoch, leg) in std::mem::take(&mut self.stalled) {
            self.leg(epoch, leg).stalled = false;
            self.post_queued(port, epoch, leg);
            self.try_finish_leg(port, epoch, leg);
        }
    }

    /// Reads `g` of each peer that access epochs wait for, once for all of its epochs.
    fn poll_grants(&mut self, port: &mut impl Port) {
        let mut at = 0;
        while at < self.grant_watch.len() {
            let index = self.grant_watch[at];
            self.look_at_grants(port, index);
            if self.peers[index].access_waiters.is_empty() {
                self.grant_watch.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn look_at_grants(&mut self, port: &mut impl Port, index: u32) {
        let rank = self.peers[index].rank;
        self.peers[index].granted = port.observe(rank, Word::Grant);
        while let Some(waiter) = {
            let peer = &mut self.peers[index];
            let granted = peer.granted;
            peer.access_waiters.pop_front_if(|waiter| waiter.access <= granted)
        } {
            self.grant_leg(port, waiter.epoch, rank);
        }
        shrink(&mut self.peers[index].access_waiters);
    }

    /// Reads `Done` of each peer that exposure epochs wait for.
    fn poll_dones(&mut self, port: &mut impl Port) {
        let mut at = 0;
        while at < self.done_watch.len() {
            let index = self.done_watch[at];
            self.look_at_dones(port, index);
            if self.peers[index].exposure_waiters.is_empty() {
                self.done_watch.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn look_at_dones(&mut self, port: &mut impl Port, index: u32) {
        let rank = self.peers[index].rank;
        self.peers[index].done_seen = port.observe(rank, Word::Done);
        while let Some(waiter) = {
            let peer = &mut self.peers[index];
            let done = peer.done_seen;
            peer.exposure_waiters.pop_front_if(|waiter| waiter.exposure <= done)
        } {
            self.state_changes += 1;
            let entry = &mut self.epochs[waiter.epoch];
            entry.awaited -= 1;
            if entry.closed {
                self.try_complete(port, waiter.epoch);
            }
        }
        shrink(&mut self.peers[index].exposure_waiters);
    }

    /// Reads the words that the transport reports as changed, and no others.
    fn take_changes(&mut self, port: &mut impl Port) {
        while let Some(change) = port.next_change() {
            match change {
                Change::LockGrant(target) => self.lock_granted(port, target),
                Change::Signal(peer, word) => {
                    // Without contact no epoch waits for this peer. The first contact reads the
                    // word.
                    let Some(index) = self.peers.index_of(peer) else { continue };
                    match word {
                        Word::Grant if !self.peers[index].access_waiters.is_empty() => {
                            self.look_at_grants(port, index)
                        }
                        Word::Done if !self.peers[index].exposure_waiters.is_empty() => {
                            self.look_at_dones(port, index)
                        }
                        Word::Grant | Word::Done | Word::Fence => {}
                    }
                }
            }
        }
    }
}
