/*
 * Ways to send another rank data and notify it: ping-pong and rate of each (main.c, rate.c), and
 * communication patterns of programs (patterns.c, over links.c). Receivers check numbers in every
 * message. Each result is a JSON line; notify.py merges them.
 */
#ifndef NOTIFY_H
#define NOTIFY_H

#ifdef PLAIN_HOST
#include <mpi.h>
#else
#include <mpix_rma.h>
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LARGEST = 4 << 20, FLAG = LARGEST, WINDOW = LARGEST + 4096 };
enum { COUNTERS = 256 };
enum { TAG = 4711 };

extern int rank, ranks;
extern MPI_Win win;      /* WINDOW bytes of each rank, under shared locks */
extern char *base;       /* this rank's */
extern char *local;      /* LARGEST bytes */
extern bool right;       /* whether all received data were right */
extern int64_t told[COUNTERS]; /* notifications of a counter so far */
extern MPI_Request tagged;     /* persistent request for a tagged put of the other rank */

struct timing {
    int batches;
    double batch_us; /* length of one batch */
};

/* Prints the median of `batch` over that many rounds; with `rate`, per microsecond instead of in
 * microseconds. Collective. */
void measure(const char *bench, const char *way, size_t bytes, bool rate, const struct timing *,
             double (*batch)(size_t bytes, long rounds));

/* Waits for a tagged put and checks its source. */
void await_tagged(void);

/* The number of a message, in its first and last word. */
void mark(char *at, size_t bytes, int64_t number);
void check(const char *at, size_t bytes, int64_t number);

/* Streams of messages, many in flight. Two ranks. */
void measure_rates(size_t bytes, const struct timing *);

/* A ring of ranks that forwards chunks, and a tree that sums. Two ranks or more. */
void measure_patterns(size_t bytes, const struct timing *);

#endif
