/*
 * What the stream that texts go to can show. A file or a pipe has no width, and gets no colours: what comes out there
 * is the same everywhere. Thread-safe, but for the environment.
 */
#ifndef FA2I_TERMINAL_H
#define FA2I_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum fa2i_style {
    FA2I_STYLE_PLAIN,
    FA2I_STYLE_HEAD, /* bold */
    FA2I_STYLE_GOOD, /* green */
    FA2I_STYLE_BAD   /* red */
} fa2i_style;

/* Columns of a terminal (80 where it does not say), at least 40; 0: the stream is none. */
size_t fa2i_terminal_width(FILE *out);

/* A terminal, unless NO_COLOR is set and not empty (no-color.org), or TERM is dumb. */
bool fa2i_terminal_has_colours(FILE *out);

/* What is printed between both is in this style, where the stream has colours. */
void fa2i_terminal_begin(FILE *out, fa2i_style style);
void fa2i_terminal_end(FILE *out, fa2i_style style);

/* Print these bytes on lines of `width` columns, of which `used` are taken on the first, and `indent` blank ones
 * begin the others; what has no blank to break at is longer. */
void fa2i_terminal_fold(FILE *out, const char *text, size_t bytes, size_t width, size_t used,
                        size_t indent);

/* Print lines; on a terminal those that are too long go on in others, indented by so many columns, and the labels
 * that lines begin with, `indent` columns wide, are heads. */
void fa2i_terminal_print_lines(FILE *out, const char *text, size_t indent);

#endif
