/*
 * Reads and writes files whose names come from outside: from the listing of a folder, or from the environment.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* Opens a regular file for reading. The caller closes it (fclose). On failure returns NULL, with the reason in
 * *ret_why, valid until the next call. Never blocks: opening a pipe of that name would otherwise wait forever.
 * Thread-safe like strerror. */
FILE *fa2i_file_open(const char *path, const char **ret_why);

/* Writes all bytes to a descriptor, and goes on after interruptions. On failure returns false and sets errno. */
bool fa2i_file_write_all(int file, const void *data, size_t bytes);

/* Writes a file that only its owner can read. It appears under its name when it is complete, and replaces a file of
 * that name. On failure returns false, with the reason in *ret_why as above, and the old file stays. */
bool fa2i_file_write(const char *path, const void *data, size_t bytes, const char **ret_why);
