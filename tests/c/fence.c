/*
 * Fence epochs: blocking, nonblocking and mixed [EP-2], several pending at once, assertions, and
 * that operations of epoch k+1 are posted only after barrier k [FE-1].
 */
#include "check.h"

#define N 1024

/* A ring of puts and gets, one epoch per round; the bits of `mix` select the form of each fence in
 * turn. */
static void ring(int kind, int mix)
{
    Window w = window(kind, 2 * N * sizeof(int), sizeof(int));
    int *mine = w.base, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int out[N], in[N];
    MPI_Request r;
    do_fence(mix & 1 ? NB_ALL : 0, MPI_MODE_NOPRECEDE, w.win, &r);
    finish(&r);
    for (int round = 1; round <= 8; round++) {
        for (int i = 0; i < N; i++) {
            out[i] = round * 1000000 + me * N + i;
            mine[N + i] = -out[i];
        }
        do_fence(0, 0, w.win, &r);
        MPI(MPI_Put(out, N, MPI_INT, right, 0, N, MPI_INT, w.win));
        MPI(MPI_Get(in, N, MPI_INT, right, N, N, MPI_INT, w.win));
        do_fence(mix >> (round % 4) & 1 ? NB_ALL : 0, 0, w.win, &r);
        finish(&r);
        for (int i = 0; i < N; i++) {
            EXPECT(mine[i] == round * 1000000 + left * N + i, "%s mix %d round %d: put: [%d] = %d",
                   kind_name[kind], mix, round, i, mine[i]);
            EXPECT(in[i] == -(round * 1000000 + right * N + i),
                   "%s mix %d round %d: get: [%d] = %d", kind_name[kind], mix, round, i, in[i]);
        }
    }
    do_fence(0, MPI_MODE_NOSUCCEED, w.win, &r);
    window_free(&w);
}

/* Many pending fences: each epoch puts its number into a slot of its own, and all write a common
 * slot, in order. */
static void pending(int kind)
{
    enum { DEPTH = 64 };
    Window w = window(kind, (DEPTH + 1) * sizeof(int), sizeof(int));
    int value[DEPTH], *mine = w.base, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Request r[DEPTH + 1];
    MPI(MPIX_Win_ifence(0, w.win, &r[0]));
    for (int k = 0; k < DEPTH; k++) {
        value[k] = me * 1000 + k;
        MPI(MPI_Put(&value[k], 1, MPI_INT, right, k, 1, MPI_INT, w.win));
        MPI(MPI_Put(&value[k], 1, MPI_INT, right, DEPTH, 1, MPI_INT, w.win));
        MPI(MPIX_Win_ifence(k == DEPTH - 1 ? MPI_MODE_NOSUCCEED : 0, w.win, &r[k + 1]));
    }
    MPI(MPI_Waitall(DEPTH + 1, r, MPI_STATUSES_IGNORE));
    for (int k = 0; k < DEPTH; k++)
        EXPECT(mine[k] == left * 1000 + k, "%s: epoch %d: %d", kind_name[kind], k, mine[k]);
    EXPECT(mine[DEPTH] == left * 1000 + DEPTH - 1, "%s: epochs out of order: last %d",
           kind_name[kind], mine[DEPTH]);
    window_free(&w);
}

/* A target stores into its window until its own fence; the peers' puts of the next epoch must
 * survive. */
static void store_then_fence(int kind)
{
    Window w = window(kind, ranks * sizeof(int64_t), sizeof(int64_t));
    for (int round = 1; round <= 200; round++) {
        int64_t value = round * 100 + me;
        for (int i = 0; i < ranks; i++)
            store64((int64_t *)w.base + i, -round);
        MPI_Request r;
        MPI(MPIX_Win_ifence(0, w.win, &r));
        for (int i = 0; i < ranks; i++)
            MPI(MPI_Put(&value, 1, MPI_INT64_T, i, me, 1, MPI_INT64_T, w.win));
        finish(&r);
        MPI(MPI_Win_fence(0, w.win));
        for (int i = 0; i < ranks; i++)
            EXPECT(load64((int64_t *)w.base + i) == round * 100 + i, "%s round %d: from %d: %ld",
                   kind_name[kind], round, i, (long)load64((int64_t *)w.base + i));
    }
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    window_free(&w);
}

/* Assertions: empty epochs, and NOPRECEDE, which keeps the barrier. */
static void assertions(int kind)
{
    Window w = window(kind, ranks * sizeof(int), sizeof(int));
    int *mine = w.base, value;
    for (int round = 1; round <= 20; round++) {
        MPI_Request r;
        MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
        value = round * 10 + me;
        MPI(MPI_Accumulate(&value, 1, MPI_INT, (me + 1) % ranks, me, 1, MPI_INT, MPI_REPLACE,
                           w.win));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSTORE | MPI_MODE_NOSUCCEED, w.win, &r));
        finish(&r);
        int left = (me + ranks - 1) % ranks;
        EXPECT(mine[left] == round * 10 + left, "%s round %d: %d", kind_name[kind], round,
               mine[left]);
        mine[left] = 0;
        MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOPUT, w.win));
        MPI(MPI_Win_fence(MPI_MODE_NOPUT | MPI_MODE_NOSUCCEED, w.win));
    }
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int mix = 0; mix < 16; mix += 5)
            ring(kind, mix);
        pending(kind);
        store_then_fence(kind);
        assertions(kind);
    }
    return test_end();
}
