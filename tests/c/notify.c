/*
 * Notification counters: they rise after their data in every kind of epoch, all forms of waiting
 * end, and invalid calls fail.
 *
 *   notify CASE    CASE: epochs | calls | waits | some | reset | overload | wrong | bounds | ways
 */
#include "notified.h"

enum { COUNTERS = 8 };

static MPI_Count value_of(int idx)
{
    MPI_Count value = -1;
    MPI(MPIX_Win_get_notify_value(w.win, idx, &value));
    return value;
}

static void open_window(int kind)
{
    open_cells(kind);
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, COUNTERS));
}

static void put_right(int64_t value, int count, int idx)
{
    MPI(MPIX_Put_notify(numbers(value, count), count, MPI_INT64_T, right_of(me), 0, count,
                        MPI_INT64_T, idx, w.win));
}

static MPI_Count counted; /* notifications of counter 1 so far */

static void put_counted(int64_t value, int count) { put_right(value, count, 1); }

static void hear_counted(enum kind kind, const char *name)
{
    (void)kind, (void)name;
    MPI(MPIX_Win_notify_threshold(w.win, 1, ++counted));
}

static void expect_counted(void)
{
    EXPECT(value_of(1) == counted, "counter is %ld, not %ld", (long)value_of(1), (long)counted);
}

static void put_deferred(const int64_t *value, int place)
{
    MPI(MPIX_Put_notify(value, 1, MPI_INT64_T, right_of(me), place, 1, MPI_INT64_T, 2, w.win));
}

static void expect_not_begun(void) { EXPECT(value_of(2) == 0, "notified by a deferred epoch"); }
static void hear_deferred(int place) { MPI(MPIX_Win_notify_threshold(w.win, 2, place + 1)); }

static void epochs(void)
{
    static const struct family counters = {put_counted,  hear_counted,     expect_counted,
                                           put_deferred, expect_not_begun, hear_deferred};
    counted = 0;
    every_epoch(&counters);
}

