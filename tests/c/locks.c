/*
 * Locks: mutual exclusion of read-modify-write in exclusive epochs, readers and writers, lock_all
 * against exclusive, several targets at once, loads and stores under a lock on the process itself
 * [EP-1].
 *
 *   locks [COUNT]
 */
#include "check.h"

static int count = 500;

/* get, add, put in an exclusive epoch: without mutual exclusion, an increment is lost. */
static void increments(int kind, int mix)
{
    Window w = window(kind, 4 * sizeof(int64_t), sizeof(int64_t));
    for (int i = 0; i < count; i++) {
        int target = mix & 16 ? (me + i) % ranks : 0;
        int64_t seen;
        MPI_Request r;
        do_lock(mix, MPI_LOCK_EXCLUSIVE, target, w.win);
        MPI(MPI_Get(&seen, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_flush(target, w.win));
        seen++;
        MPI(MPI_Put(&seen, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, w.win));
        do_unlock(mix, target, w.win, &r);
        finish(&r);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    int64_t mine = 0, sum = 0;
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    mine = load64((int64_t *)w.base + 1);
    MPI(MPI_Win_unlock(me, w.win));
    MPI(MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(sum == (int64_t)count * ranks, "%s mix %d: %ld increments of %d", kind_name[kind], mix,
           (long)sum, count * ranks);
    window_free(&w);
}

/* Writers keep two halves equal; readers check. Every fourth reader uses lock_all. */
static void readers(int kind, int mix)
{
    enum { WORDS = 64 };
    Window w = window(kind, WORDS * sizeof(int64_t), sizeof(int64_t));
    uint64_t random = 17 + me;
    for (int i = 0; i < count; i++) {
        int64_t block[WORDS];
        int target = next_random(&random) % ranks;
        MPI_Request r;
        if (next_random(&random) % 3 == 0) {
            for (int k = 0; k < WORDS; k++)
                block[k] = i * 64 + me;
            do_lock(mix, MPI_LOCK_EXCLUSIVE, target, w.win);
            MPI(MPI_Put(block, WORDS / 2, MPI_INT64_T, target, 0, WORDS / 2, MPI_INT64_T, w.win));
            MPI(MPI_Put(block, WORDS / 2, MPI_INT64_T, target, WORDS / 2, WORDS / 2, MPI_INT64_T,
                        w.win));
            do_unlock(mix, target, w.win, &r);
            finish(&r);
        } else {
            int all = next_random(&random) % 4 == 0;
            if (all)
                do_lock_all(mix, w.win);
            else
                do_lock(mix, MPI_LOCK_SHARED, target, w.win);
            MPI(MPI_Get(block, WORDS, MPI_INT64_T, target, 0, WORDS, MPI_INT64_T, w.win));
            if (all)
                do_unlock_all(mix, w.win, &r);
            else
                do_unlock(mix, target, w.win, &r);
            finish(&r);
            for (int k = 1; k < WORDS; k++)
                if (block[k] != block[0]) {
                    EXPECT(0, "%s mix %d: torn: [%d] %ld, [0] %ld", kind_name[kind], mix, k,
                           (long)block[k], (long)block[0]);
                    break;
                }
        }
    }
    window_free(&w);
}

/* All processes add under lock_all. At times rank 0 takes an exclusive lock and checks that nothing
 * changes. */
static void all_against_exclusive(int kind, int mix)
{
    Window w = window(kind, sizeof(int64_t), sizeof(int64_t));
    const int64_t one = 1;
    for (int i = 0; i < count; i++) {
        MPI_Request r;
        if (me == 0 && i % 8 == 0) {
            int64_t a, b, target = i % ranks;
            do_lock(mix, MPI_LOCK_EXCLUSIVE, target, w.win);
            MPI(MPI_Get(&a, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, w.win));
            MPI(MPI_Win_flush(target, w.win));
            MPI(MPI_Get(&b, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, w.win));
            do_unlock(mix, target, w.win, &r);
            finish(&r);
            EXPECT(a == b, "%s mix %d: value changed under an exclusive lock: %ld, %ld",
                   kind_name[kind], mix, (long)a, (long)b);
        }
        do_lock_all(mix, w.win);
        for (int t = 0; t < ranks; t++)
            MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, t, 0, 1, MPI_INT64_T, MPI_SUM, w.win));
        do_unlock_all(mix, w.win, &r);
        finish(&r);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    EXPECT(load64(w.base) == (int64_t)count * ranks, "%s mix %d: %ld adds", kind_name[kind], mix,
           (long)load64(w.base));
    MPI(MPI_Win_unlock(me, w.win));
    window_free(&w);
}

/* Shared locks of all targets are open together, requested in one order and released in another. */
static void several_targets(int kind, int mix)
{
    Window w = window(kind, ranks * sizeof(int), sizeof(int));
    for (int round = 1; round <= 20; round++) {
        int value = round * 10 + me;
        MPI_Request r[64];
        for (int t = 0; t < ranks; t++)
            do_lock(mix, MPI_LOCK_SHARED, t, w.win);
        for (int t = ranks - 1; t >= 0; t--)
            MPI(MPI_Put(&value, 1, MPI_INT, t, me, 1, MPI_INT, w.win));
        for (int k = 0; k < ranks; k++)
            do_unlock(mix, (k + round) % ranks, w.win, &r[k]);
        MPI(MPI_Waitall(ranks, r, MPI_STATUSES_IGNORE));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
        for (int i = 0; i < ranks; i++)
            EXPECT(((int *)w.base)[i] == round * 10 + i, "%s mix %d: from %d: %d", kind_name[kind],
                   mix, i, ((int *)w.base)[i]);
        MPI(MPI_Win_unlock(me, w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    /* Exclusive locks of all targets, in rank order in every process, so no cycle can form. */
    for (int round = 0; round < 20; round++) {
        MPI_Request r[64];
        for (int t = 0; t < ranks; t++)
            do_lock(mix, MPI_LOCK_EXCLUSIVE, t, w.win);
        for (int t = 0; t < ranks; t++)
            do_unlock(mix, t, w.win, &r[t]);
        MPI(MPI_Waitall(ranks, r, MPI_STATUSES_IGNORE));
    }
    window_free(&w);
}

/* Plain loads and stores under a lock on the process itself, against peers that access it by RMA
 * [EP-1]. */
static void load_store(int kind, int nonblocking)
{
    Window w = window(kind, sizeof(int64_t), sizeof(int64_t));
    volatile int64_t *mine = w.base;
    for (int i = 0; i < count; i++) {
        MPI_Request r;
        if (i % ranks == me || i % 2) {
            do_lock(nonblocking ? NB_ALL : 0, MPI_LOCK_EXCLUSIVE, me, w.win);
            if (nonblocking) {
                MPI(MPIX_Win_iflush(me, w.win, &r));
                finish(&r);
            }
            *mine = *mine + 1;
            do_unlock(nonblocking ? NB_ALL : 0, me, w.win, &r);
            finish(&r);
        } else {
            int target = i % ranks;
            int64_t seen;
            MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win));
            MPI(MPI_Get(&seen, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, w.win));
            MPI(MPI_Win_flush(target, w.win));
            seen++;
            MPI(MPI_Put(&seen, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, w.win));
            MPI(MPI_Win_unlock(target, w.win));
        }
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    int64_t seen, sum;
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    seen = *mine;
    MPI(MPI_Win_unlock(me, w.win));
    MPI(MPI_Allreduce(&seen, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(sum == (int64_t)count * ranks, "%s %s: %ld of %d", kind_name[kind],
           nonblocking ? "ilock + iflush" : "lock", (long)sum, count * ranks);
    window_free(&w);
}

/* NOCHECK locks: the program itself orders the accesses [MA-3]. */
static void nocheck(int kind)
{
    Window w = window(kind, sizeof(int), sizeof(int));
    for (int turn = 0; turn < 4 * ranks; turn++) {
        if (turn % ranks == me) {
            for (int t = 0; t < ranks; t++) {
                MPI_Request r;
                MPI(MPIX_Win_ilock(turn % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, t,
                                   MPI_MODE_NOCHECK, w.win, &r));
                expect_complete(&r, "ilock");
                MPI(MPI_Put(&turn, 1, MPI_INT, t, 0, 1, MPI_INT, w.win));
                MPI(MPI_Win_unlock(t, w.win));
            }
            MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, w.win));
            MPI(MPI_Win_unlock_all(w.win));
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
        EXPECT(*(int *)w.base == turn, "%s: turn %d: %d", kind_name[kind], turn, *(int *)w.base);
        MPI(MPI_Win_unlock(me, w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    window_free(&w);
}

/* Many pending lock epochs on changing targets, all nonblocking, and one Waitall. */
static void pending(int kind)
{
    enum { DEPTH = 200 };
    Window w = window(kind, sizeof(int64_t), sizeof(int64_t));
    MPI_Request r[DEPTH], opening;
    const int64_t one = 1;
    for (int k = 0; k < DEPTH; k++) {
        int target = (me + k) % ranks;
        if (k % 10 == 9) {
            MPI(MPIX_Win_ilock_all(0, w.win, &opening));
            expect_complete(&opening, "ilock_all");
            MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, w.win));
            MPI(MPIX_Win_iunlock_all(w.win, &r[k]));
        } else {
            MPI(MPIX_Win_ilock(k % 3 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, w.win,
                               &opening));
            expect_complete(&opening, "ilock");
            MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, w.win));
            MPI(MPIX_Win_iunlock(target, w.win, &r[k]));
        }
    }
    MPI(MPI_Waitall(DEPTH, r, MPI_STATUSES_IGNORE));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    int64_t mine, sum;
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    mine = load64(w.base);
    MPI(MPI_Win_unlock(me, w.win));
    MPI(MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(sum == DEPTH * ranks, "%s: %ld of %d", kind_name[kind], (long)sum, DEPTH * ranks);
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    if (argc > 1)
        count = atoi(argv[1]);
    const int mixes[] = {0, NB_OPEN_ACCESS, NB_CLOSE_ACCESS, NB_ALL};
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < 4; i++) {
            increments(kind, mixes[i]);
            increments(kind, mixes[i] | 16);
            readers(kind, mixes[i]);
            all_against_exclusive(kind, mixes[i]);
            several_targets(kind, mixes[i]);
        }
        load_store(kind, 0);
        load_store(kind, 1);
        nocheck(kind);
        pending(kind);
    }
    return test_end();
}
