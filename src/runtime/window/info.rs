//! The attributes and info hints of a window.

use std::num::NonZeroU32;

use crate::engine;

/// The attributes of a window. `MPI_Win_get_attr` returns their addresses, so they live as long as
/// the window.
#[derive(Debug)]
pub(crate) struct Attributes {
    /// `MPI_WIN_BASE`
    pub(crate) base: usize,
    /// `MPI_WIN_SIZE`
    pub(crate) size: isize,
    /// `MPI_WIN_DISP_UNIT`
    pub(crate) disp_unit: libc::c_int,
    /// `MPI_WIN_CREATE_FLAVOR`
    pub(crate) flavor: libc::c_int,
    /// `MPI_WIN_MODEL`
    pub(crate) model: libc::c_int,
    /// `MPIX_WIN_NOTIFICATION_NUM_SB`
    pub(crate) notification_num_sb: libc::c_int,
}

/// The info hints of a window, which `MPI_Win_get_info` returns and `MPI_Win_set_info` may change
/// (MPI-4.1 12.2.1, 12.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    /// `no_locks`: locks are served all the same, and the log warns once.
    pub(crate) no_locks: bool,
    /// `accumulate_ordering`: bits 0 to 3 are rar, raw, war and waw.
    /// Accepted. All four orderings are always provided.
    pub(crate) ordering: u8,
    /// `accumulate_ops` is `same_op` and not `same_op_no_op`. Accepted. Any mix is atomic.
    pub(crate) same_op: bool,
    /// `same_size`
    pub(crate) same_size: bool,
    /// `same_disp_unit`
    pub(crate) same_disp_unit: bool,
    /// `alloc_shared_noncontig`
    pub(crate) noncontig: bool,
    /// `mpi_accumulate_granularity` in bytes; 0 if it is not given.
    pub(crate) granularity: u64,
    /// `acc_single_intrinsic`: every accumulate has one element of a predefined datatype. Fixed
    /// when the window is made.
    pub(crate) single: bool,
    /// Binary logarithm of `mpi_minimum_memory_alignment`, for memory that the library allocates.
    pub(crate) log_alignment: u8,
    /// The reorder flags, which the engine has too.
    pub(crate) flags: engine::ReorderFlags,
    /// `mpix_rma_fast_path`: operations that are copies take the fast path.
    pub(crate) fast_path: bool,
    /// `mpix_rma_fence` is `pattern`, which the engine has too [FE-4].
    pub(crate) pattern_fences: bool,
    /// `mpi_assert_max_num_notify`: the most notification counters that this process will request;
    /// 0 if it is not given.
    pub(crate) max_counters: u32,
    /// `mpix_rma_notify_puts`: the counter that each operation raises at its target, plus 1. Equal
    /// in all processes, and fixed when the window is made.
    pub(crate) puts_counter: Option<NonZeroU32>,
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            no_locks: false,
            ordering: 0b1111,
            same_op: false,
            same_size: false,
            same_disp_unit: false,
            noncontig: false,
            granularity: 0,
            single: false,
            log_alignment: 0,
            flags: engine::ReorderFlags::default(),
            fast_path: true,
            pattern_fences: false,
            max_counters: 0,
            puts_counter: None,
        }
    }
}
