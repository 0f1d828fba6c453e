/*
 * Error classes of invalid calls under MPI_ERRORS_RETURN. The library returns the first class
 * listed, which is the standard's (MPI-4.1 12.7 and 9.4). Plain hosts may return one of the others:
 * MPICH 4.0 uses MPI_ERR_ARG instead of several specific classes, Open MPI 4.1 checks for an epoch
 * before it checks the rank of a flush.
 *
 *   error_classes [NUMBER]    only this probe; SHOW=1 in the environment prints each result
 *
 * Probes marked OURS run with the library only: plain hosts do not check them, or abort the job.
 */
#include "check.h"
#include <dlfcn.h>

static int ours, only = -1, number, show;
static MPI_Win win;
static int value = 1, result, compare, flag;
static MPI_Request r;

static int wanted(int for_all)
{
    int this = number++;
    return (only < 0 || only == this) && (ours || for_all);
}

static const char *name_of(int class)
{
    static const struct {
        int class;
        const char *name;
    } names[] = {
#define N(name) {MPI_##name, #name}
        N(SUCCESS),        N(ERR_ARG),        N(ERR_ASSERT),
        N(ERR_BUFFER),     N(ERR_COMM),       N(ERR_COUNT),
        N(ERR_DISP),       N(ERR_GROUP),      N(ERR_INFO),
        N(ERR_INTERN),     N(ERR_KEYVAL),     N(ERR_LOCKTYPE),
        N(ERR_OP),         N(ERR_OTHER),      N(ERR_RANK),
        N(ERR_REQUEST),    N(ERR_RMA_ATTACH), N(ERR_RMA_CONFLICT),
        N(ERR_RMA_FLAVOR), N(ERR_RMA_RANGE),  N(ERR_RMA_SHARED),
        N(ERR_RMA_SYNC),   N(ERR_SIZE),       N(ERR_TRUNCATE),
        N(ERR_TYPE),       N(ERR_UNKNOWN),    N(ERR_WIN),
        N(ERR_BASE),       N(ERR_NO_MEM),     N(ERR_UNSUPPORTED_OPERATION)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].class == class)
            return names[i].name;
    return "?";
}

static void judge(int code, const int *classes, int count, const char *call, int line)
{
    int class = class_of(code), fits = 0;
    for (int i = 0; i < (ours ? 1 : count); i++)
        fits |= class == classes[i];
    if (show && me == 0)
        printf("PROBE %3d %-22s %s%s\n", number - 1, name_of(class), call, fits ? "" : "   WRONG"),
            fflush(stdout);
    if (!fits)
        complain(__FILE__, line, "%s: %s, not %s", call, name_of(class), name_of(classes[0]));
}

/* With and without the library; with the library only. */
#define EACH(call, ...)                                                                            \
    if (wanted(1))                                                                                 \
    judge((call), (const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int), #call,   \
          __LINE__)
#define OURS(call, ...)                                                                            \
    if (wanted(show))                                                                              \
    judge((call), (const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int), #call,   \
          __LINE__)

#define ONE 1, MPI_INT
#define BAD_RANK(n) ((n) == 0 ? ranks : -99)

static void add_nothing(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)len, (void)type;
}

