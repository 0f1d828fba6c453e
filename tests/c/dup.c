/*
 * MPIX_Win_dup [DU-1 to DU-4]: another handle of a window, made by one process alone.
 */
#include "check.h"

#include <pthread.h>
#include <signal.h>

enum { WORDS = 64 };

/* The right neighbour's word k has this value after all processes have put. */
static int64_t value_of(int rank, int k) { return 1000 * rank + k; }

/* Each process makes another number of duplicates, puts through all of them, and frees them. */
static void through_all(int kind)
{
    Window w = window(kind, WORDS * sizeof(int64_t), sizeof(int64_t));
    MPI_Win dup[8];
    int n = me % 4 + 1, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int64_t *there = w.base;
    for (int k = 0; k < n; k++)
        MPI(MPIX_Win_dup(k == 0 ? w.win : dup[k - 1], MPI_INFO_NULL, &dup[k]));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int k = 0; k < n; k++) {
        int64_t value = value_of(me, k), seen = -1;
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, k, 1, MPI_INT64_T, dup[k]));
        MPI(MPI_Win_flush(right, dup[k]));
        MPI(MPI_Get(&seen, 1, MPI_INT64_T, right, k, 1, MPI_INT64_T, dup[k]));
        MPI(MPI_Win_flush_all(dup[k]));
        EXPECT(seen == value, "%s %d: got %ld", kind_name[kind], k, (long)seen);
    }
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    for (int k = 0; k < left % 4 + 1; k++)
        EXPECT(there[k] == value_of(left, k), "%s: word %d is %ld", kind_name[kind], k,
               (long)there[k]);
    MPI(MPI_Win_unlock(me, w.win));
    for (int k = 0; k < n; k++) {
        MPI(MPI_Win_free(&dup[k]));
        EXPECT(dup[k] == MPI_WIN_NULL, "MPI_Win_free does not null the duplicate");
    }
    window_free(&w);
}

/* An info object with one key. */
static MPI_Info info_of(const char *key, const char *value)
{
    MPI_Info info;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, key, value));
    return info;
}

static MPI_Win dup_with(MPI_Win win, const char *key, const char *value)
{
    MPI_Info info = info_of(key, value);
    MPI_Win dup;
    MPI(MPIX_Win_dup(win, info, &dup));
    MPI(MPI_Info_free(&info));
    return dup;
}

static int has_value(MPI_Win win, const char *key, const char *value)
{
    char found[64] = "";
    int flag;
    MPI_Info info;
    MPI(MPI_Win_get_info(win, &info));
    MPI(MPI_Info_get(info, key, sizeof found - 1, found, &flag));
    MPI(MPI_Info_free(&info));
    return value ? flag && strcmp(found, value) == 0 : !flag;
}

static void *attribute(MPI_Win win, int keyval)
{
    void *value = NULL;
    int flag;
    MPI(MPI_Win_get_attr(win, keyval, &value, &flag));
    return flag ? value : NULL;
}

