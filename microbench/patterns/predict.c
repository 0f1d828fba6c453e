/*
 * Predictions by the paper, from transfer times measured in the calm iterations of the same run.
 *
 * The paper's terms: t0 is the closing call, D_p the delay, D_tr the transfer, e the cost of
 * closing. A calm epoch takes D_tr + e, so the measured median stands for that sum.
 */
#include "pattern.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double calm_of(const struct calm *c, const struct metric *m)
{
    return c->median[m->rank][m->slot];
}

/* Equation 1: t0 + D_p + D_tr + e. The delay propagates. */
double with_delay(const struct calm *c, const struct metric *m)
{
    return c->delay_us + calm_of(c, m);
}

/* Equation 3, t0 + D_tr + e, and every case in which the delay does not propagate. */
double without_delay(const struct calm *c, const struct metric *m)
{
    return calm_of(c, m);
}

/* Equation 2: t0 + e. The next activity starts at once; e is within the tolerance. */
double immediately(const struct calm *c, const struct metric *m)
{
    (void)c, (void)m;
    return 0.0;
}

/* Equation 2 for an activity that is measured at its end: only its own duration remains. */
double activity_alone(const struct calm *c, const struct metric *m)
{
    return c->median[m->rank][ACTIVITY] - c->median[m->rank][FIRST];
}

/* The activity overlaps the delayed epoch: the longer of the two. */
double activity_or_delayed_epoch(const struct calm *c, const struct metric *m)
{
    return larger(activity_alone(c, m), c->delay_us + c->median[m->rank][FIRST]);
}

/* The work overlaps the transfer of an epoch that is not late: the longer of the two. */
double delay_or_epoch(const struct calm *c, const struct metric *m)
{
    return larger(c->delay_us, c->median[m->rank][FIRST]);
}

/* The middle rank's second epoch overtakes its delayed first one: its own time only. */
double second_alone(const struct calm *c, const struct metric *m)
{
    (void)m;
    return c->median[c->middle][SECOND] - c->median[c->middle][FIRST];
}

/* The first epoch's delay hides the second epoch: both take as long as the first. */
double delay_and_first(const struct calm *c, const struct metric *m)
{
    (void)m;
    return c->delay_us + c->median[c->middle][FIRST];
}
