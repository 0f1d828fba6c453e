/*
 * transactions: massive unstructured atomic updates, sections IV.B and VIII.B of "Nonblocking
 * Epochs in MPI One-Sided Communication". The exit status reports wrong sums, never timing.
 */
#include "../common/host.h"
#include "../executor/command.h"
#include "../executor/executor.h"
#include "../executor/series.h"
#include "ledger.h"

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const in_order[] = {NULL};
#ifdef PLAIN_HOST
static const struct series all_series[] = {{"host", false, in_order}};
#else
/* Legal because locks serialize transactions on one target, and different targets share no
 * memory. */
static const char *const reordered[] = {"mpix_win_access_after_access_reorder", NULL};
static const struct series all_series[] = {{"blocking", false, in_order},
                                           {"nonblocking", true, in_order},
                                           {"nonblocking_aaar", true, reordered}};
#endif
enum { SERIES = sizeof all_series / sizeof all_series[0] };

struct command {
    uint64_t count, accounts, window, seed, work, repeat;
    const struct series *only; /* NULL: all */
    bool audits, json;
};

/* Buffers of the schedule's steps: one order per pending transaction. */
struct book {
    struct order *orders;
    uint64_t torn; /* audits in which the halves did not match */
    double worked; /* keeps the computation from being optimized away */
};

/* Checks the result of a complete transaction, whose order can be used again. */
static void settle(struct book *book, struct order *order)
{
    if (order->audit)
        book->torn += !balanced(&order->half[0], &order->half[1]);
    order->audit = false;
}

/* The order of a step's transaction. The left half starts a new transaction: the one that used the
 * order before is complete. */
static struct order *order_of(struct book *book, const schedule_step *step)
{
    struct order *order = &book->orders[step->request];
    if (step->first == 0)
        settle(book, order);
    return order;
}

static const void *source(void *data, const schedule_step *step)
{
    struct cell *half = &order_of(data, step)->half[step->first];
    *half = (struct cell){step->amount, 1};
    return half;
}

static void *destination(void *data, const schedule_step *step)
{
    struct order *order = order_of(data, step);
    order->audit = true;
    return &order->half[step->first];
}

/* Multiplications and additions, each dependent on the one before. */
static void compute(void *data, const schedule_step *step)
{
    double x = 1.0;
    for (double flops = 0.0; flops < step->flops; flops += 2.0)
        x = x * 0.999999 + 1e-6;
    ((struct book *)data)->worked += x;
}

static const struct application transactions = {schedule_transactions_next, source, compute,
                                                destination};

static void usage(FILE *out)
{
    fputs(
        "usage: mpiexec -n RANKS transactions [options]\n"
        "  -c, --count COUNT     transactions of each rank (default 10000)\n"
        "  -k, --cells COUNT     accounts in each rank's memory, two cells each (default 1000)\n"
        "  -w, --window COUNT    transactions of a rank that may be pending (default 64); 0: as "
        "many as the library takes\n"
        "  -f, --flops COUNT     floating point operations between transactions (default 0)\n"
        "  -a, --audits          every fourth transaction reads an account instead: shows whether "
        "locks exclude each other\n"
        "  -n, --repeat COUNT    runs of each series, in turns (default 1)\n"
        "  -s, --seed NUMBER     of targets, cells and amounts (default 1)\n"
        "  -S, --series NAME     only this one: host, or blocking, nonblocking, nonblocking_aaar\n"
        "  -j, --json            JSON lines instead of a table\n"
        "  -h, --help\n",
        out);
}

