//! The `MPIX_*` calls for Fortran: arguments are addresses, handles are integers, and the error
//! code comes last. Programs with `mpif.h` or `use mpi` call these names; the module `mpix_rma_f08`
//! (mpix-headers) gives them the types of `mpi_f08`.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use super::flush_wins::*;
use super::notify::*;
use super::order::*;
use super::tagged::*;
use super::*;
use crate::mpi::rma::communication::*;
use crate::mpi::rma::record::{MPIX_Win_epoch_end, MPIX_Win_epoch_init};
use crate::mpi::rma::sync::*;
use crate::mpi::window::MPIX_Win_dup;

/// Fortran's default integer, as the hosts are built.
type Fint = c_int;

/// Conversions of handles from Fortran to C; of what calls make, from C to Fortran.
mod handles {
    use super::*;

    macro_rules! conversions {
        ($($name:ident($from:ty) -> $to:ty = $openmpi:ident;)*) => {$(
            pub(super) unsafe fn $name(handle: $from) -> $to {
                // MPICH's handles are the same integers in both languages.
                #[cfg(mpi_host = "mpich")]
                {
                    handle
                }
                // SAFETY: Open MPI converts any integer, an invalid one to an invalid handle. The
                // request is one that a call of this library has made.
                #[cfg(mpi_host = "openmpi")]
                unsafe {
                    $openmpi(handle)
                }
            }
        )*};
    }
    conversions! {
        window(Fint) -> MPI_Win = PMPI_Win_f2c;
        group(Fint) -> MPI_Group = PMPI_Group_f2c;
        datatype(Fint) -> MPI_Datatype = PMPI_Type_f2c;
        op(Fint) -> MPI_Op = PMPI_Op_f2c;
        info(Fint) -> MPI_Info = PMPI_Info_f2c;
        request(MPI_Request) -> Fint = PMPI_Request_c2f;
        made_window(MPI_Win) -> Fint = PMPI_Win_c2f;
    }
}

/// Converts one argument from Fortran to C, and back if it is a result.
trait Argument {
    /// The address that Fortran passes.
    type Place: Copy;
    /// The type of the C call's argument.
    type C;

    /// # Safety
    /// `place` is the address of such an argument.
    unsafe fn enter(place: Self::Place) -> Self;

    fn pass(&mut self) -> Self::C;

    /// Writes the result, after a call that has succeeded.
    ///
    /// # Safety
    /// As for `enter`.
    unsafe fn leave(self)
    where
        Self: Sized,
    {
    }
}

/// Arguments that C takes by value.
macro_rules! read {
    ($($name:ident($place:ty) -> $c:ty = |$value:ident| $convert:expr;)*) => {$(
        struct $name($c);
        impl Argument for $name {
            type Place = *const $place;
            type C = $c;
            unsafe fn enter(place: *const $place) -> Self {
                // SAFETY: it points to such an argument (contract of this function).
                unsafe {
                    let $value = place.read();
                    $name($convert)
                }
            }
            fn pass(&mut self) -> $c {
                self.0
            }
        }
    )*};
}

read! {
    Int(Fint) -> c_int = |value| value;
    Displacement(MPI_Aint) -> MPI_Aint = |value| value;
    Count(MPI_Count) -> MPI_Count = |value| value;
    Group(Fint) -> MPI_Group = |value| handles::group(value);
    Datatype(Fint) -> MPI_Datatype = |value| handles::datatype(value);
    Reduction(Fint) -> MPI_Op = |value| handles::op(value);
    Info(Fint) -> MPI_Info = |value| handles::info(value);
    Win(Fint) -> MPI_Win = |value| handles::window(value);
}

/// Arguments that C takes by address too: buffers, and numbers that are written.
macro_rules! passed {
    ($($name:ident: $type:ty;)*) => {$(
        struct $name($type);
        impl Argument for $name {
            type Place = $type;
            type C = $type;
            unsafe fn enter(place: $type) -> Self {
                $name(place)
            }
            fn pass(&mut self) -> $type {
                self.0
            }
        }
    )*};
}

passed! {
    Buffer: *const c_void;
    Counts: *const MPI_Count;
    Handles: *const Fint;
    Result: *mut c_void;
    // Also a logical that is written: 1 and 0, as for the hosts and gfortran.
    IntPlace: *mut Fint;
    CountPlace: *mut MPI_Count;
}

