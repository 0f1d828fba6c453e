/*
 * MPIX_Rfetch_and_op and MPIX_Rcompare_and_swap: their requests complete with the result [RQ-6],
 * many at once, mixed with other requests, and behind a lock that is not granted yet. Invalid calls
 * fail and make no request.
 */
#include "check.h"

enum { EACH = 200, CELLS = 8 };

static Window w;

/* All take tickets at rank 0, in one list of requests: each number is taken once. */
static void tickets(int locks_all)
{
    int64_t one = 1, taken[EACH], sum = 0, total = 0, n = (int64_t)EACH * ranks;
    MPI_Request r[EACH];
    if (locks_all)
        MPI(MPI_Win_lock_all(0, w.win));
    else
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
    for (int i = 0; i < EACH; i++)
        MPI(MPIX_Rfetch_and_op(&one, &taken[i], MPI_INT64_T, 0, 0, MPI_SUM, w.win, &r[i]));
    MPI(MPI_Waitall(EACH, r, MPI_STATUSES_IGNORE));
    for (int i = 0; i < EACH; i++) {
        EXPECT(r[i] == MPI_REQUEST_NULL, "request %d is not null", i);
        EXPECT(taken[i] >= 0 && taken[i] < n && (!i || taken[i] > taken[i - 1]), "ticket %d: %ld",
               i, (long)taken[i]);
        sum += taken[i];
    }
    if (locks_all)
        MPI(MPI_Win_unlock_all(w.win));
    else
        MPI(MPI_Win_unlock(0, w.win));
    MPI(MPI_Allreduce(&sum, &total, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(total == n * (n - 1) / 2, "tickets add up to %ld", (long)total);
    set_word(&w, 0, 0);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* One process of all wins each election, and the losers see who. */
static void elections(void)
{
    int64_t none = -1, mine = me, seen[EACH], won = 0, all = 0;
    MPI_Request r[2];
    MPI(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < EACH; i++) {
        int cell = 1 + i % (CELLS - 1), target = i % ranks;
        if (i % (CELLS - 1) == 0) {
            MPI(MPI_Barrier(MPI_COMM_WORLD));
            for (int c = 1; c < CELLS; c++)
                store64((int64_t *)w.base + c, -1);
            MPI(MPI_Win_sync(w.win));
            MPI(MPI_Barrier(MPI_COMM_WORLD));
        }
        MPI(MPIX_Rcompare_and_swap(&mine, &none, &seen[i], MPI_INT64_T, target, cell, w.win, r));
        MPI(MPI_Irecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &r[1]));
        MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
        EXPECT(seen[i] >= -1 && seen[i] < ranks && seen[i] != me, "election %d: %ld", i,
               (long)seen[i]);
        won += seen[i] == -1;
    }
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Allreduce(&won, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(all == EACH, "%ld winners of %d elections", (long)all, EACH);
}

/* Recorded in an epoch whose lock another process holds: pending until that is granted. */
static void recorded(void)
{
    if (ranks == 1)
        return;
    int64_t ten = 10, eleven = 11, twelve = 12, back[3] = {-1, -1, -1};
    set_word(&w, 1, 1);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 1) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win));
        send_token(0, 1);
        recv_token(0, 2);
        MPI(MPI_Win_unlock(1, w.win));
    } else if (me == 0) {
        MPI_Request lock, unlock, r[3];
        int flag = 0;
        recv_token(1, 1);
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win, &lock));
        expect_complete(&lock, "ilock");
        MPI(MPIX_Rfetch_and_op(&ten, &back[0], MPI_INT64_T, 1, 0, MPI_SUM, w.win, &r[0]));
        MPI(MPIX_Rcompare_and_swap(&twelve, &eleven, &back[1], MPI_INT64_T, 1, 0, w.win, &r[1]));
        MPI(MPIX_Rfetch_and_op(NULL, &back[2], MPI_INT64_T, 1, 0, MPI_NO_OP, w.win, &r[2]));
        MPI(MPIX_Win_iunlock(1, w.win, &unlock));
        for (int i = 0; i < 3; i++) {
            MPI(MPI_Test(&r[i], &flag, MPI_STATUS_IGNORE));
            EXPECT(!flag, "complete before the lock is granted: %d", i);
        }
        send_token(1, 2);
        MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
        EXPECT(back[0] == 1 && back[1] == 11 && back[2] == 12, "%ld, %ld, %ld", (long)back[0],
               (long)back[1], (long)back[2]);
        finish(&unlock);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    set_word(&w, 1, 0);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* Another type, another reduction, and no process. */