/* The exit status, or -1 to continue. */
static int parse(int argc, char **argv, struct command *c)
{
    static const struct option known[] = {
        {"count", required_argument, NULL, 'c'},  {"cells", required_argument, NULL, 'k'},
        {"window", required_argument, NULL, 'w'}, {"flops", required_argument, NULL, 'f'},
        {"audits", no_argument, NULL, 'a'},       {"repeat", required_argument, NULL, 'n'},
        {"seed", required_argument, NULL, 's'},   {"series", required_argument, NULL, 'S'},
        {"json", no_argument, NULL, 'j'},         {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    static const char name[] = "transactions";
    bool good = true;
    int o;
    opterr = first_rank();
    while ((o = getopt_long(argc, argv, "c:k:w:f:an:s:S:jh", known, NULL)) != -1) {
        switch (o) {
        case 'c':
            good &= whole_number(name, "--count", optarg, 0, INT64_MAX / INT_MAX, &c->count);
            break;
        case 'k':
            good &= whole_number(name, "--cells", optarg, 1, INT64_MAX / 64, &c->accounts);
            break;
        case 'w': good &= whole_number(name, "--window", optarg, 0, UINT64_MAX, &c->window); break;
        case 'f': good &= whole_number(name, "--flops", optarg, 0, INT64_MAX, &c->work); break;
        case 'a': c->audits = true; break;
        case 'n': good &= whole_number(name, "--repeat", optarg, 1, INT_MAX, &c->repeat); break;
        case 's': good &= whole_number(name, "--seed", optarg, 0, UINT64_MAX, &c->seed); break;
        case 'S':
            c->only = series_named(all_series, SERIES, optarg);
            if (c->only == NULL)
                complain(name, "this program has no series \"%s\"", optarg);
            good &= c->only != NULL;
            break;
        case 'j': c->json = true; break;
        case 'h':
            if (first_rank())
                usage(stdout);
            return 0;
        default: good = false;
        }
    }
    if (good && optind < argc) {
        complain(name, "there is no argument \"%s\"", argv[optind]);
        good = false;
    }
    if (!good && first_rank())
        fputs("try transactions --help\n", stderr);
    return good ? -1 : 2;
}

static void print(const struct command *c, const struct series *series, int ranks, double seconds,
                  const struct audit *a)
{
    double rate = seconds > 0.0 ? (double)c->count * ranks / seconds : 0.0;
    if (c->json) {
        printf("{\"name\":\"transactions\",\"host\":\"%s\",\"series\":\"%s\",\"ranks\":%d,"
               "\"count\":%" PRIu64 ",\"cells\":%" PRIu64 ",\"window\":%" PRIu64
               ",\"flops\":%" PRIu64 ",\"audits\":%s,\"seed\":%" PRIu64 ",",
               host_name(), series->name, ranks, c->count, c->accounts, c->window, c->work,
               c->audits ? "true" : "false", c->seed);
        printf("\"seconds\":%.9g,\"rate\":%.9g,\"balance\":%" PRId64 ",\"updates\":%" PRIu64
               ",\"torn\":%" PRIu64 ",\"checksum\":\"%016" PRIx64 "\",\"verified\":%s}\n",
               seconds, rate, a->balance, a->updates, a->torn, a->checksum,
               a->right ? "true" : "false");
    } else {
        printf("%-18s %12.0f transactions/s   sum %" PRId64 ", %" PRIu64 " updates, %" PRIu64
               " torn, checksum %016" PRIx64 "%s\n",
               series->name, rate, a->balance, a->updates, a->torn, a->checksum,
               a->right ? "" : "  WRONG");
    }
    fflush(stdout);
}

static void *room(uint64_t count, size_t size)
{
    void *memory = count > SIZE_MAX / size ? NULL : malloc((size_t)count * size);
    if (memory == NULL) {
        fprintf(stderr, "transactions: no memory for %" PRIu64 " pending transactions\n", count);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return memory;
}

static bool run(const struct command *c, const struct series *series, int rank, int ranks)
{
    schedule_transactions_options options = {.rank = rank,
                                             .ranks = ranks,
                                             .count = c->count,
                                             .accounts = c->accounts,
                                             .seed = c->seed,
                                             .window = c->window,
                                             .flops = (double)c->work,
                                             .audits = c->audits,
                                             .series = series->nonblocking ? SCHEDULE_NONBLOCKING
                                                                           : SCHEDULE_BLOCKING};
    uint64_t requests = schedule_transactions_requests(&options),
             bytes = schedule_transactions_window(&options);
    void *schedule = room(1, schedule_transactions_size()), *window;
    struct book book = {room(requests, sizeof(struct order)), 0, 0.0};
    memset(book.orders, 0,
           (size_t)requests *
               sizeof(struct order)); /* touches the pages, which is not part of the measurement */
    if (schedule_transactions_open(schedule, &options) != 0) {
        fprintf(stderr, "transactions: %s\n", schedule_transactions_problem(&options));
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    struct executor *x = executor_open(MPI_COMM_WORLD, bytes, series->nonblocking, requests,
                                       series->reorder, &window);
    executor_clear(x);
    struct elapsed mine = executor_run(x, &transactions, schedule, &book);

    for (uint64_t k = 0; k < requests; k++)
        settle(&book, &book.orders[k]);

    double seconds = mine.total_us * 1e-6, slowest;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    executor_look(x);
    struct audit audit = ledger_audit(window, book.torn, &options, MPI_COMM_WORLD);
    executor_close(x);
    free(schedule);
    free(book.orders);
    if (rank == 0)
        print(c, series, ranks, slowest, &audit);
    return audit.right;
}

int main(int argc, char **argv)
{
    struct command c = {.count = 10000, .accounts = 1000, .window = 64, .seed = 1, .repeat = 1};
    MPI_Init(&argc, &argv);
    int rank, ranks, status = parse(argc, argv, &c);
    if (status >= 0) {
        MPI_Finalize();
        return status;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0 && !c.json)
        printf("%s: %" PRIu64 " transactions on each of %d ranks, window %" PRIu64 "\n",
               host_name(), c.count, ranks, c.window);
    bool right = true;
    for (uint64_t turn = 0; turn < c.repeat; turn++)
        for (int k = 0; k < SERIES; k++)
            if (c.only == NULL || c.only == &all_series[k])
                right &= run(&c, &all_series[k], rank, ranks);
    MPI_Finalize();
    return right ? 0 : 1;
}
