#define _GNU_SOURCE /* secure_getenv */
#include "runtime/base/environment.h"

#include <stddef.h>
#include <stdlib.h>
#if defined(__GLIBC__)
#define GET secure_getenv
#elif defined(__linux__)
#include <sys/auxv.h>
#define GET(name) (getauxval(AT_SECURE) != 0 ? NULL : getenv(name))
#else /* the BSDs and macOS */
#include <unistd.h>
#define GET(name) (issetugid() ? NULL : getenv(name))
#endif

const char *fa2i_environment_given(const char *name)
{
    return GET(name);
}

const char *fa2i_environment(const char *name)
{
    const char *value = GET(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

const char *fa2i_environment_folder(void)
{
    const char *given = fa2i_environment("TMPDIR");
    return given != NULL ? given : "/tmp";
}
