#include "exchange.h"

#include "graph.h"
#include "tasks.h"

#include <mpix_task.h>

#include <stdlib.h>
#include <string.h>

static MPI_Win win = MPI_WIN_NULL;
static double *memory;
static MPI_Count *before; /* what the counters had at the beginning of the run */
static int counters;
static MPI_Request all; /* continuations */

static bool is_by_continuations(void)
{
    return setup.version == TWO_SIDED_CONT || setup.version == NOTIFIED_CONT;
}

static bool is_blocking(void)
{
    return setup.version == SENTINEL || setup.version == BLOCKING;
}

bool exchange_is_notified(void)
{
    return setup.version == NOTIFIED || setup.version == NOTIFIED_CONT;
}

double *exchange_open(size_t count, int wanted)
{
    counters = wanted;
    before = calloc((size_t)counters + 1, sizeof *before);
    require(before, "memory for counters");
    if (exchange_is_notified()) {
        MPI_Win_allocate((MPI_Aint)(count * sizeof *memory), sizeof *memory, MPI_INFO_NULL,
                         MPI_COMM_WORLD, &memory, &win);
        MPIX_Win_set_num_notify(win, MPI_INFO_NULL, counters);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    } else {
        memory = aligned_alloc(4096, (count * sizeof *memory + 4095) / 4096 * 4096);
        require(memory, "memory for the data");
    }
    memset(memory, 0, count * sizeof *memory);
    if (is_by_continuations()) {
        MPIX_Continue_init(0, 0, MPI_INFO_NULL, &all);
        MPI_Start(&all);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return memory;
}

void exchange_reset(void)
{
    MPI_Barrier(MPI_COMM_WORLD); /* all notifications have arrived */
    for (int i = 0; i < counters && exchange_is_notified(); i++)
        MPIX_Win_get_notify_value(win, i, before + i);
    MPI_Barrier(MPI_COMM_WORLD);
}

void exchange_close(void)
{
    free(before);
    if (is_by_continuations())
        MPI_Request_free(&all);
    if (exchange_is_notified()) {
        MPI_Win_unlock_all(win);
        MPI_Win_free(&win);
    } else {
        free(memory);
    }
}

static int release(int error, void *held)
{
    require(error == MPI_SUCCESS, "a request has failed");
    graph_release(held);
    return MPI_SUCCESS;
}

/* The current task completes only when the request does. */
static void complete_with(MPI_Request *request)
{
    if (is_by_continuations())
        MPIX_Continue(request, release, graph_hold(), MPIX_CONT_REQUESTS_FREE, MPI_STATUS_IGNORE,
                      all);
    else
        MPIX_Task_iwait(request, MPI_STATUS_IGNORE);
}

/* The same for a message, which may be complete already. */
static void complete_with_message(MPI_Request *request)
{
    int done;
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (!done)
        complete_with(request);
}

void exchange_send(const struct link *link, const double *data)
{
    MPI_Request request;
    int count = (int)link->count;
    if (exchange_is_notified()) {
        MPIX_Put_notify(data, count, MPI_DOUBLE, link->peer, (MPI_Aint)link->place, count,
                        MPI_DOUBLE, link->number, win);
    } else if (is_blocking()) {
        MPI_Send(data, count, MPI_DOUBLE, link->peer, link->number, MPI_COMM_WORLD);
    } else {
        MPI_Isend(data, count, MPI_DOUBLE, link->peer, link->number, MPI_COMM_WORLD, &request);
        complete_with_message(&request);
    }
}

void exchange_flush(const struct link *link)
{
    if (exchange_is_notified())
        MPI_Win_flush_local(link->peer, win);
}

/* The same for a counter. If it has risen already, this needs no request. */
static void await_counter(int counter, long value)
{
    MPI_Request request;
    int risen;
    MPIX_Win_notify_test_threshold(win, counter, before[counter] + value, &risen);
    if (risen)
        return;
    MPIX_Win_notify_ithreshold(win, counter, before[counter] + value, &request);
    complete_with(&request);
}

void exchange_receive(const struct link *link, double *place, long block)
{
    MPI_Request request;
    int count = (int)link->count;
    if (exchange_is_notified()) {
        await_counter(link->number, block);
    } else if (is_blocking()) {
        MPI_Recv(place, count, MPI_DOUBLE, link->peer, link->number, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    } else {
        MPI_Irecv(place, count, MPI_DOUBLE, link->peer, link->number, MPI_COMM_WORLD, &request);
        complete_with_message(&request);
    }
}

void exchange_acknowledge(const struct link *link)
{
    if (exchange_is_notified())
        MPIX_Notify(link->peer, link->acknowledged, win);
}

void exchange_await_acknowledged(const struct link *link, long block)
{
    if (exchange_is_notified())
        await_counter(link->acknowledged, block);
}

/* Runs callbacks. Other than a test, this leaves the request active, so several threads may do it
 * while others add continuations. */
static void run_continuations(void)
{
    int done;
    MPI_Request_get_status(all, &done, MPI_STATUS_IGNORE);
}

void (*exchange_idle(void))(void)
{
    return is_by_continuations() ? run_continuations : NULL;
}
