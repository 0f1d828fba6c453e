/*
 * What one call for many windows costs, beside a flush of each. Two ranks. Prints JSON lines, in
 * microseconds per 100 windows:
 *
 *   idle       nothing to flush
 *   put        a put of 8 bytes in each window, right before the flushes
 *   settled    the same, and a pause in which the puts reach their target
 *   put_flush  puts and flushes: each window's flush right behind its put, so that each waits for
 *              a round trip, or all puts and then one flush; the time of the puts counts
 *   flush      the same, but only the time of the flushes counts
 *
 * and for each the median of the turns: a flush of each window, MPIX_Win_flush_wins, and
 * MPIX_Win_iflush_wins with its wait. Rank 1 waits for a message meanwhile.
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
    fputs("flush_wins: the plain host has no flush of many windows\n", stderr);
    return 2;
}
#else

enum { MOST = 1000 };
enum work { IDLE, PUT, SETTLED, PUT_FLUSH, FLUSH, WORKS };
static const char *const work_name[WORKS] = {"idle", "put", "settled", "put_flush",
                                             "flush"};
enum way { EACH, TOGETHER, REQUEST, WAYS };

static int rank, windows = 100, pause_us = 200;
static bool created, right = true;
static MPI_Win win[MOST];
static int64_t *base[MOST], value;
/* Of two calls that read the clock. */
static double clock_us;

static void flush(enum way way)
{
    MPI_Request request;
    switch (way) {
    case EACH:
        for (int i = 0; i < windows; i++)
            MPI_Win_flush(1, win[i]);
        break;
    case TOGETHER: MPIX_Win_flush_wins(windows, win, 1); break;
    default:
        MPIX_Win_iflush_wins(windows, win, 1, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Rank 0: one turn. Says afterwards which value rank 1 must find. */
static double turn(enum work work, enum way way)
{
    bool alternate = work >= PUT_FLUSH && way == EACH;
    double in_flushes = 0;
    if (work != IDLE)
        value++;
    double begin = now_us();
    for (int i = 0; work != IDLE && i < windows; i++) {
        MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win[i]);
        if (!alternate)
            continue;
        double from = work == FLUSH ? now_us() + clock_us : 0;
        MPI_Win_flush(1, win[i]);
        in_flushes += work == FLUSH ? now_us() - from : 0;
    }
    if (work == SETTLED)
        work_for_us(pause_us);
    if (work != PUT_FLUSH)
        begin = now_us();
    if (!alternate)
        flush(way);
    double took = work == FLUSH && alternate ? in_flushes : now_us() - begin;
    MPI_Send(&value, 1, MPI_INT64_T, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(NULL, 0, MPI_INT64_T, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return took;
}

/* Rank 1: after a message, all windows have the value of the message. */
static void check(void)
{
    int64_t expected;
    MPI_Recv(&expected, 1, MPI_INT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < windows; i++) {
        MPI_Win_sync(win[i]);
        right &= *(volatile int64_t *)base[i] == expected;
    }
    MPI_Send(NULL, 0, MPI_INT64_T, 0, 1, MPI_COMM_WORLD);
}

static void time_clock(void)
{
    enum { READINGS = 1001 };
    double took[READINGS];
    for (int i = 0; i < READINGS; i++) {
        double begin = now_us();
        took[i] = now_us() - begin;
    }
    clock_us = spread_of(took, READINGS).median;
}

static void measure(enum work work, int turns)
{
    double *took[WAYS], median[WAYS];
    for (enum way way = EACH; way < WAYS; way++)
        if (!(took[way] = malloc(sizeof **took * (size_t)turns)))
            MPI_Abort(MPI_COMM_WORLD, 2);
    for (int t = -2; t < turns; t++) /* the first ones warm up */
        for (enum way way = EACH; way < WAYS; way++) {
            double time = 0;
            if (rank == 0)
                time = turn(work, way);
            else
                check();
            if (t >= 0)
                took[way][t] = time;
        }
    for (enum way way = EACH; way < WAYS; way++) {
        median[way] = spread_of(took[way], (size_t)turns).median;
        free(took[way]);
    }
    if (rank == 0)
        printf("{\"bench\":\"%s\",\"host\":\"%s\",\"windows\":%d,\"each_us\":%.2f,"
               "\"together_us\":%.2f,\"request_us\":%.2f,\"ratio\":%.1f}\n",
               work_name[work], host_name(), windows, median[EACH], median[TOGETHER],
               median[REQUEST], median[EACH] / median[TOGETHER]);
    fflush(stdout);
}

static void make(int i)
{
    if (created) {
        base[i] = calloc(1, sizeof **base);
        MPI_Win_create(base[i], 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win[i]);
    } else {
        MPI_Win_allocate(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base[i], &win[i]);
        *base[i] = 0;
    }
    MPI_Win_lock_all(0, win[i]);
}

int main(int argc, char **argv)
{
    int turns = 200, ranks, o, mine, everyone = 0;
    while ((o = getopt(argc, argv, "cp:t:w:")) != -1)
        switch (o) {
        case 'c': created = true; break;
        case 'p': pause_us = (int)positive(optarg, "-p"); break;
        case 't': turns = (int)positive(optarg, "-t"); break;
        case 'w': windows = (int)positive(optarg, "-w"); break;
        default:
            fputs("usage: mpiexec -n 2 flush_wins [-c (created windows)] [-p PAUSE_US] "
                  "[-t TURNS] [-w WINDOWS]\n",
                  stderr);
            return 2;
        }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || windows > MOST) {
        fputs("flush_wins: run with two ranks and at most 1000 windows\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 0; i < windows; i++)
        make(i);
    time_clock();
    MPI_Barrier(MPI_COMM_WORLD);
    for (enum work work = IDLE; work < WORKS; work++)
        measure(work, turns);
    mine = right;
    MPI_Allreduce(&mine, &everyone, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (int i = 0; i < windows; i++) {
        MPI_Win_unlock_all(win[i]);
        MPI_Win_free(&win[i]);
        if (created)
            free(base[i]);
    }
    if (rank == 0)
        printf("{\"bench\":\"verified\",\"right\":%s}\n", everyone ? "true" : "false");
    MPI_Finalize();
    return !everyone;
}
#endif
