/*
 * Persistent epochs and operations [PE-1, PE-2, PE-3]: every kind of epoch and operation, restarted
 * with changed buffers; what a record refuses; and the life of its requests. The argument is the
 * number of starts; with `threads` behind it, under MPI_THREAD_MULTIPLE.
 */
#include "check.h"

#include "constructors.h"
#include <pthread.h>

enum { WORDS = 64 };

static int starts = 50;
static int left, right;

static void begin(MPI_Win win)
{
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
}

static void run(MPI_Request *request)
{
    MPI(MPI_Start(request));
    MPI(MPI_Wait(request, MPI_STATUS_IGNORE));
    EXPECT(*request != MPI_REQUEST_NULL, "a persistent request stays");
}

static MPI_Group only(int rank)
{
    MPI_Group all, one;
    MPI(MPI_Comm_group(MPI_COMM_WORLD, &all));
    MPI(MPI_Group_incl(all, 1, &rank, &one));
    MPI(MPI_Group_free(&all));
    return one;
}

/* Eight puts to the right neighbour, each start with new values. */
static void put_eight(const int64_t *values, MPI_Win win)
{
    for (int i = 0; i < 8; i++)
        MPI(MPI_Put(values + i, 1, MPI_INT64_T, right, i, 1, MPI_INT64_T, win));
}

static void check_eight(const int64_t *memory, int64_t round)
{
    for (int i = 0; i < 8; i++)
        EXPECT(memory[i] == left * 1000000 + round * 8 + i, "round %ld: %ld at %d", (long)round,
               (long)memory[i], i);
}

static void set_eight(int64_t *values, int64_t round)
{
    for (int i = 0; i < 8; i++)
        values[i] = me * 1000000 + round * 8 + i;
}

static void locks(int kind)
{
    Window w = window(kind, WORDS * 8, 8);
    const int64_t *memory = w.base;
    int64_t values[8];
    for (int way = 0; way < 4; way++) {
        MPI_Request r;
        MPI(MPIX_Win_epoch_init(w.win, &r));
        if (way < 2)
            MPI(MPI_Win_lock(way ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, right, 0, w.win));
        else if (way == 2)
            MPI(MPI_Win_lock_all(0, w.win));
        else {
            MPI_Request open = MPI_REQUEST_NULL;
            MPI(MPIX_Win_ilock(MPI_LOCK_SHARED, right, 0, w.win, &open));
            MPI(MPI_Wait(&open, MPI_STATUS_IGNORE));
        }
        set_eight(values, -1);
        put_eight(values, w.win);
        if (way == 2)
            MPI(MPI_Win_unlock_all(w.win));
        else
            MPI(MPI_Win_unlock(right, w.win));
        MPI(MPIX_Win_epoch_end(w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int i = 0; i < 8 && !way; i++)
            EXPECT(memory[i] == 0, "recording moves nothing");
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int round = 0; round < starts; round++) {
            set_eight(values, round);
            run(&r);
            MPI(MPI_Barrier(MPI_COMM_WORLD));
            MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
            check_eight(memory, round);
            MPI(MPI_Win_unlock(me, w.win));
            MPI(MPI_Barrier(MPI_COMM_WORLD));
        }
        MPI(MPI_Request_free(&r));
    }
    window_free(&w);
}

