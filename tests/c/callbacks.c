/*
 * Functions of the application that a library call could run: attribute copy and delete functions,
 * and error handlers. Each makes an RMA call, so none may run inside one. The library never
 * duplicates MPI_COMM_SELF: no copy function runs, and the delete function runs once, in
 * MPI_Finalize. (MPICH itself duplicates the communicator of a window.)
 *
 *   callbacks single | multiple
 */
#include "check.h"

static Window inner;
static int copies, deletes, errors, within;

static void communicate(void)
{
    int64_t one = 1;
    MPI(MPI_Put(&one, 1, MPI_INT64_T, me, 0, 1, MPI_INT64_T, inner.win));
    MPI(MPI_Win_flush(me, inner.win));
}

static int on_copy(MPI_Comm comm, int key, void *extra, void *value, void *copied, int *flag)
{
    (void)comm, (void)key, (void)extra;
    copies++;
    communicate();
    *(void **)copied = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int on_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static int on_win_delete(MPI_Win win, int key, void *value, void *extra)
{
    (void)win, (void)key, (void)value, (void)extra;
    within++;
    communicate();
    return MPI_SUCCESS;
}

static int on_type_copy(MPI_Datatype type, int key, void *extra, void *value, void *copied,
                        int *flag)
{
    (void)type, (void)key, (void)extra, (void)value, (void)copied;
    within++;
    communicate();
    *flag = 0;
    return MPI_SUCCESS;
}

static int on_type_delete(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type, (void)key, (void)value, (void)extra;
    within++;
    communicate();
    return MPI_SUCCESS;
}

static void on_error(MPI_Win *win, int *code, ...)
{
    (void)win, (void)code;
    errors++;
    communicate();
}

int main(int argc, char **argv)
{
    int key, win_key, type_key;
    test_begin_threads(&argc, &argv,
                       argc > 1 && strcmp(argv[1], "multiple") == 0 ? MPI_THREAD_MULTIPLE
                                                                    : MPI_THREAD_SINGLE);
    inner = window(ALLOCATED, 64, 8);
    MPI(MPI_Win_lock_all(0, inner.win));
    MPI(MPI_Comm_create_keyval(on_copy, on_delete, &key, NULL));
    MPI(MPI_Comm_set_attr(MPI_COMM_SELF, key, &key));
    MPI(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_win_delete, &win_key, NULL));
    MPI(MPI_Type_create_keyval(on_type_copy, on_type_delete, &type_key, NULL));

    MPI_Datatype element, vector, loose;
    MPI(MPI_Type_contiguous(1, MPI_INT64_T, &element));
    MPI(MPI_Type_set_attr(element, type_key, &type_key));
    MPI(MPI_Type_vector(4, 1, 2, element, &vector));
    MPI(MPI_Type_set_attr(vector, type_key, &type_key));
    MPI(MPI_Type_commit(&vector));
    MPI(MPI_Type_dup(element, &loose));
    MPI(MPI_Type_free(&loose));
    EXPECT(within == 1, "%d calls by MPI_Type_dup", within);

    Window w = window(ALLOCATED, 64, 8);
    int64_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    MPI_Errhandler handler;
    MPI(MPI_Win_create_errhandler(on_error, &handler));
    MPI(MPI_Win_set_errhandler(w.win, handler));
    MPI(MPI_Errhandler_free(&handler));
    MPI(MPI_Win_set_attr(w.win, win_key, &win_key));
    MPI(MPI_Win_lock_all(0, w.win));
    within = 0;
    MPI(MPI_Put(from, 1, vector, me, 0, 1, vector, w.win));
    MPI(MPI_Win_flush(me, w.win));
    EXPECT(load64((int64_t *)w.base + 6) == 7, "the vector was not put");
    MPI(MPI_Type_vector(2, 1, 2, MPI_INT64_T, &loose));
    int code = MPI_Put(from, 1, loose, me, 0, 1, loose, w.win);
    EXPECT(class_of(code) == MPI_ERR_TYPE && errors == 1, "not committed: class %d, %d errors",
           class_of(code), errors);
    MPI(MPI_Type_free(&loose));
    code = MPI_Put(from, 1, MPI_INT64_T, ranks, 0, 1, MPI_INT64_T, w.win);
    EXPECT(class_of(code) == MPI_ERR_RANK && errors == 2, "wrong rank: class %d, %d errors",
           class_of(code), errors);
    EXPECT(within == 0 && copies == 0, "%d calls of the application's functions inside RMA calls",
           within + copies);
    MPI(MPI_Win_unlock_all(w.win));
    window_free(&w);
    EXPECT(within == 1, "%d calls by MPI_Win_free", within);
    MPI(MPI_Type_free(&element));
    MPI(MPI_Type_free(&vector));
    EXPECT(within == 3, "%d calls by MPI_Type_free and MPI_Win_free", within);
    MPI(MPI_Win_unlock_all(inner.win));
    window_free(&inner);
    EXPECT(copies == 0 && deletes == 0, "%d copies, %d deletions before MPI_Finalize", copies,
           deletes);
    int failed = test_end();
    if (copies != 0 || deletes != 1)
        fprintf(stderr, "%d copies, %d deletions after MPI_Finalize\n", copies, deletes);
    return failed || copies != 0 || deletes != 1;
}
