/*
 * Many windows at once, with epochs pending on all; many windows one after the other, without
 * leaks; windows on split, duplicated and reversed communicators.
 *
 *   windows [COUNT]    COUNT: windows of all kinds one after the other, more than 50. With more
 *                      than 2,000, the process's memory must stay as it is, too.
 */
#include "check.h"
#include <dirent.h>

static int entries_of(const char *directory)
{
    int n = 0;
    DIR *d = opendir(directory);
    if (d == NULL)
        return -1;
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void at_once(void)
{
    enum { MANY = 100 };
    static Window w[MANY];
    static MPI_Request r[MANY];
    static int value[MANY];
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    for (int i = 0; i < MANY; i++)
        w[i] = window(i % KINDS, sizeof(int), sizeof(int));
    for (int i = 0; i < MANY; i++) {
        value[i] = me * MANY + i;
        MPI(MPIX_Win_ifence(0, w[i].win, &r[i]));
    }
    MPI(MPI_Waitall(MANY, r, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++)
        MPI(MPI_Put(&value[i], 1, MPI_INT, right, 0, 1, MPI_INT, w[i].win));
    /* Closed in a different order in each process: nonblocking fences of different windows are
     * independent. */
    for (int k = 0; k < MANY; k++) {
        int i = (k * 7 + me * 13) % MANY;
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w[i].win, &r[i]));
    }
    MPI(MPI_Waitall(MANY, r, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++)
        EXPECT(*(int *)w[i].base == left * MANY + i, "window %d: %d", i, *(int *)w[i].base);
    for (int i = 0; i < MANY; i++)
        window_free(&w[MANY - 1 - i]);
}

/* Memory of this process in KiB. */
static long resident(void)
{
    long pages = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%*d %ld", &pages) != 1)
        pages = -1;
    if (f != NULL)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Makes a window of `bytes`, uses it, and frees it. Between nodes, no window is a shared one. */
static void make_and_free(int i, MPI_Aint bytes)
{
    enum { DYNAMIC = KINDS, SHARED, ALL_KINDS };
    static int64_t memory[4096 * 4 / sizeof(int64_t)];
    int64_t value = i, *base;
    int target = (me + i) % ranks, kind = i % (on_one_node() ? ALL_KINDS : SHARED);
    Window w = {0};
    if (kind < KINDS)
        w = window(kind, bytes, 1);
    else if (kind == SHARED)
        MPI(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &w.win));
    else
        MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w.win));
    if (kind == DYNAMIC && bytes)
        MPI(MPI_Win_attach(w.win, memory, bytes));
    MPI(MPI_Win_fence(0, w.win));
    if (bytes)
        MPI(MPI_Put(&value, 1, MPI_INT64_T, kind == DYNAMIC ? me : target,
                    kind == DYNAMIC ? (MPI_Aint)memory : 0, 1, MPI_INT64_T, w.win));
    MPI(MPI_Win_fence(0, w.win));
    if (kind == DYNAMIC && bytes)
        MPI(MPI_Win_detach(w.win, memory));
    window_free(&w);
}

static void one_after_the_other(int count)
{
    int files = 0, mappings = 0;
    long kib = 0;
    /* Caches are full after a few windows, and the allocator's free lists after some hundred. */
    int first = count > 2000 ? 1000 : 50;
    for (int i = 0; i < count; i++) {
        make_and_free(i, 4096 * (i % 5));
        if (i == first || i == count - 1) {
            int f = entries_of("/proc/self/fd"), m = lines_in("/proc/self/maps");
            long k = resident();
            if (i == count - 1) {
                EXPECT(f <= files, "open files: %d after %d windows, %d after %d", files, first, f,
                       count);
                EXPECT(m < mappings + (first == 50 ? 100 : 4),
                       "mappings: %d after %d windows, %d after %d", mappings, first, m, count);
                if (first > 50)
                    EXPECT(k < kib + 1024, "KiB: %ld after %d windows, %ld after %d", kib, first,
                           k, count);
            }
            files = f;
            mappings = m;
            kib = k;
        }
    }
}

/* Ranks are those of the window's group, not of MPI_COMM_WORLD. */
static void on_comm(MPI_Comm comm, const char *name)
{
    int r, n;
    MPI(MPI_Comm_rank(comm, &r));
    MPI(MPI_Comm_size(comm, &n));
    for (int kind = 0; kind < KINDS; kind++) {
        Window w = window_on(kind, n * sizeof(int), sizeof(int), MPI_INFO_NULL, comm);
        int value = 70 + r, *mine = w.base;
        MPI_Request q;
        MPI(MPI_Win_fence(0, w.win));
        for (int t = 0; t < n; t++)
            MPI(MPI_Put(&value, 1, MPI_INT, t, r, 1, MPI_INT, w.win));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, &q));
        finish(&q);
        for (int t = 0; t < n; t++)
            EXPECT(mine[t] == 70 + t, "%s, %s: fence: from %d: %d", name, kind_name[kind], t,
                   mine[t]);
        MPI_Group all, to, from;
        int right = (r + 1) % n, left = (r + n - 1) % n;
        MPI(MPI_Win_get_group(w.win, &all));
        MPI(MPI_Group_incl(all, 1, &right, &to));
        MPI(MPI_Group_incl(all, 1, &left, &from));
        value = 170 + r;
        MPI(MPI_Win_post(from, 0, w.win));
        MPI(MPI_Win_start(to, 0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT, right, r, 1, MPI_INT, w.win));
        MPI(MPI_Win_complete(w.win));
        MPI(MPI_Win_wait(w.win));
        EXPECT(mine[left] == 170 + left, "%s, %s: post/start: %d", name, kind_name[kind],
               mine[left]);
        MPI(MPI_Barrier(comm)); /* all have looked */
        value = 270 + r;
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT, right, r, 1, MPI_INT, w.win));
        MPI(MPI_Win_unlock(right, w.win));
        MPI(MPI_Barrier(comm));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, r, 0, w.win));
        EXPECT(mine[left] == 270 + left, "%s, %s: lock: %d", name, kind_name[kind], mine[left]);
        MPI(MPI_Win_unlock(r, w.win));
        MPI(MPI_Group_free(&all));
        MPI(MPI_Group_free(&to));
        MPI(MPI_Group_free(&from));
        window_free(&w);
    }
}

static void communicators(void)
{
    MPI_Comm comm;
    MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &comm));
    on_comm(comm, "reversed");
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &comm));
    /* One half at a time: Open MPI 4.1 confuses windows that both halves create concurrently. */
    for (int turn = 0; turn < 2; turn++) {
        if (me % 2 == turn)
            on_comm(comm, "split");
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    on_comm(comm, "dup");
    /* A window outlives its communicator. */
    Window w = window_on(ALLOCATED, sizeof(int), sizeof(int), MPI_INFO_NULL, comm);
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPI_Put(&me, 1, MPI_INT, (me + 1) % ranks, 0, 1, MPI_INT, w.win));
    MPI(MPI_Win_fence(0, w.win));
    EXPECT(*(int *)w.base == (me + ranks - 1) % ranks, "window after its communicator: %d",
           *(int *)w.base);
    window_free(&w);
    on_comm(MPI_COMM_SELF, "self");
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    at_once();
    one_after_the_other(argc > 1 ? atoi(argv[1]) : 300);
    communicators();
    return test_end();
}
