/*
 * Epochs in the two forms to compare. Closing calls take the slot that is stamped when the epoch is
 * complete: inside the call in the blocking form and in calm iterations, else in finish().
 */
#ifndef EPOCHS_H
#define EPOCHS_H

#include "pattern.h"

typedef void closing(struct iteration *, int target, enum slot);

void open_exposure(struct iteration *, int origin);
void open_access(struct iteration *, int target);
void open_lock(struct iteration *, int target); /* exclusive */
void open_fence(struct iteration *);            /* returns when the fence is passed */

/* Only close_lock uses the rank. */
closing close_exposure, close_access, close_lock, close_fence;

/* Puts this iteration's bytes into this rank's part of the window of `target`. */
void put(struct iteration *, int target);

/* Closes an epoch and is away for the delay. Blocking form: away inside the epoch, then close,
 * since closing first would wait idly. Nonblocking form: close first. */
void close_and_stay_away(struct iteration *, closing *, int target, enum slot);

/* Waits for pending epochs, stamps each as it completes, then stamps ALL. */
void finish(struct iteration *);

void stamp(struct iteration *, enum slot);

#endif
