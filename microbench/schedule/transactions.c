#include "schedule.h"

#include <string.h>

enum { WORD = 8, CELL = 3 * WORD, UPDATE = 2 * WORD };

/* The steps of one transaction, in their order. */
enum place { MAKE_ROOM, OPEN, ADD_LEFT, ADD_RIGHT, STAMP_LEFT, STAMP_RIGHT, CLOSE, THINK, DRAIN };

struct transactions {
    uint64_t rank, ranks, count, accounts, seed;
    uint64_t requests; /* closing requests are numbered below this */
    uint64_t number;   /* of the transaction, from 0 */
    uint64_t awaited;  /* transactions before this one are complete */
    uint64_t account;
    int64_t amount;
    double flops;
    int32_t target;
    int32_t place;
    uint8_t nonblocking, stamps;
};

const char *schedule_transactions_problem(const schedule_transactions_options *o)
{
    if (o->ranks < 1 || o->rank < 0 || o->rank >= o->ranks)
        return "the rank is not one of the ranks";
    if (o->accounts < 1)
        return "there are no accounts";
    if (o->accounts > UINT64_MAX / (2 * CELL))
        return "the accounts do not fit into 64-bit addresses";
    if (!(o->flops >= 0.0))
        return "the computation is negative";
    if (o->stamps < 0 || o->stamps > 1)
        return "stamps is neither 0 nor 1";
    if (o->series != SCHEDULE_BLOCKING && o->series != SCHEDULE_NONBLOCKING)
        return "unknown series";
    return NULL;
}

size_t schedule_transactions_size(void)
{
    return sizeof(struct transactions);
}

uint64_t schedule_transactions_window(const schedule_transactions_options *o)
{
    return 2 * CELL * o->accounts;
}

uint64_t schedule_transactions_requests(const schedule_transactions_options *o)
{
    if (o->series == SCHEDULE_BLOCKING || o->count == 0)
        return 1;
    return o->window == 0 || o->window > o->count ? o->count : o->window;
}

int schedule_transactions_open(void *state, const schedule_transactions_options *o)
{
    if (schedule_transactions_problem(o) != NULL)
        return -1;
    struct transactions *s = state;
    memset(s, 0, sizeof *s);
    s->rank = (uint64_t)o->rank;
    s->ranks = (uint64_t)o->ranks;
    s->count = o->count;
    s->accounts = o->accounts;
    s->seed = o->seed;
    s->requests = schedule_transactions_requests(o);
    s->flops = o->flops;
    s->nonblocking = o->series == SCHEDULE_NONBLOCKING;
    s->stamps = (uint8_t)o->stamps;
    s->place = MAKE_ROOM;
    return 0;
}

/* splitmix64: neighbouring seeds give unrelated numbers. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* What the transaction is follows from seed, rank and number alone: the same in all series. */
static void draw(struct transactions *s)
{
    uint64_t first = mix(mix(s->seed ^ mix(s->rank)) + s->number);
    uint64_t second = mix(first), third = mix(second);
    s->target = (int32_t)(first % s->ranks);
    s->account = second % s->accounts;
    s->amount = (int64_t)(third % 1999) - 999;
}

static int say(const struct transactions *s, schedule_step *step, schedule_kind kind, uint64_t number)
{
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->peer = s->target;
    step->request = s->nonblocking ? number % s->requests : 0;
    step->work = number;
    return kind;
}

static int change(const struct transactions *s, schedule_step *step, schedule_kind kind, uint64_t half)
{
    say(s, step, kind, s->number);
    uint64_t cell = (half * s->accounts + s->account) * CELL;
    step->first = half;
    step->disp = kind == SCHEDULE_PUT ? cell + UPDATE : cell;
    step->bytes = kind == SCHEDULE_PUT ? WORD : UPDATE;
    if (kind == SCHEDULE_PUT)
        step->amount = (int64_t)(s->rank * s->count + s->number + 1);
    else
        step->amount = half == 0 ? -s->amount : s->amount;
    return kind;
}

static int await_oldest(struct transactions *s, schedule_step *step)
{
    say(s, step, SCHEDULE_AWAIT, s->awaited++);
    step->peer = SCHEDULE_OTHERS;
    return SCHEDULE_AWAIT;
}

int schedule_transactions_next(void *state, schedule_step *step)
{
    struct transactions *s = state;
    switch (s->place) {
    case MAKE_ROOM:
        if (s->number < s->count) {
            s->place = OPEN;
            if (s->nonblocking && s->number - s->awaited == s->requests)
                return await_oldest(s, step);
        } else {
            s->place = DRAIN;
            return schedule_transactions_next(state, step);
        }
        /* fall through */
    case OPEN:
        draw(s);
        s->place = ADD_LEFT;
        return say(s, step, SCHEDULE_LOCK, s->number);
    case ADD_LEFT:
        s->place = ADD_RIGHT;
        return change(s, step, SCHEDULE_ACCUMULATE, 0);
    case ADD_RIGHT:
        s->place = s->stamps ? STAMP_LEFT : CLOSE;
        return change(s, step, SCHEDULE_ACCUMULATE, 1);
    case STAMP_LEFT:
        s->place = STAMP_RIGHT;
        return change(s, step, SCHEDULE_PUT, 0);
    case STAMP_RIGHT:
        s->place = CLOSE;
        return change(s, step, SCHEDULE_PUT, 1);
    case CLOSE:
        s->place = s->flops > 0.0 ? THINK : MAKE_ROOM;
        return say(s, step, SCHEDULE_UNLOCK, s->number++);
    case THINK:
        s->place = MAKE_ROOM;
        say(s, step, SCHEDULE_COMPUTE, s->number - 1);
        step->flops = s->flops;
        return SCHEDULE_COMPUTE;
    default: /* DRAIN */
        if (s->nonblocking && s->awaited < s->count)
            return await_oldest(s, step);
        return say(s, step, SCHEDULE_END, 0);
    }
}
