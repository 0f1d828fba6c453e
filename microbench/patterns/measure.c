#include "measure.h"

#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALM, DELAYED, MODES };

static const double NAP_US = 20.0;

/* MPICH 4.0.2 loses puts into allocated windows of 8 bytes: it uses another window's address. */
static const size_t SMALLEST_WINDOW = 4096;

/* All stamps of one rank: [mode][iteration][slot]. */
struct record {
    int iterations;
    double *stamp;
};

static double *stamps_of(const struct record *r, int mode, int iteration)
{
    return r->stamp + ((size_t)mode * (size_t)r->iterations + (size_t)iteration) * SLOTS;
}

static size_t record_length(int iterations)
{
    return (size_t)MODES * (size_t)iterations * SLOTS;
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fprintf(stderr, "patterns: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return memory;
}

/* State for all iterations of one pattern in one series. */
struct session {
    const struct pattern *pattern;
    MPI_Comm comm;
    int rank;
    MPI_Win win;
    char *window;
    MPI_Group group[MAX_RANKS];
    size_t bytes;
    char *source, *scratch;
};

static struct session open_session(const struct pattern *p, enum series series, size_t bytes,
                                   MPI_Comm comm)
{
    struct session s = {.pattern = p, .comm = comm, .bytes = bytes};
    MPI_Comm_rank(comm, &s.rank);

    MPI_Info info;
    MPI_Info_create(&info);
    if (p->reorder_key != NULL)
        MPI_Info_set(info, p->reorder_key, series == FLAG_ON ? "true" : "false");
    size_t window_bytes = bytes * (size_t)p->ranks;
    if (window_bytes < SMALLEST_WINDOW)
        window_bytes = SMALLEST_WINDOW;
    MPI_Win_allocate((MPI_Aint)window_bytes, 1, info, comm, &s.window, &s.win);
    MPI_Info_free(&info);
    memset(s.window, 0, window_bytes);

    MPI_Group all;
    MPI_Comm_group(comm, &all);
    for (int r = 0; r < p->ranks; r++)
        MPI_Group_incl(all, 1, &r, &s.group[r]);
    MPI_Group_free(&all);

    s.source = allocate(bytes);
    s.scratch = allocate(bytes);
    return s;
}

static void close_session(struct session *s)
{
    free(s->source);
    free(s->scratch);
    for (int r = 0; r < s->pattern->ranks; r++)
        MPI_Group_free(&s->group[r]);
    MPI_Win_free(&s->win);
}

/* Whether all bytes of this iteration have arrived here. */
static bool verified(struct session *s, int iteration, int mode)
{
    bool right = true;
    if (s->pattern->passive)
        MPI_Win_lock(MPI_LOCK_SHARED, s->rank, 0, s->win);
    for (int k = 0; k < s->pattern->transfers; k++) {
        struct transfer t = s->pattern->transfer[k];
        if (t.target != s->rank)
            continue;
        fill(s->scratch, s->bytes, seed_of(iteration, mode == DELAYED, t.origin));
        right &= memcmp(s->window + s->bytes * (size_t)t.origin, s->scratch, s->bytes) == 0;
    }
    if (s->pattern->passive)
        MPI_Win_unlock(s->rank, s->win);
    return right;
}

static bool run_iteration(struct session *s, const struct role *role, bool nonblocking,
                          int iteration, int mode, double delay_us, double *stamps)
{
    struct iteration it = {
        .comm = s->comm, .win = s->win, .group = s->group, .rank = s->rank,
        .nonblocking = nonblocking, .delayed = mode == DELAYED, .delay_us = delay_us,
        .bytes = s->bytes, .source = s->source, .message = s->scratch,
    };
    for (int slot = 0; slot < SLOTS; slot++)
        it.pending[slot] = MPI_REQUEST_NULL;

    fill(s->source, s->bytes, seed_of(iteration, mode == DELAYED, s->rank));
    barrier_politely(s->comm, NAP_US); /* no rank prepares while another still verifies */
    if (role->prepare != NULL)
        role->prepare(&it);
    it.start_us = common_start(s->comm);
    if (role->run != NULL)
        role->run(&it);
    barrier_politely(s->comm, NAP_US);
    if (stamps != NULL)
        memcpy(stamps, it.stamp, sizeof it.stamp);
    return verified(s, iteration, mode);
}

static struct spread spread_in(const struct record *r, int mode, int slot, double *room)
{
    for (int i = 0; i < r->iterations; i++)
        room[i] = stamps_of(r, mode, i)[slot];
    return spread_of(room, (size_t)r->iterations);
}

/* On rank 0: medians of all ranks' stamps, and the predictions from them. */
static void evaluate(const struct pattern *p, enum series series, int iterations,
                     const struct record *all, struct result *result)
{
    double *room = allocate(sizeof *room * (size_t)iterations);
    struct calm calm = {.middle = p->middle_rank};
    for (int r = 0; r < p->ranks; r++)
        for (int slot = 0; slot < SLOTS; slot++)
            calm.median[r][slot] = spread_in(&all[r], CALM, slot, room).median;
    calm.delay_us = spread_in(&all[p->delayed_rank], DELAYED, DELAY, room).median;

    result->delay_us = calm.delay_us;
    for (int k = 0; k < p->metrics; k++) {
        const struct metric *m = &p->metric[k];
        prediction *predict =
            series == NONBLOCKING || series == FLAG_ON ? m->mitigated : m->propagated;
        result->measured[k] = spread_in(&all[m->rank], DELAYED, m->slot, room);
        result->predicted_us[k] = predict(&calm, m);
    }
    free(room);
}

struct result measure(const struct pattern *p, enum series series, size_t bytes, MPI_Comm comm,
                      const struct options *options)
{
    struct session s = open_session(p, series, bytes, comm);
    const struct role *role = &p->role[s.rank];
    bool nonblocking = series != HOST && series != BLOCKING;
    size_t length = record_length(options->iterations);
    struct record mine = {options->iterations, allocate(length * sizeof(double))};

    int wrong = 0;
    for (int i = -options->warmup; i < options->iterations; i++)
        for (int mode = CALM; mode < MODES; mode++) {
            double *stamps = i < 0 ? NULL : stamps_of(&mine, mode, i);
            wrong += !run_iteration(&s, role, nonblocking, i, mode, options->delay_us, stamps);
        }

    struct result result = {.wrong = 0};
    MPI_Allreduce(&wrong, &result.wrong, 1, MPI_INT, MPI_SUM, comm);
    double *stamps = s.rank == 0 ? allocate(length * (size_t)p->ranks * sizeof(double)) : NULL;
    MPI_Gather(mine.stamp, (int)length, MPI_DOUBLE, stamps, (int)length, MPI_DOUBLE, 0, comm);
    if (s.rank == 0) {
        struct record all[MAX_RANKS];
        for (int r = 0; r < p->ranks; r++)
            all[r] = (struct record){options->iterations, stamps + length * (size_t)r};
        evaluate(p, series, options->iterations, all, &result);
        free(stamps);
    }
    free(mine.stamp);
    close_session(&s);
    return result;
}
