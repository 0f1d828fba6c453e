#include "ring.h"

#include "bsp.h"
#include "exchange.h"

static int turn; /* of the buffer that has this rank's block */

void ring_open(long count)
{
    int next = (setup.rank + 1) % setup.ranks, last = (setup.rank + setup.ranks - 1) % setup.ranks;
    struct links links = {.ins = 1, .outs = 1, .buffer = (size_t)count, .is_one_way = 1};
    links.in[0] = (struct link){last, 0, 0, (int)count};
    links.out[0] = (struct link){next, 0, 0, (int)count};
    exchange_open(&links);
}

double *ring_block(void)
{
    return exchange_buffer(turn);
}

void ring_pass(void (*work)(int owner, const double *block))
{
    for (int i = 0; i < setup.ranks; i++) {
        const double *block = exchange_buffer(turn);
        exchange_begin(1 - turn, 1);
        exchange_send(0, block);
        work((setup.rank + setup.ranks - i) % setup.ranks, block);
        exchange_end();
        turn = 1 - turn;
    }
}
