/*
 * Collectives in a loop: MPI's ordinary calls in the program without the library, persistent ones
 * in that with it. Prints JSON lines, in microseconds per collective, the median of the turns:
 *
 *   us         the collective
 *   copies_us  the memory copies that it implies, made by all ranks at once: what a process
 *              receives, for an allreduce too
 *   line_us, copy_us, peer_copy_us: see common/lines.h
 *
 *   collectives [--turns N] [--only NAME] [--most BYTES] [--ordinary] [--window]
 *
 * "bytes" is what each process contributes in all, or gets in a broadcast or scatter: in an
 * alltoall, the blocks of all processes together. Every turn has contents of its own, and the
 * results are compared after it. --ordinary measures the ordinary calls with the library, too.
 * --window: what is sent lies in an allocated window.
 */
#ifdef PLAIN_HOST
#include <mpi.h>
#else
#include <mpix_rma.h>
#endif

#include "../common/host.h"
#include "../common/lines.h"
#include "../common/options.h"
#include "../common/stats.h"
#include "../common/timing.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };
enum call { BARRIER, BCAST, REDUCE, ALLREDUCE, SCAN, GATHER, SCATTER, ALLGATHER, ALLTOALL,
            ALLTOALLV, REDUCE_SCATTER, CALLS };
static const char *const name[CALLS] = {"barrier",   "bcast",    "reduce",    "allreduce",
                                        "scan",      "gather",   "scatter",   "allgather",
                                        "alltoall",  "alltoallv", "reduce_scatter"};

static int rank, ranks, turns = 21, most = MOST;
static struct lines lines; /* of the first two ranks */
static bool ordinary, window, right = true;
static const char *only = "";
static int64_t *in, *out;
static int *counts, *places;

/* The word `at` that process `from` contributes in a turn. */
static int64_t word(int turn, int from, size_t at)
{
    return (int64_t)turn * 1000003 + from * 10007 + (int64_t)at * 13 + 1;
}

static int one_call(enum call call, int words)
{
    int part = words / ranks;
    MPI_Comm comm = MPI_COMM_WORLD;
    switch (call) {
    case BARRIER: return MPI_Barrier(comm);
    case BCAST: return MPI_Bcast(rank == 0 ? in : out, words, MPI_INT64_T, 0, comm);
    case REDUCE: return MPI_Reduce(in, out, words, MPI_INT64_T, MPI_SUM, 0, comm);
    case ALLREDUCE: return MPI_Allreduce(in, out, words, MPI_INT64_T, MPI_SUM, comm);
    case SCAN: return MPI_Scan(in, out, words, MPI_INT64_T, MPI_SUM, comm);
    case GATHER: return MPI_Gather(in, words, MPI_INT64_T, out, words, MPI_INT64_T, 0, comm);
    case SCATTER: return MPI_Scatter(in, words, MPI_INT64_T, out, words, MPI_INT64_T, 0, comm);
    case ALLGATHER: return MPI_Allgather(in, words, MPI_INT64_T, out, words, MPI_INT64_T, comm);
    case ALLTOALL: return MPI_Alltoall(in, part, MPI_INT64_T, out, part, MPI_INT64_T, comm);
    case ALLTOALLV:
        return MPI_Alltoallv(in, counts, places, MPI_INT64_T, out, counts, places, MPI_INT64_T,
                             comm);
    default: return MPI_Reduce_scatter_block(in, out, part, MPI_INT64_T, MPI_SUM, comm);
    }
}

