/*
 * Delays that must not propagate [paper III, IV.C]. In each case, the late process polls its own
 * memory, outside MPI, for a flag that another process sets after the others' epoch is over. If the
 * delay propagates, the program hangs and the time limit fails it; no time is measured.
 *
 *   late KIND CASE    CASE: post | complete | fence | unlock | target
 *
 * Puts that must arrive without another call of the origin are large: on created windows, small
 * ones may need the origin's next call (mpix_rma.h, section 4).
 */
#include "check.h"

/* A second window, always allocated, whose first word is the flag: it arrives without any call of
 * the target. */
static Window flags;

/* Late Post: the target posts only after a message that the origin sends after icomplete. */
static void late_post(Window *w)
{
    int64_t value = 41;
    MPI_Group zero = group_one(0), one = group_one(1);
    MPI_Request r;
    if (me == 0) {
        MPI(MPI_Win_start(one, 0, w->win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w->win));
        MPI(MPIX_Win_icomplete(w->win, &r));
        send_token(1, 1);
        finish(&r);
    } else if (me == 1) {
        recv_token(0, 1);
        MPI(MPI_Win_post(zero, 0, w->win));
        MPI(MPI_Win_wait(w->win));
        EXPECT(load64(w->base) == 41, "put: %ld", (long)load64(w->base));
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
}

/* Late Complete: the target's wait ends while the origin still computes after icomplete [PR-3]. */
static void late_complete(Window *w)
{
    static char big[1 << 20];
    MPI_Group zero = group_one(0), one = group_one(1);
    MPI_Request r;
    if (me == 0) {
        memset(big, 7, sizeof big);
        recv_token(1, 1);
        MPI(MPI_Win_start(one, 0, w->win));
        MPI(MPI_Put(big, sizeof big, MPI_BYTE, 1, 0, sizeof big, MPI_BYTE, w->win));
        MPI(MPIX_Win_icomplete(w->win, &r));
        compute_until(flags.base, 1);
        finish(&r);
    } else if (me == 1) {
        MPI(MPI_Win_post(zero, 0, w->win));
        send_token(0, 1);
        MPI(MPI_Win_wait(w->win));
        for (size_t i = 0; i < sizeof big; i++)
            if (((char *)w->base)[i] != 7) {
                EXPECT(0, "byte %zu", i);
                break;
            }
        set_word(&flags, 0, 1);
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
}

/* Wait at Fence: one process computes after ifence, the other completes its blocking fence. */
static void wait_at_fence(Window *w)
{
    static char big[1 << 20];
    MPI_Request r;
    MPI(MPI_Win_fence(0, w->win));
    if (me == 0) {
        memset(big, 7, sizeof big);
        MPI(MPI_Put(big, sizeof big, MPI_BYTE, 1, 0, sizeof big, MPI_BYTE, w->win));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w->win, &r));
        compute_until(flags.base, 1);
        finish(&r);
    } else {
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
        for (size_t i = 0; i < sizeof big; i++)
            if (((char *)w->base)[i] != 7) {
                EXPECT(0, "byte %zu", i);
                break;
            }
        set_word(&flags, 0, 1);
    }
}

/* Late Unlock: the holder computes after iunlock; the next waiter gets the lock [LK-3]. */
static void late_unlock(Window *w)
{
    static char big[1 << 20];
    MPI_Request r, opening;
    if (me == 0) {
        memset(big, 1, sizeof big);
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, ranks - 1, 0, w->win, &opening));
        expect_complete(&opening, "ilock");
        MPI(MPI_Put(big, sizeof big, MPI_BYTE, ranks - 1, 0, sizeof big, MPI_BYTE, w->win));
        MPI(MPI_Win_flush(ranks - 1, w->win));
        send_token(1, 1); /* the lock is held */
        MPI(MPIX_Win_iunlock(ranks - 1, w->win, &r));
        compute_until(flags.base, 1);
        finish(&r);
    } else if (me == 1) {
        recv_token(0, 1);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, ranks - 1, 0, w->win));
        MPI(MPI_Get(big, sizeof big, MPI_BYTE, ranks - 1, 0, sizeof big, MPI_BYTE, w->win));
        MPI(MPI_Win_unlock(ranks - 1, w->win));
        EXPECT(big[0] == 1 && big[sizeof big - 1] == 1, "the first holder's put is not there");
        set_word(&flags, 0, 1);
    }
}

/* The target computes while the others run a thousand lock epochs on it. If the target must carry
 * out operations (created windows, MPIX_RMA_CMA=off) the epochs are empty: locks never need it. */
static void busy_target(Window *w)
{
    const char *attach = getenv("MPIX_RMA_CMA");
    int target = ranks - 1, others = ranks - 1,
        with_data = w->kind == ALLOCATED || !attach || strcmp(attach, "off") != 0;
    if (me == target) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w->win)); /* first contact */
        MPI(MPI_Win_unlock(target, w->win));
    } else {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w->win));
        MPI(MPI_Win_unlock(target, w->win));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == target) {
        compute_until(flags.base, others);
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
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, flags.win));
    MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, flags.win));
    MPI(MPI_Win_unlock(target, flags.win));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 3 && ranks >= 2);
    Window w = window(strcmp(argv[1], "created") == 0, 1 << 20, 1);
    flags = window(ALLOCATED, sizeof(int64_t), 1);
    /* First contact with the flag's window, before any process stops making calls. */
    MPI(MPI_Win_lock_all(0, flags.win));
    int64_t zero = 0;
    for (int i = 0; i < ranks; i++)
        MPI(MPI_Accumulate(&zero, 1, MPI_INT64_T, i, 0, 1, MPI_INT64_T, MPI_SUM, flags.win));
    MPI(MPI_Win_unlock_all(flags.win));
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
    window_free(&flags);
    window_free(&w);
    return test_end();
}
