/*
 * MPIX_Win_flush_wins and MPIX_Win_iflush_wins [FL-2]: operations on many windows are complete
 * together, windows may occur twice, requests outlive windows, failed operations are reported, and
 * a wrong call flushes nothing, also if the same list was right before. With an argument, prints
 * how much faster one call is than one per window.
 */
#include "check.h"

enum { WINS = 12, MANY = 100 };

static void flushes(int nonblocking, int all)
{
    Window w[WINS];
    MPI_Win wins[WINS + 1];
    int target = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    for (int i = 0; i < WINS; i++) {
        w[i] = window(i % KINDS, (i % 3 + 1) * 3000 * sizeof(int64_t), sizeof(int64_t));
        wins[i] = w[i].win;
        MPI(MPI_Win_lock_all(0, wins[i]));
    }
    wins[WINS] = wins[1];
    int64_t *data = malloc(9000 * sizeof *data);
    for (int64_t round = 1; round <= 5; round++) {
        for (int i = 0; i < 9000; i++)
            data[i] = round * 10 + me;
        /* Nothing in some windows, a word or a long put in others. */
        for (int i = 0; i < WINS; i++)
            if ((i + round) % 4)
                MPI(MPI_Put(data, i % 2 ? 1 : 3000, MPI_INT64_T, target, 0, i % 2 ? 1 : 3000,
                            MPI_INT64_T, wins[i]));
        int rank = all ? MPIX_RANK_ALL : target;
        if (nonblocking) {
            MPI_Request r = MPI_REQUEST_NULL;
            MPI(MPIX_Win_iflush_wins(WINS + 1, wins, rank, &r));
            finish(&r);
        } else {
            MPI(MPIX_Win_flush_wins(WINS + 1, wins, rank));
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int i = 0; i < WINS; i++) {
            MPI(MPI_Win_sync(wins[i]));
            int64_t *there = w[i].base;
            for (int at = 0; (i + round) % 4 && at < (i % 2 ? 1 : 3000); at++)
                EXPECT(load64(there + at) == round * 10 + left, "window %d, round %ld: %ld", i,
                       (long)round, (long)load64(there + at));
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    for (int i = 0; i < WINS; i++) {
        MPI(MPI_Win_unlock_all(wins[i]));
        window_free(&w[i]);
    }
    free(data);
}

static void expect_class(int code, int expected, int line)
{
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS)
        MPI(MPI_Error_class(code, &class));
    EXPECT(class == expected, "line %d: class %d, not %d", line, class, expected);
}

static void errors(void)
{
    Window w[2];
    MPI_Win wins[3];
    MPI_Request r = MPI_REQUEST_NULL;
    for (int i = 0; i < 2; i++) {
        w[i] = window(i, sizeof(int64_t), sizeof(int64_t));
        wins[i] = w[i].win;
        MPI(MPI_Win_set_errhandler(wins[i], MPI_ERRORS_RETURN));
    }
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Win_lock_all(0, wins[0]));
    wins[2] = MPI_WIN_NULL;
    expect_class(MPIX_Win_flush_wins(-1, wins, 0), MPI_ERR_ARG, __LINE__);
    expect_class(MPIX_Win_flush_wins(1, NULL, 0), MPI_ERR_ARG, __LINE__);
    expect_class(MPIX_Win_iflush_wins(1, wins, 0, NULL), MPI_ERR_ARG, __LINE__);
    expect_class(MPIX_Win_flush_wins(1, wins, ranks), MPI_ERR_RANK, __LINE__);
    expect_class(MPIX_Win_iflush_wins(1, wins, -99, &r), MPI_ERR_RANK, __LINE__);
    expect_class(MPIX_Win_flush_wins(2, wins, 0), MPI_ERR_RMA_SYNC, __LINE__);
    expect_class(MPIX_Win_iflush_wins(2, wins, MPIX_RANK_ALL, &r), MPI_ERR_RMA_SYNC, __LINE__);
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, wins[1]));
    expect_class(MPIX_Win_flush_wins(3, wins, 0), MPI_ERR_WIN, __LINE__);
    if (ranks > 1)
        expect_class(MPIX_Win_flush_wins(2, wins, 1), MPI_ERR_RMA_SYNC, __LINE__);
    EXPECT(r == MPI_REQUEST_NULL, "a wrong call has made a request");
    expect_class(MPIX_Win_flush_wins(0, NULL, 0), MPI_SUCCESS, __LINE__);
    expect_class(MPIX_Win_flush_wins(2, wins, MPI_PROC_NULL), MPI_SUCCESS, __LINE__);
    expect_class(MPIX_Win_flush_wins(2, wins, 0), MPI_SUCCESS, __LINE__);
    MPI(MPI_Win_unlock(0, wins[1]));
    MPI(MPI_Win_unlock_all(wins[0]));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    for (int i = 0; i < 2; i++)
        window_free(&w[i]);
}

