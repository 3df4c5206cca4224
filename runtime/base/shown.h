/*
 * Texts from elsewhere (a database, a file's name, an argument, a compiler's log), made safe to print.
 *
 * A terminal obeys control characters, and bidirectional controls make it show a text as another. So a character is
 * *plain* when it is valid UTF-8 and none of these: U+0000 to U+001F, U+007F to U+009F, the line separators U+2028 and
 * U+2029, and Unicode's Bidi_Control. The others are escaped:
 *
 *   for people   \n and \t; \x1b for other bytes below U+0080; \u202e for other characters; \xff for a byte that is
 *                no UTF-8
 *   in JSON      \u000a, \u001b, \u202e; \ufffd for a byte that is no UTF-8
 *
 * A plain text stays as it is. So does one that was escaped for people before. Thread-safe; but for growing texts
 * nothing is allocated.
 */
#ifndef FA2I_BASE_SHOWN_H
#define FA2I_BASE_SHOWN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include "runtime/base/text.h"

/* Bytes of the character at text, of which `left` bytes are there. *ret_plain: it is plain. A byte that begins no valid
 * UTF-8 is a character of its own, and not plain. */
size_t fa2i_shown_character(const char *text, size_t left, bool *ret_plain);

/* Every character of these bytes is plain. */
bool fa2i_shown_is_plain(const char *text, size_t bytes);

/* Like vsnprintf, snprintf, fprintf and vfprintf, with every %s argument escaped for people. What does not fit is left
 * out, whole characters at a time. as_it_is (may be NULL): an argument at this address is not escaped. Known are %s,
 * %c, %d, %i, %u, %x, %p, %f, %e, %g and %%. */
void fa2i_shown_format(char *out, size_t out_bytes, const char *as_it_is, const char *format, va_list args);
void fa2i_shown_write(char *out, size_t out_bytes, const char *format, ...) FA2I_PRINTF(3, 4);
void fa2i_shown_print(FILE *out, const char *format, ...) FA2I_PRINTF(2, 3);
void fa2i_shown_vprint(FILE *out, const char *format, va_list args);

/* Appends text, escaped for people, to what is in out. lines: its newlines and tabs stay. */
void fa2i_shown_append(char *out, size_t out_bytes, const char *text, bool lines);

/* The same at the end of a growing text, which stays one line. */
void fa2i_shown_add(fa2i_text *out, const char *text);

/* Prints text as a JSON string with its quotes. NULL: null. */
void fa2i_json_string(FILE *out, const char *text);

/* Adds, or prints, JSON that SQLite made: the same JSON, with only plain characters in its strings. */
void fa2i_json_add(fa2i_text *out, const char *json);
void fa2i_json_print(FILE *out, const char *json);

#endif
