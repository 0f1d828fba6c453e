/* What the command lines of the applications have in common. */
#ifndef EXECUTOR_COMMAND_H
#define EXECUTOR_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

/* Reads a whole number within bounds. False, with a message of rank 0, if the text is none. */
bool whole_number(const char *program, const char *option, const char *text, uint64_t least, uint64_t most,
                  uint64_t *value);

/* Messages go out once, from rank 0. */
void complain(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool first_rank(void);

#endif
