/*
 * Cost of idle windows: a barrier, a ping-pong, and put + flush on a busy window, alone and beside
 * N idle windows of one kind, each of which was used once. The baseline without idle windows is
 * measured before and after, in the same run. Pairs of ranks do the same at the same time; rank 0
 * measures. Plain MPI; idle.py runs the same binary with and without the library. Prints JSON
 * lines.
 */
#include "../common/host.h"
#include "../common/stats.h"
#include "../common/timing.h"

#include <mpi.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 8, CASES = 3 };

static int rank, partner;

/* The lower rank of each pair is the origin. */
static bool is_origin(void)
{
    return rank < partner;
}

static struct window {
    MPI_Win win;
    int64_t *memory;
    MPI_Aint at; /* displacement of the memory at the other rank */
} busy, *idle;

/* Returns false if the MPI library cannot create more windows. */
static bool make(const char *kind, struct window *window)
{
    const MPI_Aint bytes = WORDS * sizeof(int64_t);
    int code = MPI_SUCCESS;
    window->at = 0;
    if (strcmp(kind, "allocate") == 0) {
        code = MPI_Win_allocate(bytes, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD,
                                &window->memory, &window->win);
    } else if (strcmp(kind, "allocate_shared") == 0) {
        code = MPI_Win_allocate_shared(bytes, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD,
                                       &window->memory, &window->win);
    } else {
        window->memory = malloc((size_t)bytes);
        if (!window->memory)
            MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (strcmp(kind, "create") == 0) {
        code = MPI_Win_create(window->memory, bytes, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD,
                              &window->win);
    } else if (strcmp(kind, "create_dynamic") == 0) {
        MPI_Aint mine;
        code = MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window->win);
        if (code != MPI_SUCCESS)
            return false;
        MPI_Win_attach(window->win, window->memory, bytes);
        MPI_Get_address(window->memory, &mine);
        MPI_Sendrecv(&mine, 1, MPI_AINT, partner, 1, &window->at, 1, MPI_AINT, partner, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return code == MPI_SUCCESS;
}

static void put(struct window *window, int64_t value)
{
    MPI_Put(&value, 1, MPI_INT64_T, partner, window->at, 1, MPI_INT64_T, window->win);
    MPI_Win_flush(partner, window->win);
}

static bool drop(const char *kind, struct window *window, int64_t wanted)
{
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window->win);
    bool right = is_origin() || window->memory[0] == wanted;
    MPI_Win_unlock(rank, window->win);
    if (strcmp(kind, "create_dynamic") == 0)
        MPI_Win_detach(window->win, window->memory);
    MPI_Win_free(&window->win);
    if (strncmp(kind, "create", 6) == 0)
        free(window->memory);
    return right;
}

static void run_barrier(long rounds)
{
    for (long i = 0; i < rounds; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void run_ping_pong(long rounds)
{
    int64_t word = 0;
    for (long i = 0; i < rounds; i++)
        if (is_origin()) {
            MPI_Send(&word, 1, MPI_INT64_T, partner, 1, MPI_COMM_WORLD);
            MPI_Recv(&word, 1, MPI_INT64_T, partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&word, 1, MPI_INT64_T, partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&word, 1, MPI_INT64_T, partner, 1, MPI_COMM_WORLD);
        }
}

static long puts_made;

static void run_put_flush(long rounds)
{
    if (!is_origin())
        return;
    MPI_Win_lock(MPI_LOCK_SHARED, partner, 0, busy.win);
    for (long i = 0; i < rounds; i++)
        put(&busy, ++puts_made);
    MPI_Win_unlock(partner, busy.win);
}

static const struct {
    const char *name;
    void (*run)(long rounds);
} cases[CASES] = {
    {"barrier", run_barrier}, {"ping_pong_8", run_ping_pong}, {"put_flush_8", run_put_flush}};

static double batch_us(int c, long rounds)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    cases[c].run(rounds);
    double took = now_us() - begin;
    MPI_Barrier(MPI_COMM_WORLD);
    return took;
}

static int batches = 41;
static double wanted_us = 500;

static double median_us(int c)
{
    double rounds = 16, *sample = malloc(sizeof *sample * (size_t)batches);
    if (!sample)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int k = 0; k < 3; k++) {
        double took = batch_us(c, (long)rounds);
        rounds *= wanted_us / (took > 0.01 ? took : 0.01);
        rounds = rounds < 16 ? 16 : rounds > 1e6 ? 1e6 : rounds;
        MPI_Bcast(&rounds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    for (int b = 0; b < batches; b++)
        sample[b] = batch_us(c, (long)rounds) / (double)(long)rounds;
    double median = spread_of(sample, (size_t)batches).median;
    free(sample);
    return median;
}

/* Creates the idle windows, uses each once, measures, and frees them. */
static bool measure(const char *kind, long count)
{
    double before[CASES], beside[CASES], after[CASES];
    for (int c = 0; c < CASES; c++)
        before[c] = median_us(c);
    double begin = now_us();
    for (long i = 0; i < count; i++) {
        if (!make(kind, &idle[i])) {
            if (rank == 0)
                printf("{\"host\":\"%s\",\"kind\":\"%s\",\"idle\":%ld,\"most\":%ld,\"verified\":"
                       "true}\n",
                       host_name(), kind, count, i);
            count = i;
            break;
        }
        MPI_Win_lock(MPI_LOCK_SHARED, partner, 0, idle[i].win);
        if (is_origin())
            put(&idle[i], i + 1);
        MPI_Win_unlock(partner, idle[i].win);
    }
    double making = now_us() - begin;
    for (int c = 0; c < CASES; c++)
        beside[c] = median_us(c);
    MPI_Barrier(MPI_COMM_WORLD);
    bool right = true;
    begin = now_us();
    for (long i = 0; i < count; i++)
        right &= drop(kind, &idle[i], i + 1);
    double freeing = now_us() - begin;
    for (int c = 0; c < CASES; c++)
        after[c] = median_us(c);
    int all = right;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    for (int c = 0; rank == 0 && c < CASES; c++)
        printf("{\"name\":\"%s\",\"host\":\"%s\",\"kind\":\"%s\",\"idle\":%ld,\"none_us\":%.6f,"
               "\"beside_us\":%.6f,"
               "\"make_us\":%.3f,\"free_us\":%.3f,\"verified\":%s}\n",
               cases[c].name, host_name(), kind, count, (before[c] + after[c]) / 2, beside[c],
               making / (double)count, freeing / (double)count, all ? "true" : "false");
    fflush(stdout);
    return all;
}

int main(int argc, char **argv)
{
    const char *kind = "create";
    long count = 100;
    int ranks, o;
    while ((o = getopt(argc, argv, "b:t:k:n:")) != -1)
        switch (o) {
            case 'b': batches = atoi(optarg); break;
            case 't': wanted_us = atof(optarg); break;
            case 'k': kind = optarg; break;
            case 'n': count = atol(optarg); break;
            default:
                fputs("usage: mpiexec -n RANKS idle [-b BATCHES] [-t BATCH_US] [-n IDLE_WINDOWS]\n"
                      "                         [-k "
                      "allocate|allocate_shared|create|create_dynamic]\n",
                      stderr);
                return 2;
        }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    partner = rank ^ 1;
    const char *kinds[] = {"allocate", "allocate_shared", "create", "create_dynamic"};
    bool known = false;
    for (int k = 0; k < 4; k++)
        known |= strcmp(kind, kinds[k]) == 0;
    idle = malloc(sizeof *idle * (size_t)(count > 0 ? count : 1));
    if (!known || !idle || ranks % 2 != 0 || batches < 1 || count < 1 || !(wanted_us > 0)) {
        fputs("idle: needs an even number of ranks, a kind of window, and positive numbers\n",
              stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!make(kind, &busy))
        MPI_Abort(MPI_COMM_WORLD, 2);
    bool right = measure(kind, count);
    MPI_Bcast(&puts_made, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    right &= drop(kind, &busy, puts_made);
    if (!right)
        fprintf(stderr, "idle: rank %d found wrong data in a window\n", rank);
    free(idle);
    MPI_Finalize();
    return right ? 0 : 1;
}
