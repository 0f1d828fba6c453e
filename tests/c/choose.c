/*
 * Which windows the library serves: MPIX_RMA and the info key mpix_rma. A window that is left to
 * the host works, and MPIX_ calls on it return MPI_ERR_UNSUPPORTED_OPERATION.
 *
 *   choose MODE    the value of MPIX_RMA in the environment; "all" if it is not set
 */
#include "check.h"

static void usable(Window *w, const char *what)
{
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Group to = group_one(right), from = group_one(left);
    int *mine = w->base, value = me + 1;
    MPI(MPI_Win_fence(0, w->win));
    MPI(MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, w->win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    EXPECT(mine[0] == left + 1, "%s: fence: %d", what, mine[0]);
    value = me + 100;
    MPI(MPI_Win_post(from, 0, w->win));
    MPI(MPI_Win_start(to, 0, w->win));
    MPI(MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, w->win));
    MPI(MPI_Win_complete(w->win));
    MPI(MPI_Win_wait(w->win));
    EXPECT(mine[0] == left + 100, "%s: post: %d", what, mine[0]);
    MPI(MPI_Barrier(MPI_COMM_WORLD)); /* all have looked */
    value = me + 200;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, w->win));
    MPI(MPI_Accumulate(&value, 1, MPI_INT, right, 0, 1, MPI_INT, MPI_SUM, w->win));
    MPI(MPI_Win_unlock(right, w->win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w->win));
    EXPECT(mine[0] == 2 * left + 300, "%s: accumulate: %d", what, mine[0]);
    MPI(MPI_Win_unlock(me, w->win));
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
}

static void is_ours(MPI_Win win, int ours, const char *what)
{
    MPI_Request r = MPI_REQUEST_NULL;
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    int code = MPIX_Win_ilock(MPI_LOCK_SHARED, me, 0, win, &r);
    if (ours) {
        EXPECT(code == MPI_SUCCESS, "%s: not served: class %d", what, class_of(code));
        if (code == MPI_SUCCESS) {
            finish(&r);
            MPI(MPI_Win_unlock(me, win));
        }
    } else {
        EXPECT(class_of(code) == MPI_ERR_UNSUPPORTED_OPERATION, "%s: class %d", what,
               class_of(code));
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI(MPI_Error_string(code, text, &length));
        EXPECT(length > 0, "%s: empty error text", what);
        EXPECT(class_of(MPIX_Win_ifence(0, win, &r)) == MPI_ERR_UNSUPPORTED_OPERATION, "%s: ifence",
               what);
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 2);
    const char *mode = argv[1];
    static const char *const values[] = {NULL, "true", "false", "1", "0"};
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 5; i++) {
            MPI_Info info;
            char what[100];
            MPI(MPI_Info_create(&info));
            if (values[i])
                MPI(MPI_Info_set(info, "mpix_rma", values[i]));
            snprintf(what, sizeof what, "MPIX_RMA=%s, mpix_rma=%s, %s", mode,
                     values[i] ? values[i] : "(not set)", kind_name[kind]);
            if (kind == CREATED && ranks == 1)
                continue; /* Some hosts cannot create a window of one process. */
            Window w = window_on(kind, 64, sizeof(int), info, MPI_COMM_WORLD);
            MPI(MPI_Info_free(&info));
            int ours = strcmp(mode, "off") == 0 ? 0
                       : values[i]              ? values[i][0] == 't' || values[i][0] == '1'
                                                : strcmp(mode, "all") == 0;
            is_ours(w.win, ours, what);
            usable(&w, what);
            window_free(&w);
        }
    if (ranks > 1) {
        int ours = strcmp(mode, "all") == 0;
        MPI_Win win;
        void *base;
        MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        is_ours(win, ours, "dynamic");
        MPI(MPI_Win_free(&win));
        MPI(MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
        is_ours(win, ours, "shared");
        MPI(MPI_Win_lock_all(0, win));
        MPI(MPI_Put(&me, 1, MPI_INT, (me + 1) % ranks, 0, 1, MPI_INT, win));
        MPI(MPI_Win_unlock_all(win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        EXPECT(*(int *)base == (me + ranks - 1) % ranks, "shared: %d", *(int *)base);
        MPI(MPI_Win_free(&win));
    }
    return test_end();
}
