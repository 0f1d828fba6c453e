/*
 * Message rate: each message has its own location and is notified alone or with its burst. The
 * receiver checks each one, then lets the sender continue.
 */
#include "notify.h"

#include "../common/timing.h"

#include <string.h>

enum { BURST = 64 };

static int64_t number; /* number of the last message */

/* As many as memory permits. */
static int burst_of(size_t bytes)
{
    size_t fit = LARGEST / bytes;
    return fit < BURST ? (int)fit : BURST;
}

static void go_on(void)
{
    if (rank == 0)
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

static void look(const char *from, size_t bytes, int burst)
{
    for (int i = 0; i < burst; i++)
        check(from + (size_t)i * bytes, bytes, number + i + 1);
}

static void fill(size_t bytes, int burst)
{
    for (int i = 0; i < burst; i++)
        mark(local + (size_t)i * bytes, bytes, number + i + 1);
}

static void send_burst(size_t bytes, int burst)
{
    MPI_Request r[BURST];
    for (int i = 0; i < burst; i++) {
        char *at = local + (size_t)i * bytes;
        if (rank == 0)
            MPI_Isend(at, (int)bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &r[i]);
        else
            MPI_Irecv(at, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &r[i]);
    }
    MPI_Waitall(burst, r, MPI_STATUSES_IGNORE);
    if (rank == 1)
        look(local, bytes, burst);
}

/* One message announces all: weaker than the other ways. */
static void put_burst(size_t bytes, int burst)
{
    if (rank == 0) {
        for (int i = 0; i < burst; i++)
            MPI_Put(local + (size_t)i * bytes, (int)bytes, MPI_BYTE, 1,
                    (MPI_Aint)((size_t)i * bytes), (int)bytes, MPI_BYTE, win);
        MPI_Win_flush(1, win);
        MPI_Send(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        look(base, bytes, burst);
    }
}

#ifndef PLAIN_HOST
static void notify_burst(size_t bytes, int burst)
{
    if (rank == 0) {
        for (int i = 0; i < burst; i++)
            MPIX_Put_notify(local + (size_t)i * bytes, (int)bytes, MPI_BYTE, 1,
                            (MPI_Aint)((size_t)i * bytes), (int)bytes, MPI_BYTE, 0, win);
        MPI_Win_flush_local(1, win);
    } else {
        for (int i = 0; i < burst; i++) {
            MPIX_Win_notify_threshold(win, 0, ++told[0]);
            check(base + (size_t)i * bytes, bytes, number + i + 1);
        }
    }
}

/* One wait for all, like the message of put_burst. */
static void notify_together(size_t bytes, int burst)
{
    if (rank == 0) {
        notify_burst(bytes, burst);
    } else {
        MPIX_Win_notify_threshold(win, 0, told[0] += burst);
        look(base, bytes, burst);
    }
}

static void tagged_burst(size_t bytes, int burst)
{
    if (rank == 0) {
        for (int i = 0; i < burst; i++)
            MPIX_Put_tagged(local + (size_t)i * bytes, (int)bytes, MPI_BYTE, 1,
                            (MPI_Aint)((size_t)i * bytes), (int)bytes, MPI_BYTE, TAG, win);
        MPI_Win_flush_local(1, win);
    } else {
        for (int i = 0; i < burst; i++) {
            await_tagged();
            check(base + (size_t)i * bytes, bytes, number + i + 1);
        }
    }
}
#endif

static void (*burst_now)(size_t bytes, int burst);

static double bursts(size_t bytes, long rounds)
{
    int burst = burst_of(bytes);
    long times = (rounds + burst - 1) / burst;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    for (long i = 0; i < times; i++) {
        if (rank == 0)
            fill(bytes, burst);
        burst_now(bytes, burst);
        number += burst;
        go_on();
    }
    return (now_us() - begin) / (double)(times * burst);
}

void measure_rates(size_t bytes, const struct timing *timing)
{
    static const struct {
        const char *name;
        void (*burst)(size_t bytes, int burst);
    } ways[] = {
        {"send_recv", send_burst},
        {"put_flush_send", put_burst},
#ifndef PLAIN_HOST
        {"put_notify_threshold", notify_burst},
        {"put_notify_together", notify_together},
        {"put_tagged", tagged_burst},
#endif
    };
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        burst_now = ways[k].burst;
        measure("rate", ways[k].name, bytes, true, timing, bursts);
    }
}
