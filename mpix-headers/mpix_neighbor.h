/*
 * mpix_neighbor.h - halo exchanges: persistent neighbour collectives
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Included by mpix_rma.h.
 *
 * Sources
 *   [MPI]     MPI-4.1, section 8.9 (persistent neighborhood communication), 8.6 (order of blocks)
 *   [SHAN]    INTERTWinE deliverable 3.3 (2018), 5.3.3 and annex A: GASPI-SHAN
 *
 * The calls are those of MPI-4, under names that every host has. Where the host has a call itself
 * (MPICH from 4.0), it is served under its name of MPI-4 too. Requests are those of
 * mpix_collective.h.
 *
 *     MPIX_Neighbor_alltoallw_init(cells, counts, inner, faces, cells, counts, outer, ghosts,
 *                                  grid, MPI_INFO_NULL, &halo);
 *     for (...) {
 *         MPI_Start(&halo);
 *         ... inner cells ...
 *         MPI_Wait(&halo, MPI_STATUS_IGNORE);
 *         ... cells at the boundary ...
 *     }
 *     MPI_Request_free(&halo);
 *
 * WITHIN A NODE
 *
 * Each process reads the buffers of its neighbours on the node in place [SHAN]. It copies once,
 * from the datatype of the sender to its own. That needs no message and no packing, if the send
 * buffer lies in memory of a window of MPI_Win_allocate or MPI_Win_allocate_shared of both
 * processes. Other buffers are packed by the sender into shared memory, and unpacked by the
 * receiver. The window must live until the request is freed: an exchange that is started afterwards
 * fails with MPI_ERR_BUFFER. No epoch is needed.
 *
 * An exchange is complete in a process when it has received all blocks, its neighbours on the node
 * have read what it sends, and what it sends to other nodes may be changed. It waits for no other
 * process. A neighbour reads in MPI_Start, in calls that wait, and in every other call in which
 * this library makes progress.
 *
 * Blocks whose data lie in short pieces (a face with one number in each row) are packed as well:
 * that takes fewer cache misses. Communicators with processes of other jobs are left to the host's
 * nonblocking calls, and the log says so at level info.
 *
 * BETWEEN NODES
 *
 * All blocks from one process to another are one message of the host, from the datatypes of the
 * sender to those of the receiver. If they are longer than their receive buffers, all together, the
 * call that completes the exchange there fails (MPI_ERR_TRUNCATE). Within a node, each block that
 * is longer than its receive buffer fails in the call that makes the request.
 *
 * With MPIX_RMA_COLLECTIVES=always, all blocks from one node to another are one put with a
 * notification [SHAN]: processes pack their blocks into it, and unpack theirs from it. Then an
 * exchange waits until all processes of the node have started it. That takes at most 64 processes,
 * and blocks as long as their receive buffers; else there are messages.
 *
 * ORDER OF BLOCKS [MPI]
 *
 * In a Cartesian communicator, what is sent in negative direction arrives from the positive one,
 * also in periodic dimensions of one or two processes, where hosts have an error. In graphs, the
 * k-th block to a process is its k-th from the sender.
 */
#ifndef MPIX_NEIGHBOR_H
#define MPIX_NEIGHBOR_H

#ifndef MPIX_RMA_H
#error "include mpix_rma.h"
#endif

/*
 * MPIX_Neighbor_allgather_init, MPIX_Neighbor_allgatherv_init, MPIX_Neighbor_alltoall_init,
 * MPIX_Neighbor_alltoallv_init, MPIX_Neighbor_alltoallw_init - make a persistent neighbour
 * collective [MPI]
 * MPIX_Neighbor_allgather_init_c, MPIX_Neighbor_allgatherv_init_c, MPIX_Neighbor_alltoall_init_c,
 * MPIX_Neighbor_alltoallv_init_c, MPIX_Neighbor_alltoallw_init_c - with large counts, also on hosts
 * that have none
 *
 * Collective over comm. The request is inactive. The datatypes and the communicator may be freed
 * afterwards.
 *
 *   comm      a communicator with a topology
 *   info      no keys of this library
 *   request   the persistent request
 *   others    as in the blocking call of MPI without _init
 *
 * Errors: those of the host's call; MPI_ERR_TOPOLOGY, also if two processes differ in the number of
 * edges between them; MPI_ERR_TRUNCATE if a block is longer than its receive buffer; MPI_ERR_TYPE,
 * MPI_ERR_COUNT, MPI_ERR_BUFFER, MPI_ERR_ARG. If the arguments of one process are wrong, the calls
 * of all processes fail, unless the host has refused them first. If the host serves the collective,
 * has no large counts, and a count exceeds an int: MPI_ERR_COUNT from MPI_Start.
 */
