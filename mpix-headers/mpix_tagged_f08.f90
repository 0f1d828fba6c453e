! mpix_tagged_f08: tagged notifications for `use mpi_f08`. The rules of mpix_notify_f08 for counts
! and buffers apply.
module mpix_tagged_f08
    use, intrinsic :: iso_c_binding, only: c_int, c_loc, c_ptr
    use mpi_f08, only: MPI_ADDRESS_KIND, MPI_COUNT_KIND, MPI_Datatype, MPI_Request, MPI_Status, &
        MPI_Win
    implicit none
    private

    public :: MPIX_Put_tagged, MPIX_Get_tagged, MPIX_Rput_tagged, MPIX_Rget_tagged, &
        MPIX_Notify_init, MPIX_Notify_iprobe, MPIX_Notify_probe

    interface MPIX_Put_tagged
        module procedure put_tagged, put_tagged_c
    end interface
    interface MPIX_Get_tagged
        module procedure get_tagged, get_tagged_c
    end interface
    interface MPIX_Rput_tagged
        module procedure rput_tagged, rput_tagged_c
    end interface
    interface MPIX_Rget_tagged
        module procedure rget_tagged, rget_tagged_c
    end interface

    ! With large counts.
    abstract interface
        subroutine c_transfer(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, tag, win, ierror) bind(C)
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, tag, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_transfer_request(origin_addr, origin_count, origin_datatype, target_rank, &
            target_disp, target_count, target_datatype, tag, win, request, ierror) bind(C)
            import
            type(c_ptr), value :: origin_addr
            integer(c_int), intent(in) :: origin_datatype, target_rank, target_datatype, tag, win
            integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
    end interface
    procedure(c_transfer), bind(C, name="mpix_put_tagged_c_") :: c_put_tagged_c
    procedure(c_transfer), bind(C, name="mpix_get_tagged_c_") :: c_get_tagged_c
    procedure(c_transfer_request), bind(C, name="mpix_rput_tagged_c_") :: c_rput_tagged_c
    procedure(c_transfer_request), bind(C, name="mpix_rget_tagged_c_") :: c_rget_tagged_c

    interface
        subroutine c_notify_init(win, source, tag, expected_count, request, ierror) &
            bind(C, name="mpix_notify_init_")
            import
            integer(c_int), intent(in) :: win, source, tag
            integer(MPI_COUNT_KIND), intent(in) :: expected_count
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_notify_iprobe(win, source, tag, flag, status, ierror) bind(C, &
            name="mpix_notify_iprobe_")
            import
            integer(c_int), intent(in) :: win, source, tag
            integer(c_int), asynchronous :: flag
            type(MPI_Status) :: status
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_notify_probe(win, source, tag, status, ierror) bind(C, &
            name="mpix_notify_probe_")
            import
            integer(c_int), intent(in) :: win, source, tag
            type(MPI_Status) :: status
            integer(c_int), intent(out) :: ierror
        end subroutine
    end interface

contains

    ! Puts data, then delivers a tag to the target.
    subroutine put_tagged(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, tag, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, tag
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        call put_tagged_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, tag, &
            win, ierror)
    end subroutine

    subroutine put_tagged_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, tag, win, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: target_rank, tag
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_put_tagged_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, c_int), &
            int(target_rank, c_int), target_disp, target_count, int(target_datatype%MPI_VAL, &
            c_int), int(tag, c_int), int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! Gets data, then delivers a tag to the target.
    subroutine get_tagged(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, tag, win, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, tag
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        call get_tagged_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, tag, &
            win, ierror)
    end subroutine

    subroutine get_tagged_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, tag, win, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: target_rank, tag
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_get_tagged_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, c_int), &
            int(target_rank, c_int), target_disp, target_count, int(target_datatype%MPI_VAL, &
            c_int), int(tag, c_int), int(win%MPI_VAL, c_int), code)
        if (present(ierror)) ierror = code
    end subroutine

    ! The same, with a request for the data.
    subroutine rput_tagged(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, tag, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, tag
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call rput_tagged_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, tag, &
            win, request, ierror)
    end subroutine

    subroutine rput_tagged_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, tag, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        integer, intent(in) :: target_rank, tag
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_rput_tagged_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, &
            c_int), int(target_rank, c_int), target_disp, target_count, &
            int(target_datatype%MPI_VAL, c_int), int(tag, c_int), int(win%MPI_VAL, c_int), handle, &
            code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    subroutine rget_tagged(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, tag, win, request, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: origin_count, target_rank, target_count, tag
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        call rget_tagged_c(origin_addr, int(origin_count, MPI_COUNT_KIND), origin_datatype, &
            target_rank, target_disp, int(target_count, MPI_COUNT_KIND), target_datatype, tag, &
            win, request, ierror)
    end subroutine

    subroutine rget_tagged_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, &
        target_count, target_datatype, tag, win, request, ierror)
        type(*), dimension(..), target, asynchronous :: origin_addr
        integer, intent(in) :: target_rank, tag
        integer(MPI_COUNT_KIND), intent(in) :: origin_count, target_count
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Datatype), intent(in) :: origin_datatype, target_datatype
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_rget_tagged_c(c_loc(origin_addr), origin_count, int(origin_datatype%MPI_VAL, &
            c_int), int(target_rank, c_int), target_disp, target_count, &
            int(target_datatype%MPI_VAL, c_int), int(tag, c_int), int(win%MPI_VAL, c_int), handle, &
            code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Creates a persistent request for tagged notifications.
    subroutine MPIX_Notify_init(win, source, tag, expected_count, request, ierror)
        integer, intent(in) :: source, tag
        integer(MPI_COUNT_KIND), intent(in) :: expected_count
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_notify_init(int(win%MPI_VAL, c_int), int(source, c_int), int(tag, c_int), &
            expected_count, handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Whether there is a tagged notification that no request has taken.
    subroutine MPIX_Notify_iprobe(win, source, tag, flag, status, ierror)
        integer, intent(in) :: source, tag
        type(MPI_Win), intent(in) :: win
        logical, intent(out) :: flag
        type(MPI_Status) :: status
        integer, optional, intent(out) :: ierror
        integer(c_int) :: truth, code
        truth = 0
        call c_notify_iprobe(int(win%MPI_VAL, c_int), int(source, c_int), int(tag, c_int), truth, &
            status, code)
        flag = truth /= 0
        if (present(ierror)) ierror = code
    end subroutine

    ! The same, blocking.
    subroutine MPIX_Notify_probe(win, source, tag, status, ierror)
        integer, intent(in) :: source, tag
        type(MPI_Win), intent(in) :: win
        type(MPI_Status) :: status
        integer, optional, intent(out) :: ierror
        integer(c_int) :: code
        call c_notify_probe(int(win%MPI_VAL, c_int), int(source, c_int), int(tag, c_int), status, &
            code)
        if (present(ierror)) ierror = code
    end subroutine
end module mpix_tagged_f08
