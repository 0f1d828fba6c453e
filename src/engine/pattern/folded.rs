//! The fence by neighbours of a folded epoch, whose operations are complete.

use super::{GRANT, Pattern, STEP, Stage, View};
use crate::engine::port::{Port, Rank};
use crate::engine::slab::Key;
use crate::engine::window::Window;

impl Window {
    /// Passes a fence by neighbours. Polls while `waits` returns true. False if the fence is not
    /// complete then; it is in progress, without an epoch.
    #[inline]
    pub(in crate::engine) fn pass_neighbours(
        &mut self,
        port: &mut impl Port,
        mut waits: impl FnMut() -> bool,
    ) -> bool {
        let Some(pattern) = &mut self.pattern else { return true };
        let base = self.fences;
        self.fences += STEP;
        let is_single = pattern.neighbours.len() == 1;
        // A single neighbour's word does not change what it is told, and reading the word may take
        // as long as a cache line needs to get here.
        let mut undone = match is_single {
            true => pattern.known_undone(base),
            false => pattern.count_undone(port, base),
        };
        let (mut told_of, mut gives_up) = (u32::MAX, false);
        loop {
            if undone < told_of {
                pattern.tell_neighbours(port, (base, undone), true, |_, _| true);
                told_of = if is_single { 0 } else { undone };
            }
            if undone == 0 && pattern.has_sent_all() {
                pattern.grant_at = base + GRANT;
                return true;
            }
            if gives_up {
                pattern.stage = Stage::Neighbours { epoch: Key::NONE, undone };
                return false;
            }
            // A look at once would take the word's line from the neighbour that is writing it.
            gives_up = !waits();
            if !gives_up {
                port.poll();
            }
            undone = pattern.count_undone(port, base);
        }
    }
}

impl Pattern {
    /// The target that the learned epoch accessed first, if this process has seen that it has
    /// granted the next fence epoch.
    #[inline]
    pub(in crate::engine) fn first_target_granted(&self) -> Option<Rank> {
        let first = self.neighbours.iter().find(|neighbour| neighbour.target)?;
        (self.view == View::Learned && first.seen >= self.grant_at).then_some(first.rank)
    }

    /// Reads the words of the origins that are not known to be done with the fence whose words
    /// begin at `base`. Returns how many are not.
    #[inline]
    fn count_undone(&mut self, port: &mut impl Port, base: u64) -> u32 {
        let mut undone = 0;
        for neighbour in &mut self.neighbours {
            if neighbour.is_undone(base) {
                neighbour.look(port);
                undone += u32::from(neighbour.is_undone(base));
            }
        }
        undone
    }
}
