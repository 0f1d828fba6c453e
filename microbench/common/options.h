/* Options of the command line. */
#ifndef MICROBENCH_OPTIONS_H
#define MICROBENCH_OPTIONS_H

/* The number behind an option. Ends the program with a message if it is not positive. */
double positive(const char *text, const char *option);

#endif
