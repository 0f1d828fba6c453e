/*
 * The communication of IFS, a weather model [2019, 7.2]: physics at grid points, for which a rank
 * has all fields of some points, alternates with transforms of fields, for which a rank has all
 * points of some fields. Between them the data are transposed, block by block.
 *
 * Notified versions put blocks where they belong. A block may overwrite the previous one: the
 * receiver has used it, since what it computed from it has come back. Counters count, so a
 * transform waits for all blocks of its field at once, and physics for all fields of a block.
 */
#include "exchange.h"
#include "graph.h"
#include "tasks.h"

#include <mpi.h>

#include <stdlib.h>
#include <string.h>

static long fields, points, own_fields, own_points; /* of all ranks, and of this one */
static long blocks;                                 /* of the own points */
static double *grid;     /* [fields][own_points] */
static double *spectral; /* [own_fields][points] */
static double *expected; /* as grid */
static struct graph *graph;
static MPI_Request *requests; /* of PURE: one per field, sent and received */

static long owner(long field) { return field / own_fields; }
static bool is_own(long field) { return owner(field) == setup.rank; }
static long others(void) { return setup.ranks - 1; }

/* ---- Computing, with strides so that the expected result can be computed too ---- */

/* Each field of a point gets a share of the next one. */
static void physics(double *at, long stride, long count)
{
    for (long i = 0; i < count; i++) {
        double first = at[i];
        for (long f = 0; f < fields; f++) {
            double next = f + 1 < fields ? at[(f + 1) * stride + i] : first;
            at[f * stride + i] = 0.75 * at[f * stride + i] + 0.25 * next + 0.001 * (double)f;
        }
    }
}

/* A recursive filter, forth and back: every value depends on every other. */
static void transform(double *field)
{
    for (long i = 1; i < points; i++)
        field[i] = 0.5 * (field[i] + field[i - 1]);
    for (long i = points - 1; i > 0; i--)
        field[i - 1] = 0.5 * (field[i - 1] + field[i]);
}

/* ---- Links. Counters: one per own field, then one per own block. ---- */

static double *grid_at(long field, long block)
{
    return grid + field * own_points + block * setup.block;
}

static double *spectral_at(long field, long rank, long block)
{
    return spectral + (field - setup.rank * own_fields) * points + rank * own_points
         + block * setup.block;
}

/* The tag of a block of a field, which is that of messages in both directions. */
static int tag_of(long field, long block)
{
    return (int)(field * blocks + block);
}

/* To the owner of a field, from this rank. */
static struct link to_spectral(long field, long block)
{
    long row = field % own_fields;
    size_t place = (size_t)(fields * own_points + row * points + setup.rank * own_points
                            + block * setup.block);
    return (struct link){.peer = (int)owner(field), .place = place, .count = (size_t)setup.block,
                         .number = exchange_is_notified() ? (int)row : tag_of(field, block)};
}

/* From the owner of a field, which is this rank, to the one that has the points. */
static struct link to_grid(long field, long rank, long block)
{
    size_t place = (size_t)(field * own_points + block * setup.block);
    return (struct link){.peer = (int)rank, .place = place, .count = (size_t)setup.block,
                         .number = exchange_is_notified() ? (int)(own_fields + block)
                                                          : tag_of(field, block)};
}

/* ---- Tasks ---- */

static void copy_block(double *to, const double *from)
{
    memcpy(to, from, (size_t)setup.block * sizeof *to);
}

static void compute_physics(long step, long block, long unused)
{
    (void)unused;
    if (block == 0)
        delay(step);
    physics(grid_at(0, block), own_points, setup.block);
    for (long f = 0; f < own_fields; f++) {
        long field = setup.rank * own_fields + f;
        copy_block(spectral_at(field, setup.rank, block), grid_at(field, block));
    }
}

static void compute_transform(long step, long field, long unused)
{
    (void)step, (void)unused;
    transform(spectral_at(field, 0, 0));
    for (long block = 0; block < blocks; block++)
        copy_block(grid_at(field, block), spectral_at(field, setup.rank, block));
}

static void send_to_spectral(long step, long field, long block)
{
    (void)step;
    struct link link = to_spectral(field, block);
    exchange_send(&link, grid_at(field, block));
}

/* `at` counts blocks of all ranks. */
static void send_to_grid(long step, long field, long at)
{
    (void)step;
    struct link link = to_grid(field, at / blocks, at % blocks);
    exchange_send(&link, spectral_at(field, 0, at));
}

static void receive_spectral(long step, long field, long at)
{
    struct link link = to_grid(field, at / blocks, at % blocks); /* same peer and tag */
    exchange_receive(&link, spectral_at(field, 0, at), step + 1);
}

static void receive_grid(long step, long field, long block)
{
    struct link link = to_spectral(field, block);
    exchange_receive(&link, grid_at(field, block), step + 1);
}

static void await_field(long step, long field, long unused)
{
    (void)unused;
    struct link link = {.number = (int)(field % own_fields)};
    exchange_receive(&link, NULL, (step + 1) * others() * blocks);
}

static void await_block(long step, long block, long unused)
{
    (void)unused;
    struct link link = {.number = (int)(own_fields + block)};
    exchange_receive(&link, NULL, (step + 1) * (fields - own_fields));
}

/* ---- The graph ---- */

/* Another rank's field: this rank's blocks go there and come back. `waits`: those for blocks. */
static void add_foreign(long field, struct node **physicists, struct node **waits)
{
    for (long block = 0; block < blocks; block++) {
        struct node *sender = graph_add(graph, send_to_spectral, field, block);
        struct node *receiver = exchange_is_notified()
                              ? waits[block] : graph_add(graph, receive_grid, field, block);
        graph_order(physicists[block], sender);
        graph_order(sender, receiver);
        if (!exchange_is_notified())
            graph_order_next(receiver, physicists[block]);
    }
}

