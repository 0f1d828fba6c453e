/*
 * Unattached memory of a dynamic window (MPI-4.1 12.2.4): MPI_ERR_RMA_RANGE from the call itself if
 * the origin can know the target's memory, else from the completing call. No memory is touched, and
 * window and processes continue.
 */
#include "check.h"

enum { BIG = 5000 };
static MPI_Win win;
static int64_t *block, out[BIG], in[BIG], one = 1;
static MPI_Aint all[64];

static int worst(int code, int sofar)
{
    return sofar == MPI_SUCCESS ? class_of(code) : sofar;
}

/* A request's error text is that of a blocking call. */
static void expect_words(int code)
{
    const char *text = error_text(code);
    EXPECT(strstr(text, "its target has not attached"), "the error of a request says: %s", text);
}

/* Completes two requests, the first of which fails, by a call with an array of statuses. Returns
 * the first one's error. */
static int complete_both(int way, MPI_Request *r)
{
    int code = MPI_SUCCESS, flag = 0, number = 0, which[2], failed = MPI_SUCCESS;
    MPI_Status status[2];
    switch (way) {
        case 0:
        case 1:
            do
                code = way ? MPI_Testall(2, r, &flag, status) : MPI_Waitall(2, r, status);
            while (way && !flag && code == MPI_SUCCESS);
            EXPECT(status[1].MPI_ERROR == MPI_SUCCESS || status[1].MPI_ERROR == MPI_ERR_PENDING,
                   "the other request: class %d", class_of(status[1].MPI_ERROR));
            failed = status[0].MPI_ERROR;
            break;
        default:
            while (r[0] != MPI_REQUEST_NULL) {
                code = way == 2 ? MPI_Waitsome(2, r, &number, which, status)
                                : MPI_Testsome(2, r, &number, which, status);
                for (int i = 0; i < number; i++)
                    if (which[i] == 0)
                        failed = status[i].MPI_ERROR;
            }
    }
    EXPECT(class_of(code) == MPI_ERR_IN_STATUS, "way %d of completing both: class %d", way,
           class_of(code));
    expect_words(failed);
    return failed;
}

/* Calls one operation on `there`; returns its error code. */
static int operate(int kind, int count, int to, MPI_Aint there)
{
    switch (kind) {
        case 0: return MPI_Put(out, count, MPI_INT64_T, to, there, count, MPI_INT64_T, win);
        case 1: return MPI_Get(in, count, MPI_INT64_T, to, there, count, MPI_INT64_T, win);
        case 2:
            return MPI_Accumulate(out, count, MPI_INT64_T, to, there, count, MPI_INT64_T, MPI_SUM,
                                  win);
        case 3:
            return MPI_Get_accumulate(out, count, MPI_INT64_T, in, count, MPI_INT64_T, to, there,
                                      count, MPI_INT64_T, MPI_SUM, win);
        case 4: return MPI_Fetch_and_op(&one, in, MPI_INT64_T, to, there, MPI_SUM, win);
        default: return MPI_Compare_and_swap(&one, &one, in, MPI_INT64_T, to, there, win);
    }
}

/* Closes or flushes in each way. */
static int end(int way, int to)
{
    switch (way) {
        case 0: return class_of(MPI_Win_unlock(to, win));
        case 1: {
            int code = class_of(MPI_Win_flush(to, win));
            MPI(MPI_Win_unlock(to, win));
            return code;
        }
        case 2: {
            int code = class_of(MPI_Win_flush_all(win));
            MPI(MPI_Win_unlock(to, win));
            return code;
        }
        default: {
            MPI_Request r = MPI_REQUEST_NULL;
            int code = class_of(MPIX_Win_iunlock(to, win, &r));
            if (r != MPI_REQUEST_NULL) {
                int told = MPI_Wait(&r, MPI_STATUS_IGNORE);
                if (told != MPI_SUCCESS)
                    expect_words(told);
                code = worst(told, code);
            }
            return code;
        }
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks <= 64);
    /* Errors of requests go to these handlers. */
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    REQUIRE((block = calloc(3 * BIG, sizeof *block)) != NULL);
    MPI(MPI_Win_attach(win, block, BIG * sizeof *block));
    MPI_Aint mine;
    MPI(MPI_Get_address(block, &mine));
    MPI(MPI_Allgather(&mine, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD));
    for (int i = 0; i < BIG; i++)
        out[i] = 7;
    int to = (me + ranks / 2) % ranks;
    for (int kind = 0; kind < 6; kind++)
        for (int way = 0; way < 4; way++)
            for (int big = 0; big < (kind < 4 ? 3 : 1); big++) {
                int count = big == 0 ? 1 : big == 1 ? 200 : BIG;
                MPI_Aint bad = all[to] + (BIG + 1) * (MPI_Aint)sizeof *block, good = all[to];
                int code;
                MPI(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win));
                code = worst(operate(kind, count, to, bad), MPI_SUCCESS);
                int then = end(way, to);
                code = code == MPI_SUCCESS ? then : code;
                EXPECT(code == MPI_ERR_RMA_RANGE, "kind %d, way %d, %d elements: class %d", kind,
                       way, count, code);
                /* Attached memory is still accessible. */
                MPI(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win));
                MPI(operate(kind, count, to, good));
                EXPECT(end(way, to) == MPI_SUCCESS,
                       "kind %d, way %d, %d elements: the next operation fails", kind, way, count);
            }
    /* A request reports the result of its own operation only. */
    for (int kind = 0; kind < 8; kind++) {
        MPI_Request r[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        MPI_Aint bad = all[to] + (BIG + 1) * (MPI_Aint)sizeof *block;
        MPI(MPI_Win_lock_all(0, win));
        int count = kind % 2 ? BIG : 1;
        int code =
            class_of(MPI_Rget(in, count, MPI_INT64_T, to, bad, count, MPI_INT64_T, win, &r[0]));
        MPI(MPI_Rget(out, count, MPI_INT64_T, to, all[to], count, MPI_INT64_T, win, &r[1]));
        if (r[0] != MPI_REQUEST_NULL)
            code = worst(complete_both(kind / 2, r), code);
        EXPECT(code == MPI_ERR_RMA_RANGE, "a request: class %d", code);
        MPI(MPI_Wait(&r[1], MPI_STATUS_IGNORE));
        MPI_Win_unlock_all(win);
    }
    /* A fence completes operations too. */
    MPI(MPI_Win_fence(0, win));
    int code = worst(operate(0, 1, to, all[to] + (BIG + 1) * (MPI_Aint)sizeof *block), MPI_SUCCESS);
    code = worst(MPI_Win_fence(MPI_MODE_NOSUCCEED, win), code);
    EXPECT(code == MPI_ERR_RMA_RANGE, "fence: class %d", code);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = BIG; i < 3 * BIG; i++)
        EXPECT(block[i] == 0, "unattached memory changed at %d", i);
    MPI(MPI_Win_detach(win, block));
    MPI(MPI_Win_free(&win));
    free(block);
    return test_end();
}
