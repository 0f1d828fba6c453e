/*
 * Tasks with dependencies, over the small runtime of the tests (tests/c/runtime.h). A task is
 * complete when its body has returned and all holds on it are released; then its successors may
 * run.
 *
 * A graph has the tasks of one iteration, which run again in every iteration. So it is small, it
 * is made once, and no version pays for making tasks. If `a` precedes `b`, `b` must precede a later
 * `a`, perhaps over other tasks, so that `a` is less than two iterations ahead. Orders that come
 * from memory always have that, as `a` writes what `b` reads.
 */
#ifndef TASKS_GRAPH_H
#define TASKS_GRAPH_H

struct graph;
struct node;

/* What a task does; row and column are those of graph_add. */
typedef void graph_body(long iteration, long row, long column);

/* Starts the threads that run tasks. If `idle` is not NULL, they call it while no task is ready,
 * and otherwise sleep. */
void graph_start_workers(int workers, void (*idle)(void));
void graph_stop_workers(void);

struct graph *graph_new(void);
struct node *graph_add(struct graph *, graph_body *, long row, long column);
/* `after` starts when `before` is complete: of the same iteration, or of the previous one. Either
 * may be NULL: no order. */
void graph_order(struct node *before, struct node *after);
void graph_order_next(struct node *before, struct node *after);
/* Runs so many iterations, and returns when all tasks are complete. */
void graph_run(struct graph *, long iterations);
void graph_free(struct graph *);

/* Keeps the current task from completing until graph_release in any task or idle function. */
void *graph_hold(void);
void graph_release(void *held);

#endif
