! mpix_persistent_f08: persistent epochs and operations for `use mpi_f08`. mpix_persistent.h
! documents the calls. The rules of mpix_notify_f08 for counts and buffers apply; a recorded buffer
! belongs to the library from each start to its completion.
module mpix_persistent_f08
    use, intrinsic :: iso_c_binding, only: c_int, c_loc, c_ptr
    use mpi_f08, only: MPI_ADDRESS_KIND, MPI_COUNT_KIND, MPI_Datatype, MPI_Op, MPI_Request, MPI_Win
    implicit none
    private

    public :: MPIX_Win_epoch_init, MPIX_Win_epoch_end, MPIX_Put_init, MPIX_Put_notify_init, &
        MPIX_Get_init, MPIX_Get_notify_init, MPIX_Accumulate_init, MPIX_Accumulate_notify_init

    interface MPIX_Put_init
        module procedure put_init, put_init_c
    end interface
    interface MPIX_Put_notify_init
        module procedure put_notify_init, put_notify_init_c
    end interface
    interface MPIX_Get_init
        module procedure get_init, get_init_c
    end interface
    interface MPIX_Get_notify_init
        module procedure get_notify_init, get_notify_init_c
    end interface
    interface MPIX_Accumulate_init
        module procedure accumulate_init, accumulate_init_c
    end interface
    interface MPIX_Accumulate_notify_init
        module procedure accumulate_notify_init, accumulate_notify_init_c
    end interface

    interface
        subroutine c_epoch_init(win, request, ierror) bind(C, name="mpix_win_epoch_init_")
            import
            integer(c_int), intent(in) :: win
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_epoch_end(win, ierror) bind(C, name="mpix_win_epoch_end_")
            import
            integer(c_int), intent(in) :: win
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_put_init(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, win, request, ierror) &
            bind(C, name="mpix_put_init_c_")
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_put_notify_init(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, notification_idx, win, request, ierror) &
            bind(C, name="mpix_put_notify_init_c_")
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, &
                notification_idx, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_get_init(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, win, request, ierror) &
            bind(C, name="mpix_get_init_c_")
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_get_notify_init(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, notification_idx, win, request, ierror) &
            bind(C, name="mpix_get_notify_init_c_")
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, &
                notification_idx, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_accumulate_init(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, op, win, request, ierror) &
            bind(C, name="mpix_accumulate_init_c_")
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, op, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_accumulate_notify_init(origin_addr, origin_count, origin_datatype, &
            target_rank, target_disp, target_count, target_datatype, op, notification_idx, win, &
            request, ierror) &
            bind(C, name="mpix_accumulate_notify_init_c_")
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, op, &
                notification_idx, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
    end interface

contains

    ! Begins to record a persistent epoch.
    subroutine MPIX_Win_epoch_init(win, request, ierror)
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_epoch_init(int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Ends the record.
    subroutine MPIX_Win_epoch_end(win, ierror)
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_epoch_end(int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Creates a persistent request for a put.
    subroutine put_init(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call put_init_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, win, &
            request, ierror)
    end subroutine

    subroutine put_init_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: target_rank
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_put_init(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, c_int), &
            int(target_rank, c_int), target_disp, target_count, &
            int(target_datatype%MPI_VAL, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Creates a persistent request for a put with a notification.
    subroutine put_notify_init(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call put_notify_init_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, &
            notification_idx, win, request, ierror)
    end subroutine

    subroutine put_notify_init_c(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, notification_idx, win, request, ierror)
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
        call c_put_notify_init(c_loc(origin_addr), origin_count, &
            int(origin_datatype%MPI_VAL, c_int), int(target_rank, c_int), target_disp, &
            target_count, int(target_datatype%MPI_VAL, c_int), int(notification_idx, c_int), &
            int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Creates a persistent request for a get.
    subroutine get_init(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, win, request, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call get_init_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, win, &
            request, ierror)
    end subroutine

    subroutine get_init_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, win, request, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: target_rank
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_get_init(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, c_int), &
            int(target_rank, c_int), target_disp, target_count, &
            int(target_datatype%MPI_VAL, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Creates a persistent request for a get with a notification.
    subroutine get_notify_init(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call get_notify_init_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, &
            notification_idx, win, request, ierror)
    end subroutine

    subroutine get_notify_init_c(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, notification_idx, win, request, ierror)
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
        call c_get_notify_init(c_loc(origin_addr), origin_count, &
            int(origin_datatype%MPI_VAL, c_int), int(target_rank, c_int), target_disp, &
            target_count, int(target_datatype%MPI_VAL, c_int), int(notification_idx, c_int), &
            int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Creates a persistent request for an accumulate.
    subroutine accumulate_init(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, op, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call accumulate_init_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, op, &
            win, request, ierror)
    end subroutine

    subroutine accumulate_init_c(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, op, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: target_rank
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_accumulate_init(c_loc(origin_addr), origin_count, &
            int(origin_datatype%MPI_VAL, c_int), int(target_rank, c_int), target_disp, &
            target_count, int(target_datatype%MPI_VAL, c_int), int(op%MPI_VAL, c_int), &
            int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Creates a persistent request for an accumulate with a notification.
    subroutine accumulate_notify_init(origin_addr, origin_count, origin_datatype, target_rank, &
        target_disp, target_count, target_datatype, op, notification_idx, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, notification_idx
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call accumulate_notify_init_c(origin_addr, int(origin_count, MPI_COUNT_KIND), &
            origin_datatype, target_rank, target_disp, int(target_count, MPI_COUNT_KIND), &
            target_datatype, op, notification_idx, win, request, ierror)
    end subroutine

    subroutine accumulate_notify_init_c(origin_addr, origin_count, origin_datatype, target_rank, &
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
        call c_accumulate_notify_init(c_loc(origin_addr), origin_count, &
            int(origin_datatype%MPI_VAL, c_int), int(target_rank, c_int), target_disp, &
            target_count, int(target_datatype%MPI_VAL, c_int), int(op%MPI_VAL, c_int), &
            int(notification_idx, c_int), int(win%MPI_VAL, c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine
end module
