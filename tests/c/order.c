/*
 * MPIX_Win_order [OR-1]: later operations take effect after earlier ones, of all kinds and lengths,
 * without a flush between them. The target polls its memory.
 */
#include "check.h"

#include <stdbool.h>

enum { N = 6000, ROUNDS = 60 };

/* Places of the words: a flag, a sum, and the data behind them. */
enum { FLAG, SUM, DATA };

/* Puts data and a flag in each round; the target sees the flag, checks the data, and answers. */
static void flags(int kind, int all)
{
    static const int lengths[] = {1, 8, 70, 600, 2048, 2500, N};
    Window w = window(kind, (N + DATA) * sizeof(int64_t), sizeof(int64_t));
    int64_t *data = calloc(N, sizeof *data), *seen = calloc(N, sizeof *seen), *there = w.base;
    int target = ranks - 1;
    MPI(MPI_Win_lock_all(0, w.win));
    for (int64_t round = 1; round <= ROUNDS; round++) {
        int len = lengths[round % 7];
        if (me == 0) {
            int64_t two = 2;
            for (int i = 0; i < len; i++)
                data[i] = round;
            MPI(MPI_Put(data, len, MPI_INT64_T, target, DATA, len, MPI_INT64_T, w.win));
            MPI(MPI_Accumulate(&two, 1, MPI_INT64_T, target, SUM, 1, MPI_INT64_T, MPI_SUM, w.win));
            MPI(all ? MPIX_Win_order_all(w.win) : MPIX_Win_order(target, w.win));
            /* A get after the put of the same data, without a wait. */
            MPI(MPI_Get(seen, len, MPI_INT64_T, target, DATA, len, MPI_INT64_T, w.win));
            MPI(all ? MPIX_Win_order_all(w.win) : MPIX_Win_order(target, w.win));
            MPI(MPI_Put(&round, 1, MPI_INT64_T, target, FLAG, 1, MPI_INT64_T, w.win));
        }
        if (me == target) {
            while (load64(there + FLAG) != round)
                MPI(MPI_Win_sync(w.win));
            EXPECT(load64(there + SUM) == 2 * round, "%s: sum %ld in round %ld", kind_name[kind],
                   (long)load64(there + SUM), (long)round);
            for (int i = 0; i < len; i++)
                EXPECT(load64(there + DATA + i) == round, "%s %d: element %d of %d in round %ld",
                       kind_name[kind], all, i, len, (long)round);
            /* The get has read before the flag was put. */
            for (int i = 0; i < len; i++)
                there[DATA + i] = -1;
            MPI(MPI_Win_sync(w.win));
            if (target != 0)
                send_token(0, 1);
        }
        if (me == 0) {
            if (target != 0)
                recv_token(target, 1);
            MPI(MPI_Win_flush(target, w.win));
            for (int i = 0; i < len; i++)
                EXPECT(seen[i] == round, "%s: got %ld in round %ld", kind_name[kind], (long)seen[i],
                       (long)round);
        }
    }
    MPI(MPI_Win_unlock_all(w.win));
    free(data);
    free(seen);
    window_free(&w);
}

