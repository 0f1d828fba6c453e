//! Proposals of a collective agreement.

/// What one process contributes to an agreement. The highest proposal decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proposal {
    /// The process agrees.
    Ready,
    /// The process agrees, but still has operations in flight.
    Busy,
    /// The process cannot agree.
    Objection,
    /// There is no agreement: the window has failed, and some processes were not heard of in time.
    /// Never proposed.
    Abandoned,
}

impl Proposal {
    /// [`Objection`](Self::Objection) if `objects`, else [`Ready`](Self::Ready).
    #[must_use]
    pub fn unless(objects: bool) -> Self {
        if objects { Proposal::Objection } else { Proposal::Ready }
    }
}
