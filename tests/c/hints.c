/*
 * Info keys of a window (MPI-4.1 12.2.7): MPI_Win_get_info returns the values in force, and
 * MPI_Win_set_info changes them in all processes.
 *
 *   hints WORD    WORD: expected mpix_rma_progress of windows on the application's memory
 */
#include "check.h"

static const char *get(MPI_Win win, const char *key)
{
    static char value[MPI_MAX_INFO_VAL + 1];
    MPI_Info info;
    int flag;
    MPI(MPI_Win_get_info(win, &info));
    MPI(MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &flag));
    MPI(MPI_Info_free(&info));
    return flag ? value : "(not there)";
}

static int set(MPI_Win win, const char *key, const char *value)
{
    MPI_Info info;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, key, value));
    int code = MPI_Win_set_info(win, info);
    MPI(MPI_Info_free(&info));
    return code;
}

static void is(MPI_Win win, const char *key, const char *value)
{
    const char *found = get(win, key);
    EXPECT(strcmp(found, value) == 0, "%s is %s, not %s", key, found, value);
}

enum { SHARED = KINDS, DYNAMIC, ALL_KINDS };

static MPI_Win make(int kind, MPI_Info info)
{
    static char memory[64];
    void *base;
    MPI_Win win;
    if (kind == ALLOCATED)
        MPI(MPI_Win_allocate(64, 1, info, MPI_COMM_WORLD, &base, &win));
    else if (kind == CREATED)
        MPI(MPI_Win_create(memory, 64, 1, info, MPI_COMM_WORLD, &win));
    else if (kind == SHARED)
        MPI(MPI_Win_allocate_shared(64, 1, info, MPI_COMM_WORLD, &base, &win));
    else
        MPI(MPI_Win_create_dynamic(info, MPI_COMM_WORLD, &win));
    return win;
}

static const char *const defaults[][2] = {
    {"no_locks", "false"},
    {"accumulate_ordering", "rar,raw,war,waw"},
    {"accumulate_ops", "same_op_no_op"},
    {"same_size", "false"},
    {"same_disp_unit", "false"},
    {"alloc_shared_noncontig", "false"},
    {"mpi_accumulate_granularity", "0"},
    {"acc_single_intrinsic", "false"},
    {"mpix_rma", "true"},
    {"mpix_win_access_after_access_reorder", "false"},
    {"mpix_win_access_after_exposure_reorder", "false"},
    {"mpix_win_exposure_after_exposure_reorder", "false"},
    {"mpix_win_exposure_after_access_reorder", "false"},
};
/* Each key: the value set, the value then in force, and whether MPI_Win_set_info may change it. */
static const char *const asked[][3] = {
    {"no_locks", "true", "true"},
    {"accumulate_ordering", "waw,rar", "rar,waw"},
    {"accumulate_ordering", "none", "none"},
    {"accumulate_ops", "same_op", "same_op"},
    {"same_size", "true", "true"},
    {"same_disp_unit", "true", "true"},
    {"alloc_shared_noncontig", "true", "true"},
    {"mpi_accumulate_granularity", "8", "8"},
    {"no_locks", "perhaps", NULL}, /* unknown keys change nothing */
    {"accumulate_ordering", "rar,wrong", NULL},
    {"accumulate_ops", "any", NULL},
    {"mpi_accumulate_granularity", "much", NULL},
};
enum {
    DEFAULTS = sizeof defaults / sizeof *defaults,
    FLAGS = DEFAULTS - 4,
    ASKED = sizeof asked / sizeof *asked
};

static const char *default_of(const char *key)
{
    for (int i = 0; i < DEFAULTS; i++)
        if (strcmp(defaults[i][0], key) == 0)
            return defaults[i][1];
    return "";
}

