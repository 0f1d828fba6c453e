/* Shared by the command lines of the applications. */
#ifndef EXECUTOR_COMMAND_H
#define EXECUTOR_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

/* Parses an integer within bounds. On failure rank 0 prints a message, and it returns false. */
bool whole_number(const char *program, const char *option, const char *text, uint64_t least,
                  uint64_t most, uint64_t *value);

/* Rank 0 prints messages once. */
void complain(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool first_rank(void);

#endif
