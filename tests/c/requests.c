/*
 * Requests [RQ-1]: each closing and flush request, in every completion call, alone and in one array
 * with a 16 MB send and receive of the host; freed while pending and when complete [RQ-2];
 * cancelled. Process 0 makes the request; process 1 delays it until it gets a message. Reused
 * requests neither complete early nor twice.
 *
 *   requests [BYTES]    size of the host's messages
 */
#include "check.h"

enum what {
    ICOMPLETE, IWAIT, IFENCE, IUNLOCK, IUNLOCK_ALL, IFLUSH, IFLUSH_ALL, IFLUSH_LOCAL,
    IFLUSH_LOCAL_ALL, RPUT, RGET, WHATS
};
static const char *const what_name[] = {
    "icomplete", "iwait", "ifence", "iunlock", "iunlock_all", "iflush", "iflush_all",
    "iflush_local", "iflush_local_all", "Rput", "Rget"};
enum how { WAIT, TEST, WAITALL, WAITANY, WAITSOME, TESTALL, TESTANY, TESTSOME, GET_STATUS, HOWS };
static const char *const how_name[] = {"Wait",    "Test",     "Waitall",
                                       "Waitany", "Waitsome", "Testall",
                                       "Testany", "Testsome", "Request_get_status"};

static int big = 16 << 20;
static char *out, *in;
static MPI_Group zero, one;
static Window w;
static int64_t value, result;

static int uses_lock(enum what what) { return what >= IUNLOCK; }

/* Process 1, before process 0 makes the request. */
static void delay_request(enum what what)
{
    if (uses_lock(what))
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win));
    if (what == IFENCE)
        MPI(MPI_Win_fence(0, w.win));
    send_token(0, 1);
}

/* Process 0. */
static void make(enum what what, MPI_Request *r)
{
    MPI_Request opening;
    if (what == IFENCE)
        MPI(MPI_Win_fence(0, w.win));
    recv_token(1, 1);
    value++;
    switch (what) {
    case ICOMPLETE:
        MPI(MPI_Win_start(one, 0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_icomplete(w.win, r));
        return;
    case IWAIT:
        MPI(MPI_Win_post(one, 0, w.win));
        MPI(MPIX_Win_iwait(w.win, r));
        return;
    case IFENCE:
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, r));
        return;
    default:
        break;
    }
    if (what == IUNLOCK_ALL || what == IFLUSH_ALL || what == IFLUSH_LOCAL_ALL)
        MPI(MPIX_Win_ilock_all(0, w.win, &opening));
    else
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win, &opening));
    expect_complete(&opening, "ilock");
    if (what == RPUT)
        MPI(MPI_Rput(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win, r));
    else
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win));
    switch (what) {
    case IUNLOCK: MPI(MPIX_Win_iunlock(1, w.win, r)); break;
    case IUNLOCK_ALL: MPI(MPIX_Win_iunlock_all(w.win, r)); break;
    case IFLUSH: MPI(MPIX_Win_iflush(1, w.win, r)); break;
    case IFLUSH_ALL: MPI(MPIX_Win_iflush_all(w.win, r)); break;
    case IFLUSH_LOCAL: MPI(MPIX_Win_iflush_local(1, w.win, r)); break;
    case IFLUSH_LOCAL_ALL: MPI(MPIX_Win_iflush_local_all(w.win, r)); break;
    case RGET: MPI(MPI_Rget(&result, 1, MPI_INT64_T, 1, 1, 1, MPI_INT64_T, w.win, r)); break;
    default: break;
    }
}

/* Process 0, when the request is complete or freed. */
static void clean_up(enum what what)
{
    if (what == IFLUSH_ALL || what == IFLUSH_LOCAL_ALL)
        MPI(MPI_Win_unlock_all(w.win));
    else if (what >= IFLUSH)
        MPI(MPI_Win_unlock(1, w.win));
}

/* Process 1, after process 0's message. */
static void let_request_complete(enum what what)
{
    int64_t mine = 7;
    if (uses_lock(what)) {
        store64((int64_t *)w.base + 1, 4711);
        MPI(MPI_Win_unlock(1, w.win));
    } else if (what == IFENCE)
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    else if (what == ICOMPLETE) {
        MPI(MPI_Win_post(zero, 0, w.win));
        MPI(MPI_Win_wait(w.win));
    } else {
        MPI(MPI_Win_start(zero, 0, w.win));
        MPI(MPI_Put(&mine, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, w.win));
        MPI(MPI_Win_complete(w.win));
    }
}

