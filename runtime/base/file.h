/*
 * Opens files whose names come from a folder or from the environment. A pipe there would make the caller wait for ever.
 */
#ifndef FA2I_FILE_H
#define FA2I_FILE_H

#include <stdio.h>

/* Open a regular file for reading; the caller's (fclose). NULL: *ret_why says why, until the next call. Never waits. */
FILE *fa2i_file_open(const char *path, const char **ret_why);

#endif
