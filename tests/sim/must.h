/*
 * What a test or a tool cannot go on without. Ends the process with 1 and the last message of libfa2.
 */
#ifndef SIM_MUST_H
#define SIM_MUST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "fa2.h"

static inline void must_be(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, fa2_last_message());
    exit(1);
}

static inline void must(fa2_status status, const char *what)
{
    must_be(status == FA2_OK, what);
}

#endif
