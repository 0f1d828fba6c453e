/*
 * Dynamic windows (MPI-4.1 12.2.4): any number of regions, attached and detached while others use
 * the window; every kind of operation and epoch; access to unattached memory is an error and has no
 * other effect.
 */
#include "check.h"
#include <sys/mman.h>

static MPI_Win win;

static MPI_Aint address(const void *at)
{
    MPI_Aint value;
    MPI(MPI_Get_address(at, &value));
    return value;
}

static void tell_address(int rank, const void *at)
{
    MPI_Aint value = address(at);
    MPI(MPI_Send(&value, 1, MPI_AINT, rank, 7, MPI_COMM_WORLD));
}

static MPI_Aint hear_address(int rank)
{
    MPI_Aint value;
    MPI(MPI_Recv(&value, 1, MPI_AINT, rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return value;
}

static void swap_addresses(const void *mine, MPI_Aint *all)
{
    MPI_Aint value = address(mine);
    MPI(MPI_Allgather(&value, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD));
}

static void attributes(void)
{
    void *base;
    MPI_Aint *size;
    int *unit, *flavor, *model, flag;
    MPI(MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag));
    EXPECT(flag && base == MPI_BOTTOM, "base %p", base);
    MPI(MPI_Win_get_attr(win, MPI_WIN_SIZE, &size, &flag));
    EXPECT(flag && *size == 0, "size");
    MPI(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &flag));
    EXPECT(flag && *unit == 1, "unit");
    MPI(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag));
    EXPECT(flag && *flavor == MPI_WIN_FLAVOR_DYNAMIC, "flavor");
    MPI(MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag));
    EXPECT(flag && *model == MPI_WIN_UNIFIED, "model");
}