/* Completes all of r by the given call. Checks the statuses in st[], in the order of r. */
static void complete(enum how how, int n, MPI_Request *r, MPI_Status *st)
{
    int left = 0, flag, index, some, indices[8];
    MPI_Status s[8], one_status;
    for (int i = 0; i < n; i++)
        left += r[i] != MPI_REQUEST_NULL;
    switch (how) {
    case WAIT:
        for (int i = 0; i < n; i++)
            MPI(MPI_Wait(&r[i], &st[i]));
        break;
    case TEST:
        while (left)
            for (int i = 0; i < n; i++)
                if (r[i] != MPI_REQUEST_NULL) {
                    MPI(MPI_Test(&r[i], &flag, &one_status));
                    if (flag) {
                        st[i] = one_status;
                        left--;
                    }
                }
        break;
    case WAITALL:
        MPI(MPI_Waitall(n, r, st));
        break;
    case WAITANY:
        while (left--) {
            MPI(MPI_Waitany(n, r, &index, &one_status));
            REQUIRE(index >= 0 && index < n);
            st[index] = one_status;
        }
        MPI(MPI_Waitany(n, r, &index, &one_status));
        EXPECT(index == MPI_UNDEFINED, "Waitany without requests: %d", index);
        break;
    case WAITSOME:
        while (left) {
            MPI(MPI_Waitsome(n, r, &some, indices, s));
            REQUIRE(some > 0 && some <= left);
            for (int k = 0; k < some; k++)
                st[indices[k]] = s[k];
            left -= some;
        }
        MPI(MPI_Waitsome(n, r, &some, indices, s));
        EXPECT(some == MPI_UNDEFINED, "Waitsome without requests: %d", some);
        break;
    case TESTALL:
        do
            MPI(MPI_Testall(n, r, &flag, st));
        while (!flag);
        break;
    case TESTANY:
        while (left) {
            MPI(MPI_Testany(n, r, &index, &flag, &one_status));
            if (flag) {
                REQUIRE(index >= 0 && index < n);
                st[index] = one_status;
                left--;
            }
        }
        MPI(MPI_Testany(n, r, &index, &flag, &one_status));
        EXPECT(flag && index == MPI_UNDEFINED, "Testany without requests: %d %d", flag, index);
        break;
    case TESTSOME:
        while (left) {
            MPI(MPI_Testsome(n, r, &some, indices, s));
            REQUIRE(some >= 0 && some <= left);
            for (int k = 0; k < some; k++)
                st[indices[k]] = s[k];
            left -= some;
        }
        break;
    case GET_STATUS:
        for (int i = 0; i < n; i++)
            if (r[i] != MPI_REQUEST_NULL) {
                do
                    MPI(MPI_Request_get_status(r[i], &flag, &st[i]));
                while (!flag);
                EXPECT(r[i] != MPI_REQUEST_NULL, "Request_get_status frees");
                MPI(MPI_Wait(&r[i], &st[i]));
            }
        break;
    default:
        break;
    }
    for (int i = 0; i < n; i++)
        EXPECT(r[i] == MPI_REQUEST_NULL, "%s does not null request %d", how_name[how], i);
}

static void empty_status(const MPI_Status *s, const char *what, const char *how)
{
    int count = -1, cancelled = -1;
    MPI(MPI_Get_count(s, MPI_BYTE, &count));
    MPI(MPI_Test_cancelled(s, &cancelled));
    EXPECT(count == 0, "%s by %s: count %d", what, how, count);
    EXPECT(cancelled == 0, "%s by %s: cancelled %d", what, how, cancelled);
}

/* mixed: 0 alone; 1 with host requests that complete later; 2 with host requests that complete
 * earlier. */