/* A list that was right is checked again when an epoch or a window has changed. */
static void changes(void)
{
    Window w[3];
    MPI_Win wins[3];
    for (int i = 0; i < 3; i++) {
        w[i] = window(i, sizeof(int64_t), sizeof(int64_t));
        wins[i] = w[i].win;
        MPI(MPI_Win_set_errhandler(wins[i], MPI_ERRORS_RETURN));
        MPI(MPI_Win_lock_all(0, wins[i]));
    }
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int turn = 0; turn < 3; turn++) {
        expect_class(MPIX_Win_flush_wins(3, wins, 0), MPI_SUCCESS, __LINE__);
        expect_class(MPIX_Win_flush_wins(3, wins, ranks), MPI_ERR_RANK, __LINE__);
        expect_class(MPIX_Win_flush_wins(3, wins, MPI_PROC_NULL), MPI_SUCCESS, __LINE__);
        expect_class(MPIX_Win_flush_wins(2, wins, MPIX_RANK_ALL), MPI_SUCCESS, __LINE__);
        expect_class(MPIX_Win_flush_wins(3, wins, MPIX_RANK_ALL), MPI_SUCCESS, __LINE__);
        MPI(MPI_Win_unlock_all(wins[turn]));
        expect_class(MPIX_Win_flush_wins(3, wins, MPIX_RANK_ALL), MPI_ERR_RMA_SYNC, __LINE__);
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, wins[turn]));
        expect_class(MPIX_Win_flush_wins(3, wins, 0), MPI_SUCCESS, __LINE__);
        MPI(MPI_Win_unlock(0, wins[turn]));
        expect_class(MPIX_Win_flush_wins(3, wins, 0), MPI_ERR_RMA_SYNC, __LINE__);
        MPI(MPI_Win_lock_all(0, wins[turn]));
    }
    expect_class(MPIX_Win_flush_wins(3, wins, 0), MPI_SUCCESS, __LINE__);
    MPI(MPI_Win_unlock_all(wins[2]));
    window_free(&w[2]);
    expect_class(MPIX_Win_flush_wins(3, wins, 0), MPI_ERR_WIN, __LINE__);
    expect_class(MPIX_Win_flush_wins(2, wins, 0), MPI_SUCCESS, __LINE__);
    /* The host may give the handle of the freed window to the new one. */
    w[2] = window(0, sizeof(int64_t), sizeof(int64_t));
    wins[2] = w[2].win;
    MPI(MPI_Win_set_errhandler(wins[2], MPI_ERRORS_RETURN));
    expect_class(MPIX_Win_flush_wins(3, wins, 0), MPI_ERR_RMA_SYNC, __LINE__);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    for (int i = 0; i < 3; i++) {
        if (i < 2)
            MPI(MPI_Win_unlock_all(wins[i]));
        window_free(&w[i]);
    }
}

/* One request for several windows may be tested, be waited for in a list, and outlive windows. */
static void requests(void)
{
    Window w[WINS];
    MPI_Win wins[WINS];
    int target = (me + 1) % ranks, left = (me + ranks - 1) % ranks, flag;
    for (int i = 0; i < WINS; i++) {
        w[i] = window(i % KINDS, 3000 * sizeof(int64_t), sizeof(int64_t));
        wins[i] = w[i].win;
        MPI(MPI_Win_lock_all(0, wins[i]));
    }
    int64_t *data = malloc(3000 * sizeof *data);
    for (int64_t round = 1; round <= 6; round++) {
        MPI_Request r[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        for (int i = 0; i < 3000; i++)
            data[i] = round * 10 + me;
        for (int i = 0; i < WINS; i++)
            MPI(MPI_Put(data, i % 2 ? 1 : 3000, MPI_INT64_T, target, 0, i % 2 ? 1 : 3000,
                        MPI_INT64_T, wins[i]));
        MPI(MPIX_Win_iflush_wins(WINS, wins, target, &r[0]));
        MPI(MPIX_Win_iflush_wins(WINS / 2, wins, MPIX_RANK_ALL, &r[2]));
        switch (round % 3) {
        case 0:
            for (flag = 0; !flag;)
                MPI(MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE));
            MPI(MPI_Wait(&r[2], MPI_STATUS_IGNORE));
            break;
        case 1: MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE)); break;
        default:
            MPI(MPI_Wait(&r[0], MPI_STATUS_IGNORE));
            MPI(MPI_Request_free(&r[2]));
        }
        EXPECT(r[0] == MPI_REQUEST_NULL, "round %ld: the request is not null", (long)round);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int i = 0; i < WINS; i++) {
            MPI(MPI_Win_sync(wins[i]));
            int64_t *there = w[i].base;
            for (int at = 0; at < (i % 2 ? 1 : 3000); at++)
                EXPECT(load64(there + at) == round * 10 + left, "window %d, round %ld: %ld", i,
                       (long)round, (long)load64(there + at));
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI_Request last = MPI_REQUEST_NULL;
    for (int i = 0; i < WINS; i++)
        MPI(MPI_Put(data, 3000, MPI_INT64_T, target, 0, 3000, MPI_INT64_T, wins[i]));
    MPI(MPIX_Win_iflush_wins(WINS, wins, target, &last));
    for (int i = 0; i < WINS; i++) {
        MPI(MPI_Win_unlock_all(wins[i]));
        window_free(&w[i]);
        if (i == WINS / 2)
            MPI(MPI_Test(&last, &flag, MPI_STATUS_IGNORE));
    }
    MPI(MPI_Wait(&last, MPI_STATUS_IGNORE));
    free(data);
}

