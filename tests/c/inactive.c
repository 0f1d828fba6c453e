/*
 * Completion calls on lists without an active request: null requests, inactive persistent requests
 * of the host and, if this library is linked, of tagged notifications. All return the empty status
 * (MPI-4.1 3.7.5), and an index or count of MPI_UNDEFINED.
 */
#include "check.h"

static int testany_is_broken;

static int is_empty(const char *what, MPI_Status *s, int places)
{
    int all = 1;
    for (int i = 0; i < places; i++) {
        int count = -1, cancelled = -1,
            written = s[i].MPI_SOURCE == MPI_ANY_SOURCE && s[i].MPI_TAG == MPI_ANY_TAG;
        if (written) {
            MPI(MPI_Get_count(&s[i], MPI_INT, &count));
            MPI(MPI_Test_cancelled(&s[i], &cancelled));
        }
        EXPECT(written && count == 0 && cancelled == 0,
               "%s: status %d: source %d, tag %d, count %d, cancelled %d", what, i, s[i].MPI_SOURCE,
               s[i].MPI_TAG, count, cancelled);
        all &= written;
    }
    return all;
}

static void look(const char *what, int count, MPI_Request *list)
{
    enum { MOST = 20 };
    MPI_Status s[MOST];
    char text[128];
    int index, flag, number, which[MOST];
#define BEFORE(call)                                                                               \
    snprintf(text, sizeof text, "%s of %d %s", #call, count, what);                                \
    memset(s, 0x55, sizeof s);                                                                     \
    index = flag = number = 77;
    for (int i = 0; i < count; i++) {
        BEFORE(MPI_Wait)
        MPI(MPI_Wait(&list[i], s));
        is_empty(text, s, 1);
        BEFORE(MPI_Test)
        MPI(MPI_Test(&list[i], &flag, s));
        EXPECT(flag == 1, "%s: flag %d", text, flag);
        is_empty(text, s, 1);
        BEFORE(MPI_Request_get_status)
        MPI(MPI_Request_get_status(list[i], &flag, s));
        EXPECT(flag == 1, "%s: flag %d", text, flag);
        is_empty(text, s, 1);
    }
    BEFORE(MPI_Waitany)
    MPI(MPI_Waitany(count, list, &index, s));
    EXPECT(index == MPI_UNDEFINED, "%s: index %d", text, index);
    is_empty(text, s, 1);
    BEFORE(MPI_Testany)
    MPI(MPI_Testany(count, list, &index, &flag, s));
    EXPECT(flag == 1 && index == MPI_UNDEFINED, "%s: flag %d, index %d", text, flag, index);
    if (!testany_is_broken)
        is_empty(text, s, 1);
    BEFORE(MPI_Waitall)
    MPI(MPI_Waitall(count, list, s));
    is_empty(text, s, count);
    BEFORE(MPI_Testall)
    MPI(MPI_Testall(count, list, &flag, s));
    EXPECT(flag == 1, "%s: flag %d", text, flag);
    is_empty(text, s, count);
    BEFORE(MPI_Waitsome)
    MPI(MPI_Waitsome(count, list, &number, which, s));
    EXPECT(number == MPI_UNDEFINED, "%s: %d complete", text, number);
    BEFORE(MPI_Testsome)
    MPI(MPI_Testsome(count, list, &number, which, s));
    EXPECT(number == MPI_UNDEFINED, "%s: %d complete", text, number);
    MPI(MPI_Waitany(count, list, &index, MPI_STATUS_IGNORE));
    MPI(MPI_Testany(count, list, &index, &flag, MPI_STATUS_IGNORE));
}

static void lists(const char *what, MPI_Request persistent)
{
    MPI_Request list[20];
    for (int count = 1; count <= 20; count += count < 3 ? 1 : 17)
        for (int at = 0; at < count; at += count < 3 ? 1 : 7) {
            for (int i = 0; i < count; i++)
                list[i] = i == at ? persistent : MPI_REQUEST_NULL;
            look(what, count, list);
        }
    for (int i = 0; i < 20; i++)
        list[i] = i % 2 ? persistent : MPI_REQUEST_NULL;
    look(what, 20, list);
}

int main(int argc, char **argv)
{
    int word;
    test_begin(&argc, &argv);
#if defined(PLAIN) && defined(MPICH_VERSION)
    testany_is_broken =
        getenv("EXPECT_LIBRARY") == NULL; /* MPICH's own call leaves the status unchanged */
#endif
    MPI_Request receive;
    MPI(MPI_Recv_init(&word, 1, MPI_INT, me, 1, MPI_COMM_WORLD, &receive));
    lists("null requests, no window", MPI_REQUEST_NULL);
    lists("receives, no window", receive);
    Window w = window(ALLOCATED, 64, 1);
    lists("null requests", MPI_REQUEST_NULL);
    lists("receives", receive);
#ifndef PLAIN
    MPI_Request notification;
    MPI(MPIX_Notify_init(w.win, me, 1, 1, &notification));
    lists("notifications", notification);
    MPI(MPI_Request_free(&notification));
#endif
    MPI(MPI_Request_free(&receive));
    window_free(&w);
    return test_end();
}
