/*
 * Continuations [CO-1, CO-2, CO-3]: each kind of request of this library and of the host, alone and
 * mixed; what each flag and a continuation request's state decide; errors, and invalid calls.
 *
 *   continuations CASE    CASE: kinds | mixed | state | calls | chain | blocked | failed | wrong
 *   continuations many N  N continuations pending at once
 */
#include "continuations.h"

static int64_t value, *word;

static void expect_empty(const MPI_Status *s, const char *what)
{
    int count = -1;
    MPI(MPI_Get_count(s, MPI_BYTE, &count));
    EXPECT(s->MPI_SOURCE == MPI_ANY_SOURCE && s->MPI_TAG == MPI_ANY_TAG && !count &&
               s->MPI_ERROR == MPI_SUCCESS,
           "%s: status has source %d, tag %d, count %d, error %d", what, s->MPI_SOURCE, s->MPI_TAG,
           count, s->MPI_ERROR);
}

enum kind { IFENCE, ICOMPLETE, IWAIT, IUNLOCK, IFLUSH, RPUT, COUNTER, KINDS_OF_REQUEST };
static const char *const kind_of_request[] = {"ifence",  "icomplete", "iwait",    "iunlock",
                                              "iflush", "Rput",      "ithreshold"};

/* Makes a request of this library that is pending in process 0 until process 1 has got a message
 * (with one process: complete). */
static MPI_Request make(enum kind kind)
{
    MPI_Request r = MPI_REQUEST_NULL, opening;
    int peer = ranks - 1;
    MPI_Group group = group_one(peer);
    value++;
    switch (kind) {
    case IFENCE:
        MPI(MPI_Win_fence(0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, peer, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, &r));
        break;
    case ICOMPLETE:
        if (ranks == 1)
            MPI(MPI_Win_post(group, 0, w.win));
        MPI(MPI_Win_start(group, 0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, peer, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_icomplete(w.win, &r));
        if (ranks == 1)
            MPI(MPI_Win_wait(w.win));
        break;
    case IWAIT:
        MPI(MPI_Win_post(group, 0, w.win));
        if (ranks == 1) {
            MPI(MPI_Win_start(group, 0, w.win));
            MPI(MPI_Win_complete(w.win));
        }
        MPI(MPIX_Win_iwait(w.win, &r));
        break;
    case IUNLOCK:
    case IFLUSH:
    case RPUT:
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, peer, 0, w.win, &opening));
        MPI(MPI_Wait(&opening, MPI_STATUS_IGNORE));
        if (kind == RPUT)
            MPI(MPI_Rput(&value, 1, MPI_INT64_T, peer, 0, 1, MPI_INT64_T, w.win, &r));
        else
            MPI(MPI_Put(&value, 1, MPI_INT64_T, peer, 0, 1, MPI_INT64_T, w.win));
        if (kind == IFLUSH)
            MPI(MPIX_Win_iflush(peer, w.win, &r));
        if (kind == IUNLOCK)
            MPI(MPIX_Win_iunlock(peer, w.win, &r));
        break;
    case COUNTER:
        if (ranks == 1) {
            MPI(MPI_Win_lock_all(0, w.win));
            MPI(MPIX_Put_notify(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, 0, w.win));
            MPI(MPI_Win_unlock_all(w.win));
        }
        MPI(MPIX_Win_notify_ithreshold(w.win, 0, 1, &r));
        break;
    default: REQUIRE(0);
    }
    MPI(MPI_Group_free(&group));
    return r;
}

/* Process 0, when the continuation of `make` has run. */
static void settle(enum kind kind)
{
    MPI_Count found = 0;
    if (kind == IFLUSH || kind == RPUT)
        MPI(MPI_Win_unlock(ranks - 1, w.win));
    if (kind == COUNTER) {
        MPI(MPIX_Win_reset_notify_value(w.win, 0, &found));
        EXPECT(found == 1, "the counter is %lld, not 1", (long long)found);
    }
}

