/*
 * An erroneous program: process 1 detaches and unmaps memory before the put of process 0 is
 * complete. No process may crash, and the log must name the dropped operation. With
 * MPIX_RMA_CMA=off the target copies, so only it can notice.
 */
#include "check.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
    enum { BYTES = 1 << 16 };
    MPI_Win win, words;
    int64_t *word;
    static char out[BYTES / 2], in[8] = "unread";
    MPI_Aint there = 0, size;
    int unit;
    test_begin(&argc, &argv);
    REQUIRE(ranks == 2);
    /* Words that peers poll without any call, so that nobody makes progress. */
    MPI(MPI_Win_allocate_shared(me ? 0 : sizeof *word, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &word,
                                &words));
    MPI(MPI_Win_shared_query(words, 0, &size, &unit, &word));
    if (me == 0)
        store64(word, 0);
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    MPI(MPI_Win_attach(win, memory, BYTES));
    MPI(MPI_Get_address(memory, &there));
    MPI(MPI_Bcast(&there, 1, MPI_AINT, 1, MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    /* A process in a barrier makes progress, so the target announces that it has left its last
     * call. */
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0) {
        while (load64(word) != 1)
            ;
        MPI(MPI_Put(out, 8, MPI_CHAR, 1, there, 8, MPI_CHAR, win));
        MPI(MPI_Get(in, 8, MPI_CHAR, 1, there + 100, 8, MPI_CHAR, win));
        MPI(MPI_Accumulate(out, BYTES / 2, MPI_CHAR, 1, there, BYTES / 2, MPI_CHAR, MPI_REPLACE,
                           win));
        store64(word, 2);
        while (load64(word) != 3)
            ;
    } else {
        store64(word, 1);
        while (load64(word) != 2)
            ;
        MPI(MPI_Win_detach(win, memory));
        munmap(memory, BYTES);
        store64(word, 3);
    }
    MPI(MPI_Win_flush_all(win));
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Win_free(&win));
    MPI(MPI_Win_free(&words));
    return test_end();
}
