/*
 * Calls whose instructions instructions.py counts: only those in `measured`, which makes ROUNDS
 * calls. Two ranks; rank 0 is the origin and runs under the counter. Plain MPI.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MPI_Win win;
static int64_t value;

static void put(void) { MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win); }

static void put_flush(void)
{
    put();
    MPI_Win_flush(1, win);
}

static void lock_put_unlock(int type)
{
    MPI_Win_lock(type, 1, 0, win);
    put();
    MPI_Win_unlock(1, win);
}

static void lock_shared(void) { lock_put_unlock(MPI_LOCK_SHARED); }
static void lock_exclusive(void) { lock_put_unlock(MPI_LOCK_EXCLUSIVE); }

static void fetch_and_op(void)
{
    int64_t one = 1, old;
    MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 1, 1, MPI_SUM, win);
    MPI_Win_flush(1, win);
}

static const struct {
    const char *name;
    void (*call)(void);
    int locked; /* inside a shared lock of the target */
} cases[] = {
    {"put", put, 1},
    {"put_flush", put_flush, 1},
    {"fetch_and_op_flush", fetch_and_op, 1},
    {"lock_shared_put_unlock", lock_shared, 0},
    {"lock_exclusive_put_unlock", lock_exclusive, 0},
};

/* Callgrind counts in this function and its callees. */
__attribute__((noinline)) void measured(void (*call)(void), long rounds)
{
    for (long i = 0; i < rounds; i++)
        call();
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
    int rank, ranks, found = -1;
    int64_t *base, right = 1;
    long rounds = argc > 2 ? atol(argv[2]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int c = 0; argc > 1 && c < (int)(sizeof cases / sizeof cases[0]); c++)
        if (strcmp(argv[1], cases[c].name) == 0)
            found = c;
    if (ranks != 2 || found < 0 || rounds < 1) {
        fputs("usage: mpiexec -n 2 instructions CASE ROUNDS\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Win_allocate(4096, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        void (*call)(void) = cases[found].call;
        if (cases[found].locked)
            MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
        for (value = 1; value <= 20; value++)
            call(); /* first contact and one-time initialization */
        value = 4711;
        measured(call, rounds);
        if (cases[found].locked)
            MPI_Win_unlock(1, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        right = cases[found].call == fetch_and_op ? base[1] == rounds + 20 : base[0] == 4711;
        MPI_Win_unlock(1, win);
        if (!right)
            fprintf(stderr, "instructions: wrong data after %s\n", argv[1]);
    }
    MPI_Win_free(&win);
    MPI_Finalize();
    return right ? 0 : 1;
}
