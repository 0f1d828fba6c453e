/* Makes the steps of a schedule by MPI calls.
 *
 * Needs the library for the nonblocking series; the same source without it (PLAIN_HOST) runs the blocking one. */
#ifndef EXECUTOR_H
#define EXECUTOR_H

#include "../schedule/schedule.h"

#include <mpi.h>
#include <stdbool.h>

struct executor;

/* What an application is to its executor. `data` is its own. */
struct application {
    int (*next)(void *schedule, schedule_step *);
    /* The bytes that a PUT or ACCUMULATE sends. They stay as they are until the epoch is complete. */
    const void *(*source)(void *data, const schedule_step *);
    void (*compute)(void *data, const schedule_step *);
    /* Where a GET puts its bytes; NULL if there is none. They are there when the epoch is complete. */
    void *(*destination)(void *data, const schedule_step *);
};

/* A window to run on, with this rank's memory. `reorder`: info keys, ended by NULL, that are set to true. */
struct executor *executor_open(MPI_Comm, uint64_t window_bytes, bool nonblocking, uint64_t requests,
                               const char *const *reorder, void **memory);
/* Loads and stores of this rank's memory: clears it, or makes what others wrote visible. Nobody may be in an epoch
 * towards it; wait for the others before. */
void executor_clear(struct executor *);
void executor_look(struct executor *);

/* Collective. */
void executor_close(struct executor *);

struct elapsed {
    double total_us;     /* from the common start to the end of all schedules */
    double computing_us; /* of this rank */
};

/* Runs an opened schedule to its end. Collective: all begin together. Any error of MPI ends the program. */
struct elapsed executor_run(struct executor *, const struct application *, void *schedule, void *data);

#endif
