/*
 * Calls on a process of the same node, in a window of that node and in one that spans several
 * nodes. Rank 0 measures with the next process of its node as the target; all others are idle. The
 * windows alternate, batch by batch. Plain MPI; mates.py preloads the library. Prints JSON lines.
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

enum { ONE_NODE, ALL_NODES, WINDOWS, TARGET = 1 };

static struct window {
    MPI_Win win;
    int64_t *memory;
    int64_t put, added; /* expected values of the target's two words */
} windows[WINDOWS];

static void put_flush(struct window *w)
{
    w->put++;
    MPI_Put(&w->put, 1, MPI_INT64_T, TARGET, 0, 1, MPI_INT64_T, w->win);
    MPI_Win_flush(TARGET, w->win);
}

static void get_flush(struct window *w)
{
    static int64_t got;
    MPI_Get(&got, 1, MPI_INT64_T, TARGET, 0, 1, MPI_INT64_T, w->win);
    MPI_Win_flush(TARGET, w->win);
}

static void fetch_and_op_flush(struct window *w)
{
    static int64_t before;
    const int64_t one = 1;
    w->added++;
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, TARGET, 1, MPI_SUM, w->win);
    MPI_Win_flush(TARGET, w->win);
}

static const struct {
    const char *name;
    void (*call)(struct window *w);
} cases[] = {{"put_flush", put_flush},
             {"get_flush", get_flush},
             {"fetch_and_op_flush", fetch_and_op_flush}};

static double batch_us(int c, struct window *w, long rounds)
{
    double begin = now_us();
    for (long i = 0; i < rounds; i++)
        cases[c].call(w);
    return (now_us() - begin) / (double)rounds;
}

static void measure(int batches, double wanted_us)
{
    double *sample[WINDOWS], median[WINDOWS];
    for (int w = 0; w < WINDOWS; w++) {
        if (!(sample[w] = malloc(sizeof *sample[w] * (size_t)batches)))
            MPI_Abort(MPI_COMM_WORLD, 2);
        MPI_Win_lock(MPI_LOCK_SHARED, TARGET, 0, windows[w].win);
    }
    for (int c = 0; c < (int)(sizeof cases / sizeof *cases); c++) {
        double each = batch_us(c, &windows[ONE_NODE], 1000);
        long rounds = (long)(wanted_us / (each > 0.001 ? each : 0.001)) + 1;
        for (int b = 0; b < batches; b++)
            for (int w = 0; w < WINDOWS; w++)
                sample[w][b] = batch_us(c, &windows[w], rounds);
        for (int w = 0; w < WINDOWS; w++)
            median[w] = spread_of(sample[w], (size_t)batches).median;
        printf("{\"name\":\"%s\",\"host\":\"%s\",\"one_node_us\":%.6f,\"all_nodes_us\":%.6f}\n",
               cases[c].name, host_name(), median[ONE_NODE], median[ALL_NODES]);
    }
    for (int w = 0; w < WINDOWS; w++) {
        MPI_Win_unlock(TARGET, windows[w].win);
        free(sample[w]);
    }
}

/* Waits without using a core, of which the measuring process has few. */
static void meet(void)
{
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done)
        sleep_for_us(5000);
}

int main(int argc, char **argv)
{
    int batches = 41, rank, ranks, mates, o;
    double wanted_us = 500;
    MPI_Comm node;
    while ((o = getopt(argc, argv, "b:t:")) != -1)
        switch (o) {
            case 'b': batches = atoi(optarg); break;
            case 't': wanted_us = atof(optarg); break;
            default:
                fputs("usage: mpiexec -n 4 mates [-b BATCHES] [-t BATCH_US]\n", stderr);
                return 2;
        }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &mates);
    if (mates < 2 || mates == ranks || batches < 1 || !(wanted_us > 0)) {
        fputs("mates: needs several nodes, two ranks on each, and positive numbers\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int w = 0; w < WINDOWS; w++) {
        MPI_Win_allocate(2 * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL,
                         w == ONE_NODE ? node : MPI_COMM_WORLD, &windows[w].memory,
                         &windows[w].win);
        windows[w].memory[0] = windows[w].memory[1] = 0;
    }
    meet();
    if (rank == 0)
        measure(batches, wanted_us);
    meet();
    bool right = true;
    for (int w = 0; w < WINDOWS; w++) {
        int64_t wanted[2] = {windows[w].put, windows[w].added};
        MPI_Bcast(wanted, 2, MPI_INT64_T, 0, MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, w == ONE_NODE ? rank % mates : rank, 0, windows[w].win);
        if (rank == TARGET)
            right &= windows[w].memory[0] == wanted[0] && windows[w].memory[1] == wanted[1];
        MPI_Win_unlock(w == ONE_NODE ? rank % mates : rank, windows[w].win);
        MPI_Win_free(&windows[w].win);
    }
    if (rank == TARGET)
        printf("{\"name\":\"memory\",\"host\":\"%s\",\"verified\":%s}\n", host_name(),
               right ? "true" : "false");
    MPI_Comm_free(&node);
    MPI_Finalize();
    return right ? 0 : 1;
}
