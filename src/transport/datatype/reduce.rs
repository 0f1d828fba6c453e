//! Reductions of elements in memory: plain loops over possibly unaligned elements, which the
//! compiler vectorizes. Reducing one element costs two jumps and the operation.

use crate::engine::{Element, Reduction};

use super::element::{FIRST_FOREIGN, ForeignReduce, native, reduction};
use super::walk::Pieces;
use crate::transport::copy;

/// What an accumulate does to each element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Combine {
    /// Datatype of the elements.
    pub(crate) element: Element,
    pub(crate) reduction: Reduction,
    /// Bytes of one element, not 0.
    pub(crate) extent: u8,
    /// Reduces elements of foreign datatypes.
    pub(crate) foreign: ForeignReduce,
}

impl Combine {
    /// `inout = inout (op) input` over `len` bytes, whole elements.
    ///
    /// # Safety
    /// `inout` must be valid for `len` bytes, and so must `input` unless the reduction is no_op.
    /// They must not overlap, and nobody else may access `inout` meanwhile.
    #[inline]
    pub(crate) unsafe fn apply(&self, input: *const u8, inout: *mut u8, len: usize) {
        // SAFETY: both pointers are valid for `len` bytes, that is for as many elements as fit.
        unsafe {
            match self.reduction {
                reduction::REPLACE => return copy(input, inout, len),
                reduction::NO_OP => return,
                _ => {}
            }
            if self.element.0 >= FIRST_FOREIGN {
                // The last element of a pair type may end before its extent does.
                let count = len.div_ceil(usize::from(self.extent));
                return (self.foreign)(self.element, self.reduction, input, inout, count);
            }
            #[cfg(target_arch = "x86_64")]
            if len >= WIDE && std::arch::is_x86_feature_detected!("avx2") {
                return combine_wide(*self, input, inout, len);
            }
            combine_native(*self, input, inout, Span::one(len));
        }
    }

    /// `result = inout; inout = inout (op) input` over `len` bytes, whole elements.
    ///
    /// # Safety
    /// As [`apply`](Self::apply), and `result` must be valid for `len` bytes and overlap neither.
    #[inline]
    pub(crate) unsafe fn fetch_apply(
        &self,
        input: *const u8,
        inout: *mut u8,
        result: *mut u8,
        len: usize,
    ) {
        let block = whole(FETCH_BLOCK, self.extent);
        let mut at = 0;
        while at < len {
            let part = block.min(len - at);
            // SAFETY: `at + part <= len`, so the parts lie in buffers that are valid and disjoint.
            unsafe {
                copy(inout.add(at), result.add(at), part);
                self.apply(input.wrapping_add(at), inout.add(at), part);
            }
            at += part;
        }
    }

    /// `inout, data = inout (op) data, inout` over `len` bytes, whole elements:
    /// [`fetch_apply`](Self::fetch_apply) with the result in the place of the input.
    ///
    /// # Safety
    /// Both pointers must be valid for `len` bytes, without overlap, and nobody else may use the
    /// bytes.
    pub(crate) unsafe fn exchange_apply(&self, data: *mut u8, inout: *mut u8, len: usize) {
        let mut old = Aligned([0u8; EXCHANGE_BLOCK]);
        let old = old.0.as_mut_ptr();
        let block = whole(EXCHANGE_BLOCK, self.extent);
        let mut at = 0;
        while at < len {
            let part = block.min(len - at);
            // SAFETY: `at + part <= len`, so the parts lie in buffers that are valid and do not
            // overlap, and `part` fits the block.
            unsafe {
                // Within a cache, so the C library's choice is faster than that of `copy`.
                std::ptr::copy_nonoverlapping(inout.add(at), old, part);
                self.apply(data.add(at), inout.add(at), part);
                std::ptr::copy_nonoverlapping(old, data.add(at), part);
            }
            at += part;
        }
    }
}

