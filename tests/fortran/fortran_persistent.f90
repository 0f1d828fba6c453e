! Persistent epochs and operations with the module mpix_rma_f08: each call with default and with
! large counts [PE-1, PE-3].
program persistent
    use mpi_f08
    use mpix_rma_f08
    use, intrinsic :: iso_c_binding, only: c_f_pointer, c_ptr
    implicit none
    integer, parameter :: n = 100
    integer :: me, ranks, right, left, ierr, wrong, i, class
    integer, pointer, asynchronous :: memory(:)
    integer, asynchronous :: mine(n), back(n)
    integer(MPI_ADDRESS_KIND), parameter :: zero = 0, third = 2 * n
    integer(MPI_COUNT_KIND), parameter :: many = n
    type(c_ptr) :: base
    type(MPI_Win) :: w
    type(MPI_Request) :: epoch, r(12)

    wrong = 0
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, me)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    right = mod(me + 1, ranks)
    left = mod(me + ranks - 1, ranks)
    call MPI_Win_allocate(4_MPI_ADDRESS_KIND * 3 * n, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, w)
    call MPI_Win_set_errhandler(w, MPI_ERRORS_RETURN)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
    call c_f_pointer(base, memory, [3 * n])
    call MPIX_Win_set_num_notify(w, MPI_INFO_NULL, 1)
    memory = 0
    call MPI_Barrier(MPI_COMM_WORLD)

    call MPIX_Win_epoch_end(w, ierr)
    call MPI_Error_class(ierr, class)
    call expect(class == MPI_ERR_RMA_SYNC, 'MPIX_Win_epoch_end without a record')
    call MPIX_Win_epoch_init(w, epoch, ierr)
    call expect(ierr == MPI_SUCCESS, 'MPIX_Win_epoch_init')
    call MPI_Win_fence(0, w)
    call MPI_Put(mine, n, MPI_INTEGER, right, zero, n, MPI_INTEGER, w)
    call MPI_Win_fence(0, w)
    call MPIX_Win_epoch_end(w, ierr)
    call expect(ierr == MPI_SUCCESS, 'MPIX_Win_epoch_end')
    do i = 1, 4
        mine = me + 1000 * i
        call MPI_Start(epoch)
        call MPI_Wait(epoch, MPI_STATUS_IGNORE)
        call expect(all(memory(:n) == left + 1000 * i), 'a persistent epoch')
        call MPI_Barrier(MPI_COMM_WORLD)
    end do
    call MPI_Request_free(epoch)

    call MPIX_Put_init(mine, n, MPI_INTEGER, right, zero, n, MPI_INTEGER, w, r(1), ierr)
    call expect(ierr == MPI_SUCCESS, 'MPIX_Put_init')
    call MPIX_Put_init(mine, many, MPI_INTEGER, right, zero, many, MPI_INTEGER, w, r(2))
    call MPIX_Put_notify_init(mine, n, MPI_INTEGER, right, zero, n, MPI_INTEGER, 0, w, r(3))
    call MPIX_Put_notify_init(mine, many, MPI_INTEGER, right, zero, many, MPI_INTEGER, 0, w, r(4))
    call MPIX_Get_init(back, n, MPI_INTEGER, right, third, n, MPI_INTEGER, w, r(5))
    call MPIX_Get_init(back, many, MPI_INTEGER, right, third, many, MPI_INTEGER, w, r(6))
    call MPIX_Get_notify_init(back, n, MPI_INTEGER, right, third, n, MPI_INTEGER, 0, w, r(7))
    call MPIX_Get_notify_init(back, many, MPI_INTEGER, right, third, many, MPI_INTEGER, 0, w, r(8))
    call MPIX_Accumulate_init(mine, n, MPI_INTEGER, right, zero + n, n, MPI_INTEGER, MPI_SUM, w, &
        r(9))
    call MPIX_Accumulate_init(mine, many, MPI_INTEGER, right, zero + n, many, MPI_INTEGER, &
        MPI_SUM, w, r(10))
    call MPIX_Accumulate_notify_init(mine, n, MPI_INTEGER, right, zero + n, n, MPI_INTEGER, &
        MPI_SUM, 0, w, r(11))
    call MPIX_Accumulate_notify_init(mine, many, MPI_INTEGER, right, zero + n, many, MPI_INTEGER, &
        MPI_SUM, 0, w, r(12))
    memory(2 * n + 1:) = me
    mine = 1
    do i = 1, 12
        back = right
        mine = i
        call MPI_Barrier(MPI_COMM_WORLD)
        call MPI_Win_lock_all(0, w)
        call MPI_Start(r(i))
        call MPI_Wait(r(i), MPI_STATUS_IGNORE)
        call MPI_Win_unlock_all(w)
        call MPI_Barrier(MPI_COMM_WORLD)
        if (i <= 4) call expect(all(memory(:n) == i), 'a persistent put')
        call expect(all(back == right), 'a persistent get')
    end do
    call expect(all(memory(n + 1:2 * n) == 9 + 10 + 11 + 12), 'persistent accumulates')
    call MPIX_Win_notify_threshold(w, 0, 6_MPI_COUNT_KIND)
    do i = 1, 12
        call MPI_Request_free(r(i))
    end do
    call MPI_Win_free(w)
    call MPI_Allreduce(MPI_IN_PLACE, wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    if (me == 0 .and. wrong == 0) print '(a)', 'OK'
    call MPI_Finalize()
    if (wrong /= 0) stop 1

contains

    subroutine expect(true, what)
        logical, intent(in) :: true
        character(*), intent(in) :: what
        if (true) return
        wrong = wrong + 1
        print '(a, i0, 3a, i0)', 'rank ', me, ': ', what, ', step ', i
    end subroutine
end program
