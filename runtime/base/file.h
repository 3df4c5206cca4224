/*
 * Reads and writes files whose names come from a folder or from the environment.
 */
#ifndef FA2I_FILE_H
#define FA2I_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* Open a regular file for reading. The caller closes it (fclose). Returns NULL, with the reason in *ret_why (valid
 * until the next call), if it cannot. Never waits, as a pipe of that name would make the caller do for ever. Thread-safe
 * as strerror is. */
FILE *fa2i_file_open(const char *path, const char **ret_why);

/* Writes all bytes to a descriptor, through interruptions. Returns false, and errno says why, if it cannot. */
bool fa2i_file_write_all(int file, const void *data, size_t bytes);

/* Write a file, readable for its owner alone. It gets its name when it is complete, and replaces what has it. Returns
 * false, with the reason in *ret_why as above and the old file in place, if it cannot. */
bool fa2i_file_write(const char *path, const void *data, size_t bytes, const char **ret_why);

#endif
