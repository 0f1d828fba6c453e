//! `progress`: one bounded sweep over everything that waits.

use super::peer::shrink;
use super::port::{Change, Port, Stage, Ticket, Word};
use super::slab::Key;
use super::window::Window;

impl Window {
    /// Makes progress without blocking: one sweep in the order of the paper's section VII.D. It
    /// handles completions first, then refused operations and signals, then grants, dones and
    /// locks, and at last the epochs that may now be activated. True if anything moved.
    pub fn progress<P: Port>(&mut self, port: &mut P) -> bool {
        let before = self.state_changes;
        let mut moved = port.poll();
        moved |= self.account_for_finished(port);
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
        if !self.word_watch[Word::Grant as usize].is_empty() {
            self.poll_words(port, Word::Grant);
        }
        if !self.word_watch[Word::Done as usize].is_empty() {
            self.poll_words(port, Word::Done);
        }
        if self.barrier.is_some() {
            self.advance_barrier(port);
        }
        if self.pattern.as_ref().is_some_and(|pattern| pattern.awaits()) {
            self.advance_pattern(port);
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
        if self.awaits_counters() {
            self.poll_counter_waits(port);
        }
        self.run(port);
        moved || self.state_changes != before
    }

    /// As [`progress`](Self::progress), with what the transport has taken in already: operations
    /// that are finished, and answers of lock words. True if anything moved.
    pub fn take_finished(&mut self, port: &mut impl Port) -> bool {
        let before = self.state_changes;
        let moved = self.account_for_finished(port);
        if !self.lock_ops.is_empty() {
            self.advance_lock_ops(port);
        }
        self.run(port);
        moved || self.state_changes != before
    }

    /// Polls the port and the words by which peers grant access, at most `polls` times, until no
    /// operation is recorded or in flight. For ports that report no failed operations.
    #[inline]
    pub fn poll_operations(&mut self, port: &mut impl Port, polls: u32) {
        for _ in 0..polls {
            if !self.has_operations() || self.locks_awaited > 0 {
                return;
            }
            self.poll_words(port, Word::Grant);
            if port.poll() {
                self.account_for_finished(port);
            }
        }
    }

    /// Accounts for all stages of operations that the transport has finished. True if there was
    /// one.
    #[inline]
    fn account_for_finished(&mut self, port: &mut impl Port) -> bool {
        while let Some(ticket) = port.next_failed() {
            self.requests.fail(self.records.account(ticket.0).request);
        }
        let mut any = false;
        while let Some((ticket, stage)) = port.next_finished() {
            self.finished(port, ticket, stage);
            any = true;
        }
        any
    }

    /// True if only finished operations and answers of lock words, which the port reports, move
    /// anything here: no epoch is deferred or waits for a word, and nothing is to be sent again.
    #[inline]
    pub fn awaits_only_port(&self) -> bool {
        self.locks_awaited == 0
            && self.deferred.is_empty()
            && self.stalled.is_empty()
            && self.unsent.is_empty()
            && !self.watches_words()
            && !self.awaits_counters()
    }

    /// True if an epoch waits for words that peers write into this process's memory, which the
    /// transport does not report.
    #[inline]
    pub fn watches_words(&self) -> bool {
        self.word_watch.iter().any(|watch| !watch.is_empty())
            || !self.lock_watch.is_empty()
            || self.barrier.is_some()
            || self.pattern.as_ref().is_some_and(|pattern| pattern.awaits())
    }

    /// Accounts for a stage of an operation that the transport has finished.
    fn finished(&mut self, port: &mut impl Port, ticket: Ticket, stage: Stage) {
        let account = self.records.account(ticket.0);
        let epoch = self.epochs.key_at(account.epoch).expect("an epoch outlives its operations");
        let leg = self.epochs[epoch].legs.find(account.place).expect("its epoch has the leg");
        match stage {
            Stage::Local => self.retire_local(epoch, leg, ticket.0),
            Stage::Remote => {
                self.retire_remote(epoch, leg, ticket.0);
                self.try_finish_leg(port, epoch, leg);
            }
        }
    }

    /// Posts the operations that the transport has refused: those of the oldest epoch first, and in
    /// the order of the targets' ranks from this process's on, so that not all processes begin with
    /// the same target. In the order of grants, a target that has granted late would wait behind
    /// all others again and again.
    fn retry_stalled(&mut self, port: &mut impl Port) {
        let mut stalled = std::mem::take(&mut self.stalled);
        // Nearly sorted, since refused ones are listed again in this order.
        stalled.sort_by_key(|&(epoch, leg)| {
            let place = self.epochs[epoch].legs[leg].place;
            (epoch.generation, place.wrapping_sub(self.me))
        });
        for (epoch, leg) in stalled {
            self.leg(epoch, leg).stalled = false;
            self.post_queued(port, epoch, leg);
            self.try_finish_leg(port, epoch, leg);
        }
    }

    /// Reads only the words by which peers grant access. Whether the open access epoch of a group
    /// still awaits the post of one of its first targets.
    pub fn poll_posts(&mut self, port: &mut impl Port) -> bool {
        const CHECKED: u32 = 8;
        self.poll_words(port, Word::Grant);
        self.access_open.is_some_and(|epoch| {
            let legs = &self.epochs[epoch].legs;
            (0..legs.len().min(CHECKED)).any(|leg| !legs[leg].granted)
        })
    }

    /// Polls the port and reads only the words by which origins say that they are done. Whether the
    /// open exposure epoch still awaits an origin.
    #[inline]
    pub fn poll_dones(&mut self, port: &mut impl Port) -> bool {
        port.poll();
        self.poll_words(port, Word::Done);
        self.exposure_open.is_some_and(|epoch| self.epochs[epoch].awaited > 0)
    }

    /// Polls the port and reads only the words by which peers grant access, say that they are done,
    /// and reach a fence.
    #[inline]
    pub fn poll_peers(&mut self, port: &mut impl Port) {
        self.poll_words(port, Word::Grant);
        self.poll_words(port, Word::Done);
        if port.poll() {
            self.account_for_finished(port);
        }
        self.advance_barrier(port);
        if self.pattern.as_ref().is_some_and(|pattern| pattern.awaits()) {
            self.advance_pattern(port);
        }
        self.run(port);
    }

    /// Reads `word` of each peer that epochs wait for, once for all epochs of a peer.
    #[inline(always)]
    fn poll_words(&mut self, port: &mut impl Port, word: Word) {
        let mut at = 0;
        while let Some(&index) = self.word_watch[word as usize].get(at) {
            self.read_word(port, index, word);
            if self.peers[index].words[word as usize].waiters.is_empty() {
                self.word_watch[word as usize].swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Reads `word` of a peer and continues the epochs whose value it has reached.
    #[inline(always)]
    fn read_word(&mut self, port: &mut impl Port, index: u32, word: Word) {
        let rank = self.peers[index].rank;
        self.peers[index].words[word as usize].seen = port.observe(rank, word);
        while let Some(epoch) = self.peers[index].words[word as usize].next_reached() {
            if word == Word::Grant {
                self.grant_leg(port, epoch, rank);
            } else {
                self.origin_done(port, epoch);
            }
        }
        shrink(&mut self.peers[index].words[word as usize].waiters);
    }

    /// One more origin has finished with an exposure epoch.
    fn origin_done(&mut self, port: &mut impl Port, epoch: Key) {
        self.state_changes += 1;
        let entry = &mut self.epochs[epoch];
        entry.awaited -= 1;
        if entry.closed {
            self.try_complete(port, epoch);
        }
    }

    /// Reads the words that the transport reports as changed, and no others.
    fn take_changes(&mut self, port: &mut impl Port) {
        while let Some(change) = port.next_change() {
            match change {
                Change::LockGrant(target) => self.lock_granted(port, target),
                // The barrier reads its words itself.
                Change::Signal(peer, Word::Fence) => {
                    if self.pattern.is_some() {
                        self.fence_word_changed(port, peer);
                    }
                }
                Change::Signal(peer, word) => {
                    // Without contact no epoch waits for this peer. The first contact reads the
                    // word.
                    if let Some(index) = self.peers.index_of(peer)
                        && !self.peers[index].words[word as usize].waiters.is_empty()
                    {
                        self.read_word(port, index, word);
                    }
                }
            }
        }
    }
}
