/*
 * First it checks what has the file's name. Then it writes a new file beside it, which replaces the old one when it is
 * complete and on the disk.
 */
#define _XOPEN_SOURCE 700 /* for fsync, getline, lstat, readlink */
#include "tuner/commands/place.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cache/cache.h"
#include "runtime/base/alloc.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

static const char export_start[] = "{\"fa2_export\":", report_mark[] = "{\"fa2_report\":";
const fa2i_place_kind fa2i_place_export = {"an export", export_start, report_mark, false, "a field report"};
const fa2i_place_kind fa2i_place_field_report = {"a field report", export_start, report_mark, true, "an export"};

/* Returns the file's folder. The caller owns it; NULL: no memory. */
static char *folder_of(const char *path)
{
    char *folder = fa2i_strdup(path);
    char *slash = folder == NULL ? NULL : strrchr(folder, '/');
    if (slash != NULL) {
        slash[slash == folder ? 1 : 0] = '\0';
        return folder;
    }
    fa2i_free(folder);
    return fa2i_strdup(".");
}

static bool has_folder(const char *path)
{
    struct stat info;
    char *folder = folder_of(path);
    const bool has = folder != NULL && stat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    fa2i_free(folder);
    return has;
}

/* Sets the message for a file or folder that cannot be written, by errno. */
static fa2_status cannot_write(const char *path, int cause)
{
    switch (cause) {
    case EACCES:
    case EPERM:
        return fa2i_fail(FA2_E_IO, "%s: its folder is not writable for you; name a file elsewhere", path);
    case EROFS:
        return fa2i_fail(FA2_E_IO, "%s: is on a read-only file system; name a file elsewhere", path);
    case ENOENT:
        if (has_folder(path)) /* as in /proc, where files cannot be made */
            return fa2i_fail(FA2_E_IO, "%s: the file cannot be made there (%s); name a file elsewhere", path,
                             strerror(cause));
        return fa2i_fail(FA2_E_IO, "%s: its folder is not there; make it, or name a file elsewhere", path);
    case ENOSPC:
    case EDQUOT:
        return fa2i_fail(FA2_E_IO, "%s: the disk is full; make room there, or name a file elsewhere", path);
    default:
        return fa2i_fail(FA2_E_IO, "%s: cannot be written (%s)", path, strerror(cause));
    }
}

/* ---- checking the path ---- */

/* Says whether the file is of this kind by its mark: a line has it, or no line to the file's end has it. */
static bool is_marked_so(FILE *file, const fa2i_place_kind *kind)
{
    if (kind->mark == NULL)
        return true;
    const size_t length = strlen(kind->mark);
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    rewind(file);
    for (ssize_t bytes; !found && (bytes = getline(&line, &room, file)) >= 0;)
        found = (size_t)bytes >= length && memcmp(line, kind->mark, length) == 0;
    free(line); /* getline allocated it */
    return kind->marked ? found : !found && feof(file) != 0;
}

static const char database_start[] = "SQLite format 3";

static fa2_status check_kind(const char *path, const fa2i_place_kind *kind)
{
    char start[FA2I_PLACE_START_MAX] = "";
    const size_t length = strlen(kind->start);
    const char *is = "a file of another kind";
    assert(length <= sizeof start);
    const char *why = NULL;
    FILE *file = fa2i_file_open(path, &why);
    if (file == NULL)
        return fa2i_fail(FA2_E_IO, "%s: cannot be read (%s), and only what is %s is replaced; name another file", path,
                         why, kind->name);
    const size_t bytes = fread(start, 1, sizeof start, file);
    const bool begins = bytes >= length && memcmp(start, kind->start, length) == 0;
    const bool same = begins && is_marked_so(file, kind);
    fclose(file);
    if (same)
        return FA2_OK;
    if (begins && kind->mark != NULL)
        is = kind->other;
    else if (memcmp(start, database_start, sizeof database_start) == 0)
        is = "a database";
    return fa2i_fail(FA2_E_INVALID, "%s: is %s, not %s, and is not overwritten; name another file", path, is,
                     kind->name);
}

static fa2_status refuse_link(const char *path, bool dangling)
{
    char target[PATH_MAX];
    const ssize_t bytes = readlink(path, target, sizeof target - 1);
    target[bytes > 0 ? bytes : 0] = '\0';
    return fa2i_fail(FA2_E_INVALID, "%s: is a symbolic link to %s%s; name the file itself, or - for standard output",
                     path, target, dangling ? ", which is not there" : "");
}

/* Refuses the names of files that SQLite and this fa2 keep beside a database. The user's file would be taken for one of
 * them. */
static fa2_status check_no_side_file(const char *path)
{
    const size_t length = strlen(path);
    for (const char *const *suffix = fa2i_cache_side_files; *suffix != NULL; suffix++) {
        const size_t tail = strlen(*suffix);
        struct stat info;
        if (length <= tail || strcmp(path + length - tail, *suffix) != 0)
            continue;
        char *database = fa2i_strdup(path);
        if (database == NULL)
            return fa2i_fail(FA2_E_MEMORY, "out of memory");
        database[length - tail] = '\0';
        const bool there = stat(database, &info) == 0 && S_ISREG(info.st_mode);
        fa2_status st = FA2_OK;
        if (there)
            st =
                fa2i_fail(FA2_E_INVALID, "%s: is the name of a file that belongs to the database %s; name another file",
                          path, database);
        fa2i_free(database);
        return st;
    }
    return FA2_OK;
}

