/*
 * A blocking lock call first waits for the locks that the process has requested before [EP-10]. One
 * with an error must return at once: another process may release the lock only afterwards. A wrong
 * library hangs here.
 */
#include "check.h"

static void refused_while_waiting(const Window *w)
{
    MPI_Win win = w->win;
    REFUSED(MPI_ERR_LOCKTYPE, MPI_Win_lock(12345, 1, 0, win));
    REFUSED(MPI_ERR_ASSERT, MPI_Win_lock(MPI_LOCK_SHARED, 1, MPI_MODE_NOPUT, win));
    REFUSED(MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, ranks, 0, win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    REFUSED(MPI_ERR_ASSERT, MPI_Win_lock_all(MPI_MODE_NOPUT, win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, win));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        Window w = window(kind, sizeof(int64_t), 1);
        MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
        if (me == 1) {
            MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
            MPI(MPI_Win_flush(0, w.win));
            send_token(0, 1);
            recv_token(0, 2);
            MPI(MPI_Win_unlock(0, w.win));
        } else if (me == 0) {
            MPI_Request r;
            recv_token(1, 1);
            MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win, &r));
            finish(&r);
            refused_while_waiting(&w);
            send_token(1, 2);
            MPI(MPI_Win_unlock(0, w.win));
        }
        window_free(&w);
    }
    return test_end();
}
