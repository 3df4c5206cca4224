/*
 * The generator's rejections: lines "variant: why", as in fa2i_explained.rejected.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct fa2i_rejection {
    const char *variant, *why; /* borrowed from the text */
    size_t variant_bytes, why_bytes;
} fa2i_rejection;

/* Cuts the next line off *text. Returns false at the end. */
bool fa2i_rejection_next(const char **text, fa2i_rejection *ret_rejection);

/* Prints them by reason, for people. */
void fa2i_rejections_print(const char *text, FILE *out);
