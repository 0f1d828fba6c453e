//! What passes between this process and another one, in a neighbour collective.

use hashbrown::HashMap;

use super::movement::{Movement, Part};
use super::neighbours::{Block, Neighbours, sent_to};
use crate::collective::halo::Topology;

/// The blocks that pass between this process and another one, in one direction.
pub(super) struct Bundle<'a> {
    pub(super) peer: u32,
    /// With their numbers among the blocks that their sender sends, in the order of these. So both
    /// sides have them in the same order.
    pub(super) blocks: Vec<(usize, &'a Block)>,
}

/// Bundles by peer, in the order of their first blocks. `blocks`: the peer of each block, its
/// number among those that are sent, and what it is.
fn bundled<'a>(blocks: impl Iterator<Item = (u32, usize, &'a Block)>) -> Vec<Bundle<'a>> {
    let mut bundles: Vec<Bundle<'a>> = Vec::new();
    let mut places = HashMap::new();
    for (peer, number, block) in blocks {
        let place = *places.entry(peer).or_insert(bundles.len());
        if place == bundles.len() {
            bundles.push(Bundle { peer, blocks: Vec::new() });
        }
        bundles[place].blocks.push((number, block));
    }
    for bundle in &mut bundles {
        bundle.blocks.sort_unstable_by_key(|(number, _)| *number);
    }
    bundles
}

/// What passes between this process and those that are not its mates.
pub(super) struct Bundles<'a> {
    pub(super) sent: Vec<Bundle<'a>>,
    pub(super) received: Vec<Bundle<'a>>,
}

impl<'a> Bundles<'a> {
    /// Those of blocks sent and received. `mates`: ranks in rising order.
    pub(super) fn new(
        mates: &[u32],
        neighbours: &Neighbours,
        (sent, received): (&'a [Block], &'a [Block]),
    ) -> Self {
        let is_other = |rank: &Option<u32>| rank.filter(|rank| mates.binary_search(rank).is_err());
        let sources = neighbours.sources.iter().enumerate().filter_map(|(at, source)| {
            // The k-th block from a process is the k-th one that it sends to this one, but in
            // Cartesian topologies, where directions decide (MPI-4.1 8.6).
            let is_cartesian = neighbours.topology == Topology::Cartesian;
            Some((is_other(source)?, if is_cartesian { at ^ 1 } else { at }, received.get(at)?))
        });
        let destinations = neighbours.destinations.iter().enumerate();
        let destinations = destinations
            .filter_map(|(at, destination)| Some((is_other(destination)?, at, sent_to(sent, at)?)));
        Bundles { sent: bundled(destinations), received: bundled(sources) }
    }

    /// The same as a movement between `ranks` processes, of lengths only.
    pub(super) fn movement(&self, ranks: usize) -> Movement {
        let parts = |bundles: &[Bundle<'_>]| {
            let mut parts = vec![Part::NONE; ranks];
            for Bundle { peer, blocks } in bundles {
                let sizes = blocks.iter().map(|(_, block)| block.side.size() as usize);
                parts[*peer as usize].bytes = sizes.fold(0, usize::saturating_add);
            }
            parts
        };
        Movement {
            call: 0,
            sends: parts(&self.sent),
            is_same: false,
            receives: parts(&self.received),
            combine: None,
            in_place: false,
        }
    }
}
