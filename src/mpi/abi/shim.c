/* Constants of mpi.h that only a C compiler can evaluate: handles that are casts or addresses, and
 * the tables of predefined datatypes and operations. No code: symbols of a C object are not
 * exported from a Rust cdylib. */
#define MPICH_SKIP_MPICXX 1
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <stddef.h>

#define K(type, name) const type mpix_k_##name = (type)name;

K(MPI_Comm, MPI_COMM_NULL)
K(MPI_Comm, MPI_COMM_WORLD)
K(MPI_Comm, MPI_COMM_SELF)
K(MPI_Win, MPI_WIN_NULL)
K(MPI_Info, MPI_INFO_NULL)
K(MPI_Group, MPI_GROUP_NULL)
K(MPI_Request, MPI_REQUEST_NULL)
K(MPI_Datatype, MPI_DATATYPE_NULL)
K(MPI_Datatype, MPI_BYTE)
K(MPI_Datatype, MPI_PACKED)
K(MPI_Datatype, MPI_INT)
K(MPI_Op, MPI_MAX)
K(MPI_Op, MPI_BOR)
K(MPI_Op, MPI_OP_NULL)
K(MPI_Errhandler, MPI_ERRORS_ARE_FATAL)
K(MPI_Errhandler, MPI_ERRORS_RETURN)
#ifdef MPI_ERRORS_ABORT
K(MPI_Errhandler, MPI_ERRORS_ABORT)
#else
const MPI_Errhandler mpix_k_MPI_ERRORS_ABORT = MPI_ERRORS_ARE_FATAL;
#endif
MPI_Status *const mpix_k_MPI_STATUS_IGNORE = MPI_STATUS_IGNORE;
MPI_Status *const mpix_k_MPI_STATUSES_IGNORE = MPI_STATUSES_IGNORE;
void *const mpix_k_MPI_IN_PLACE = (void *)MPI_IN_PLACE;

_Static_assert(MPI_SUCCESS == 0, "sys.rs says so");
K(int, MPI_ANY_SOURCE)
K(int, MPI_ANY_TAG)
K(int, MPI_PROC_NULL)
K(int, MPI_ROOT)
K(int, MPI_UNDEFINED)
K(int, MPI_COMM_TYPE_SHARED)
K(int, MPI_CART)
K(int, MPI_GRAPH)
K(int, MPI_DIST_GRAPH)
K(int, MPI_THREAD_MULTIPLE)
K(int, MPI_MODE_NOCHECK)
K(int, MPI_MODE_NOSTORE)
K(int, MPI_MODE_NOPUT)
K(int, MPI_MODE_NOPRECEDE)
K(int, MPI_MODE_NOSUCCEED)
K(int, MPI_LOCK_SHARED)
K(int, MPI_LOCK_EXCLUSIVE)
K(int, MPI_WIN_BASE)
K(int, MPI_WIN_SIZE)
K(int, MPI_WIN_DISP_UNIT)
K(int, MPI_WIN_CREATE_FLAVOR)
K(int, MPI_WIN_MODEL)
K(int, MPI_WIN_FLAVOR_CREATE)
K(int, MPI_WIN_FLAVOR_ALLOCATE)
K(int, MPI_WIN_FLAVOR_DYNAMIC)
K(int, MPI_WIN_FLAVOR_SHARED)
K(int, MPI_WIN_UNIFIED)

K(int, MPI_COMBINER_NAMED)
K(int, MPI_COMBINER_DUP)
K(int, MPI_COMBINER_CONTIGUOUS)
K(int, MPI_COMBINER_VECTOR)
K(int, MPI_COMBINER_HVECTOR)
K(int, MPI_COMBINER_INDEXED)
K(int, MPI_COMBINER_HINDEXED)
K(int, MPI_COMBINER_INDEXED_BLOCK)
K(int, MPI_COMBINER_HINDEXED_BLOCK)
K(int, MPI_COMBINER_STRUCT)
K(int, MPI_COMBINER_SUBARRAY)
K(int, MPI_COMBINER_DARRAY)
K(int, MPI_COMBINER_RESIZED)
K(int, MPI_COMBINER_F90_REAL)
K(int, MPI_COMBINER_F90_COMPLEX)
K(int, MPI_COMBINER_F90_INTEGER)
K(int, MPI_ORDER_FORTRAN)
K(int, MPI_DISTRIBUTE_BLOCK)
K(int, MPI_DISTRIBUTE_CYCLIC)
K(int, MPI_DISTRIBUTE_DFLT_DARG)
K(int, MPI_KEYVAL_INVALID)

