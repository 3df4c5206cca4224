/*
 * The commands as data, and what is made of that one table: the help, the manual page, and the completions of
 * shells.
 *
 * A command's help is paragraphs about it and, if it takes options, an empty line, and a line for each option: two
 * spaces, the option, a space and the name of its value if it takes one, at least two spaces, what it does; lines
 * that go on are indented further. Pure but for the streams.
 */
#ifndef FA2I_MANUAL_H
#define FA2I_MANUAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct fa2i_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *synopsis; /* what may follow the name */
    const char *summary;  /* a few words */
    const char *help;
} fa2i_command;

/* An option of a help text. */
typedef struct fa2i_option_help {
    char name[24];  /* "--db" */
    char value[16]; /* "FILE"; "": it takes none */
    char text[480]; /* in one line */
} fa2i_option_help;

/* The next option of a help text, from *help on, which is moved behind it; false: there is none. */
bool fa2i_next_option(const char **help, fa2i_option_help *ret_option);

/* The manual page, for man(7). */
void fa2i_print_manual(const fa2i_command *commands, size_t count, FILE *out);

/* The completion script for bash, zsh or fish; false: there is none for such a shell. archs: what --arch takes,
 * "native all sm_75 ...", the SMs last. */
bool fa2i_print_completion(const char *shell, const fa2i_command *commands, size_t count,
                           const char *archs, FILE *out);

#endif
