/* One-way links between ranks, with places for chunks at their receiving end: what is passed on is told of, and so is that a place
 * is free again. One interface, three ways. */
#ifndef LINKS_H
#define LINKS_H

#include <stddef.h>

enum { PLACES = 16 }; /* of a receiver; each is used by one sender alone */

/* From one place to the next: no two share a cache line, nor a pair of lines that processors fetch together. */
size_t apart(size_t bytes);

struct link_way {
    const char *name;
    /* Passes `bytes` on to a place of `to`, which is free. `data` stay until the place is free again. */
    void (*pass)(int to, int place, const void *data, size_t bytes);
    /* Waits until something has come to a place of this rank, and gives it. */
    const void *(*take)(int from, int place, size_t bytes);
    /* Tells the sender that a place of this rank is free. */
    void (*clear)(int from, int place);
    /* Waits until the place of `to` is free, to which something was passed. */
    void (*await_clear)(int to, int place);
};

extern const struct link_way link_ways[];
extern const int link_way_count;

#endif
