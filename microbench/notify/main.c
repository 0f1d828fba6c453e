/* Ping-pong of each way to send another rank data and notify it. */
#include "notify.h"

#include "../common/host.h"
#include "../common/lines.h"
#include "../common/stats.h"
#include "../common/timing.h"

#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rank, ranks;
MPI_Win win;
char *base, *local;
bool right = true;
int64_t told[COUNTERS];
MPI_Request tagged = MPI_REQUEST_NULL;

static struct lines lines; /* of the first two ranks */
static int64_t turn;       /* messages so far of the way being measured */

void mark(char *at, size_t bytes, int64_t number)
{
    memcpy(at, &number, sizeof number);
    memcpy(at + bytes - sizeof number, &number, sizeof number);
}

void check(const char *at, size_t bytes, int64_t number)
{
    int64_t first, last;
    memcpy(&first, at, sizeof first);
    memcpy(&last, at + bytes - sizeof last, sizeof last);
    right &= first == number && last == number;
}

/* The machine's limit: 8 bytes in one cache line, then a flag in another, by plain stores. */
static void bare_tell(size_t bytes)
{
    (void)bytes;
    atomic_store_explicit((_Atomic int64_t *)(void *)lines.theirs, turn, memory_order_relaxed);
    atomic_store_explicit((_Atomic int64_t *)(void *)(lines.theirs + 256), turn,
                          memory_order_release);
}

static void bare_hear(size_t bytes)
{
    while (atomic_load_explicit((_Atomic int64_t *)(void *)(lines.mine + 256),
                                memory_order_acquire) != turn)
        ;
    check(lines.mine, bytes, turn);
}