/* Process 1: holds the request of process 0 up until it gets a message, then serves it. */
static void serve(enum kind kind)
{
    MPI_Group zero = group_one(0);
    int locks = kind == IUNLOCK || kind == IFLUSH || kind == RPUT;
    if (kind == IFENCE)
        MPI(MPI_Win_fence(0, w.win));
    if (locks)
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win));
    send_token(0, 1);
    recv_token(0, 2);
    switch (kind) {
    case IFENCE: MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win)); break;
    case ICOMPLETE:
        MPI(MPI_Win_post(zero, 0, w.win));
        MPI(MPI_Win_wait(w.win));
        break;
    case IWAIT:
        MPI(MPI_Win_start(zero, 0, w.win));
        MPI(MPI_Win_complete(w.win));
        break;
    case COUNTER:
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
        MPI(MPIX_Put_notify(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, 0, w.win));
        MPI(MPI_Win_unlock(0, w.win));
        break;
    default: MPI(MPI_Win_unlock(1, w.win));
    }
    MPI(MPI_Group_free(&zero));
}

/* A request of each kind, kept and freed, with and without a status. */
static void kinds(void)
{
    for (int kind = 0; kind < KINDS_OF_REQUEST; kind++)
        for (int flags = 0; flags <= MPIX_CONT_REQUESTS_FREE; flags += MPIX_CONT_REQUESTS_FREE) {
            const char *name = kind_of_request[kind];
            if (me == 1)
                serve(kind);
            if (me == 0) {
                MPI_Status status = {0};
                MPI_Request all = started(0, 0), r;
                Seen seen = {0};
                /* The process that is to delay the request has begun to. */
                if (ranks > 1 && kind == IFENCE) {
                    r = make(kind);
                    recv_token(1, 1);
                } else {
                    if (ranks > 1)
                        recv_token(1, 1);
                    r = make(kind);
                }
                seen.request = &r;
                MPI(MPIX_Continue(&r, note, &seen, flags, &status, all));
                if (flags)
                    EXPECT(r == MPI_REQUEST_NULL, "%s: the request is not freed", name);
                if (ranks > 1) {
                    int flag = 1;
                    MPI(MPI_Test(&all, &flag, MPI_STATUS_IGNORE));
                    EXPECT(!flag && !seen.ran, "%s: complete too early", name);
                    send_token(1, 2);
                }
                end_all(&all);
                expect_ran(&seen, 1, name);
                if (ranks > 1) /* otherwise it is that of a send to MPI_PROC_NULL */
                    expect_empty(&status, name);
                EXPECT(r == MPI_REQUEST_NULL, "%s: the request is not MPI_REQUEST_NULL", name);
                settle(kind);
            }
            MPI(MPI_Barrier(MPI_COMM_WORLD));
        }
}

/* One continuation of requests of this library, messages and a collective; and in one list of
 * waits: a continuation request, a receive and a request of this library. */
