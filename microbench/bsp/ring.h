/* Blocks that go round: in a superstep every rank passes its block on to the next rank, and works
 * with it meanwhile. */
#ifndef BSP_RING_H
#define BSP_RING_H

/* Blocks of `count` elements. Collective; exchange_close ends it. */
void ring_open(long count);

/* Where this rank's own block belongs before a round. */
double *ring_block(void);

/* One round: calls `work` for each rank's block, first for this rank's own, which has come back
 * when the round is over. */
void ring_pass(void (*work)(int owner, const double *block));

#endif
