//! Nothing is left: requests, records, epochs, lock operations, messages, credits, lock words.

use mpix_rma::engine::*;
use mpix_rma::sim::{Script, World};

/// A licence that is held and idle.
const IDLE_LICENCE: u64 = 1 << 32;

/// Checks a world after its run.
pub fn check<S: Script>(world: &mut World<S>) {
    let ranks = world.ranks();
    for window in 0..world.net().windows() {
        for rank in 0..ranks {
            let engine = world.window(window, rank);
            assert!(
                engine.is_quiet(),
                "[leak] window {window} of rank {rank} is not quiet: {}",
                engine.waits()
            );
            assert!(
                !engine.has_open_epoch(),
                "[leak] rank {rank} has an open epoch in window {window}"
            );
            assert_eq!(
                engine.requests_alive(),
                0,
                "[leak] requests of rank {rank} in window {window}"
            );
            assert_eq!(
                engine.epochs_pending(),
                0,
                "[leak] epochs of rank {rank} in window {window}"
            );
        }
        let net = world.net();
        let word = |home, word| net.lock_word(window, home, word);
        let mut licences = 0;
        for rank in 0..ranks {
            // Readers enter in one word and leave in the other; only the sum matters.
            let (tail, readers) = (word(rank, LockWord::Tail), word(rank, LockWord::Readers));
            assert_eq!(
                tail as u32, 0,
                "[leak] a node in the queue of rank {rank} in window {window}, with no lock held"
            );
            assert_eq!(
                (tail >> 33 << 33).wrapping_add(readers),
                0,
                "[leak] readers of rank {rank} in window {window}: {tail:#x}, {readers:#x}"
            );
            match word(rank, LockWord::Licence) {
                0 => {}
                IDLE_LICENCE => licences += 1,
                licence => panic!(
                    "[leak] licence {licence:#x} of rank {rank} in window {window}, with no lock \
                     held"
                ),
            }
        }
        assert_eq!(
            word(0, LockWord::Holders),
            licences << 32,
            "[leak] holders of window {window} beside {licences} licences"
        );
        let intent = word(0, LockWord::Intent);
        assert_eq!(
            intent >> 32,
            intent & u64::from(u32::MAX),
            "[leak] lock_alls that wait in window {window}"
        );
    }
    assert_eq!(world.net().shapes(), 0, "[leak] shapes of operations");
    assert_eq!(world.net().in_flight(), 0, "[leak] messages");
    assert_eq!(world.net().credits_out(), 0, "[leak] credits");
}
