/*
 * Tagged notifications: delivered after their data in every kind of epoch, matched by source and
 * tag in order, received by persistent requests alone and in lists; none is lost, and invalid calls
 * fail.
 *
 *   tagged CASE    CASE: epochs | calls | match | lists | many | overload | wrong
 */
#include "notified.h"

static void expect_status(const MPI_Status *s, int source, int tag, const char *where)
{
    int count = -1, cancelled = -1;
    MPI(MPI_Get_count(s, MPI_BYTE, &count));
    MPI(MPI_Test_cancelled(s, &cancelled));
    EXPECT(s->MPI_SOURCE == source && s->MPI_TAG == tag && !count && !cancelled,
           "%s: status has source %d, tag %d, count %d; not %d, %d, 0", where, s->MPI_SOURCE,
           s->MPI_TAG, count, source, tag);
}

/* Receives one notification: start, wait, check the status. */
static void take(int source, int tag, int from, int told, const char *where)
{
    MPI_Request r;
    MPI_Status s;
    MPI(MPIX_Notify_init(w.win, source, tag, 1, &r));
    MPI(MPI_Start(&r));
    MPI(MPI_Wait(&r, &s));
    expect_status(&s, from, told, where);
    EXPECT(r != MPI_REQUEST_NULL, "MPI_Wait nulled a persistent request");
    MPI(MPI_Request_free(&r));
    EXPECT(r == MPI_REQUEST_NULL, "MPI_Request_free does not null the handle");
}

static void expect_none(const char *where)
{
    int flag = -1;
    MPI(MPIX_Notify_iprobe(w.win, MPI_ANY_SOURCE, MPI_ANY_TAG, &flag, MPI_STATUS_IGNORE));
    EXPECT(flag == 0, "%s: an extra notification", where);
}

static void put_right(int64_t value, int count, int tag)
{
    MPI(MPIX_Put_tagged(numbers(value, count), count, MPI_INT64_T, right_of(me), 0, count,
                        MPI_INT64_T, tag, w.win));
}

static int last_tag;

static void put_next(int64_t value, int count) { put_right(value, count, ++last_tag); }

/* By rank and tag, by one of them, or by neither. */
static void hear_last(enum kind kind, const char *name)
{
    int left = left_of(me);
    take(kind == FENCE || kind == LOCK ? left : MPI_ANY_SOURCE,
         kind < LOCK ? last_tag : MPI_ANY_TAG, left, last_tag, name);
}

static void expect_no_more(void) { expect_none("epochs"); }

static void put_deferred(const int64_t *value, int place)
{
    MPI(MPIX_Put_tagged(value, 1, MPI_INT64_T, right_of(me), place, 1, MPI_INT64_T, 500 + place,
                        w.win));
}

static void expect_not_begun(void) { expect_none("deferred"); }
static void hear_deferred(int place)
{
    take(left_of(me), MPI_ANY_TAG, left_of(me), 500 + place, "deferred");
}

static void epochs(void)
{
    static const struct family tags = {put_next,     hear_last,        expect_no_more,
                                       put_deferred, expect_not_begun, hear_deferred};
    last_tag = 0;
    every_epoch(&tags);
}

