/*
 * Programs with tasks that communicate, after "Integrating blocking and non-blocking MPI primitives
 * with task-based programming models" (2019) and "Combining one-sided communications with
 * task-based programming models" (2021). Each has several versions that differ in how they
 * communicate, and compares its answer with that of one process after every run.
 */
#ifndef TASKS_H
#define TASKS_H

#include <stdbool.h>
#include <stddef.h>

enum version {
    PURE,           /* blocking messages, no tasks */
    NBUFFER,        /* messages per block that overlap with computing, no tasks */
    FORKJOIN,       /* tasks compute, and between them the main thread exchanges messages */
    SENTINEL,       /* tasks with blocking messages, one after the other */
    BLOCKING,       /* tasks with blocking messages, which pause (MPI_TASK_MULTIPLE) */
    TWO_SIDED,      /* tasks that complete with their messages: MPIX_Task_iwait */
    NOTIFIED,       /* the same with notified puts and waits for notifications */
    TWO_SIDED_CONT, /* as TWO_SIDED, with continuations that complete the tasks */
    NOTIFIED_CONT,  /* as NOTIFIED, with continuations */
    VERSIONS
};

struct setup {
    enum version version;
    int rank, ranks, workers;
    long block;               /* elements of a block per dimension */
    long rows, columns;       /* of all ranks */
    long iterations;
    double delay_us;          /* one rank, another one in each iteration, computes that long */
    unsigned seed;            /* of that choice */
};
extern struct setup setup;

struct program {
    const char *name;
    unsigned versions;    /* bits */
    void (*open)(void);   /* allocates, makes the graph */
    void (*reset)(void);  /* the data at the beginning of a run */
    void (*run)(void);
    long (*wrong)(void);  /* number of wrong values after a run, in this rank */
    void (*close)(void);
};
extern const struct program gauss_seidel, streaming, ifsker, amr;

/* Ends the job with a message if the condition does not hold. */
void require(bool condition, const char *what);

/* Computes for the delay if it is this rank's turn in this iteration. */
void delay(long iteration);

/* A number in [0, 1) that depends on the index alone. */
double number_of(long index);

#endif