/* Each notifying call: its own effect, and one notification. */
static void calls(void)
{
    MPI_Count before[COUNTERS];
    int64_t one = 1, ten = 10, back = -1, compare = 11;
    MPI_Request r;
    MPI_Datatype pairs;
    MPI(MPI_Type_vector(2, 1, 2, MPI_INT64_T, &pairs));
    MPI(MPI_Type_commit(&pairs));
    int right = (me + 1) % ranks;
    for (int i = 0; i < COUNTERS; i++)
        before[i] = value_of(i);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    memset(w.base, 0, 64);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, w.win));
    MPI(MPIX_Accumulate_notify(&one, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, MPI_SUM, 0, w.win));
    MPI(MPIX_Get_accumulate_notify(&ten, 1, MPI_INT64_T, &back, 1, MPI_INT64_T, right, 0, 1,
                                   MPI_INT64_T, MPI_SUM, 0, w.win));
    MPI(MPI_Win_flush(right, w.win));
    EXPECT(back == 1, "get_accumulate: %ld", (long)back);
    MPI(MPIX_Compare_and_swap_notify(&one, &compare, &back, MPI_INT64_T, right, 0, 0, w.win));
    MPI(MPI_Win_flush(right, w.win));
    EXPECT(back == 11, "compare_and_swap: %ld", (long)back);
    MPI(MPIX_Fetch_and_op_notify(&ten, &back, MPI_INT64_T, right, 0, MPI_SUM, 0, w.win));
    MPI(MPI_Win_flush(right, w.win));
    EXPECT(back == 1, "fetch_and_op: %ld", (long)back);
    MPI(MPIX_Get_notify(&back, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, 0, w.win));
    MPI(MPI_Win_flush(right, w.win));
    EXPECT(back == 11, "get: %ld", (long)back);
    MPI(MPIX_Rput_notify(&ten, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, 3, w.win, &r));
    finish(&r);
    MPI(MPI_Win_flush(right, w.win));
    MPI(MPIX_Rget_notify(&back, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, 3, w.win, &r));
    finish(&r);
    EXPECT(back == 10, "rget: %ld", (long)back);
    MPI(MPIX_Raccumulate_notify(&one, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, MPI_SUM, 3, w.win,
                                &r));
    finish(&r);
    MPI(MPIX_Rget_accumulate_notify(&one, 1, MPI_INT64_T, &back, 1, MPI_INT64_T, right, 1, 1,
                                    MPI_INT64_T, MPI_SUM, 3, w.win, &r));
    finish(&r);
    EXPECT(back == 11, "rget_accumulate: %ld", (long)back);
    MPI(MPIX_Put_notify_c(&ten, 1, MPI_INT64_T, right, 2, 1, MPI_INT64_T, 4, w.win));
    MPI(MPIX_Rput_notify_c(&ten, 1, MPI_INT64_T, right, 3, 1, MPI_INT64_T, 4, w.win, &r));
    finish(&r);
    int64_t both[3] = {5, 6, 7};
    MPI(MPIX_Put_notify(both, 1, pairs, right, 4, 1, pairs, 5, w.win));
    MPI(MPIX_Put_notify(NULL, 0, MPI_INT64_T, right, 0, 0, MPI_INT64_T, 5, w.win));
    MPI(MPIX_Notify(right, 5, w.win));
    MPI(MPIX_Notify(me, 6, w.win));
    MPI(MPIX_Put_notify(both, 1, MPI_INT64_T, MPI_PROC_NULL, 0, 1, MPI_INT64_T, 6, w.win));
    MPI(MPIX_Notify(MPI_PROC_NULL, 6, w.win));
    MPI(MPI_Win_unlock_all(w.win));
    static const int expected[COUNTERS] = {5, 0, 0, 4, 2, 3, 1, 0};
    for (int i = 0; i < COUNTERS; i++) {
        MPI(MPIX_Win_notify_threshold(w.win, i, before[i] + expected[i]));
        EXPECT(value_of(i) == before[i] + expected[i], "counter %d rose by %ld, not %d", i,
               (long)(value_of(i) - before[i]), expected[i]);
    }
    EXPECT(load64(cells() + 4) == 5 && load64(cells() + 6) == 7 && load64(cells() + 5) == 0,
           "derived datatype");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Type_free(&pairs));
}

/* Requests for counts, in one list with requests of the host and of epochs. */
static void waits(void)
{
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Count base = value_of(0);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int turn = 0; turn < 200; turn++) {
        int64_t value = turn, in = -1;
        int flag;
        MPI_Request r[5];
        MPI(MPIX_Win_notify_ithreshold(w.win, 0, base + turn + 1, &r[0]));
        MPI(MPIX_Win_notify_ithreshold(w.win, 0, base, &r[1])); /* already reached */
        MPI(MPI_Irecv(&in, 1, MPI_INT64_T, left, 7, MPI_COMM_WORLD, &r[2]));
        do_lock(turn % 2 ? NB_ALL : 0, MPI_LOCK_SHARED, right, w.win);
        MPI(MPIX_Put_notify(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, 0, w.win));
        MPI(MPIX_Win_iunlock(right, w.win, &r[3]));
        MPI(MPI_Isend(&value, 1, MPI_INT64_T, right, 7, MPI_COMM_WORLD, &r[4]));
        MPI(MPI_Test(&r[1], &flag, MPI_STATUS_IGNORE));
        EXPECT(flag, "the request of a reached threshold is pending");
        MPI(MPI_Waitall(5, r, MPI_STATUSES_IGNORE));
        EXPECT(load64(cells()) >= turn && in == turn, "turn %d: %ld and %ld", turn,
               (long)load64(cells()), (long)in);
        MPI(MPIX_Win_notify_test_threshold(w.win, 0, base + turn + 1, &flag));
        EXPECT(flag, "a reached threshold was not found");
        MPI(MPIX_Win_notify_test_threshold(w.win, 0, base + turn + 1000, &flag));
        EXPECT(!flag, "an unreached threshold was found");
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/*
 * Requests for a counter of a window that has been idle for long, waited for in a list, so that
 * only general progress finds the counter high enough: raised by this process in its next call, or
 * by another.
 */
static void idle(void)
{
    enum { TURNS = 300, TESTS = 1000 };
    int flag, right = (me + 1) % ranks;
    MPI_Count base = value_of(0);
    MPI(MPI_Win_lock_all(0, w.win));
    for (int turn = 1; turn <= TURNS; turn++) {
        MPI_Count awaited = base + turn;
        MPI_Request r[2];
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        /* Each makes progress, and so looks whether the window has work. */
        for (int i = 0; i < TESTS; i++) {
            MPI(MPIX_Win_notify_test_threshold(w.win, 0, awaited, &flag));
            EXPECT(!flag, "turn %d: nobody has raised the counter", turn);
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Irecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &r[0]));
        /* Some calls make progress only now and then: let that be another one each time. */
        for (int i = 0; i < turn % 7; i++)
            MPI(MPIX_Notify(me, 1, w.win));
        if (turn % 2)
            MPI(MPIX_Win_notify_ithreshold(w.win, 0, awaited, &r[1]));
        else
            MPI(MPIX_Win_notify_iwaitall(w.win, 0, 1, &awaited, NULL, &r[1]));
        MPI(MPIX_Notify(turn % 4 < 2 ? me : right, 0, w.win));
        MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    }
    MPI(MPI_Win_unlock_all(w.win));
}

