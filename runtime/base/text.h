/*
 * A growing string with a sticky error: append freely, and test once with fa2i_text_take. Invariant: data is NULL or
 * NUL-terminated. If failed is 1, later appends do nothing. Not thread-safe.
 */
#pragma once

#include "runtime/base/status.h"

/* Format of a time in microseconds in sentences about choice and tuning. With one format, the same time always reads
 * the same. A benchmark uses a format of its own. */
#define FA2I_US "%.2f"

typedef struct fa2i_text {
    char *data;
    size_t length; /* bytes before the NUL */
    size_t capacity;
    int failed; /* 1: out of memory */
} fa2i_text;

void fa2i_text_add(fa2i_text *text, const char *format, ...) FA2I_PRINTF(2, 3);
void fa2i_text_add_bytes(fa2i_text *text, const char *bytes, size_t count);

/* Gives the string away: the caller owns *ret_string (fa2i_free), and text is empty again. */
fa2_status fa2i_text_take(fa2i_text *text, char **ret_string);

void fa2i_text_done(fa2i_text *text); /* zeroed objects are fine */

/* Makes a string. The caller owns *ret_string (fa2i_free). */
fa2_status fa2i_text_make(char **ret_string, const char *format, ...) FA2I_PRINTF(2, 3);
