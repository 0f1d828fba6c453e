/*
 * Shared by the tests of counters and of tags: a window of cells, puts of known values, and the
 * same rounds in every kind of epoch.
 */
#ifndef NOTIFIED_H
#define NOTIFIED_H

#include "check.h"

enum { CELLS = 4096 };
static Window w;

static int64_t *cells(void) { return w.base; }

static void open_cells(int kind)
{
    w = window(kind, CELLS * (MPI_Aint)sizeof(int64_t), sizeof(int64_t));
}

static int right_of(int rank) { return (rank + 1) % ranks; }
static int left_of(int rank) { return (rank + ranks - 1) % ranks; }

/* Values to put, from `value` on. */
static const int64_t *numbers(int64_t value, int count)
{
    static int64_t data[CELLS];
    for (int i = 0; i < count; i++)
        data[i] = value + i;
    return data;
}

/* Called as soon as a notification arrives: nothing else synchronizes the two processes. */
static void expect_data(int64_t value, int count, const char *where)
{
    int wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += load64(cells() + i) != value + i;
    EXPECT(!wrong, "%s: %d of %d cells did not arrive before the notification", where, wrong,
           count);
}

enum kind { FENCE, ACCESS, LOCK, LOCK_ALL };

/* How one family of notifications is sent and received. */
struct family {
    void (*put)(int64_t value, int count);       /* to the right neighbour, with a notification */
    void (*told)(enum kind kind, const char *name); /* waits for the left one's */
    void (*left_over)(void);                     /* checks that no more have come */
    void (*put_one)(const int64_t *value, int place); /* the same in deferred epochs */
    void (*none_yet)(void);
    void (*told_one)(int place);
};

/* Puts to the right neighbour in every kind of epoch. Each process waits for the notification, then
 * checks the data. */
static void every_epoch(const struct family *f)
{
    static const int sizes[] = {1, 3, 100, CELLS};
    int right = right_of(me), left = left_of(me);
    MPI_Group to = group_one(right), from = group_one(left);
    for (int s = 0; s < 4; s++)
        for (int mix = 0; mix <= NB_ALL; mix += 5) {
            int n = sizes[s];
            int64_t value = 1000 * (s * 16 + mix + 1);
            MPI_Request r[2];
            MPI(MPI_Barrier(MPI_COMM_WORLD));
            MPI(MPI_Win_fence(0, w.win));
            f->put(value, n);
            f->told(FENCE, "fence");
            expect_data(value, n, "fence");
            MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));

            do_post(mix, from, 0, w.win);
            do_start(mix, to, 0, w.win);
            f->put(value + 1, n);
            do_complete(mix, w.win, &r[0]);
            f->told(ACCESS, "access");
            expect_data(value + 1, n, "access");
            do_wait(mix, w.win, &r[1]);
            MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
            MPI(MPI_Barrier(MPI_COMM_WORLD));

            do_lock(mix, MPI_LOCK_EXCLUSIVE, right, w.win);
            f->put(value + 2, n);
            do_unlock(mix, right, w.win, &r[0]);
            finish(&r[0]);
            f->told(LOCK, "lock");
            expect_data(value + 2, n, "lock");
            MPI(MPI_Barrier(MPI_COMM_WORLD));

            do_lock_all(mix, w.win);
            f->put(value + 3, n);
            f->told(LOCK_ALL, "lock_all");
            expect_data(value + 3, n, "lock_all");
            do_unlock_all(mix, w.win, &r[0]);
            finish(&r[0]);
            f->left_over();
        }

    /* Deferred: an origin closes three epochs before the first is exposed. Notifications arrive one
     * by one. */
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Request r[3];
    int64_t values[3] = {71, 72, 73};
    if (me % 2 == 0 && right != 0 && ranks > 1) {
        for (int i = 0; i < 3; i++) {
            do_start(NB_ALL, to, 0, w.win);
            f->put_one(&values[i], i);
            do_complete(NB_ALL, w.win, &r[i]);
        }
        send_token(right, 1);
        MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
    } else if (me % 2) {
        recv_token(left, 1);
        f->none_yet();
        for (int i = 0; i < 3; i++) {
            do_post(NB_ALL, from, 0, w.win);
            f->told_one(i);
            EXPECT(load64(cells() + i) == 71 + i, "deferred put %d: %ld", i,
                   (long)load64(cells() + i));
            do_wait(NB_ALL, w.win, &r[i]);
        }
        MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
    }
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
}

#endif
