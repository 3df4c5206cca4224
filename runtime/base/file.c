#include "runtime/base/file.h"

#include <errno.h>
#include <fcntl.h>
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
