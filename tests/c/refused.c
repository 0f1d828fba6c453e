/*
 * A peer sends a malformed message on the library's communicator. The library rejects it,
 * everything that waits for that peer ends with an error, nothing hangs, and the window can be
 * freed whatever is open on it. The private communicator's handle is guessed, which MPICH's handle
 * values allow.
 *
 *   refused WAIT    WAIT: what rank 0 waits in when the message arrives
 */
#include "check.h"

/* Sends a malformed message to rank 0 on every communicator of all processes that has the library's
 * name, among MPICH's first eight handles. MPICH 5 aborts beyond those. */
static int send_rubbish(void)
{
    static char rubbish[64] = "this is no packet";
    int sent = 0;
    for (int handle = (int)0x84000000; handle < (int)0x84000008; handle++) {
        MPI_Comm comm = (MPI_Comm)handle;
        char name[MPI_MAX_OBJECT_NAME] = "";
        int size = 0, length = 0, code = MPI_Comm_size(comm, &size);
        if (code != MPI_SUCCESS || size != ranks)
            continue;
        MPI(MPI_Comm_get_name(comm, name, &length));
        if (!strcmp(name, "mpix-rma")) {
            MPI(MPI_Send(rubbish, sizeof rubbish, MPI_CHAR, 0, 0, comm));
            sent++;
        }
    }
    return sent;
}

/* Waits for a tagged notification that nobody sends, alone or beside a message that has arrived. */
static int tagged(const char *what, MPI_Win win)
{
    MPI_Request r[2];
    MPI_Status statuses[2];
    int flag = 0, at = 0, number = 0, places[2], code = MPI_SUCCESS;
    if (!strcmp(what, "tag_probe"))
        return MPIX_Notify_probe(win, 1, 7, MPI_STATUS_IGNORE);
    if (!strcmp(what, "tag_iprobe")) {
        while (code == MPI_SUCCESS && !flag)
            code = MPIX_Notify_iprobe(win, 1, 7, &flag, MPI_STATUS_IGNORE);
        return code;
    }
    MPI(MPIX_Notify_init(win, MPI_ANY_SOURCE, 7, 1, &r[0]));
    MPI(MPI_Start(&r[0]));
    if (!strcmp(what, "tag_wait"))
        code = MPI_Wait(&r[0], MPI_STATUS_IGNORE);
    else if (!strcmp(what, "tag_test"))
        while (!flag)
            code = MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE);
    else if (!strcmp(what, "tag_any"))
        code = MPI_Waitany(1, r, &at, MPI_STATUS_IGNORE);
    else if (!strcmp(what, "tag_some"))
        code = MPI_Waitsome(1, r, &number, places, statuses);
    else {
        REQUIRE(!strcmp(what, "tag_all"));
        MPI(MPI_Irecv(NULL, 0, MPI_CHAR, 0, 6, MPI_COMM_SELF, &r[1]));
        MPI(MPI_Send(NULL, 0, MPI_CHAR, 0, 6, MPI_COMM_SELF));
        code = MPI_Waitall(2, r, statuses);
        EXPECT(statuses[1].MPI_ERROR == MPI_SUCCESS && r[1] == MPI_REQUEST_NULL,
               "the message did not arrive");
    }
    if (class_of(code) == MPI_ERR_IN_STATUS)
        code = statuses[0].MPI_ERROR;
    REFUSED(MPI_ERR_REQUEST, MPI_Start(&r[0]));
    MPI(MPI_Request_free(&r[0]));
    return code;
}

