/*
 * What restarting a persistent epoch costs, beside the same epoch with calls. Prints JSON lines, in
 * nanoseconds per epoch of eight puts of 8 bytes:
 *
 *   lock, lock_all   rank 0 puts into rank 1's window, which is idle
 *   gats             both ranks: post, start, eight puts, complete, wait
 *   gats_one_way     rank 0: start, eight puts, complete; rank 1: post, wait
 *   fence            both ranks: eight puts between two fences
 *   fence_inside     both ranks: eight puts and one fence, in the epoch of the fence before
 *
 * Two ranks, or one that puts into its own window, so that no rank waits for another. `wait_ns` is
 * what the epoch cannot do without: the ranks exchange a cache line twice, by loads and stores
 * alone (one_way: rank 0 gets one and sends one back; inside: once).
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
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLAIN_HOST
int main(void)
{
    fputs("persistent: the plain host has no persistent epochs\n", stderr);
    return 2;
}
#else

enum kind { LOCK, LOCK_ALL, GATS, ONE_WAY, FENCE, INSIDE, KINDS };
static const char *const kind_name[KINDS] = {"lock",         "lock_all", "gats",
                                             "gats_one_way", "fence",    "fence_inside"};
/* Behind the puts, in cache lines of their own: the words of `exchange`. */
enum { PUTS = 8, WORDS = 32, WINDOW = 64 };

static int rank, peer;
static MPI_Win win;
static MPI_Group other;
static int64_t *base, values[PUTS];
static bool right = true;

static bool exposes(enum kind kind) { return kind == GATS || rank == 1 || peer == rank; }
static bool accesses(enum kind kind) { return kind != ONE_WAY || rank == 0; }

static void calls(enum kind kind)
{
    switch (kind) {
    case LOCK: MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, win); break;
    case LOCK_ALL: MPI_Win_lock_all(0, win); break;
    case GATS:
    case ONE_WAY:
        if (exposes(kind))
            MPI_Win_post(other, 0, win);
        if (accesses(kind))
            MPI_Win_start(other, 0, win);
        break;
    case FENCE: MPI_Win_fence(0, win); break;
    default: break;
    }
    for (int i = 0; accesses(kind) && i < PUTS; i++)
        MPI_Put(values + i, 1, MPI_INT64_T, peer, i, 1, MPI_INT64_T, win);
    switch (kind) {
    case LOCK: MPI_Win_unlock(peer, win); break;
    case LOCK_ALL: MPI_Win_unlock_all(win); break;
    case GATS:
    case ONE_WAY:
        if (accesses(kind))
            MPI_Win_complete(win);
        if (exposes(kind))
            MPI_Win_wait(win);
        break;
    default: MPI_Win_fence(0, win); break;
    }
}

/* What the two ranks of an epoch exchange, without the library. */
static void exchange(enum kind kind, int64_t *mine, int64_t *theirs, int64_t value)
{
    for (int word = 0; word < (kind == INSIDE ? 1 : 2); word++) {
        if (kind != ONE_WAY || rank != word)
            __atomic_store_n(theirs + word, value, __ATOMIC_RELEASE);
        while ((kind != ONE_WAY || rank == word) &&
               __atomic_load_n(mine + word, __ATOMIC_ACQUIRE) < value)
            ;
    }
}

static double exchanges_ns(enum kind kind, int batches, long epochs)
{
    int64_t *theirs, value = 0;
    double *took = malloc(sizeof *took * (size_t)batches);
    MPI_Aint size;
    int unit;
    if (!took)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Win_shared_query(win, peer, &size, &unit, &theirs);
    for (int i = 0; i < 2; i++)
        base[WORDS + i] = 0;
    for (int b = 0; b < batches; b++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now_us();
        for (long i = 0; i < epochs; i++)
            exchange(kind, base + WORDS, theirs + WORDS, ++value);
        took[b] = (now_us() - begin) / (double)epochs;
    }
    double median = 1000 * spread_of(took, (size_t)batches).median;
    free(took);
    return median;
}

static double batch(enum kind kind, long epochs, MPI_Request *request)
{
    for (int i = 0; i < PUTS; i++)
        values[i]++;
    if (kind == INSIDE)
        MPI_Win_fence(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    if (rank == 0 || kind >= GATS)
        for (long i = 0; i < epochs; i++) {
            if (request) {
                MPI_Start(request);
                MPI_Wait(request, MPI_STATUS_IGNORE);
            } else {
                calls(kind);
            }
        }
    double took = (now_us() - begin) / (double)epochs;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    for (int i = 0; (rank == 1 || peer == rank) && i < PUTS; i++)
        right &= base[i] == values[i];
    MPI_Win_unlock(rank, win);
    return took;
}

static void measure(enum kind kind, int batches, long epochs)
{
    MPI_Request request;
    double *called = malloc(sizeof *called * (size_t)batches);
    double *restarted = malloc(sizeof *restarted * (size_t)batches);
    if (!called || !restarted)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPIX_Win_epoch_init(win, &request);
    calls(kind);
    MPIX_Win_epoch_end(win);
    for (int b = -1; b < batches; b++) { /* the first one warms up */
        double with_calls = batch(kind, epochs, NULL), with_starts = batch(kind, epochs, &request);
        if (b >= 0)
            called[b] = with_calls, restarted[b] = with_starts;
    }
    MPI_Request_free(&request);
    double calls_ns = 1000 * spread_of(called, (size_t)batches).median;
    double starts_ns = 1000 * spread_of(restarted, (size_t)batches).median;
    bool waits = kind >= GATS && peer != rank;
    double wait_ns = waits ? exchanges_ns(kind, batches, epochs) : 0;
    if (rank == 0)
        printf("{\"bench\":\"%s\",\"host\":\"%s\",\"ranks\":%d,\"calls_ns\":%.1f,"
               "\"restart_ns\":%.1f,\"wait_ns\":%.1f,\"ratio\":%.3f,\"verified\":%s}\n",
               kind_name[kind], host_name(), peer == rank ? 1 : 2, calls_ns, starts_ns,
               wait_ns, starts_ns / calls_ns, right ? "true" : "false");
    fflush(stdout);
    free(called);
    free(restarted);
}

int main(int argc, char **argv)
{
    int batches = 21, ranks, o;
    long epochs = 2000;
    const char *only = NULL;
    while ((o = getopt(argc, argv, "b:e:o:")) != -1)
        switch (o) {
            case 'b': batches = (int)positive(optarg, "-b"); break;
            case 'e': epochs = (long)positive(optarg, "-e"); break;
            case 'o': only = optarg; break;
            default:
                fputs("usage: mpiexec -n 1|2 persistent [-b BATCHES] [-e EPOCHS_PER_BATCH] "
                      "[-o KIND]\n",
                      stderr);
                return 2;
        }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > 2) {
        fputs("persistent: run with one or two ranks\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Group all;
    int everyone = 0, mine;
    peer = ranks - 1 - rank;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &peer, &other);
    MPI_Win_allocate(WINDOW * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    for (enum kind kind = LOCK; kind < KINDS; kind++)
        if (!only || !strcmp(only, kind_name[kind]))
            measure(kind, batches, epochs);
    mine = right;
    MPI_Allreduce(&mine, &everyone, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Group_free(&all);
    MPI_Group_free(&other);
    MPI_Win_free(&win);
    MPI_Finalize();
    return !everyone;
}
#endif
