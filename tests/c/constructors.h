/*
 * Derived datatypes of every constructor, made of one datatype.
 */
#ifndef CONSTRUCTORS_H
#define CONSTRUCTORS_H
#include "check.h"

enum { CONSTRUCTORS = 21 };

/* Elements of base per item of the constructed type. All constructors but the structs use one
 * predefined datatype. */
static inline MPI_Datatype construct(int which, MPI_Datatype base)
{
    MPI_Datatype t, u;
    MPI_Aint lb, ext;
    MPI(MPI_Type_get_extent(base, &lb, &ext));
    switch (which) {
    case 0:
        MPI(MPI_Type_contiguous(3, base, &t));
        break;
    case 1:
        MPI(MPI_Type_vector(3, 2, 5, base, &t));
        break;
    case 2:
        MPI(MPI_Type_vector(4, 1, -3, base, &t));
        break;
    case 3:
        MPI(MPI_Type_create_hvector(5, 1, 3 * ext, base, &t));
        break;
    case 4:
        MPI(MPI_Type_indexed(4, (int[]){2, 1, 0, 3}, (int[]){0, 5, 2, 9}, base, &t));
        break;
    case 5:
        MPI(MPI_Type_create_hindexed(3, (int[]){1, 2, 1}, (MPI_Aint[]){6 * ext, 0, 3 * ext}, base,
                                     &t));
        break;
    case 6:
        MPI(MPI_Type_create_indexed_block(4, 2, (int[]){0, 3, 8, 14}, base, &t));
        break;
    case 7:
        MPI(MPI_Type_create_hindexed_block(3, 1, (MPI_Aint[]){0, 4 * ext, 2 * ext}, base, &t));
        break;
    case 8:
        MPI(MPI_Type_create_subarray(3, (int[]){4, 5, 6}, (int[]){2, 3, 2}, (int[]){1, 0, 3},
                                     MPI_ORDER_C, base, &t));
        break;
    case 9:
        MPI(MPI_Type_create_subarray(2, (int[]){4, 5}, (int[]){2, 3}, (int[]){1, 2},
                                     MPI_ORDER_FORTRAN, base, &t));
        break;
    case 10:
        MPI(MPI_Type_create_darray(
            6, 4, 2, (int[]){8, 9}, (int[]){MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC},
            (int[]){MPI_DISTRIBUTE_DFLT_DARG, 2}, (int[]){3, 2}, MPI_ORDER_C, base, &t));
        break;
    case 11:
        MPI(MPI_Type_create_darray(
            4, 1, 3, (int[]){5, 3, 7},
            (int[]){MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_BLOCK},
            (int[]){MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG},
            (int[]){2, 1, 2}, MPI_ORDER_FORTRAN, base, &t));
        break;
    case 12:
        MPI(MPI_Type_create_resized(base, -ext, 3 * ext, &t));
        break;
    case 13:
        u = construct(4, base);
        MPI(MPI_Type_create_resized(u, 2 * ext, 17 * ext, &t));
        MPI(MPI_Type_free(&u));
        break;
    case 14:
        u = construct(1, base);
        MPI(MPI_Type_dup(u, &t));
        MPI(MPI_Type_free(&u));
        break;
    case 15: /* vectors of indexed */
        u = construct(4, base);
        MPI(MPI_Type_vector(2, 2, 3, u, &t));
        MPI(MPI_Type_free(&u));
        break;
    case 16: /* indexed of subarrays */
        u = construct(9, base);
        MPI(MPI_Type_indexed(2, (int[]){1, 2}, (int[]){0, 2}, u, &t));
        MPI(MPI_Type_free(&u));
        break;
    case 17: { /* a struct of vector, element and hindexed */
        MPI_Datatype types[3] = {construct(1, base), base, construct(5, base)};
        MPI(MPI_Type_create_struct(3, (int[]){1, 3, 2}, (MPI_Aint[]){0, 15 * ext, 20 * ext}, types,
                                   &t));
        MPI(MPI_Type_free(&types[0]));
        MPI(MPI_Type_free(&types[2]));
        break;
    }
    case 18: /* vector of vector of vector */
        u = construct(1, base);
        MPI(MPI_Type_create_hvector(2, 1, 40 * ext, u, &t));
        MPI(MPI_Type_free(&u));
        u = t;
        MPI(MPI_Type_vector(2, 1, 2, u, &t));
        MPI(MPI_Type_free(&u));
        break;
    case 19: /* contiguous in the end */
        MPI(MPI_Type_vector(6, 2, 2, base, &t));
        break;
    default: { /* a struct in a struct, out of order */
        MPI_Datatype inner, types[2] = {base, base};
        MPI(MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){3 * ext, 0}, types, &inner));
        types[0] = inner;
        MPI(MPI_Type_create_struct(2, (int[]){2, 2}, (MPI_Aint[]){6 * ext, 0}, types, &t));
        MPI(MPI_Type_free(&inner));
    }
    }
    return t;
}

/* As construct, to be used in calls. */
static inline MPI_Datatype made(int which, MPI_Datatype base)
{
    MPI_Datatype t = construct(which, base);
    MPI(MPI_Type_commit(&t));
    return t;
}

#endif
