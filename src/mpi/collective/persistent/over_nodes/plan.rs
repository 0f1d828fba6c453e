//! The programs of a persistent collective over several nodes, and how the application's buffers
//! correspond to their areas. Pure functions of what all processes know.

use super::super::movement::{Exchanged, Movement, Part};
use crate::collective::nodes::alltoallv::{NodePlan, needs_gate};
use crate::collective::nodes::{
    Allreduce, Broadcast, Placement, Program, allgather, barrier, broadcast,
};
use crate::mpi::collective::nodes::Place;

/// Processes by node. Those of a node have consecutive *positions*, in the order of their ranks.
pub(in crate::mpi::collective::persistent) struct Order {
    pub(super) placement: Placement,
    /// By position.
    pub(super) ranks: Vec<u32>,
    /// By rank.
    pub(super) positions: Vec<u32>,
}

impl Order {
    pub(super) fn of(places: &[Place]) -> Self {
        let mut ranks: Vec<u32> = (0..places.len() as u32).collect();
        ranks.sort_by_key(|rank| places[*rank as usize].node);
        let mut positions = vec![0; ranks.len()];
        (0..).zip(&ranks).for_each(|(at, rank)| positions[*rank as usize] = at);
        let nodes = places.iter().map(|place| place.node + 1).max().unwrap_or(0);
        let mut sizes = vec![0; nodes as usize];
        places.iter().for_each(|place| sizes[place.node as usize] += 1);
        Order { placement: Placement::of(&sizes), ranks, positions }
    }
}

/// How a collective runs over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// From the process at this position.
    Broadcast(u32),
    /// All have the sum of contributions of so many elements, and some need all of it, or a part.
    Allreduce(u32),
    Allgather,
    /// A block from each to each, which may be empty.
    Exchange,
}

/// The programs of all processes, by position.
pub(super) struct Plan {
    pub(super) programs: Vec<Program>,
    /// Gates, if the programs need any.
    pub(super) gates: Vec<Program>,
    /// Bytes for which each byte of a program stands: those of an element that is reduced.
    pub(super) unit: usize,
}

/// Radix of trees and rounds between nodes.
const RADIX: u32 = 4;
/// Most bytes of the sums of all nodes that each node receives. Longer contributions are reduced in
/// segments.
const GATHERED_MAX: usize = 64 * 1024;
/// Bytes of a piece of a broadcast, so that a node forwards one while the next arrives.
const PIECE: usize = 64 * 1024;
/// Most bytes of an area, in units.
const AREA_MAX: usize = 1 << 30;

/// The shape of a collective that all processes have called with what was exchanged. `None`: there
/// is no program for it.
pub(super) fn shape(order: &Order, exchanged: &Exchanged, movement: &Movement) -> Option<Shape> {
    let ranks = exchanged.ranks;
    let sent = |from, to| exchanged.sent(from, to);
    let all = || exchanged.pairs();
    if let Some(combine) = movement.combine {
        let bytes = match movement.is_same {
            true => all().map(|(from, to)| sent(from, to)).max().unwrap_or(0),
            false => (0..ranks).map(|to| sent(0, to)).sum(),
        };
        // Each process gets contributions of all or of none.
        let is_whole = all().all(|(from, to)| sent(from, to) == sent(0, to));
        let is_even = !movement.is_same || (0..ranks).all(|to| [0, bytes].contains(&sent(0, to)));
        let elements = u32::try_from(bytes / usize::from(combine.extent)).ok()?;
        return (is_whole && is_even).then_some(Shape::Allreduce(elements));
    }
    let is_sender = |from: &usize| (0..ranks).any(|to| sent(*from, to) > 0);
    let root = (0..ranks).find(is_sender);
    if let Some(root) = root.filter(|_| movement.is_same) {
        let bytes = (0..ranks).map(|to| sent(root, to)).max().unwrap_or(0);
        let to_all = |from| (0..ranks).all(|to| to == root || sent(from, to) == bytes);
        if (root + 1..ranks).all(|from| !is_sender(&from)) && sent(root, root) == 0 && to_all(root)
        {
            return Some(Shape::Broadcast(order.positions[root]));
        }
        if all().all(|(from, to)| sent(from, to) == sent(from, from)) {
            return Some(Shape::Allgather);
        }
    }
    Some(Shape::Exchange)
}

/// The programs of a barrier.
fn barriers(placement: &Placement) -> Vec<Program> {
    (0..placement.ranks()).map(|me| barrier(placement, me, RADIX)).collect()
}

impl Plan {
    /// Of a barrier.
    pub(super) fn barrier(order: &Order) -> Self {
        Plan { programs: barriers(&order.placement), gates: Vec::new(), unit: 1 }
    }