/* This rank's field: all blocks of others come here, and go back when they are transformed. */
static void add_own(long field, struct node **physicists)
{
    struct node *transformer = graph_add(graph, compute_transform, field, 0), *waiter = NULL;
    if (exchange_is_notified() && others()) {
        waiter = graph_add(graph, await_field, field, 0);
        graph_order(waiter, transformer);
    }
    for (long at = 0; at < setup.ranks * blocks; at++) {
        if (at / blocks == setup.rank) {
            graph_order(physicists[at % blocks], transformer);
            graph_order_next(transformer, physicists[at % blocks]);
            continue;
        }
        struct node *sender = graph_add(graph, send_to_grid, field, at), *receiver = waiter;
        if (!exchange_is_notified()) {
            receiver = graph_add(graph, receive_spectral, field, at);
            graph_order(receiver, transformer);
        }
        graph_order(transformer, sender);
        graph_order_next(sender, receiver);
    }
}

static void make_graph(void)
{
    struct node **physicists = calloc((size_t)blocks, sizeof *physicists);
    struct node **waits = calloc((size_t)blocks, sizeof *waits);
    require(physicists && waits, "memory for tasks");
    graph = graph_new();
    for (long block = 0; block < blocks; block++) {
        physicists[block] = graph_add(graph, compute_physics, block, 0);
        if (exchange_is_notified() && others()) {
            waits[block] = graph_add(graph, await_block, block, 0);
            graph_order_next(waits[block], physicists[block]);
        }
    }
    for (long field = 0; field < fields; field++)
        if (is_own(field))
            add_own(field, physicists);
        else
            add_foreign(field, physicists, waits);
    free(physicists);
    free(waits);
}

/* ---- Without tasks ---- */

/* Exchanges the own points of all foreign fields for the other ranks' points of the own fields, or
 * back. */
static void transpose(bool back)
{
    int count = (int)own_points;
    MPI_Request *r = requests;
    for (long field = 0; field < fields; field++) {
        if (!is_own(field)) {
            double *at = grid_at(field, 0);
            int peer = (int)owner(field), tag = (int)field;
            if (back)
                MPI_Irecv(at, count, MPI_DOUBLE, peer, tag, MPI_COMM_WORLD, r++);
            else
                MPI_Isend(at, count, MPI_DOUBLE, peer, tag, MPI_COMM_WORLD, r++);
            continue;
        }
        for (int peer = 0; peer < setup.ranks; peer++) {
            double *at = spectral_at(field, peer, 0);
            if (peer == setup.rank)
                continue;
            if (back)
                MPI_Isend(at, count, MPI_DOUBLE, peer, (int)field, MPI_COMM_WORLD, r++);
            else
                MPI_Irecv(at, count, MPI_DOUBLE, peer, (int)field, MPI_COMM_WORLD, r++);
        }
    }
    for (MPI_Request *each = requests; each < r; each++)
        MPI_Wait(each, MPI_STATUS_IGNORE);
}

static void run_without_tasks(void)
{
    for (long step = 0; step < setup.iterations; step++) {
        for (long block = 0; block < blocks; block++)
            compute_physics(step, block, 0);
        transpose(false);
        for (long f = 0; f < own_fields; f++)
            compute_transform(step, setup.rank * own_fields + f, 0);
        transpose(true);
    }
}

/* ---- The program ---- */

static void compute_expected(void)
{
    double *whole = malloc((size_t)(fields * points) * sizeof *whole);
    expected = malloc((size_t)(fields * own_points) * sizeof *expected);
    require(whole && expected, "memory for the expected result");
    for (long i = 0; i < fields * points; i++)
        whole[i] = number_of(i);
    for (long step = 0; step < setup.iterations; step++) {
        physics(whole, points, points);
        for (long field = 0; field < fields; field++)
            transform(whole + field * points);
    }
    for (long field = 0; field < fields; field++)
        memcpy(expected + field * own_points, whole + field * points + setup.rank * own_points,
               (size_t)own_points * sizeof *expected);
    free(whole);
}

static void open_program(void)
{
    fields = setup.rows;
    points = setup.columns;
    own_fields = fields / setup.ranks;
    own_points = points / setup.ranks;
    blocks = own_points / setup.block;
    require(own_fields * setup.ranks == fields && own_points * setup.ranks == points
                && blocks * setup.block == own_points,
            "ifsker: rows and columns must be multiples of the ranks, and of the block");
    size_t own = (size_t)(fields * own_points);
    grid = exchange_open(own + (size_t)(own_fields * points), (int)(own_fields + blocks));
    spectral = grid + own;
    requests = malloc((size_t)(fields * setup.ranks) * sizeof *requests);
    require(requests, "memory for requests");
    if (setup.version != PURE)
        make_graph();
    compute_expected();
}

static void reset(void)
{
    exchange_reset();
    for (long field = 0; field < fields; field++)
        for (long i = 0; i < own_points; i++)
            grid[field * own_points + i] = number_of(field * points + setup.rank * own_points + i);
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
    for (long i = 0; i < fields * own_points; i++)
        found += grid[i] != expected[i];
    return found;
}

static void close_program(void)
{
    if (graph)
        graph_free(graph);
    free(expected);
    free(requests);
    exchange_close();
}

const struct program ifsker = {
    "ifsker",
    1u << PURE | 1u << BLOCKING | 1u << TWO_SIDED | 1u << NOTIFIED | 1u << TWO_SIDED_CONT
        | 1u << NOTIFIED_CONT,
    open_program, reset, run, wrong, close_program,
};
