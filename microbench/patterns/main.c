/*
 * patterns: the microbenchmarks of "Nonblocking Epochs in MPI One-Sided Communication", section
 * VIII.A. The exit status reports wrong bytes, never timing.
 */
#include "../common/host.h"
#include "../common/options.h"
#include "../common/timing.h"
#include "harness.h"
#include "report.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double IDLE_NAP_US = 1000.0; /* ranks that a pattern does not need */

struct command {
    struct options options;
    const char *pattern; /* NULL: all that the number of ranks allows */
    size_t max_bytes;
    bool json;
    bool list;
};

static void usage(FILE *out)
{
    fputs("usage: mpiexec -n RANKS patterns [options]\n"
          "  -p, --pattern NAME      only this pattern (default: all that fit into the ranks)\n"
          "  -i, --iterations COUNT  measured iterations (default 100)\n"
          "  -d, --delay-us TIME     how late the late process is (default 1000)\n"
          "  -m, --max-bytes COUNT   leave out larger sizes of patterns that have several\n"
          "  -j, --json              JSON lines instead of a table\n"
          "  -l, --list              print names, ranks and lines of results, and stop\n"
          "  -h, --help\n",
          out);
}

static struct command parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"pattern", required_argument, NULL, 'p'},   {"iterations", required_argument, NULL, 'i'},
        {"delay-us", required_argument, NULL, 'd'},  {"max-bytes", required_argument, NULL, 'm'},
        {"json", no_argument, NULL, 'j'},            {"list", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},            {NULL, 0, NULL, 0},
    };
    struct command c = {.options = {100, 3, 1000.0}, .max_bytes = (size_t)-1};
    int o;
    while ((o = getopt_long(argc, argv, "p:i:d:m:jlh", known, NULL)) != -1) {
        switch (o) {
        case 'p': c.pattern = optarg; break;
        case 'i': c.options.iterations = (int)positive(optarg, "--iterations"); break;
        case 'd': c.options.delay_us = positive(optarg, "--delay-us"); break;
        case 'm': c.max_bytes = (size_t)positive(optarg, "--max-bytes"); break;
        case 'j': c.json = true; break;
        case 'l': c.list = true; break;
        case 'h': usage(stdout); exit(0);
        default: usage(stderr); exit(2);
        }
    }
    if (optind < argc) {
        usage(stderr);
        exit(2);
    }
    return c;
}

/* The patterns of both tables. */
static int pattern_count(void)
{
    return inefficiency_pattern_count + reorder_pattern_count;
}

static const struct pattern *pattern_at(int k)
{
    return k < inefficiency_pattern_count ? &inefficiency_patterns[k]
                                          : &reorder_patterns[k - inefficiency_pattern_count];
}

/* The series that this program can run for a pattern, ending with -1. */
static const int *series_of(const struct pattern *p)
{
#ifdef PLAIN_HOST
    static const int three[] = {HOST, -1}, flag[] = {-1};
#else
    static const int three[] = {BLOCKING, NONBLOCKING, -1}, flag[] = {FLAG_OFF, FLAG_ON, -1};
#endif
    return p->reorder_key == NULL ? three : flag;
}

static bool wanted_size(const struct pattern *p, const size_t *bytes, const struct command *c)
{
    return bytes == p->sizes || *bytes <= c->max_bytes;
}

static void list_pattern(const struct pattern *p, const struct command *c)
{
    int sizes = 0, series = 0;
    for (const size_t *bytes = p->sizes; *bytes != 0; bytes++)
        sizes += wanted_size(p, bytes, c);
    while (series_of(p)[series] >= 0)
        series++;
    if (series > 0)
        printf("%s %d %d\n", p->name, p->ranks, sizes * series * p->metrics);
}

static int run_pattern(const struct pattern *p, MPI_Comm comm, const struct command *c,
                       const struct report *report)
{
    int rank, wrong = 0;
    MPI_Comm_rank(comm, &rank);
    for (const size_t *bytes = p->sizes; *bytes != 0; bytes++) {
        if (!wanted_size(p, bytes, c))
            continue;
        for (const int *series = series_of(p); *series >= 0; series++) {
            struct result result = measure(p, (enum series)*series, *bytes, comm, &c->options);
            if (rank == 0)
                report_result(report, p, (enum series)*series, *bytes, &result);
            wrong += result.wrong;
        }
    }
    return wrong;
}

/* Runs the pattern on the first ranks; the others sleep. */
static int run_on_first_ranks(const struct pattern *p, const struct command *c,
                              const struct report *report)
{
    int rank, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, rank < p->ranks ? 0 : MPI_UNDEFINED, rank, &comm);
    if (comm != MPI_COMM_NULL) {
        wrong = run_pattern(p, comm, c, report);
        MPI_Comm_free(&comm);
    }
    barrier_politely(MPI_COMM_WORLD, IDLE_NAP_US);
    return wrong;
}

int main(int argc, char **argv)
{
    struct command c = parse(argc, argv);
    if (c.list) {
        for (int k = 0; k < pattern_count(); k++)
            list_pattern(pattern_at(k), &c);
        return 0;
    }

    MPI_Init(&argc, &argv);
    sharpen_timers();
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) {
        fprintf(stderr, "patterns: needs 2 ranks at least\n");
        MPI_Finalize();
        return 2;
    }
    struct report report = {c.json, measured_wake_us(MPI_COMM_WORLD, c.options.delay_us),
                            host_name()};
    if (rank == 0)
        report_head(&report);

    int matching = 0, wrong = 0;
    for (int k = 0; k < pattern_count(); k++) {
        const struct pattern *p = pattern_at(k);
        if (p->ranks > ranks || (c.pattern != NULL && strcmp(c.pattern, p->name) != 0))
            continue;
        matching++;
        wrong += run_on_first_ranks(p, &c, &report);
    }
    if (rank == 0 && matching == 0)
        fprintf(stderr, "patterns: no such pattern for %d ranks\n", ranks);
    MPI_Finalize();
    return matching == 0 ? 2 : wrong > 0 ? 1 : 0;
}