/* Waits or tests for a counter that nobody raises. */
static int counted(const char *what, MPI_Win win)
{
    MPI_Request r;
    MPI_Count value = -1;
    int flag = 0, at = -1, code = MPI_SUCCESS;
    if (!strcmp(what, "counter_wait"))
        return MPIX_Win_notify_threshold(win, 1, 1);
    if (!strcmp(what, "counter_test"))
        while (code == MPI_SUCCESS && !flag)
            code = MPIX_Win_notify_test_threshold(win, 1, 1, &flag);
    else if (!strcmp(what, "counter_testsome"))
        while (code == MPI_SUCCESS && !flag)
            code = MPIX_Win_notify_testsome(win, 0, 2, &at, &value, &flag);
    else if (!strcmp(what, "counter_ithreshold")) {
        MPI(MPIX_Win_notify_ithreshold(win, 1, 1, &r));
        code = MPI_Wait(&r, MPI_STATUS_IGNORE);
    } else {
        REQUIRE(!strcmp(what, "counter_iwaitsome"));
        MPI(MPIX_Win_notify_iwaitsome(win, 0, 2, &at, &value, &r));
        while (code == MPI_SUCCESS && !flag)
            code = MPI_Test(&r, &flag, MPI_STATUS_IGNORE);
    }
    EXPECT(at == -1 && value == -1, "counter %d was found", at);
    return code;
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    const char *what = argc > 1 ? argv[1] : "lock";
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    int64_t value = 1;
    /* A lock of allocated memory blocks at once; of created memory, the calls after it block. */
    Window w = window(strcmp(what, "lock") ? CREATED : ALLOCATED, sizeof value, sizeof value);
    MPI_Win win = w.win;
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    MPI(MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 2));
    MPI_Request left = MPI_REQUEST_NULL;
    /* Rank 1 holds its own lock, so that rank 0 waits for it. */
    if (me == 1)
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0) {
        MPI_Request r = MPI_REQUEST_NULL;
        MPI_Group other = group_one(1);
        int code = MPI_SUCCESS;
        /* Rank 1 may send now; the waits below cannot complete before. */
        MPI(MPI_Send(NULL, 0, MPI_CHAR, 1, 5, MPI_COMM_WORLD));
        if (!strcmp(what, "unlock") || !strcmp(what, "iunlock") || !strcmp(what, "flush")) {
            MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
            MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win));
        }
        if (!strcmp(what, "unlock"))
            code = MPI_Win_unlock(1, win);
        else if (!strcmp(what, "flush"))
            code = MPI_Win_flush(1, win);
        else if (!strcmp(what, "iunlock"))
            MPI(MPIX_Win_iunlock(1, win, &r));
        else if (!strcmp(what, "lock"))
            code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        else if (!strcmp(what, "lock_all"))
            code = MPI_Win_lock_all(0, win);
        else if (!strcmp(what, "fence"))
            code = MPI_Win_fence(0, win);
        else if (!strcmp(what, "ifence"))
            MPI(MPIX_Win_ifence(0, win, &r));
        else if (!strcmp(what, "wait")) {
            MPI(MPI_Win_post(other, 0, win));
            code = MPI_Win_wait(win);
        } else if (!strcmp(what, "test")) {
            int flag = 0;
            MPI(MPI_Win_post(other, 0, win));
            while (code == MPI_SUCCESS && !flag)
                code = MPI_Win_test(win, &flag);
            REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_test(win, &flag));
        } else if (!strcmp(what, "left")) {
            /* A request that is still active when the window is freed. */
            MPI(MPIX_Notify_init(win, 1, 7, 1, &left));
            MPI(MPI_Start(&left));
            code = MPIX_Notify_probe(win, 1, 8, MPI_STATUS_IGNORE);
        } else if (!strcmp(what, "icomplete")) {
            MPI(MPI_Win_start(other, 0, win));
            MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win));
            MPI(MPIX_Win_icomplete(win, &r));
        } else if (!strncmp(what, "tag", 3))
            code = tagged(what, win);
        else if (!strncmp(what, "counter", 7))
            code = counted(what, win);
        else
            REQUIRE(!"known");
        if (r != MPI_REQUEST_NULL)
            code = MPI_Wait(&r, MPI_STATUS_IGNORE);
        EXPECT(class_of(code) == MPI_ERR_INTERN, "%s: class %d", what, class_of(code));
        MPI(MPI_Group_free(&other));
    } else if (me == 1) {
        MPI(MPI_Recv(NULL, 0, MPI_CHAR, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        REQUIRE(send_rubbish() > 0);
        /* Rank 1 learns of it, and does not wait for a process that has broken off. */
        MPI_Group self = group_one(1);
        MPI(MPI_Win_post(self, 0, win));
        int code = MPI_Win_wait(win);
        EXPECT(class_of(code) == MPI_ERR_INTERN, "the sender of the refused message: class %d",
               class_of(code));
        MPI(MPI_Group_free(&self));
    }
    /* Both know it now; rank 1 still holds its lock. */
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
    if (left != MPI_REQUEST_NULL) {
        int code = MPI_Wait(&left, MPI_STATUS_IGNORE);
        EXPECT(class_of(code) == MPI_ERR_INTERN, "a request that outlives the window: class %d",
               class_of(code));
        MPI(MPI_Request_free(&left));
    }
    return test_end();
}
