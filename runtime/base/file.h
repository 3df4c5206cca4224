/*
 * Opens files whose names come from a folder or from the environment. A pipe there would make the caller wait for ever.
 */
#ifndef FA2I_FILE_H
#define FA2I_FILE_H

#include <stdio.h>

/* Open a regular file for reading. The caller closes it (fclose). Returns NULL, with the reason in *ret_why (valid
 * until the next call), if it cannot. Never waits. Thread-safe as strerror is. */
FILE *fa2i_file_open(const char *path, const char **ret_why);

#endif
