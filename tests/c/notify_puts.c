/*
 * The info key mpix_rma_notify_puts: each operation on the window raises that counter of its
 * target, once and behind its data, in every kind of epoch [NA-6].
 *
 *   notify_puts CASE [HOW]    CASE: calls | data | epochs | info
 *                             HOW: slow, without the fast path; threads, in MPI_THREAD_MULTIPLE;
 *                             nodes, on several, where a shared window is the host's
 */
#include "check.h"
#include <sys/resource.h>

enum { IDX = 3, CELLS = 1 << 15 };
enum { SHARED = KINDS, DYNAMIC, ALL_KINDS };

static int slow;
static MPI_Win win;
static int64_t *memory;
static MPI_Aint *origins; /* displacement of each process's memory */
static int dynamic;

static MPI_Info info_with(const char *key, const char *value)
{
    MPI_Info info;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, key, value));
    if (slow)
        MPI(MPI_Info_set(info, "mpix_rma_fast_path", "false"));
    return info;
}

static void open_window(int kind)
{
    MPI_Info info = info_with("mpix_rma_notify_puts", " 3");
    MPI_Aint bytes = CELLS * sizeof(int64_t), here = 0;
    dynamic = kind == DYNAMIC;
    if (kind == CREATED || dynamic)
        REQUIRE((memory = malloc(bytes)) != NULL);
    switch (kind) {
    case ALLOCATED: MPI(MPI_Win_allocate(bytes, 8, info, MPI_COMM_WORLD, &memory, &win)); break;
    case SHARED: MPI(MPI_Win_allocate_shared(bytes, 8, info, MPI_COMM_WORLD, &memory, &win)); break;
    case CREATED: MPI(MPI_Win_create(memory, bytes, 8, info, MPI_COMM_WORLD, &win)); break;
    default:
        MPI(MPI_Win_create_dynamic(info, MPI_COMM_WORLD, &win));
        MPI(MPI_Win_attach(win, memory, bytes));
        MPI(MPI_Get_address(memory, &here));
    }
    MPI(MPI_Info_free(&info));
    memset(memory, 0, bytes);
    REQUIRE((origins = malloc(ranks * sizeof *origins)) != NULL);
    MPI(MPI_Allgather(&here, 1, MPI_AINT, origins, 1, MPI_AINT, MPI_COMM_WORLD));
}

static void close_window(int kind)
{
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (dynamic)
        MPI(MPI_Win_detach(win, memory));
    MPI(MPI_Win_free(&win));
    if (kind == CREATED || dynamic)
        free(memory);
    free(origins);
}

static MPI_Aint at(int rank, MPI_Aint cell) { return dynamic ? origins[rank] + 8 * cell : cell; }
static int right(void) { return (me + 1) % ranks; }
static int left(void) { return (me + ranks - 1) % ranks; }

static MPI_Count value_of(int idx)
{
    MPI_Count value = -1;
    MPI(MPIX_Win_get_notify_value(win, idx, &value));
    return value;
}

