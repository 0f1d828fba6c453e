/*
 * Delay that must not travel [paper III, IV.C]. Each program here ends only if it does not: the late process
 * waits for a sign that comes after the epoch of the others is over, looking at its own memory, outside MPI.
 *
 *   late KIND CASE    CASE: post | complete | fence | unlock | target
 *
 * Puts that must arrive without another call of the origin are large: on created windows small ones may need the
 * origin's next call (section 4 of the header).
 *
 * No case measures time; a delay that travels ends in the runner's time limit.
 */
#include "check.h"

/* A second window, always allocated, whose first word carries the sign: its arrival needs nothing of the target. */
static Window sign;
static void give_sign(int rank, int64_t value)
{
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, sign.win));
    MPI(MPI_Accumulate(&value, 1, MPI_INT64_T, rank, 0, 1, MPI_INT64_T, MPI_REPLACE, sign.win));
    MPI(MPI_Win_unlock(rank, sign.win));
}

/* Late Post: the target posts only after a message that the origin sends behind icomplete. */
static void late_post(Window *w)
{
    int64_t value = 41;
    MPI_Group zero = group_one(0), one = group_one(1);
    MPI_Request r;
    if (me == 0) {
        MPI(MPI_Win_start(one, 0, w->win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w->win));
        MPI(MPIX_Win_icomplete(w->win, &r));
        tell(1, 1);
        finish(&r);
    } else if (me == 1) {
        hear(0, 1);
        MPI(MPI_Win_post(zero, 0, w->win));
        MPI(MPI_Win_wait(w->win));
        EXPECT(load64(w->base) == 41, "put: %ld", (long)load64(w->base));
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
}

/* Late Complete: the target's wait ends while the origin still computes behind icomplete [PR-3]. */
static void late_complete(Window *w)
{
    static char big[1 << 20];
    MPI_Group zero = group_one(0), one = group_one(1);
    MPI_Request r;
    if (me == 0) {
        memset(big, 7, sizeof big);
        hear(1, 1);
        MPI(MPI_Win_start(one, 0, w->win));
        MPI(MPI_Put(big, sizeof big, MPI_BYTE, 1, 0, sizeof big, MPI_BYTE, w->win));
        MPI(MPIX_Win_icomplete(w->win, &r));
        compute_until(sign.base, 1);
        finish(&r);
    } else if (me == 1) {
        MPI(MPI_Win_post(zero, 0, w->win));
        tell(0, 1);
        MPI(MPI_Win_wait(w->win));
        for (size_t i = 0; i < sizeof big; i++)
            if (((char *)w->base)[i] != 7) {
                EXPECT(0, "byte %zu", i);
                break;
            }
        give_sign(0, 1);
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
}

/* Wait at Fence: two processes; one computes behind ifence, the other gets through its blocking fence. */
static void wait_at_fence(Window *w)
{
    static char big[1 << 20];
    MPI_Request r;
    MPI(MPI_Win_fence(0, w->win));
    if (me == 0) {
        memset(big, 7, sizeof big);
        MPI(MPI_Put(big, sizeof big, MPI_BYTE, 1, 0, sizeof big, MPI_BYTE, w->win));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w->win, &r));
        compute_until(sign.base, 1);
        finish(&r);
    } else {
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
        for (size_t i = 0; i < sizeof big; i++)
            if (((char *)w->base)[i] != 7) {
                EXPECT(0, "byte %zu", i);
                break;
            }
        give_sign(0, 1);
    }
}

