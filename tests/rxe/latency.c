/*
 * Latencies of 8-byte calls between two ranks, for comparison with perftest (perftest.py --ours).
 * Prints one line of JSON: median microseconds of single calls.
 *
 *   notified_put  half a round trip of notified puts, as ib_write_lat measures
 *   put           a put and a flush: a write, and the flush's reply
 *   get           a get and a flush
 *   lock          a shared lock or its unlock: one atomic each
 *   fetch_and_op  of one sum, with acc_single_intrinsic: one atomic
 *
 *   latency [CALLS [NAME]]    NAME: measure only this one
 */
#include <mpix_rma.h>
#include <mpix_notify.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { SOME = 20 }; /* warm-up calls */

static int me, calls = 500;
static const char *only;
static MPI_Win win;
static int file; /* of both ranks, which are on one machine */
static int64_t value = 1, got;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static int wanted(const char *name)
{
    return !only || !strcmp(only, name);
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
    qsort(times, (size_t)calls, sizeof *times, compare);
    return times[calls / 2];
}

/* Rank 1 sleeps meanwhile, like perftest's server, until rank 0 creates a file. No call needs rank
 * 1's processor, which emulates the device. */
static double measure(void (*what)(int call), double *times)
{
    for (int call = 0; call < SOME && me == 0; call++)
        what(call);
    if (me == 0)
        flock(file, LOCK_EX);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int call = 0; call < calls && me == 0; call++) {
        double begin = now();
        what(call);
        times[call] = now() - begin;
    }
    if (me == 1)
        flock(file, LOCK_SH);
    flock(file, LOCK_UN);
    MPI_Barrier(MPI_COMM_WORLD);
    return me == 0 ? median(times) : 0;
}

static double ping_pong(double *times)
{
    MPI_Count told = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int call = -SOME; call < calls; call++) {
        double begin = now();
        if (me == 0)
            MPIX_Put_notify(&value, 1, MPI_INT64_T, 1, 3, 1, MPI_INT64_T, 0, win);
        MPIX_Win_notify_threshold(win, 0, ++told);
        if (me == 1)
            MPIX_Put_notify(&value, 1, MPI_INT64_T, 0, 3, 1, MPI_INT64_T, 0, win);
        if (call >= 0)
            times[call] = (now() - begin) / 2;
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
    only = argc > 2 ? argv[2] : NULL;
    if (ranks != 2 || calls < 2) {
        fprintf(stderr, "two ranks, please\n");
        return 2;
    }
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "acc_single_intrinsic", "true");
    MPI_Win_allocate(64, 8, info, MPI_COMM_WORLD, &base, &win);
    MPI_Info_free(&info);
    char name[64];
    snprintf(name, sizeof name, "/tmp/mpix-latency.%ld", (long)getpgrp());
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    file = open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int cell = 0; cell < 8; cell++)
        base[cell] = 0;
    MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double *times = malloc((size_t)calls * sizeof *times);
    double locked = wanted("lock") ? measure(lock, times) : 0;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    double notified = wanted("notified_put") ? ping_pong(times) : 0,
           puts = wanted("put") ? measure(put, times) : 0;
    double gets = wanted("get") ? measure(get, times) : 0,
           fetches = wanted("fetch_and_op") ? measure(fetch, times) : 0;
    MPI_Win_unlock_all(win);
    int right = me == 0 || ((base[1] == 1 || !wanted("put")) &&
                            (base[2] == calls + SOME || !wanted("fetch_and_op")));
    if (!right)
        fprintf(stderr, "wrong numbers: %ld, %ld\n", (long)base[1], (long)base[2]);
    if (me == 0)
        printf("{\"notified_put\": %.2f, \"put\": %.2f, \"get\": %.2f, \"lock\": %.2f, "
               "\"fetch_and_op\": %.2f}\n",
               notified, puts, gets, locked, fetches);
    unlink(name);
    MPI_Win_free(&win);
    MPI_Finalize();
    return !right;
}
