//! What a window says of itself to the application: attributes and info hints.

use crate::engine;

/// What `MPI_Win_get_attr` tells of a window; MPI gives out the addresses of these, so they live in
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

/// What `MPI_Win_get_info` tells of a window, and `MPI_Win_set_info` may change (MPI-4.1 12.2.1,
/// 12.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    /// `no_locks`: a lock is served all the same, and the log warns once.
    pub(crate) no_locks: bool,
    /// `accumulate_ordering`: which of rar, raw, war, waw the application relies on, in this order
    /// from the lowest bit. All are kept in any case.
    pub(crate) ordering: u8,
    /// `accumulate_ops` is `same_op` and not `same_op_no_op`. Any mix is atomic here.
    pub(crate) same_op: bool,
    /// `same_size`
    pub(crate) same_size: bool,
    /// `same_disp_unit`
    pub(crate) same_disp_unit: bool,
    /// `alloc_shared_noncontig`
    pub(crate) noncontig: bool,
    /// `mpi_accumulate_granularity`: bytes; 0 if the application does not say.
    pub(crate) granularity: u64,
    /// `acc_single_intrinsic`: every accumulate is of one element of a predefined datatype; kept
    /// from the window's beginning.
    pub(crate) single: bool,
    /// `mpi_minimum_memory_alignment`: bytes, of memory that we allocate.
    pub(crate) alignment: u64,
    /// The reorder flags that the engine was given.
    pub(crate) flags: engine::ReorderFlags,
    /// `mpix_rma_fast_path`: operations that are copies take the fast path.
    pub(crate) fast_path: bool,
    /// `mpi_assert_max_num_notify`: notification counters that this process will ask for at most; 0
    /// if the application does not say.
    pub(crate) max_counters: u32,
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
            alignment: 1,
            flags: engine::ReorderFlags::default(),
            fast_path: true,
            max_counters: 0,
        }
    }
}
