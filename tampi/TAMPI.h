/*
 * TAMPI.h - the interface of Task-Aware MPI 3, over mpix-rma
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * For programs written for TAMPI: link with `pkg-config --libs mpix-tampi` instead of TAMPI, or run
 * a program that is linked with TAMPI with libmpix_tampi.so and libmpix_rma.so preloaded.
 * mpix_task.h says what the calls do: TAMPI_Iwait is MPIX_Task_iwait.
 *
 * Source: Sala et al., "Integrating blocking and non-blocking MPI primitives with task-based
 * programming models" (Parallel Computing 85, 2019); TAMPI 3.0.
 */
#ifndef TAMPI_H
#define TAMPI_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The thread level at which blocking calls pause their task. */
#ifndef MPI_TASK_MULTIPLE
#define MPI_TASK_MULTIPLE (MPI_THREAD_MULTIPLE + 1)
#endif

/*
 * TAMPI_Property_get, TAMPI_Property_set
 *
 *   BLOCKING_MODE      read only: whether blocking calls pause tasks
 *   NONBLOCKING_MODE   read only: whether TAMPI_Iwait binds tasks to requests
 *   AUTO_INIT          whether MPI_Init_thread turns the modes on; to be set before it. If 0,
 *                      TAMPI_Init does, but it cannot turn the blocking mode on
 *   THREAD_TASKAWARE   whether blocking calls of this thread pause tasks
 *
 * Errors (returned; no error handler is called): MPI_ERR_ARG.
 */
#define TAMPI_PROPERTY_BLOCKING_MODE 0x1
#define TAMPI_PROPERTY_NONBLOCKING_MODE 0x2
#define TAMPI_PROPERTY_AUTO_INIT 0x3
#define TAMPI_PROPERTY_THREAD_TASKAWARE 0x4
int TAMPI_Property_get(int property, int *value);
int TAMPI_Property_set(int property, int value);

/* `provided` is the level of MPI_Init_thread. */
int TAMPI_Init(int required, int *provided);
int TAMPI_Finalize(void);

int TAMPI_Blocking_enabled(int *flag);
int TAMPI_Nonblocking_enabled(int *flag);

int TAMPI_Iwait(MPI_Request *request, MPI_Status *status);
int TAMPI_Iwaitall(int count, MPI_Request requests[], MPI_Status *statuses);

/* Fortran */
void tampi_property_get_(MPI_Fint *property, MPI_Fint *value, MPI_Fint *err);
void tampi_property_set_(MPI_Fint *property, MPI_Fint *value, MPI_Fint *err);
void tampi_init_(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *err);
void tampi_finalize_(MPI_Fint *err);
void tampi_blocking_enabled_(MPI_Fint *flag, MPI_Fint *err);
void tampi_nonblocking_enabled_(MPI_Fint *flag, MPI_Fint *err);
void tampi_iwait_(MPI_Fint *request, MPI_Fint *status, MPI_Fint *err);
void tampi_iwaitall_(MPI_Fint *count, MPI_Fint requests[], MPI_Fint *statuses, MPI_Fint *err);

/*
 * TAMPI_Isend(...), TAMPI_Ibcast(...) etc. - the nonblocking call, and TAMPI_Iwait for its request.
 * The arguments are those of the MPI call; TAMPI_Irecv has a status more.
 */
#define TAMPI_WRAP(name, params, args)                                                             \
    static inline int TAMPI_##name params                                                          \
    {                                                                                              \
        int error = MPI_##name args;                                                               \
        return error == MPI_SUCCESS ? TAMPI_Iwait(request, MPI_STATUS_IGNORE) : error;             \
    }
#define TAMPI_SEND(name)                                                                           \
    TAMPI_WRAP(name,                                                                               \
               (const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,   \
                MPI_Request *request),                                                             \
               (buf, count, type, dest, tag, comm, request))
#define TAMPI_GATHER(name)                                                                         \
    TAMPI_WRAP(name,                                                                               \
               (const void *send, int sends, MPI_Datatype sendtype, void *recv, int recvs,         \
                MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request *request),             \
               (send, sends, sendtype, recv, recvs, recvtype, root, comm, request))
