/*
 * MPIX_Win_dup [DU-1 to DU-4]: another handle of a window, made by one process alone.
 */
#include "check.h"

enum { WORDS = 64 };

/* The right neighbour's word k has this value after all processes have put. */
static int64_t value_of(int rank, int k) { return 1000 * rank + k; }

/* Each process makes another number of duplicates, puts through all of them, and frees them. */
static void through_all(int kind)
{
    Window w = window(kind, WORDS * sizeof(int64_t), sizeof(int64_t));
    MPI_Win dup[8];
    int n = me % 4 + 1, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int64_t *there = w.base;
    for (int k = 0; k < n; k++)
        MPI(MPIX_Win_dup(k == 0 ? w.win : dup[k - 1], MPI_INFO_NULL, &dup[k]));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int k = 0; k < n; k++) {
        int64_t value = value_of(me, k), seen = -1;
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, k, 1, MPI_INT64_T, dup[k]));
        MPI(MPI_Win_flush(right, dup[k]));
        MPI(MPI_Get(&seen, 1, MPI_INT64_T, right, k, 1, MPI_INT64_T, dup[k]));
        MPI(MPI_Win_flush_all(dup[k]));
        EXPECT(seen == value, "%s %d: got %ld", kind_name[kind], k, (long)seen);
    }
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
    for (int k = 0; k < left % 4 + 1; k++)
        EXPECT(there[k] == value_of(left, k), "%s: word %d is %ld", kind_name[kind], k,
               (long)there[k]);
    MPI(MPI_Win_unlock(me, w.win));
    for (int k = 0; k < n; k++) {
        MPI(MPI_Win_free(&dup[k]));
        EXPECT(dup[k] == MPI_WIN_NULL, "MPI_Win_free does not null the duplicate");
    }
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++)
        through_all(kind);
    return test_end();
}
