/*
 * MPI_Rput, MPI_Rget, MPI_Raccumulate, MPI_Rget_accumulate [RQ-1]: under granted and waiting locks,
 * many at once, mixed with flushes.
 */
#include "check.h"

enum { N = 2000 };

static void all_four(int kind, int under_all)
{
    Window w = window(kind, 4 * N * sizeof(int), sizeof(int));
    int *out = malloc(N * sizeof(int)), *got = malloc(N * sizeof(int)),
        *old = malloc(N * sizeof(int)), right = (me + 1) % ranks;
    for (int i = 0; i < N; i++)
        out[i] = me * N + i;
    if (under_all)
        MPI(MPI_Win_lock_all(0, w.win));
    else
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, w.win));
    MPI_Request r[4];
    MPI(MPI_Rput(out, N, MPI_INT, right, 0, N, MPI_INT, w.win, &r[0]));
    MPI(MPI_Raccumulate(out, N, MPI_INT, right, N, N, MPI_INT, MPI_SUM, w.win, &r[1]));
    MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    MPI(MPI_Win_flush(right, w.win));
    MPI(MPI_Rget(got, N, MPI_INT, right, 0, N, MPI_INT, w.win, &r[2]));
    MPI(MPI_Rget_accumulate(out, N, MPI_INT, old, N, MPI_INT, right, N, N, MPI_INT, MPI_SUM, w.win,
                            &r[3]));
    MPI(MPI_Waitall(2, r + 2, MPI_STATUSES_IGNORE));
    for (int i = 0; i < N; i++)
        if (got[i] != me * N + i || old[i] != me * N + i) {
            EXPECT(0, "%s: Rget [%d] = %d, Rget_accumulate %d", kind_name[kind], i, got[i], old[i]);
            break;
        }
    if (under_all)
        MPI(MPI_Win_unlock_all(w.win));
    else
        MPI(MPI_Win_unlock(right, w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    int left = (me + ranks - 1) % ranks;
    for (int i = 0; i < N; i++)
        if (((int *)w.base)[N + i] != 2 * (left * N + i)) {
            EXPECT(0, "%s: accumulated twice: [%d] = %d", kind_name[kind], i,
                   ((int *)w.base)[N + i]);
            break;
        }
    MPI(MPI_Win_unlock(me, w.win));
    free(out);
    free(got);
    free(old);
    window_free(&w);
}

/* Hundreds at once, completed in any order, including requests of zero elements and to
 * MPI_PROC_NULL. */
static void many(int kind)
{
    enum { MANY = 500 };
    Window w = window(kind, MANY * ranks * sizeof(int), sizeof(int));
    int value[MANY], back[MANY];
    MPI_Request r[MANY];
    MPI(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < MANY; i++) {
        value[i] = me * MANY + i;
        int target = i % 7 == 6 ? MPI_PROC_NULL : (me + i) % ranks;
        MPI(MPI_Rput(&value[i], i % 5 == 4 ? 0 : 1, MPI_INT, target, me * MANY + i,
                     i % 5 == 4 ? 0 : 1, MPI_INT, w.win, &r[i]));
    }
    for (int left = MANY; left > 0;) {
        int some, indices[MANY];
        MPI(MPI_Waitsome(MANY, r, &some, indices, MPI_STATUSES_IGNORE));
        REQUIRE(some > 0);
        left -= some;
    }
    MPI(MPI_Win_flush_all(w.win));
    for (int i = 0; i < MANY; i++) {
        back[i] = -1;
        MPI(MPI_Rget(&back[i], 1, MPI_INT, (me + i) % ranks, me * MANY + i, 1, MPI_INT, w.win,
                     &r[i]));
    }
    MPI(MPI_Waitall(MANY, r, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++)
        EXPECT(back[i] == (i % 7 == 6 || i % 5 == 4 ? 0 : value[i]), "%s: [%d] = %d",
               kind_name[kind], i, back[i]);
    MPI(MPI_Win_unlock_all(w.win));
    window_free(&w);
}

/* Unlock completes operations whose requests are still pending; the requests stay valid after
 * it. */
static void behind_unlock(int kind)
{
    Window w = window(kind, ranks * sizeof(int), sizeof(int));
    int value = me + 50, back = -1, target = (me + 1) % ranks;
    MPI_Request r[3];
    MPI(MPIX_Win_ilock(MPI_LOCK_SHARED, target, 0, w.win, &r[0]));
    expect_complete(&r[0], "ilock");
    MPI(MPI_Rput(&value, 1, MPI_INT, target, me, 1, MPI_INT, w.win, &r[0]));
    MPI(MPI_Win_flush(target, w.win));
    MPI(MPI_Rget(&back, 1, MPI_INT, target, me, 1, MPI_INT, w.win, &r[1]));
    MPI(MPIX_Win_iunlock(target, w.win, &r[2]));
    finish(&r[2]);
    MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
    EXPECT(back == value, "%s: %d", kind_name[kind], back);
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        all_four(kind, 0);
        all_four(kind, 1);
        many(kind);
        behind_unlock(kind);
    }
    return test_end();
}
