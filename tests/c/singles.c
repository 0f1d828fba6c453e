/*
 * Accumulates of single elements on a window with acc_single_intrinsic: by all ranks on the words
 * of all, their own included. They are atomic, ordered [AT-2], and complete when an epoch or flush
 * completes. (Over RDMA they are device atomics.)
 *
 *   singles KIND ROUNDS    KIND: allocated or created
 */
#include "check.h"

enum { SUM, REAL, MOST, BITS, TICKETS, SMALL, WORDS = 8 };

static int rounds;
static int64_t *base;
static MPI_Win win;

static void add(int target, int word, int64_t value)
{
    MPI(MPI_Accumulate(&value, 1, MPI_INT64_T, target, word, 1, MPI_INT64_T, MPI_SUM, win));
    MPI(MPI_Win_flush_local(target, win));
}

/* All to all, under one lock_all. */
static void together(void)
{
    MPI(MPI_Win_lock_all(0, win));
    for (int round = 0; round < rounds; round++) {
        for (int target = 0; target < ranks; target++) {
            int64_t most = (int64_t)round * ranks + me,
                    bit = (int64_t)1 << (round * ranks + me) % 60, one = 1, old = -1, before = -1;
            double half = 0.5;
            add(target, SUM, me + 1);
            MPI(MPI_Accumulate(&half, 1, MPI_DOUBLE, target, REAL, 1, MPI_DOUBLE, MPI_SUM, win));
            MPI(MPI_Fetch_and_op(&most, &before, MPI_INT64_T, target, MOST, MPI_MAX, win));
            MPI(MPI_Accumulate(&bit, 1, MPI_INT64_T, target, BITS, 1, MPI_INT64_T, MPI_BXOR, win));
            /* A fetch after the process's own add sees it: accumulates are ordered. */
            MPI(MPI_Get_accumulate(NULL, 0, MPI_INT64_T, &old, 1, MPI_INT64_T, target, MOST, 1,
                                   MPI_INT64_T, MPI_NO_OP, win));
            MPI(MPI_Win_flush(target, win));
            EXPECT(old >= most, "behind a maximum of %lld the target has %lld", (long long)most,
                   (long long)old);
            /* A ticket by compare_and_swap. */
            for (int64_t seen = 0, got;; seen = got) {
                int64_t next = seen + 1;
                MPI(MPI_Compare_and_swap(&next, &seen, &got, MPI_INT64_T, target, TICKETS, win));
                MPI(MPI_Win_flush_local(target, win));
                if (got == seen)
                    break;
            }
            int small = 1; /* four bytes: never a device atomic */
            MPI(MPI_Accumulate(&small, 1, MPI_INT, target, SMALL, 1, MPI_INT, MPI_SUM, win));
            MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, WORDS - 1, MPI_SUM, win));
        }
    }
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    int64_t each = rounds, bits = 0;
    for (int round = 0; round < rounds; round++)
        for (int rank = 0; rank < ranks; rank++)
            bits ^= (int64_t)1 << (round * ranks + rank) % 60;
    double real;
    int small;
    memcpy(&real, &base[REAL], sizeof real);
    memcpy(&small, &base[SMALL], sizeof small);
    EXPECT(base[SUM] == each * ranks * (ranks + 1) / 2, "the sum is %lld", (long long)base[SUM]);
    EXPECT(real == 0.5 * rounds * ranks, "the sum of halves is %g", real);
    EXPECT(base[MOST] == each * ranks - 1, "the largest is %lld", (long long)base[MOST]);
    EXPECT(base[BITS] == bits, "the bits are %llx", (long long)base[BITS]);
    EXPECT(base[TICKETS] == each * ranks, "%lld tickets", (long long)base[TICKETS]);
    EXPECT(small == rounds * ranks, "the sum of ints is %d", small);
    EXPECT(base[WORDS - 1] == each * ranks, "the count is %lld", (long long)base[WORDS - 1]);
    MPI(MPI_Win_unlock(me, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* In the other kinds of epochs, they are complete at the target when the epoch is; the target only
 * waits. */
static void epochs(void)
{
    int64_t value = 3, *word = &base[SUM], before = *word;
    int next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    MPI(MPI_Win_fence(0, win));
    MPI(MPI_Accumulate(&value, 1, MPI_INT64_T, next, SUM, 1, MPI_INT64_T, MPI_PROD, win));
    MPI(MPI_Win_fence(0, win));
    EXPECT(*word == 3 * before, "after a fence it is %lld, not 3 times %lld", (long long)*word,
           (long long)before);
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    MPI_Group world, to, from;
    MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    MPI(MPI_Group_incl(world, 1, &next, &to));
    MPI(MPI_Group_incl(world, 1, &last, &from));
    for (int round = 0; round < rounds; round++) {
        before = *word;
        value = round % 2 ? -1 : 2;
        MPI(MPI_Win_post(from, 0, win));
        MPI(MPI_Win_start(to, 0, win));
        MPI(MPI_Accumulate(&value, 1, MPI_INT64_T, next, SUM, 1, MPI_INT64_T,
                           round % 3 ? MPI_PROD : MPI_REPLACE, win));
        MPI(MPI_Win_complete(win));
        MPI(MPI_Win_wait(win));
        int64_t wanted = round % 3 ? before * value : value;
        EXPECT(*word == wanted, "round %d: %lld, not %lld", round, (long long)*word,
               (long long)wanted);
    }
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
    MPI(MPI_Group_free(&world));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    int created = argc > 1 && strcmp(argv[1], "created") == 0;
    rounds = argc > 2 ? atoi(argv[2]) : 10;
    static int64_t memory[WORDS];
    MPI_Info info;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, "acc_single_intrinsic", "true"));
    if (created)
        MPI(MPI_Win_create(memory, sizeof memory, sizeof *memory, info, MPI_COMM_WORLD, &win));
    else
        MPI(MPI_Win_allocate(sizeof memory, sizeof *memory, info, MPI_COMM_WORLD, &base, &win));
    MPI(MPI_Info_free(&info));
    base = created ? memory : base;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win));
    memset(base, 0, sizeof memory);
    MPI(MPI_Win_unlock(me, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    together();
    epochs();
    MPI(MPI_Win_free(&win));
    return test_end();
}
