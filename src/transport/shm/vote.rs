//! The nonblocking collective vote.
//!
//! Rounds alternate between two boxes. A rank deposits what it has to say, if anything, before its
//! vote (release), and reads what all have said after all votes (acquire). Boxes are never reset:
//! the votes of a box's k-th use are complete at `k * ranks`, and what was said is compared with
//! the counts of the use before. A box is not touched by a later round while somebody still reads
//! it: the next round with this parity needs the votes of the round in between, and a rank gives
//! those only after its verdict here.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::transport::Ballot;

use super::words::Header;

/// This process's place in the rounds.
#[derive(Debug, Default)]
pub(super) struct Voter {
    round: u64,
    /// A vote was given and its verdict was not yet read.
    waiting: bool,
    /// Objections, and who was busy, in the finished rounds of each box.
    said: [(u64, u64); 2],
}

impl Voter {
    /// Deposits a vote. One vote per verdict.
    pub(super) fn vote(&mut self, header: &Header, ballot: Ballot) {
        debug_assert!(!self.waiting, "a second vote before the verdict on the first");
        let all = &header.ballots[(self.round & 1) as usize].0;
        match ballot {
            Ballot::Ready => {}
            Ballot::Busy => _ = all.busy.fetch_add(1, Relaxed),
            Ballot::Objection => _ = all.objections.fetch_add(1, Relaxed),
        }
        all.votes.fetch_add(1, Release);
        self.waiting = true;
    }

    /// The highest of all; `None` until all have voted, and where no vote was given.
    pub(super) fn verdict(&mut self, header: &Header, ranks: u32) -> Option<Ballot> {
        if !self.waiting {
            return None;
        }
        let parity = (self.round & 1) as usize;
        let all = &header.ballots[parity].0;
        let complete = (self.round / 2 + 1) * u64::from(ranks);
        if all.votes.load(Acquire) < complete {
            return None;
        }
        let said = (all.objections.load(Relaxed), all.busy.load(Relaxed));
        let before = std::mem::replace(&mut self.said[parity], said);
        self.round += 1;
        self.waiting = false;
        Some(match () {
            () if said.0 != before.0 => Ballot::Objection,
            () if said.1 != before.1 => Ballot::Busy,
            () => Ballot::Ready,
        })
    }
}
