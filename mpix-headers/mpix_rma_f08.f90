! mpix_rma_f08: the nonblocking synchronisation calls and notified access for programs with `use mpi_f08`. What they do is told in
! mpix_rma.h and mpix_notify.h; a call that closes or flushes gives a request that is complete when the blocking call would have
! returned.
!
! Compile this file with the MPI library's Fortran wrapper, since module files fit one compiler alone, and link with the library:
!
!     mpif90 -c PREFIX/include/mpix_rma_f08.f90
!     mpif90 program.f90 mpix_rma_f08.o -LPREFIX/lib -Wl,-rpath,PREFIX/lib -lmpix_rma
!
! Origin buffers belong to the library until the request of the call that closes the epoch is complete: declare them `asynchronous`.
! Programs with mpif.h or `use mpi` need no module: the same names take integer handles, with ierror.
include "mpix_notify_f08.f90"
include "mpix_tagged_f08.f90"

module mpix_rma_f08
    use mpix_notify_f08
    use mpix_tagged_f08
    use, intrinsic :: iso_c_binding, only: c_int
    use mpi_f08, only: MPI_Group, MPI_Request, MPI_Win
    implicit none
    private

    public :: MPIX_Win_ipost
    public :: MPIX_Win_istart
    public :: MPIX_Win_icomplete
    public :: MPIX_Win_iwait
    public :: MPIX_Win_ifence
    public :: MPIX_Win_ilock
    public :: MPIX_Win_iunlock
    public :: MPIX_Win_ilock_all
    public :: MPIX_Win_iunlock_all
    public :: MPIX_Win_iflush
    public :: MPIX_Win_iflush_local
    public :: MPIX_Win_iflush_all
    public :: MPIX_Win_iflush_local_all
    public :: MPIX_Put_notify
    public :: MPIX_Get_notify
    public :: MPIX_Accumulate_notify
    public :: MPIX_Get_accumulate_notify
    public :: MPIX_Rput_notify
    public :: MPIX_Rget_notify
    public :: MPIX_Raccumulate_notify
    public :: MPIX_Rget_accumulate_notify
    public :: MPIX_Fetch_and_op_notify
    public :: MPIX_Compare_and_swap_notify
    public :: MPIX_Notify
    public :: MPIX_Win_set_num_notify
    public :: MPIX_Win_get_num_notify
    public :: MPIX_Win_get_notify_value
    public :: MPIX_Win_reset_notify_value
    public :: MPIX_Win_notify_ithreshold
    public :: MPIX_Win_notify_threshold
    public :: MPIX_Win_notify_test_threshold
    public :: MPIX_Win_notify_iwaitsome
    public :: MPIX_Win_notify_waitsome
    public :: MPIX_Win_notify_testsome
    public :: MPIX_Put_tagged
    public :: MPIX_Get_tagged
    public :: MPIX_Rput_tagged
    public :: MPIX_Rget_tagged
    public :: MPIX_Notify_init
    public :: MPIX_Notify_iprobe
    public :: MPIX_Notify_probe
    public :: MPIX_WIN_NOTIFICATION_NUM_SB
    public :: MPIX_WIN_NOTIFICATION_NUM_UB
    public :: MPIX_WIN_NOTIFICATION_VALUE_UB

    interface
        subroutine c_ipost(group, assert, win, request, ierror) bind(C, name="mpix_win_ipost_")
            import :: c_int
            integer(c_int), intent(in) :: group
            integer(c_int), intent(in) :: assert
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_istart(group, assert, win, request, ierror) bind(C, name="mpix_win_istart_")
            import :: c_int
            integer(c_int), intent(in) :: group
            integer(c_int), intent(in) :: assert
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_icomplete(win, request, ierror) bind(C, name="mpix_win_icomplete_")
            import :: c_int
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iwait(win, request, ierror) bind(C, name="mpix_win_iwait_")
            import :: c_int
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_ifence(assert, win, request, ierror) bind(C, name="mpix_win_ifence_")
            import :: c_int
            integer(c_int), intent(in) :: assert
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_ilock(lock_type, rank, assert, win, request, ierror) bind(C, name="mpix_win_ilock_")
            import :: c_int
            integer(c_int), intent(in) :: lock_type
            integer(c_int), intent(in) :: rank
            integer(c_int), intent(in) :: assert
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iunlock(rank, win, request, ierror) bind(C, name="mpix_win_iunlock_")
            import :: c_int
            integer(c_int), intent(in) :: rank
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_ilock_all(assert, win, request, ierror) bind(C, name="mpix_win_ilock_all_")
            import :: c_int
            integer(c_int), intent(in) :: assert
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iunlock_all(win, request, ierror) bind(C, name="mpix_win_iunlock_all_")
            import :: c_int
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iflush(rank, win, request, ierror) bind(C, name="mpix_win_iflush_")
            import :: c_int
            integer(c_int), intent(in) :: rank
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iflush_local(rank, win, request, ierror) bind(C, name="mpix_win_iflush_local_")
            import :: c_int
            integer(c_int), intent(in) :: rank
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iflush_all(win, request, ierror) bind(C, name="mpix_win_iflush_all_")
            import :: c_int
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iflush_local_all(win, request, ierror) bind(C, name="mpix_win_iflush_local_all_")
            import :: c_int
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
    end interface

