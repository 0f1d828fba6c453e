/*
 * A peer that cannot be reached any more, since the network between the two has gone: what waits for it ends with an error that says so, within the time
 * that the interface tries, and so does the window. For guests with soft-RoCE (tests/rxe); the messages of the MPI library take another network.
 * argv: what rank 0 waits in (flush, lock, lock_all, fence, iunlock, or list: Waitall for an iunlock and a tagged notification; test, notify_test, watch:
 * something was asked of nobody; traffic: for a lock that rank 1 holds, while rank 2 keeps the window busy), and what is gone: network
 * (the default: frames get lost), or the port of rank 1's machine (port) or of rank 0's own (own). Afterwards both sides can free the window.
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

/* Tests for what only rank 1 could do, or waits for it by a request: nothing was asked of that one. */
static int asking_nobody(const char *what, MPI_Win win)
{
    MPI_Group other = group_one(1);
    MPI_Request request, tagged;
    int code = MPI_SUCCESS, flag = 0;
    if (!strcmp(what, "test")) {
        MPI(MPI_Win_post(other, 0, win));
        while (code == MPI_SUCCESS && !flag)
            code = MPI_Win_test(win, &flag);
    } else if (!strcmp(what, "notify_test"))
        while (code == MPI_SUCCESS && !flag)
            code = MPIX_Win_notify_test_threshold(win, 0, 1, &flag);
    else {
        /* The one is waited for, the other is left. */
        MPI(MPIX_Notify_init(win, 1, 7, 1, &tagged));
        MPI(MPI_Start(&tagged));
        MPI(MPIX_Win_notify_ithreshold(win, 0, 1, &request));
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI(MPI_Request_free(&tagged));
    }
    MPI(MPI_Group_free(&other));
    return code;
}

/* Rank 1 still holds a lock, and can free the window when it has been told. */
static void until_told(MPI_Win win)
{
    MPI_Group self = group_one(me);
    MPI(MPI_Win_post(self, 0, win));
    EXPECT(MPI_Win_wait(win) != MPI_SUCCESS, "the one that was lost is told");
    MPI(MPI_Group_free(&self));
}

/*
 * Rank 1 holds the lock of rank 0's memory, for which rank 0 waits, without anything to ask any more. Rank 2 keeps adding something there, so that something moves in
 * rank 0's window all the time, until it hears of the loss itself.
 */
static void in_traffic(MPI_Win win)
{
    int64_t one = 1;
    int code = MPI_SUCCESS;
    MPI_Request born;
    if (me == 1) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        MPI(MPI_Win_flush(0, win));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0)
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 0, 0, win, &born)); /* is complete */
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0)
        fault("down 1");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double begin = seconds();
    if (me == 0) {
        code = MPI_Win_unlock(0, win);
        MPI(MPI_Wait(&born, MPI_STATUS_IGNORE));
    } else if (me == 2) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOCHECK, win));
        while (code == MPI_SUCCESS) {
            MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, MPI_SUM, win));
            code = MPI_Win_flush(0, win);
        }
    }
    double took = seconds() - begin;
    if (me != 1) {
        EXPECT(code != MPI_SUCCESS && took < 40, "the wait ends with an error: after %.1f s", took);
        printf("NOTE rank %d, after %.1f s: %s\n", me, took, expect_words(code));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0)
        fault("up 1");
    if (me == 1)
        until_told(win);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 2 || argc == 3);
    const char *what = argv[1], *gone = argc == 3 ? argv[2] : "network";
    int traffic = !strcmp(what, "traffic");
    REQUIRE(ranks == (traffic ? 3 : 2));
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
    MPI(MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 1));
    /* They have met, and it works. */
    int other = me == 0;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, other, 0, win));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, other, 0, 1, MPI_INT64_T, win));
    MPI(MPI_Win_unlock(other, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    EXPECT(me > 1 || base[0] == 7, "put before the fault");
    /* Of its own memory. */
    int holds = me == 1 && !strcmp(what, "lock_all");
    if (holds)
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (traffic) {
        in_traffic(win);
    } else if (me == 0) {
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
        } else if (!strcmp(what, "lock_all")) {
            code = MPI_Win_lock_all(0, win);
        } else if (!strcmp(what, "test") || !strcmp(what, "notify_test") || !strcmp(what, "watch")) {
            code = asking_nobody(what, win);
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
    } else if (holds)
        until_told(win);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    /* Whatever was left open. */
    int code = MPI_Win_free(&win);
    EXPECT(code == MPI_SUCCESS, "freeing the window: %s", words_of(code));
    return test_end();
}