/* The counter rises to exactly `expected`; no other one has risen. */
static void counted(MPI_Count expected, const char *what)
{
    MPI_Request r;
    MPI(MPIX_Win_notify_ithreshold(win, IDX, expected, &r));
    finish(&r);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    EXPECT(value_of(IDX) == expected, "%s: %ld operations counted, not %ld", what,
           (long)value_of(IDX), (long)expected);
    for (int idx = 0; idx < IDX; idx++)
        EXPECT(value_of(idx) == 0, "%s: counter %d is %ld", what, idx, (long)value_of(idx));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

#define ONE 1, MPI_INT64_T
#define THERE(cell) right(), at(right(), cell), ONE

/* The calls without and with a request: one count each. */
static MPI_Count plain_calls(void)
{
    static int64_t a = 1, b, c;
    MPI(MPI_Put(&a, ONE, THERE(0), win));
    MPI(MPI_Get(&b, ONE, THERE(1), win));
    MPI(MPI_Accumulate(&a, ONE, THERE(2), MPI_SUM, win));
    MPI(MPI_Get_accumulate(&a, ONE, &b, ONE, THERE(2), MPI_SUM, win));
    MPI(MPI_Get_accumulate(NULL, 0, MPI_INT64_T, &b, ONE, THERE(2), MPI_NO_OP, win));
    MPI(MPI_Fetch_and_op(&a, &b, MPI_INT64_T, right(), at(right(), 2), MPI_SUM, win));
    MPI(MPI_Compare_and_swap(&a, &b, &c, MPI_INT64_T, right(), at(right(), 3), win));
    return 7;
}

/* As above, with large counts. */
static MPI_Count large_count_calls(void)
{
#if MPI_VERSION >= 4
    static int64_t a = 1, b;
    MPI_Request r[4];
    MPI(MPI_Put_c(&a, ONE, THERE(0), win));
    MPI(MPI_Get_c(&b, ONE, THERE(1), win));
    MPI(MPI_Accumulate_c(&a, ONE, THERE(2), MPI_SUM, win));
    MPI(MPI_Get_accumulate_c(&a, ONE, &b, ONE, THERE(2), MPI_SUM, win));
    MPI(MPI_Rput_c(&a, ONE, THERE(0), win, &r[0]));
    MPI(MPI_Rget_c(&b, ONE, THERE(1), win, &r[1]));
    MPI(MPI_Raccumulate_c(&a, ONE, THERE(2), MPI_SUM, win, &r[2]));
    MPI(MPI_Rget_accumulate_c(&a, ONE, &b, ONE, THERE(2), MPI_SUM, win, &r[3]));
    MPI(MPI_Waitall(4, r, MPI_STATUSES_IGNORE));
    return 8;
#else
    return 0;
#endif
}

static MPI_Count request_calls(void)
{
    int64_t a = 1, b, c;
    MPI_Request r[6];
    MPI(MPI_Rput(&a, ONE, THERE(0), win, &r[0]));
    MPI(MPI_Rget(&b, ONE, THERE(1), win, &r[1]));
    MPI(MPI_Raccumulate(&a, ONE, THERE(2), MPI_SUM, win, &r[2]));
    MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
    MPI(MPI_Rget_accumulate(&a, ONE, &b, ONE, THERE(2), MPI_SUM, win, &r[0]));
    finish(&r[0]);
    MPI(MPIX_Rfetch_and_op(&a, &b, MPI_INT64_T, right(), at(right(), 2), MPI_SUM, win, &r[0]));
    finish(&r[0]);
    MPI(MPIX_Rcompare_and_swap(&a, &b, &c, MPI_INT64_T, right(), at(right(), 3), win, &r[0]));
    finish(&r[0]);
    return 6;
}

/* Derived datatypes, one of many runs, and operations that move nothing. */
static MPI_Count odd_calls(void)
{
    static int64_t out[CELLS], in[CELLS];
    MPI_Datatype pairs;
    MPI_Count count = 0;
    MPI(MPI_Type_vector(CELLS / 8, 1, 4, MPI_INT64_T, &pairs));
    MPI(MPI_Type_commit(&pairs));
    MPI(MPI_Put(out, 1, pairs, right(), at(right(), 16), 1, pairs, win));
    MPI(MPI_Get(in, 1, pairs, right(), at(right(), 16), 1, pairs, win));
    MPI(MPI_Accumulate(out, CELLS / 8, MPI_INT64_T, right(), at(right(), 16), 1, pairs, MPI_SUM,
                       win));
    MPI(MPI_Get_accumulate(out, 1, pairs, in + CELLS / 2 + 1, CELLS / 8, MPI_INT64_T, right(),
                           at(right(), 16), 1, pairs, MPI_SUM, win));
    count += 4;
    MPI(MPI_Put(out, 0, MPI_INT64_T, right(), at(right(), 0), 0, MPI_INT64_T, win));
    MPI(MPI_Get(NULL, 0, pairs, right(), at(right(), 0), 0, pairs, win));
    MPI(MPI_Accumulate(NULL, 0, MPI_INT64_T, right(), at(right(), 0), 0, MPI_INT64_T, MPI_SUM,
                       win));
    count += 3;
    MPI(MPI_Put(out, ONE, MPI_PROC_NULL, 0, ONE, win));
    MPI(MPI_Fetch_and_op(out, out + 1, MPI_INT64_T, MPI_PROC_NULL, 0, MPI_SUM, win));
    MPI(MPI_Type_free(&pairs));
    return count;
}

/* Persistent operations: each start counts. */
static MPI_Count persistent_calls(void)
{
    static int64_t a = 1, b;
    MPI_Request r[6];
    MPI(MPIX_Put_init(&a, ONE, THERE(0), win, &r[0]));
    MPI(MPIX_Get_init(&b, ONE, THERE(1), win, &r[1]));
    MPI(MPIX_Accumulate_init(&a, ONE, THERE(2), MPI_SUM, win, &r[2]));
    MPI(MPIX_Put_init_c(&a, ONE, THERE(0), win, &r[3]));
    MPI(MPIX_Get_init_c(&b, ONE, THERE(1), win, &r[4]));
    MPI(MPIX_Accumulate_init_c(&a, ONE, THERE(2), MPI_SUM, win, &r[5]));
    for (int start = 0; start < 3; start++) {
        MPI(MPI_Startall(6, r));
        MPI(MPI_Waitall(6, r, MPI_STATUSES_IGNORE));
    }
    for (int i = 0; i < 6; i++)
        MPI(MPI_Request_free(&r[i]));
    return 18;
}

/* The operations of a persistent epoch count at each start. */
static MPI_Count recorded_calls(void)
{
    MPI_Count each = 0;
    MPI_Request r;
    MPI(MPIX_Win_epoch_init(win, &r));
    MPI(MPI_Win_lock_all(0, win));
    each += plain_calls();
    each += odd_calls();
    MPI(MPI_Win_unlock_all(win));
    MPI(MPIX_Win_epoch_end(win));
    for (int start = 0; start < 5; start++) {
        MPI(MPI_Start(&r));
        MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
    }
    MPI(MPI_Request_free(&r));
    return 5 * each;
}

static void calls(void)
{
    MPI_Count expected = 0, own = 0;
    MPI(MPI_Win_lock_all(0, win));
    expected += plain_calls();
    counted(expected, "plain calls");
    expected += request_calls();
    counted(expected, "calls with a request");
    expected += large_count_calls();
    counted(expected, "calls with large counts");
    expected += persistent_calls();
    counted(expected, "persistent operations");
    expected += odd_calls();
    counted(expected, "odd calls");
    for (int i = 0; i < 1000; i++) /* past the calls that make progress now and then */
        expected += plain_calls();
    MPI(MPI_Win_flush_all(win));
    counted(expected, "many calls");
    /* Calls that name a counter or a tag notify by that alone. */
    int64_t a = 1;
    MPI(MPIX_Win_set_num_notify(win, MPI_INFO_NULL, IDX + 2));
    for (int i = 0; i < 3; i++) /* the first ones that raise the new counters */
        MPI(MPI_Get(&own, ONE, THERE(1), win));
    MPI(MPI_Win_flush_all(win));
    MPI(MPIX_Put_notify(&a, ONE, THERE(0), IDX + 1, win));
    MPI(MPIX_Notify(right(), IDX + 1, win));
    MPI(MPIX_Put_tagged(&a, ONE, THERE(0), 7, win));
    MPI(MPIX_Put_notify(&a, ONE, THERE(0), IDX, win));
    MPI(MPIX_Notify(right(), IDX, win));
    MPI(MPI_Win_flush_all(win));
    MPI(MPIX_Win_notify_threshold(win, IDX + 1, 2));
    MPI(MPIX_Win_get_notify_value(win, IDX + 1, &own));
    EXPECT(own == 2, "named counter: %ld", (long)own);
    counted(5, "calls that name a counter");
    MPI(MPI_Win_unlock_all(win));
    counted(5 + recorded_calls(), "persistent epochs");
}

/* Data of any length is there when it is counted, and counted once. */
static void data(void)
{
    static int64_t out[CELLS];
    static const int lengths[] = {1, 7, 64, 65, 127, 1000, 1024, 9000, CELLS};
    MPI_Count expected = 0;
    MPI(MPI_Win_lock_all(0, win));
    for (int round = 0; round < 60; round++) {
        int n = lengths[round % 9], wrong = 0, how = round % 2;
        for (int i = 0; i < n; i++)
            out[i] = 1000 * round + me + i;
        if (how)
            MPI(MPI_Accumulate(out, n, MPI_INT64_T, right(), at(right(), 0), n, MPI_INT64_T,
                               MPI_REPLACE, win));
        else
            MPI(MPI_Put(out, n, MPI_INT64_T, right(), at(right(), 0), n, MPI_INT64_T, win));
        MPI(MPIX_Win_notify_threshold(win, IDX, ++expected));
        for (int i = 0; i < n; i++)
            wrong += load64(memory + i) != 1000 * round + left() + i;
        EXPECT(!wrong, "round %d: %d of %d cells are not there", round, wrong, n);
        MPI(MPI_Win_flush(right(), win));
        counted(expected, "data");
    }
    MPI(MPI_Win_unlock_all(win));
}

/* The origin's code is the usual one; an epoch that is deferred counts later. */
static void epochs(void)
{
    MPI_Group to = group_one(right()), from = group_one(left());
    MPI_Count expected = 0;
    MPI_Request r[3];
    for (int round = 0; round < 30; round++) {
        MPI(MPI_Win_fence(0, win));
        expected += plain_calls();
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
        EXPECT(value_of(IDX) == expected, "after a fence: %ld, not %ld", (long)value_of(IDX),
               (long)expected);
        MPI(MPI_Win_post(from, 0, win));
        MPI(MPI_Win_start(to, 0, win));
        expected += plain_calls();
        MPI(MPI_Win_complete(win));
        MPI(MPI_Win_wait(win));
        EXPECT(value_of(IDX) == expected, "after a wait: %ld, not %ld", (long)value_of(IDX),
               (long)expected);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, right(), 0, win, &r[0]));
        expected += plain_calls();
        MPI(MPIX_Win_iunlock(right(), win, &r[1]));
        MPI(MPIX_Win_notify_ithreshold(win, IDX, expected, &r[2]));
        MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
        counted(expected, "locks");
    }
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
}

