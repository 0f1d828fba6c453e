#ifndef MICROBENCH_STATS_H
#define MICROBENCH_STATS_H

#include <stddef.h>

struct spread {
    double median;
    double first_quartile, third_quartile;
};

/* Sorts the values. */
struct spread spread_of(double *values, size_t count);

#endif
