/* Runs one pattern in one series and reports the result. */
#ifndef MEASURE_H
#define MEASURE_H

#include "../common/stats.h"
#include "pattern.h"

struct options {
    int iterations;
    int warmup;
    double delay_us;
};

struct result {
    struct spread measured[MAX_METRICS];
    double predicted_us[MAX_METRICS];
    double delay_us; /* median of the actual delay */
    int wrong;       /* windows with a wrong byte, over all iterations */
};

/* Collective over a communicator of exactly pattern->ranks processes. The result is valid on rank
 * 0; `wrong` on all ranks. */
struct result measure(const struct pattern *, enum series, size_t bytes, MPI_Comm,
                      const struct options *);

#endif
