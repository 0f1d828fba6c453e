/*
 * Several threads of one rank that communicate at once, under MPI_THREAD_MULTIPLE: rates of all
 * together, on one window, on a window for each, and on duplicates of one window. The target rests:
 * it sleeps between tests, so that the threads have the processors; or it waits in MPI, as some
 * hosts need. Each thread has a location, and a counter, of its own. Prints JSON lines; threads.py
 * merges those of several programs.
 */
#define _GNU_SOURCE
#ifdef PLAIN_HOST
#include <mpi.h>
#else
#include <mpix_rma.h>
#endif

#include "../common/host.h"
#include "../common/options.h"
#include "../common/stats.h"
#include "../common/timing.h"

#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORIGIN, TARGET };
enum { PUTS_PER_FLUSH = 100, APART = 4096 /* bytes between the locations of two threads */ };

static struct {
    int threads, batches;
    double batch_us;
    const char *only; /* prefix of the figures to run; NULL: all */
    bool awake;       /* the target does not sleep */
} command = {2, 15, 20e3, NULL, false};

static int rank;
static MPI_Win *windows;
#ifndef PLAIN_HOST
static MPI_Win *duplicates; /* the origin's, of the first window */
#endif
static char **bases; /* this rank's memory of each window */

struct thread {
    pthread_t id;
    pthread_barrier_t *gate;
    int number;
    long rounds;
    MPI_Win win;
    MPI_Aint at;       /* its location in the target's memory */
    int64_t value;     /* of the last put, or the sum of a fetch_and_op */
    bool right;        /* whether what it fetched was right */
    double begin, end; /* measured in the thread: the waiting thread may wake up much later */
};

/* The figures. Each thread makes `rounds` rounds; all end remotely complete. */

static void put(struct thread *t, int64_t *value)
{
    MPI_Put(value, 8, MPI_BYTE, TARGET, t->at, 8, MPI_BYTE, t->win);
}

static void put_rate(struct thread *t)
{
    int64_t value = t->value;
    for (long i = 0; i < t->rounds; i++) {
        value++;
        for (int k = 0; k < PUTS_PER_FLUSH; k++)
            put(t, &value);
        MPI_Win_flush(TARGET, t->win);
    }
    t->value = value;
}

static void put_flush(struct thread *t)
{
    int64_t value = t->value;
    for (long i = 0; i < t->rounds; i++) {
        value++;
        put(t, &value);
        MPI_Win_flush(TARGET, t->win);
    }
    t->value = value;
}

static void fetch_and_op(struct thread *t)
{
    static const int64_t one = 1;
    int64_t value = t->value, before;
    bool right = true; /* not in `t`, which shares cache lines with other threads' */
    for (long i = 0; i < t->rounds; i++) {
        MPI_Fetch_and_op(&one, &before, MPI_INT64_T, TARGET, t->at, MPI_SUM, t->win);
        MPI_Win_flush(TARGET, t->win);
        right &= before == value++;
    }
    t->value = value;
    t->right &= right;
}

#ifndef PLAIN_HOST
static void put_notify(struct thread *t)
{
    int64_t value = t->value;
    for (long i = 0; i < t->rounds; i++) {
        value++;
        MPIX_Put_notify(&value, 8, MPI_BYTE, TARGET, t->at, 8, MPI_BYTE, t->number, t->win);
        MPI_Win_flush_local(TARGET, t->win);
    }
    t->value = value;
}
#endif

static const struct figure {
    const char *name;
    int per_round;
    void (*run)(struct thread *);
    bool notifies;
} figures[] = {
    {"put_rate_8", PUTS_PER_FLUSH, put_rate, false},
    {"put_flush_8", 1, put_flush, false},
    {"fetch_and_op_flush_8", 1, fetch_and_op, false},
#ifndef PLAIN_HOST
    {"put_notify_8", 1, put_notify, true},
#endif
};
static const int figure_count = (int)(sizeof figures / sizeof figures[0]);

static const struct figure *running;

static void *run_thread(void *argument)
{
    struct thread *t = argument;
    pthread_barrier_wait(t->gate);
    t->begin = now_us();
    running->run(t);
    t->end = now_us();
    return NULL;
}

