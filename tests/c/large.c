/*
 * One put and one get of more than 2 GiB, verified word by word. Displacements exceed 32 bits too.
 * Needs about 10 GB of memory for a short time.
 *
 *   large KIND
 */
#include "check.h"

static uint64_t word(size_t i, int s) { return (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)s; }

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 2 && ranks == 2);
    if (!test_memory(10ll << 30))
        return test_skip("less than 10 GB of memory available");
    const size_t words = (2300ull << 20) / 8, gap = 1 << 20; /* 2.25 GiB behind 1 MiB */
    Window w =
        window(strcmp(argv[1], "created") == 0, me == 1 ? (MPI_Aint)(words * 8 + 2 * gap) : 0, 1);
    if (me == 0) {
        uint64_t *buffer = malloc(words * 8);
        REQUIRE(buffer);
        for (size_t i = 0; i < words; i++)
            buffer[i] = word(i, 1);
        MPI_Request r;
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win));
        MPI(MPI_Put(buffer, (int)words, MPI_UINT64_T, 1, gap, (int)words, MPI_UINT64_T, w.win));
        MPI(MPIX_Win_iunlock(1, w.win, &r));
        finish(&r);
        memset(buffer, 0, words * 8);
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, w.win));
        MPI(MPI_Rget(buffer, (int)words, MPI_UINT64_T, 1, gap, (int)words, MPI_UINT64_T, w.win,
                     &r));
        finish(&r);
        size_t wrong = 0;
        for (size_t i = 0; i < words; i++)
            wrong += buffer[i] != word(i, 1);
        EXPECT(wrong == 0, "%zu of %zu words differ", wrong, words);
        /* A displacement beyond 2 GiB: the last word. */
        uint64_t last = 0;
        MPI(MPI_Get(&last, 1, MPI_UINT64_T, 1, (MPI_Aint)(gap + words * 8 - 8), 1, MPI_UINT64_T,
                    w.win));
        MPI(MPI_Win_unlock(1, w.win));
        EXPECT(last == word(words - 1, 1), "the last word");
        free(buffer);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 1) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, w.win));
        const uint64_t *mine = (const uint64_t *)((char *)w.base + gap);
        size_t wrong = 0;
        for (size_t i = 0; i < words; i++)
            wrong += mine[i] != word(i, 1);
        EXPECT(wrong == 0, "%zu of %zu words differ at the target", wrong, words);
        EXPECT(((char *)w.base)[gap - 1] == 0 && ((char *)w.base)[gap + words * 8] == 0,
               "bytes beside the put were written");
        MPI(MPI_Win_unlock(1, w.win));
    }
    window_free(&w);
    return test_end();
}
