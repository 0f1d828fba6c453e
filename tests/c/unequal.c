/*
 * Sides of different sizes (MPI-4.1 12.3.1 to 12.3.4). As for send and receive, the sent data must
 * fit, and only that is moved. A put or accumulate sends the origin's data, a get the target's; a
 * get_accumulate sends both ways. Random layouts on all sides, in every form of the calls, and
 * empty transfers, which access nothing wherever they point.
 *
 *   unequal [TRIALS]
 *
 * On a plain host it checks only puts of one predefined datatype, gets of equal sizes, and empty
 * transfers. Hosts fail beyond that: MPICH 4.0 aborts if a put over UCX has room to spare in a
 * vector, and accumulates target_count elements whatever the origin has. Open MPI 4.1 gets and
 * accumulates origin_count elements whatever the target has.
 */
#include "check.h"
#include <dlfcn.h>

enum { ROOM = 256, MOST = 40 };
enum { PUT, GET, ACC, GETACC, FETCH, CALLS };
enum { PLAINLY, REQUEST, LARGE, NOTIFIED, NOTIFIED_REQUEST, TAGGED, FORMS };
enum { DYNAMIC = KINDS, ALL_KINDS };

static int ours, kind;
static MPI_Win win;
static MPI_Aint bases[64];
static uint64_t seed = 7;

static int below(int n) { return (int)(next_random(&seed) % n); }

/* ---- Random sides ---- */

static MPI_Datatype types[7];

static void make_types(void)
{
    types[0] = MPI_INT;
    MPI(MPI_Type_contiguous(4, MPI_INT, &types[1]));
    MPI(MPI_Type_vector(3, 1, 2, MPI_INT, &types[2]));
    MPI(MPI_Type_indexed(3, (int[]){2, 1, 3}, (int[]){7, 0, 2}, MPI_INT, &types[3]));
    MPI(MPI_Type_create_resized(types[2], 0, 3 * sizeof(int), &types[4]));
    MPI(MPI_Type_create_hvector(2, 2, 11 * sizeof(int), types[2], &types[5]));
    types[6] = MPI_BYTE;
    for (int i = 1; i < 6; i++)
        MPI(MPI_Type_commit(&types[i]));
}

static void free_types(void)
{
    for (int i = 1; i < 6; i++)
        MPI(MPI_Type_free(&types[i]));
}

typedef struct {
    MPI_Datatype type;
    int count;
    int bytes;    /* of data */
    int at[ROOM]; /* displacements of its ints */
} Side;

/* A side of at most `most` ints. Bytes only for transfers without reduction. */
static Side random_side(int most, int bytes_too)
{
    static int numbers[ROOM];
    Side side;
    int size, position = 0;
    side.type = types[ours ? below(bytes_too ? 7 : 6) : 0];
    MPI(MPI_Type_size(side.type, &size));
    side.count = below(most * (int)sizeof(int) / size + 1);
    if (side.type == MPI_BYTE)
        side.count &= ~3;
    side.bytes = size * side.count;
    for (int i = 0; i < ROOM; i++)
        numbers[i] = i;
    memset(side.at, -1, sizeof side.at);
    MPI(MPI_Pack(numbers, side.count, side.type, side.at, sizeof side.at, &position,
                 MPI_COMM_SELF));
    REQUIRE(position == side.bytes);
    return side;
}

/* ---- Calls ---- */

#define COUNTED(suffix, ...)                                                                       \
    switch (call) {                                                                                \
        case PUT:                                                                                  \
            return MPI_Put##suffix(out, o->count, o->type, t, disp, s->count, s->type,             \
                                   win __VA_ARGS__);                                               \
        case GET:                                                                                  \
            return MPI_Get##suffix(in, r->count, r->type, t, disp, s->count, s->type,              \
                                   win __VA_ARGS__);                                               \
        case ACC:                                                                                  \
            return MPI_Accumulate##suffix(out, o->count, o->type, t, disp, s->count, s->type,      \
                                          MPI_SUM, win __VA_ARGS__);                               \
        default:                                                                                   \
            return MPI_Get_accumulate##suffix(out, o->count, o->type, in, r->count, r->type, t,    \
                                              disp, s->count, s->type, op, win __VA_ARGS__);       \
    }

static int plainly(int call, const Side *o, const Side *r, int t, MPI_Aint disp, const Side *s,
                   const int *out, int *in)
{
    MPI_Op op = call == FETCH ? MPI_NO_OP : MPI_SUM;
    COUNTED(, )
}

