/*
 * A small task-aware runtime that implements ALPI: cores, a queue of ready tasks, and tasks with
 * events and one successor each. A task is complete when its body has returned and its events are
 * removed; then its successor becomes ready. As in nOS-V, only workers may remove events.
 *
 * A core is the right to run: of all threads, `pool.workers` have one. A task that pauses keeps its
 * thread, which is parked, and the core goes to the next ready task: to the parked thread of a
 * paused one, or to a spare thread that begins a new one.
 */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

struct alpi_task {
    void (*body)(void *), (*ended)(void *);
    void (*onready)(void *); /* called when the task is ready; its events hold the body back */
    void *argument, *ended_argument;
    int events; /* one more while the body or `onready` has not returned */
    int held;   /* `onready` was called, and the body has not begun */
    int owned;  /* to be freed when it is complete */
    struct alpi_task *successor;
    struct alpi_task *next;  /* in the queue of ready tasks, or of sleeping ones */
    struct thread *thread;   /* while it is paused */
    int blocked, unblocked;  /* waits for alpi_task_unblock, which may also come before */
    uint64_t until_ns;       /* end of alpi_task_waitfor_ns */
};

struct thread {
    pthread_t id;
    sem_t turn;               /* gets a core */
    struct alpi_task *begins; /* what to run on it; NULL: end */
    int idles;                /* its task is paused, and it keeps the core, which is idle */
    int resumed;              /* its task is ready meanwhile */
    struct thread *next, *next_spare;
};

/* Set `workers`, `idle` and `minor` before start_workers. */
static struct {
    pthread_mutex_t lock;                /* adaptive, since it is held for some 20 ns */
    pthread_cond_t more, none;        /* a task is ready; no task is pending */
    struct alpi_task *first, **last;  /* ready */
    struct alpi_task *sleeping;       /* by time */
    struct thread *threads, *spare;   /* all; those without a core and a task */
    uint64_t watched_ns;              /* an idle core wakes up then */
    int workers;                      /* number of cores */
    void (*idle)(void);               /* idle cores call it, and spin, while tasks are pending */
    int idle_cores, stopped, pending, minor;
} pool = {.lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, .none = PTHREAD_COND_INITIALIZER,
          .last = &pool.first, .watched_ns = UINT64_MAX, .workers = 3, .minor = 2};
static __thread struct alpi_task *running;
static __thread struct thread *self;

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- The queue. The caller of these functions holds the lock. ---- */

static void append(struct alpi_task *task)
{
    if (task->thread && task->thread->idles) {
        task->thread->resumed = 1;
        pthread_cond_broadcast(&pool.more);
        return;
    }
    task->next = NULL;
    *pool.last = task;
    pool.last = &task->next;
    if (pool.idle_cores)
        pthread_cond_signal(&pool.more);
}

static void append_sleeper(struct alpi_task *task)
{
    struct alpi_task **at = &pool.sleeping;
    while (*at && (*at)->until_ns <= task->until_ns)
        at = &(*at)->next;
    task->next = *at;
    *at = task;
}

/* What this thread's core does next, or NULL. */
static struct alpi_task *next_ready(void)
{
    for (uint64_t now = pool.sleeping ? clock_ns() : 0;
         pool.sleeping && pool.sleeping->until_ns <= now;) {
        struct alpi_task *due = pool.sleeping;
        pool.sleeping = due->next;
        append(due);
    }
    if (self->resumed) {
        self->resumed = 0;
        return running;
    }
    struct alpi_task *task = pool.first;
    if (task && !(pool.first = task->next))
        pool.last = &pool.first;
    return task;
}

/* Nothing is ready: waits for a task, or for the time of the first sleeping one. */
static void idle(void)
{
    if (pool.idle && __atomic_load_n(&pool.pending, __ATOMIC_SEQ_CST)) {
        struct alpi_task *paused = running;
        pthread_mutex_unlock(&pool.lock);
        running = NULL;
        pool.idle();
        running = paused;
        pthread_mutex_lock(&pool.lock);
        return;
    }
    pool.idle_cores++;
    /* One idle core is enough to watch the clock. */
    if (pool.sleeping && pool.sleeping->until_ns < pool.watched_ns) {
        uint64_t until = pool.watched_ns = pool.sleeping->until_ns;
        struct timespec t = {.tv_sec = (time_t)(until / 1000000000),
                             .tv_nsec = (long)(until % 1000000000)};
        pthread_cond_timedwait(&pool.more, &pool.lock, &t);
        pool.watched_ns = UINT64_MAX;
        /* This core may run a task now, so another one has to watch. */
        if (pool.idle_cores > 1 && pool.sleeping)
            pthread_cond_signal(&pool.more);
    } else {
        pthread_cond_wait(&pool.more, &pool.lock);
    }
    pool.idle_cores--;
}

/* ---- Tasks ---- */

/* Adds a task, which is ready. */
static void submit(struct alpi_task *task)
{
    task->events = 1;
    __atomic_fetch_add(&pool.pending, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&pool.lock);
    append(task);
    pthread_mutex_unlock(&pool.lock);
}

static void remove_events(struct alpi_task *task, int number)
{
    if (__atomic_sub_fetch(&task->events, number, __ATOMIC_ACQ_REL) > 0)
        return;
    if (task->held) {
        task->held = 0;
        task->events = 1;
        pthread_mutex_lock(&pool.lock);
        append(task);
        pthread_mutex_unlock(&pool.lock);
        return;
    }
    struct alpi_task *successor = task->successor;
    int owned = task->owned; /* `ended` may free another task */
    if (task->ended)
        task->ended(task->ended_argument);
    if (owned)
        free(task);
    if (successor)
        submit(successor);
    if (__atomic_sub_fetch(&pool.pending, 1, __ATOMIC_SEQ_CST) == 0) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.none);
        pthread_mutex_unlock(&pool.lock);
    }
}

