/*
 * This library's info keys: valid and invalid values. An invalid one is an error in every process,
 * and no window is created.
 */
#include "check.h"

static int with(int kind, const char *key, const char *value, MPI_Win *win)
{
    static int64_t memory[8];
    void *base;
    MPI_Info info;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, key, value));
    *win = MPI_WIN_NULL;
    int code = kind == CREATED ? MPI_Win_create(memory, sizeof memory, 1, info, MPI_COMM_WORLD, win)
                               : MPI_Win_allocate(64, 1, info, MPI_COMM_WORLD, &base, win);
    MPI(MPI_Info_free(&info));
    return code;
}

int main(int argc, char **argv)
{
    static const char *const keys[] = {"mpix_rma",
                                       "mpix_win_access_after_access_reorder",
                                       "mpix_win_access_after_exposure_reorder",
                                       "mpix_win_exposure_after_exposure_reorder",
                                       "mpix_win_exposure_after_access_reorder",
                                       "MPI_WIN_ACCESS_AFTER_ACCESS_REORDER",
                                       "MPI_WIN_ACCESS_AFTER_EXPOSURE_REORDER",
                                       "MPI_WIN_EXPOSURE_AFTER_EXPOSURE_REORDER",
                                       "MPI_WIN_EXPOSURE_AFTER_ACCESS_REORDER"};
    static const char *const good[] = {"true", "false", "1", "0"}, *const bad[] = {
                                                                       "yes", "2", "tru",
                                                                       "maybe so", "-1"};
    test_begin(&argc, &argv);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int kind = 0; kind < (ranks > 1 ? KINDS : 1); kind++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            MPI_Win win;
            for (int i = 0; i < 4; i++) {
                MPI(with(kind, keys[k], good[i], &win));
                MPI(MPI_Win_free(&win));
            }
            for (int i = 0; i < 5; i++) {
                int code = with(kind, keys[k], bad[i], &win), length;
                char text[MPI_MAX_ERROR_STRING] = "";
                EXPECT(class_of(code) == MPI_ERR_INFO_VALUE, "%s=%s: class %d", keys[k], bad[i],
                       class_of(code));
                if (code == MPI_SUCCESS)
                    MPI(MPI_Win_free(&win));
                else
                    MPI(MPI_Error_string(code, text, &length));
                EXPECT(strstr(text, "info key") != NULL,
                       "%s=%s: the error text does not name the argument: %s", keys[k], bad[i],
                       text);
            }
        }
    /* An invalid value in one process is an error in all; no process hangs in a half-made
     * window. */
    MPI_Win win;
    int code = with(ALLOCATED, "mpix_win_access_after_access_reorder",
                    me == ranks - 1 ? "nonsense" : "true", &win);
    EXPECT(class_of(code) == MPI_ERR_INFO_VALUE, "bad in one process: class %d", class_of(code));
    /* Unknown keys are ignored. */
    MPI(with(ALLOCATED, "mpix_win_unheard_of", "7", &win));
    MPI(MPI_Win_free(&win));
    MPI(with(ALLOCATED, "no_locks", "false", &win));
    MPI(MPI_Win_free(&win));
    return test_end();
}
