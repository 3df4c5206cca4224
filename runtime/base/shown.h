/*
 * Makes texts from outside safe to print: from a database, a file name, an argument, a compiler's log.
 *
 * A terminal obeys control characters, and bidirectional controls make it show a different text. So a character is
 * *plain* if it is valid UTF-8 and none of these: U+0000 to U+001F, U+007F to U+009F, the line separators U+2028 and
 * U+2029, and Unicode's Bidi_Control. The others are escaped:
 *
 *   for people   \n and \t; \x1b for other bytes below U+0080; \u202e for other characters; \xff for a byte that is
 *                not UTF-8
 *   in JSON      \u000a, \u001b, \u202e; \ufffd for a byte that is not UTF-8
 *
 * A plain text stays unchanged, and so does a text that was already escaped for people. Thread-safe. Only growing texts
 * are allocated.
 */
#pragma once

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include "runtime/base/text.h"

/* Returns the bytes of the character at text, of which `left` bytes exist. *ret_plain: the character is plain. A byte
 * that begins no valid UTF-8 is a character by itself, and is not plain. */
size_t fa2i_shown_character(const char *text, size_t left, bool *ret_plain);

/* Returns whether every character of these bytes is plain. */
bool fa2i_shown_is_plain(const char *text, size_t bytes);

/* Like vsnprintf, snprintf, fprintf and vfprintf, with every %s argument escaped for people. Text that does not fit is
 * cut between characters. An argument whose address is as_it_is (may be NULL) is not escaped. The conversions are %s,
 * %c, %d, %i, %u, %x, %p, %f, %e, %g and %%. */
void fa2i_shown_format(char *out, size_t out_bytes, const char *as_it_is, const char *format, va_list args);
void fa2i_shown_write(char *out, size_t out_bytes, const char *format, ...) FA2I_PRINTF(3, 4);
void fa2i_shown_print(FILE *out, const char *format, ...) FA2I_PRINTF(2, 3);
void fa2i_shown_vprint(FILE *out, const char *format, va_list args);

/* Appends text, escaped for people, to the text in out. lines: newlines and tabs stay. */
void fa2i_shown_append(char *out, size_t out_bytes, const char *text, bool lines);

/* The same at the end of a growing text, which stays one line. */
void fa2i_shown_add(fa2i_text *out, const char *text);

/* Prints JSON, like fprintf. The format differs from printf's:
 *     '   is printed as "
 *     %s  a quoted string; fa2i_json_null, or NULL, is null
 *     %i  a BOOL: true or false
 *     %f  and other real numbers: null unless the number is finite
 * fa2i_json_known returns NaN, which is printed as null, unless the number is positive. */
extern const char fa2i_json_null[];
void fa2i_json_write(FILE *out, const char *format, ...) FA2I_PRINTF(2, 3);
static inline double fa2i_json_known(double number)
{
    return number > 0 ? number : (double)NAN;
}

/* Adds, or prints, JSON that SQLite made. It is the same JSON, with only plain characters in its strings. */
void fa2i_json_add(fa2i_text *out, const char *json);
void fa2i_json_print(FILE *out, const char *json);