static void one_case(enum what what, enum how how, int mixed)
{
    if (me == 1) {
        delay_request(what);
        recv_token(0, 2);
        if (mixed != 2)
            let_request_complete(what);
        if (mixed)
            MPI(MPI_Sendrecv(out, big, MPI_BYTE, 0, 3, in, big, MPI_BYTE, 0, 3, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE));
        if (mixed == 2) {
            recv_token(0, 4);
            let_request_complete(what);
        }
        return;
    }
    MPI_Request r[4] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL},
                sign;
    MPI_Status st[4];
    int flag;
    make(what, &r[1]);
    MPI(MPI_Test(&r[1], &flag, MPI_STATUS_IGNORE));
    REQUIRE(!flag); /* process 1 still waits for the message */
    MPI(MPI_Request_get_status(r[1], &flag, MPI_STATUS_IGNORE));
    REQUIRE(!flag);
    if (mixed) {
        MPI(MPI_Irecv(in, big, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &r[0]));
        MPI(MPI_Isend(out, big, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &r[3]));
    }
    MPI(MPI_Isend(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &sign));
    MPI(MPI_Wait(&sign, MPI_STATUS_IGNORE));
    if (mixed == 2)
        send_token(1, 4);
    complete(how, mixed ? 4 : how == WAIT || how == TEST ? 2 : 3, r, st);
    empty_status(&st[1], what_name[what], how_name[how]);
    if (mixed) {
        int count;
        MPI(MPI_Get_count(&st[0], MPI_BYTE, &count));
        EXPECT(count == big && st[0].MPI_SOURCE == 1 && st[0].MPI_TAG == 3,
               "the host's status: count %d source %d tag %d", count, st[0].MPI_SOURCE,
               st[0].MPI_TAG);
        EXPECT(in[0] == 5 && in[big - 1] == 5, "the host's data");
        in[0] = in[big - 1] = 0;
    }
    if (what == IWAIT)
        EXPECT(load64((int64_t *)w.base + 1) == 7, "iwait complete, the put is not there");
    if (what == RGET)
        EXPECT(result == 4711, "Rget complete: %ld", (long)result);
    clean_up(what);
}

/* Freed while pending: the epoch completes all the same, and the next one works. Also freed when
 * complete. */
static void freed(enum what what, int pending)
{
    if (me == 1) {
        delay_request(what);
        recv_token(0, 2);
        let_request_complete(what);
        send_token(0, 5);
        return;
    }
    MPI_Request r;
    make(what, &r);
    if (pending)
        MPI(MPI_Request_free(&r));
    send_token(1, 2);
    if (!pending) {
        int flag;
        do
            MPI(MPI_Request_get_status(r, &flag, MPI_STATUS_IGNORE));
        while (!flag);
        MPI(MPI_Request_free(&r));
    }
    EXPECT(r == MPI_REQUEST_NULL, "MPI_Request_free does not null the handle");
    clean_up(what);
    recv_token(1, 5); /* the epoch advances inside this call */
}

static void cancelled(enum what what)
{
    if (me == 1) {
        delay_request(what);
        recv_token(0, 2);
        let_request_complete(what);
        return;
    }
    MPI_Request r;
    MPI_Status s;
    int flag;
    make(what, &r);
    MPI(MPI_Cancel(&r));
    MPI(MPI_Test(&r, &flag, MPI_STATUS_IGNORE));
    REQUIRE(!flag);
    send_token(1, 2);
    MPI(MPI_Wait(&r, &s));
    empty_status(&s, what_name[what], "Wait after Cancel");
    clean_up(what);
}

/* Process 1 continues only when process 0 has all its locks: MPI does not order grants by request
 * time, so process 1's next lock could overtake one that process 0 still waits for. */
static void done(void)
{
    if (me == 1)
        recv_token(0, 6);
    else
        send_token(1, 6);
}

/* One array with a pending request of each of several windows. */
static void many_windows(enum how how)
{
    enum { MANY = 6 };
    Window windows[MANY];
    MPI_Request r[MANY];
    MPI_Status st[MANY];
    for (int i = 0; i < MANY; i++)
        windows[i] = window(i % KINDS, sizeof(int64_t), 1);
    if (me == 0) {
        for (int i = 0; i < MANY; i++) {
            MPI(MPI_Win_start(one, 0, windows[i].win));
            MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, windows[i].win));
            MPI(MPIX_Win_icomplete(windows[i].win, &r[i]));
        }
        send_token(1, 1);
        complete(how, MANY, r, st);
    } else if (me == 1) {
        recv_token(0, 1);
        for (int i = MANY - 1; i >= 0; i--) {
            MPI(MPI_Win_post(zero, 0, windows[i].win));
            MPI(MPI_Win_wait(windows[i].win));
        }
    }
    for (int i = 0; i < MANY; i++)
        window_free(&windows[i]);
}

/* A pending request in front of many complete ones, without statuses: a host that handles long
 * lists in pieces must not mix up the pieces. */