/* Exposure and access in one record, in two records, and in a record and calls. */
static void gats(int kind)
{
    Window w = window(kind, WORDS * 8, 8);
    const int64_t *memory = w.base;
    int64_t values[8];
    MPI_Group from = only(left), to = only(right);
    MPI_Request both, access, exposure;
    MPI(MPIX_Win_epoch_init(w.win, &both));
    MPI(MPI_Win_post(from, 0, w.win));
    MPI(MPI_Win_start(to, 0, w.win));
    put_eight(values, w.win);
    MPI(MPI_Win_complete(w.win));
    MPI(MPI_Win_wait(w.win));
    MPI(MPIX_Win_epoch_end(w.win));
    MPI(MPIX_Win_epoch_init(w.win, &access));
    MPI(MPI_Win_start(to, 0, w.win));
    put_eight(values, w.win);
    MPI(MPI_Win_complete(w.win));
    MPI(MPIX_Win_epoch_end(w.win));
    MPI(MPIX_Win_epoch_init(w.win, &exposure));
    MPI(MPI_Win_post(from, 0, w.win));
    MPI(MPI_Win_wait(w.win));
    MPI(MPIX_Win_epoch_end(w.win));
    for (int round = 0; round < starts; round++) {
        set_eight(values, round);
        if (round % 3 == 0)
            run(&both);
        else if (round % 3 == 1) { /* an open exposure does not keep an access from starting */
            MPI(MPI_Win_post(from, 0, w.win));
            run(&access);
            MPI(MPI_Win_wait(w.win));
        } else if (me == 0 && ranks > 1) { /* one by one: nobody waits in a circle */
            run(&access);
            run(&exposure);
        } else if (ranks > 1) {
            run(&exposure);
            run(&access);
        } else
            run(&both);
        check_eight(memory, round);
    }
    MPI(MPI_Group_free(&from));
    MPI(MPI_Group_free(&to));
    set_eight(values, starts);
    run(&both); /* the groups are freed */
    check_eight(memory, starts);
    MPI(MPI_Request_free(&both));
    MPI(MPI_Request_free(&access));
    MPI(MPI_Request_free(&exposure));
    window_free(&w);
}

/* Two fences, and three around two epochs. */
static void fences(int kind)
{
    Window w = window(kind, WORDS * 8, 8);
    const int64_t *memory = w.base;
    int64_t values[8], sum = 0, fetched = -1;
    MPI_Request r, two;
    MPI(MPIX_Win_epoch_init(w.win, &r));
    MPI(MPI_Win_fence(0, w.win));
    put_eight(values, w.win);
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPIX_Win_epoch_end(w.win));
    MPI(MPIX_Win_epoch_init(w.win, &two));
    MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
    MPI(MPI_Accumulate(&values[0], 1, MPI_INT64_T, right, 10, 1, MPI_INT64_T, MPI_SUM, w.win));
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPI_Get(&fetched, 1, MPI_INT64_T, right, 10, 1, MPI_INT64_T, w.win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    MPI(MPIX_Win_epoch_end(w.win));
    for (int round = 0; round < starts; round++) {
        set_eight(values, round);
        run(&r);
        check_eight(memory, round);
        sum += values[0];
        run(&two);
        EXPECT(fetched == sum, "%ld instead of %ld", (long)fetched, (long)sum);
        if (round % 2) { /* a fence epoch that the record's first fence closes */
            MPI(MPI_Win_fence(0, w.win));
            MPI(MPI_Put(&values[7], 1, MPI_INT64_T, right, 20, 1, MPI_INT64_T, w.win));
        }
    }
    MPI(MPI_Request_free(&r));
    MPI(MPI_Request_free(&two));
    window_free(&w);
}

/* Operations, and the fence behind them, in the fence epoch that is open at the start. */
static void in_open_fence(int kind)
{
    Window w = window(kind, WORDS * 8, 8);
    const int64_t *memory = w.base;
    int64_t values[8], sum = 0;
    MPI_Request r;
    begin(w.win);
    MPI(MPIX_Win_epoch_init(w.win, &r));
    put_eight(values, w.win);
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_epoch_end(w.win)); /* no fence closes the epoch */
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPI_Accumulate(&values[0], 1, MPI_INT64_T, right, 10, 1, MPI_INT64_T, MPI_SUM, w.win));
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPIX_Win_epoch_end(w.win));

    REFUSED(MPI_ERR_RMA_SYNC, MPI_Start(&r)); /* no fence was called */
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPI_Win_lock_all(0, w.win)); /* ends the fence epoch, which has no operations */
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Start(&r));
    MPI(MPI_Win_unlock_all(w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Start(&r));

    MPI(MPI_Win_fence(0, w.win));
    for (int round = 0; round < starts; round++) {
        set_eight(values, round);
        if (round % 2) /* joins an epoch that has operations */
            MPI(MPI_Put(&values[7], 1, MPI_INT64_T, right, 20, 1, MPI_INT64_T, w.win));
        run(&r);
        check_eight(memory, round);
        sum += left * 1000000 + round * 8;
        EXPECT(memory[10] == sum, "%ld instead of %ld", (long)memory[10], (long)sum);
        EXPECT(round % 2 == 0 || memory[20] == memory[7], "%ld", (long)memory[20]);
        MPI(MPI_Barrier(MPI_COMM_WORLD)); /* the next start may write at once */
    }
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Start(&r));
    MPI(MPI_Request_free(&r));
    window_free(&w);
}

