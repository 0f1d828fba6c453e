/*
 * A small task-aware runtime that implements ALPI: worker threads, a queue, tasks with events and
 * one successor each. A task is complete when its body has returned and its events are removed;
 * then its successor becomes ready. As in nOS-V, only workers may remove events.
 */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

struct alpi_task {
    void (*body)(void *), (*ended)(void *);
    void *argument, *ended_argument;
    int events; /* one more while the body has not returned */
    int owned;  /* to be freed when it is complete */
    struct alpi_task *successor, *next;
};

enum { WORKERS = 3 };
static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct alpi_task *first, **last;
    pthread_t worker[WORKERS];
    int stopped, pending, minor;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER,
          .last = &pool.first, .minor = 2};
static __thread struct alpi_task *running;
static __thread int is_worker;

static void make_ready(struct alpi_task *task)
{
    pthread_mutex_lock(&pool.lock);
    task->next = NULL;
    *pool.last = task;
    pool.last = &task->next;
    pthread_cond_signal(&pool.more);
    pthread_mutex_unlock(&pool.lock);
}

/* Adds a task, which becomes ready at once, or when the one before it is complete. */
static void submit(struct alpi_task *task)
{
    task->events = 1;
    __atomic_fetch_add(&pool.pending, 1, __ATOMIC_SEQ_CST);
    make_ready(task);
}

static void remove_events(struct alpi_task *task, int number)
{
    if (__atomic_sub_fetch(&task->events, number, __ATOMIC_ACQ_REL) > 0)
        return;
    struct alpi_task *successor = task->successor;
    if (task->ended)
        task->ended(task->ended_argument);
    if (task->owned)
        free(task);
    if (successor)
        submit(successor);
    __atomic_fetch_sub(&pool.pending, 1, __ATOMIC_SEQ_CST);
}

static void *work(void *unused)
{
    (void)unused;
    is_worker = 1;
    for (;;) {
        pthread_mutex_lock(&pool.lock);
        while (!pool.first && !pool.stopped)
            pthread_cond_wait(&pool.more, &pool.lock);
        struct alpi_task *task = pool.first;
        if (task && !(pool.first = task->next))
            pool.last = &pool.first;
        pthread_mutex_unlock(&pool.lock);
        if (!task)
            return NULL;
        running = task;
        task->body(task->argument);
        running = NULL;
        remove_events(task, 1);
    }
}

static void start_workers(void)
{
    for (int i = 0; i < WORKERS; i++)
        REQUIRE(pthread_create(pool.worker + i, NULL, work, NULL) == 0);
}

/* Waits until all tasks are complete, and ends the workers. */
static void stop_workers(void)
{
    while (__atomic_load_n(&pool.pending, __ATOMIC_SEQ_CST))
        sched_yield();
    pthread_mutex_lock(&pool.lock);
    pool.stopped = 1;
    pthread_cond_broadcast(&pool.more);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < WORKERS; i++)
        REQUIRE(pthread_join(pool.worker[i], NULL) == 0);
}

/* ALPI: 0 is success, 1 a wrong version, 3 a wrong parameter, 5 a call outside a task. */
int alpi_version_get(int *major, int *minor);
int alpi_version_check(int major, int minor);
int alpi_task_self(struct alpi_task **task);
int alpi_task_events_increase(struct alpi_task *task, uint64_t number);
int alpi_task_events_decrease(struct alpi_task *task, uint64_t number);
int alpi_task_waitfor_ns(uint64_t wanted, uint64_t *actual);
int alpi_task_spawn(void (*body)(void *), void *argument, void (*ended)(void *),
                    void *ended_argument, const char *label, const void *attributes);

int alpi_version_get(int *major, int *minor)
{
    *major = pool.minor < 0 ? 0 : 1;
    *minor = pool.minor < 0 ? 9 : pool.minor;
    return 0;
}

int alpi_version_check(int major, int minor)
{
    return pool.minor < 0 || major != 1 || minor > pool.minor;
}

int alpi_task_self(struct alpi_task **task)
{
    *task = running;
    return 0;
}

int alpi_task_events_increase(struct alpi_task *task, uint64_t number)
{
    if (!running || task != running)
        return running ? 3 : 5;
    __atomic_fetch_add(&task->events, (int)number, __ATOMIC_ACQ_REL);
    return 0;
}

int alpi_task_events_decrease(struct alpi_task *task, uint64_t number)
{
    if (!is_worker)
        return 5;
    remove_events(task, (int)number);
    return 0;
}

int alpi_task_waitfor_ns(uint64_t wanted, uint64_t *actual)
{
    if (!running)
        return 5;
    sched_yield();
    if (actual)
        *actual = wanted;
    return 0;
}

int alpi_task_spawn(void (*body)(void *), void *argument, void (*ended)(void *),
                    void *ended_argument, const char *label, const void *attributes)
{
    struct alpi_task *task = calloc(1, sizeof *task);
    (void)label;
    (void)attributes;
    if (!task)
        return 4;
    *task = (struct alpi_task){.body = body, .argument = argument, .ended = ended,
                               .ended_argument = ended_argument, .owned = 1};
    submit(task);
    return 0;
}

#endif
