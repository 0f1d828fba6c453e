/*
 * Cost of preloading for a program that does not use RMA: messages, collectives, and a window that
 * is left to the host. Plain MPI; overhead.py alternates the same binary with and without the
 * library. Prints JSON lines.
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

static int rank;
static MPI_Win win;
static int64_t *base, sum; /* `sum` accumulates the results of a batch and is checked */

static void ping_pong(long rounds)
{
    int64_t word = 0;
    for (long i = 0; i < rounds; i++)
        if (rank == 0) {
            word = i;
            MPI_Send(&word, 1, MPI_INT64_T, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(&word, 1, MPI_INT64_T, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            sum += word;
        } else {
            MPI_Recv(&word, 1, MPI_INT64_T, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&word, 1, MPI_INT64_T, 0, 1, MPI_COMM_WORLD);
            sum += word;
        }
}

static void exchange(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        int64_t in = 0, out = i;
        MPI_Request r[2];
        MPI_Irecv(&in, 1, MPI_INT64_T, 1 - rank, 2, MPI_COMM_WORLD, &r[0]);
        MPI_Isend(&out, 1, MPI_INT64_T, 1 - rank, 2, MPI_COMM_WORLD, &r[1]);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
        sum += in;
    }
}

static void test_loop(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        int64_t in = 0, out = i;
        int flag = 0;
        MPI_Request r;
        MPI_Irecv(&in, 1, MPI_INT64_T, 1 - rank, 3, MPI_COMM_WORLD, &r);
        MPI_Send(&out, 1, MPI_INT64_T, 1 - rank, 3, MPI_COMM_WORLD);
        while (!flag)
            MPI_Test(&r, &flag, MPI_STATUS_IGNORE);
        sum += in;
    }
}

static void window_put(long rounds)
{
    if (rank != 0)
        return;
    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
    for (long i = 0; i < rounds; i++) {
        int64_t word = i;
        MPI_Put(&word, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win);
        MPI_Win_flush(1, win);
        sum += i;
    }
    MPI_Win_unlock(1, win);
}

static void window_fence(long rounds)
{
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    for (long i = 0; i < rounds; i++) {
        int64_t word = i;
        if (rank == 0)
            MPI_Put(&word, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win);
        MPI_Win_fence(0, win);
        sum += i;
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
}

static void barrier(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        sum += i;
    }
}

/* Buffers of the collectives of several sizes, in which the first word of a block is checked. */
enum { LONGEST = 1 << 20 };
static int64_t out[2 * LONGEST / 8], in[2 * LONGEST / 8];
static int words; /* of a block */
static int lengths[2], places[2]; /* the same for each rank */

/* Roots alternate, or one rank would run ahead. */
static void broadcast_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        in[0] = rank == i % 2 ? i : -1;
        MPI_Bcast(in, words, MPI_INT64_T, (int)(i % 2), MPI_COMM_WORLD);
        sum += in[0];
    }
}

static void allreduce_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = rank == 0 ? i : 0;
        MPI_Allreduce(out, in, words, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        sum += in[0];
    }
}

static void reduce_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = rank == 0 ? i : 0;
        in[0] = i;
        MPI_Reduce(out, in, words, MPI_INT64_T, MPI_SUM, (int)(i % 2), MPI_COMM_WORLD);
        sum += in[0];
    }
}

static void gather_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = in[words * (1 - rank)] = i;
        if (rank == i % 2)
            in[words * (1 - rank)] = -1;
        MPI_Gather(out, words, MPI_INT64_T, in, words, MPI_INT64_T, (int)(i % 2), MPI_COMM_WORLD);
        sum += in[words * (1 - rank)];
    }
}

static void scatter_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = out[words] = i;
        in[0] = -1;
        MPI_Scatter(out, words, MPI_INT64_T, in, words, MPI_INT64_T, (int)(i % 2), MPI_COMM_WORLD);
        sum += in[0];
    }
}

static void allgather_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = i;
        MPI_Allgather(out, words, MPI_INT64_T, in, words, MPI_INT64_T, MPI_COMM_WORLD);
        sum += in[words * (1 - rank)];
    }
}

static void alltoall_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = out[words] = i;
        MPI_Alltoall(out, words, MPI_INT64_T, in, words, MPI_INT64_T, MPI_COMM_WORLD);
        sum += in[words * (1 - rank)];
    }
}

static void reduce_scatter_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = out[words] = rank == 0 ? i : 0;
        MPI_Reduce_scatter(out, in, lengths, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        sum += in[0];
    }
}

static void gatherv_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = in[words * (1 - rank)] = i;
        if (rank == i % 2)
            in[words * (1 - rank)] = -1;
        MPI_Gatherv(out, words, MPI_INT64_T, in, lengths, places, MPI_INT64_T, (int)(i % 2),
                    MPI_COMM_WORLD);
        sum += in[words * (1 - rank)];
    }
}

