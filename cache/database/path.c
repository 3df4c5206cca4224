/*
 * The path of the database, and checks of its file.
 *
 * Invariants:
 * - this file calls stat on an existing database, but never opens it: closing a second descriptor of a file drops the
 *   POSIX locks that SQLite holds on it in this process;
 * - SQLite never opens a file that others can write, or beside which they can put a journal: it would play the journal
 *   back into the file (trust.c).
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "cache/content/claims.h"
#include "cache/database/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/environment.h"
#include "runtime/base/text.h"

fa2_status fa2i_cache_default_path(char **ret_path)
{
    fa2i_text path = {0};
    const char *db = fa2i_environment("FA2_DB");
    const char *cache = fa2i_environment("XDG_CACHE_HOME");
    const char *home = fa2i_environment("HOME");
    if (db != NULL)
        fa2i_text_add(&path, "%s", db);
    else if (cache != NULL && cache[0] == '/') /* the XDG rules say: ignore a relative path */
        fa2i_text_add(&path, "%s/fa2/fa2.db", cache);
    else if (home != NULL)
        fa2i_text_add(&path, "%s/.cache/fa2/fa2.db", home);
    else
        return fa2i_fail(FA2_E_DATABASE, "none of FA2_DB, XDG_CACHE_HOME and HOME is set: name the database with %s",
                         fa2i_naming());
    return fa2i_text_take(&path, ret_path);
}

bool fa2i_cache_is_named(void)
{
    return fa2i_environment("FA2_DB") != NULL;
}

/* Is `folder` strictly below the folder that this variable names, and does the latter exist? "/" does not count,
 * because it is the home of users who have none. */
static bool is_below(const char *folder, const char *variable)
{
    struct stat info;
    const char *root = fa2i_environment(variable);
    if (root == NULL || root[0] != '/' || stat(root, &info) != 0 || !S_ISDIR(info.st_mode))
        return false;
    size_t length = strlen(root);
    while (length > 0 && root[length - 1] == '/')
        length--;
    return length > 0 && strncmp(folder, root, length) == 0 && folder[length] == '/' &&
           strstr(folder + length, "/..") == NULL;
}

/* name: the database's. cause: errno of the attempt to make path. */
static fa2_status cannot_create(const char *name, const char *path, int cause)
{
    if (cause == EROFS)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: cannot create %s on a read-only file system; name a database elsewhere with %s", name,
                         path, fa2i_naming());
    if (cause == ENOSPC || cause == EDQUOT)
        return fa2i_fail(
            FA2_E_DATABASE,
            "%s: cannot create %s, the disk is full; make room there, or name a database elsewhere with %s", name, path,
            fa2i_naming());
    return fa2i_fail(FA2_E_DATABASE, "%s: cannot create %s (%s); name another database with %s", name, path,
                     strerror(cause), fa2i_naming());
}

/* May a missing folder be created? cause: errno of its stat. A mistyped path is not created, and neither is the home of
 * a user who has none. */
static fa2_status check_folder(const char *name, const char *folder, int cause)
{
    if (cause == ENOENT && !is_below(folder, "HOME") && !is_below(folder, "XDG_CACHE_HOME"))
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: there is no folder %s, and only those below an existing $HOME or $XDG_CACHE_HOME are "
                         "made; make it, or name another database with %s",
                         name, folder, fa2i_naming());
    return FA2_OK;
}

/* name: the database's. *ret_end is false; set it to visit no other folder. */
typedef fa2_status (*visit_fn)(const char *name, const char *folder, bool *ret_end);

