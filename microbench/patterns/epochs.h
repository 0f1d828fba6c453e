/* Epochs in the two forms that are compared. Closing calls take the slot that is stamped when the
 * epoch is complete: inside the call in the blocking form and in calm iterations, in finish() else. */
#ifndef EPOCHS_H
#define EPOCHS_H

#include "pattern.h"

typedef void closing(struct iteration *, int target, enum slot);

void open_exposure(struct iteration *, int origin);
void open_access(struct iteration *, int target);
void open_lock(struct iteration *, int target); /* exclusive */
void open_fence(struct iteration *);            /* returns when the fence is passed */

/* The rank is used by close_lock only. */
closing close_exposure, close_access, close_lock, close_fence;

/* Puts this iteration's bytes into the window of `target`, at the place of this rank. */
void put(struct iteration *, int target);

/* Closes an epoch and stays away for the delay: first away, inside the epoch, in the blocking form,
 * where closing early would mean waiting idly; first the close in the nonblocking form. */
void close_and_stay_away(struct iteration *, closing *, int target, enum slot);

/* Waits for what is pending, and stamps each epoch as it completes; then stamps ALL. */
void finish(struct iteration *);

void stamp(struct iteration *, enum slot);

#endif
