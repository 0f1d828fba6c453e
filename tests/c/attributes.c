/*
 * Properties of a window that the library serves: attributes, group, name, error handler, info and
 * user attributes (MPI-4.1 12.2.6, 12.2.7, 12.8, 7.7).
 */
#include "check.h"

static int deleted;
static int on_delete(MPI_Win win, int key, void *value, void *extra)
{
    (void)win, (void)key, (void)extra;
    deleted += value == &deleted;
    return MPI_SUCCESS;
}

static void look(int kind, MPI_Comm comm)
{
    int n, r, flag, length, unit = 4, keyval;
    MPI(MPI_Comm_size(comm, &n));
    MPI(MPI_Comm_rank(comm, &r));
    MPI_Aint bytes = 400 + 8 * r;
    MPI_Info info, back;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, "no_locks", "false"));
    Window w = window_on(kind, bytes, unit, info, comm);
    MPI(MPI_Info_free(&info));
    void *value;
    MPI(MPI_Win_get_attr(w.win, MPI_WIN_BASE, &value, &flag));
    EXPECT(flag && value == w.base, "%s: MPI_WIN_BASE %p, memory at %p", kind_name[kind], value,
           w.base);
    MPI(MPI_Win_get_attr(w.win, MPI_WIN_SIZE, &value, &flag));
    EXPECT(flag && *(MPI_Aint *)value == bytes, "%s: MPI_WIN_SIZE %ld", kind_name[kind],
           flag ? (long)*(MPI_Aint *)value : -1);
    MPI(MPI_Win_get_attr(w.win, MPI_WIN_DISP_UNIT, &value, &flag));
    EXPECT(flag && *(int *)value == unit, "%s: MPI_WIN_DISP_UNIT", kind_name[kind]);
    MPI(MPI_Win_get_attr(w.win, MPI_WIN_CREATE_FLAVOR, &value, &flag));
    EXPECT(flag &&
               *(int *)value == (kind == CREATED ? MPI_WIN_FLAVOR_CREATE : MPI_WIN_FLAVOR_ALLOCATE),
           "%s: flavor", kind_name[kind]);
    MPI(MPI_Win_get_attr(w.win, MPI_WIN_MODEL, &value, &flag));
    EXPECT(flag && (*(int *)value == MPI_WIN_UNIFIED || *(int *)value == MPI_WIN_SEPARATE),
           "%s: model", kind_name[kind]);

    MPI_Group group, of_comm;
    int result;
    MPI(MPI_Win_get_group(w.win, &group));
    MPI(MPI_Comm_group(comm, &of_comm));
    MPI(MPI_Group_compare(group, of_comm, &result));
    EXPECT(result == MPI_IDENT, "%s: group", kind_name[kind]);
    MPI(MPI_Group_free(&group));
    MPI(MPI_Group_free(&of_comm));

    char name[MPI_MAX_OBJECT_NAME];
    MPI(MPI_Win_set_name(w.win, "temperature"));
    MPI(MPI_Win_get_name(w.win, name, &length));
    EXPECT(strcmp(name, "temperature") == 0 && length == 11, "%s: name %s", kind_name[kind], name);

    MPI_Errhandler handler;
    MPI(MPI_Win_get_errhandler(w.win, &handler));
    EXPECT(handler == MPI_ERRORS_ARE_FATAL, "%s: default handler", kind_name[kind]);
    MPI(MPI_Errhandler_free(&handler));
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    MPI(MPI_Win_get_errhandler(w.win, &handler));
    EXPECT(handler == MPI_ERRORS_RETURN, "%s: handler set", kind_name[kind]);
    MPI(MPI_Errhandler_free(&handler));

    MPI(MPI_Win_get_info(w.win, &back));
    EXPECT(back != MPI_INFO_NULL, "%s: info", kind_name[kind]);
    MPI(MPI_Info_free(&back));

    MPI(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, &keyval, NULL));
    MPI(MPI_Win_set_attr(w.win, keyval, &deleted));
    MPI(MPI_Win_get_attr(w.win, keyval, &value, &flag));
    EXPECT(flag && value == &deleted, "%s: user attribute", kind_name[kind]);
    deleted = 0;
    window_free(&w);
    EXPECT(deleted == 1, "%s: delete callbacks called %d times", kind_name[kind], deleted);
    MPI(MPI_Win_free_keyval(&keyval));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    MPI_Comm half;
    MPI(MPI_Comm_split(MPI_COMM_WORLD, me % 2, -me, &half));
    for (int kind = 0; kind < KINDS; kind++) {
        look(kind, MPI_COMM_WORLD);
        /* One half at a time: Open MPI 4.1 confuses windows that both halves create
         * concurrently. */
        for (int turn = 0; turn < 2; turn++) {
            if (me % 2 == turn)
                look(kind, half);
            MPI(MPI_Barrier(MPI_COMM_WORLD));
        }
    }
    MPI(MPI_Comm_free(&half));
    return test_end();
}