/* All operations, in a lock epoch. */
static void operations(int kind)
{
    Window w = window(kind, WORDS * 8, 8);
    int64_t *memory = w.base;
    int64_t one = 1, got = -1, before = -1, swapped = -1, fetched = -1, expected = 0, put = 0;
    MPI_Count notified;
    MPI_Request r;
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, 2));
    MPI(MPIX_Win_epoch_init(w.win, &r));
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, w.win));
    MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, MPI_SUM, w.win));
    MPI(MPI_Get_accumulate(&one, 1, MPI_INT64_T, &before, 1, MPI_INT64_T, right, 1, 1,
                           MPI_INT64_T, MPI_SUM, w.win));
    MPI(MPI_Fetch_and_op(&one, &fetched, MPI_INT64_T, right, 2, MPI_SUM, w.win));
    MPI(MPI_Compare_and_swap(&put, &expected, &swapped, MPI_INT64_T, right, 3, w.win));
    MPI(MPI_Get(&got, 1, MPI_INT64_T, right, 4, 1, MPI_INT64_T, w.win));
    MPI(MPIX_Put_notify(&put, 1, MPI_INT64_T, right, 5, 1, MPI_INT64_T, 0, w.win));
    MPI(MPI_Put(NULL, 0, MPI_INT64_T, right, 6, 0, MPI_INT64_T, w.win)); /* nothing */
    MPI(MPI_Put(&put, 1, MPI_INT64_T, MPI_PROC_NULL, 6, 1, MPI_INT64_T, w.win));
    MPI(MPIX_Notify(right, 1, w.win));
    MPI(MPI_Win_unlock(right, w.win));
    MPI(MPIX_Win_epoch_end(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int round = 0; round < starts; round++) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, w.win));
        memory[4] = round * 10;
        MPI(MPI_Win_unlock(me, w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        expected = put;
        put = round + 1;
        run(&r);
        EXPECT(before == round && fetched == round, "%ld, %ld", (long)before, (long)fetched);
        EXPECT(swapped == round && got == round * 10, "%ld, %ld", (long)swapped, (long)got);
        MPI(MPIX_Win_notify_threshold(w.win, 0, round + 1));
        MPI(MPIX_Win_notify_threshold(w.win, 1, round + 1));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
        EXPECT(memory[0] == round + 1 && memory[1] == round + 1 && memory[2] == round + 1,
               "%ld, %ld, %ld", (long)memory[0], (long)memory[1], (long)memory[2]);
        EXPECT(memory[3] == round + 1 && memory[5] == round + 1, "%ld, %ld", (long)memory[3],
               (long)memory[5]);
        MPI(MPI_Win_unlock(me, w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI(MPIX_Win_get_notify_value(w.win, 0, &notified));
    EXPECT(notified == starts, "%ld notifications", (long)notified);
    MPI(MPI_Request_free(&r));
    window_free(&w);
}

/* Derived datatypes, freed once they are recorded. */
static void derived(int kind)
{
    enum { BYTES = 4096 };
    Window w = window(kind, BYTES, 1);
    static char out[BYTES], back[BYTES];
    for (int which = 0; which < CONSTRUCTORS; which += 3) {
        MPI_Datatype t = construct(which, MPI_INT32_T);
        MPI_Aint lb, extent;
        MPI_Request r;
        int size;
        MPI(MPI_Type_commit(&t));
        MPI(MPI_Type_get_true_extent(t, &lb, &extent));
        MPI(MPI_Type_size(t, &size));
        if (extent + (lb < 0 ? -lb : lb) > BYTES / 2) {
            MPI(MPI_Type_free(&t));
            continue;
        }
        char *here = out + BYTES / 2 - (lb > 0 ? lb : 0);
        MPI(MPIX_Win_epoch_init(w.win, &r));
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, w.win));
        MPI(MPI_Put(here, 1, t, right, BYTES / 2 - (lb > 0 ? lb : 0), 1, t, w.win));
        MPI(MPI_Get(back, size, MPI_BYTE, right, BYTES / 2 - (lb > 0 ? lb : 0), 1, t, w.win));
        MPI(MPI_Win_unlock(right, w.win));
        MPI(MPIX_Win_epoch_end(w.win));
        for (int round = 0; round < 5; round++) {
            char packed[BYTES];
            int at = 0;
            for (int i = 0; i < BYTES; i++)
                out[i] = (char)(i * 7 + round + me + which);
            MPI(MPI_Pack(here, 1, t, packed, BYTES, &at, MPI_COMM_WORLD));
            if (round == 3)
                MPI(MPI_Type_free(&t));
            else if (round > 3)
                at = 0; /* the type is freed: the record still works */
            run(&r);
            if (kind == ALLOCATED && round < 3)
                EXPECT(memcmp(back, packed, (size_t)size) == 0, "type %d, round %d", which, round);
            if (round == 3) {
                t = construct(which, MPI_INT32_T);
                MPI(MPI_Type_commit(&t));
            }
        }
        MPI(MPI_Type_free(&t));
        MPI(MPI_Request_free(&r));
    }
    window_free(&w);
}

static void one_by_one(int kind)
{
    Window w = window(kind, WORDS * 8, 8);
    int64_t *memory = w.base;
    int64_t value = -1, got = -1, add = 2;
    MPI_Request r[5];
    begin(w.win);
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, 1));
    MPI(MPIX_Put_init(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win, &r[0]));
    MPI(MPIX_Accumulate_init(&add, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, MPI_SUM, w.win,
                             &r[1]));
    MPI(MPIX_Put_notify_init_c(&value, 1, MPI_INT64_T, right, 2, 1, MPI_INT64_T, 0, w.win, &r[2]));
    MPI(MPIX_Get_init(&got, 1, MPI_INT64_T, right, 3, 1, MPI_INT64_T, w.win, &r[3]));
    MPI(MPIX_Put_init(&value, 1, MPI_INT64_T, MPI_PROC_NULL, 0, 1, MPI_INT64_T, w.win, &r[4]));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Start(&r[0]));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Startall(5, r));
    MPI(MPI_Waitall(5, r, MPI_STATUSES_IGNORE)); /* all inactive */
    REFUSED(MPI_ERR_RANK,
            MPIX_Put_init(&value, 1, MPI_INT64_T, ranks, 0, 1, MPI_INT64_T, w.win, &r[4]));
    REFUSED(MPI_ERR_RMA_RANGE,
            MPIX_Put_init(&value, 1, MPI_INT64_T, right, WORDS, 1, MPI_INT64_T, w.win, &r[4]));
    REFUSED(MPI_ERR_ARG, MPIX_Put_notify_init(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, 1,
                                              w.win, &r[4]));
    REFUSED(MPI_ERR_ARG,
            MPIX_Get_init(&got, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win, NULL));
    for (int round = 0; round < starts; round++) {
        MPI_Request list[7];
        int message = me, received = -1;
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, w.win));
        memory[3] = round * 100 + me;
        MPI(MPI_Win_unlock(me, w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        value = round;
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
        MPI(MPI_Startall(5, r));
        MPI(MPI_Irecv(&received, 1, MPI_INT, left, 5, MPI_COMM_WORLD, &list[5]));
        MPI(MPI_Isend(&message, 1, MPI_INT, right, 5, MPI_COMM_WORLD, &list[6]));
        memcpy(list, r, sizeof r);
        for (int left_over = 7; left_over;) {
            int indices[7], number;
            if (round % 3 == 0) {
                MPI(MPI_Waitall(7, list, MPI_STATUSES_IGNORE));
                left_over = 0;
            } else if (round % 3 == 1) {
                MPI(MPI_Waitsome(7, list, &number, indices, MPI_STATUSES_IGNORE));
                left_over -= number;
            } else {
                MPI(MPI_Testsome(7, list, &number, indices, MPI_STATUSES_IGNORE));
                left_over -= number == MPI_UNDEFINED ? 0 : number;
            }
        }
        EXPECT(memcmp(list, r, sizeof r) == 0, "persistent requests stay");
        EXPECT(received == left && got == round * 100 + right, "%d, %ld", received, (long)got);
        MPI(MPI_Win_unlock(right, w.win));
        MPI(MPIX_Win_notify_threshold(w.win, 0, round + 1));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
        EXPECT(memory[0] == round && memory[1] == 2 * (round + 1) && memory[2] == round,
               "%ld, %ld, %ld", (long)memory[0], (long)memory[1], (long)memory[2]);
        MPI(MPI_Win_unlock(me, w.win));
    }
    for (int i = 0; i < 5; i++)
        MPI(MPI_Request_free(&r[i]));
    window_free(&w);
}

