/* See older_program.c. */
#pragma once

#include <stddef.h>

/* The sizes of its structs in bytes. */
typedef struct older_sizes {
    size_t config, forward_args, backward_args, explanation;
} older_sizes;

/* Runs the checks. Returns how many failed. */
int older_program(older_sizes *ret_sizes);
