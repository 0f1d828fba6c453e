/*
 * lu: LU decomposition with rows broadcast one-sidedly, section VIII.B of "Nonblocking Epochs in
 * MPI One-Sided Communication". The exit status reports a wrong decomposition, never timing.
 */
#include "../common/host.h"
#include "../executor/command.h"
#include "../executor/executor.h"
#include "../executor/series.h"
#include "matrix.h"

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const in_order[] = {NULL};
#ifdef PLAIN_HOST
static const struct series all_series[] = {{"host", false, in_order}};
#else
/* Legal because concurrent epochs never touch the same memory: see microbench/README.md. */
static const char *const reordered[] = {
    "mpix_win_exposure_after_exposure_reorder", "mpix_win_exposure_after_access_reorder",
    "mpix_win_access_after_exposure_reorder", "mpix_win_access_after_access_reorder", NULL};
static const struct series all_series[] = {{"blocking", false, in_order},
                                           {"nonblocking", true, in_order},
                                           {"nonblocking_reorder", true, reordered}};
#endif
enum { SERIES = sizeof all_series / sizeof all_series[0] };

struct command {
    uint64_t m, depth, ahead, repeat, seed;
    const struct series *only; /* NULL: all; the reordered one only if requested */
    bool reorder, json;
};

/* Data of the schedule's steps. */
struct decomposition {
    struct matrix matrix;
    const double *ring; /* this rank's window */
    uint64_t depth;
};

static const void *source(void *data, const schedule_step *step)
{
    struct decomposition *d = data;
    return matrix_row(&d->matrix, step->work) + step->work;
}

static void compute(void *data, const schedule_step *step)
{
    struct decomposition *d = data;
    uint64_t pivot = step->work;
    const double *row = pivot % d->matrix.ranks == d->matrix.rank
                            ? matrix_row(&d->matrix, pivot)
                            : d->ring + pivot % d->depth * d->matrix.m;
    matrix_update(&d->matrix, row, pivot, step->first, step->rows);
}

static const struct application lu = {schedule_lu_next, source, compute, NULL};

static void usage(FILE *out)
{
    fputs("usage: mpiexec -n RANKS lu [options]\n"
          "  -m, --size COUNT     rows and columns of the matrix (default 1000)\n"
          "  -d, --depth COUNT    rows that a rank has room for (default 8)\n"
          "  -a, --ahead 0|1      1: the next row is updated and broadcast before all others are "
          "(default 0)\n"
          "  -n, --repeat COUNT   decompositions of each series, in turns (default 1)\n"
          "  -s, --seed NUMBER    of the matrix (default 1)\n"
          "  -S, --series NAME    only this one: host, or blocking, nonblocking, "
          "nonblocking_reorder\n"
          "  -r, --reorder        also the series with reordered epochs\n"
          "  -j, --json           JSON lines instead of a table\n"
          "  -h, --help\n",
          out);
}

