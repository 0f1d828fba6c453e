/*
 * Halo exchange of a heat stencil in three dimensions: 27 points, one layer of ghost cells, 26
 * neighbours, subarray datatypes. Any number of ranks. Each way of exchanging runs the stencil on a
 * small grid first, and all cells are compared with those of a serial run. Then it is timed.
 * Prints JSON lines, in microseconds per exchange, and per step with the stencil:
 *
 *   messages     MPI_Irecv, MPI_Isend, MPI_Waitall
 *   restarted    the same with persistent requests
 *   neighbour    the host's MPI_Ineighbor_alltoallw
 *   halo         MPIX_Neighbor_alltoallw_init, started again and again (not on the plain host)
 *
 * The cells are in memory of MPI_Win_allocate, or in memory of malloc.
 *
 *   halo [--cells N] [--batches N] [--fixed] [--memory window|private]
 *
 * --cells: cells of each process in each direction. --fixed: the grid of processes is not periodic.
 */
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
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEIGHBOURS = 26, SMALL = 5, STEPS = 7, BATCHES_MAX = 1000 };
enum way { MESSAGES, RESTARTED, NEIGHBOUR, HALO, WAYS };
static const char *const way_name[WAYS] = {"messages", "restarted", "neighbour", "halo"};

static int rank, ranks, grid[3], here[3];
static bool periodic = true;
static MPI_Comm comm; /* distributed graph */

/* Direction i of the 26, and the process there; data from there arrive as block i of the other
 * side. */
static int direction[NEIGHBOURS][3], to[NEIGHBOURS], from[NEIGHBOURS];

/* Cells of one process in each direction, without ghosts, and both states of the stencil. */
static int cells;
static double *state[2];

static size_t at(int x, int y, int z)
{
    size_t row = (size_t)cells + 2;
    return ((size_t)z * row + (size_t)y) * row + (size_t)x;
}

static size_t room(void) { return at(0, 0, cells + 2); }

static int process_at(const int *step, int sign)
{
    int place[3];
    for (int d = 0; d < 3; d++) {
        place[d] = here[d] + sign * step[d];
        if (!periodic && (place[d] < 0 || place[d] >= grid[d]))
            return MPI_PROC_NULL;
        place[d] = (place[d] + grid[d]) % grid[d];
    }
    return (place[2] * grid[1] + place[1]) * grid[0] + place[0];
}

static void make_grid(void)
{
    MPI_Dims_create(ranks, 3, grid);
    here[0] = rank % grid[0];
    here[1] = rank / grid[0] % grid[1];
    here[2] = rank / grid[0] / grid[1];
    int number = 0, in = 0, out = 0, sources[NEIGHBOURS], destinations[NEIGHBOURS];
    for (int i = 0; i < 27; i++) {
        int step[3] = {i % 3 - 1, i / 3 % 3 - 1, i / 9 - 1};
        if (!step[0] && !step[1] && !step[2])
            continue;
        memcpy(direction[number], step, sizeof step);
        to[number] = process_at(step, 1), from[number] = process_at(step, -1);
        if (from[number] != MPI_PROC_NULL)
            sources[in++] = from[number];
        if (to[number] != MPI_PROC_NULL)
            destinations[out++] = to[number];
        number++;
    }
    int weights[NEIGHBOURS] = {0};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in, sources, weights, out, destinations, weights,
                                   MPI_INFO_NULL, 0, &comm);
}

/* One way to exchange one of the states. */
struct exchange {
    enum way way;
    double *buffer;
    MPI_Datatype inner[NEIGHBOURS], outer[NEIGHBOURS];
    MPI_Request requests[2 * NEIGHBOURS];
    MPI_Status statuses[2 * NEIGHBOURS];
    int number;
    /* For collectives: the blocks that exist. */
    int ones[NEIGHBOURS];
    MPI_Aint zeros[NEIGHBOURS];
    MPI_Datatype sent[NEIGHBOURS], received[NEIGHBOURS];
};

