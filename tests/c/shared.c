/*
 * MPI_Win_allocate_shared: each process's memory by load, store and RMA; MPI_Win_shared_query on
 * windows of other kinds (MPI-4.1 12.2.3).
 */
#include "check.h"

typedef struct {
    MPI_Aint size;
    int unit;
    char *base;
} Part;

static Part query(MPI_Win win, int rank)
{
    Part p = {-1, -1, (char *)&p};
    MPI(MPI_Win_shared_query(win, rank, &p.size, &p.unit, &p.base));
#if MPI_VERSION >= 4
    MPI_Aint size, unit;
    void *base;
    MPI(MPI_Win_shared_query_c(win, rank, &size, &unit, &base));
    EXPECT(size == p.size && unit == p.unit && base == p.base,
           "MPI_Win_shared_query_c differs for rank %d", rank);
#endif
    return p;
}

static int attribute(MPI_Win win, int key)
{
    int *value, flag;
    MPI(MPI_Win_get_attr(win, key, &value, &flag));
    REQUIRE(flag);
    return *value;
}

/* Rank r has `bytes(r)`; the others load, store and put there. */
static void look(MPI_Comm comm, MPI_Aint (*bytes)(int rank), int apart, int large)
{
    int r, n;
    MPI(MPI_Comm_rank(comm, &r));
    MPI(MPI_Comm_size(comm, &n));
    MPI_Info info = MPI_INFO_NULL;
    if (apart) {
        MPI(MPI_Info_create(&info));
        MPI(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
    }
    MPI_Win win;
    char *base = (char *)&base;
    MPI_Aint mine = bytes(r);
#if MPI_VERSION >= 4
    if (large)
        MPI(MPI_Win_allocate_shared_c(mine, 1 + r, info, comm, &base, &win));
    else
#endif
        MPI(MPI_Win_allocate_shared(mine, 1 + r, info, comm, &base, &win));
    (void)large;
    if (apart)
        MPI(MPI_Info_free(&info));
    EXPECT(attribute(win, MPI_WIN_CREATE_FLAVOR) == MPI_WIN_FLAVOR_SHARED, "flavor");
    EXPECT(attribute(win, MPI_WIN_DISP_UNIT) == 1 + r, "unit");
    MPI_Aint *size;
    void *attr;
    int flag;
    MPI(MPI_Win_get_attr(win, MPI_WIN_SIZE, &size, &flag));
    EXPECT(flag && *size == mine, "size %ld", (long)*size);
    MPI(MPI_Win_get_attr(win, MPI_WIN_BASE, &attr, &flag));
    EXPECT(flag && attr == base, "base");

    char *end = NULL;
    int lowest = -1;
    for (int t = 0; t < n; t++) {
        Part p = query(win, t);
        EXPECT(p.size == bytes(t) && p.unit == 1 + t, "rank %d of %d: %ld bytes, unit %d", t, n,
               (long)p.size, p.unit);
        if (t == r)
            EXPECT(p.base == base, "rank %d: query returns %p, constructor %p", t, (void *)p.base,
                   (void *)base);
        if (p.size == 0)
            continue;
        if (lowest < 0)
            lowest = t;
        if (apart)
            EXPECT((uintptr_t)p.base % 64 == 0, "not page-aligned: %p", (void *)p.base);
        else if (end)
            EXPECT(p.base == end, "rank %d: %td bytes from the memory before", t, p.base - end);
        end = p.base + p.size;
    }
    Part first = query(win, MPI_PROC_NULL);
    if (lowest < 0)
        EXPECT(first.size == 0, "no process has memory, but the size is %ld", (long)first.size);
    else
        EXPECT(first.base == query(win, lowest).base && first.size == bytes(lowest),
               "MPI_PROC_NULL");

    /* The neighbour's stores are visible to the owner. */
    int right = (r + 1) % n, left = (r + n - 1) % n;
    Part p = query(win, right);
    MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    for (MPI_Aint i = 0; i < p.size; i++)
        p.base[i] = (char)(r + i);
    MPI(MPI_Win_sync(win));
    MPI(MPI_Barrier(comm));
    MPI(MPI_Win_sync(win));
    for (MPI_Aint i = 0; i < mine; i++)
        EXPECT(base[i] == (char)(left + i), "stored byte %ld: %d", (long)i, base[i]);
    MPI(MPI_Barrier(comm));
    MPI(MPI_Win_unlock_all(win));

    /* The neighbour's puts, in an epoch of nonblocking calls. */
    MPI_Request q;
    char *out = malloc(p.size + 1);
    for (MPI_Aint i = 0; i < p.size; i++)
        out[i] = (char)(r + 3 * i);
    MPI(MPIX_Win_ifence(0, win, &q));
    MPI(MPI_Put(out, (int)p.size, MPI_CHAR, right, 0, (int)p.size, MPI_CHAR, win));
    finish(&q);
    MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, win, &q));
    finish(&q);
    for (MPI_Aint i = 0; i < mine; i++)
        EXPECT(base[i] == (char)(left + 3 * i), "put byte %ld: %d", (long)i, base[i]);
    free(out);
    MPI(MPI_Win_free(&win));
}