static void others(void)
{
    double half = 0.5, was = -1;
    int32_t five = 5, zero = 0, seen = -1;
    MPI_Request r[2];
    int flag = 0;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, w.win));
    memset(w.base, 0, CELLS * sizeof(int64_t));
    MPI(MPIX_Rfetch_and_op(&half, &was, MPI_DOUBLE, me, 1, MPI_MAX, w.win, &r[0]));
    MPI(MPIX_Rcompare_and_swap(&five, &zero, &seen, MPI_INT32_T, me, 2, w.win, &r[1]));
    MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    EXPECT(was == 0 && seen == 0, "fetched %g and %d", was, (int)seen);
    MPI(MPI_Win_flush(me, w.win));
    EXPECT(((double *)w.base)[1] == 0.5 && *(int32_t *)((int64_t *)w.base + 2) == 5, "results");
    MPI(MPIX_Rfetch_and_op(&half, &was, MPI_DOUBLE, MPI_PROC_NULL, 1, MPI_SUM, w.win, &r[0]));
    MPI(MPIX_Rcompare_and_swap(&five, &zero, &seen, MPI_INT32_T, MPI_PROC_NULL, 2, w.win, &r[1]));
    MPI(MPI_Testall(2, r, &flag, MPI_STATUSES_IGNORE));
    EXPECT(flag && was == 0 && seen == 0, "MPI_PROC_NULL");
    memset(w.base, 0, CELLS * sizeof(int64_t));
    MPI(MPI_Win_unlock(me, w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void no_passive_epoch(void)
{
    int64_t value = 1, back = -1;
    MPI_Request r = MPI_REQUEST_NULL;
    REFUSED(MPI_ERR_RMA_SYNC,
            MPIX_Rfetch_and_op(&value, &back, MPI_INT64_T, me, 0, MPI_SUM, w.win, &r));
    REFUSED(MPI_ERR_RMA_SYNC,
            MPIX_Rcompare_and_swap(&value, &value, &back, MPI_INT64_T, me, 0, w.win, &r));
    EXPECT(r == MPI_REQUEST_NULL && back == -1 && load64(w.base) == 0, "a refused call did more");
}

/* Outside lock epochs, and with invalid arguments, nothing moves. */
static void wrong(void)
{
    int64_t value = 1, back = -1;
    MPI_Request r = MPI_REQUEST_NULL;
    MPI_Group self = group_one(me);
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    no_passive_epoch();
    MPI(MPI_Win_fence(0, w.win));
    no_passive_epoch();
    MPI(MPI_Put(&back, 1, MPI_INT64_T, me, 1, 1, MPI_INT64_T, w.win));
    no_passive_epoch();
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    MPI(MPI_Win_post(self, 0, w.win));
    MPI(MPI_Win_start(self, 0, w.win));
    no_passive_epoch();
    MPI(MPI_Win_complete(w.win));
    MPI(MPI_Win_wait(w.win));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    REFUSED(MPI_ERR_RANK,
            MPIX_Rfetch_and_op(&value, &back, MPI_INT64_T, ranks, 0, MPI_SUM, w.win, &r));
    REFUSED(MPI_ERR_RMA_RANGE,
            MPIX_Rfetch_and_op(&value, &back, MPI_INT64_T, me, CELLS, MPI_SUM, w.win, &r));
    REFUSED(MPI_ERR_OP, MPIX_Rfetch_and_op(&value, &back, MPI_DOUBLE, me, 0, MPI_BAND, w.win, &r));
    REFUSED(MPI_ERR_BUFFER,
            MPIX_Rfetch_and_op(&value, NULL, MPI_INT64_T, me, 0, MPI_SUM, w.win, &r));
    REFUSED(MPI_ERR_ARG,
            MPIX_Rfetch_and_op(&value, &back, MPI_INT64_T, me, 0, MPI_SUM, w.win, NULL));
    REFUSED(MPI_ERR_TYPE, MPIX_Rcompare_and_swap(&value, &value, &back, MPI_DOUBLE, me, 0, w.win,
                                                 &r));
    REFUSED(MPI_ERR_DISP, MPIX_Rcompare_and_swap(&value, &value, &back, MPI_INT64_T, me, -1, w.win,
                                                 &r));
    REFUSED(MPI_ERR_ARG, MPIX_Rcompare_and_swap(&value, &value, &back, MPI_INT64_T, me, 0, w.win,
                                                NULL));
    if (ranks > 1)
        REFUSED(MPI_ERR_RMA_SYNC, MPIX_Rcompare_and_swap(&value, &value, &back, MPI_INT64_T,
                                                         (me + 1) % ranks, 0, w.win, &r));
    EXPECT(r == MPI_REQUEST_NULL && back == -1 && load64(w.base) == 0, "a refused call did more");
    MPI(MPI_Win_unlock(me, w.win));
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_ARE_FATAL));
    MPI(MPI_Group_free(&self));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        w = window(kind, CELLS * sizeof(int64_t), sizeof(int64_t));
        wrong();
        tickets(0);
        tickets(1);
        recorded();
        others();
        elections();
        window_free(&w);
    }
    return test_end();
}
