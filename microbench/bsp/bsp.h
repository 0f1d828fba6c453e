/*
 * Bulk-synchronous programs, after "Task-Aware LPF" (TALPF, 2023), chapter 7: each rank computes,
 * sends to the same few ranks, and synchronizes. Each program runs with several kinds of
 * synchronization, and compares its answer with that of one process after every run.
 */
#ifndef BSP_H
#define BSP_H

#include <stdbool.h>
#include <stddef.h>

enum mode {
    BARRIER,   /* puts between fences, which are barriers */
    PATTERN,   /* the same; the fences wait for neighbours: mpix_rma_fence=pattern */
    NOTIFIED,  /* puts that raise a counter (mpix_rma_notify_puts), and waits for it */
    TWO_SIDED, /* MPI_Isend, MPI_Irecv, MPI_Waitall */
    MODES
};

struct setup {
    enum mode mode;
    int rank, ranks;
    long size; /* rows and columns, or particles, of all ranks */
    long iterations;
};
extern struct setup setup;

struct program {
    const char *name;
    long size, iterations; /* defaults */
    void (*open)(void);    /* allocates, and computes the answer of one process */
    void (*reset)(void);   /* the data at the beginning of a run */
    void (*run)(void);
    long (*wrong)(void);   /* number of wrong values after a run, in this rank */
    void (*close)(void);
};
extern const struct program jacobi, gauss_seidel, nbody, matmul;

/* Ends the job with a message if the condition does not hold. */
void require(bool condition, const char *what);

/* Zeroed memory. */
double *numbers(size_t count);

/* A number in [0, 1) that depends on the index alone. */
double number_of(long index);

/* How many of the values differ, in any bit. */
long differences(const double *found, const double *expected, long count);

#endif
