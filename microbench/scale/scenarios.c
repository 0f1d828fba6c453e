/* The scenarios. Their timed parts are as short as in a user's program. */
#include "scale.h"

#include <string.h>

static int64_t seed; /* of the batch's data */

static int next_of(const struct bench *b)
{
    return (b->rank + 1) % b->ranks;
}

static MPI_Aint slot_of(int origin)
{
    return (MPI_Aint)origin * SLOT;
}

static int64_t *counter_of(const struct bench *b)
{
    return (int64_t *)(void *)(b->base + slot_of(b->ranks));
}

/* The word at `index` that `rank` sends. */
static int64_t word_of(int rank, size_t index)
{
    return seed + (int64_t)rank * 1000003 + (int64_t)index;
}

static void fill(char *memory, size_t bytes, int rank)
{
    int64_t *words = (int64_t *)(void *)memory;
    for (size_t k = 0; k < bytes / sizeof *words; k++)
        words[k] = word_of(rank, k);
}

static bool holds(const char *memory, size_t bytes, int rank)
{
    const int64_t *words = (const int64_t *)(const void *)memory;
    for (size_t k = 0; k < bytes / sizeof *words; k++)
        if (words[k] != word_of(rank, k))
            return false;
    return true;
}

void prepare(struct bench *b, size_t bytes, uint64_t batch)
{
    seed = (int64_t)(batch + 1) * 1000000007;
    b->sum = 0;
    fill(b->local, bytes, b->rank);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, b->rank, 0, b->win);
    memset(b->base, 0, (size_t)slot_of(b->ranks + 1));
    /* What others get. */
    fill(b->base + slot_of(b->rank), bytes, b->rank);
    MPI_Win_unlock(b->rank, b->win);
}

/* Each rank and its successor. */

static void put_flush(struct bench *b, size_t bytes, long rounds)
{
    int target = next_of(b);
    MPI_Aint slot = slot_of(b->rank);
    for (long i = 0; i < rounds; i++) {
        MPI_Put(b->local, (int)bytes, MPI_BYTE, target, slot, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_flush(target, b->win);
        lap(b);
    }
}

static void get_flush(struct bench *b, size_t bytes, long rounds)
{
    int target = next_of(b);
    MPI_Aint slot = slot_of(target);
    for (long i = 0; i < rounds; i++) {
        MPI_Get(b->local, (int)bytes, MPI_BYTE, target, slot, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_flush(target, b->win);
        lap(b);
    }
}

static void lock_all_put_unlock_all(struct bench *b, size_t bytes, long rounds)
{
    int target = next_of(b);
    MPI_Aint slot = slot_of(b->rank);
    for (long i = 0; i < rounds; i++) {
        MPI_Win_lock_all(0, b->win);
        MPI_Put(b->local, (int)bytes, MPI_BYTE, target, slot, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_unlock_all(b->win);
        lap(b);
    }
}

static void lock_put_unlock(struct bench *b, int mode, int target, size_t bytes, long rounds)
{
    MPI_Aint slot = slot_of(b->rank);
    for (long i = 0; i < rounds; i++) {
        MPI_Win_lock(mode, target, 0, b->win);
        MPI_Put(b->local, (int)bytes, MPI_BYTE, target, slot, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_unlock(target, b->win);
        lap(b);
    }
}

static void lock_next(struct bench *b, size_t bytes, long rounds)
{
    lock_put_unlock(b, MPI_LOCK_EXCLUSIVE, next_of(b), bytes, rounds);
}

static void post_start_ring(struct bench *b, size_t bytes, long rounds)
{
    int target = next_of(b);
    MPI_Aint slot = slot_of(b->rank);
    for (long i = 0; i < rounds; i++) {
        MPI_Win_post(b->before, 0, b->win);
        MPI_Win_start(b->behind, 0, b->win);
        MPI_Put(b->local, (int)bytes, MPI_BYTE, target, slot, (int)bytes, MPI_BYTE, b->win);
        MPI_Win_complete(b->win);
        MPI_Win_wait(b->win);
        lap(b);
    }
}

/* All ranks and one target. */

static void lock_one(struct bench *b, size_t bytes, long rounds)
{
    lock_put_unlock(b, MPI_LOCK_EXCLUSIVE, 0, bytes, rounds);
}

static void lock_one_shared(struct bench *b, size_t bytes, long rounds)
{
    lock_put_unlock(b, MPI_LOCK_SHARED, 0, bytes, rounds);
}

/* A critical section: the counter is right only if the locks exclude each other. */
static void increment_one(struct bench *b, size_t bytes, long rounds)
{
    int64_t value;
    MPI_Aint at = slot_of(b->ranks);
    (void)bytes;
    for (long i = 0; i < rounds; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, b->win);
        MPI_Get(&value, 1, MPI_INT64_T, 0, at, 1, MPI_INT64_T, b->win);
        MPI_Win_flush(0, b->win);
        value++;
        MPI_Put(&value, 1, MPI_INT64_T, 0, at, 1, MPI_INT64_T, b->win);
        MPI_Win_unlock(0, b->win);
        lap(b);
    }
}

static void fetch_and_op_one(struct bench *b, size_t bytes, long rounds)
{
    static const int64_t one = 1;
    int64_t value;
    (void)bytes;
    for (long i = 0; i < rounds; i++) {
        MPI_Fetch_and_op(&one, &value, MPI_INT64_T, 0, slot_of(b->ranks), MPI_SUM, b->win);
        MPI_Win_flush(0, b->win);
        b->sum += value;
        lap(b);
    }
}

static void accumulate_one(struct bench *b, size_t bytes, long rounds)
{
    static const int64_t one = 1;
    (void)bytes;
    for (long i = 0; i < rounds; i++) {
        MPI_Accumulate(&one, 1, MPI_INT64_T, 0, slot_of(b->ranks), 1, MPI_INT64_T, MPI_SUM, b->win);
        MPI_Win_flush(0, b->win);
        lap(b);
    }
}

/* All ranks and all others. */

static void put_to_others(struct bench *b, size_t bytes)
{
    for (int k = 1; k < b->ranks; k++)
        MPI_Put(b->local, (int)bytes, MPI_BYTE, (b->rank + k) % b->ranks, slot_of(b->rank),
                (int)bytes, MPI_BYTE, b->win);
}

static void all_put_flush(struct bench *b, size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        put_to_others(b, bytes);
        MPI_Win_flush_all(b->win);
        lap(b);
    }
}

static void all_put_fence(struct bench *b, size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        put_to_others(b, bytes);
        MPI_Win_fence(0, b->win);
        lap(b);
    }
}

static void all_put_complete(struct bench *b, size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Win_post(b->others, 0, b->win);
        MPI_Win_start(b->others, 0, b->win);
        put_to_others(b, bytes);
        MPI_Win_complete(b->win);
        MPI_Win_wait(b->win);
        lap(b);
    }
}

