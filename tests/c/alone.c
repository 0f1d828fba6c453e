/*
 * Windows of one process, whose calls take a short way: each call is right in each state, and
 * refused where MPI forbids it. They keep the order of locks, and other windows make progress.
 */
#include "check.h"

enum { ROUNDS = 200 }; /* more than the calls between two sweeps */

static void expect_value(Window *w, int64_t value, const char *what)
{
    EXPECT(load64(w->base) == value, "%s: %ld, not %ld", what, (long)load64(w->base), (long)value);
}

static void add(Window *w, int64_t value)
{
    MPI(MPI_Accumulate(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, w->win));
}

/* Every kind of epoch, again and again, in blocking form. */
static void epochs(Window *w)
{
    int64_t expected = load64(w->base);
    MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, w->win));
    for (int i = 0; i < ROUNDS; i++) {
        add(w, 1);
        MPI(MPI_Win_fence(0, w->win));
        expect_value(w, ++expected, "fence");
    }
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    for (int i = 0; i < ROUNDS; i++) {
        MPI(MPI_Win_lock(i % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, w->win));
        add(w, 2);
        MPI(MPI_Win_unlock(0, w->win));
        MPI(MPI_Win_lock_all(0, w->win));
        add(w, 3);
        MPI(MPI_Win_flush_all(w->win));
        expect_value(w, expected += 5, "lock_all");
        MPI(MPI_Win_unlock_all(w->win));
    }
}

/* Short and regular forms in one epoch, and epochs behind pending ones. */
static void mixed(Window *w)
{
    int64_t expected = load64(w->base);
    MPI_Request r[2];
    MPI_Group self;
    MPI(MPI_Win_get_group(w->win, &self));
    for (int mix = 0; mix < 4; mix++) {
        do_lock(mix & 1 ? NB_OPEN_ACCESS : 0, MPI_LOCK_EXCLUSIVE, 0, w->win);
        add(w, 1);
        do_unlock(mix & 2 ? NB_CLOSE_ACCESS : 0, 0, w->win, r);
        do_lock_all(mix & 1 ? NB_OPEN_ACCESS : 0, w->win);
        add(w, 1);
        do_unlock_all(mix & 2 ? NB_CLOSE_ACCESS : 0, w->win, r + 1);
        MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
        do_fence(mix & 1 ? NB_CLOSE_ACCESS : 0, 0, w->win, r);
        finish(r);
        add(w, 1);
        do_fence(mix & 2 ? NB_CLOSE_ACCESS : 0, MPI_MODE_NOSUCCEED, w->win, r);
        finish(r);
        MPI(MPI_Win_post(self, 0, w->win));
        MPI(MPI_Win_start(self, 0, w->win));
        add(w, 1);
        MPI(MPI_Win_complete(w->win));
        MPI(MPI_Win_wait(w->win));
        expect_value(w, expected += 4, "mixed");
    }
    MPI(MPI_Group_free(&self));
}

static void refused(Window *w)
{
    int64_t value = 1;
    MPI_Group self;
    MPI(MPI_Win_get_group(w->win, &self));
    MPI(MPI_Win_set_errhandler(w->win, MPI_ERRORS_RETURN));
    for (int all = 0; all < 2; all++) {
        REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_unlock(0, w->win));
        REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_unlock_all(w->win));
        if (all)
            MPI(MPI_Win_lock_all(0, w->win));
        else
            MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w->win));
        REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w->win));
        REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, w->win));
        REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_fence(0, w->win));
        REFUSED(MPI_ERR_RMA_SYNC, all ? MPI_Win_unlock(0, w->win) : MPI_Win_unlock_all(w->win));
        add(w, 1);
        MPI(all ? MPI_Win_unlock_all(w->win) : MPI_Win_unlock(0, w->win));
    }
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Accumulate(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM,
                                             w->win));
    MPI(MPI_Win_fence(0, w->win));
    add(w, 1);
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w->win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    MPI(MPI_Win_post(self, 0, w->win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_fence(0, w->win));
    MPI(MPI_Win_start(self, 0, w->win));
    MPI(MPI_Win_complete(w->win));
    MPI(MPI_Win_wait(w->win));
    REFUSED(MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, w->win));
    REFUSED(MPI_ERR_RANK, MPI_Win_unlock(1, w->win));
    REFUSED(MPI_ERR_LOCKTYPE, MPI_Win_lock(-12345, 0, 0, w->win));
    REFUSED(MPI_ERR_ASSERT, MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOPRECEDE, w->win));
    REFUSED(MPI_ERR_ASSERT, MPI_Win_fence(MPI_MODE_NOCHECK, w->win));
    MPI(MPI_Group_free(&self));
}

