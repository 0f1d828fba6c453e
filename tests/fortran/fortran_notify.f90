! Notification counters with the module mpix_rma_f08: each call; counts are read before the data.
program notify
    use mpi_f08
    use mpix_rma_f08
    use, intrinsic :: iso_c_binding, only: c_f_pointer, c_ptr
    implicit none
    integer, parameter :: n = 100
    integer :: me, ranks, right, left, ierr, wrong, i, code, class, number
    integer, pointer, asynchronous :: memory(:)
    integer, asynchronous :: mine(n), back(n), one, compare, idx
    integer(MPI_COUNT_KIND), asynchronous :: value, values(1)
    integer(MPI_COUNT_KIND) :: seen
    integer(MPI_ADDRESS_KIND), parameter :: zero = 0
    integer(MPI_ADDRESS_KIND) :: attribute
    type(c_ptr) :: base
    type(MPI_Win) :: w
    type(MPI_Request) :: r(3), nothing
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
    call MPIX_Win_set_num_notify(w, MPI_INFO_NULL, 4 + me, ierr)
    call expect(ierr == MPI_SUCCESS, 'MPIX_Win_set_num_notify')
    call MPIX_Win_get_num_notify(w, right, number)
    call expect(number == 4 + right, 'MPIX_Win_get_num_notify')
    call MPI_Win_get_attr(w, MPIX_WIN_NOTIFICATION_NUM_SB, attribute, flag)
    call expect(flag .and. attribute >= 4, 'MPIX_WIN_NOTIFICATION_NUM_SB')
    call MPI_Win_get_attr(w, MPIX_WIN_NOTIFICATION_NUM_UB, attribute, flag)
    call expect(flag .and. attribute == huge(0), 'MPIX_WIN_NOTIFICATION_NUM_UB')
    call MPI_Win_get_attr(w, MPIX_WIN_NOTIFICATION_VALUE_UB, attribute, flag)
    call expect(flag .and. attribute == huge(attribute), 'MPIX_WIN_NOTIFICATION_VALUE_UB')
    call MPI_Win_get_attr(w, MPI_WIN_SIZE, attribute, flag)
    call expect(flag .and. attribute == 4 * n, 'MPI_WIN_SIZE')
    call MPI_Barrier(MPI_COMM_WORLD)

    ! A put, and each form of waiting for it.
    call MPI_Win_lock_all(0, w)
    do i = 1, 5
        mine = me + 1000 * i
        seen = i
        call MPIX_Put_notify(mine, n, MPI_INTEGER, right, zero, n, MPI_INTEGER, 1, w, ierr)
        call expect(ierr == MPI_SUCCESS, 'MPIX_Put_notify')
        select case (i)
        case (1)
            call MPIX_Win_notify_threshold(w, 1, seen)
        case (2)
            call MPIX_Win_notify_ithreshold(w, 1, seen, r(1))
            call MPIX_Win_iflush(right, w, r(2))
            call MPI_Waitall(2, r, MPI_STATUSES_IGNORE)
        case (3)
            flag = .false.
            do while (.not. flag)
                call MPIX_Win_notify_test_threshold(w, 1, seen, flag)
            end do
        case default
            value = 0
            do while (value < seen)
                call MPIX_Win_get_notify_value(w, 1, value)
            end do
        end select
        call expect(all(memory == left + 1000 * i), 'the data come with their count')
        call MPI_Barrier(MPI_COMM_WORLD)
    end do
    call MPIX_Win_notify_test_threshold(w, 1, 6_MPI_COUNT_KIND, flag)
    call expect(.not. flag, 'a count that has not come')
    call MPIX_Win_reset_notify_value(w, 1, value)
    call expect(value == 5, 'MPIX_Win_reset_notify_value')
    call MPIX_Win_get_notify_value(w, 1, value)
    call expect(value == 0, 'a counter that was reset')

    ! The other operations; each process has its own cell in the common memory.
    call MPI_Barrier(MPI_COMM_WORLD)
    memory = 0
    call MPI_Barrier(MPI_COMM_WORLD)
    one = 1
    back = -1
    call MPIX_Accumulate_notify(one, 1, MPI_INTEGER, right, zero, 1, MPI_INTEGER, MPI_SUM, 0, w)
    call MPIX_Get_accumulate_notify(one, 1, MPI_INTEGER, back(1), 1, MPI_INTEGER, right, zero, 1, &
        MPI_INTEGER, MPI_SUM, 0, w)
    call MPI_Win_flush(right, w)
    call expect(back(1) == 1, 'MPIX_Get_accumulate_notify')
    call MPIX_Fetch_and_op_notify(one, back(2), MPI_INTEGER, right, zero, MPI_SUM, 0, w)
    call MPI_Win_flush(right, w)
    call expect(back(2) == 2, 'MPIX_Fetch_and_op_notify')
    compare = 3
    call MPIX_Compare_and_swap_notify(one, compare, back(3), MPI_INTEGER, right, zero, 0, w)
    call MPI_Win_flush(right, w)
    call expect(back(3) == 3, 'MPIX_Compare_and_swap_notify')
    call MPIX_Get_notify(back(4), 1, MPI_INTEGER, right, zero, 1, MPI_INTEGER, 0, w)
    call MPI_Win_flush(right, w)
    call expect(back(4) == 1, 'MPIX_Get_notify')
    call MPIX_Rput_notify(one, 1, MPI_INTEGER, right, zero + 1, 1, MPI_INTEGER, 0, w, r(1))
    call MPI_Wait(r(1), MPI_STATUS_IGNORE)
    call MPI_Win_flush(right, w)
    call MPIX_Raccumulate_notify(one, 1, MPI_INTEGER, right, zero + 1, 1, MPI_INTEGER, MPI_SUM, 0, &
        w, r(1))
    call MPIX_Rget_accumulate_notify(one, 1, MPI_INTEGER, back(5), 1, MPI_INTEGER, right, zero + &
        1, 1, MPI_INTEGER, MPI_SUM, 0, w, r(2))
    call MPI_Waitall(2, r, MPI_STATUSES_IGNORE)
    call expect(back(5) == 2, 'MPIX_Rget_accumulate_notify')
    call MPIX_Rget_notify(back(6), 1, MPI_INTEGER, right, zero + 1, 1, MPI_INTEGER, 0, w, r(1))
    call MPI_Wait(r(1), MPI_STATUS_IGNORE)
    call expect(back(6) == 3, 'MPIX_Rget_notify')
    call MPIX_Notify(right, 2, w)
    call MPI_Win_unlock_all(w)
    call large_counts()
    call MPIX_Win_notify_threshold(w, 0, 9_MPI_COUNT_KIND)
    call MPIX_Win_get_notify_value(w, 0, value)
    call expect(value == 9, 'nine operations, nine notifications')

    ! Waiting for any counter of a range.
    call MPIX_Win_notify_waitsome(w, 1, 3, idx, value)
    call expect(idx == 2 .and. value == 1, 'MPIX_Win_notify_waitsome')
    call MPIX_Win_notify_iwaitsome(w, 1, 2, idx, value, r(1))
    call MPI_Wait(r(1), MPI_STATUS_IGNORE)
    call expect(idx == 2 .and. value == 1, 'MPIX_Win_notify_iwaitsome')
    call MPIX_Win_notify_iwaitall(w, 0, 1, [9_MPI_COUNT_KIND], values, r(1))
    call MPI_Wait(r(1), MPI_STATUS_IGNORE)
    call expect(values(1) == 9, 'MPIX_Win_notify_iwaitall')
    call MPIX_Win_notify_testsome(w, 3, 1, idx, value, flag)
    call expect(.not. flag, 'MPIX_Win_notify_testsome')

    ! Invalid calls return their error class and no request.
    call MPI_Win_set_errhandler(w, MPI_ERRORS_RETURN)
    nothing = MPI_REQUEST_NULL
    call MPIX_Win_notify_ithreshold(w, 99, 1_MPI_COUNT_KIND, nothing, code)
    call MPI_Error_class(code, class)
    call expect(class == MPI_ERR_ARG .and. nothing == MPI_REQUEST_NULL, 'an invalid counter')
    call MPIX_Win_set_num_notify(w, MPI_INFO_NULL, -me, code)
    call MPI_Error_class(code, class)
    call expect((class == MPI_ERR_ARG) .eqv. ranks > 1, &
        'a negative number of counters in some process')

    call MPI_Win_free(w)
    call MPI_Allreduce(MPI_IN_PLACE, wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    if (me == 0 .and. wrong == 0) write (*, '(a)') 'OK'
    call MPI_Finalize()
    if (wrong /= 0) stop 1

contains

    ! The same calls with large counts, on counter 3.
    subroutine large_counts()
        integer(MPI_COUNT_KIND), parameter :: few = 1
        call MPI_Barrier(MPI_COMM_WORLD)
        memory = 5
        call MPI_Barrier(MPI_COMM_WORLD)
        call MPI_Win_lock_all(0, w)
        call MPIX_Put_notify(one, few, MPI_INTEGER, right, zero, few, MPI_INTEGER, 3, w)
        call MPIX_Accumulate_notify(one, few, MPI_INTEGER, right, zero, few, MPI_INTEGER, MPI_SUM, &
            3, w)
        call MPIX_Get_accumulate_notify(one, few, MPI_INTEGER, back(1), few, MPI_INTEGER, right, &
            zero, few, MPI_INTEGER, MPI_SUM, 3, w)
        call MPI_Win_flush(right, w)
        call expect(back(1) == 2, 'MPIX_Get_accumulate_notify with large counts')
        call MPIX_Get_notify(back(2), few, MPI_INTEGER, right, zero, few, MPI_INTEGER, 3, w)
        call MPI_Win_flush(right, w)
        call expect(back(2) == 3, 'MPIX_Get_notify with large counts')
        call MPIX_Rput_notify(one, few, MPI_INTEGER, right, zero, few, MPI_INTEGER, 3, w, r(1))
        call MPI_Wait(r(1), MPI_STATUS_IGNORE)
        call MPI_Win_flush(right, w)
        call MPIX_Raccumulate_notify(one, few, MPI_INTEGER, right, zero, few, MPI_INTEGER, &
            MPI_SUM, 3, w, r(1))
        call MPIX_Rget_accumulate_notify(one, few, MPI_INTEGER, back(3), few, MPI_INTEGER, right, &
            zero, few, MPI_INTEGER, MPI_SUM, 3, w, r(2))
        call MPI_Waitall(2, r, MPI_STATUSES_IGNORE)
        call expect(back(3) == 2, 'MPIX_Rget_accumulate_notify with large counts')
        call MPIX_Rget_notify(back(4), few, MPI_INTEGER, right, zero, few, MPI_INTEGER, 3, w, r(1))
        call MPI_Wait(r(1), MPI_STATUS_IGNORE)
        call expect(back(4) == 3, 'MPIX_Rget_notify with large counts')
        call MPI_Win_unlock_all(w)
        call MPIX_Win_notify_threshold(w, 3, 8_MPI_COUNT_KIND)
        call MPIX_Win_reset_notify_value(w, 3, value)
        call expect(value == 8, 'eight operations with large counts, eight notifications')
    end subroutine

    subroutine expect(condition, words)
        logical, intent(in) :: condition
        character(*), intent(in) :: words
        if (.not. condition) then
            wrong = wrong + 1
            write (*, '(a, i0, 2a)') 'wrong on ', me, ': ', words
        end if
    end subroutine
end program
