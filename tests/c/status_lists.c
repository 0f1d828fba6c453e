/*
 * MPI_Request_get_status_all, _any and _some (MPI-4.1) on a list of a persistent request for tagged
 * notifications, a wait for a counter, a message of the host and a null request. They leave the
 * requests unchanged and make progress [PR-1].
 */
#include "check.h"

#if MPI_VERSION * 10 + MPI_SUBVERSION >= 41
enum { TAGGED, COUNTER, NOTHING, MESSAGE, ALL };
enum { TAG = 77 };

static MPI_Request r[ALL];
static MPI_Status st[ALL];

static int some(int *indices)
{
    int number;
    MPI(MPI_Request_get_status_some(ALL, r, &number, indices, st));
    return number;
}

/* The number of complete requests, according to all three calls. */
static void expect(int complete, const int *which)
{
    int flag, index, number, indices[ALL];
    do
        number = some(indices);
    while (number < complete);
    EXPECT(number == complete, "get_status_some: %d instead of %d", number, complete);
    for (int i = 0; i < number; i++) {
        int there = 0;
        for (int k = 0; k < complete; k++)
            there |= which[k] == indices[i];
        EXPECT(there, "get_status_some returned index %d", indices[i]);
        if (indices[i] == TAGGED)
            EXPECT(st[i].MPI_SOURCE == 1 && st[i].MPI_TAG == TAG, "source %d tag %d",
                   st[i].MPI_SOURCE, st[i].MPI_TAG);
        if (indices[i] == MESSAGE)
            EXPECT(st[i].MPI_SOURCE == 1 && st[i].MPI_TAG == 9, "the host's: source %d tag %d",
                   st[i].MPI_SOURCE, st[i].MPI_TAG);
    }
    MPI(MPI_Request_get_status_any(ALL, r, &index, &flag, &st[0]));
    EXPECT(flag == (complete > 0), "get_status_any: flag %d with %d complete", flag, complete);
    if (flag) {
        int there = 0;
        for (int k = 0; k < complete; k++)
            there |= which[k] == index;
        EXPECT(there, "get_status_any returned index %d", index);
        if (index == TAGGED)
            EXPECT(st[0].MPI_SOURCE == 1 && st[0].MPI_TAG == TAG, "source %d tag %d",
                   st[0].MPI_SOURCE, st[0].MPI_TAG);
    }
    MPI(MPI_Request_get_status_all(ALL, r, &flag, st));
    EXPECT(flag == (complete == ALL - 1), "get_status_all: flag %d with %d complete", flag,
           complete);
    for (int i = 0; i < ALL; i++)
        EXPECT((r[i] == MPI_REQUEST_NULL) == (i == NOTHING), "request %d", i);
}

static void lists(MPI_Win win)
{
    static const int order[] = {TAGGED, COUNTER, MESSAGE};
    int64_t word = 0;
    int flag, index, number, indices[ALL];
    if (me == 1) {
        for (int step = 0; step < 3; step++) {
            recv_token(0, 1);
            switch (step) {
            case 0:
                MPI(MPIX_Put_tagged(&word, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, TAG, win));
                break;
            case 1:
                MPI(MPIX_Put_notify(&word, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, 0, win));
                break;
            default: send_token(0, 9);
            }
            MPI(MPI_Win_flush_local(0, win));
        }
        return;
    }
    MPI(MPIX_Notify_init(win, 1, TAG, 1, &r[TAGGED]));
    for (int round = 0; round < 2; round++) { /* inactive: not started */
        MPI(MPI_Request_get_status_any(1, r, &index, &flag, st));
        EXPECT(flag && index == MPI_UNDEFINED, "nothing active: flag %d index %d", flag, index);
        MPI(MPI_Request_get_status_all(1, r, &flag, st));
        EXPECT(flag, "nothing active: all");
        MPI(MPI_Request_get_status_some(1, r, &number, indices, st));
        EXPECT(number == MPI_UNDEFINED, "nothing active: some gives %d", number);
    }
    MPI(MPI_Start(&r[TAGGED]));
    MPI(MPIX_Win_notify_ithreshold(win, 0, 1, &r[COUNTER]));
    r[NOTHING] = MPI_REQUEST_NULL;
    MPI(MPI_Irecv(NULL, 0, MPI_BYTE, 1, 9, MPI_COMM_WORLD, &r[MESSAGE]));
    expect(0, order);
    for (int complete = 1; complete <= 3; complete++) {
        MPI_Request sign;
        MPI(MPI_Isend(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &sign));
        MPI(MPI_Request_free(&sign));
        expect(complete, order);
        expect(complete, order);
    }
    EXPECT(st[TAGGED].MPI_SOURCE == 1 && st[TAGGED].MPI_TAG == TAG, "all: source %d tag %d",
           st[TAGGED].MPI_SOURCE, st[TAGGED].MPI_TAG);
    EXPECT(st[MESSAGE].MPI_SOURCE == 1 && st[MESSAGE].MPI_TAG == 9, "all: source %d tag %d",
           st[MESSAGE].MPI_SOURCE, st[MESSAGE].MPI_TAG);
    MPI(MPI_Request_get_status_all(ALL, r, &flag, MPI_STATUSES_IGNORE));
    EXPECT(flag, "all, without statuses");
    MPI(MPI_Waitall(ALL, r, MPI_STATUSES_IGNORE));
    EXPECT(r[COUNTER] == MPI_REQUEST_NULL && r[MESSAGE] == MPI_REQUEST_NULL,
           "Waitall leaves requests");
    MPI(MPI_Request_free(&r[TAGGED]));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks == 2);
    for (int kind = 0; kind < KINDS; kind++) {
        Window w = window(kind, sizeof(int64_t), sizeof(int64_t));
        MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, 1));
        MPI(MPI_Win_lock_all(0, w.win));
        lists(w.win);
        MPI(MPI_Win_unlock_all(w.win));
        window_free(&w);
    }
    return test_end();
}
#else
int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    return test_skip("this host has no MPI_Request_get_status_all");
}
#endif
