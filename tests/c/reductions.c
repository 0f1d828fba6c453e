/*
 * Every predefined datatype with every reduction, including Fortran's optional types: the target
 * gets the right value, or the call returns MPI_ERR_OP and changes nothing. A host may lack
 * reductions of a datatype that it has, report success without computing (128-bit numbers that it
 * takes for its long double), or abort.
 */
#include "check.h"

#if defined(__SIZEOF_FLOAT128__)
typedef __float128 Quad;
#else
typedef long double Quad;
#endif

enum { ROOM = 64, PLAINLY = 0, LOGICAL = 1, QUAD = 2, HALF = 3 };

static const struct {
    const char *name;
    MPI_Datatype type;
    int class;
} types[] = {
#define T(type, class) {#type, type, class}
    T(MPI_BYTE, PLAINLY),
    T(MPI_PACKED, PLAINLY),
    T(MPI_CHAR, PLAINLY),
    T(MPI_WCHAR, PLAINLY),
    T(MPI_CHARACTER, PLAINLY),
    T(MPI_SIGNED_CHAR, PLAINLY),
    T(MPI_UNSIGNED_SHORT, PLAINLY),
    T(MPI_INT, PLAINLY),
    T(MPI_UNSIGNED_LONG_LONG, PLAINLY),
    T(MPI_AINT, PLAINLY),
    T(MPI_COUNT, PLAINLY),
    T(MPI_OFFSET, PLAINLY),
    T(MPI_INTEGER, PLAINLY),
    T(MPI_INTEGER1, PLAINLY),
    T(MPI_INTEGER8, PLAINLY),
    T(MPI_FLOAT, PLAINLY),
    T(MPI_DOUBLE, PLAINLY),
    T(MPI_LONG_DOUBLE, PLAINLY),
    T(MPI_REAL, PLAINLY),
    T(MPI_DOUBLE_PRECISION, PLAINLY),
    T(MPI_REAL4, PLAINLY),
    T(MPI_REAL8, PLAINLY),
    T(MPI_C_FLOAT_COMPLEX, PLAINLY),
    T(MPI_C_DOUBLE_COMPLEX, PLAINLY),
    T(MPI_C_LONG_DOUBLE_COMPLEX, PLAINLY),
    T(MPI_COMPLEX, PLAINLY),
    T(MPI_DOUBLE_COMPLEX, PLAINLY),
    T(MPI_COMPLEX8, PLAINLY),
    T(MPI_COMPLEX16, PLAINLY),
    T(MPI_C_BOOL, LOGICAL),
    T(MPI_LOGICAL, LOGICAL),
    T(MPI_CXX_BOOL, LOGICAL),
    T(MPI_CXX_FLOAT_COMPLEX, PLAINLY),
    T(MPI_CXX_DOUBLE_COMPLEX, PLAINLY),
    T(MPI_CXX_LONG_DOUBLE_COMPLEX, PLAINLY),
    T(MPI_FLOAT_INT, PLAINLY),
    T(MPI_DOUBLE_INT, PLAINLY),
    T(MPI_LONG_INT, PLAINLY),
    T(MPI_SHORT_INT, PLAINLY),
    T(MPI_2INT, PLAINLY),
    T(MPI_LONG_DOUBLE_INT, PLAINLY),
    T(MPI_2REAL, PLAINLY),
    T(MPI_2DOUBLE_PRECISION, PLAINLY),
    T(MPI_2INTEGER, PLAINLY),
#ifdef MPI_LOGICAL1
    T(MPI_LOGICAL1, LOGICAL),
    T(MPI_LOGICAL2, LOGICAL),
    T(MPI_LOGICAL4, LOGICAL),
    T(MPI_LOGICAL8, LOGICAL),
#endif
#ifdef MPI_INTEGER16
    T(MPI_INTEGER16, PLAINLY),
#endif
#ifdef MPI_REAL2
    T(MPI_REAL2, HALF),
#endif
#ifdef MPIX_C_FLOAT16
    T(MPIX_C_FLOAT16, HALF),
#endif
    T(MPI_REAL16, QUAD),
    T(MPI_COMPLEX32, QUAD)};

static const struct {
    const char *name;
    MPI_Op op;
} ops[] = {{"MPI_SUM", MPI_SUM},   {"MPI_PROD", MPI_PROD},     {"MPI_MIN", MPI_MIN},
           {"MPI_MAX", MPI_MAX},   {"MPI_LAND", MPI_LAND},     {"MPI_LOR", MPI_LOR},
           {"MPI_LXOR", MPI_LXOR}, {"MPI_BAND", MPI_BAND},     {"MPI_BOR", MPI_BOR},
           {"MPI_BXOR", MPI_BXOR}, {"MPI_MINLOC", MPI_MINLOC}, {"MPI_MAXLOC", MPI_MAXLOC}};

static _Alignas(16) char in[ROOM], before[ROOM], expected[ROOM], after[ROOM], result[ROOM];

/* Negative numbers of moderate size in every floating-point format. */
static void fill(int class)
{
    memset(in, 0xbf, ROOM);
    memset(before, 0xbe, ROOM);
    if (class == LOGICAL) {
        memset(in, 0, ROOM);
        memset(before, 0, ROOM);
        in[0] = 1;
    }
    if (class == QUAD)
        for (int i = 0; i < 2; i++) {
            ((Quad *)in)[i] = 1 + i;
            ((Quad *)before)[i] = 5 - i;
        }
    memcpy(expected, before, ROOM);
}

