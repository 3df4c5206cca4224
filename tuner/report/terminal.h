/*
 * Tells how a stream can show text. A file or a pipe has no width and gets no colours, so its output is the same
 * everywhere. Thread-safe, except for changes of the environment.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum fa2i_style {
    FA2I_STYLE_PLAIN,
    FA2I_STYLE_HEAD, /* bold */
    FA2I_STYLE_GOOD, /* green */
    FA2I_STYLE_BAD   /* red */
} fa2i_style;

/* Returns the columns of a terminal, at least 40, and 80 if it does not say. 0: the stream is no terminal. */
size_t fa2i_terminal_width(FILE *out);

/* Text printed between these two calls has this style if the stream has colours. */
void fa2i_terminal_begin(FILE *out, fa2i_style style);
void fa2i_terminal_end(FILE *out, fa2i_style style);

/* Prints these bytes on lines of `width` columns. The first line has `used` columns taken already; the others begin
 * with `indent` blanks. A word longer than a line is not broken. */
void fa2i_terminal_fold(FILE *out, const char *text, size_t bytes, size_t width, size_t used, size_t indent);

/* Prints lines. On a terminal, long lines are folded and continue after `indent` blanks. The first `indent` columns of
 * a line are a label, which is printed as a head. */
void fa2i_terminal_print_lines(FILE *out, const char *text, size_t indent);
