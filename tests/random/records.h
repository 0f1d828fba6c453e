/*
 * Persistent epochs: records of a program, and epochs that the executor records by itself
 * [PE-1, PE-2].
 */
#ifndef RECORDS_H
#define RECORDS_H

#include "operations.h"

typedef struct {
    MPI_Request request;
    int *ops, count; /* its operations, in order */
} Record;

OWN Record *records; /* by number */
OWN int record_count;
OWN Record *recorded; /* the one whose calls are recorded, or NULL */
OWN int *starts;       /* by slot: the number of the record that was started, plus 1, or 0 */
OWN int start_slots;

/* record WINDOW NUMBER */
static void record(const Line *line, MPI_Win win)
{
    int number = integer(line, 2);
    if (number >= record_count) {
        records = resized(records, (size_t)number + 1, sizeof *records);
        for (; record_count <= number; record_count++)
            records[record_count] = (Record){MPI_REQUEST_NULL, NULL, 0};
    }
    recorded = &records[number];
    recording = 1;
    MPI(MPIX_Win_epoch_init(win, &recorded->request));
}

/* An operation is issued: it belongs to the record that is made. */
static void record_op(int op)
{
    if (!recorded)
        return;
    recorded->ops = resized(recorded->ops, (size_t)recorded->count + 1, sizeof(int));
    recorded->ops[recorded->count++] = op;
}

static void record_end(const Line *line, MPI_Win win)
{
    (void)line;
    MPI(MPIX_Win_epoch_end(win));
    recorded = NULL;
    recording = 0;
}

static int is_start(int slot) { return slot >= 0 && slot < start_slots && starts[slot] > 0; }

/* restart NUMBER SLOT OP ...: the buffers of the record get the data of these operations. */
static void restart(const Line *line)
{
    Record *r = &records[integer(line, 1)];
    int slot = integer(line, 2);
    REQUIRE(line->count - 3 == r->count);
    for (int i = 0; i < r->count; i++) {
        Op *kept = &program.ops[r->ops[i]], *now = &program.ops[number(line, 3 + i)];
        REQUIRE(!now->issued);
        now->issued = 1;
        if (kept->origin)
            fill_origin(now, kept->origin);
        if (kept->result)
            memset(kept->result, UNFETCHED, span(kept, RESULT));
    }
    MPI(MPI_Start(&r->request));
    *slot_at(slot) = r->request;
    if (slot >= start_slots) {
        starts = resized(starts, (size_t)slot + 1, sizeof *starts);
        memset(starts + start_slots, 0, (size_t)(slot + 1 - start_slots) * sizeof *starts);
        start_slots = slot + 1;
    }
    starts[slot] = integer(line, 1) + 1;
}

/* The request in a slot is complete. That of a start stays as it is, and is not in use. */
static void end_start(int slot)
{
    if (!is_start(slot))
        return;
    if (slots[slot] != records[starts[slot] - 1].request)
        differs("the request of a start in slot %d has changed", slot);
    slots[slot] = MPI_REQUEST_NULL;
    starts[slot] = 0;
}

/* restart_refused NUMBER */
static void restart_refused(const Line *line)
{
    int code = MPI_Start(&records[integer(line, 1)].request);
    if (code == MPI_SUCCESS || class_of(code) != MPI_ERR_RMA_SYNC)
        differs("a start that conflicts returns class %d (%s)",
                code == MPI_SUCCESS ? 0 : class_of(code), error_text(code));
}

/* collect NUMBER OP ...: these operations keep what they have fetched, and the buffers of the
 * record are overwritten. */
static void collect(const Line *line)
{
    const Record *r = &records[integer(line, 1)];
    for (int i = 0; i < r->count; i++) {
        Op *kept = &program.ops[r->ops[i]], *now = &program.ops[number(line, 2 + i)];
        if (kept->result) {
            now->result = resized(NULL, span(kept, RESULT), 1);
            memcpy(now->result, kept->result, span(kept, RESULT));
        }
        scribble(kept);
    }
}

static void free_records(void)
{
    for (int i = 0; i < record_count; i++) {
        if (records[i].request != MPI_REQUEST_NULL)
            MPI(MPI_Request_free(&records[i].request));
        free(records[i].ops);
    }
    record_count = 0;
}

/* ---- Epochs that are recorded although the program does not say so ---- */

/* Whether the epoch that a line opens covers a target. Operations after the line may belong to an
 * epoch that was opened before. */
static int covers(const Line *open, int target)
{
    if (is(open, "lock_all"))
        return 1;
    if (is(open, "post"))
        return 0;
    for (int at = 3; at < open->count; at++) {
        if (integer(open, at) == target)
            return 1;
        if (is(open, "lock"))
            break;
    }
    return 0;
}

/* How many lines from `first` on are one epoch that can be recorded: it has no calls but operations
 * and ends with a blocking call. 0: they are none. */
static int recordable(int first)
{
    static const char *const opening[] = {"start", "post", "lock_all", "lock", NULL};
    static const char *const closing[] = {"complete", "wait", "unlock_all", "unlock"};
    const Line *open = &program.calls.lines[first];
    int kind = 0;
    while (opening[kind] && !is(open, opening[kind]))
        kind++;
    /* A recorded lock_all does not join that of another handle [DU-1]. */
    if (is(open, "lock_all") && rooms[number(open, 1)].lock_alls > 0)
        return 0;
    for (int at = first + 1; opening[kind] && at < program.calls.count; at++) {
        const Line *line = &program.calls.lines[at];
        if (is(line, "op")) {
            const Op *op = &program.ops[number(line, 1)];
            if (op->window == integer(open, 1) && covers(open, op->target))
                continue;
            return 0;
        }
        if (!is(line, closing[kind]) || integer(line, 1) != integer(open, 1))
            return 0;
        int of_lock = is(line, "unlock");
        if (of_lock && integer(line, 2) != integer(open, 3))
            return 0;
        return integer(line, of_lock ? 3 : 2) == BLOCKING ? at - first + 1 : 0;
    }
    return 0;
}

#endif
