/*
 * Flushes, blocking and nonblocking [FL-1]: what they complete, that later operations neither delay
 * an iflush nor are covered by it, and that no flush completes before the lock is granted.
 */
#include "check.h"

/* A reader that gets a message sees values put and flushed under lock_all. */
static void seen_after_flush(int kind, int nonblocking, int all)
{
    Window w = window(kind, 4 * sizeof(int64_t), sizeof(int64_t));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int64_t i = 1; i <= 100; i++) {
        int writer = i % 2 ? 0 : ranks - 1, reader = ranks - 1 - writer;
        if (me == writer) {
            MPI_Request r = MPI_REQUEST_NULL;
            MPI(MPI_Put(&i, 1, MPI_INT64_T, reader, 0, 1, MPI_INT64_T, w.win));
            MPI(MPI_Accumulate(&i, 1, MPI_INT64_T, reader, 1, 1, MPI_INT64_T, MPI_REPLACE, w.win));
            if (nonblocking && all)
                MPI(MPIX_Win_iflush_all(w.win, &r));
            else if (nonblocking)
                MPI(MPIX_Win_iflush(reader, w.win, &r));
            else if (all)
                MPI(MPI_Win_flush_all(w.win));
            else
                MPI(MPI_Win_flush(reader, w.win));
            finish(&r);
            if (writer != reader)
                send_token(reader, 1);
        }
        if (me == reader) {
            if (writer != reader)
                recv_token(writer, 1);
            MPI(MPI_Win_sync(w.win));
            EXPECT(load64(w.base) == i && load64((int64_t *)w.base + 1) == i,
                   "%s %d %d: flush %ld: %ld %ld", kind_name[kind], nonblocking, all, (long)i,
                   (long)load64(w.base), (long)load64((int64_t *)w.base + 1));
            if (writer != reader)
                send_token(writer, 2);
        }
        if (me == writer && writer != reader)
            recv_token(reader, 2);
    }
    MPI(MPI_Win_unlock_all(w.win));
    window_free(&w);
}

/* After a local flush, the origin's buffer may be reused and results have arrived. */
static void local(int kind, int nonblocking, int all)
{
    enum { N = 50000 };
    Window w = window(kind, (N + N) * sizeof(int), sizeof(int));
    int *buffer = malloc(N * sizeof(int)), *result = malloc(N * sizeof(int)),
        target = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < N; i++)
        buffer[i] = me + i;
    MPI(MPI_Put(buffer, N, MPI_INT, target, 0, N, MPI_INT, w.win));
    for (int turn = 0; turn < 2; turn++) {
        MPI_Request r = MPI_REQUEST_NULL;
        if (nonblocking && all)
            MPI(MPIX_Win_iflush_local_all(w.win, &r));
        else if (nonblocking)
            MPI(MPIX_Win_iflush_local(target, w.win, &r));
        else if (all)
            MPI(MPI_Win_flush_local_all(w.win));
        else
            MPI(MPI_Win_flush_local(target, w.win));
        finish(&r);
        if (turn == 0) {
            memset(buffer, 0xff, N * sizeof(int));
            MPI(MPI_Win_flush(target, w.win));
            MPI(MPI_Get(result, N, MPI_INT, target, 0, N, MPI_INT, w.win));
        }
    }
    for (int i = 0; i < N; i++)
        if (result[i] != me + i) {
            EXPECT(0, "%s: [%d] = %d", kind_name[kind], i, result[i]);
            break;
        }
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    EXPECT(((int *)w.base)[N - 1] == left + N - 1, "%s: the put's bytes changed: %d",
           kind_name[kind], ((int *)w.base)[N - 1]);
    MPI(MPI_Win_unlock(me, w.win));
    free(buffer);
    free(result);
    window_free(&w);
}

/*
 * Process 0 waits for a lock that process 1 holds. All its flushes, with operations between them,
 * are pending. Once the lock is granted they complete in order, each with the operations before it.
 */
static void stamped(int kind, int last_target_only)
{
    if (ranks < 2)
        return;
    enum { N = 16 };
    Window w = window(kind, (N + 1) * sizeof(int64_t), sizeof(int64_t));
    if (me == 1) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win));
        send_token(0, 1);
        recv_token(0, 2);
        MPI(MPI_Win_unlock(1, w.win));
        for (int k = 0; k < N; k++) {
            recv_token(0, 3);
            MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, w.win));
            EXPECT(load64((int64_t *)w.base + k) == k + 1, "%s: flush %d complete: %ld",
                   kind_name[kind], k, (long)load64((int64_t *)w.base + k));
            MPI(MPI_Win_unlock(1, w.win));
        }
        send_token(0, 4);
    } else if (me == 0) {
        MPI_Request r[N], opening, local;
        int64_t value[N], back = -1;
        int flag;
        recv_token(1, 1);
        MPI(MPIX_Win_ilock(MPI_LOCK_SHARED, 1, 0, w.win, &opening));
        expect_complete(&opening, "ilock");
        for (int k = 0; k < N; k++) {
            value[k] = k + 1;
            MPI(MPI_Put(&value[k], 1, MPI_INT64_T, 1, k, 1, MPI_INT64_T, w.win));
            if (last_target_only)
                MPI(MPIX_Win_iflush(1, w.win, &r[k]));
            else
                MPI(MPIX_Win_iflush_all(w.win, &r[k]));
        }
        MPI(MPI_Get(&back, 1, MPI_INT64_T, 1, N, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_iflush_local(1, w.win, &local));
        MPI(MPI_Testall(N, r, &flag, MPI_STATUSES_IGNORE));
        EXPECT(!flag, "flushes complete before the lock is granted");
        MPI(MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE));
        EXPECT(!flag, "the first flush is complete before the lock is granted");
        MPI(MPI_Test(&local, &flag, MPI_STATUS_IGNORE));
        EXPECT(!flag, "the local flush is complete before the lock is granted");
        send_token(1, 2);
        for (int k = 0; k < N; k++) {
            finish(&r[k]);
            send_token(1, 3);
        }
        finish(&local);
        EXPECT(back == 0, "%s: the local flush is complete, the get is not: %ld", kind_name[kind],
               (long)back);
        recv_token(1, 4);
        MPI(MPI_Win_unlock(1, w.win));
    }
    window_free(&w);
}

/* A flush without operations completes when the lock is held. */
static void grant_only(int kind)
{
    if (ranks < 2)
        return;
    Window w = window(kind, 8, 1);
    if (me == 1) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
        MPI(MPI_Win_flush(0, w.win));
        send_token(0, 1);
        recv_token(0, 2);
        MPI(MPI_Win_unlock(0, w.win));
    } else if (me == 0) {
        MPI_Request r, opening;
        int flag;
        recv_token(1, 1);
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win, &opening));
        expect_complete(&opening, "ilock");
        MPI(MPIX_Win_iflush(0, w.win, &r));
        MPI(MPI_Test(&r, &flag, MPI_STATUS_IGNORE));
        EXPECT(!flag, "%s: flush complete, lock not granted", kind_name[kind]);
        send_token(1, 2);
        finish(&r);
        MPI(MPI_Win_unlock(0, w.win));
    }
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int form = 0; form < 4; form++) {
            seen_after_flush(kind, form & 1, form >> 1);
            local(kind, form & 1, form >> 1);
        }
        stamped(kind, 0);
        stamped(kind, 1);
        grant_only(kind);
    }
    return test_end();
}
