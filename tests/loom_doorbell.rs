//! All interleavings of a window that is armed while peers contact it [PR-6], within bounds.
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --test loom_doorbell`.

#![cfg(loom)]

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
    /// Raised by a peer before it publishes, by an atomic read-modify-write.
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

    /// The owner: whether everything that it looks for is there.
    fn looks(&self, peers: usize) -> bool {
        self.published[..peers].iter().all(|word| word.load(Acquire) != 0)
    }

    /// The owner: arms the window, looks once more, and then polls nothing but the doorbell. Ends
    /// when it has seen what all `peers` have published; loom reports an execution in which that
    /// never happens.
    fn arm_until_all_have_come(&self, peers: usize) {
        while !self.looks(peers) {
            self.arm().set();
            // What came before is no reason to stay awake here: only something new is.
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

/// A peer that publishes once and goes away: the owner finds out, whatever it does meanwhile.
#[test]
fn a_notification_wakes_a_window_that_falls_asleep() {
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

/// A peer that announces what it publishes behind: an owner that sees neither arms its window, and is woken.
#[test]
fn an_announcement_wakes_a_window_that_falls_asleep() {
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
        // It polls from now on.
        while !shared.looks(1) {
            thread::yield_now();
        }
        peer.join().unwrap();
    });
}

/// A peer that looks again until its operation is applied needs no fence.
#[test]
fn an_operation_that_is_waited_for_wakes_a_window() {
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

/// Two peers: one of them rings, and what the other has published is found as well.
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

/// Two peers ring for different windows while the owner takes: each slot is handed over, and at
/// most once.
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
