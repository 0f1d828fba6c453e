/*
 * Access and exposure epochs (start/complete, post/wait): every mix of blocking and nonblocking
 * calls [EP-2], matching in order [EP-3] with many epochs pending on either side, overlapping
 * groups, empty epochs.
 */
#include "check.h"

#define N 512

/* Rank 0 exposes its window to all others, then all others to rank 0. */
static void star(int kind, int mix)
{
    if (ranks < 2)
        return;
    Window w = window(kind, ranks * N * sizeof(int), sizeof(int));
    int *mine = w.base, others[64], out[N], in[N];
    for (int i = 1; i < ranks; i++)
        others[i - 1] = i;
    MPI_Group root = group_one(0), rest = group_of(ranks - 1, others);
    MPI_Request a, b;
    if (me == 0) {
        do_post(mix, rest, 0, w.win);
        do_wait(mix, w.win, &b);
        finish(&b);
        for (int i = N; i < ranks * N; i++)
            EXPECT(mine[i] == i * 3, "%s mix %d: [%d] = %d", kind_name[kind], mix, i, mine[i]);
        do_start(mix, rest, 0, w.win);
        for (int r = 1; r < ranks; r++)
            MPI(MPI_Put(mine + r * N, N, MPI_INT, r, 0, N, MPI_INT, w.win));
        do_complete(mix, w.win, &a);
        finish(&a);
    } else {
        for (int i = 0; i < N; i++)
            out[i] = (me * N + i) * 3;
        do_start(mix, root, 0, w.win);
        MPI(MPI_Put(out, N, MPI_INT, 0, me * N, N, MPI_INT, w.win));
        do_complete(mix, w.win, &a);
        finish(&a);
        do_post(mix, root, 0, w.win);
        do_wait(mix, w.win, &b);
        finish(&b);
        for (int i = 0; i < N; i++)
            EXPECT(mine[i] == out[i], "%s mix %d: back: [%d] = %d", kind_name[kind], mix, i,
                   mine[i]);
    }
    /* Also with a get. */
    if (me == 0) {
        do_post(mix, rest, MPI_MODE_NOPUT, w.win);
        do_wait(mix, w.win, &b);
        finish(&b);
    } else {
        do_start(mix, root, 0, w.win);
        MPI(MPI_Get(in, N, MPI_INT, 0, me * N, N, MPI_INT, w.win));
        do_complete(mix, w.win, &a);
        finish(&a);
        EXPECT(memcmp(in, out, sizeof in) == 0, "%s mix %d: get", kind_name[kind], mix);
    }
    MPI(MPI_Group_free(&root));
    MPI(MPI_Group_free(&rest));
    window_free(&w);
}

/* DEPTH epochs are pending on both sides of each pair of a ring; each puts into its own slot and
 * into a common one. */
static void fifo(int kind, int origin_first)
{
    enum { DEPTH = 50 };
    Window w = window(kind, (DEPTH + 1) * sizeof(int), sizeof(int));
    int *mine = w.base, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks, value[DEPTH];
    MPI_Group to = group_one(right), from = group_one(left);
    MPI_Request r[2 * DEPTH], opening;
    /* Pairs alternate post and start, so that the program is legal in blocking form too [EP-10]. */
    for (int k = 0; k < DEPTH; k++) {
        value[k] = 100 * me + k;
        MPI(MPIX_Win_ipost(from, 0, w.win, &opening));
        expect_complete(&opening, "ipost");
        if (!origin_first)
            MPI(MPIX_Win_istart(to, 0, w.win, &opening));
        else
            MPI(MPIX_Win_istart(to, MPI_MODE_NOCHECK, w.win, &opening));
        expect_complete(&opening, "istart");
        MPI(MPI_Put(&value[k], 1, MPI_INT, right, k, 1, MPI_INT, w.win));
        MPI(MPI_Put(&value[k], 1, MPI_INT, right, DEPTH, 1, MPI_INT, w.win));
        if (origin_first) {
            MPI(MPIX_Win_icomplete(w.win, &r[2 * k]));
            MPI(MPIX_Win_iwait(w.win, &r[2 * k + 1]));
        } else {
            MPI(MPIX_Win_iwait(w.win, &r[2 * k + 1]));
            MPI(MPIX_Win_icomplete(w.win, &r[2 * k]));
        }
    }
    MPI(MPI_Waitall(2 * DEPTH, r, MPI_STATUSES_IGNORE));
    for (int k = 0; k < DEPTH; k++)
        EXPECT(mine[k] == 100 * left + k, "%s: epoch %d: %d", kind_name[kind], k, mine[k]);
    EXPECT(mine[DEPTH] == 100 * left + DEPTH - 1, "%s: last %d", kind_name[kind], mine[DEPTH]);
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
    window_free(&w);
}

