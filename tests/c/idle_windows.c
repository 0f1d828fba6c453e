/*
 * Many windows, one of which has work at a time. A process that contacts an idle window, which
 * nobody polls, is served whatever its owner waits for, and no window takes a descriptor. A library
 * that misses an idle window hangs here [PR-6].
 *
 *   idle_windows [WINDOWS]   default: 150 of each kind
 */
#include "check.h"
#include <dirent.h>

enum { KIND_ALLOCATED, KIND_CREATED, KIND_DYNAMIC, ALL_KINDS, WORDS = 4, ROUNDS = 400 };

static struct {
    MPI_Win win;
    int64_t *memory;
    MPI_Aint at; /* displacement of the memory at the peer */
} *windows;

static int count, peer;

static int descriptors(void)
{
    int found = 0;
    DIR *folder = opendir("/proc/self/fd");
    REQUIRE(folder != NULL);
    while (readdir(folder))
        found++;
    closedir(folder);
    return found;
}

static void make(int number)
{
    MPI_Aint mine, bytes = WORDS * sizeof(int64_t);
    int64_t **memory = &windows[number].memory;
    MPI_Win *win = &windows[number].win;
    if (number % ALL_KINDS == KIND_ALLOCATED) {
        MPI(MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, memory, win));
        return;
    }
    REQUIRE((*memory = calloc(WORDS, sizeof **memory)) != NULL);
    if (number % ALL_KINDS == KIND_CREATED) {
        MPI(MPI_Win_create(*memory, bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, win));
        return;
    }
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, win));
    MPI(MPI_Win_attach(*win, *memory, bytes));
    MPI(MPI_Get_address(*memory, &mine));
    MPI(MPI_Sendrecv(&mine, 1, MPI_AINT, (me + ranks - 1) % ranks, 1, &windows[number].at, 1,
                     MPI_AINT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

/* Enough sweeps for every window to become idle, however many there are. Not by barriers, which
 * take milliseconds each if a host's ranks outnumber the cores. */
static void let_windows_idle(void)
{
    int found;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < 600; i++)
        MPI(MPI_Iprobe(me, 3, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* All puts of a round go to the right neighbour, which meanwhile waits for a message of the
 * host. */
static void puts_while_the_target_receives(void)
{
    uint64_t seed = 21;
    for (int round = 0; round < ROUNDS; round++) {
        int number = (int)(next_random(&seed) % (uint64_t)count), from = (me + ranks - 1) % ranks;
        MPI_Win win = windows[number].win;
        int64_t value = 1000 * round + me, seen = -1;
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, win));
        if (round % 2 == me % 2) {
            /* Only the put must arrive; the lock may end later. */
            MPI(MPI_Put(&value, 1, MPI_INT64_T, peer, windows[number].at, 1, MPI_INT64_T, win));
            MPI(MPI_Win_flush(peer, win));
            send_token(peer, 2);
        }
        if (round % 2 == from % 2) {
            recv_token(from, 2);
            seen = load64(windows[number].memory);
            /* The origin may be several rounds ahead, and back at the same window. */
            EXPECT(seen >= 1000 * round + from && seen % 1000 == from, "round %d, window %d: %lld",
                   round, number, (long long)seen);
        }
        MPI(MPI_Win_unlock(peer, win));
        if (round % 50 == 49)
            let_windows_idle();
    }
}

/* An origin notifies, then makes no call on this window until it gets an answer. */
static void notifications_wake_their_target(void)
{
    uint64_t seed = 22;
    int from = (me + ranks - 1) % ranks;
    for (int round = 0; round < ROUNDS / 4; round++) {
        int number = (int)(next_random(&seed) % (uint64_t)count);
        MPI_Win win = windows[number].win;
        MPI_Request request;
        MPI_Status status;
        int64_t value = -round - 1;
        MPI(MPI_Win_lock_all(0, win));
        MPI(MPIX_Put_tagged(&value, 1, MPI_INT64_T, peer,
                            windows[number].at + (number % ALL_KINDS == KIND_DYNAMIC ? 8 : 1), 1,
                            MPI_INT64_T, round, win));
        MPI(MPIX_Notify_init(win, from, round, 1, &request));
        MPI(MPI_Start(&request));
        MPI(MPI_Wait(&request, &status));
        EXPECT(status.MPI_SOURCE == from && status.MPI_TAG == round, "round %d: source %d, tag %d",
               round, status.MPI_SOURCE, status.MPI_TAG);
        /* The origin may be two rounds ahead, and back at the same window: its values fall. */
        int64_t seen = load64(windows[number].memory + 1);
        EXPECT(seen <= value, "round %d, window %d: %lld after the notification", round, number,
               (long long)seen);
        MPI(MPI_Request_free(&request));
        MPI(MPI_Win_unlock_all(win));
        if (round % 25 == 24)
            let_windows_idle();
    }
}

/* More notifications to an idle window than a ring holds: the origin continues once the target
 * waits. */
static void a_full_ring_wakes_its_target(void)
{
    enum { TAGS = 3000 };
    for (int number = 0; number < 2; number++) {
        MPI_Win win = windows[number].win;
        let_windows_idle();
        MPI(MPI_Win_lock_all(0, win));
        if (me == 0) {
            for (int tag = 0; tag < TAGS; tag++)
                MPI(MPIX_Put_tagged(NULL, 0, MPI_BYTE, peer, 0, 0, MPI_BYTE, tag, win));
            MPI(MPI_Win_flush(peer, win));
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (me == peer || me == 1) {
            for (int tag = 0; tag < TAGS && (me + ranks - 1) % ranks == 0; tag++) {
                MPI_Request request;
                MPI(MPIX_Notify_init(win, 0, tag, 1, &request));
                MPI(MPI_Start(&request));
                MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
                MPI(MPI_Request_free(&request));
            }
        }
        MPI(MPI_Win_unlock_all(win));
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    count = ALL_KINDS * (argc > 1 ? atoi(argv[1]) : 150);
    peer = (me + 1) % ranks;
    REQUIRE((windows = calloc((size_t)count, sizeof *windows)) != NULL);
    for (int number = 0; number < ALL_KINDS; number++)
        make(number);
    int before = descriptors();
    for (int number = ALL_KINDS; number < count; number++)
        make(number);
    int after = descriptors();
    EXPECT(after == before, "%d descriptors before, %d after %d windows", before, after,
           count - ALL_KINDS);
    let_windows_idle();
    puts_while_the_target_receives();
    notifications_wake_their_target();
    a_full_ring_wakes_its_target();
    EXPECT(descriptors() <= before + 2, "%d descriptors before, %d after use", before,
           descriptors());
    for (int number = 0; number < count; number++) {
        MPI(MPI_Win_free(&windows[number].win));
        if (number % ALL_KINDS != KIND_ALLOCATED)
            free(windows[number].memory);
    }
    free(windows);
    return test_end();
}
