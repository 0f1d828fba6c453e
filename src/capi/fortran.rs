//! The calls of `MPIX_*` for Fortran: every argument by address, handles as integers, an error code
//! at the end. Programs with `mpif.h` or `use mpi` call these names; the module `mpix_rma_f08`
//! (mpix-headers) gives them the types of `mpi_f08`.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use super::notify::*;
use super::tagged::*;
use super::*;
use crate::mpi::rma::communication::*;

/// Fortran's default integer, as the hosts are built.
type Fint = c_int;

/// From Fortran's handle to the host's, and back.
#[cfg(mpi_host = "mpich")]
mod handles {
    use super::*;

    // MPICH's handles are the same numbers in both languages.
    macro_rules! same {
        ($($name:ident: $type:ty;)*) => {$(
            pub(super) unsafe fn $name(handle: Fint) -> $type {
                handle
            }
        )*};
    }
    same! {
        window: MPI_Win;
        group: MPI_Group;
        datatype: MPI_Datatype;
        op: MPI_Op;
        info: MPI_Info;
        request: MPI_Request;
    }
}

/// From Fortran's handle to the host's, and back.
#[cfg(mpi_host = "openmpi")]
mod handles {
    use super::*;

    macro_rules! converted {
        ($($name:ident($from:ty) -> $to:ty = $host:ident;)*) => {$(
            pub(super) unsafe fn $name(handle: $from) -> $to {
                // SAFETY: the host accepts any integer: it converts an invalid one to an invalid
                // handle.
                unsafe { $host(handle) }
            }
        )*};
    }
    converted! {
        window(Fint) -> MPI_Win = PMPI_Win_f2c;
        group(Fint) -> MPI_Group = PMPI_Group_f2c;
        datatype(Fint) -> MPI_Datatype = PMPI_Type_f2c;
        op(Fint) -> MPI_Op = PMPI_Op_f2c;
        info(Fint) -> MPI_Info = PMPI_Info_f2c;
        request(MPI_Request) -> Fint = PMPI_Request_c2f;
    }
}

/// An argument on its way from Fortran to C, and back where it is a result.
trait Argument {
    /// What Fortran gives: an address.
    type Place: Copy;
    /// What the C call takes.
    type C;

    /// # Safety
    /// The place is that of such an argument.
    unsafe fn enter(place: Self::Place) -> Self;

    fn pass(&mut self) -> Self::C;

    /// After a call that has succeeded.
    ///
    /// # Safety
    /// As for `enter`.
    unsafe fn leave(self)
    where
        Self: Sized,
    {
    }
}

/// Arguments that are read where Fortran has them.
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

/// Arguments whose addresses are the C call's own: buffers, and numbers that are written.
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
    Result: *mut c_void;
    // Also a logical that is written: the hosts and gfortran have 1 and 0, too.
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

/// A status that the call fills, or one that is ignored. In Fortran it has the bytes of C's, which
/// may lie at any integer.
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

/// True of Fortran's `MPI_STATUS_IGNORE`, in whichever way the host has it: a variable of a known
/// name, or where one of these leads.
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