K(int, MPI_ERR_ARG)
K(int, MPI_ERR_ASSERT)
K(int, MPI_ERR_BUFFER)
K(int, MPI_ERR_COMM)
K(int, MPI_ERR_COUNT)
K(int, MPI_ERR_DISP)
K(int, MPI_ERR_GROUP)
K(int, MPI_ERR_INFO)
K(int, MPI_ERR_INFO_VALUE)
K(int, MPI_ERR_INTERN)
K(int, MPI_ERR_LOCKTYPE)
K(int, MPI_ERR_NO_MEM)
K(int, MPI_ERR_OP)
K(int, MPI_ERR_OTHER)
K(int, MPI_ERR_RANK)
K(int, MPI_ERR_RMA_ATTACH)
K(int, MPI_ERR_RMA_FLAVOR)
K(int, MPI_ERR_RMA_RANGE)
K(int, MPI_ERR_RMA_SYNC)
K(int, MPI_ERR_SIZE)
K(int, MPI_ERR_TRUNCATE)
K(int, MPI_ERR_TYPE)
K(int, MPI_ERR_TAG)
K(int, MPI_ERR_REQUEST)
K(int, MPI_ERR_ROOT)
K(int, MPI_ERR_TOPOLOGY)
K(int, MPI_ERR_IN_STATUS)
K(int, MPI_ERR_UNSUPPORTED_OPERATION)
K(int, MPI_ERR_WIN)

/* Kinds of predefined datatypes, by the rules of MPI-4.1 section 6.9.2 that hold for them
 * (mpi/datatype/table.rs, `Kind`). */
enum { SIGNED, UNSIGNED, FLOATING, COMPLEX, LOGICAL, BYTE, CHARACTER, PAIR };

struct mpix_type {
    MPI_Datatype handle;
    int kind;
    int quad; /* has 128-bit floating-point parts, which hosts mistake for their long double */
};

/* Hosts differ in which optional datatypes they define, so each of those has its #ifdef. A defined
 * one may still be MPI_DATATYPE_NULL or of size 0, which is checked at run time. The order is the
 * same in all processes of a job. */
const struct mpix_type mpix_types[] = {
    {MPI_BYTE, BYTE},
    {MPI_PACKED, CHARACTER},
    {MPI_CHAR, SIGNED}, /* a character to the standard, an integer to the hosts and to programs */
    {MPI_WCHAR, CHARACTER},
    {MPI_CHARACTER, CHARACTER},
    {MPI_SIGNED_CHAR, SIGNED},
    {MPI_UNSIGNED_CHAR, UNSIGNED},
    {MPI_SHORT, SIGNED},
    {MPI_UNSIGNED_SHORT, UNSIGNED},
    {MPI_INT, SIGNED},
    {MPI_UNSIGNED, UNSIGNED},
    {MPI_LONG, SIGNED},
    {MPI_UNSIGNED_LONG, UNSIGNED},
    {MPI_LONG_LONG_INT, SIGNED},
    {MPI_UNSIGNED_LONG_LONG, UNSIGNED},
    {MPI_INT8_T, SIGNED},
    {MPI_INT16_T, SIGNED},
    {MPI_INT32_T, SIGNED},
    {MPI_INT64_T, SIGNED},
    {MPI_UINT8_T, UNSIGNED},
    {MPI_UINT16_T, UNSIGNED},
    {MPI_UINT32_T, UNSIGNED},
    {MPI_UINT64_T, UNSIGNED},
    {MPI_AINT, SIGNED},
    {MPI_OFFSET, SIGNED},
    {MPI_COUNT, SIGNED},
    {MPI_INTEGER, SIGNED},
#ifdef MPI_INTEGER1
    {MPI_INTEGER1, SIGNED},
#endif
#ifdef MPI_INTEGER2
    {MPI_INTEGER2, SIGNED},
#endif
#ifdef MPI_INTEGER4
    {MPI_INTEGER4, SIGNED},
#endif
#ifdef MPI_INTEGER8
    {MPI_INTEGER8, SIGNED},
#endif
#ifdef MPI_INTEGER16
    {MPI_INTEGER16, SIGNED},
#endif
    {MPI_FLOAT, FLOATING},
    {MPI_DOUBLE, FLOATING},
    {MPI_LONG_DOUBLE, FLOATING},
    {MPI_REAL, FLOATING},
    {MPI_DOUBLE_PRECISION, FLOATING},
#ifdef MPI_REAL2
    {MPI_REAL2, FLOATING},
#endif
#ifdef MPI_REAL4
    {MPI_REAL4, FLOATING},
#endif
#ifdef MPI_REAL8
    {MPI_REAL8, FLOATING},
#endif
#ifdef MPI_REAL16
    {MPI_REAL16, FLOATING, 1},
#endif
#ifdef MPIX_C_FLOAT16
    {MPIX_C_FLOAT16, CHARACTER}, /* MPICH 4.0 aborts the job in any reduction of it */
#endif
    {MPI_C_FLOAT_COMPLEX, COMPLEX},
    {MPI_C_DOUBLE_COMPLEX, COMPLEX},
    {MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX},
    {MPI_COMPLEX, COMPLEX},
    {MPI_DOUBLE_COMPLEX, COMPLEX},
#ifdef MPI_COMPLEX4
    {MPI_COMPLEX4, COMPLEX},
#endif
#ifdef MPI_COMPLEX8
    {MPI_COMPLEX8, COMPLEX},
#endif
#ifdef MPI_COMPLEX16
    {MPI_COMPLEX16, COMPLEX},
#endif
#ifdef MPI_COMPLEX32
    {MPI_COMPLEX32, COMPLEX, 1},
#endif
#ifdef MPI_CXX_FLOAT_COMPLEX
    {MPI_CXX_FLOAT_COMPLEX, COMPLEX},
#endif
#ifdef MPI_CXX_DOUBLE_COMPLEX
    {MPI_CXX_DOUBLE_COMPLEX, COMPLEX},
#endif
#ifdef MPI_CXX_LONG_DOUBLE_COMPLEX
    {MPI_CXX_LONG_DOUBLE_COMPLEX, COMPLEX},
#endif
    {MPI_C_BOOL, LOGICAL},
#ifdef MPI_CXX_BOOL
    {MPI_CXX_BOOL, LOGICAL},
#endif
    {MPI_LOGICAL, LOGICAL},
#ifdef MPI_LOGICAL1
    {MPI_LOGICAL1, LOGICAL},
#endif
#ifdef MPI_LOGICAL2
    {MPI_LOGICAL2, LOGICAL},
#endif
#ifdef MPI_LOGICAL4
    {MPI_LOGICAL4, LOGICAL},
#endif
#ifdef MPI_LOGICAL8
    {MPI_LOGICAL8, LOGICAL},
#endif
#ifdef MPI_LOGICAL16
    {MPI_LOGICAL16, LOGICAL},
#endif
    {MPI_FLOAT_INT, PAIR},
    {MPI_DOUBLE_INT, PAIR},
    {MPI_LONG_INT, PAIR},
    {MPI_2INT, PAIR},
    {MPI_SHORT_INT, PAIR},
    {MPI_LONG_DOUBLE_INT, PAIR},
    {MPI_2REAL, PAIR},
    {MPI_2DOUBLE_PRECISION, PAIR},
    {MPI_2INTEGER, PAIR},
};
const size_t mpix_types_len = sizeof mpix_types / sizeof mpix_types[0];