/*
 * Notifications of one counter that take different ways: short and long data, none, and derived
 * datatypes. None is lost, and a wait for a burst of them returns after the last.
 */
static void ways(void)
{
    enum { BURST = 50, TURNS = 40 };
    MPI_Datatype pairs;
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI(MPI_Type_vector(2, 1, 2, MPI_INT64_T, &pairs));
    MPI(MPI_Type_commit(&pairs));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < BURST; i++) {
            int64_t value = turn * BURST + i, both[3] = {value, value, value};
            int kind = (turn * BURST + i) * 7 % 11, count = kind == 3 ? CELLS : 1;
            if (kind == 1)
                MPI(MPIX_Put_notify(both, 1, pairs, right, 0, 1, pairs, 7, w.win));
            else if (kind == 2)
                MPI(MPIX_Notify(right, 7, w.win));
            else
                MPI(MPIX_Put_notify(numbers(value, count), count, MPI_INT64_T, right, 0, count,
                                    MPI_INT64_T, 7, w.win));
            MPI(MPI_Win_flush_local(right, w.win));
            if (i == BURST / 2)
                MPI(MPIX_Notify(right, 6, w.win)); /* another counter in between */
        }
        MPI(MPIX_Win_notify_threshold(w.win, 7, (turn + 1) * BURST));
        EXPECT(value_of(7) == (turn + 1) * BURST, "turn %d: %ld", turn, (long)value_of(7));
        EXPECT(load64(cells()) >= turn * BURST, "turn %d: data of an earlier one", turn);
        MPI(MPI_Sendrecv(NULL, 0, MPI_BYTE, left, 5, NULL, 0, MPI_BYTE, right, 5, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE));
    }
    EXPECT(value_of(6) == TURNS, "the counter in between: %ld", (long)value_of(6));
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Type_free(&pairs));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* Notifications on many counters; each is taken once, by whichever call finds it. */
static void some(void)
{
    enum { MANY = 1000 };
    int right = (me + 1) % ranks, seen[MANY] = {0};
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, MANY));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < MANY; i++) {
        int idx = (i * 7) % MANY;
        MPI(MPIX_Notify(right, idx, w.win));
    }
    for (int i = 0; i < MANY; i++) {
        int idx = -1, flag = 0;
        MPI_Count value = -1, taken = -1;
        MPI_Request r;
        switch (i % 3) {
        case 0: MPI(MPIX_Win_notify_waitsome(w.win, 0, MANY, &idx, &value)); break;
        case 1:
            MPI(MPIX_Win_notify_iwaitsome(w.win, 0, MANY, &idx, &value, &r));
            finish(&r);
            break;
        default:
            while (!flag)
                MPI(MPIX_Win_notify_testsome(w.win, 0, MANY, &idx, &value, &flag));
        }
        REQUIRE(idx >= 0 && idx < MANY && value == 1);
        MPI(MPIX_Win_reset_notify_value(w.win, idx, &taken));
        EXPECT(taken == 1 && !seen[idx]++, "counter %d: %ld, seen %d times", idx, (long)taken,
               seen[idx]);
    }
    int idx = 0, flag = 1;
    MPI_Count value;
    MPI(MPIX_Win_notify_testsome(w.win, 0, MANY, &idx, &value, &flag));
    EXPECT(!flag, "counter %d was reported again", idx);
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* One request for many counters, whose thresholds differ. */
static void all(void)
{
    enum { MANY = 300 };
    int right = (me + 1) % ranks, flag = 1;
    MPI_Count thresholds[MANY], values[MANY], before;
    MPI_Request r[2];
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, MANY));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < MANY; i++)
        thresholds[i] = i % 4;
    MPI(MPIX_Win_notify_iwaitall(w.win, 0, MANY, thresholds, values, r));
    MPI(MPIX_Win_notify_iwaitall(w.win, 1, 3, NULL, NULL, r + 1));
    for (int i = 0; i < MANY; i++)
        thresholds[i] = -1; /* the library has copied them */
    MPI(MPI_Test(r, &flag, MPI_STATUS_IGNORE));
    EXPECT(!flag, "complete before any notification");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int round = 0; round < 3; round++)
        for (int i = MANY - 1; i >= 0; i--)
            if (round < i % 4)
                MPI(MPIX_Notify(right, i, w.win));
    MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++)
        EXPECT(values[i] == i % 4, "counter %d: %lld", i, (long long)values[i]);
    /* Complete at once; and after a reset. */
    MPI(MPIX_Win_notify_iwaitall(w.win, 1, 3, NULL, values, r));
    MPI(MPI_Test(r, &flag, MPI_STATUS_IGNORE));
    EXPECT(flag && values[0] == 1 && values[1] == 2 && values[2] == 3, "not complete at once");
    MPI(MPIX_Win_reset_notify_value(w.win, 2, &before));
    EXPECT(before == 2, "a wait has changed a counter");
    MPI(MPIX_Win_notify_iwaitall(w.win, 1, 3, NULL, values, r));
    MPI(MPI_Test(r, &flag, MPI_STATUS_IGNORE));
    EXPECT(!flag, "complete although a counter is 0");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPIX_Notify(right, 2, w.win));
    finish(r);
    EXPECT(values[1] == 1, "after a reset: %lld", (long long)values[1]);
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* Resets while others add: no notification is lost or counted twice. */
static void reset(void)
{
    enum { EACH = 2000 };
    MPI_Count sum = 0, value;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < EACH; i++) {
        for (int target = 0; target < ranks; target++)
            MPI(MPIX_Notify(target, 7, w.win));
        if (i % 3 == me % 3) {
            MPI(MPIX_Win_reset_notify_value(w.win, 7, &value));
            sum += value;
        }
    }
    while (sum < (MPI_Count)EACH * ranks) {
        MPI(MPIX_Win_reset_notify_value(w.win, 7, &value));
        sum += value;
    }
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPIX_Win_reset_notify_value(w.win, 7, &value));
    sum += value;
    EXPECT(sum == (MPI_Count)EACH * ranks, "%ld notifications, not %ld", (long)sum,
           (long)EACH * ranks);
    /* Setting the number of counters sets all to 0: those that remain, reset before or not, and
     * those that disappear and return. */
    MPI(MPI_Win_lock_all(0, w.win));
    MPI(MPIX_Notify(me, 7, w.win));
    MPI(MPIX_Notify(me, 2, w.win)); /* the last one before the change, and the first one after it */
    MPI(MPI_Win_unlock_all(w.win));
    EXPECT(value_of(2) > 0 && value_of(7) == 1, "counts before a change: %ld, %ld",
           (long)value_of(2), (long)value_of(7));
    /* One process fails: all counts stay, reset counters included. */
    MPI_Count two = value_of(2);
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    EXPECT(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, me == ranks - 1 ? -1 : 3) != MPI_SUCCESS,
           "a negative number was accepted");
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_ARE_FATAL));
    EXPECT(value_of(2) == two && value_of(7) == 1, "counts after a failed change: %ld, %ld",
           (long)value_of(2), (long)value_of(7));
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, COUNTERS));
    for (int i = 0; i < COUNTERS; i++)
        EXPECT(value_of(i) == 0, "counter %d is %ld after the same number was set again", i,
               (long)value_of(i));
    MPI(MPI_Barrier(MPI_COMM_WORLD)); /* all have looked */
    MPI(MPI_Win_lock_all(0, w.win));
    MPI(MPIX_Notify(me, 2, w.win));
    MPI(MPI_Win_unlock_all(w.win));
    EXPECT(value_of(2) == 1, "a counter that was set again: %ld", (long)value_of(2));
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, 3));
    EXPECT(value_of(2) == 0, "a counter that stays among fewer: %ld", (long)value_of(2));
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, COUNTERS));
    EXPECT(value_of(2) == 0 && value_of(7) == 0, "counts after a change: %ld, %ld",
           (long)value_of(2), (long)value_of(7));
}

