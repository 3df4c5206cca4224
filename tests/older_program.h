/* See older_program.c. */
#ifndef FA2_TESTS_OLDER_PROGRAM_H
#define FA2_TESTS_OLDER_PROGRAM_H

#include <stddef.h>

/* Bytes of its structs. */
typedef struct older_sizes {
    size_t config, forward_args, backward_args, explanation;
} older_sizes;

/* Returns how many checks failed. */
int older_program(older_sizes *ret_sizes);

#endif
