/*
 * Communication calls: their buffers and datatypes, and which call an operation is.
 */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include "state.h"

enum { SCRIBBLE = 0xa5, UNFETCHED = 0xee };

/* Buffer, count and datatype as arguments of a call. */
typedef struct {
    void *addr;
    int count;
    MPI_Datatype type;
} Place;

/* Makes a datatype from its line and those before. Frees the inner ones at once. */
static MPI_Datatype datatype(int which_line)
{
    static const char *const names[] = {"word",     "contiguous", "hvector", "hindexed",
                                        "struct",   "resized",    NULL};
    const Line *line = &program.types.lines[which_line];
    MPI_Datatype made = word_type, of, other = word_type;
    int kind = which(line->words[1], names);
    if (kind == 0)
        return made;
    of = datatype(integer(line, 2));
    switch (kind) {
    case 1: MPI(MPI_Type_contiguous(integer(line, 3), of, &made)); break;
    case 2:
        MPI(MPI_Type_create_hvector(integer(line, 3), integer(line, 4), (MPI_Aint)number(line, 5),
                                    of, &made));
        break;
    case 3: {
        int blocks = (line->count - 3) / 2, *counts = resized(NULL, (size_t)blocks, sizeof(int));
        MPI_Aint *at = resized(NULL, (size_t)blocks, sizeof(MPI_Aint));
        for (int i = 0; i < blocks; i++) {
            counts[i] = integer(line, 3 + 2 * i);
            at[i] = (MPI_Aint)number(line, 4 + 2 * i);
        }
        MPI(MPI_Type_create_hindexed(blocks, counts, at, of, &made));
        free(counts);
        free(at);
        break;
    }
    case 4: {
        int counts[2] = {1, 1};
        MPI_Aint at[2] = {(MPI_Aint)number(line, 3), (MPI_Aint)number(line, 5)};
        other = datatype(integer(line, 4));
        MPI_Datatype members[2] = {of, other};
        MPI(MPI_Type_create_struct(2, counts, at, members, &made));
        break;
    }
    case 5: MPI(MPI_Type_create_resized(of, (MPI_Aint)number(line, 3), (MPI_Aint)number(line, 4),
                                    &made)); break;
    }
    if (of != word_type)
        MPI(MPI_Type_free(&of));
    if (other != word_type)
        MPI(MPI_Type_free(&other));
    return made;
}

static const Line *side_of(const Op *op, enum side side)
{
    return op->sides[side] < 0 ? NULL : &program.sides.lines[op->sides[side]];
}

/* Bytes before the first item of a buffer, in total, and its words with their offsets. */
static size_t before(const Op *op, enum side s)
{
    const Line *side = side_of(op, s);
    return side ? (size_t)number(side, 4) : 0;
}
static size_t span(const Op *op, enum side s)
{
    const Line *side = side_of(op, s);
    return side ? (size_t)number(side, 5) : (size_t)op->len;
}
static size_t word_at(const Op *op, enum side s, size_t word)
{
    const Line *side = side_of(op, s);
    return side ? (size_t)number(side, 4) + (size_t)number(side, 6 + (int)word) : 8 * word;
}

static Place place_of(const Op *op, enum side side, unsigned char *memory)
{
    const Line *line = side_of(op, side);
    void *addr = memory ? memory + before(op, side) : NULL;
    if (!line && op->len % 8)
        return (Place){addr, (int)op->len, MPI_BYTE};
    if (!line)
        return (Place){addr, (int)(op->len / 8), word_type};
    MPI_Datatype type = datatype(integer(line, 1));
    MPI_Aint lower, extent;
    MPI(MPI_Type_get_extent(type, &lower, &extent));
    if (extent != (MPI_Aint)number(line, 3))
        differs("the datatype of line %ld has extent %ld", line->number, (long)extent);
    if (type != word_type)
        MPI(MPI_Type_commit(&type));
    return (Place){addr, integer(line, 2), type};
}

static void release(Place *place)
{
    if (place->type != word_type && place->type != MPI_BYTE)
        MPI(MPI_Type_free(&place->type));
}

static uint64_t fetched(const Op *op)
{
    uint64_t word;
    REQUIRE(op->result != NULL);
    memcpy(&word, op->result + word_at(op, RESULT, 0), sizeof word);
    return word;
}

/* Fills an origin buffer with what an operation sends. */
static void fill_origin(const Op *op, unsigned char *origin)
{
    uint64_t value =
        op->source == ONE_MORE_THAN ? fetched(&program.ops[op->value]) + 1 : op->value;
    memset(origin, SCRIBBLE, span(op, ORIGIN));
    memcpy(origin + span(op, ORIGIN), &op->compare, 8);
    if (!side_of(op, ORIGIN))
        fill(origin, value, op->len);
    else
        for (size_t at = 0; at < op->len; at++)
            origin[word_at(op, ORIGIN, at / 8) + at % 8] = byte_of(value, op->len, at);
}

