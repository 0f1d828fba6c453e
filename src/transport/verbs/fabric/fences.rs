//! Requests that wait in the interface for the reads before them (fence flag), and interfaces that forget them.
//!
//! Soft-RoCE looks whether reads are under way and then goes to sleep; a read that ends between the two wakes nobody, and the queue stands still
//! until something else is handed over (Linux 6.1, `rxe_requester` and `do_complete`; seen where replies are late since frames are lost). So a request whose reads have
//! ended, and that does not end itself, is followed by a read of eight bytes. An interface that has forgotten nothing does that read, and no harm is done.

use super::Fabric;

/// Polls that such a request is waited for, at first: many times what it takes.
const PATIENCE: u64 = 4096;
/// Polls between two looks.
const LOOK: u64 = 64;

/// The last request of a queue that waits for reads. (One before it went on when this one was handed over.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Fenced {
    number: u64,
    /// The last read before it.
    read: u64,
    window: u32,
    /// Polls when it was first seen to wait for nothing; and for how many more it may.
    since: Option<u64>,
    patience: u64,
}

impl Fabric {
    /// A request that waits for reads is handed over.
    pub(super) fn note_fence(&mut self, endpoint: u32, number: u64, window: u32) {
        let held = &mut self.endpoints[endpoint as usize];
        let fenced = Fenced { number, read: held.last_read, window, since: None, patience: PATIENCE };
        if held.fenced.replace(fenced).is_none() {
            self.fences.push(endpoint);
        }
    }

    /// Looks after requests that wait for reads.
    pub(super) fn look_at_fences(&mut self) {
        if self.fences.is_empty() || !self.count.polls.is_multiple_of(LOOK) {
            return;
        }
        for at in (0..self.fences.len()).rev() {
            if !self.still_waits(self.fences[at]) {
                self.fences.swap_remove(at);
            }
        }
    }

    /// True if the last such request of a queue is not known to be complete.
    fn still_waits(&mut self, endpoint: u32) -> bool {
        let now = self.count.polls;
        let held = &mut self.endpoints[endpoint as usize];
        let Some(fenced) = held.fenced.as_mut().filter(|fenced| held.done < fenced.number && held.queue.is_some()) else {
            held.fenced = None;
            return false;
        };
        if held.done < fenced.read {
            return true;
        }
        let since = *fenced.since.get_or_insert(now);
        if now - since >= fenced.patience {
            fenced.since = Some(now);
            fenced.patience *= 2;
            let window = fenced.window;
            self.meter.reminders += u64::from(self.read_behind(endpoint, window));
        }
        true
    }
}
