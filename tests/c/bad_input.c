/*
 * Invalid calls return their error class through the window's error handler, with a message that
 * names the argument. They change nothing: the window works as if they had not been made.
 *
 *   bad_input KIND HANDLER    HANDLER: return | user
 */
#include "check.h"
#include <strings.h>

enum { WORDS = 16 };
static Window w;
static int user, handled, handled_class;
static MPI_Win handled_win;

static void on_error(MPI_Win *win, int *code, ...)
{
    handled++;
    handled_class = class_of(*code);
    handled_win = *win;
}

/* The call must return `class` (or `other`), with a message that contains `word`. */
static void judge(int code, int class, int other, const char *word, int through_window,
                  const char *call, int line)
{
    int got = class_of(code), length;
    char text[MPI_MAX_ERROR_STRING] = "";
    if (got != class && got != other) {
        complain(__FILE__, line, "%s: class %d, not %d", call, got, class);
        handled = 0;
        return;
    }
    MPI(MPI_Error_string(code, text, &length));
    if (strcasestr(text, word) == NULL)
        complain(__FILE__, line, "%s: the error text lacks \"%s\": %s", call, word, text);
    if (user && through_window) {
        if (handled != 1)
            complain(__FILE__, line, "%s: the handler was called %d times", call, handled);
        else if (handled_class != got || handled_win != w.win)
            complain(__FILE__, line, "%s: the handler got another class (%d) or window", call,
                     handled_class);
    }
    handled = 0;
}
#define BAD(class, word, call) judge((call), class, class, word, 1, #call, __LINE__)
#define BAD2(class, other, word, call) judge((call), class, other, word, 1, #call, __LINE__)
#define BAD_WIN(call) judge((call), MPI_ERR_WIN, MPI_ERR_WIN, "win", 0, #call, __LINE__)

static int64_t value = 0x5a5a, result = -1, compare;
static MPI_Request r;
static int flag;
#define ONE 1, MPI_INT64_T

/* The memory is unchanged and a correct epoch works. No process has an epoch open. */
static void intact(const char *when)
{
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    for (int i = 0; i < WORDS; i++)
        EXPECT(load64((int64_t *)w.base + i) == i + me, "%s: word %d changed to %lx", when, i,
               (long)load64((int64_t *)w.base + i));
    MPI(MPI_Win_unlock(me, w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    int64_t right = 5 + (me + 1) % ranks, back = -1;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, (me + 1) % ranks, 0, w.win));
    MPI(MPI_Put(&right, ONE, (me + 1) % ranks, 5, ONE, w.win));
    MPI(MPI_Win_flush((me + 1) % ranks, w.win));
    MPI(MPI_Get(&back, ONE, (me + 1) % ranks, 5, ONE, w.win));
    MPI(MPI_Win_unlock((me + 1) % ranks, w.win));
    EXPECT(back == right, "%s: after a valid epoch: %ld", when, (long)back);
    EXPECT(handled == 0, "%s: the handler was called for a valid call", when);
    EXPECT(result == -1, "%s: an invalid call wrote a result", when);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* A user-defined reduction, which RMA calls do not accept. */
static void add_nothing(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)len, (void)type;
}

