! The nonblocking calls with integer handles, for `use mpi` or mpif.h, without a module.
program integers
    use mpi
    implicit none
    integer, asynchronous :: mine(2)
    integer, asynchronous, target :: memory(4)
    integer :: w, d, r(2), me, ranks, ierr, code, wrong
    integer(MPI_ADDRESS_KIND) :: zero
    external :: mpix_win_ifence, mpix_win_ilock_all, mpix_win_iunlock_all, mpix_win_dup

    wrong = 0
    zero = 0
    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
    memory = 0
    mine = [me, 1]
    call MPI_Win_create(memory, 4_MPI_ADDRESS_KIND * 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, w, ierr)
    call mpix_win_ifence(0, w, r(1), code)
    if (code /= MPI_SUCCESS) wrong = wrong + 1
    call MPI_Put(mine, 1, MPI_INTEGER, mod(me + 1, ranks), zero, 1, MPI_INTEGER, w, ierr)
    call mpix_win_ifence(MPI_MODE_NOSUCCEED, w, r(2), code)
    call MPI_Waitall(2, r, MPI_STATUSES_IGNORE, ierr)
    if (memory(1) /= mod(me + ranks - 1, ranks)) wrong = wrong + 1
    ! A duplicate takes the place of the window.
    call mpix_win_dup(w, MPI_INFO_NULL, d, code)
    if (code /= MPI_SUCCESS) wrong = wrong + 1
    call mpix_win_ilock_all(0, w, r(1), code)
    call MPI_Accumulate(mine(2), 1, MPI_INTEGER, 0, zero + 1, 1, MPI_INTEGER, MPI_SUM, d, ierr)
    call MPI_Win_flush(0, d, ierr)
    call mpix_win_iunlock_all(w, r(2), code)
    call MPI_Waitall(2, r, MPI_STATUSES_IGNORE, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    if (me == 0 .and. memory(2) /= ranks) wrong = wrong + 1
    call MPI_Win_free(d, ierr)
    call MPI_Win_free(w, ierr)
    call MPI_Allreduce(MPI_IN_PLACE, wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (me == 0 .and. wrong == 0) write (*, '(a)') 'OK'
    call MPI_Finalize(ierr)
    if (wrong /= 0) stop 1
end program
