/*
 * Puts and gets of 1 byte to 4 MB, many in flight, on memory that its owner provided, under every
 * kind of synchronization, some of the long ones with derived datatypes. The target waits in MPI or
 * computes meanwhile. Accumulates of 8 bytes to 1 MB are in between, in an order that matters. All
 * bytes of the target and all bytes fetched are compared. Prints the seed.
 *
 *   in_flight KIND [ROUNDS [SEED [REFUSED]]]
 *     KIND: created | dynamic
 *     REFUSED: origin | target: the kernel refuses cross-memory attach to these processes from the
 *     second round on; none: it was switched off. Then targets always wait in MPI.
 */
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { AREA = 6 << 20, LONGEST = 4 << 20, MOST = 80, SUMS = 1 << 17, MOST_SHIFTED = 128 };

static MPI_Win win;
static char *memory;      /* for each origin an area that it writes, one area to read, then sums */
static char *own_memory, *origin_side; /* where puts come from and gets go to */
static MPI_Aint *bases;   /* of each rank's memory, as displacement */

typedef struct {
    int get;
    size_t at, len;
    uint64_t pattern;
} Operation;

/* The operations of one origin on one target in one round: disjoint, in any order. */
static int operations(uint64_t seed, int round, int origin, int target, Operation *list)
{
    uint64_t state = seed ^ (uint64_t)round * 1000003 ^ (uint64_t)(origin * 101 + target) << 40;
    int count = 0, wanted = 1 + (int)(next_random(&state) % MOST);
    if (next_random(&state) % 3 == 0)
        wanted = 1;
    /* Rounds differ in their sizes: short ones come together, long ones are divided. */
    int shortest = (int)(next_random(&state) % 16), span = 1 + (int)(next_random(&state) % 8);
    size_t at = next_random(&state) % 64;
    while (count < wanted) {
        int bits = shortest + (int)(next_random(&state) % (uint64_t)span);
        bits = bits > 22 ? 22 : bits;
        size_t len = ((size_t)1 << bits) + next_random(&state) % ((size_t)1 << bits);
        len = len > LONGEST ? LONGEST : len;
        if (at + len > AREA)
            break;
        list[count] =
            (Operation){next_random(&state) % 2 == 0, at, len, next_random(&state)};
        at += len + (next_random(&state) % 4 == 0 ? next_random(&state) % 5000 : 0);
        count++;
    }
    return count;
}

static char byte_of(uint64_t pattern, size_t at)
{
    return (char)((at * 0x9e3779b97f4a7c15u + pattern) >> 56);
}

static void fill(char *to, size_t len, uint64_t pattern)
{
    for (size_t i = 0; i < len; i++)
        to[i] = byte_of(pattern, i);
}

/* Whether the bytes are those of the pattern from byte `first` on. */
static int holds(const char *from, size_t len, uint64_t pattern, size_t first)
{
    for (size_t i = 0; i < len; i++)
        if (from[i] != byte_of(pattern, first + i))
            return 0;
    return 1;
}

static const uint64_t READ_ONLY = 77; /* pattern of the area to read, from its start */

static MPI_Aint place(int target, int area, size_t at)
{
    return bases[target] + (MPI_Aint)area * AREA + (MPI_Aint)at;
}

static int check_fetched(const Operation *o)
{
    return holds(origin_side + o->at, o->len, READ_ONLY, o->at);
}

enum { NOBODY = -1 }; /* as target: makes no call, and only says what the calls would do */

/* Adds 1 to the first sums of the target, or sets them to 5; `sums` says what they become. */
static void accumulate(int target, uint64_t *state, int64_t *sums)
{
    static int64_t ones[SUMS], fives[SUMS];
    for (int i = 0; i < SUMS && ones[SUMS - 1] == 0; i++)
        ones[i] = 1, fives[i] = 5;
    int bits = (int)(next_random(state) % 18), adds = next_random(state) % 4 != 0;
    int number = 1 + (int)(next_random(state) % ((uint64_t)1 << bits));
    if (target != NOBODY)
        MPI(MPI_Accumulate(adds ? ones : fives, number, MPI_INT64_T, target,
                           place(target, ranks + 1, 0), number, MPI_INT64_T,
                           adds ? MPI_SUM : MPI_REPLACE, win));
    for (int i = 0; i < number; i++)
        sums[i] = adds ? sums[i] + 1 : 5;
}

static void move_some(const Operation *o, int target, size_t first, int count, MPI_Datatype type)
{
    char *here = origin_side + o->at + first;
    if (o->get)
        MPI(MPI_Get(here, count, type, target, place(target, ranks, o->at + first), count, type,
                    win));
    else
        MPI(MPI_Put(here, count, type, target, place(target, me, o->at + first), count, type,
                    win));
}

/* Makes a put or get, and some of the long ones by blocks, from the last to the first. */
static void move(const Operation *o, int target)
{
    size_t blocks = 1 + o->pattern % 64, block = o->len / blocks;
    if (blocks % 2 == 0 || o->len < 16384) {
        move_some(o, target, 0, (int)o->len, MPI_BYTE);
        return;
    }
    MPI_Datatype backwards;
    MPI(MPI_Type_create_hvector((int)blocks, (int)block, -(MPI_Aint)block, MPI_BYTE, &backwards));
    MPI(MPI_Type_commit(&backwards));
    move_some(o, target, (blocks - 1) * block, 1, backwards);
    MPI(MPI_Type_free(&backwards));
    if (o->len > blocks * block)
        move_some(o, target, blocks * block, (int)(o->len - blocks * block), MPI_BYTE);
}