/* What a duplicate shares with its window, and what it has of its own [DU-1, DU-4]. */
static void properties(void)
{
    Window w = window(ALLOCATED, 64, 8);
    MPI_Errhandler handler;
    MPI_Group group, same;
    MPI_Win dup;
    char name[MPI_MAX_OBJECT_NAME] = "?";
    int keyval, result, length, mine = 5;
    MPI(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &keyval, NULL));
    MPI(MPI_Win_set_attr(w.win, keyval, &mine));
    MPI(MPI_Win_set_name(w.win, "original"));
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    dup = dup_with(w.win, "mpix_rma_fast_path", "false");

    MPI(MPI_Win_get_errhandler(dup, &handler));
    EXPECT(handler == MPI_ERRORS_RETURN, "the error handler is not inherited");
    MPI(MPI_Errhandler_free(&handler));
    MPI(MPI_Win_get_group(w.win, &group));
    MPI(MPI_Win_get_group(dup, &same));
    MPI(MPI_Group_compare(group, same, &result));
    EXPECT(result == MPI_IDENT, "the groups differ");
    MPI(MPI_Group_free(&group));
    MPI(MPI_Group_free(&same));
    EXPECT(attribute(dup, MPI_WIN_BASE) == w.base, "another base");
    EXPECT(*(MPI_Aint *)attribute(dup, MPI_WIN_SIZE) == 64, "another size");
    EXPECT(*(int *)attribute(dup, MPI_WIN_DISP_UNIT) == 8, "another displacement unit");
    EXPECT(*(int *)attribute(dup, MPI_WIN_CREATE_FLAVOR) == MPI_WIN_FLAVOR_ALLOCATE, "flavor");
    EXPECT(attribute(dup, keyval) == NULL, "attributes are not copied");
    EXPECT(attribute(w.win, keyval) == &mine, "the original keeps its own");
    MPI(MPI_Win_set_name(dup, "duplicate"));
    MPI(MPI_Win_get_name(w.win, name, &length));
    EXPECT(strcmp(name, "original") == 0, "the original is named %s", name);

    /* Info: taken over but for what was given; that of the others does not change. */
    EXPECT(has_value(dup, "mpix_rma_fast_path", "false"), "the duplicate has the given value");
    EXPECT(has_value(w.win, "mpix_rma_fast_path", "true"), "the original has its own");
    MPI_Info info = info_of("same_size", "true");
    if (me == 0) /* local */
        MPI(MPI_Win_set_info(dup, info));
    EXPECT(has_value(dup, "same_size", me == 0 ? "true" : "false"), "same_size of the duplicate");
    EXPECT(has_value(w.win, "same_size", "false"), "same_size of the original");
    MPI_Win second;
    MPI(MPIX_Win_dup(dup, MPI_INFO_NULL, &second));
    EXPECT(has_value(second, "same_size", me == 0 ? "true" : "false"), "a duplicate of it");
    MPI(MPI_Win_free(&dup));
    EXPECT(has_value(second, "mpix_rma_fast_path", "false"), "outlives what it duplicates");
    MPI(MPI_Win_free(&second));
    MPI(MPI_Info_free(&info));
    MPI(MPI_Win_free_keyval(&keyval));
    window_free(&w);
}

/* Flushes of a duplicate do not wait for operations on the original [DU-2]: the target of those
 * computes until rank 0 tells it by a signal that the flushes have returned. */