/* Each tagged call: its own effect, and its tag. */
static void calls(void)
{
    int64_t ten = 10, back = -1, both[3] = {5, 6, 7};
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks, tag = 0;
    MPI_Request r;
    MPI_Datatype pairs;
    MPI(MPI_Type_vector(2, 1, 2, MPI_INT64_T, &pairs));
    MPI(MPI_Type_commit(&pairs));
    MPI(MPI_Win_lock_all(0, w.win));
    MPI(MPIX_Put_tagged(&ten, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, tag++, w.win));
    MPI(MPI_Win_flush(right, w.win));
    MPI(MPIX_Get_tagged(&back, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, tag++, w.win));
    MPI(MPI_Win_flush(right, w.win));
    EXPECT(back == 10, "get: %ld", (long)back);
    MPI(MPIX_Rput_tagged(&ten, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, tag++, w.win, &r));
    finish(&r);
    MPI(MPI_Win_flush(right, w.win));
    back = -1;
    MPI(MPIX_Rget_tagged(&back, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, tag++, w.win, &r));
    finish(&r);
    EXPECT(back == 10, "rget: %ld", (long)back);
    MPI(MPIX_Put_tagged_c(&ten, 1, MPI_INT64_T, right, 2, 1, MPI_INT64_T, tag++, w.win));
    MPI(MPIX_Rput_tagged_c(&ten, 1, MPI_INT64_T, right, 3, 1, MPI_INT64_T, tag++, w.win, &r));
    finish(&r);
    MPI(MPI_Win_flush(right, w.win));
    back = -1;
    MPI(MPIX_Get_tagged_c(&back, 1, MPI_INT64_T, right, 2, 1, MPI_INT64_T, tag++, w.win));
    MPI(MPI_Win_flush(right, w.win));
    EXPECT(back == 10, "get_c: %ld", (long)back);
    back = -1;
    MPI(MPIX_Rget_tagged_c(&back, 1, MPI_INT64_T, right, 3, 1, MPI_INT64_T, tag++, w.win, &r));
    finish(&r);
    EXPECT(back == 10, "rget_c: %ld", (long)back);
    MPI(MPIX_Put_tagged(both, 1, pairs, right, 4, 1, pairs, tag++, w.win));
    MPI(MPIX_Put_tagged(NULL, 0, MPI_INT64_T, right, 0, 0, MPI_INT64_T, tag++, w.win));
    MPI(MPIX_Put_tagged(NULL, 0, MPI_INT64_T, right, 0, 0, MPI_INT64_T, 0x7fffffff, w.win));
    MPI(MPIX_Put_tagged(both, 1, MPI_INT64_T, MPI_PROC_NULL, 0, 1, MPI_INT64_T, tag, w.win));
    for (int i = 0; i < tag; i++)
        take(left, MPI_ANY_TAG, left, i, "in the order of the calls");
    take(left, MPI_ANY_TAG, left, 0x7fffffff, "the largest tag");
    EXPECT(load64(cells() + 4) == 5 && load64(cells() + 6) == 7 && load64(cells() + 5) == 0,
           "derived datatype");
    MPI(MPIX_Put_tagged(&ten, 1, MPI_INT64_T, me, 9, 1, MPI_INT64_T, 77, w.win));
    take(MPI_ANY_SOURCE, 77, me, 77, "self");
    EXPECT(load64(cells() + 9) == 10, "put to oneself");
    MPI(MPI_Win_unlock_all(w.win));
    expect_none("calls");

    /* From MPI_PROC_NULL; inactive requests; a second start. */
    MPI_Status s;
    int flag = -1;
    MPI(MPIX_Notify_init(w.win, MPI_PROC_NULL, 3, 5, &r));
    MPI(MPI_Wait(&r, &s));
    expect_status(&s, MPI_ANY_SOURCE, MPI_ANY_TAG, "not started");
    for (int i = 0; i < 2; i++) {
        MPI(MPI_Start(&r));
        MPI(MPI_Request_get_status(r, &flag, &s));
        EXPECT(flag == 1, "from nobody");
        MPI(MPI_Test(&r, &flag, &s));
        EXPECT(flag == 1, "from nobody");
        expect_status(&s, MPI_PROC_NULL, MPI_ANY_TAG, "from nobody");
    }
    MPI(MPI_Request_free(&r));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Type_free(&pairs));
}

