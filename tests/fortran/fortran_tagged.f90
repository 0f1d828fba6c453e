! Tagged notifications with the module mpix_rma_f08: each call with default and with large counts,
! with and without a status.
program tagged
    use mpi_f08
    use mpix_rma_f08
    use, intrinsic :: iso_c_binding, only: c_f_pointer, c_ptr
    implicit none
    integer, parameter :: n = 100
    integer :: me, ranks, right, left, ierr, wrong, i, code, class
    integer, pointer, asynchronous :: memory(:)
    integer, asynchronous :: mine(n), back(n)
    integer(MPI_ADDRESS_KIND), parameter :: zero = 0
    integer(MPI_COUNT_KIND), parameter :: one = 1, many = n
    type(c_ptr) :: base
    type(MPI_Win) :: w
    type(MPI_Request) :: r(2), data
    type(MPI_Status) :: s
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
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_Win_lock_all(0, w)
    call MPIX_Notify_init(w, left, 7, one, r(1), ierr)
    call expect(ierr == MPI_SUCCESS, 'MPIX_Notify_init')
    call MPIX_Notify_init(w, MPI_ANY_SOURCE, MPI_ANY_TAG, 2 * one, r(2))

    ! Puts: data arrive before their notification.
    do i = 1, 4
        mine = me + 1000 * i
        call MPI_Start(r(1))
        select case (i)
        case (1)
            call MPIX_Put_tagged(mine, n, MPI_INTEGER, right, zero, n, MPI_INTEGER, 7, w, ierr)
            call expect(ierr == MPI_SUCCESS, 'MPIX_Put_tagged')
        case (2)
            call MPIX_Put_tagged(mine, many, MPI_INTEGER, right, zero, many, MPI_INTEGER, 7, w)
        case (3)
            call MPIX_Rput_tagged(mine, n, MPI_INTEGER, right, zero, n, MPI_INTEGER, 7, w, data)
            call MPI_Wait(data, MPI_STATUS_IGNORE)
        case default
            call MPIX_Rput_tagged(mine, many, MPI_INTEGER, right, zero, many, MPI_INTEGER, 7, w, &
                data)
            call MPI_Wait(data, MPI_STATUS_IGNORE)
        end select
        s%MPI_SOURCE = -100
        call MPI_Wait(r(1), s)
        call expect(s%MPI_SOURCE == left .and. s%MPI_TAG == 7, 'the status of a notification')
        call expect(all(memory == left + 1000 * i), 'the data come with their notification')
        call MPI_Barrier(MPI_COMM_WORLD)
    end do

    ! Gets notify the process whose memory was read. A request takes two notifications at a time.
    memory = me
    call MPI_Barrier(MPI_COMM_WORLD)
    do i = 1, 2
        back = -1
        call MPI_Start(r(2))
        if (i == 1) then
            call MPIX_Get_tagged(back, n / 2, MPI_INTEGER, right, zero, n / 2, MPI_INTEGER, 8, w)
            call MPIX_Rget_tagged(back(n / 2 + 1), n / 2, MPI_INTEGER, right, zero, n / 2, &
                MPI_INTEGER, 9, w, data)
        else
            call MPIX_Get_tagged(back, many / 2, MPI_INTEGER, right, zero, many / 2, MPI_INTEGER, &
                8, w)
            call MPIX_Rget_tagged(back(n / 2 + 1), many / 2, MPI_INTEGER, right, zero, many / 2, &
                MPI_INTEGER, 9, w, data)
        end if
        call MPI_Wait(data, MPI_STATUS_IGNORE)
        call MPI_Win_flush(right, w)
        call expect(all(back == right), 'MPIX_Get_tagged and MPIX_Rget_tagged')
        call MPI_Wait(r(2), s)
        call expect(s%MPI_SOURCE == left .and. s%MPI_TAG == 9, 'the last of two notifications')
        call MPI_Barrier(MPI_COMM_WORLD)
    end do

    ! Probes for unmatched notifications.
    call MPIX_Notify_iprobe(w, left, 11, flag, s)
    call expect(.not. flag, 'MPIX_Notify_iprobe of nothing')
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPIX_Put_tagged(mine, 0, MPI_INTEGER, right, zero, 0, MPI_INTEGER, 11, w)
    call MPIX_Notify_probe(w, MPI_ANY_SOURCE, 11, s)
    call expect(s%MPI_SOURCE == left .and. s%MPI_TAG == 11, 'MPIX_Notify_probe')
    s%MPI_TAG = -100
    call MPIX_Notify_iprobe(w, left, MPI_ANY_TAG, flag, s)
    call expect(flag .and. s%MPI_TAG == 11, 'MPIX_Notify_iprobe')
    call MPIX_Notify_iprobe(w, left, 11, flag, MPI_STATUS_IGNORE)
    call expect(flag, 'a status that is ignored')
    call MPIX_Notify_probe(w, left, 11, MPI_STATUS_IGNORE)
    call MPI_Win_unlock_all(w)

    ! Invalid calls return their error class and do not notify.
    call MPI_Win_set_errhandler(w, MPI_ERRORS_RETURN)
    call MPI_Win_lock_all(0, w)
    call MPIX_Put_tagged(mine, 1, MPI_INTEGER, right, zero, 1, MPI_INTEGER, -5, w, code)
    call MPI_Error_class(code, class)
    call expect(class == MPI_ERR_TAG, 'a negative tag')
    call MPIX_Notify_init(w, ranks, 1, one, data, code)
    call MPI_Error_class(code, class)
    call expect(class == MPI_ERR_RANK, 'a source that there is not')
    call MPI_Win_unlock_all(w)
    call MPI_Request_free(r(1))
    call MPI_Request_free(r(2))

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
