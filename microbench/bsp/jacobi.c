/*
 * The heat equation by the method of Jacobi [7.2]. A matrix is divided into blocks, one per rank of
 * a grid; in each iteration all exchange their edges with up to four neighbours.
 */
#include "bsp.h"
#include "exchange.h"

#include <mpi.h>

#include <stdlib.h>
#include <string.h>

enum side { UP, DOWN, LEFT, RIGHT, SIDES };

static long rows, columns, width;     /* of this rank's block; width has a frame of one cell */
static long top, left;                /* the block's place in the matrix */
static double *old, *new, *expected;  /* blocks with a frame */
static double *edge[2];               /* first and last column, which are sent */
static int side_of[SIDES];            /* of each link */
static int neighbours;

/* Cells of the frame around the matrix are 0. */
static double initial(long row, long column)
{
    bool inside = row >= 0 && column >= 0 && row < setup.size && column < setup.size;
    return inside ? number_of(row * setup.size + column) : 0.0;
}

static void update(double *to, const double *from, long height, long breadth)
{
    long w = breadth + 2;
    for (long i = 1; i <= height; i++)
        for (long j = 1; j <= breadth; j++) {
            const double *at = from + i * w + j;
            to[i * w + j] = 0.25 * (at[-w] + at[-1] + at[1] + at[w]);
        }
}

static void fill(double *block, long first_row, long first_column, long height, long breadth)
{
    for (long i = 0; i < height + 2; i++)
        for (long j = 0; j < breadth + 2; j++)
            block[i * (breadth + 2) + j] = initial(first_row + i - 1, first_column + j - 1);
}

/* One process computes the whole matrix, of which this rank keeps its block. */
static void compute_expected(void)
{
    long n = setup.size, w = n + 2;
    double *a = numbers((size_t)(w * w)), *b = numbers((size_t)(w * w));
    fill(a, 0, 0, n, n);
    for (long i = 0; i < setup.iterations; i++) {
        update(b, a, n, n);
        double *swap = a;
        a = b;
        b = swap;
    }
    for (long i = 1; i <= rows; i++)
        memcpy(expected + i * width + 1, a + (top + i) * w + left + 1,
               (size_t)columns * sizeof *a);
    free(a);
    free(b);
}

/* Where a rank's halo of this side is in its buffer. */
static size_t place_of(enum side side)
{
    size_t before = side > LEFT ? (size_t)rows : 0;
    return side <= DOWN ? (size_t)(side * columns) : (size_t)(2 * columns) + before;
}

static struct links links_of(const int dims[2], const int at[2])
{
    static const int step[SIDES][2] = {{-1, 0}, {1, 0}, {0, -1}, {0, 1}};
    struct links links = {.buffer = (size_t)(2 * (rows + columns))};
    for (enum side side = UP; side < SIDES; side++) {
        int row = at[0] + step[side][0], column = at[1] + step[side][1];
        if (row < 0 || column < 0 || row == dims[0] || column == dims[1])
            continue;
        int peer = row * dims[1] + column, count = (int)(side <= DOWN ? columns : rows);
        enum side opposite = side ^ 1;
        side_of[links.outs] = side;
        links.in[links.ins++] = (struct link){peer, (int)side, place_of(side), count};
        links.out[links.outs++] = (struct link){peer, (int)opposite, place_of(opposite), count};
    }
    return links;
}

static void open_all(void)
{
    int dims[2] = {0, 0};
    MPI_Dims_create(setup.ranks, 2, dims);
    require(setup.size % dims[0] == 0 && setup.size % dims[1] == 0,
            "the size is not a multiple of the grid of ranks");
    int at[2] = {setup.rank / dims[1], setup.rank % dims[1]};
    rows = setup.size / dims[0];
    columns = setup.size / dims[1];
    width = columns + 2;
    top = at[0] * rows;
    left = at[1] * columns;
    size_t cells = (size_t)((rows + 2) * width);
    old = numbers(cells);
    new = numbers(cells);
    expected = numbers(cells);
    edge[0] = numbers((size_t)rows);
    edge[1] = numbers((size_t)rows);
    struct links links = links_of(dims, at);
    neighbours = links.outs;
    exchange_open(&links);
    compute_expected();
}

static void reset(void)
{
    fill(old, top, left, rows, columns);
    memset(new, 0, (size_t)((rows + 2) * width) * sizeof *new);
}

/* Copies the halos of this turn into the frame. */
static void take_halos(double *block, int turn)
{
    const double *buffer = exchange_buffer(turn);
    for (int link = 0; link < neighbours; link++) {
        enum side side = side_of[link];
        const double *halo = buffer + place_of(side);
        if (side <= DOWN)
            memcpy(block + (side == UP ? 0 : rows + 1) * width + 1, halo,
                   (size_t)columns * sizeof *halo);
        for (long i = 0; side > DOWN && i < rows; i++)
            block[(i + 1) * width + (side == LEFT ? 0 : columns + 1)] = halo[i];
    }
}

static void send_edges(const double *block)
{
    for (long i = 0; i < rows; i++) {
        edge[0][i] = block[(i + 1) * width + 1];
        edge[1][i] = block[(i + 1) * width + columns];
    }
    for (int link = 0; link < neighbours; link++) {
        enum side side = side_of[link];
        exchange_send(link, side == UP     ? block + width + 1
                            : side == DOWN ? block + rows * width + 1
                                           : edge[side - LEFT]);
    }
}

static void run(void)
{
    for (long i = 0; i < setup.iterations; i++) {
        int turn = (int)(i % 2);
        exchange_begin(turn, ~0u);
        update(new, old, rows, columns);
        send_edges(new);
        exchange_end();
        take_halos(new, turn);
        double *swap = old;
        old = new;
        new = swap;
    }
}

static long wrong(void)
{
    long count = 0;
    for (long i = 1; i <= rows; i++)
        count += differences(old + i * width + 1, expected + i * width + 1, columns);
    return count;
}

static void close_all(void)
{
    exchange_close();
    free(old);
    free(new);
    free(expected);
    free(edge[0]);
    free(edge[1]);
}

const struct program jacobi = {"jacobi", 256, 200, open_all, reset, run, wrong, close_all};