static MPI_Aint odd(int rank) { return 17 + 3 * rank; }
static MPI_Aint holes(int rank) { return rank % 2 ? 4096 + rank : 0; }
static MPI_Aint first_only(int rank) { return rank ? 0 : 1000; }
static MPI_Aint last_large(int rank) { return rank ? (MPI_Aint)3 << 20 : 8; }
static MPI_Aint none(int rank) { return 0 * rank; }

static void everywhere(MPI_Comm comm)
{
    MPI_Aint (*const sizes[])(int) = {odd, holes, first_only, last_large, none};
    for (int i = 0; i < 5; i++)
        for (int apart = 0; apart < 2; apart++)
            look(comm, sizes[i], apart, i % 2);
}

/* Atomic operations of all processes on one word, mixed with loads. */
static void count_together(void)
{
    MPI_Win win;
    int64_t *base, one = 1, old;
    Part p;
    MPI(MPI_Win_allocate_shared(me ? 0 : sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD,
                                &base, &win));
    p = query(win, 0);
    if (me == 0)
        store64(base, 0);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, win));
    for (int i = 0; i < 1000; i++) {
        MPI(MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, win));
        MPI(MPI_Win_flush(0, win));
        EXPECT(load64(p.base) > old, "the word was %lld and is %lld", (long long)old,
               (long long)load64(p.base));
    }
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    EXPECT(load64(p.base) == 1000 * ranks, "counted %lld", (long long)load64(p.base));
    MPI(MPI_Win_free(&win));
}

/* Windows of other kinds report memory that is reachable by load and store. */
static void other_kinds(void)
{
    Window w = window(ALLOCATED, 64 + 8 * me, 8);
    for (int t = 0; t < ranks; t++) {
        Part p = query(w.win, t);
        EXPECT(p.size == 64 + 8 * t && p.unit == 8 && p.base != NULL, "allocated: %ld bytes at %p",
               (long)p.size, (void *)p.base);
    }
    Part p = query(w.win, (me + 1) % ranks);
    MPI(MPI_Win_fence(0, w.win));
    store64(p.base, me + 40);
    MPI(MPI_Win_fence(0, w.win));
    EXPECT(*(int64_t *)w.base == (me + ranks - 1) % ranks + 40, "allocated: stored %lld",
           (long long)*(int64_t *)w.base);
    window_free(&w);
    w = window(CREATED, 64, 8);
    for (int t = 0; t < ranks; t++) {
        p = query(w.win, t);
        if (t == me)
            EXPECT(p.size == 64 && p.base == w.base, "created: own memory");
        else
            EXPECT(p.size == 0 && p.base == NULL, "created: %ld bytes at %p", (long)p.size,
                   (void *)p.base);
    }
    p = query(w.win, MPI_PROC_NULL);
    EXPECT(p.base == w.base && p.size == 64, "created: MPI_PROC_NULL");
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    REFUSED(MPI_ERR_RANK, MPI_Win_shared_query(w.win, ranks, &p.size, &p.unit, &p.base));
    REFUSED(MPI_ERR_RANK, MPI_Win_shared_query(w.win, -77, &p.size, &p.unit, &p.base));
    window_free(&w);
    MPI_Win win;
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    REFUSED(MPI_ERR_RMA_FLAVOR, MPI_Win_shared_query(win, me, &p.size, &p.unit, &p.base));
    MPI(MPI_Win_free(&win));
}

/* mpi_minimum_memory_alignment, also beyond a page, and the value in force. */
static void aligned(int shared, size_t bytes)
{
    MPI_Info info;
    MPI_Win win;
    char *base, value[64];
    int flag;
    snprintf(value, sizeof value, "%zu", bytes);
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, "mpi_minimum_memory_alignment", value));
    if (shared) {
        MPI(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
        MPI(MPI_Win_allocate_shared(100, 1, info, MPI_COMM_WORLD, &base, &win));
    } else
        MPI(MPI_Win_allocate(100, 1, info, MPI_COMM_WORLD, &base, &win));
    MPI(MPI_Info_free(&info));
    EXPECT((uintptr_t)base % bytes == 0, "memory at %p, not a multiple of %zu", (void *)base,
           bytes);
    for (int t = 0; t < ranks; t++)
        EXPECT((uintptr_t)query(win, t).base % bytes == 0, "memory of %d, not a multiple of %zu", t,
               bytes);
    MPI(MPI_Win_get_info(win, &info));
    MPI(MPI_Info_get(info, "mpi_minimum_memory_alignment", sizeof value - 1, value, &flag));
    EXPECT(flag && (size_t)atoll(value) >= bytes, "in force: %s", flag ? value : "nothing");
    MPI(MPI_Info_free(&info));
    memset(base, me, 100);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    EXPECT(query(win, (me + 1) % ranks).base[99] == (me + 1) % ranks, "the neighbour's memory");
    MPI(MPI_Win_free(&win));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    MPI_Comm comm;
    everywhere(MPI_COMM_WORLD);
    MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &comm));
    everywhere(comm);
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm));
    everywhere(comm);
    MPI(MPI_Comm_free(&comm));
    everywhere(MPI_COMM_SELF);
    count_together();
    if (ranks > 1)
        other_kinds();
    for (int shared = 0; shared < 2; shared++)
        for (size_t bytes = 64; bytes <= (4u << 20); bytes *= 16)
            aligned(shared, bytes);
    return test_end();
}
