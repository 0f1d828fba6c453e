/* Clock, sleeping and working. All times are microseconds on CLOCK_MONOTONIC, which the processes
 * of one node share, so stamps of different ranks may be compared. */
#ifndef MICROBENCH_TIMING_H
#define MICROBENCH_TIMING_H

double now_us(void);

/* Sleeps, so that other ranks may use the core. Never returns early. */
void sleep_until_us(double when_us);
void sleep_for_us(double span_us);

/* Polls the clock, but yields to other runnable ranks. */
void yield_until_us(double when_us);

/* Computes for that long without calling MPI. Returns the measured time. */
double work_for_us(double span_us);

/* Requests exact timers; by default the kernel may wake a sleeper 50 us late. */
void sharpen_timers(void);

#endif