contains

    ! Opens an exposure epoch to the processes of `group`; the request is complete.
    subroutine MPIX_Win_ipost(group, assert, win, request, ierror)
        type(MPI_Group), intent(in) :: group
        integer, intent(in) :: assert
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_ipost(int(group%MPI_VAL, c_int), int(assert, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Opens an access epoch to the processes of `group`; the request is complete.
    subroutine MPIX_Win_istart(group, assert, win, request, ierror)
        type(MPI_Group), intent(in) :: group
        integer, intent(in) :: assert
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_istart(int(group%MPI_VAL, c_int), int(assert, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Closes the access epoch.
    subroutine MPIX_Win_icomplete(win, request, ierror)
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_icomplete(int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Closes the exposure epoch.
    subroutine MPIX_Win_iwait(win, request, ierror)
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_iwait(int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Closes a fence epoch and opens the next.
    subroutine MPIX_Win_ifence(assert, win, request, ierror)
        integer, intent(in) :: assert
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_ifence(int(assert, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Opens a lock epoch; the request is complete.
    subroutine MPIX_Win_ilock(lock_type, rank, assert, win, request, ierror)
        integer, intent(in) :: lock_type
        integer, intent(in) :: rank
        integer, intent(in) :: assert
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_ilock(int(lock_type, c_int), int(rank, c_int), int(assert, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Closes a lock epoch.
    subroutine MPIX_Win_iunlock(rank, win, request, ierror)
        integer, intent(in) :: rank
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_iunlock(int(rank, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Opens a shared lock epoch to all processes; the request is complete.
    subroutine MPIX_Win_ilock_all(assert, win, request, ierror)
        integer, intent(in) :: assert
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_ilock_all(int(assert, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Closes it.
    subroutine MPIX_Win_iunlock_all(win, request, ierror)
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_iunlock_all(int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Completes the operations to `rank` that were called before, there too.
    subroutine MPIX_Win_iflush(rank, win, request, ierror)
        integer, intent(in) :: rank
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_iflush(int(rank, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! The same, here.
    subroutine MPIX_Win_iflush_local(rank, win, request, ierror)
        integer, intent(in) :: rank
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_iflush_local(int(rank, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Completes all operations that were called before, at their targets too.
    subroutine MPIX_Win_iflush_all(win, request, ierror)
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_iflush_all(int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! The same, here.
    subroutine MPIX_Win_iflush_local_all(win, request, ierror)
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_iflush_local_all(int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine
end module mpix_rma_f08
