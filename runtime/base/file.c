#define _GNU_SOURCE /* mkostemp */
#include "runtime/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *fa2i_file_open(const char *path, const char **ret_why)
{
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const int known = file < 0 ? -1 : fstat(file, &info);
    FILE *opened = known == 0 && S_ISREG(info.st_mode) ? fdopen(file, "rb") : NULL;
    if (opened == NULL)
        *ret_why = known == 0 && !S_ISREG(info.st_mode) ? "is no regular file" : strerror(errno);
    if (opened == NULL && file >= 0)
        close(file);
    return opened;
}

bool fa2i_file_write_all(int file, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t written = write(file, at, bytes);
        if (written < 0 && errno != EINTR)
            return false;
        at += written > 0 ? written : 0;
        bytes -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

bool fa2i_file_write(const char *path, const void *data, size_t bytes, const char **ret_why)
{
    char fresh[PATH_MAX];
    const int length = snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
    const int file = (size_t)length < sizeof fresh ? mkostemp(fresh, O_CLOEXEC) : -1;
    bool written = file >= 0 && fa2i_file_write_all(file, data, bytes);
    int cause = (size_t)length < sizeof fresh ? errno : ENAMETOOLONG;
    if (file >= 0 && close(file) != 0 && written) {
        written = false;
        cause = errno;
    }
    if (written && rename(fresh, path) != 0) {
        written = false;
        cause = errno;
    }
    if (file >= 0 && !written)
        remove(fresh);
    if (!written)
        *ret_why = strerror(cause);
    return written;
}
