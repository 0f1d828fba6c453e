#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool first_rank(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank == 0;
}

void complain(const char *program, const char *format, ...)
{
    if (!first_rank())
        return;
    va_list rest;
    va_start(rest, format);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    va_end(rest);
}

bool whole_number(const char *program, const char *option, const char *text, uint64_t least,
                  uint64_t most, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || *text == '-' || errno != 0 || number < least ||
        number > most) {
        complain(program, "%s needs an integer from %" PRIu64 " to %" PRIu64 ", not \"%s\"",
                 option, least, most, text);
        return false;
    }
    *value = number;
    return true;
}
