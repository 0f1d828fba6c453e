/*
 * A guest dies as if its power had failed. Processes that wait for its processes get an error that
 * names one of them, whatever they wait in, even if they have sent it nothing; other windows keep
 * working, and all can be freed. How the host reacts is out of scope, so rank 0 ends the job. For
 * two guests (tests/rxe) and 4 ranks, placed alternately: the odd ranks die.
 */
#include "check.h"
#include "faults.h"

enum { WINDOWS = 3 };

static void checked(int code, const char *call, double begin, double limit)
{
    const char *text = error_text(code);
    EXPECT(code != MPI_SUCCESS, "%s ended without an error", call);
    EXPECT(strstr(text, "of the window cannot be reached any more") != NULL, "%s: %s", call, text);
    EXPECT(seconds() - begin < limit, "%s took %.1f s", call, seconds() - begin);
    printf("NOTE rank %d, %s, after %.1f s: %s\n", me, call, seconds() - begin, text);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks == 4);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    int64_t *base[WINDOWS], *ours, value = 7;
    MPI_Win win[WINDOWS], among;
    for (int k = 0; k < WINDOWS; k++) {
        MPI(MPI_Win_allocate(64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base[k], &win[k]));
        memset(base[k], 0, 64);
        MPI(MPI_Win_set_errhandler(win[k], MPI_ERRORS_RETURN));
    }
    MPI_Comm guest;
    MPI(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &guest));
    MPI(MPI_Win_allocate(64, 8, MPI_INFO_NULL, guest, &ours, &among));
    memset(ours, 0, 64);
    MPI_Group other = group_one(me ^ 1);
    /* Connect 0 and 1, 2 and 3, by locks and by epochs. */
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me ^ 1, 0, win[0]));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, me ^ 1, me, 1, MPI_INT64_T, win[0]));
    MPI(MPI_Win_unlock(me ^ 1, win[0]));
    MPI(MPI_Win_post(other, 0, win[0]));
    MPI(MPI_Win_start(other, 0, win[0]));
    MPI(MPI_Win_complete(win[0]));
    MPI(MPI_Win_wait(win[0]));
    MPI(MPI_Win_fence(0, win[2]));
    /* Rank 3 takes the lock on rank 0's memory and never releases it. */
    if (me == 3) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win[1]));
        MPI(MPI_Win_flush(0, win[1]));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    /* Rank 2 queues for that lock; it has nothing left to send. */
    MPI_Request request = MPI_REQUEST_NULL;
    if (me == 2)
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 0, 0, win[1], &request)); /* is complete */
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me % 2) {
        /* The odd ranks wait for their end, in a receive that never completes. */
        MPI(MPI_Recv(&value, 1, MPI_INT64_T, MPI_ANY_SOURCE, 99, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        return 1;
    }
    MPI(MPI_Barrier(guest));
    double begin = seconds();
    if (me == 0)
        fault("kill 1");
    MPI(MPI_Barrier(guest));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (me == 0) {
        /* An operation is in flight to a dead process. */
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, MPI_MODE_NOCHECK, win[0]));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 1, 1, MPI_INT64_T, win[0]));
        checked(MPI_Win_flush(1, win[0]), "MPI_Win_flush", begin, 40);
    } else {
        /* Rank 2 waits for a dead process without having sent it anything. */
        MPI(MPI_Win_post(other, 0, win[0]));
        checked(MPI_Win_wait(win[0]), "MPI_Win_wait", begin, 40);
        checked(MPI_Win_unlock(0, win[1]), "MPI_Win_unlock", begin, 60);
    }
    MPI(MPI_Barrier(guest));
    /* In a fence each process waits for all. */
    begin = seconds();
    checked(MPI_Win_fence(0, win[2]), "MPI_Win_fence", begin, 40);
    /* The survivors' window does not include a dead process, so it keeps working. */
    for (int round = 0; round < 10; round++) {
        int right = (me / 2 + 1) % (ranks / 2);
        value = 100 * round + me;
        MPI(MPI_Win_fence(0, among));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, among));
        MPI(MPI_Win_fence(0, among));
        int left = (me + ranks - 2) % ranks;
        EXPECT(*ours == 100 * round + left, "round %d: %ld", round, (long)*ours);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, among));
        MPI(MPI_Win_unlock(right, among));
    }
    /* Freeing needs the dead processes, too, but does not wait for them forever. */
    for (int k = 0; k < WINDOWS; k++) {
        begin = seconds();
        MPI(MPI_Win_free(&win[k]));
        EXPECT(seconds() - begin < 40, "MPI_Win_free took %.1f s", seconds() - begin);
    }
    int sum = 0;
    MPI(MPI_Allreduce(&failures, &sum, 1, MPI_INT, MPI_SUM, guest));
    MPI(MPI_Win_free(&among));
    if (me == 0) {
        printf("%s\n", sum ? "FAILED" : "survived");
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 7);
    }
    for (;;)
        pause();
}