/* Each kind of operation and epoch, on the right neighbour and on the process itself. */
static void operations(void)
{
    enum { N = 3000 };
    int64_t *mine = calloc(N, sizeof *mine), *out = malloc(N * sizeof *out),
            *in = malloc(N * sizeof *in);
    MPI_Aint all[64];
    REQUIRE(ranks <= 64);
    MPI(MPI_Win_attach(win, mine, N * sizeof *mine));
    swap_addresses(mine, all);
    for (int step = 0; step < 2; step++) {
        int to = step ? me : (me + 1) % ranks, from = step ? me : (me + ranks - 1) % ranks;
        MPI_Aint there = all[to];
        MPI_Request r;
        for (int i = 0; i < N; i++)
            out[i] = 1000000 * me + i;
        MPI(MPIX_Win_ifence(0, win, &r));
        MPI(MPI_Put(out, N, MPI_INT64_T, to, there, N, MPI_INT64_T, win));
        finish(&r);
        MPI(MPI_Win_fence(0, win));
        for (int i = 0; i < N; i++)
            EXPECT(mine[i] == 1000000 * from + i, "put %d: %lld", i, (long long)mine[i]);
        MPI(MPI_Get(in, N - 10, MPI_INT64_T, to, there + 80, N - 10, MPI_INT64_T, win));
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
        for (int i = 0; i < N - 10; i++)
            EXPECT(in[i] == 1000000 * me + i + 10, "get %d: %lld", i, (long long)in[i]);

        MPI_Group targets = group_one(to), origins = group_one(from);
        do_post(NB_ALL, origins, 0, win);
        do_start(NB_ALL, targets, 0, win);
        MPI(MPI_Accumulate(out, N, MPI_INT64_T, to, there, N, MPI_INT64_T, MPI_SUM, win));
        MPI_Request q[2];
        do_complete(NB_ALL, win, &q[0]);
        do_wait(NB_ALL, win, &q[1]);
        MPI(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
        for (int i = 0; i < N; i++)
            EXPECT(mine[i] == 2 * (1000000 * (int64_t)from + i), "accumulate %d: %lld", i,
                   (long long)mine[i]);
        MPI(MPI_Group_free(&targets));
        MPI(MPI_Group_free(&origins));
        MPI(MPI_Barrier(MPI_COMM_WORLD));

        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win));
        MPI(MPI_Get_accumulate(out, N, MPI_INT64_T, in, N, MPI_INT64_T, to, there, N, MPI_INT64_T,
                               MPI_REPLACE, win));
        MPI(MPI_Win_flush(to, win));
        EXPECT(in[5] == 2 * (1000000 * (int64_t)me + 5), "get_accumulate: %lld", (long long)in[5]);
        int64_t one = 1, old = -1, expect = out[9], new = -9;
        MPI(MPI_Fetch_and_op(&one, &old, MPI_INT64_T, to, there + 8, MPI_SUM, win));
        MPI(MPI_Win_flush(to, win));
        EXPECT(old == out[1], "fetch_and_op: %lld", (long long)old);
        MPI(MPI_Compare_and_swap(&new, &expect, &old, MPI_INT64_T, to, there + 72, win));
        MPI(MPI_Win_unlock(to, win));
        EXPECT(old == out[9], "compare_and_swap: %lld", (long long)old);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
        EXPECT(mine[1] == 1000000 * (int64_t)from + 2 && mine[9] == -9, "atomics: %lld %lld",
               (long long)mine[1], (long long)mine[9]);
        MPI(MPI_Win_unlock(me, win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI(MPI_Win_detach(win, mine));
    free(mine), free(out), free(in);
}

/* The call itself rejects unattached memory, or, if the target is remote, the call that completes
 * it. */
static int refused_in_the_end(int code, int target)
{
    return code == MPI_SUCCESS ? MPI_Win_flush(target, win) : code;
}

#define UNATTACHED(call, target)                                                                   \
    do {                                                                                           \
        int class = class_of(refused_in_the_end(call, target));                                    \
        EXPECT(class == MPI_ERR_RMA_RANGE, "%s: class %d", #call, class);                          \
    } while (0)

/* Thousands of regions, attached and detached in random order, while the neighbour uses some of
 * them. */
static void many_regions(void)
{
    enum { MANY = 3000, ROUNDS = 3 };
    int64_t *block = calloc(2 * MANY, sizeof *block);
    int *order = malloc(MANY * sizeof *order);
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    uint64_t seed = 77;
    for (int i = 0; i < MANY; i++)
        order[i] = i;
    for (int i = MANY - 1; i > 0; i--) {
        int j = next_random(&seed) % (i + 1), k = order[i];
        order[i] = order[j], order[j] = k;
    }
    MPI_Aint all[64];
    swap_addresses(block, all);
    MPI(MPI_Win_lock_all(0, win));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MANY; i++)
            MPI(MPI_Win_attach(win, &block[2 * order[i]], sizeof *block));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int i = 0; i < MANY; i += 7) {
            int64_t value = me * MANY + i + round;
            MPI(MPI_Put(&value, 1, MPI_INT64_T, right, all[right] + 16 * i, 1, MPI_INT64_T, win));
            MPI(MPI_Win_flush_local(right, win));
        }
        /* Detaches the other half meanwhile; no process accesses it. */
        for (int i = 0; i < MANY; i++)
            if (order[i] % 7)
                MPI(MPI_Win_detach(win, &block[2 * order[i]]));
        MPI(MPI_Win_flush_all(win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int i = 0; i < MANY; i++) {
            int64_t expect = i % 7 ? 0 : left * MANY + i + round;
            EXPECT(load64(&block[2 * i]) == expect, "region %d: %lld, not %lld", i,
                   (long long)block[2 * i], (long long)expect);
            EXPECT(block[2 * i + 1] == 0, "between regions");
        }
        int64_t value = 1;
        MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
        UNATTACHED(MPI_Put(&value, 1, MPI_INT64_T, right, all[right] + 16, 1, MPI_INT64_T, win),
                   right);
        MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_ARE_FATAL));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int i = 0; i < MANY; i += 7)
            MPI(MPI_Win_detach(win, &block[2 * i]));
    }
    MPI(MPI_Win_unlock_all(win));
    free(block), free(order);
}

