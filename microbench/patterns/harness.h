/* What the patterns need besides epochs: a common start, lateness, bytes that can be checked.
 *
 * Ranks may outnumber cores, and a host may spin without yielding. So whoever is late or idle really
 * sleeps, and waits for anything outside the measured part by testing and sleeping in turns. Order
 * between ranks comes from messages before the common start, never from sleeping. */
#ifndef HARNESS_H
#define HARNESS_H

#include "pattern.h"

#include <stdint.h>

/* Waits for a request, asleep most of the time. */
void wait_politely(MPI_Request *, double nap_us);
/* Sleeps until a message from `source` can be received. */
void await_message(MPI_Comm, int source);
void barrier_politely(MPI_Comm, double nap_us);

/* Agrees on a moment a little ahead, after everybody has arrived. */
double common_start(MPI_Comm);

/* Begins a role at the common start. */
void begin(struct iteration *);
/* Begins it late by the delay, asleep until then. On time in calm iterations. */
void begin_late(struct iteration *);
/* The delay of a process that has begun: it does something else and calls no MPI. Asleep, because its
 * core may be needed by another rank. Nothing in calm iterations. */
void stay_away(struct iteration *);
/* The same with a CPU-bound activity. */
void work(struct iteration *);

void fill(char *bytes, size_t count, uint64_t seed);
uint64_t seed_of(int iteration, bool delayed, int origin);

/* Time to wake up, measured: a timer's overshoot for that delay, plus what a sleeping rank takes
 * to see a message. Collective over two ranks or more; the result is everywhere. */
double measured_wake_us(MPI_Comm, double delay_us);

#endif