/* Visits the folders of a file, the outermost first. *ret_end: as the last visit left it. */
static fa2_status visit_folders(const char *path, visit_fn visit, bool *ret_end)
{
    fa2_status st = FA2_OK;
    *ret_end = false;
    if (path[0] == '\0')
        return fa2i_fail(FA2_E_INVALID, "the name of the database is empty");
    char *copy = fa2i_strdup(path);
    if (copy == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    for (char *slash = strchr(copy + 1, '/'); st == FA2_OK && !*ret_end && slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        st = visit(path, copy, ret_end);
        *slash = '/';
    }
    fa2i_free(copy);
    return st;
}

static fa2_status create_folder(const char *name, const char *folder, bool *ret_end)
{
    struct stat info;
    (void)ret_end;
    if (stat(folder, &info) == 0) /* a path that is no folder fails at its child */
        return FA2_OK;
    const fa2_status st = check_folder(name, folder, errno);
    if (st != FA2_OK)
        return st;
    const fa2_status trusted = fa2i_trust_new_folder(name, folder);
    if (trusted != FA2_OK)
        return trusted;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return cannot_create(name, folder, errno);
    return FA2_OK;
}

bool fa2i_path_is_missing(const char *path)
{
    struct stat info;
    return stat(path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

fa2_status fa2i_path_create(const char *path, bool *ret_created)
{
    bool end = false;
    if (!fa2i_path_is_missing(path))
        return FA2_OK;
    fa2_status st = visit_folders(path, create_folder, &end);
    if (st == FA2_OK)
        st = fa2i_trust_folder_of(path, path);
    if (st != FA2_OK)
        return st;
    int file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    *ret_created = file >= 0;
    if (file >= 0)
        close(file);          /* a file that did not exist has no locks */
    else if (errno != EEXIST) /* another process may just have created it */
        return cannot_create(path, "the database", errno);
    return FA2_OK;
}

/* Can this be created in its existing folder? what: for the message. */
static fa2_status check_place(const char *name, const char *path, const char *what)
{
    const char *slash = strrchr(path, '/');
    fa2i_text folder = {0};
    /* With "/." the check fails if the path is no folder. */
    fa2i_text_add(&folder, "%.*s/.", slash == NULL ? 1 : (int)(slash - path), slash == NULL ? "." : path);
    int cause = folder.failed ? ENOMEM : 0;
    if (cause == 0 && faccessat(AT_FDCWD, folder.data, W_OK | X_OK, AT_EACCESS) != 0)
        cause = errno;
    fa2i_text_done(&folder);
    return cause == 0 ? FA2_OK : cannot_create(name, what, cause);
}

/* Checks the first folder that is missing. The others will be created in it. */
static fa2_status check_missing(const char *name, const char *folder, bool *ret_end)
{
    struct stat info;
    if (stat(folder, &info) == 0)
        return FA2_OK;
    *ret_end = true;
    const fa2_status st = check_folder(name, folder, errno);
    const fa2_status placed = st == FA2_OK ? check_place(name, folder, folder) : st;
    return placed == FA2_OK ? fa2i_trust_new_folder(name, folder) : placed;
}

fa2_status fa2i_path_check_creatable(const char *path)
{
    bool missing = false;
    fa2_status st = visit_folders(path, check_missing, &missing);
    if (st == FA2_OK && !missing && (st = check_place(path, path, "the database")) == FA2_OK)
        st = fa2i_trust_folder_of(path, path);
    return st;
}

const char *const fa2i_cache_side_files[] = {"-journal", "-wal", "-shm", FA2I_CLAIMS_SUFFIX, NULL};

void fa2i_cache_remove(const char *path)
{
    unlink(path);
    for (const char *const *suffix = fa2i_cache_side_files; *suffix != NULL; suffix++) {
        char *file = NULL;
        if (fa2i_text_make(&file, "%s%s", path, *suffix) == FA2_OK)
            unlink(file);
        fa2i_free(file);
    }
}

fa2_status fa2i_path_check_side_files(const char *name, const char *resolved)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < FA2I_CACHE_SQLITE_FILES; i++) {
        char *file = NULL;
        struct stat info;
        st = fa2i_text_make(&file, "%s%s", resolved, fa2i_cache_side_files[i]);
        if (st == FA2_OK && stat(file, &info) == 0)
            st = fa2i_trust_file(name, file, &info);
        fa2i_free(file);
    }
    return st;
}

/* For a path that leads to no file. */
static fa2_status no_such_database(const char *path)
{
    struct stat info;
    char target[PATH_MAX];
    const ssize_t bytes =
        lstat(path, &info) == 0 && S_ISLNK(info.st_mode) ? readlink(path, target, sizeof target - 1) : -1;
    if (bytes < 0)
        return fa2i_fail(
            FA2_E_NOT_FOUND,
            "%s: there is no such database; fa2-tune makes it when it tunes or builds, and %s names another", path,
            fa2i_naming());
    target[bytes] = '\0';
    return fa2i_fail(FA2_E_NOT_FOUND,
                     "%s: is a symbolic link to %s, which is not there; make that, remove the link, or name another "
                     "database with %s",
                     path, target, fa2i_naming());
}

static bool is_accessible(const char *path, int mode)
{
    return faccessat(AT_FDCWD, path, mode, AT_EACCESS) == 0;
}

static fa2_status not_readable(const char *name, const char *resolved, const struct stat *info)
{
    if (!fa2i_trust_may_chmod(info))
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: cannot read the file, which belongs to user %lu; name another database with %s", name,
                         (unsigned long)info->st_uid, fa2i_naming());
    return fa2i_fail(FA2_E_DATABASE,
                     "%s: cannot read the file by its permissions; chmod u+r '%s', or name another database with %s",
                     name, resolved, fa2i_naming());
}

