/*
 * One-sided communication among all ranks of a job: each figure with any number of ranks. Plain
 * MPI; scale.py runs the same binary with and without the library.
 */
#ifndef SCALE_H
#define SCALE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum window_kind { ALLOCATED, CREATED, WINDOW_KINDS };

/* Each rank's window has a location of SLOT bytes for each origin, then one with a counter. */
enum { SLOT = 65536 };

/* One window, and buffers, on one rank. */
struct bench {
    int rank, ranks;
    enum window_kind kind;
    MPI_Win win;
    char *base;       /* own window memory */
    char *local;      /* origin or result buffer, SLOT bytes */
    MPI_Group others; /* all ranks but this one */
    MPI_Group before, behind; /* the neighbours in the ring */
    int64_t sum;      /* of all values that were fetched */
    bool laps;        /* whether each round is timed */
    double lap_begin, longest; /* in microseconds */
};

struct scenario {
    const char *name;
    size_t bytes;
    /* Called on all ranks `rounds` times. */
    void (*run)(struct bench *, size_t bytes, long rounds);
    /* Around the timed part, on all ranks. NULL: nothing. */
    void (*enter)(struct bench *);
    void (*leave)(struct bench *);
    /* After a batch, between barriers: whether the own window and buffers are right. */
    bool (*right)(struct bench *, size_t bytes, long rounds);
    int least; /* ranks */
};

extern const struct scenario scenarios[];
extern const int scenario_count;

/* Fills the origin buffer and the own window for a batch. */
void prepare(struct bench *, size_t bytes, uint64_t batch);

/* Called at the end of each round. */
void end_lap(struct bench *);
static inline void lap(struct bench *b)
{
    if (b->laps)
        end_lap(b);
}

#endif