#ifndef PLAIN_HOST
static int make(enum call call, int words, MPI_Request *request)
{
    int part = words / ranks;
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Info info = MPI_INFO_NULL;
    MPI_Datatype type = MPI_INT64_T;
    switch (call) {
    case BARRIER: return MPIX_Barrier_init(comm, info, request);
    case BCAST: return MPIX_Bcast_init(rank == 0 ? in : out, words, type, 0, comm, info, request);
    case REDUCE: return MPIX_Reduce_init(in, out, words, type, MPI_SUM, 0, comm, info, request);
    case ALLREDUCE: return MPIX_Allreduce_init(in, out, words, type, MPI_SUM, comm, info, request);
    case SCAN: return MPIX_Scan_init(in, out, words, type, MPI_SUM, comm, info, request);
    case GATHER:
        return MPIX_Gather_init(in, words, type, out, words, type, 0, comm, info, request);
    case SCATTER:
        return MPIX_Scatter_init(in, words, type, out, words, type, 0, comm, info, request);
    case ALLGATHER:
        return MPIX_Allgather_init(in, words, type, out, words, type, comm, info, request);
    case ALLTOALL: return MPIX_Alltoall_init(in, part, type, out, part, type, comm, info, request);
    case ALLTOALLV:
        return MPIX_Alltoallv_init(in, counts, places, type, out, counts, places, type, comm, info,
                                   request);
    default:
        return MPIX_Reduce_scatter_block_init(in, out, part, type, MPI_SUM, comm, info, request);
    }
}
#endif

/* Whether the results of a turn are right. */
static bool check(enum call call, int turn, int words)
{
    int part = words / ranks;
    bool good = true;
    bool reduces = call == ALLREDUCE || call == SCAN || (call == REDUCE && rank == 0);
    for (int at = 0; at < words && reduces; at++) {
        int64_t sum = 0;
        for (int r = 0; r < (call == SCAN ? rank + 1 : ranks); r++)
            sum += word(turn, r, (size_t)at);
        good &= out[at] == sum;
    }
    for (int at = 0; at < words && call == BCAST && rank != 0; at++)
        good &= out[at] == word(turn, 0, (size_t)at);
    for (int at = 0; at < words && call == SCATTER; at++)
        good &= out[at] == word(turn, 0, (size_t)(rank * words + at));
    bool gathers = call == ALLGATHER || (call == GATHER && rank == 0);
    for (int r = 0; r < ranks; r++) {
        for (int at = 0; at < words && gathers; at++)
            good &= out[r * words + at] == word(turn, r, (size_t)at);
        for (int at = 0; at < part && (call == ALLTOALL || call == ALLTOALLV); at++)
            good &= out[r * part + at] == word(turn, r, (size_t)(rank * part + at));
    }
    for (int at = 0; at < part && call == REDUCE_SCATTER; at++) {
        int64_t sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += word(turn, r, (size_t)(rank * part + at));
        good &= out[at] == sum;
    }
    return good;
}

/* One turn of `times` collectives: microseconds per collective. */
static double turn(enum call call, int number, int words, int times, bool persistent)
{
    for (int at = 0; at < words * (call == SCATTER ? ranks : 1); at++)
        in[at] = word(number, rank, (size_t)at);
    bool gathers = call == ALLGATHER || call == GATHER;
    memset(out, 0xff, (size_t)words * sizeof *out * (gathers ? (size_t)ranks : 1));
    MPI_Request request = MPI_REQUEST_NULL;
#ifndef PLAIN_HOST
    if (persistent)
        make(call, words, &request);
#endif
    double begin = 0;
    for (int i = -2; i < times; i++) {
        if (i == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin = now_us();
        }
        if (persistent) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            one_call(call, words);
        }
    }
    double took = (now_us() - begin) / times;
    if (persistent)
        MPI_Request_free(&request);
    right &= check(call, number, words);
    return took;
}

/* The copies that it implies. */
static double copies(enum call call, int words, int times)
{
    bool gathers = call == ALLGATHER || call == GATHER;
    size_t bytes = (size_t)words * sizeof *in * (gathers ? (size_t)ranks : 1);
    bool gets_all = call == REDUCE || call == GATHER;
    if ((call == BCAST && rank == 0) || call == BARRIER || (gets_all && rank != 0))
        bytes = 0;
    if (call == REDUCE_SCATTER)
        bytes /= (size_t)ranks;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    for (int i = 0; i < times; i++) {
        memcpy(out, in, bytes);
        __asm__ volatile("" ::"r"(out) : "memory");
    }
    return (now_us() - begin) / times;
}

