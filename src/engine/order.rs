//! Order without completion: later operations to a target take effect after earlier ones [OR-1].
//!
//! The port orders what is posted. Where it cannot do so at once, or earlier operations are still
//! recorded, the next operation to the target is marked instead: it is posted only after the port
//! has agreed. Nobody waits, since an operation that has to wait is recorded like any other.

use smallvec::SmallVec;

use super::lanes::target_at;
use super::port::{Port, Rank, SyncError};
use super::record::NIL;
use super::slab::Key;
use super::window::{FenceView, NO_LEG, Route, Window};

impl Window {
    /// `MPIX_Win_order`, or `MPIX_Win_order_all` for `None`: operations of the open access epoch
    /// that are issued later take effect at `target` after those that were issued before.
    ///
    /// # Errors
    /// If no open epoch covers the target (for `None`: no access epoch is open).
    pub fn order(&mut self, port: &mut impl Port, target: Option<Rank>) -> Result<(), SyncError> {
        if self.is_folded_over(target) {
            return Ok(());
        }
        self.unfold();
        for epoch in self.open_over(target)? {
            if self.epochs[epoch].outstanding == 0 {
                continue;
            }
            for leg in self.legs_to(epoch, target) {
                if self.is_of_lane(epoch, leg) {
                    self.order_leg(port, epoch, leg);
                }
            }
        }
        Ok(())
    }

    /// True if nothing is outstanding at the target, so that all earlier operations have taken
    /// effect: the epoch is open and granted there, and later operations go straight to the
    /// transport.
    #[inline(always)]
    pub fn is_ordered(&self, target: Rank) -> bool {
        self.has_direct_route(target)
            && (self.folded.is_some()
                || self.route.is_some_and(|route| self.has_nothing_outstanding(route)))
    }

    /// The open access epochs that cover `target`, or all open ones.
    fn open_over(&self, target: Option<Rank>) -> Result<SmallVec<[Key; 4]>, SyncError> {
        if let Some(epoch) = self.lock_all_open {
            return Ok(SmallVec::from_slice(&[epoch]));
        }
        if let Some(epoch) = self.access_open {
            let covers = target.is_none_or(|target| self.epochs[epoch].legs.find(target).is_some());
            return match covers {
                true => Ok(SmallVec::from_slice(&[epoch])),
                false => Err(SyncError::NoAccessEpoch),
            };
        }
        let locks = match target {
            Some(target) => self.peers.find(target).and_then(|peer| peer.lock_open),
            None => self.locks_open.first().copied(),
        };
        match (locks, target, self.fence_view) {
            (Some(epoch), Some(_), _) => Ok(SmallVec::from_slice(&[epoch])),
            (Some(_), None, _) => Ok(SmallVec::from_slice(&self.locks_open)),
            (None, _, FenceView::Real(epoch)) => Ok(SmallVec::from_slice(&[epoch])),
            (None, _, FenceView::Tentative | FenceView::Folded) => Ok(SmallVec::new()),
            (None, _, FenceView::Dissolved) => Err(SyncError::NoAccessEpoch),
        }
    }

    fn order_leg(&mut self, port: &mut impl Port, epoch: Key, leg: u32) {
        let entry = &mut self.epochs[epoch].legs[leg];
        let (posted, target) = (entry.head == NIL, target_at(entry.place, self.size));
        if entry.remote == 0 || posted && port.order(target).is_ok() {
            return;
        }
        entry.ordered = true;
        self.route = None;
    }

    /// True if the next operation of this route, which is not direct, may be posted: only the order
    /// of the port was missing, and now it is given.
    #[inline(never)]
    pub(super) fn begin_ordered(&mut self, port: &mut impl Port, route: Route) -> bool {
        if route.leg == NO_LEG {
            return false;
        }
        let entry = &mut self.epochs[route.epoch].legs[route.leg];
        if !entry.ordered || !entry.granted || entry.head != NIL {
            return false;
        }
        if port.order(route.target).is_err() {
            return false;
        }
        entry.ordered = false;
        self.route = Some(Route { direct: true, ..route });
        true
    }
}
