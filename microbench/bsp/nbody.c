/*
 * Particles that attract one another [7.4]. The particles of all ranks go round a ring; each rank
 * adds their forces on its own.
 */
#include "bsp.h"
#include "exchange.h"
#include "ring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 4 }; /* of a particle: place and mass */
static const double time_step = 1e-3, softening = 1e-2;

static long particles; /* of a rank */
static double *velocity, *force, *expected;

static double *first_of(double *all, int rank)
{
    return all + rank * particles * WORDS;
}

static void fill(double *block, int rank)
{
    for (long i = 0; i < particles * WORDS; i++)
        block[i] = number_of(rank * particles * WORDS + i);
}

/* Adds the forces of the particles `others` on `mine`. */
static void attract(double *forces, const double *mine, const double *others)
{
    for (long i = 0; i < particles; i++)
        for (long j = 0; j < particles; j++) {
            const double *a = mine + i * WORDS, *b = others + j * WORDS;
            double x = b[0] - a[0], y = b[1] - a[1], z = b[2] - a[2];
            double square = x * x + y * y + z * z + softening;
            double factor = b[3] / (square * sqrt(square));
            forces[i * WORDS] += x * factor;
            forces[i * WORDS + 1] += y * factor;
            forces[i * WORDS + 2] += z * factor;
        }
}

static void move(double *mine, double *speeds, const double *forces)
{
    for (long i = 0; i < particles; i++)
        for (int k = 0; k < 3; k++) {
            speeds[i * WORDS + k] += time_step * forces[i * WORDS + k];
            mine[i * WORDS + k] += time_step * speeds[i * WORDS + k];
        }
}

/* One process adds the forces on the particles of each rank in the order in which they come to it,
 * since sums depend on it. */
static void compute_expected(void)
{
    size_t words = (size_t)(setup.size * WORDS);
    double *all = numbers(words), *speeds = numbers(words), *forces = numbers(words);
    for (int rank = 0; rank < setup.ranks; rank++)
        fill(first_of(all, rank), rank);
    for (long i = 0; i < setup.iterations; i++) {
        memset(forces, 0, words * sizeof *forces);
        for (int rank = 0; rank < setup.ranks; rank++)
            for (int k = 0; k < setup.ranks; k++)
                attract(first_of(forces, rank), first_of(all, rank),
                        first_of(all, (rank + setup.ranks - k) % setup.ranks));
        for (int rank = 0; rank < setup.ranks; rank++)
            move(first_of(all, rank), first_of(speeds, rank), first_of(forces, rank));
    }
    memcpy(expected, first_of(all, setup.rank), (size_t)(particles * WORDS) * sizeof *all);
    free(all);
    free(speeds);
    free(forces);
}

static double *own; /* places of this rank's particles */

static void open_all(void)
{
    require(setup.size % setup.ranks == 0, "the size is not a multiple of the ranks");
    particles = setup.size / setup.ranks;
    size_t words = (size_t)(particles * WORDS);
    own = numbers(words);
    velocity = numbers(words);
    force = numbers(words);
    expected = numbers(words);
    ring_open(particles * WORDS);
    compute_expected();
}

static void reset(void)
{
    fill(own, setup.rank);
    memset(velocity, 0, (size_t)(particles * WORDS) * sizeof *velocity);
}

static void add(int owner, const double *block)
{
    (void)owner;
    attract(force, own, block);
}

static void run(void)
{
    size_t bytes = (size_t)(particles * WORDS) * sizeof *own;
    for (long i = 0; i < setup.iterations; i++) {
        memcpy(ring_block(), own, bytes);
        memset(force, 0, bytes);
        ring_pass(add);
        move(own, velocity, force);
    }
}

static long wrong(void)
{
    return differences(own, expected, particles * WORDS);
}

static void close_all(void)
{
    exchange_close();
    free(own);
    free(velocity);
    free(force);
    free(expected);
}

const struct program nbody = {"n-body", 512, 20, open_all, reset, run, wrong, close_all};