/* Times 100 flushes and one call, idle and with a put in each window. */
static void measure(void)
{
    Window w[MANY];
    MPI_Win wins[MANY];
    int64_t word = me;
    for (int i = 0; i < MANY; i++) {
        w[i] = window(ALLOCATED, sizeof(int64_t), sizeof(int64_t));
        wins[i] = w[i].win;
        MPI(MPI_Win_lock_all(0, wins[i]));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int puts = 0; puts < 2; puts++) {
        double took[2] = {1e9, 1e9};
        for (int turn = 0; turn < 60 && me == 0; turn++)
            for (int together = 0; together < 2; together++) {
                for (int i = 0; i < MANY && puts; i++)
                    MPI(MPI_Put(&word, 1, MPI_INT64_T, ranks - 1, 0, 1, MPI_INT64_T, wins[i]));
                double begin = MPI_Wtime();
                if (together)
                    MPI(MPIX_Win_flush_wins(MANY, wins, ranks - 1));
                for (int i = 0; i < MANY && !together; i++)
                    MPI(MPI_Win_flush(ranks - 1, wins[i]));
                double time = MPI_Wtime() - begin;
                if (time < took[together])
                    took[together] = time;
            }
        if (me == 0)
            printf("%s: %.2f us for %d flushes, %.2f us together: %.1f times\n",
                   puts ? "a put each" : "idle", took[0] * 1e6, MANY, took[1] * 1e6,
                   took[0] / took[1]);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    for (int i = 0; i < MANY; i++) {
        MPI(MPI_Win_unlock_all(wins[i]));
        window_free(&w[i]);
    }
}

/* A get from memory that its target has not attached: its request fails too, whoever reports. */
static void faults(void)
{
    MPI_Win wins[2];
    int64_t in;
    for (int i = 0; i < 2; i++) {
        MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &wins[i]));
        MPI(MPI_Win_set_errhandler(wins[i], MPI_ERRORS_RETURN));
        MPI(MPI_Win_lock_all(0, wins[i]));
    }
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int form = 0; form < 2; form++) {
        MPI_Request r = MPI_REQUEST_NULL, all = MPI_REQUEST_NULL;
        int code = MPI_Rget(&in, 1, MPI_INT64_T, (me + 1) % ranks, (MPI_Aint)&in, 1, MPI_INT64_T,
                            wins[1], &r);
        if (code != MPI_SUCCESS) { /* Shared memory tells at once. */
            expect_class(code, MPI_ERR_RMA_RANGE, __LINE__);
            continue;
        }
        if (form)
            code = MPIX_Win_flush_wins(2, wins, MPIX_RANK_ALL);
        else if ((code = MPIX_Win_iflush_wins(2, wins, MPIX_RANK_ALL, &all)) == MPI_SUCCESS)
            code = MPI_Wait(&all, MPI_STATUS_IGNORE);
        expect_class(code, MPI_ERR_RMA_RANGE, __LINE__);
        expect_class(MPI_Wait(&r, MPI_STATUS_IGNORE), MPI_ERR_RMA_RANGE, __LINE__);
        expect_class(MPIX_Win_flush_wins(2, wins, MPIX_RANK_ALL), MPI_SUCCESS, __LINE__);
    }
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    for (int i = 0; i < 2; i++) {
        MPI(MPI_Win_unlock_all(wins[i]));
        MPI(MPI_Win_free(&wins[i]));
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int form = 0; form < 4; form++)
        flushes(form & 1, form >> 1);
    requests();
    errors();
    changes();
    faults();
    if (argc > 1)
        measure();
    return test_end();
}
