/* Times a scenario in batches, so that reading the clock costs nothing. */
#include "latency.h"

#include "../common/stats.h"
#include "../common/timing.h"

#include <stdio.h>
#include <stdlib.h>

static const double ROUNDS_MIN = 4.0, ROUNDS_MAX = 1e5;

void end_lap(struct bench *b)
{
    double now = now_us(), took = now - b->laps.last;
    b->laps.longest = took > b->laps.longest ? took : b->laps.longest;
    b->laps.last = now;
}

/* Times one batch on the origin. The target's part lies between the barriers. */
static double batch_us(struct bench *b, const struct scenario *s, long rounds)
{
    if (s->enter != NULL)
        s->enter(b);
    MPI_Barrier(b->comm);
    double begin = b->laps.last = now_us();
    if (s->run[b->rank] != NULL)
        s->run[b->rank](b, size_in_bytes[s->size], rounds);
    if (s->measure == TIME_OF_BOTH)
        MPI_Barrier(b->comm); /* ends when the slower rank is ready */
    double took = now_us() - begin;
    MPI_Barrier(b->comm);
    if (s->leave != NULL)
        s->leave(b);
    MPI_Barrier(b->comm);
    return took;
}

/* Rounds per batch, agreed by both ranks. */
static long calibrated_rounds(struct bench *b, const struct scenario *s, double wanted_us)
{
    double rounds = ROUNDS_MIN;
    for (int k = 0; k < 3; k++) {
        double took = batch_us(b, s, (long)rounds);
        rounds *= wanted_us / (took > 0.01 ? took : 0.01);
        rounds = rounds < ROUNDS_MIN ? ROUNDS_MIN : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
        MPI_Bcast(&rounds, 1, MPI_DOUBLE, ORIGIN, b->comm);
    }
    return (long)rounds;
}

/* Converts the time of a batch to that of one operation. */
static double per_operation(const struct scenario *s, double took_us, long rounds)
{
    double operations = (double)rounds * s->per_round;
    switch (s->measure) {
    case TIME_OF_BOTH: return took_us / (operations * RANKS);
    case RATE: return operations / took_us;
    default: return took_us / operations;
    }
}

/* The longest of so many rounds, on either rank. */
static double longest_lap(struct bench *b, const struct scenario *s, long laps, int *right)
{
    uint64_t batch = 1000;
    s->prepare(b, size_in_bytes[s->size], batch);
    MPI_Barrier(b->comm);
    b->laps = (struct laps){.on = true};
    batch_us(b, s, laps);
    b->laps.on = false;
    *right &= s->right(b, size_in_bytes[s->size], batch, laps);
    double longest = b->laps.longest;
    MPI_Allreduce(MPI_IN_PLACE, &longest, 1, MPI_DOUBLE, MPI_MAX, b->comm);
    return longest;
}

struct outcome time_scenario(struct bench *b, const struct scenario *s, const struct timing *t)
{
    size_t bytes = size_in_bytes[s->size];
    double *sample = malloc(sizeof *sample * (size_t)t->batches);
    if (sample == NULL) {
        fprintf(stderr, "latency: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }

    int right = 1;
    long rounds = calibrated_rounds(b, s, t->batch_us);
    for (int k = 0; k < t->batches; k++) {
        s->prepare(b, bytes, (uint64_t)k);
        MPI_Barrier(b->comm);
        sample[k] = per_operation(s, batch_us(b, s, rounds), rounds);
        right &= s->right(b, bytes, (uint64_t)k, rounds);
    }
    double longest = s->measure == RATE ? 0 : longest_lap(b, s, t->laps, &right);
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_LAND, b->comm);
    struct outcome outcome = {spread_of(sample, (size_t)t->batches).median, longest, right != 0};
    free(sample);
    return outcome;
}
