//! Data of a collective in the application's buffers: moved as they are where they are dense, and
//! packed elsewhere.

use std::ffi::{c_int, c_void};
use std::ptr::copy_nonoverlapping;

use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::{derived, predefined};

/// A count or displacement of the application, of the calls with large counts or the others.
pub(super) trait Number: Copy {
    fn wide(self) -> i64;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn wide(self) -> i64 {
                self as i64
            }
        }
    )*};
}

numbers! { i32 i64 isize }

/// How the data of elements in a row lie. As wide as a word, so that what contains it is copied by
/// whole words: a load from several narrower stores waits until all earlier stores have left the
/// processor, those to cache lines of other processes too.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum Layout {
    /// Their bytes, in order.
    Dense,
    /// Otherwise: they are packed.
    Packed,
}

impl Layout {
    fn of(is_dense: bool) -> Self {
        if is_dense { Layout::Dense } else { Layout::Packed }
    }
}

/// A datatype that the application may communicate with.
#[derive(Clone, Copy)]
pub(super) struct Typed {
    datatype: MPI_Datatype,
    /// Bytes of data of an element.
    pub(super) size: usize,
    /// Bytes from one element to the next.
    pub(super) extent: isize,
    layout: Layout,
}

impl Typed {
    /// `None`: it is invalid or not committed.
    #[inline]
    pub(super) fn of(datatype: MPI_Datatype) -> Option<Self> {
        if let Some(known) = predefined(datatype) {
            let (size, extent) = (usize::from(known.size), isize::from(i16::from(known.extent)));
            return Some(Typed { datatype, size, extent, layout: Layout::of(known.is_dense()) });
        }
        Self::derived(datatype)
    }

    /// The same, for no elements if there are `none`. Then hosts do not look at the datatype.
    #[inline]
    pub(super) fn of_any(datatype: MPI_Datatype, none: bool) -> Option<Self> {
        Self::of(if none { MPI_BYTE } else { datatype })
    }

    #[cold]
    fn derived(datatype: MPI_Datatype) -> Option<Self> {
        if !derived::is_committed(datatype) {
            return None;
        }
        let (mut size, mut lower, mut extent) = (0, 0, 0);
        host_calls::type_size(datatype, &mut size);
        host_calls::type_extent(datatype, &mut lower, &mut extent);
        let (size, extent) = (usize::try_from(size).ok()?, isize::try_from(extent).ok()?);
        Some(Typed { datatype, size, extent, layout: Layout::Packed })
    }

    fn is_dense(self) -> bool {
        self.layout == Layout::Dense
    }
}

/// A buffer, a count and a datatype.
pub(super) type Triple = (*const c_void, i64, MPI_Datatype);

/// Elements in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    buffer: *mut c_void,
    count: usize,
    typed: Typed,
    /// Bytes of data.
    pub(super) bytes: usize,
}

impl Elements {
    /// `None`: the arguments are wrong.
    #[inline]
    pub(super) fn new((buffer, count, datatype): Triple) -> Option<Self> {
        Self::typed(buffer, count, Typed::of_any(datatype, count == 0)?)
    }

    /// `None`: the arguments are wrong.
    #[inline]
    pub(super) fn typed(buffer: *const c_void, count: i64, typed: Typed) -> Option<Self> {
        let count = usize::try_from(count).ok()?;
        let bytes = count.checked_mul(typed.size)?;
        let buffer = buffer.cast_mut();
        let is_place =
            bytes == 0 || (buffer != MPI_IN_PLACE && !(typed.is_dense() && buffer.is_null()));
        is_place.then_some(Elements { buffer, count, typed, bytes })
    }

    /// As many elements for each of `ranks` processes, one after the other. The caller has checked
    /// that their bytes can be counted.
    pub(super) fn times(self, ranks: u32) -> Self {
        let ranks = ranks as usize;
        Elements { count: self.count * ranks, bytes: self.bytes * ranks, ..self }
    }

    /// The block of process `rank` of such a row.
    pub(super) fn nth(self, rank: u32) -> Self {
        self.moved((rank as isize).wrapping_mul(self.count as isize))
    }

    /// As many elements, `by` elements further.
    pub(super) fn moved(self, by: isize) -> Self {
        self.moved_bytes(by.wrapping_mul(self.typed.extent))
    }

    /// As many elements, `by` bytes further.
    pub(super) fn moved_bytes(self, by: isize) -> Self {
        Elements { buffer: self.buffer.wrapping_byte_offset(by), ..self }
    }

