/*
 * fa2-tune export: the database as a file that import reads.
 *
 * How: what lies at the file's name is looked at first; then a new file is written beside it, which takes
 * its place when it is complete and on the disk.
 *
 * Invariants:
 * - only an export is ever replaced, and never by half of another;
 * - a file is looked at while no database is open: closing it drops the locks that SQLite holds on it;
 * - a device or a pipe is written to as it is, and stays, also behind a link.
 */
#define _XOPEN_SOURCE 700 /* fsync, lstat, readlink */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/report.h"
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/report/progress.h"

/* Where the export goes. */
typedef struct place {
    const char *path; /* borrowed; "-" is standard output */
    bool stream;      /* written to as it is */
    bool replaces;    /* an export */
    mode_t mode;      /* of what is replaced */
} place;

/* A file or its folder refuses, for this errno. */
static fa2_status cannot_write(const char *path, int cause)
{
    switch (cause) {
    case EACCES:
    case EPERM:
        return fa2i_fail(FA2_E_IO, "%s: its folder is not writable for you; name a file elsewhere",
                         path);
    case EROFS:
        return fa2i_fail(FA2_E_IO, "%s: is on a read-only file system; name a file elsewhere",
                         path);
    case ENOENT:
        return fa2i_fail(FA2_E_IO, "%s: its folder is not there; make it, or name a file elsewhere",
                         path);
    case ENOSPC:
    case EDQUOT:
        return fa2i_fail(FA2_E_IO,
                         "%s: the disk is full; make room there, or name a file elsewhere", path);
    default:
        return fa2i_fail(FA2_E_IO, "%s: cannot be written (%s)", path, strerror(cause));
    }
}

/* ---- what is there ---- */

static fa2_status check_is_export(const char *path)
{
    static const char export_start[] = "{\"fa2_export\":", database_start[] = "SQLite format 3";
    char start[sizeof database_start] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return fa2i_fail(FA2_E_IO,
                         "%s: cannot be read (%s), and only what is an export is replaced; name "
                         "another file",
                         path, strerror(errno));
    const size_t bytes = fread(start, 1, sizeof start, file);
    fclose(file);
    if (bytes >= sizeof export_start - 1 &&
        memcmp(start, export_start, sizeof export_start - 1) == 0)
        return FA2_OK;
    return fa2i_fail(
        FA2_E_INVALID, "%s: is %s, not an export, and is not overwritten; name another file", path,
        memcmp(start, database_start, sizeof start) == 0 ? "a database" : "a file of another kind");
}

static fa2_status refuse_link(const char *path, bool dangling)
{
    char target[PATH_MAX];
    const ssize_t bytes = readlink(path, target, sizeof target - 1);
    target[bytes > 0 ? bytes : 0] = '\0';
    return fa2i_fail(
        FA2_E_INVALID,
        "%s: is a symbolic link to %s%s; name the file itself, or - for standard output", path,
        target, dangling ? ", which is not there" : "");
}

/* What SQLite and this fa2 keep beside a database goes by the database's name: an export there would be
 * taken for it. */
static fa2_status check_no_side_file(const char *path)
{
    static const char *const suffixes[] = {"-journal", "-wal", "-shm", "-claims"};
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const size_t tail = strlen(suffixes[i]);
        struct stat info;
        if (length <= tail || strcmp(path + length - tail, suffixes[i]) != 0)
            continue;
        char *database = fa2i_strdup(path);
        if (database == NULL)
            return fa2i_fail(FA2_E_MEMORY, "out of memory");
        database[length - tail] = '\0';
        const bool there = stat(database, &info) == 0 && S_ISREG(info.st_mode);
        fa2_status st = FA2_OK;
        if (there)
            st =
                fa2i_fail(FA2_E_INVALID,
                          "%s: is the name of a file that belongs to the database %s; name another "
                          "file",
                          path, database);
        fa2i_free(database);
        return st;
    }
    return FA2_OK;
}

static fa2_status look_at(const char *path, place *ret_place)
{
    struct stat info;
    place found = {.path = path, .stream = true};
    if (strcmp(path, "-") == 0)
        goto done;
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
        const fa2_status st = check_is_export(path);
        if (st != FA2_OK)
            return st;
        found.stream = false;
        found.replaces = true;
        found.mode = info.st_mode & 0777;
    }
done:
    *ret_place = found;
    return FA2_OK;
}

/* ---- writing ---- */

static fa2_status write_stream(fa2i_cache *cache, const char *path, fa2i_export_counts *ret_counts)
{
    if (strcmp(path, "-") == 0) {
        const fa2_status st = fa2i_cache_export(cache, stdout, ret_counts);
        return st == FA2_E_IO ? fa2i_fail_prefix(st, "standard output") : st;
    }
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return fa2i_fail(FA2_E_IO, "%s: cannot be written (%s)", path, strerror(errno));
    fa2_status st = fa2i_cache_export(cache, out, ret_counts);
    if (st == FA2_E_IO)
        (void)fa2i_fail_prefix(st, "%s", path);
    if (fclose(out) != 0 && st == FA2_OK)
        st = cannot_write(path, errno);
    return st;
}

/* Fill and close a file that has another name as yet. */
static fa2_status fill(fa2i_cache *cache, FILE *out, const place *p, fa2i_export_counts *ret_counts)
{
    fa2_status st = fa2i_cache_export(cache, out, ret_counts);
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

/* Put the new name on the disk, too; without that it is there all the same until the power goes. */
static void sync_folder_of(const char *path)
{
    char *folder = fa2i_strdup(path);
    if (folder == NULL)
        return;
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[slash == folder ? 1 : 0] = '\0';
    const int descriptor = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)fsync(descriptor);
        close(descriptor);
    }
    fa2i_free(folder);
}

static fa2_status write_file(fa2i_cache *cache, const place *p, fa2i_export_counts *ret_counts)
{
    fa2_status st = FA2_OK;
    char *temporary = NULL;
    bool created = false;
    fa2i_text name = {0};

    fa2i_text_add(&name, "%s.%ld.tmp", p->path, (long)getpid());
    FA2_TRY(fa2i_text_take(&name, &temporary));
    FILE *out = fopen(temporary, "wx"); /* x: what is there already is not ours */
    created = out != NULL;
    FA2_TRY(created ? fill(cache, out, p, ret_counts) : cannot_write(p->path, errno));
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

int fa2i_cmd_export(int argc, char **argv)
{
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    place to = {0};
    fa2i_export_counts counts = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_DB | FA2I_OPT_FILE, &options));
    FA2_TRY(check_no_side_file(options.positional));
    FA2_TRY(look_at(options.positional, &to));
    FA2_TRY(fa2i_database_open(options.db, FA2I_CACHE_READ, &cache));
    FA2_TRY(to.stream ? write_stream(cache, to.path, &counts) : write_file(cache, &to, &counts));
    fprintf(stderr, "exported %zu row%s of %s%s%s%s\n", counts.rows, fa2i_plural(counts.rows),
            fa2i_cache_path(cache), to.stream ? "" : " to ", to.stream ? "" : to.path,
            to.replaces ? ", in the place of the export that was there" : "");
    if (counts.left_out > 0)
        fprintf(stderr,
                "left out: %zu damaged row%s; fa2-tune check says what is wrong, fa2-tune gc drops "
                "what is\n",
                counts.left_out, fa2i_plural(counts.left_out));
done:
    fa2i_cache_close(cache);
    fa2i_options_done(&options);
    return st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
}