#if MPI_VERSION >= 4
static int large(int call, const Side *o, const Side *r, int t, MPI_Aint disp, const Side *s,
                 const int *out, int *in)
{
    MPI_Op op = call == FETCH ? MPI_NO_OP : MPI_SUM;
    COUNTED(_c, )
}
#else
#define large plainly
#endif

static int requested(int call, const Side *o, const Side *r, int t, MPI_Aint disp, const Side *s,
                     const int *out, int *in)
{
    MPI_Op op = call == FETCH ? MPI_NO_OP : MPI_SUM;
    MPI_Request q = MPI_REQUEST_NULL;
    int code;
    if (call == PUT)
        code = MPI_Rput(out, o->count, o->type, t, disp, s->count, s->type, win, &q);
    else if (call == GET)
        code = MPI_Rget(in, r->count, r->type, t, disp, s->count, s->type, win, &q);
    else if (call == ACC)
        code =
            MPI_Raccumulate(out, o->count, o->type, t, disp, s->count, s->type, MPI_SUM, win, &q);
    else
        code = MPI_Rget_accumulate(out, o->count, o->type, in, r->count, r->type, t, disp, s->count,
                                   s->type, op, win, &q);
    if (code == MPI_SUCCESS)
        MPI(MPI_Wait(&q, MPI_STATUS_IGNORE));
    return code;
}

#ifndef PLAIN
static int notified(int call, const Side *o, const Side *r, int t, MPI_Aint disp, const Side *s,
                    const int *out, int *in)
{
    if (call == PUT)
        return MPIX_Put_notify(out, o->count, o->type, t, disp, s->count, s->type, 0, win);
    if (call == GET)
        return MPIX_Get_notify(in, r->count, r->type, t, disp, s->count, s->type, 0, win);
    if (call == ACC)
        return MPIX_Accumulate_notify(out, o->count, o->type, t, disp, s->count, s->type, MPI_SUM,
                                      0, win);
    return MPIX_Get_accumulate_notify(out, o->count, o->type, in, r->count, r->type, t, disp,
                                      s->count, s->type, call == FETCH ? MPI_NO_OP : MPI_SUM, 0,
                                      win);
}

static int notified_request(int call, const Side *o, const Side *r, int t, MPI_Aint disp,
                            const Side *s, const int *out, int *in)
{
    MPI_Request q = MPI_REQUEST_NULL;
    int code;
    if (call == PUT)
        code = MPIX_Rput_notify(out, o->count, o->type, t, disp, s->count, s->type, 0, win, &q);
    else if (call == GET)
        code = MPIX_Rget_notify(in, r->count, r->type, t, disp, s->count, s->type, 0, win, &q);
    else
        return notified(call, o, r, t, disp, s, out, in);
    if (code == MPI_SUCCESS)
        MPI(MPI_Wait(&q, MPI_STATUS_IGNORE));
    return code;
}

static int tagged(int call, const Side *o, const Side *r, int t, MPI_Aint disp, const Side *s,
                  const int *out, int *in)
{
    if (call == PUT)
        return MPIX_Put_tagged(out, o->count, o->type, t, disp, s->count, s->type, 3, win);
    if (call == GET)
        return MPIX_Get_tagged(in, r->count, r->type, t, disp, s->count, s->type, 3, win);
    return plainly(call, o, r, t, disp, s, out, in);
}
#else
#define notified plainly
#define notified_request requested
#define tagged plainly
#endif

static int (*const forms[FORMS])(int, const Side *, const Side *, int, MPI_Aint, const Side *,
                                 const int *, int *) = {plainly,  requested,        large,
                                                        notified, notified_request, tagged};

/* ---- Trials ---- */

static MPI_Aint place(int t, int at)
{
    return kind == DYNAMIC ? MPI_Aint_add(bases[t], (MPI_Aint)(at * sizeof(int))) : at;
}

