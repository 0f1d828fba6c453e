/* The scenarios, as table entries. Their timed parts are as short as in a user's program. */
#include "latency.h"

#include <math.h>

enum { PUTS_PER_FLUSH = 1000 };

/* Both ranks take part. */

void enter_fence(struct bench *b)
{
    MPI_Win_fence(MPI_MODE_NOPRECEDE, b->win);
}

void leave_fence(struct bench *b)
{
    MPI_Win_fence(MPI_MODE_NOSUCCEED, b->win);
}

static void fence_origin(struct bench *b, size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Put(b->local, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_fence(0, b->win);
        lap(b);
    }
}

static void fence_target(struct bench *b, size_t bytes, long rounds)
{
    (void)bytes;
    for (long i = 0; i < rounds; i++)
        MPI_Win_fence(0, b->win);
}

static void access_origin(struct bench *b, size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Win_start(b->peer, 0, b->win);
        MPI_Put(b->local, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_complete(b->win);
        lap(b);
    }
}

static void exposure_target(struct bench *b, size_t bytes, long rounds)
{
    (void)bytes;
    for (long i = 0; i < rounds; i++) {
        MPI_Win_post(b->peer, 0, b->win);
        MPI_Win_wait(b->win);
    }
}

static void lock_put_unlock(struct bench *b, int mode, size_t bytes, long rounds)
{
    MPI_Aint place = (MPI_Aint)b->rank * LARGEST;
    for (long i = 0; i < rounds; i++) {
        MPI_Win_lock(mode, TARGET, 0, b->win);
        MPI_Put(b->local, (int)bytes, MPI_BYTE, TARGET, place, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_unlock(TARGET, b->win);
        lap(b);
    }
}

static void lock_shared(struct bench *b, size_t bytes, long rounds)
{
    lock_put_unlock(b, MPI_LOCK_SHARED, bytes, rounds);
}

static void lock_exclusive(struct bench *b, size_t bytes, long rounds)
{
    lock_put_unlock(b, MPI_LOCK_EXCLUSIVE, bytes, rounds);
}

/* Only the origin, inside one shared lock. */

void enter_shared(struct bench *b)
{
    if (b->rank == ORIGIN)
        MPI_Win_lock(MPI_LOCK_SHARED, TARGET, 0, b->win);
}

void leave_shared(struct bench *b)
{
    if (b->rank == ORIGIN)
        MPI_Win_unlock(TARGET, b->win);
}

static void put_flush(struct bench *b, size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Put(b->local, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_flush(TARGET, b->win);
        lap(b);
    }
}

static void get_flush(struct bench *b, size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Get(b->local, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_flush(TARGET, b->win);
        lap(b);
    }
}

/* Into a buffer that lies in its page like a large one of malloc. */
enum { BEHIND = 16 };

static void get_malloc_flush(struct bench *b, size_t bytes, long rounds)
{
    b->local += BEHIND;
    get_flush(b, bytes, rounds);
    b->local -= BEHIND;
}

static bool get_malloc_is_right(struct bench *b, size_t bytes, uint64_t batch, long rounds)
{
    b->local += BEHIND;
    bool right = get_is_right(b, bytes, batch, rounds);
    b->local -= BEHIND;
    return right;
}

static void many_puts_flush(struct bench *b, size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < PUTS_PER_FLUSH; k++)
            MPI_Put(b->local, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_flush(TARGET, b->win);
    }
}

static void fetch_and_op_flush(struct bench *b, size_t bytes, long rounds)
{
    static const int64_t one = 1;
    (void)bytes;
    for (long i = 0; i < rounds; i++) {
        MPI_Fetch_and_op(&one, &b->last, MPI_INT64_T, TARGET, 0, MPI_SUM, b->win);
        MPI_Win_flush(TARGET, b->win);
        lap(b);
    }
}

static void accumulate_flush(struct bench *b, size_t bytes, long rounds)
{
    int count = (int)(bytes / sizeof(int64_t));
    for (long i = 0; i < rounds; i++) {
        MPI_Accumulate(b->local, count, MPI_INT64_T, TARGET, 0, count, MPI_INT64_T, MPI_SUM,
                       b->win);
        MPI_Win_flush(TARGET, b->win);
        lap(b);
    }
}

