/*
 * The fast path behaves like the engine. The same random calls, valid and invalid, are made on two
 * windows, one of them with mpix_rma_fast_path=false. Both must return the same error classes and
 * results, and end with the same memory, counters and tags.
 *
 *   fast_path KIND [PHASES [SEED]]
 */
#include "check.h"

enum { SLOTS = 64, SLOT = 16, BLOCK = SLOTS * SLOT, CALLS = 40, COUNTERS = 3 };
enum { FAST, LONG, WAYS };
enum epoch { LOCK_ALL, LOCK, FENCE, ACCESS, EPOCHS };

static Window w[WAYS];
static unsigned char source[BLOCK];
static unsigned char *got[WAYS]; /* one block per target */
/* Slots of each target that this process has accessed since its last flush. */
static uint64_t *touched;
static uint64_t mine, all; /* random states: of this process, and common to all */
static uint64_t seed;
static int phase;

static int pick(int below) { return (int)(next_random(&mine) % (uint64_t)below); }

static void same(int fast, int other, const char *call)
{
    EXPECT(class_of(fast) == class_of(other),
           "seed %llu, phase %d, %s: class %d on the fast path, %d without it",
           (unsigned long long)seed, phase, call, class_of(fast), class_of(other));
}

struct call {
    int kind, target, count, elements, tag, counter;
    MPI_Aint disp;
    MPI_Datatype datatype;
    void *source;
};

static int make_call(const struct call *c, int way)
{
    MPI_Win win = w[way].win;
    int block = c->target >= 0 && c->target < ranks ? c->target : 0;
    void *result = got[way] + (size_t)block * BLOCK + (c->disp < 0 ? 0 : c->disp % BLOCK);
    switch (c->kind) {
        case 0:
            return MPI_Put(c->source, c->count, c->datatype, c->target, c->disp, c->elements,
                           c->datatype, win);
        case 1:
            return MPI_Get(c->source ? result : NULL, c->count, c->datatype, c->target, c->disp,
                           c->elements, c->datatype, win);
        case 2:
            return MPIX_Put_notify(c->source, c->count, c->datatype, c->target, c->disp,
                                   c->elements, c->datatype, c->counter, win);
        case 3:
            return MPIX_Put_tagged(c->source, c->count, c->datatype, c->target, c->disp,
                                   c->elements, c->datatype, c->tag, win);
        default:
            return MPI_Accumulate(c->source, c->count, c->datatype, c->target, c->disp, c->elements,
                                  c->datatype, MPI_SUM, win);
    }
}

/* Each process reads and writes its own block of each target's memory. */
static struct call some_call(int target)
{
    static const MPI_Datatype types[] = {MPI_BYTE, MPI_INT, MPI_DOUBLE};
    static const int sizes[] = {1, 4, 8};
    int type = pick(3), slots = 1 + pick(4), slot = pick(SLOTS - slots);
    struct call c = {
        .kind = pick(5), .target = target, .counter = pick(COUNTERS), .tag = pick(100)};
    c.datatype = types[type];
    c.count = c.elements = slots * SLOT / sizes[type] - pick(SLOT / sizes[type]);
    c.disp = (MPI_Aint)me * BLOCK + slot * SLOT;
    c.source = source + slot * SLOT;
    switch (pick(40)) {
        case 0: c.disp = -1; break;
        case 1: c.disp = (MPI_Aint)ranks * BLOCK - 1; c.count = c.elements = 16; break;
        case 2: c.count = c.elements = -1; break;
        case 3: c.target = ranks; break;
        case 4: c.target = -77; break;
        case 5: c.source = NULL; break;
        case 6: c.elements = c.count / 2; break;
        case 7: c.counter = COUNTERS; c.tag = -1; break;
        case 8: c.count = c.elements = 0; break;
        case 9: c.target = MPI_PROC_NULL; break;
        case 10: c.datatype = MPI_DATATYPE_NULL; break;
        default: break;
    }
    return c;
}

static void flush(int target)
{
    for (int way = 0; way < WAYS; way++)
        MPI(MPI_Win_flush(target, w[way].win));
    touched[target] = 0;
}

static void make_calls(enum epoch epoch, int only)
{
    memset(touched, 0, sizeof *touched * (size_t)ranks);
    for (int i = 0; i < CALLS; i++) {
        struct call c = some_call(only >= 0 ? only : pick(ranks));
        if (c.target >= 0 && c.target < ranks) {
            /* MPI does not define the result of two unordered operations on the same location. */
            int first = (int)(c.disp / SLOT) % SLOTS;
            uint64_t here = c.disp < 0 ? 0 : 0xffull << (first < SLOTS - 8 ? first : SLOTS - 8);
            int may_flush = epoch == LOCK || epoch == LOCK_ALL;
            if ((touched[c.target] & here) && !may_flush)
                continue;
            if ((touched[c.target] & here) || (may_flush && pick(4) == 0))
                flush(c.target);
            touched[c.target] |= here;
        }
        same(make_call(&c, FAST), make_call(&c, LONG),
             (const char *[]){"put", "get", "put_notify", "put_tagged", "accumulate"}[c.kind]);
    }
}

