/*
 * Included before a test program: replaces each blocking call that closes an epoch or flushes by
 * its nonblocking form and MPI_Wait.
 */
#ifndef MPIX_RMA_NONBLOCKING_H
#define MPIX_RMA_NONBLOCKING_H

#include <mpi.h>
#include <mpix_rma.h>

#define MPIX_RMA_CLOSING(name, parameters, arguments)                     \
    static inline __attribute__((unused)) int mpix_rma_##name parameters  \
    {                                                                     \
        MPI_Request request = MPI_REQUEST_NULL;                           \
        int code = MPIX_Win_i##name arguments;                            \
        return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE); \
    }

MPIX_RMA_CLOSING(fence, (int assert, MPI_Win win), (assert, win, &request))
MPIX_RMA_CLOSING(complete, (MPI_Win win), (win, &request))
MPIX_RMA_CLOSING(wait, (MPI_Win win), (win, &request))
MPIX_RMA_CLOSING(unlock, (int rank, MPI_Win win), (rank, win, &request))
MPIX_RMA_CLOSING(unlock_all, (MPI_Win win), (win, &request))
MPIX_RMA_CLOSING(flush, (int rank, MPI_Win win), (rank, win, &request))
MPIX_RMA_CLOSING(flush_local, (int rank, MPI_Win win), (rank, win, &request))
MPIX_RMA_CLOSING(flush_all, (MPI_Win win), (win, &request))
MPIX_RMA_CLOSING(flush_local_all, (MPI_Win win), (win, &request))

#define MPI_Win_fence mpix_rma_fence
#define MPI_Win_complete mpix_rma_complete
#define MPI_Win_wait mpix_rma_wait
#define MPI_Win_unlock mpix_rma_unlock
#define MPI_Win_unlock_all mpix_rma_unlock_all
#define MPI_Win_flush mpix_rma_flush
#define MPI_Win_flush_local mpix_rma_flush_local
#define MPI_Win_flush_all mpix_rma_flush_all
#define MPI_Win_flush_local_all mpix_rma_flush_local_all

#endif
