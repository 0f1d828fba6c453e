/*
 * Pattern fences (mpix_rma_fence=pattern): they wait for learned neighbours and for nobody else
 * [FE-3]; the pattern is learned, learned anew and ended, and other accesses are refused [FE-4].
 */
#include "check.h"

#define N 512

static MPI_Info fence_info(const char *value)
{
    MPI_Info info;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, "mpix_rma_fence", value));
    return info;
}

static int set(MPI_Win win, const char *value)
{
    MPI_Info info = fence_info(value);
    int code = MPI_Win_set_info(win, info);
    MPI(MPI_Info_free(&info));
    return code;
}

static void expect_key(MPI_Win win, const char *value)
{
    MPI_Info info;
    char found[16] = "";
    int flag;
    MPI(MPI_Win_get_info(win, &info));
    MPI(MPI_Info_get(info, "mpix_rma_fence", 15, found, &flag));
    EXPECT(flag && !strcmp(found, value), "mpix_rma_fence is %s and not %s", found, value);
    MPI(MPI_Info_free(&info));
}

static Window patterned(int kind, MPI_Aint bytes, int unit)
{
    MPI_Info info = fence_info("pattern");
    Window w = window_on(kind, bytes, unit, info, MPI_COMM_WORLD);
    MPI(MPI_Info_free(&info));
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    expect_key(w.win, "pattern");
    return w;
}

/* Puts to the right and gets from the left; the bits of `mix` select the form of each fence. */
static void ring(int kind, int mix)
{
    Window w = patterned(kind, 2 * N * sizeof(int), sizeof(int));
    int *mine = w.base, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int out[N], in[N];
    MPI_Request r;
    do_fence(mix & 1 ? NB_ALL : 0, MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, w.win, &r);
    finish(&r);
    for (int round = 1; round <= 30; round++) {
        for (int i = 0; i < N; i++) {
            out[i] = round * 1000000 + me * N + i;
            mine[N + i] = -out[i];
        }
        do_fence(0, MPI_MODE_NOPRECEDE, w.win, &r);
        if (round < 3 || (round + me) % 5) {
            MPI(MPI_Put(out, N, MPI_INT, right, 0, N, MPI_INT, w.win));
            MPI(MPI_Get(in, N, MPI_INT, left, N, N, MPI_INT, w.win));
        }
        do_fence(mix >> (round % 4) & 1 ? NB_ALL : 0, 0, w.win, &r);
        finish(&r);
        for (int i = 0; i < N; i++) {
            if (round < 3 || (round + left) % 5)
                EXPECT(mine[i] == round * 1000000 + left * N + i,
                       "%s mix %d round %d: put: [%d] = %d", kind_name[kind], mix, round, i,
                       mine[i]);
            if (round < 3 || (round + me) % 5)
                EXPECT(in[i] == -(round * 1000000 + left * N + i),
                       "%s mix %d round %d: get: [%d] = %d", kind_name[kind], mix, round, i,
                       in[i]);
        }
    }
    window_free(&w);
}

/* One direction only: the origin hears of its target by nothing but the fence. What the target
 * stores before its fence must not hit the next put, and the target may be late. */