/* What a record refuses, and what it leaves alone. */
static void refusals(int kind)
{
    Window w = window(kind, WORDS * 8, 8), other = window(kind, 8, 8);
    int64_t value = 1, got;
    int flag;
    MPI_Request r, second, request = MPI_REQUEST_NULL;
    MPI_Group one = only(right);
    MPI_Info info;
    begin(w.win);
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_epoch_end(w.win));
    REFUSED(MPI_ERR_ARG, MPIX_Win_epoch_init(w.win, NULL));
    MPI(MPIX_Win_epoch_init(w.win, &r));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Start(&r));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_epoch_init(w.win, &second));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_complete(w.win));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
    MPI(MPI_Win_unlock(right, w.win));
    REFUSED(MPI_ERR_RMA_SYNC,
            MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win)); /* no epoch */
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_start(one, 0, w.win));
    REFUSED(MPI_ERR_LOCKTYPE, MPI_Win_lock(77, right, 0, w.win));
    REFUSED(MPI_ERR_ASSERT, MPI_Win_lock(MPI_LOCK_SHARED, right, MPI_MODE_NOPUT, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_flush(right, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_flush_all(w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_iflush(right, w.win, &request));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_flush_wins(1, &w.win, right));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_order(right, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_sync(w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_test(w.win, &flag));
    REFUSED(MPI_ERR_RMA_SYNC,
            MPI_Rput(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win, &request));
    REFUSED(MPI_ERR_RMA_SYNC,
            MPIX_Put_init(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win, &request));
    REFUSED(MPI_ERR_RMA_RANGE,
            MPI_Put(&value, 1, MPI_INT64_T, right, WORDS, 1, MPI_INT64_T, w.win));
    REFUSED(MPI_ERR_RANK, MPI_Put(&value, 1, MPI_INT64_T, ranks, 0, 1, MPI_INT64_T, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_epoch_end(w.win)); /* the lock is open */
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_free(&w.win));
    MPI(MPI_Win_get_info(w.win, &info));
    MPI(MPI_Info_free(&info));
    MPI(MPI_Win_get_attr(w.win, MPI_WIN_BASE, &(void *){NULL}, &flag));
    EXPECT(flag, "attributes can be read");
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, other.win)); /* other windows are not affected */
    MPI(MPI_Get(&got, 1, MPI_INT64_T, me, 0, 1, MPI_INT64_T, other.win));
    MPI(MPI_Win_unlock(me, other.win));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win));
    MPI(MPI_Win_unlock(right, w.win));
    MPI(MPIX_Win_epoch_end(w.win));

    /* Starts that the open epochs forbid. */
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Start(&r));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, w.win)); /* still open */
    MPI(MPI_Win_unlock(right, w.win));
    MPI(MPI_Win_lock_all(0, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Start(&r));
    MPI(MPI_Win_unlock_all(w.win));
    if (ranks > 1) { /* a lock of another target is no obstacle */
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
        run(&r);
        MPI(MPI_Win_unlock(me, w.win));
    }
    MPI(MPI_Win_fence(0, w.win));
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, w.win));
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Start(&r));
    MPI(MPI_Win_fence(0, w.win));
    run(&r); /* no operation has made the fence epoch real */

    /* A record whose request is freed, and an empty one. */
    MPI(MPIX_Win_epoch_init(w.win, &second));
    MPI(MPI_Request_free(&second));
    MPI(MPIX_Win_epoch_end(w.win));
    MPI(MPIX_Win_epoch_init(w.win, &second));
    MPI(MPIX_Win_epoch_end(w.win));
    run(&second);
    MPI(MPI_Request_free(&second));
    MPI(MPI_Request_free(&r));
    MPI(MPI_Group_free(&one));
    window_free(&other);
    window_free(&w);
}