/// Combines pieces of the first side into the second, element by element.
///
/// # Safety
/// As [`copy_pieces`](super::copy_pieces) and [`Combine::apply`]: the pieces are whole elements,
/// and nobody else accesses those of the second side.
#[inline]
pub(crate) unsafe fn combine_pieces(
    combine: &Combine,
    input: *const u8,
    inout: *mut u8,
    pieces: &Pieces,
) {
    let Pieces { at, stride, len, count } = *pieces;
    let (mut input, mut inout) =
        (input.wrapping_offset(at[0] as isize), inout.wrapping_offset(at[1] as isize));
    let (len, count) = (len as usize, count as usize);
    let apart = [stride[0] as isize, stride[1] as isize];
    let is_native = combine.element.0 < FIRST_FOREIGN
        && !matches!(combine.reduction, reduction::REPLACE | reduction::NO_OP);
    // SAFETY: all pieces are valid and whole elements, each a stride after the one before, and
    // nobody else accesses those of `inout`.
    unsafe {
        if is_native && len < WIDE {
            return combine_native(*combine, input, inout, Span { len, count, apart });
        }
        for _ in 0..count {
            combine.apply(input, inout, len);
            (input, inout) = (input.wrapping_offset(apart[0]), inout.wrapping_offset(apart[1]));
        }
    }
}

/// The largest multiple of `extent` up to `bytes`, which must hold at least one element.
#[inline]
pub(crate) fn whole(bytes: usize, extent: u8) -> usize {
    let extent = usize::from(extent.max(1));
    // Most extents are powers of two, and a division would cost more than the operation.
    if extent.is_power_of_two() { bytes & !(extent - 1) } else { (bytes / extent).max(1) * extent }
}

/// Bytes fetched and combined at a time, so that the second read hits the first-level cache.
const FETCH_BLOCK: usize = 8 * 1024;

/// Bytes exchanged at a time, on the stack.
pub(crate) const EXCHANGE_BLOCK: usize = 1024;

/// Aligned for every datatype.
#[repr(align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// Length in bytes from which registers wider than the baseline's are faster.
const WIDE: usize = 256;

/// [`combine_native`], compiled for 32-byte registers.
///
/// # Safety
/// As [`combine_native`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn combine_wide(what: Combine, input: *const u8, inout: *mut u8, len: usize) {
    // SAFETY: both pointers are valid for `len` bytes, without overlap.
    unsafe { combine_native(what, input, inout, Span::one(len)) }
}

/// `count` pieces of `len` bytes, `apart` bytes from each other on each side.
#[derive(Clone, Copy)]
struct Span {
    len: usize,
    count: usize,
    apart: [isize; 2],
}

impl Span {
    #[inline(always)]
    fn one(len: usize) -> Self {
        Span { len, count: 1, apart: [0; 2] }
    }
}

/// `inout = inout (op) input` over pieces of native elements. Integers wrap, as they do in the
/// hosts.
///
/// # Safety
/// As [`each`].
#[inline(always)]
unsafe fn combine_native(what: Combine, input: *const u8, inout: *mut u8, span: Span) {
    let Combine { element, reduction, .. } = what;
    macro_rules! each {
        ($t:ty, $f:expr) => {
            // SAFETY: all pieces are valid, without overlap between the sides.
            unsafe { each::<$t>(input, inout, span, $f) }
        };
    }
    macro_rules! integer {
        ($t:ty) => {
            match reduction {
                reduction::SUM => each!($t, <$t>::wrapping_add),
                reduction::PROD => each!($t, <$t>::wrapping_mul),
                reduction::MIN => each!($t, |a, b| if b < a { b } else { a }),
                reduction::MAX => each!($t, |a, b| if b > a { b } else { a }),
                reduction::LAND => each!($t, |a, b| ((a != 0) & (b != 0)).into()),
                reduction::LOR => each!($t, |a, b| ((a != 0) | (b != 0)).into()),
                reduction::LXOR => each!($t, |a, b| ((a != 0) ^ (b != 0)).into()),
                reduction::BAND => each!($t, |a, b| a & b),
                reduction::BOR => each!($t, |a, b| a | b),
                reduction::BXOR => each!($t, |a, b| a ^ b),
                _ => debug_assert!(false, "{reduction:?} is not defined for integers"),
            }
        };
    }
    macro_rules! floating {
        ($t:ty) => {
            match reduction {
                reduction::SUM => each!($t, |a, b| a + b),
                reduction::PROD => each!($t, |a, b| a * b),
                reduction::MIN => each!($t, |a, b| if b < a { b } else { a }),
                reduction::MAX => each!($t, |a, b| if b > a { b } else { a }),
                _ => debug_assert!(false, "{reduction:?} is not defined for floating point"),
            }
        };
    }
    match element {
        native::I8 => integer!(i8),
        native::U8 | native::BYTE => integer!(u8),
        native::I16 => integer!(i16),
        native::U16 => integer!(u16),
        native::I32 => integer!(i32),
        native::U32 => integer!(u32),
        native::I64 => integer!(i64),
        native::U64 => integer!(u64),
        native::F32 => floating!(f32),
        native::F64 => floating!(f64),
        _ => debug_assert!(false, "{element:?} is not a native element"),
    }
}

