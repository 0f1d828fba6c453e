/*
 * The heat equation by the method of Gauss and Seidel [2019, 7.1; 2021, VI.A]. The rows of a matrix
 * belong to ranks, and blocks of it to tasks. A cell needs the cells above and left of it in this
 * iteration, and those below and right of it in the previous one. So the order of blocks does not
 * change a bit of the result.
 *
 * Notified versions put the boundary of a block into the halo of the neighbour's matrix. The
 * neighbour has consumed the previous boundary by then: what the block needed from the neighbour
 * was computed from it. So the halos need no acknowledgements, and the puts no requests.
 */
#include "exchange.h"
#include "graph.h"
#include "tasks.h"

#include <mpi.h>

#include <stdlib.h>
#include <string.h>

static long rows, width;              /* rows of this rank; cells from one row to the next */
static long row_blocks, column_blocks;
static double *matrix, *expected;     /* with a frame of one cell: halo or boundary */
static struct graph *graph;
static MPI_Request *requests;         /* of NBUFFER: four per block of columns */

static bool has_up(void) { return setup.rank > 0; }
static bool has_down(void) { return setup.rank < setup.ranks - 1; }

static double *cell(long row, long column)
{
    return matrix + row * width + column;
}

/* The first cell of a block of columns; rows count from 1, with row 0 above them. */
static double *segment(long row, long column)
{
    return cell(row, 1 + column * setup.block);
}

static void update(double *at, long height, long breadth)
{
    for (long i = 0; i < height; i++, at += width)
        for (long j = 0; j < breadth; j++)
            at[j] = 0.25 * (at[j - width] + at[j - 1] + at[j + 1] + at[j + width]);
}

/* The links from one rank down to the next are for halos above, those up for halos below. */
static struct link link_of(bool down, int peer, long column)
{
    long halo = down ? 0 : rows + 1;
    return (struct link){.peer = peer, .number = (int)(down ? column : column_blocks + column),
                         .place = (size_t)(segment(halo, column) - matrix),
                         .count = (size_t)setup.block};
}

/* ---- Bodies of tasks ---- */

static void compute(long iteration, long row, long column)
{
    if (row == 0 && column == 0 && setup.version != FORKJOIN)
        delay(iteration);
    update(segment(1 + row * setup.block, column), setup.block, setup.block);
}

static void receive_from_above(long iteration, long row, long column)
{
    struct link link = link_of(true, setup.rank - 1, column);
    exchange_receive(&link, segment(row, column), iteration + 1);
}

static void receive_from_below(long iteration, long row, long column)
{
    struct link link = link_of(false, setup.rank + 1, column);
    if (iteration > 0)
        exchange_receive(&link, segment(row, column), iteration);
}

static void send_up(long iteration, long row, long column)
{
    struct link link = link_of(false, setup.rank - 1, column);
    if (iteration + 1 < setup.iterations)
        exchange_send(&link, segment(row, column));
}

static void send_down(long iteration, long row, long column)
{
    (void)iteration;
    struct link link = link_of(true, setup.rank + 1, column);
    exchange_send(&link, segment(row, column));
}

/* ---- The graph ---- */

/* In SENTINEL each exchange waits for the one that was added before. */
static struct node *first_exchange, *last_exchange;

static struct node *add_exchange(graph_body *body, long row, long column)
{
    struct node *node = graph_add(graph, body, row, column);
    if (setup.version == SENTINEL) {
        graph_order(last_exchange, node);
        if (!first_exchange)
            first_exchange = node;
        last_exchange = node;
    }
    return node;
}

/* Blocks, each behind its neighbours. */
static void add_blocks(struct node **blocks)
{
    long n = column_blocks;
    for (long row = 0; row < row_blocks; row++)
        for (long column = 0; column < n; column++) {
            struct node **block = blocks + row * n + column;
            *block = graph_add(graph, compute, row, column);
            graph_order_next(*block, *block);
            if (row > 0) {
                graph_order(block[-n], *block);
                graph_order_next(*block, block[-n]);
            }
            if (column > 0) {
                graph_order(block[-1], *block);
                graph_order_next(*block, block[-1]);
            }
        }
}

/* A halo may be received when its block has used the previous one, and then the block may run. It
 * waits for the block to the left too: received early it would mostly not be there yet, and many
 * pending requests cost more than late ones. */
static void add_receive(graph_body *body, long row, long column, struct node *block,
                        struct node *left)
{
    struct node *node = add_exchange(body, row, column);
    graph_order(node, block);
    graph_order_next(block, node);
    graph_order(left, node);
}

/* A boundary is sent after its block has run, which may run again when the boundary has left. */
static void add_send(graph_body *body, long row, long column, struct node *block)
{
    struct node *node = add_exchange(body, row, column);
    graph_order(block, node);
    graph_order_next(node, block);
}

static void make_graph(void)
{
    long n = column_blocks;
    struct node **blocks = malloc((size_t)(row_blocks * n) * sizeof *blocks);
    struct node **lowest = blocks + (row_blocks - 1) * n;
    require(blocks, "memory for tasks");
    graph = graph_new();
    add_blocks(blocks);
    bool exchanges = setup.version != FORKJOIN;
    for (long column = 0; column < n && exchanges && has_up(); column++)
        add_receive(receive_from_above, 0, column, blocks[column],
                    column ? blocks[column - 1] : NULL);
    for (long column = 0; column < n && exchanges && has_down(); column++)
        add_receive(receive_from_below, rows + 1, column, lowest[column],
                    column ? lowest[column - 1] : NULL);
    for (long column = 0; column < n && exchanges && has_down(); column++)
        add_send(send_down, rows, column, lowest[column]);
    for (long column = 0; column < n && exchanges && has_up(); column++)
        add_send(send_up, 1, column, blocks[column]);
    graph_order_next(last_exchange, first_exchange);
    free(blocks);
}

