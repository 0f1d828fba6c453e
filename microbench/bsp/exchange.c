#include "exchange.h"

#include "bsp.h"

#include <mpix_rma.h>

#include <stdlib.h>

/* Two windows when notified, since a counter counts all puts on its window, and a neighbour may be
 * one superstep ahead. With fences the first one has both buffers. */
static MPI_Win win[2];
static double *base[2];
static long notified[2]; /* what the counter will have when the superstep is over */
static struct links links;
static int turn;
static unsigned senders;
static MPI_Request requests[2 * LINKS_MAX];
static MPI_Status statuses[2 * LINKS_MAX];
static int pending;

static bool is_fenced(void)
{
    return setup.mode == BARRIER || setup.mode == PATTERN;
}

static double *open_window(MPI_Win *opened, size_t count, const char *key, const char *value)
{
    MPI_Info info;
    double *memory;
    MPI_Info_create(&info);
    MPI_Info_set(info, key, value);
    MPI_Win_allocate((MPI_Aint)(count * sizeof *memory), sizeof *memory, info, MPI_COMM_WORLD,
                     &memory, opened);
    MPI_Info_free(&info);
    return memory;
}

void exchange_open(const struct links *wanted)
{
    links = *wanted;
    if (is_fenced()) {
        base[0] = open_window(win, 2 * links.buffer, "mpix_rma_fence",
                              setup.mode == PATTERN ? "pattern" : "barrier");
        base[1] = base[0] + links.buffer;
        MPI_Win_fence(MPI_MODE_NOPRECEDE, win[0]);
    } else if (setup.mode == NOTIFIED) {
        for (int i = 0; i < 2; i++) {
            base[i] = open_window(win + i, links.buffer, "mpix_rma_notify_puts", "0");
            MPI_Win_lock_all(MPI_MODE_NOCHECK, win[i]);
        }
    } else {
        base[0] = numbers(2 * links.buffer);
        base[1] = base[0] + links.buffer;
    }
}

void exchange_close(void)
{
    if (is_fenced()) {
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win[0]);
        MPI_Win_free(win);
    } else if (setup.mode == NOTIFIED) {
        for (int i = 0; i < 2; i++) {
            MPI_Win_unlock_all(win[i]);
            MPI_Win_free(win + i);
        }
    } else {
        free(base[0]);
    }
}

double *exchange_buffer(int of)
{
    return base[of];
}

void exchange_begin(int next, unsigned bits)
{
    turn = next;
    senders = bits;
    pending = 0;
    for (int i = 0; setup.mode == TWO_SIDED && i < links.ins; i++)
        if (senders >> i & 1)
            MPI_Irecv(base[turn] + links.in[i].place, links.in[i].count, MPI_DOUBLE,
                      links.in[i].peer, links.in[i].tag, MPI_COMM_WORLD, &requests[pending++]);
}

void exchange_send(int out, const double *data)
{
    const struct link *to = &links.out[out];
    if (setup.mode == TWO_SIDED) {
        MPI_Isend(data, to->count, MPI_DOUBLE, to->peer, to->tag, MPI_COMM_WORLD,
                  &requests[pending++]);
        return;
    }
    bool both = is_fenced();
    size_t place = to->place + (both ? (size_t)turn * links.buffer : 0);
    MPI_Put(data, to->count, MPI_DOUBLE, to->peer, (MPI_Aint)place, to->count, MPI_DOUBLE,
            win[both ? 0 : turn]);
}

/* Counts the blocks that come. If the links are one way, empty puts tell the senders that their
 * last blocks were used, and those of the receivers count too. */
static void await_notifications(void)
{
    MPI_Win_flush_local_all(win[turn]);
    for (int i = 0; i < links.ins; i++) {
        notified[turn] += senders >> i & 1;
        if (links.is_one_way)
            MPI_Put(NULL, 0, MPI_DOUBLE, links.in[i].peer, 0, 0, MPI_DOUBLE, win[turn]);
    }
    notified[turn] += links.is_one_way ? links.outs : 0;
    MPIX_Win_notify_threshold(win[turn], 0, notified[turn]);
}

void exchange_end(void)
{
    if (is_fenced())
        MPI_Win_fence(0, win[0]);
    else if (setup.mode == NOTIFIED)
        await_notifications();
    else
        MPI_Waitall(pending, requests, statuses);
}
