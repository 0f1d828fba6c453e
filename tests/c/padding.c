/*
 * Put and get of pair types leave the padding between value and index unchanged: the first
 * operation of an epoch, and later ones, which take the fast path.
 *
 *   padding [many]    many: under MPI_THREAD_MULTIPLE
 */
#include "check.h"
#include <stddef.h>

enum { COUNT = 3, BYTES = 256, TURNS = 4 };
typedef struct { short value; int index; } ShortInt;
typedef struct { long value; int index; } LongInt;
typedef struct { double value; int index; } DoubleInt;

/* Puts pairs over another byte pattern and gets them over a third: only the bytes of the pairs may
 * change. */
static void move(MPI_Datatype type, const char *name, size_t value, size_t index, size_t extent,
                 Window *w)
{
    int target = (me + 1) % ranks;
    for (int turn = 0; turn < TURNS; turn++) {
        unsigned char out[BYTES], back[BYTES];
        memset(out, 0x11, sizeof out);
        memset(back, 0x33, sizeof back);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, w->win));
        memset(w->base, 0x22, BYTES);
        MPI(MPI_Win_unlock(me, w->win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w->win));
        for (int again = 0; again <= turn; again++) {
            MPI(MPI_Put(out, COUNT, type, target, 0, COUNT, type, w->win));
            MPI(MPI_Win_flush(target, w->win));
            MPI(MPI_Get(back, COUNT, type, target, 0, COUNT, type, w->win));
            MPI(MPI_Win_flush(target, w->win));
        }
        MPI(MPI_Win_unlock(target, w->win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        const unsigned char *there = w->base;
        int wrong = 0;
        for (size_t at = 0; at < BYTES; at++) {
            size_t within = at % extent;
            int data = at < COUNT * extent &&
                       (within < value || (within >= index && within < index + sizeof(int)));
            wrong += there[at] != (data ? 0x11 : 0x22);
            wrong += back[at] != (data ? 0x11 : 0x33);
        }
        EXPECT(!wrong, "%s, %s window, turn %d: %d bytes are wrong", name, kind_name[w->kind], turn,
               wrong);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
}

int main(int argc, char **argv)
{
    test_begin_threads(&argc, &argv, argc > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    for (int kind = 0; kind < KINDS; kind++) {
        Window w = window(kind, BYTES, 1);
        move(MPI_SHORT_INT, "MPI_SHORT_INT", sizeof(short), offsetof(ShortInt, index),
             sizeof(ShortInt), &w);
        move(MPI_LONG_INT, "MPI_LONG_INT", sizeof(long), offsetof(LongInt, index), sizeof(LongInt),
             &w);
        move(MPI_DOUBLE_INT, "MPI_DOUBLE_INT", sizeof(double), offsetof(DoubleInt, index),
             sizeof(DoubleInt), &w);
        window_free(&w);
    }
    return test_end();
}
