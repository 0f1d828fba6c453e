/* scale: see scale.h. Prints JSON lines; scale.py merges those of several programs. */
#define _GNU_SOURCE
#include "scale.h"

#include "../common/host.h"
#include "../common/options.h"
#include "../common/stats.h"
#include "../common/timing.h"

#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_name[WINDOW_KINDS] = {"allocate", "create"};

static const double ROUNDS_MAX = 1e6;

static struct {
    int batches;
    double batch_us;    /* length of one batch */
    double scenario_us; /* no batch begins later */
    long laps;          /* rounds that are timed singly, at most */
    const char *only;   /* prefix of the scenarios to run; NULL: all */
} command = {9, 20e3, 2e6, 10000, NULL};

static void usage(FILE *out)
{
    fputs("usage: mpiexec -n RANKS scale [options]\n"
          "  -b, --batches COUNT      timed batches of each figure (default 9)\n"
          "  -t, --batch-us TIME      length of a batch (default 20000)\n"
          "  -s, --scenario-us TIME   no batch of a figure begins later (default 2000000)\n"
          "  -l, --laps COUNT         rounds that are timed singly, for the longest (default "
          "10000)\n"
          "  -o, --only PREFIX        only figures whose name starts so\n"
          "  -h, --help\n",
          out);
}

static void parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"batches", required_argument, NULL, 'b'},     {"batch-us", required_argument, NULL, 't'},
        {"scenario-us", required_argument, NULL, 's'}, {"laps", required_argument, NULL, 'l'},
        {"only", required_argument, NULL, 'o'},        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int o;
    while ((o = getopt_long(argc, argv, "b:t:s:l:o:h", known, NULL)) != -1) {
        switch (o) {
        case 'b': command.batches = (int)positive(optarg, "--batches"); break;
        case 't': command.batch_us = positive(optarg, "--batch-us"); break;
        case 's': command.scenario_us = positive(optarg, "--scenario-us"); break;
        case 'l': command.laps = (long)positive(optarg, "--laps"); break;
        case 'o': command.only = optarg; break;
        case 'h': usage(stdout); exit(0);
        default: usage(stderr); exit(2);
        }
    }
    if (optind < argc) {
        usage(stderr);
        exit(2);
    }
}

static void *aligned(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes) != 0) {
        fprintf(stderr, "scale: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memset(memory, 0, bytes);
    return memory;
}

void end_lap(struct bench *b)
{
    double now = now_us(), took = now - b->lap_begin;
    b->longest = took > b->longest ? took : b->longest;
    b->lap_begin = now;
}

struct batch {
    double all_us;   /* from the first rank's begin to the last one's end: they share a clock */
    double least_us; /* of the rank that was fastest */
};

static struct batch time_batch(struct bench *b, const struct scenario *s, long rounds)
{
    if (s->enter != NULL)
        s->enter(b);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = b->lap_begin = now_us();
    s->run(b, s->bytes, rounds);
    double end = now_us();
    if (s->leave != NULL)
        s->leave(b);
    double most[] = {end, -begin, begin - end}; /* one reduction finds all three */
    MPI_Allreduce(MPI_IN_PLACE, most, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return (struct batch){most[0] + most[1], -most[2]};
}

/* Collective. The own memory is looked at under a lock: MPI promises no other view of it. */
static bool is_right(struct bench *b, const struct scenario *s, long rounds)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, b->rank, 0, b->win);
    bool right = s->right(b, s->bytes, rounds);
    MPI_Win_unlock(b->rank, b->win);
    return right;
}

/* One batch with data of its own. */
static struct batch check_batch(struct bench *b, const struct scenario *s, long rounds,
                                uint64_t number, int *right)
{
    prepare(b, s->bytes, number);
    MPI_Barrier(MPI_COMM_WORLD);
    struct batch took = time_batch(b, s, rounds);
    *right &= is_right(b, s, rounds);
    MPI_Barrier(MPI_COMM_WORLD);
    return took;
}

/* How many ranks share a processor. */
static double ranks_per_processor(const struct bench *b)
{
    cpu_set_t cpus;
    double count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return (double)b->ranks > count ? (double)b->ranks / count : 1.0;
}

