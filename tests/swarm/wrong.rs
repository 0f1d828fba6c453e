//! Calls with an error, between the calls of a program on real ranks. Each must return the class of
//! its error, and must not change anything.

use std::collections::BTreeSet;

use mpix_rma::engine::Rank;
use mpix_rma::sim::Step;

/// The epochs that a rank has open on a window.
#[derive(Default)]
pub struct Epochs {
    access: bool,
    exposure: bool,
    lock_all: bool,
    locks: BTreeSet<Rank>,
    /// A fence was called, so an epoch may be open until the next other epoch.
    fenced: bool,
    /// Calls on several handles: what a lock_all means depends on the handle [DU-1].
    pub has_duplicates: bool,
}

/// Errors of arguments, with their classes. They do not depend on the state.
const ARGUMENTS: [(&str, &str); 13] = [
    ("put_rank", "rank"),
    ("get_count", "count"),
    ("put_tag", "tag"),
    ("put_counter", "arg"),
    ("lock_type", "locktype"),
    ("lock_rank", "rank"),
    ("lock_assert", "assert"),
    ("fence_assert", "assert"),
    ("expect_tag", "tag"),
    ("expect_count", "count"),
    ("expect_source", "rank"),
    ("counter_index", "arg"),
    ("counter_value", "arg"),
];
/// The same, for windows in which displacements are not addresses.
const PLACES: [(&str, &str); 2] = [("put_disp", "disp"), ("put_range", "rma_range")];

impl Epochs {
    /// Follows a call of the rank on the window.
    pub fn called(&mut self, step: &Step) {
        match step {
            Step::Start { .. } => self.access = true,
            Step::Complete { .. } => self.access = false,
            Step::Post { .. } => self.exposure = true,
            Step::Wait { .. } => self.exposure = false,
            Step::Lock { target, .. } => _ = self.locks.insert(*target),
            Step::Unlock { target, .. } => _ = self.locks.remove(target),
            Step::LockAll { .. } => self.lock_all = true,
            Step::UnlockAll { .. } => self.lock_all = false,
            Step::Fence { .. } => self.fenced = true,
            _ => {}
        }
    }

    /// `MPI_Win_test` has returned true.
    pub fn exposure_ended(&mut self) {
        self.exposure = false;
    }

    /// Calls on this target that do not fit the open epochs.
    fn misplaced(&self, target: Rank) -> Vec<&'static str> {
        let locked = self.lock_all || self.locks.contains(&target);
        let holds = self.lock_all || !self.locks.is_empty();
        let candidates = [
            ("complete", !self.access),
            ("wait", !self.exposure),
            ("test", !self.exposure),
            ("unlock", !self.locks.contains(&target)),
            ("unlock_all", !self.lock_all),
            ("flush", !locked),
            ("flush_all", !holds),
            ("start", self.access || holds),
            ("post", self.exposure),
            ("lock", self.access || locked),
            ("lock_all", self.access || holds),
            ("fence", self.access || self.exposure || holds),
            // Only a target in the group of the access epoch is covered; it may be any.
            ("put", !self.access && !locked && !self.fenced),
        ];
        candidates.into_iter().filter(|(_, wrong)| *wrong).map(|(name, _)| name).collect()
    }

    /// Name and class of a call with an error.
    pub fn wrong(
        &self,
        rng: &mut fastrand::Rng,
        target: Rank,
        dynamic: bool,
    ) -> (&'static str, &'static str) {
        if !self.has_duplicates && rng.bool() {
            let misplaced = self.misplaced(target);
            return (misplaced[rng.usize(0..misplaced.len())], "rma_sync");
        }
        if !dynamic && rng.u8(0..4) == 0 {
            return PLACES[rng.usize(0..PLACES.len())];
        }
        ARGUMENTS[rng.usize(0..ARGUMENTS.len())]
    }
}
