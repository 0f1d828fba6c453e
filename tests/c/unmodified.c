/*
 * An ordinary MPI program: preloaded, linked, and on the plain host. With EXPECT_LIBRARY in the
 * environment, it checks that the library is loaded.
 */
#ifndef PLAIN
#define PLAIN
#endif
#include "check.h"
#include <dlfcn.h>

static void everything(int kind)
{
    Window w = window(kind, 64 * sizeof(int64_t), sizeof(int64_t));
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int64_t *mine = w.base, value, got = -1, old = -1, one = 1;
    MPI_Group to = group_one(right), from = group_one(left);
    MPI_Request r[3];
    int flag;
    for (int round = 1; round <= 50; round++) {
        value = round * 100 + me;
        MPI(MPI_Win_fence(0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_fence(0, w.win));
        EXPECT(load64(mine) == round * 100 + left, "fence: %ld", (long)load64(mine));
        MPI(MPI_Get(&got, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
        EXPECT(got == value, "get: %ld", (long)got);

        MPI(MPI_Win_post(from, 0, w.win));
        MPI(MPI_Win_start(to, 0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, w.win));
        MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, right, 2, 1, MPI_INT64_T, MPI_SUM, w.win));
        MPI(MPI_Win_complete(w.win));
        if (round % 2)
            MPI(MPI_Win_wait(w.win));
        else
            do
                MPI(MPI_Win_test(w.win, &flag));
            while (!flag);
        EXPECT(load64(mine + 1) == round * 100 + left && load64(mine + 2) == round, "post: %ld %ld",
               (long)load64(mine + 1), (long)load64(mine + 2));
        MPI(MPI_Barrier(MPI_COMM_WORLD)); /* the locks below must not meet an exposure */

        MPI(MPI_Win_lock(round % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, right, 0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 3, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_flush(right, w.win));
        MPI(MPI_Rget(&got, 1, MPI_INT64_T, right, 3, 1, MPI_INT64_T, w.win, &r[0]));
        MPI(MPI_Wait(&r[0], MPI_STATUS_IGNORE));
        EXPECT(got == value, "lock: %ld", (long)got);
        MPI(MPI_Win_unlock(right, w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD)); /* lock_all waits for a message below: no process may want
                                             an exclusive lock then */

        MPI(MPI_Win_lock_all(0, w.win));
        MPI(MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 4, MPI_SUM, w.win));
        MPI(MPI_Rput(&value, 1, MPI_INT64_T, right, 5, 1, MPI_INT64_T, w.win, &r[0]));
        MPI(MPI_Irecv(&got, 1, MPI_INT64_T, left, 9, MPI_COMM_WORLD, &r[1]));
        MPI(MPI_Isend(&value, 1, MPI_INT64_T, right, 9, MPI_COMM_WORLD, &r[2]));
        MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
        MPI(MPI_Win_flush_all(w.win));
        EXPECT(got == round * 100 + left && old >= 0 && old < round * ranks,
               "message %ld, fetch_and_op %ld", (long)got, (long)old);
        MPI(MPI_Win_sync(w.win));
        MPI(MPI_Win_unlock_all(w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
    MPI(MPI_Get(&got, 1, MPI_INT64_T, 0, 4, 1, MPI_INT64_T, w.win));
    MPI(MPI_Win_unlock(0, w.win));
    EXPECT(got == 50 * ranks, "adds: %ld", (long)got);
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    EXPECT(!getenv("EXPECT_LIBRARY") || dlsym(RTLD_DEFAULT, "MPIX_Get_version"),
           "the library is not loaded");
    everything(ALLOCATED);
    if (ranks > 1) /* Some hosts cannot create a window of one process. */
        everything(CREATED);
    return test_end();
}
