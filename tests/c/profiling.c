/*
 * A program that defines MPIX_ calls, as a profiling tool does, reaches the library by PMPIX_ [MPI
 * 15.2].
 */
#include "check.h"

static int fences, unlocks, orders;
int MPIX_Win_ifence(int assert, MPI_Win win, MPI_Request *request)
{
    fences++;
    return PMPIX_Win_ifence(assert, win, request);
}
int MPIX_Win_iunlock(int rank, MPI_Win win, MPI_Request *request)
{
    unlocks++;
    return PMPIX_Win_iunlock(rank, win, request);
}
/* Here the definition stands for the one in mpix_inline.h. */
int MPIX_Win_order(int rank, MPI_Win win)
{
    orders++;
    return PMPIX_Win_order(rank, win);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    Window w = window(ALLOCATED, 64, 1);
    MPI_Group group = group_one(me);
    MPI_Request r[12];
    int n = 0;
    MPI(MPIX_Win_ifence(0, w.win, &r[n++]));
    MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, &r[n++]));
    MPI(PMPIX_Win_ipost(group, 0, w.win, &r[n++]));
    MPI(PMPIX_Win_istart(group, 0, w.win, &r[n++]));
    MPI(PMPIX_Win_icomplete(w.win, &r[n++]));
    MPI(PMPIX_Win_iwait(w.win, &r[n++]));
    MPI(MPI_Waitall(n, r, MPI_STATUSES_IGNORE));
    n = 0;
    MPI(PMPIX_Win_ilock(MPI_LOCK_SHARED, me, 0, w.win, &r[n++]));
    MPI(PMPIX_Win_iflush(me, w.win, &r[n++]));
    MPI(PMPIX_Win_iflush_local(me, w.win, &r[n++]));
    MPI(MPIX_Win_iunlock(me, w.win, &r[n++]));
    MPI(PMPIX_Win_ilock_all(0, w.win, &r[n++]));
    for (int i = 0; i < 5; i++)
        MPI(MPIX_Win_order(me, w.win));
    MPI(PMPIX_Win_iflush_all(w.win, &r[n++]));
    MPI(PMPIX_Win_iflush_local_all(w.win, &r[n++]));
    MPI(PMPIX_Win_iunlock_all(w.win, &r[n++]));
    MPI(MPI_Waitall(n, r, MPI_STATUSES_IGNORE));
    EXPECT(fences == 2 && unlocks == 1 && orders == 5,
           "own definitions were called %d, %d and %d times", fences, unlocks, orders);
    MPI(MPI_Group_free(&group));
    window_free(&w);
    return test_end();
}
