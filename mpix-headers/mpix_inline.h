/*
 * mpix_inline.h - calls that may have nothing to do, tested for in line
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * mpix_rma.h includes this file. It changes what a compiler makes of MPIX_Win_order, not what the
 * call does. An order has nothing to do if only puts to memory of this node followed the last one
 * to the same target of the same window. Where GCC optimizes, the program tests for that before the
 * call. Such an order is then a fence of the compiler, and of the processor if that does not order
 * stores by itself, and costs next to nothing.
 *
 * A tool that intercepts MPIX_Win_order does not see these orders. It sees all if the program
 * defines MPIX_RMA_NO_INLINE before it includes mpix_rma.h, or is compiled without optimization.
 * Other compilers always make the call: Clang takes the function below for an endless recursion.
 */
#if !defined(MPIX_INLINE_H) && defined(__GNUC__) && !defined(__clang__) && \
    defined(__OPTIMIZE__) && !defined(MPIX_RMA_NO_INLINE)
#define MPIX_INLINE_H

#include <mpi.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The window and target of the last order, as long as another one has nothing to do. The library
 * alone writes it. */
extern struct mpix_rma_in_order {
    uint64_t win;
    int32_t rank;
} mpix_rma_in_order;

extern int mpix_rma_call_order(int rank, MPI_Win win) __asm__("MPIX_Win_order");

extern __inline__ __attribute__((__gnu_inline__)) int MPIX_Win_order(int rank, MPI_Win win)
{
    uint64_t handle = sizeof win < 8 ? (uint32_t)(uintptr_t)win : (uintptr_t)win;
    if (__atomic_load_n(&mpix_rma_in_order.win, __ATOMIC_RELAXED) != handle ||
        __atomic_load_n(&mpix_rma_in_order.rank, __ATOMIC_RELAXED) != rank)
        return mpix_rma_call_order(rank, win);
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
    return MPI_SUCCESS;
}

#ifdef __cplusplus
}
#endif

#endif /* MPIX_INLINE_H */