/* An operation may span adjacent regions. A region may be empty, or larger than memory. */
static void shapes_of_regions(void)
{
    size_t huge = (size_t)6 << 30;
    char *far = mmap(NULL, huge, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *block = calloc(1, 4096), out[300], in[300];
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    REQUIRE(far != MAP_FAILED);
    MPI(MPI_Win_attach(win, block + 100, 100));
    MPI(MPI_Win_attach(win, block, 100));
    MPI(MPI_Win_attach(win, block + 200, 100));
    MPI(MPI_Win_attach(win, block + 500, 0));
    MPI(MPI_Win_attach(win, NULL, 0));
    MPI(MPI_Win_attach(win, far, (MPI_Aint)huge));
    MPI_Aint all[64], wide[64];
    swap_addresses(block, all);
    swap_addresses(far, wide);
    memset(out, 'a' + me, sizeof out);
    MPI(MPI_Win_fence(0, win));
    MPI(MPI_Put(out, 300, MPI_CHAR, right, all[right], 300, MPI_CHAR, win));
    MPI(MPI_Put(out, 300, MPI_CHAR, right, wide[right] + (MPI_Aint)huge - 300, 300, MPI_CHAR, win));
    MPI(MPI_Win_fence(0, win));
    MPI(MPI_Get(in, 300, MPI_CHAR, right, wide[right] + (MPI_Aint)huge - 300, 300, MPI_CHAR, win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    EXPECT(block[0] == 'a' + left && block[299] == 'a' + left && block[300] == 0,
           "neighbouring regions: %d %d", block[0], block[299]);
    EXPECT(far[huge - 1] == 'a' + left && far[huge - 300] == 'a' + left && far[huge - 301] == 0,
           "far end");
    EXPECT(in[0] == 'a' + me && in[299] == 'a' + me, "far end, fetched");
    MPI(MPI_Win_detach(win, block + 500));
    MPI(MPI_Win_detach(win, NULL));
    MPI(MPI_Win_detach(win, far));
    MPI(MPI_Win_detach(win, block));
    MPI(MPI_Win_detach(win, block + 200));
    MPI(MPI_Win_detach(win, block + 100));
    munmap(far, huge), free(block);
}

/* A datatype with absolute displacements from MPI_BOTTOM, over regions with gaps between them. */
static void absolute(void)
{
    int64_t *block = calloc(100, sizeof *block), out[3] = {10 + me, 20 + me, 30 + me};
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks, lengths[3] = {1, 1, 1};
    MPI_Aint all[64], there[3];
    MPI_Datatype places;
    for (int i = 0; i < 3; i++)
        MPI(MPI_Win_attach(win, &block[40 * i], sizeof *block));
    swap_addresses(block, all);
    for (int i = 0; i < 3; i++)
        there[i] = all[right] + 320 * i;
    MPI(MPI_Type_create_hindexed(3, lengths, there, MPI_INT64_T, &places));
    MPI(MPI_Type_commit(&places));
    MPI(MPI_Win_fence(0, win));
    MPI(MPI_Put(out, 3, MPI_INT64_T, right, 0, 1, places, win));
    MPI(MPI_Win_fence(0, win));
    MPI(MPI_Accumulate(out, 3, MPI_INT64_T, right, 0, 1, places, MPI_SUM, win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    for (int i = 0; i < 3; i++)
        EXPECT(block[40 * i] == 2 * (10 * (i + 1) + left), "absolute %d: %lld", i,
               (long long)block[40 * i]);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_detach(win, &block[40]));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win));
    UNATTACHED(MPI_Put(out, 3, MPI_INT64_T, right, 0, 1, places, win), right);
    MPI(MPI_Win_unlock(right, win));
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_ARE_FATAL));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_detach(win, block));
    MPI(MPI_Win_detach(win, &block[80]));
    MPI(MPI_Type_free(&places));
    free(block);
}

