/* What the tests of continuations share: a window, callbacks that note that they ran, and
 * continuation requests. */
#ifndef CONTINUATIONS_H
#define CONTINUATIONS_H

#include "check.h"

/* What a callback has seen. */
typedef struct {
    int ran, error, answer;
    MPI_Request *request; /* must be MPI_REQUEST_NULL when it runs */
} Seen;

static Window w;

HELPER int note(int error, void *data)
{
    Seen *seen = data;
    __atomic_fetch_add(&seen->ran, 1, __ATOMIC_RELAXED);
    seen->error = error;
    EXPECT(!seen->request || *seen->request == MPI_REQUEST_NULL,
           "a callback runs before its request is MPI_REQUEST_NULL");
    return seen->answer;
}

HELPER MPI_Request started(int flags, int max_poll)
{
    MPI_Request all;
    MPI(MPIX_Continue_init(flags, max_poll, MPI_INFO_NULL, &all));
    MPI(MPI_Start(&all));
    return all;
}

HELPER void end_all(MPI_Request *all)
{
    MPI(MPI_Wait(all, MPI_STATUS_IGNORE));
    MPI(MPI_Request_free(all));
    EXPECT(*all == MPI_REQUEST_NULL, "MPI_Request_free does not null the handle");
}

HELPER void expect_ran(const Seen *seen, int times, const char *what)
{
    EXPECT(seen->ran == times, "%s: the callback ran %d times, not %d", what, seen->ran, times);
    EXPECT(!times || seen->error == MPI_SUCCESS, "%s: the callback got error %d", what,
           seen->error);
}

#endif
