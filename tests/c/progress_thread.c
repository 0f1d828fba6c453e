/*
 * MPIX_RMA_PROGRESS=thread [PR-2]: epochs advance while a process computes without calling MPI. The
 * computing process polls its own memory for a flag that another process sets after the epoch is
 * over. Without progress, the time limit fails the test.
 *
 *   target   a lock epoch on memory that only its owner can copy to (MPI_Win_create,
 *            MPIX_RMA_CMA=off)
 *   origin   a recorded put: the target posts after the origin has started to compute
 *   chain    three deferred epochs, closed one after the other, of a process that computes
 */
#include "check.h"

enum { LONG = 1 << 20 };
static Window flags;

/* The target computes from before the lock until after the unlock. */
static void target_computes(Window *w, int64_t turn)
{
    if (me == 0) {
        static char data[LONG], back[LONG];
        memset(data, (int)turn, sizeof data);
        recv_token(1, 1);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w->win));
        MPI(MPI_Put(data, LONG, MPI_BYTE, 1, 0, LONG, MPI_BYTE, w->win));
        MPI(MPI_Win_flush(1, w->win));
        MPI(MPI_Get(back, LONG, MPI_BYTE, 1, 0, LONG, MPI_BYTE, w->win));
        MPI(MPI_Win_unlock(1, w->win));
        EXPECT(!memcmp(data, back, LONG), "turn %ld: get returned another value than was put",
               (long)turn);
        set_word(&flags, 1, turn);
    } else if (me == 1) {
        send_token(0, 1);
        compute_until(flags.base, turn);
    }
}

/* The origin has closed its epoch and computes; its target posts afterwards. */
static void origin_computes(Window *w, int64_t turn)
{
    MPI_Group zero = group_one(0), one = group_one(1);
    if (me == 0) {
        int64_t value = turn;
        MPI_Request r;
        MPI(MPI_Win_start(one, 0, w->win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w->win));
        MPI(MPIX_Win_icomplete(w->win, &r));
        send_token(1, 1);
        compute_until(flags.base, turn);
        MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
    } else if (me == 1) {
        recv_token(0, 1);
        MPI(MPI_Win_post(zero, 0, w->win));
        MPI(MPI_Win_wait(w->win));
        EXPECT(load64(w->base) == turn, "put: %ld, not %ld", (long)load64(w->base), (long)turn);
        set_word(&flags, 0, turn);
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
}

/* Three deferred epochs in a chain; then one test must find the request of the last complete. */
static void chain_computes(Window *w, int64_t turn)
{
    MPI_Group zero = group_one(0), one = group_one(1);
    if (me == 0) {
        int64_t values[3] = {turn, turn + 1, turn + 2};
        MPI_Request r[3];
        for (int i = 0; i < 3; i++) {
            MPI_Request opening;
            MPI(MPIX_Win_istart(one, 0, w->win, &opening));
            MPI(MPI_Wait(&opening, MPI_STATUS_IGNORE));
            MPI(MPI_Put(&values[i], 1, MPI_INT64_T, 1, i, 1, MPI_INT64_T, w->win));
            MPI(MPIX_Win_icomplete(w->win, &r[i]));
        }
        send_token(1, 1);
        compute_until(flags.base, turn);
        int flag = 0;
        MPI(MPI_Testall(3, r, &flag, MPI_STATUSES_IGNORE));
        while (!flag) /* the done may arrive a moment before the request completes */
            MPI(MPI_Testall(3, r, &flag, MPI_STATUSES_IGNORE));
    } else if (me == 1) {
        recv_token(0, 1);
        for (int i = 0; i < 3; i++) {
            MPI(MPI_Win_post(zero, 0, w->win));
            MPI(MPI_Win_wait(w->win));
            EXPECT(load64((int64_t *)w->base + i) == turn + i, "epoch %d: %ld", i,
                   (long)load64((int64_t *)w->base + i));
        }
        set_word(&flags, 0, turn);
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    flags = window(ALLOCATED, sizeof(int64_t), sizeof(int64_t));
    int64_t turn = 0;
    for (int round = 0; round < 20; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            Window w = window(kind, LONG, kind == CREATED ? 1 : sizeof(int64_t));
            Window words = window(kind, 4 * sizeof(int64_t), sizeof(int64_t));
            if (kind == CREATED) {
                turn += 10;
                target_computes(&w, turn);
                MPI(MPI_Barrier(MPI_COMM_WORLD));
            }
            turn += 10;
            origin_computes(&words, turn);
            MPI(MPI_Barrier(MPI_COMM_WORLD));
            turn += 10;
            chain_computes(&words, turn);
            MPI(MPI_Barrier(MPI_COMM_WORLD));
            window_free(&words);
            window_free(&w);
        }
    window_free(&flags);
    return test_end();
}
