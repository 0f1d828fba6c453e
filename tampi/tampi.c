/*
 * libmpix_tampi - TAMPI's calls over those of mpix-rma. See TAMPI.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include <mpix_task.h>

#include "TAMPI.h"

/* What TAMPI_PROPERTY_AUTO_INIT says. */
static int auto_init = 1;
/* TAMPI_Init has been called. */
static int turned_on;

static int level_is(int least)
{
    int begun = 0, ended = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    if (!begun || ended)
        return 0;
    MPI_Query_thread(&level);
    return level >= least && (auto_init || turned_on);
}

/* Whether the process has a runtime with tasks that can be bound to requests. */
static int has_tasks(void)
{
    return dlsym(RTLD_DEFAULT, "alpi_task_events_increase") != NULL;
}

int TAMPI_Blocking_enabled(int *flag)
{
    if (!flag)
        return MPI_ERR_ARG;
    *flag = level_is(MPI_TASK_MULTIPLE);
    return MPI_SUCCESS;
}

int TAMPI_Nonblocking_enabled(int *flag)
{
    if (!flag)
        return MPI_ERR_ARG;
    *flag = level_is(MPI_THREAD_MULTIPLE) && has_tasks();
    return MPI_SUCCESS;
}

int TAMPI_Property_get(int property, int *value)
{
    if (!value)
        return MPI_ERR_ARG;
    switch (property) {
    case TAMPI_PROPERTY_BLOCKING_MODE:
        return TAMPI_Blocking_enabled(value);
    case TAMPI_PROPERTY_NONBLOCKING_MODE:
        return TAMPI_Nonblocking_enabled(value);
    case TAMPI_PROPERTY_AUTO_INIT:
        *value = auto_init;
        return MPI_SUCCESS;
    case TAMPI_PROPERTY_THREAD_TASKAWARE:
        /* The call that says what it was also sets it. */
        MPIX_Task_set_blocking(0, value);
        return MPIX_Task_set_blocking(*value, NULL);
    default:
        return MPI_ERR_ARG;
    }
}

int TAMPI_Property_set(int property, int value)
{
    int begun = 0;
    switch (property) {
    case TAMPI_PROPERTY_AUTO_INIT:
        MPI_Initialized(&begun);
        if (begun)
            return MPI_ERR_ARG;
        auto_init = value != 0;
        return MPI_SUCCESS;
    case TAMPI_PROPERTY_THREAD_TASKAWARE:
        return MPIX_Task_set_blocking(value, NULL);
    default:
        return MPI_ERR_ARG;
    }
}

int TAMPI_Init(int required, int *provided)
{
    int level;
    if (!provided)
        return MPI_ERR_ARG;
    turned_on = 1;
    MPI_Query_thread(&level);
    *provided = level < required ? level : required;
    return MPI_SUCCESS;
}

int TAMPI_Finalize(void)
{
    turned_on = 0;
    return MPI_SUCCESS;
}

int TAMPI_Iwait(MPI_Request *request, MPI_Status *status)
{
    return MPIX_Task_iwait(request, status);
}

int TAMPI_Iwaitall(int count, MPI_Request requests[], MPI_Status *statuses)
{
    return MPIX_Task_iwaitall(count, requests, statuses);
}

/* ---- Fortran. A status has the same bytes as in C. ---- */

void tampi_property_get_(MPI_Fint *property, MPI_Fint *value, MPI_Fint *err)
{
    *err = TAMPI_Property_get(*property, value);
}

void tampi_property_set_(MPI_Fint *property, MPI_Fint *value, MPI_Fint *err)
{
    *err = TAMPI_Property_set(*property, *value);
}

void tampi_init_(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *err)
{
    *err = TAMPI_Init(*required, provided);
}

void tampi_finalize_(MPI_Fint *err)
{
    *err = TAMPI_Finalize();
}

/* These flags are Fortran's LOGICAL, whose true is 1 in gfortran and flang, and MPI_Fint here. */
void tampi_blocking_enabled_(MPI_Fint *flag, MPI_Fint *err)
{
    *err = TAMPI_Blocking_enabled(flag);
}

void tampi_nonblocking_enabled_(MPI_Fint *flag, MPI_Fint *err)
{
    *err = TAMPI_Nonblocking_enabled(flag);
}

void tampi_iwait_(MPI_Fint *request, MPI_Fint *status, MPI_Fint *err)
{
    MPI_Request in_c = MPI_Request_f2c(*request);
    *err = TAMPI_Iwait(&in_c, status == MPI_F_STATUS_IGNORE ? MPI_STATUS_IGNORE
                                                            : (MPI_Status *)status);
    *request = MPI_Request_c2f(in_c);
}

void tampi_iwaitall_(MPI_Fint *count, MPI_Fint requests[], MPI_Fint *statuses, MPI_Fint *err)
{
    int n = *count < 0 ? 0 : *count;
    MPI_Request *in_c = malloc(((size_t)n + 1) * sizeof *in_c);
    if (!in_c) {
        *err = MPI_ERR_NO_MEM;
        return;
    }
    for (int i = 0; i < n; i++)
        in_c[i] = MPI_Request_f2c(requests[i]);
    *err = TAMPI_Iwaitall(*count, in_c, statuses == MPI_F_STATUSES_IGNORE ? MPI_STATUSES_IGNORE
                                                                          : (MPI_Status *)statuses);
    for (int i = 0; i < n; i++)
        requests[i] = MPI_Request_c2f(in_c[i]);
    free(in_c);
}
