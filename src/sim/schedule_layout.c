/* What src/sim/schedule.rs repeats of schedule.h: a change there does not compile here. */
#include "schedule.h"

_Static_assert(SCHEDULE_END == 0 && SCHEDULE_POST == 1 && SCHEDULE_START == 2 &&
               SCHEDULE_PUT == 3, "kinds");
_Static_assert(SCHEDULE_ACCUMULATE == 4 && SCHEDULE_COMPLETE == 5 && SCHEDULE_WAIT == 6 &&
               SCHEDULE_LOCK == 7, "kinds");
_Static_assert(SCHEDULE_UNLOCK == 8 && SCHEDULE_AWAIT == 9 && SCHEDULE_COMPUTE == 10 &&
               SCHEDULE_GET == 11, "kinds");
_Static_assert(SCHEDULE_OTHERS == -1 && SCHEDULE_BLOCKING == 0 && SCHEDULE_NONBLOCKING == 1,
               "series");

_Static_assert(offsetof(schedule_step, disp) == 8 && offsetof(schedule_step, bytes) == 16, "step");
_Static_assert(offsetof(schedule_step, request) == 24 && offsetof(schedule_step, work) == 32,
               "step");
_Static_assert(offsetof(schedule_step, first) == 40 && offsetof(schedule_step, rows) == 48, "step");
_Static_assert(offsetof(schedule_step, amount) == 56 && offsetof(schedule_step, flops) == 64,
               "step");
_Static_assert(sizeof(schedule_step) == 72, "step");

_Static_assert(offsetof(schedule_lu_options, m) == 8 &&
               offsetof(schedule_lu_options, depth) == 16, "LU");
_Static_assert(offsetof(schedule_lu_options, ahead) == 24 &&
               offsetof(schedule_lu_options, series) == 28, "LU");
_Static_assert(sizeof(schedule_lu_options) == 32, "LU");

_Static_assert(offsetof(schedule_transactions_options, count) == 8, "transactions");
_Static_assert(offsetof(schedule_transactions_options, accounts) == 16, "transactions");
_Static_assert(offsetof(schedule_transactions_options, seed) == 24, "transactions");
_Static_assert(offsetof(schedule_transactions_options, window) == 32, "transactions");
_Static_assert(offsetof(schedule_transactions_options, flops) == 40, "transactions");
_Static_assert(offsetof(schedule_transactions_options, audits) == 48, "transactions");
_Static_assert(offsetof(schedule_transactions_options, series) == 52, "transactions");
_Static_assert(sizeof(schedule_transactions_options) == 56, "transactions");
