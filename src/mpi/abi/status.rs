//! Statuses of the application, which it may ignore, and what this library writes into them.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::sys::*;

/// The status of a call that completes one request, or an ignored one.
#[derive(Clone, Copy)]
pub(crate) struct Status<'a>(*mut MPI_Status, PhantomData<&'a MPI_Status>);

impl<'a> Status<'a> {
    /// A status of the application or of the host.
    ///
    /// # Safety
    /// `status` is NULL, MPI_STATUS_IGNORE or MPI_STATUSES_IGNORE, or until `'a` ends it points to
    /// memory for a status, which need not be aligned, that no other thread accesses.
    #[inline(always)]
    pub(crate) unsafe fn new(status: *mut MPI_Status) -> Self {
        Status(status, PhantomData)
    }

    /// A status of this library.
    pub(crate) fn to(status: &'a mut MPI_Status) -> Self {
        Status(status, PhantomData)
    }

    /// MPI_STATUS_IGNORE.
    #[inline(always)]
    pub(crate) fn ignored() -> Self {
        Status(MPI_STATUS_IGNORE, PhantomData)
    }

    /// The status, for a call of the host.
    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut MPI_Status {
        self.0
    }

    pub(crate) fn is_ignored(self) -> bool {
        self.0.is_null() || self.0 == MPI_STATUS_IGNORE || self.0 == MPI_STATUSES_IGNORE
    }

    /// Changes the status, unless it is ignored.
    #[inline]
    fn change(self, how: impl FnOnce(&mut MPI_Status)) {
        if self.is_ignored() {
            return;
        }
        // SAFETY: the status is not ignored, so it is the memory that `new` was given. What the
        // application has not written is read too: its fields are integers, of any value.
        unsafe {
            let mut status = self.0.read_unaligned();
            how(&mut status);
            self.0.write_unaligned(status);
        }
    }

    /// Fills in a status without elements, not cancelled, with this source and tag. `MPI_ERROR` is
    /// left as it is.
    pub(crate) fn fill(self, source: c_int, tag: c_int) {
        if !self.is_ignored() {
            self.copy(MPI_Status { MPI_SOURCE: source, MPI_TAG: tag, ..*without_data() });
        }
    }

    /// Fills in what another status says, but for `MPI_ERROR`.
    pub(crate) fn copy(self, from: MPI_Status) {
        self.change(|status| *status = MPI_Status { MPI_ERROR: status.MPI_ERROR, ..from });
    }

    /// Fills in MPI's empty status (MPI-4.1 3.7.3). `MPI_ERROR` is left as it is.
    pub(crate) fn fill_empty(self) {
        self.fill(MPI_ANY_SOURCE, MPI_ANY_TAG);
    }

    /// Sets source and tag, and nothing else.
    pub(crate) fn set_origin(self, source: c_int, tag: c_int) {
        self.change(|status| (status.MPI_SOURCE, status.MPI_TAG) = (source, tag));
    }

    /// Source and tag that the host has written. `None`: the status is ignored.
    pub(crate) fn origin(self) -> Option<(c_int, c_int)> {
        let mut origin = None;
        self.change(|status| origin = Some((status.MPI_SOURCE, status.MPI_TAG)));
        origin
    }

    /// Sets the error, which MPI defines only in arrays of statuses.
    pub(crate) fn set_error(self, code: c_int) {
        self.change(|status| status.MPI_ERROR = code);
    }
}

/// A status that a call of the host is about to fill.
pub(crate) fn blank() -> MPI_Status {
    // SAFETY: a status consists of integers, which may all be 0.
    unsafe { std::mem::zeroed() }
}

/// A status without elements, not cancelled, as the host writes it. Cached, since the host's calls
/// take longer than a whole wait for a notification that has already arrived.
#[inline]
fn without_data() -> &'static MPI_Status {
    static STATUS: OnceLock<MPI_Status> = OnceLock::new();
    STATUS.get_or_init(|| {
        let mut status = blank();
        // SAFETY: only this function uses the status.
        unsafe {
            PMPI_Status_set_elements(&raw mut status, MPI_BYTE, 0);
            PMPI_Status_set_cancelled(&raw mut status, 0);
        }
        status
    })
}

/// The statuses of a call that completes several requests, or ignored ones.
#[derive(Clone, Copy)]
pub(crate) struct Statuses<'a> {
    first: *mut MPI_Status,
    len: usize,
    of: PhantomData<&'a MPI_Status>,
}

impl<'a> Statuses<'a> {
    /// An array of the application. A negative `count` makes it empty.
    ///
    /// # Safety
    /// `first` is NULL or MPI_STATUSES_IGNORE, or until `'a` ends it points to memory for `count`
    /// statuses that no other thread accesses, as [`Status::new`] says.
    #[inline(always)]
    pub(crate) unsafe fn new(first: *mut MPI_Status, count: c_int) -> Self {
        Statuses { first, len: usize::try_from(count).unwrap_or(0), of: PhantomData }
    }

    /// MPI_STATUSES_IGNORE.
    pub(crate) fn ignored() -> Self {
        Statuses { first: MPI_STATUSES_IGNORE, len: 0, of: PhantomData }
    }

    /// Statuses of this library.
    pub(crate) fn to(list: &'a mut [MPI_Status]) -> Self {
        Statuses { first: list.as_mut_ptr(), len: list.len(), of: PhantomData }
    }

    /// True for MPI_STATUSES_IGNORE and NULL.
    pub(crate) fn are_ignored(self) -> bool {
        Status(self.first, PhantomData).is_ignored()
    }

    /// The array, for a call of the host that may write `count` statuses.
    #[inline(always)]
    pub(crate) fn as_ptr(self, count: c_int) -> *mut MPI_Status {
        assert!(self.are_ignored() || count <= 0 || count as usize <= self.len, "too few statuses");
        self.first
    }

    /// The status with index `at`.
    pub(crate) fn at(self, at: usize) -> Status<'a> {
        if self.are_ignored() {
            return Status::ignored();
        }
        assert!(at < self.len, "a status beyond the application's array");
        Status(self.first.wrapping_add(at), PhantomData)
    }

    /// The first `count` statuses; none if they are ignored.
    pub(crate) fn first(self, count: usize) -> impl Iterator<Item = Status<'a>> {
        let count = if self.are_ignored() { 0 } else { count };
        (0..count).map(move |at| self.at(at))
    }
}