/* Late Unlock: a holder computes behind iunlock; the next in the queue gets the lock [LK-3]. */
static void late_unlock(Window *w)
{
    static char big[1 << 20];
    MPI_Request r, born;
    if (me == 0) {
        memset(big, 1, sizeof big);
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, ranks - 1, 0, w->win, &born));
        born_complete(&born, "ilock");
        MPI(MPI_Put(big, sizeof big, MPI_BYTE, ranks - 1, 0, sizeof big, MPI_BYTE, w->win));
        MPI(MPI_Win_flush(ranks - 1, w->win));
        tell(1, 1); /* the lock is held */
        MPI(MPIX_Win_iunlock(ranks - 1, w->win, &r));
        compute_until(sign.base, 1);
        finish(&r);
    } else if (me == 1) {
        hear(0, 1);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, ranks - 1, 0, w->win));
        MPI(MPI_Get(big, sizeof big, MPI_BYTE, ranks - 1, 0, sizeof big, MPI_BYTE, w->win));
        MPI(MPI_Win_unlock(ranks - 1, w->win));
        EXPECT(big[0] == 1 && big[sizeof big - 1] == 1, "the first holder's put is not there");
        give_sign(0, 1);
    }
}

/*
 * The target computes for as long as the others need for a thousand lock epochs on it. Where the target must carry
 * operations out (created windows, MPIX_RMA_CMA=off) the epochs are empty: locks never need it.
 */
static void busy_target(Window *w)
{
    const char *attach = getenv("MPIX_RMA_CMA");
    int target = ranks - 1, others = ranks - 1, with_data = w->kind == ALLOCATED || !attach || strcmp(attach, "off") != 0;
    if (me == target) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w->win)); /* first contact */
        MPI(MPI_Win_unlock(target, w->win));
    } else {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w->win));
        MPI(MPI_Win_unlock(target, w->win));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == target) {
        compute_until(sign.base, others);
        if (with_data) {
            MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w->win));
            EXPECT(load64(w->base) == 1000 * others, "%ld increments", (long)load64(w->base));
            MPI(MPI_Win_unlock(target, w->win));
        }
        return;
    }
    for (int i = 0; i < 1000; i++) {
        int64_t seen;
        MPI_Request r;
        do_lock(i % 4, MPI_LOCK_EXCLUSIVE, target, w->win);
        if (with_data) {
            MPI(MPI_Get(&seen, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, w->win));
            MPI(MPI_Win_flush(target, w->win));
            seen++;
            MPI(MPI_Put(&seen, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, w->win));
        }
        do_unlock(i % 4, target, w->win, &r);
        finish(&r);
        if (i % 16 == 0) {
            do_lock(i / 16 % 4, MPI_LOCK_SHARED, target, w->win);
            do_unlock(i / 16 % 4, target, w->win, &r);
            finish(&r);
            do_lock_all(i / 16 % 4, w->win);
            do_unlock_all(i / 16 % 4, w->win, &r);
            finish(&r);
        }
    }
    int64_t one = 1;
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, sign.win));
    MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, sign.win));
    MPI(MPI_Win_unlock(target, sign.win));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 3 && ranks >= 2);
    Window w = window(strcmp(argv[1], "created") == 0, 1 << 20, 1);
    sign = window(ALLOCATED, sizeof(int64_t), 1);
    /* First contact with the sign's window, before somebody is deaf. */
    MPI(MPI_Win_lock_all(0, sign.win));
    int64_t zero = 0;
    for (int i = 0; i < ranks; i++)
        MPI(MPI_Accumulate(&zero, 1, MPI_INT64_T, i, 0, 1, MPI_INT64_T, MPI_SUM, sign.win));
    MPI(MPI_Win_unlock_all(sign.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (strcmp(argv[2], "post") == 0)
        late_post(&w);
    else if (strcmp(argv[2], "complete") == 0)
        late_complete(&w);
    else if (strcmp(argv[2], "fence") == 0) {
        REQUIRE(ranks == 2);
        wait_at_fence(&w);
    } else if (strcmp(argv[2], "unlock") == 0)
        late_unlock(&w);
    else if (strcmp(argv[2], "target") == 0)
        busy_target(&w);
    else
        REQUIRE(!"known case");
    window_free(&sign);
    window_free(&w);
    return test_end();
}