static void make_buffers(Op *op)
{
    int sends = op->kind == PUT || op->kind == ACCUMULATE || op->kind == GET_ACCUMULATE ||
                op->kind == COMPARE_AND_SWAP;
    int fetches = op->kind == GET || op->kind == GET_ACCUMULATE || op->kind == COMPARE_AND_SWAP;
    if (sends) {
        /* Behind the data: the value to compare with. */
        op->origin = resized(NULL, span(op, ORIGIN) + 8, 1);
        fill_origin(op, op->origin);
    }
    if (fetches) {
        op->result = resized(NULL, span(op, RESULT), 1);
        memset(op->result, UNFETCHED, span(op, RESULT));
    }
}

/* The tag of an operation whose call has no tagged form follows by a tagged put of no elements. */
static void tag_alone(const Op *op, MPI_Win win)
{
    if (op->notified == BY_TAG)
        MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, op->target, 0, 0, MPI_BYTE, op->number, win));
}

static void notify_alone(const Op *op, MPI_Win win)
{
    if (op->notified == BY_TAG)
        tag_alone(op, win);
    else if (op->single)
        MPI(MPIX_Notify(op->target, op->number, win));
    else
        MPI(MPIX_Put_notify(NULL, 0, MPI_BYTE, op->target, 0, 0, MPI_BYTE, op->number, win));
}

/* Arguments of the calls: buffer, then target. */
#define AT(place) (place).addr, (place).count, (place).type
#define THERE op->target, disp, target.count, target.type

static void put(const Op *op, Place o, Place target, MPI_Aint disp, MPI_Win win, MPI_Request *r)
{
    if (op->notified == BY_COUNTER && r)
        MPI(MPIX_Rput_notify(AT(o), THERE, op->number, win, r));
    else if (op->notified == BY_COUNTER)
        MPI(MPIX_Put_notify(AT(o), THERE, op->number, win));
    else if (op->notified == BY_TAG && r)
        MPI(MPIX_Rput_tagged(AT(o), THERE, op->number, win, r));
    else if (op->notified == BY_TAG)
        MPI(MPIX_Put_tagged(AT(o), THERE, op->number, win));
    else if (r)
        MPI(MPI_Rput(AT(o), THERE, win, r));
    else
        MPI(MPI_Put(AT(o), THERE, win));
}

static void get(const Op *op, Place o, Place target, MPI_Aint disp, MPI_Win win, MPI_Request *r)
{
    if (op->notified == BY_COUNTER && r)
        MPI(MPIX_Rget_notify(AT(o), THERE, op->number, win, r));
    else if (op->notified == BY_COUNTER)
        MPI(MPIX_Get_notify(AT(o), THERE, op->number, win));
    else if (op->notified == BY_TAG && r)
        MPI(MPIX_Rget_tagged(AT(o), THERE, op->number, win, r));
    else if (op->notified == BY_TAG)
        MPI(MPIX_Get_tagged(AT(o), THERE, op->number, win));
    else if (r)
        MPI(MPI_Rget(AT(o), THERE, win, r));
    else
        MPI(MPI_Get(AT(o), THERE, win));
}

static void accumulate(const Op *op, Place o, Place target, MPI_Aint disp, MPI_Win win,
                       MPI_Request *r)
{
    if (op->notified == BY_COUNTER && r)
        MPI(MPIX_Raccumulate_notify(AT(o), THERE, op->reduction, op->number, win, r));
    else if (op->notified == BY_COUNTER)
        MPI(MPIX_Accumulate_notify(AT(o), THERE, op->reduction, op->number, win));
    else if (r)
        MPI(MPI_Raccumulate(AT(o), THERE, op->reduction, win, r));
    else
        MPI(MPI_Accumulate(AT(o), THERE, op->reduction, win));
    tag_alone(op, win);
}

