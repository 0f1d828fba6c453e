/*
 * The legal symmetric program `post; start; put; complete; wait` on all processes at once [EP-7],
 * also with more processes than cores, where a waiting process must yield [PR-4].
 *
 *   symmetric KIND FORM [COUNT]   FORM: blocking | nonblocking | mixed | deep | fenced
 *
 * deep: up to 64 rounds pending. fenced: each round follows a pending fence.
 */
#include "check.h"

static Window w;
static MPI_Group everybody;
static int *value;

static void open_and_put(int mix, int round)
{
    do_post(mix, everybody, 0, w.win);
    do_start(mix, everybody, 0, w.win);
    for (int i = 0; i < ranks; i++)
        MPI(MPI_Put(&value[round % 64], 1, MPI_INT, i, (round % 64) * ranks + me, 1, MPI_INT,
                    w.win));
}

static void verify(int round)
{
    const int *slot = (int *)w.base + (round % 64) * ranks;
    for (int i = 0; i < ranks; i++)
        EXPECT(slot[i] == round * 8 + i, "round %d: from %d: %d", round, i, slot[i]);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc >= 3);
    int kind = strcmp(argv[1], "created") == 0, count = argc > 3 ? atoi(argv[3]) : 10000, all[64];
    const char *form = argv[2];
    for (int i = 0; i < ranks; i++)
        all[i] = i;
    everybody = group_of(ranks, all);
    w = window(kind, 64 * ranks * sizeof(int), sizeof(int));
    REQUIRE((value = calloc(64, sizeof(int))) != NULL);
    int deep = strcmp(form, "deep") == 0, fenced = strcmp(form, "fenced") == 0,
        mixed = strcmp(form, "mixed") == 0;
    int mix = strcmp(form, "blocking") == 0 ? 0 : NB_ALL;
    MPI_Request r[3 * 64];
    int pending = 0;
    for (int round = 0; round < count; round++) {
        value[round % 64] = round * 8 + me;
        if (mixed)
            mix = (round + me) % 16;
        if (fenced)
            MPI(MPIX_Win_ifence(0, w.win, &r[pending++]));
        open_and_put(mix, round);
        do_complete(mix, w.win, &r[pending++]);
        do_wait(mix, w.win, &r[pending++]);
        if (deep && round % 64 != 63 && round != count - 1)
            continue;
        MPI(MPI_Waitall(pending, r, MPI_STATUSES_IGNORE));
        pending = 0;
        for (int back = deep ? round % 64 : 0; back >= 0; back--)
            verify(round - back);
        /* No slot is overwritten while it is verified: the next round needs every process's
         * post. */
    }
    MPI(MPI_Group_free(&everybody));
    free(value);
    window_free(&w);
    return test_end();
}
