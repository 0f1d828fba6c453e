//! Memory and fetched values must be what MPI allows.

use mpix_rma::engine::Addr;
use mpix_rma::transport::sim::Network;

use crate::player::{Buffers, UNFETCHED, check_content};
use crate::program::*;

/// Checks all memory at the end of a run.
pub fn check(program: &Program, owners: &[u32], buffers: &Buffers, net: &Network) {
    let fetched = |id: OpId| {
        let (_, result) = buffers.borrow()[id].expect("every operation was issued");
        u64::from_ne_bytes(net.private(owners[id], result, 8).try_into().expect("8 bytes"))
    };
    let fetched_words = |id: OpId, plan: &Plan| {
        let (_, result) = buffers.borrow()[id].expect("every operation was issued");
        let places = plan.sides.map_or_else(
            || Places::flat(plan.len / WORD),
            |which| program.sides[which as usize].result.clone(),
        );
        let memory = net.private(owners[id], Addr(result.0 - places.before), places.span);
        let word = |at: usize| {
            u64::from_ne_bytes(memory[places.at(at)..][..WORD].try_into().expect("a word"))
        };
        let mut between = memory.to_vec();
        (0..places.words.len()).for_each(|at| between[places.at(at)..][..WORD].fill(UNFETCHED));
        assert!(
            between.iter().all(|byte| *byte == UNFETCHED),
            "[memory] operation {id} wrote between its results: {plan:?}"
        );
        (0..places.words.len()).map(word).collect::<Vec<u64>>()
    };
    for Region { window, rank, disp, bytes } in &program.regions {
        let there = &net.window(*window, *rank)[*disp..][..bytes.len()];
        if let Some(at) = there.iter().zip(bytes).position(|(one, other)| one != other) {
            panic!(
                "[memory] window {window} of rank {rank}, byte {at} from {disp} on is {} and not \
                 {}",
                there[at], bytes[at]
            );
        }
    }
    for content in &program.end {
        check_content(content, net, "at the end");
    }
    for (id, plan) in program.plans.iter().enumerate() {
        let found = match plan.expect {
            Expect::Open => continue,
            Expect::Exactly(value) => (vec![fetched(id)], vec![value]),
            Expect::Words(which) => {
                (fetched_words(id, plan), program.words[which as usize].clone())
            }
        };
        assert_eq!(
            found.0, found.1,
            "[memory] operation {id} of rank {} has fetched this: {plan:?}",
            owners[id]
        );
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
                assert_eq!(
                    found, expected,
                    "[memory] operations {ops:?} have not fetched distinct numbers"
                );
            }
            Group::Sums { fetches, total } => {
                for &(id, value) in fetches {
                    let found = fetched(id);
                    assert!(
                        found + value <= *total,
                        "[memory] operation {id} has fetched {found}, more than the sum {total}"
                    );
                }
            }
            Group::Election { cell: place, ops } => {
                let winner = cell(place);
                for &(id, value) in ops {
                    let expected = if value == winner { 0 } else { winner };
                    let found = fetched(id);
                    assert_eq!(
                        found, expected,
                        "[memory] compare-and-swap {id} to {value}, but {winner} is in the cell"
                    );
                }
                assert!(
                    ops.iter().any(|(_, value)| *value == winner),
                    "[memory] the cell holds {winner}, which no compare-and-swap wrote"
                );
            }
            Group::Twins { cells, written, reads } => {
                let pairs =
                    reads.iter().map(|pair| pair.map(fetched)).chain([cells.each_ref().map(cell)]);
                for [one, other] in pairs {
                    let known = one == 0 || written.contains(&one);
                    assert!(
                        one == other && known,
                        "[memory] twins {one} and {other} under a lock; written were {written:?}"
                    );
                }
                let last = cell(&cells[0]);
                assert!(written.is_empty() || last != 0, "[memory] twins were written, but hold 0");
            }
        }
    }
}
