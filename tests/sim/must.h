/*
 * Checks for steps without which a test or tool cannot go on. On failure they print the last message of libfa2 and end
 * the process with status 1.
 */
#pragma once

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
