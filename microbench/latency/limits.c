/* What the machine allows: nothing that moves these bytes between two processes can be faster. */
#define _GNU_SOURCE
#include "latency.h"

#include "../common/timing.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BATCHES = 31, LINE = 128 }; /* two lines apart: neighbours are fetched in pairs */

const size_t size_in_bytes[SIZES] = {8, 4096, 65536, 1 << 20};

/* The other rank's memory as this rank sees it, and where it lies there. */
struct neighbour {
    char *mapped;
    long pid;
    uint64_t address;
};

/* Limits are the best that was seen, not the usual. */
static double best_per_round(const double *batch_us, long rounds)
{
    double best = batch_us[0];
    for (int b = 1; b < BATCHES; b++)
        best = batch_us[b] < best ? batch_us[b] : best;
    return best / (double)rounds;
}

struct lines open_lines(MPI_Comm comm)
{
    struct lines l = {.comm = comm};
    MPI_Aint size;
    int unit;
    MPI_Comm_rank(comm, &l.rank);
    MPI_Win_allocate_shared(LARGEST, 1, MPI_INFO_NULL, comm, &l.mine, &l.shared);
    memset(l.mine, 0, LARGEST);
    MPI_Barrier(comm);
    MPI_Win_shared_query(l.shared, 1 - l.rank, &size, &unit, &l.theirs);
    return l;
}

void close_lines(struct lines *l)
{
    MPI_Win_free(&l->shared);
}

/* Each rank writes its own line and waits for the other's. */
double half_round_trip(struct lines *l)
{
    enum { ROUNDS = 300 };
    double batch[BATCHES];
    bool origin = l->rank == ORIGIN;
    _Atomic uint64_t *out = (_Atomic uint64_t *)(void *)(origin ? l->mine : l->mine + LINE);
    _Atomic uint64_t *in = (_Atomic uint64_t *)(void *)(origin ? l->theirs + LINE : l->theirs);
    uint64_t turn = 0;
    atomic_store(out, 0);
    for (int b = 0; b < BATCHES; b++) {
        MPI_Barrier(l->comm);
        double begin = now_us();
        for (int i = 0; i < ROUNDS; i++) {
            turn++;
            if (origin)
                atomic_store_explicit(out, turn, memory_order_release);
            while (atomic_load_explicit(in, memory_order_acquire) < turn)
                ;
            if (!origin)
                atomic_store_explicit(out, turn, memory_order_release);
        }
        batch[b] = now_us() - begin;
    }
    return best_per_round(batch, 2 * ROUNDS);
}

static double atomic_exchange_us(char *memory)
{
    enum { ROUNDS = 10000 };
    double batch[BATCHES];
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)memory;
    for (int b = 0; b < BATCHES; b++) {
        double begin = now_us();
        for (int i = 0; i < ROUNDS; i++)
            atomic_exchange(word, (uint64_t)i);
        batch[b] = now_us() - begin;
    }
    return best_per_round(batch, ROUNDS);
}

/* Rounds that take about as long for every size. */
static long rounds_for(size_t bytes)
{
    long rounds = (long)((4u << 20) / (bytes + 1024));
    return rounds > 4 ? rounds : 4;
}

/* In pieces: glibc copies a whole megabyte slower than eight pieces of it. */
static void copy(char *to, const char *from, size_t bytes)
{
    enum { PIECE = 128 * 1024 };
    for (size_t at = 0; at < bytes; at += PIECE) {
        memcpy(to + at, from + at, bytes - at < PIECE ? bytes - at : PIECE);
        atomic_signal_fence(memory_order_seq_cst); /* every copy is really made */
    }
}

static double copy_us(char *to, const char *from, size_t bytes)
{
    double batch[BATCHES];
    long rounds = rounds_for(bytes);
    for (int b = 0; b < BATCHES; b++) {
        double begin = now_us();
        for (long i = 0; i < rounds; i++)
            copy(to, from, bytes);
        batch[b] = now_us() - begin;
    }
    return best_per_round(batch, rounds);
}

/* Negative where attaching is forbidden. */
static double attached_copy_us(const struct neighbour *n, char *from, size_t bytes)
{
    double batch[BATCHES];
    long rounds = rounds_for(bytes);
    struct iovec here = {from, bytes}, there = {(void *)(uintptr_t)n->address, bytes};
    for (int b = 0; b < BATCHES; b++) {
        double begin = now_us();
        for (long i = 0; i < rounds; i++)
            if (process_vm_writev((pid_t)n->pid, &here, 1, &there, 1, 0) != (ssize_t)bytes)
                return -1.0;
        batch[b] = now_us() - begin;
    }
    return best_per_round(batch, rounds);
}

struct limits measure_limits(struct lines *l, char *local)
{
    struct limits limits = {0};
    struct neighbour n = {.mapped = l->theirs};
    long pid = (long)getpid();
    uint64_t address = (uint64_t)(uintptr_t)l->mine;
    MPI_Sendrecv(&pid, 1, MPI_LONG, 1 - l->rank, 0, &n.pid, 1, MPI_LONG, 1 - l->rank, 0, l->comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&address, 1, MPI_UINT64_T, 1 - l->rank, 0, &n.address, 1, MPI_UINT64_T, 1 - l->rank, 0, l->comm,
                 MPI_STATUS_IGNORE);
    limits.half_round_trip = half_round_trip(l);
    MPI_Barrier(l->comm);
    if (l->rank == ORIGIN) {
        limits.atomic = atomic_exchange_us(l->mine);
        for (int s = 0; s < SIZES; s++) {
            double there = copy_us(n.mapped, local, size_in_bytes[s]);
            double back = copy_us(local, n.mapped, size_in_bytes[s]);
            limits.copy[s] = there < back ? there : back;
            limits.attached_copy[s] = attached_copy_us(&n, local, size_in_bytes[s]);
        }
    }
    MPI_Barrier(l->comm);
    return limits;
}
