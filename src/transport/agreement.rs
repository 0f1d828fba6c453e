//! Ballots of a collective agreement.

/// What one process contributes to an agreement. The highest ballot decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ballot {
    /// The process agrees.
    Ready,
    /// The process agrees, but still has operations in flight.
    Busy,
    /// The process cannot agree.
    Objection,
}

impl Ballot {
    /// [`Objection`](Self::Objection) if `objects`, else [`Ready`](Self::Ready).
    #[must_use]
    pub fn unless(objects: bool) -> Self {
        if objects { Ballot::Objection } else { Ballot::Ready }
    }
}
