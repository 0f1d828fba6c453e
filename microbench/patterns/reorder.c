/*
 * The five patterns of section VIII.A.2: a reorder flag off and on, nonblocking calls only.
 *
 * In each, a process in the middle has two epochs, and the partner of the first one is late. With
 * the flag off, the second epoch waits for the first and passes the delay on; with the flag on, it
 * overtakes.
 */
#include "epochs.h"
#include "harness.h"

/* An exposure to one peer, or an access epoch with one put to it. */
static void expose_to(struct iteration *it, int origin, enum slot slot)
{
    open_exposure(it, origin);
    close_exposure(it, origin, slot);
}

static void access_to(struct iteration *it, int target, enum slot slot)
{
    open_access(it, target);
    put(it, target);
    close_access(it, target, slot);
}

static void lock_to(struct iteration *it, int target, enum slot slot)
{
    open_lock(it, target);
    put(it, target);
    close_lock(it, target, slot);
}

/* A_A_A_R, GATS: one origin, two targets; the first target is late. */
enum { AAG_ORIGIN, AAG_LATE, AAG_SECOND };

static void aaar_gats_origin(struct iteration *it)
{
    begin(it);
    access_to(it, AAG_LATE, FIRST);
    access_to(it, AAG_SECOND, SECOND);
    finish(it);
}

static void aaar_gats_late(struct iteration *it)
{
    begin_late(it);
    expose_to(it, AAG_ORIGIN, FIRST);
    finish(it);
}

static void aaar_gats_second(struct iteration *it)
{
    begin(it);
    expose_to(it, AAG_ORIGIN, FIRST);
    finish(it);
}

/* A_A_A_R, locks: two origins, two sleeping targets. The holder locks the first target before the
 * start and is away before it unlocks. */
enum { AAL_HOLDER, AAL_ORIGIN, AAL_HELD, AAL_FREE };

static void aaar_lock_prepare(struct iteration *it)
{
    open_lock(it, AAL_HELD);
}

static void aaar_lock_holder(struct iteration *it)
{
    begin(it);
    put(it, AAL_HELD);
    stay_away(it);
    close_lock(it, AAL_HELD, FIRST);
    finish(it);
}

static void aaar_lock_origin(struct iteration *it)
{
    begin(it);
    lock_to(it, AAL_HELD, FIRST);
    lock_to(it, AAL_FREE, SECOND);
    finish(it);
}

/* A_A_E_R: the middle process is a target of the late one, then an origin. */
enum { AE_LATE, AE_TARGET, AE_MIDDLE };

static void aaer_late(struct iteration *it)
{
    begin_late(it);
    access_to(it, AE_MIDDLE, FIRST);
    finish(it);
}

static void aaer_target(struct iteration *it)
{
    begin(it);
    expose_to(it, AE_MIDDLE, FIRST);
    finish(it);
}

static void aaer_middle(struct iteration *it)
{
    begin(it);
    expose_to(it, AE_LATE, FIRST);
    access_to(it, AE_TARGET, SECOND);
    finish(it);
}

/* E_A_E_R: a target exposes its window to the late origin, then to the other one. */
enum { EE_LATE, EE_ORIGIN, EE_TARGET };

static void eaer_late(struct iteration *it)
{
    begin_late(it);
    access_to(it, EE_TARGET, FIRST);
    finish(it);
}

static void eaer_origin(struct iteration *it)
{
    begin(it);
    access_to(it, EE_TARGET, FIRST);
    finish(it);
}

static void eaer_target(struct iteration *it)
{
    begin(it);
    expose_to(it, EE_LATE, FIRST);
    expose_to(it, EE_ORIGIN, SECOND);
    finish(it);
}

/* E_A_A_R: the middle process is an origin to the late one, then a target. */
enum { EA_LATE, EA_ORIGIN, EA_MIDDLE };

static void eaar_late(struct iteration *it)
{
    begin_late(it);
    expose_to(it, EA_MIDDLE, FIRST);
    finish(it);
}

static void eaar_origin(struct iteration *it)
{
    begin(it);
    access_to(it, EA_MIDDLE, FIRST);
    finish(it);
}

