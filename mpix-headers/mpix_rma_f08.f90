! mpix_rma_f08: nonblocking synchronization calls and notified access for `use mpi_f08`. mpix_rma.h
! and mpix_notify.h document the calls. A call that closes or flushes returns a request that
! completes when the blocking call would have returned.
!
! Module files work with one compiler only. Compile this file with the Fortran wrapper of your MPI
! library, and link with the library:
!
!     mpif90 -c PREFIX/include/mpix_rma_f08.f90
!     mpif90 program.f90 mpix_rma_f08.o -LPREFIX/lib -Wl,-rpath,PREFIX/lib -lmpix_rma
!
! Declare origin buffers `asynchronous`: they belong to the library until the closing request
! completes. With mpif.h or `use mpi`, no module is needed: the same names take integer handles and
! ierror.
include "mpix_atomic_f08.f90"
include "mpix_notify_f08.f90"
include "mpix_tagged_f08.f90"
include "mpix_persistent_f08.f90"

module mpix_rma_f08
    use mpix_atomic_f08
    use mpix_notify_f08
    use mpix_tagged_f08
    use mpix_persistent_f08
    use, intrinsic :: iso_c_binding, only: c_int
    use mpi_f08, only: MPI_Group, MPI_Info, MPI_Request, MPI_Win
    implicit none
    private

    public :: MPIX_Win_ipost, MPIX_Win_istart, MPIX_Win_icomplete, MPIX_Win_iwait, &
        MPIX_Win_ifence, MPIX_Win_ilock, MPIX_Win_iunlock, MPIX_Win_ilock_all, &
        MPIX_Win_iunlock_all, MPIX_Win_iflush, MPIX_Win_iflush_local, MPIX_Win_iflush_all, &
        MPIX_Win_iflush_local_all, MPIX_Win_iflush_wins, MPIX_Win_flush_wins, MPIX_RANK_ALL, &
        MPIX_Win_order, MPIX_Win_order_all, MPIX_Win_dup, MPIX_Put_notify, &
        MPIX_Get_notify, MPIX_Accumulate_notify, &
        MPIX_Get_accumulate_notify, MPIX_Rput_notify, MPIX_Rget_notify, MPIX_Raccumulate_notify, &
        MPIX_Rget_accumulate_notify, MPIX_Fetch_and_op_notify, MPIX_Compare_and_swap_notify, &
        MPIX_Notify, MPIX_Win_set_num_notify, MPIX_Win_get_num_notify, MPIX_Win_get_notify_value, &
        MPIX_Win_reset_notify_value, MPIX_Win_notify_ithreshold, MPIX_Win_notify_threshold, &
        MPIX_Win_notify_test_threshold, MPIX_Win_notify_iwaitsome, MPIX_Win_notify_waitsome, &
        MPIX_Win_notify_testsome, MPIX_Win_notify_iwaitall, MPIX_Put_tagged, MPIX_Get_tagged, &
        MPIX_Rput_tagged, MPIX_Rget_tagged, MPIX_Notify_init, MPIX_Notify_iprobe, MPIX_Notify_probe, &
        MPIX_WIN_NOTIFICATION_NUM_SB, MPIX_WIN_NOTIFICATION_NUM_UB, MPIX_WIN_NOTIFICATION_VALUE_UB
    public :: MPIX_Rfetch_and_op, MPIX_Rcompare_and_swap
    public :: MPIX_Win_epoch_init, MPIX_Win_epoch_end, MPIX_Put_init, MPIX_Get_init, &
        MPIX_Accumulate_init, MPIX_Put_notify_init, MPIX_Get_notify_init, &
        MPIX_Accumulate_notify_init

    ! Flushes towards all processes of each window.
    integer, parameter :: MPIX_RANK_ALL = -32700

    interface
        subroutine c_ipost(group, assert, win, request, ierror) bind(C, name="mpix_win_ipost_")
            import :: c_int
            integer(c_int), intent(in) :: group, assert, win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_istart(group, assert, win, request, ierror) bind(C, name="mpix_win_istart_")
            import :: c_int
            integer(c_int), intent(in) :: group, assert, win
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
            integer(c_int), intent(in) :: assert, win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_ilock(lock_type, rank, assert, win, request, ierror) bind(C, &
            name="mpix_win_ilock_")
            import :: c_int
            integer(c_int), intent(in) :: lock_type, rank, assert, win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iunlock(rank, win, request, ierror) bind(C, name="mpix_win_iunlock_")
            import :: c_int
            integer(c_int), intent(in) :: rank, win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_ilock_all(assert, win, request, ierror) bind(C, name="mpix_win_ilock_all_")
            import :: c_int
            integer(c_int), intent(in) :: assert, win
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
            integer(c_int), intent(in) :: rank, win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iflush_local(rank, win, request, ierror) bind(C, name="mpix_win_iflush_local_")
            import :: c_int
            integer(c_int), intent(in) :: rank, win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iflush_all(win, request, ierror) bind(C, name="mpix_win_iflush_all_")
            import :: c_int
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iflush_wins(n, wins, rank, request, ierror) bind(C, &
            name="mpix_win_iflush_wins_")
            import :: c_int
            integer(c_int), intent(in) :: n, wins(*), rank
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_flush_wins(n, wins, rank, ierror) bind(C, name="mpix_win_flush_wins_")
            import :: c_int
            integer(c_int), intent(in) :: n, wins(*), rank
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_order(rank, win, ierror) bind(C, name="mpix_win_order_")
            import :: c_int
            integer(c_int), intent(in) :: rank, win
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_order_all(win, ierror) bind(C, name="mpix_win_order_all_")
            import :: c_int
            integer(c_int), intent(in) :: win
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_dup(win, info, newwin, ierror) bind(C, name="mpix_win_dup_")
            import :: c_int
            integer(c_int), intent(in) :: win, info
            integer(c_int), intent(inout) :: newwin
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_iflush_local_all(win, request, ierror) bind(C, &
            name="mpix_win_iflush_local_all_")
            import :: c_int
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
    end interface

