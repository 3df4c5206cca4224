/*
 * The commands as a table, and the texts made from it: the help, the manual page, and the completions of shells.
 *
 * A command's help consists of paragraphs about it. If it takes options, an empty line follows, then one line per
 * option: two spaces, the option, a space and the name of its value if it takes one, at least two spaces, and its
 * meaning. Continued lines are indented further. The functions only write to their streams.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct fa2i_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *synopsis; /* the text that may follow the name */
    const char *summary;  /* a few words */
    const char *help;
} fa2i_command;

/* The environment variables that the library or fa2-tune reads. names NULL ends the list. */
typedef struct fa2i_variable {
    const char *names; /* "FA2_DB"; several: "HOME, XDG_CACHE_HOME" */
    const char *meaning;
} fa2i_variable;
extern const fa2i_variable fa2i_variables[];

/* Prints the manual page, for man(7). */
void fa2i_print_manual(const fa2i_command *commands, size_t count, FILE *out);

/* Prints the completion script for bash, zsh or fish. Returns false for any other shell. archs: the values of --arch,
 * "native all sm_75 ...", with the SMs last. */
bool fa2i_print_completion(const char *shell, const fa2i_command *commands, size_t count, const char *archs, FILE *out);
