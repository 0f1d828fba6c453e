! mpix_atomic_f08: atomic operations with a request for `use mpi_f08`. mpix_rma.h documents the
! calls. Use the module mpix_rma_f08, which includes this one and exports its names.
!
! The request completes when the target's element is in the result buffer. Declare the buffers
! `asynchronous`: they belong to the library until then.
module mpix_atomic_f08
    use, intrinsic :: iso_c_binding, only: c_int, c_loc, c_ptr
    use mpi_f08, only: MPI_ADDRESS_KIND, MPI_Datatype, MPI_Op, MPI_Request, MPI_Win
    implicit none
    private

    public :: MPIX_Rfetch_and_op, MPIX_Rcompare_and_swap

    interface
        subroutine c_rfetch_and_op(origin_addr, result_addr, datatype, target_rank, target_disp, &
            op, win, request, ierror) bind(C, name="mpix_rfetch_and_op_")
            import :: c_int, c_ptr, MPI_ADDRESS_KIND
            type(c_ptr), value :: origin_addr, result_addr
            integer(c_int), intent(in) :: datatype, target_rank, op, win
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
        subroutine c_rcompare_and_swap(origin_addr, compare_addr, result_addr, datatype, &
            target_rank, target_disp, win, request, ierror) bind(C, name="mpix_rcompare_and_swap_")
            import :: c_int, c_ptr, MPI_ADDRESS_KIND
            type(c_ptr), value :: origin_addr, compare_addr, result_addr
            integer(c_int), intent(in) :: datatype, target_rank, win
            integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
            integer(c_int), intent(inout) :: request
            integer(c_int), intent(out) :: ierror
        end subroutine
    end interface

contains

    ! Fetches one element and reduces ours into it.
    subroutine MPIX_Rfetch_and_op(origin_addr, result_addr, datatype, target_rank, target_disp, &
        op, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr
        type(*), dimension(..), target, asynchronous :: result_addr
        type(MPI_Datatype), intent(in) :: datatype
        integer, intent(in) :: target_rank
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Op), intent(in) :: op
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_rfetch_and_op(c_loc(origin_addr), c_loc(result_addr), int(datatype%MPI_VAL, c_int), &
            int(target_rank, c_int), target_disp, int(op%MPI_VAL, c_int), int(win%MPI_VAL, c_int), &
            handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine

    ! Compares and swaps one element.
    subroutine MPIX_Rcompare_and_swap(origin_addr, compare_addr, result_addr, datatype, &
        target_rank, target_disp, win, request, ierror)
        type(*), dimension(..), target, asynchronous, intent(in) :: origin_addr, compare_addr
        type(*), dimension(..), target, asynchronous :: result_addr
        type(MPI_Datatype), intent(in) :: datatype
        integer, intent(in) :: target_rank
        integer(MPI_ADDRESS_KIND), intent(in) :: target_disp
        type(MPI_Win), intent(in) :: win
        type(MPI_Request), intent(inout) :: request
        integer, optional, intent(out) :: ierror
        integer(c_int) :: handle, code
        handle = int(request%MPI_VAL, c_int)
        call c_rcompare_and_swap(c_loc(origin_addr), c_loc(compare_addr), c_loc(result_addr), &
            int(datatype%MPI_VAL, c_int), int(target_rank, c_int), target_disp, int(win%MPI_VAL, &
            c_int), handle, code)
        request%MPI_VAL = handle
        if (present(ierror)) ierror = code
    end subroutine
end module mpix_atomic_f08
