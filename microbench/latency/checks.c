/*
 * Bytes and sums that verify a batch. A rank accesses its own window memory inside a lock on
 * itself, as MPI requires.
 */
#include "latency.h"

#include <string.h>

static void hold_own_window(struct bench *b)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, b->rank, 0, b->win);
}

static void release_own_window(struct bench *b)
{
    MPI_Win_unlock(b->rank, b->win);
}

/* A byte that depends on batch, rank and position. */
static char byte_at(uint64_t batch, int rank, size_t at)
{
    return (char)((at * 167 + (at >> 8) * 59 + batch * 101 + (uint64_t)rank * 37 + 1) & 0xff);
}

static void fill(char *bytes, size_t count, uint64_t batch, int rank)
{
    for (size_t at = 0; at < count; at++)
        bytes[at] = byte_at(batch, rank, at);
}

static bool holds(const char *bytes, size_t count, uint64_t batch, int rank)
{
    for (size_t at = 0; at < count; at++)
        if (bytes[at] != byte_at(batch, rank, at))
            return false;
    return true;
}

void prepare_put(struct bench *b, size_t bytes, uint64_t batch)
{
    fill(b->local, bytes, batch, b->rank);
}

bool put_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    (void)rounds;
    if (b->rank != TARGET)
        return true;
    hold_own_window(b);
    bool right = holds(b->base, bytes, batch, ORIGIN);
    release_own_window(b);
    return right;
}

bool contended_put_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    (void)rounds;
    if (b->rank != TARGET)
        return true;
    hold_own_window(b);
    bool right = holds(b->base, bytes, batch, ORIGIN) &&
                 holds(b->base + LARGEST, bytes, batch, TARGET);
    release_own_window(b);
    return right;
}

void prepare_get(struct bench *b, size_t bytes, uint64_t batch)
{
    if (b->rank == ORIGIN) {
        memset(b->local, 0, bytes);
        return;
    }
    hold_own_window(b);
    fill(b->base, bytes, batch, TARGET);
    release_own_window(b);
}

bool get_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    (void)rounds;
    return b->rank != ORIGIN || holds(b->local, bytes, batch, TARGET);
}

/* Every operation adds 1 to every element. */
void prepare_sum(struct bench *b, size_t bytes, uint64_t batch)
{
    (void)batch;
    size_t count = bytes / sizeof(int64_t);
    if (b->rank == ORIGIN) {
        for (size_t i = 0; i < count; i++)
            ((int64_t *)(void *)b->local)[i] = 1;
        return;
    }
    hold_own_window(b);
    memset(b->base, 0, bytes);
    release_own_window(b);
}

bool sum_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    (void)batch;
    if (b->rank != TARGET)
        return true;
    bool right = true;
    hold_own_window(b);
    for (size_t i = 0; i < bytes / sizeof(int64_t); i++)
        right &= ((const int64_t *)(void *)b->base)[i] == rounds;
    release_own_window(b);
    return right;
}

bool fetch_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    if (b->rank == ORIGIN)
        return b->last == rounds - 1;
    return sum_is_right(b, bytes, batch, rounds);
}

bool get_accumulate_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    if (b->rank != ORIGIN)
        return sum_is_right(b, bytes, batch, rounds);
    bool right = true;
    const int64_t *fetched = (const int64_t *)(void *)(b->local + LARGEST / 2);
    for (size_t i = 0; i < bytes / sizeof(int64_t); i++)
        right &= fetched[i] == rounds - 1;
    return right;
}

/* One number per word of a strided operation, gaps included. */
static int64_t word_at(uint64_t batch, int rank, int at)
{
    return (int64_t)(batch * 1000003 + (uint64_t)rank * 10007 + (uint64_t)at);
}

void prepare_strided(struct bench *b, size_t bytes, uint64_t batch)
{
    (void)bytes;
    hold_own_window(b);
    for (int at = 0; at < 2 * STRIDED_BLOCKS; at++) {
        ((int64_t *)b->local)[at] = word_at(batch, b->rank, at);
        ((int64_t *)b->base)[at] = word_at(batch, b->rank + RANKS, at);
    }
    release_own_window(b);
}

static bool strided_words(const char *memory, uint64_t batch, int in, int between)
{
    for (int at = 0; at < 2 * STRIDED_BLOCKS; at++)
        if (((const int64_t *)memory)[at] != word_at(batch, at % 2 == 0 ? in : between, at))
            return false;
    return true;
}

bool strided_put_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    (void)bytes, (void)rounds;
    if (b->rank != TARGET)
        return true;
    hold_own_window(b);
    bool right = strided_words(b->base, batch, ORIGIN, TARGET + RANKS);
    release_own_window(b);
    return right;
}

bool strided_get_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    (void)bytes, (void)rounds;
    return b->rank != ORIGIN || strided_words(b->local, batch, TARGET + RANKS, ORIGIN);
}

void prepare_strided_sum(struct bench *b, size_t bytes, uint64_t batch)
{
    prepare_strided(b, bytes, batch);
    hold_own_window(b);
    memset(b->base, 0, 2 * STRIDED_BLOCKS * sizeof(int64_t));
    release_own_window(b);
}

bool strided_sum_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    (void)bytes;
    if (b->rank != TARGET)
        return true;
    bool right = true;
    hold_own_window(b);
    for (int at = 0; at < 2 * STRIDED_BLOCKS && right; at++)
        right = ((const int64_t *)b->base)[at] ==
                (at % 2 == 0 ? rounds * word_at(batch, ORIGIN, at) : 0);
    release_own_window(b);
    return right;
}
