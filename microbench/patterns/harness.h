/*
 * Shared by the patterns: a common start, delays, verifiable bytes.
 *
 * Ranks may outnumber cores, and a host may spin without yielding. So a delayed or idle rank
 * sleeps, and waits outside the measured part alternate tests and sleep. Messages before the common
 * start order the ranks, never sleeping.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include "pattern.h"

#include <stdint.h>

/* Waits for a request, mostly asleep. */
void wait_politely(MPI_Request *, double nap_us);
/* Sleeps until a message from `source` can be received. */
void await_message(MPI_Comm, int source);
void barrier_politely(MPI_Comm, double nap_us);

/* Agrees on a time slightly ahead, after all ranks have arrived. */
double common_start(MPI_Comm);

/* Starts a role at the common start. */
void begin(struct iteration *);
/* Starts it late by the delay, asleep until then; on time in calm iterations. */
void begin_late(struct iteration *);
/* The delay of a process that has started: it does something else and makes no MPI call. Asleep,
 * because another rank may need its core. Nothing in calm iterations. */
void stay_away(struct iteration *);
/* The same with a CPU-bound activity. */
void work(struct iteration *);

void fill(char *bytes, size_t count, uint64_t seed);
uint64_t seed_of(int iteration, bool delayed, int origin);

/* Measures the wake-up time: a timer's overshoot for that delay, plus the time until a sleeping
 * rank sees a message. Collective over two ranks or more; all get the result. */
double measured_wake_us(MPI_Comm, double delay_us);

#endif
