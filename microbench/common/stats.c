#include "stats.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t count, double q)
{
    double place = q * (double)(count - 1);
    size_t below = (size_t)place;
    size_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

struct spread spread_of(double *values, size_t count)
{
    struct spread s = {0.0, 0.0, 0.0};
    if (count == 0)
        return s;
    qsort(values, count, sizeof *values, ascending);
    s.median = quantile(values, count, 0.5);
    s.first_quartile = quantile(values, count, 0.25);
    s.third_quartile = quantile(values, count, 0.75);
    return s;
}
