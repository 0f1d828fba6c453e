/*
 * The ten patterns of "Nonblocking Epochs in MPI One-Sided Communication" (2014), section VIII.A.
 *
 * A pattern is a table entry: one role per rank, what each role measures, and what the paper's
 * equations predict. Roles are written once and run in every series; epochs.h decides whether an
 * epoch is closed by MPI_Win_complete or MPIX_Win_icomplete.
 *
 * Every iteration runs twice: calm (no delay, every epoch completes where it is closed) and
 * delayed. The calm one measures transfer times, from which the delayed one is predicted.
 */
#ifndef PATTERN_H
#define PATTERN_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

enum { MAX_RANKS = 4, MAX_PUTS = 3, MAX_METRICS = 3 };

enum series {
    HOST,        /* plain MPI; only in the program built without the library */
    BLOCKING,    /* MPI's own calls, on the library's engine */
    NONBLOCKING, /* MPIX_Win_i* */
    FLAG_OFF,    /* MPIX_Win_i*, reorder flag false */
    FLAG_ON,     /* MPIX_Win_i*, reorder flag true */
};

/* What a role records, in microseconds after the common start (DELAY: a duration). */
enum slot {
    DELAY,    /* actual delay or work of this rank */
    FIRST,    /* its first epoch is complete */
    SECOND,   /* its second epoch is complete */
    ACTIVITY, /* the activity after its epoch has begun (Early Fence) or ended (Late Post) */
    ALL,      /* everything the role does is complete */
    SLOTS
};

/* One iteration, as seen by one rank. */
struct iteration {
    MPI_Comm comm;
    MPI_Win win;
    const MPI_Group *group; /* group[r] has only rank r */
    int rank;
    bool nonblocking;
    bool delayed;
    double delay_us;  /* intended; stamp[DELAY] is the actual one */
    double start_us;  /* common start, on the shared clock */
    size_t bytes;     /* of one put */
    char *source;     /* this iteration's bytes of this rank */
    char *message;    /* for two-sided communication */
    MPI_Request pending[SLOTS];
    double stamp[SLOTS];
};

/* Code of a rank: `prepare` before the common start, `run` after it. NULL: nothing. */
struct role {
    void (*prepare)(struct iteration *);
    void (*run)(struct iteration *);
};

/* The bytes of rank `origin` must arrive in the window of rank `target`. */
struct transfer {
    int origin, target;
};

/* Medians of the calm iterations, and the median delay of the delayed ones. */
struct calm {
    double median[MAX_RANKS][SLOTS];
    double delay_us;
    int middle; /* rank with two epochs */
};

struct metric;
typedef double prediction(const struct calm *, const struct metric *);

struct metric {
    const char *name;
    int rank;
    enum slot slot;
    prediction *propagated; /* host, blocking, flag off */
    prediction *mitigated;  /* nonblocking, flag on */
};

struct pattern {
    const char *name;
    int figure; /* in the paper */
    int ranks;
    const char *reorder_key; /* info key of the flag; NULL: the three-series patterns */
    bool passive;            /* targets make no epoch calls */
    const size_t *sizes;     /* ends with 0 */
    int delayed_rank;
    int middle_rank;
    struct role role[MAX_RANKS];
    int transfers;
    struct transfer transfer[MAX_PUTS];
    int metrics;
    struct metric metric[MAX_METRICS];
};

extern const size_t ONE_MB_ONLY[];

extern const struct pattern inefficiency_patterns[];
extern const int inefficiency_pattern_count;
extern const struct pattern reorder_patterns[];
extern const int reorder_pattern_count;

/* Predictions; see predict.c. */
prediction with_delay, without_delay, activity_alone, activity_or_delayed_epoch, delay_or_epoch;
prediction immediately, second_alone, delay_and_first;

#endif
