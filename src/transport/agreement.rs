//! What processes tell each other in a collective vote.

/// What a process says in a vote; what counts is the highest of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ballot {
    /// Nothing against it.
    Ready,
    /// Nothing against it, but something of this process is under way yet.
    Busy,
    /// It cannot be.
    Objection,
}

impl Ballot {
    /// Agrees, or objects.
    #[must_use]
    pub fn unless(objection: bool) -> Self {
        if objection { Ballot::Objection } else { Ballot::Ready }
    }
}
