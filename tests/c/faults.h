/*
 * Faults on command, for programs that tests/rxe runs in guests. MPIX_TEST_FAULT names the program
 * that injects them.
 */
#ifndef FAULTS_H
#define FAULTS_H


HELPER const char *fault_program(void)
{
    const char *program = getenv("MPIX_TEST_FAULT");
    REQUIRE(program != NULL);
    return program;
}

/* Injects a fault; it is in effect on return. */
HELPER void fault(const char *what)
{
    char *line = NULL;
    REQUIRE(asprintf(&line, "%s %s > /dev/null", fault_program(), what) > 0 && system(line) == 0);
    free(line);
}

#endif
