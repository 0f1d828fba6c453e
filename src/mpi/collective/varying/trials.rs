//! How often blocks of different lengths are tried between nodes. A call that turns out to be long
//! has cost messages for nothing, so after several such calls in a row most go to the host at once.

/// Most calls that go to the host between two trials.
const SKIPPED_MAX: u32 = 63;

/// The calls of one kind on a communicator. All processes count alike, since they learn together
/// whether a call was long.
#[derive(Debug, Default)]
pub(in crate::mpi::collective) struct Trials {
    /// Calls that still go to the host at once.
    left: u32,
    /// How many do so after the latest trial.
    skipped: u32,
}

impl Trials {
    /// Counts a call. False: it goes to the host at once.
    pub(super) fn begin(&mut self) -> bool {
        let tries = self.left == 0;
        self.left = self.left.saturating_sub(1);
        tries
    }

    /// A trial has ended.
    pub(super) fn end(&mut self, was_long: bool) {
        self.skipped = if was_long { (2 * self.skipped + 1).min(SKIPPED_MAX) } else { 0 };
        self.left = self.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many calls are tried.
    fn tried(trials: &mut Trials, calls: u32, are_long: bool) -> u32 {
        let mut tried = 0;
        for _ in 0..calls {
            if trials.begin() {
                tried += 1;
                trials.end(are_long);
            }
        }
        tried
    }

    #[test]
    fn long_calls_are_rarely_tried() {
        let mut trials = Trials::default();
        assert_eq!(tried(&mut trials, 100, false), 100);
        // Calls 1, 3, 7, ..., 127, and then every 64th.
        assert_eq!(tried(&mut trials, 127 + 10 * 64, true), 7 + 10);
        assert_eq!(tried(&mut trials, 64 + 100, false), 101);
    }
}
