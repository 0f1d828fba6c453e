/*
 * What synchronization with neighbours costs. Ranks form a ring. Prints JSON lines, in nanoseconds
 * per round, in which each rank puts 8 bytes to each neighbour:
 *
 *   notified    notified puts, and a wait for those of the neighbours
 *   pattern     a fence that waits for learned neighbours (mpix_rma_fence=pattern)
 *   barrier     a fence that waits for all
 *
 * and per put of 8 bytes from rank 0 to rank 1 in one lock_all epoch:
 *
 *   put         puts alone
 *   put_order   each behind MPIX_Win_order
 *   put_call    each behind MPI_Aint_diff, a call that does next to nothing
 *
 * Every value is compared at its target.
 */
#ifdef PLAIN_HOST
#include <mpi.h>
#else
#include <mpix_rma.h>
#endif

#include "../common/host.h"
#include "../common/options.h"
#include "../common/stats.h"
#include "../common/timing.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef PLAIN_HOST
int main(void)
{
    fputs("fences: the plain host has no pattern fences\n", stderr);
    return 2;
}
#else

enum series { NOTIFIED, PATTERN, BARRIER, PUT, PUT_ORDER, PUT_CALL, SERIES };
static const char *const name[SERIES] = {"notified", "pattern",   "barrier",
                                         "put",      "put_order", "put_call"};
/* Two for each neighbour: for odd and even rounds, so that no value is overwritten before it was
 * compared. */
enum { PLACES = 4 };

static int rank, ranks, neighbours[2], number;
static MPI_Win win[SERIES];
static int64_t *base[SERIES], rounds_before[SERIES];
static bool right = true;

static void make_windows(void)
{
    for (enum series s = 0; s < SERIES; s++) {
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "mpix_rma_fence", s == PATTERN ? "pattern" : "barrier");
        MPI_Win_allocate(PLACES * 8, 8, info, MPI_COMM_WORLD, &base[s], &win[s]);
        MPI_Info_free(&info);
        for (int i = 0; i < PLACES; i++)
            base[s][i] = 0;
    }
    MPIX_Win_set_num_notify(win[NOTIFIED], MPI_INFO_NULL, 2);
    MPI_Win_lock_all(0, win[NOTIFIED]);
    MPI_Win_fence(0, win[PATTERN]);
    MPI_Win_fence(0, win[BARRIER]);
    MPI_Win_lock_all(0, win[PUT]);
    MPI_Win_lock_all(0, win[PUT_ORDER]);
    MPI_Win_lock_all(0, win[PUT_CALL]);
}

static void free_windows(void)
{
    MPI_Win_unlock_all(win[NOTIFIED]);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win[PATTERN]);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win[BARRIER]);
    MPI_Win_unlock_all(win[PUT]);
    MPI_Win_unlock_all(win[PUT_ORDER]);
    MPI_Win_unlock_all(win[PUT_CALL]);
    for (enum series s = 0; s < SERIES; s++)
        MPI_Win_free(&win[s]);
}

/* Where a rank finds the values of its left (0) or right (1) neighbour. */
static int place(int side, int64_t round) { return 2 * side + (int)(round & 1); }

static void exchange(enum series s, int64_t round)
{
    int64_t value = round * ranks + rank;
    for (int n = 0; n < number; n++) {
        int side = number == 1 ? 0 : 1 - n; /* its left neighbour's right one */
        if (s == NOTIFIED)
            MPIX_Put_notify(&value, 1, MPI_INT64_T, neighbours[n], place(side, round), 1,
                            MPI_INT64_T, side, win[s]);
        else
            MPI_Put(&value, 1, MPI_INT64_T, neighbours[n], place(side, round), 1, MPI_INT64_T,
                    win[s]);
    }
    if (s == NOTIFIED) /* a counter for each: one of them may be a round ahead of the other */
        for (int side = 0; side < number; side++)
            MPIX_Win_notify_threshold(win[s], side, round);
    else
        MPI_Win_fence(0, win[s]);
    for (int n = 0; n < number; n++)
        right &= base[s][place(n, round)] == round * ranks + neighbours[n];
}

/* Nanoseconds per round. */
static double exchanges(enum series s, long rounds)
{
    int64_t first = rounds_before[s] + 1;
    rounds_before[s] += rounds;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    for (int64_t round = first; round <= rounds_before[s]; round++)
        exchange(s, round);
    return 1000 * (now_us() - begin) / (double)rounds;
}

/* Nanoseconds per put. */
static double puts_of(enum series s, long rounds)
{
    int64_t value = ++rounds_before[s];
    MPI_Aint sum = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    for (long i = 0; rank == 0 && i < rounds; i++) {
        if (s == PUT_ORDER)
            MPIX_Win_order(1, win[s]);
        if (s == PUT_CALL)
            sum += MPI_Aint_diff(i, 1);
        MPI_Put(&value, 1, MPI_INT64_T, 1, i % PLACES, 1, MPI_INT64_T, win[s]);
    }
    double took = 1000 * (now_us() - begin) / (double)rounds;
    right &= rank != 0 || s != PUT_CALL || sum == rounds * (rounds - 3) / 2;
    if (rank == 0)
        MPI_Win_flush(1, win[s]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(win[s]);
    for (int i = 0; rank == 1 && i < PLACES; i++)
        right &= base[s][i] == value;
    return took;
}

static void measure(int batches, long rounds)
{
    double *took[SERIES], median[SERIES];
    for (enum series s = 0; s < SERIES; s++)
        if (!(took[s] = malloc(sizeof **took * (size_t)batches)))
            MPI_Abort(MPI_COMM_WORLD, 2);
    for (int b = -1; b < batches; b++) /* the first one warms up */
        for (enum series s = 0; s < SERIES; s++) {
            double ns = s < PUT ? exchanges(s, rounds) : puts_of(s, 10 * rounds);
            if (b >= 0)
                took[s][b] = ns;
        }
    for (enum series s = 0; s < SERIES; s++) {
        median[s] = spread_of(took[s], (size_t)batches).median;
        enum series beside = s < PUT ? NOTIFIED : PUT;
        if (rank == 0)
            printf("{\"bench\":\"%s\",\"host\":\"%s\",\"ranks\":%d,\"ns\":%.1f,\"beside_%s\":%.2f,"
                   "\"verified\":%s}\n",
                   name[s], host_name(), ranks, median[s], name[beside],
                   median[s] / median[beside], right ? "true" : "false");
        free(took[s]);
    }
}

int main(int argc, char **argv)
{
    int batches = 21, everyone = 0, mine, o;
    long rounds = 2000;
    while ((o = getopt(argc, argv, "b:r:")) != -1)
        switch (o) {
        case 'b': batches = (int)positive(optarg, "-b"); break;
        case 'r': rounds = (long)positive(optarg, "-r"); break;
        default:
            fputs("usage: mpiexec -n RANKS fences [-b BATCHES] [-r ROUNDS_PER_BATCH]\n", stderr);
            return 2;
        }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) {
        fputs("fences: run with two ranks or more\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    neighbours[0] = (rank + ranks - 1) % ranks;
    neighbours[1] = (rank + 1) % ranks;
    number = ranks == 2 ? 1 : 2;
    make_windows();
    measure(batches, rounds);
    mine = right;
    MPI_Allreduce(&mine, &everyone, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    free_windows();
    MPI_Finalize();
    return !everyone;
}
#endif