/* Where ranks outnumber processors, some begin much later than others. So the fastest rank's own
 * time tells how long a batch is. Adds the time it takes to `spent`. */
static long calibrated_rounds(struct bench *b, const struct scenario *s, double *spent, int *right)
{
    double rounds = 1, share = command.batch_us / ranks_per_processor(b);
    for (uint64_t k = 0;; k++) {
        struct batch took = check_batch(b, s, (long)rounds, 1000 + k, right);
        *spent += took.all_us;
        if (took.least_us > share / 2 || rounds >= ROUNDS_MAX || *spent > command.scenario_us)
            return (long)rounds;
        double wanted = rounds * share / (took.least_us > 0.01 ? took.least_us : 0.01);
        rounds = wanted < rounds * 8 ? wanted : rounds * 8;
        rounds = rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    }
}

static void measure(struct bench *b, const struct scenario *s)
{
    double *sample = aligned(sizeof *sample * (size_t)command.batches), spent = 0;
    int right = 1, count = 0;
    long rounds = calibrated_rounds(b, s, &spent, &right);
    while (count < command.batches && (count == 0 || spent < command.scenario_us)) {
        double took = check_batch(b, s, rounds, (uint64_t)count, &right).all_us;
        spent += took;
        sample[count++] = took / (double)rounds;
    }
    double median = spread_of(sample, (size_t)count).median;

    /* As long as half of a scenario. */
    double fit = command.scenario_us / 2 / (median > 0.01 ? median : 0.01);
    long laps = fit < (double)command.laps ? (long)fit + 1 : command.laps;
    b->laps = true;
    b->longest = 0;
    check_batch(b, s, laps, 999, &right);
    b->laps = false;
    double longest = b->longest;
    MPI_Allreduce(MPI_IN_PLACE, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (b->rank == 0) {
        printf("{\"name\":\"%s\",\"window\":\"%s\",\"host\":\"%s\",\"ranks\":%d,"
               "\"median_us\":%.5f,\"batches\":%d,\"longest_us\":%.3f,\"laps\":%ld,"
               "\"verified\":%s}\n",
               s->name, kind_name[b->kind], host_name(), b->ranks, median, count, longest, laps,
               right ? "true" : "false");
        fflush(stdout);
    }
    free(sample);
}

static MPI_Group with_ranks(MPI_Group world, int first, int last)
{
    MPI_Group group;
    MPI_Group_range_incl(world, 1, (int[1][3]){{first, last, 1}}, &group);
    return group;
}

static void make_groups(struct bench *b)
{
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int next = (b->rank + 1) % b->ranks, before = (b->rank + b->ranks - 1) % b->ranks;
    b->before = with_ranks(world, before, before);
    b->behind = with_ranks(world, next, next);
    MPI_Group_excl(world, 1, &b->rank, &b->others);
    MPI_Group_free(&world);
}

/* Collective. False if the host makes no such window. */
static bool open_window(struct bench *b)
{
    MPI_Aint bytes = ((MPI_Aint)b->ranks + 1) * SLOT;
    if (b->kind == ALLOCATED)
        return MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &b->base, &b->win) ==
               MPI_SUCCESS;
    b->base = aligned((size_t)bytes);
    return MPI_Win_create(b->base, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &b->win) == MPI_SUCCESS;
}

static void run_scenarios(struct bench *b)
{
    for (int k = 0; k < scenario_count; k++) {
        const struct scenario *s = &scenarios[k];
        if (b->ranks >= s->least &&
            (command.only == NULL || strncmp(s->name, command.only, strlen(command.only)) == 0))
            measure(b, s);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    parse(argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    make_groups(&b);
    b.local = aligned(SLOT);
    for (b.kind = ALLOCATED; b.kind < WINDOW_KINDS; b.kind++) {
        /* Open MPI makes no created windows of one rank. */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        bool opened = open_window(&b);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        if (opened) {
            run_scenarios(&b);
            MPI_Win_free(&b.win);
        }
        if (b.kind == CREATED)
            free(b.base);
    }
    free(b.local);
    MPI_Group_free(&b.before);
    MPI_Group_free(&b.behind);
    MPI_Group_free(&b.others);
    MPI_Finalize();
    return 0;
}
