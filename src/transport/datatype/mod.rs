//! Data that are not one run of bytes: derived datatypes, as the transports see them.
//!
//! A [`Layout`] tells where the bytes of one item of a datatype lie; a [`Side`] is some items of
//! it, or plain bytes; a [`Cursor`] walks through a side, and a [`Pair`] through two at once, piece
//! by piece. [`moves`] copies, packs and unpacks.
//!
//! Operations name their [`Shape`] by a number ([`Shaped`]), which the engine carries and never
//! looks behind. Each transport keeps [`Shapes`] of its own. Whoever issues an operation adds its
//! shape first; from then on it is the transport's until the operation is complete, or gone without
//! ever being posted. Layouts are shared: that of a datatype which the application has freed lives
//! as long as an operation needs it.

pub mod element;
mod layout;
mod pack;
mod reduce;
#[cfg(all(test, not(loom)))]
mod tests;
mod walk;

pub use layout::{Block, Layout, Step};
pub(crate) use pack::{combine_pieces, copy_pieces, exchange_pieces, pack, transfer, unpack};
pub use pack::{gathered, scatter};
pub(crate) use reduce::{Combine, EXTENT_MAX, compare_swap, compare_swap_in_place, whole};
pub use walk::{Cursor, Pair, Pieces, Runs, Side};

use std::num::NonZeroU32;

use crate::engine::{Op, OpKind, Shaped};
use element::reduction;

/// The sides of one operation. Displacements are counted from the addresses in the operation, and
/// from `disp` at the target.
///
/// All sides have as much data, with one exception: the origin of a get_accumulate may have less.
/// The target's data beyond that are fetched and not changed ([`Shape::part`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Origin buffer, where the operation reads one.
    pub origin: Option<Side>,
    /// Result buffer, where it writes one.
    pub result: Option<Side>,
    /// Target memory.
    pub target: Side,
    /// Displacement of the target's items from the base of its window. The bytes may begin before
    /// it.
    pub disp: i64,
}

impl Shape {
    /// What an operation of this shape does to the data from number `at` on: the operation itself,
    /// or a fetch where the origin has no data left. Also gives the number of bytes to which that
    /// applies, at most `most`.
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

/// The shapes of operations that are recorded or in flight.
#[derive(Debug, Default)]
pub struct Shapes {
    places: Vec<Option<Shape>>,
    free: Vec<u32>,
}

/// Above this many places an empty table gives its memory back.
const KEEP: usize = 1024;

impl Shapes {
    /// Without any.
    #[must_use]
    pub const fn new() -> Self {
        Shapes { places: Vec::new(), free: Vec::new() }
    }

    /// Keeps a shape.
    #[inline]
    pub fn add(&mut self, shape: Shape) -> Shaped {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as u32
        });
        self.places[place as usize] = Some(shape);
        Shaped(NonZeroU32::new(place + 1).expect("fewer than 2^32 - 1 shapes"))
    }

    /// A shape that is kept.
    ///
    /// # Panics
    /// If there is none of this number.
    #[inline]
    #[must_use]
    pub fn get(&self, shaped: Shaped) -> &Shape {
        self.places[shaped.0.get() as usize - 1]
            .as_ref()
            .expect("a shape is kept until its operation ends")
    }

    /// A shape that is not needed any more.
    ///
    /// # Panics
    /// If there is none of this number.
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

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True if none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
