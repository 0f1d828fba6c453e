/* A run of a program whose answer is checked. */
#ifndef VERIFIED_H
#define VERIFIED_H

#include "timing.h"

#include <mpi.h>

/* Runs a program from its beginning. Returns the microseconds of the slowest rank, and in `wrong`
 * the number of wrong values on all ranks. */
static inline double run_verified(void (*reset)(void), void (*run)(void), long (*count_wrong)(void),
                                  long *wrong)
{
    reset();
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us(), took;
    run();
    took = now_us() - begin;
    *wrong = count_wrong();
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return took;
}

#endif
