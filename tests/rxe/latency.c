/*
 * Latencies and rates of calls between two ranks, for comparison with perftest (perftest.py
 * --ours). Prints one line of JSON: median microseconds of single calls of 8 bytes, and two rates.
 *
 *   notified_put  half a round trip of notified puts, as ib_write_lat measures
 *   put           a put and a flush: a write, and the flush's reply
 *   get           a get and a flush
 *   lock          half of a shared lock and its unlock: one atomic each
 *   fetch_and_op  of one sum, with acc_single_intrinsic: one atomic
 *   rate          puts of 8 bytes per microsecond, flushed together
 *   bandwidth     MiB per second of puts of 1 MiB, flushed together
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
enum { CELLS = 8, LONG = 1 << 20, SHORT_PUTS = 3000, LONG_PUTS = 60 };

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

static void lock_and_unlock(int call)
{
    (void)call;
    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
    MPI_Win_flush(1, win); /* a lock may be taken only when it is needed */
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

/* Rank 1 sleeps between the two, like perftest's server, until rank 0 unlocks a file. No call needs
 * rank 1's processor, which emulates the device. */
static void begin(void)
{
    if (me == 0)
        flock(file, LOCK_EX);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void end(void)
{
    if (me == 1)
        flock(file, LOCK_SH);
    flock(file, LOCK_UN);
    MPI_Barrier(MPI_COMM_WORLD);
}

static double measure(void (*what)(int call), double *times)
{
    for (int call = 0; call < SOME && me == 0; call++)
        what(call);
    begin();
    for (int call = 0; call < calls && me == 0; call++) {
        double start = now();
        what(call);
        times[call] = now() - start;
    }
    end();
    return me == 0 ? median(times) : 0;
}

/* Seconds for that many puts of as many bytes, behind the cells of the window, and a flush. */
static double stream(int puts, int bytes)
{
    double took = 0;
    char *data = calloc(1, (size_t)bytes);
    begin();
    for (int round = 0; round < 2 && me == 0; round++) { /* the first one registers memory */
        double start = now();
        for (int i = 0; i < puts; i++)
            MPI_Put(data, bytes, MPI_BYTE, 1, CELLS, bytes, MPI_BYTE, win);
        MPI_Win_flush(1, win);
        took = (now() - start) * 1e-6;
    }
    end();
    free(data);
    return took;
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
        calls = atoi(argv[1]);
    only = argc > 2 ? argv[2] : NULL;
    if (ranks != 2 || calls < 1) {
        fprintf(stderr, "two ranks, please\n");
        return 2;
    }
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "acc_single_intrinsic", "true");
    MPI_Win_allocate(8 * CELLS + LONG, 8, info, MPI_COMM_WORLD, &base, &win);
    MPI_Info_free(&info);
    char name[64];
    snprintf(name, sizeof name, "/tmp/mpix-latency.%ld", (long)getpgrp());
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    file = open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int cell = 0; cell < CELLS; cell++)
        base[cell] = 0;
    MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double *times = malloc((size_t)calls * sizeof *times);
    double locked = wanted("lock") ? measure(lock_and_unlock, times) / 2 : 0;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    double notified = wanted("notified_put") ? ping_pong(times) : 0,
           puts = wanted("put") ? measure(put, times) : 0;
    double gets = wanted("get") ? measure(get, times) : 0,
           fetches = wanted("fetch_and_op") ? measure(fetch, times) : 0;
    double rate = 0, bandwidth = 0; /* infinite at rank 1, which does not print */
    if (wanted("rate"))
        rate = SHORT_PUTS / (stream(SHORT_PUTS, sizeof value) * 1e6);
    if (wanted("bandwidth"))
        bandwidth = LONG_PUTS / stream(LONG_PUTS, LONG);
    MPI_Win_unlock_all(win);
    int right = me == 0 || ((base[1] == 1 || !wanted("put")) &&
                            (base[2] == calls + SOME || !wanted("fetch_and_op")));
    if (!right)
        fprintf(stderr, "wrong numbers: %ld, %ld\n", (long)base[1], (long)base[2]);
    if (me == 0)
        printf("{\"notified_put\": %.2f, \"put\": %.2f, \"get\": %.2f, \"lock\": %.2f, "
               "\"fetch_and_op\": %.2f, \"rate\": %.4f, \"bandwidth\": %.1f}\n",
               notified, puts, gets, locked, fetches, rate, bandwidth);
    unlink(name);
    MPI_Win_free(&win);
    MPI_Finalize();
    return !right;
}