/* A long put and words to the same place: the last ones win. */
static void overlapping(int kind)
{
    Window w = window(kind, N * sizeof(int64_t), sizeof(int64_t));
    int64_t *data = malloc((N + 40) * sizeof *data), target = (me + 1) % ranks, last = 0;
    MPI(MPI_Win_fence(0, w.win));
    for (int i = 0; i < N; i++)
        data[i] = 1000;
    for (int step = 0; step < 40; step++)
        data[N + step] = 1000 + step;
    MPI(MPI_Put(data, N, MPI_INT64_T, target, 0, N, MPI_INT64_T, w.win));
    for (int step = 1; step < 40; step++) {
        MPI(MPIX_Win_order(target, w.win));
        MPI(MPI_Put(&data[N + step], 1, MPI_INT64_T, target, step % 5, 1, MPI_INT64_T, w.win));
    }
    MPI(MPIX_Win_order_all(w.win));
    MPI(MPI_Get(&last, 1, MPI_INT64_T, target, 4, 1, MPI_INT64_T, w.win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    EXPECT(last == 1039, "%s: got %ld", kind_name[kind], (long)last);
    for (int i = 0; i < N; i++)
        EXPECT(((int64_t *)w.base)[i] == (i < 5 ? 1035 + i : 1000), "%s: element %d is %ld",
               kind_name[kind], i, (long)((int64_t *)w.base)[i]);
    free(data);
    window_free(&w);
}

/* Wrong calls change nothing. */
static void errors(int kind)
{
    Window w = window(kind, sizeof(int64_t), sizeof(int64_t));
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    int code, class;
    for (int open = 0; open < 2; open++) {
        int codes[] = {MPIX_Win_order(0, w.win), MPIX_Win_order_all(w.win),
                       MPIX_Win_order(ranks, w.win), MPIX_Win_order(-77, w.win)};
        for (int i = 0; i < 4; i++) {
            int expected = i > 1 ? MPI_ERR_RANK : open ? MPI_SUCCESS : MPI_ERR_RMA_SYNC;
            MPI(MPI_Error_class(codes[i], &class));
            EXPECT(class == expected, "%s: class %d of call %d, not %d", kind_name[kind], class, i,
                   expected);
        }
        MPI(MPIX_Win_order(MPI_PROC_NULL, w.win));
        if (!open)
            MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
    }
    if (ranks > 1) {
        code = MPIX_Win_order(1, w.win);
        MPI(MPI_Error_class(code, &class));
        EXPECT(class == MPI_ERR_RMA_SYNC, "a target that is not locked: class %d", class);
    }
    MPI(MPI_Win_unlock(0, w.win));
    window_free(&w);
}

/* The function behind MPIX_Win_order, which mpix_inline.h does not replace. */
static int (*volatile called)(int, MPI_Win) = MPIX_Win_order;

static int order(int target, MPI_Win win, bool in_line)
{
    return in_line ? MPIX_Win_order(target, win) : called(target, win);
}

/* An order with nothing to do needs no call. */
static void nothing_to_do(int kind)
{
    Window w = window(kind, sizeof(int64_t), sizeof(int64_t));
    int target = (me + 1) % ranks, found = 0;
    int64_t value = me;
    MPI(MPI_Win_lock_all(0, w.win));
    for (int round = 0; round < 200; round++) {
        MPI(MPI_Put(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_order(target, w.win));
#ifdef MPIX_INLINE_H
        found += mpix_rma_in_order.rank == target &&
                 !memcmp(&mpix_rma_in_order.win, &w.win, sizeof w.win);
#endif
    }
    MPI(MPI_Win_unlock_all(w.win));
#ifdef MPIX_INLINE_H
    EXPECT(found >= 100 || kind == CREATED || !is_load_store(w.win), "%s: in line %d times",
           kind_name[kind], found);
#endif
    window_free(&w);
}

/* An order of the same target as before, with and without something in between. Two processes put
 * to each other and then look at what the other has put: one of them must see it, so each get has
 * to wait for the put before it, also behind the second of two equal orders. */
static void again(int kind, bool in_line)
{
    Window w = window_on(kind, 2 * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD);
    int peer = me ^ 1, class;
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    for (int64_t round = 1; peer < ranks && round <= 2000; round++) {
        int64_t seen = 0, other, mine = round, zero = 0;
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, w.win));
        MPI(MPI_Put(&zero, 1, MPI_INT64_T, peer, 1, 1, MPI_INT64_T, w.win));
        MPI(order(peer, w.win, in_line));
        MPI(order(peer, w.win, in_line));
        MPI(MPI_Win_unlock(peer, w.win));
        MPI_Error_class(order(peer, w.win, in_line), &class);
        EXPECT(class == MPI_ERR_RMA_SYNC, "%s: order after the unlock: class %d", kind_name[kind],
               class);
        send_token(peer, 3), recv_token(peer, 3);
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me & ~1, 0, w.win));
        /* Both at the even one of the two: the words of both processes. */
        MPI(MPI_Put(&mine, 1, MPI_INT64_T, me & ~1, me & 1, 1, MPI_INT64_T, w.win));
        MPI(order(me & ~1, w.win, in_line));
        MPI(order(me & ~1, w.win, in_line));
        MPI(MPI_Get(&seen, 1, MPI_INT64_T, me & ~1, ~me & 1, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_unlock(me & ~1, w.win));
        MPI(MPI_Sendrecv(&seen, 1, MPI_INT64_T, peer, 4, &other, 1, MPI_INT64_T, peer, 4,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        EXPECT(seen == round || other == round, "%s round %ld: %ld and %ld", kind_name[kind],
               (long)round, (long)seen, (long)other);
    }
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        flags(kind, 0);
        flags(kind, 1);
        overlapping(kind);
        errors(kind);
        again(kind, false);
        again(kind, true);
        nothing_to_do(kind);
    }
    return test_end();
}
