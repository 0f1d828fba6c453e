/*
 * C += A B, several times [7.5]. Each rank has some rows of the three matrices; those of B go round
 * a ring.
 */
#include "bsp.h"
#include "exchange.h"
#include "ring.h"

#include <stdlib.h>
#include <string.h>

static long rows;
static double *a, *c, *expected;

/* Rows of A or B, which are two halves of one sequence of numbers. */
static void fill(double *at, int matrix, long first, long count)
{
    long n = setup.size;
    for (long i = 0; i < count * n; i++)
        at[i] = number_of((matrix * n + first) * n + i) - 0.5;
}

/* Adds the product of the columns of A that belong to these rows of B. */
static void multiply(double *to, const double *from, long first, const double *b)
{
    long n = setup.size;
    for (long i = 0; i < rows; i++)
        for (long k = 0; k < rows; k++)
            for (long j = 0; j < n; j++)
                to[i * n + j] += from[i * n + first + k] * b[k * n + j];
}

/* The rows of this rank by one process, in the order in which those of B come to it, since sums
 * depend on it. */
static void compute_expected(void)
{
    double *b = numbers((size_t)(rows * setup.size));
    for (long i = 0; i < setup.iterations; i++)
        for (int k = 0; k < setup.ranks; k++) {
            long first = (setup.rank + setup.ranks - k) % setup.ranks * rows;
            fill(b, 1, first, rows);
            multiply(expected, a, first, b);
        }
    free(b);
}

static void open_all(void)
{
    require(setup.size % setup.ranks == 0, "the size is not a multiple of the ranks");
    rows = setup.size / setup.ranks;
    size_t cells = (size_t)(rows * setup.size);
    a = numbers(cells);
    c = numbers(cells);
    expected = numbers(cells);
    fill(a, 0, setup.rank * rows, rows);
    ring_open(rows * setup.size);
    compute_expected();
}

static void reset(void)
{
    memset(c, 0, (size_t)(rows * setup.size) * sizeof *c);
    fill(ring_block(), 1, setup.rank * rows, rows);
}

static void add(int owner, const double *block)
{
    multiply(c, a, owner * rows, block);
}

static void run(void)
{
    for (long i = 0; i < setup.iterations; i++)
        ring_pass(add);
}

static long wrong(void)
{
    return differences(c, expected, rows * setup.size);
}

static void close_all(void)
{
    exchange_close();
    free(a);
    free(c);
    free(expected);
}

const struct program matmul = {"matmul", 64, 50, open_all, reset, run, wrong, close_all};