/* Arguments of communication calls, in an epoch that covers `t`. */
static void arguments(int t)
{
    MPI_Datatype pair;
    MPI_Op own;
    MPI(MPI_Type_vector(2, 1, 3, MPI_INT, &pair));
    MPI(MPI_Op_create(add_nothing, 1, &own));
    for (int n = 0; n < 2; n++) {
        EACH(MPI_Put(&value, ONE, BAD_RANK(n), 0, ONE, win), MPI_ERR_RANK);
        EACH(MPI_Get(&value, ONE, BAD_RANK(n), 0, ONE, win), MPI_ERR_RANK);
        EACH(MPI_Accumulate(&value, ONE, BAD_RANK(n), 0, ONE, MPI_SUM, win), MPI_ERR_RANK);
        EACH(MPI_Get_accumulate(&value, ONE, &result, ONE, BAD_RANK(n), 0, ONE, MPI_SUM, win),
             MPI_ERR_RANK);
        EACH(MPI_Fetch_and_op(&value, &result, MPI_INT, BAD_RANK(n), 0, MPI_SUM, win),
             MPI_ERR_RANK);
        EACH(MPI_Compare_and_swap(&value, &compare, &result, MPI_INT, BAD_RANK(n), 0, win),
             MPI_ERR_RANK);
        EACH(MPI_Rput(&value, ONE, BAD_RANK(n), 0, ONE, win, &r), MPI_ERR_RANK);
        EACH(MPI_Raccumulate(&value, ONE, BAD_RANK(n), 0, ONE, MPI_SUM, win, &r), MPI_ERR_RANK);
    }
    EACH(MPI_Put(&value, -1, MPI_INT, t, 0, ONE, win), MPI_ERR_COUNT);
    EACH(MPI_Put(&value, ONE, t, 0, -1, MPI_INT, win), MPI_ERR_COUNT);
    EACH(MPI_Get(&value, -1, MPI_INT, t, 0, ONE, win), MPI_ERR_COUNT);
    EACH(MPI_Get(&value, ONE, t, 0, -1, MPI_INT, win), MPI_ERR_COUNT);
    EACH(MPI_Accumulate(&value, -1, MPI_INT, t, 0, ONE, MPI_SUM, win), MPI_ERR_COUNT);
    OURS(MPI_Get_accumulate(&value, ONE, &result, -1, MPI_INT, t, 0, ONE, MPI_SUM, win),
         MPI_ERR_COUNT);
    EACH(MPI_Put(&value, 1, MPI_DATATYPE_NULL, t, 0, ONE, win), MPI_ERR_TYPE);
    EACH(MPI_Put(&value, ONE, t, 0, 1, MPI_DATATYPE_NULL, win), MPI_ERR_TYPE);
    EACH(MPI_Get(&value, 1, MPI_DATATYPE_NULL, t, 0, ONE, win), MPI_ERR_TYPE);
    EACH(MPI_Accumulate(&value, 1, MPI_DATATYPE_NULL, t, 0, ONE, MPI_SUM, win), MPI_ERR_TYPE);
    OURS(MPI_Get_accumulate(&value, ONE, &result, 1, MPI_DATATYPE_NULL, t, 0, ONE, MPI_SUM, win),
         MPI_ERR_TYPE);
    EACH(MPI_Fetch_and_op(&value, &result, MPI_DATATYPE_NULL, t, 0, MPI_SUM, win), MPI_ERR_TYPE);
    EACH(MPI_Compare_and_swap(&value, &compare, &result, MPI_DATATYPE_NULL, t, 0, win),
         MPI_ERR_TYPE);
    EACH(MPI_Put(&value, 1, pair, t, 0, 2, MPI_INT, win), MPI_ERR_TYPE); /* not committed */
    EACH(MPI_Put(&value, 2, MPI_INT, t, 0, 1, pair, win), MPI_ERR_TYPE);
    EACH(MPI_Put(&value, 0, pair, t, 0, 0, MPI_INT, win), MPI_ERR_TYPE);
    EACH(MPI_Fetch_and_op(&value, &result, pair, t, 0, MPI_SUM, win), MPI_ERR_TYPE);
    OURS(MPI_Compare_and_swap(&value, &compare, &result, MPI_DOUBLE, t, 0, win), MPI_ERR_TYPE);
    EACH(MPI_Accumulate(&value, ONE, t, 0, ONE, MPI_OP_NULL, win), MPI_ERR_OP);
    EACH(MPI_Accumulate(&value, ONE, t, 0, ONE, own, win), MPI_ERR_OP);
    EACH(MPI_Get_accumulate(&value, ONE, &result, ONE, t, 0, ONE, own, win), MPI_ERR_OP);
    OURS(MPI_Fetch_and_op(&value, &result, MPI_INT, t, 0, own, win), MPI_ERR_OP);
    OURS(MPI_Fetch_and_op(&value, &result, MPI_INT, t, 0, MPI_OP_NULL, win), MPI_ERR_OP);
    OURS(MPI_Accumulate(&value, ONE, t, 0, ONE, MPI_NO_OP, win), MPI_ERR_OP);
    OURS(MPI_Accumulate(&value, ONE, t, 0, ONE, MPI_MAXLOC, win), MPI_ERR_OP);
    OURS(MPI_Accumulate(&value, 0, MPI_INT, t, 0, 0, MPI_INT, MPI_MAXLOC, win), MPI_ERR_OP,
         MPI_SUCCESS);
    OURS(MPI_Accumulate(&value, ONE, t, 0, 1, MPI_FLOAT, MPI_SUM, win), MPI_ERR_TYPE);
    EACH(MPI_Put(&value, ONE, t, -1, ONE, win), MPI_ERR_DISP);
    EACH(MPI_Get(&value, ONE, t, -1, ONE, win), MPI_ERR_DISP);
    EACH(MPI_Accumulate(&value, ONE, t, -1, ONE, MPI_SUM, win), MPI_ERR_DISP);
    EACH(MPI_Fetch_and_op(&value, &result, MPI_INT, t, -1, MPI_SUM, win), MPI_ERR_DISP);
    EACH(MPI_Compare_and_swap(&value, &compare, &result, MPI_INT, t, -1, win), MPI_ERR_DISP);
    OURS(MPI_Put(&value, ONE, t, 1000000, ONE, win), MPI_ERR_RMA_RANGE);
    OURS(MPI_Get(&value, ONE, t, 1000000, ONE, win), MPI_ERR_RMA_RANGE);
    OURS(MPI_Fetch_and_op(&value, &result, MPI_INT, t, 1000000, MPI_SUM, win), MPI_ERR_RMA_RANGE);
    OURS(MPI_Put(NULL, ONE, t, 0, ONE, win), MPI_ERR_BUFFER);
    OURS(MPI_Put(&value, 2, MPI_INT, t, 0, ONE, win), MPI_ERR_TRUNCATE);
    OURS(MPI_Get(&value, ONE, t, 0, 2, MPI_INT, win), MPI_ERR_TRUNCATE);
    OURS(MPI_Rput(&value, ONE, t, 0, ONE, win, NULL), MPI_ERR_ARG, MPI_ERR_REQUEST);
    MPI(MPI_Op_free(&own));
    MPI(MPI_Type_free(&pair));
}

