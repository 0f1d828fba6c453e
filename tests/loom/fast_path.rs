//! The fast path under loom: a reader never mixes two targets, and never finds one after it was
//! closed.

use loom::sync::Arc;
use loom::thread;
use mpix_rma::runtime::fast_path::{Access, MappedTarget, TargetSlot};
use mpix_rma::transport::shm::CounterTable;
use mpix_rma::transport::shm::protocol::AccumulateAddress;

/// All fields tell `n`.
fn access(n: u64) -> Access {
    Access {
        memory: MappedTarget { base: n << 32, size: n * 100, unit: n },
        counters: CounterTable::of_words([n * 8, n << 32 | n]),
        accumulates: AccumulateAddress::of_word(n * 64),
        flushes: n.is_multiple_of(2),
    }
}

fn place(target: u32) -> Access {
    access(u64::from(target) + 1)
}

#[test]
fn a_reader_never_mixes_two_targets() {
    loom::model(|| {
        let slot = Arc::new(TargetSlot::new());
        slot.open(1, place(1));
        let writer = {
            let slot = slot.clone();
            thread::spawn(move || {
                slot.close();
                slot.open(9, place(9));
                slot.close();
                slot.open(1, access(7));
            })
        };
        for target in [1, 9] {
            if let Some(found) = slot.look(target) {
                let again = access(7);
                assert!(
                    found == place(target) || (target == 1 && found == again),
                    "target {target}: {found:?}"
                );
            }
        }
        writer.join().unwrap();
        assert_eq!(slot.look(9), None);
    });
}

#[test]
fn what_was_closed_before_is_not_found() {
    loom::model(|| {
        let slot = Arc::new(TargetSlot::new());
        slot.open(1, place(1));
        let closer = {
            let slot = slot.clone();
            thread::spawn(move || slot.close())
        };
        closer.join().unwrap();
        assert_eq!(slot.look(1), None);
    });
}