/* One side runs ahead: the origin closes DEPTH epochs before the target opens one, and vice
 * versa. */
static void ahead(int kind, int origin_is_ahead)
{
    if (ranks < 2)
        return;
    enum { DEPTH = 200 };
    Window w = window(kind, DEPTH * sizeof(int), sizeof(int));
    int *mine = w.base, value[DEPTH];
    MPI_Group zero = group_one(0), one = group_one(1);
    MPI_Request r[DEPTH], opening;
    if (me == 0) {
        if (!origin_is_ahead)
            recv_token(1, 7);
        for (int k = 0; k < DEPTH; k++) {
            value[k] = k + 1;
            MPI(MPIX_Win_istart(one, 0, w.win, &opening));
            expect_complete(&opening, "istart");
            MPI(MPI_Put(&value[k], 1, MPI_INT, 1, k, 1, MPI_INT, w.win));
            MPI(MPIX_Win_icomplete(w.win, &r[k]));
        }
        if (origin_is_ahead)
            send_token(1, 7);
        MPI(MPI_Waitall(DEPTH, r, MPI_STATUSES_IGNORE));
    } else if (me == 1) {
        if (origin_is_ahead)
            recv_token(0, 7);
        for (int k = 0; k < DEPTH; k++) {
            MPI(MPIX_Win_ipost(zero, 0, w.win, &opening));
            expect_complete(&opening, "ipost");
            MPI(MPIX_Win_iwait(w.win, &r[k]));
        }
        if (!origin_is_ahead)
            send_token(0, 7);
        for (int k = 0; k < DEPTH; k++) {
            finish(&r[k]);
            EXPECT(mine[k] == k + 1, "%s: epoch %d complete, its put is not there: %d",
                   kind_name[kind], k, mine[k]);
        }
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
    window_free(&w);
}

/* Overlapping groups: in round k all processes access {k, k+1} (modulo ranks), which expose their
 * windows to all. */
static void overlapping(int kind, int mix)
{
    Window w = window(kind, ranks * sizeof(int), sizeof(int));
    int *mine = w.base, all[64];
    for (int i = 0; i < ranks; i++)
        all[i] = i;
    MPI_Group everybody = group_of(ranks, all);
    for (int k = 0; k < 3 * ranks; k++) {
        int pair[2] = {k % ranks, (k + 1) % ranks}, n = ranks > 1 ? 2 : 1,
            value = 1000 * (k + 1) + me;
        int exposed = me == pair[0] || me == pair[n - 1];
        MPI_Group targets = group_of(n, pair);
        MPI_Request a, b = MPI_REQUEST_NULL;
        if (exposed)
            do_post(mix, everybody, 0, w.win);
        do_start(mix, targets, 0, w.win);
        MPI(MPI_Group_free(&targets)); /* may be freed at once */
        for (int i = 0; i < n; i++)
            MPI(MPI_Put(&value, 1, MPI_INT, pair[i], me, 1, MPI_INT, w.win));
        do_complete(mix, w.win, &a);
        if (exposed)
            do_wait(mix, w.win, &b);
        finish(&a);
        finish(&b);
        for (int i = 0; exposed && i < ranks; i++)
            EXPECT(mine[i] == 1000 * (k + 1) + i, "%s mix %d round %d: from %d: %d",
                   kind_name[kind], mix, k, i, mine[i]);
    }
    MPI(MPI_Group_free(&everybody));
    window_free(&w);
}

/* Epochs without operations, and with an empty group. */
static void empty(int kind, int mix)
{
    Window w = window(kind, 8, 1);
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Group to = group_one(right), from = group_one(left);
    for (int k = 0; k < 20; k++) {
        MPI_Request a, b;
        do_post(mix, k % 3 ? from : MPI_GROUP_EMPTY, 0, w.win);
        do_start(mix, k % 3 ? to : MPI_GROUP_EMPTY, 0, w.win);
        do_complete(mix, w.win, &a);
        do_wait(mix, w.win, &b);
        finish(&b);
        finish(&a);
    }
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int mix = 0; mix <= NB_ALL; mix++) {
            star(kind, mix);
            overlapping(kind, mix);
        }
        for (int mix = 0; mix <= NB_ALL; mix += 5)
            empty(kind, mix);
        fifo(kind, 0);
        fifo(kind, 1);
        ahead(kind, 0);
        ahead(kind, 1);
    }
    return test_end();
}