/// A request that the call makes.
struct Request {
    place: *mut Fint,
    made: MPI_Request,
}

impl Argument for Request {
    type Place = *mut Fint;
    type C = *mut MPI_Request;
    unsafe fn enter(place: *mut Fint) -> Self {
        Request { place, made: MPI_REQUEST_NULL }
    }
    fn pass(&mut self) -> *mut MPI_Request {
        &raw mut self.made
    }
    unsafe fn leave(self) {
        // SAFETY: it points to a Fortran request (contract of `enter`); the call has made ours.
        unsafe { self.place.write(handles::request(self.made)) };
    }
}

/// A window that the call makes.
struct NewWin {
    place: *mut Fint,
    made: MPI_Win,
}

impl Argument for NewWin {
    type Place = *mut Fint;
    type C = *mut MPI_Win;
    unsafe fn enter(place: *mut Fint) -> Self {
        NewWin { place, made: MPI_WIN_NULL }
    }
    fn pass(&mut self) -> *mut MPI_Win {
        &raw mut self.made
    }
    unsafe fn leave(self) {
        // SAFETY: it points to a Fortran handle (contract of `enter`); the call has made a window.
        unsafe { self.place.write(handles::made_window(self.made)) };
    }
}

/// A status that the call fills, or one that is ignored. In Fortran it has the same bytes as in C,
/// but only the alignment of an integer.
struct Status {
    place: *mut Fint,
    made: MPI_Status,
    ignored: bool,
}

impl Argument for Status {
    type Place = *mut Fint;
    type C = *mut MPI_Status;
    unsafe fn enter(place: *mut Fint) -> Self {
        let ignored = is_ignored(place);
        // SAFETY: it points to a status (contract of this function) unless it is ignored; a status
        // is integers, so any bits are one.
        let made = unsafe {
            if ignored { std::mem::zeroed() } else { place.cast::<MPI_Status>().read_unaligned() }
        };
        Status { place, made, ignored }
    }
    fn pass(&mut self) -> *mut MPI_Status {
        if self.ignored { MPI_STATUS_IGNORE } else { &raw mut self.made }
    }
    unsafe fn leave(self) {
        if !self.ignored {
            // SAFETY: it points to a status, since it is not ignored (contract of `enter`).
            unsafe { self.place.cast::<MPI_Status>().write_unaligned(self.made) };
        }
    }
}

/// True for Fortran's `MPI_STATUS_IGNORE`: the address of a variable of the host, or the value of a
/// pointer of the host. Names differ by host and compiler.
fn is_ignored(place: *mut Fint) -> bool {
    const NAMES: [&CStr; 4] = [
        c"mpi_fortran_status_ignore_",
        c"mpi_fortran_status_ignore",
        c"mpi_fortran_status_ignore__",
        c"MPIR_F08_MPI_STATUS_IGNORE_OBJ",
    ];
    const LEADING: [&CStr; 2] = [c"MPI_F_STATUS_IGNORE", c"MPI_F08_STATUS_IGNORE"];
    static FOUND: OnceLock<([usize; NAMES.len()], [usize; LEADING.len()])> = OnceLock::new();
    // SAFETY: a C string; the handle stands for all that is loaded.
    let look =
        |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.expose_provenance();
    let (known, leading) = FOUND.get_or_init(|| (NAMES.map(look), LEADING.map(look)));
    let leads_here = |at: &usize| {
        // SAFETY: the host's variable of this name is a pointer, which its initialisation sets.
        *at != 0 && unsafe { std::ptr::with_exposed_provenance::<*mut Fint>(*at).read() } == place
    };
    place.is_null() || known.contains(&place.addr()) || leading.iter().any(leads_here)
}

/// Windows by their Fortran handles.
///
/// # Safety
/// `handles` has `n` of them.
unsafe fn windows(n: c_int, handles: *const Fint) -> Vec<MPI_Win> {
    // SAFETY: it has `n` integers (contract of this function), and any is a handle.
    (0..usize::try_from(n).unwrap_or(0))
        .map(|at| unsafe { handles::window(handles.add(at).read()) })
        .collect()
}

