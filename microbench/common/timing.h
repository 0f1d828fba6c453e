/* Clock, sleeping and working. All times are microseconds on CLOCK_MONOTONIC, which the processes
 * of one node share, so stamps of different ranks may be compared. */
#ifndef MICROBENCH_TIMING_H
#define MICROBENCH_TIMING_H

double now_us(void);

/* Really sleeps: the core is free for other ranks. Returns after the moment, never before. */
void sleep_until_us(double when_us);
void sleep_for_us(double span_us);

/* Waits awake, but lets other runnable ranks have the core. */
void yield_until_us(double when_us);

/* A CPU-bound activity of that length that calls nothing. Returns its measured length. */
double work_for_us(double span_us);

/* Asks the kernel for exact timers: by default it may wake a sleeper 50 us late. */
void sharpen_timers(void);

#endif