static void independence(int kind)
{
    static char data[40000], small[8];
    Window w = window(kind, sizeof data, 1);
    MPI_Request slow, got;
    MPI_Win dup;
    int pid = getpid(), target = ranks - 1;
    if (ranks == 1 || !on_one_node()) { /* no signals between nodes */
        window_free(&w);
        return;
    }
    MPI(MPI_Win_lock_all(0, w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0) {
        MPI(MPI_Recv(&pid, 1, MPI_INT, target, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        memset(data, 3, sizeof data);
        MPI(MPIX_Win_dup(w.win, MPI_INFO_NULL, &dup));
        MPI(MPI_Put(data, sizeof data, MPI_BYTE, target, 0, sizeof data, MPI_BYTE, w.win));
        MPI(MPIX_Win_iflush(target, w.win, &slow));
        MPI(MPI_Win_flush(target, dup));
        MPI(MPI_Put(small, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, dup));
        MPI(MPI_Win_flush_all(dup));
        MPI(MPI_Rget(small, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, dup, &got));
        MPI(MPI_Wait(&got, MPI_STATUS_IGNORE));
        MPI(MPIX_Win_order_all(dup));
        MPI(MPIX_Win_flush_wins(1, &dup, MPIX_RANK_ALL));
        MPI(MPI_Win_free(&dup));
        REQUIRE(kill(pid, SIGUSR1) == 0);
        MPI(MPI_Wait(&slow, MPI_STATUS_IGNORE));
    }
    if (me == target) {
        sigset_t set;
        int got_signal;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        MPI(MPI_Send(&pid, 1, MPI_INT, 0, 7, MPI_COMM_WORLD));
        sigwait(&set, &got_signal);
    }
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == target)
        EXPECT(memchr(w.base, 3, 1) && ((char *)w.base)[sizeof data - 1] == 3, "%s: not there",
               kind_name[kind]);
    window_free(&w);
}

/* A lock_all on several handles, other epochs on any of them [DU-1]. */
static void epochs(int kind)
{
    Window w = window(kind, 64, 8);
    int64_t one = 1, value = -1, right = (me + 1) % ranks, *there = w.base;
    MPI_Win dup;
    MPI(MPIX_Win_dup(w.win, MPI_INFO_NULL, &dup));
    MPI(MPI_Win_set_errhandler(dup, MPI_ERRORS_RETURN));
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Put(&one, 8, MPI_BYTE, (int)right, 0, 8, MPI_BYTE, dup));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_unlock_all(dup));
    MPI(MPI_Win_lock_all(0, dup));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, dup));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_unlock_all(w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_free(&dup));
    MPI(MPI_Win_lock_all(0, w.win));
    MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, (int)right, 0, 1, MPI_INT64_T, MPI_SUM, w.win));
    MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, (int)right, 0, 1, MPI_INT64_T, MPI_SUM, dup));
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Win_flush((int)right, dup));
    MPI(MPI_Fetch_and_op(NULL, &value, MPI_INT64_T, (int)right, 0, MPI_NO_OP, dup));
    MPI(MPI_Win_unlock_all(dup));
    EXPECT(value == 2, "%s: sum %ld", kind_name[kind], (long)value);
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, (int)right, 0, dup));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, (int)right, 0, w.win));
    MPI(MPI_Put(&one, 1, MPI_INT64_T, (int)right, 1, 1, MPI_INT64_T, w.win));
    MPI(MPI_Win_unlock((int)right, dup));
    /* Fences on either handle are those of the window. */
    MPI(MPI_Win_fence(0, me % 2 ? dup : w.win));
    MPI(MPI_Put(&one, 1, MPI_INT64_T, (int)right, 2, 1, MPI_INT64_T, dup));
    MPI(MPI_Win_fence(0, me % 2 ? w.win : dup));
    EXPECT(there[1] == 1 && there[2] == 1, "%s: %ld %ld", kind_name[kind], (long)there[1],
           (long)there[2]);
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    /* Freed while an operation of it is outstanding, which the window's epoch completes. */
    MPI(MPI_Win_lock_all(0, w.win));
    one = 7;
    MPI(MPI_Put(&one, 1, MPI_INT64_T, (int)right, 3, 1, MPI_INT64_T, dup));
    MPI(MPI_Win_free(&dup));
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    EXPECT(there[3] == 7, "%s: %ld after the duplicate was freed", kind_name[kind], (long)there[3]);
    MPI(MPI_Win_unlock(me, w.win));
    window_free(&w);
}

/* Counters that operations on a duplicate raise [DU-4], and persistent operations on one. */
static void counters(int kind)
{
    Window w = window(kind, 64, 8);
    int64_t value = 9, *there = w.base;
    int right = (me + 1) % ranks;
    MPI_Count seen = -1;
    MPI_Request request;
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, 2));
    MPI_Win counting = dup_with(w.win, "mpix_rma_notify_puts", "1");
    MPI_Win beyond = dup_with(w.win, "mpix_rma_notify_puts", "2");
    MPI_Win silent = dup_with(counting, "mpix_rma_notify_puts", "none");
    EXPECT(has_value(counting, "mpix_rma_notify_puts", "1"), "the counter of the duplicate");
    EXPECT(has_value(silent, "mpix_rma_notify_puts", NULL), "no counter");
    EXPECT(has_value(w.win, "mpix_rma_notify_puts", NULL), "no counter of the original");
    MPI(MPI_Win_set_errhandler(beyond, MPI_ERRORS_RETURN));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int k = 0; k < 5; k++)
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, counting));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, silent));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win));
    REFUSED(MPI_ERR_ARG, MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, beyond));
    MPI(MPIX_Win_notify_threshold(silent, 1, 5));
    MPI(MPI_Win_flush_all(counting));
    MPI(MPI_Win_flush_all(silent));
    MPI(MPI_Win_flush_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPIX_Win_get_notify_value(w.win, 1, &seen));
    EXPECT(seen == 5, "%s: counted %ld", kind_name[kind], (long)seen);
    MPI(MPIX_Put_init(&value, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, silent, &request));
    MPI(MPI_Win_free(&beyond));
    for (value = 1; value <= 3; value++) {
        if (value == 3) /* acts on the original from now on */
            MPI(MPI_Win_free(&silent));
        MPI(MPI_Start(&request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        MPI(MPI_Win_flush(right, value == 3 ? w.win : silent));
    }
    MPI(MPI_Request_free(&request));
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Win_free(&counting));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    EXPECT(there[0] == 9 && there[1] == 3, "%s: %ld %ld", kind_name[kind], (long)there[0],
           (long)there[1]);
    MPI(MPI_Win_unlock(me, w.win));
    window_free(&w);
}

