/*
 * A peer becomes unreachable because the network between the two fails. Whatever waits for it, and
 * the window, gets an error that names it, within the device's retry time. Afterwards both sides
 * can free the window. For guests with soft-RoCE (tests/rxe); the host's messages use another
 * network.
 *
 *   lost WAIT [FAULT]    WAIT, in rank 0:
 *                        flush | lock | lock_all | fence | iunlock
 *                        list: Waitall for an iunlock and a tagged notification
 *                        test | notify_test | watch: without any operation to the peer
 *                        traffic: for a lock of rank 1, while rank 2 keeps the window busy
 *                        FAULT: network (default; frames are dropped) |
 *                        port (of rank 1's machine) | own (port of rank 0's machine)
 */
#include "check.h"
#include "faults.h"

/* The text of an error, which must name the lost peer. */
static const char *expect_words(int code)
{
    const char *text = error_text(code);
    EXPECT(strstr(text, "process 1 of the window cannot be reached") != NULL, "the error says: %s",
           text);
    return text;
}

/* Waits for two failing requests, one of each kind; returns the error of the first. */
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

/* Waits or tests for an action of rank 1 without having sent it anything. */
static int wait_without_operation(const char *what, MPI_Win win)
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
        /* One request is waited for, the other is abandoned. */
        MPI(MPIX_Notify_init(win, 1, 7, 1, &tagged));
        MPI(MPI_Start(&tagged));
        MPI(MPIX_Win_notify_ithreshold(win, 0, 1, &request));
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI(MPI_Request_free(&tagged));
    }
    MPI(MPI_Group_free(&other));
    return code;
}

/* Rank 1 still holds a lock; it can free the window once it knows of the loss. */
static void wait_for_loss(MPI_Win win)
{
    MPI_Group self = group_one(me);
    MPI(MPI_Win_post(self, 0, win));
    EXPECT(MPI_Win_wait(win) != MPI_SUCCESS, "the lost peer gets an error");
    MPI(MPI_Group_free(&self));
}

/* Rank 0 waits for a lock that rank 1 holds and has nothing left to send. Rank 2 keeps adding to
 * rank 0's memory, so rank 0's window is always busy, until rank 2 learns of the loss itself. */
static void wait_under_load(MPI_Win win)
{
    int64_t one = 1;
    int code = MPI_SUCCESS;
    MPI_Request opening;
    if (me == 1) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        MPI(MPI_Win_flush(0, win));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0)
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 0, 0, win, &opening)); /* is complete */
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0)
        fault("down 1");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double begin = seconds();
    if (me == 0) {
        code = MPI_Win_unlock(0, win);
        MPI(MPI_Wait(&opening, MPI_STATUS_IGNORE));
    } else if (me == 2) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOCHECK, win));
        while (code == MPI_SUCCESS) {
            MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, MPI_SUM, win));
            code = MPI_Win_flush(0, win);
        }
    }
    double took = seconds() - begin;
    if (me != 1) {
        EXPECT(code != MPI_SUCCESS && took < 40, "no error, or too late: after %.1f s", took);
        printf("NOTE rank %d, after %.1f s: %s\n", me, took, expect_words(code));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0)
        fault("up 1");
    if (me == 1)
        wait_for_loss(win);
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
    /* First contact, without a fault. */
    int other = me == 0;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, other, 0, win));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, other, 0, 1, MPI_INT64_T, win));
    MPI(MPI_Win_unlock(other, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    EXPECT(me > 1 || base[0] == 7, "put before the fault");
    /* A lock on its own memory. */
    int holds = me == 1 && !strcmp(what, "lock_all");
    if (holds)
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (traffic) {
        wait_under_load(win);
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
        } else if (!strcmp(what, "test") || !strcmp(what, "notify_test") ||
                   !strcmp(what, "watch")) {
            code = wait_without_operation(what, win);
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
        EXPECT(code != MPI_SUCCESS, "%s returned no error", what);
        printf("NOTE after %.1f s: %s\n", took, expect_words(code));
        EXPECT(took < 40, "it took %.1f s", took);
        fault(up);
    } else if (!strcmp(what, "fence")) {
        int code = MPI_Win_fence(0, win);
        if (code == MPI_SUCCESS)
            code = MPI_Win_fence(0, win);
        EXPECT(code != MPI_SUCCESS, "the fence of the other side returned no error");
    } else if (holds)
        wait_for_loss(win);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    /* Frees the window whatever is still open. */
    int code = MPI_Win_free(&win);
    EXPECT(code == MPI_SUCCESS, "freeing the window: %s", error_text(code));
    return test_end();
}
