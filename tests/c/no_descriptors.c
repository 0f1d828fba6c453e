/*
 * A process without free file descriptors: only operations that need one fail, with the right error
 * class. The first lookup in a long region table needs one, to open the peer's memory.
 */
#include "check.h"
#include <dirent.h>
#include <sys/resource.h>

enum { REGIONS = 600, WINDOWS = 3 };

static int highest_descriptor(void)
{
    int highest = 0;
    DIR *folder = opendir("/proc/self/fd");
    REQUIRE(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (atoi(entry->d_name) > highest && atoi(entry->d_name) != dirfd(folder))
            highest = atoi(entry->d_name);
    closedir(folder);
    return highest;
}

/* From now on, no descriptor above those in use. Returns the previous limit. */
static struct rlimit allow_no_more(void)
{
    struct rlimit before, now;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    now = before;
    now.rlim_cur = (rlim_t)highest_descriptor() + 1;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &now) == 0);
    /* Fill the gaps below the highest one. */
    while (dup(0) >= 0) {
    }
    return before;
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks == 2);
    static int64_t memory[2 * REGIONS];
    MPI_Win wins[WINDOWS];
    MPI_Aint at = 0, mine;
    int64_t value = 42, word = 0;
    MPI(MPI_Get_address(memory, &mine));
    for (int w = 0; w < WINDOWS; w++) {
        MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &wins[w]));
        MPI(MPI_Win_set_errhandler(wins[w], MPI_ERRORS_RETURN));
        /* Every other word, so that regions do not merge; the last window has few. */
        for (int r = 0; me == 0 && r < (w == WINDOWS - 1 ? 10 : REGIONS); r++)
            MPI(MPI_Win_attach(wins[w], memory + 2 * r, sizeof *memory));
    }
    MPI(MPI_Sendrecv(&mine, 1, MPI_AINT, 1 - me, 1, &at, 1, MPI_AINT, 1 - me, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE));
    if (me == 1) {
        struct rlimit before = allow_no_more();
        MPI(MPI_Win_lock_all(0, wins[0]));
        int code = MPI_Put(&value, 1, MPI_INT64_T, 0, at + 16, 1, MPI_INT64_T, wins[0]);
        EXPECT(class_of(code) == MPI_ERR_OTHER || class_of(code) == MPI_ERR_NO_MEM, "class %d: %s",
               class_of(code), error_text(code));
        EXPECT(strstr(error_text(code), "table"), "the error text does not name the cause: %s",
               error_text(code));
        MPI(MPI_Win_unlock_all(wins[0]));
        /* A short table fits into the window's segment. */
        MPI(MPI_Win_lock_all(0, wins[WINDOWS - 1]));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 0, at + 16, 1, MPI_INT64_T, wins[WINDOWS - 1]));
        MPI(MPI_Win_flush(0, wins[WINDOWS - 1]));
        code = MPI_Put(&value, 1, MPI_INT64_T, 0, at + 8, 1, MPI_INT64_T, wins[WINDOWS - 1]);
        EXPECT(class_of(code) == MPI_ERR_RMA_RANGE, "not attached: class %d", class_of(code));
        MPI(MPI_Win_unlock_all(wins[WINDOWS - 1]));
        REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
        /* Nothing was lost, and one open of the peer's memory serves all windows. */
        for (int w = 0; w < 2; w++) {
            MPI(MPI_Win_lock_all(0, wins[w]));
            MPI(MPI_Put(&value, 1, MPI_INT64_T, 0, at + 16 * (REGIONS - 1), 1, MPI_INT64_T,
                        wins[w]));
            MPI(MPI_Get(&word, 1, MPI_INT64_T, 0, at + 16, 1, MPI_INT64_T, wins[w]));
            MPI(MPI_Win_unlock_all(wins[w]));
            EXPECT(word == 42, "%lld", (long long)word);
        }
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0)
        EXPECT(load64(memory + 2 * (REGIONS - 1)) == 42, "the last region");
    for (int w = 0; w < WINDOWS; w++)
        MPI(MPI_Win_free(&wins[w]));
    return test_end();
}
