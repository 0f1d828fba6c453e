#ifndef REPORT_H
#define REPORT_H

#include "measure.h"

/* Output on standard output: a table, or JSON lines. */
struct report {
    bool json;
    double wake_us;
    const char *host;
};

const char *series_name(enum series);
void report_head(const struct report *);
void report_result(const struct report *, const struct pattern *, enum series, size_t bytes,
                   const struct result *);

#endif
