//! The counter that was raised last.

use crate::engine::Rank;
use crate::transport::shm::RaisedBefore;

/// Target and index of the counter that was raised last, and what raises it again.
#[derive(Debug, Default)]
pub(crate) struct LastCounter(Option<(Rank, u32, RaisedBefore)>);

impl LastCounter {
    /// The counter of this target and index, if it is the one.
    #[inline(always)]
    pub(crate) fn get(&mut self, target: Rank, index: u32) -> Option<&mut RaisedBefore> {
        let (last_target, last_index, counter) = self.0.as_mut()?;
        (*last_target == target && *last_index == index).then_some(counter)
    }

    /// Notes what was raised. `None` if it cannot be raised the same way again.
    #[inline(always)]
    pub(crate) fn set(&mut self, target: Rank, index: u32, raised: Option<RaisedBefore>) {
        self.0 = raised.map(|counter| (target, index, counter));
    }
}
