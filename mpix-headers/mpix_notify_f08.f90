! mpix_notify_f08: notification counters for `use mpi_f08`. mpix_notify.h documents the calls. Use
! the module mpix_rma_f08, which includes this one and exports its names. The counts of one call are
! either all default integers or all of kind MPI_COUNT_KIND.
!
! Buffers must be contiguous, and not MPI_BOTTOM. They belong to the library like those of plain
! operations: declare them `asynchronous`. The same holds for `idx` and `value` of
! MPIX_Win_notify_iwaitsome, and `values` of MPIX_Win_notify_iwaitall, until their requests complete.
module mpix_notify_f08
    use, intrinsic :: iso_c_binding, only: c_int, c_loc, c_ptr
    use mpi_f08, only: MPI_ADDRESS_KIND, MPI_COUNT_KIND, MPI_Datatype, MPI_Info, MPI_Op, &
        MPI_Request, MPI_Win
    implicit none
    private

    public :: MPIX_Put_notify, MPIX_Get_notify, MPIX_Accumulate_notify, &
        MPIX_Get_accumulate_notify, MPIX_Rput_notify, MPIX_Rget_notify, MPIX_Raccumulate_notify, &
        MPIX_Rget_accumulate_notify, MPIX_Fetch_and_op_notify, MPIX_Compare_and_swap_notify, &
        MPIX_Notify, MPIX_Win_set_num_notify, MPIX_Win_get_num_notify, MPIX_Win_get_notify_value, &
        MPIX_Win_reset_notify_value, MPIX_Win_notify_ithreshold, MPIX_Win_notify_threshold, &
        MPIX_Win_notify_test_threshold, MPIX_Win_notify_iwaitsome, MPIX_Win_notify_waitsome, &
        MPIX_Win_notify_testsome, MPIX_Win_notify_iwaitall

    ! Attributes of windows, for MPI_Win_get_attr.
    integer, parameter, public :: MPIX_WIN_NOTIFICATION_NUM_SB = -7301
    integer, parameter, public :: MPIX_WIN_NOTIFICATION_NUM_UB = -7302
    integer, parameter, public :: MPIX_WIN_NOTIFICATION_VALUE_UB = -7303

    interface MPIX_Put_notify
        module procedure put_notify, put_notify_c
    end interface
    interface MPIX_Get_notify
        module procedure get_notify, get_notify_c
    end interface
    interface MPIX_Accumulate_notify
        module procedure accumulate_notify, accumulate_notify_c
    end interface
    interface MPIX_Get_accumulate_notify
        module procedure get_accumulate_notify, get_accumulate_notify_c
    end interface
    interface MPIX_Rput_notify
        module procedure rput_notify, rput_notify_c
    end interface
    interface MPIX_Rget_notify
        module procedure rget_notify, rget_notify_c
    end interface
    interface MPIX_Raccumulate_notify
        module procedure raccumulate_notify, raccumulate_notify_c
    end interface
    interface MPIX_Rget_accumulate_notify
        module procedure rget_accumulate_notify, rget_accumulate_notify_c
    end interface

    ! With large counts.
    abstract interface
        subroutine c_transfer(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, notification_idx, win, ierror) bind(C)
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, &
                notification_idx, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_transfer_request(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, notification_idx, win, request, ierror) &
            bind(C)
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, &
                notification_idx, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
    end interface
    procedure(c_transfer), bind(C, name="mpix_put_notify_c_") :: c_put_notify_c
    procedure(c_transfer), bind(C, name="mpix_get_notify_c_") :: c_get_notify_c
    procedure(c_transfer_request), bind(C, name="mpix_rput_notify_c_") :: c_rput_notify_c
    procedure(c_transfer_request), bind(C, name="mpix_rget_notify_c_") :: c_rget_notify_c

    interface
        subroutine c_accumulate_notify_c(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, op, notification_idx, win, ierror) bind(C, &
            name="mpix_accumulate_notify_c_")
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, op, &
                notification_idx, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_get_accumulate_notify_c(origin_addr, origin_count, origin_datatype, &
            result_addr, result_count, result_datatype, target_rank, target_disp, target_count, &
            target_datatype, op, notification_idx, win, ierror) bind(C, &
            name="mpix_get_accumulate_notify_c_")
            import
            type(c_ptr), value :: origin_addr, result_addr
            integer(c_int), intent(in) :: origin_datatype, result_datatype, target_rank, &
                target_datatype, op, notification_idx, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, result_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_raccumulate_notify_c(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, op, notification_idx, win, request, &
            ierror) bind(C, name="mpix_raccumulate_notify_c_")
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, op, &
                notification_idx, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_rget_accumulate_notify_c(origin_addr, origin_count, origin_datatype, &
            result_addr, result_count, result_datatype, target_rank, target_disp, target_count, &
            target_datatype, op, notification_idx, win, request, ierror) bind(C, &
            name="mpix_rget_accumulate_notify_c_")
            import
            type(c_ptr), value :: origin_addr, result_addr
            integer(c_int), intent(in) :: origin_datatype, result_datatype, target_rank, &
                target_datatype, op, notification_idx, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, result_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_fetch_and_op_notify(origin_addr, result_addr, datatype, target_rank, &
            target_disp, op, notification_idx, win, ierror) bind(C, &
            name="mpix_fetch_and_op_notify_")
            import
            type(c_ptr), value :: origin_addr, result_addr
            integer(c_int), intent(in) :: datatype, target_rank, op, notification_idx, win
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_compare_and_swap_notify(origin_addr, compare_addr, result_addr, datatype, &
            target_rank, target_disp, notification_idx, win, ierror) bind(C, &
            name="mpix_compare_and_swap_notify_")
            import
            type(c_ptr), value :: origin_addr, compare_addr, result_addr
            integer(c_int), intent(in) :: datatype, target_rank, notification_idx, win
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_notify(target_rank, notification_idx, win, ierror) bind(C, name="mpix_notify_")
            import
            integer(c_int), intent(in) :: target_rank, notification_idx, win
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_set_num_notify(win, info, num, ierror) bind(C, &
            name="mpix_win_set_num_notify_")
            import
            integer(c_int), intent(in) :: win, info, num
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_get_num_notify(win, rank, num, ierror) bind(C, &
            name="mpix_win_get_num_notify_")
            import
            integer(c_int), intent(in) :: win, rank
            integer(c_int), asynchronous :: num
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_get_notify_value(win, notification_idx, value, ierror) &
            bind(C, name="mpix_win_get_notify_value_")
            import
            integer(c_int), intent(in) :: win, notification_idx
            integer(MPI_COUNT_KIND), asynchronous :: value
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_reset_notify_value(win, notification_idx, value, ierror) &
            bind(C, name="mpix_win_reset_notify_value_")
            import
            integer(c_int), intent(in) :: win, notification_idx
            integer(MPI_COUNT_KIND), asynchronous :: value
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_notify_ithreshold(win, notification_idx, expected, request, ierror) &
            bind(C, name="mpix_win_notify_ithreshold_")
            import
            integer(c_int), intent(in) :: win, notification_idx
            integer(MPI_COUNT_KIND), intent(in) :: expected
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_notify_threshold(win, notification_idx, expected, ierror) &
            bind(C, name="mpix_win_notify_threshold_")
            import
            integer(c_int), intent(in) :: win, notification_idx
            integer(MPI_COUNT_KIND), intent(in) :: expected
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_notify_test_threshold(win, notification_idx, expected, flag, ierror) &
            bind(C, name="mpix_win_notify_test_threshold_")
            import
            integer(c_int), intent(in) :: win, notification_idx
            integer(MPI_COUNT_KIND), intent(in) :: expected
            integer(c_int), asynchronous :: flag
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_notify_iwaitsome(win, first, num, idx, value, request, ierror) &
            bind(C, name="mpix_win_notify_iwaitsome_")
            import
            integer(c_int), intent(in) :: win, first, num
            integer(c_int), asynchronous :: idx
            integer(MPI_COUNT_KIND), asynchronous :: value
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_notify_iwaitall(win, first, num, thresholds, values, request, ierror) &
            bind(C, name="mpix_win_notify_iwaitall_")
            import
            integer(c_int), intent(in) :: win, first, num
            integer(MPI_COUNT_KIND), intent(in) :: thresholds(*)
            integer(MPI_COUNT_KIND), asynchronous :: values(*)
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_notify_waitsome(win, first, num, idx, value, ierror) &
            bind(C, name="mpix_win_notify_waitsome_")
            import
            integer(c_int), intent(in) :: win, first, num
            integer(c_int), asynchronous :: idx
            integer(MPI_COUNT_KIND), asynchronous :: value
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_win_notify_testsome(win, first, num, idx, value, flag, ierror) &
            bind(C, name="mpix_win_notify_testsome_")
            import
            integer(c_int), intent(in) :: win, first, num
            integer(c_int), asynchronous :: idx, flag
            integer(MPI_COUNT_KIND), asynchronous :: value
            integer(c_int), intent(out) :: ierror
        end subroutine
    end interface