/* Requests that are active, freed, or whose window is gone. The even ranks access the odd ones. */
static void lives(int kind)
{
    Window w = window(kind, WORDS * 8, 8);
    int64_t values[3], *memory = w.base;
    int peer = me ^ 1, flag, paired = peer < ranks, origin = paired && me % 2 == 0;
    MPI_Request r[3], freed, gone;
    MPI_Group one = only(paired ? peer : me);
    begin(w.win);
    for (int i = 0; i < 3; i++) {
        MPI(MPIX_Win_epoch_init(w.win, &r[i]));
        if (origin) {
            MPI(MPI_Win_start(one, 0, w.win));
            MPI(MPI_Put(&values[i], 1, MPI_INT64_T, peer, i, 1, MPI_INT64_T, w.win));
            MPI(MPI_Win_complete(w.win));
        } else if (paired) {
            MPI(MPI_Win_post(one, 0, w.win));
            MPI(MPI_Win_wait(w.win));
        }
        MPI(MPIX_Win_epoch_end(w.win));
    }
    for (int round = 0; round < starts; round++) {
        for (int i = 0; i < 3; i++)
            values[i] = round * 3 + i;
        if (origin) {
            MPI(MPI_Startall(3, r)); /* three epochs of one window; nobody has posted */
            MPI(MPI_Test(&r[2], &flag, MPI_STATUS_IGNORE));
            EXPECT(!flag, "complete without a post");
            MPI(MPI_Request_get_status(r[2], &flag, MPI_STATUS_IGNORE));
            EXPECT(!flag, "complete without a post");
            REFUSED(MPI_ERR_REQUEST, MPI_Start(&r[0]));
            REFUSED(MPI_ERR_REQUEST, MPI_Startall(3, r));
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (!origin)
            MPI(MPI_Startall(3, r));
        for (int done = 0; done < 3;) {
            int index;
            if (round % 3 == 0) {
                MPI(MPI_Waitany(3, r, &index, MPI_STATUS_IGNORE));
                done++;
            } else if (round % 3 == 1) {
                MPI(MPI_Testall(3, r, &flag, MPI_STATUSES_IGNORE));
                done = flag ? 3 : 0;
            } else {
                MPI(MPI_Testany(3, r, &index, &flag, MPI_STATUS_IGNORE));
                done += flag;
            }
        }
        for (int i = 0; paired && !origin && i < 3; i++)
            EXPECT(memory[i] == round * 3 + i, "%ld at %d", (long)memory[i], i);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }

    /* Freed while it is active: it still ends, at the latest when the window is freed. */
    values[0] = -7;
    freed = r[0];
    MPI(MPI_Start(&freed));
    MPI(MPI_Request_free(&freed));
    EXPECT(freed == MPI_REQUEST_NULL, "MPI_Request_free nulls the handle");
    /* Active when the window is freed: complete then, and never started again. */
    MPI(MPI_Start(&r[1]));
    if (kind == CREATED) {
        MPI(MPI_Win_free(&w.win));
    } else {
        MPI(MPI_Wait(&r[1], MPI_STATUS_IGNORE));
        if (paired && !origin)
            EXPECT(memory[0] == -7, "the freed one has ended: %ld", (long)memory[0]);
        MPI(MPI_Win_free(&w.win));
    }
    MPI(MPI_Wait(&r[1], MPI_STATUS_IGNORE));
    for (int i = 1; i < 3; i++) {
        REFUSED(MPI_ERR_REQUEST, MPI_Start(&r[i]));
        MPI(MPI_Test(&r[i], &flag, MPI_STATUS_IGNORE));
        EXPECT(flag, "an inactive request counts as complete");
        gone = r[i];
        MPI(MPI_Request_free(&gone));
    }
    if (w.created)
        free(w.base);
    MPI(MPI_Group_free(&one));
}

static MPI_Win recording;
static pthread_barrier_t recorded;

/* Another thread's calls are no part of a record. */
static void *intrude(void *unused)
{
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, me, 0, recording));
    REFUSED(MPI_ERR_RMA_SYNC, MPIX_Win_epoch_end(recording));
    return unused;
}