/* A target that does not poll: it computes until its memory shows the last notification or, if its
 * calls are needed, until the origin is done. */
static void overload(void)
{
    const int alone = is_load_store(w.win), many = alone ? 1000000 : 100000;
    if (me == 0) {
        int64_t value;
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, w.win));
        for (int i = 1; i <= many; i++) {
            value = i;
            MPI(MPIX_Put_notify(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, 3, w.win));
            MPI(MPI_Win_flush_local(1, w.win));
        }
        MPI(MPI_Win_unlock(1, w.win));
        send_token(1, 1);
    } else if (me == 1) {
        while (alone && load64(cells()) != many)
            ;
        recv_token(0, 1);
        MPI_Count seen = value_of(3);
        EXPECT(seen == many && load64(cells()) == many, "%ld of %d, cell %ld", (long)seen, many,
               (long)load64(cells()));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void wrong(void)
{
    int64_t value = 5;
    int flag, idx, n = -1;
    MPI_Count count;
    MPI_Request r = MPI_REQUEST_NULL, pending;
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    memset(w.base, 0, 64);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, w.win));
    REFUSED(MPI_ERR_ARG,
            MPIX_Put_notify(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, COUNTERS, w.win));
    REFUSED(MPI_ERR_ARG, MPIX_Put_notify(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, -1, w.win));
    REFUSED(MPI_ERR_ARG, MPIX_Notify(0, COUNTERS, w.win));
    REFUSED(MPI_ERR_RANK, MPIX_Notify(ranks, 0, w.win));
    REFUSED(MPI_ERR_RANK,
            MPIX_Put_notify(&value, 1, MPI_INT64_T, ranks, 0, 1, MPI_INT64_T, 0, w.win));
    REFUSED(MPI_ERR_RMA_RANGE,
            MPIX_Put_notify(&value, 1, MPI_INT64_T, 0, CELLS, 1, MPI_INT64_T, 0, w.win));
    REFUSED(MPI_ERR_ARG,
            MPIX_Rput_notify(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, 0, w.win, NULL));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_ithreshold(w.win, 0, -1, &r));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_ithreshold(w.win, COUNTERS, 1, &r));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_ithreshold(w.win, 0, 1, NULL));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_threshold(w.win, -1, 1));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_iwaitsome(w.win, 0, 0, &idx, &count, &r));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_iwaitsome(w.win, 1, COUNTERS, &idx, &count, &r));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_iwaitsome(w.win, 0, 1, NULL, &count, &r));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_testsome(w.win, 0, 1, &idx, &count, NULL));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_iwaitall(w.win, 0, 0, NULL, &count, &r));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_iwaitall(w.win, 0, 1, &(MPI_Count){-1}, &count, &r));
    REFUSED(MPI_ERR_ARG, MPIX_Win_notify_iwaitall(w.win, 0, 1, NULL, &count, NULL));
    REFUSED(MPI_ERR_ARG, MPIX_Win_get_notify_value(w.win, COUNTERS, &count));
    REFUSED(MPI_ERR_ARG, MPIX_Win_get_notify_value(w.win, 0, NULL));
    REFUSED(MPI_ERR_ARG, MPIX_Win_reset_notify_value(w.win, -2, &count));
    REFUSED(MPI_ERR_RANK, MPIX_Win_get_num_notify(w.win, ranks, &n));
    REFUSED(MPI_ERR_ARG, MPIX_Win_get_num_notify(w.win, 0, NULL));
    MPI(MPI_Win_unlock_all(w.win));
    REFUSED(MPI_ERR_RMA_SYNC,
            MPIX_Put_notify(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, 0, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Notify(0, 0, w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    EXPECT(r == MPI_REQUEST_NULL, "an invalid call made a request");
    EXPECT(load64(cells()) == 0, "an invalid call moved data");
    for (int i = 0; i < COUNTERS; i++)
        EXPECT(value_of(i) == 0, "an invalid call raised counter %d", i);

    /* An invalid argument in one process is an error in all, and changes nothing. */
    REFUSED(MPI_ERR_ARG, MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, me == ranks - 1 ? -5 : 3));
    MPI(MPIX_Win_get_num_notify(w.win, ranks - 1, &n));
    EXPECT(n == COUNTERS, "%d counters", n);
    if (me == 0)
        MPI(MPIX_Win_notify_ithreshold(w.win, 5, 1, &pending));
    for (int num = 3; num <= COUNTERS + 3; num += COUNTERS) {
        int code = MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, num);
        EXPECT(class_of(code) == (me == 0 ? MPI_ERR_RMA_SYNC : MPI_ERR_ARG),
               "%d counters with a wait pending: class %d", num, class_of(code));
    }
    MPI_Win copy = w.win;
    int code = MPI_Win_free(&copy);
    EXPECT(class_of(code) == MPI_ERR_RMA_SYNC && copy == w.win,
           "free with a wait pending: class %d", class_of(code));
    if (me == 0) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
        MPI(MPIX_Notify(0, 5, w.win));
        MPI(MPI_Win_unlock(0, w.win));
        MPI(MPI_Wait(&pending, MPI_STATUS_IGNORE));
    }
    /* Numbers that differ between processes, and 0. */
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, me == 0 ? 0 : 600 + me));
    for (int rank = 0; rank < ranks; rank++) {
        MPI(MPIX_Win_get_num_notify(w.win, rank, &n));
        EXPECT(n == (rank == 0 ? 0 : 600 + rank), "rank %d has %d counters", rank, n);
    }
    if (me == 0)
        REFUSED(MPI_ERR_ARG, MPIX_Win_notify_test_threshold(w.win, 0, 1, &flag));
    MPI(MPI_Win_lock_all(0, w.win));
    REFUSED(MPI_ERR_ARG, MPIX_Notify(0, 0, w.win));
    if (ranks > 1)
        MPI(MPIX_Notify(1, 600, w.win));
    MPI(MPI_Win_unlock_all(w.win));
    if (me == 1)
        MPI(MPIX_Win_notify_threshold(w.win, 600, ranks));
}

