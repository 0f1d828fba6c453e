#include "links.h"

#include "notify.h"

enum { FULL = 100, FREE = 100 + PLACES }; /* tags; counters from 1 on */

size_t apart(size_t bytes)
{
    return bytes > 128 ? bytes : 128;
}

static MPI_Aint displacement(int place, size_t bytes)
{
    return (MPI_Aint)((size_t)place * apart(bytes));
}

static char *place_here(int place, size_t bytes)
{
    return base + displacement(place, bytes);
}

/* ---- Messages. A slot is free when its message was received. ---- */

static MPI_Request sent[PLACES];

static void send_pass(int to, int place, const void *data, size_t bytes)
{
    MPI_Isend(data, (int)bytes, MPI_BYTE, to, FULL + place, MPI_COMM_WORLD, &sent[place]);
}

static const void *send_take(int from, int place, size_t bytes)
{
    char *at = place_here(place, bytes);
    MPI_Recv(at, (int)bytes, MPI_BYTE, from, FULL + place, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return at;
}

static void send_clear(int from, int place)
{
    (void)from, (void)place;
}

static void send_await_clear(int to, int place)
{
    (void)to;
    MPI_Wait(&sent[place], MPI_STATUS_IGNORE);
}

/* ---- Puts that are flushed, and messages without data. ---- */

static void flush_pass(int to, int place, const void *data, size_t bytes)
{
    MPI_Put(data, (int)bytes, MPI_BYTE, to, displacement(place, bytes), (int)bytes, MPI_BYTE, win);
    MPI_Win_flush(to, win);
    MPI_Send(NULL, 0, MPI_BYTE, to, FULL + place, MPI_COMM_WORLD);
}

static const void *flush_take(int from, int place, size_t bytes)
{
    MPI_Recv(NULL, 0, MPI_BYTE, from, FULL + place, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return place_here(place, bytes);
}

static void flush_clear(int from, int place)
{
    MPI_Send(NULL, 0, MPI_BYTE, from, FREE + place, MPI_COMM_WORLD);
}

static void flush_await_clear(int to, int place)
{
    MPI_Recv(NULL, 0, MPI_BYTE, to, FREE + place, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* ---- Notified puts, and notifications alone. ---- */
#ifndef PLAIN_HOST
static int full(int place) { return 1 + place; }
static int freed(int place) { return 1 + PLACES + place; }

static void notify_pass(int to, int place, const void *data, size_t bytes)
{
    MPIX_Put_notify(data, (int)bytes, MPI_BYTE, to, displacement(place, bytes), (int)bytes,
                    MPI_BYTE, full(place), win);
}

static const void *notify_take(int from, int place, size_t bytes)
{
    (void)from;
    MPIX_Win_notify_threshold(win, full(place), ++told[full(place)]);
    return place_here(place, bytes);
}

static void notify_clear(int from, int place)
{
    MPIX_Notify(from, freed(place), win);
}

static void notify_await_clear(int to, int place)
{
    (void)to;
    MPIX_Win_notify_threshold(win, freed(place), ++told[freed(place)]);
}
#endif

const struct link_way link_ways[] = {
    {"send_recv", send_pass, send_take, send_clear, send_await_clear},
    {"put_flush_send", flush_pass, flush_take, flush_clear, flush_await_clear},
#ifndef PLAIN_HOST
    {"put_notify_threshold", notify_pass, notify_take, notify_clear, notify_await_clear},
#endif
};
const int link_way_count = sizeof link_ways / sizeof link_ways[0];