static void long_list(int test)
{
    enum { LONG = 3 * 64 };
    MPI_Request r[LONG];
    Window late = window(ALLOCATED, sizeof(int64_t), 1),
           own = window(ALLOCATED, sizeof(int64_t), 1);
    if (me == 0) {
        int flag = 0;
        MPI(MPI_Win_start(one, 0, late.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, late.win));
        MPI(MPIX_Win_icomplete(late.win, &r[0]));
        for (int i = 1; i < LONG; i++)
            if (i % 2)
                MPI(MPIX_Win_ilock(MPI_LOCK_SHARED, 0, 0, own.win, &r[i]));
            else
                MPI(MPI_Win_unlock(0, own.win)), r[i] = MPI_REQUEST_NULL;
        MPI(MPI_Win_unlock(0, own.win));
        send_token(1, 1);
        if (test)
            while (!flag)
                MPI(MPI_Testall(LONG, r, &flag, MPI_STATUSES_IGNORE));
        else
            MPI(MPI_Waitall(LONG, r, MPI_STATUSES_IGNORE));
        for (int i = 0; i < LONG; i++)
            EXPECT(r[i] == MPI_REQUEST_NULL, "request %d of a long list is not null", i);
    } else if (me == 1) {
        recv_token(0, 1);
        MPI(MPI_Win_post(zero, 0, late.win));
        MPI(MPI_Win_wait(late.win));
    }
    window_free(&own);
    window_free(&late);
}

/* Reused requests: waits for counters, more at once than the library caches, completed by each call
 * after each other call, some freed while pending, and one that outlives its window. */
static void reused_requests(void)
{
    enum { MANY = 150 };
    static MPI_Request r[MANY];
    static MPI_Status st[MANY];
    int flag;
    for (int how = 0; how < HOWS; how++) {
        Window own = window_on(ALLOCATED, sizeof(int64_t), 1, MPI_INFO_NULL, MPI_COMM_SELF);
        MPI(MPIX_Win_set_num_notify(own.win, MPI_INFO_NULL, MANY));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, own.win));
        for (int round = 1; round <= 3; round++) {
            for (int i = 0; i < MANY; i++)
                MPI(MPIX_Win_notify_ithreshold(own.win, i, round, &r[i]));
            for (int i = 0; i < MANY; i++) {
                MPI(MPI_Test(&r[i], &flag, MPI_STATUS_IGNORE));
                EXPECT(!flag, "%s, round %d: request %d is complete before its counter",
                       how_name[how], round, i);
            }
            if (round == 2)
                for (int i = 0; i < MANY; i += 3)
                    MPI(MPI_Request_free(&r[i]));
            for (int i = 0; i < MANY; i++) { /* the last ones complete first */
                int at = round == 1 ? i : MANY - 1 - i;
                MPI(MPIX_Put_notify(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, at, own.win));
                if ((how == WAIT || how == TEST) && round == 3) {
                    complete(how, 1, &r[at], &st[at]);
                    empty_status(&st[at], "ithreshold", how_name[how]);
                }
            }
            for (int i = 0; i < MANY; i += 8)
                complete(how, MANY - i < 8 ? MANY - i : 8, r + i, st + i);
        }
        MPI(MPI_Win_unlock(0, own.win));
        MPI(MPI_Win_free(&own.win));
    }
    Window gone = window(ALLOCATED, sizeof(int64_t), 1);
    if (me == 0) {
        MPI(MPI_Win_start(one, 0, gone.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, gone.win));
        MPI(MPIX_Win_icomplete(gone.win, &r[0]));
        send_token(1, 1);
    } else {
        recv_token(0, 1);
        MPI(MPI_Win_post(zero, 0, gone.win));
        MPI(MPI_Win_wait(gone.win));
    }
    window_free(&gone);
    if (me == 0)
        complete(WAIT, 1, r, st);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks == 2);
    if (argc > 1)
        big = atoi(argv[1]);
    zero = group_one(0);
    one = group_one(1);
    REQUIRE((out = malloc(big)) && (in = malloc(big)));
    memset(out, 5, big);
    memset(in, 0, big);
    for (int kind = 0; kind < KINDS; kind++) {
        w = window(kind, 2 * sizeof(int64_t), sizeof(int64_t));
        for (int what = 0; what < WHATS; what++) {
            for (int how = 0; how < HOWS; how++)
                for (int mixed = 0; mixed < (kind == ALLOCATED ? 3 : 1); mixed++) {
                    one_case(what, how, mixed);
                    done();
                }
            if (what == RPUT || what == RGET)
                continue; /* MPI forbids freeing or cancelling these */
            freed(what, 1);
            done();
            freed(what, 0);
            done();
            cancelled(what);
            done();
        }
        window_free(&w);
    }
    for (int how = 0; how < HOWS; how++)
        many_windows(how);
    for (int test = 0; test < 2; test++)
        long_list(test);
    reused_requests();
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
    free(out);
    free(in);
    return test_end();
}
