/*
 * The heat equation by the method of Gauss and Seidel [7.3]. The rows of a matrix belong to ranks.
 * A cell needs the cells above and left of it in this iteration, and those below and right of it in
 * the previous one. So in a superstep every other rank updates its rows: rank r begins with
 * superstep r, and makes an iteration in every second one.
 */
#include "bsp.h"
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

enum { ABOVE, BELOW };

static long rows, width;
static double *matrix, *expected; /* with a frame of one cell */
static int link_of[2] = {-1, -1}; /* to the ranks above and below, if any */
static unsigned all;              /* bits of all links */

static void update(double *at, long height)
{
    for (long i = 1; i <= height; i++)
        for (long j = 1; j < width - 1; j++) {
            double *cell = at + i * width + j;
            *cell = 0.25 * (cell[-width] + cell[-1] + cell[1] + cell[width]);
        }
}

/* Rows from the one above `first` to the one below the last. Those around the matrix are 0. */
static void fill(double *at, long first, long height)
{
    for (long i = 0; i < height + 2; i++)
        for (long j = 0; j < width; j++) {
            long row = first + i - 1, column = j - 1;
            bool inside = row >= 0 && row < setup.size && column >= 0 && column < setup.size;
            at[i * width + j] = inside ? number_of(row * setup.size + column) : 0.0;
        }
}

static void compute_expected(void)
{
    double *whole = numbers((size_t)((setup.size + 2) * width));
    fill(whole, 0, setup.size);
    for (long i = 0; i < setup.iterations; i++)
        update(whole, setup.size);
    memcpy(expected, whole + setup.rank * rows * width,
           (size_t)((rows + 2) * width) * sizeof *whole);
    free(whole);
}

/* A buffer has the halo from above and the one from below. */
static void add_link(struct links *links, int to, int peer)
{
    size_t halo = (size_t)setup.size;
    link_of[to] = links->outs;
    links->in[links->ins++] = (struct link){peer, to, (size_t)to * halo, (int)halo};
    links->out[links->outs++] = (struct link){peer, 1 - to, (size_t)(1 - to) * halo, (int)halo};
}

static void open_all(void)
{
    require(setup.size % setup.ranks == 0, "the size is not a multiple of the ranks");
    rows = setup.size / setup.ranks;
    width = setup.size + 2;
    matrix = numbers((size_t)((rows + 2) * width));
    expected = numbers((size_t)((rows + 2) * width));
    struct links links = {.buffer = (size_t)(2 * setup.size)};
    if (setup.rank > 0)
        add_link(&links, ABOVE, setup.rank - 1);
    if (setup.rank < setup.ranks - 1)
        add_link(&links, BELOW, setup.rank + 1);
    all = (1u << links.ins) - 1;
    exchange_open(&links);
    compute_expected();
}

static void reset(void)
{
    fill(matrix, setup.rank * rows, rows);
}

static void send_edges(void)
{
    if (link_of[ABOVE] >= 0)
        exchange_send(link_of[ABOVE], matrix + width + 1);
    if (link_of[BELOW] >= 0)
        exchange_send(link_of[BELOW], matrix + rows * width + 1);
}

static void take_halo(int from, int turn)
{
    if (link_of[from] >= 0)
        memcpy(matrix + (from == ABOVE ? 0 : rows + 1) * width + 1,
               exchange_buffer(turn) + from * setup.size,
               (size_t)setup.size * sizeof *matrix);
}

/* Whether a rank updates its rows in this superstep. */
static bool updates(long rank, long superstep)
{
    long since = superstep - rank;
    return since >= 0 && since % 2 == 0 && since / 2 < setup.iterations;
}

/* The ranks above and below that send in this superstep. */
static unsigned senders_in(long superstep)
{
    unsigned senders = 0;
    if (link_of[ABOVE] >= 0 && updates(setup.rank - 1, superstep))
        senders |= 1u << link_of[ABOVE];
    if (link_of[BELOW] >= 0 && updates(setup.rank + 1, superstep))
        senders |= 1u << link_of[BELOW];
    return senders;
}

/* The first superstep exchanges all edges, so that fences learn all neighbours. It has a buffer of
 * its own: the rank above may send what it has updated before the rank below has sent. The others
 * share a buffer, since a rank sends or receives. */
static void run(void)
{
    exchange_begin(1, all);
    send_edges();
    exchange_end();
    take_halo(BELOW, 1);
    for (long s = 0; s < 2 * setup.iterations + setup.ranks - 2; s++) {
        unsigned senders = senders_in(s);
        exchange_begin(0, senders);
        if (updates(setup.rank, s)) {
            update(matrix, rows);
            send_edges();
        }
        exchange_end();
        for (int from = ABOVE; from <= BELOW; from++)
            if (link_of[from] >= 0 && senders >> link_of[from] & 1)
                take_halo(from, 0);
    }
}

static long wrong(void)
{
    return differences(matrix + width, expected + width, rows * width);
}

static void close_all(void)
{
    exchange_close();
    free(matrix);
    free(expected);
}

const struct program gauss_seidel = {"gauss-seidel", 256, 100, open_all, reset, run, wrong,
                                     close_all};