/* The same for half precision, which newer hosts have. */
static int known_half(MPI_Op op)
{
#ifdef __FLT16_MAX__
    _Float16 a, b, *e = (_Float16 *)expected;
    memcpy(&a, in, sizeof a);
    memcpy(&b, before, sizeof b);
    if (op == MPI_SUM)
        *e = a + b;
    else if (op == MPI_PROD)
        *e = a * b;
    else if (op == MPI_MIN)
        *e = a < b ? a : b;
    else if (op == MPI_MAX)
        *e = a > b ? a : b;
    else
        return 0;
    return 1;
#else
    return 0;
#endif
}

/* Whether the result is known; stores it in `expected`. */
static int known(const char *name, MPI_Datatype type, int class, MPI_Op op)
{
    Quad *e = (Quad *)expected;
    int logical = op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR;
    if (class == HALF)
        return known_half(op);
    /* MPICH 4.0 aborts in logical reductions of floating-point numbers, which MPI does not
     * define. */
    if (logical && (strstr(name, "FLOAT") || strstr(name, "DOUBLE") || strstr(name, "REAL")))
        return 0;
    if (strncmp(name, "MPI_INTEGER", 11) ==
        0) { /* not in Open MPI 4.1 */
        int size;
        MPI(MPI_Type_size(type, &size));
        type = size == 1 ? MPI_INT8_T : size == 4 ? MPI_INT32_T : size == 8 ? MPI_INT64_T : type;
    }
    if (class != QUAD)
        return MPI_Reduce_local(in, expected, 1, type, op) == MPI_SUCCESS;
    int complex = strcmp(name, "MPI_COMPLEX32") == 0;
    if (op == MPI_SUM) {
        e[0] = 6;
        e[1] = complex ? 6 : e[1];
    } else if (op == MPI_PROD) {
        e[0] = complex ? 1 * 5 - 2 * 4 : 5;
        e[1] = complex ? 1 * 4 + 2 * 5 : e[1];
    } else if (!complex && op == MPI_MIN)
        e[0] = 1;
    else if (complex || op != MPI_MAX)
        return 0;
    return 1;
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    int t = (me + 1) % ranks, carried_out = 0, refused = 0;
    MPI_Request r;
    /* Querying the host's reductions must not leave anything behind. */
    const MPI_Comm comms[] = {MPI_COMM_WORLD, MPI_COMM_SELF};
    for (int i = 0; i < 2; i++) {
        MPI_Errhandler handler;
        MPI(MPI_Comm_get_errhandler(comms[i], &handler));
        EXPECT(handler == MPI_ERRORS_ARE_FATAL,
               "MPI_Init has changed the error handler of communicator %d", i);
        MPI(MPI_Errhandler_free(&handler));
    }
    for (int kind = 0; kind < KINDS; kind++) {
        Window w = window(kind, ROOM, 1);
        MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
        /* Errors of calls without a communicator go to MPI_COMM_WORLD or, since MPI-4, to
         * MPI_COMM_SELF. */
        MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
        MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
                for (int call = 0; call < 5; call++) {
                    MPI_Datatype type = types[i].type, derived;
                    MPI_Op op = ops[k].op;
                    int size = 0, code;
                    if (type == MPI_DATATYPE_NULL || MPI_Type_size(type, &size) != MPI_SUCCESS ||
                        size == 0)
                        continue;
                    fill(types[i].class);
                    int value_known = known(types[i].name, type, types[i].class, op);
                    if (!value_known)
                        memcpy(expected, before, ROOM);
                    MPI(MPI_Type_contiguous(1, type, &derived));
                    MPI(MPI_Type_commit(&derived));
                    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, w.win));
                    MPI(MPI_Put(before, ROOM, MPI_BYTE, t, 0, ROOM, MPI_BYTE, w.win));
                    MPI(MPI_Win_flush(t, w.win));
                    memset(result, 0, ROOM);
                    if (call == 0)
                        code = MPI_Accumulate(in, 1, type, t, 0, 1, type, op, w.win);
                    else if (call == 1)
                        code = MPI_Get_accumulate(in, 1, type, result, 1, type, t, 0, 1, type, op,
                                                  w.win);
                    else if (call == 2)
                        code = MPI_Fetch_and_op(in, result, type, t, 0, op, w.win);
                    else if (call == 3)
                        code = MPI_Accumulate(in, 1, derived, t, 0, 1, type, op, w.win);
                    else if ((code = MPI_Raccumulate(in, 1, type, t, 0, 1, type, op, w.win, &r)) ==
                             MPI_SUCCESS)
                        MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
                    MPI(MPI_Win_flush(t, w.win));
                    MPI(MPI_Get(after, ROOM, MPI_BYTE, t, 0, ROOM, MPI_BYTE, w.win));
                    MPI(MPI_Win_unlock(t, w.win));
                    int class = class_of(code);
                    carried_out += class == MPI_SUCCESS;
                    refused += class == MPI_ERR_OP;
                    EXPECT(class == MPI_ERR_OP || (class == MPI_SUCCESS && value_known),
                           "%s, %s, call %d: class %d, the value is %s", types[i].name, ops[k].name,
                           call, class, value_known ? "known" : "not known");
                    EXPECT(memcmp(after, class == MPI_SUCCESS ? expected : before, ROOM) == 0,
                           "%s, %s, call %d: wrong value", types[i].name, ops[k].name, call);
                    EXPECT(types[i].class != PLAINLY || op != MPI_SUM || class == MPI_SUCCESS ||
                               !value_known || size == 1,
                           "%s: no sum", types[i].name);
                    MPI(MPI_Type_free(&derived));
                }
        window_free(&w);
    }
    if (me == 0)
        printf("%d reductions executed, %d refused\n", carried_out, refused);
    return test_end();
}
