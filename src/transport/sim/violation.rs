//! Violations of the port's contract. They test the checkers: a checker must detect each of them.

use super::Network;
use crate::engine::Word;

/// How the network violates the contract of [`Port`](crate::engine::Port).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A signal is accepted but never delivered.
    LoseSignal(Word),
    /// A signal is delivered with a value that is one too high.
    RaiseSignal(Word),
    /// A signal is delivered when it is posted, before earlier operations.
    Overtake(Word),
    /// A word changes and the change is not reported.
    LoseChange,
    /// An access to a lock word takes effect and is not answered.
    LoseAnswer,
    /// A put or accumulate is reported complete when it is posted.
    EarlyFinish,
    /// A put has no effect.
    LosePut,
    /// An accumulate is applied twice.
    RepeatAccumulate,
    /// An operation with a shape does not write its last byte.
    CutShape,
    /// An accumulate is applied after the next one of the same origin and target.
    DelayAccumulate,
    /// An exchange on the tail of a lock queue returns "empty", whatever was there.
    StaleTail,
    /// A notification takes effect when it is posted, before earlier operations.
    EarlyNotification,
    /// A notification is accepted but never counted.
    LoseNotification,
    /// A notification is counted twice.
    RepeatNotification,
    /// A tagged notification arrives when it is posted, before earlier operations.
    EarlyTagged,
    /// A tagged notification is accepted but never arrives.
    LoseTagged,
    /// A tagged notification arrives twice.
    RepeatTagged,
    /// A copy that follows an order overtakes operations that are in flight.
    Unordered,
    /// A credit is not returned.
    KeepCredit,
}

/// Draws the violations of a run.
pub(super) struct ViolationInjector {
    fault: Violation,
    one_in: u32,
    rng: fastrand::Rng,
}

impl Network {
    /// From now on, every `one_in`-th opportunity on average violates the contract in this way.
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