    /// Of a collective of this shape. `None`, in all processes: it is too long for programs.
    pub(super) fn of(
        shape: Shape,
        order: &Order,
        exchanged: &Exchanged,
        movement: &Movement,
    ) -> Option<Self> {
        let placement = &order.placement;
        let (nodes, all) = (placement.nodes(), || 0..placement.ranks());
        let bytes = exchanged.pairs().map(|(from, to)| exchanged.sent(from, to));
        if bytes.fold(0, usize::saturating_add) > AREA_MAX {
            return None;
        }
        let size = |from: u32, to: u32| {
            let [from, to] = [from, to].map(|at| order.ranks[at as usize] as usize);
            exchanged.sent(from, to) as u32
        };
        let mut unit = 1;
        let (programs, is_gated) = match shape {
            Shape::Broadcast(root) => {
                let bytes = all().map(|to| size(root, to)).max().unwrap_or(0);
                let pieces = (bytes as usize).div_ceil(PIECE).max(1) as u32;
                let how = Broadcast { root, radix: RADIX, pieces };
                (all().map(|me| broadcast(placement, me, bytes, how)).collect(), true)
            }
            Shape::Allreduce(elements) => {
                unit = movement.combine.map_or(1, |combine| usize::from(combine.extent));
                let gathers = elements as usize * unit * nodes as usize <= GATHERED_MAX;
                let algorithm = match gathers {
                    true => Allreduce::Gather { radix: RADIX },
                    false => Allreduce::Direct,
                };
                (all().map(|me| algorithm.program(placement, me, elements)).collect(), false)
            }
            Shape::Allgather => {
                let sizes: Vec<u32> = all().map(|from| size(from, from)).collect();
                let of_node = |node| placement.members(node).any(|at| sizes[at as usize] > 0);
                let programs = all().map(|me| allgather(placement, me, &sizes)).collect();
                (programs, !(0..nodes).all(of_node))
            }
            Shape::Exchange => {
                let plans: Vec<NodePlan<'_>> =
                    (0..nodes).map(|node| NodePlan::new(placement, node, &size)).collect();
                let program = |me| {
                    let node = placement.node_of(me) as usize;
                    plans[node].program(me, |to| plans[to as usize].arrivals()[node])
                };
                (all().map(program).collect(), needs_gate(placement, &size))
            }
        };
        let gates = if is_gated { barriers(placement) } else { Vec::new() };
        Some(Plan { programs, gates, unit })
    }
}

/// Parts of the application's buffers, and where they are in an area of the program, in bytes.
pub(super) type Parts = Vec<(usize, Part)>;

/// Parts that follow one another, without the empty ones.
fn in_a_row(parts: impl Iterator<Item = Part>) -> Parts {
    let mut at = 0;
    let place = |part: Part| {
        let begin = at;
        at += part.bytes;
        (begin, part)
    };
    parts.map(place).filter(|(_, part)| part.bytes > 0).collect()
}

/// What this process sends and receives, as parts of its areas.
pub(super) fn parts(
    shape: Shape,
    order: &Order,
    exchanged: &Exchanged,
    movement: &Movement,
    me: usize,
) -> (Parts, Parts) {
    let Movement { sends, receives, .. } = movement;
    let by_position =
        |parts: &[Part]| in_a_row(order.ranks.iter().map(|rank| parts[*rank as usize]));
    let first =
        |parts: &[Part]| in_a_row(parts.iter().copied().find(|part| part.bytes > 0).into_iter());
    match shape {
        Shape::Allreduce(_) if !movement.is_same => {
            // The contribution is in the order of the ranks.
            let before = (0..me).map(|to| exchanged.sent(me, to)).sum();
            let result = first(receives).into_iter().map(|(_, part)| (before, part)).collect();
            (in_a_row(sends.iter().copied()), result)
        }
        Shape::Allreduce(_) | Shape::Broadcast(_) => (first(sends), first(receives)),
        Shape::Allgather => (first(sends), by_position(receives)),
        Shape::Exchange => (by_position(sends), by_position(receives)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::collective::nodes::places;

    #[test]
    fn processes_of_a_node_have_consecutive_positions() {
        let order = Order::of(&places(&["x", "y", "x", "z", "y"]));
        assert_eq!(order.ranks, [0, 2, 1, 4, 3]);
        assert_eq!(order.positions, [0, 2, 1, 4, 3]);
        assert_eq!(order.placement, Placement::of(&[2, 2, 1]));
    }

    #[test]
    fn parts_follow_one_another() {
        let part = |bytes| Part { bytes, ..Part::NONE };
        let places = |parts: Parts| parts.iter().map(|(at, part)| (*at, part.bytes)).collect();
        let found: Vec<(usize, usize)> = places(in_a_row([3, 0, 5].map(part).into_iter()));
        assert_eq!(found, [(0, 3), (3, 5)]);
    }
}