/* Wildcards, counts, arrival order, requests started before and after the arrival. */
static void match(void)
{
    enum { EACH = 50 };
    MPI(MPI_Win_lock_all(0, w.win));
    /* All processes send rank 0 the tags 0 to 49, twice. */
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < EACH; i++)
            MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, i, w.win));
    MPI(MPI_Win_flush(0, w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0) {
        MPI_Request r, exact[2];
        MPI_Status s;
        int flag, next[64] = {0};
        /* The last tag of each source, and a probe, which leaves the notification there. */
        for (int source = 0; source < ranks; source++) {
            MPI(MPIX_Notify_iprobe(w.win, source, EACH - 1, &flag, &s));
            EXPECT(flag, "everything has come");
            expect_status(&s, source, EACH - 1, "probe");
            take(source, EACH - 1, source, EACH - 1, "the last tag");
        }
        /* One tag from all sources. */
        MPI(MPIX_Notify_init(w.win, MPI_ANY_SOURCE, 7, 2 * ranks, &r));
        MPI(MPI_Start(&r));
        MPI(MPI_Wait(&r, &s));
        EXPECT(s.MPI_TAG == 7, "tag %d", s.MPI_TAG);
        MPI(MPI_Request_free(&r));
        /* All remaining ones, in the order of each source. */
        MPI(MPIX_Notify_init(w.win, MPI_ANY_SOURCE, MPI_ANY_TAG, 1, &r));
        for (int i = 0; i < ranks * (2 * EACH - 3); i++) {
            MPI(MPI_Start(&r));
            MPI(MPI_Wait(&r, &s));
            int *n = &next[s.MPI_SOURCE];
            while (*n % EACH == 7 || *n == EACH - 1)
                ++*n;
            EXPECT(s.MPI_TAG == *n % EACH, "rank %d: tag %d, not %d", s.MPI_SOURCE, s.MPI_TAG,
                   *n % EACH);
            ++*n;
        }
        expect_none("match");
        /* The request started first is served first. */
        MPI(MPIX_Notify_init(w.win, 0, 1, 1, &exact[0]));
        MPI(MPIX_Notify_init(w.win, 0, 1, 2, &exact[1]));
        MPI(MPI_Startall(2, exact));
        MPI(MPI_Start(&r));
        for (int i = 0; i < 4; i++)
            MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, 1, w.win));
        MPI(MPI_Win_flush(0, w.win));
        MPI(MPI_Waitall(2, exact, MPI_STATUSES_IGNORE));
        MPI(MPI_Wait(&r, &s));
        expect_status(&s, 0, 1, "the wildcard request was started last");
        expect_none("match");
        /* Freed while active: it still takes its notifications. */
        MPI(MPI_Start(&exact[0]));
        MPI(MPI_Request_free(&exact[0]));
        MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, 1, w.win));
        MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, 2, w.win));
        take(MPI_ANY_SOURCE, MPI_ANY_TAG, 0, 2, "behind a freed request");
        MPI(MPI_Request_free(&exact[1]));
        MPI(MPI_Request_free(&r));
    }
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* Persistent requests in lists with requests of the host and of epochs, in every call that takes
 * lists. */
