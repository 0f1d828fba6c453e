/*
 * Log messages, which testlist matches: the transport of each kind of window, a wait of more than
 * two seconds [EP-10], epochs open at MPI_Finalize, and a lock on a window with no_locks=true.
 *
 *   log_lines CASE    CASE: windows | wait | flush | open | locks (1 process)
 */
#include "check.h"

/* The delay itself is under test: process 1 computes for longer than the log waits. */
static void compute(void)
{
    for (double end = seconds() + 5; seconds() < end;)
        ;
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 2 && ranks == (strcmp(argv[1], "locks") == 0 ? 1 : 2));
    if (strcmp(argv[1], "windows") == 0) {
        Window a = window(ALLOCATED, 64, 1), b = window(CREATED, 64, 1);
        MPI_Info info;
        MPI_Win shared;
        void *base;
        MPI(MPI_Info_create(&info));
        MPI(MPI_Info_set(info, "mpix_rma", "false"));
        Window c = window_on(ALLOCATED, 64, 1, info, MPI_COMM_WORLD);
        MPI(MPI_Info_free(&info));
        MPI(MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &shared));
        MPI(MPI_Win_free(&shared));
        window_free(&c);
        window_free(&b);
        window_free(&a);
    } else if (strcmp(argv[1], "wait") == 0) {
        Window w = window(ALLOCATED, 64, 1);
        MPI_Group other = group_one(1 - me);
        if (me == 0) {
            MPI(MPI_Win_post(other, 0, w.win));
            MPI(MPI_Win_wait(w.win));
        } else {
            compute();
            MPI(MPI_Win_start(other, 0, w.win));
            MPI(MPI_Win_complete(w.win));
        }
        MPI(MPI_Group_free(&other));
        window_free(&w);
    } else if (strcmp(argv[1], "flush") == 0) {
        /* Between nodes, sweeps do not visit a window that only awaits an answer. Those that check
           one window in turn come too seldom to it, among so many. */
        enum { WINDOWS = 256 };
        Window w[WINDOWS];
        char byte = 1;
        MPI_Request request;
        for (int i = 0; i < WINDOWS; i++)
            w[i] = window(ALLOCATED, 64, 1);
        MPI(MPI_Win_lock_all(0, w[0].win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (me == 0) {
            MPI(MPI_Put(&byte, 1, MPI_CHAR, 1, 0, 1, MPI_CHAR, w[0].win));
            MPI(MPIX_Win_iflush(1, w[0].win, &request));
            MPI(MPI_Recv(NULL, 0, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else {
            compute();
            MPI(MPI_Send(NULL, 0, MPI_CHAR, 0, 0, MPI_COMM_WORLD));
        }
        MPI(MPI_Win_unlock_all(w[0].win));
        for (int i = 0; i < WINDOWS; i++)
            window_free(&w[i]);
    } else if (strcmp(argv[1], "locks") == 0) {
        MPI_Info info;
        MPI(MPI_Info_create(&info));
        MPI(MPI_Info_set(info, "no_locks", "true"));
        Window w = window_on(ALLOCATED, 64, 1, info, MPI_COMM_WORLD);
        MPI(MPI_Info_free(&info));
        for (int turn = 0; turn < 3; turn++) {
            MPI(MPI_Win_lock_all(0, w.win));
            MPI(MPI_Win_unlock_all(w.win));
            MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
            MPI(MPI_Win_unlock(me, w.win));
        }
        window_free(&w);
    } else {
        Window w = window(ALLOCATED, 64, 1);
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    }
    return test_end();
}