static void eaar_middle(struct iteration *it)
{
    begin(it);
    access_to(it, EA_LATE, FIRST);
    expose_to(it, EA_ORIGIN, SECOND);
    finish(it);
}

const struct pattern reorder_patterns[] = {
    {
        .name = "aaar_gats", .figure = 7, .ranks = 3, .sizes = ONE_MB_ONLY,
        .reorder_key = "mpix_win_access_after_access_reorder",
        .delayed_rank = AAG_LATE, .middle_rank = AAG_ORIGIN,
        .role = {{NULL, aaar_gats_origin}, {NULL, aaar_gats_late}, {NULL, aaar_gats_second}},
        .transfers = 2, .transfer = {{AAG_ORIGIN, AAG_LATE}, {AAG_ORIGIN, AAG_SECOND}},
        .metrics = 2,
        .metric = {{"target_epoch", AAG_SECOND, FIRST, with_delay, second_alone},
                   {"cumulative", AAG_ORIGIN, ALL, with_delay, delay_and_first}},
    },
    {
        .name = "aaar_lock", .figure = 8, .ranks = 4, .sizes = ONE_MB_ONLY, .passive = true,
        .reorder_key = "mpix_win_access_after_access_reorder",
        .delayed_rank = AAL_HOLDER, .middle_rank = AAL_ORIGIN,
        .role = {{aaar_lock_prepare, aaar_lock_holder}, {NULL, aaar_lock_origin}},
        .transfers = 3,
        .transfer = {{AAL_HOLDER, AAL_HELD}, {AAL_ORIGIN, AAL_HELD}, {AAL_ORIGIN, AAL_FREE}},
        .metrics = 2,
        .metric = {{"second_lock", AAL_ORIGIN, SECOND, with_delay, second_alone},
                   {"cumulative", AAL_ORIGIN, ALL, with_delay, delay_and_first}},
    },
    {
        .name = "aaer", .figure = 9, .ranks = 3, .sizes = ONE_MB_ONLY,
        .reorder_key = "mpix_win_access_after_exposure_reorder",
        .delayed_rank = AE_LATE, .middle_rank = AE_MIDDLE,
        .role = {{NULL, aaer_late}, {NULL, aaer_target}, {NULL, aaer_middle}},
        .transfers = 2, .transfer = {{AE_LATE, AE_MIDDLE}, {AE_MIDDLE, AE_TARGET}},
        .metrics = 2,
        .metric = {{"target_epoch", AE_TARGET, FIRST, with_delay, second_alone},
                   {"cumulative", AE_MIDDLE, ALL, with_delay, delay_and_first}},
    },
    {
        .name = "eaer", .figure = 10, .ranks = 3, .sizes = ONE_MB_ONLY,
        .reorder_key = "mpix_win_exposure_after_exposure_reorder",
        .delayed_rank = EE_LATE, .middle_rank = EE_TARGET,
        .role = {{NULL, eaer_late}, {NULL, eaer_origin}, {NULL, eaer_target}},
        .transfers = 2, .transfer = {{EE_LATE, EE_TARGET}, {EE_ORIGIN, EE_TARGET}},
        .metrics = 2,
        .metric = {{"origin_epoch", EE_ORIGIN, FIRST, with_delay, second_alone},
                   {"cumulative", EE_TARGET, ALL, with_delay, delay_and_first}},
    },
    {
        .name = "eaar", .figure = 11, .ranks = 3, .sizes = ONE_MB_ONLY,
        .reorder_key = "mpix_win_exposure_after_access_reorder",
        .delayed_rank = EA_LATE, .middle_rank = EA_MIDDLE,
        .role = {{NULL, eaar_late}, {NULL, eaar_origin}, {NULL, eaar_middle}},
        .transfers = 2, .transfer = {{EA_MIDDLE, EA_LATE}, {EA_ORIGIN, EA_MIDDLE}},
        .metrics = 2,
        .metric = {{"origin_epoch", EA_ORIGIN, FIRST, with_delay, second_alone},
                   {"cumulative", EA_MIDDLE, ALL, with_delay, delay_and_first}},
    },
};
const int reorder_pattern_count = (int)(sizeof reorder_patterns / sizeof reorder_patterns[0]);
