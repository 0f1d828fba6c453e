//! MPI datatypes in the transports: element types, reductions, layouts of derived datatypes.
//!
//! A [`Layout`] describes the bytes of one item of a datatype. A [`Side`] is a number of items, or
//! plain bytes. A [`Cursor`] walks through a side piece by piece, and a [`Pair`] through two sides
//! at once. [`pack`], [`transfer`] and the like move the pieces. A [`CopyPlan`] keeps the pieces of
//! a copy that is repeated. [`Side::encode`] tells another process of a side.
//!
//! An operation refers to its [`Shape`] by a number ([`Shaped`]), which is opaque to the engine.
//! Each transport has its own [`Shapes`]. The issuer of an operation adds the shape first. From
//! then on the transport owns it, until the operation completes or is dropped without being posted.
//! Layouts are reference-counted, so an operation can outlive the application's datatype.

pub mod element;
mod encoding;
mod layout;
mod pack;
mod plan;
mod reduce;
mod walk;

pub use layout::{Block, Layout, Step};
pub(crate) use pack::{copy_pieces, exchange_pieces};
pub use pack::{gathered, pack, scatter, transfer, unpack};
pub use plan::CopyPlan;
pub(crate) use reduce::{
    Combine, EXTENT_MAX, combine_pieces, compare_swap, compare_swap_in_place, whole,
};
pub use walk::{Cursor, Pair, Pieces, Runs, Side};

use std::num::NonZeroU32;

use crate::engine::{Op, OpKind, Shaped};
use element::reduction;

/// The sides of one operation. Displacements count from the operation's addresses, and at the
/// target from `disp`.
///
/// All sides have the same amount of data, except that the origin of a get_accumulate may have
/// less. Target data beyond it are fetched but not changed ([`Shape::part`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Origin buffer, if the operation reads one.
    pub origin: Option<Side>,
    /// Result buffer, if it writes one.
    pub result: Option<Side>,
    /// Target memory.
    pub target: Side,
    /// Displacement of the target's items from the base of its window. Data may start before it.
    pub disp: i64,
}

impl Shape {
    /// This process's side of a put or get.
    #[must_use]
    pub fn local(&self, kind: OpKind) -> Option<&Side> {
        if kind == OpKind::Put { self.origin.as_ref() } else { self.result.as_ref() }
    }

    /// The operation without its shape, if it is a put or get of a single run on each side.
    #[must_use]
    pub fn as_single_run(&self, op: &Op) -> Option<Op> {
        let disp = u64::try_from(self.disp.checked_add(self.target.run()?)?).ok()?;
        let mut single = Op { disp, shape: None, ..*op };
        let (buffer, side) = match op.kind {
            OpKind::Put => (&mut single.origin, &self.origin),
            OpKind::Get => (&mut single.result, &self.result),
            _ => return None,
        };
        buffer.0 = buffer.0.wrapping_add_signed(side.as_ref()?.run()? as isize);
        Some(single)
    }

    /// The operation to apply to the data from offset `at` on: `op`, or a plain fetch where the
    /// origin has no data left. Also returns the number of bytes that this covers, at most `most`.
    #[must_use]
    pub fn part(&self, op: &Op, at: u64, most: u64) -> (Op, u64) {
        let sent = match &self.origin {
            Some(origin) if op.kind == OpKind::GetAccumulate => origin.size(),
            _ => return (*op, most),
        };
        match sent.checked_sub(at) {
            None | Some(0) => (Op { reduction: reduction::NO_OP, ..*op }, most),
            Some(left) => (*op, most.min(left)),
        }
    }
}

/// Shapes of operations that are recorded or in flight.
#[derive(Debug, Default)]
pub struct Shapes {
    places: Vec<Option<Shape>>,
    free: Vec<u32>,
}

/// An empty [`Shapes`] with more slots than this frees its memory.
const KEEP: usize = 1024;

impl Shapes {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Shapes { places: Vec::new(), free: Vec::new() }
    }

    /// Adds a shape.
    #[inline]
    pub fn add(&mut self, shape: Shape) -> Shaped {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as u32
        });
        self.places[place as usize] = Some(shape);
        Shaped(NonZeroU32::new(place + 1).expect("fewer than 2^32 - 1 shapes"))
    }

    /// The shape of a number.
    #[inline]
    #[must_use]
    pub fn get(&self, shaped: Shaped) -> &Shape {
        self.places[shaped.0.get() as usize - 1]
            .as_ref()
            .expect("a shape is kept until its operation ends")
    }

    /// Removes a shape.
    #[inline]
    pub fn take(&mut self, shaped: Shaped) -> Shape {
        let place = shaped.0.get() - 1;
        let shape = self.places[place as usize].take().expect("a shape ends once");
        self.free.push(place);
        if self.free.len() == self.places.len() && self.places.len() > KEEP {
            *self = Shapes::new();
        }
        shape
    }

    /// Number of shapes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_removed_once() {
        let mut shapes = Shapes::new();
        let shape = |disp| Shape { origin: None, result: None, target: Side::flat(8), disp };
        let numbers: Vec<Shaped> = (0..2000).map(|disp| shapes.add(shape(disp))).collect();
        assert_eq!(shapes.get(numbers[7]).disp, 7);
        for (disp, number) in (0..).zip(&numbers) {
            assert_eq!(shapes.take(*number).disp, disp);
        }
        assert!(shapes.is_empty());
        assert_eq!(shapes.places.capacity(), 0, "memory goes back");
    }
}