/* Windows of the other flavors. */
static void flavors(void)
{
    MPI_Win win, dup;
    int64_t *base, value = 5 + me, *memory = calloc(1, sizeof *memory);
    MPI_Aint at, from_right;
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI(MPIX_Win_dup(win, MPI_INFO_NULL, &dup));
    MPI(MPI_Win_attach(dup, memory, sizeof *memory));
    MPI(MPI_Get_address(memory, &at));
    MPI(MPI_Sendrecv(&at, 1, MPI_AINT, left, 1, &from_right, 1, MPI_AINT, right, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI(MPI_Win_lock_all(0, dup));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, from_right, 1, MPI_INT64_T, dup));
    MPI(MPI_Win_unlock_all(dup));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    EXPECT(*memory == 5 + left, "dynamic: %ld", (long)*memory);
    MPI(MPI_Win_detach(win, memory));
    MPI(MPI_Win_free(&dup));
    MPI(MPI_Win_free(&win));
    free(memory);

    MPI_Comm node;
    MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    MPI(MPI_Comm_rank(node, &right));
    MPI(MPI_Win_allocate_shared(8, 8, MPI_INFO_NULL, node, &base, &win));
    MPI(MPIX_Win_dup(win, MPI_INFO_NULL, &dup));
    void *mine;
    MPI_Aint size;
    int unit;
    MPI(MPI_Win_shared_query(dup, right, &size, &unit, &mine));
    EXPECT(mine == base && size == 8 && unit == 8, "shared_query of the duplicate");
    MPI(MPI_Win_free(&dup));
    MPI(MPI_Win_free(&win));
    MPI(MPI_Comm_free(&node));
}

/* Starts a record, in which each process puts a value into a word of its right neighbour. */
static void restart(MPI_Request *request, Window *w, int word, int64_t *value, int64_t round)
{
    int left = (me + ranks - 1) % ranks;
    *value = value_of(me, (int)round);
    MPI(MPI_Start(request));
    MPI(MPI_Wait(request, MPI_STATUS_IGNORE));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w->win));
    int64_t found = load64((int64_t *)w->base + word);
    MPI(MPI_Win_unlock(me, w->win));
    EXPECT(found == value_of(left, (int)round), "word %d: %ld in round %ld", word, (long)found,
           (long)round);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* One handle records, while calls on the others are executed. A start is made on the handle of its
 * record, or on the original when that is gone [PE-1, DU-1]. */
