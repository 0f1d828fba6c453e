#include "schedule.h"

#include <string.h>

enum { CELL = 16, AUDIT_EVERY = 4 };

/* The steps of one transaction, in order. */
enum place { MAKE_ROOM, OPEN, LEFT, RIGHT, CLOSE, THINK, DRAIN };

struct transactions {
    uint64_t rank, ranks, count, accounts, seed;
    uint64_t requests; /* upper bound of closing request numbers */
    uint64_t number;   /* current transaction, from 0 */
    uint64_t awaited;  /* transactions before this one are complete */
    uint64_t account;
    int64_t amount;
    double flops;
    int32_t target;
    int32_t place;
    uint8_t nonblocking, audits;
    uint8_t audit; /* whether this one is an audit */
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
    if (o->audits < 0 || o->audits > 1)
        return "audits is neither 0 nor 1";
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

uint64_t schedule_transactions_changes(const schedule_transactions_options *o)
{
    return o->audits ? o->count - o->count / AUDIT_EVERY : o->count;
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
    s->audits = (uint8_t)o->audits;
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

/* A transaction depends only on seed, rank and number, so it is equal in all series. */
static void draw(struct transactions *s)
{
    uint64_t first = mix(mix(s->seed ^ mix(s->rank)) + s->number);
    uint64_t second = mix(first), third = mix(second);
    s->target = (int32_t)(first % s->ranks);
    s->account = second % s->accounts;
    s->amount = (int64_t)(third % 1999) - 999;
    s->audit = s->audits && s->number % AUDIT_EVERY == AUDIT_EVERY - 1;
}

static int say(const struct transactions *s, schedule_step *step, schedule_kind kind,
               uint64_t number)
{
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->peer = s->target;
    step->request = s->nonblocking ? number % s->requests : 0;
    step->work = number;
    return kind;
}

/* The operation on one half of the account. */
static int operate(const struct transactions *s, schedule_step *step, uint64_t half)
{
    say(s, step, s->audit ? SCHEDULE_GET : SCHEDULE_ACCUMULATE, s->number);
    step->first = half;
    step->disp = (half * s->accounts + s->account) * CELL;
    step->bytes = CELL;
    step->amount = s->audit ? 0 : half == 0 ? -s->amount : s->amount;
    return step->kind;
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
        s->place = LEFT;
        return say(s, step, SCHEDULE_LOCK, s->number);
    case LEFT:
        s->place = RIGHT;
        return operate(s, step, 0);
    case RIGHT:
        s->place = CLOSE;
        return operate(s, step, 1);
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
