/*
 * A second thread that issues operations of the same program, at the same time as the first one.
 */
#ifndef HELPER_H
#define HELPER_H

#include "operations.h"
#include <pthread.h>

static struct {
    pthread_barrier_t begin, end;
    pthread_t id;
    int works, is_over;
    /* What the helper does next: every second one of the calls `first` to `first + count - 1`, in
     * this program of the first thread. */
    Program program;
    MPI_Datatype word_type;
    Room *rooms;
    int own_rank, first, count;
    long issued;
} helper;

/* Whether a call is an operation whose order among its neighbours does not matter: neither a
 * notification nor the order of accumulates shows it. */
static int is_free_of_order(const Line *line)
{
    if (!is(line, "op"))
        return 0;
    const Op *op = &program.ops[number(line, 1)];
    return (op->kind == PUT || op->kind == GET) && op->notified == NOT &&
           op->source != ONE_MORE_THAN;
}

/* Number of calls from this one on that two threads may make. */
static int calls_for_two(int first)
{
    int count = 0;
    while (first + count < program.calls.count && helper.works &&
           is_free_of_order(&program.calls.lines[first + count]))
        count++;
    return count;
}

static void issue_every_second(int first, int count)
{
    for (int i = first; i < first + count; i += 2)
        issue(&program.ops[number(&program.calls.lines[i], 1)], NULL);
}

static void *help(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_barrier_wait(&helper.begin);
        if (helper.is_over)
            return NULL;
        program = helper.program;
        word_type = helper.word_type;
        rooms = helper.rooms;
        own_rank = helper.own_rank;
        issue_every_second(helper.first, helper.count);
        pthread_barrier_wait(&helper.end);
    }
}

/* Makes the calls `first` to `first + count - 1` in two threads. */
static void issue_together(int first, int count)
{
    helper.program = program;
    helper.word_type = word_type;
    helper.rooms = rooms;
    helper.own_rank = own_rank;
    helper.first = first + 1;
    helper.count = count - 1;
    helper.issued += count / 2;
    pthread_barrier_wait(&helper.begin);
    issue_every_second(first, count);
    pthread_barrier_wait(&helper.end);
}

static void start_helper(void)
{
    REQUIRE(pthread_barrier_init(&helper.begin, NULL, 2) == 0);
    REQUIRE(pthread_barrier_init(&helper.end, NULL, 2) == 0);
    REQUIRE(pthread_create(&helper.id, NULL, help, NULL) == 0);
    helper.works = 1;
}

static void end_helper(void)
{
    helper.is_over = 1;
    pthread_barrier_wait(&helper.begin);
    REQUIRE(pthread_join(helper.id, NULL) == 0);
    if (me == 0)
        printf("NOTE the second thread has issued %ld operations\n", helper.issued);
}

#endif