static void without_epoch(int t)
{
    EACH(MPI_Put(&value, ONE, t, 0, ONE, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Get(&value, ONE, t, 0, ONE, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Accumulate(&value, ONE, t, 0, ONE, MPI_SUM, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Get_accumulate(&value, ONE, &result, ONE, t, 0, ONE, MPI_SUM, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Fetch_and_op(&value, &result, MPI_INT, t, 0, MPI_SUM, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Compare_and_swap(&value, &compare, &result, MPI_INT, t, 0, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Rput(&value, ONE, t, 0, ONE, win, &r), MPI_ERR_RMA_SYNC);
    EACH(MPI_Put(&value, 0, MPI_INT, t, 0, 0, MPI_INT, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Put(&value, ONE, MPI_PROC_NULL, 0, ONE, win), MPI_SUCCESS);
    OURS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_wait(win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_test(win, &flag), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_unlock(t, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_flush(t, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_flush_all(win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_flush_local(t, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_flush_local_all(win), MPI_ERR_RMA_SYNC);
    for (int n = 0; n < 2; n++) {
        EACH(MPI_Win_lock(MPI_LOCK_SHARED, BAD_RANK(n), 0, win), MPI_ERR_RANK);
        EACH(MPI_Win_unlock(BAD_RANK(n), win), MPI_ERR_RANK);
        EACH(MPI_Win_flush(BAD_RANK(n), win), MPI_ERR_RANK, MPI_ERR_RMA_SYNC);
        EACH(MPI_Win_flush_local(BAD_RANK(n), win), MPI_ERR_RANK, MPI_ERR_RMA_SYNC);
    }
    EACH(MPI_Win_lock(4711, t, 0, win), MPI_ERR_LOCKTYPE, MPI_ERR_ARG);
    EACH(MPI_Win_lock(MPI_LOCK_SHARED, t, 0x40000000, win), MPI_ERR_ASSERT, MPI_ERR_ARG);
    EACH(MPI_Win_lock_all(0x40000000, win), MPI_ERR_ASSERT, MPI_ERR_ARG);
    EACH(MPI_Win_fence(0x40000000, win), MPI_ERR_ASSERT, MPI_ERR_ARG);
    MPI_Group group = group_one(t);
    EACH(MPI_Win_start(group, 0x40000000, win), MPI_ERR_ASSERT, MPI_ERR_ARG);
    EACH(MPI_Win_post(group, 0x40000000, win), MPI_ERR_ASSERT, MPI_ERR_ARG);
    MPI(MPI_Group_free(&group));
    OURS(MPI_Win_start(MPI_GROUP_NULL, 0, win), MPI_ERR_GROUP);
    OURS(MPI_Win_post(MPI_GROUP_NULL, 0, win), MPI_ERR_GROUP);
}

static void in_lock(int t)
{
    int other = (t + 1) % ranks;
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
    arguments(t);
    OURS(MPI_Put(&value, ONE, other, 0, ONE, win), MPI_ERR_RMA_SYNC);
    OURS(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win), MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT);
    OURS(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT);
    OURS(MPI_Win_unlock(other, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC);
    OURS(MPI_Win_flush(other, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    MPI_Group group = group_one(t);
    EACH(MPI_Win_start(group, 0, win), MPI_ERR_RMA_SYNC);
    MPI(MPI_Group_free(&group));
    OURS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    MPI(MPI_Win_unlock(t, win));
}

static void in_lock_all(int t)
{
    MPI(MPI_Win_lock_all(0, win));
    OURS(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win), MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT);
    EACH(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT);
    EACH(MPI_Win_unlock(t, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    MPI(MPI_Win_unlock_all(win));
}

static void in_post(int t)
{
    int from = (me + ranks - 1) % ranks;
    MPI_Group to_group = group_one(t), from_group = group_one(from);
    MPI(MPI_Win_post(from_group, 0, win));
    EACH(MPI_Win_post(from_group, 0, win), MPI_ERR_RMA_SYNC);
    MPI(MPI_Win_start(to_group, 0, win));
    EACH(MPI_Win_start(to_group, 0, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Put(&value, ONE, (t + 1) % ranks, 0, ONE, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_flush(t, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_unlock(t, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    MPI(MPI_Win_complete(win));
    MPI(MPI_Win_wait(win));
    EACH(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_wait(win), MPI_ERR_RMA_SYNC);
    MPI(MPI_Group_free(&to_group));
    MPI(MPI_Group_free(&from_group));
}

static void in_fence(int t)
{
    MPI(MPI_Win_fence(0, win));
    MPI(MPI_Put(&value, ONE, t, 0, ONE, win));
    EACH(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win), MPI_ERR_RMA_SYNC);
    EACH(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC);
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    EACH(MPI_Put(&value, ONE, t, 0, ONE, win), MPI_ERR_RMA_SYNC);
}

/* Windows of other kinds, constructors, and invalid windows. All processes make the same invalid
 * call. */
static void windows(void)
{
    static int memory[64];
    void *base;
    MPI_Aint size;
    int unit;
    MPI_Win w = MPI_WIN_NULL;
    const MPI_Comm world = MPI_COMM_WORLD;
    /* Errors of calls without a communicator go to MPI_COMM_WORLD or, since MPI-4, to
     * MPI_COMM_SELF. */
    MPI(MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    EACH(MPI_Win_create(memory, -1, 1, MPI_INFO_NULL, world, &w), MPI_ERR_SIZE, MPI_ERR_ARG);
    EACH(MPI_Win_create(memory, 64, 0, MPI_INFO_NULL, world, &w), MPI_ERR_DISP, MPI_ERR_ARG);
    EACH(MPI_Win_create(memory, 64, -1, MPI_INFO_NULL, world, &w), MPI_ERR_DISP, MPI_ERR_ARG);
    OURS(MPI_Win_create(NULL, 64, 1, MPI_INFO_NULL, world, &w), MPI_ERR_BUFFER, MPI_ERR_ARG);
    EACH(MPI_Win_create(memory, 64, 1, MPI_INFO_NULL, MPI_COMM_NULL, &w), MPI_ERR_COMM);
    EACH(MPI_Win_allocate(-1, 1, MPI_INFO_NULL, world, &base, &w), MPI_ERR_SIZE, MPI_ERR_ARG);
    EACH(MPI_Win_allocate(64, 0, MPI_INFO_NULL, world, &base, &w), MPI_ERR_DISP, MPI_ERR_ARG);
    EACH(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_NULL, &base, &w), MPI_ERR_COMM);
    EACH(MPI_Win_allocate_shared(-1, 1, MPI_INFO_NULL, world, &base, &w), MPI_ERR_SIZE, MPI_ERR_ARG,
         MPI_ERR_RMA_SHARED);
    EACH(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_NULL, &w), MPI_ERR_COMM);
    EACH(MPI_Win_free(&w), MPI_ERR_WIN);
    w = MPI_WIN_NULL;
    EACH(MPI_Put(&value, ONE, 0, 0, ONE, MPI_WIN_NULL), MPI_ERR_WIN);
    EACH(MPI_Accumulate(&value, ONE, 0, 0, ONE, MPI_SUM, MPI_WIN_NULL), MPI_ERR_WIN);
    EACH(MPI_Fetch_and_op(&value, &result, MPI_INT, 0, 0, MPI_SUM, MPI_WIN_NULL), MPI_ERR_WIN);
    EACH(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);
    EACH(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, MPI_WIN_NULL), MPI_ERR_WIN);
    EACH(MPI_Win_flush_all(MPI_WIN_NULL), MPI_ERR_WIN);
    EACH(MPI_Win_sync(MPI_WIN_NULL), MPI_ERR_WIN);
    EACH(MPI_Win_attach(win, memory, 64), MPI_ERR_RMA_FLAVOR, MPI_ERR_RMA_ATTACH);
    EACH(MPI_Win_detach(win, memory), MPI_ERR_RMA_FLAVOR, MPI_ERR_RMA_ATTACH, MPI_ERR_OTHER,
         MPI_ERR_WIN);
    EACH(MPI_Win_attach(MPI_WIN_NULL, memory, 64), MPI_ERR_WIN);
    OURS(MPI_Win_shared_query(win, ranks, &size, &unit, &base), MPI_ERR_RANK, MPI_ERR_RMA_FLAVOR);
    OURS(MPI_Win_set_info(win, MPI_INFO_NULL), MPI_ERR_INFO);
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, world, &w));
    MPI(MPI_Win_set_errhandler(w, MPI_ERRORS_RETURN));
    OURS(MPI_Win_attach(w, memory, -1), MPI_ERR_SIZE, MPI_ERR_ARG);
    OURS(MPI_Win_attach(w, NULL, 64), MPI_ERR_ARG, MPI_ERR_BUFFER, MPI_ERR_BASE);
    OURS(MPI_Win_detach(w, memory), MPI_ERR_RMA_ATTACH, MPI_ERR_ARG, MPI_ERR_BASE, MPI_ERR_OTHER);
    MPI(MPI_Win_attach(w, memory, sizeof memory));
    OURS(MPI_Win_attach(w, memory + 1, 64), MPI_ERR_RMA_ATTACH);
    EACH(MPI_Win_shared_query(w, 0, &size, &unit, &base), MPI_ERR_RMA_FLAVOR);
    MPI(MPI_Win_lock_all(0, w));
    OURS(MPI_Put(&value, ONE, (me + 1) % ranks, 64, ONE, w), MPI_ERR_RMA_RANGE);
    MPI(MPI_Win_unlock_all(w));
    MPI(MPI_Win_detach(w, memory));
    MPI(MPI_Win_free(&w));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    ours = dlsym(RTLD_DEFAULT, "MPIX_Get_version") != NULL;
    show = getenv("SHOW") != NULL;
    only = argc > 1 ? atoi(argv[1]) : -1;
    int t = (me + 1) % ranks;
    Window w = window(ALLOCATED, 64, sizeof(int));
    win = w.win;
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    r = MPI_REQUEST_NULL;
    without_epoch(t);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    in_lock(t);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    in_lock_all(t);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    in_post(t);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    in_fence(t);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    windows();
    if (show && me == 0)
        printf("PROBES %d\n", number);
    window_free(&w);
    return test_end();
}
