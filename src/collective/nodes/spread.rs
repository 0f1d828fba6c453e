//! Barrier and broadcast between nodes.

use super::allreduce::{distances, spans};
use super::placement::{Placement, share};
use super::program::{Area, Place, Program, length, place};

/// A dissemination barrier of the nodes: in a round, `radix - 1` processes of a node notify one
/// other node each. A process leaves when it sees the notifications of all rounds.
#[must_use]
pub fn barrier(placement: &Placement, me: u32, radix: u32) -> Program {
    let (node, nodes) = (placement.node_of(me), placement.nodes());
    let home = placement.home(node);
    let mut program = Program::new(me, [0; 4]);
    let mine = program.step(&[]).notifies(home, 0).add();
    let mut before = program.wait(&[mine], home, 0, placement.size(node));
    for (round, span) in (1..).zip(spans(nodes, radix)) {
        let mut arrivals = 0;
        for (turn, distance) in (0..).zip(distances(nodes, radix, span)) {
            arrivals += 1;
            if placement.worker(node, turn) == me {
                let target = placement.home((node + distance) % nodes);
                let nothing = place(home, Area::Work, 0);
                let put = program.step(&[before]).put(nothing, place(target, Area::Inbox, 0), 0);
                put.notifies(target, round).add();
            }
        }
        before = program.wait(&[before], home, round, arrivals);
    }
    program
}

/// How a broadcast travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// Rank of the root.
    pub root: u32,
    /// A node forwards to `radix - 1` others in a round.
    pub radix: u32,
    /// Pieces that follow one another, so that a node forwards one while the next arrives.
    pub pieces: u32,
}

/// A broadcast along a tree of the nodes. All processes of a node take the content from where it
/// has arrived, and share the puts to other nodes.
#[must_use]
pub fn broadcast(placement: &Placement, me: u32, bytes: u32, how: Broadcast) -> Program {
    let Broadcast { root, radix, pieces } = how;
    let (node, nodes) = (placement.node_of(me), placement.nodes());
    let (home, top) = (placement.home(node), placement.node_of(root));
    let at_root = node == top;
    let inbox = if me == home && !at_root { bytes } else { 0 };
    let mut program = Program::new(me, [bytes, bytes, 0, inbox]);
    let source = match at_root {
        true => place(root, Area::Send, 0),
        false => place(home, Area::Inbox, 0),
    };
    let children: Vec<u32> = children((node + nodes - top) % nodes, nodes, radix)
        .map(|number| (number + top) % nodes)
        .collect();
    for piece in 0..pieces {
        let range = share(bytes, pieces, piece);
        let part = |of: Place| of.plus(range.start);
        let ready = match at_root && me == root {
            true => program.step(&[]).notifies(home, piece).add(),
            false => program.wait(&[], home, piece, 1),
        };
        for (turn, &child) in (0..).zip(&children) {
            if placement.worker(node, turn) == me {
                let target = placement.home(child);
                let to = part(place(target, Area::Inbox, 0));
                let put = program.step(&[ready]).put(part(source), to, length(&range));
                put.notifies(target, piece).add();
            }
        }
        let result = part(place(me, Area::Receive, 0));
        program.step(&[ready]).copy(part(source), result, length(&range)).add();
    }
    program
}

/// Children in a tree with `radix - 1` subtrees per level, those with the largest subtrees first.
fn children(number: u32, nodes: u32, radix: u32) -> impl Iterator<Item = u32> {
    let below: Vec<u32> =
        spans(nodes, radix).filter(|span| number.is_multiple_of(span * radix)).collect();
    below.into_iter().rev().flat_map(move |span| {
        distances(nodes, radix, span)
            .map(move |distance| number + distance)
            .take_while(move |child| *child < nodes)
    })
}
