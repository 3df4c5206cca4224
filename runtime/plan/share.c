/*
 * The folder is looked for relative to the file that contains this code. That is an installed library (lib/,
 * lib/x86_64-linux-gnu/), a program that was linked with it (bin/), or a Python package.
 */
#define _GNU_SOURCE /* dladdr, getline */
#include "runtime/plan/share.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/shipped/shipped.h"
#include "runtime/base/alloc.h"
#include "runtime/base/environment.h"
#include "runtime/base/shown.h"
#include "runtime/ops/op.h"

#ifndef FA2_SHARE_INSTALLED /* the build may define both; the first is relative to the library's folder */
#define FA2_SHARE_FROM_LIBRARY "../share/fa2"
#define FA2_SHARE_INSTALLED    "/usr/local/share/fa2"
#endif

/* ---- the folder ---- */

static void add_folder(fa2i_text *text, const char *file)
{
    fa2i_text_add_bytes(text, file, (size_t)(strrchr(file, '/') - file));
}

/* Adds the absolute folder of the file from which the system mapped an address. Adds nothing if the system does not
 * say. */
static void add_mapped_folder(fa2i_text *text, const void *address)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t length = 0;
    bool found = false;
    while (maps != NULL && !found && (length = getline(&line, &room, maps)) > 0) {
        uintptr_t first = 0, end = 0;
        const char *path = strchr(line, '/');
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        found = path != NULL && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &first, &end) == 2 &&
                first <= (uintptr_t)address && (uintptr_t)address < end;
        if (found)
            add_folder(text, path);
    }
    free(line);
    if (maps != NULL)
        fclose(maps);
}

/* Finds the absolute folder of the file that contains this code, or "". The loader knows only the names that it was
 * given. For a program that is the name by which it was called, which need not say where it lies. For a library it is a
 * path relative to the working directory of that time. */
static fa2_status own_folder(char **ret_folder)
{
    Dl_info info;
    fa2i_text text = {0};
    fa2_status (*const here)(char **) = fa2i_share_find;
    void *address = NULL;
    memcpy(&address, &here, sizeof address); /* ISO C cannot convert a function pointer to void * */
    const bool told = dladdr(address, &info) != 0 && info.dli_fname != NULL;
    char *file = told && info.dli_fname[0] == '/' ? realpath(info.dli_fname, NULL) : NULL;
    if (file != NULL)
        add_folder(&text, file);
    else
        add_mapped_folder(&text, address);
    free(file);
    return fa2i_text_take(&text, ret_folder);
}

/* Replaces a path by the real one, which messages show. It stays as it is if there is no memory. */
static void resolve(char **path)
{
    char *real = *path != NULL ? realpath(*path, NULL) : NULL;
    char *copy = real != NULL ? fa2i_strdup(real) : NULL;
    if (copy != NULL) {
        fa2i_free(*path);
        *path = copy;
    }
    free(real);
}

fa2_status fa2i_share_find(char **ret_folder)
{
    static const char *const beside[] = {FA2_SHARE_FROM_LIBRARY, "../share/fa2", "share/fa2"};
    fa2_status st = FA2_OK;
    char *own = NULL, *path = NULL;
    const char *given = fa2i_environment_given("FA2_SHARE");
    *ret_folder = NULL;
    if (given != NULL && given[0] == '\0')
        return FA2_OK;
    if (given == NULL)
        FA2_TRY(own_folder(&own));
    for (size_t i = 0; own != NULL && i < sizeof beside / sizeof *beside; i++) {
        FA2_TRY(fa2i_text_make(&path, "%s/%s", own, beside[i]));
        if (own[0] != '\0' && access(path, R_OK | X_OK) == 0)
            break;
        fa2i_free(path);
        path = NULL;
    }
    resolve(&path);
    /* If nothing was installed, nothing is missing. */
    if (path == NULL && (given != NULL || access(FA2_SHARE_INSTALLED, F_OK) == 0)) {
        path = fa2i_strdup(given != NULL ? given : FA2_SHARE_INSTALLED);
        if (path == NULL)
            FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for the path of a folder"));
    }
    *ret_folder = path;
    path = NULL; /* ownership has moved to the caller */
done:
    fa2i_free(path);
    fa2i_free(own);
    return st;
}

/* ---- its times ---- */

void fa2i_share_add_file(const char *name, const char *path, fa2i_key *key)
{
    struct stat info = {0};
    (void)stat(path, &info); /* a file that cannot be read has zeros */
    const fa2i_part parts[] = {{key->bytes, sizeof key->bytes},
                               {name, strlen(name)},
                               {&info.st_size, sizeof info.st_size},
                               {&info.st_mtim.tv_sec, sizeof info.st_mtim.tv_sec},
                               {&info.st_mtim.tv_nsec, sizeof info.st_mtim.tv_nsec}};
    fa2i_key_of(parts, sizeof parts / sizeof *parts, key);
}

fa2_status fa2i_share_key(const char *folder, fa2i_key *ret_key)
{
    char *path = NULL;
    *ret_key = (fa2i_key){0};
    if (folder == NULL)
        return FA2_OK;
    const fa2_status st = fa2i_text_make(&path, "%s/%s", folder, FA2I_SHARE_TIMES);
    if (st == FA2_OK && access(path, F_OK) == 0)
        fa2i_share_add_file(FA2I_SHARE_TIMES, path, ret_key);
    fa2i_free(path);
    return st;
}

/* Logs a failure, unless it is FA2_E_MEMORY. */
static fa2_status tell(fa2_status st, fa2i_log_fn log, void *log_user)
{
    char text[FA2I_MESSAGE_BYTES + 64];
    if (st == FA2_OK || st == FA2_E_MEMORY)
        return st;
    fa2i_shown_write(text, sizeof text, "times that come with fa2 are passed over: %s", fa2_last_message());
    if (log != NULL)
        log(log_user, text);
    return FA2_OK;
}

/* A folder without times, as of a build for another machine, is no failure. */
static fa2_status read_times(const char *folder, const char *path, const fa2i_card *card, fa2_op op,
                             fa2i_evidence *evidence)
{
    const fa2_problem any = {.struct_bytes = sizeof(fa2_problem), .op = op};
    struct stat info;
    if (stat(path, &info) == 0)
        return fa2i_shipped_read(path, card, op, fa2i_op_of(&any)->abi, evidence);
    if (errno == ENOENT && access(folder, R_OK | X_OK) == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_IO, "%s: %s", folder, strerror(errno));
}

fa2_status fa2i_share_read(const char *folder, const fa2i_card *card, fa2_op op, fa2i_log_fn log, void *log_user,
                           fa2i_evidence *evidence)
{
    char *path = NULL;
    if (folder == NULL)
        return FA2_OK;
    fa2_status st = fa2i_text_make(&path, "%s/%s", folder, FA2I_SHARE_TIMES);
    if (st == FA2_OK)
        st = tell(read_times(folder, path, card, op, evidence), log, log_user);
    fa2i_free(path);
    return st;
}