/* From the first thread's begin to the last one's end. */
static double together(struct thread *threads, long rounds)
{
    for (int k = 0; k < command.threads; k++) {
        threads[k].rounds = rounds;
        if (pthread_create(&threads[k].id, NULL, run_thread, &threads[k]) != 0) {
            fprintf(stderr, "threads: no thread\n");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    double begin = 0, end = 0;
    for (int k = 0; k < command.threads; k++) {
        pthread_join(threads[k].id, NULL);
        begin = k == 0 || threads[k].begin < begin ? threads[k].begin : begin;
        end = k == 0 || threads[k].end > end ? threads[k].end : end;
    }
    return end - begin;
}

/* A barrier in which a sleeping target leaves its processor to the origin's threads. */
static void rest(void)
{
    MPI_Request request;
    int done = 0;
    if (command.awake) {
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done)
        sleep_for_us(200);
}

/* Whether each location has the last value, and each counter has counted its thread's puts. */
static bool is_right(const struct thread *threads, int number_of_windows, long notified)
{
    bool right = true;
    for (int k = 0; k < command.threads; k++) {
        int64_t last = threads[k].value;
        int w = k % number_of_windows;
        MPI_Bcast(&last, 1, MPI_INT64_T, ORIGIN, MPI_COMM_WORLD);
        right &= threads[k].right;
        if (rank == TARGET) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, TARGET, 0, windows[w]);
            right &= *(int64_t *)(void *)(bases[w] + threads[k].at) == last;
            MPI_Win_unlock(TARGET, windows[w]);
#ifndef PLAIN_HOST
            MPI_Count seen = -1;
            MPIX_Win_get_notify_value(windows[w], k, &seen);
            right &= seen == notified;
#else
            (void)notified;
#endif
        }
    }
    return right;
}

static double batch_us(struct thread *threads, int number_of_windows, long rounds)
{
    double took = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ORIGIN) {
        for (int w = 0; w < number_of_windows; w++)
            MPI_Win_lock(MPI_LOCK_SHARED, TARGET, 0, windows[w]);
        took = together(threads, rounds);
        for (int w = 0; w < number_of_windows; w++)
            MPI_Win_unlock(TARGET, windows[w]);
    }
    rest();
    MPI_Bcast(&took, 1, MPI_DOUBLE, ORIGIN, MPI_COMM_WORLD);
    return took;
}

/* Who has which window. */
enum way { ONE, EACH, DUPLICATES };
static const char *const way_name[] = {"one", "each", "duplicates"};

static MPI_Win window_of(int thread, enum way way)
{
#ifndef PLAIN_HOST
    if (way == DUPLICATES && rank == ORIGIN)
        return duplicates[thread];
#endif
    return windows[way == EACH ? thread : 0];
}