contains

    ! Puts data, then raises a counter of the target.
    subroutine put_notify(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        call put_notify_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, &
            notification_idx, win, ierror)
    end subroutine

    subroutine put_notify_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_put_notify_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, c_int), &
            int(target_rank, c_int), target_disp, target_count, int(target_datatype%MPI_VAL, &
            c_int), int(notification_idx, c_int), int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Gets data, then raises a counter of the target.
    subroutine get_notify(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        call get_notify_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, &
            notification_idx, win, ierror)
    end subroutine

    subroutine get_notify_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_get_notify_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, c_int), &
            int(target_rank, c_int), target_disp, target_count, int(target_datatype%MPI_VAL, &
            c_int), int(notification_idx, c_int), int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Reduces data into the target, then raises a counter of it.
    subroutine accumulate_notify(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, op, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        call accumulate_notify_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, op, &
            notification_idx, win, ierror)
    end subroutine

    subroutine accumulate_notify_c(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, op, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_accumulate_notify_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, &
            c_int), int(target_rank, c_int), target_disp, target_count, &
            int(target_datatype%MPI_VAL, c_int), int(op%MPI_VAL, c_int), int(notification_idx, &
            c_int), int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Fetches data and reduces ours into the target, then raises a counter of it.
    subroutine get_accumulate_notify(origin_addr, origin_count, origin_datatype, result_addr, &
        result_count, result_datatype, target_rank, target_disp, target_count, target_datatype, &
        op, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        type(*), dimension(..), target, asynchronous :: result_addr
        integer, intent(in) :: origin_count, result_count, target_rank, target_count, &
            notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, result_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        call get_accumulate_notify_c(origin_addr, int(origin_count, MPI_COUNT_KIND), &
            origin_datatype, result_addr, int(result_count, MPI_COUNT_KIND), result_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, op, &
            notification_idx, win, ierror)
    end subroutine

    subroutine get_accumulate_notify_c(origin_addr, origin_count, origin_datatype, result_addr, &
        result_count, result_datatype, target_rank, target_disp, target_count, target_datatype, &
        op, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        type(*), dimension(..), target, asynchronous :: result_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, result_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, result_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_get_accumulate_notify_c(c_loc(origin_addr), origin_count, &
            int(origin_datatype%MPI_VAL, c_int), c_loc(result_addr), result_count, &
            int(result_datatype%MPI_VAL, c_int), int(target_rank, c_int), target_disp, &
            target_count, int(target_datatype%MPI_VAL, c_int), int(op%MPI_VAL, c_int), &
            int(notification_idx, c_int), int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! The same, with a request for the data.
    subroutine rput_notify(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call rput_notify_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, &
            notification_idx, win, request, ierror)
    end subroutine

    subroutine rput_notify_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_rput_notify_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, &
            c_int), int(target_rank, c_int), target_disp, target_count, &
            int(target_datatype%MPI_VAL, c_int), int(notification_idx, c_int), int(win%MPI_VAL, &
            c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    subroutine rget_notify(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call rget_notify_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, &
            notification_idx, win, request, ierror)
    end subroutine

    subroutine rget_notify_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_rget_notify_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, &
            c_int), int(target_rank, c_int), target_disp, target_count, &
            int(target_datatype%MPI_VAL, c_int), int(notification_idx, c_int), int(win%MPI_VAL, &
            c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    subroutine raccumulate_notify(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, op, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call raccumulate_notify_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, op, &
            notification_idx, win, request, ierror)
    end subroutine

    subroutine raccumulate_notify_c(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, op, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_raccumulate_notify_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, &
            c_int), int(target_rank, c_int), target_disp, target_count, &
            int(target_datatype%MPI_VAL, c_int), int(op%MPI_VAL, c_int), int(notification_idx, &
            c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    subroutine rget_accumulate_notify(origin_addr, origin_count, origin_datatype, result_addr, &
        result_count, result_datatype, target_rank, target_disp, target_count, target_datatype, &
        op, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        type(*), dimension(..), target, asynchronous :: result_addr
        integer, intent(in) :: origin_count, result_count, target_rank, target_count, &
            notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, result_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call rget_accumulate_notify_c(origin_addr, int(origin_count, MPI_COUNT_KIND), &
            origin_datatype, result_addr, int(result_count, MPI_COUNT_KIND), result_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, op, &
            notification_idx, win, request, ierror)
    end subroutine

    subroutine rget_accumulate_notify_c(origin_addr, origin_count, origin_datatype, result_addr, &
        result_count, result_datatype, target_rank, target_disp, target_count, target_datatype, &
        op, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        type(*), dimension(..), target, asynchronous :: result_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, result_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, result_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_rget_accumulate_notify_c(c_loc(origin_addr), origin_count, &
            int(origin_datatype%MPI_VAL, c_int), c_loc(result_addr), result_count, &
            int(result_datatype%MPI_VAL, c_int), int(target_rank, c_int), target_disp, &
            target_count, int(target_datatype%MPI_VAL, c_int), int(op%MPI_VAL, c_int), &
            int(notification_idx, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Fetches one element and reduces ours into it, then raises a counter of the target.
    subroutine MPIX_Fetch_and_op_notify(origin_addr, result_addr, datatype, target_rank, &
        target_disp, op, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        type(*), dimension(..), target, asynchronous :: result_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_fetch_and_op_notify(c_loc(origin_addr), c_loc(result_addr), int(datatype%MPI_VAL, &
            c_int), int(target_rank, c_int), target_disp, int(op%MPI_VAL, c_int), &
            int(notification_idx, c_int), int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Compares and swaps one element, then raises a counter of the target.
    subroutine MPIX_Compare_and_swap_notify(origin_addr, compare_addr, result_addr, datatype, &
        target_rank, target_disp, notification_idx, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr, compare_addr
        type(*), dimension(..), target, asynchronous :: result_addr
        integer, intent(in) :: target_rank, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: datatype
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_compare_and_swap_notify(c_loc(origin_addr), c_loc(compare_addr), &
            c_loc(result_addr), int(datatype%MPI_VAL, c_int), int(target_rank, c_int), &
            target_disp, int(notification_idx, c_int), int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Raises a counter of the target, after all earlier operations towards it.
    subroutine MPIX_Notify(target_rank, notification_idx, win, ierror)
        integer, intent(in) :: target_rank, notification_idx
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_notify(int(target_rank, c_int), int(notification_idx, c_int), int(win%MPI_VAL, &
            c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Sets the number of counters of this process. Collective.
    subroutine MPIX_Win_set_num_notify(win, info, num, ierror)
        integer, intent(in) :: num
        type(MPI_Info), intent(in) :: info
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_win_set_num_notify(int(win%MPI_VAL, c_int), int(info%MPI_VAL, c_int), int(num, &
            c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Returns the number of counters of a process.
    subroutine MPIX_Win_get_num_notify(win, rank, num, ierror)
        integer, intent(in) :: rank
        type(MPI_Win), intent(in) :: win
        integer, asynchronous :: num
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_win_get_num_notify(int(win%MPI_VAL, c_int), int(rank, c_int), num, code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Returns the value of a counter of this process.
    subroutine MPIX_Win_get_notify_value(win, notification_idx, value, ierror)
        integer, intent(in) :: notification_idx
        type(MPI_Win), intent(in) :: win
        integer(MPI_COUNT_KIND), asynchronous :: value
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_win_get_notify_value(int(win%MPI_VAL, c_int), int(notification_idx, c_int), value, &
            code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Returns the value of a counter of this process and sets it to 0.
    subroutine MPIX_Win_reset_notify_value(win, notification_idx, value, ierror)
        integer, intent(in) :: notification_idx
        type(MPI_Win), intent(in) :: win
        integer(MPI_COUNT_KIND), asynchronous :: value
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_win_reset_notify_value(int(win%MPI_VAL, c_int), int(notification_idx, c_int), &
            value, code)
        if (present(ierror)) ierror = code
    end subroutine

    ! The request completes when the counter is at least `expected`.
    subroutine MPIX_Win_notify_ithreshold(win, notification_idx, expected, request, ierror)
        integer, intent(in) :: notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: expected
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_win_notify_ithreshold(int(win%MPI_VAL, c_int), int(notification_idx, c_int), &
            expected, handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! The same, blocking.
    subroutine MPIX_Win_notify_threshold(win, notification_idx, expected, ierror)
        integer, intent(in) :: notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: expected
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_win_notify_threshold(int(win%MPI_VAL, c_int), int(notification_idx, c_int), &
            expected, code)
        if (present(ierror)) ierror = code
    end subroutine

    ! The same, as a test.
    subroutine MPIX_Win_notify_test_threshold(win, notification_idx, expected, flag, ierror)
        integer, intent(in) :: notification_idx
        integer(MPI_COUNT_KIND), intent(in) :: expected
        type(MPI_Win), intent(in) :: win
        logical, intent(out) :: flag
        integer, optional, intent(out) :: ierror
        integer(c_int) :: truth, code
        truth = 0
        call c_win_notify_test_threshold(int(win%MPI_VAL, c_int), int(notification_idx, c_int), &
            expected, truth, code)
        flag = truth /= 0
        if (present(ierror)) ierror = code
    end subroutine

    ! The request completes when a counter from `first` to `first + num - 1` is nonzero.
    subroutine MPIX_Win_notify_iwaitsome(win, first, num, idx, value, request, ierror)
        integer, intent(in) :: first, num
        type(MPI_Win), intent(in) :: win
        integer, asynchronous :: idx
        integer(MPI_COUNT_KIND), asynchronous :: value
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_win_notify_iwaitsome(int(win%MPI_VAL, c_int), int(first, c_int), int(num, c_int), &
            idx, value, handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! The request completes when each counter from `first` to `first + num - 1` has been at least its
    ! threshold.
    subroutine MPIX_Win_notify_iwaitall(win, first, num, thresholds, values, request, ierror)
        integer, intent(in) :: first, num
        type(MPI_Win), intent(in) :: win
        integer(MPI_COUNT_KIND), intent(in) :: thresholds(num)
        integer(MPI_COUNT_KIND), asynchronous :: values(num)
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_win_notify_iwaitall(int(win%MPI_VAL, c_int), int(first, c_int), int(num, c_int), &
            thresholds, values, handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! The same as MPIX_Win_notify_iwaitsome, blocking.
    subroutine MPIX_Win_notify_waitsome(win, first, num, idx, value, ierror)
        integer, intent(in) :: first, num
        type(MPI_Win), intent(in) :: win
        integer, asynchronous :: idx
        integer(MPI_COUNT_KIND), asynchronous :: value
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_win_notify_waitsome(int(win%MPI_VAL, c_int), int(first, c_int), int(num, c_int), &
            idx, value, code)
        if (present(ierror)) ierror = code
    end subroutine

    ! The same, as a test.
    subroutine MPIX_Win_notify_testsome(win, first, num, idx, value, flag, ierror)
        integer, intent(in) :: first, num
        type(MPI_Win), intent(in) :: win
        integer, asynchronous :: idx
        integer(MPI_COUNT_KIND), asynchronous :: value
        logical, intent(out) :: flag
        integer, optional, intent(out) :: ierror
        integer(c_int) :: truth, code
        truth = 0
        call c_win_notify_testsome(int(win%MPI_VAL, c_int), int(first, c_int), int(num, c_int), &
            idx, value, truth, code)
        flag = truth /= 0
        if (present(ierror)) ierror = code
    end subroutine
end module mpix_notify_f08
