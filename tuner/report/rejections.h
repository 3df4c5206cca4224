/*
 * What the generator rejected: lines "variant: why", as fa2i_explained.rejected has them.
 */
#ifndef FA2I_REJECTIONS_H
#define FA2I_REJECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct fa2i_rejection {
    const char *variant, *why; /* borrowed from the text */
    size_t variant_bytes, why_bytes;
} fa2i_rejection;

/* Cut the next line off *text; false at the end. */
bool fa2i_rejection_next(const char **text, fa2i_rejection *ret_rejection);

/* Print them by reason, for people. */
void fa2i_rejections_print(const char *text, FILE *out);

#endif