int MPIX_Neighbor_allgather_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                                 void *recvbuf, int recvcount, MPI_Datatype recvtype,
                                 MPI_Comm comm, MPI_Info info, MPI_Request *request);
int MPIX_Neighbor_allgatherv_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                                  void *recvbuf, const int recvcounts[], const int displs[],
                                  MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                                  MPI_Request *request);
int MPIX_Neighbor_alltoall_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                                void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm,
                                MPI_Info info, MPI_Request *request);
int MPIX_Neighbor_alltoallv_init(const void *sendbuf, const int sendcounts[], const int sdispls[],
                                 MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
                                 const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm,
                                 MPI_Info info, MPI_Request *request);
int MPIX_Neighbor_alltoallw_init(const void *sendbuf, const int sendcounts[],
                                 const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
                                 void *recvbuf, const int recvcounts[], const MPI_Aint rdispls[],
                                 const MPI_Datatype recvtypes[], MPI_Comm comm, MPI_Info info,
                                 MPI_Request *request);
int MPIX_Neighbor_allgather_init_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                   void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
                                   MPI_Comm comm, MPI_Info info, MPI_Request *request);
int MPIX_Neighbor_allgatherv_init_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                    void *recvbuf, const MPI_Count recvcounts[],
                                    const MPI_Aint displs[], MPI_Datatype recvtype, MPI_Comm comm,
                                    MPI_Info info, MPI_Request *request);
int MPIX_Neighbor_alltoall_init_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                  void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
                                  MPI_Comm comm, MPI_Info info, MPI_Request *request);
int MPIX_Neighbor_alltoallv_init_c(const void *sendbuf, const MPI_Count sendcounts[],
                                   const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
                                   const MPI_Count recvcounts[], const MPI_Aint rdispls[],
                                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                                   MPI_Request *request);
int MPIX_Neighbor_alltoallw_init_c(const void *sendbuf, const MPI_Count sendcounts[],
                                   const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
                                   void *recvbuf, const MPI_Count recvcounts[],
                                   const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
                                   MPI_Comm comm, MPI_Info info, MPI_Request *request);

/* The same calls under the names of the profiling interface. */
int PMPIX_Neighbor_allgather_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                                  void *recvbuf, int recvcount, MPI_Datatype recvtype,
                                  MPI_Comm comm, MPI_Info info, MPI_Request *request);
int PMPIX_Neighbor_allgatherv_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                                   void *recvbuf, const int recvcounts[], const int displs[],
                                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                                   MPI_Request *request);
int PMPIX_Neighbor_alltoall_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                                 void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm,
                                 MPI_Info info, MPI_Request *request);
int PMPIX_Neighbor_alltoallv_init(const void *sendbuf, const int sendcounts[], const int sdispls[],
                                  MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
                                  const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm,
                                  MPI_Info info, MPI_Request *request);
int PMPIX_Neighbor_alltoallw_init(const void *sendbuf, const int sendcounts[],
                                  const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
                                  void *recvbuf, const int recvcounts[], const MPI_Aint rdispls[],
                                  const MPI_Datatype recvtypes[], MPI_Comm comm, MPI_Info info,
                                  MPI_Request *request);
int PMPIX_Neighbor_allgather_init_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                    void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
                                    MPI_Comm comm, MPI_Info info, MPI_Request *request);
int PMPIX_Neighbor_allgatherv_init_c(const void *sendbuf, MPI_Count sendcount,
                                     MPI_Datatype sendtype, void *recvbuf,
                                     const MPI_Count recvcounts[], const MPI_Aint displs[],
                                     MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                                     MPI_Request *request);
int PMPIX_Neighbor_alltoall_init_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                   void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
                                   MPI_Comm comm, MPI_Info info, MPI_Request *request);
int PMPIX_Neighbor_alltoallv_init_c(const void *sendbuf, const MPI_Count sendcounts[],
                                    const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
                                    const MPI_Count recvcounts[], const MPI_Aint rdispls[],
                                    MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                                    MPI_Request *request);
int PMPIX_Neighbor_alltoallw_init_c(const void *sendbuf, const MPI_Count sendcounts[],
                                    const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
                                    void *recvbuf, const MPI_Count recvcounts[],
                                    const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
                                    MPI_Comm comm, MPI_Info info, MPI_Request *request);

#endif