#define TAMPI_EXCHANGE(name)                                                                       \
    TAMPI_WRAP(name,                                                                               \
               (const void *send, int sends, MPI_Datatype sendtype, void *recv, int recvs,         \
                MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),                       \
               (send, sends, sendtype, recv, recvs, recvtype, comm, request))
#define TAMPI_REDUCE(name)                                                                         \
    TAMPI_WRAP(name,                                                                               \
               (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,             \
                MPI_Comm comm, MPI_Request *request),                                              \
               (send, recv, count, type, op, comm, request))

TAMPI_SEND(Isend)
TAMPI_SEND(Ibsend)
TAMPI_SEND(Irsend)
TAMPI_SEND(Issend)
TAMPI_WRAP(Ibarrier, (MPI_Comm comm, MPI_Request *request), (comm, request))
TAMPI_WRAP(Ibcast,
           (void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request),
           (buf, count, type, root, comm, request))
TAMPI_GATHER(Igather)
TAMPI_GATHER(Iscatter)
TAMPI_EXCHANGE(Iallgather)
TAMPI_EXCHANGE(Ialltoall)
TAMPI_REDUCE(Iallreduce)
TAMPI_REDUCE(Iscan)
TAMPI_REDUCE(Iexscan)
TAMPI_REDUCE(Ireduce_scatter_block)
TAMPI_WRAP(Ireduce,
           (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root,
            MPI_Comm comm, MPI_Request *request),
           (send, recv, count, type, op, root, comm, request))
TAMPI_WRAP(Ireduce_scatter,
           (const void *send, void *recv, const int recvs[], MPI_Datatype type, MPI_Op op,
            MPI_Comm comm, MPI_Request *request),
           (send, recv, recvs, type, op, comm, request))
TAMPI_WRAP(Igatherv,
           (const void *send, int sends, MPI_Datatype sendtype, void *recv, const int recvs[],
            const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm,
            MPI_Request *request),
           (send, sends, sendtype, recv, recvs, displs, recvtype, root, comm, request))
TAMPI_WRAP(Iscatterv,
           (const void *send, const int sends[], const int displs[], MPI_Datatype sendtype,
            void *recv, int recvs, MPI_Datatype recvtype, int root, MPI_Comm comm,
            MPI_Request *request),
           (send, sends, displs, sendtype, recv, recvs, recvtype, root, comm, request))
TAMPI_WRAP(Iallgatherv,
           (const void *send, int sends, MPI_Datatype sendtype, void *recv, const int recvs[],
            const int displs[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),
           (send, sends, sendtype, recv, recvs, displs, recvtype, comm, request))
TAMPI_WRAP(Ialltoallv,
           (const void *send, const int sends[], const int sdispls[], MPI_Datatype sendtype,
            void *recv, const int recvs[], const int rdispls[], MPI_Datatype recvtype,
            MPI_Comm comm, MPI_Request *request),
           (send, sends, sdispls, sendtype, recv, recvs, rdispls, recvtype, comm, request))
TAMPI_WRAP(Ialltoallw,
           (const void *send, const int sends[], const int sdispls[], const MPI_Datatype sendtypes[],
            void *recv, const int recvs[], const int rdispls[], const MPI_Datatype recvtypes[],
            MPI_Comm comm, MPI_Request *request),
           (send, sends, sdispls, sendtypes, recv, recvs, rdispls, recvtypes, comm, request))

static inline int TAMPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag,
                              MPI_Comm comm, MPI_Request *request, MPI_Status *status)
{
    int error = MPI_Irecv(buf, count, type, source, tag, comm, request);
    return error == MPI_SUCCESS ? TAMPI_Iwait(request, status) : error;
}

static inline int TAMPI_Wait(MPI_Request *request, MPI_Status *status)
{
    return TAMPI_Iwait(request, status);
}

static inline int TAMPI_Waitall(int count, MPI_Request requests[], MPI_Status *statuses)
{
    return TAMPI_Iwaitall(count, requests, statuses);
}

#undef TAMPI_WRAP
#undef TAMPI_SEND
#undef TAMPI_GATHER
#undef TAMPI_EXCHANGE
#undef TAMPI_REDUCE

#ifdef __cplusplus
}
#endif

#endif /* TAMPI_H */
