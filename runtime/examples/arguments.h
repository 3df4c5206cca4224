/*
 * The example's command line: [B H S D causal] [--backward] [--softcap C] [--window LEFT,RIGHT]
 * [--db FILE], in any order.
 */
#ifndef EXAMPLE_ARGUMENTS_H
#define EXAMPLE_ARGUMENTS_H

#include <fa2.h>

typedef struct arguments {
    fa2_problem problem;  /* forward */
    float softcap;        /* if the problem has one */
    int backward;         /* 1: the gradients are wanted, too */
    const char *database; /* NULL: fa2's default. Borrowed from argv */
} arguments;

/* 0, or -1 where they are not like that. */
int read_arguments(int argc, char **argv, arguments *ret_arguments);

#endif
