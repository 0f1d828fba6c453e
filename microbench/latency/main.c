/* latency: see latency.h. Prints JSON lines; latency.py merges those of several programs. */
#define _GNU_SOURCE
#include "latency.h"

#include "../common/host.h"
#include "../common/options.h"
#include "../common/stats.h"
#include "../common/timing.h"

#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t SMALL_WINDOW = 65536;
static const double NO_LIMIT = -1.0;
static const char *const kind_name[ALL_KINDS] = {"allocate", "create", "allocate_shared",
                                                 "create_dynamic"};

struct command {
    struct timing timing;
    const char *only; /* prefix of the scenarios to run; NULL: all */
    int threads;      /* number of origin threads that put at once; 0: run the scenarios */
    int in_flight;    /* number of operations in flight; 0: run the scenarios */
    cpu_set_t cpus;   /* whose distances are wanted; empty: none are */
    int pinned[RANKS]; /* processor of each rank; negative: any */
};

static void usage(FILE *out)
{
    fputs("usage: mpiexec -n 2 latency [options]\n"
          "  -b, --batches COUNT   timed batches of each scenario (default 31)\n"
          "  -t, --batch-us TIME   length of a batch (default 300)\n"
          "  -o, --only PREFIX     only scenarios whose name starts so\n"
          "  -n, --threads COUNT   only the rate of puts by so many threads, under "
          "MPI_THREAD_MULTIPLE\n"
          "  -l, --laps COUNT      rounds that are timed singly, for the longest (default 10000)\n"
          "  -f, --in-flight COUNT only operations of which so many are in flight\n"
          "  -c, --cpus A,B        runs the ranks on these processors\n"
          "  -d, --distances LIST  only the time of a cache line between any two of these "
          "processors\n"
          "  -h, --help\n",
          out);
}

/* Reads comma-separated processors into `list`. Returns their number. */
static int processors(const char *text, const char *option, int *list, int most)
{
    int count = 0;
    for (char *end = (char *)text; count < most; text = end + 1) {
        list[count++] = (int)strtol(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0') || list[count - 1] < 0 ||
            list[count - 1] >= CPU_SETSIZE)
            break;
        if (*end == '\0')
            return count;
    }
    fprintf(stderr, "latency: %s wants numbers of processors, with commas between\n", option);
    exit(2);
}