/* Checks that the folder accepts a new file, before hours of work are spent. */
static fa2_status check_folder(const char *path)
{
    char *folder = folder_of(path);
    if (folder == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    const int cause = access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    fa2i_free(folder);
    return cause == 0 ? FA2_OK : cannot_write(path, cause);
}

fa2_status fa2i_place_look(const char *path, const fa2i_place_kind *kind, fa2i_destination *ret_place)
{
    struct stat info;
    fa2i_destination found = {.path = path, .stream = true};
    if (strcmp(path, "-") == 0)
        goto done;
    const fa2_status beside = check_no_side_file(path);
    if (beside != FA2_OK)
        return beside;
    if (lstat(path, &info) != 0) {
        if (errno != ENOENT)
            return cannot_write(path, errno);
        found.stream = false;
        goto done;
    }
    if (S_ISLNK(info.st_mode)) {
        const bool dangling = stat(path, &info) != 0;
        if (dangling || S_ISREG(info.st_mode))
            return refuse_link(path, dangling);
    }
    if (S_ISDIR(info.st_mode))
        return fa2i_fail(FA2_E_INVALID, "%s: is a folder; name a file in it", path);
    if (S_ISREG(info.st_mode)) {
        const fa2_status st = check_kind(path, kind);
        if (st != FA2_OK)
            return st;
        found.stream = false;
        found.replaces = true;
        found.mode = info.st_mode & 0777;
    }
done:;
    const fa2_status folder = found.stream ? FA2_OK : check_folder(path);
    if (folder == FA2_OK)
        *ret_place = found;
    return folder;
}

/* ---- reading ---- */

fa2_status fa2i_place_open_export(const char *path, FILE **ret_file)
{
    struct stat info;
    char start[sizeof database_start] = "";
    if (strcmp(path, "-") == 0) {
        *ret_file = stdin;
        return FA2_OK;
    }
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return fa2i_fail(FA2_E_INVALID, "%s: %s", path, strerror(errno));
    const bool known = fstat(fileno(file), &info) == 0;
    const char *is = known && S_ISDIR(info.st_mode) ? "a folder" : NULL;
    if (known && S_ISREG(info.st_mode)) { /* it can be read twice */
        if (fread(start, 1, sizeof start, file) == sizeof start && memcmp(start, database_start, sizeof start) == 0)
            is = "a database";
        rewind(file);
    }
    if (is == NULL) {
        *ret_file = file;
        return FA2_OK;
    }
    fclose(file);
    return fa2i_fail(FA2_E_INVALID, "%s: is %s; name a file that fa2-tune export or field-report wrote", path, is);
}

/* ---- writing ---- */

static fa2_status write_stream(const char *path, fa2i_place_fill_fn write, void *user)
{
    if (strcmp(path, "-") == 0) {
        const fa2_status st = write(user, stdout);
        return st == FA2_E_IO ? fa2i_fail_prefix(st, "standard output") : st;
    }
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return fa2i_fail(FA2_E_IO, "%s: cannot be written (%s)", path, strerror(errno));
    fa2_status st = write(user, out);
    if (st == FA2_E_IO)
        (void)fa2i_fail_prefix(st, "%s", path);
    if (fclose(out) != 0 && st == FA2_OK)
        st = cannot_write(path, errno);
    return st;
}

/* Fills and closes a file that still has a temporary name. */
static fa2_status fill(FILE *out, const fa2i_destination *p, fa2i_place_fill_fn write, void *user)
{
    fa2_status st = write(user, out);
    if (st == FA2_E_IO)
        (void)fa2i_fail_prefix(st, "%s", p->path);
    if (st == FA2_OK && p->replaces && fchmod(fileno(out), p->mode) != 0)
        st = cannot_write(p->path, errno);
    if (st == FA2_OK && fsync(fileno(out)) != 0)
        st = cannot_write(p->path, errno);
    if (fclose(out) != 0 && st == FA2_OK)
        st = cannot_write(p->path, errno);
    return st;
}

/* Writes the new name to the disk, too. Otherwise a power failure could undo the renaming. */
static void sync_folder_of(const char *path)
{
    char *folder = folder_of(path);
    if (folder == NULL)
        return;
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)fsync(descriptor);
        close(descriptor);
    }
    fa2i_free(folder);
}

static fa2_status write_file(const fa2i_destination *p, fa2i_place_fill_fn write, void *user)
{
    fa2_status st = FA2_OK;
    char *temporary = NULL;
    bool created = false;
    fa2i_text name = {0};
    fa2i_text_add(&name, "%s.%ld.tmp", p->path, (long)getpid());
    FA2_TRY(fa2i_text_take(&name, &temporary));
    FILE *out = fopen(temporary, "wx"); /* x: an existing file is not ours */
    created = out != NULL;
    FA2_TRY(created ? fill(out, p, write, user) : cannot_write(p->path, errno));
    if (rename(temporary, p->path) != 0)
        st = cannot_write(p->path, errno);
    else
        sync_folder_of(p->path);
done:
    if (st != FA2_OK && created)
        remove(temporary);
    fa2i_free(temporary);
    return st;
}

fa2_status fa2i_place_write(const fa2i_destination *place, fa2i_place_fill_fn write, void *user)
{
    return place->stream ? write_stream(place->path, write, user) : write_file(place, write, user);
}