/// `MPIX_Win_iflush_wins` for Fortran.
unsafe fn iflush_wins(
    n: c_int,
    wins: *const Fint,
    rank: c_int,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: Fortran passes an array of `n` handles, and a request.
    unsafe { MPIX_Win_iflush_wins(n, windows(n, wins).as_ptr(), rank, request) }
}

/// `MPIX_Win_flush_wins` for Fortran.
unsafe fn flush_wins(n: c_int, wins: *const Fint, rank: c_int) -> c_int {
    // SAFETY: Fortran passes an array of `n` handles.
    unsafe { MPIX_Win_flush_wins(n, windows(n, wins).as_ptr(), rank) }
}

/// Exports calls to Fortran under the two names that compilers use: with an underscore behind, and
/// without.
macro_rules! fortran {
    ($($call:ident $name:literal $arguments:tt;)*) => {$(
        fortran! { @export $call, concat!($name, "_"), $arguments }
        fortran! { @export $call, $name, $arguments }
    )*};
    (@export $call:ident, $name:expr, ($($arg:ident: $kind:ident),*)) => {
        const _: () = {
            /// # Safety
            /// Each argument is what Fortran passes for its kind; `ierror` may be NULL.
            #[unsafe(export_name = $name)]
            #[allow(clippy::too_many_arguments, reason = "those of the call")]
            unsafe extern "C" fn exported(
                $($arg: <$kind as Argument>::Place,)*
                ierror: *mut Fint,
            ) {
                // SAFETY: each argument is as its `Argument` requires, and `ierror` is NULL or an
                // integer (contract of this function).
                unsafe {
                    $(let mut $arg = <$kind as Argument>::enter($arg);)*
                    let code = $call($($arg.pass()),*);
                    if code == MPI_SUCCESS {
                        $($arg.leave();)*
                    }
                    if !ierror.is_null() {
                        ierror.write(code);
                    }
                }
            }
        };
    };
}

fortran! {
    MPIX_Win_ipost "mpix_win_ipost" (members: Group, assert: Int, win: Win, request: Request);
    MPIX_Win_istart "mpix_win_istart" (members: Group, assert: Int, win: Win, request: Request);
    MPIX_Win_icomplete "mpix_win_icomplete" (win: Win, request: Request);
    MPIX_Win_iwait "mpix_win_iwait" (win: Win, request: Request);
    MPIX_Win_ifence "mpix_win_ifence" (assert: Int, win: Win, request: Request);
    MPIX_Win_ilock "mpix_win_ilock" (
        lock_type: Int, rank: Int, assert: Int, win: Win, request: Request);
    MPIX_Win_iunlock "mpix_win_iunlock" (rank: Int, win: Win, request: Request);
    MPIX_Win_ilock_all "mpix_win_ilock_all" (assert: Int, win: Win, request: Request);
    MPIX_Win_iunlock_all "mpix_win_iunlock_all" (win: Win, request: Request);
    MPIX_Win_iflush "mpix_win_iflush" (rank: Int, win: Win, request: Request);
    MPIX_Win_iflush_local "mpix_win_iflush_local" (rank: Int, win: Win, request: Request);
    MPIX_Win_iflush_all "mpix_win_iflush_all" (win: Win, request: Request);
    MPIX_Win_iflush_local_all "mpix_win_iflush_local_all" (win: Win, request: Request);
    iflush_wins "mpix_win_iflush_wins" (n: Int, wins: Handles, rank: Int, request: Request);
    flush_wins "mpix_win_flush_wins" (n: Int, wins: Handles, rank: Int);
    MPIX_Win_order "mpix_win_order" (rank: Int, win: Win);
    MPIX_Win_order_all "mpix_win_order_all" (win: Win);
    MPIX_Win_dup "mpix_win_dup" (win: Win, info: Info, newwin: NewWin);
}

/// Puts (origin `Buffer`) or gets (origin `Result`) with one type of count. Their `notification` is
/// an index or a tag.
macro_rules! transfers {
    ($origin:ident, $count:ident; $($call:ident $name:literal $(($request:ident))?;)*) => {
        fortran! {$(
            $call $name (
                origin_addr: $origin, origin_count: $count, origin_datatype: Datatype,
                target_rank: Int, target_disp: Displacement, target_count: $count,
                target_datatype: Datatype, notification: Int, win: Win $(, $request: Request)?
            );
        )*}
    };
}