static void mixed(void)
{
    enum { MANY = 40 };
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    static int in[MANY], out[MANY];
    for (int round = 0; round < 50; round++) {
        MPI_Request all = started(0, 0), r[MANY + 3];
        MPI_Status s[MANY + 3];
        Seen seen = {0};
        int n = 0;
        MPI(MPI_Win_fence(0, w.win));
        for (int i = 0; i < MANY / 2; i++) {
            out[i] = 1000 * round + i;
            MPI(MPI_Irecv(in + i, 1, MPI_INT, left, i, MPI_COMM_WORLD, r + n++));
            MPI(MPI_Isend(out + i, 1, MPI_INT, right, i, MPI_COMM_WORLD, r + n++));
        }
        value = 7000 + round;
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, r + n++));
        MPI(MPI_Ibarrier(MPI_COMM_WORLD, r + n++));
        MPI(MPIX_Continueall(n, r, note, &seen, 0, s, all));
        MPI(MPI_Wait(&all, MPI_STATUS_IGNORE));
        expect_ran(&seen, 1, "mixed");
        for (int i = 0; i < n; i++)
            EXPECT(r[i] == MPI_REQUEST_NULL && s[i].MPI_ERROR == MPI_SUCCESS,
                   "mixed: request %d is left, or has an error", i);
        for (int i = 0; i < MANY / 2; i++)
            EXPECT(in[i] == 1000 * round + i && s[2 * i].MPI_SOURCE == left &&
                       s[2 * i].MPI_TAG == i,
                   "mixed: message %d is %d, with source %d and tag %d", i, in[i],
                   s[2 * i].MPI_SOURCE, s[2 * i].MPI_TAG);
        EXPECT(*word == 7000 + round, "mixed: the put has written %lld", (long long)*word);
        MPI(MPI_Start(&all));
        MPI(MPI_Irecv(in, 1, MPI_INT, left, 0, MPI_COMM_WORLD, r));
        MPI(MPI_Irecv(in + 1, 1, MPI_INT, left, 1, MPI_COMM_WORLD, r + 2));
        MPI(MPIX_Continue(r, note, &seen, 0, MPI_STATUS_IGNORE, all));
        MPI(MPIX_Win_ifence(0, w.win, r + 3));
        r[1] = all;
        MPI(MPI_Send(out, 1, MPI_INT, right, 0, MPI_COMM_WORLD));
        MPI(MPI_Send(out, 1, MPI_INT, right, 1, MPI_COMM_WORLD));
        MPI(MPI_Waitall(3, r + 1, s));
        expect_ran(&seen, 2, "a continuation request in a list");
        MPI(MPI_Request_free(&all));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, r));
        MPI(MPI_Wait(r, MPI_STATUS_IGNORE));
    }
}

static MPI_Request complete_request(void)
{
    MPI_Request r;
    MPI(MPI_Isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &r));
    return r;
}

static void add(MPI_Request all, Seen *seen, int flags)
{
    MPI_Request r = complete_request();
    MPI(MPIX_Continue(&r, note, seen, flags, MPI_STATUS_IGNORE, all));
    EXPECT(r == MPI_REQUEST_NULL, "a complete request is not MPI_REQUEST_NULL");
}

static int test(MPI_Request *all)
{
    int flag = -1;
    MPI(MPI_Test(all, &flag, MPI_STATUS_IGNORE));
    return flag;
}

/* What the state and the properties of a continuation request decide. */
static void state(void)
{
    MPI_Request all;
    Seen seen = {0}, none = {0};
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPIX_Continue_init(0, 0, MPI_INFO_NULL, &all));
    add(all, &seen, 0);
    MPI(MPI_Barrier(MPI_COMM_SELF));
    expect_ran(&seen, 0, "inactive");
    EXPECT(test(&all), "an inactive request is not complete");
    MPI(MPI_Start(&all));
    EXPECT(test(&all) && seen.ran == 1, "started: the callback ran %d times", seen.ran);
    MPI(MPI_Start(&all));
    EXPECT(test(&all), "without continuations, a request is not complete");
    MPI(MPI_Start(&all));
    REFUSED(MPI_ERR_REQUEST, MPI_Start(&all));
    add(all, &seen, 0);
    expect_ran(&seen, 2, "complete at once");
    add(all, &seen, MPIX_CONT_DEFER_COMPLETE);
    expect_ran(&seen, 2, "deferred");
    MPI(MPIX_Continueall(0, NULL, note, &seen, 0, MPI_STATUSES_IGNORE, all));
    MPI(MPI_Wait(&all, MPI_STATUS_IGNORE));
    expect_ran(&seen, 4, "no requests");
    MPI(MPI_Request_free(&all));

    all = started(MPIX_CONT_POLL_ONLY, 3);
    for (int i = 0; i < 8; i++)
        add(all, &none, 0);
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    expect_ran(&none, 0, "poll-only");
    for (int ran = 3; ran < 9; ran += 3) {
        int flag = test(&all);
        EXPECT(!flag && none.ran == ran, "a test ran %d callbacks in total, not %d", none.ran, ran);
    }
    EXPECT(test(&all), "the third test completes the request");
    expect_ran(&none, 8, "max_poll");
    MPI(MPI_Request_free(&all));

    /* Freed while pending: the callbacks run nevertheless. */
    for (int active = 0; active < 2; active++) {
        MPI_Request r;
        Seen late = {0};
        MPI(MPIX_Continue_init(MPIX_CONT_POLL_ONLY, 0, MPI_INFO_NULL, &all));
        if (active)
            MPI(MPI_Start(&all));
        MPI(MPI_Irecv(NULL, 0, MPI_BYTE, me, 5, MPI_COMM_WORLD, &r));
        MPI(MPIX_Continue(&r, note, &late, 0, MPI_STATUS_IGNORE, all));
        MPI(MPI_Request_free(&all));
        send_token(me, 5);
        while (!__atomic_load_n(&late.ran, __ATOMIC_RELAXED)) {
            int flag;
            MPI(MPI_Iprobe(me, 6, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
            MPI_Request other = complete_request();
            MPI(MPI_Test(&other, &flag, MPI_STATUS_IGNORE));
        }
        expect_ran(&late, 1, "freed while pending");
    }
}

/* A callback that opens and closes an epoch, and makes the next continuation. */
static MPI_Request chain_request;
static int links, ends;

static int next_link(int error, void *data)
{
    MPI_Request r;
    int target = (me + links) % ranks;
    (void)data;
    EXPECT(error == MPI_SUCCESS, "a link of the chain got error %d", error);
    if (++links > ends)
        return MPI_SUCCESS;
    MPI(MPIX_Win_ilock(MPI_LOCK_SHARED, target, 0, w.win, &r));
    MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
    static const int64_t one = 1;
    MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, w.win));
    MPI(MPIX_Win_iunlock(target, w.win, &r));
    MPI(MPIX_Continue(&r, next_link, NULL, MPIX_CONT_REQUESTS_FREE, MPI_STATUS_IGNORE,
                      chain_request));
    return MPI_SUCCESS;
}

