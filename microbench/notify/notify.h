/* Ways to give another rank data and to let it know: ping-pong and rate of each (main.c, rate.c), and what programs do with
 * them (patterns.c by links.c). Every message carries numbers that its receiver checks. Each result is a JSON line;
 * notify.py merges. */
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
extern MPI_Win win;      /* WINDOW bytes of each rank, all locked shared */
extern char *base;       /* this rank's */
extern char *local;      /* LARGEST bytes */
extern bool right;       /* everything that was received was right */
extern int64_t told[COUNTERS]; /* notifications of a counter that were waited for */
extern MPI_Request tagged;     /* persistent: a tagged put of the other one of two ranks */

struct timing {
    int batches;
    double batch_us; /* length of one batch */
};

/* Prints the median of what `batch` gives for so many rounds; with `rate`, per microsecond instead of microseconds. Collective. */
void measure(const char *bench, const char *way, size_t bytes, bool rate, const struct timing *, double (*batch)(size_t bytes, long rounds));

/* Waits for a tagged put, and sees who it is of. */
void await_tagged(void);

/* The number of a message in its first and last word. */
void mark(char *at, size_t bytes, int64_t number);
void check(const char *at, size_t bytes, int64_t number);

/* Messages one after the other, many under way. Two ranks. */
void measure_rates(size_t bytes, const struct timing *);

/* A ring of ranks that pass chunks on, and a tree that sums. Any number of ranks from 2 on. */
void measure_patterns(size_t bytes, const struct timing *);

#endif
