/*
 * Executes the steps of a schedule by MPI calls.
 *
 * The nonblocking series need the library. Built without it (PLAIN_HOST), the same source runs the
 * blocking series.
 */
#ifndef EXECUTOR_H
#define EXECUTOR_H

#include "../schedule/schedule.h"

#include <mpi.h>
#include <stdbool.h>

struct executor;

/* Callbacks of an application; `data` is its own. */
struct application {
    int (*next)(void *schedule, schedule_step *);
    /* The bytes to send by a PUT or ACCUMULATE. They must not change until the epoch is
     * complete. */
    const void *(*source)(void *data, const schedule_step *);
    void (*compute)(void *data, const schedule_step *);
    /* Where a GET stores its result, NULL if there is none. Valid when the epoch is complete. */
    void *(*destination)(void *data, const schedule_step *);
};

/* Creates a window with this rank's memory. `reorder`: NULL-terminated info keys to set to true. */
struct executor *executor_open(MPI_Comm, uint64_t window_bytes, bool nonblocking, uint64_t requests,
                               const char *const *reorder, void **memory);
/* Loads and stores on this rank's memory: clears it, or makes remote writes visible. No epoch may
 * access it; wait for the other ranks before. */
void executor_clear(struct executor *);
void executor_look(struct executor *);

/* Collective. */
void executor_close(struct executor *);

struct elapsed {
    double total_us;     /* from the common start to the end of all schedules */
    double computing_us; /* of this rank */
};

/* Runs an opened schedule to its end. Collective; all ranks start together. MPI errors are
 * fatal. */
struct elapsed executor_run(struct executor *, const struct application *, void *schedule,
                            void *data);

#endif
