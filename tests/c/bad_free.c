/*
 * MPI_Win_free with epochs [RQ-5]. If a process has an open epoch, all processes get
 * MPI_ERR_RMA_SYNC and the window stays usable. Closed epochs are completed, and their requests
 * outlive the window.
 */
#include "check.h"

static const char *const opens[] = {"post", "start", "lock", "lock_all"};

static void open_somewhere(int kind, int which, int holder)
{
    Window w = window(kind, 64, 1);
    MPI_Group group = group_one(holder), nobody = MPI_GROUP_EMPTY;
    MPI_Win copy = w.win;
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    if (me == holder) {
        if (which == 0)
            MPI(MPI_Win_post(group, 0, w.win));
        else if (which == 1)
            MPI(MPI_Win_start(nobody, 0, w.win)); /* without targets: closes alone */
        else if (which == 2)
            MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, w.win));
        else
            MPI(MPI_Win_lock_all(0, w.win));
    }
    for (int twice = 0; twice < 2; twice++) {
        int code = MPI_Win_free(&w.win);
        EXPECT(class_of(code) == MPI_ERR_RMA_SYNC, "%s: %s open in process %d: free gives class %d",
               kind_name[kind], opens[which], holder, class_of(code));
        EXPECT(w.win == copy, "%s: free took the handle", kind_name[kind]);
    }
    if (me == holder) {
        if (which == 0) {
            MPI(MPI_Win_start(group, 0, w.win));
            MPI(MPI_Win_complete(w.win));
            MPI(MPI_Win_wait(w.win));
        } else if (which == 1)
            MPI(MPI_Win_complete(w.win));
        else if (which == 2)
            MPI(MPI_Win_unlock(me, w.win));
        else
            MPI(MPI_Win_unlock_all(w.win));
    }
    MPI(MPI_Group_free(&group));
    window_free(&w);
}

/* Epochs that are closed but pending when the window is freed. */
static void closed_and_pending(int kind)
{
    Window w = window(kind, ranks * sizeof(int64_t), sizeof(int64_t));
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Group to = group_one(right), from = group_one(left);
    int64_t value = me + 1, back = 0;
    MPI_Request r[6], opening;
    MPI(MPIX_Win_ifence(0, w.win, &r[0]));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, me, 1, MPI_INT64_T, w.win));
    MPI(MPIX_Win_ifence(0, w.win, &r[1]));
    MPI(MPIX_Win_ipost(from, 0, w.win, &opening));
    expect_complete(&opening, "ipost");
    MPI(MPIX_Win_istart(to, 0, w.win, &opening));
    expect_complete(&opening, "istart");
    MPI(MPI_Get(&back, 1, MPI_INT64_T, right, me, 1, MPI_INT64_T, w.win));
    MPI(MPIX_Win_icomplete(w.win, &r[2]));
    MPI(MPIX_Win_iwait(w.win, &r[3]));
    MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win, &opening));
    expect_complete(&opening, "ilock");
    MPI(MPIX_Win_iunlock(0, w.win, &r[4]));
    MPI(MPIX_Win_ilock_all(0, w.win, &opening));
    expect_complete(&opening, "ilock_all");
    MPI(MPIX_Win_iunlock_all(w.win, &r[5]));
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
    if (me % 2)
        MPI(MPI_Request_free(&r[4]));
    window_free(&w);
    MPI(MPI_Waitall(6, r, MPI_STATUSES_IGNORE));
    EXPECT(back == value, "%s: get: %ld", kind_name[kind], (long)back);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int which = 0; which < 4; which++)
            for (int holder = 0; holder < ranks; holder += ranks > 1 ? ranks - 1 : 1)
                open_somewhere(kind, which, holder);
        closed_and_pending(kind);
    }
    return test_end();
}
