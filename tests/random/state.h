/*
 * What a running program holds: windows, requests, and how a difference is reported.
 */
#ifndef STATE_H
#define STATE_H

#include "program.h"

enum window_kind { ALLOCATE, SHARED, CREATE, DYNAMIC };
enum { ANY = -1, BLOCKING = -1 };

typedef struct {
    MPI_Win win;
    enum window_kind kind;
    int unit, counters;
    size_t bytes;
    unsigned char *base; /* this process's part */
    MPI_Aint *bases;     /* address of each process's part, of a dynamic window */
    uint64_t *taken;     /* notifications taken by resets, by counter */
    MPI_Win *handles;    /* the window and its duplicates, once it has some */
    int handle_count;
    int lock_alls; /* handles with an open lock_all */
} Room;

/* What MPIX_Win_notify_iwaitsome returns when its request completes. */
typedef struct {
    int first, num, idx;
    MPI_Count value;
} Some;

/* A tagged notification, and whether it was accounted for. */
typedef struct {
    int window, source, tag, seen;
} Arrival;

typedef struct {
    MPI_Request request;
    int live, active, window, source, tag;
    int64_t expected;
} Expectation;

OWN int thread;
OWN MPI_Comm comm; /* of the program */
OWN Program program;
OWN MPI_Datatype word_type; /* an integer of 8 bytes */
OWN Room *rooms;
OWN int room_count;
OWN MPI_Request *slots;
OWN Some **somes; /* by slot */
OWN int slot_count;
OWN MPI_Request *openings; /* that opening calls returned, to be waited for with the others */
OWN int opening_count;
OWN Expectation *expectations;
OWN int expectation_count;
/* The last notification of the expectation that was met last. */
OWN int last_source, last_tag;
/* Notifications that this process has seen come. */
OWN Arrival *seen;
OWN int seen_count;
OWN uint64_t *owed; /* by window: notifications that expectations have taken */
OWN int recording; /* whether the calls are recorded, not made */
OWN int complaints;

static const char *replay = "";
static int threads = 1, one_node;
/* Where each thread of each process is, for the runner: seed and line. */
static struct position {
    long seed, line;
} *positions;

static struct position *here(void) { return &positions[me * threads + thread]; }

/* Counts a difference, and reports it with the program's seed and the line of the last call. */
__attribute__((format(printf, 1, 2), unused)) static void differs(const char *form, ...)
{
    char text[512];
    va_list args;
    va_start(args, form);
    vsnprintf(text, sizeof text, form, args);
    va_end(args);
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    if (complaints++ < 4)
        fprintf(stderr, "seed %llu, rank %d, line %ld: %s\n  replay: %s SEED=%llu\n",
                (unsigned long long)program.seed, own_rank, here()->line, text, replay,
                (unsigned long long)program.seed);
}

/* The request in a slot, which grows the table. */
static MPI_Request *slot_at(int slot)
{
    while (slot >= slot_count) {
        slots = resized(slots, (size_t)slot_count + 1, sizeof *slots);
        somes = resized(somes, (size_t)slot_count + 1, sizeof *somes);
        somes[slot_count] = NULL;
        slots[slot_count++] = MPI_REQUEST_NULL;
    }
    return &slots[slot];
}

static Expectation *expectation_at(int slot)
{
    while (slot >= expectation_count) {
        expectations = resized(expectations, (size_t)expectation_count + 1, sizeof *expectations);
        memset(&expectations[expectation_count++], 0, sizeof *expectations);
    }
    return &expectations[slot];
}

static void open_window(const Line *line)
{
    static const char *const kinds[] = {"allocate", "shared", "create", "dynamic", NULL};
    static const char *const keys[] = {"mpix_a_a_a_r", "mpix_a_a_e_r", "mpix_e_a_e_r",
                                       "mpix_e_a_a_r"};
    Room room = {.kind = which(line->words[1], kinds),
                 .unit = integer(line, 2),
                 .bytes = number(line, 5)};
    MPI_Aint bytes = (MPI_Aint)room.bytes, at;
    if (room.kind == SHARED && !one_node)
        room.kind = ALLOCATE;
    MPI_Info info;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, "mpix_rma_fast_path", integer(line, 3) ? "true" : "false"));
    for (int i = 0; i < 4; i++)
        if (line->words[4][i] == 't')
            MPI(MPI_Info_set(info, keys[i], "true"));
    if (integer(line, 6) >= 0)
        MPI(MPI_Info_set(info, "mpix_rma_notify_puts", line->words[6]));
    MPI(MPI_Info_set(info, "mpix_rma_fence", integer(line, 7) ? "pattern" : "barrier"));
    if (room.kind == CREATE || room.kind == DYNAMIC)
        room.base = resized(NULL, room.bytes, 1);
    switch (room.kind) {
    case ALLOCATE:
        MPI(MPI_Win_allocate(bytes, room.unit, info, comm, &room.base, &room.win));
        break;
    case SHARED:
        MPI(MPI_Win_allocate_shared(bytes, room.unit, info, comm, &room.base, &room.win));
        break;
    case CREATE:
        MPI(MPI_Win_create(room.base, bytes, room.unit, info, comm, &room.win));
        break;
    case DYNAMIC:
        MPI(MPI_Win_create_dynamic(info, comm, &room.win));
        /* In two parts: operations may span both. */
        MPI_Aint half = bytes / 16 * 8;
        MPI(MPI_Win_attach(room.win, room.base, half));
        MPI(MPI_Win_attach(room.win, room.base + half, bytes - half));
        room.bases = resized(NULL, (size_t)ranks, sizeof *room.bases);
        MPI(MPI_Get_address(room.base, &at));
        MPI(MPI_Allgather(&at, 1, MPI_AINT, room.bases, 1, MPI_AINT, comm));
    }
    MPI(MPI_Info_free(&info));
    MPI(MPI_Win_set_errhandler(room.win, MPI_ERRORS_RETURN));
    memset(room.base, 0, room.bytes);
    rooms = resized(rooms, (size_t)room_count + 1, sizeof *rooms);
    rooms[room_count++] = room;
}

