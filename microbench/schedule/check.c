/*
 * Reads the schedules of all ranks and checks them against the rules of epochs, without MPI.
 *
 * The checker is as strict as MPI permits: opening an access epoch waits for all exposures, an
 * epoch starts only when the previous one is complete, and ranks run in a random order. Prints one
 * line; the exit status reports violations.
 */
#include "schedule.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static char case_text[160];

static void violated(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    fprintf(stderr, "schedule_check: %s: ", case_text);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    va_end(rest);
    exit(1);
}

static void must(int truth, const char *what, int rank, uint64_t number)
{
    if (!truth)
        violated("rank %d, %" PRIu64 ": %s", rank, number, what);
}

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (memory == NULL)
        violated("no memory");
    return memory;
}

static uint64_t chance(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* ---- LU ---------------------------------------------------------------------------------- */

enum { NOWHERE = 0 };

/* Epochs are numbered by row: each rank has one for each row that is broadcast. */
struct rank {
    void *schedule;
    schedule_step step;
    int waiting;         /* the step has been read but cannot be executed yet */
    int ended;
    uint64_t opened;     /* epochs of rows before this one are open or closed */
    uint64_t closed;
    uint64_t active;     /* those before this one are complete: this row's epoch is active */
    uint64_t *arrived;   /* by slot: row in it, plus 1 */
    uint64_t *applied;   /* by own row: number of rows applied to it */
    uint64_t *used;      /* by row: number of own rows it was applied to */
    uint8_t *put;        /* by row */
    uint64_t *request;   /* by number: row that it closes, plus 1 */
};

struct lu_world {
    schedule_lu_options o;
    uint64_t last, requests;
    struct rank *ranks;
};

static int owns(const struct lu_world *w, int rank, uint64_t row)
{
    return row % (uint64_t)w->o.ranks == (uint64_t)rank;
}

/* Whether a row's epoch is active on a rank: it is open, and the previous one is complete. */
static int begun(const struct rank *r, uint64_t row)
{
    return r->opened > row && r->active >= row;
}

/* Delivers puts until nothing changes. */
static void progress(struct lu_world *w)
{
    for (int changed = 1; changed;) {
        changed = 0;
        for (int me = 0; me < w->o.ranks; me++) {
            struct rank *r = &w->ranks[me];
            uint64_t row = r->active;
            if (row >= r->closed)
                continue;
            struct rank *owner = &w->ranks[row % (uint64_t)w->o.ranks];
            int complete = begun(owner, row) && owner->closed > row;
            if (owner == r) {
                for (int other = 0; other < w->o.ranks; other++)
                    complete = complete && begun(&w->ranks[other], row);
            } else if (complete) {
                uint64_t *slot = &r->arrived[row % w->o.depth];
                must(owner->put[row], "an epoch without its row", me, row);
                must(*slot <= row, "a row arrives twice", me, row);
                *slot = row + 1;
            }
            if (complete) {
                r->active++;
                changed = 1;
            }
        }
    }
}

static uint64_t later_own_rows(const struct lu_world *w, int me, uint64_t row)
{
    uint64_t count = 0;
    for (uint64_t k = row + 1; k < w->o.m; k++)
        count += (uint64_t)owns(w, me, k);
    return count;
}

static void close_epoch(struct lu_world *w, struct rank *r, int me)
{
    uint64_t row = r->closed++;
    must(r->opened == row + 1, "a closing call without its opening", me, row);
    if (w->o.series == SCHEDULE_NONBLOCKING) {
        must(r->step.request < w->requests, "a request's number is too large", me, row);
        must(r->request[r->step.request] == NOWHERE, "a request's number is in use", me, row);
        r->request[r->step.request] = row + 1;
    }
}

static void update(struct lu_world *w, struct rank *r, int me)
{
    uint64_t pivot = r->step.work;
    if (owns(w, me, pivot))
        must(r->applied[pivot] == pivot, "a row is used before it is final", me, pivot);
    else
        must(r->active > pivot && r->arrived[pivot % w->o.depth] == pivot + 1,
             "a row is applied before it arrives", me, pivot);
    for (uint64_t k = 0; k < r->step.rows; k++) {
        uint64_t row = r->step.first + k * (uint64_t)w->o.ranks;
        must(row < w->o.m && owns(w, me, row) && row > pivot, "not a row to be updated", me, row);
        must(r->applied[row]++ == pivot, "a row is updated out of order", me, row);
    }
    r->used[pivot] += r->step.rows;
}

/* Executes the step if it is possible now. */
static int made(struct lu_world *w, int me)
{
    struct rank *r = &w->ranks[me];
    const schedule_step *t = &r->step;
    int nonblocking = w->o.series == SCHEDULE_NONBLOCKING;
    uint64_t row = r->opened;
    switch (t->kind) {
    case SCHEDULE_POST:
        must(!owns(w, me, row) && t->peer == (int)(row % (uint64_t)w->o.ranks),
             "a post to the wrong rank", me, row);
        must(row == r->closed, "two open exposure epochs", me, row);
        if (row >= w->o.depth && !owns(w, me, row - w->o.depth))
            must(r->used[row - w->o.depth] == later_own_rows(w, me, row - w->o.depth),
                 "the slot is in use", me, row);
        r->opened++;
        break;
    case SCHEDULE_START:
        if (r->waiting < 2) {
            must(owns(w, me, row) && row == r->closed, "a start out of order", me, row);
            r->opened++;
            r->waiting = 2;
        }
        progress(w);
        for (int other = 0; other < w->o.ranks; other++)
            if (!nonblocking && !begun(&w->ranks[other], r->closed))
                return 0;
        break;
    case SCHEDULE_PUT:
        must(t->work == r->closed && r->opened > t->work && owns(w, me, t->work),
             "a put outside its epoch", me, t->work);
        must(r->applied[t->work] == t->work, "a row is sent before it is final", me, t->work);
        must(t->disp == (t->work % w->o.depth * w->o.m + t->work) * 8 &&
                 t->bytes == (w->o.m - t->work) * 8,
             "a put to the wrong place", me, t->work);
        r->put[t->work] = 1;
        break;
    case SCHEDULE_COMPLETE:
    case SCHEDULE_WAIT:
        if (r->waiting < 2)
            close_epoch(w, r, me);
        r->waiting = 2;
        progress(w);
        return nonblocking || r->active >= r->closed;
    case SCHEDULE_AWAIT:
        must(nonblocking && t->request < w->requests && r->request[t->request] != NOWHERE,
             "nothing to wait for", me, t->request);
        if (r->active < r->request[t->request])
            return 0;
        r->request[t->request] = NOWHERE;
        break;
    case SCHEDULE_COMPUTE:
        update(w, r, me);
        break;
    default:
        violated("rank %d: a step that LU does not have: %d", me, (int)t->kind);
    }
    progress(w);
    return 1;
}

static void ended(struct lu_world *w, int me)
{
    struct rank *r = &w->ranks[me];
    for (uint64_t row = (uint64_t)me; row < w->o.m; row += (uint64_t)w->o.ranks)
        must(r->applied[row] == row, "a row is not finished", me, row);
    for (uint64_t k = 0; k < w->requests; k++)
        must(r->request[k] == NOWHERE, "a request was not awaited", me, k);
    if (w->o.ranks > 1)
        must(r->closed == w->last && r->opened == w->last, "epochs are missing", me, r->closed);
    r->ended = 1;
}

static void check_lu(int ranks, uint64_t m, uint64_t depth, int ahead, int series, uint64_t *seed)
{
    struct lu_world w = {
        {0, ranks, m, depth, ahead, series}, m - 1, 0, zeroed((size_t)ranks, sizeof(struct rank))};
    snprintf(case_text, sizeof case_text,
             "LU of %d ranks, %" PRIu64 " rows, depth %" PRIu64 ", ahead %d, series %d", ranks, m,
             depth, ahead, series);
    w.requests = schedule_lu_requests(&w.o);
    for (w.o.rank = 0; w.o.rank < ranks; w.o.rank++) {
        struct rank *r = &w.ranks[w.o.rank];
        r->schedule = zeroed(1, schedule_lu_size());
        r->arrived = zeroed(depth, sizeof *r->arrived);
        r->applied = zeroed(m, sizeof *r->applied);
        r->used = zeroed(m, sizeof *r->used);
        r->put = zeroed(m, sizeof *r->put);
        r->request = zeroed(w.requests, sizeof *r->request);
        must(schedule_lu_open(r->schedule, &w.o) == 0, "does not open", w.o.rank, 0);
    }
    int left = ranks, idle = 0;
    while (left > 0) {
        int me = (int)(chance(seed) % (uint64_t)ranks);
        idle++;
        for (int k = 0; k < ranks; k++, me = (me + 1) % ranks) {
            struct rank *r = &w.ranks[me];
            if (r->ended)
                continue;
            if (!r->waiting && schedule_lu_next(r->schedule, &r->step) == SCHEDULE_END) {
                ended(&w, me);
                left--;
                idle = 0;
                break;
            }
            if (!r->waiting)
                r->waiting = 1;
            if (made(&w, me)) {
                r->waiting = 0;
                idle = 0;
                break;
            }
        }
        if (idle > 1)
            violated("nobody can go on");
    }
    for (int k = 0; k < ranks; k++) {
        struct rank *r = &w.ranks[k];
        free(r->schedule), free(r->arrived), free(r->applied), free(r->used), free(r->put),
            free(r->request);
    }
    free(w.ranks);
}

/* ---- Transactions ------------------------------------------------------------------------ */

/* One rank after the other: their interaction depends on locks, not on the schedule. */
static void check_transactions(int ranks, uint64_t count, uint64_t accounts, uint64_t window,
                               int series)
{
    schedule_transactions_options o = {0, ranks, count, accounts, 1, window, 2.0, 1, series};
    snprintf(case_text, sizeof case_text,
             "%" PRIu64 " transactions of %d ranks, window %" PRIu64 ", series %d", count, ranks,
             window, series);
    uint64_t requests = schedule_transactions_requests(&o),
             words = schedule_transactions_window(&o) / 8, updates = 0;
    int64_t sum = 0, *memory = zeroed((size_t)ranks * words, sizeof *memory);
    void *schedule = zeroed(1, schedule_transactions_size());
    for (o.rank = 0; o.rank < ranks; o.rank++) {
        uint8_t *pending = zeroed(requests, 1);
        uint64_t left = 0, made_count = 0;
        int locked = -1;
        schedule_step t;
        must(schedule_transactions_open(schedule, &o) == 0, "does not open", o.rank, 0);
        while (schedule_transactions_next(schedule, &t) != SCHEDULE_END) {
            int64_t *cell = t.kind == SCHEDULE_GET || t.kind == SCHEDULE_ACCUMULATE
                                ? &memory[(uint64_t)t.peer * words + t.disp / 8] : NULL;
            if (cell != NULL)
                must(locked == t.peer && t.disp % 8 == 0 && t.disp / 8 + t.bytes / 8 <= words,
                     "a wrong place", o.rank, t.work);
            switch (t.kind) {
            case SCHEDULE_LOCK:
                must(locked < 0 && t.peer >= 0 && t.peer < ranks, "a wrong lock", o.rank, t.work);
                must(!pending[t.request], "a request's number is in use", o.rank, t.request);
                locked = t.peer;
                break;
            case SCHEDULE_ACCUMULATE:
                cell[0] += t.amount, cell[1]++;
                break;
            case SCHEDULE_GET:
                must(t.work % 4 == 3, "not an audit", o.rank, t.work);
                break;
            case SCHEDULE_UNLOCK:
                must(locked == t.peer && t.work == made_count, "a wrong unlock", o.rank, t.work);
                locked = -1;
                made_count++;
                if (series == SCHEDULE_NONBLOCKING)
                    pending[t.request] = 1, left++;
                break;
            case SCHEDULE_AWAIT:
                must(t.request < requests && pending[t.request], "nothing to wait for", o.rank,
                     t.request);
                pending[t.request] = 0, left--;
                break;
            default:
                must(t.kind == SCHEDULE_COMPUTE, "a step that transactions do not have", o.rank,
                     t.work);
            }
        }
        must(left == 0 && made_count == count, "transactions are missing", o.rank, made_count);
        free(pending);
    }
    for (uint64_t k = 0; k < (uint64_t)ranks * words; k += 2)
        sum += memory[k], updates += (uint64_t)memory[k + 1];
    must(sum == 0 && updates == 2 * schedule_transactions_changes(&o) * (uint64_t)ranks,
         "a wrong sum", 0, updates);
    free(memory);
    free(schedule);
}

int main(void)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64},
                          depths[] = {1, 2, 3, 4, 8, 100};
    static const int worlds[] = {1, 2, 3, 4, 5, 8, 16, 33};
    uint64_t seed = 1;
    int cases = 0;
    for (size_t n = 0; n < sizeof worlds / sizeof worlds[0]; n++)
        for (int series = SCHEDULE_BLOCKING; series <= SCHEDULE_NONBLOCKING; series++) {
            for (size_t m = 0; m < sizeof sizes / sizeof sizes[0]; m++)
                for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++)
                    for (int ahead = 0; ahead <= 1; ahead++, cases++)
                        check_lu(worlds[n], sizes[m], depths[d], ahead, series, &seed);
            for (uint64_t window = 0; window < 4; window++, cases += 2) {
                check_transactions(worlds[n], 50, 7, window, series);
                check_transactions(worlds[n], 0, 1, window, series);
            }
        }
    printf("schedule_check: %d cases, no violation\n", cases);
    return 0;
}
