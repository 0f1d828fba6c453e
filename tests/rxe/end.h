/*
 * One end of a reliable connection, by verbs alone, for probe.c and bare.c. Each function exits
 * with a message if anything fails.
 */
#ifndef END_H
#define END_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "FAILED line %d: %s\n", __LINE__, #what);                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Bytes of each half of an end's memory. */
enum { SIZE = 1 << 20 };

/* Connection data that the ends exchange. */
struct name { uint32_t queue, key; uint64_t address; union ibv_gid gid; };

struct end {
    struct ibv_pd *domain;
    struct ibv_cq *sent, *received;
    struct ibv_srq *receives;
    struct ibv_qp *queue;
    struct ibv_mr *region;
    unsigned char *memory; /* first half: the other end works on it; second half: our sends */
    struct name mine, other;
    int wire;                      /* TCP stream to the other end */
};

/* Seconds. */
double now(void);

/* Both ends call it: returns when both have. */
void meet(struct end *);

/* Connects an end to the one at the other end of its `wire`. */
void open_end(struct end *);

/* Waits for the next completion. */
struct ibv_wc next(struct ibv_cq *);

/* A request of `length` bytes, between the second half of this end's memory and the first half of
 * the other's, both at `at`. The latest one's piece of memory is in `piece`. */
struct ibv_send_wr request(struct end *, enum ibv_wr_opcode, size_t at, uint32_t length,
                           unsigned flags);
extern struct ibv_sge piece;

/* An atomic on the first word of the other end's memory. */
struct ibv_send_wr atomic_request(struct end *, enum ibv_wr_opcode, uint64_t add_or_compare,
                                  uint64_t swap);

void post(struct end *, struct ibv_send_wr);
void post_and_wait(struct end *, struct ibv_send_wr);

#endif
