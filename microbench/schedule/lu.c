#include "schedule.h"

#include <string.h>

/* A rank's position within the turn of one row. */
enum place {
    TURN,      /* all earlier rows have been applied, except perhaps leftovers */
    ARRIVE,    /* another rank's row: waits for its arrival */
    ARRIVED,   /* it has arrived; perhaps the next row comes first */
    BROADCAST, /* the row is final and this rank's own */
    PUT,
    INSIDE,    /* computes in the access epoch, or right after closing it */
    CLOSE,
    UPDATE,    /* updates the remaining rows */
    DRAIN
};

struct lu {
    uint64_t m, depth, ranks;
    uint64_t last;     /* the rows before this one are broadcast */
    uint64_t row;      /* current row */
    uint64_t own;      /* first own row whose access epoch is not closed yet */
    uint64_t
        opened; /* exposure epochs of rows before this one were opened, and closed if nonblocking */
    uint64_t consumed; /* the rows before this one are no longer needed */
    int32_t place;
    uint8_t nonblocking, ahead;
    uint8_t exposed;  /* an exposure epoch is open */
    uint8_t accessed; /* an access epoch is closed and not awaited */
    uint8_t leftover; /* rows were left out when the previous row was applied */
    uint8_t updated;  /* this row has been applied */
};

enum { CELL = 8 };

const char *schedule_lu_problem(const schedule_lu_options *o)
{
    if (o->ranks < 1 || o->rank < 0 || o->rank >= o->ranks)
        return "the rank is not one of the ranks";
    if (o->m < 1)
        return "the matrix has no rows";
    if (o->depth < 1)
        return "the ring has no slots";
    if (o->m > UINT64_MAX / CELL / o->depth)
        return "the ring does not fit into 64-bit addresses";
    if (o->ahead < 0 || o->ahead > 1)
        return "the look-ahead is neither 0 nor 1";
    if (o->series != SCHEDULE_BLOCKING && o->series != SCHEDULE_NONBLOCKING)
        return "unknown series";
    return NULL;
}

size_t schedule_lu_size(void)
{
    return sizeof(struct lu);
}

uint64_t schedule_lu_window(const schedule_lu_options *o)
{
    return o->depth * o->m * CELL;
}

/* One per slot, and one for the access epoch. */
uint64_t schedule_lu_requests(const schedule_lu_options *o)
{
    return o->depth + 1;
}

int schedule_lu_open(void *state, const schedule_lu_options *o)
{
    if (schedule_lu_problem(o) != NULL)
        return -1;
    struct lu *s = state;
    memset(s, 0, sizeof *s);
    s->m = o->m;
    s->depth = o->depth;
    s->ranks = (uint64_t)o->ranks;
    s->last = o->m - 1;
    s->own = (uint64_t)o->rank;
    s->place = TURN;
    s->nonblocking = o->series == SCHEDULE_NONBLOCKING;
    s->ahead = o->ahead && o->ranks > 1;
    return 0;
}

static int say(schedule_step *step, schedule_kind kind, uint64_t peer, uint64_t request)
{
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->peer = (int32_t)peer;
    step->request = request;
    return kind;
}

static int others(schedule_step *step, schedule_kind kind, uint64_t request)
{
    say(step, kind, 0, request);
    step->peer = SCHEDULE_OTHERS;
    return kind;
}

/* Updates `first` and this rank's later rows, at most as many as given, with row `pivot`. */
static int compute(const struct lu *s, schedule_step *step, uint64_t pivot, uint64_t first,
                   uint64_t rows)
{
    say(step, SCHEDULE_COMPUTE, 0, 0);
    step->work = pivot;
    step->first = first;
    step->rows = rows;
    step->flops = (double)rows * (1.0 + 2.0 * (double)(s->last - pivot));
    return SCHEDULE_COMPUTE;
}

static uint64_t rows_from(const struct lu *s, uint64_t first)
{
    return first < s->m ? (s->m - 1 - first) / s->ranks + 1 : 0;
}

