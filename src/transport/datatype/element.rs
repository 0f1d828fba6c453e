//! Codes of predefined datatypes and reductions.
//!
//! All processes of a job use the same codes, since either origin or target applies an operation.

use crate::engine::{Element, Reduction};

/// Datatypes that this library reduces itself. The host glue assigns the codes from
/// [`FIRST_FOREIGN`] on, and the host reduces those through [`ForeignReduce`].
#[allow(missing_docs)]
pub mod native {
    use super::Element;
    pub const I8: Element = Element(0);
    pub const U8: Element = Element(1);
    pub const I16: Element = Element(2);
    pub const U16: Element = Element(3);
    pub const I32: Element = Element(4);
    pub const U32: Element = Element(5);
    pub const I64: Element = Element(6);
    pub const U64: Element = Element(7);
    pub const F32: Element = Element(8);
    pub const F64: Element = Element(9);
    /// Uninterpreted bytes (`MPI_BYTE`): replace, no_op, band, bor, bxor.
    pub const BYTE: Element = Element(10);
}
/// First code of the host's other datatypes.
pub const FIRST_FOREIGN: u8 = 16;

/// Bytes of one element of a native datatype; `None` for any other code.
#[must_use]
pub fn native_extent(element: Element) -> Option<u8> {
    match element {
        native::I8 | native::U8 | native::BYTE => Some(1),
        native::I16 | native::U16 => Some(2),
        native::I32 | native::U32 | native::F32 => Some(4),
        native::I64 | native::U64 | native::F64 => Some(8),
        _ => None,
    }
}

/// Whether a native datatype supports this reduction (MPI-4.1 section 6.9.2). Floating point has no
/// logical or bitwise reductions, and bytes have only bitwise ones. All support replace and no_op.
#[must_use]
pub fn native_has(element: Element, reduction: Reduction) -> bool {
    let floating = matches!(element, native::F32 | native::F64);
    let byte = element == native::BYTE;
    match reduction {
        reduction::REPLACE | reduction::NO_OP => true,
        reduction::SUM | reduction::PROD | reduction::MIN | reduction::MAX => !byte,
        reduction::LAND | reduction::LOR | reduction::LXOR => !floating && !byte,
        reduction::BAND | reduction::BOR | reduction::BXOR => !floating,
        _ => false,
    }
}

/// Predefined reductions.
#[allow(missing_docs)]
pub mod reduction {
    use super::Reduction;
    pub const REPLACE: Reduction = Reduction(0);
    pub const NO_OP: Reduction = Reduction(1);
    pub const SUM: Reduction = Reduction(2);
    pub const PROD: Reduction = Reduction(3);
    pub const MIN: Reduction = Reduction(4);
    pub const MAX: Reduction = Reduction(5);
    pub const LAND: Reduction = Reduction(6);
    pub const LOR: Reduction = Reduction(7);
    pub const LXOR: Reduction = Reduction(8);
    pub const BAND: Reduction = Reduction(9);
    pub const BOR: Reduction = Reduction(10);
    pub const BXOR: Reduction = Reduction(11);
    pub const MINLOC: Reduction = Reduction(12);
    pub const MAXLOC: Reduction = Reduction(13);
}

/// Reduces elements of a foreign datatype: `inout = inout (op) input`. The host glue passes
/// `PMPI_Reduce_local`. Arguments: element, reduction, input, inout, number of elements.
///
/// # Safety
/// Both pointers must be valid for that many elements, which must not overlap.
pub type ForeignReduce = unsafe fn(Element, Reduction, *const u8, *mut u8, usize);
