/*
 * What a continuation costs. Two ranks; rank 0 measures. Prints JSON lines; continuations.py makes
 * the tables.
 *
 *   epoch     fence with a put, closed by MPIX_Win_ifence: MPI_Wait for it, or a continuation and
 *             MPI_Wait for the continuation request
 *   pending   N epochs of rank 0 are pending behind a lock of rank 1, each with a request: how long
 *             all take from the release, per epoch, by continuations, by MPI_Waitall, and by a list
 *             that is polled with MPI_Testsome
 *   behind    the same N epochs stay pending; how long a fence with a put takes in another window,
 *             if all have continuations, and if all are in a list that MPI_Testsome polls
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
    fputs("continuations: the plain host has none\n", stderr);
    return 2;
}
#else

static int rank;
static MPI_Win win, fenced; /* for locks, and for fences */
static int64_t *base, *places;
static MPI_Request all;
static bool right = true;
static long ran;

static int count_run(int error, void *data)
{
    (void)data;
    right &= error == MPI_SUCCESS;
    ran++;
    return MPI_SUCCESS;
}

/* Opens an epoch that puts a number into the other rank's window, and closes it. */
static void close_epoch(int64_t *number, MPI_Request *request)
{
    MPI_Put(number, 1, MPI_INT64_T, 1 - rank, *number % 2, 1, MPI_INT64_T, fenced);
    MPIX_Win_ifence(0, fenced, request);
}

/* Waits for an epoch by its continuation. */
static void continue_epoch(MPI_Request *request)
{
    long before = ran;
    MPIX_Continue(request, count_run, NULL, MPIX_CONT_REQUESTS_FREE, MPI_STATUS_IGNORE, all);
    MPI_Wait(&all, MPI_STATUS_IGNORE);
    MPI_Start(&all);
    right &= ran == before + 1;
}

/* One epoch. The other rank checks the number; it may be one epoch behind, so there are two
 * places. */
static void epoch(int64_t number, bool continues)
{
    MPI_Request request;
    close_epoch(&number, &request);
    if (continues)
        continue_epoch(&request);
    else
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    right &= places[number % 2] == number;
}

static void measure_epochs(int batches, long rounds)
{
    double *waits = malloc(sizeof *waits * (size_t)batches);
    double *continues = malloc(sizeof *continues * (size_t)batches);
    int64_t number = 0;
    if (!waits || !continues)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Win_fence(0, fenced);
    for (int b = -1; b < batches; b++) /* the first one warms up */
        for (int with = 0; with < 2; with++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double begin = now_us();
            for (long i = 0; i < rounds; i++)
                epoch(++number, with);
            double took = (now_us() - begin) / (double)rounds;
            if (b >= 0)
                (with ? continues : waits)[b] = took;
        }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, fenced);
    if (rank == 0)
        printf("{\"bench\":\"epoch\",\"host\":\"%s\",\"wait_us\":%.6f,\"continue_us\":%.6f,"
               "\"verified\":%s}\n",
               host_name(), spread_of(waits, (size_t)batches).median,
               spread_of(continues, (size_t)batches).median, right ? "true" : "false");
    free(waits);
    free(continues);
}

enum way { CONTINUATIONS, WAITALL, TESTSOME, WAYS };
static const char *const way_name[WAYS] = {"continuations", "waitall", "testsome"};

/* Completes all requests. `indices` is memory for as many. */
static void complete(enum way way, long count, MPI_Request *requests, int *indices)
{
    if (way == CONTINUATIONS)
        MPI_Wait(&all, MPI_STATUS_IGNORE);
    if (way == WAITALL)
        MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE);
    if (way == TESTSOME)
        for (long left = count; left > 0;) {
            int done;
            MPI_Testsome((int)count, requests, &done, indices, MPI_STATUSES_IGNORE);
            left -= done;
        }
}