/// Exports a call of Fortran under the names that compilers make of it.
macro_rules! fortran {
    ($($call:ident $name:literal $bare:literal ($($arg:ident: $kind:ident),*);)*) => {$(
        const _: () = {
            /// # Safety
            /// As Fortran calls it: each argument is there, but for an error code that is not
            /// wanted.
            #[inline(always)]
            #[allow(clippy::too_many_arguments, reason = "those of the call")]
            unsafe fn body($($arg: <$kind as Argument>::Place,)* ierror: *mut Fint) {
                // SAFETY: each argument is as its `Argument` wants it, and `ierror` is NULL or an
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
            #[unsafe(export_name = $name)]
            #[allow(clippy::too_many_arguments, reason = "those of the call")]
            unsafe extern "C" fn underscored(
                $($arg: <$kind as Argument>::Place,)*
                ierror: *mut Fint,
            ) {
                // SAFETY: the arguments of the application's call.
                unsafe { body($($arg,)* ierror) }
            }
            #[unsafe(export_name = $bare)]
            #[allow(clippy::too_many_arguments, reason = "those of the call")]
            unsafe extern "C" fn bare($($arg: <$kind as Argument>::Place,)* ierror: *mut Fint) {
                // SAFETY: the arguments of the application's call.
                unsafe { body($($arg,)* ierror) }
            }
        };
    )*};
}

fortran! {
    MPIX_Win_ipost "mpix_win_ipost_" "mpix_win_ipost" (
        members: Group, assert: Int, win: Win, request: Request);
    MPIX_Win_istart "mpix_win_istart_" "mpix_win_istart" (
        members: Group, assert: Int, win: Win, request: Request);
    MPIX_Win_icomplete "mpix_win_icomplete_" "mpix_win_icomplete" (win: Win, request: Request);
    MPIX_Win_iwait "mpix_win_iwait_" "mpix_win_iwait" (win: Win, request: Request);
    MPIX_Win_ifence "mpix_win_ifence_" "mpix_win_ifence" (assert: Int, win: Win, request: Request);
    MPIX_Win_ilock "mpix_win_ilock_" "mpix_win_ilock" (
        lock_type: Int, rank: Int, assert: Int, win: Win, request: Request);
    MPIX_Win_iunlock "mpix_win_iunlock_" "mpix_win_iunlock" (rank: Int, win: Win, request: Request);
    MPIX_Win_ilock_all "mpix_win_ilock_all_" "mpix_win_ilock_all" (
        assert: Int, win: Win, request: Request);
    MPIX_Win_iunlock_all "mpix_win_iunlock_all_" "mpix_win_iunlock_all" (
        win: Win, request: Request);
    MPIX_Win_iflush "mpix_win_iflush_" "mpix_win_iflush" (rank: Int, win: Win, request: Request);
    MPIX_Win_iflush_local "mpix_win_iflush_local_" "mpix_win_iflush_local" (
        rank: Int, win: Win, request: Request);
    MPIX_Win_iflush_all "mpix_win_iflush_all_" "mpix_win_iflush_all" (win: Win, request: Request);
    MPIX_Win_iflush_local_all "mpix_win_iflush_local_all_" "mpix_win_iflush_local_all" (
        win: Win, request: Request);
}

fortran! {
    MPIX_Put_notify "mpix_put_notify_" "mpix_put_notify" (
        origin_addr: Buffer, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, notification_idx:
        Int, win: Win);
    MPIX_Get_notify "mpix_get_notify_" "mpix_get_notify" (
        origin_addr: Result, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, notification_idx:
        Int, win: Win);
    MPIX_Accumulate_notify "mpix_accumulate_notify_" "mpix_accumulate_notify" (
        origin_addr: Buffer, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, op: Reduction,
        notification_idx: Int, win: Win);
    MPIX_Get_accumulate_notify "mpix_get_accumulate_notify_" "mpix_get_accumulate_notify" (
        origin_addr: Buffer, origin_count: Int, origin_datatype: Datatype, result_addr: Result,
        result_count: Int, result_datatype: Datatype, target_rank: Int, target_disp: Displacement,
        target_count: Int, target_datatype: Datatype, op: Reduction, notification_idx: Int, win:
        Win);
    MPIX_Rput_notify "mpix_rput_notify_" "mpix_rput_notify" (
        origin_addr: Buffer, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, notification_idx:
        Int, win: Win, request: Request);
    MPIX_Rget_notify "mpix_rget_notify_" "mpix_rget_notify" (
        origin_addr: Result, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, notification_idx:
        Int, win: Win, request: Request);
    MPIX_Raccumulate_notify "mpix_raccumulate_notify_" "mpix_raccumulate_notify" (
        origin_addr: Buffer, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, op: Reduction,
        notification_idx: Int, win: Win, request: Request);
    MPIX_Rget_accumulate_notify "mpix_rget_accumulate_notify_" "mpix_rget_accumulate_notify" (
        origin_addr: Buffer, origin_count: Int, origin_datatype: Datatype, result_addr: Result,
        result_count: Int, result_datatype: Datatype, target_rank: Int, target_disp: Displacement,
        target_count: Int, target_datatype: Datatype, op: Reduction, notification_idx: Int, win:
        Win, request: Request);
    MPIX_Fetch_and_op_notify "mpix_fetch_and_op_notify_" "mpix_fetch_and_op_notify" (
        origin_addr: Buffer, result_addr: Result, datatype: Datatype, target_rank: Int, target_disp:
        Displacement, op: Reduction, notification_idx: Int, win: Win);
    MPIX_Compare_and_swap_notify "mpix_compare_and_swap_notify_" "mpix_compare_and_swap_notify" (
        origin_addr: Buffer, compare_addr: Buffer, result_addr: Result, datatype: Datatype,
        target_rank: Int, target_disp: Displacement, notification_idx: Int, win: Win);
    MPIX_Notify "mpix_notify_" "mpix_notify" (target_rank: Int, notification_idx: Int, win: Win);
    MPIX_Win_set_num_notify "mpix_win_set_num_notify_" "mpix_win_set_num_notify" (
        win: Win, info: Info, num: Int);
    MPIX_Win_get_num_notify "mpix_win_get_num_notify_" "mpix_win_get_num_notify" (
        win: Win, rank: Int, num: IntPlace);
    MPIX_Win_get_notify_value "mpix_win_get_notify_value_" "mpix_win_get_notify_value" (
        win: Win, notification_idx: Int, value: CountPlace);
    MPIX_Win_reset_notify_value "mpix_win_reset_notify_value_" "mpix_win_reset_notify_value" (
        win: Win, notification_idx: Int, value: CountPlace);
    MPIX_Win_notify_ithreshold "mpix_win_notify_ithreshold_" "mpix_win_notify_ithreshold" (
        win: Win, notification_idx: Int, expected: Count, request: Request);
    MPIX_Win_notify_threshold "mpix_win_notify_threshold_" "mpix_win_notify_threshold" (
        win: Win, notification_idx: Int, expected: Count);
    MPIX_Win_notify_test_threshold
        "mpix_win_notify_test_threshold_" "mpix_win_notify_test_threshold" (
        win: Win, notification_idx: Int, expected: Count, flag: IntPlace);
    MPIX_Win_notify_iwaitsome "mpix_win_notify_iwaitsome_" "mpix_win_notify_iwaitsome" (
        win: Win, first: Int, num: Int, idx: IntPlace, value: CountPlace, request: Request);
    MPIX_Win_notify_waitsome "mpix_win_notify_waitsome_" "mpix_win_notify_waitsome" (
        win: Win, first: Int, num: Int, idx: IntPlace, value: CountPlace);
    MPIX_Win_notify_testsome "mpix_win_notify_testsome_" "mpix_win_notify_testsome" (
        win: Win, first: Int, num: Int, idx: IntPlace, value: CountPlace, flag: IntPlace);
}

fortran! {
    MPIX_Put_notify_c "mpix_put_notify_c_" "mpix_put_notify_c" (
        origin_addr: Buffer, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, notification_idx:
        Int, win: Win);
    MPIX_Get_notify_c "mpix_get_notify_c_" "mpix_get_notify_c" (
        origin_addr: Result, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, notification_idx:
        Int, win: Win);
    MPIX_Rput_notify_c "mpix_rput_notify_c_" "mpix_rput_notify_c" (
        origin_addr: Buffer, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, notification_idx:
        Int, win: Win, request: Request);
    MPIX_Rget_notify_c "mpix_rget_notify_c_" "mpix_rget_notify_c" (
        origin_addr: Result, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, notification_idx:
        Int, win: Win, request: Request);
    MPIX_Accumulate_notify_c "mpix_accumulate_notify_c_" "mpix_accumulate_notify_c" (
        origin_addr: Buffer, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, op: Reduction,
        notification_idx: Int, win: Win);
    MPIX_Raccumulate_notify_c "mpix_raccumulate_notify_c_" "mpix_raccumulate_notify_c" (
        origin_addr: Buffer, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, op: Reduction,
        notification_idx: Int, win: Win, request: Request);
    MPIX_Get_accumulate_notify_c "mpix_get_accumulate_notify_c_" "mpix_get_accumulate_notify_c" (
        origin_addr: Buffer, origin_count: Count, origin_datatype: Datatype, result_addr: Result,
        result_count: Count, result_datatype: Datatype, target_rank: Int, target_disp: Displacement,
        target_count: Count, target_datatype: Datatype, op: Reduction, notification_idx: Int, win:
        Win);
    MPIX_Rget_accumulate_notify_c "mpix_rget_accumulate_notify_c_" "mpix_rget_accumulate_notify_c" (
        origin_addr: Buffer, origin_count: Count, origin_datatype: Datatype, result_addr: Result,
        result_count: Count, result_datatype: Datatype, target_rank: Int, target_disp: Displacement,
        target_count: Count, target_datatype: Datatype, op: Reduction, notification_idx: Int, win:
        Win, request: Request);
    MPIX_Put_tagged "mpix_put_tagged_" "mpix_put_tagged" (
        origin_addr: Buffer, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, tag: Int, win:
        Win);
    MPIX_Get_tagged "mpix_get_tagged_" "mpix_get_tagged" (
        origin_addr: Result, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, tag: Int, win:
        Win);
    MPIX_Rput_tagged "mpix_rput_tagged_" "mpix_rput_tagged" (
        origin_addr: Buffer, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, tag: Int, win: Win,
        request: Request);
    MPIX_Rget_tagged "mpix_rget_tagged_" "mpix_rget_tagged" (
        origin_addr: Result, origin_count: Int, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Int, target_datatype: Datatype, tag: Int, win: Win,
        request: Request);
    MPIX_Put_tagged_c "mpix_put_tagged_c_" "mpix_put_tagged_c" (
        origin_addr: Buffer, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, tag: Int, win:
        Win);
    MPIX_Get_tagged_c "mpix_get_tagged_c_" "mpix_get_tagged_c" (
        origin_addr: Result, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, tag: Int, win:
        Win);
    MPIX_Rput_tagged_c "mpix_rput_tagged_c_" "mpix_rput_tagged_c" (
        origin_addr: Buffer, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, tag: Int, win:
        Win, request: Request);
    MPIX_Rget_tagged_c "mpix_rget_tagged_c_" "mpix_rget_tagged_c" (
        origin_addr: Result, origin_count: Count, origin_datatype: Datatype, target_rank: Int,
        target_disp: Displacement, target_count: Count, target_datatype: Datatype, tag: Int, win:
        Win, request: Request);
    MPIX_Notify_init "mpix_notify_init_" "mpix_notify_init" (
        win: Win, source: Int, tag: Int, expected_count: Count, request: Request);
    MPIX_Notify_iprobe "mpix_notify_iprobe_" "mpix_notify_iprobe" (
        win: Win, source: Int, tag: Int, flag: IntPlace, status: Status);
    MPIX_Notify_probe "mpix_notify_probe_" "mpix_notify_probe" (
        win: Win, source: Int, tag: Int, status: Status);
}
