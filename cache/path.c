/*
 * Where the database is, and whether its file can be trusted.
 *
 * Invariants:
 * - an existing database is only ever stat'ed here, never opened: closing a second descriptor of a
 *   file drops the POSIX locks that SQLite holds on it in this process;
 * - a file that others can write is never given to SQLite, nor is one with a journal of theirs,
 * which SQLite would play back into it.
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "cache/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

fa2_status fa2i_cache_default_path(char **ret_path)
{
    fa2i_text path = {0};
    const char *db = environment("FA2_DB");
    const char *cache = environment("XDG_CACHE_HOME");
    const char *home = environment("HOME");

    if (db != NULL)
        fa2i_text_add(&path, "%s", db);
    else if (cache != NULL && cache[0] == '/') /* the XDG rules say: ignore a relative one */
        fa2i_text_add(&path, "%s/fa2/fa2.db", cache);
    else if (home != NULL)
        fa2i_text_add(&path, "%s/.cache/fa2/fa2.db", home);
    else
        return fa2i_fail(FA2_E_DATABASE, "none of FA2_DB, XDG_CACHE_HOME and HOME is set: "
                                         "name the database with --db or FA2_DB");
    return fa2i_text_take(&path, ret_path);
}

/* mkdir -p for the folders of a file. */
static fa2_status create_folders(const char *path)
{
    fa2_status st = FA2_OK;
    char *copy = fa2i_strdup(path);
    if (copy == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST) {
            /* EROFS and EACCES are also the answer for folders that exist */
            int cause = errno;
            struct stat info;
            if (stat(copy, &info) != 0) {
                st = fa2i_fail(FA2_E_DATABASE,
                               "%s: cannot create the folder %s (%s); name another database with "
                               "--db or FA2_DB",
                               path, copy, strerror(cause));
                goto done;
            }
        }
        *slash = '/';
    }
done:
    fa2i_free(copy);
    return st;
}

fa2_status fa2i_path_create(const char *path)
{
    struct stat info;
    if (path[0] == '\0')
        return fa2i_fail(FA2_E_INVALID, "the name of the database is empty");
    if (stat(path, &info) == 0)
        return FA2_OK;
    fa2_status st = create_folders(path);
    if (st != FA2_OK)
        return st;
    int file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0)
        close(file);          /* nobody holds locks on a file that did not exist */
    else if (errno != EEXIST) /* another process may just have created it */
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: cannot create the database (%s); name another with --db or FA2_DB",
                         path, strerror(errno));
    return FA2_OK;
}

/* Trust a file that exists? name is the caller's; file is what is looked at. */
static fa2_status check_owner(const char *name, const char *file, const struct stat *info)
{
    if (!S_ISREG(info->st_mode))
        return fa2i_fail(FA2_E_DATABASE, "%s: is %s, not a file", name,
                         S_ISDIR(info->st_mode) ? "a folder" : "a device, pipe or socket");
    if (info->st_uid != geteuid() && info->st_uid != 0)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: %s belongs to user %lu, and kernels in it would run as yours; "
                         "copy it, or name another with --db or FA2_DB",
                         name, file, (unsigned long)info->st_uid);
    if ((info->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: others can write %s, and kernels in it would run as yours; if you "
                         "trust its contents: chmod go-w '%s'",
                         name, file, file);
    return FA2_OK;
}

/* The journals that SQLite would believe. */
static fa2_status check_side_files(const char *name, const char *resolved)
{
    static const char *const suffixes[] = {"-journal", "-wal", "-shm"};
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < sizeof suffixes / sizeof suffixes[0]; i++) {
        fa2i_text text = {0};
        char *file = NULL;
        struct stat info;
        fa2i_text_add(&text, "%s%s", resolved, suffixes[i]);
        st = fa2i_text_take(&text, &file);
        if (st == FA2_OK && stat(file, &info) == 0)
            st = check_owner(name, file, &info);
        fa2i_free(file);
    }
    return st;
}

fa2_status fa2i_path_check(const char *path, char **ret_resolved)
{
    fa2_status st;
    struct stat info;
    char *copy = NULL;
    char *resolved = realpath(path, NULL);

    if (resolved == NULL || stat(resolved, &info) != 0) {
        st = errno == ENOENT || errno == ENOTDIR
                 ? fa2i_fail(FA2_E_NOT_FOUND, "%s: there is no such database", path)
                 : fa2i_fail(FA2_E_DATABASE, "%s: %s", path, strerror(errno));
        goto done;
    }
    FA2_TRY(check_owner(path, resolved, &info));
    FA2_TRY(check_side_files(path, resolved));
    copy = fa2i_strdup(resolved);
    if (copy == NULL) {
        st = fa2i_fail(FA2_E_MEMORY, "out of memory");
        goto done;
    }
    *ret_resolved = copy;
done:
    free(resolved); /* realpath's own */
    return st;
}

fa2_status fa2i_path_folder_writable(const char *resolved, bool *ret_writable)
{
    char *folder = fa2i_strdup(resolved);
    if (folder == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    char *slash = strrchr(folder, '/'); /* a resolved path has one */
    slash[slash == folder ? 1 : 0] = '\0';
    *ret_writable = access(folder, W_OK | X_OK) == 0;
    fa2i_free(folder);
    return FA2_OK;
}
