//! Folded exchanges: an exposure epoch and an access epoch that a start makes together.
//!
//! A start of a persistent epoch knows all calls of its record. If these are a post and a start,
//! operations that are copies, a complete and a wait, or one half of this, its epochs need no
//! records. The grants leave first, the operations follow when the targets have granted access, and
//! the dones follow the operations. A peer that does not answer while the call polls makes them
//! regular epochs, in the state that they would have had. Meanwhile the window has no other epoch.

use super::epoch::{EpochKind, EpochState, Leg};
use super::port::{Outcome, Port, Rank, Word};
use super::slab::Key;
use super::window::{FenceView, Window};

/// The groups of a post and of a start (distinct ranks). `None`: there is no such call.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Of the post.
    pub origins: Option<Box<[Rank]>>,
    /// Of the start.
    pub targets: Option<Box<[Rank]>>,
}

impl Exchange {
    fn origins(&self) -> &[Rank] {
        self.origins.as_deref().unwrap_or_default()
    }

    fn targets(&self) -> &[Rank] {
        self.targets.as_deref().unwrap_or_default()
    }
}

impl Window {
    /// True if an exchange may be folded now. For ports that send signals at once.
    #[inline]
    pub fn may_fold_exchange(&self) -> bool {
        self.has_room_for_fence()
            && self.barrier.is_none()
            && self.pattern.is_none()
            && self.unsent.is_empty()
            && !self.fence_view.has_operations()
    }

    /// Opens the epochs of an exchange, which [`may_fold_exchange`](Self::may_fold_exchange) has
    /// allowed. Polls while `waits` returns true. True if all targets have granted access.
    /// Otherwise the epochs are now open, as after `post` and `start`.
    #[inline]
    pub fn open_exchange(
        &mut self,
        port: &mut impl Port,
        exchange: &Exchange,
        mut waits: impl FnMut() -> bool,
    ) -> bool {
        self.route = None;
        for origin in exchange.origins() {
            let index = self.peers.index(*origin);
            self.peers[index].exposures += 1;
            self.signal(port, index, Word::Grant);
        }
        if exchange.targets.is_some() {
            self.fence_view = FenceView::Dissolved;
        }
        for target in exchange.targets() {
            self.peers.of(*target).accesses += 1;
        }
        for target in exchange.targets() {
            let access = self.peers.of(*target).accesses;
            while !self.sees(port, *target, Word::Grant, access) {
                if !waits() {
                    self.unfold_exchange(port, exchange);
                    return false;
                }
                port.poll();
            }
        }
        true
    }

    /// Closes the epochs of an exchange whose operations are complete. Polls while `waits` returns
    /// true. If an origin is not done then, the exposure becomes a regular epoch.
    #[inline]
    pub fn close_exchange(
        &mut self,
        port: &mut impl Port,
        exchange: &Exchange,
        mut waits: impl FnMut() -> bool,
    ) -> Outcome {
        self.state_changes += 1;
        for target in exchange.targets() {
            let index = self.peers.index(*target);
            let peer = &mut self.peers[index];
            debug_assert_eq!(peer.accesses, peer.done + 1, "no other access is incomplete");
            peer.done = peer.accesses;
            self.signal(port, index, Word::Done);
        }
        for origin in exchange.origins() {
            let exposure = self.peers.of(*origin).exposures;
            while !self.sees(port, *origin, Word::Done, exposure) {
                if !waits() {
                    let epoch = self.unfold_exposure(port, exchange.origins());
                    return self.close(port, epoch);
                }
                port.poll();
            }
        }
        Outcome::Complete
    }

    /// True if `word` of a peer has reached `value`.
    #[inline(always)]
    fn sees(&mut self, port: &mut impl Port, rank: Rank, word: Word, value: u64) -> bool {
        let awaited = &mut self.peers.of(rank).words[word as usize];
        if awaited.seen < value {
            awaited.seen = port.observe(rank, word);
        }
        value <= awaited.seen
    }

    #[cold]
    #[inline(never)]
    fn unfold_exchange(&mut self, port: &mut impl Port, exchange: &Exchange) {
        if let Some(origins) = &exchange.origins {
            self.exposure_open = Some(self.unfold_exposure(port, origins));
        }
        let Some(targets) = &exchange.targets else { return };
        let epoch = self.unfolded_epoch(EpochKind::Access);
        self.epochs[epoch].awaited = targets.len() as u32;
        for target in targets {
            let index = self.peers.index(*target);
            let access = self.peers[index].accesses;
            let granted = self.has_reached(port, index, Word::Grant, access, epoch);
            self.epochs[epoch].legs.push(Leg { access, ..Leg::new(*target, granted) });
        }
        self.access_open = Some(epoch);
    }

    #[cold]
    #[inline(never)]
    fn unfold_exposure(&mut self, port: &mut impl Port, origins: &[Rank]) -> Key {
        let epoch = self.unfolded_epoch(EpochKind::Exposure);
        self.await_dones(port, epoch, origins);
        epoch
    }

    fn unfolded_epoch(&mut self, kind: EpochKind) -> Key {
        self.state_changes += 1;
        let epoch = self.open(kind);
        self.epochs[epoch].state = EpochState::Active;
        epoch
    }
}