/* This rank's first row after the current one. */
static uint64_t later_row(const struct lu *s)
{
    return s->own == s->row ? s->own + s->ranks : s->own;
}

/* Opens an exposure epoch as early as its slot and the order of rows permit. Blocking: one at a
 * time. */
static int may_expose(const struct lu *s)
{
    return !s->exposed && s->opened < s->last && s->opened != s->own &&
           s->opened - s->consumed < s->depth;
}

static int put_row(struct lu *s, schedule_step *step)
{
    others(step, SCHEDULE_PUT, s->depth);
    step->disp = (s->row % s->depth * s->m + s->row) * CELL;
    step->bytes = (s->m - s->row) * CELL;
    step->work = s->row;
    return SCHEDULE_PUT;
}

static int close_access(struct lu *s, schedule_step *step)
{
    s->own += s->ranks;
    s->opened = s->row + 1;
    s->accessed = s->nonblocking;
    return others(step, SCHEDULE_COMPLETE, s->depth);
}

static int close_exposure(struct lu *s, schedule_step *step, uint64_t row)
{
    s->exposed = 0;
    s->opened = row + 1;
    return say(step, SCHEDULE_WAIT, row % s->ranks, row % s->depth);
}

static int await_access(struct lu *s, schedule_step *step)
{
    s->accessed = 0;
    return others(step, SCHEDULE_AWAIT, s->depth);
}

int schedule_lu_next(void *state, schedule_step *step)
{
    struct lu *s = state;
    for (;;) {
        if (s->exposed && s->nonblocking)
            return close_exposure(s, step, s->opened);
        if (may_expose(s)) {
            s->exposed = 1;
            return say(step, SCHEDULE_POST, s->opened % s->ranks, s->opened % s->depth);
        }
        switch (s->place) {
        case TURN:
            s->place = s->row == s->last ? DRAIN : s->row == s->own ? BROADCAST : ARRIVE;
            break;
        case ARRIVE:
            s->place = ARRIVED;
            if (!s->nonblocking)
                return close_exposure(s, step, s->row);
            return say(step, SCHEDULE_AWAIT, s->row % s->ranks, s->row % s->depth);
        case ARRIVED:
            s->place = UPDATE;
            if (s->ahead && s->row + 1 == s->own && s->own < s->last) {
                s->place = BROADCAST;
                s->leftover = 1;
                s->row++;
                return compute(s, step, s->row - 1, s->row, 1);
            }
            break;
        case BROADCAST:
            if (s->ranks == 1) { /* nobody needs the last row */
                s->opened = ++s->own;
                s->place = UPDATE;
                break;
            }
            /* The epoch of this rank's previous row: all others have applied it, or this row would
             * not be final. */
            if (s->accessed)
                return await_access(s, step);
            s->place = PUT;
            return others(step, SCHEDULE_START, s->depth);
        case PUT:
            s->place = s->nonblocking ? CLOSE : INSIDE;
            return put_row(s, step);
        case INSIDE: {
            uint64_t first = later_row(s), rows = rows_from(s, first);
            s->place = s->nonblocking ? UPDATE : CLOSE;
            if (!s->leftover && s->ahead)
                break;
            uint64_t pivot = s->leftover ? s->row - 1 : s->row;
            s->updated = !s->leftover;
            s->leftover = 0;
            s->consumed = pivot + 1;
            if (rows > 0)
                return compute(s, step, pivot, first, rows);
            break;
        }
        case CLOSE:
            s->place = s->nonblocking ? INSIDE : UPDATE;
            return close_access(s, step);
        case UPDATE: {
            uint64_t pivot = s->row, rows = s->updated ? 0 : rows_from(s, s->own);
            s->updated = 0;
            s->consumed = ++s->row;
            s->place = TURN;
            if (rows > 0)
                return compute(s, step, pivot, s->own, rows);
            break;
        }
        default: /* DRAIN */
            return s->accessed ? await_access(s, step) : say(step, SCHEDULE_END, 0, 0);
        }
    }
}
