/*
 * How ranks exchange blocks in a superstep. There are two buffers, which take turns, so that a rank
 * may still read one while others fill the other.
 */
#ifndef BSP_EXCHANGE_H
#define BSP_EXCHANGE_H

#include <stddef.h>

enum { LINKS_MAX = 4 };

/* Blocks that one rank sends to another; ends of one link have equal tags. */
struct link {
    int peer, tag;
    size_t place; /* element of the receiver's buffer */
    int count;    /* elements */
};

struct links {
    struct link in[LINKS_MAX], out[LINKS_MAX];
    int ins, outs;
    size_t buffer;   /* elements of each buffer */
    int is_one_way;  /* nothing that a rank receives tells that its last block was used */
};

/* Collective. Keeps a copy of the links. */
void exchange_open(const struct links *);
void exchange_close(void);

/* The buffer of this turn, 0 or 1. */
double *exchange_buffer(int turn);

/* A superstep, whose blocks go to the buffers of this turn. `senders` has a bit for each of this
 * rank's links `in` on which a block comes. */
void exchange_begin(int turn, unsigned senders);
void exchange_send(int out, const double *data);
/* Afterwards the blocks have come, and what was sent may be overwritten. If the links are one way,
 * this rank has used the blocks in the buffer of the other turn. */
void exchange_end(void);

#endif