static void chain(void)
{
    *word = 0;
    ends = 5000 / ranks * ranks;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    chain_request = started(0, 0);
    MPI(MPIX_Continueall(0, NULL, next_link, NULL, 0, MPI_STATUSES_IGNORE, chain_request));
    end_all(&chain_request);
    EXPECT(links == ends + 1, "the chain has %d links, not %d", links, ends + 1);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    EXPECT(*word == ends, "the chains have added %lld, not %d", (long long)*word, ends);
    MPI(MPI_Win_unlock(me, w.win));
}

/* Callbacks run in calls that only make progress, of each kind. */
static void calls(void)
{
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    for (int call = 0; call < 5; call++) {
        MPI_Request all = started(0, 0), r, other;
        Seen seen = {0};
        int flag;
        MPI(MPI_Irecv(NULL, 0, MPI_BYTE, left, 1, MPI_COMM_WORLD, &r));
        MPI(MPIX_Continue(&r, note, &seen, 0, MPI_STATUS_IGNORE, all));
        MPI(MPI_Send(NULL, 0, MPI_BYTE, right, 1, MPI_COMM_WORLD));
        while (!seen.ran)
            switch (call) {
            case 0: /* a call on a window */
                MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
                MPI(MPI_Win_unlock(me, w.win));
                break;
            case 1: /* a test of another request */
                other = complete_request();
                MPI(MPI_Test(&other, &flag, MPI_STATUS_IGNORE));
                break;
            case 2: /* a wait */
                other = complete_request();
                MPI(MPI_Waitall(1, &other, MPI_STATUSES_IGNORE));
                break;
            case 3: MPI(MPI_Test(&all, &flag, MPI_STATUS_IGNORE)); break;
            default: MPI(MPI_Testall(1, &all, &flag, MPI_STATUSES_IGNORE));
            }
        end_all(&all);
        expect_ran(&seen, 1, "calls");
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
}

/* Process 0 blocks in a call that its own callback enables: the callback answers process 1. */
static int answer(int error, void *data)
{
    (void)data;
    EXPECT(error == MPI_SUCCESS, "answer: error %d", error);
    send_token(1, 3);
    return MPI_SUCCESS;
}

static void blocked(void)
{
    if (ranks < 2)
        return;
    for (int call = 0; call < 4; call++) {
        MPI_Request all, r, epoch = MPI_REQUEST_NULL;
        int there = 1;
        if (me == 0) {
            all = started(0, 0);
            MPI(MPI_Irecv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &r));
            MPI(MPIX_Continue(&r, answer, NULL, 0, MPI_STATUS_IGNORE, all));
        }
        if (call == 3)
            MPI(MPI_Win_fence(0, w.win));
        if (me == 1) {
            send_token(0, 2);
            recv_token(0, 3);
            send_token(0, 4);
        }
        if (me == 0) {
            switch (call) {
            case 0: recv_token(1, 4); break;
            case 1:
                MPI(MPI_Irecv(NULL, 0, MPI_BYTE, 1, 4, MPI_COMM_WORLD, &r));
                MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
                break;
            case 2:
                MPI(MPI_Probe(1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                recv_token(1, 4);
                break;
            default: there = 0;
            }
        }
        /* In a fence: process 1 enters it after the answer. */
        if (call == 3) {
            MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, &epoch));
            MPI(MPI_Wait(&epoch, MPI_STATUS_IGNORE));
        }
        if (me == 0) {
            if (!there)
                recv_token(1, 4);
            end_all(&all);
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
}

/* A receive of a message that is too long for it. */
static MPI_Request too_long(void)
{
    static int in[4], out[4];
    MPI_Request r;
    MPI(MPI_Irecv(in, 1, MPI_INT, 0, 9, MPI_COMM_SELF, &r));
    MPI(MPI_Send(out, 4, MPI_INT, 0, 9, MPI_COMM_SELF));
    return r;
}

/* Whether the host reports that. */
static int truncates(void)
{
    MPI_Request r = too_long();
    return class_of(MPI_Wait(&r, MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE;
}

/* A get from memory that its target has not attached; MPI_REQUEST_NULL if the call itself fails. */
static MPI_Win dynamic;

static MPI_Request unattached(void)
{
    static int64_t in;
    MPI_Request r = MPI_REQUEST_NULL;
    int code = MPI_Rget(&in, 1, MPI_INT64_T, (me + 1) % ranks, (MPI_Aint)&in, 1, MPI_INT64_T,
                        dynamic, &r);
    EXPECT(code == MPI_SUCCESS || class_of(code) == MPI_ERR_RMA_RANGE, "Rget: class %d",
           class_of(code));
    return code == MPI_SUCCESS ? r : MPI_REQUEST_NULL;
}

/* A continuation of a request that fails. */
static void fail(MPI_Request *all, MPI_Request r, int class, int flags)
{
    Seen bad = {0};
    void *data[2] = {0};
    int count = 2;
    MPI_Status s = {0};
    MPI(MPI_Start(all));
    MPI(MPIX_Continue(&r, note, &bad, flags, &s, *all));
    if (flags) {
        MPI(MPI_Wait(all, MPI_STATUS_IGNORE));
        EXPECT(bad.ran == 1 && class_of(bad.error) == class, "the callback ran %d times, class %d",
               bad.ran, class_of(bad.error));
    } else {
        REFUSED(class, MPI_Wait(all, MPI_STATUS_IGNORE));
        expect_ran(&bad, 0, "a failed request");
        MPI(MPIX_Continue_get_failed(*all, &count, data));
        EXPECT(count == 1 && data[0] == &bad, "%d continuations have failed, not 1", count);
    }
    EXPECT(class_of(s.MPI_ERROR) == class, "the status has class %d", class_of(s.MPI_ERROR));
    EXPECT(r == MPI_REQUEST_NULL, "a failed request is not MPI_REQUEST_NULL");
}

/* Failed requests and callbacks. */
static void failed(void)
{
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));
    MPI(MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN));
    MPI(MPI_Win_lock_all(0, dynamic));
    MPI_Request all = started(0, 0), r;
    Seen fails = {.answer = MPI_ERR_OTHER}, good = {0};
    void *data[4] = {0};
    int count = 4;
    add(all, &fails, 0);
    add(all, &good, 0);
    expect_ran(&good, 1, "after one that failed");
    REFUSED(MPI_ERR_OTHER, MPI_Wait(&all, MPI_STATUS_IGNORE));
    MPI(MPIX_Continue_get_failed(all, &count, data));
    EXPECT(count == 1 && data[0] == &fails, "%d continuations have failed, not 1", count);
    count = 4;
    MPI(MPIX_Continue_get_failed(all, &count, data));
    EXPECT(count == 0, "%d continuations have failed, not 0", count);

    for (int flags = 0; flags <= MPIX_CONT_INVOKE_FAILED; flags += MPIX_CONT_INVOKE_FAILED) {
        if (truncates())
            fail(&all, too_long(), MPI_ERR_TRUNCATE, flags);
        r = unattached();
        if (r != MPI_REQUEST_NULL)
            fail(&all, r, MPI_ERR_RMA_RANGE, flags);
    }
    MPI(MPI_Win_unlock_all(dynamic));
    MPI(MPI_Win_free(&dynamic));
    MPI(MPI_Request_free(&all));
}

static int wait_for_itself(int error, void *data)
{
    MPI_Request *r = data;
    (void)error;
    int flag = 1;
    MPI(MPI_Test(r, &flag, MPI_STATUS_IGNORE));
    EXPECT(!flag, "a continuation request is complete inside its callback");
    return MPI_SUCCESS;
}

static void wrong(void)
{
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_Request all = MPI_REQUEST_NULL, other, r, twice, null = MPI_REQUEST_NULL, notified;
    MPI_Info info;
    Seen seen = {0};
    void *data[1];
    int count = 1, less = -1;
    REFUSED(MPI_ERR_ARG, MPIX_Continue_init(0, 0, MPI_INFO_NULL, NULL));
    REFUSED(MPI_ERR_ARG, MPIX_Continue_init(1, 0, MPI_INFO_NULL, &all));
    REFUSED(MPI_ERR_ARG, MPIX_Continue_init(0, -1, MPI_INFO_NULL, &all));
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, "mpi_continue_thread", "some"));
    REFUSED(MPI_ERR_INFO_VALUE, MPIX_Continue_init(0, 0, info, &all));
    EXPECT(all == MPI_REQUEST_NULL, "a failed call made a request");
    MPI(MPI_Info_set(info, "mpi_continue_thread", "application"));
    MPI(MPIX_Continue_init(0, 0, info, &all));
    MPI(MPI_Info_free(&info));
    MPI(MPI_Start(&all));

    r = complete_request();
    REFUSED(MPI_ERR_ARG, MPIX_Continue(&r, NULL, &seen, 0, MPI_STATUS_IGNORE, all));
    REFUSED(MPI_ERR_ARG, MPIX_Continue(&r, note, &seen, 1, MPI_STATUS_IGNORE, all));
    REFUSED(MPI_ERR_REQUEST, MPIX_Continue(NULL, note, &seen, 0, MPI_STATUS_IGNORE, all));
    REFUSED(MPI_ERR_REQUEST, MPIX_Continue(&null, note, &seen, 0, MPI_STATUS_IGNORE, all));
    REFUSED(MPI_ERR_REQUEST, MPIX_Continue(&r, note, &seen, 0, MPI_STATUS_IGNORE, r));
    REFUSED(MPI_ERR_REQUEST,
            MPIX_Continue(&r, note, &seen, 0, MPI_STATUS_IGNORE, MPI_REQUEST_NULL));
    REFUSED(MPI_ERR_REQUEST, MPIX_Continue(&all, note, &seen, 0, MPI_STATUS_IGNORE, all));
    REFUSED(MPI_ERR_COUNT,
            MPIX_Continueall(-1, &r, note, &seen, 0, MPI_STATUSES_IGNORE, all));
    REFUSED(MPI_ERR_COUNT,
            MPIX_Continueall(1, NULL, note, &seen, 0, MPI_STATUSES_IGNORE, all));
    MPI(MPIX_Notify_init(w.win, MPI_ANY_SOURCE, MPI_ANY_TAG, 1, &notified));
    REFUSED(MPI_ERR_REQUEST, MPIX_Continue(&notified, note, &seen, 0, MPI_STATUS_IGNORE, all));
    MPI(MPI_Request_free(&notified));
    EXPECT(r != MPI_REQUEST_NULL && !seen.ran, "a call that failed has changed something");

    /* Persistent requests of the host. */
    MPI(MPI_Send_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &other));
    REFUSED(MPI_ERR_REQUEST, MPIX_Continue(&other, note, &seen, 0, MPI_STATUS_IGNORE, all));
    MPI(MPI_Start(&other));
    REFUSED(MPI_ERR_REQUEST, MPIX_Continue(&other, note, &seen, 0, MPI_STATUS_IGNORE, all));
    MPI(MPI_Wait(&other, MPI_STATUS_IGNORE));
    MPI(MPI_Request_free(&other));

    /* The same request twice. */
    MPI(MPIX_Win_notify_ithreshold(w.win, 0, 1, &twice));
    other = twice;
    MPI(MPIX_Continue(&twice, note, &seen, 0, MPI_STATUS_IGNORE, all));
    REFUSED(MPI_ERR_REQUEST, MPIX_Continue(&other, note, &seen, 0, MPI_STATUS_IGNORE, all));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    MPI(MPIX_Put_notify(&value, 1, MPI_INT64_T, me, 0, 1, MPI_INT64_T, 0, w.win));
    MPI(MPI_Win_unlock(me, w.win));
    MPI(MPI_Wait(&all, MPI_STATUS_IGNORE));
    expect_ran(&seen, 1, "wrong");

    MPI(MPI_Start(&all));
    MPI(MPIX_Continue(&r, wait_for_itself, &all, 0, MPI_STATUS_IGNORE, all));
    REFUSED(MPI_ERR_REQUEST, MPIX_Continue_get_failed(MPI_REQUEST_NULL, &count, data));
    REFUSED(MPI_ERR_ARG, MPIX_Continue_get_failed(all, NULL, data));
    REFUSED(MPI_ERR_ARG, MPIX_Continue_get_failed(all, &count, NULL));
    REFUSED(MPI_ERR_COUNT, MPIX_Continue_get_failed(all, &less, data));
    EXPECT(count == 1, "a call that failed has set count to %d", count);
    end_all(&all);
}