/* One call on this process's own part of the target's window, in an exclusive lock. */
static void trial(int t, int number)
{
    static int out[ROOM], in[ROOM], in_before[ROOM], there[ROOM], before[ROOM], after[ROOM];
    int call = below(CALLS), form = below(FORMS), moves = call == PUT || call == GET;
    Side o = random_side(MOST, moves), s = random_side(MOST, moves), r = random_side(MOST, moves);
    if (below(4) == 0) /* the largest side is the target */
        o = random_side(4, moves);
    int sent = call == PUT || call == ACC ? o.bytes : s.bytes,
        room = call == PUT || call == ACC ? s.bytes : r.bytes;
    int changes = call == PUT || call == ACC || call == GETACC,
        fetches = call != PUT && call != ACC;
    int fits = sent <= room && (call != GETACC || o.bytes <= s.bytes);
    if (!ours && (!fits || !moves || (call == GET && sent != room)))
        return;
    for (int i = 0; i < ROOM; i++) {
        out[i] = 1000 * number + i;
        in[i] = in_before[i] = -i - 1;
        there[i] = before[i] = 7 * i + number;
    }
    if (changes)
        for (int i = 0; i < (call == GETACC ? o.bytes : sent) / (int)sizeof(int) && fits; i++)
            there[s.at[i]] = out[o.at[i]] + (call == PUT ? 0 : there[s.at[i]]);
    if (fetches)
        for (int i = 0; i < sent / (int)sizeof(int) && fits; i++)
            in_before[r.at[i]] = before[s.at[i]];
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, win));
    MPI(MPI_Put(before, ROOM, MPI_INT, t, place(t, me * ROOM), ROOM, MPI_INT, win));
    MPI(MPI_Win_flush(t, win));
    int code = forms[form](call, &o, &r, t, place(t, me * ROOM), &s, out, in);
    int class = class_of(code), wanted = fits ? MPI_SUCCESS : MPI_ERR_TRUNCATE;
    EXPECT(class == wanted,
           "trial %d: call %d, form %d, %d, %d and %d bytes: class %d, not %d (%s)", number, call,
           form, o.bytes, s.bytes, r.bytes, class, wanted, error_text(code));
    if (!fits && class == wanted)
        EXPECT(strstr(error_text(code), "larger"), "the error text of a truncation: %s",
               error_text(code));
    MPI(MPI_Win_flush(t, win));
    MPI(MPI_Get(after, ROOM, MPI_INT, t, place(t, me * ROOM), ROOM, MPI_INT, win));
    MPI(MPI_Win_unlock(t, win));
    for (int i = 0; i < ROOM && failures < 20; i++) {
        EXPECT(after[i] == there[i],
               "trial %d: call %d, form %d: int %d of the target is %d, not %d", number, call, form,
               i, after[i], there[i]);
        EXPECT(in[i] == in_before[i],
               "trial %d: call %d, form %d: int %d of the origin is %d, not %d", number, call, form,
               i, in[i], in_before[i]);
    }
}

/* Only accessed memory must lie in the window. */
static void at_the_end(int t)
{
    int one = 4711, back[8] = {0}, last = ROOM * ranks - 1;
    MPI_Aint disp = place(t, last);
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, win));
    MPI(MPI_Put(&one, 1, MPI_INT, t, disp, 1000, MPI_INT, win));
    MPI(MPI_Win_flush(t, win));
    MPI(MPI_Get(back, 8, MPI_INT, t, disp, 1, MPI_INT, win));
    MPI(MPI_Win_flush(t, win));
    EXPECT(back[0] == 4711 && back[1] == 0, "the last int: %d %d", back[0], back[1]);
    one = 1;
    MPI(MPI_Put(&one, 1, MPI_INT, t, disp, 1, types[2], win));
    MPI(MPI_Win_flush(t, win));
    MPI(MPI_Get(back, 8, MPI_INT, t, disp, 1, MPI_INT, win));
    MPI(MPI_Win_flush(t, win));
    EXPECT(back[0] == 1, "the last int, with a vector: %d", back[0]);
    if (ours) {
        int code = MPI_Put(back, 2, MPI_INT, t, disp, 1, types[2], win);
        EXPECT(class_of(code) == MPI_ERR_RMA_RANGE, "two ints at the end: class %d",
               class_of(code));
        code = MPI_Get(back, 8, MPI_INT, t, disp, 1, types[2], win);
        EXPECT(class_of(code) == MPI_ERR_RMA_RANGE, "a vector at the end: class %d",
               class_of(code));
    }
    MPI(MPI_Win_unlock(t, win));
}

