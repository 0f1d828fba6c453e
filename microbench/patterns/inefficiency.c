/* The five inefficiency patterns of section VIII.A.1. */
#include "epochs.h"
#include "harness.h"

static const size_t FOUR_B_TO_ONE_MB[] = {4,    16,    64,    256,     1024,
                                          4096, 16384, 65536, 1 << 18, 1 << 20, 0};
static const size_t QUARTER_AND_ONE_MB[] = {1 << 18, 1 << 20, 0};
const size_t ONE_MB_ONLY[] = {1 << 20, 0};

/* Late Post: the target posts late, and the origin does something else after its epoch: a two-sided
 * transfer to a third process, which sleeps until the message comes. */
enum { LP_TARGET, LP_PARTNER, LP_ORIGIN };

static void late_post_target(struct iteration *it)
{
    begin_late(it);
    open_exposure(it, LP_ORIGIN);
    close_exposure(it, LP_ORIGIN, FIRST);
    finish(it);
}

static void late_post_partner(struct iteration *it)
{
    await_message(it->comm, LP_ORIGIN);
    MPI_Recv(it->message, (int)it->bytes, MPI_BYTE, LP_ORIGIN, 0, it->comm, MPI_STATUS_IGNORE);
}

static void late_post_origin(struct iteration *it)
{
    begin(it);
    open_access(it, LP_TARGET);
    put(it, LP_TARGET);
    close_access(it, LP_TARGET, FIRST);
    MPI_Send(it->source, (int)it->bytes, MPI_BYTE, LP_PARTNER, 0, it->comm);
    stamp(it, ACTIVITY);
    finish(it);
}

/* The other four have one origin and one target. */
enum { ORIGIN, TARGET };

/* Late Complete: the exposure is open before the start, so only the origin's delay inside its epoch
 * can cause a wait. */
static void late_complete_prepare(struct iteration *it)
{
    open_exposure(it, ORIGIN);
}

static void late_complete_target(struct iteration *it)
{
    begin(it);
    close_exposure(it, ORIGIN, FIRST);
    finish(it);
}

static void late_complete_origin(struct iteration *it)
{
    begin(it);
    open_access(it, TARGET);
    put(it, TARGET);
    close_and_stay_away(it, close_access, TARGET, FIRST);
    finish(it);
}

/* Early Fence: the target closes its fence epoch at once and then computes. */
static void early_fence_origin(struct iteration *it)
{
    begin(it);
    put(it, TARGET);
    close_fence(it, TARGET, FIRST);
    finish(it);
}

static void early_fence_target(struct iteration *it)
{
    begin(it);
    close_fence(it, ORIGIN, FIRST);
    stamp(it, ACTIVITY);
    work(it);
    finish(it);
}

/* Wait at Fence: the origin is away before it closes its fence epoch. */
static void wait_at_fence_origin(struct iteration *it)
{
    begin(it);
    put(it, TARGET);
    close_and_stay_away(it, close_fence, TARGET, FIRST);
    finish(it);
}

static void wait_at_fence_target(struct iteration *it)
{
    begin(it);
    close_fence(it, ORIGIN, FIRST);
    finish(it);
}

/* Late Unlock: the first origin locks before the start, so it is first in every series. The target
 * sleeps; hosts that need it to hand over the lock get it when it wakes to test. */
enum { LU_FIRST, LU_SECOND, LU_TARGET };

static void late_unlock_prepare(struct iteration *it)
{
    open_lock(it, LU_TARGET);
}

static void late_unlock_first(struct iteration *it)
{
    begin(it);
    put(it, LU_TARGET);
    close_and_stay_away(it, close_lock, LU_TARGET, FIRST);
    finish(it);
}

static void late_unlock_second(struct iteration *it)
{
    begin(it);
    open_lock(it, LU_TARGET);
    put(it, LU_TARGET);
    close_lock(it, LU_TARGET, FIRST);
    finish(it);
}

const struct pattern inefficiency_patterns[] = {
    {
        .name = "late_post", .figure = 2, .ranks = 3, .sizes = ONE_MB_ONLY,
        .delayed_rank = LP_TARGET,
        .role = {{NULL, late_post_target}, {NULL, late_post_partner}, {NULL, late_post_origin}},
        .transfers = 1, .transfer = {{LP_ORIGIN, LP_TARGET}},
        .metrics = 3,
        .metric = {{"origin_epoch", LP_ORIGIN, FIRST, with_delay, with_delay},
                   {"next_activity", LP_ORIGIN, ACTIVITY, with_delay, activity_alone},
                   {"cumulative", LP_ORIGIN, ALL, with_delay, activity_or_delayed_epoch}},
    },
    {
        .name = "late_complete", .figure = 3, .ranks = 2, .sizes = FOUR_B_TO_ONE_MB,
        .delayed_rank = ORIGIN,
        .role = {{NULL, late_complete_origin}, {late_complete_prepare, late_complete_target}},
        .transfers = 1, .transfer = {{ORIGIN, TARGET}},
        .metrics = 1,
        .metric = {{"target_epoch", TARGET, FIRST, with_delay, without_delay}},
    },
    {
        .name = "early_fence", .figure = 4, .ranks = 2, .sizes = QUARTER_AND_ONE_MB,
        .delayed_rank = TARGET,
        .role = {{open_fence, early_fence_origin}, {open_fence, early_fence_target}},
        .transfers = 1, .transfer = {{ORIGIN, TARGET}},
        .metrics = 2,
        .metric = {{"next_start", TARGET, ACTIVITY, without_delay, immediately},
                   {"cumulative", TARGET, ALL, with_delay, delay_or_epoch}},
    },
    {
        .name = "wait_at_fence", .figure = 5, .ranks = 2, .sizes = ONE_MB_ONLY,
        .delayed_rank = ORIGIN,
        .role = {{open_fence, wait_at_fence_origin}, {open_fence, wait_at_fence_target}},
        .transfers = 1, .transfer = {{ORIGIN, TARGET}},
        .metrics = 1,
        .metric = {{"target_epoch", TARGET, FIRST, with_delay, without_delay}},
    },
    {
        .name = "late_unlock", .figure = 6, .ranks = 3, .sizes = ONE_MB_ONLY, .passive = true,
        .delayed_rank = LU_FIRST,
        .role = {{late_unlock_prepare, late_unlock_first}, {NULL, late_unlock_second}},
        .transfers = 2, .transfer = {{LU_FIRST, LU_TARGET}, {LU_SECOND, LU_TARGET}},
        .metrics = 2,
        .metric = {{"first_lock", LU_FIRST, ALL, with_delay, with_delay},
                   {"second_lock", LU_SECOND, FIRST, with_delay, without_delay}},
    },
};
const int inefficiency_pattern_count =
    (int)(sizeof inefficiency_patterns / sizeof inefficiency_patterns[0]);
