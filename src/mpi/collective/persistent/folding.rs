//! The sums of reductions, built contribution by contribution.

use crate::collective::steps::Turn;
use crate::transport::copy;
use crate::transport::crossing::copy_in;
use crate::transport::datatype::Combine;

/// Bytes that are copied and folded into at once, so that they stay in a first-level cache. All
/// elements fit.
pub(super) const FOLDED: usize = 4096;

/// The sum of one piece after the other.
pub(super) struct Folding {
    combine: Combine,
    /// The first contribution. The second is folded into a copy of it.
    first: Option<*const u8>,
    /// Room for a sum that cannot be built in its place: aligned for every element.
    apart: Vec<u128>,
}

impl Folding {
    /// `apart`: bytes of a piece whose sum cannot be built in its place, or 0.
    pub(super) fn new(combine: Combine, apart: usize) -> Self {
        Folding { combine, first: None, apart: vec![0; apart.div_ceil(size_of::<u128>())] }
    }

    /// Adds a contribution. The last one completes the result.
    ///
    /// # Safety
    /// The contributions may be read until the last one has been added, and the result may be
    /// written. All are valid for so many bytes, as is the room for a sum apart.
    pub(super) unsafe fn add(
        &mut self,
        source: *const u8,
        result: *mut u8,
        bytes: usize,
        turn: Turn,
    ) {
        let is_direct = self.apart.is_empty();
        let sum = if is_direct { result } else { self.apart.as_mut_ptr().cast() };
        // SAFETY: the contract of this function; all parts lie within so many bytes.
        unsafe {
            match (turn.is_first, self.first.take()) {
                (true, _) if turn.is_last => return copy(source, result, bytes),
                (true, _) => self.first = Some(source),
                (false, None) => self.combine.apply(source, sum, bytes),
                (false, Some(first)) => {
                    for at in (0..bytes).step_by(FOLDED) {
                        let (sum, len) = (sum.add(at), FOLDED.min(bytes - at));
                        copy_in(first.add(at), sum, len);
                        self.combine.apply(source.add(at), sum, len);
                    }
                }
            }
            if turn.is_last && !is_direct {
                copy_in(sum, result, bytes);
            }
        }
    }
}
