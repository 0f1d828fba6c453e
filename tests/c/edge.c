/*
 * Edge cases: zero sizes and counts, MPI_PROC_NULL, the process itself as target, different window
 * sizes and displacement units in each process, the last byte of a window, epochs on windows
 * without memory.
 */
#include "check.h"

static void zero(int kind)
{
    Window w = window(kind, me % 2 ? 0 : 16, 1); /* some have no memory */
    int value = 1;
    MPI_Request r;
    MPI(MPI_Win_fence(0, w.win));
    for (int t = 0; t < ranks; t++) {
        MPI(MPI_Put(&value, 0, MPI_INT, t, 0, 0, MPI_INT, w.win));
        MPI(MPI_Get(&value, 0, MPI_INT, t, t % 2 ? 0 : 16, 0, MPI_INT,
                    w.win)); /* at the end: nothing is touched */
        MPI(MPI_Accumulate(NULL, 0, MPI_INT, t, 0, 0, MPI_INT, MPI_SUM, w.win));
    }
    MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, &r));
    finish(&r);
    for (int t = 0; t < ranks; t++) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, w.win));
        MPI(MPI_Put(NULL, 0, MPI_BYTE, t, 0, 0, MPI_BYTE, w.win));
        MPI(MPI_Win_unlock(t, w.win));
    }
    window_free(&w);
}

static void proc_null(int kind)
{
    Window w = window(kind, 16, 1);
    int value = 1, compare = 0, result = 9;
    MPI_Request r, r4[4];
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win));
    MPI(MPI_Get(&result, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win));
    MPI(MPI_Accumulate(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, w.win));
    MPI(MPI_Get_accumulate(&value, 1, MPI_INT, &result, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT,
                           MPI_SUM, w.win));
    MPI(MPI_Fetch_and_op(&value, &result, MPI_INT, MPI_PROC_NULL, 0, MPI_SUM, w.win));
    MPI(MPI_Compare_and_swap(&value, &compare, &result, MPI_INT, MPI_PROC_NULL, 0, w.win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, MPI_PROC_NULL, 0, w.win));
    MPI(MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win));
    MPI(MPI_Rput(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win, &r4[0]));
    MPI(MPI_Rget(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win, &r4[1]));
    MPI(MPI_Raccumulate(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, w.win, &r4[2]));
    MPI(MPI_Rget_accumulate(&value, 1, MPI_INT, &result, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT,
                            MPI_SUM, w.win, &r4[3]));
    MPI(MPI_Waitall(4, r4, MPI_STATUSES_IGNORE));
    MPI(MPI_Win_flush(MPI_PROC_NULL, w.win));
    MPI(MPI_Win_unlock(MPI_PROC_NULL, w.win));
    MPI(MPIX_Win_ilock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, w.win, &r));
    finish(&r);
    MPI(MPIX_Win_iflush(MPI_PROC_NULL, w.win, &r));
    finish(&r);
    MPI(MPIX_Win_iflush_local(MPI_PROC_NULL, w.win, &r));
    finish(&r);
    MPI(MPIX_Win_iunlock(MPI_PROC_NULL, w.win, &r));
    finish(&r);
    EXPECT(result == 9, "a result from MPI_PROC_NULL: %d", result);
    window_free(&w);
}