/* Rank 1 holds its lock until rank 0's epochs are closed, and for the time of `meanwhile`. */
static void hold_lock(long count, void (*meanwhile)(long), long rounds)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
    int64_t before = *base;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD); /* rank 0's epochs are closed */
    if (meanwhile)
        meanwhile(rounds);
    MPI_Win_unlock(1, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
    right &= *base == before + count;
    MPI_Win_unlock(1, win);
}

/* Opens and closes epochs that rank 1's lock keeps pending. */
static void close_locked_epochs(long count, MPI_Request *requests)
{
    static const int64_t one = 1;
    MPI_Request opening;
    MPI_Barrier(MPI_COMM_WORLD);
    for (long i = 0; i < count; i++) {
        MPIX_Win_ilock(MPI_LOCK_SHARED, 1, 0, win, &opening);
        MPI_Wait(&opening, MPI_STATUS_IGNORE);
        MPI_Accumulate(&one, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, MPI_SUM, win);
        MPIX_Win_iunlock(1, win, requests + i);
    }
}

static void continue_all(long count, MPI_Request *requests, MPI_Request with)
{
    for (long i = 0; i < count; i++)
        MPIX_Continue(requests + i, count_run, NULL, MPIX_CONT_REQUESTS_FREE, MPI_STATUS_IGNORE,
                      with);
}

/* One round: microseconds per epoch to register the continuations, and from the release on. */
static void pending_round(enum way way, long count, MPI_Request *requests, int *indices,
                          double *registering, double *completing)
{
    if (rank == 1) {
        hold_lock(count, NULL, 0);
        return;
    }
    close_locked_epochs(count, requests);
    long before = ran;
    double begin = now_us();
    if (way == CONTINUATIONS)
        continue_all(count, requests, all);
    *registering = (now_us() - begin) / (double)count;
    MPI_Barrier(MPI_COMM_WORLD);
    begin = now_us();
    complete(way, count, requests, indices);
    *completing = (now_us() - begin) / (double)count;
    if (way == CONTINUATIONS) {
        right &= ran == before + count;
        MPI_Start(&all);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void measure_pending(enum way way, long count, int rounds)
{
    double *registering = malloc(sizeof *registering * (size_t)rounds);
    double *completing = malloc(sizeof *completing * (size_t)rounds);
    MPI_Request *requests = malloc(sizeof *requests * (size_t)count);
    int *indices = malloc(sizeof *indices * (size_t)count);
    if (!registering || !completing || !requests || !indices)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int r = -1; r < rounds; r++)
        pending_round(way, count, requests, indices, registering + (r < 0 ? 0 : r),
                      completing + (r < 0 ? 0 : r));
    if (rank == 0)
        printf("{\"bench\":\"pending\",\"host\":\"%s\",\"way\":\"%s\",\"pending\":%ld,"
               "\"register_us\":%.6f,\"complete_us\":%.6f,\"verified\":%s}\n",
               host_name(), way_name[way], count, spread_of(registering, (size_t)rounds).median,
               spread_of(completing, (size_t)rounds).median, right ? "true" : "false");
    fflush(stdout);
    free(registering);
    free(completing);
    free(requests);
    free(indices);
}

static void wait_for_fences(long rounds)
{
    for (long i = 0; i < rounds; i++)
        epoch(i, false);
    MPI_Barrier(MPI_COMM_WORLD); /* rank 0 has seen the last fence */
}

/* Rank 0's fences with continuations, or in a list behind `count` pending requests. */
static double fence_behind(enum way way, long count, MPI_Request *requests, int *indices,
                           int64_t number)
{
    double begin = now_us();
    if (way == CONTINUATIONS) {
        epoch(number, true);
        return now_us() - begin;
    }
    int done = 0;
    close_epoch(&number, requests + count);
    while (done == 0)
        MPI_Testsome((int)count + 1, requests, &done, indices, MPI_STATUSES_IGNORE);
    begin = now_us() - begin;
    right &= done == 1 && indices[0] == count && places[number % 2] == number;
    return begin;
}

static void measure_behind(enum way way, long count, long rounds)
{
    MPI_Request *requests = malloc(sizeof *requests * (size_t)(count + 1)), held;
    int *indices = malloc(sizeof *indices * (size_t)(count + 1));
    double *took = malloc(sizeof *took * (size_t)rounds);
    if (!requests || !indices || !took)
        MPI_Abort(MPI_COMM_WORLD, 2);
    places[0] = places[1] = -1;
    MPI_Win_fence(0, fenced);
    if (rank == 1) {
        hold_lock(count, wait_for_fences, rounds);
    } else {
        MPIX_Continue_init(0, 0, MPI_INFO_NULL, &held);
        MPI_Start(&held);
        close_locked_epochs(count, requests);
        if (way == CONTINUATIONS)
            continue_all(count, requests, held);
        MPI_Barrier(MPI_COMM_WORLD);
        for (long i = 0; i < rounds; i++)
            took[i] = fence_behind(way, count, requests, indices, i);
        MPI_Barrier(MPI_COMM_WORLD);
        if (way != CONTINUATIONS)
            MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE);
        MPI_Wait(&held, MPI_STATUS_IGNORE);
        MPI_Request_free(&held);
        MPI_Barrier(MPI_COMM_WORLD);
        printf("{\"bench\":\"behind\",\"host\":\"%s\",\"way\":\"%s\",\"pending\":%ld,"
               "\"epoch_us\":%.6f,\"verified\":%s}\n",
               host_name(), way_name[way], count, spread_of(took, (size_t)rounds).median,
               right ? "true" : "false");
        fflush(stdout);
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, fenced);
    free(took);
    free(requests);
    free(indices);
}