/* Many continuations at once, of this library's requests and of the host's. */
static void many(int number)
{
    MPI_Request all = started(0, 0), *r = malloc((size_t)number * sizeof *r);
    Seen seen = {0};
    REQUIRE(r != NULL);
    for (int i = 0; i < number; i++) {
        if (i % 2)
            MPI(MPI_Irecv(NULL, 0, MPI_BYTE, me, 7, MPI_COMM_WORLD, r + i));
        else
            MPI(MPIX_Win_notify_ithreshold(w.win, 0, i / 2 + 1, r + i));
        MPI(MPIX_Continue(r + i, note, &seen, 0, MPI_STATUS_IGNORE, all));
    }
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    for (int i = 0; i < number; i++) {
        if (i % 2)
            send_token(me, 7);
        else
            MPI(MPIX_Put_notify(&value, 1, MPI_INT64_T, me, 0, 1, MPI_INT64_T, 0, w.win));
    }
    MPI(MPI_Win_unlock(me, w.win));
    end_all(&all);
    expect_ran(&seen, number, "many");
    free(r);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    test_begin(&argc, &argv);
    w = window(ALLOCATED, 8, 1);
    word = w.base;
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, 1));
    if (!strcmp(what, "kinds"))
        kinds();
    else if (!strcmp(what, "mixed"))
        mixed();
    else if (!strcmp(what, "state"))
        state();
    else if (!strcmp(what, "calls"))
        calls();
    else if (!strcmp(what, "chain"))
        chain();
    else if (!strcmp(what, "blocked"))
        blocked();
    else if (!strcmp(what, "failed"))
        failed();
    else if (!strcmp(what, "wrong"))
        wrong();
    else if (!strcmp(what, "many") && argc > 2)
        many(atoi(argv[2]));
    else
        REQUIRE(!"a case");
    window_free(&w);
    return test_end();
}
