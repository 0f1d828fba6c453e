#include "report.h"

#include <math.h>
#include <stdio.h>

const char *series_name(enum series series)
{
    static const char *const name[] = {"host", "blocking", "nonblocking", "off", "on"};
    return name[series];
}

/* Measured and predicted values agree within the larger of 15 % and 5 us plus the wake-up time. */
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

static const char *truth(bool is)
{
    return is ? "true" : "false";
}

/* Result of one metric of one pattern. */
struct line {
    const struct report *report;
    const struct pattern *pattern;
    const struct metric *metric;
    const char *series;
    size_t bytes;
    struct spread measured;
    double predicted_us, delay_us, tolerance_us;
    bool agrees, verified;
};

static void print_json(const struct line *l)
{
    const struct spread *s = &l->measured;
    printf("{\"case\":\"%s\",\"host\":\"%s\",\"series\":\"%s\",\"metric\":\"%s\",",
           l->pattern->name, l->report->host, l->series, l->metric->name);
    printf("\"median_us\":%.3f,\"iqr_us\":%.3f,\"predicted_us\":%.3f,\"verified\":%s,", s->median,
           s->third_quartile - s->first_quartile, l->predicted_us, truth(l->verified));
    printf("\"q1_us\":%.3f,\"q3_us\":%.3f,\"size\":%zu,\"delay_us\":%.3f,\"wake_us\":%.3f,",
           s->first_quartile, s->third_quartile, l->bytes, l->delay_us, l->report->wake_us);
    printf("\"tolerance_us\":%.3f,\"agrees\":%s,\"figure\":%d}\n", l->tolerance_us,
           truth(l->agrees), l->pattern->figure);
}

static void print_row(const struct line *l)
{
    const struct spread *s = &l->measured;
    printf("%-14s %8zu %-12s %-14s %10.1f %8.1f %10.1f %8.1f  %s%s\n", l->pattern->name, l->bytes,
           l->series, l->metric->name, s->median, s->third_quartile - s->first_quartile,
           l->predicted_us, l->delay_us, l->agrees ? "agrees" : "differs",
           l->verified ? "" : ", WRONG BYTES");
}

void report_result(const struct report *r, const struct pattern *p, enum series series,
                   size_t bytes, const struct result *result)
{
    for (int k = 0; k < p->metrics; k++) {
        double predicted = result->predicted_us[k], tolerance = tolerance_us(r, predicted);
        struct line line = {
            .report = r, .pattern = p, .metric = &p->metric[k], .series = series_name(series),
            .bytes = bytes, .measured = result->measured[k], .predicted_us = predicted,
            .delay_us = result->delay_us, .tolerance_us = tolerance,
            .agrees = fabs(result->measured[k].median - predicted) <= tolerance,
            .verified = result->wrong == 0,
        };
        if (r->json)
            print_json(&line);
        else
            print_row(&line);
    }
    fflush(stdout);
}
