/*
 * Progress of a process that polls its own memory, with calls that never wait, until others have
 * changed it [PR-1]: it locks and unlocks itself, or flushes under lock_all.
 */
#include "check.h"

enum way { EXCLUSIVE, SHARED, NONBLOCKING, FLUSH, FLUSH_ALL, IFLUSH, WAYS };
static const char *const way_name[] = {"exclusive", "shared",    "nonblocking",
                                       "flush",     "flush_all", "iflush"};

static int64_t look(enum way way, Window *w)
{
    MPI_Request r[2];
    int64_t seen;
    switch (way) {
    case FLUSH: MPI(MPI_Win_flush(0, w->win)); break;
    case FLUSH_ALL: MPI(MPI_Win_flush_all(w->win)); break;
    case IFLUSH:
        MPI(MPIX_Win_iflush(0, w->win, r));
        MPI(MPI_Wait(r, MPI_STATUS_IGNORE));
        break;
    case NONBLOCKING:
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 0, 0, w->win, r));
        MPI(MPIX_Win_iunlock(0, w->win, r + 1));
        MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
        break;
    default:
        MPI(MPI_Win_lock(way == SHARED ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, w->win));
        break;
    }
    seen = load64(w->base);
    if (way <= SHARED)
        MPI(MPI_Win_unlock(0, w->win));
    return seen;
}

int main(int argc, char **argv)
{
    const int64_t one = 1;
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++)
        for (enum way way = 0; way < WAYS; way++) {
            Window w = window(kind, sizeof(int64_t), 1);
            int all = way >= FLUSH;
            int64_t seen = 0;
            if (me == 0) {
                if (all)
                    MPI(MPI_Win_lock_all(0, w.win));
                for (int rank = 1; rank < ranks; rank++)
                    send_token(rank, 1);
                while (seen < ranks - 1)
                    seen = look(way, &w);
                if (all)
                    MPI(MPI_Win_unlock_all(w.win));
                EXPECT(seen == ranks - 1, "%s: %ld", way_name[way], (long)seen);
            } else {
                recv_token(0, 1);
                MPI(MPI_Win_lock(all ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
                MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, w.win));
                MPI(MPI_Win_unlock(0, w.win));
            }
            window_free(&w);
        }
    return test_end();
}
