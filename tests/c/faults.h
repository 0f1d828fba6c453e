/* Faults on command, for the programs that tests/rxe runs in guests: MPIX_TEST_FAULT is the program that makes them. */
#ifndef FAULTS_H
#define FAULTS_H

#include <time.h>

__attribute__((unused)) static const char *fault_program(void)
{
    const char *program = getenv("MPIX_TEST_FAULT");
    REQUIRE(program != NULL);
    return program;
}

/* Makes a fault. It is there when this returns. */
__attribute__((unused)) static void fault(const char *what)
{
    char *line = NULL;
    REQUIRE(asprintf(&line, "%s %s > /dev/null", fault_program(), what) > 0 && system(line) == 0);
    free(line);
}

__attribute__((unused)) static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

#endif