static void lists(void)
{
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    enum { N = 6 };
    MPI_Request r[N], notify[2], nothing;
    MPI_Status s[N];
    MPI(MPIX_Notify_init(w.win, left, 1, 2, &notify[0]));
    MPI(MPIX_Notify_init(w.win, MPI_ANY_SOURCE, 2, 1, &notify[1]));
    MPI(MPIX_Notify_init(w.win, left, 3, 1, &nothing)); /* never started */
    for (int turn = 0; turn < 120; turn++) {
        int64_t value = turn, in = -1;
        int flag = -1, left_over = N, indices[N], number;
        MPI(MPI_Startall(2, notify));
        MPI(MPI_Request_get_status(notify[0], &flag, MPI_STATUS_IGNORE));
        MPI(MPI_Irecv(&in, 1, MPI_INT64_T, left, 7, MPI_COMM_WORLD, &r[1]));
        do_lock(turn % 2 ? NB_ALL : 0, MPI_LOCK_SHARED, right, w.win);
        MPI(MPIX_Put_tagged(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, 1, w.win));
        MPI(MPIX_Put_tagged(&value, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, 2, w.win));
        MPI(MPIX_Put_tagged(&value, 1, MPI_INT64_T, right, 2, 1, MPI_INT64_T, 1, w.win));
        MPI(MPIX_Win_iunlock(right, w.win, &r[3]));
        MPI(MPI_Isend(&value, 1, MPI_INT64_T, right, 7, MPI_COMM_WORLD, &r[5]));
        r[0] = notify[0], r[2] = notify[1], r[4] = nothing;
        for (int i = 0; i < N; i++)
            s[i].MPI_SOURCE = s[i].MPI_TAG = -77;
        switch (turn % 6) {
        case 0: MPI(MPI_Waitall(N, r, s)); break;
        case 1:
            flag = 0;
            while (!flag)
                MPI(MPI_Testall(N, r, &flag, s));
            break;
        case 2:
        case 3:
            for (left_over = N - 1; left_over > 0; left_over--) {
                MPI_Status one;
                number = -1;
                if (turn % 6 == 2)
                    MPI(MPI_Waitany(N, r, &number, &one));
                else
                    for (flag = 0; !flag;)
                        MPI(MPI_Testany(N, r, &number, &flag, &one));
                REQUIRE(number >= 0 && number < N && number != 4);
                EXPECT(s[number].MPI_TAG == -77, "request %d is complete twice", number);
                s[number] = one;
            }
            MPI(MPI_Waitany(N, r, &number, MPI_STATUS_IGNORE));
            EXPECT(number == MPI_UNDEFINED, "none is active, but %d is complete", number);
            break;
        default:
            for (left_over = N - 1; left_over > 0; left_over -= number) {
                MPI_Status some[N];
                if (turn % 6 == 4)
                    MPI(MPI_Waitsome(N, r, &number, indices, some));
                else
                    do
                        MPI(MPI_Testsome(N, r, &number, indices, some));
                    while (!number);
                REQUIRE(number > 0 && number <= left_over);
                for (int i = 0; i < number; i++) {
                    EXPECT(s[indices[i]].MPI_TAG == -77, "request %d is complete twice",
                           indices[i]);
                    s[indices[i]] = some[i];
                }
            }
            MPI(MPI_Testsome(N, r, &number, indices, s + 4));
            EXPECT(number == MPI_UNDEFINED, "none is active, but %d are complete", number);
        }
        expect_status(&s[0], left, 1, "two notifications of one tag");
        expect_status(&s[2], left, 2, "any source");
        EXPECT(s[1].MPI_SOURCE == left && s[1].MPI_TAG == 7 && in == turn, "receive: %d, %d, %ld",
               s[1].MPI_SOURCE, s[1].MPI_TAG, (long)in);
        EXPECT(r[1] == MPI_REQUEST_NULL && r[3] == MPI_REQUEST_NULL && r[5] == MPI_REQUEST_NULL,
               "a request of the host is not null");
        EXPECT(r[0] == notify[0] && r[2] == notify[1] && r[4] == nothing,
               "a persistent request changed");
        for (int i = 0; i < 3; i++)
            EXPECT(load64(cells() + i) >= turn, "turn %d, cell %d: %ld", turn, i,
                   (long)load64(cells() + i));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    /* Without statuses, and with a persistent request of the host. */
    for (int turn = 0; turn < 20; turn++) {
        int64_t value = turn, in = -1;
        MPI(MPI_Recv_init(&in, 1, MPI_INT64_T, left, 8, MPI_COMM_WORLD, &r[0]));
        MPI(MPI_Send_init(&value, 1, MPI_INT64_T, right, 8, MPI_COMM_WORLD, &r[1]));
        r[2] = notify[1];
        MPI(MPI_Startall(3, r));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
        MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, right, 0, 0, MPI_BYTE, 2, w.win));
        MPI(MPI_Win_unlock(right, w.win));
        MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
        EXPECT(in == turn, "%ld", (long)in);
        MPI(MPI_Request_free(&r[0]));
        MPI(MPI_Request_free(&r[1]));
    }
    /* MPI_Request_get_status does not complete the request; MPI_Cancel has no effect. */
    int flag = -1;
    MPI_Status one;
    MPI(MPI_Start(&nothing));
    MPI(MPI_Request_get_status(nothing, &flag, &one));
    EXPECT(!flag, "nothing has come");
    MPI(MPI_Cancel(&nothing));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
    MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, right, 0, 0, MPI_BYTE, 3, w.win));
    MPI(MPI_Win_unlock(right, w.win));
    for (flag = 0; !flag;)
        MPI(MPI_Request_get_status(nothing, &flag, &one));
    expect_status(&one, left, 3, "asked for");
    MPI(MPI_Wait(&nothing, &one));
    expect_status(&one, left, 3, "waited for");
    MPI(MPI_Request_free(&nothing));
    MPI(MPI_Request_free(&notify[0]));
    MPI(MPI_Request_free(&notify[1]));
    expect_none("lists");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* All to all, many tags, waited for in any order. */