typedef struct {
    MPI_Win win;
    int64_t value;
    int slot;
} Lane;

/* Restarts an epoch while the other thread restarts one of the same window. */
static void *restart(void *argument)
{
    Lane *lane = argument;
    static pthread_mutex_t recording_one = PTHREAD_MUTEX_INITIALIZER;
    MPI_Request r;
    pthread_mutex_lock(&recording_one);
    MPI(MPIX_Win_epoch_init(lane->win, &r));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, (right + lane->slot) % ranks, 0, lane->win));
    MPI(MPI_Put(&lane->value, 1, MPI_INT64_T, (right + lane->slot) % ranks, 2 * me + lane->slot, 1,
                MPI_INT64_T, lane->win));
    MPI(MPI_Win_unlock((right + lane->slot) % ranks, lane->win));
    MPI(MPIX_Win_epoch_end(lane->win));
    pthread_mutex_unlock(&recording_one);
    pthread_barrier_wait(&recorded); /* a start is refused while a record is made */
    for (int round = 0; round < 20 * starts; round++) {
        lane->value = round;
        run(&r);
    }
    MPI(MPI_Request_free(&r));
    return NULL;
}

static void threads(void)
{
    pthread_t thread;
    MPI_Request r;
    Window w = window(ALLOCATED, WORDS * 8, 8);
    const int64_t *memory = w.base;
    begin(w.win);
    recording = w.win;
    MPI(MPIX_Win_epoch_init(w.win, &r));
    REQUIRE(pthread_create(&thread, NULL, intrude, NULL) == 0);
    pthread_join(thread, NULL);
    MPI(MPIX_Win_epoch_end(w.win));
    MPI(MPI_Request_free(&r));

    Lane lanes[2] = {{w.win, 0, 0}, {w.win, 0, 1}};
    pthread_t both[2];
    pthread_barrier_init(&recorded, NULL, 2);
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_create(&both[i], NULL, restart, &lanes[i]) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(both[i], NULL);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    for (int slot = 0; slot < 2; slot++) {
        int64_t found = memory[2 * ((me + 2 * ranks - 1 - slot) % ranks) + slot];
        EXPECT(found == 20 * starts - 1, "%ld", (long)found);
    }
    MPI(MPI_Win_unlock(me, w.win));
    window_free(&w);
}

int main(int argc, char **argv)
{
    int threaded = argc > 2 && strcmp(argv[2], "threads") == 0;
    test_begin_threads(&argc, &argv, threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    if (argc > 1)
        starts = atoi(argv[1]);
    left = (me + ranks - 1) % ranks;
    right = (me + 1) % ranks;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int kind = 0; kind < KINDS; kind++) {
        locks(kind);
        gats(kind);
        fences(kind);
        in_open_fence(kind);
        operations(kind);
        derived(kind);
        one_by_one(kind);
        refusals(kind);
        lives(kind);
    }
    if (threaded)
        threads();
    return test_end();
}