contains

    ! Opens an exposure epoch to the processes of `group`; the request is complete at once.
    subroutine MPIX_Win_ipost(group, assert, win, request, ierror)
        type(MPI_Group), intent(in) :: group
        integer, intent(in) :: assert
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_ipost(int(group%MPI_VAL, c_int), int(assert, c_int), int(win%MPI_VAL, c_int), &
            handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Opens an access epoch to the processes of `group`; the request is complete at once.
    subroutine MPIX_Win_istart(group, assert, win, request, ierror)
        type(MPI_Group), intent(in) :: group
        integer, intent(in) :: assert
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_istart(int(group%MPI_VAL, c_int), int(assert, c_int), int(win%MPI_VAL, c_int), &
            handle, code)
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

    ! Opens a lock epoch; the request is complete at once.
    subroutine MPIX_Win_ilock(lock_type, rank, assert, win, request, ierror)
        integer, intent(in) :: lock_type, rank, assert
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_ilock(int(lock_type, c_int), int(rank, c_int), int(assert, c_int), int(win%MPI_VAL, &
            c_int), handle, code)
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

    ! Opens a shared lock epoch on all processes; the request is complete at once.
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

    ! Closes the lock_all epoch.
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

    ! Completes earlier operations towards `rank`, at origin and target.
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

    ! The same, at the origin only.
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

    ! Completes all earlier operations, at origin and targets.
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

    ! The same, at the origin only.
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

    ! Completes all earlier operations to `rank` on `n` windows, at origin and target.
    subroutine MPIX_Win_iflush_wins(n, wins, rank, request, ierror)
        integer, intent(in) :: n, rank
        type(MPI_Win), intent(in) :: wins(*)
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_iflush_wins(int(n, c_int), int(wins(1:n)%MPI_VAL, c_int), int(rank, c_int), &
            handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! The same, and waits for it.
    subroutine MPIX_Win_flush_wins(n, wins, rank, ierror)
        integer, intent(in) :: n, rank
        type(MPI_Win), intent(in) :: wins(*)
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_flush_wins(int(n, c_int), int(wins(1:n)%MPI_VAL, c_int), int(rank, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Has later operations to a target take effect after earlier ones; waits for nothing.
    subroutine MPIX_Win_order(rank, win, ierror)
        integer, intent(in) :: rank
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_order(int(rank, c_int), int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! The same for each target, separately.
    subroutine MPIX_Win_order_all(win, ierror)
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_order_all(int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Makes another handle of a window, whose operations complete apart. Local.
    subroutine MPIX_Win_dup(win, info, newwin, ierror)
        type(MPI_Win), intent(in) :: win
        type(MPI_Info), intent(in) :: info
        type(MPI_Win), intent(inout) :: newwin
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(newwin%MPI_VAL, c_int)
        call c_dup(int(win%MPI_VAL, c_int), int(info%MPI_VAL, c_int), handle, code)
        newwin%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine
end module mpix_rma_f08
