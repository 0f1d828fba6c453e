//! Broken promises: what no transport may do. A checker that does not see them is none.

use super::Network;
use crate::engine::Word;

/// What goes wrong, contrary to what [`Port`](crate::engine::Port) promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A signal is accepted and never seen.
    LoseSignal(Word),
    /// A signal is seen one higher than it is.
    RaiseSignal(Word),
    /// A signal is seen when it is posted, before the operations that were posted before it.
    Overtake(Word),
    /// A word changes and its reader is not told.
    LoseChange,
    /// An access to a lock word takes effect and is not answered.
    LoseAnswer,
    /// A put or accumulate is told complete when it is posted.
    EarlyFinish,
    /// A put takes no effect.
    LosePut,
    /// An accumulate takes effect twice.
    RepeatAccumulate,
    /// The last byte that an operation with a shape writes is left out.
    CutShape,
    /// An accumulate takes effect after the next one of its origin at its target.
    DelayAccumulate,
    /// An exchange on the tail of a lock queue finds it empty, whatever was there.
    StaleTail,
    /// A notification takes effect when it is posted, before the operations that were posted before
    /// it.
    EarlyNotification,
    /// A notification is accepted and never counted.
    LoseNotification,
    /// A notification is counted twice.
    RepeatNotification,
    /// A tagged notification comes when it is posted, before the operations that were posted before
    /// it.
    EarlyTagged,
    /// A tagged notification is accepted and never comes.
    LoseTagged,
    /// A tagged notification comes twice.
    RepeatTagged,
    /// A credit does not come back.
    KeepCredit,
}

/// A fault at work.
pub(super) struct ViolationInjector {
    fault: Violation,
    one_in: u32,
    rng: fastrand::Rng,
}

impl Network {
    /// From now on this happens once in so many times in which it could.
    pub fn inject_violation(&mut self, fault: Violation, one_in: u32, seed: u64) {
        self.violation =
            Some(ViolationInjector { fault, one_in, rng: fastrand::Rng::with_seed(seed) });
    }

    #[inline]
    pub(super) fn violates(&mut self, fault: Violation) -> bool {
        self.violation.as_mut().is_some_and(|violation| {
            violation.fault == fault && violation.rng.u32(0..violation.one_in) == 0
        })
    }
}
