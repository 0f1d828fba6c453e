//! Allgather of blocks of any lengths. The blocks of a node are one message to each other node.

use super::placement::Placement;
use super::program::{Area, Program, offsets, place};

/// The program of a process. `sizes`: bytes of each process's block. Blocks arrive in the order of
/// the processes.
///
/// No process completes before all have begun, if each node has a block that is not empty.
#[must_use]
pub fn allgather(placement: &Placement, me: u32, sizes: &[u32]) -> Program {
    let (node, nodes) = (placement.node_of(me), placement.nodes());
    let (home, size) = (placement.home(node), placement.size(node));
    let places = offsets(sizes.iter().copied());
    let begin = |node: u32| places[placement.members(node).start as usize];
    let length = |node: u32| places[placement.members(node).end as usize] - begin(node);
    let [mine, all] = [sizes[me as usize], places[places.len() - 1]];
    // Others read what is put at the first process: the blocks of the node, and what has arrived.
    let [work, inbox] = if me == home { [length(node), all] } else { [0; 2] };
    let mut program = Program::new(me, [mine, all, work, inbox]);
    // Counters: blocks that are there, and what has come from each node.
    let arrived = 1;
    let blocks = place(home, Area::Work, 0);
    let there = blocks.plus(places[me as usize] - begin(node));
    let copied = program.step(&[]).copy(place(me, Area::Send, 0), there, mine);
    let copied = copied.notifies(home, 0).add();
    let complete = program.wait(&[copied], home, 0, size);
    if length(node) > 0 {
        for turn in 1..nodes {
            if placement.worker(node, turn) == me {
                let target = placement.home((node + turn) % nodes);
                let to = place(target, Area::Inbox, begin(node));
                let put = program.step(&[complete]).put(blocks, to, length(node));
                put.notifies(target, arrived + node).add();
            }
        }
        let to = place(me, Area::Receive, begin(node));
        program.step(&[complete]).copy(blocks, to, length(node)).add();
    }
    for turn in 1..nodes {
        let from = (node + nodes - turn) % nodes;
        if length(from) > 0 {
            let (at, bytes) = (begin(from), length(from));
            let step = program.step(&[]).awaits(home, arrived + from, 1);
            step.copy(place(home, Area::Inbox, at), place(me, Area::Receive, at), bytes).add();
        }
    }
    program
}