/// Applies `f(inout, input)` element by element.
///
/// # Safety
/// Both pointers must be valid for all pieces, which need no alignment. The pieces of one side must
/// not overlap those of the other.
#[inline(always)]
unsafe fn each<T: Copy>(input: *const u8, inout: *mut u8, span: Span, f: impl Fn(T, T) -> T) {
    let (mut input, mut inout) = (input, inout);
    // SAFETY: element `at` lies in the present piece, which is valid.
    let step = |input: *const T, inout: *mut T, at: usize| unsafe {
        let place = inout.add(at);
        place.write_unaligned(f(place.read_unaligned(), input.add(at).read_unaligned()));
    };
    let elements = span.len / size_of::<T>();
    for _ in 0..span.count {
        if elements == 1 {
            step(input.cast(), inout.cast(), 0);
        } else {
            for at in 0..elements {
                step(input.cast(), inout.cast(), at);
            }
        }
        (input, inout) =
            (input.wrapping_offset(span.apart[0]), inout.wrapping_offset(span.apart[1]));
    }
}

/// Compare and swap of one element of `len` bytes: `result = target`, then `target = origin` if all
/// bytes were equal to those of `compare`.
///
/// # Safety
/// All pointers must be valid for `len` bytes. `result` overlaps none of the others, and nobody
/// else may access `target` meanwhile.
#[inline]
pub(crate) unsafe fn compare_swap(
    target: *mut u8,
    compare: *const u8,
    origin: *const u8,
    result: *mut u8,
    len: usize,
) {
    // SAFETY: all pointers are valid for `len` bytes, and nobody else accesses `target`.
    unsafe {
        copy(target, result, len);
        if same(result, compare, len) {
            copy(origin, target, len);
        }
    }
}

/// # Safety
/// Both pointers must be valid for `len` bytes.
#[inline]
unsafe fn same(a: *const u8, b: *const u8, len: usize) -> bool {
    // SAFETY: both pointers are valid for `len` bytes.
    unsafe {
        match len {
            8 => a.cast::<u64>().read_unaligned() == b.cast::<u64>().read_unaligned(),
            4 => a.cast::<u32>().read_unaligned() == b.cast::<u32>().read_unaligned(),
            _ => (0..len).all(|i| *a.add(i) == *b.add(i)),
        }
    }
}

/// [`compare_swap`] with `origin` followed by `compare` in `data`. The result overwrites `origin`.
///
/// # Safety
/// `data` must be valid for `2 * len` bytes, `target` for `len`, without overlap. `len` is at most
/// [`EXTENT_MAX`]. Nobody else may access them meanwhile.
pub(crate) unsafe fn compare_swap_in_place(target: *mut u8, data: *mut u8, len: usize) {
    debug_assert!(len <= EXTENT_MAX);
    let mut old = Aligned([0u8; EXTENT_MAX]);
    let old = old.0.as_mut_ptr();
    // SAFETY: `data` holds two elements, `target` one, and `old` has room for any, without overlap.
    unsafe {
        compare_swap(target, data.add(len), data, old, len);
        copy(old, data, len);
    }
}

/// Bytes of the largest element.
pub(crate) const EXTENT_MAX: usize = 32;