/* Unattached memory is never touched, and invalid attaches fail. */
static void refusals(void)
{
    char *block = calloc(1, 4096), c = 1, r = 2;
    int64_t v[3] = {1, 2, 3};
    int right = (me + 1) % ranks;
    MPI_Aint all[64];
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    MPI(MPI_Win_attach(win, block + 1000, 100));
    REFUSED(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, block + 1000, 100));
    REFUSED(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, block + 1099, 1));
    REFUSED(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, block + 999, 2));
    REFUSED(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, block, 4096));
    REFUSED(MPI_ERR_SIZE, MPI_Win_attach(win, block, -1));
    REFUSED(MPI_ERR_ARG, MPI_Win_attach(win, NULL, 1));
    REFUSED(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, block + 1001));
    REFUSED(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, block));
    swap_addresses(block, all);
    for (int step = 0; step < 2; step++) {
        int t = step ? me : right;
        MPI_Aint at = all[t];
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
        UNATTACHED(MPI_Put(&c, 1, MPI_CHAR, t, at, 1, MPI_CHAR, win), t);
        UNATTACHED(MPI_Put(&c, 1, MPI_CHAR, t, at + 999, 1, MPI_CHAR, win), t);
        UNATTACHED(MPI_Put(v, 2, MPI_INT64_T, t, at + 1085, 2, MPI_INT64_T, win), t);
        UNATTACHED(MPI_Get(&c, 1, MPI_CHAR, t, at + 1100, 1, MPI_CHAR, win), t);
        UNATTACHED(MPI_Get(&c, 1, MPI_CHAR, t, 0, 1, MPI_CHAR, win), t);
        REFUSED(MPI_ERR_DISP, MPI_Get(&c, 1, MPI_CHAR, t, -8, 1, MPI_CHAR, win));
        UNATTACHED(MPI_Accumulate(v, 1, MPI_INT64_T, t, at + 1096, 1, MPI_INT64_T, MPI_SUM, win),
                   t);
        UNATTACHED(MPI_Get_accumulate(v, 1, MPI_INT64_T, v + 1, 1, MPI_INT64_T, t, at, 1,
                                      MPI_INT64_T, MPI_SUM, win),
                   t);
        UNATTACHED(MPI_Fetch_and_op(v, v + 1, MPI_INT64_T, t, at + 992, MPI_SUM, win), t);
        UNATTACHED(MPI_Compare_and_swap(v, v + 1, v + 2, MPI_INT64_T, t, at + 1100, win), t);
        MPI(MPI_Put(&c, 0, MPI_CHAR, t, at, 0, MPI_CHAR, win));
        MPI(MPI_Put(&c, 1, MPI_CHAR, MPI_PROC_NULL, at, 1, MPI_CHAR, win));
        MPI(MPI_Put(&r, 1, MPI_CHAR, t, at + 1000, 1, MPI_CHAR, win));
        MPI(MPI_Win_unlock(t, win));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    for (int i = 0; i < 4096; i++)
        EXPECT(block[i] == (i == 1000 ? 2 : 0), "byte %d: %d", i, block[i]);
    MPI(MPI_Win_unlock(me, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_detach(win, block + 1000));
    REFUSED(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, block + 1000));
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_ARE_FATAL));
    free(block);
}

static void other_kinds(void)
{
    char memory[64];
    for (int kind = 0; kind < (ranks > 1 ? KINDS : 1); kind++) {
        Window w = window(kind, 64, 1);
        MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
        REFUSED(MPI_ERR_RMA_FLAVOR, MPI_Win_attach(w.win, memory, 64));
        REFUSED(MPI_ERR_RMA_FLAVOR, MPI_Win_detach(w.win, memory));
        window_free(&w);
    }
}

/* Memory attached during an epoch, announced by a message, and used at once: a distributed list
 * grows. */
static void while_others_wait(void)
{
    enum { LINKS = 50 };
    int64_t *link[LINKS];
    MPI(MPI_Win_lock_all(0, win));
    for (int i = 0; i < LINKS; i++) {
        int owner = i % ranks;
        if (me == owner) {
            link[i] = malloc(sizeof **link);
            *link[i] = -1;
            MPI(MPI_Win_attach(win, link[i], sizeof **link));
            for (int t = 0; t < ranks; t++)
                if (t != me)
                    tell_address(t, link[i]);
        }
        MPI_Aint there = me == owner ? address(link[i]) : hear_address(owner);
        if (me == (owner + 1) % ranks) {
            int64_t value = i;
            MPI_Request r;
            MPI(MPI_Put(&value, 1, MPI_INT64_T, owner, there, 1, MPI_INT64_T, win));
            MPI(MPIX_Win_iflush(owner, win, &r));
            finish(&r);
            if (owner != me)
                send_token(owner, 8);
        }
        if (me == owner) {
            if (ranks > 1)
                recv_token((owner + 1) % ranks, 8);
            EXPECT(load64(link[i]) == i, "link %d: %lld", i, (long long)load64(link[i]));
        }
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_unlock_all(win));
    for (int i = me; i < LINKS; i += ranks) {
        MPI(MPI_Win_detach(win, link[i]));
        free(link[i]);
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    attributes();
    operations();
    many_regions();
    shapes_of_regions();
    absolute();
    refusals();
    while_others_wait();
    operations();
    MPI(MPI_Win_free(&win));
    other_kinds();
    /* A window without attached memory, and one that is freed with regions attached. */
    static char left_attached[100];
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI(MPI_Win_free(&win));
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI(MPI_Win_attach(win, left_attached, sizeof left_attached));
    MPI(MPI_Win_free(&win));
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI(MPI_Win_attach(win, left_attached, sizeof left_attached));
    operations();
    MPI(MPI_Win_free(&win));
    return test_end();
}