static void many(void)
{
    enum { TAGS = 300 };
    MPI_Request *r = malloc(sizeof *r * (size_t)(TAGS * ranks));
    REQUIRE(r != NULL);
    for (int i = 0; i < TAGS * ranks; i++)
        MPI(MPIX_Notify_init(w.win, i % ranks, i / ranks, 1, &r[i]));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int turn = 0; turn < 3; turn++) {
        int done = 0, first = turn % 2 ? 0 : TAGS * ranks / 2;
        MPI(MPI_Startall(first, r));
        for (int i = 0; i < TAGS; i++)
            for (int target = 0; target < ranks; target++)
                MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, target, 0, 0, MPI_BYTE, (i * 7) % TAGS,
                                    w.win));
        MPI(MPI_Startall(TAGS * ranks - first, r + first));
        while (done < TAGS * ranks) {
            int number, indices[8];
            MPI_Status s[8];
            int at = done / 8 * 8, most = TAGS * ranks - at < 8 ? TAGS * ranks - at : 8;
            MPI(MPI_Waitsome(most, r + at, &number, indices, s));
            REQUIRE(number > 0);
            for (int i = 0; i < number; i++)
                expect_status(&s[i], (at + indices[i]) % ranks, (at + indices[i]) / ranks,
                              "one of many");
            done += number;
        }
        MPI(MPI_Win_flush_all(w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        expect_none("many");
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI(MPI_Win_unlock_all(w.win));
    for (int i = 0; i < TAGS * ranks; i++)
        MPI(MPI_Request_free(&r[i]));
    free(r);
}

/* A target that waits for something else makes progress, so the origin is not blocked, and all
 * notifications arrive. */
static void overload(void)
{
    const int number = 1000000;
    if (me == 0) {
        int64_t value;
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, w.win));
        for (int i = 0; i < number; i++) {
            value = i;
            MPI(MPIX_Put_tagged(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, i % 100, w.win));
            /* The put may be recorded until the target makes progress. */
            MPI(MPI_Win_flush_local(1, w.win));
        }
        MPI(MPI_Win_unlock(1, w.win));
        send_token(1, 1);
    } else if (me == 1) {
        MPI_Request r;
        MPI_Status s;
        recv_token(0, 1);
        EXPECT(load64(cells()) == number - 1, "cell %ld", (long)load64(cells()));
        for (int tag = 99; tag >= 0; tag--) {
            MPI(MPIX_Notify_init(w.win, tag % 2 ? 0 : MPI_ANY_SOURCE, tag, number / 100, &r));
            MPI(MPI_Start(&r));
            int flag;
            MPI(MPI_Test(&r, &flag, &s));
            REQUIRE(flag);
            expect_status(&s, 0, tag, "overload");
            MPI(MPI_Request_free(&r));
        }
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    expect_none("overload");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    /*
     * Without flushes: notifications beyond the target's room are recorded, and leave while it
     * waits for a message [NA-5].
     */
    if (me == 0) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, w.win));
        for (int i = 0; i < 50000; i++)
            MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, 1, 0, 0, MPI_BYTE, i, w.win));
        MPI(MPI_Win_unlock(1, w.win));
        send_token(1, 2);
    } else if (me == 1) {
        recv_token(0, 2);
        for (int i = 0; i < 50000; i++)
            take(0, MPI_ANY_TAG, 0, i, "recorded");
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void wrong(void)
{
    int64_t value = 5;
    int flag;
    MPI_Request r = MPI_REQUEST_NULL;
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Win_lock_all(0, w.win));
    REFUSED(MPI_ERR_TAG, MPIX_Put_tagged(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, -1, w.win));
    REFUSED(MPI_ERR_TAG,
            MPIX_Put_tagged(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_ANY_TAG, w.win));
    REFUSED(MPI_ERR_TAG, MPIX_Get_tagged(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, -5, w.win));
    REFUSED(MPI_ERR_RANK,
            MPIX_Put_tagged(&value, 1, MPI_INT64_T, ranks, 0, 1, MPI_INT64_T, 0, w.win));
    REFUSED(MPI_ERR_RMA_RANGE,
            MPIX_Put_tagged(&value, 1, MPI_INT64_T, 0, CELLS, 1, MPI_INT64_T, 0, w.win));
    REFUSED(MPI_ERR_ARG,
            MPIX_Rput_tagged(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, 0, w.win, NULL));
    MPI(MPI_Win_unlock_all(w.win));
    REFUSED(MPI_ERR_RMA_SYNC,
            MPIX_Put_tagged(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, 0, w.win));
    REFUSED(MPI_ERR_RANK, MPIX_Notify_init(w.win, ranks, 0, 1, &r));
    REFUSED(MPI_ERR_RANK, MPIX_Notify_init(w.win, -77, 0, 1, &r));
    REFUSED(MPI_ERR_TAG, MPIX_Notify_init(w.win, 0, -77, 1, &r));
    REFUSED(MPI_ERR_COUNT, MPIX_Notify_init(w.win, 0, 0, 0, &r));
    REFUSED(MPI_ERR_COUNT, MPIX_Notify_init(w.win, 0, 0, -1, &r));
    REFUSED(MPI_ERR_ARG, MPIX_Notify_init(w.win, 0, 0, 1, NULL));
    REFUSED(MPI_ERR_ARG, MPIX_Notify_iprobe(w.win, 0, 0, NULL, MPI_STATUS_IGNORE));
    REFUSED(MPI_ERR_RANK, MPIX_Notify_probe(w.win, ranks, 0, MPI_STATUS_IGNORE));
    REFUSED(MPI_ERR_WIN, MPIX_Notify_init(MPI_WIN_NULL, 0, 0, 1, &r));
    EXPECT(r == MPI_REQUEST_NULL, "an invalid call made a request");
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    EXPECT(load64(cells()) == 0, "an invalid call moved data");
    expect_none("wrong");

    /* A request appears twice: no request of the list is started. */
    MPI_Request two[2];
    MPI(MPIX_Notify_init(w.win, me, 1, 1, &two[0]));
    MPI(MPIX_Notify_init(w.win, me, 2, 1, &two[1]));
    MPI(MPI_Start(&two[1]));
    REFUSED(MPI_ERR_REQUEST, MPI_Start(&two[1]));
    REFUSED(MPI_ERR_REQUEST, MPI_Startall(2, two));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, me, 0, 0, MPI_BYTE, 1, w.win));
    MPI(MPI_Win_unlock(me, w.win));
    MPI(MPIX_Notify_iprobe(w.win, me, 1, &flag, MPI_STATUS_IGNORE));
    EXPECT(flag, "a failed MPI_Startall started a request");
    MPI(MPI_Start(&two[0]));
    MPI(MPI_Wait(&two[0], MPI_STATUS_IGNORE));

    /* MPI_Win_free with an active request fails in all processes. */
    MPI_Win copy = w.win;
    if (me != 0) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
        MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, me, 0, 0, MPI_BYTE, 2, w.win));
        MPI(MPI_Win_unlock(me, w.win));
        MPI(MPI_Wait(&two[1], MPI_STATUS_IGNORE));
    }
    REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_free(&copy));
    EXPECT(copy == w.win, "the window was freed");
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, me, 0, 0, MPI_BYTE, 2, w.win));
    MPI(MPI_Win_unlock(me, w.win));
    /* A complete request and an inactive one outlive their window; unmatched notifications go with
     * it. */
    window_free(&w);
    MPI_Status s;
    MPI(MPI_Wait(&two[1], &s));
    expect_status(&s, me == 0 ? me : MPI_ANY_SOURCE, me == 0 ? 2 : MPI_ANY_TAG, "after the window");
    REFUSED(MPI_ERR_REQUEST, MPI_Start(&two[0]));
    REFUSED(MPI_ERR_REQUEST, MPI_Start(&two[1]));
    MPI(MPI_Request_free(&two[0]));
    MPI(MPI_Request_free(&two[1]));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"epochs", epochs}, {"calls", calls}, {"match", match},       {"lists", lists},
               {"many", many},     {"wrong", wrong}, {"overload", overload}};
    test_begin(&argc, &argv);
    REQUIRE(argc == 2);
    int ran = 0;
    for (unsigned c = 0; c < sizeof all / sizeof all[0]; c++)
        for (int kind = 0; kind < KINDS && !strcmp(argv[1], all[c].name); kind++, ran++) {
            open_cells(kind);
            all[c].run();
            if (w.win != MPI_WIN_NULL)
                window_free(&w);
        }
    REQUIRE(ran == KINDS);
    return test_end();
}
