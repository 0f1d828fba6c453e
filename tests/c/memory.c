/*
 * Memory that the library uses per window: creates many windows, uses each with every process in
 * each kind of epoch, and measures how this process's memory grows. It must not grow with the
 * number of windows or with their use.
 *
 *   memory KIND    KIND: allocated | created
 */
#include "check.h"

/* Three batches: the first may reuse freed memory; the other two must cost the same. */
enum { LOTS = 5, LOT = 30, WINDOWS = LOTS * LOT, BYTES = 8 };

/* Bytes: private to this process, plus its share of shared memory. */
static void memory(double *private, double *share)
{
    char line[256];
    long kb, dirty = 0, pss = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    if (!f)
        f = fopen("/proc/self/smaps", "r");
    REQUIRE(f != NULL);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "Private_Dirty: %ld", &kb) == 1)
            dirty += kb;
        if (sscanf(line, "Pss: %ld", &kb) == 1)
            pss += kb;
    }
    fclose(f);
    *private = dirty * 1024.0;
    *share = pss * 1024.0;
}

static void use(Window *w)
{
    int64_t value = me, old;
    MPI(MPI_Win_fence(0, w->win));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, (me + 1) % ranks, 0, 1, MPI_INT64_T, w->win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    for (int target = 0; target < ranks; target++) {
        MPI_Request r;
        do_lock(NB_ALL, MPI_LOCK_EXCLUSIVE, target, w->win);
        MPI(MPI_Fetch_and_op(&value, &old, MPI_INT64_T, target, 0, MPI_SUM, w->win));
        do_unlock(NB_ALL, target, w->win, &r);
        finish(&r);
    }
    MPI_Group all;
    MPI(MPI_Win_get_group(w->win, &all));
    MPI_Request r[2];
    do_post(NB_ALL, all, 0, w->win);
    do_start(NB_ALL, all, 0, w->win);
    do_complete(NB_ALL, w->win, &r[0]);
    do_wait(NB_ALL, w->win, &r[1]);
    MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    MPI(MPI_Group_free(&all));
}

int main(int argc, char **argv)
{
    static Window windows[WINDOWS];
    test_begin(&argc, &argv);
    REQUIRE(argc == 2);
    for (int kind = 0; kind < KINDS; kind++) {
        if (strcmp(argv[1], kind_name[kind]))
            continue; /* one process per measurement, since freed memory is reused */
        double at[LOTS + 1][2], each[LOTS][2];
        for (int lot = 0; lot <= LOTS; lot++) {
            MPI(MPI_Barrier(MPI_COMM_WORLD));
            memory(&at[lot][0], &at[lot][1]);
            for (int i = lot * LOT; lot < LOTS && i < (lot + 1) * LOT; i++) {
                windows[i] = window(kind, BYTES, BYTES);
                use(&windows[i]);
            }
        }
        for (int lot = 0; lot < LOTS; lot++)
            for (int what = 0; what < 2; what++)
                each[lot][what] = (at[lot + 1][what] - at[lot][what]) / LOT;
        /* The host may allocate something once, in any lot: not in both of the last ones. */
        int last = each[LOTS - 1][0] < each[LOTS - 2][0] ? LOTS - 1 : LOTS - 2;
        double before = each[1][0], now = each[last][0];
        if (me == 0)
            printf("NOTE %s: %.1f KB private, %.1f KB with its share of shared memory per window "
                   "and process, %d processes\n",
                   kind_name[kind], now / 1024, each[last][1] / 1024, ranks);
        /* Channels of created windows dominate: a few pages for each peer. */
        EXPECT(now < 128 * 1024, "%s: %.0f private bytes per window", kind_name[kind], now);
        EXPECT(now < before * 1.5 + 4096, "%s: memory per window grows from %.0f to %.0f bytes",
               kind_name[kind], before, now);
        for (int i = 0; i < WINDOWS; i++)
            window_free(&windows[i]);
    }
    return test_end();
}
