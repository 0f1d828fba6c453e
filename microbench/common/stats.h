#ifndef MICROBENCH_STATS_H
#define MICROBENCH_STATS_H

#include <stddef.h>

struct spread {
    double median;
    double iqr; /* third quartile minus first */
};

/* Sorts the values. */
struct spread spread_of(double *values, size_t count);

#endif
