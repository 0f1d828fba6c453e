/*
 * Latencies of one-sided communication between two ranks. Plain MPI: the same source is built with
 * and without the library, and a driver alternates the programs.
 *
 * Rank 0 is the origin and reads the clock, rank 1 the target. A passive target waits in
 * MPI_Barrier, that is, inside MPI, as hosts need.
 */
#ifndef LATENCY_H
#define LATENCY_H

#include "../common/lines.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORIGIN, TARGET, RANKS };

/* The scenarios run on the first two kinds; all kinds are created and freed. */
enum window_kind { ALLOCATED, CREATED, WINDOW_KINDS, SHARED = WINDOW_KINDS, DYNAMIC, ALL_KINDS };

enum { LARGEST = 1 << 20 }; /* largest operation in bytes */

enum { STRIDED_BLOCKS = 1000 }; /* blocks of 8 bytes, 16 bytes apart */

/* The machine's limits, in microseconds. */
enum sized { BYTES_8, BYTES_4K, BYTES_64K, BYTES_1M, SIZES };
extern const size_t size_in_bytes[SIZES];

struct limits {
    double half_round_trip;      /* a cache line from one rank to the other */
    double atomic;               /* an atomic exchange in the rank's own cache */
    double copy[SIZES];          /* memcpy into the other rank's memory */
    double attached_copy[SIZES]; /* process_vm_writev into it */
};

/* All functions are collective over the two ranks. Valid on the origin. `local` and `lines` have
 * LARGEST bytes. */
struct limits measure_limits(struct lines *, char *local);

/* Rounds that are timed singly. */
struct laps {
    bool on;
    double last;    /* end of the last one */
    double longest; /* in microseconds */
};

/* One window, and buffers, on one rank. */
struct bench {
    MPI_Comm comm;
    int rank;
    MPI_Group peer; /* the other rank only */
    struct lines lines;
    bool apart; /* the ranks are on two nodes */
    enum window_kind kind;
    MPI_Win win;
    MPI_Aint there; /* displacement of the target's memory, for operations in flight */
    char *base;   /* own window memory: LARGEST bytes for each origin */
    char *local;  /* origin or result buffer, LARGEST bytes */
    int64_t last; /* result of the last fetch */
    struct laps laps;
};

void end_lap(struct bench *);

/* Called at the end of each round. */
static inline void lap(struct bench *b)
{
    if (b->laps.on)
        end_lap(b);
}

enum measure {
    TIME,         /* microseconds */
    TIME_OF_BOTH, /* microseconds, if both ranks do the same work independently */
    RATE,         /* operations per microsecond */
};

struct scenario {
    const char *name;
    enum sized size;
    enum measure measure;
    int per_round; /* operations of one rank per round of `run` */
    /* Called on both ranks `rounds` times; NULL: the target waits in MPI_Barrier. */
    void (*run[RANKS])(struct bench *, size_t bytes, long rounds);
    /* Around the timed part, on both ranks. NULL: nothing. */
    void (*enter)(struct bench *);
    void (*leave)(struct bench *);
    /* Before a batch; afterwards, whether its results are right. On both ranks. */
    void (*prepare)(struct bench *, size_t bytes, uint64_t batch);
    bool (*right)(struct bench *, size_t bytes, uint64_t batch, long rounds);
    double (*limit)(const struct limits *, enum window_kind, enum sized);
};

extern const struct scenario scenarios[];
extern const int scenario_count;

struct timing {
    int batches;
    double batch_us; /* length of one batch */
    long laps;       /* rounds that are timed singly */
};

struct outcome {
    double median;  /* on the origin */
    double longest; /* of the rounds that were timed singly, on both ranks; 0: none were */
    bool right;     /* on both ranks */
};

/* Collective. */
struct outcome time_scenario(struct bench *, const struct scenario *, const struct timing *);

/* The origin locks the target for all rounds; both open and close fence epochs. */
void enter_shared(struct bench *);
void leave_shared(struct bench *);
void enter_fence(struct bench *);
void leave_fence(struct bench *);

/* Data of a batch, zeroed counters, and their checks. */
void prepare_put(struct bench *, size_t bytes, uint64_t batch);
bool put_is_right(struct bench *, size_t bytes, uint64_t batch, long rounds);
bool contended_put_is_right(struct bench *, size_t bytes, uint64_t batch, long rounds);
void prepare_get(struct bench *, size_t bytes, uint64_t batch);
bool get_is_right(struct bench *, size_t bytes, uint64_t batch, long rounds);
void prepare_sum(struct bench *, size_t bytes, uint64_t batch);
bool sum_is_right(struct bench *, size_t bytes, uint64_t batch, long rounds);
bool fetch_is_right(struct bench *, size_t bytes, uint64_t batch, long rounds);
bool get_accumulate_is_right(struct bench *, size_t bytes, uint64_t batch, long rounds);

void prepare_strided(struct bench *, size_t bytes, uint64_t batch);
bool strided_put_is_right(struct bench *, size_t bytes, uint64_t batch, long rounds);
bool strided_get_is_right(struct bench *, size_t bytes, uint64_t batch, long rounds);
void prepare_strided_sum(struct bench *, size_t bytes, uint64_t batch);
bool strided_sum_is_right(struct bench *, size_t bytes, uint64_t batch, long rounds);

/* Puts by several threads of the origin at once: total rate in millions per second. Collective;
 * needs MPI_THREAD_MULTIPLE. */
struct outcome time_threads(struct bench *, int threads, const struct timing *);

/* Operations of one kind on one window, all of them in flight at once. */
struct flight {
    const char *name; /* of operation and synchronization */
    bool gets;
    void (*run[RANKS])(struct bench *, const struct flight *, size_t bytes, int count, long rounds);
    void (*enter)(struct bench *); /* as in a scenario */
    void (*leave)(struct bench *);
};

enum { FLIGHT_LARGEST = 4 << 20, FLIGHT_MEMORY = 64 << 20 };
extern const struct flight flights[];
extern const int flight_count;
extern const size_t flight_bytes[];
extern const int flight_sizes;

/* Collective. Time of one operation of `count` in flight; `b->base` and `b->local` have
 * FLIGHT_MEMORY bytes. */
struct outcome time_flight(struct bench *, const struct flight *, size_t bytes, int count,
                           const struct timing *);

#endif
