//! Shortcuts under loom: a reader never mixes the places of two targets, and never finds one behind
//! its closing.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --test loom_shortcut`;
//! `LOOM_MAX_PREEMPTIONS` raises the bound.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use mpix_rma::runtime::shortcut::{Lane, Place};

fn place(target: u32) -> Place {
    let n = u64::from(target) + 1;
    Place { base: n << 32, size: n * 100, unit: n }
}

#[test]
fn a_reader_never_mixes_two_targets() {
    loom::model(|| {
        let lane = Arc::new(Lane::new());
        lane.open(1, place(1));
        let writer = {
            let lane = lane.clone();
            thread::spawn(move || {
                lane.close();
                lane.open(9, place(9));
                lane.close();
                lane.open(1, Place { base: 7, size: 7, unit: 7 });
            })
        };
        for target in [1, 9] {
            if let Some(found) = lane.look(target) {
                let again = Place { base: 7, size: 7, unit: 7 };
                assert!(
                    found == place(target) || (target == 1 && found == again),
                    "target {target}: {found:?}"
                );
            }
        }
        writer.join().unwrap();
        assert_eq!(lane.look(9), None);
    });
}

#[test]
fn what_was_closed_before_is_not_found() {
    loom::model(|| {
        let lane = Arc::new(Lane::new());
        lane.open(1, place(1));
        let closer = {
            let lane = lane.clone();
            thread::spawn(move || lane.close())
        };
        closer.join().unwrap();
        assert_eq!(lane.look(1), None);
    });
}
