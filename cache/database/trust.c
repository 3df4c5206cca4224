/*
 * How: a folder is resolved, then each folder from the root down to it is checked. After that only this user or root
 * can exchange one of them, so the name leads SQLite to the same file.
 *
 * Invariants:
 * - the owner of "/" counts as root. In a user namespace this is the user who stands for all users outside;
 * - this file calls stat on a database in a trusted folder, but never opens it: closing a second descriptor of a file
 *   drops the POSIX locks that SQLite holds on it in this process.
 */
#define _DEFAULT_SOURCE /* getpwuid_r, getgrgid_r, realpath */
#include "cache/database/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"

enum { OTHERS_WRITE = S_IWGRP | S_IWOTH, OTHERS_ENTER = S_IXGRP | S_IXOTH, MODE_BITS = 07777 };

bool fa2i_trust_may_chmod(const struct stat *info)
{
    return info->st_uid == geteuid() || geteuid() == 0;
}

/* ---- files ---- */

fa2_status fa2i_trust_file(const char *name, const char *file, const struct stat *info)
{
    if (!S_ISREG(info->st_mode))
        return fa2i_fail(FA2_E_DATABASE, "%s: is %s, not a file; name another database with %s", name,
                         S_ISDIR(info->st_mode) ? "a folder" : "a device, pipe or socket", fa2i_naming());
    if (info->st_uid != geteuid() && info->st_uid != 0)
        return fa2i_fail(
            FA2_E_DATABASE,
            "%s: %s belongs to user %lu, and kernels in it would run as yours; copy it, or name another with %s", name,
            file, (unsigned long)info->st_uid, fa2i_naming());
    if ((info->st_mode & OTHERS_WRITE) != 0 && !fa2i_trust_may_chmod(info))
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: others can write %s, and kernels in it would run as yours; it belongs to user %lu: if "
                         "you trust its contents, copy it, and name the copy with %s",
                         name, file, (unsigned long)info->st_uid, fa2i_naming());
    if ((info->st_mode & OTHERS_WRITE) != 0)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: others can write %s, and kernels in it would run as yours; if you "
                         "trust its contents: chmod go-w '%s'",
                         name, file, file);
    return FA2_OK;
}

fa2_status fa2i_trust_opened(const fa2i_cache *cache, const char *resolved, const struct stat *before)
{
    struct stat after;
    int moved = 0; /* does the name lead to another file than the one that SQLite has open? */
    if (sqlite3_file_control(cache->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || moved ||
        stat(resolved, &after) != 0 || after.st_dev != before->st_dev || after.st_ino != before->st_ino)
        return fa2i_fail(FA2_E_DATABASE, "%s: another file came in its place while it was opened; try again",
                         cache->path);
    return fa2i_trust_file(cache->path, resolved, &after);
}

/* Reads until so many bytes are there, or the file ends. */
static ssize_t read_all(int file, unsigned char *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t got = read(file, data + done, bytes - done);
        if (got < 0 && errno != EINTR)
            return -1;
        if (got == 0)
            break;
        done += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)done;
}

static fa2_status read_opened(const char *name, const char *resolved, int file, unsigned char **ret_data,
                              size_t *ret_bytes)
{
    static const long long most = 1LL << 30;
    struct stat info;
    if (file < 0 || fstat(file, &info) != 0)
        return fa2i_fail(FA2_E_DATABASE, "%s: %s: %s", name, resolved, strerror(errno));
    const fa2_status st = fa2i_trust_file(name, resolved, &info);
    if (st != FA2_OK)
        return st;
    if ((long long)info.st_size > most)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: has %lld bytes, and of a file in a folder that others can write at most %lld are read; "
                         "copy it into a folder of your own, and name the copy with %s",
                         name, (long long)info.st_size, most, fa2i_naming());
    unsigned char *data = sqlite3_malloc64((sqlite3_uint64)info.st_size + 1);
    if (data == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a copy of the database");
    const ssize_t got = read_all(file, data, (size_t)info.st_size);
    if (got <= 0) {
        sqlite3_free(data);
        data = NULL;
    }
    if (got < 0)
        return fa2i_fail(FA2_E_DATABASE, "%s: cannot be read (%s)", name, strerror(errno));
    *ret_data = data;
    *ret_bytes = (size_t)got;
    return FA2_OK;
}

