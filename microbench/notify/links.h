/*
 * One-way links between ranks, with slots for chunks at the receiver. A link announces chunks and
 * free slots. One interface, three implementations.
 */
#ifndef LINKS_H
#define LINKS_H

#include <stddef.h>

enum { PLACES = 16 }; /* slots of a receiver; one sender uses each */

/* Stride between slots: no two share a cache line, or a pair of lines that are prefetched
 * together. */
size_t apart(size_t bytes);

struct link_way {
    const char *name;
    /* Sends `bytes` to a free slot of `to`. `data` must not change until the slot is free again. */
    void (*pass)(int to, int place, const void *data, size_t bytes);
    /* Waits until a chunk has arrived in a slot of this rank, and returns it. */
    const void *(*take)(int from, int place, size_t bytes);
    /* Tells the sender that a slot of this rank is free. */
    void (*clear)(int from, int place);
    /* Waits until a slot of `to` that was sent to is free again. */
    void (*await_clear)(int to, int place);
};

extern const struct link_way link_ways[];
extern const int link_way_count;

#endif
