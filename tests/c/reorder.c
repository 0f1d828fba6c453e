/*
 * The four reorder flags [AC-1]. Each case completes only if its flag is honoured: an epoch that
 * waits is closed first, then a later epoch completes, and only then does the first epoch's peer
 * continue. Three processes.
 *
 *   reorder KIND FLAG SPELLING VALUE    FLAG: aaar | aaar_locks | aaer | eaer | eaar,
 *                                       SPELLING: ours | paper
 */
#include "check.h"

static Window w;
static int64_t value = 77;

static void access_to(int rank, MPI_Request *r)
{
    MPI_Group g = group_one(rank);
    MPI_Request opening;
    MPI(MPIX_Win_istart(g, 0, w.win, &opening));
    expect_complete(&opening, "istart");
    MPI(MPI_Put(&value, 1, MPI_INT64_T, rank, 0, 1, MPI_INT64_T, w.win));
    MPI(MPIX_Win_icomplete(w.win, r));
    MPI(MPI_Group_free(&g));
}

static void exposure_to(int rank, MPI_Request *r)
{
    MPI_Group g = group_one(rank);
    MPI_Request opening;
    MPI(MPIX_Win_ipost(g, 0, w.win, &opening));
    expect_complete(&opening, "ipost");
    MPI(MPIX_Win_iwait(w.win, r));
    MPI(MPI_Group_free(&g));
}

/* The peer's side: a whole epoch at once. */
static void access_now(int rank)
{
    MPI_Request r;
    access_to(rank, &r);
    finish(&r);
}
static void exposure_now(int rank)
{
    MPI_Request r;
    exposure_to(rank, &r);
    finish(&r);
    EXPECT(load64(w.base) == 77, "put: %ld", (long)load64(w.base));
}

/* Process 2 has two epochs; the first waits for process 0, the second for process 1. */
static void two_epochs(int first_is_access, int second_is_access)
{
    MPI_Request first, second;
    if (me == 2) {
        if (first_is_access)
            access_to(0, &first);
        else
            exposure_to(0, &first);
        if (second_is_access)
            access_to(1, &second);
        else
            exposure_to(1, &second);
        finish(&second);
        send_token(0, 1);
        finish(&first);
    } else if (me == 1) {
        if (second_is_access)
            exposure_now(2);
        else
            access_now(2);
    } else {
        recv_token(2, 1);
        if (first_is_access)
            exposure_now(2);
        else
            access_now(2);
    }
}

/* Process 0 holds process 2's lock until process 1 has completed a later lock of another target. */
static void two_locks(void)
{
    MPI_Request first, second, opening;
    if (me == 0) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 2, 0, w.win));
        MPI(MPI_Win_flush(2, w.win));
        send_token(1, 1);
        recv_token(1, 2);
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 2, 1, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_unlock(2, w.win));
    } else if (me == 1) {
        recv_token(0, 1);
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 2, 0, w.win, &opening));
        expect_complete(&opening, "ilock");
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 2, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_iunlock(2, w.win, &first));
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win, &opening));
        expect_complete(&opening, "ilock");
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_iunlock(0, w.win, &second));
        finish(&second);
        send_token(0, 2);
        finish(&first);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    if (me != 1)
        EXPECT(load64(w.base) == 77, "put: %ld", (long)load64(w.base));
    MPI(MPI_Win_unlock(me, w.win));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name, *ours, *paper;
    } keys[] = {
        {"aaar", "mpix_win_access_after_access_reorder", "MPI_WIN_ACCESS_AFTER_ACCESS_REORDER"},
        {"aaer", "mpix_win_access_after_exposure_reorder", "MPI_WIN_ACCESS_AFTER_EXPOSURE_REORDER"},
        {"eaer", "mpix_win_exposure_after_exposure_reorder",
         "MPI_WIN_EXPOSURE_AFTER_EXPOSURE_REORDER"},
        {"eaar", "mpix_win_exposure_after_access_reorder",
         "MPI_WIN_EXPOSURE_AFTER_ACCESS_REORDER"}};
    test_begin(&argc, &argv);
    REQUIRE(argc == 5 && ranks == 3);
    const char *flag = argv[2];
    MPI_Info info;
    MPI(MPI_Info_create(&info));
    for (int i = 0; i < 4; i++)
        if (strncmp(flag, keys[i].name, 4) == 0)
            MPI(MPI_Info_set(info, strcmp(argv[3], "paper") ? keys[i].ours : keys[i].paper,
                             argv[4]));
    w = window_on(strcmp(argv[1], "created") == 0, 2 * sizeof(int64_t), sizeof(int64_t), info,
                  MPI_COMM_WORLD);
    MPI(MPI_Info_free(&info));
    if (strcmp(flag, "aaar_locks") == 0)
        two_locks();
    else
        two_epochs(flag[0] == 'a' ? strcmp(flag, "aaer") != 0 : strcmp(flag, "eaar") == 0,
                   flag[0] == 'a');
    window_free(&w);
    return test_end();
}
