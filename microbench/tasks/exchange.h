/*
 * How tasks send and receive blocks: messages that block or not, or notified puts into a window.
 * A link is a place for one block in the receiver's memory; blocks that use it follow one another.
 */
#ifndef TASKS_EXCHANGE_H
#define TASKS_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

struct link {
    int peer;
    int number;       /* tag of the messages, and counter at the receiver */
    int acknowledged; /* counter at the sender */
    size_t place;     /* element of the receiver's memory */
    size_t count;     /* elements */
};

/* Memory of this rank in which links end, all zero, with so many counters. Collective. */
double *exchange_open(size_t count, int counters);
/* Blocks of links count from 1 again. Waits for all ranks. */
void exchange_reset(void);
void exchange_close(void);

/* Whether this version puts into a window. */
bool exchange_is_notified(void);

/* Bodies of tasks. The one that receives is complete when the block is there. The one that sends is
 * complete when the data may be overwritten. In notified versions that needs exchange_flush, unless
 * other data from the receiver tell that it has the block. Blocks of a link count from 1. */
void exchange_send(const struct link *, const double *data);
void exchange_flush(const struct link *);
void exchange_receive(const struct link *, double *place, long block);

/* A receiver that has consumed a block acknowledges it, unless its own data tell the sender. Only
 * notified versions need that. */
void exchange_acknowledge(const struct link *);
void exchange_await_acknowledged(const struct link *, long block);

/* What idle workers call, or NULL. */
void (*exchange_idle(void))(void);

#endif
