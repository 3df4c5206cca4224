/*
 * The example's command line, with options in any order:
 *     [B H S D causal] [--backward] [--softcap C] [--window LEFT,RIGHT] [--db FILE] [--help]
 */
#pragma once

#include <fa2.h>

typedef struct arguments {
    fa2_problem problem;  /* forward */
    float softcap;        /* if the problem has a softcap */
    int backward;         /* 1: compute the gradients, too */
    int help;             /* 1: only say how it is called */
    const char *database; /* NULL: fa2's default. Borrowed from argv */
} arguments;

/* Returns 0, or -1 if the arguments are malformed. A wrong option is named on standard error. */
int read_arguments(int argc, char **argv, arguments *ret_arguments);
