//! Memory, and what operations have fetched, against what MPI's rules allow.

use mpix_rma::transport::sim::Network;

use crate::player::{Buffers, see};
use crate::program::*;

/// Checks everything at the end of a run.
pub fn check(program: &Program, owners: &[u32], buffers: &Buffers, net: &Network) {
    let fetched = |id: OpId| {
        let (_, result) = buffers.borrow()[id].expect("every operation was issued");
        u64::from_ne_bytes(net.private(owners[id], result, 8).try_into().expect("8 bytes"))
    };
    for content in &program.end {
        see(content, net, "at the end");
    }
    for (id, plan) in program.plans.iter().enumerate() {
        if let Expect::Exactly(value) = plan.expect {
            let found = fetched(id);
            assert_eq!(found, value, "[memory] operation {id} of rank {} has fetched this: {plan:?}", owners[id]);
        }
    }
    let cell = |content: &Content| {
        let bytes = &net.window(content.window, content.rank)[content.disp..][..8];
        u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
    };
    for group in &program.groups {
        match group {
            Group::Permutation(ops) => {
                let mut found: Vec<u64> = ops.iter().map(|id| fetched(*id)).collect();
                found.sort_unstable();
                let expected: Vec<u64> = (0..ops.len() as u64).collect();
                assert_eq!(found, expected, "[memory] operations {ops:?} have not fetched one number each");
            }
            Group::Sums { fetches, total } => {
                for &(id, value) in fetches {
                    let found = fetched(id);
                    assert!(found + value <= *total, "[memory] operation {id} has fetched {found}, and the sum is {total}");
                }
            }
            Group::Election { cell: place, ops } => {
                let winner = cell(place);
                for &(id, value) in ops {
                    let expected = if value == winner { 0 } else { winner };
                    let found = fetched(id);
                    assert_eq!(found, expected, "[memory] compare-and-swap {id} to {value}, where {winner} has won");
                }
                assert!(ops.iter().any(|(_, value)| *value == winner), "[memory] {winner} has won, and was not up for election");
            }
            Group::Twins { cells, written, reads } => {
                let pairs = reads.iter().map(|pair| pair.map(fetched)).chain([cells.each_ref().map(cell)]);
                for [one, other] in pairs {
                    let known = one == 0 || written.contains(&one);
                    assert!(one == other && known, "[memory] twins {one} and {other} under a lock; written were {written:?}");
                }
                let last = cell(&cells[0]);
                assert!(written.is_empty() || last != 0, "[memory] twins were written, and are not");
            }
        }
    }
}
