/*
 * A peer that cannot be reached any more, since the network between the two has gone: what waits for it ends with an error that says so, within the time
 * that the interface tries, and so does the window. For guests with soft-RoCE (tests/rxe); the messages of the MPI library take another network.
 * argv: what rank 0 waits in (flush, lock, fence, iunlock), and what is gone: network (the default: frames get lost), or the port of rank 1's
 * machine (port) or of rank 0's own (own).
 */
#include "check.h"
#include "faults.h"

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks == 2 && (argc == 2 || argc == 3));
    const char *what = argv[1], *gone = argc == 3 ? argv[2] : "network";
    const char *down = "down 1", *up = "up 1";
    if (!strcmp(gone, "port"))
        down = "unplug 1", up = "plug 1";
    if (!strcmp(gone, "own"))
        down = "unplug 0", up = "plug 0";
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    int64_t *base, value = 7;
    MPI_Win win;
    MPI(MPI_Win_allocate(64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    /* They have met, and it works. */
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1 - me, 0, win));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, 1 - me, 0, 1, MPI_INT64_T, win));
    MPI(MPI_Win_unlock(1 - me, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    EXPECT(base[0] == 7, "put before the fault");
    if (me == 0) {
        int code = MPI_SUCCESS;
        int locked = !strcmp(what, "flush") || !strcmp(what, "iunlock");
        MPI_Request request;
        if (locked)
            MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
        if (!strcmp(what, "fence"))
            MPI(MPI_Win_fence(0, win));
        fault(down);
        double begin = seconds();
        if (!strcmp(what, "lock")) {
            code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
            if (code == MPI_SUCCESS)
                code = MPI_Win_unlock(1, win);
        } else {
            MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 1, 1, MPI_INT64_T, win));
            if (!strcmp(what, "flush"))
                code = MPI_Win_flush(1, win);
            else if (!strcmp(what, "fence"))
                code = MPI_Win_fence(0, win);
            else {
                MPI(MPIX_Win_iunlock(1, win, &request));
                code = MPI_Wait(&request, MPI_STATUS_IGNORE);
            }
        }
        double took = seconds() - begin;
        char text[MPI_MAX_ERROR_STRING] = "";
        int length = 0;
        MPI_Error_string(code, text, &length);
        EXPECT(code != MPI_SUCCESS, "%s ends with an error", what);
        EXPECT(strstr(text, "process 1 of the window cannot be reached") != NULL, "the error says: %s", text);
        printf("NOTE after %.1f s: %s\n", took, text);
        EXPECT(took < 40, "it took %.1f s", took);
        fault(up);
    } else if (!strcmp(what, "fence")) {
        int code = MPI_Win_fence(0, win);
        if (code == MPI_SUCCESS)
            code = MPI_Win_fence(0, win);
        EXPECT(code != MPI_SUCCESS, "the other side of the fence hears of it");
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Win_free(&win);
    return test_end();
}
