/* Many operations in flight: puts or gets of one length to locations behind one another. */
#include "latency.h"

#include "../common/stats.h"
#include "../common/timing.h"

#include <stdio.h>
#include <stdlib.h>

const size_t flight_bytes[] = {8, 512, 4096, 32768, 65536, 1 << 20, FLIGHT_LARGEST};
const int flight_sizes = (int)(sizeof flight_bytes / sizeof flight_bytes[0]);

/* Where operations are too long for the memory, several move the same bytes. */
static size_t place_of(int operation, size_t bytes)
{
    return (size_t)operation % (FLIGHT_MEMORY / bytes) * bytes;
}

static void issue(struct bench *b, const struct flight *f, size_t bytes, int count)
{
    for (int k = 0; k < count; k++) {
        size_t at = place_of(k, bytes);
        MPI_Aint there = b->there + (MPI_Aint)at;
        if (f->gets)
            MPI_Get(b->local + at, (int)bytes, MPI_BYTE, TARGET, there, (int)bytes, MPI_BYTE,
                    b->win);
        else
            MPI_Put(b->local + at, (int)bytes, MPI_BYTE, TARGET, there, (int)bytes, MPI_BYTE,
                    b->win);
    }
}

static void flush_origin(struct bench *b, const struct flight *f, size_t bytes, int count,
                         long rounds)
{
    for (long i = 0; i < rounds; i++) {
        issue(b, f, bytes, count);
        MPI_Win_flush(TARGET, b->win);
    }
}

static void start_origin(struct bench *b, const struct flight *f, size_t bytes, int count,
                         long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Win_start(b->peer, 0, b->win);
        issue(b, f, bytes, count);
        MPI_Win_complete(b->win);
    }
}

static void post_target(struct bench *b, const struct flight *f, size_t bytes, int count,
                        long rounds)
{
    (void)f, (void)bytes, (void)count;
    for (long i = 0; i < rounds; i++) {
        MPI_Win_post(b->peer, 0, b->win);
        MPI_Win_wait(b->win);
    }
}

static void fence_origin(struct bench *b, const struct flight *f, size_t bytes, int count,
                         long rounds)
{
    for (long i = 0; i < rounds; i++) {
        issue(b, f, bytes, count);
        MPI_Win_fence(0, b->win);
    }
}

static void fence_target(struct bench *b, const struct flight *f, size_t bytes, int count,
                         long rounds)
{
    (void)f, (void)bytes, (void)count;
    for (long i = 0; i < rounds; i++)
        MPI_Win_fence(0, b->win);
}

static void outside(struct bench *b)
{
    (void)b;
}

#define FLUSHED {flush_origin, NULL}, enter_shared, leave_shared
#define STARTED {start_origin, post_target}, outside, outside
#define FENCED {fence_origin, fence_target}, enter_fence, leave_fence

const struct flight flights[] = {
    {"put_flush", false, FLUSHED}, {"get_flush", true, FLUSHED},
    {"put_start", false, STARTED}, {"get_start", true, STARTED},
    {"put_fence", false, FENCED},  {"get_fence", true, FENCED},
};
const int flight_count = (int)(sizeof flights / sizeof flights[0]);

static double batch_us(struct bench *b, const struct flight *f, size_t bytes, int count,
                       long rounds)
{
    f->enter(b);
    MPI_Barrier(b->comm);
    double begin = now_us();
    if (f->run[b->rank] != NULL)
        f->run[b->rank](b, f, bytes, count, rounds);
    double took = now_us() - begin;
    MPI_Barrier(b->comm);
    f->leave(b);
    MPI_Barrier(b->comm);
    return took;
}

/* A word that depends on place and side. */
static uint64_t word_at(size_t at, bool of_target)
{
    return (at + 1) * 0x9e3779b97f4a7c15u + of_target;
}

static void fill(char *memory, size_t bytes, bool of_target)
{
    uint64_t *words = (uint64_t *)(void *)memory;
    for (size_t at = 0; at < bytes / sizeof *words; at++)
        words[at] = word_at(at, of_target);
}

static bool holds(const char *memory, size_t bytes, bool of_target)
{
    const uint64_t *words = (const uint64_t *)(const void *)memory;
    uint64_t wrong = 0;
    for (size_t at = 0; at < bytes / sizeof *words; at++)
        wrong |= words[at] ^ word_at(at, of_target);
    return wrong == 0;
}

struct outcome time_flight(struct bench *b, const struct flight *f, size_t bytes, int count,
                           const struct timing *t)
{
    size_t all = (size_t)count * bytes < FLIGHT_MEMORY ? (size_t)count * bytes : FLIGHT_MEMORY;
    double *sample = malloc(sizeof *sample * (size_t)t->batches);
    if (sample == NULL) {
        fprintf(stderr, "latency: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, b->rank, 0, b->win);
    fill(b->local, all, b->rank == TARGET);
    fill(b->base, all, b->rank == TARGET);
    MPI_Win_unlock(b->rank, b->win);
    MPI_Barrier(b->comm);
    double rounds = 1;
    for (int k = 0; k < 3; k++) {
        rounds *= t->batch_us / batch_us(b, f, bytes, count, (long)rounds);
        rounds = rounds < 1 ? 1 : rounds > 1e4 ? 1e4 : rounds;
        MPI_Bcast(&rounds, 1, MPI_DOUBLE, ORIGIN, b->comm);
    }
    for (int k = 0; k < t->batches; k++)
        sample[k] = batch_us(b, f, bytes, count, (long)rounds) / ((double)(long)rounds * count);
    bool moved = f->gets ? b->rank == ORIGIN : b->rank == TARGET;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, b->rank, 0, b->win);
    int right = !moved || holds(f->gets ? b->local : b->base, all, f->gets);
    MPI_Win_unlock(b->rank, b->win);
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_LAND, b->comm);
    struct outcome outcome = {spread_of(sample, (size_t)t->batches).median, 0, right != 0};
    free(sample);
    return outcome;
}
