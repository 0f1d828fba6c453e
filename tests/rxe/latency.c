/*
 * Latencies of single calls of 8 bytes between two ranks, for comparison with what perftest measures of verbs by themselves (perftest.py --ours). Prints one
 * line of JSON: medians of batches, in microseconds.
 *   notified_put  half a round trip of notified puts, which is what ib_write_lat measures
 *   put           a put, and a flush: a write, and what comes back
 *   get           a get, and a flush
 *   lock          a shared lock, or its unlock: an atomic each
 *   fetch_and_op
 */
#include <mpix_rma.h>
#include <mpix_notify.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 11 };

static int me, calls = 40;
static MPI_Win win;
static int64_t value = 1, got;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static void put(int call)
{
    (void)call;
    MPI_Put(&value, 1, MPI_INT64_T, 1, 1, 1, MPI_INT64_T, win);
    MPI_Win_flush(1, win);
}

static void get(int call)
{
    (void)call;
    MPI_Get(&got, 1, MPI_INT64_T, 1, 1, 1, MPI_INT64_T, win);
    MPI_Win_flush(1, win);
}

static void fetch(int call)
{
    (void)call;
    MPI_Fetch_and_op(&value, &got, MPI_INT64_T, 1, 2, MPI_SUM, win);
    MPI_Win_flush(1, win);
}

static void lock(int call)
{
    if (call % 2 == 0)
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win), MPI_Win_flush(1, win);
    else
        MPI_Win_unlock(1, win);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times)
{
    qsort(times, BATCHES, sizeof *times, compare);
    return times[BATCHES / 2];
}

/* Rank 1 is in a barrier meanwhile, which makes progress for what needs it. */
static double measure(void (*what)(int call))
{
    double times[BATCHES];
    for (int batch = -1; batch < BATCHES && me == 0; batch++) {
        double begin = now();
        for (int call = 0; call < calls; call++)
            what(call);
        if (batch >= 0)
            times[batch] = (now() - begin) / calls;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return me == 0 ? median(times) : 0;
}

static double ping_pong(void)
{
    double times[BATCHES];
    MPI_Count told = 0;
    for (int batch = -1; batch < BATCHES; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now();
        for (int call = 0; call < calls; call++) {
            if (me == 0)
                MPIX_Put_notify(&value, 1, MPI_INT64_T, 1, 3, 1, MPI_INT64_T, 0, win);
            MPIX_Win_notify_threshold(win, 0, ++told);
            if (me == 1)
                MPIX_Put_notify(&value, 1, MPI_INT64_T, 0, 3, 1, MPI_INT64_T, 0, win);
        }
        if (batch >= 0)
            times[batch] = (now() - begin) / calls / 2;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return median(times);
}

int main(int argc, char **argv)
{
    int ranks;
    int64_t *base;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1)
        calls = 2 * (atoi(argv[1]) / 2);
    if (ranks != 2 || calls < 2) {
        fprintf(stderr, "two ranks, please, and at least two calls a batch\n");
        return 2;
    }
    MPI_Win_allocate(64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    for (int cell = 0; cell < 8; cell++)
        base[cell] = 0;
    MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 1);
    double locked = measure(lock);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    double notified = ping_pong(), puts = measure(put), gets = measure(get), fetches = measure(fetch);
    MPI_Win_unlock_all(win);
    int right = me == 0 || (base[1] == 1 && base[2] == (int64_t)calls * (BATCHES + 1));
    if (!right)
        fprintf(stderr, "wrong numbers: %ld, %ld\n", (long)base[1], (long)base[2]);
    if (me == 0)
        printf("{\"notified_put\": %.2f, \"put\": %.2f, \"get\": %.2f, \"lock\": %.2f, \"fetch_and_op\": %.2f}\n", notified, puts, gets, locked, fetches);
    MPI_Win_free(&win);
    MPI_Finalize();
    return !right;
}