static void get_accumulate_flush(struct bench *b, size_t bytes, long rounds)
{
    int count = (int)(bytes / sizeof(int64_t));
    for (long i = 0; i < rounds; i++) {
        MPI_Get_accumulate(b->local, count, MPI_INT64_T, b->local + LARGEST / 2, count, MPI_INT64_T,
                           TARGET, 0, count, MPI_INT64_T, MPI_SUM, b->win);
        MPI_Win_flush(TARGET, b->win);
        lap(b);
    }
}

/* Only the origin; each round is an epoch that covers all targets. */
static void lock_all_put_flush_unlock_all(struct bench *b, size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Win_lock_all(0, b->win);
        MPI_Put(b->local, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_flush(TARGET, b->win);
        MPI_Win_unlock_all(b->win);
        lap(b);
    }
}

static void enter_all(struct bench *b)
{
    if (b->rank == ORIGIN)
        MPI_Win_lock_all(0, b->win);
}

static void leave_all(struct bench *b)
{
    if (b->rank == ORIGIN)
        MPI_Win_unlock_all(b->win);
}

/* A column of a matrix: every other block of 8 bytes, on both sides. */

static MPI_Datatype column;

static void enter_strided(struct bench *b)
{
    MPI_Type_vector(STRIDED_BLOCKS, 1, 2, MPI_INT64_T, &column);
    MPI_Type_commit(&column);
    enter_shared(b);
}

static void leave_strided(struct bench *b)
{
    leave_shared(b);
    MPI_Type_free(&column);
}

static void put_strided_flush(struct bench *b, size_t bytes, long rounds)
{
    (void)bytes;
    for (long i = 0; i < rounds; i++) {
        MPI_Put(b->local, 1, column, TARGET, 0, 1, column, b->win);
        MPI_Win_flush(TARGET, b->win);
        lap(b);
    }
}

static void get_strided_flush(struct bench *b, size_t bytes, long rounds)
{
    (void)bytes;
    for (long i = 0; i < rounds; i++) {
        MPI_Get(b->local, 1, column, TARGET, 0, 1, column, b->win);
        MPI_Win_flush(TARGET, b->win);
        lap(b);
    }
}

static void accumulate_strided_flush(struct bench *b, size_t bytes, long rounds)
{
    (void)bytes;
    for (long i = 0; i < rounds; i++) {
        MPI_Accumulate(b->local, 1, column, TARGET, 0, 1, column, MPI_SUM, b->win);
        MPI_Win_flush(TARGET, b->win);
        lap(b);
    }
}

/* Limits. Memory of created windows is reached by a system call, or by a request to the target: a
 * cache line there and back. */

static double moved(const struct limits *l, enum window_kind kind, enum sized size)
{
    if (kind == ALLOCATED)
        return l->copy[size];
    double asked = 2 * l->half_round_trip + l->copy[size];
    return l->attached_copy[size] < 0 ? asked : fmin(l->attached_copy[size], asked);
}

static double one_way(const struct limits *l, enum window_kind kind, enum sized size)
{
    (void)kind, (void)size;
    return l->half_round_trip;
}

static double there_and_back(const struct limits *l, enum window_kind kind, enum sized size)
{
    (void)kind, (void)size;
    return 2 * l->half_round_trip;
}

static double two_atomics_and_move(const struct limits *l, enum window_kind kind, enum sized size)
{
    return 2 * l->atomic + moved(l, kind, size);
}

static double atomic_or_asked(const struct limits *l, enum window_kind kind, enum sized size)
{
    (void)size;
    return kind == ALLOCATED ? l->atomic : 2 * l->half_round_trip;
}

/* Many puts share one request, so copying alone limits created windows too. */
static double copies(const struct limits *l, enum window_kind kind, enum sized size)
{
    (void)kind;
    return 1.0 / l->copy[size];
}

/* Each block is copied separately. */
static double blocks_moved(const struct limits *l, enum window_kind kind, enum sized size)
{
    return moved(l, kind, size) + (STRIDED_BLOCKS - 1) * l->copy[size];
}

#define FENCED enter_fence, leave_fence
#define LOCKED enter_shared, leave_shared
#define LOCKED_ALL enter_all, leave_all
#define STRIDED enter_strided, leave_strided
#define OUTSIDE NULL, NULL

