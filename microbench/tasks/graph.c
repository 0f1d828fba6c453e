#define _GNU_SOURCE
#include "graph.h"

#include "tasks.h"

#define REQUIRE(condition) require(condition, #condition)
#include "../../tests/c/runtime.h"

struct order {
    struct node *after;
    bool next; /* in the next iteration */
};

struct node {
    struct alpi_task task;
    graph_body *body;
    struct graph *graph;
    long row, column;
    long iteration;       /* to run, or running */
    int missing[2];       /* predecessors to complete before an even or odd iteration */
    int same, previous;   /* predecessors of the same iteration and of the previous one */
    int orders, room;
    struct order *order;
    struct node *next;    /* of the graph */
};

struct graph {
    struct node *nodes;
    long iterations;
};

void graph_start_workers(int workers, void (*idle)(void))
{
    pool.workers = workers;
    pool.idle = idle;
    start_workers();
}

void graph_stop_workers(void)
{
    stop_workers();
}

struct graph *graph_new(void)
{
    struct graph *graph = calloc(1, sizeof *graph);
    require(graph, "memory for a graph");
    return graph;
}

static void start(struct node *node)
{
    if (node->iteration == node->graph->iterations)
        return;
    /* For the iteration after the next. No predecessor is so far ahead. */
    node->missing[node->iteration % 2] = node->same + node->previous;
    submit(&node->task);
}

static void run_body(void *argument)
{
    struct node *node = argument;
    node->body(node->iteration, node->row, node->column);
}

static void start_successors(void *argument)
{
    struct node *node = argument;
    long iteration = node->iteration++; /* it may start again below */
    for (int i = 0; i < node->orders; i++) {
        struct order order = node->order[i];
        int *missing = &order.after->missing[(iteration + order.next) % 2];
        if (__atomic_sub_fetch(missing, 1, __ATOMIC_ACQ_REL) == 0)
            start(order.after);
    }
}

struct node *graph_add(struct graph *graph, graph_body *body, long row, long column)
{
    struct node *node = malloc(sizeof *node);
    require(node, "memory for a task");
    *node = (struct node){.body = body, .graph = graph, .row = row, .column = column,
                          .next = graph->nodes};
    node->task = (struct alpi_task){.body = run_body, .argument = node, .ended = start_successors,
                                    .ended_argument = node};
    graph->nodes = node;
    return node;
}

static void add_order(struct node *before, struct node *after, bool next)
{
    if (before->orders == before->room) {
        before->room = before->room ? 2 * before->room : 4;
        before->order = realloc(before->order, (size_t)before->room * sizeof *before->order);
        require(before->order, "memory for an order");
    }
    before->order[before->orders++] = (struct order){after, next};
    if (next)
        after->previous++;
    else
        after->same++;
}

void graph_order(struct node *before, struct node *after)
{
    if (before && after)
        add_order(before, after, false);
}

void graph_order_next(struct node *before, struct node *after)
{
    if (before && after)
        add_order(before, after, true);
}

/* A task, so that the threads do not wake up for each of the first tasks. */
static void start_first(void *argument)
{
    struct graph *graph = argument;
    struct node *node;
    for (node = graph->nodes; node; node = node->next)
        if (node->same == 0)
            start(node);
}

void graph_run(struct graph *graph, long iterations)
{
    graph->iterations = iterations;
    for (struct node *node = graph->nodes; node; node = node->next) {
        node->iteration = 0;
        node->missing[0] = node->same;
        node->missing[1] = node->same + node->previous;
    }
    struct alpi_task begin = {.body = start_first, .argument = graph};
    submit(&begin);
    await_tasks();
}

void graph_free(struct graph *graph)
{
    for (struct node *next, *node = graph->nodes; node; node = next) {
        next = node->next;
        free(node->order);
        free(node);
    }
    free(graph);
}

void *graph_hold(void)
{
    struct alpi_task *task;
    require(alpi_task_self(&task) == 0 && task && alpi_task_events_increase(task, 1) == 0,
            "graph_hold outside a task");
    return task;
}

void graph_release(void *held)
{
    require(alpi_task_events_decrease(held, 1) == 0, "graph_release outside a worker");
}
