#include "report.h"

#include <math.h>
#include <stdio.h>

const char *series_name(enum series series)
{
    static const char *const name[] = {"host", "blocking", "nonblocking", "off", "on"};
    return name[series];
}

/* Measured and predicted agree within the larger of 15 % and 5 us plus the wake-up time. */
static double tolerance_us(const struct report *r, double predicted_us)
{
    return fmax(0.15 * predicted_us, 5.0 + r->wake_us);
}

void report_head(const struct report *r)
{
    if (!r->json)
        printf("%s; wake-up %.1f us\n%-14s %8s %-12s %-14s %10s %8s %10s %8s  %s\n", r->host,
               r->wake_us, "case", "bytes", "series", "metric", "median us", "IQR", "predicted",
               "delay", "verdict");
}

void report_result(const struct report *r, const struct pattern *p, enum series series,
                   size_t bytes, const struct result *result)
{
    for (int k = 0; k < p->metrics; k++) {
        struct spread s = result->measured[k];
        double predicted = result->predicted_us[k], tolerance = tolerance_us(r, predicted);
        bool agrees = fabs(s.median - predicted) <= tolerance;
        if (r->json)
            printf("{\"case\":\"%s\",\"host\":\"%s\",\"series\":\"%s\",\"metric\":\"%s\","
                   "\"median_us\":%.3f,\"iqr_us\":%.3f,\"predicted_us\":%.3f,\"verified\":%s,"
                   "\"size\":%zu,\"delay_us\":%.3f,\"wake_us\":%.3f,\"tolerance_us\":%.3f,"
                   "\"agrees\":%s,\"figure\":%d}\n",
                   p->name, r->host, series_name(series), p->metric[k].name, s.median, s.iqr,
                   predicted, result->wrong == 0 ? "true" : "false", bytes, result->delay_us,
                   r->wake_us, tolerance, agrees ? "true" : "false", p->figure);
        else
            printf("%-14s %8zu %-12s %-14s %10.1f %8.1f %10.1f %8.1f  %s%s\n", p->name, bytes,
                   series_name(series), p->metric[k].name, s.median, s.iqr, predicted,
                   result->delay_us, agrees ? "agrees" : "differs",
                   result->wrong == 0 ? "" : ", WRONG BYTES");
    }
    fflush(stdout);
}