/* Zeroes the locations and counters. */
static void reset(struct thread *threads, pthread_barrier_t *gate, enum way way)
{
    for (int k = 0; k < command.threads; k++) {
        int w = way == EACH ? k : 0;
        threads[k] = (struct thread){.gate = gate,
                                     .number = k,
                                     .win = window_of(k, way),
                                     .at = (MPI_Aint)k * APART,
                                     .right = true};
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, windows[w]);
        *(int64_t *)(void *)(bases[w] + threads[k].at) = 0;
        MPI_Win_unlock(rank, windows[w]);
#ifndef PLAIN_HOST
        MPI_Count old;
        MPIX_Win_reset_notify_value(windows[w], k, &old);
#endif
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void measure(const struct figure *figure, enum way way)
{
    int number_of_windows = way == EACH ? command.threads : 1;
    struct thread *threads = calloc((size_t)command.threads, sizeof *threads);
    double *sample = malloc(sizeof *sample * (size_t)command.batches);
    pthread_barrier_t gate;
    if (threads == NULL || sample == NULL) {
        fprintf(stderr, "threads: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pthread_barrier_init(&gate, NULL, (unsigned)command.threads);
    running = figure;
    reset(threads, &gate, way);
    int right = 1;
    double rounds = 1;
    long made = 0;
    for (int batch = -4; batch < command.batches; batch++) {
        double took = batch_us(threads, number_of_windows, (long)rounds);
        made += (long)rounds;
        right &= is_right(threads, number_of_windows, figure->notifies ? made : 0);
        if (batch >= 0) {
            sample[batch] = (double)((long)rounds * figure->per_round * command.threads) / took;
        } else {
            double wanted = (double)(long)rounds * command.batch_us / (took > 1 ? took : 1);
            rounds = wanted < 1 ? 1 : wanted > rounds * 100 ? rounds * 100 : wanted;
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (rank == ORIGIN) {
        printf("{\"name\":\"%s\",\"windows\":\"%s\",\"host\":\"%s\",\"threads\":%d,"
               "\"median_mps\":%.5f,\"verified\":%s}\n",
               figure->name, way_name[way], host_name(), command.threads,
               spread_of(sample, (size_t)command.batches).median, right ? "true" : "false");
        fflush(stdout);
    }
    pthread_barrier_destroy(&gate);
    free(sample);
    free(threads);
}

static void parse(int argc, char **argv)
{
    static const char usage[] =
        "usage: mpiexec -n 2 threads [options]\n"
        "  -n, --threads COUNT   threads of the origin (default 2)\n"
        "  -b, --batches COUNT   timed batches of each figure (default 15)\n"
        "  -t, --batch-us TIME   length of a batch (default 20000)\n"
        "  -o, --only PREFIX     only figures whose name starts so\n"
        "  -a, --awake           the target waits in MPI and does not sleep\n"
        "  -h, --help\n";
    static const struct option known[] = {
        {"threads", required_argument, NULL, 'n'},  {"batches", required_argument, NULL, 'b'},
        {"batch-us", required_argument, NULL, 't'}, {"only", required_argument, NULL, 'o'},
        {"awake", no_argument, NULL, 'a'},          {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int o;
    while ((o = getopt_long(argc, argv, "n:b:t:o:ah", known, NULL)) != -1) {
        switch (o) {
        case 'n': command.threads = (int)positive(optarg, "--threads"); break;
        case 'b': command.batches = (int)positive(optarg, "--batches"); break;
        case 't': command.batch_us = positive(optarg, "--batch-us"); break;
        case 'o': command.only = optarg; break;
        case 'a': command.awake = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind < argc) {
        fputs(usage, stderr);
        exit(2);
    }
}

/* Collective. */
static void open_windows(void)
{
    size_t count = (size_t)command.threads;
    windows = calloc(count, sizeof(MPI_Win));
    bases = calloc(count, sizeof(char *));
    if (windows == NULL || bases == NULL) {
        fprintf(stderr, "threads: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (size_t w = 0; w < count; w++) {
        MPI_Win_allocate((MPI_Aint)(count * APART), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &bases[w],
                         &windows[w]);
#ifndef PLAIN_HOST
        MPIX_Win_set_num_notify(windows[w], MPI_INFO_NULL, command.threads);
#endif
    }
}

#ifndef PLAIN_HOST
static void duplicate(void)
{
    duplicates = calloc((size_t)command.threads, sizeof(MPI_Win));
    if (duplicates == NULL)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int k = 0; k < command.threads; k++)
        MPIX_Win_dup(windows[0], MPI_INFO_NULL, &duplicates[k]);
}
#endif

int main(int argc, char **argv)
{
    int provided, ranks;
    parse(argc, argv);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (provided < MPI_THREAD_MULTIPLE || ranks != 2) {
        fprintf(stderr, "threads: needs two ranks and MPI_THREAD_MULTIPLE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    open_windows();
#ifndef PLAIN_HOST
    if (rank == ORIGIN)
        duplicate();
#endif
    for (int k = 0; k < figure_count; k++)
        if (command.only == NULL ||
            strncmp(figures[k].name, command.only, strlen(command.only)) == 0) {
            measure(&figures[k], ONE);
            if (command.threads > 1)
                measure(&figures[k], EACH);
#ifndef PLAIN_HOST
            measure(&figures[k], DUPLICATES);
#endif
        }
#ifndef PLAIN_HOST
    for (int k = 0; k < command.threads && rank == ORIGIN; k++)
        MPI_Win_free(&duplicates[k]);
    free(duplicates);
#endif
    for (int w = 0; w < command.threads; w++)
        MPI_Win_free(&windows[w]);
    free(windows);
    free(bases);
    MPI_Finalize();
    return 0;
}
