! Constants of mpix_rma.h for programs with mpif.h or `use mpi`, in fixed and free form. Programs
! with `use mpi_f08` have them from the module mpix_rma_f08.
      integer MPIX_RANK_ALL
      parameter (MPIX_RANK_ALL = -32700)