fa2_status fa2i_trust_read(const char *name, const char *resolved, unsigned char **ret_data, size_t *ret_bytes)
{
    const int file = open(resolved, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    const fa2_status st = read_opened(name, resolved, file, ret_data, ret_bytes);
    if (file >= 0)
        close(file);
    return st;
}

/* ---- folders ---- */

/* Does the group have the user's name, and no other member? */
static bool is_private_group(gid_t gid)
{
    enum { ROOM = 16384 };
    struct passwd user, *found_user = NULL;
    struct group group, *found_group = NULL;
    bool only = false;
    char *room = fa2i_alloc(2 * ROOM);
    if (room != NULL && getpwuid_r(geteuid(), &user, room, ROOM, &found_user) == 0 && found_user != NULL &&
        user.pw_gid == gid && getgrgid_r(gid, &group, room + ROOM, ROOM, &found_group) == 0 && found_group != NULL) {
        only = strcmp(group.gr_name, user.pw_name) == 0;
        for (char **member = group.gr_mem; only && *member != NULL; member++)
            only = strcmp(*member, user.pw_name) == 0;
    }
    fa2i_free(room);
    return only;
}

/* Root's own group is no private group: it has members on many systems. */
static bool others_can_write(const char *folder, const struct stat *info)
{
    if ((info->st_mode & OTHERS_WRITE) != S_IWGRP)
        return (info->st_mode & OTHERS_WRITE) != 0;
    return geteuid() == 0 || info->st_gid == 0 || !is_private_group(info->st_gid) ||
           getxattr(folder, "system.posix_acl_access", NULL, 0) >= 0;
}

/* what: for the message, the harm that others could do. */
static fa2_status refuse(const char *name, const char *folder, const struct stat *info, bool by_owner, const char *what)
{
    const unsigned long owner = info->st_uid;
    const unsigned mode = info->st_mode & MODE_BITS;
    /* Never advise chmod for a sticky folder such as /tmp. */
    const bool may_chmod = !by_owner && (mode & S_ISVTX) == 0 && fa2i_trust_may_chmod(info);
    fa2i_text text = {0};
    if (by_owner)
        fa2i_text_add(&text, "%s belongs to user %lu (mode %04o), who", folder, owner, mode);
    else
        fa2i_text_add(&text, "others can write %s (of user %lu, mode %04o), and", folder, owner, mode);
    fa2i_text_add(&text, " could %s, which chooses the code that runs as yours; ", what);
    if (may_chmod)
        fa2i_text_add(&text, "chmod go-w '%s', ", folder);
    const fa2_status st =
        text.failed
            ? fa2i_fail(FA2_E_MEMORY, "out of memory")
            : fa2i_fail(FA2_E_DATABASE, "%s: %sname a database in a folder of your own with %s, or only read this one",
                        name, text.data, fa2i_naming());
    fa2i_text_done(&text);
    return st;
}

static const char beside[] = "put a journal beside the database";
static const char in_its_place[] = "put another folder in its place";

/* Checks the folder that has the files. */
static fa2_status check_last(const char *name, const char *folder, const struct stat *info)
{
    const bool is_others = info->st_uid != geteuid() && info->st_uid != 0;
    if (is_others || others_can_write(folder, info))
        return refuse(name, folder, info, is_others, beside);
    return FA2_OK;
}

/* Checks a folder above it. *closed: others cannot enter a folder below. */
static fa2_status check_above(const char *name, const char *folder, const struct stat *info, uid_t of_root,
                              bool *closed)
{
    const bool is_others = info->st_uid != geteuid() && info->st_uid != 0 && info->st_uid != of_root;
    if (is_others || (!*closed && (info->st_mode & S_ISVTX) == 0 && others_can_write(folder, info)))
        return refuse(name, folder, info, is_others, in_its_place);
    *closed = *closed || (info->st_mode & OTHERS_ENTER) == 0;
    return FA2_OK;
}

/* Checks a resolved path. holds_files: its last folder has the files; else it is only above them. */
static fa2_status check_path(const char *name, char *path, bool holds_files)
{
    struct stat root, info;
    bool closed = false;
    fa2_status st = stat("/", &root) == 0 ? FA2_OK : fa2i_fail(FA2_E_DATABASE, "%s: /: %s", name, strerror(errno));
    for (size_t length = 1; st == FA2_OK;) { /* "/", "/a", "/a/b" */
        const char after = path[length];
        path[length] = '\0';
        if (stat(path, &info) != 0)
            st = fa2i_fail(FA2_E_DATABASE, "%s: %s: %s", name, path, strerror(errno));
        else if (after == '\0' && holds_files)
            st = check_last(name, path, &info);
        else
            st = check_above(name, path, &info, root.st_uid, &closed);
        path[length] = after;
        if (after == '\0')
            break;
        length += length > 1 ? 1 : 0;
        length += strcspn(path + length, "/");
    }
    return st;
}

static fa2_status check_folder_of(const char *name, const char *file, bool holds_files)
{
    const char *slash = strrchr(file, '/');
    fa2i_text folder = {0};
    char *resolved = NULL;
    fa2i_text_add(&folder, "%.*s", slash == NULL || slash == file ? 1 : (int)(slash - file),
                  slash == NULL ? "." : file);
    fa2_status st = FA2_OK;
    if (folder.failed)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "out of memory"));
    resolved = realpath(folder.data, NULL);
    if (resolved == NULL)
        FA2_TRY(fa2i_fail(FA2_E_DATABASE, "%s: %s: %s", name, folder.data, strerror(errno)));
    st = check_path(name, resolved, holds_files);
done:
    free(resolved); /* realpath's own */
    fa2i_text_done(&folder);
    return st;
}

fa2_status fa2i_trust_folder_of(const char *name, const char *file)
{
    return check_folder_of(name, file, true);
}

fa2_status fa2i_trust_new_folder(const char *name, const char *folder)
{
    return check_folder_of(name, folder, false);
}