/* All calls of one origin to one target. */
static void issue(const Operation *list, int count, int target, uint64_t *state, int64_t *sums)
{
    for (int i = 0; i < count; i++) {
        const Operation *o = &list[i];
        if (target != NOBODY)
            move(o, target);
        if (next_random(state) % 8 == 0)
            accumulate(target, state, sums);
    }
}

static void prepare(const Operation *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i].get)
            memset(origin_side + list[i].at, 0x55, list[i].len);
        else
            fill(origin_side + list[i].at, list[i].len, list[i].pattern);
}

enum { FLUSH, UNLOCK, STARTED, FENCE, WAYS };

/* What a target does while its origin works. Without cross-memory attach it must not compute. */
static int may_compute = 1;

static void attend(uint64_t *state, const int64_t *finished, int64_t round)
{
    if (may_compute && next_random(state) % 2 == 0)
        compute_until(finished, round);
}

static void one_round(uint64_t seed, int round, Window *flags)
{
    static Operation list[MOST];
    uint64_t common = seed + (uint64_t)round;
    int way = (int)(next_random(&common) % WAYS), apart = 1 + (int)(next_random(&common) % 7);
    /* Where a buffer lies in its page decides how it is copied. */
    origin_side = own_memory + (round % 4 == 0 ? 0 : next_random(&common) % MOST_SHIFTED);
    int target = (me + apart) % ranks, origin = (me + ranks - apart % ranks) % ranks;
    static int64_t sums[SUMS];
    uint64_t mine = common * 31 + (uint64_t)me, theirs = common * 31 + (uint64_t)origin;
    int count = operations(seed, round, me, target, list);
    prepare(list, count);
    memset(memory + (size_t)(ranks + 1) * AREA, 0, sizeof sums);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Group to = group_one(target), from = group_one(origin);
    if (way == FENCE) {
        MPI(MPI_Win_fence(0, win));
        issue(list, count, target, &mine, sums);
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    } else if (way == STARTED) {
        MPI(MPI_Win_post(from, 0, win));
        MPI(MPI_Win_start(to, 0, win));
        issue(list, count, target, &mine, sums);
        MPI(MPI_Win_complete(win));
        MPI(MPI_Win_wait(win));
    } else {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win));
        issue(list, count, target, &mine, sums);
        if (way == FLUSH) {
            MPI(MPI_Win_flush(target, win));
            for (int i = 0; i < count; i++)
                EXPECT(!list[i].get || check_fetched(&list[i]), "round %d: get %d after a flush",
                       round, i);
        }
        MPI(MPI_Win_unlock(target, win));
        set_word(flags, target, round + 1);
        attend(&mine, flags->base, round + 1);
    }
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        EXPECT(!list[i].get || check_fetched(&list[i]), "round %d, way %d: get %d of %zu at %zu",
               round, way, i, list[i].len, list[i].at);
    count = operations(seed, round, origin, me, list);
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    for (int i = 0; i < count; i++)
        EXPECT(list[i].get || holds(memory + (size_t)origin * AREA + list[i].at, list[i].len,
                                    list[i].pattern, 0),
               "round %d, way %d: put %d of %zu at %zu", round, way, i, list[i].len, list[i].at);
    MPI(MPI_Win_unlock(me, win));
    memset(sums, 0, sizeof sums);
    issue(list, count, NOBODY, &theirs, sums);
    for (int i = 0; i < SUMS; i++) {
        int64_t summed = load64(memory + (size_t)(ranks + 1) * AREA + (size_t)i * sizeof summed);
        EXPECT(summed == sums[i], "round %d, way %d: sum %d is %ld, not %ld", round, way, i,
               (long)summed, (long)sums[i]);
    }
}

/* From now on the kernel refuses cross-memory attach to this process. False if it cannot. */
static int refuse(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    int dynamic = argc > 1 && strcmp(argv[1], "dynamic") == 0;
    int rounds = argc > 2 ? atoi(argv[2]) : 60;
    uint64_t seed = argc > 3 && strcmp(argv[3], "new") != 0 ? strtoull(argv[3], NULL, 10)
                                                           : (uint64_t)(seconds() * 1e6);
    const char *refused = argc > 4 ? argv[4] : "";
    may_compute = !*refused;
    MPI(MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
    if (me == 0)
        printf("NOTE seed %llu\n", (unsigned long long)seed);
    size_t bytes = (size_t)(ranks + 1) * AREA + SUMS * sizeof(int64_t);
    REQUIRE((memory = malloc(bytes)) && (own_memory = malloc(AREA + MOST_SHIFTED)) &&
            (bases = calloc((size_t)ranks, sizeof *bases)));
    memset(memory, 0, bytes);
    fill(memory + (size_t)ranks * AREA, AREA, READ_ONLY);
    if (dynamic) {
        MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        MPI(MPI_Win_attach(win, memory, (MPI_Aint)bytes));
        MPI(MPI_Get_address(memory, &bases[me]));
        MPI(MPI_Allgather(MPI_IN_PLACE, 0, MPI_AINT, bases, 1, MPI_AINT, MPI_COMM_WORLD));
    } else
        MPI(MPI_Win_create(memory, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    Window flags = window(ALLOCATED, 64, 1);
    for (int round = 0; round < rounds; round++) {
        if (round == 1 && (strcmp(refused, "origin") == 0 ? me % 2 == 0
                           : strcmp(refused, "target") == 0 ? me % 2 == 1
                                                            : 0))
            EXPECT(refuse(), "seccomp is not available");
        one_round(seed, round, &flags);
    }
    window_free(&flags);
    if (dynamic)
        MPI(MPI_Win_detach(win, memory));
    MPI(MPI_Win_free(&win));
    free(memory);
    free(own_memory);
    free(bases);
    return test_end();
}