static void scatterv_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = out[words] = i;
        in[0] = -1;
        MPI_Scatterv(out, lengths, places, MPI_INT64_T, in, words, MPI_INT64_T, (int)(i % 2),
                     MPI_COMM_WORLD);
        sum += in[0];
    }
}

static void alltoallv_words(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        out[0] = out[words] = i;
        MPI_Alltoallv(out, lengths, places, MPI_INT64_T, in, lengths, places, MPI_INT64_T,
                      MPI_COMM_WORLD);
        sum += in[words * (1 - rank)];
    }
}

#define IN_ALL_SIZES(name, run)                                                                    \
    {name "_8", run, 1, false, true, 1}, {name "_2048", run, 1, false, true, 256},                 \
        {name "_65536", run, 1, false, true, 8192},                                                \
    {                                                                                              \
        name "_1048576", run, 1, false, true, 131072                                               \
    }

static const struct {
    const char *name;
    void (*run)(long rounds);
    double parts; /* figures per round */
    bool origin_only, collective;
    int words;
} cases[] = {
    {"ping_pong_8_half", ping_pong, 2, false, false, 1},
    {"irecv_isend_waitall_8", exchange, 1, false, false, 1},
    {"irecv_send_test_8", test_loop, 1, false, false, 1},
    {"host_window_put_flush_8", window_put, 1, true, false, 1},
    {"host_window_put_fence_8", window_fence, 1, false, false, 1},
    {"barrier", barrier, 1, false, true, 1},
    IN_ALL_SIZES("bcast", broadcast_words),
    IN_ALL_SIZES("allreduce", allreduce_words),
    IN_ALL_SIZES("reduce", reduce_words),
    IN_ALL_SIZES("gather", gather_words),
    IN_ALL_SIZES("scatter", scatter_words),
    IN_ALL_SIZES("allgather", allgather_words),
    IN_ALL_SIZES("alltoall", alltoall_words),
    IN_ALL_SIZES("reduce_scatter", reduce_scatter_words),
    IN_ALL_SIZES("gatherv", gatherv_words),
    IN_ALL_SIZES("scatterv", scatterv_words),
    IN_ALL_SIZES("alltoallv", alltoallv_words),
};

static double batch_us(int c, long rounds, bool *right)
{
    sum = 0;
    words = cases[c].words;
    lengths[0] = lengths[1] = places[1] = words;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    cases[c].run(rounds);
    double took = now_us() - begin;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 || !cases[c].origin_only)
        *right &= sum == (int64_t)rounds * (rounds - 1) / 2;
    return took;
}

int main(int argc, char **argv)
{
    int batches = 41, ranks, ours_too = 0, o;
    double wanted_us = 500;
    while ((o = getopt(argc, argv, "b:t:w")) != -1)
        switch (o) {
        case 'b': batches = atoi(optarg); break;
        case 't': wanted_us = atof(optarg); break;
        case 'w': ours_too = 1; break;
        default:
            fputs("usage: mpiexec -n 2 overhead [-b BATCHES] [-t BATCH_US] [-w: beside an idle "
                  "window]\n",
                  stderr);
            return 2;
        }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || batches < 1 || !(wanted_us > 0)) {
        fputs("overhead: needs 2 ranks, and positive numbers\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Info info;
    MPI_Win idle = MPI_WIN_NULL;
    void *memory;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpix_rma", "false");
    MPI_Win_allocate(4096, sizeof(int64_t), info, MPI_COMM_WORLD, &base, &win);
    if (ours_too)
        MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &idle);
    double *sample = malloc(sizeof *sample * (size_t)batches);
    bool right = sample != NULL;
    for (int c = 0; right && c < (int)(sizeof cases / sizeof cases[0]); c++) {
        double rounds = 16;
        for (int k = 0; k < 3; k++) {
            double took = batch_us(c, (long)rounds, &right);
            rounds *= wanted_us / (took > 0.01 ? took : 0.01);
            rounds = rounds < 4 ? 4 : rounds > 1e6 ? 1e6 : rounds;
            MPI_Bcast(&rounds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        }
        for (int b = 0; b < batches; b++)
            sample[b] = batch_us(c, (long)rounds, &right) / (double)(long)rounds / cases[c].parts;
        int all = right;
        MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
        right = all;
        if (rank == 0)
            printf("{\"name\":\"%s\",\"host\":\"%s\",\"collective\":%s,\"median_us\":%.6f,"
                   "\"verified\":%s}\n",
                   cases[c].name, host_name(), cases[c].collective ? "true" : "false",
                   spread_of(sample, (size_t)batches).median, right ? "true" : "false");
    }
    if (idle != MPI_WIN_NULL)
        MPI_Win_free(&idle);
    MPI_Win_free(&win);
    MPI_Info_free(&info);
    free(sample);
    MPI_Finalize();
    return right ? 0 : 1;
}