static void send_tell(size_t bytes)
{
    mark(local, bytes, turn);
    MPI_Send(local, (int)bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
}

static void send_hear(size_t bytes)
{
    MPI_Recv(local, (int)bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(local, bytes, turn);
}

static void put_flush(size_t bytes)
{
    mark(local, bytes, turn);
    MPI_Put(local, (int)bytes, MPI_BYTE, 1 - rank, 0, (int)bytes, MPI_BYTE, win);
    MPI_Win_flush(1 - rank, win);
}

static void message_tell(size_t bytes)
{
    put_flush(bytes);
    MPI_Send(NULL, 0, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
}

static void message_hear(size_t bytes)
{
    MPI_Recv(NULL, 0, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(base, bytes, turn);
}

static void flag_tell(size_t bytes)
{
    put_flush(bytes);
    MPI_Accumulate(&turn, 1, MPI_INT64_T, 1 - rank, FLAG, 1, MPI_INT64_T, MPI_REPLACE, win);
    MPI_Win_flush(1 - rank, win);
}

static void flag_hear(size_t bytes)
{
    int looks = 0, flag;
    while (atomic_load_explicit((_Atomic int64_t *)(void *)(base + FLAG), memory_order_acquire) !=
           turn)
        if (++looks % 64 == 0) /* plain MPICH executes accumulates at the target */
            MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    check(base, bytes, turn);
}

#ifndef PLAIN_HOST
static void notify_tell(size_t bytes)
{
    mark(local, bytes, turn);
    MPIX_Put_notify(local, (int)bytes, MPI_BYTE, 1 - rank, 0, (int)bytes, MPI_BYTE, 0, win);
}

static void notify_hear(size_t bytes)
{
    MPIX_Win_notify_threshold(win, 0, told[0] + turn);
    check(base, bytes, turn);
}

static void request_hear(size_t bytes)
{
    MPI_Request r;
    MPIX_Win_notify_ithreshold(win, 0, told[0] + turn, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    check(base, bytes, turn);
}

static void tagged_tell(size_t bytes)
{
    mark(local, bytes, turn);
    MPIX_Put_tagged(local, (int)bytes, MPI_BYTE, 1 - rank, 0, (int)bytes, MPI_BYTE, TAG, win);
}

void await_tagged(void)
{
    MPI_Status status;
    MPI_Start(&tagged);
    MPI_Wait(&tagged, &status);
    right &= status.MPI_SOURCE == 1 - rank && status.MPI_TAG == TAG;
}

static void tagged_hear(size_t bytes)
{
    await_tagged();
    check(base, bytes, turn);
}
#endif

static const struct way {
    const char *name;
    void (*tell)(size_t bytes);
    void (*hear)(size_t bytes);
    size_t most;
    bool notifies;
} ways[] = {
    {"bare", bare_tell, bare_hear, 8, false},
    {"send_recv", send_tell, send_hear, LARGEST, false},
    {"put_flush_send", message_tell, message_hear, LARGEST, false},
    {"put_flush_flag", flag_tell, flag_hear, LARGEST, false},
#ifndef PLAIN_HOST
    {"put_notify_threshold", notify_tell, notify_hear, LARGEST, true},
    {"put_notify_ithreshold", notify_tell, request_hear, LARGEST, true},
    {"put_tagged", tagged_tell, tagged_hear, LARGEST, false},
#endif
};

static const struct way *measured;

/* Half a round trip. Both ranks count round trips; each direction carries its own number. */
static double ping_pong(size_t bytes, long rounds)
{
    const struct way *w = measured;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    for (long i = 0; i < rounds; i++) {
        turn++;
        if (rank == 0) {
            w->tell(bytes);
            w->hear(bytes);
        } else {
            w->hear(bytes);
            w->tell(bytes);
        }
    }
    return (now_us() - begin) / (double)(2 * rounds);
}

void measure(const char *bench, const char *way, size_t bytes, bool rate,
             const struct timing *timing, double (*batch)(size_t bytes, long rounds))
{
    double *sample = malloc(sizeof *sample * (size_t)timing->batches), rounds = 4;
    struct conditions found = {0};
    if (rank < 2)
        found = conditions_of(&lines);
    for (int k = 0; k < 3; k++) {
        double took = batch(bytes, (long)rounds);
        rounds = timing->batch_us / (2 * (took > 1e-3 ? took : 1e-3));
        rounds = rounds < 4 ? 4 : rounds > 1e5 ? 1e5 : rounds;
        MPI_Bcast(&rounds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    for (int b = 0; b < timing->batches; b++) {
        double took = batch(bytes, (long)rounds);
        sample[b] = rate ? 1 / took : took;
    }
    int all = right;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    right = all;
    if (rank == 0)
        printf("{\"bench\":\"%s\",\"name\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"host\":\"%s\","
               "\"%s\":%.5f,\"line_us\":%.4f,\"copy_us\":%.4f,\"peer_copy_us\":%.4f,"
               "\"verified\":%s}\n",
               bench, way, bytes, ranks, host_name(), rate ? "median_mps" : "median_us",
               spread_of(sample, (size_t)timing->batches).median, found.line, found.copy,
               found.peer_copy, right ? "true" : "false");
    fflush(stdout);
    free(sample);
}

static void measure_ping_pong(const struct way *w, size_t bytes, const struct timing *timing)
{
    turn = 0;
    measured = w;
    if (lines.mine != NULL)
        memset(lines.mine, 0, 4096);
    memset(base + FLAG, 0, sizeof(int64_t));
    MPI_Barrier(MPI_COMM_WORLD);
    measure("ping_pong", w->name, bytes, false, timing, ping_pong);
    told[0] += w->notifies ? turn : 0;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {8, 64, 512, 4096, 32768, 262144, 1 << 20, LARGEST};
    struct timing timing = {21, 300};
    int o;
    size_t most = LARGEST;
    bool patterns = false;
    while ((o = getopt(argc, argv, "b:t:m:p")) != -1)
        switch (o) {
        case 'b': timing.batches = atoi(optarg); break;
        case 't': timing.batch_us = atof(optarg); break;
        case 'm': most = (size_t)atol(optarg); break;
        case 'p': patterns = true; break;
        default:
            fputs("usage: mpiexec -n 2 notify [-b BATCHES] [-t BATCH_US] [-m MOST_BYTES]; with -p, "
                  "any ranks: the patterns\n",
                  stderr);
            return 2;
        }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || (ranks > 2 && !patterns) || timing.batches < 1 || !(timing.batch_us > 0)) {
        fputs("notify: needs 2 ranks, and positive numbers\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm two;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &two);
    if (rank < 2)
        lines = open_lines(two, 4096);
    MPI_Win_allocate(WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    memset(base, 0, WINDOW);
    local = calloc(1, LARGEST);
    if (local == NULL)
        MPI_Abort(MPI_COMM_WORLD, 2);
#ifndef PLAIN_HOST
    MPIX_Win_set_num_notify(win, MPI_INFO_NULL, COUNTERS);
    if (rank < 2)
        MPIX_Notify_init(win, 1 - rank, TAG, 1, &tagged);
#endif
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    bool near = rank < 2 && !lines.apart;
    if (near)
        MPI_Win_lock_all(0, lines.shared);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0] && sizes[s] <= most; s++) {
        if (patterns) {
            measure_patterns(sizes[s], &timing);
            continue;
        }
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++)
            if (sizes[s] <= ways[k].most && (near || ways[k].tell != bare_tell))
                measure_ping_pong(&ways[k], sizes[s], &timing);
        measure_rates(sizes[s], &timing);
    }
    if (near)
        MPI_Win_unlock_all(lines.shared);
    if (rank < 2)
        close_lines(&lines);
    MPI_Win_unlock_all(win);
#ifndef PLAIN_HOST
    if (rank < 2)
        MPI_Request_free(&tagged);
#endif
    MPI_Win_free(&win);
    MPI_Comm_free(&two);
    free(local);
    MPI_Finalize();
    return right ? 0 : 1;
}
