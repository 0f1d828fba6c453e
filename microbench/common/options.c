#define _GNU_SOURCE
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

double positive(const char *text, const char *option)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0.0 && value <= 1e9)) {
        fprintf(stderr, "%s: %s wants a positive number, not \"%s\"\n",
                program_invocation_short_name, option, text);
        exit(2);
    }
    return value;
}