static struct command parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"batches", required_argument, NULL, 'b'}, {"batch-us", required_argument, NULL, 't'},
        {"only", required_argument, NULL, 'o'},    {"threads", required_argument, NULL, 'n'},
        {"laps", required_argument, NULL, 'l'},    {"in-flight", required_argument, NULL, 'f'},
        {"cpus", required_argument, NULL, 'c'},    {"distances", required_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    struct command c = {.timing = {31, 300.0, 10000}, .pinned = {-1, -1}};
    int list[CPU_SETSIZE], count;
    int o;
    while ((o = getopt_long(argc, argv, "b:t:o:n:l:f:c:d:h", known, NULL)) != -1) {
        switch (o) {
        case 'b': c.timing.batches = (int)positive(optarg, "--batches"); break;
        case 't': c.timing.batch_us = positive(optarg, "--batch-us"); break;
        case 'o': c.only = optarg; break;
        case 'n': c.threads = (int)positive(optarg, "--threads"); break;
        case 'l': c.timing.laps = (long)positive(optarg, "--laps"); break;
        case 'f': c.in_flight = (int)positive(optarg, "--in-flight"); break;
        case 'c':
            if (processors(optarg, "--cpus", c.pinned, RANKS) != RANKS) {
                fputs("latency: --cpus wants two processors\n", stderr);
                exit(2);
            }
            break;
        case 'd':
            count = processors(optarg, "--distances", list, CPU_SETSIZE);
            for (int k = 0; k < count; k++)
                CPU_SET(list[k], &c.cpus);
            break;
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

static bool wanted(const struct command *c, const char *name)
{
    return c->only == NULL || strncmp(name, c->only, strlen(c->only)) == 0;
}

static void *aligned(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes) != 0) {
        fprintf(stderr, "latency: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memset(memory, 0, bytes);
    return memory;
}

/* Collective. Only created windows use `memory`. */
static MPI_Win open_window(enum window_kind kind, MPI_Comm comm, size_t bytes, char *memory,
                           char **base)
{
    MPI_Win win;
    *base = memory;
    switch (kind) {
    case ALLOCATED: MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, comm, base, &win); break;
    case SHARED:
        MPI_Win_allocate_shared((MPI_Aint)bytes, 1, MPI_INFO_NULL, comm, base, &win);
        break;
    case DYNAMIC: MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &win); break;
    default: MPI_Win_create(memory, (MPI_Aint)bytes, 1, MPI_INFO_NULL, comm, &win);
    }
    return win;
}

/* `line`: time of a cache line, measured beside it. */
static void print_result(const char *name, enum window_kind kind, bool rate, struct outcome o,
                         double limit, struct conditions c)
{
    const char *unit = rate ? "mps" : "us";
    char limit_text[32] = "null";
    if (limit >= 0.0)
        snprintf(limit_text, sizeof limit_text, "%.5f", limit);
    printf("{\"name\":\"%s\",\"window\":\"%s\",\"host\":\"%s\",\"median_%s\":%.5f,"
           "\"limit_%s\":%s,\"longest_us\":%.3f,\"line_us\":%.5f,\"copy_us\":%.5f,"
           "\"peer_copy_us\":%.5f,\"verified\":%s}\n",
           name, kind_name[kind], host_name(), unit, o.median, unit, limit_text, o.longest, c.line,
           c.copy, c.peer_copy, o.right ? "true" : "false");
    fflush(stdout);
}

static void print_limit(const char *name, size_t bytes, double us)
{
    if (us < 0.0)
        return;
    printf("{\"name\":\"machine_%s", name);
    if (bytes > 0)
        printf("_%zu", bytes);
    printf("\",\"window\":\"none\",\"host\":\"%s\",\"limit_us\":%.5f}\n", host_name(), us);
}

static void print_limits(const struct limits *l)
{
    print_limit("cache_line_half_round_trip", 0, l->half_round_trip);
    print_limit("atomic_exchange", 0, l->atomic);
    for (int s = 0; s < SIZES; s++)
        print_limit("memcpy", size_in_bytes[s], l->copy[s]);
    for (int s = 0; s < SIZES; s++)
        print_limit("process_vm_writev", size_in_bytes[s], l->attached_copy[s]);
}

static bool run_scenarios(struct bench *b, const struct command *c, const struct limits *limits)
{
    bool right = true;
    for (int k = 0; k < scenario_count; k++) {
        const struct scenario *s = &scenarios[k];
        if (!wanted(c, s->name))
            continue;
        struct conditions found = conditions_of(&b->lines);
        struct outcome o = time_scenario(b, s, &c->timing);
        right &= o.right;
        if (b->rank == ORIGIN)
            print_result(s->name, b->kind, s->measure == RATE, o,
                         b->apart ? NO_LIMIT : s->limit(limits, b->kind, s->size), found);
    }
    return right;
}

/* Creating and freeing windows. Each is collective, so one barrier before it is enough. */
static void run_create_free(struct bench *b, const struct command *c, char *memory)
{
    size_t count = (size_t)c->timing.batches;
    double *create = aligned(count * sizeof *create), *release = aligned(count * sizeof *release);
    struct conditions found = conditions_of(&b->lines);
    for (size_t k = 0; k < count; k++) {
        char *base;
        MPI_Barrier(b->comm);
        double begin = now_us();
        MPI_Win win = open_window(b->kind, b->comm, SMALL_WINDOW, memory, &base);
        create[k] = now_us() - begin;
        MPI_Barrier(b->comm);
        begin = now_us();
        MPI_Win_free(&win);
        release[k] = now_us() - begin;
    }
    if (b->rank == ORIGIN) {
        struct outcome o = {spread_of(create, count).median, 0, true};
        print_result("win_create", b->kind, false, o, NO_LIMIT, found);
        o.median = spread_of(release, count).median;
        print_result("win_free", b->kind, false, o, NO_LIMIT, found);
    }
    free(create);
    free(release);
}

static bool run_threads(struct bench *b, const struct command *c)
{
    struct conditions found = conditions_of(&b->lines);
    struct outcome o = time_threads(b, c->threads, &c->timing);
    char name[64];
    snprintf(name, sizeof name, "put_rate_8_of_%d_threads", c->threads);
    if (b->rank == ORIGIN)
        print_result(name, b->kind, true, o, NO_LIMIT, found);
    return o.right;
}

/* All operations in flight, on windows of every kind. */
static bool run_flights(struct bench *b, const struct command *c)
{
    bool right = true;
    char *memory = aligned(FLIGHT_MEMORY), *local = b->local;
    b->local = aligned(FLIGHT_MEMORY);
    for (int kind = 0; kind < ALL_KINDS; kind++) {
        b->kind = (enum window_kind)kind;
        if (b->apart && b->kind == SHARED)
            continue;
        b->win = open_window(b->kind, b->comm, FLIGHT_MEMORY, memory, &b->base);
        b->there = 0;
        if (b->kind == DYNAMIC) {
            MPI_Aint mine, all[RANKS];
            MPI_Win_attach(b->win, memory, FLIGHT_MEMORY);
            MPI_Get_address(memory, &mine);
            MPI_Allgather(&mine, 1, MPI_AINT, all, 1, MPI_AINT, b->comm);
            b->there = all[TARGET];
        }
        for (int k = 0; k < flight_count; k++)
            for (int s = 0; s < flight_sizes; s++) {
                char name[64];
                snprintf(name, sizeof name, "%s_%dx%zu", flights[k].name, c->in_flight,
                         flight_bytes[s]);
                if (!wanted(c, name))
                    continue;
                struct conditions found = conditions_of(&b->lines);
                struct outcome o =
                    time_flight(b, &flights[k], flight_bytes[s], c->in_flight, &c->timing);
                right &= o.right;
                if (b->rank == ORIGIN)
                    print_result(name, b->kind, false, o, NO_LIMIT, found);
            }
        if (b->kind == DYNAMIC)
            MPI_Win_detach(b->win, memory);
        MPI_Win_free(&b->win);
    }
    free(b->local);
    free(memory);
    b->local = local;
    return right;
}

static void run_on(int processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) {
        perror("latency: sched_setaffinity");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

/* The time of a cache line between any two processors. */
static void run_distances(struct bench *b, const cpu_set_t *cpus)
{
    for (int first = 0; first < CPU_SETSIZE; first++)
        for (int second = first + 1; second < CPU_SETSIZE; second++) {
            if (!CPU_ISSET(first, cpus) || !CPU_ISSET(second, cpus))
                continue;
            run_on(b->rank == ORIGIN ? first : second);
            double line = half_round_trip(&b->lines);
            if (b->rank == ORIGIN)
                printf("{\"cpus\":[%d,%d],\"line_us\":%.5f}\n", first, second, line);
        }
}

/* The scenarios, or the rate of puts by several threads, and creating and freeing windows. */
static bool run_all(struct bench *b, const struct command *c)
{
    bool right = true;
    struct limits limits = {0};
    if (c->threads == 0 && !b->apart) {
        limits = measure_limits(&b->lines, b->local);
        if (b->rank == ORIGIN)
            print_limits(&limits);
    }
    char *memory = aligned(RANKS * (size_t)LARGEST);
    for (int kind = 0; kind < WINDOW_KINDS; kind++) {
        b->kind = (enum window_kind)kind;
        b->win = open_window(b->kind, b->comm, RANKS * (size_t)LARGEST, memory, &b->base);
        memset(b->base, 0, RANKS * (size_t)LARGEST);
        MPI_Barrier(b->comm);
        right &= c->threads > 0 ? run_threads(b, c) : run_scenarios(b, c, &limits);
        MPI_Win_free(&b->win);
    }
    for (int kind = 0; kind < ALL_KINDS && c->threads == 0 && wanted(c, "win_create"); kind++) {
        b->kind = (enum window_kind)kind;
        if (b->apart && b->kind == SHARED)
            continue;
        run_create_free(b, c, memory);
    }
    free(memory);
    return right;
}

int main(int argc, char **argv)
{
    struct command c = parse(argc, argv);
    struct bench b = {.comm = MPI_COMM_WORLD};
    int ranks, level;
    MPI_Init_thread(&argc, &argv, c.threads > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    if (c.threads > 0 && level != MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "latency: the host does not provide MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return 2;
    }
    MPI_Comm_rank(b.comm, &b.rank);
    MPI_Comm_size(b.comm, &ranks);
    if (ranks != RANKS) {
        fprintf(stderr, "latency: needs 2 ranks\n");
        MPI_Finalize();
        return 2;
    }
    MPI_Group all;
    MPI_Comm_group(b.comm, &all);
    MPI_Group_incl(all, 1, &(int){1 - b.rank}, &b.peer);
    MPI_Group_free(&all);

    bool right = true;
    if (c.pinned[b.rank] >= 0)
        run_on(c.pinned[b.rank]);
    b.local = aligned(LARGEST);
    b.lines = open_lines(b.comm, LARGEST);
    b.apart = b.lines.apart;
    if (CPU_COUNT(&c.cpus) > 0)
        run_distances(&b, &c.cpus);
    else if (c.in_flight > 0)
        right = run_flights(&b, &c);
    else
        right = run_all(&b, &c);
    free(b.local);
    close_lines(&b.lines);
    MPI_Group_free(&b.peer);
    MPI_Finalize();
    return right ? 0 : 1;
}
