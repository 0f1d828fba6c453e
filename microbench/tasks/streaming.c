/*
 * A pipeline of ranks [2021, VI.C]. Each rank has a function, which it applies to all elements of a
 * chunk and passes them on; the last one sums the chunks. Blocks of a chunk are independent.
 *
 * A rank has memory for one chunk to receive and one to send. So a block that arrives by a notified
 * put must be acknowledged: the task that computes does so as soon as it has read the block.
 */
#include "exchange.h"
#include "graph.h"
#include "tasks.h"

#include <mpi.h>

#include <stdlib.h>
#include <string.h>

enum { STEPS = 8 }; /* of the function, per element */

static long blocks;
static double *in, *out, *sum, *expected; /* a chunk each */
static struct graph *graph;
static MPI_Request *requests; /* of PURE: two per block */

static bool is_first(void) { return setup.rank == 0; }
static bool is_last(void) { return setup.rank == setup.ranks - 1; }

static void apply(long rank, double *to, const double *from, long count)
{
    double offset = (double)(rank + 1);
    for (long i = 0; i < count; i++) {
        double x = from[i];
        for (int k = 0; k < STEPS; k++)
            x = 0.5 * x + offset;
        to[i] = x;
    }
}

static double element(long chunk, long index)
{
    return (double)(index % 1000) + (double)(chunk % 100) * 0.01;
}

/* Applies this rank's function to a block of `in`, into `out`. */
static void process(long chunk, long block)
{
    long begin = block * setup.block;
    if (is_first())
        for (long i = 0; i < setup.block; i++)
            in[begin + i] = element(chunk, begin + i);
    apply(setup.rank, out + begin, in + begin, setup.block);
    for (long i = 0; i < setup.block && is_last(); i++)
        sum[begin + i] += out[begin + i];
}

/* The link of a block between the ranks before and behind it. */
static struct link link_of(long block, int peer)
{
    return (struct link){.peer = peer, .number = (int)block, .acknowledged = (int)(blocks + block),
                         .place = (size_t)(block * setup.block), .count = (size_t)setup.block};
}

/* ---- Tasks. Rows of the graph are blocks. ---- */

static void receive(long chunk, long block, long column)
{
    (void)column;
    struct link link = link_of(block, setup.rank - 1);
    exchange_receive(&link, in + link.place, chunk + 1);
}

static void compute(long chunk, long block, long column)
{
    (void)column;
    if (block == 0)
        delay(chunk);
    process(chunk, block);
    struct link link = link_of(block, setup.rank - 1);
    if (!is_first() && chunk + 1 < setup.iterations)
        exchange_acknowledge(&link);
}

static void await_acknowledged(long chunk, long block, long column)
{
    (void)column;
    struct link link = link_of(block, setup.rank + 1);
    if (chunk > 0)
        exchange_await_acknowledged(&link, chunk);
}

static void send(long chunk, long block, long column)
{
    (void)chunk, (void)column;
    struct link link = link_of(block, setup.rank + 1);
    exchange_send(&link, out + link.place);
    exchange_flush(&link);
}

static void make_graph(void)
{
    graph = graph_new();
    for (long block = 0; block < blocks; block++) {
        struct node *worker = graph_add(graph, compute, block, 0);
        graph_order_next(worker, worker);
        if (!is_first()) {
            struct node *receiver = graph_add(graph, receive, block, 0);
            graph_order(receiver, worker);
            graph_order_next(worker, receiver);
        }
        if (is_last())
            continue;
        struct node *sender = graph_add(graph, send, block, 0);
        graph_order(worker, sender);
        graph_order_next(sender, worker);
        if (exchange_is_notified()) {
            struct node *waiter = graph_add(graph, await_acknowledged, block, 0);
            graph_order(worker, waiter); /* as late as possible [2021, V.A]: mostly it has come */
            graph_order(waiter, sender);
        }
    }
}

/* ---- Without tasks: all blocks of a chunk are in flight ---- */

static void receive_block(long block)
{
    if (!is_first())
        MPI_Irecv(in + block * setup.block, (int)setup.block, MPI_DOUBLE, setup.rank - 1,
                  (int)block, MPI_COMM_WORLD, &requests[2 * block]);
}

static void run_without_tasks(void)
{
    for (long block = 0; block < blocks; block++)
        receive_block(block);
    for (long chunk = 0; chunk < setup.iterations; chunk++)
        for (long block = 0; block < blocks; block++) {
            if (block == 0)
                delay(chunk);
            MPI_Wait(&requests[2 * block], MPI_STATUS_IGNORE);
            MPI_Wait(&requests[2 * block + 1], MPI_STATUS_IGNORE);
            process(chunk, block);
            if (chunk + 1 < setup.iterations)
                receive_block(block);
            if (!is_last())
                MPI_Isend(out + block * setup.block, (int)setup.block, MPI_DOUBLE, setup.rank + 1,
                          (int)block, MPI_COMM_WORLD, &requests[2 * block + 1]);
        }
    for (long i = 0; i < 2 * blocks; i++)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

/* ---- The program ---- */

static void compute_expected(void)
{
    for (long chunk = 0; chunk < setup.iterations; chunk++)
        for (long i = 0; i < setup.columns; i++) {
            double x = element(chunk, i);
            for (long rank = 0; rank < setup.ranks; rank++)
                apply(rank, &x, &x, 1);
            expected[i] += x;
        }
}

static void open_program(void)
{
    require(setup.columns % setup.block == 0, "streaming: columns must be a multiple of the block");
    size_t count = (size_t)setup.columns;
    blocks = setup.columns / setup.block;
    in = exchange_open(count, 2 * (int)blocks);
    out = calloc(count, sizeof *out);
    sum = calloc(count, sizeof *sum);
    expected = calloc(count, sizeof *expected);
    requests = malloc(2 * (size_t)blocks * sizeof *requests);
    require(out && sum && expected && requests, "memory for a chunk");
    for (long i = 0; i < 2 * blocks; i++)
        requests[i] = MPI_REQUEST_NULL;
    if (setup.version != PURE)
        make_graph();
    compute_expected();
}

static void reset(void)
{
    exchange_reset();
    memset(sum, 0, (size_t)setup.columns * sizeof *sum);
}

static void run(void)
{
    if (setup.version == PURE)
        run_without_tasks();
    else
        graph_run(graph, setup.iterations);
}

static long wrong(void)
{
    long found = 0;
    for (long i = 0; i < setup.columns && is_last(); i++)
        found += sum[i] != expected[i];
    return found;
}

static void close_program(void)
{
    if (graph)
        graph_free(graph);
    free(out);
    free(sum);
    free(expected);
    free(requests);
    exchange_close();
}

const struct program streaming = {
    "streaming",
    1u << PURE | 1u << BLOCKING | 1u << TWO_SIDED | 1u << NOTIFIED | 1u << TWO_SIDED_CONT
        | 1u << NOTIFIED_CONT,
    open_program, reset, run, wrong, close_program,
};