/* The exit status, or -1 to continue. */
static int parse(int argc, char **argv, struct command *c)
{
    static const struct option known[] = {
        {"size", required_argument, NULL, 'm'},   {"depth", required_argument, NULL, 'd'},
        {"ahead", required_argument, NULL, 'a'},  {"repeat", required_argument, NULL, 'n'},
        {"seed", required_argument, NULL, 's'},   {"series", required_argument, NULL, 'S'},
        {"reorder", no_argument, NULL, 'r'},      {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    bool good = true;
    int o;
    opterr = first_rank();
    while ((o = getopt_long(argc, argv, "m:d:a:n:s:S:rjh", known, NULL)) != -1) {
        switch (o) {
        case 'm': good &= whole_number("lu", "--size", optarg, 1, INT_MAX, &c->m); break;
        case 'd': good &= whole_number("lu", "--depth", optarg, 1, INT_MAX, &c->depth); break;
        case 'a': good &= whole_number("lu", "--ahead", optarg, 0, 1, &c->ahead); break;
        case 'n': good &= whole_number("lu", "--repeat", optarg, 1, INT_MAX, &c->repeat); break;
        case 's': good &= whole_number("lu", "--seed", optarg, 0, UINT64_MAX, &c->seed); break;
        case 'S':
            c->only = series_named(all_series, SERIES, optarg);
            if (c->only == NULL)
                complain("lu", "this program has no series \"%s\"", optarg);
            good &= c->only != NULL;
            break;
        case 'r': c->reorder = true; break;
        case 'j': c->json = true; break;
        case 'h':
            if (first_rank())
                usage(stdout);
            return 0;
        default: good = false;
        }
    }
    if (good && optind < argc) {
        complain("lu", "there is no argument \"%s\"", argv[optind]);
        good = false;
    }
    if (!good && first_rank())
        fputs("try lu --help\n", stderr);
    return good ? -1 : 2;
}

static void print(const struct command *c, const struct series *series, int ranks, double seconds,
                  double share, const struct verdict *v)
{
    if (c->json) {
        printf("{\"name\":\"lu\",\"host\":\"%s\",\"series\":\"%s\",\"ranks\":%d,\"m\":%" PRIu64
               ",\"depth\":%" PRIu64 ",\"ahead\":%" PRIu64 ",\"seed\":%" PRIu64
               ",\"seconds\":%.9g,\"mpi_share\":%.4f,",
               host_name(), series->name, ranks, c->m, c->depth, c->ahead, c->seed, seconds, share);
        printf(isfinite(v->residual) ? "\"residual\":%.6g," : "\"residual\":null,", v->residual);
        printf("\"checksum\":\"%016" PRIx64 "\",\"verified\":%s}\n", v->checksum,
               v->right ? "true" : "false");
    } else {
        double flops = 2.0 / 3.0 * (double)c->m * (double)c->m * (double)c->m;
        printf("%-20s %10.6f s %8.3f Gflop/s %6.1f %% in MPI   residual %.3g  checksum %016" PRIx64
               "%s\n",
               series->name, seconds, flops / seconds * 1e-9, 100.0 * share, v->residual,
               v->checksum, v->right ? "" : "  WRONG");
    }
    fflush(stdout);
}

/* Runs one decomposition. */
static bool run(const struct command *c, const struct series *series, struct decomposition *d,
                int rank, int ranks)
{
    schedule_lu_options options = {
        .rank = rank, .ranks = ranks, .m = c->m, .depth = c->depth, .ahead = (int32_t)c->ahead,
        .series = series->nonblocking ? SCHEDULE_NONBLOCKING : SCHEDULE_BLOCKING};
    void *schedule = malloc(schedule_lu_size()), *window;
    if (schedule == NULL || schedule_lu_open(schedule, &options) != 0) {
        fprintf(stderr, "lu: %s\n", schedule == NULL ? "no memory" : schedule_lu_problem(&options));
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    matrix_fill(&d->matrix);
    struct executor *x =
        executor_open(MPI_COMM_WORLD, schedule_lu_window(&options), series->nonblocking,
                      schedule_lu_requests(&options), series->reorder, &window);
    d->ring = window;
    struct elapsed mine = executor_run(x, &lu, schedule, d);
    executor_close(x);
    free(schedule);

    double seconds = mine.total_us * 1e-6, slowest;
    double share = mine.total_us > 0.0 ? 1.0 - mine.computing_us / mine.total_us : 0.0, shares;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&share, &shares, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    struct verdict verdict = matrix_check(&d->matrix, MPI_COMM_WORLD);
    if (rank == 0)
        print(c, series, ranks, slowest, shares / ranks, &verdict);
    return verdict.right;
}

int main(int argc, char **argv)
{
    struct command c = {.m = 1000, .depth = 8, .ahead = 0, .repeat = 1, .seed = 1};
    MPI_Init(&argc, &argv);
    int rank, ranks, status = parse(argc, argv, &c);
    if (status >= 0) {
        MPI_Finalize();
        return status;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct decomposition d = {.depth = c.depth};
    if (!matrix_open(&d.matrix, c.m, rank, ranks, c.seed)) {
        fprintf(stderr, "lu: no memory for the rows of rank %d\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (rank == 0 && !c.json)
        printf("%s: LU of %" PRIu64 " rows on %d ranks, depth %" PRIu64 ", look-ahead %" PRIu64
               "\n",
               host_name(), c.m, ranks, c.depth, c.ahead);
    bool right = true;
    for (uint64_t turn = 0; turn < c.repeat; turn++)
        for (int k = 0; k < SERIES; k++)
            if (c.only != NULL ? c.only == &all_series[k]
                               : *all_series[k].reorder == NULL || c.reorder)
                right &= run(&c, &all_series[k], &d, rank, ranks);
    matrix_close(&d.matrix);
    MPI_Finalize();
    return right ? 0 : 1;
}