static void measure(enum call call, int bytes, bool persistent)
{
    int words = bytes / (int)sizeof *in, times = bytes > 65536 ? 20 : bytes > 4096 ? 100 : 1000;
    double *took = malloc(sizeof *took * (size_t)turns);
    double *copy = malloc(sizeof *copy * (size_t)turns);
    if (!took || !copy)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int r = 0; r < ranks; r++) {
        counts[r] = words / ranks;
        places[r] = r * counts[r];
    }
    for (int t = 0; t < turns; t++) {
        double mine = turn(call, t, words, times, persistent);
        MPI_Allreduce(&mine, &took[t], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        mine = copies(call, words, times);
        MPI_Allreduce(&mine, &copy[t], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    struct conditions found = {0};
    if (ranks > 1 && rank < 2)
        found = conditions_of(&lines);
    if (rank == 0)
        printf("{\"bench\":\"%s\",\"host\":\"%s\",\"ranks\":%d,\"bytes\":%d,\"form\":\"%s\","
               "\"window\":%s,\"us\":%.3f,\"copies_us\":%.3f,"
               "\"line_us\":%.4f,\"copy_us\":%.4f,\"peer_copy_us\":%.4f}\n",
               name[call], host_name(), ranks, call == BARRIER ? 0 : bytes,
               persistent ? "persistent" : "ordinary", window ? "true" : "false",
               spread_of(took, (size_t)turns).median, spread_of(copy, (size_t)turns).median,
               found.line, found.copy, found.peer_copy);
    fflush(stdout);
    free(took);
    free(copy);
}

static void both(enum call call, int bytes)
{
#ifndef PLAIN_HOST
    measure(call, bytes, true);
    if (!ordinary)
        return;
#endif
    measure(call, bytes, false);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"turns", required_argument, NULL, 't'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"most", required_argument, NULL, 'm'},
                                            {"ordinary", no_argument, NULL, 'p'},
                                            {"window", no_argument, NULL, 'w'},
                                            {NULL, 0, NULL, 0}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (option) {
        case 't': turns = (int)positive(optarg, "--turns"); break;
        case 'o': only = optarg; break;
        case 'm': most = (int)positive(optarg, "--most"); break;
        case 'p': ordinary = true; break;
        case 'w': window = true; break;
        default: MPI_Abort(MPI_COMM_WORLD, 2);
        }
    if (most > MOST)
        most = MOST;
    if (ranks > 1) {
        MPI_Comm two;
        MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &two);
        if (rank < 2)
            lines = open_lines(two, 4096);
    }
    /* A scatter, and the copies of a gather, read as much. */
    size_t room = (size_t)MOST * (size_t)ranks;
    MPI_Win win = MPI_WIN_NULL;
    if (window)
        MPI_Win_allocate((MPI_Aint)room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &in, &win);
    else
        in = malloc(room);
    out = malloc(room);
    counts = malloc(sizeof *counts * (size_t)ranks);
    places = malloc(sizeof *places * (size_t)ranks);
    if (!in || !out || !counts || !places)
        MPI_Abort(MPI_COMM_WORLD, 2);
    memset(in, 0, room);
    for (enum call call = BARRIER; call < CALLS; call++) {
        if (!strstr(name[call], only))
            continue;
        int least = call >= ALLTOALL ? 8 * ranks : 8;
        for (int bytes = least; bytes <= most; bytes *= 4) {
            both(call, bytes);
            if (call == BARRIER)
                break;
        }
        if (call != BARRIER && least != 16 && most == MOST) /* the last step is below */
            both(call, MOST);
    }
    int all_right = right;
    MPI_Allreduce(MPI_IN_PLACE, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0 && !all_right)
        fputs("collectives: a result was wrong\n", stderr);
    if (window)
        MPI_Win_free(&win);
    if (ranks > 1 && rank < 2)
        close_lines(&lines);
    MPI_Finalize();
    return all_right ? 0 : 1;
}