static MPI_Datatype slab(const int *step, bool ghosts)
{
    int sizes[3], part[3], start[3];
    MPI_Datatype type;
    for (int d = 0; d < 3; d++) { /* z is the first dimension of the array */
        int s = step[d], i = 2 - d;
        sizes[i] = cells + 2;
        part[i] = s == 0 ? cells : 1;
        /* What goes to the positive side is the last layer, and arrives at the negative side. */
        start[i] = s == 0 ? 1 : ghosts ? (s > 0 ? 0 : cells + 1) : (s > 0 ? cells : 1);
    }
    MPI_Type_create_subarray(3, sizes, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void open_exchange(struct exchange *e, enum way way, double *buffer)
{
    int in = 0, out = 0;
    e->way = way, e->buffer = buffer, e->number = 0;
    for (int i = 0; i < NEIGHBOURS; i++) {
        e->inner[i] = slab(direction[i], false), e->outer[i] = slab(direction[i], true);
        e->ones[i] = 1, e->zeros[i] = 0;
        if (from[i] != MPI_PROC_NULL)
            e->received[in++] = e->outer[i];
        if (to[i] != MPI_PROC_NULL)
            e->sent[out++] = e->inner[i];
        if (way == RESTARTED) {
            MPI_Recv_init(buffer, 1, e->outer[i], from[i], i, comm, e->requests + e->number++);
            MPI_Send_init(buffer, 1, e->inner[i], to[i], i, comm, e->requests + e->number++);
        }
    }
#ifndef PLAIN_HOST
    if (way == HALO)
        MPIX_Neighbor_alltoallw_init(buffer, e->ones, e->zeros, e->sent, buffer, e->ones, e->zeros,
                                     e->received, comm, MPI_INFO_NULL, e->requests);
#endif
}

static void close_exchange(struct exchange *e)
{
    for (int i = 0; i < e->number; i++)
        MPI_Request_free(e->requests + i);
    if (e->way == HALO)
        MPI_Request_free(e->requests);
    for (int i = 0; i < NEIGHBOURS; i++) {
        MPI_Type_free(e->inner + i);
        MPI_Type_free(e->outer + i);
    }
}

static void make_exchange(struct exchange *e)
{
    int n = 0;
    switch (e->way) {
    case MESSAGES:
        for (int i = 0; i < NEIGHBOURS; i++)
            MPI_Irecv(e->buffer, 1, e->outer[i], from[i], i, comm, e->requests + n++);
        for (int i = 0; i < NEIGHBOURS; i++)
            MPI_Isend(e->buffer, 1, e->inner[i], to[i], i, comm, e->requests + n++);
        break;
    case RESTARTED:
        n = e->number;
        MPI_Startall(n, e->requests);
        break;
    case NEIGHBOUR:
        MPI_Ineighbor_alltoallw(e->buffer, e->ones, e->zeros, e->sent, e->buffer, e->ones, e->zeros,
                                e->received, comm, e->requests);
        n = 1;
        break;
    default:
        MPI_Start(e->requests);
        n = 1;
    }
    if (n == 1)
        MPI_Wait(e->requests, MPI_STATUS_IGNORE);
    else
        MPI_Waitall(n, e->requests, e->statuses);
}

/* One cell after one step. The order of additions is the same in every run. */
static inline double stencil(const double *c, size_t row)
{
    size_t plane = row * row;
    double sum = 0;
    for (int z = -1; z <= 1; z++)
        for (int y = -1; y <= 1; y++) {
            const double *line = c + (ptrdiff_t)plane * z + (ptrdiff_t)row * y;
            sum += line[-1] + line[0] + line[1];
        }
    return sum / 27;
}

static void compute(double *restrict next, const double *last)
{
    for (int z = 1; z <= cells; z++)
        for (int y = 1; y <= cells; y++)
            for (int x = 1; x <= cells; x++)
                next[at(x, y, z)] = stencil(last + at(x, y, z), (size_t)cells + 2);
}

static double beginning(long x, long y, long z)
{
    return (double)((x * 7 + y * 13 + z * 29 + x * y % 5 + z * y % 3) % 101);
}

static void reset(void)
{
    for (size_t i = 0; i < room(); i++)
        state[0][i] = state[1][i] = 0;
    for (int z = 0; z < cells; z++)
        for (int y = 0; y < cells; y++)
            for (int x = 0; x < cells; x++)
                state[0][at(x + 1, y + 1, z + 1)] =
                    beginning(here[0] * cells + x, here[1] * cells + y, here[2] * cells + z);
}

/* Cells that differ from those of a serial run of so many steps. */
static long wrong_cells(int steps, const double *mine)
{
    long n[3], wrong = 0;
    for (int d = 0; d < 3; d++)
        n[d] = (long)grid[d] * cells;
    size_t all = (size_t)(n[0] * n[1] * n[2]);
    double *now = malloc(all * sizeof *now), *next = malloc(all * sizeof *next);
#define GLOBAL(x, y, z) (((z) * n[1] + (y)) * n[0] + (x))
    for (long z = 0; z < n[2]; z++)
        for (long y = 0; y < n[1]; y++)
            for (long x = 0; x < n[0]; x++)
                now[GLOBAL(x, y, z)] = beginning(x, y, z);
    for (int step = 0; step < steps; step++) {
        for (long z = 0; z < n[2]; z++)
            for (long y = 0; y < n[1]; y++)
                for (long x = 0; x < n[0]; x++) {
                    double sum = 0;
                    for (int i = 0; i < 9; i++) {
                        double line[3];
                        for (int k = 0; k < 3; k++) {
                            long p[3] = {x + k - 1, y + i % 3 - 1, z + i / 3 - 1};
                            bool inside = true;
                            for (int d = 0; d < 3; d++) {
                                inside &= periodic || (p[d] >= 0 && p[d] < n[d]);
                                p[d] = (p[d] + n[d]) % n[d];
                            }
                            line[k] = inside ? now[GLOBAL(p[0], p[1], p[2])] : 0;
                        }
                        sum += line[0] + line[1] + line[2];
                    }
                    next[GLOBAL(x, y, z)] = sum / 27;
                }
        double *other = now;
        now = next, next = other;
    }
    for (int z = 0; z < cells; z++)
        for (int y = 0; y < cells; y++)
            for (int x = 0; x < cells; x++)
                wrong += mine[at(x + 1, y + 1, z + 1)] !=
                         now[GLOBAL((long)here[0] * cells + x, (long)here[1] * cells + y,
                                    (long)here[2] * cells + z)];
    free(now), free(next);
    return wrong;
}

static bool failed;

static void verify(enum way way)
{
    struct exchange both[2];
    int whole = cells;
    long wrong;
    cells = SMALL;
    for (int i = 0; i < 2; i++)
        open_exchange(both + i, way, state[i]);
    reset();
    for (int step = 0; step < STEPS; step++) {
        make_exchange(both + step % 2);
        compute(state[(step + 1) % 2], state[step % 2]);
    }
    wrong = wrong_cells(STEPS, state[STEPS % 2]);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (wrong) {
        failed = true;
        if (rank == 0)
            fprintf(stderr, "halo: %s: %ld cells are wrong\n", way_name[way], wrong);
    }
    for (int i = 0; i < 2; i++)
        close_exchange(both + i);
    cells = whole;
}

/* Microseconds per repetition on the slowest rank. */
static double batch(struct exchange *both, int repeat, bool with_stencil)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us(), took;
    for (int i = 0; i < repeat; i++) {
        make_exchange(both + i % 2);
        if (with_stencil)
            compute(state[(i + 1) % 2], state[i % 2]);
    }
    took = (now_us() - begin) / repeat;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return took;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"cells", required_argument, NULL, 'c'},
                                            {"batches", required_argument, NULL, 'b'},
                                            {"fixed", no_argument, NULL, 'f'},
                                            {"memory", required_argument, NULL, 'm'},
                                            {0}};
    int batches = 31, wanted = 32;
    bool in_window = true;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (option) {
        case 'c': wanted = (int)positive(optarg, "--cells"); break;
        case 'b': batches = (int)positive(optarg, "--batches"); break;
        case 'f': periodic = false; break;
        case 'm': in_window = strcmp(optarg, "private") != 0; break;
        default: return 2;
        }
    if (batches > BATCHES_MAX)
        batches = BATCHES_MAX;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    make_grid();
    MPI_Win win = MPI_WIN_NULL;
    cells = wanted > SMALL ? wanted : SMALL;
    size_t bytes = 2 * room() * sizeof(double);
    cells = wanted;
    if (in_window)
        MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, state, &win);
    else
        state[0] = malloc(bytes);
    state[1] = state[0] + bytes / sizeof(double) / 2;

    struct exchange exchanges[WAYS][2];
    static double times[2][WAYS][BATCHES_MAX];
    int ways = HALO;