const struct scenario scenarios[] = {
    {"fence_put_8", BYTES_8, TIME, 1, {fence_origin, fence_target}, FENCED, prepare_put,
     put_is_right, one_way},
    {"post_start_put_complete_wait_8", BYTES_8, TIME, 1, {access_origin, exposure_target}, OUTSIDE,
     prepare_put, put_is_right, there_and_back},
    {"lock_shared_put_unlock_8", BYTES_8, TIME, 1, {lock_shared, NULL}, OUTSIDE, prepare_put,
     put_is_right, two_atomics_and_move},
    {"lock_exclusive_put_unlock_8", BYTES_8, TIME, 1, {lock_exclusive, NULL}, OUTSIDE, prepare_put,
     put_is_right, two_atomics_and_move},
    {"lock_contended_put_unlock_8", BYTES_8, TIME_OF_BOTH, 1, {lock_exclusive, lock_exclusive},
     OUTSIDE, prepare_put, contended_put_is_right, two_atomics_and_move},
    {"put_flush_8", BYTES_8, TIME, 1, {put_flush, NULL}, LOCKED, prepare_put, put_is_right, moved},
    {"put_flush_4096", BYTES_4K, TIME, 1, {put_flush, NULL}, LOCKED, prepare_put, put_is_right,
     moved},
    {"put_flush_65536", BYTES_64K, TIME, 1, {put_flush, NULL}, LOCKED, prepare_put, put_is_right,
     moved},
    {"put_flush_1048576", BYTES_1M, TIME, 1, {put_flush, NULL}, LOCKED, prepare_put, put_is_right,
     moved},
    {"get_flush_8", BYTES_8, TIME, 1, {get_flush, NULL}, LOCKED, prepare_get, get_is_right, moved},
    {"get_flush_4096", BYTES_4K, TIME, 1, {get_flush, NULL}, LOCKED, prepare_get, get_is_right,
     moved},
    {"get_flush_65536", BYTES_64K, TIME, 1, {get_flush, NULL}, LOCKED, prepare_get, get_is_right,
     moved},
    {"get_flush_1048576", BYTES_1M, TIME, 1, {get_flush, NULL}, LOCKED, prepare_get, get_is_right,
     moved},
    {"get_malloc_flush_65536", BYTES_64K, TIME, 1, {get_malloc_flush, NULL}, LOCKED, prepare_get,
     get_malloc_is_right, moved},
    {"put_rate_8", BYTES_8, RATE, PUTS_PER_FLUSH, {many_puts_flush, NULL}, LOCKED, prepare_put,
     put_is_right, copies},
    {"put_strided_1000x8_flush", BYTES_8, TIME, 1, {put_strided_flush, NULL}, STRIDED,
     prepare_strided, strided_put_is_right, blocks_moved},
    {"get_strided_1000x8_flush", BYTES_8, TIME, 1, {get_strided_flush, NULL}, STRIDED,
     prepare_strided, strided_get_is_right, blocks_moved},
    {"accumulate_strided_1000x8_flush", BYTES_8, TIME, 1, {accumulate_strided_flush, NULL}, STRIDED,
     prepare_strided_sum, strided_sum_is_right, blocks_moved},
    {"fetch_and_op_flush_8", BYTES_8, TIME, 1, {fetch_and_op_flush, NULL}, LOCKED, prepare_sum,
     fetch_is_right, atomic_or_asked},
    {"accumulate_flush_8", BYTES_8, TIME, 1, {accumulate_flush, NULL}, LOCKED, prepare_sum,
     sum_is_right, atomic_or_asked},
    {"accumulate_flush_65536", BYTES_64K, TIME, 1, {accumulate_flush, NULL}, LOCKED, prepare_sum,
     sum_is_right, moved},
    {"get_accumulate_flush_8", BYTES_8, TIME, 1, {get_accumulate_flush, NULL}, LOCKED, prepare_sum,
     get_accumulate_is_right, atomic_or_asked},
    {"get_accumulate_flush_65536", BYTES_64K, TIME, 1, {get_accumulate_flush, NULL}, LOCKED,
     prepare_sum, get_accumulate_is_right, moved},
    {"lock_all_put_flush_unlock_all_8", BYTES_8, TIME, 1, {lock_all_put_flush_unlock_all, NULL},
     OUTSIDE, prepare_put, put_is_right, two_atomics_and_move},
    {"within_lock_all_put_flush_8", BYTES_8, TIME, 1, {put_flush, NULL}, LOCKED_ALL, prepare_put,
     put_is_right, moved},
};
const int scenario_count = (int)(sizeof scenarios / sizeof scenarios[0]);