/* ---- Threads and cores ---- */

static void await_turn(void)
{
    while (sem_wait(&self->turn) == -1 && errno == EINTR)
        ;
}

/* What a core does next, or NULL at the end. If that is a paused task, its thread gets the core,
 * and this one waits for another core. */
static struct alpi_task *take(void)
{
    pthread_mutex_lock(&pool.lock);
    struct alpi_task *task;
    while (!(task = next_ready()) && !pool.stopped)
        idle();
    if (!task || !task->thread) {
        pthread_mutex_unlock(&pool.lock);
        return task;
    }
    self->begins = NULL;
    self->next_spare = pool.spare;
    pool.spare = self;
    pthread_mutex_unlock(&pool.lock);
    sem_post(&task->thread->turn);
    await_turn();
    return self->begins;
}

/* Runs the running task's body; before it, and in a turn of its own, `onready`. */
static void take_turn(void)
{
    void (*onready)(void *) = running->onready;
    if (onready) {
        running->onready = NULL;
        running->held = 1;
        onready(running->argument);
    } else {
        running->body(running->argument);
    }
}

static void *work(void *thread)
{
    self = thread;
    while (self->begins || (self->begins = take())) {
        running = self->begins;
        self->begins = NULL;
        take_turn();
        struct alpi_task *task = running;
        running = NULL;
        remove_events(task, 1);
    }
    return NULL;
}

/* A thread that has a core and begins this task, or the next ready one if it is NULL. The caller
 * holds the lock. */
static void start_thread(struct alpi_task *begins)
{
    struct thread *thread = calloc(1, sizeof *thread);
    REQUIRE(thread && sem_init(&thread->turn, 0, 0) == 0);
    thread->begins = begins;
    thread->next = pool.threads;
    pool.threads = thread;
    REQUIRE(pthread_create(&thread->id, NULL, work, thread) == 0);
}

/* Gives this thread's core to a ready task. The caller holds the lock, which is released. */
static void hand_over(struct alpi_task *task)
{
    struct thread *to = task->thread;
    if (!to && (to = pool.spare)) {
        pool.spare = to->next_spare;
        to->begins = task;
    }
    if (!to)
        start_thread(task);
    pthread_mutex_unlock(&pool.lock);
    if (to)
        sem_post(&to->turn);
}

/* Pauses the running task until it is ready again. The caller holds the lock, which is released.
 * While nothing else is ready, this thread is the idle one of its core, so that a short pause costs
 * no change of threads. */
static void pause_task(void)
{
    running->thread = self;
    struct alpi_task *next = next_ready();
    self->idles = 1;
    for (; !next; next = next_ready())
        idle();
    self->idles = 0;
    if (next == running) {
        pthread_mutex_unlock(&pool.lock);
    } else {
        hand_over(next);
        await_turn();
    }
    running->thread = NULL;
}

static void start_workers(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    REQUIRE(pthread_cond_init(&pool.more, &monotonic) == 0);
    pthread_mutex_lock(&pool.lock);
    pool.stopped = 0;
    for (int i = 0; i < pool.workers; i++)
        start_thread(NULL);
    pthread_mutex_unlock(&pool.lock);
}

/* Waits until all tasks are complete. */
static void await_tasks(void)
{
    pthread_mutex_lock(&pool.lock);
    while (__atomic_load_n(&pool.pending, __ATOMIC_SEQ_CST))
        pthread_cond_wait(&pool.none, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

/* Waits until all tasks are complete, and ends the workers. */
static void stop_workers(void)
{
    await_tasks();
    pthread_mutex_lock(&pool.lock);
    pool.stopped = 1;
    pthread_cond_broadcast(&pool.more);
    pthread_mutex_unlock(&pool.lock);
    for (struct thread *next, *thread = pool.threads; thread; thread = next) {
        next = thread->next;
        sem_post(&thread->turn); /* a spare one gets a turn without a task */
        REQUIRE(pthread_join(thread->id, NULL) == 0);
        sem_destroy(&thread->turn);
        free(thread);
    }
    pool.threads = pool.spare = NULL;
}

/* ---- ALPI: 0 is success, 1 a wrong version, 3 a wrong parameter, 5 a call outside a task. ---- */

int alpi_version_get(int *major, int *minor);
int alpi_version_check(int major, int minor);
int alpi_task_self(struct alpi_task **task);
int alpi_task_block(struct alpi_task *task);
int alpi_task_unblock(struct alpi_task *task);
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

int alpi_task_block(struct alpi_task *task)
{
    if (!running || task != running)
        return running ? 3 : 5;
    pthread_mutex_lock(&pool.lock);
    if (task->unblocked) {
        task->unblocked = 0;
        pthread_mutex_unlock(&pool.lock);
    } else {
        task->blocked = 1;
        pause_task();
    }
    return 0;
}

int alpi_task_unblock(struct alpi_task *task)
{
    if (!task)
        return 3;
    pthread_mutex_lock(&pool.lock);
    if (task->blocked) {
        task->blocked = 0;
        append(task);
    } else {
        task->unblocked = 1;
    }
    pthread_mutex_unlock(&pool.lock);
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
    if (!self)
        return 5;
    remove_events(task, (int)number);
    return 0;
}

int alpi_task_waitfor_ns(uint64_t wanted, uint64_t *actual)
{
    if (!running)
        return 5;
    uint64_t begin = clock_ns();
    running->until_ns = begin + wanted;
    pthread_mutex_lock(&pool.lock);
    append_sleeper(running);
    pause_task();
    if (actual)
        *actual = clock_ns() - begin;
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