/* Arguments of communication calls, in an epoch that covers `t`. */
static void arguments(int t)
{
    const int64_t end = WORDS;
    /* Rank outside the group. */
    BAD(MPI_ERR_RANK, "rank", MPI_Put(&value, ONE, ranks, 0, ONE, w.win));
    BAD(MPI_ERR_RANK, "rank", MPI_Put(&value, ONE, -77, 0, ONE, w.win));
    BAD(MPI_ERR_RANK, "rank", MPI_Get(&result, ONE, ranks + 5, 0, ONE, w.win));
    BAD(MPI_ERR_RANK, "rank", MPI_Accumulate(&value, ONE, ranks, 0, ONE, MPI_SUM, w.win));
    BAD(MPI_ERR_RANK, "rank",
        MPI_Get_accumulate(&value, ONE, &result, ONE, ranks, 0, ONE, MPI_SUM, w.win));
    BAD(MPI_ERR_RANK, "rank",
        MPI_Fetch_and_op(&value, &result, MPI_INT64_T, ranks, 0, MPI_SUM, w.win));
    BAD(MPI_ERR_RANK, "rank",
        MPI_Compare_and_swap(&value, &compare, &result, MPI_INT64_T, ranks, 0, w.win));
    /* Beyond the target's window: displacement, size, both, and sums that overflow. */
    BAD(MPI_ERR_RMA_RANGE, "window", MPI_Put(&value, ONE, t, end, ONE, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window",
        MPI_Put(&value, 2, MPI_INT64_T, t, end - 1, 2, MPI_INT64_T, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window",
        MPI_Put(&value, WORDS + 1, MPI_INT64_T, t, 0, WORDS + 1, MPI_INT64_T, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window", MPI_Get(&result, ONE, t, end + 1000000, ONE, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window", MPI_Get(&result, ONE, t, (MPI_Aint)1 << 61, ONE, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window", MPI_Get(&result, ONE, t, INT64_MAX, ONE, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window", MPI_Accumulate(&value, ONE, t, end, ONE, MPI_SUM, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window",
        MPI_Get_accumulate(&value, ONE, &result, ONE, t, end, ONE, MPI_SUM, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window",
        MPI_Fetch_and_op(&value, &result, MPI_INT64_T, t, end, MPI_SUM, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window",
        MPI_Compare_and_swap(&value, &compare, &result, MPI_INT64_T, t, end, w.win));
    BAD(MPI_ERR_DISP, "disp", MPI_Put(&value, ONE, t, -1, ONE, w.win));
    BAD(MPI_ERR_DISP, "disp", MPI_Get(&result, ONE, t, INT64_MIN, ONE, w.win));
    BAD(MPI_ERR_DISP, "disp",
        MPI_Fetch_and_op(&value, &result, MPI_INT64_T, t, -1, MPI_SUM, w.win));
    /* Counts, datatypes, operations. */
    BAD(MPI_ERR_COUNT, "count", MPI_Put(&value, -1, MPI_INT64_T, t, 0, 1, MPI_INT64_T, w.win));
    BAD(MPI_ERR_COUNT, "count", MPI_Put(&value, 1, MPI_INT64_T, t, 0, -1, MPI_INT64_T, w.win));
    BAD(MPI_ERR_TYPE, "type", MPI_Put(&value, 1, MPI_DATATYPE_NULL, t, 0, ONE, w.win));
    BAD(MPI_ERR_TYPE, "type", MPI_Get(&result, ONE, t, 0, 1, MPI_DATATYPE_NULL, w.win));
    BAD(MPI_ERR_OP, "op", MPI_Accumulate(&value, ONE, t, 0, ONE, MPI_OP_NULL, w.win));
    BAD2(MPI_ERR_OP, MPI_ERR_TYPE, "op",
         MPI_Accumulate(&value, 1, MPI_DOUBLE, t, 0, 1, MPI_DOUBLE, MPI_BAND, w.win));
    BAD2(MPI_ERR_TYPE, MPI_ERR_OP, "type",
         MPI_Compare_and_swap(&value, &compare, &result, MPI_DOUBLE, t, 0, w.win));
    /* Derived datatypes: uncommitted, of unequal elements, not a single element, out of bounds. */
    MPI_Datatype pair, mix;
    MPI(MPI_Type_vector(2, 1, 3, MPI_INT64_T, &pair));
    BAD(MPI_ERR_TYPE, "datatype", MPI_Put(&value, 1, pair, t, 0, 1, pair, w.win));
    BAD(MPI_ERR_TYPE, "datatype", MPI_Get(&result, 2, MPI_INT64_T, t, 0, 1, pair, w.win));
    MPI(MPI_Type_commit(&pair));
    BAD(MPI_ERR_RMA_RANGE, "window", MPI_Put(&value, 2, MPI_INT64_T, t, end - 3, 1, pair, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window",
        MPI_Put(&value, 2, MPI_INT64_T, t, INT64_MAX / 16, 1, pair, w.win));
    BAD(MPI_ERR_RMA_RANGE, "window",
        MPI_Accumulate(&value, 2, MPI_INT64_T, t, end - 3, 1, pair, MPI_SUM, w.win));
    BAD(MPI_ERR_DISP, "disp", MPI_Put(&value, 2, MPI_INT64_T, t, -1, 1, pair, w.win));
    BAD(MPI_ERR_COUNT, "count", MPI_Put(&value, -2, MPI_INT64_T, t, 0, 1, pair, w.win));
    BAD(MPI_ERR_COUNT, "count",
        MPI_Get_accumulate(&value, 2, MPI_INT64_T, &result, -2, MPI_INT64_T, t, 0, 1, pair, MPI_SUM,
                           w.win));
    BAD(MPI_ERR_RANK, "rank", MPI_Put(&value, 2, MPI_INT64_T, ranks, 0, 1, pair, w.win));
    BAD(MPI_ERR_TRUNCATE, "larger", MPI_Put(&value, 3, MPI_INT64_T, t, 0, 1, pair, w.win));
    BAD(MPI_ERR_TRUNCATE, "larger", MPI_Get(&result, 1, MPI_INT64_T, t, 0, 1, pair, w.win));
    BAD(MPI_ERR_TRUNCATE, "larger", MPI_Get(&result, 1, MPI_INT64_T, t, 0, 2, MPI_INT64_T, w.win));
    BAD(MPI_ERR_TRUNCATE, "larger",
        MPI_Get_accumulate(&value, ONE, &result, ONE, t, 0, 2, MPI_INT64_T, MPI_SUM, w.win));
    BAD(MPI_ERR_TYPE, "datatype",
        MPI_Accumulate(&value, 2, MPI_DOUBLE, t, 0, 1, pair, MPI_SUM, w.win));
    BAD(MPI_ERR_OP, "op", MPI_Accumulate(&value, 2, MPI_INT64_T, t, 0, 1, pair, MPI_MAXLOC, w.win));
    BAD(MPI_ERR_OP, "op", MPI_Accumulate(&value, 2, MPI_INT64_T, t, 0, 1, pair, MPI_NO_OP, w.win));
    BAD(MPI_ERR_BUFFER, "NULL", MPI_Put(NULL, 1, pair, t, 0, 2, MPI_INT64_T, w.win));
    BAD(MPI_ERR_TYPE, "datatype", MPI_Fetch_and_op(&value, &result, pair, t, 0, MPI_SUM, w.win));
    BAD(MPI_ERR_TYPE, "datatype",
        MPI_Compare_and_swap(&value, &compare, &result, pair, t, 0, w.win));
    MPI(MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8},
                               (MPI_Datatype[]){MPI_INT64_T, MPI_DOUBLE}, &mix));
    MPI(MPI_Type_commit(&mix));
    BAD(MPI_ERR_TYPE, "datatype", MPI_Accumulate(&value, 1, mix, t, 0, 1, mix, MPI_SUM, w.win));
    BAD(MPI_ERR_TYPE, "datatype", MPI_Accumulate(&value, 1, mix, t, 0, 1, mix, MPI_REPLACE, w.win));
    MPI_Op own;
    MPI(MPI_Op_create(add_nothing, 1, &own));
    BAD(MPI_ERR_OP, "op", MPI_Accumulate(&value, ONE, t, 0, ONE, own, w.win));
    BAD(MPI_ERR_OP, "op", MPI_Accumulate(&value, 2, MPI_INT64_T, t, 0, 1, pair, own, w.win));
    BAD(MPI_ERR_OP, "op", MPI_Fetch_and_op(&value, &result, MPI_INT64_T, t, 0, own, w.win));
    MPI(MPI_Op_free(&own));
    MPI(MPI_Type_free(&mix));
    MPI(MPI_Type_free(&pair));
}

static void request_calls(int t)
{
    r = MPI_REQUEST_NULL;
    BAD(MPI_ERR_RANK, "rank", MPI_Rput(&value, ONE, ranks, 0, ONE, w.win, &r));
    BAD(MPI_ERR_RMA_RANGE, "window", MPI_Rget(&result, ONE, t, WORDS, ONE, w.win, &r));
    BAD(MPI_ERR_RMA_RANGE, "window",
        MPI_Raccumulate(&value, ONE, t, WORDS, ONE, MPI_SUM, w.win, &r));
    BAD(MPI_ERR_DISP, "disp",
        MPI_Rget_accumulate(&value, ONE, &result, ONE, t, -1, ONE, MPI_SUM, w.win, &r));
    BAD2(MPI_ERR_ARG, MPI_ERR_REQUEST, "request", MPI_Rput(&value, ONE, t, 0, ONE, w.win, NULL));
    BAD2(MPI_ERR_ARG, MPI_ERR_REQUEST, "request", MPI_Rget(&result, ONE, t, 0, ONE, w.win, NULL));
    EXPECT(r == MPI_REQUEST_NULL, "an invalid call made a request");
}

/* No epoch is open. */
static void without_epoch(void)
{
    int t = (me + 1) % ranks;
    r = MPI_REQUEST_NULL;
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Put(&value, ONE, t, 0, ONE, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Put(&value, ONE, me, 0, ONE, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Get(&result, ONE, t, 0, ONE, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Accumulate(&value, ONE, t, 0, ONE, MPI_SUM, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch",
        MPI_Get_accumulate(&value, ONE, &result, ONE, t, 0, ONE, MPI_SUM, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch",
        MPI_Fetch_and_op(&value, &result, MPI_INT64_T, t, 0, MPI_SUM, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch",
        MPI_Compare_and_swap(&value, &compare, &result, MPI_INT64_T, t, 0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Rput(&value, ONE, t, 0, ONE, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "start", MPI_Win_complete(w.win));
    BAD(MPI_ERR_RMA_SYNC, "start", MPIX_Win_icomplete(w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "post", MPI_Win_wait(w.win));
    BAD(MPI_ERR_RMA_SYNC, "post", MPI_Win_test(w.win, &flag));
    BAD(MPI_ERR_RMA_SYNC, "post", MPIX_Win_iwait(w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "lock", MPI_Win_unlock(t, w.win));
    BAD(MPI_ERR_RMA_SYNC, "lock", MPIX_Win_iunlock(t, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "lock", MPI_Win_unlock_all(w.win));
    BAD(MPI_ERR_RMA_SYNC, "lock", MPIX_Win_iunlock_all(w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Win_flush(t, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Win_flush_all(w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Win_flush_local(t, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Win_flush_local_all(w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPIX_Win_iflush(t, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPIX_Win_iflush_all(w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPIX_Win_iflush_local(t, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPIX_Win_iflush_local_all(w.win, &r));
    BAD(MPI_ERR_RANK, "rank", MPI_Win_lock(MPI_LOCK_SHARED, ranks, 0, w.win));
    BAD(MPI_ERR_RANK, "rank", MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, -77, 0, w.win, &r));
    BAD(MPI_ERR_RANK, "rank", MPI_Win_unlock(ranks, w.win));
    BAD(MPI_ERR_RANK, "rank", MPIX_Win_iflush(ranks, w.win, &r));
    BAD(MPI_ERR_LOCKTYPE, "lock", MPI_Win_lock(4711, t, 0, w.win));
    BAD(MPI_ERR_LOCKTYPE, "lock", MPIX_Win_ilock(4711, t, 0, w.win, &r));
    BAD(MPI_ERR_ASSERT, "assert", MPI_Win_fence(0x40000000, w.win));
    BAD(MPI_ERR_ASSERT, "assert", MPIX_Win_ifence(0x40000000, w.win, &r));
    BAD(MPI_ERR_ASSERT, "assert", MPIX_Win_ilock(MPI_LOCK_SHARED, t, 0x40000000, w.win, &r));
    BAD(MPI_ERR_GROUP, "group", MPI_Win_start(MPI_GROUP_NULL, 0, w.win));
    BAD(MPI_ERR_GROUP, "group", MPIX_Win_ipost(MPI_GROUP_NULL, 0, w.win, &r));
    EXPECT(r == MPI_REQUEST_NULL, "an invalid call made a request");
}

static void null_request(void)
{
    int t = (me + 1) % ranks;
    MPI_Group group = group_one(t);
    BAD(MPI_ERR_ARG, "request", MPIX_Win_ifence(0, w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_istart(group, 0, w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_icomplete(w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_ipost(group, 0, w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_iwait(w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_ilock(MPI_LOCK_SHARED, t, 0, w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_iunlock(t, w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_ilock_all(0, w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_iunlock_all(w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_iflush(t, w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_iflush_all(w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_iflush_local(t, w.win, NULL));
    BAD(MPI_ERR_ARG, "request", MPIX_Win_iflush_local_all(w.win, NULL));
    MPI(MPI_Group_free(&group));
}

static void in_lock(void)
{
    int t = (me + 1) % ranks, other = (me + 2) % ranks;
    MPI_Group group = group_one(t);
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
    arguments(t);
    request_calls(t);
    r = MPI_REQUEST_NULL;
    BAD2(MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT, "lock",
         MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
    BAD2(MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT, "lock",
         MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, t, 0, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "", MPI_Win_lock_all(0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "", MPIX_Win_ilock_all(0, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "", MPI_Win_start(group, 0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "", MPIX_Win_istart(group, 0, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "", MPI_Win_fence(0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "", MPIX_Win_ifence(0, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "lock", MPI_Win_unlock_all(w.win));
    BAD(MPI_ERR_RMA_SYNC, "start", MPI_Win_complete(w.win));
    if (other != t) {
        BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Put(&value, ONE, other, 0, ONE, w.win));
        BAD(MPI_ERR_RMA_SYNC, "lock", MPI_Win_unlock(other, w.win));
        BAD(MPI_ERR_RMA_SYNC, "epoch", MPIX_Win_iflush(other, w.win, &r));
    }
    MPI(MPI_Win_unlock(t, w.win));
    BAD(MPI_ERR_RMA_SYNC, "lock", MPI_Win_unlock(t, w.win));
    MPI(MPI_Win_lock_all(0, w.win));
    /* The first call of the epoch, before any operation has been recorded. */
    BAD(MPI_ERR_RANK, "rank", MPI_Put(&value, ONE, 1000000000, 0, ONE, w.win));
    BAD(MPI_ERR_RANK, "rank", MPIX_Win_iflush(1000000000, w.win, &r));
    arguments(t);
    BAD2(MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT, "lock",
         MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
    BAD2(MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT, "", MPI_Win_lock_all(0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "lock", MPI_Win_unlock(t, w.win));
    BAD(MPI_ERR_RMA_SYNC, "", MPIX_Win_istart(group, 0, w.win, &r));
    MPI(MPI_Win_unlock_all(w.win));
    EXPECT(r == MPI_REQUEST_NULL, "an invalid call made a request");
    MPI(MPI_Group_free(&group));
}

static void in_start_and_post(void)
{
    int t = (me + 1) % ranks, from = (me + ranks - 1) % ranks, other = (me + 2) % ranks;
    MPI_Group to_group = group_one(t), from_group = group_one(from);
    r = MPI_REQUEST_NULL;
    MPI(MPI_Win_post(from_group, 0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "exposure", MPI_Win_post(from_group, 0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "exposure", MPIX_Win_ipost(from_group, 0, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "", MPI_Win_fence(0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Put(&value, ONE, t, 0, ONE, w.win));
    MPI(MPI_Win_start(to_group, 0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "access", MPI_Win_start(to_group, 0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "access", MPIX_Win_istart(to_group, 0, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "", MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "", MPIX_Win_ilock_all(0, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "", MPIX_Win_ifence(0, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Win_flush(t, w.win));
    BAD(MPI_ERR_RMA_SYNC, "lock", MPI_Win_unlock(t, w.win));
    arguments(t);
    if (other != t)
        BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Put(&value, ONE, other, 0, ONE, w.win));
    MPI(MPI_Win_complete(w.win));
    BAD(MPI_ERR_RMA_SYNC, "start", MPI_Win_complete(w.win));
    MPI(MPI_Win_wait(w.win));
    BAD(MPI_ERR_RMA_SYNC, "post", MPI_Win_wait(w.win));
    EXPECT(r == MPI_REQUEST_NULL, "an invalid call made a request");
    MPI(MPI_Group_free(&to_group));
    MPI(MPI_Group_free(&from_group));
}

static void in_fence(void)
{
    int t = (me + 1) % ranks;
    int64_t same = 5 + t;
    MPI_Group group = group_one(t);
    r = MPI_REQUEST_NULL;
    MPI(MPI_Win_fence(0, w.win));
    arguments(t);
    BAD(MPI_ERR_RMA_SYNC, "start", MPI_Win_complete(w.win));
    BAD(MPI_ERR_RMA_SYNC, "post", MPI_Win_wait(w.win));
    MPI(MPI_Put(&same, ONE, t, 5, ONE, w.win)); /* the epoch has its first operation */
    BAD(MPI_ERR_RMA_SYNC, "fence", MPI_Win_start(group, 0, w.win));
    BAD(MPI_ERR_RMA_SYNC, "fence", MPIX_Win_ilock(MPI_LOCK_SHARED, t, 0, w.win, &r));
    BAD(MPI_ERR_RMA_SYNC, "fence", MPIX_Win_ilock_all(0, w.win, &r));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    BAD(MPI_ERR_RMA_SYNC, "epoch", MPI_Put(&value, ONE, t, 0, ONE, w.win));
    EXPECT(r == MPI_REQUEST_NULL, "an invalid call made a request");
    MPI(MPI_Group_free(&group));
}

/* A group with a member that is not in the window's group. */
static void outside_group(int kind)
{
    MPI_Comm half;
    MPI(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half));
    Window all = w;
    w = window_on(kind, 64, 1, MPI_INFO_NULL, half);
    MPI(MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN));
    MPI_Errhandler handler;
    MPI(MPI_Win_get_errhandler(all.win, &handler));
    MPI(MPI_Win_set_errhandler(w.win, handler));
    MPI(MPI_Errhandler_free(&handler));
    MPI_Group stranger = group_one(me > 0 ? me - 1 : 1);
    BAD2(MPI_ERR_GROUP, MPI_ERR_RANK, "group", MPI_Win_start(stranger, 0, w.win));
    BAD2(MPI_ERR_GROUP, MPI_ERR_RANK, "group", MPIX_Win_istart(stranger, 0, w.win, &r));
    BAD2(MPI_ERR_GROUP, MPI_ERR_RANK, "group", MPI_Win_post(stranger, 0, w.win));
    BAD2(MPI_ERR_GROUP, MPI_ERR_RANK, "group", MPIX_Win_ipost(stranger, 0, w.win, &r));
    MPI(MPI_Group_free(&stranger));
    MPI(MPI_Comm_free(&half));
    window_free(&w);
    w = all;
}

/* An invalid window handle, and a freed one. No MPI call may come between MPI_Win_free and
 * these. */
static void no_window(int kind)
{
    MPI_Group group = group_one(me);
    MPI_Win gone[2] = {MPI_WIN_NULL};
    Window doomed = window(kind, 64, 1);
    gone[1] = doomed.win;
    /* MPI 4 raises errors that belong to no object on MPI_COMM_SELF. */
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    window_free(&doomed);
    for (int i = 0; i < 2; i++) {
        BAD_WIN(MPIX_Win_ifence(0, gone[i], &r));
        BAD_WIN(MPIX_Win_istart(group, 0, gone[i], &r));
        BAD_WIN(MPIX_Win_icomplete(gone[i], &r));
        BAD_WIN(MPIX_Win_ipost(group, 0, gone[i], &r));
        BAD_WIN(MPIX_Win_iwait(gone[i], &r));
        BAD_WIN(MPIX_Win_ilock(MPI_LOCK_SHARED, 0, 0, gone[i], &r));
        BAD_WIN(MPIX_Win_iunlock(0, gone[i], &r));
        BAD_WIN(MPIX_Win_ilock_all(0, gone[i], &r));
        BAD_WIN(MPIX_Win_iunlock_all(gone[i], &r));
        BAD_WIN(MPIX_Win_iflush(0, gone[i], &r));
        BAD_WIN(MPIX_Win_iflush_all(gone[i], &r));
        BAD_WIN(MPIX_Win_iflush_local(0, gone[i], &r));
        BAD_WIN(MPIX_Win_iflush_local_all(gone[i], &r));
        BAD_WIN(MPI_Put(&value, ONE, me, 0, ONE, gone[i]));
        BAD_WIN(MPI_Win_fence(0, gone[i]));
        BAD_WIN(MPI_Win_unlock(0, gone[i]));
        BAD_WIN(MPI_Win_free(&gone[i]));
    }
    MPI(MPI_Group_free(&group));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 3);
    int kind = strcmp(argv[1], "created") == 0;
    user = strcmp(argv[2], "user") == 0;
    MPI_Errhandler handler = MPI_ERRORS_RETURN;
    if (user)
        MPI(MPI_Win_create_errhandler(on_error, &handler));
    w = window(kind, WORDS * sizeof(int64_t), sizeof(int64_t));
    MPI(MPI_Win_set_errhandler(w.win, handler));
    for (int i = 0; i < WORDS; i++)
        store64((int64_t *)w.base + i, i + me);
    without_epoch();
    intact("without epoch");
    null_request();
    intact("NULL request");
    in_lock();
    intact("lock");
    in_start_and_post();
    intact("start and post");
    in_fence();
    intact("fence");
    if (ranks > 1)
        outside_group(kind);
    intact("group");
    window_free(&w);
    no_window(kind);
    if (user)
        MPI(MPI_Errhandler_free(&handler));
    return test_end();
}