int main(int argc, char **argv)
{
    int batches = 41, ranks, o;
    long epochs = 2000, total = 200000, most = 100000;
    while ((o = getopt(argc, argv, "b:e:t:n:")) != -1)
        switch (o) {
            case 'b': batches = (int)positive(optarg, "-b"); break;
            case 'e': epochs = (long)positive(optarg, "-e"); break;
            case 't': total = (long)positive(optarg, "-t"); break;
            case 'n': most = (long)positive(optarg, "-n"); break;
            default:
                fputs("usage: mpiexec -n 2 continuations [-b BATCHES] [-e EPOCHS_PER_BATCH]\n"
                      "                                  [-n MOST_PENDING] [-t TOTAL]\n"
                      "TOTAL: about as many epochs are measured with each number of pending ones\n",
                      stderr);
                return 2;
        }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) {
        fputs("continuations: needs two ranks\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Win_allocate(2 * sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_allocate(2 * sizeof *places, sizeof *places, MPI_INFO_NULL, MPI_COMM_WORLD, &places,
                     &fenced);
    base[0] = places[0] = places[1] = 0;
    MPIX_Continue_init(0, 0, MPI_INFO_NULL, &all);
    MPI_Start(&all);
    measure_epochs(batches, epochs);
    for (long count = 1; count <= most; count *= 10)
        for (enum way way = 0; way < WAYS; way++) {
            long rounds = total / count;
            measure_pending(way, count, (int)(rounds < 3 ? 3 : rounds > 1000 ? 1000 : rounds));
        }
    for (long count = 1; count <= most; count *= 10)
        for (enum way way = 0; way < WAYS; way++) {
            long rounds = total / count;
            if (way != WAITALL) /* it does not end before all have */
                measure_behind(way, count, rounds < 20 ? 20 : rounds > 2000 ? 2000 : rounds);
        }
    MPI_Wait(&all, MPI_STATUS_IGNORE);
    MPI_Request_free(&all);
    MPI_Win_free(&fenced);
    MPI_Win_free(&win);
    if (!right)
        fprintf(stderr, "continuations: rank %d found wrong data\n", rank);
    MPI_Finalize();
    return right ? 0 : 1;
}
#endif
