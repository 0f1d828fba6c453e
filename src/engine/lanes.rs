//! Lanes: what the handles of one window have apart [DU-1, DU-2].
//!
//! Epochs belong to the window, and all its handles may open, use and close them. Completion and
//! order belong to a *lane*, of which each handle has one: lane 0 is the original's. In a
//! passive-target epoch, the operations of a lane to a target have a leg of their own. So they
//! queue, complete and are flushed without regard to those of other lanes.
//!
//! An epoch finds its legs by *place*, which is the target's rank for lane 0, and larger by the
//! window's size for each further lane. In epochs that cannot be flushed all lanes share lane 0's.

use std::ops::Range;

use super::port::{Assert, Outcome, Port, Rank, Stage, SyncError};
use super::record::PLACES;
use super::slab::Key;
use super::window::Window;

/// The target of a place in a window of `size` processes.
#[inline(always)]
pub(super) fn target_at(place: Rank, size: u32) -> Rank {
    // Most windows have one lane, and a division takes long.
    if place < size { place } else { place % size }
}

/// The lanes of a window that has had more than one.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The lanes on which the present lock_all epoch was opened. It ends with the last unlock_all.
    holders: Vec<Rank>,
}

impl Window {
    /// Number of lanes that the window may have.
    pub fn most_lanes(&self) -> u32 {
        PLACES / self.size
    }

    /// Makes this the lane of the next calls. The engine keeps nothing for a lane without
    /// operations and epochs, so any number below [`most_lanes`](Self::most_lanes) will do.
    pub fn select_lane(&mut self, lane: u32) {
        assert!(lane < self.most_lanes(), "lane {lane} of a window of {} ranks", self.size);
        if self.lanes.is_none() {
            // Lane 0 has made all calls so far.
            let holders = if self.has_lock_all_open() { vec![self.lane_base] } else { Vec::new() };
            self.lanes = Some(Box::new(Lanes { holders }));
        }
        self.lane_base = lane * self.size;
        self.route = None;
    }

    /// Whether a lock_all was called on this lane and no unlock_all since.
    pub fn has_lock_all_on(&self, lane: u32) -> bool {
        match &self.lanes {
            None => lane == 0 && self.has_lock_all_open(),
            Some(lanes) => lanes.holders.contains(&(lane * self.size)),
        }
    }

    fn has_lock_all_open(&self) -> bool {
        self.lock_all_open.is_some() || self.is_lock_all_folded()
    }

    /// Where an epoch keeps the operations of the present lane to `target`.
    #[inline(always)]
    pub(super) fn place(&self, epoch: Key, target: Rank) -> Rank {
        if self.lane_base != 0 && self.epochs[epoch].is_passive() {
            self.lane_base + target
        } else {
            target
        }
    }

    /// The legs of an epoch among which are those of the present lane to `target`, or to all
    /// targets. [`is_of_lane`](Self::is_of_lane) tells them from others.
    pub(super) fn legs_to(&self, epoch: Key, target: Option<Rank>) -> Range<u32> {
        let legs = &self.epochs[epoch].legs;
        match target {
            Some(target) => legs.find(self.place(epoch, target)).map_or(0..0, |leg| leg..leg + 1),
            None => 0..legs.len(),
        }
    }

    /// Whether a leg has the operations of the present lane.
    #[inline]
    pub(super) fn is_of_lane(&self, epoch: Key, leg: u32) -> bool {
        let entry = &self.epochs[epoch];
        let lane = self.lane_base..self.lane_base + self.size;
        self.lanes.is_none() || !entry.is_passive() || lane.contains(&entry.legs[leg].place)
    }

    /// Whether a lock_all on this lane joins the epoch that other lanes have open.
    pub(super) fn joins_lock_all(&self) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| {
            self.has_lock_all_open() && !lanes.holders.contains(&self.lane_base)
        })
    }

    /// A lock_all on a lane while others have one open. The epoch excludes what a lock_all without
    /// `NOCHECK` has to exclude, or both give that assertion.
    ///
    /// # Errors
    /// The epoch holds no lock, and this call asks for one.
    pub(super) fn join_lock_all(&mut self, assert: Assert) -> Result<(), SyncError> {
        let unchecked = self.lock_all_open.is_some_and(|epoch| self.epochs[epoch].is_unchecked());
        if unchecked && !assert.nocheck {
            return Err(SyncError::UncheckedByOther);
        }
        self.note_lock_all();
        Ok(())
    }

    /// Notes that the present lane has called lock_all.
    #[inline(always)]
    pub(super) fn note_lock_all(&mut self) {
        if let Some(lanes) = &mut self.lanes {
            lanes.holders.push(self.lane_base);
        }
    }

    /// An unlock_all on a lane. `None`: it is the last one, and ends the epoch. Otherwise it
    /// completes the operations of the lane.
    ///
    /// # Errors
    /// The lane has not called lock_all.
    pub(super) fn leave_lock_all(
        &mut self,
        port: &mut impl Port,
    ) -> Result<Option<Outcome>, SyncError> {
        let base = self.lane_base;
        let Some(lanes) = &mut self.lanes else { return Ok(None) };
        let at = lanes.holders.iter().position(|holder| *holder == base);
        lanes.holders.swap_remove(at.ok_or(SyncError::NotLocked)?);
        if lanes.holders.is_empty() {
            return Ok(None);
        }
        self.flush_stage(port, None, Stage::Remote).map(Some)
    }
}