static void in_force(int kind)
{
    MPI_Win win = make(kind, MPI_INFO_NULL);
    for (int i = 0; i < DEFAULTS; i++)
        is(win, defaults[i][0], defaults[i][1]);
    for (int i = 0; i < ASKED; i++) {
        MPI(set(win, asked[i][0], asked[i][1]));
        is(win, asked[i][0], asked[i][2] ? asked[i][2] : get(win, asked[i][0]));
        if (asked[i][2]) {
            MPI(set(win, asked[i][0], default_of(asked[i][0])));
            is(win, asked[i][0], default_of(asked[i][0]));
        }
    }
    MPI(set(win, "somebody_elses_key", "true"));
    MPI(MPI_Win_free(&win));
    for (int i = 0; i < ASKED; i++) {
        MPI_Info info;
        MPI(MPI_Info_create(&info));
        MPI(MPI_Info_set(info, asked[i][0], asked[i][1]));
        win = make(kind, info);
        MPI(MPI_Info_free(&info));
        is(win, asked[i][0], asked[i][2] ? asked[i][2] : default_of(asked[i][0]));
        MPI(MPI_Win_free(&win));
    }
    for (int flag = FLAGS; flag < DEFAULTS; flag++) {
        MPI_Info info;
        MPI(MPI_Info_create(&info));
        MPI(MPI_Info_set(info, defaults[flag][0], "1"));
        win = make(kind, info);
        MPI(MPI_Info_free(&info));
        for (int i = FLAGS; i < DEFAULTS; i++)
            is(win, defaults[i][0], i == flag ? "true" : "false");
        MPI(MPI_Win_free(&win));
    }
}

/* This key selects who executes accumulates, so it is fixed at window creation. */
static void single(int kind)
{
    MPI_Info info;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, "acc_single_intrinsic", "true"));
    MPI_Win win = make(kind, info);
    MPI(MPI_Info_free(&info));
    is(win, "acc_single_intrinsic", "true");
    MPI(set(win, "acc_single_intrinsic", "false"));
    is(win, "acc_single_intrinsic", "true");
    MPI(MPI_Win_free(&win));
}

/* A window with no_locks=true serves locks all the same, as on both hosts. */
static void no_locks(int kind)
{
    MPI_Win win = make(kind, MPI_INFO_NULL);
    MPI_Request r;
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    for (int on = 1; on >= 0; on--) {
        MPI(set(win, "no_locks", on ? "true" : "false"));
        is(win, "no_locks", on ? "true" : "false");
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
        MPI(MPI_Win_unlock(0, win));
        MPI(MPI_Win_lock_all(0, win));
        MPI(MPI_Win_unlock_all(win));
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, me, 0, win, &r));
        finish(&r);
        MPI(MPI_Win_unlock(me, win));
        MPI(MPIX_Win_ilock_all(0, win, &r));
        finish(&r);
        MPI(MPI_Win_unlock_all(win));
        MPI(MPI_Win_fence(0, win));
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    }
    MPI(MPI_Win_free(&win));
}

/* An invalid value is an error in every process and changes nothing. */
static void wrong_values(int kind)
{
    MPI_Win win = make(kind, MPI_INFO_NULL);
    MPI_Info info;
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    EXPECT(class_of(set(win, "mpix_rma", "perhaps")) == MPI_ERR_INFO_VALUE, "mpix_rma=perhaps");
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, "no_locks", "true"));
    if (me == ranks - 1)
        MPI(MPI_Info_set(info, "mpix_win_access_after_access_reorder", "perhaps"));
    REFUSED(MPI_ERR_INFO_VALUE, MPI_Win_set_info(win, info));
    MPI(MPI_Info_free(&info));
    is(win, "no_locks", "false");
    REFUSED(MPI_ERR_INFO, MPI_Win_set_info(win, MPI_INFO_NULL));
    MPI(set(win, "same_size", "true"));
    is(win, "same_size", "true");
    MPI(MPI_Win_free(&win));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 2);
    for (int kind = 0; kind < ALL_KINDS; kind++) {
        if (kind != CREATED || ranks > 1) { /* Some hosts cannot create a window of one process. */
            MPI_Win win = make(kind, MPI_INFO_NULL);
            is(win, "mpix_rma_progress",
               ranks > 1 && (kind == CREATED || kind == DYNAMIC) ? argv[1] : "load_store");
            MPI(MPI_Win_free(&win));
            in_force(kind);
            single(kind);
            no_locks(kind);
            wrong_values(kind);
        }
    }
    return test_end();
}
