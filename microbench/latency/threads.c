/* Puts by several threads at once. */
#include "latency.h"

#include "../common/stats.h"
#include "../common/timing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { PUTS_PER_FLUSH = 1000, APART = 4096 /* bytes between the locations of two threads */ };

struct thread {
    pthread_t id;
    struct bench *bench;
    pthread_barrier_t *gate;
    int number;
    long rounds;
    int64_t last;      /* value of the last put */
    double begin, end; /* measured in the thread: the waiting thread may wake up much later */
};

static void *put_many(void *argument)
{
    struct thread *t = argument;
    struct bench *b = t->bench;
    int64_t *value = (int64_t *)(void *)(b->local + (size_t)t->number * APART);
    pthread_barrier_wait(t->gate);
    t->begin = now_us();
    for (long i = 0; i < t->rounds; i++) {
        *value = t->last + i + 1;
        for (int k = 0; k < PUTS_PER_FLUSH; k++)
            MPI_Put(value, 8, MPI_BYTE, TARGET, (MPI_Aint)t->number * APART, 8, MPI_BYTE, b->win);
        MPI_Win_flush(TARGET, b->win);
    }
    t->end = now_us();
    t->last += t->rounds;
    return NULL;
}

/* From the first thread's start to the last one's end. */
static double together(struct thread *threads, int count, long rounds)
{
    for (int k = 0; k < count; k++) {
        threads[k].rounds = rounds;
        if (pthread_create(&threads[k].id, NULL, put_many, &threads[k]) != 0) {
            fprintf(stderr, "latency: no thread\n");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    double begin = 0, end = 0;
    for (int k = 0; k < count; k++) {
        pthread_join(threads[k].id, NULL);
        begin = k == 0 || threads[k].begin < begin ? threads[k].begin : begin;
        end = k == 0 || threads[k].end > end ? threads[k].end : end;
    }
    return end - begin;
}

/* Verifies each thread's last put. */
static bool is_right(struct bench *b, const struct thread *threads, int count)
{
    bool right = true;
    for (int k = 0; k < count; k++) {
        int64_t last = threads[k].last;
        MPI_Bcast(&last, 1, MPI_INT64_T, ORIGIN, b->comm);
        if (b->rank == TARGET) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, TARGET, 0, b->win);
            right &= *(int64_t *)(void *)(b->base + (size_t)k * APART) == last;
            MPI_Win_unlock(TARGET, b->win);
        }
    }
    return right;
}

struct outcome time_threads(struct bench *b, int count, const struct timing *timing)
{
    struct thread *threads = calloc((size_t)count, sizeof *threads);
    double *sample = malloc(sizeof *sample * (size_t)timing->batches);
    pthread_barrier_t gate;
    if (threads == NULL || sample == NULL || (size_t)count * APART > LARGEST) {
        fprintf(stderr, "latency: too many threads\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pthread_barrier_init(&gate, NULL, (unsigned)count);
    for (int k = 0; k < count; k++)
        threads[k] = (struct thread){.bench = b, .gate = &gate, .number = k};
    int right = 1;
    long rounds = 1;
    for (int batch = -3; batch < timing->batches; batch++) {
        MPI_Barrier(b->comm);
        if (b->rank == ORIGIN) {
            MPI_Win_lock(MPI_LOCK_SHARED, TARGET, 0, b->win);
            double took = together(threads, count, rounds);
            MPI_Win_unlock(TARGET, b->win);
            if (batch < 0) {
                double wanted = (double)rounds * timing->batch_us * 10 /
                                took; /* threads take a while to start */
                rounds = wanted < 1 ? 1 : (long)wanted;
            } else
                sample[batch] = (double)(rounds * PUTS_PER_FLUSH * count) / took;
        }
        MPI_Barrier(b->comm);
        right &= is_right(b, threads, count);
    }
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_LAND, b->comm);
    struct outcome outcome = {
        b->rank == ORIGIN ? spread_of(sample, (size_t)timing->batches).median : 0, 0, right != 0};
    pthread_barrier_destroy(&gate);
    free(sample);
    free(threads);
    return outcome;
}
