#include "epochs.h"

#include "../common/timing.h"
#include "harness.h"

#include <stdlib.h>

#ifdef PLAIN_HOST
/* Without the library there are no nonblocking calls, and no series needs them. */
#define NONBLOCKING_FORM(call) abort()
#else
#include <mpix_rma.h>
#define NONBLOCKING_FORM(call) call
#endif

void stamp(struct iteration *it, enum slot slot)
{
    it->stamp[slot] = now_us() - it->start_us;
}

/* Opening requests are complete at once (a fence's when the fence is passed); this frees the
 * handle. */
static void opened(MPI_Request *opening)
{
    MPI_Wait(opening, MPI_STATUS_IGNORE);
}

void open_exposure(struct iteration *it, int origin)
{
    if (it->nonblocking) {
        MPI_Request opening = MPI_REQUEST_NULL;
        NONBLOCKING_FORM(MPIX_Win_ipost(it->group[origin], 0, it->win, &opening));
        opened(&opening);
    } else {
        MPI_Win_post(it->group[origin], 0, it->win);
    }
}

void open_access(struct iteration *it, int target)
{
    if (it->nonblocking) {
        MPI_Request opening = MPI_REQUEST_NULL;
        NONBLOCKING_FORM(MPIX_Win_istart(it->group[target], 0, it->win, &opening));
        opened(&opening);
    } else {
        MPI_Win_start(it->group[target], 0, it->win);
    }
}

void open_lock(struct iteration *it, int target)
{
    if (it->nonblocking) {
        MPI_Request opening = MPI_REQUEST_NULL;
        NONBLOCKING_FORM(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, target, 0, it->win, &opening));
        opened(&opening);
    } else {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, it->win);
    }
}

void open_fence(struct iteration *it)
{
    if (it->nonblocking) {
        MPI_Request opening = MPI_REQUEST_NULL;
        NONBLOCKING_FORM(MPIX_Win_ifence(MPI_MODE_NOPRECEDE, it->win, &opening));
        opened(&opening);
    } else {
        MPI_Win_fence(MPI_MODE_NOPRECEDE, it->win);
    }
}

void put(struct iteration *it, int target)
{
    MPI_Put(it->source, (int)it->bytes, MPI_BYTE, target, (MPI_Aint)(it->bytes * (size_t)it->rank),
            (int)it->bytes, MPI_BYTE, it->win);
}

/* After a closing call. A null request means that the call itself blocked. */
static void closed(struct iteration *it, MPI_Request closing_request, enum slot slot)
{
    if (!it->delayed && closing_request != MPI_REQUEST_NULL)
        MPI_Wait(&closing_request, MPI_STATUS_IGNORE);
    it->pending[slot] = closing_request;
    if (closing_request == MPI_REQUEST_NULL)
        stamp(it, slot);
}

void close_exposure(struct iteration *it, int target, enum slot slot)
{
    (void)target;
    MPI_Request epoch = MPI_REQUEST_NULL;
    if (it->nonblocking)
        NONBLOCKING_FORM(MPIX_Win_iwait(it->win, &epoch));
    else
        MPI_Win_wait(it->win);
    closed(it, epoch, slot);
}

void close_access(struct iteration *it, int target, enum slot slot)
{
    (void)target;
    MPI_Request epoch = MPI_REQUEST_NULL;
    if (it->nonblocking)
        NONBLOCKING_FORM(MPIX_Win_icomplete(it->win, &epoch));
    else
        MPI_Win_complete(it->win);
    closed(it, epoch, slot);
}

void close_lock(struct iteration *it, int target, enum slot slot)
{
    MPI_Request epoch = MPI_REQUEST_NULL;
    if (it->nonblocking)
        NONBLOCKING_FORM(MPIX_Win_iunlock(target, it->win, &epoch));
    else
        MPI_Win_unlock(target, it->win);
    closed(it, epoch, slot);
}

void close_fence(struct iteration *it, int target, enum slot slot)
{
    (void)target;
    MPI_Request epoch = MPI_REQUEST_NULL;
    if (it->nonblocking)
        NONBLOCKING_FORM(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, it->win, &epoch));
    else
        MPI_Win_fence(MPI_MODE_NOSUCCEED, it->win);
    closed(it, epoch, slot);
}

void close_and_stay_away(struct iteration *it, closing *close, int target, enum slot slot)
{
    if (it->nonblocking) {
        close(it, target, slot);
        stay_away(it);
    } else {
        stay_away(it);
        close(it, target, slot);
    }
}

void finish(struct iteration *it)
{
    for (;;) {
        int slot;
        MPI_Waitany(SLOTS, it->pending, &slot, MPI_STATUS_IGNORE);
        if (slot == MPI_UNDEFINED)
            break;
        stamp(it, (enum slot)slot);
    }
    stamp(it, ALL);
}
