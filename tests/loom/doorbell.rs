//! Loom: all interleavings of arming a window while peers contact it [PR-6], within bounds.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;
use mpix_rma::transport::shm::doorbell::{Arm, Doorbell};

const SLOT: u32 = 3;

/// One window, the doorbell of its process, and what each of two peers publishes.
struct Shared {
    armed: AtomicU32,
    summary: AtomicU64,
    words: [AtomicU64; 1],
    published: [AtomicU64; 2],
    /// Raised by a peer, with an atomic read-modify-write, before it publishes.
    announced: AtomicU64,
    applied: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared {
            armed: AtomicU32::new(0),
            summary: AtomicU64::new(0),
            words: [AtomicU64::new(0)],
            published: [AtomicU64::new(0), AtomicU64::new(0)],
            announced: AtomicU64::new(0),
            applied: AtomicU64::new(0),
        })
    }

    fn arm(&self) -> Arm<'_> {
        Arm(&self.armed)
    }

    fn doorbell(&self) -> Doorbell<'_> {
        Doorbell { summary: &self.summary, words: &self.words }
    }

    fn ring_if(&self, ended: bool) {
        if ended {
            self.doorbell().ring(SLOT);
        }
    }

    /// For the owner: whether everything it waits for is published.
    fn looks(&self, peers: usize) -> bool {
        self.published[..peers].iter().all(|word| word.load(Acquire) != 0)
    }

    /// For the owner: arms the window, checks once more, and then polls only the doorbell. Returns
    /// when it has seen what all `peers` have published. Loom reports an execution in which that
    /// never happens.
    fn arm_until_all_have_come(&self, peers: usize) {
        while !self.looks(peers) {
            self.arm().set();
            // Stay awake only if something new has arrived.
            if self.looks(peers) {
                self.arm().clear();
                return;
            }
            while self.arm().is_set() || !self.doorbell().is_rung() {
                thread::yield_now();
            }
            let mut rung = Vec::new();
            self.doorbell().take(|slot| rung.push(slot));
            assert!(rung.iter().all(|slot| *slot == SLOT));
        }
    }
}

/// A peer that publishes once and does not poll again is always noticed.
#[test]
fn a_notification_wakes_a_window_that_is_being_armed() {
    loom::model(|| {
        let shared = Shared::new();
        let peer = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.published[0].store(1, Release);
                shared.ring_if(shared.arm().trigger_fenced());
            })
        };
        shared.arm_until_all_have_come(1);
        peer.join().unwrap();
    });
}

/// A peer that announces its publication: an owner that sees neither arms its window, and is woken.
#[test]
fn an_announced_notification_wakes_a_window_that_is_being_armed() {
    loom::model(|| {
        let shared = Shared::new();
        let peer = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.announced.fetch_add(1, Relaxed);
                shared.published[0].store(1, Release);
                shared.ring_if(shared.arm().trigger_announced());
            })
        };
        shared.arm().set();
        if shared.announced.load(Relaxed) != 0 {
            shared.arm().clear();
        } else {
            while shared.arm().is_set() || !shared.doorbell().is_rung() {
                thread::yield_now();
            }
        }
        // From now on the owner polls.
        while !shared.looks(1) {
            thread::yield_now();
        }
        peer.join().unwrap();
    });
}

/// A peer that polls until its operation is applied needs no fence.
#[test]
fn an_operation_whose_origin_polls_wakes_a_window() {
    loom::model(|| {
        let shared = Shared::new();
        let peer = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.published[0].store(1, Release);
                while shared.applied.load(Acquire) == 0 {
                    shared.ring_if(shared.arm().trigger());
                    thread::yield_now();
                }
            })
        };
        shared.arm_until_all_have_come(1);
        shared.applied.store(1, Release);
        peer.join().unwrap();
    });
}

/// Of two peers one rings, and the owner also finds what the other has published.
#[test]
fn two_peers_wake_a_window() {
    loom::model(|| {
        let shared = Shared::new();
        let peers: Vec<_> = (0..2)
            .map(|peer| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.published[peer].store(1, Release);
                    shared.ring_if(shared.arm().trigger_fenced());
                })
            })
            .collect();
        shared.arm_until_all_have_come(2);
        peers.into_iter().for_each(|peer| peer.join().unwrap());
    });
}

/// Two peers ring for different windows while the owner takes. Each slot is passed exactly once.
#[test]
fn no_ring_is_lost_or_taken_twice() {
    loom::model(|| {
        let shared = Shared::new();
        let peers: Vec<_> = [3, 40]
            .map(|slot| {
                let shared = shared.clone();
                thread::spawn(move || shared.doorbell().ring(slot))
            })
            .into_iter()
            .collect();
        let mut taken = Vec::new();
        shared.doorbell().take(|slot| taken.push(slot));
        peers.into_iter().for_each(|peer| peer.join().unwrap());
        if shared.doorbell().is_rung() {
            shared.doorbell().take(|slot| taken.push(slot));
        }
        taken.sort_unstable();
        assert_eq!(taken, [3, 40]);
    });
}