static void one_way(int kind)
{
    Window w = patterned(kind, sizeof(int64_t), sizeof(int64_t));
    MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
    for (int64_t round = 1; round <= 300; round++) {
        if (me + 1 < ranks)
            MPI(MPI_Put(&round, 1, MPI_INT64_T, me + 1, 0, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_fence(0, w.win));
        if (me > 0) {
            EXPECT(load64(w.base) == round, "%s round %ld: %ld", kind_name[kind], (long)round,
                   (long)load64(w.base));
            for (int i = 0; i < (me % 2 ? 200 : 0); i++)
                store64(w.base, -round);
            EXPECT(load64(w.base) == (me % 2 ? -round : round), "%s round %ld: %ld is early",
                   kind_name[kind], (long)round, (long)load64(w.base));
        }
        MPI(MPI_Win_fence(0, w.win));
    }
    window_free(&w);
}

/* The last process has no neighbour: its fences are local, and nobody waits for it. */
static void alone(int kind)
{
    int last = ranks - 1;
    Window w = patterned(kind, sizeof(int64_t), sizeof(int64_t));
    int64_t value = 1;
    for (int learning = 0; learning < 2; learning++) {
        MPI(MPI_Win_fence(0, w.win));
        if (!learning && me < last)
            MPI(MPI_Put(&value, 1, MPI_INT64_T, (me + 1) % last, 0, 1, MPI_INT64_T, w.win));
    }
    if (me != last) {
        for (int i = 0; i < 100; i++)
            MPI(MPI_Win_fence(0, w.win));
        send_token(last, 1);
    } else {
        for (int i = 0; i < last; i++)
            recv_token(i, 1);
        for (int i = 0; i < 100; i++)
            MPI(MPI_Win_fence(0, w.win));
    }
    window_free(&w);
}

/* Many pending fences, the learning one among them. */
static void pending(int kind)
{
    enum { DEPTH = 64 };
    Window w = patterned(kind, (DEPTH + 1) * sizeof(int), sizeof(int));
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

static void expect_refused(int code, const char *call, int target)
{
    char rank[16];
    snprintf(rank, sizeof rank, " %d ", target);
    EXPECT(class_of(code) == MPI_ERR_RMA_SYNC, "%s: class %d", call, class_of(code));
    if (code != MPI_SUCCESS)
        EXPECT(strstr(error_text(code), rank) && strstr(error_text(code), "mpix_rma_fence"),
               "%s: the text names no target or remedy: %s", call, error_text(code));
}

/* Only the right neighbour and the process itself may be accessed; then all learn anew, and at last
 * anybody may be accessed. */
static void refused(int kind)
{
    Window w = patterned(kind, ranks * sizeof(int64_t), sizeof(int64_t));
    MPI_Win win = w.win;
    MPI_Datatype type = MPI_INT64_T;
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int64_t value = me, got;
    MPI_Request r = MPI_REQUEST_NULL;
    MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    MPI(MPI_Put(&value, 1, type, right, me, 1, type, win));
    MPI(MPI_Win_fence(0, win));
    if (ranks > 2) {
        expect_refused(MPI_Put(&value, 1, type, left, me, 1, type, win), "MPI_Put", left);
        expect_refused(MPI_Get(&got, 1, type, left, me, 1, type, win), "MPI_Get", left);
        expect_refused(MPI_Put(&value, 0, type, left, me, 0, type, win), "an empty put", left);
        expect_refused(MPI_Accumulate(&value, 1, type, left, me, 1, type, MPI_SUM, win),
                       "MPI_Accumulate", left);
        expect_refused(MPI_Fetch_and_op(&value, &got, type, left, me, MPI_SUM, win),
                       "MPI_Fetch_and_op", left);
        EXPECT(r == MPI_REQUEST_NULL, "a refused call sets its request");
    }
    MPI(MPI_Put(&value, 1, type, me, me, 1, type, win));
    EXPECT(class_of(set(win, "barrier")) == MPI_ERR_RMA_SYNC, "set in an epoch with operations");
    expect_key(win, "pattern");
    MPI(MPI_Win_fence(0, win));
    EXPECT(class_of(set(win, "maybe")) == MPI_ERR_INFO_VALUE, "an invalid value");
    if (ranks > 1)
        EXPECT(class_of(set(win, me ? "pattern" : "barrier")) == MPI_ERR_INFO_VALUE,
               "different values");
    MPI(set(win, "pattern"));
    /* The processes agreed, so the present epoch is everybody's. */
    MPI(MPI_Put(&value, 1, type, left, me, 1, type, win));
    for (int round = 0; round < 5; round++) {
        MPI(MPI_Win_fence(0, win));
        MPI(MPI_Put(&value, 1, type, left, me, 1, type, win));
    }
    if (ranks > 2)
        expect_refused(MPI_Put(&value, 1, type, right, me, 1, type, win), "MPI_Put", right);
    MPI(MPI_Win_fence(0, win));
    MPI(set(win, "barrier"));
    expect_key(win, "barrier");
    for (int round = 0; round < 5; round++) {
        MPI(MPI_Win_fence(0, win));
        MPI(MPI_Put(&value, 1, type, (me + round) % ranks, me, 1, type, win));
    }
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    EXPECT(load64((int64_t *)w.base + left) == left, "%s: nothing of %d", kind_name[kind], left);
    window_free(&w);
}

/* A put to `target` between two fences, as a record; `inside`: without the first fence. */
static MPI_Request record(MPI_Win win, const int64_t *value, int target, int inside)
{
    MPI_Request r;
    MPI(MPIX_Win_epoch_init(win, &r));
    if (!inside)
        MPI(MPI_Win_fence(0, win));
    MPI(MPI_Put(value, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, win));
    MPI(MPI_Win_fence(0, win));
    MPI(MPIX_Win_epoch_end(win));
    return r;
}

/* Persistent epochs start if the pattern has all of their targets. */
static void recorded(int kind, int inside)
{
    Window w = patterned(kind, 2 * sizeof(int64_t), sizeof(int64_t));
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int64_t value = 0;
    MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win));
    MPI(MPI_Win_fence(0, w.win));
    MPI_Request good = record(w.win, &value, right, inside);
    MPI_Request bad = record(w.win, &value, left, inside);
    for (int round = 1; round < 5; round++) {
        value = 100 * me + round;
        MPI(MPI_Start(&good));
        MPI(MPI_Wait(&good, MPI_STATUS_IGNORE));
        int64_t got = load64((int64_t *)w.base + 1);
        EXPECT(got == 100 * left + round, "%s: got %d in round %d", kind_name[kind], (int)got,
               round);
        MPI(MPI_Barrier(MPI_COMM_WORLD)); /* origins that are not learned could be early */
    }
    if (ranks > 2) {
        MPI_Request put;
        MPI(MPIX_Put_init(&value, 1, MPI_INT64_T, left, 0, 1, MPI_INT64_T, w.win, &put));
        expect_refused(MPI_Start(&bad), "MPI_Start of an epoch", left);
        expect_refused(MPI_Start(&put), "MPI_Start of a put", left);
        MPI(MPI_Request_free(&put));
    }
    MPI(MPI_Request_free(&good));
    MPI(MPI_Request_free(&bad));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    window_free(&w);
}