/// As [`transfers`], of `MPI_Accumulate`.
macro_rules! accumulates {
    ($count:ident; $($call:ident $name:literal $(($request:ident))?;)*) => {
        fortran! {$(
            $call $name (
                origin_addr: Buffer, origin_count: $count, origin_datatype: Datatype,
                target_rank: Int, target_disp: Displacement, target_count: $count,
                target_datatype: Datatype, op: Reduction, notification: Int, win: Win
                $(, $request: Request)?
            );
        )*}
    };
}

/// As [`transfers`], of `MPI_Get_accumulate`.
macro_rules! get_accumulates {
    ($count:ident; $($call:ident $name:literal $(($request:ident))?;)*) => {
        fortran! {$(
            $call $name (
                origin_addr: Buffer, origin_count: $count, origin_datatype: Datatype,
                result_addr: Result, result_count: $count, result_datatype: Datatype,
                target_rank: Int, target_disp: Displacement, target_count: $count,
                target_datatype: Datatype, op: Reduction, notification: Int, win: Win
                $(, $request: Request)?
            );
        )*}
    };
}

/// Persistent puts or gets without a notification.
macro_rules! persistent_transfers {
    ($origin:ident, $count:ident; $($call:ident $name:literal;)*) => {
        fortran! {$(
            $call $name (
                origin_addr: $origin, origin_count: $count, origin_datatype: Datatype,
                target_rank: Int, target_disp: Displacement, target_count: $count,
                target_datatype: Datatype, win: Win, request: Request
            );
        )*}
    };
}

/// As [`persistent_transfers`], of `MPI_Accumulate`.
macro_rules! persistent_accumulates {
    ($count:ident; $($call:ident $name:literal;)*) => {
        fortran! {$(
            $call $name (
                origin_addr: Buffer, origin_count: $count, origin_datatype: Datatype,
                target_rank: Int, target_disp: Displacement, target_count: $count,
                target_datatype: Datatype, op: Reduction, win: Win, request: Request
            );
        )*}
    };
}

fortran! {
    MPIX_Win_epoch_init "mpix_win_epoch_init" (win: Win, request: Request);
    MPIX_Win_epoch_end "mpix_win_epoch_end" (win: Win);
}
persistent_transfers! { Buffer, Int; MPIX_Put_init "mpix_put_init"; }
persistent_transfers! { Buffer, Count; MPIX_Put_init_c "mpix_put_init_c"; }
persistent_transfers! { Result, Int; MPIX_Get_init "mpix_get_init"; }
persistent_transfers! { Result, Count; MPIX_Get_init_c "mpix_get_init_c"; }
persistent_accumulates! { Int; MPIX_Accumulate_init "mpix_accumulate_init"; }
persistent_accumulates! { Count; MPIX_Accumulate_init_c "mpix_accumulate_init_c"; }

transfers! { Buffer, Int;
    MPIX_Put_notify_init "mpix_put_notify_init" (request);
    MPIX_Put_notify "mpix_put_notify";
    MPIX_Rput_notify "mpix_rput_notify" (request);
    MPIX_Put_tagged "mpix_put_tagged";
    MPIX_Rput_tagged "mpix_rput_tagged" (request);
}
transfers! { Buffer, Count;
    MPIX_Put_notify_init_c "mpix_put_notify_init_c" (request);
    MPIX_Put_notify_c "mpix_put_notify_c";
    MPIX_Rput_notify_c "mpix_rput_notify_c" (request);
    MPIX_Put_tagged_c "mpix_put_tagged_c";
    MPIX_Rput_tagged_c "mpix_rput_tagged_c" (request);
}
transfers! { Result, Int;
    MPIX_Get_notify_init "mpix_get_notify_init" (request);
    MPIX_Get_notify "mpix_get_notify";
    MPIX_Rget_notify "mpix_rget_notify" (request);
    MPIX_Get_tagged "mpix_get_tagged";
    MPIX_Rget_tagged "mpix_rget_tagged" (request);
}
transfers! { Result, Count;
    MPIX_Get_notify_init_c "mpix_get_notify_init_c" (request);
    MPIX_Get_notify_c "mpix_get_notify_c";
    MPIX_Rget_notify_c "mpix_rget_notify_c" (request);
    MPIX_Get_tagged_c "mpix_get_tagged_c";
    MPIX_Rget_tagged_c "mpix_rget_tagged_c" (request);
}
accumulates! { Int;
    MPIX_Accumulate_notify_init "mpix_accumulate_notify_init" (request);
    MPIX_Accumulate_notify "mpix_accumulate_notify";
    MPIX_Raccumulate_notify "mpix_raccumulate_notify" (request);
}
accumulates! { Count;
    MPIX_Accumulate_notify_init_c "mpix_accumulate_notify_init_c" (request);
    MPIX_Accumulate_notify_c "mpix_accumulate_notify_c";
    MPIX_Raccumulate_notify_c "mpix_raccumulate_notify_c" (request);
}
get_accumulates! { Int;
    MPIX_Get_accumulate_notify "mpix_get_accumulate_notify";
    MPIX_Rget_accumulate_notify "mpix_rget_accumulate_notify" (request);
}
get_accumulates! { Count;
    MPIX_Get_accumulate_notify_c "mpix_get_accumulate_notify_c";
    MPIX_Rget_accumulate_notify_c "mpix_rget_accumulate_notify_c" (request);
}

