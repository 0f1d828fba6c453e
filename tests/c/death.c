/*
 * A process dies in the middle of an epoch, and the launcher ends the others. run.py checks that no
 * processes or segments are left.
 *
 *   death KIND WHEN    WHEN: fence | start | post | lock | lock_all | create
 */
#include "check.h"
#include <signal.h>

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 3 && ranks >= 2);
    int kind = strcmp(argv[1], "created") == 0, dies = me == ranks - 1;
    const char *when = argv[2];
    if (strcmp(when, "create") == 0) {
        if (dies)
            raise(SIGKILL);
        window(kind, 1 << 16, 1);
        return 0;
    }
    Window w = window(kind, 1 << 16, 1);
    MPI_Group last = group_one(ranks - 1), first = group_one(0);
    int64_t value = 1;
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    if (strcmp(when, "fence") == 0) {
        MPI(MPI_Win_fence(0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, (me + 1) % ranks, 0, 1, MPI_INT64_T, w.win));
        if (dies)
            raise(SIGKILL);
        MPI(MPI_Win_fence(0, w.win));
    } else if (strcmp(when, "start") == 0) {
        if (dies)
            raise(SIGKILL);
        MPI(MPI_Win_start(last, 0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, ranks - 1, 0, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_complete(w.win));
    } else if (strcmp(when, "post") == 0) {
        if (dies) {
            MPI(MPI_Win_start(first, 0, w.win));
            raise(SIGKILL);
        }
        MPI(MPI_Win_post(last, 0, w.win));
        MPI(MPI_Win_wait(w.win));
    } else if (strcmp(when, "lock") == 0) {
        if (dies) {
            MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
            MPI(MPI_Win_flush(0, w.win));
            for (int i = 0; i < ranks - 1; i++)
                send_token(i, 1);
            raise(SIGKILL);
        }
        recv_token(ranks - 1, 1);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
        MPI(MPI_Win_unlock(0, w.win));
    } else if (strcmp(when, "lock_all") == 0) {
        MPI(MPI_Win_lock_all(0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, ranks - 1, 0, 1, MPI_INT64_T, w.win));
        if (dies)
            raise(SIGKILL);
        MPI(MPI_Win_unlock_all(w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    } else
        REQUIRE(!"known moment");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    return 0;
}
