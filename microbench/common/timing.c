#define _GNU_SOURCE
#include "timing.h"

#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

void sleep_until_us(double when_us)
{
    if (when_us <= now_us())
        return;
    struct timespec t;
    t.tv_sec = (time_t)(when_us * 1e-6);
    t.tv_nsec = (long)((when_us - (double)t.tv_sec * 1e6) * 1e3);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

void sleep_for_us(double span_us)
{
    sleep_until_us(now_us() + span_us);
}

void yield_until_us(double when_us)
{
    while (now_us() < when_us)
        sched_yield();
}

double work_for_us(double span_us)
{
    double begin = now_us(), now = begin;
    while (now < begin + span_us)
        now = now_us();
    return now - begin;
}

void sharpen_timers(void)
{
    prctl(PR_SET_TIMERSLACK, 1UL);
}