/* Info key mpi_assert_max_num_notify, and the attributes. */
static void bounds(void)
{
    void *place;
    int flag, n, *sb = NULL, *ub = NULL;
    char value[16];
    MPI_Info info, used;
    MPI_Win made = MPI_WIN_NULL;
    MPI_Comm comm;
    MPI_Aint bytes = 64;
    MPI(MPI_Win_get_attr(w.win, MPIX_WIN_NOTIFICATION_NUM_SB, &sb, &flag));
    EXPECT(flag && *sb >= COUNTERS, "MPIX_WIN_NOTIFICATION_NUM_SB: %d", flag ? *sb : -1);
    MPI(MPI_Win_get_attr(w.win, MPIX_WIN_NOTIFICATION_NUM_UB, &ub, &flag));
    EXPECT(flag && *ub >= *sb, "MPIX_WIN_NOTIFICATION_NUM_UB: %d", flag ? *ub : -1);
    MPI(MPI_Win_get_attr(w.win, MPIX_WIN_NOTIFICATION_VALUE_UB, &place, &flag));
    EXPECT(flag && *(MPI_Count *)place == INT64_MAX, "MPIX_WIN_NOTIFICATION_VALUE_UB");
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, *sb));
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, *sb + 1));

    MPI(MPI_Info_create(&info));
    snprintf(value, sizeof value, "%d", 5 + me);
    MPI(MPI_Info_set(info, "mpi_assert_max_num_notify", value));
    Window bound = window_on(w.kind, bytes, 1, info, MPI_COMM_WORLD);
    MPI(MPI_Win_set_errhandler(bound.win, MPI_ERRORS_RETURN));
    MPI(MPI_Win_get_info(bound.win, &used));
    MPI(MPI_Info_get(used, "mpi_assert_max_num_notify", 15, value, &flag));
    EXPECT(flag && atoi(value) == 5 + me, "MPI_Win_get_info returns %s", flag ? value : "nothing");
    MPI(MPI_Info_free(&used));
    MPI(MPI_Win_get_attr(bound.win, MPIX_WIN_NOTIFICATION_NUM_SB, &sb, &flag));
    EXPECT(flag && *sb == 5 + me, "MPIX_WIN_NOTIFICATION_NUM_SB under an assertion: %d",
           flag ? *sb : -1);
    MPI(MPIX_Win_set_num_notify(bound.win, MPI_INFO_NULL, 5 + me));
    /* Beyond the assertion in one process: an error in all. */
    REFUSED(MPI_ERR_ARG, MPIX_Win_set_num_notify(bound.win, MPI_INFO_NULL, me == 0 ? 6 : 1));
    for (int rank = 0; rank < ranks; rank++) {
        MPI(MPIX_Win_get_num_notify(bound.win, rank, &n));
        EXPECT(n == 5 + rank, "%d counters of rank %d after an invalid call", n, rank);
    }
    MPI(MPI_Info_set(info, "mpi_assert_max_num_notify", "100"));
    MPI(MPI_Win_set_info(bound.win, info));
    REFUSED(MPI_ERR_ARG, MPIX_Win_set_num_notify(bound.win, MPI_INFO_NULL, 100));
    window_free(&bound);

    /* An invalid value in one process: no window in any. */
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    MPI(MPI_Info_set(info, "mpi_assert_max_num_notify", me == ranks - 1 ? "-1" : "5"));
    REFUSED(MPI_ERR_INFO_VALUE, MPI_Win_allocate(bytes, 1, info, comm, &place, &made));
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Info_free(&info));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {{"epochs", epochs}, {"calls", calls}, {"waits", waits},       {"some", some},
                 {"all", all},       {"reset", reset}, {"overload", overload}, {"wrong", wrong},
                 {"bounds", bounds}, {"ways", ways},   {"idle", idle}};
    test_begin(&argc, &argv);
    REQUIRE(argc == 2);
    int ran = 0;
    for (unsigned c = 0; c < sizeof tests / sizeof *tests; c++)
        for (int kind = 0; kind < KINDS && !strcmp(argv[1], tests[c].name); kind++, ran++) {
            open_window(kind);
            tests[c].run();
            window_free(&w);
        }
    REQUIRE(ran == KINDS);
    return test_end();
}
