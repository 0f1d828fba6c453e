/*
 * Series to compare: the plain host; the library with blocking and nonblocking epochs, ordered or
 * reordered.
 */
#ifndef EXECUTOR_SERIES_H
#define EXECUTOR_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct series {
    const char *name;
    bool nonblocking;
    const char *const *reorder; /* NULL-terminated info keys */
};

static inline const struct series *series_named(const struct series *list, size_t count,
                                                const char *name)
{
    for (size_t k = 0; k < count; k++)
        if (strcmp(list[k].name, name) == 0)
            return &list[k];
    return NULL;
}

#endif