/* Every kind of epoch on the process itself. */
static void self(int kind, int mix)
{
    Window w = window(kind, 8 * sizeof(int), sizeof(int));
    int *mine = w.base, value = 11, back = 0;
    MPI_Group group = group_one(me);
    MPI_Request a, b;
    do_fence(mix, 0, w.win, &a);
    MPI(MPI_Put(&value, 1, MPI_INT, me, 0, 1, MPI_INT, w.win));
    do_fence(mix, MPI_MODE_NOSUCCEED, w.win, &b);
    finish(&a);
    finish(&b);
    EXPECT(mine[0] == 11, "fence: %d", mine[0]);
    do_post(mix, group, 0, w.win);
    do_start(mix, group, 0, w.win);
    MPI(MPI_Put(&value, 1, MPI_INT, me, 1, 1, MPI_INT, w.win));
    MPI(MPI_Get(&back, 1, MPI_INT, me, 0, 1, MPI_INT, w.win));
    do_complete(mix, w.win, &a);
    do_wait(mix, w.win, &b);
    finish(&b);
    finish(&a);
    EXPECT(mine[1] == 11 && back == 11, "post/start: %d %d", mine[1], back);
    do_lock(mix, MPI_LOCK_EXCLUSIVE, me, w.win);
    MPI(MPI_Accumulate(&value, 1, MPI_INT, me, 2, 1, MPI_INT, MPI_SUM, w.win));
    MPI(MPI_Accumulate(&value, 1, MPI_INT, me, 2, 1, MPI_INT, MPI_SUM, w.win));
    do_unlock(mix, me, w.win, &a);
    finish(&a);
    EXPECT(mine[2] == 22, "lock: %d", mine[2]);
    do_lock_all(mix, w.win);
    MPI(MPI_Put(&value, 1, MPI_INT, me, 3, 1, MPI_INT, w.win));
    do_unlock_all(mix, w.win, &a);
    finish(&a);
    EXPECT(mine[3] == 11, "lock_all: %d", mine[3]);
    MPI(MPI_Group_free(&group));
    window_free(&w);
}

/* Process r has (r+1)*100 elements of unit 1, 2, 4 or 8; the last one is accessed. */
static void different(int kind)
{
    int unit = 1 << me % 4;
    Window w = window(kind, (MPI_Aint)(me + 1) * 100 * unit, unit);
    int64_t out = 0x0101010101010101 * (me + 1), back;
    for (int t = 0; t < ranks; t++) {
        int size = 1 << t % 4, last = (t + 1) * 100 - 1;
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, w.win));
        MPI(MPI_Put(&out, size, MPI_BYTE, t, last, size, MPI_BYTE, w.win));
        MPI(MPI_Win_flush(t, w.win));
        back = 0;
        MPI(MPI_Get(&back, size, MPI_BYTE, t, last, size, MPI_BYTE, w.win));
        MPI(MPI_Win_unlock(t, w.win));
        EXPECT(memcmp(&out, &back, size) == 0, "%s: the last element of %d: %lx", kind_name[kind],
               t, (long)back);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    for (int i = 0; i < (me + 1) * 100 * unit - unit; i++)
        EXPECT(((char *)w.base)[i] == 0, "%s: byte %d was written", kind_name[kind], i);
    MPI(MPI_Win_unlock(me, w.win));
    window_free(&w);
}

/* Odd addresses and sizes, across page boundaries. */
static void unaligned(int kind)
{
    enum { N = 20000 };
    Window w = window(kind, 2 * N, 1);
    char *out = malloc(N + 16), *in = malloc(N + 16);
    int right = (me + 1) % ranks;
    for (int i = 0; i < N + 16; i++)
        out[i] = (char)(i * 7 + me);
    MPI(MPI_Win_lock_all(0, w.win));
    for (int length = 1; length < N; length = length * 3 + 1) {
        int shift = length % 13;
        MPI(MPI_Put(out + shift, length, MPI_BYTE, right, 4096 - shift, length, MPI_BYTE, w.win));
        MPI(MPI_Win_flush(right, w.win));
        MPI(MPI_Get(in + 16 - shift, length, MPI_BYTE, right, 4096 - shift, length, MPI_BYTE,
                    w.win));
        MPI(MPI_Win_flush(right, w.win));
        EXPECT(memcmp(out + shift, in + 16 - shift, length) == 0, "%s: %d bytes", kind_name[kind],
               length);
    }
    MPI(MPI_Win_unlock_all(w.win));
    free(out);
    free(in);
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        zero(kind);
        proc_null(kind);
        for (int mix = 0; mix <= NB_ALL; mix++)
            self(kind, mix);
        different(kind);
        unaligned(kind);
    }
    return test_end();
}
