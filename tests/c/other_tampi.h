/*
 * What other_tampi.c has beyond TAMPI's calls.
 */
#ifndef OTHER_TAMPI_H
#define OTHER_TAMPI_H

/* How many calls it has answered. */
extern int other_tampi_calls(void);

/* Tests all pending requests, in a task. Nonzero if some are left. */
extern int other_tampi_poll(void);

#endif
