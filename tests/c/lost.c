/*
 * A peer that cannot be reached any more, since the network between the two has gone: what waits for it ends with an error that says so, within the time
 * that the interface tries, and so does the window. For guests with soft-RoCE (tests/rxe); the messages of the MPI library take another network.
 * argv: what rank 0 waits in (flush, lock, fence, iunlock, or list: Waitall for an iunlock and a tagged notification), and what is gone: network
 * (the default: frames get lost), or the port of rank 1's machine (port) or of rank 0's own (own).
 */
#include "check.h"
#include "faults.h"

/* The words of an error, which must say who is gone. */
static const char *expect_words(int code)
{
    const char *text = words_of(code);
    EXPECT(strstr(text, "process 1 of the window cannot be reached") != NULL, "the error says: %s", text);
    return text;
}

/* Waits for two requests that fail, of both kinds that there are; gives the error of the first. */
static int list_of_two(MPI_Win win)
{
    MPI_Request both[2];
    MPI_Status status[2];
    MPI(MPIX_Notify_init(win, 1, 7, 1, &both[1]));
    MPI(MPI_Start(&both[1]));
    MPI(MPIX_Win_iunlock(1, win, &both[0]));
    int code = MPI_Waitall(2, both, status);
    EXPECT(class_of(code) == MPI_ERR_IN_STATUS, "waiting for both: class %d", class_of(code));
    expect_words(status[1].MPI_ERROR);
    MPI(MPI_Request_free(&both[1]));
    return status[0].MPI_ERROR;
}

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
        int locked = !strcmp(what, "flush") || !strcmp(what, "iunlock") || !strcmp(what, "list");
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
            else if (!strcmp(what, "list"))
                code = list_of_two(win);
            else {
                MPI(MPIX_Win_iunlock(1, win, &request));
                code = MPI_Wait(&request, MPI_STATUS_IGNORE);
            }
        }
        double took = seconds() - begin;
        EXPECT(code != MPI_SUCCESS, "%s ends with an error", what);
        printf("NOTE after %.1f s: %s\n", took, expect_words(code));
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
