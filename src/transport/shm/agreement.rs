//! Nonblocking agreement of a window's processes on the highest of their proposals, in shared
//! words.
//!
//! Rounds alternate between two sets of words. A rank adds its objection or busy mark, if any,
//! before it counts its proposal (release), and reads the sums after all proposals are counted
//! (acquire). Nobody resets the sums: the k-th use of a set is complete at `k * ranks` proposals,
//! and a reader compares the sums with those after the use before.
//!
//! No later round changes a set while somebody still reads it. The next round on the same set
//! starts after the round between has all its proposals, and a rank makes its proposal there only
//! after it has read the decision here.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::transport::Proposal;

use super::control::Header;

/// This process's position in the sequence of rounds.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    round: u64,
    /// This process has proposed in the round and has not read the decision.
    pending: bool,
    /// For each set of words, the sums of objections and busy marks after its last complete round.
    sums: [(u64, u64); 2],
}

impl Agreement {
    /// Makes this process's proposal. Call once per decision.
    pub(super) fn propose(&mut self, header: &Header, proposal: Proposal) {
        debug_assert!(!self.pending, "a second proposal before the decision on the first");
        let words = &header.agreements[(self.round & 1) as usize].0;
        match proposal {
            Proposal::Ready => {}
            Proposal::Busy => _ = words.busy.fetch_add(1, Relaxed),
            Proposal::Objection | Proposal::Abandoned => _ = words.objections.fetch_add(1, Relaxed),
        }
        words.proposals.fetch_add(1, Release);
        self.pending = true;
    }

    /// The highest proposal. `None` until all ranks have proposed, or if this one has not.
    pub(super) fn decision(&mut self, header: &Header, ranks: u32) -> Option<Proposal> {
        if !self.pending {
            return None;
        }
        let parity = (self.round & 1) as usize;
        let words = &header.agreements[parity].0;
        let complete = (self.round / 2 + 1) * u64::from(ranks);
        if words.proposals.load(Acquire) < complete {
            return None;
        }
        let sums = (words.objections.load(Relaxed), words.busy.load(Relaxed));
        let before = std::mem::replace(&mut self.sums[parity], sums);
        self.round += 1;
        self.pending = false;
        Some(match (sums.0 != before.0, sums.1 != before.1) {
            (true, _) => Proposal::Objection,
            (false, true) => Proposal::Busy,
            (false, false) => Proposal::Ready,
        })
    }
}