#ifndef PLAIN_HOST
    ways = WAYS;
#endif
    for (enum way way = 0; way < (enum way)ways; way++)
        verify(way);
    for (enum way way = 0; way < (enum way)ways; way++)
        for (int i = 0; i < 2; i++)
            open_exchange(exchanges[way] + i, way, state[i]);
    reset();
    /* As many repetitions as take about a millisecond. The ways alternate. */
    double once = batch(exchanges[MESSAGES], 20, false);
    int repeat = once < 500 ? 2 + (int)(1000 / once) / 2 * 2 : 2;
    for (int b = 0; b < batches; b++)
        for (int with_stencil = 0; with_stencil < 2; with_stencil++)
            for (enum way way = 0; way < (enum way)ways; way++)
                times[with_stencil][way][b] = batch(exchanges[way], repeat, with_stencil);
    for (enum way way = 0; way < (enum way)ways && rank == 0; way++) {
        struct spread exchange = spread_of(times[0][way], (size_t)batches);
        struct spread step = spread_of(times[1][way], (size_t)batches);
        printf("{\"figure\":\"halo\",\"host\":\"%s\",\"way\":\"%s\",\"memory\":\"%s\",\"ranks\":%d,"
               "\"cells\":%d,\"periodic\":%s,\"exchange_us\":%.3f,\"step_us\":%.3f}\n",
               host_name(), way_name[way], in_window ? "window" : "private", ranks, cells,
               periodic ? "true" : "false", exchange.median, step.median);
    }
    for (enum way way = 0; way < (enum way)ways; way++)
        for (int i = 0; i < 2; i++)
            close_exchange(exchanges[way] + i);
    if (in_window)
        MPI_Win_free(&win);
    else
        free(state[0]);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return failed;
}
