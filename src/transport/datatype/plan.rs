//! Copies that are prepared once and made often, from one side to another.
//!
//! A [`CopyPlan`] has the pieces that a [`Pair`] finds, as nests of two loops: a face of a block in
//! three dimensions is one nest, whatever its direction. So a copy walks no layouts, and a plan
//! takes little of the cache.

use super::pack::{copy_pieces, transfer_from};
use super::walk::{Pair, Pieces, Side};

/// `count` copies of `pieces`, which are `step` bytes apart on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Nest {
    pieces: Pieces,
    step: [i64; 2],
    count: u64,
}

/// Most nests of a plan. What is left of irregular sides is walked in each copy.
const NESTS_MAX: usize = 1024;

/// A copy from one side to another.
#[derive(Clone, Debug)]
pub struct CopyPlan {
    nests: Box<[Nest]>,
    /// The sides, and the offset in their data from which on they are walked.
    rest: Option<Box<(Side, Side, u64)>>,
    bytes: u64,
}

impl CopyPlan {
    /// Prepares the copy of all data of `source`, or as much as `sink` has room for.
    #[must_use]
    pub fn new(source: &Side, sink: &Side) -> Self {
        let bytes = source.size().min(sink.size());
        let mut pair = Pair::new(source, sink, 0);
        let mut nests: Vec<Nest> = Vec::new();
        let mut planned = 0;
        while let Some(pieces) = pair.next_pieces(u64::MAX) {
            if nests.last_mut().is_none_or(|last| !last.extend(&pieces)) {
                if nests.len() == NESTS_MAX {
                    break;
                }
                nests.push(Nest { pieces, step: [0; 2], count: 1 });
            }
            planned += pieces.len * pieces.count;
        }
        let rest = (planned < bytes).then(|| Box::new((source.clone(), sink.clone(), planned)));
        CopyPlan { nests: nests.into_boxed_slice(), rest, bytes }
    }

    /// Bytes of data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Average bytes of a piece: what lies together on both sides. 0 if nothing is planned.
    #[must_use]
    pub fn piece(&self) -> u64 {
        let of = |nest: &Nest| nest.count * nest.pieces.count;
        let (bytes, pieces) = self.nests.iter().fold((0, 0), |(bytes, pieces), nest| {
            (bytes + of(nest) * nest.pieces.len, pieces + of(nest))
        });
        u64::checked_div(bytes, pieces).unwrap_or(0)
    }

    /// Copies the data of the source at `from` to the sink at `to`.
    ///
    /// # Safety
    /// The bytes of both sides, displaced from `from` and `to`, must be valid.
    pub unsafe fn run(&self, from: *const u8, to: *mut u8) {
        for nest in &self.nests {
            let (mut from, mut to) = (from, to);
            for _ in 0..nest.count {
                // SAFETY: the pieces lie within both sides, whose bytes are valid.
                unsafe { copy_pieces(from, to, &nest.pieces) };
                from = from.wrapping_offset(nest.step[0] as isize);
                to = to.wrapping_offset(nest.step[1] as isize);
            }
        }
        if let Some(rest) = &self.rest {
            let (source, sink, at) = &**rest;
            // SAFETY: the contract of this function.
            unsafe { transfer_from(from, source, to, sink, *at) };
        }
    }
}

impl Nest {
    /// Adds pieces like those before, if they are as far apart. False: they are not.
    fn extend(&mut self, next: &Pieces) -> bool {
        let Pieces { at, stride, len, count } = self.pieces;
        if next.len != len || next.count != count || (count > 1 && next.stride != stride) {
            return false;
        }
        let step = if self.count == 1 {
            [next.at[0].wrapping_sub(at[0]), next.at[1].wrapping_sub(at[1])]
        } else {
            self.step
        };
        let behind =
            |side: usize| at[side].wrapping_add(step[side].wrapping_mul(self.count as i64));
        if next.at != [behind(0), behind(1)] {
            return false;
        }
        (self.step, self.count) = (step, self.count + 1);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::super::{Block, Layout};
    use super::*;

    fn subarray(sizes: [u64; 3], part: [u64; 3], start: [i64; 3]) -> Side {
        let extents = [1, sizes[0], sizes[0] * sizes[1]].map(|cells| cells as i64 * 8);
        let mut layout = Layout::element(8, 8).unwrap();
        for (count, extent) in part.into_iter().zip(extents) {
            layout = layout.repeated(count, extent).unwrap();
        }
        let at = (0..3).map(|dim| start[dim] * extents[dim]).sum();
        Side::items(Arc::new(layout.blocks([Block { count: 1, at }]).unwrap()), 1)
    }

    #[test]
    fn a_face_is_one_nest_in_every_direction() {
        let sizes = [10, 8, 6];
        for part in [[1, 6, 4], [8, 1, 4], [8, 6, 1], [1, 1, 4], [8, 1, 1], [1, 1, 1]] {
            let one = subarray(sizes, part, [1, 1, 1]);
            let other = subarray([12, 9, 7], part, [0, 2, 1]);
            let plan = CopyPlan::new(&one, &other);
            assert_eq!((plan.nests.len(), plan.rest.is_none()), (1, true), "{part:?}");
            assert_eq!(plan.bytes(), part.iter().product::<u64>() * 8);
            assert_eq!(plan.piece(), part[0] * 8);
        }
    }

    #[test]
    fn irregular_sides_are_walked_beyond_a_bound() {
        let blocks = (0..3000i64).map(|i| Block { count: 1 + (i % 3) as u64, at: i * i });
        let layout = Layout::element(1, 1).unwrap().blocks(blocks).unwrap();
        let (source, sink) = (Side::items(Arc::new(layout.clone()), 1), Side::flat(layout.size()));
        let plan = CopyPlan::new(&source, &sink);
        assert_eq!(plan.nests.len(), NESTS_MAX);
        let from: Vec<u8> = (0..3000usize * 3000 + 3).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut to = vec![0; layout.size() as usize];
        // SAFETY: the last block ends within `from`, and `to` has room for all bytes.
        unsafe { plan.run(from.as_ptr(), to.as_mut_ptr()) };
        assert_eq!(to, super::super::gathered(&from, 0, &source));
    }
}
