/*
 * A test's own generator scripts: the real ones with a changed end of gen/init.lua. Once they are written, generators
 * created between scripts_begin and scripts_end read them. check.h counts failures.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "check.h"

static char scripts[] = "/tmp/fa2-scripts-XXXXXX";

static inline const char *inside(const char *name)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%s", scripts, name);
    return path;
}

/* Writes gen/init.lua with this text before its end. */
static inline void write_scripts(const char *more)
{
    static char text[32768];
    static const char end[] = "return M\n";
    char real[1024];
    const char *source = getenv("FA2_SOURCE_DIR");
    snprintf(real, sizeof real, "%s/gen/init.lua", source == NULL ? "." : source);
    FILE *file = fopen(real, "rb");
    const size_t bytes = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    const bool read = file != NULL && fclose(file) == 0 && bytes > sizeof end && bytes < sizeof text - 1;
    CHECK(read);
    if (!read)
        return;
    text[bytes] = '\0';
    CHECK_STR(text + bytes - strlen(end), end);
    text[bytes - strlen(end)] = '\0';

    file = fopen(inside("gen/init.lua"), "wb");
    CHECK(file != NULL && fprintf(file, "%s\n%sreturn M\n", text, more) > 0 && fclose(file) == 0);
}

/* Gives kernels a different text with the same effect. */
static inline void write_commented(const char *comment)
{
    char more[256];
    snprintf(more, sizeof more,
             "local real = M.source\n"
             "function M.source(text, read)\n"
             "   local source, message = real(text, read)\n"
             "   return source and source .. '// %s\\n', message\n"
             "end\n",
             comment);
    write_scripts(more);
}

static inline void scripts_begin(void)
{
    strcpy(scripts, "/tmp/fa2-scripts-XXXXXX");
    CHECK(mkdtemp(scripts) != NULL);
    CHECK_EQ(mkdir(inside("gen"), 0700), 0);
    setenv("FA2_GEN_PATH", scripts, 1);
}

static inline void scripts_end(void)
{
    unsetenv("FA2_GEN_PATH");
    CHECK_EQ(remove(inside("gen/init.lua")), 0);
    CHECK_EQ(rmdir(inside("gen")), 0);
    CHECK_EQ(rmdir(scripts), 0);
}
