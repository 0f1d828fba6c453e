/* The machine's limits: no library can move these bytes between two processes faster. */
#define _GNU_SOURCE
#include "latency.h"

#include "../common/timing.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BATCHES = 31 };

const size_t size_in_bytes[SIZES] = {8, 4096, 65536, 1 << 20};

/* The other rank's memory as mapped here, and its address there. */
struct neighbour {
    char *mapped;
    long pid;
    uint64_t address;
};

/* A limit is the minimum, not the median. */
static double best_per_round(const double *batch_us, long rounds)
{
    double best = batch_us[0];
    for (int b = 1; b < BATCHES; b++)
        best = batch_us[b] < best ? batch_us[b] : best;
    return best / (double)rounds;
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

/* Rounds, so that every size takes about as long. */
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
        atomic_signal_fence(memory_order_seq_cst); /* keeps the compiler from removing copies */
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

/* Negative if cross-memory attach is forbidden. */
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
    MPI_Sendrecv(&pid, 1, MPI_LONG, 1 - l->rank, 0, &n.pid, 1, MPI_LONG, 1 - l->rank, 0, l->comm,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&address, 1, MPI_UINT64_T, 1 - l->rank, 0, &n.address, 1, MPI_UINT64_T,
                 1 - l->rank, 0, l->comm, MPI_STATUS_IGNORE);
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
