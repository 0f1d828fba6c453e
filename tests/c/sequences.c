/*
 * Sequences of different epochs on one window: the tentative epoch after a fence [EP-11], epochs of
 * different kinds open together [EP-7], and every kind after every kind [EP-6], blocking,
 * nonblocking and mixed.
 */
#include "check.h"

static void put(Window *w, int64_t *value, int target)
{
    MPI(MPI_Put(value, 1, MPI_INT64_T, target, me, 1, MPI_INT64_T, w->win));
}

/* `fence; put; fence; lock; put; unlock; post; wait; free`, with the origins' side [EP-11]. */
static void dissolve(int kind, int mix)
{
    Window w = window(kind, ranks * sizeof(int64_t), sizeof(int64_t));
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Group from = group_one(left), to = group_one(right);
    int64_t a = 1 + me, b = 100 + me, c = 1000 + me;
    MPI_Request r[6];
    do_fence(mix, 0, w.win, &r[0]);
    put(&w, &a, right);
    do_fence(mix, 0, w.win, &r[1]);
    do_lock(mix, MPI_LOCK_EXCLUSIVE, right, w.win);
    put(&w, &b, right);
    do_unlock(mix, right, w.win, &r[2]);
    do_post(mix, from, 0, w.win);
    do_start(mix, to, 0, w.win);
    put(&w, &c, right);
    do_complete(mix, w.win, &r[3]);
    do_wait(mix, w.win, &r[4]);
    MPI(MPI_Waitall(5, r, MPI_STATUSES_IGNORE));
    EXPECT(load64((int64_t *)w.base + left) == 1000 + left, "%s mix %d: %ld", kind_name[kind], mix,
           (long)load64((int64_t *)w.base + left));
    MPI(MPI_Group_free(&from));
    MPI(MPI_Group_free(&to));
    window_free(&w);

    /* After a fence: a post with an empty group, lock_all, free. */
    w = window(kind, ranks * sizeof(int64_t), sizeof(int64_t));
    do_fence(mix, 0, w.win, &r[0]);
    put(&w, &a, right);
    do_fence(mix, 0, w.win, &r[1]);
    do_post(mix, MPI_GROUP_EMPTY, 0, w.win);
    do_wait(mix, w.win, &r[2]);
    do_lock_all(mix, w.win);
    put(&w, &b, right);
    do_unlock_all(mix, w.win, &r[3]);
    do_fence(mix, 0, w.win, &r[4]);
    MPI(MPI_Waitall(5, r, MPI_STATUSES_IGNORE));
    EXPECT(load64((int64_t *)w.base + left) == 100 + left, "%s mix %d: %ld", kind_name[kind], mix,
           (long)load64((int64_t *)w.base + left));
    window_free(&w);
}

/*
 * Rounds of random kinds. All processes draw the same kinds; each puts the round's number into its
 * own slot of every target. The last round's number must remain: epochs took effect in order.
 * Requests are waited for at random, differently in each process.
 */
static void shuffled(int kind, uint64_t seed, int rounds)
{
    enum { MAX = 24 };
    Window w = window(kind, (ranks + 1) * sizeof(int64_t), sizeof(int64_t));
    uint64_t common = seed, own = seed * 31 + me;
    int64_t *value = calloc(rounds, sizeof *value), *expected = calloc(ranks, sizeof *expected),
            added = 0;
    const int64_t one = 1;
    MPI_Request r[MAX + 4];
    int pending = 0;
    REQUIRE(value && expected);
    for (int round = 0; round < rounds; round++) {
        int mix = next_random(&own) % 16, what = next_random(&common) % 6,
            shift = next_random(&common) % ranks;
        int target = (me + shift) % ranks, origin = (me + ranks - shift) % ranks;
        MPI_Group to = group_one(target), from = group_one(origin);
        value[round] = round + 1;
        switch (what) {
        case 0: /* fence epoch */
            do_fence(mix, 0, w.win, &r[pending++]);
            put(&w, &value[round], target);
            do_fence(mix, MPI_MODE_NOSUCCEED, w.win, &r[pending++]);
            break;
        case 1: /* access and exposure, open together */
            do_post(mix, from, 0, w.win);
            do_start(mix, to, 0, w.win);
            put(&w, &value[round], target);
            do_complete(mix, w.win, &r[pending++]);
            do_wait(mix, w.win, &r[pending++]);
            break;
        case 2: /* the same, closed in the other order; the exposure is opened while an access is
                   pending */
            do_post(mix, from, 0, w.win);
            do_start(mix, to, 0, w.win);
            put(&w, &value[round], target);
            do_wait(mix | NB_CLOSE_EXPOSURE, w.win, &r[pending++]);
            do_complete(mix, w.win, &r[pending++]);
            break;
        case 3: /* lock */
            do_lock(mix, round % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, w.win);
            put(&w, &value[round], target);
            MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, ranks, 1, MPI_INT64_T, MPI_SUM,
                               w.win));
            added++;
            do_unlock(mix, target, w.win, &r[pending++]);
            break;
        case 4: /* lock_all */
            do_lock_all(mix, w.win);
            put(&w, &value[round], target);
            MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, ranks, 1, MPI_INT64_T, MPI_SUM,
                               w.win));
            added++;
            if (next_random(&own) % 2)
                MPI(MPIX_Win_iflush_all(w.win, &r[pending++]));
            do_unlock_all(mix, w.win, &r[pending++]);
            break;
        case 5: /* two locks at once */
            if (ranks > 1) {
                int second = (target + 1) % ranks, low = target < second ? target : second,
                    high = target + second - low;
                do_lock(mix, MPI_LOCK_SHARED, low, w.win);
                do_lock(mix, MPI_LOCK_SHARED, high, w.win);
                put(&w, &value[round], target);
                do_unlock(mix, low, w.win, &r[pending++]);
                do_unlock(mix, high, w.win, &r[pending++]);
            }
            break;
        }
        if (what != 5 || ranks > 1)
            expected[origin] = round + 1;
        MPI(MPI_Group_free(&to));
        MPI(MPI_Group_free(&from));
        if (pending >= MAX || next_random(&own) % 8 == 0) {
            MPI(MPI_Waitall(pending, r, MPI_STATUSES_IGNORE));
            pending = 0;
        }
    }
    MPI(MPI_Waitall(pending, r, MPI_STATUSES_IGNORE));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    for (int i = 0; i < ranks; i++)
        EXPECT(load64((int64_t *)w.base + i) == expected[i], "%s seed %lu: from %d: %ld, not %ld",
               kind_name[kind], (unsigned long)seed, i, (long)load64((int64_t *)w.base + i),
               (long)expected[i]);
    int64_t seen = load64((int64_t *)w.base + ranks), sum, all;
    MPI(MPI_Win_unlock(me, w.win));
    MPI(MPI_Allreduce(&seen, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    MPI(MPI_Allreduce(&added, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(sum == all, "%s seed %lu: %ld adds of %ld", kind_name[kind], (unsigned long)seed,
           (long)sum, (long)all);
    free(value);
    free(expected);
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    int seeds = argc > 1 ? atoi(argv[1]) : 12;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int mix = 0; mix <= NB_ALL; mix++)
            dissolve(kind, mix);
        for (int seed = 1; seed <= seeds; seed++)
            shuffled(kind, seed, 200);
    }
    return test_end();
}