static void get_accumulate(const Op *op, Place o, Place result, Place target, MPI_Aint disp,
                           MPI_Win win, MPI_Request *r)
{
    int counted = op->notified == BY_COUNTER;
    int single = op->single && op->len == 8 && op->sides[TARGET] < 0;
    if (counted && r)
        MPI(MPIX_Rget_accumulate_notify(AT(o), AT(result), THERE, op->reduction, op->number, win,
                                        r));
    else if (counted && single)
        MPI(MPIX_Fetch_and_op_notify(o.addr, result.addr, o.type, op->target, disp, op->reduction,
                                     op->number, win));
    else if (counted)
        MPI(MPIX_Get_accumulate_notify(AT(o), AT(result), THERE, op->reduction, op->number, win));
    else if (r && single)
        MPI(MPIX_Rfetch_and_op(o.addr, result.addr, o.type, op->target, disp, op->reduction, win,
                               r));
    else if (r)
        MPI(MPI_Rget_accumulate(AT(o), AT(result), THERE, op->reduction, win, r));
    else if (single)
        MPI(MPI_Fetch_and_op(o.addr, result.addr, o.type, op->target, disp, op->reduction, win));
    else
        MPI(MPI_Get_accumulate(AT(o), AT(result), THERE, op->reduction, win));
    tag_alone(op, win);
}

static void compare_and_swap(const Op *op, MPI_Aint disp, MPI_Win win, MPI_Request *r)
{
    const unsigned char *new = op->origin, *compare = op->origin + 8;
    int counted = op->notified == BY_COUNTER, flushes = r && (counted || !op->single);
    if (counted)
        MPI(MPIX_Compare_and_swap_notify(new, compare, op->result, word_type, op->target, disp,
                                         op->number, win));
    else if (flushes || !r)
        MPI(MPI_Compare_and_swap(new, compare, op->result, word_type, op->target, disp, win));
    else
        MPI(MPIX_Rcompare_and_swap(new, compare, op->result, word_type, op->target, disp, win, r));
    tag_alone(op, win);
    /* A flush has a request that completes with all operations before. */
    if (flushes)
        MPI(MPIX_Win_iflush_local(op->target, win, r));
}

/* A persistent operation that is started once [PE-3]. Its request is freed while it is active. */
static void start_once(const Op *op, Place o, Place target, MPI_Aint disp, MPI_Win win)
{
    int counted = op->notified == BY_COUNTER;
    MPI_Request r;
    if (op->kind == PUT && counted)
        MPI(MPIX_Put_notify_init(AT(o), THERE, op->number, win, &r));
    else if (op->kind == PUT)
        MPI(MPIX_Put_init(AT(o), THERE, win, &r));
    else if (op->kind == GET && counted)
        MPI(MPIX_Get_notify_init(AT(o), THERE, op->number, win, &r));
    else if (op->kind == GET)
        MPI(MPIX_Get_init(AT(o), THERE, win, &r));
    else if (counted)
        MPI(MPIX_Accumulate_notify_init(AT(o), THERE, op->reduction, op->number, win, &r));
    else
        MPI(MPIX_Accumulate_init(AT(o), THERE, op->reduction, win, &r));
    MPI(MPI_Start(&r));
    MPI(MPI_Request_free(&r));
    if (op->kind == ACCUMULATE)
        tag_alone(op, win);
}

/* Whether an operation is made by a persistent request, which has no tagged form. */
static int is_persistent(const Op *op)
{
    int tagged = op->notified == BY_TAG && op->kind != ACCUMULATE;
    int which = op->kind == PUT || op->kind == GET || op->kind == ACCUMULATE;
    return which && !tagged && op->single && (op - program.ops) % 2;
}

/* Makes the call of an operation, with a request if `r` is not NULL. */
static void issue(Op *op, MPI_Request *r)
{
    const Room *room = &rooms[op->window];
    MPI_Aint disp = (MPI_Aint)op->disp / room->unit;
    if (room->kind == DYNAMIC)
        disp = MPI_Aint_add(room->bases[op->target], (MPI_Aint)op->disp);
    REQUIRE(!op->issued);
    op->issued = 1;
    if (op->kind == NOTIFY) {
        REQUIRE(!r);
        notify_alone(op, room->win);
        return;
    }
    make_buffers(op);
    Place origin = place_of(op, ORIGIN, op->origin), result = place_of(op, RESULT, op->result),
          target = place_of(op, TARGET, NULL);
    if (!r && !recording && is_persistent(op))
        start_once(op, op->kind == GET ? result : origin, target, disp, room->win);
    else switch (op->kind) {
    case PUT: put(op, origin, target, disp, room->win, r); break;
    case GET: get(op, result, target, disp, room->win, r); break;
    case ACCUMULATE: accumulate(op, origin, target, disp, room->win, r); break;
    case GET_ACCUMULATE: get_accumulate(op, origin, result, target, disp, room->win, r); break;
    default: compare_and_swap(op, disp, room->win, r);
    }
    release(&origin);
    release(&result);
    release(&target);
}

/* The origin buffer is free again. */
static void scribble(Op *op)
{
    if (op->origin)
        memset(op->origin, SCRIBBLE, span(op, ORIGIN) + 8);
}

#endif