static void records(int kind)
{
    Window w = window(kind, WORDS * sizeof(int64_t), sizeof(int64_t));
    int right = (me + 1) % ranks;
    int64_t kept = 0, now = value_of(me, 5), seen[2] = {0, 0};
    MPI_Win dup, third;
    MPI_Request on_dup, on_win;
    MPI(MPIX_Win_dup(w.win, MPI_INFO_NULL, &dup));
    MPI(MPIX_Win_dup(w.win, MPI_INFO_NULL, &third));
    MPI(MPIX_Win_epoch_init(dup, &on_dup));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, dup));
    MPI(MPI_Win_lock_all(0, w.win));
    MPI(MPI_Put(&kept, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, dup));
    MPI(MPI_Put(&now, 1, MPI_INT64_T, right, 5, 1, MPI_INT64_T, w.win));
    MPI(MPI_Put(&now, 1, MPI_INT64_T, right, 6, 1, MPI_INT64_T, third));
    MPI(MPI_Win_unlock(right, dup));
    MPI(MPI_Win_flush(right, w.win));
    MPI(MPI_Win_flush(right, third));
    MPI(MPI_Get(seen, 2, MPI_INT64_T, right, 5, 2, MPI_INT64_T, third));
    MPI(MPI_Win_flush_all(third));
    EXPECT(seen[0] == now && seen[1] == now, "%s: calls beside a record: %ld %ld", kind_name[kind],
           (long)seen[0], (long)seen[1]);
    MPI(MPIX_Win_epoch_end(dup));
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPIX_Win_epoch_init(w.win, &on_win));
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, w.win));
    MPI(MPI_Put(&kept, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, w.win));
    MPI(MPI_Win_unlock(right, w.win));
    MPI(MPI_Win_free(&third)); /* not the one that records */
    MPI(MPIX_Win_epoch_end(w.win));
    for (int64_t round = 0; round < 20; round++) {
        restart(&on_dup, &w, 0, &kept, round);
        restart(&on_win, &w, 1, &kept, round);
    }
    MPI(MPI_Win_free(&dup));
    restart(&on_dup, &w, 0, &kept, 20);
    MPI(MPI_Request_free(&on_dup));
    MPI(MPI_Request_free(&on_win));
    window_free(&w);
}

static void wrong_calls(void)
{
    Window w = window(ALLOCATED, 64, 8);
    MPI_Win dup = MPI_WIN_NULL, freed, of_host, kept = w.win;
    MPI_Request request, other;
    MPI_Info bad = info_of("mpix_rma_fast_path", "perhaps"), host = info_of("mpix_rma", "false");
    void *base;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    REFUSED(MPI_ERR_ARG, MPIX_Win_dup(w.win, MPI_INFO_NULL, NULL));
    REFUSED(MPI_ERR_INFO_VALUE, MPIX_Win_dup(w.win, bad, &dup));
    REFUSED(MPI_ERR_WIN, MPIX_Win_dup(MPI_WIN_NULL, MPI_INFO_NULL, &dup));
    EXPECT(dup == MPI_WIN_NULL, "a call that failed has made a window");
    MPI(MPIX_Win_dup(w.win, MPI_INFO_NULL, &freed));
    dup = freed;
    MPI(MPI_Win_free(&dup));
    REFUSED(MPI_ERR_WIN, MPIX_Win_dup(freed, MPI_INFO_NULL, &dup));
    REFUSED(MPI_ERR_WIN, MPI_Win_flush(0, freed));
    REFUSED(MPI_ERR_WIN, MPI_Win_free(&freed));

    MPI(MPI_Win_allocate(8, 1, host, MPI_COMM_WORLD, &base, &of_host));
    MPI(MPI_Win_set_errhandler(of_host, MPI_ERRORS_RETURN));
    REFUSED(MPI_ERR_UNSUPPORTED_OPERATION, MPIX_Win_dup(of_host, MPI_INFO_NULL, &dup));
    MPI(MPI_Win_free(&of_host));

    /* A record has no handles of its own, and one handle of a window records at a time. */
    MPI(MPIX_Win_epoch_init(w.win, &request));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_dup(w.win, MPI_INFO_NULL, &dup));
    MPI(MPIX_Win_epoch_end(w.win));
    MPI(MPI_Request_free(&request));
    MPI(MPIX_Win_dup(w.win, MPI_INFO_NULL, &dup));
    MPI(MPIX_Win_epoch_init(dup, &request));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_epoch_init(dup, &other));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_epoch_init(w.win, &other));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_epoch_end(w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_free(&dup));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_flush_all(dup));
    MPI(MPIX_Win_epoch_end(dup));
    MPI(MPI_Request_free(&request));

    /* The window outlives its duplicates, in all processes if one has any [DU-3]. */
    if (me != 0)
        MPI(MPI_Win_free(&dup));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_free(&w.win));
    EXPECT(w.win == kept, "a window that is not freed keeps its handle");
    if (me == 0)
        MPI(MPI_Win_free(&dup));
    set_word(&w, me, 3);
    MPI(MPI_Info_free(&bad));
    MPI(MPI_Info_free(&host));
    window_free(&w);
}