    /// Whether both are the same elements, which MPI forbids for what is sent and received.
    pub(super) fn is_same_as(&self, other: &Elements) -> bool {
        self.bytes > 0 && self.buffer == other.buffer && !self.buffer.is_null()
    }

    /// The address of the bytes of data. `None`: they must be packed.
    pub(super) fn dense(&self) -> Option<*mut u8> {
        self.typed.is_dense().then_some(self.buffer.cast())
    }

    /// Copies the data to `bytes`, which is as long.
    ///
    /// # Safety
    /// The application may read the elements.
    pub(super) unsafe fn copy_to(&self, bytes: &mut [u8], comm: MPI_Comm) {
        assert_eq!(bytes.len(), self.bytes);
        // SAFETY: the contract of this function; packed data of a known datatype take its size.
        unsafe {
            if self.typed.is_dense() {
                return copy_nonoverlapping(self.buffer.cast(), bytes.as_mut_ptr(), bytes.len());
            }
            self.with_base(|buffer, count, datatype| {
                let (to, room, mut at) = (bytes.as_mut_ptr().cast(), bytes.len() as c_int, 0);
                PMPI_Pack(buffer, count, datatype, to, room, &raw mut at, comm);
            });
        }
    }

    /// Copies the data from `bytes`. If they are fewer, the rest stays as it is.
    ///
    /// # Safety
    /// The application may write the elements.
    pub(super) unsafe fn copy_from(&self, bytes: &[u8], comm: MPI_Comm) {
        assert!(bytes.len() <= self.bytes);
        // SAFETY: the contract of this function; packed data of a known datatype take its size.
        unsafe {
            if self.typed.is_dense() {
                return copy_nonoverlapping(bytes.as_ptr(), self.buffer.cast(), bytes.len());
            }
            let short = Elements { count: bytes.len() / self.typed.size.max(1), ..*self };
            short.with_base(|buffer, count, datatype| {
                let (from, room, mut at) = (bytes.as_ptr().cast(), bytes.len() as c_int, 0);
                PMPI_Unpack(from, room, &raw mut at, buffer, count, datatype, comm);
            });
        }
    }

    /// Runs `body` on the elements, if there are any, with a buffer that is not NULL. MPICH refuses
    /// to pack at `MPI_BOTTOM`, so there the datatype is moved by the address of another buffer.
    fn with_base(&self, body: impl FnOnce(*mut c_void, c_int, MPI_Datatype)) {
        let count = self.count as c_int;
        if self.bytes == 0 {
            return;
        }
        if !self.buffer.is_null() {
            return body(self.buffer, count, self.typed.datatype);
        }
        let mut base = 0u64;
        let base = (&raw mut base).cast::<c_void>();
        let mut moved = MPI_DATATYPE_NULL;
        if host_calls::type_moved(self.typed.datatype, count, -(base as isize), &mut moved)
            == MPI_SUCCESS
        {
            host_calls::type_commit(&mut moved);
            body(base, 1, moved);
            host_calls::type_free(&mut moved);
        }
    }
}

/// The bytes of data of elements: in the application's buffer, or packed.
pub(super) struct Staged {
    base: *mut u8,
    packed: Option<Vec<u8>>,
}

impl Staged {
    /// Data that are sent.
    ///
    /// # Safety
    /// The application may read the elements.
    pub(super) unsafe fn source(elements: &Elements, comm: MPI_Comm) -> Self {
        let staged = Self::sink(elements);
        match staged.packed {
            None => staged,
            Some(mut packed) => {
                // SAFETY: the contract of this function.
                unsafe { elements.copy_to(&mut packed, comm) };
                Staged { base: packed.as_mut_ptr(), packed: Some(packed) }
            }
        }
    }

    /// Data that are received.
    pub(super) fn sink(elements: &Elements) -> Self {
        match elements.dense() {
            Some(base) => Staged { base, packed: None },
            None => {
                let mut packed = vec![0; elements.bytes];
                Staged { base: packed.as_mut_ptr(), packed: Some(packed) }
            }
        }
    }

    /// The address of the bytes.
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Unpacks what has been received.
    ///
    /// # Safety
    /// The application may write the elements.
    pub(super) unsafe fn deliver(&self, elements: &Elements, comm: MPI_Comm) {
        if let Some(packed) = &self.packed {
            // SAFETY: the contract of this function.
            unsafe { elements.copy_from(packed, comm) };
        }
    }
}