static void fence(struct bench *b, size_t bytes, long rounds)
{
    (void)bytes;
    for (long i = 0; i < rounds; i++) {
        MPI_Win_fence(0, b->win);
        lap(b);
    }
}

/* Around the timed part. */

static void enter_fence(struct bench *b)
{
    MPI_Win_fence(MPI_MODE_NOPRECEDE, b->win);
}

static void leave_fence(struct bench *b)
{
    MPI_Win_fence(MPI_MODE_NOSUCCEED, b->win);
}

static void enter_all(struct bench *b)
{
    MPI_Win_lock_all(0, b->win);
}

static void leave_all(struct bench *b)
{
    MPI_Win_unlock_all(b->win);
}

/* Checks. */

static bool nothing(struct bench *b, size_t bytes, long rounds)
{
    (void)b, (void)bytes, (void)rounds;
    return true;
}

static bool before_has_put(struct bench *b, size_t bytes, long rounds)
{
    int before = (b->rank + b->ranks - 1) % b->ranks;
    (void)rounds;
    return holds(b->base + slot_of(before), bytes, before);
}

static bool next_was_got(struct bench *b, size_t bytes, long rounds)
{
    (void)rounds;
    return holds(b->local, bytes, next_of(b));
}

static bool others_have_put(struct bench *b, size_t bytes, long rounds)
{
    bool right = true;
    (void)rounds;
    for (int origin = 0; origin < b->ranks; origin++)
        right &= holds(b->base + slot_of(origin), bytes, origin);
    return right;
}

static bool all_have_put_to_one(struct bench *b, size_t bytes, long rounds)
{
    return b->rank != 0 || others_have_put(b, bytes, rounds);
}

static bool counter_is_right(struct bench *b, size_t bytes, long rounds)
{
    (void)bytes;
    return b->rank != 0 || *counter_of(b) == (int64_t)b->ranks * rounds;
}

/* Each value of the counter was fetched once. */
static bool fetched_are_right(struct bench *b, size_t bytes, long rounds)
{
    int64_t sum, all = (int64_t)b->ranks * rounds;
    MPI_Allreduce(&b->sum, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum == all * (all - 1) / 2 && counter_is_right(b, bytes, rounds);
}

#define FENCED enter_fence, leave_fence
#define LOCKED enter_all, leave_all
#define OUTSIDE NULL, NULL

const struct scenario scenarios[] = {
    {"put_flush_8", 8, put_flush, LOCKED, before_has_put, 1},
    {"put_flush_4096", 4096, put_flush, LOCKED, before_has_put, 1},
    {"put_flush_65536", 65536, put_flush, LOCKED, before_has_put, 1},
    {"get_flush_8", 8, get_flush, LOCKED, next_was_got, 1},
    {"get_flush_4096", 4096, get_flush, LOCKED, next_was_got, 1},
    {"lock_all_put_unlock_all_8", 8, lock_all_put_unlock_all, OUTSIDE, before_has_put, 1},
    {"lock_next_put_unlock_8", 8, lock_next, OUTSIDE, before_has_put, 1},
    {"lock_shared_one_target_put_unlock_8", 8, lock_one_shared, OUTSIDE, all_have_put_to_one, 1},
    {"lock_one_target_put_unlock_8", 8, lock_one, OUTSIDE, all_have_put_to_one, 1},
    {"lock_one_target_increment_unlock", 8, increment_one, OUTSIDE, counter_is_right, 1},
    {"fetch_and_op_one_counter", 8, fetch_and_op_one, LOCKED, fetched_are_right, 1},
    {"accumulate_one_counter", 8, accumulate_one, LOCKED, counter_is_right, 1},
    {"all_to_all_put_flush_8", 8, all_put_flush, LOCKED, others_have_put, 2},
    {"all_to_all_put_flush_4096", 4096, all_put_flush, LOCKED, others_have_put, 2},
    {"fence", 8, fence, FENCED, nothing, 1},
    {"all_to_all_put_fence_8", 8, all_put_fence, FENCED, others_have_put, 2},
    {"all_to_all_put_fence_4096", 4096, all_put_fence, FENCED, others_have_put, 2},
    {"ring_post_start_put_complete_wait_8", 8, post_start_ring, OUTSIDE, before_has_put, 2},
    {"all_to_all_post_start_put_complete_wait_8", 8, all_put_complete, OUTSIDE, others_have_put, 2},
};
const int scenario_count = (int)(sizeof scenarios / sizeof scenarios[0]);