/* A record that ends the epoch to be learned itself, and then leaves its pattern. */
static MPI_Request record_that_learns(MPI_Win win, const int64_t *value, int first, int second)
{
    MPI_Request r;
    MPI(MPIX_Win_epoch_init(win, &r));
    MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    MPI(MPI_Put(value, 1, MPI_INT64_T, first, 1, 1, MPI_INT64_T, win));
    MPI(MPI_Win_fence(0, win));
    MPI(MPI_Put(value, 1, MPI_INT64_T, second, 0, 1, MPI_INT64_T, win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    MPI(MPIX_Win_epoch_end(win));
    return r;
}

/* A start whose own fence ends the epoch to be learned: if the pattern will lack one of its
 * targets, it is refused before anything moves [PE-2]. */
static void learned_by_a_start(int kind)
{
    Window w = patterned(kind, 2 * sizeof(int64_t), sizeof(int64_t));
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int64_t value = 7 + me, other = -1;
    MPI_Request good = record(w.win, &value, right, 0), bad = record(w.win, &other, left, 0);
    MPI_Request worse = record_that_learns(w.win, &other, right, left);
    MPI_Request learns = record_that_learns(w.win, &value, right, right);
    if (ranks > 2)
        expect_refused(MPI_Start(&worse), "MPI_Start of a record that learns", left);
    MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
    if (ranks > 1) /* would end an epoch without accesses */
        expect_refused(MPI_Start(&good), "MPI_Start beside an epoch without accesses", right);
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win));
    if (ranks > 2)
        expect_refused(MPI_Start(&bad), "MPI_Start that ends the epoch to be learned", left);
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, w.win));
    MPI(MPI_Win_fence(0, w.win));
    EXPECT(load64((int64_t *)w.base) == 7 + left && load64((int64_t *)w.base + 1) == 7 + left,
           "%s: puts beside a start that was refused", kind_name[kind]);
    value = 9 + me;
    MPI(MPI_Barrier(MPI_COMM_WORLD)); /* all have read their memory */
    MPI(MPI_Start(&good));
    MPI(MPI_Wait(&good, MPI_STATUS_IGNORE));
    EXPECT(load64((int64_t *)w.base + 1) == 9 + left, "%s: a later start", kind_name[kind]);
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    MPI(set(w.win, "pattern"));
    for (int64_t round = 0; round < 3; round++) {
        value = 100 * round + me;
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Start(&learns));
        MPI(MPI_Wait(&learns, MPI_STATUS_IGNORE));
        for (int i = 0; i < 2; i++)
            EXPECT(load64((int64_t *)w.base + i) == 100 * round + left, "%s: start %ld that learns",
                   kind_name[kind], (long)round);
    }
    MPI(MPI_Request_free(&good));
    MPI(MPI_Request_free(&bad));
    MPI(MPI_Request_free(&worse));
    MPI(MPI_Request_free(&learns));
    window_free(&w);
}

/* A window whose processes want different fences is not made. */
static void different(void)
{
    MPI_Info info = fence_info(me ? "pattern" : "barrier");
    MPI_Win win = MPI_WIN_NULL;
    void *base = NULL;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (ranks > 1)
        EXPECT(class_of(MPI_Win_allocate(8, 1, info, MPI_COMM_WORLD, &base, &win)) ==
                   MPI_ERR_INFO_VALUE, "a window with different fences");
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    MPI(MPI_Info_free(&info));
}

/* Locks, and post and start, between the fences. */
static void others(int kind)
{
    Window w = patterned(kind, 3 * sizeof(int64_t), sizeof(int64_t));
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Group to = group_one(right), from = group_one(left);
    for (int64_t round = 0; round < 50; round++) {
        int64_t mine = round * 100 + me, theirs = round * 100 + left;
        MPI_Request r[2];
        MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
        MPI(MPI_Put(&mine, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, &r[0]));
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, w.win));
        MPI(MPI_Put(&mine, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_iunlock(right, w.win, &r[1]));
        MPI(MPI_Win_post(from, 0, w.win));
        MPI(MPI_Win_start(to, 0, w.win));
        MPI(MPI_Put(&mine, 1, MPI_INT64_T, right, 2, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_complete(w.win));
        MPI(MPI_Win_wait(w.win));
        MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
        for (int i = 0; i < 3; i++)
            EXPECT(load64((int64_t *)w.base + i) == theirs, "%s round %ld: %d: %ld",
                   kind_name[kind], (long)round, i, (long)load64((int64_t *)w.base + i));
    }
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int mix = 0; mix < 16; mix += 5)
            ring(kind, mix);
        one_way(kind);
        pending(kind);
        refused(kind);
        others(kind);
        if (ranks > 2)
            alone(kind);
        recorded(kind, 0);
        recorded(kind, 1);
        learned_by_a_start(kind);
    }
    different();
    return test_end();
}