/* Threads with a duplicate each. */
enum { THREADS = 3, ROUNDS = 400 };

struct lane {
    pthread_t id;
    MPI_Win win, dup;
    int number, joins;
};

static void *use_lane(void *argument)
{
    struct lane *lane = argument;
    int64_t one = 1, value, seen = 0;
    int target = ranks - 1;
    if (lane->joins)
        MPI(MPI_Win_lock_all(0, lane->dup));
    for (value = 1; value <= ROUNDS; value++) {
        MPI(MPI_Put(&value, 1, MPI_INT64_T, target, 1 + me * THREADS + lane->number, 1,
                    MPI_INT64_T, lane->dup));
        MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, lane->dup));
        if (value % 3)
            MPI(MPI_Win_flush(target, lane->dup));
        else
            MPI(MPI_Win_flush_all(lane->dup));
        MPI(MPI_Get(&seen, 1, MPI_INT64_T, target, 1 + me * THREADS + lane->number, 1, MPI_INT64_T,
                    lane->dup));
        MPI(MPI_Win_flush(target, lane->dup));
        EXPECT(seen == value, "thread %d: %ld, not %ld", lane->number, (long)seen, (long)value);
        if (lane->joins && value % 100 == 0) {
            MPI(MPI_Win_unlock_all(lane->dup));
            MPI(MPI_Win_lock_all(0, lane->dup));
        }
        if (value % 150 == 0) { /* another duplicate takes over */
            MPI_Win next;
            if (lane->joins)
                MPI(MPI_Win_unlock_all(lane->dup));
            MPI(MPIX_Win_dup(lane->dup, MPI_INFO_NULL, &next));
            MPI(MPI_Win_free(&lane->dup));
            lane->dup = next;
            if (lane->joins)
                MPI(MPI_Win_lock_all(0, lane->dup));
        }
    }
    if (lane->joins)
        MPI(MPI_Win_unlock_all(lane->dup));
    return NULL;
}

static void threads(int kind, int joins)
{
    Window w = window(kind, (1 + ranks * THREADS) * 8, 8);
    struct lane lanes[THREADS];
    int64_t *there = w.base;
    if (!joins)
        MPI(MPI_Win_lock_all(0, w.win));
    for (int k = 0; k < THREADS; k++) {
        lanes[k] = (struct lane){.win = w.win, .number = k, .joins = joins};
        MPI(MPIX_Win_dup(w.win, MPI_INFO_NULL, &lanes[k].dup));
    }
    for (int k = 0; k < THREADS; k++)
        REQUIRE(pthread_create(&lanes[k].id, NULL, use_lane, &lanes[k]) == 0);
    for (int k = 0; k < THREADS; k++) {
        pthread_join(lanes[k].id, NULL);
        MPI(MPI_Win_free(&lanes[k].dup));
    }
    if (!joins)
        MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == ranks - 1) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
        EXPECT(there[0] == (int64_t)ranks * THREADS * ROUNDS, "%s: sum %ld", kind_name[kind],
               (long)there[0]);
        for (int k = 1; k <= ranks * THREADS; k++)
            EXPECT(there[k] == ROUNDS, "%s: word %d is %ld", kind_name[kind], k, (long)there[k]);
        MPI(MPI_Win_unlock(me, w.win));
    }
    window_free(&w);
}

int main(int argc, char **argv)
{
    sigset_t set;
    int threaded = argc > 1 && strcmp(argv[1], "threads") == 0;
    /* Before the libraries make threads, which have the mask too. */
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    test_begin_threads(&argc, &argv, threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    for (int kind = 0; kind < KINDS; kind++) {
        through_all(kind);
        independence(kind);
        epochs(kind);
        counters(kind);
        records(kind);
        for (int joins = 0; threaded && joins < 2; joins++)
            threads(kind, joins);
    }
    properties();
    flavors();
    wrong_calls();
    return test_end();
}