static void run_epoch(enum epoch epoch)
{
    int target = pick(ranks);
    for (int way = 0; way < WAYS; way++)
        switch (epoch) {
            case LOCK_ALL: MPI(MPI_Win_lock_all(0, w[way].win)); break;
            case LOCK: MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w[way].win)); break;
            case FENCE: MPI(MPI_Win_fence(0, w[way].win)); break;
            default: {
                MPI_Group group;
                MPI(MPI_Win_get_group(w[way].win, &group));
                MPI(MPI_Win_post(group, 0, w[way].win));
                MPI(MPI_Win_start(group, 0, w[way].win));
                MPI(MPI_Group_free(&group));
            }
        }
    make_calls(epoch, epoch == LOCK ? target : -1);
    for (int way = 0; way < WAYS; way++)
        switch (epoch) {
            case LOCK_ALL: MPI(MPI_Win_unlock_all(w[way].win)); break;
            case LOCK: MPI(MPI_Win_unlock(target, w[way].win)); break;
            case FENCE: MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w[way].win)); break;
            default:
                MPI(MPI_Win_complete(w[way].win));
                MPI(MPI_Win_wait(w[way].win));
        }
    /* A call outside any epoch. */
    struct call c = some_call(target);
    same(make_call(&c, FAST), make_call(&c, LONG), "a call without an epoch");
}

/* Tags received from each process: their number and their sum. */
static void take_tags(int way, int64_t *number, int64_t *sum)
{
    MPI_Request r;
    MPI_Status s;
    for (int flag = 1; flag;) {
        MPI(MPIX_Notify_iprobe(w[way].win, MPI_ANY_SOURCE, MPI_ANY_TAG, &flag, &s));
        if (!flag)
            break;
        number[s.MPI_SOURCE]++;
        sum[s.MPI_SOURCE] += s.MPI_TAG;
        MPI(MPIX_Notify_init(w[way].win, s.MPI_SOURCE, s.MPI_TAG, 1, &r));
        MPI(MPI_Start(&r));
        MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
        MPI(MPI_Request_free(&r));
    }
}

static void compare(void)
{
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    size_t bytes = (size_t)ranks * BLOCK;
    EXPECT(!memcmp(w[FAST].base, w[LONG].base, bytes), "seed %llu, phase %d: memory differs",
           (unsigned long long)seed, phase);
    EXPECT(!memcmp(got[FAST], got[LONG], bytes), "seed %llu, phase %d: results differ",
           (unsigned long long)seed, phase);
    for (int counter = 0; counter < COUNTERS; counter++) {
        MPI_Count value[WAYS];
        for (int way = 0; way < WAYS; way++)
            MPI(MPIX_Win_get_notify_value(w[way].win, counter, &value[way]));
        EXPECT(value[FAST] == value[LONG], "seed %llu, phase %d: counter %d is %lld, and %lld",
               (unsigned long long)seed, phase, counter, (long long)value[FAST],
               (long long)value[LONG]);
    }
    int64_t *tags = calloc((size_t)ranks * 4, sizeof *tags), *other = tags + 2 * ranks;
    REQUIRE(tags);
    take_tags(FAST, tags, tags + ranks);
    take_tags(LONG, other, other + ranks);
    EXPECT(!memcmp(tags, other, sizeof *tags * 2 * (size_t)ranks),
           "seed %llu, phase %d: tags differ", (unsigned long long)seed, phase);
    free(tags);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc >= 2);
    int kind = strcmp(argv[1], "created") == 0, phases = argc > 2 ? atoi(argv[2]) : 100;
    seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
    all = seed, mine = seed * 1000003 + (uint64_t)me + 1;
    REQUIRE((touched = calloc((size_t)ranks, sizeof *touched)) != NULL);
    for (int way = 0; way < WAYS; way++) {
        MPI_Info info;
        REQUIRE((got[way] = calloc((size_t)ranks + 1, BLOCK)) != NULL);
        MPI(MPI_Info_create(&info));
        MPI(MPI_Info_set(info, "mpix_rma_fast_path", way == FAST ? "true" : "false"));
        w[way] = window_on(kind, (MPI_Aint)ranks * BLOCK, 1, info, MPI_COMM_WORLD);
        MPI(MPI_Info_free(&info));
        MPI(MPI_Win_set_errhandler(w[way].win, MPI_ERRORS_RETURN));
        MPI(MPIX_Win_set_num_notify(w[way].win, MPI_INFO_NULL, COUNTERS));
    }
    for (phase = 0; phase < phases; phase++) {
        for (int i = 0; i < BLOCK; i++)
            source[i] = (unsigned char)pick(256);
        run_epoch((enum epoch)(next_random(&all) % EPOCHS));
        compare();
    }
    for (int way = 0; way < WAYS; way++) {
        window_free(&w[way]);
        free(got[way]);
    }
    free(touched);
    return test_end();
}