static int create(const char *key, const char *value, const char *also, const char *most)
{
    void *base;
    MPI_Info info = info_with(key, value);
    if (also)
        MPI(MPI_Info_set(info, also, most));
    win = MPI_WIN_NULL;
    int code = MPI_Win_allocate(64, 8, info, MPI_COMM_WORLD, &base, &win);
    MPI(MPI_Info_free(&info));
    return code;
}

static void expect_key(const char *expected)
{
    MPI_Info used;
    char value[16] = "";
    int flag = 0;
    MPI(MPI_Win_get_info(win, &used));
    MPI(MPI_Info_get(used, "mpix_rma_notify_puts", 15, value, &flag));
    MPI(MPI_Info_free(&used));
    EXPECT(expected ? flag && !strcmp(value, expected) : !flag, "MPI_Win_get_info: %d %s", flag,
           value);
}

/* One process cannot make the counters: all get an error and no window. */
static void no_room(const char *key)
{
    struct rlimit before, now;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    now = before;
    now.rlim_cur = 4 << 20;
    if (me == ranks - 1)
        REQUIRE(setrlimit(RLIMIT_FSIZE, &now) == 0);
    for (int turn = 0; turn < 3; turn++) {
        REFUSED(MPI_ERR_NO_MEM, create(key, "1000000", NULL, NULL));
        EXPECT(win == MPI_WIN_NULL, "the handle was written");
    }
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    MPI(create(key, "1000000", NULL, NULL));
    MPI(MPI_Win_free(&win));
}

