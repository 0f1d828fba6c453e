//! The nonblocking collective vote.
//!
//! Rounds alternate between two ballots. A rank deposits its objection before its vote (release), and
//! reads the objections after all votes (acquire). Ballots are never reset: the votes of a ballot's
//! k-th use are complete at `k * ranks`, and objections are compared with the count of the use before.
//! A ballot is not touched by a later round while somebody still reads it: the next round with this
//! parity needs the votes of the round in between, and a rank gives those only after its verdict here.

use crate::sync::Ordering::{Acquire, Relaxed, Release};

use super::words::Header;

/// This process's place in the rounds.
#[derive(Debug, Default)]
pub(super) struct Voter {
    round: u64,
    /// A vote was given and its verdict was not yet read.
    waiting: bool,
    /// Objections of finished rounds on each ballot.
    objections: [u64; 2],
}

impl Voter {
    /// Deposits a vote. One vote per verdict.
    pub(super) fn vote(&mut self, header: &Header, objection: bool) {
        debug_assert!(!self.waiting, "a second vote before the verdict on the first");
        let ballot = &header.ballots[(self.round & 1) as usize].0;
        if objection {
            ballot.objections.fetch_add(1, Relaxed);
        }
        ballot.votes.fetch_add(1, Release);
        self.waiting = true;
    }

    /// True if somebody objected; `None` until all have voted, and where no vote was given.
    pub(super) fn verdict(&mut self, header: &Header, ranks: u32) -> Option<bool> {
        if !self.waiting {
            return None;
        }
        let parity = (self.round & 1) as usize;
        let ballot = &header.ballots[parity].0;
        let complete = (self.round / 2 + 1) * u64::from(ranks);
        if ballot.votes.load(Acquire) < complete {
            return None;
        }
        let objections = ballot.objections.load(Relaxed);
        let objected = objections != self.objections[parity];
        self.objections[parity] = objections;
        self.round += 1;
        self.waiting = false;
        Some(objected)
    }
}