fortran! {
    MPIX_Rfetch_and_op "mpix_rfetch_and_op" (
        origin_addr: Buffer, result_addr: Result, datatype: Datatype, target_rank: Int,
        target_disp: Displacement, op: Reduction, win: Win, request: Request);
    MPIX_Rcompare_and_swap "mpix_rcompare_and_swap" (
        origin_addr: Buffer, compare_addr: Buffer, result_addr: Result, datatype: Datatype,
        target_rank: Int, target_disp: Displacement, win: Win, request: Request);
    MPIX_Fetch_and_op_notify "mpix_fetch_and_op_notify" (
        origin_addr: Buffer, result_addr: Result, datatype: Datatype, target_rank: Int,
        target_disp: Displacement, op: Reduction, notification_idx: Int, win: Win);
    MPIX_Compare_and_swap_notify "mpix_compare_and_swap_notify" (
        origin_addr: Buffer, compare_addr: Buffer, result_addr: Result, datatype: Datatype,
        target_rank: Int, target_disp: Displacement, notification_idx: Int, win: Win);
    MPIX_Notify "mpix_notify" (target_rank: Int, notification_idx: Int, win: Win);
    MPIX_Win_set_num_notify "mpix_win_set_num_notify" (win: Win, info: Info, num: Int);
    MPIX_Win_get_num_notify "mpix_win_get_num_notify" (win: Win, rank: Int, num: IntPlace);
    MPIX_Win_get_notify_value "mpix_win_get_notify_value" (
        win: Win, notification_idx: Int, value: CountPlace);
    MPIX_Win_reset_notify_value "mpix_win_reset_notify_value" (
        win: Win, notification_idx: Int, value: CountPlace);
    MPIX_Win_notify_ithreshold "mpix_win_notify_ithreshold" (
        win: Win, notification_idx: Int, expected: Count, request: Request);
    MPIX_Win_notify_threshold "mpix_win_notify_threshold" (
        win: Win, notification_idx: Int, expected: Count);
    MPIX_Win_notify_test_threshold "mpix_win_notify_test_threshold" (
        win: Win, notification_idx: Int, expected: Count, flag: IntPlace);
    MPIX_Win_notify_iwaitsome "mpix_win_notify_iwaitsome" (
        win: Win, first: Int, num: Int, idx: IntPlace, value: CountPlace, request: Request);
    MPIX_Win_notify_iwaitall "mpix_win_notify_iwaitall" (
        win: Win, first: Int, num: Int, thresholds: Counts, values: CountPlace, request: Request);
    MPIX_Win_notify_waitsome "mpix_win_notify_waitsome" (
        win: Win, first: Int, num: Int, idx: IntPlace, value: CountPlace);
    MPIX_Win_notify_testsome "mpix_win_notify_testsome" (
        win: Win, first: Int, num: Int, idx: IntPlace, value: CountPlace, flag: IntPlace);
    MPIX_Notify_init "mpix_notify_init" (
        win: Win, source: Int, tag: Int, expected_count: Count, request: Request);
    MPIX_Notify_iprobe "mpix_notify_iprobe" (
        win: Win, source: Int, tag: Int, flag: IntPlace, status: Status);
    MPIX_Notify_probe "mpix_notify_probe" (win: Win, source: Int, tag: Int, status: Status);
}
