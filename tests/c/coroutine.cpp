/*
 * Coroutines that wait for requests by `co_await` (examples/mpix_await.hpp): many at once, each
 * with messages and epochs in turn, and a request that fails.
 */
#include "check.h"

#include "../../examples/mpix_await.hpp"

enum { COROUTINES = 40, ROUNDS = 25 };

static Window w;
static int finished, rejected;

/* Sends a number around the ring of processes, and adds it to a word of the right neighbour. */
static mpix::task work(mpix::awaiting &mpi, int number)
{
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t out = 1000 * round + number, in = -1;
        MPI_Request send, receive, opening, unlock;
        MPI(MPI_Irecv(&in, 1, MPI_INT64_T, left, number, MPI_COMM_WORLD, &receive));
        MPI(MPI_Isend(&out, 1, MPI_INT64_T, right, number, MPI_COMM_WORLD, &send));
        MPI_Status status = co_await mpi(receive);
        EXPECT(in == out && status.MPI_SOURCE == left && status.MPI_TAG == number,
               "coroutine %d got %lld from %d with tag %d", number, (long long)in,
               status.MPI_SOURCE, status.MPI_TAG);
        co_await mpi(send);
        MPI(MPIX_Win_ilock(MPI_LOCK_SHARED, right, 0, w.win, &opening));
        MPI(MPI_Accumulate(&in, 1, MPI_INT64_T, right, number, 1, MPI_INT64_T, MPI_SUM, w.win));
        MPI(MPIX_Win_iunlock(right, w.win, &unlock));
        co_await mpi(opening);
        co_await mpi(unlock);
    }
    finished++;
}

static mpix::task waits_for_nothing(mpix::awaiting &mpi)
{
    try {
        co_await mpi(MPI_REQUEST_NULL);
        EXPECT(false, "co_await on MPI_REQUEST_NULL succeeds");
    } catch (const mpix::failure &failed) {
        rejected = class_of(failed.code) == MPI_ERR_REQUEST;
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    w = window(ALLOCATED, COROUTINES * sizeof(int64_t), sizeof(int64_t));
    {
        mpix::awaiting mpi;
        for (int i = 0; i < COROUTINES; i++)
            work(mpi, i);
        waits_for_nothing(mpi);
        mpi.wait();
        EXPECT(mpi.test(), "a coroutine still waits");
    }
    EXPECT(finished == COROUTINES, "%d coroutines have finished, not %d", finished, COROUTINES);
    EXPECT(rejected, "co_await on MPI_REQUEST_NULL has the wrong error class");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    for (int i = 0; i < COROUTINES; i++) {
        int64_t sum = (int64_t)ROUNDS * i + 1000LL * ROUNDS * (ROUNDS - 1) / 2;
        EXPECT(((int64_t *)w.base)[i] == sum, "word %d is %lld, not %lld", i,
               (long long)((int64_t *)w.base)[i], (long long)sum);
    }
    MPI(MPI_Win_unlock(me, w.win));
    window_free(&w);
    return test_end();
}