static void set_counters(void)
{
    for (int w = 0; w < room_count; w++) {
        Room *room = &rooms[w];
        for (int i = 0; i < program.all.count; i++) {
            const Line *line = &program.all.lines[i];
            if (is(line, "counters") && integer(line, 1) == w && integer(line, 2) == own_rank)
                room->counters = integer(line, 3);
        }
        room->taken = calloc((size_t)room->counters + 1, sizeof *room->taken);
        REQUIRE(room->taken != NULL);
        MPI(MPIX_Win_set_num_notify(room->win, MPI_INFO_NULL, room->counters));
    }
}

/* Chooses the type of the program's words, which has all of the program's reductions. The smallest
 * and the largest of several are those of unsigned numbers. */
static void choose_word_type(void)
{
    const MPI_Datatype types[] = {
        /* unsigned */
        MPI_UINT64_T, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UINT64_T,
        /* with logical reductions */
        MPI_INT64_T, MPI_LONG, MPI_LONG_LONG,
        /* without */
        MPI_AINT, MPI_OFFSET, MPI_COUNT,
    };
    uint64_t usable = sizeof types / sizeof *types;
    for (int i = 0; i < program.op_count; i++) {
        MPI_Op by = program.ops[i].reduction;
        if (by == MPI_MIN || by == MPI_MAX)
            usable = 4;
        else if ((by == MPI_LAND || by == MPI_LOR || by == MPI_LXOR) && usable > 7)
            usable = 7;
    }
    word_type = types[program.seed % usable];
    int size;
    MPI(MPI_Type_size(word_type, &size));
    REQUIRE(size == 8);
}

/* Makes the windows with their initial memory. */
static void open_program(MPI_Comm thread_comm)
{
    complaints = 0;
    choose_word_type();
    MPI(MPI_Comm_split(thread_comm, 0, own_rank, &comm));
    for (int i = 0; i < program.all.count; i++)
        if (is(&program.all.lines[i], "window"))
            open_window(&program.all.lines[i]);
    set_counters();
    for (int i = 0; i < program.all.count; i++) {
        const Line *line = &program.all.lines[i];
        if (is(line, "begin") && integer(line, 2) == own_rank)
            fill(rooms[integer(line, 1)].base + number(line, 3), number(line, 5),
                 (size_t)number(line, 4));
    }
    owed = calloc((size_t)room_count + 1, sizeof *owed);
    REQUIRE(owed != NULL);
    MPI(MPI_Barrier(comm));
}

static void close_program(void)
{
    for (int i = 0; i < expectation_count; i++)
        if (expectations[i].live)
            MPI(MPI_Request_free(&expectations[i].request));
    for (int w = 0; w < room_count; w++) {
        Room *room = &rooms[w];
        if (room->handle_count > 0)
            room->win = room->handles[0];
        for (int i = 1; i < room->handle_count; i++)
            MPI(MPI_Win_free(&room->handles[i]));
        free(room->handles);
        MPI(MPI_Win_free(&room->win));
        if (room->kind == CREATE || room->kind == DYNAMIC)
            free(room->base);
        free(room->bases);
        free(room->taken);
    }
    for (int i = 0; i < program.op_count; i++) {
        Op *op = &program.ops[i];
        free(op->origin);
        free(op->result);
        op->origin = op->result = NULL;
        op->issued = 0;
    }
    for (int i = 0; i < slot_count; i++)
        free(somes[i]);
    free(owed);
    MPI(MPI_Comm_free(&comm));
    room_count = slot_count = expectation_count = seen_count = 0;
}

#endif