/* An empty transfer accesses nothing: any displacement from 0 on is valid, and any buffer. */
static void nothing(MPI_Win w, int t)
{
    const MPI_Aint disps[] = {0, 1, 1 << 20, (MPI_Aint)1 << 40, INT64_MAX / 64};
    int value = 1, result = 2;
    MPI_Request r[4];
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w));
    for (size_t i = 0; i < sizeof disps / sizeof *disps; i++) {
        MPI_Aint d = disps[i];
        for (int k = 0; k < 3; k++) {
            MPI_Datatype type = types[k * 2]; /* int, and two derived ones */
            MPI(MPI_Put(NULL, 0, type, t, d, 0, type, w));
            MPI(MPI_Get(NULL, 0, type, t, d, 0, type, w));
            MPI(MPI_Put(&value, 0, MPI_INT, t, d, 0, type, w));
            MPI(MPI_Accumulate(NULL, 0, type, t, d, 0, type, MPI_SUM, w));
            if (ours) { /* plain hosts read this buffer or crash */
                MPI(MPI_Put(&value, 0, MPI_INT, t, d, 3, type, w));
                MPI(MPI_Get(&result, 1, MPI_INT, t, d, 0, type, w));
                MPI(MPI_Accumulate(&value, 0, type, t, d, 3, type, MPI_SUM, w));
                MPI(MPI_Get_accumulate(NULL, 0, type, NULL, 0, type, t, d, 0, type, MPI_SUM, w));
                MPI(MPI_Get_accumulate(NULL, 0, type, &result, 1, MPI_INT, t, d, 0, type, MPI_NO_OP,
                                       w));
                MPI(MPI_Rput(NULL, 0, type, t, d, 0, type, w, &r[0]));
                MPI(MPI_Rget(NULL, 0, type, t, d, 0, type, w, &r[1]));
                MPI(MPI_Raccumulate(NULL, 0, type, t, d, 0, type, MPI_SUM, w, &r[2]));
                MPI(MPI_Rget_accumulate(NULL, 0, type, NULL, 0, type, t, d, 0, type, MPI_SUM, w,
                                        &r[3]));
                MPI(MPI_Waitall(4, r, MPI_STATUSES_IGNORE));
            }
        }
    }
    if (ours) {
        int code = MPI_Put(NULL, 0, MPI_INT, t, -1, 0, MPI_INT, w);
        EXPECT(class_of(code) == MPI_ERR_DISP,
               "empty transfer at a negative displacement: class %d", class_of(code));
        code = MPI_Get(NULL, 0, types[2], t, -1, 0, types[2], w);
        EXPECT(class_of(code) == MPI_ERR_DISP,
               "the same, derived: class %d", class_of(code));
    }
    MPI(MPI_Win_unlock(t, w));
    EXPECT(result == 2, "an empty transfer wrote %d", result);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    ours = dlsym(RTLD_DEFAULT, "MPIX_Get_version") != NULL;
    int trials = argc > 1 ? atoi(argv[1]) : 400, bytes = ROOM * ranks * (int)sizeof(int);
    seed += me;
    make_types();
    for (kind = 0; kind < ALL_KINDS; kind++) {
        void *memory = NULL;
        if (kind == ALLOCATED)
            MPI(MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
        else
            REQUIRE((memory = calloc(1, bytes)) != NULL);
        if (kind == CREATED)
            MPI(MPI_Win_create(memory, bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        if (kind == DYNAMIC) {
            MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
            MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
            nothing(win, (me + 1) % ranks);
            MPI(MPI_Win_attach(win, memory, bytes));
        }
        MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
        MPI_Aint base;
        MPI(MPI_Get_address(memory, &base));
        MPI(MPI_Allgather(&base, 1, MPI_AINT, bases, 1, MPI_AINT, MPI_COMM_WORLD));
#ifndef PLAIN
        MPI(MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 1));
#endif
        for (int number = 0; number < trials; number++)
            trial(below(ranks), number);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (me == 0 &&
            ours) /* Open MPI's osc/rdma requires all of target_count to be in the window */
            for (int t = 0; t < ranks; t++)
                at_the_end(t);
        nothing(win, (me + 1) % ranks);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (kind == DYNAMIC)
            MPI(MPI_Win_detach(win, memory));
        MPI(MPI_Win_free(&win));
        if (kind != ALLOCATED)
            free(memory);
    }
    Window empty = window(ALLOCATED, 0, 1);
    MPI(MPI_Win_set_errhandler(empty.win, MPI_ERRORS_RETURN));
    for (int t = 0; t < ranks; t++)
        nothing(empty.win, t);
    window_free(&empty);
    free_types();
    return test_end();
}
