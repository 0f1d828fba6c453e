! Nonblocking epochs with the module mpix_rma_f08. Each part would hang with blocking calls.
program nonblocking
    use mpi_f08
    use mpix_rma_f08
    use, intrinsic :: iso_c_binding, only: c_f_pointer, c_ptr
    implicit none
    integer, parameter :: n = 16
    integer :: me, ranks, right, left, ierr, wrong, i, target, code, class
    integer, pointer, asynchronous :: memory(:)
    integer, asynchronous :: mine(n), other(n)
    integer(MPI_ADDRESS_KIND), parameter :: zero = 0
    type(c_ptr) :: base
    type(MPI_Win) :: w, duplicate
    type(MPI_Group) :: everybody, first, others
    type(MPI_Request) :: opened(4), closed(4), nothing
    logical :: flag

    wrong = 0
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, me)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    right = mod(me + 1, ranks)
    left = mod(me + ranks - 1, ranks)
    call MPI_Win_allocate(4_MPI_ADDRESS_KIND * n, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, w)
    call c_f_pointer(base, memory, [n])
    memory = 0
    call MPI_Win_get_group(w, everybody)
    call MPI_Group_incl(everybody, 1, [0], first)
    call MPI_Group_excl(everybody, 1, [0], others)
    call MPI_Barrier(MPI_COMM_WORLD)

    ! Rank 0 closes two access epochs before any of its targets opens an exposure.
    mine = [(i, i = 1, n)]
    other = -mine
    if (me == 0) then
        do i = 1, 2
            call MPIX_Win_istart(others, 0, w, opened(i), ierr)
            call expect(ierr == MPI_SUCCESS, 'MPIX_Win_istart')
            do target = 1, ranks - 1
                if (i == 1) call MPI_Put(mine, n, MPI_INTEGER, target, zero, n, MPI_INTEGER, w)
                if (i == 2) call MPI_Put(other, n / 2, MPI_INTEGER, target, zero, n / 2, &
                    MPI_INTEGER, w)
            end do
            call MPIX_Win_icomplete(w, closed(i))
        end do
        call MPI_Test(closed(2), flag, MPI_STATUS_IGNORE)
        call expect(flag .eqv. ranks == 1, 'an epoch ends before it can')
    end if
    call MPI_Barrier(MPI_COMM_WORLD)
    if (me /= 0) then
        do i = 1, 2
            call MPIX_Win_ipost(first, 0, w, opened(i))
            call MPIX_Win_iwait(w, closed(i))
        end do
    end if
    call MPI_Waitall(2, opened, MPI_STATUSES_IGNORE)
    call MPI_Waitall(2, closed, MPI_STATUSES_IGNORE, ierr)
    call expect(ierr == MPI_SUCCESS, 'MPI_Waitall')
    call expect(all(closed(1:2) == MPI_REQUEST_NULL), 'requests are gone')
    if (me /= 0) then
        call expect(all(memory(1:n / 2) == [(-i, i = 1, n / 2)]), 'the second epoch')
        call expect(all(memory(n / 2 + 1:n) == [(i, i = n / 2 + 1, n)]), 'the first epoch')
    end if

    ! Rank 0 enters a fence before all others.
    if (me == 0) then
        call MPIX_Win_ifence(0, w, closed(1))
        call MPI_Barrier(MPI_COMM_WORLD)
    else
        call MPI_Barrier(MPI_COMM_WORLD)
        call MPIX_Win_ifence(0, w, closed(1))
    end if
    mine(1) = me
    call MPI_Put(mine, 1, MPI_INTEGER, right, zero, 1, MPI_INTEGER, w)
    call MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w, closed(2))
    do i = 1, 2
        call MPI_Wait(closed(i), MPI_STATUS_IGNORE)
    end do
    call expect(memory(1) == left, 'fences')

    ! Locks and flushes.
    call MPI_Barrier(MPI_COMM_WORLD)
    memory = 0
    call MPI_Barrier(MPI_COMM_WORLD)
    mine(1) = 1
    call MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 0, 0, w, opened(1))
    call MPI_Accumulate(mine, 1, MPI_INTEGER, 0, zero, 1, MPI_INTEGER, MPI_SUM, w)
    call MPIX_Win_iunlock(0, w, closed(1))
    call MPIX_Win_ilock_all(0, w, opened(2))
    call MPI_Accumulate(mine, 1, MPI_INTEGER, 0, zero, 1, MPI_INTEGER, MPI_SUM, w)
    call MPIX_Win_iflush_local(0, w, closed(2))
    call MPIX_Win_iflush_local_all(w, closed(3))
    call MPI_Waitall(2, closed(2:3), MPI_STATUSES_IGNORE)
    call MPI_Accumulate(mine, 1, MPI_INTEGER, 0, zero, 1, MPI_INTEGER, MPI_SUM, w)
    call MPIX_Win_iflush(0, w, closed(2))
    call MPIX_Win_iflush_all(w, closed(3))
    call MPIX_Win_iunlock_all(w, closed(4))
    call MPI_Waitall(2, opened, MPI_STATUSES_IGNORE)
    call MPI_Waitall(4, closed, MPI_STATUSES_IGNORE)
    call MPI_Barrier(MPI_COMM_WORLD)
    if (me == 0) call expect(memory(1) == 3 * ranks, 'locks and flushes')

    ! Atomic operations with a request: all take a number at rank 0, and each has a cell of its own
    ! there.
    call MPI_Barrier(MPI_COMM_WORLD)
    memory = 0
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPIX_Win_ilock_all(0, w, opened(1))
    mine(1) = 1
    mine(2) = me + 7
    other = -1
    call MPIX_Rfetch_and_op(mine(1), other(1), MPI_INTEGER, 0, zero, MPI_SUM, w, closed(1))
    call MPIX_Rcompare_and_swap(mine(2), memory(n), other(2), MPI_INTEGER, 0, zero + 1 + me, w, &
        closed(2))
    call MPI_Waitall(2, closed, MPI_STATUSES_IGNORE)
    call expect(other(1) >= 0 .and. other(1) < ranks .and. other(2) == 0, 'fetched values')
    call MPIX_Rcompare_and_swap(mine(1), mine(2), other(3), MPI_INTEGER, 0, zero + 1 + me, w, &
        closed(1), ierr)
    call expect(ierr == MPI_SUCCESS, 'MPIX_Rcompare_and_swap')
    call MPI_Wait(closed(1), MPI_STATUS_IGNORE)
    call expect(other(3) == me + 7, 'the swapped value')
    call MPIX_Win_iunlock_all(w, closed(1))
    call MPI_Wait(opened(1), MPI_STATUS_IGNORE)
    call MPI_Wait(closed(1), MPI_STATUS_IGNORE)
    call MPI_Barrier(MPI_COMM_WORLD)
    if (me == 0) call expect(all(memory(1:ranks + 1) == [ranks, (1, i = 1, ranks)]), 'atomics')

    ! A duplicate, with a name and flushes of its own.
    call MPI_Barrier(MPI_COMM_WORLD)
    memory = 0
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPIX_Win_dup(w, MPI_INFO_NULL, duplicate, ierr)
    call expect(ierr == MPI_SUCCESS, 'MPIX_Win_dup')
    call MPI_Win_lock_all(0, w)
    mine(1) = me + 1
    call MPI_Put(mine, 1, MPI_INTEGER, right, zero, 1, MPI_INTEGER, duplicate)
    call MPI_Win_flush(right, duplicate)
    call MPI_Get(other, 1, MPI_INTEGER, right, zero, 1, MPI_INTEGER, duplicate)
    call MPI_Win_flush_all(duplicate)
    call expect(other(1) == me + 1, 'a get by a duplicate')
    call MPI_Win_unlock_all(w)
    call MPI_Win_free(duplicate)
    call expect(duplicate == MPI_WIN_NULL, 'a duplicate is freed')

    ! An invalid call returns its error class and no request.
    call MPI_Win_set_errhandler(w, MPI_ERRORS_RETURN)
    nothing = MPI_REQUEST_NULL
    call MPIX_Win_iunlock(right, w, nothing, code)
    call MPI_Error_class(code, class)
    call expect(class == MPI_ERR_RMA_SYNC .and. nothing == MPI_REQUEST_NULL, &
        'an unlock without a lock')

    call MPI_Group_free(everybody)
    call MPI_Group_free(first)
    if (ranks > 1) call MPI_Group_free(others)
    call MPI_Win_free(w)
    call MPI_Allreduce(MPI_IN_PLACE, wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    if (me == 0 .and. wrong == 0) write (*, '(a)') 'OK'
    call MPI_Finalize()
    if (wrong /= 0) stop 1

contains

    subroutine expect(condition, words)
        logical, intent(in) :: condition
        character(*), intent(in) :: words
        if (.not. condition) then
            wrong = wrong + 1
            write (*, '(a, i0, 2a)') 'wrong on ', me, ': ', words
        end if
    end subroutine
end program