fa2_status fa2i_path_check(const char *path, char **ret_resolved, struct stat *ret_info)
{
    fa2_status st;
    struct stat info;
    char *copy = NULL;
    char *resolved = realpath(path, NULL);
    if (resolved == NULL || stat(resolved, &info) != 0) {
        st = errno == ENOENT || errno == ENOTDIR
                 ? no_such_database(path)
                 : fa2i_fail(FA2_E_DATABASE, "%s: cannot open the file (%s); name another database with %s", path,
                             strerror(errno), fa2i_naming());
        goto done;
    }
    FA2_TRY(fa2i_trust_file(path, resolved, &info));
    if (!is_accessible(resolved, R_OK))
        FA2_TRY(not_readable(path, resolved, &info));
    copy = fa2i_strdup(resolved);
    if (copy == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "out of memory"));
    *ret_resolved = copy;
    *ret_info = info;
done:
    free(resolved); /* realpath's own */
    return st;
}

/* Gets the folder of a file, whose path is resolved. *ret_folder belongs to the caller. */
static fa2_status folder_of(const char *resolved, char **ret_folder)
{
    char *folder = fa2i_strdup(resolved);
    if (folder == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    char *slash = strrchr(folder, '/');
    slash[slash == folder ? 1 : 0] = '\0';
    *ret_folder = folder;
    return FA2_OK;
}

fa2_status fa2i_path_folder_writable(const char *resolved, bool *ret_writable)
{
    char *folder = NULL;
    const fa2_status st = folder_of(resolved, &folder);
    if (st == FA2_OK)
        *ret_writable = is_accessible(folder, W_OK | X_OK);
    fa2i_free(folder);
    return st;
}

/* For a file or folder that cannot be written. cause: errno. what: "the file", "its folder". */
static fa2_status not_writable(const char *name, const char *what, const char *path, int cause)
{
    struct stat info;
    if (cause == EROFS)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: is on a read-only file system; copy it to another, and name the copy with %s", name,
                         fa2i_naming());
    if (stat(path, &info) == 0 && !fa2i_trust_may_chmod(&info))
        return fa2i_fail(
            FA2_E_DATABASE,
            "%s: %s is not writable for you, and belongs to user %lu; copy the database, and name the copy with %s",
            name, what, (unsigned long)info.st_uid, fa2i_naming());
    return fa2i_fail(FA2_E_DATABASE, "%s: %s is not writable (%s); chmod u+w '%s', or name another database with %s",
                     name, what, strerror(cause), path, fa2i_naming());
}

fa2_status fa2i_path_check_writable(const char *name, const char *resolved)
{
    char *folder = NULL;
    if (!is_accessible(resolved, W_OK))
        return not_writable(name, "the file", resolved, errno);
    fa2_status st = folder_of(resolved, &folder);
    if (st == FA2_OK && !is_accessible(folder, W_OK | X_OK))
        st = not_writable(name, "SQLite keeps its journal beside the file, and that folder", folder, errno);
    fa2i_free(folder);
    return st;
}