/* ---- Versions in which the main thread communicates ---- */

static void receive_rows(long iteration)
{
    int count = (int)setup.columns;
    if (has_up())
        MPI_Recv(cell(0, 1), count, MPI_DOUBLE, setup.rank - 1, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (has_down() && iteration > 0)
        MPI_Recv(cell(rows + 1, 1), count, MPI_DOUBLE, setup.rank + 1, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void send_rows(long iteration)
{
    int count = (int)setup.columns;
    if (has_down())
        MPI_Send(cell(rows, 1), count, MPI_DOUBLE, setup.rank + 1, 0, MPI_COMM_WORLD);
    if (has_up() && iteration + 1 < setup.iterations)
        MPI_Send(cell(1, 1), count, MPI_DOUBLE, setup.rank - 1, 1, MPI_COMM_WORLD);
}

static void run_by_rows(void)
{
    for (long i = 0; i < setup.iterations; i++) {
        receive_rows(i);
        delay(i);
        if (setup.version == FORKJOIN)
            graph_run(graph, 1);
        else
            update(cell(1, 1), rows, setup.columns);
        send_rows(i);
    }
}

/* Begins what the block of columns needs in an iteration. */
static void receive_segments(long iteration, long column, MPI_Request *r)
{
    int count = (int)setup.block, tag = (int)column;
    if (has_up())
        MPI_Irecv(segment(0, column), count, MPI_DOUBLE, setup.rank - 1, tag, MPI_COMM_WORLD, r);
    if (has_down() && iteration > 0)
        MPI_Irecv(segment(rows + 1, column), count, MPI_DOUBLE, setup.rank + 1,
                  tag + (int)column_blocks, MPI_COMM_WORLD, r + 1);
}

static void send_segments(long iteration, long column, MPI_Request *r)
{
    int count = (int)setup.block, tag = (int)column;
    if (has_down())
        MPI_Isend(segment(rows, column), count, MPI_DOUBLE, setup.rank + 1, tag, MPI_COMM_WORLD,
                  r + 2);
    if (has_up() && iteration + 1 < setup.iterations)
        MPI_Isend(segment(1, column), count, MPI_DOUBLE, setup.rank - 1, tag + (int)column_blocks,
                  MPI_COMM_WORLD, r + 3);
}

static void wait_for(MPI_Request *some, long number)
{
    for (long i = 0; i < number; i++)
        MPI_Wait(some + i, MPI_STATUS_IGNORE);
}

static void run_by_columns(void)
{
    for (long column = 0; column < column_blocks; column++)
        receive_segments(0, column, requests + 4 * column);
    for (long i = 0; i < setup.iterations; i++)
        for (long column = 0; column < column_blocks; column++) {
            MPI_Request *r = requests + 4 * column;
            wait_for(r, 4);
            if (column == 0)
                delay(i);
            update(segment(1, column), rows, setup.block);
            send_segments(i, column, r);
            if (i + 1 < setup.iterations)
                receive_segments(i + 1, column, r);
        }
    wait_for(requests, 4 * column_blocks);
}

/* ---- The program ---- */

/* Numbers in all cells, the frame of the whole matrix included. */
static void fill(double *at, long first_row, long height)
{
    for (long i = 0; i < height + 2; i++)
        for (long j = 0; j < width; j++)
            at[i * width + j] = number_of((first_row + i) * width + j);
}

/* What one process computes. */
static void compute_expected(void)
{
    size_t own = (size_t)(rows * width);
    double *whole = malloc((size_t)((setup.rows + 2) * width) * sizeof *whole);
    expected = malloc(own * sizeof *expected);
    require(whole && expected, "memory for the expected result");
    fill(whole, 0, setup.rows);
    for (long i = 0; i < setup.iterations; i++)
        update(whole + width + 1, setup.rows, setup.columns);
    memcpy(expected, whole + (1 + setup.rank * rows) * width, own * sizeof *expected);
    free(whole);
}

static void open_program(void)
{
    require(setup.rows % (setup.ranks * setup.block) == 0 && setup.columns % setup.block == 0,
            "gauss-seidel: rows of each rank and columns must be multiples of the block");
    rows = setup.rows / setup.ranks;
    width = setup.columns + 2;
    row_blocks = rows / setup.block;
    column_blocks = setup.columns / setup.block;
    matrix = exchange_open((size_t)((rows + 2) * width), 2 * (int)column_blocks);
    requests = malloc(4 * (size_t)column_blocks * sizeof *requests);
    require(requests, "memory for requests");
    for (long i = 0; i < 4 * column_blocks; i++)
        requests[i] = MPI_REQUEST_NULL;
    if (setup.version >= FORKJOIN)
        make_graph();
    compute_expected();
}

static void reset(void)
{
    exchange_reset();
    fill(matrix, setup.rank * rows, rows);
}

static void run(void)
{
    if (setup.version == NBUFFER)
        run_by_columns();
    else if (setup.version <= FORKJOIN)
        run_by_rows();
    else
        graph_run(graph, setup.iterations);
}

static long wrong(void)
{
    long found = 0;
    for (long i = 0; i < rows; i++)
        for (long j = 1; j <= setup.columns; j++)
            found += *cell(1 + i, j) != expected[i * width + j];
    return found;
}

static void close_program(void)
{
    if (graph)
        graph_free(graph);
    free(requests);
    free(expected);
    exchange_close();
}

const struct program gauss_seidel = {
    "gauss-seidel", (1u << VERSIONS) - 1, open_program, reset, run, wrong, close_program,
};