/* Values of the key, in one process and in all. */
static void info(void)
{
    static const char *const key = "mpix_rma_notify_puts";
    static const char *const bad[] = {"-1", "true", "1.5", "2147483647", "99999999999"};
    int num = -1;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED(MPI_ERR_INFO_VALUE, create(key, bad[i], NULL, NULL));
    REFUSED(MPI_ERR_INFO_VALUE, create(key, "5", "mpi_assert_max_num_notify", "5"));
    if (ranks > 1) {
        REFUSED(MPI_ERR_INFO_VALUE, create(key, me ? "5" : "6", NULL, NULL));
        REFUSED(MPI_ERR_INFO_VALUE, create(me ? "mpix_rma_other" : key, "0", NULL, NULL));
        REFUSED(MPI_ERR_INFO_VALUE, create(key, me ? "5" : "x", NULL, NULL));
    }
    no_room(key);
    MPI(create("mpix_rma_other", "0", NULL, NULL));
    expect_key(NULL);
    MPI_Info later = info_with(key, "4");
    MPI(MPI_Win_set_info(win, later));
    expect_key(NULL);
    MPI(MPIX_Win_get_num_notify(win, 0, &num));
    EXPECT(num == 0, "%d counters without the key", num);
    MPI(MPI_Win_free(&win));
    MPI(create(key, "5", "mpi_assert_max_num_notify", "6"));
    expect_key("5");
    MPI(MPI_Win_set_info(win, later));
    expect_key("5");
    MPI(MPI_Info_free(&later));
    for (int rank = 0; rank < ranks; rank++) {
        MPI(MPIX_Win_get_num_notify(win, rank, &num));
        EXPECT(num == 6, "rank %d has %d counters", rank, num);
    }
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    REFUSED(MPI_ERR_ARG, MPIX_Win_set_num_notify(win, MPI_INFO_NULL, me == ranks - 1 ? 5 : 6));
    MPI(MPIX_Win_get_num_notify(win, 0, &num));
    EXPECT(num == 6, "%d counters after a failed change", num);
    MPI(MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 6));
    MPI(MPI_Win_free(&win));
    /* A window of the host has no counters; the key means nothing there. */
    MPI(create(key, "5", "mpix_rma", "false"));
    MPI(MPI_Win_free(&win));
}

int main(int argc, char **argv)
{
    int threads = argc > 2 && !strcmp(argv[2], "threads");
    test_begin_threads(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    REQUIRE(argc > 1);
    int nodes = argc > 2 && !strcmp(argv[2], "nodes");
    slow = argc > 2 && !strcmp(argv[2], "slow");
    if (!strcmp(argv[1], "info")) {
        info();
        return test_end();
    }
    for (int kind = 0; kind < ALL_KINDS; kind++) {
        if (nodes && kind == SHARED)
            continue;
        open_window(kind);
        if (!strcmp(argv[1], "calls"))
            calls();
        else if (!strcmp(argv[1], "data"))
            data();
        else
            epochs();
        close_window(kind);
    }
    return test_end();
}