/* The datatypes that MPI_Type_create_f90_real, _complex and _integer stand for, found by size. */
const struct mpix_type mpix_f90_types[] = {
#ifdef MPI_REAL2
    {MPI_REAL2, FLOATING},
#endif
#ifdef MPI_REAL4
    {MPI_REAL4, FLOATING},
#endif
#ifdef MPI_REAL8
    {MPI_REAL8, FLOATING},
#endif
#ifdef MPI_REAL16
    {MPI_REAL16, FLOATING, 1},
#endif
#ifdef MPI_COMPLEX8
    {MPI_COMPLEX8, COMPLEX},
#endif
#ifdef MPI_COMPLEX16
    {MPI_COMPLEX16, COMPLEX},
#endif
#ifdef MPI_COMPLEX32
    {MPI_COMPLEX32, COMPLEX, 1},
#endif
    {MPI_FLOAT, FLOATING},
    {MPI_DOUBLE, FLOATING},
    {MPI_LONG_DOUBLE, FLOATING},
    {MPI_C_FLOAT_COMPLEX, COMPLEX},
    {MPI_C_DOUBLE_COMPLEX, COMPLEX},
    {MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX},
    {MPI_INT8_T, SIGNED},
    {MPI_INT16_T, SIGNED},
    {MPI_INT32_T, SIGNED},
    {MPI_INT64_T, SIGNED},
#ifdef MPI_INTEGER16
    {MPI_INTEGER16, SIGNED},
#endif
};
const size_t mpix_f90_types_len = sizeof mpix_f90_types / sizeof mpix_f90_types[0];

/* Constructors with INTEGER displacements, which MPI-3.0 removed and a host may still have for old
 * Fortran programs. -1 if the host lacks them. */
#ifdef MPICH_NUMVERSION
const int mpix_k_MPI_COMBINER_HVECTOR_INTEGER = MPI_COMBINER_HVECTOR_INTEGER;
const int mpix_k_MPI_COMBINER_HINDEXED_INTEGER = MPI_COMBINER_HINDEXED_INTEGER;
const int mpix_k_MPI_COMBINER_STRUCT_INTEGER = MPI_COMBINER_STRUCT_INTEGER;
#else
const int mpix_k_MPI_COMBINER_HVECTOR_INTEGER = -1;
const int mpix_k_MPI_COMBINER_HINDEXED_INTEGER = -1;
const int mpix_k_MPI_COMBINER_STRUCT_INTEGER = -1;
#endif

/* In the order of the codes in transport/datatype/element.rs, `reduction`. */
const MPI_Op mpix_ops[] = {
    MPI_REPLACE, MPI_NO_OP, MPI_SUM,  MPI_PROD, MPI_MIN,  MPI_MAX,    MPI_LAND,
    MPI_LOR,     MPI_LXOR,  MPI_BAND, MPI_BOR,  MPI_BXOR, MPI_MINLOC, MPI_MAXLOC,
};
const size_t mpix_ops_len = sizeof mpix_ops / sizeof mpix_ops[0];