/* A duplicate, and a recorded epoch, see the same window. */
static void other_handles(Window *w)
{
    int64_t expected = load64(w->base), one = 1;
    MPI_Win second;
    MPI_Request epoch;
    MPI(MPIX_Win_dup(w->win, MPI_INFO_NULL, &second));
    MPI(MPI_Win_lock_all(0, w->win));
    MPI(MPI_Win_lock_all(0, second));
    MPI(MPI_Win_unlock_all(w->win));
    MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, second));
    MPI(MPI_Win_unlock_all(second));
    MPI(MPI_Win_free(&second));
    expect_value(w, ++expected, "duplicate");
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w->win));
    MPI(MPI_Win_unlock(0, w->win));
    MPI(MPIX_Win_epoch_init(w->win, &epoch));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w->win));
    MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, w->win));
    MPI(MPI_Win_unlock(0, w->win));
    MPI(MPIX_Win_epoch_end(w->win));
    expect_value(w, expected, "a recorded epoch has run");
    for (int i = 0; i < 3; i++) {
        MPI(MPI_Start(&epoch));
        MPI(MPI_Wait(&epoch, MPI_STATUS_IGNORE));
        expect_value(w, ++expected, "restarted");
    }
    MPI(MPI_Request_free(&epoch));
}

/* Rank 0 asks for rank 1's lock, which may return before it is held, and then locks its own window:
 * that must wait for the earlier lock [EP-10]. */
static void order_of_locks(Window *w)
{
    Window all = window(CREATED, sizeof(int64_t), 1), flag = window(ALLOCATED, sizeof(int64_t), 1);
    if (me == 1) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, all.win));
        send_token(0, 1);
        recv_token(0, 2);
        set_word(&flag, 0, 1);
        MPI(MPI_Win_unlock(1, all.win));
    } else if (me == 0) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w->win));
        MPI(MPI_Win_unlock(0, w->win));
        recv_token(1, 1);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, all.win));
        send_token(1, 2);
        for (int i = 0; i < ROUNDS; i++) {
            MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w->win));
            EXPECT(load64(flag.base) == 1, "the later lock is held first");
            MPI(MPI_Win_unlock(0, w->win));
        }
        MPI(MPI_Win_unlock(1, all.win));
    }
    window_free(&flag);
    window_free(&all);
}

/* Rank 0 makes no other calls than on its own window until the others have changed another one. */
static void progress_of_others(Window *w)
{
    const int64_t one = 1;
    Window all = window(CREATED, sizeof(int64_t), 1);
    if (me == 0) {
        for (int rank = 1; rank < ranks; rank++)
            send_token(rank, 3);
        for (int turn = 0; load64(all.base) < ranks - 1; turn++) {
            if (turn % 2) {
                MPI(MPI_Win_fence(0, w->win));
            } else {
                MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w->win));
                MPI(MPI_Win_unlock(0, w->win));
            }
        }
    } else {
        recv_token(0, 3);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, all.win));
        MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, all.win));
        MPI(MPI_Win_unlock(0, all.win));
    }
    window_free(&all);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        Window w = window_on(kind, sizeof(int64_t), 1, MPI_INFO_NULL, MPI_COMM_SELF);
        epochs(&w);
        mixed(&w);
        refused(&w);
        epochs(&w);
        other_handles(&w);
        epochs(&w);
        if (ranks > 1)
            order_of_locks(&w);
        progress_of_others(&w);
        window_free(&w);
    }
    return test_end();
}
