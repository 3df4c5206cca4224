/* Opening: paths, versions, and every kind of file that is not a good database. */
#include <sys/wait.h>
#include "cache/internal.h"
#include "cache_fixture.h"
#include "runtime/base/alloc.h"

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
    CHECK_EQ(chmod(path, 0600), 0);
}

static mode_t mode_of(const char *path)
{
    struct stat info = {0};
    CHECK_EQ(stat(path, &info), 0);
    return info.st_mode & 07777;
}

/* Returns a path in the fixture's folder. */
static const char *inside(const fixture *f, const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return path;
}

static void check_default(const char *db, const char *xdg, const char *home, const char *expected)
{
    char *path = NULL;
    db != NULL ? setenv("FA2_DB", db, 1) : unsetenv("FA2_DB");
    xdg != NULL ? setenv("XDG_CACHE_HOME", xdg, 1) : unsetenv("XDG_CACHE_HOME");
    home != NULL ? setenv("HOME", home, 1) : unsetenv("HOME");
    const fa2_status st = fa2i_cache_default_path(&path);
    CHECK_EQ(st, expected != NULL ? FA2_OK : FA2_E_DATABASE);
    if (st == FA2_OK && expected != NULL)
        CHECK_STR(path, expected);
    fa2i_free(path);
}

static void test_default_path(void)
{
    check_default("/a/b.db", "/cache", "/home/u", "/a/b.db");
    check_default(NULL, "/cache", "/home/u", "/cache/fa2/fa2.db");
    check_default("", "relative", "/home/u", "/home/u/.cache/fa2/fa2.db");
    check_default(NULL, NULL, "/home/u", "/home/u/.cache/fa2/fa2.db");
    check_default(NULL, NULL, NULL, NULL);
    CHECK_CONTAINS(fa2_last_message(), "FA2_DB");
}

static void test_created(fixture *f)
{
    char path[200];
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_NOT_FOUND, "no such database");
    check_refused("", FA2I_CACHE_WRITE, FA2_E_INVALID, "the name of the database is empty");
    CHECK_EQ(fa2i_cache_check_writable(""), FA2_E_INVALID);
    snprintf(path, sizeof path, "%s", inside(f, "new/folders/fa2.db"));
    /* Folders are created only in an existing home directory. */
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", inside(f, "nobody"), 1);
    check_refused(path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "there is no folder");
    check_refused(inside(f, "nobody/.cache/fa2/fa2.db"), FA2I_CACHE_WRITE, FA2_E_DATABASE, "there is no folder");
    setenv("HOME", "/", 1);
    check_refused(path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "there is no folder");
    check_refused("/nonexistent/x/fa2.db", FA2I_CACHE_WRITE, FA2_E_DATABASE, "no folder");
    CHECK(access("/nonexistent", F_OK) != 0);
    setenv("HOME", f->folder, 1);
    check_refused(inside(f, "../fa2_test_sibling/fa2.db"), FA2I_CACHE_WRITE, FA2_E_DATABASE, "there is no folder");
    fa2i_cache_close(fixture_open(path));
    CHECK_EQ(mode_of(inside(f, "new")), 0700);
    CHECK_EQ(mode_of(inside(f, "new/folders")), 0700);
    CHECK_EQ(mode_of(path), 0600);
    fa2i_cache_close(fixture_open(path)); /* and again, when it exists */
    CHECK_EQ(remove(path), 0);
    CHECK_EQ(rmdir(inside(f, "new/folders")), 0);
    CHECK_EQ(rmdir(inside(f, "new")), 0);
    check_refused(inside(f, ""), FA2I_CACHE_WRITE, FA2_E_DATABASE, "is a folder");
    write_file(f->path, "x", 1);
    check_refused(inside(f, "fa2.db/under.db"), FA2I_CACHE_WRITE, FA2_E_DATABASE, "cannot create");
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open("", FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_E_INVALID);
}

static void test_settings(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    static const struct {
        const char *pragma;
        int64_t expected;
    } settings[] = {{"PRAGMA foreign_keys", 1},
                    {"PRAGMA trusted_schema", 0},
                    {"PRAGMA cell_size_check", 1},
                    {"PRAGMA application_id", FA2I_APPLICATION_ID},
                    {"PRAGMA user_version", 4}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        int64_t value = -1;
        CHECK_EQ(fa2i_sql_number(cache, settings[i].pragma, NULL, 0, &value), FA2_OK);
        CHECK_EQ(value, settings[i].expected);
    }
    int defensive = 0;
    sqlite3_db_config(cache->db, SQLITE_DBCONFIG_DEFENSIVE, -1, &defensive);
    CHECK_EQ(defensive, 1);
    fa2i_cache_close(cache);

    CHECK_STR(fa2i_cache_journal_mode(3040001), "DELETE");
    CHECK_STR(fa2i_cache_journal_mode(3051002), "DELETE");
    CHECK_STR(fa2i_cache_journal_mode(3052000), "WAL");
    CHECK_EQ(fa2i_cache_library_check(3037000), FA2_OK);
    CHECK_EQ(fa2i_cache_library_check(3036099), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "3.36.99");
}

/* The file's owner, and who may write to it. */
static void test_trust(fixture *f)
{
    char link[200], journal[200];
    snprintf(link, sizeof link, "%s", inside(f, "link.db"));
    snprintf(journal, sizeof journal, "%s-journal", f->path);
    fa2i_cache_close(fixture_open(f->path));
    CHECK_EQ(symlink(f->path, link), 0);
    fa2i_cache_close(fixture_open(link));
    CHECK_EQ(rename(f->path, inside(f, "moved.db")), 0);
    for (int mode = FA2I_CACHE_READ; mode <= FA2I_CACHE_WRITE; mode++) {
        check_refused(link, (fa2i_cache_mode)mode, FA2_E_NOT_FOUND, "is a symbolic link to ");
        CHECK_CONTAINS(fa2_last_message(), f->path);
    }
    CHECK_EQ(rename(inside(f, "moved.db"), f->path), 0);
    for (int bit = 0; bit < 2; bit++) {
        CHECK_EQ(chmod(f->path, bit == 0 ? 0620 : 0602), 0);
        check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "chmod go-w");
        check_refused(link, FA2I_CACHE_WRITE, FA2_E_DATABASE, "others can write");
    }
    CHECK_EQ(chmod(f->path, 0644), 0); /* others may read */
    fa2i_cache_close(fixture_open(f->path));

    /* SQLite would replay another user's journal into the database */
    write_file(journal, "x", 1);
    CHECK_EQ(chmod(journal, 0666), 0);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "fa2.db-journal");
    CHECK_EQ(remove(journal), 0);

    CHECK_EQ(mkfifo(inside(f, "pipe"), 0600), 0);
    check_refused(inside(f, "pipe"), FA2I_CACHE_WRITE, FA2_E_DATABASE, "not a file");
    if (geteuid() == 0) {
        CHECK_EQ(chown(f->path, 12345, (gid_t)-1), 0);
        check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "belongs to user 12345");
        CHECK_EQ(chown(f->path, 0, (gid_t)-1), 0);
    } else {
        fprintf(stderr, "skipped, needs root: a database of another user\n");
    }
}

static void test_empty_and_foreign(fixture *f)
{
    write_file(f->path, "", 0);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_NOT_FOUND, "empty file");
    fa2i_cache_close(fixture_open(f->path)); /* an empty file becomes a database */
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    fa2i_cache_close(cache);

    cache = fixture_open(f->path);
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA application_id = 7"), FA2_OK);
    fa2i_cache_close(cache);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "not one of fa2");
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "not one of fa2");

    static const char text[] = "These are the words of no database, and they go on for a while, so that "
                               "there is more than the hundred bytes of a header.";
    write_file(f->path, text, sizeof text);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "not a database");
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "move the file away");
}

/* The version in the file must fit its tables. */
static void test_lost_version(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    fa2i_cache_close(cache);
    sqlite3 *file = NULL;
    CHECK_EQ(sqlite3_open(f->path, &file), SQLITE_OK);
    for (int version = -1; version <= 0; version++) {
        CHECK_EQ(
            sqlite3_exec(file, version < 0 ? "PRAGMA user_version = -1" : "PRAGMA user_version = 0", NULL, NULL, NULL),
            SQLITE_OK);
        for (int mode = FA2I_CACHE_READ; mode <= FA2I_CACHE_WRITE; mode++) {
            check_refused(f->path, (fa2i_cache_mode)mode, FA2_E_DATABASE, "damaged fa2 database");
            CHECK_CONTAINS(fa2_last_message(), "move it away and tune again");
        }
    }
    sqlite3_close(file);
}

static void test_newer_version(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA user_version = 23"), FA2_OK);
    fa2i_cache_close(cache);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "version 23");
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "reads version 4");
}

/* A file cut at many lengths is refused or found damaged, and never causes a crash. The message names the cure: gc, and
 * where gc cannot read enough, to move the file away. To SQLite, one byte
 * is an empty file, and the end of the last page may be unused. */
static void test_truncated(fixture *f)
{
    static char bytes[400000];
    fa2i_cache *cache = fixture_open(f->path);
    for (int i = 0; i < 10; i++) {
        const ids to = sample_ids(cache, 8 * i + 8);
        store_result(cache, &to, i, 100, true);
    }
    fa2i_cache_close(cache);
    FILE *file = fopen(f->path, "rb");
    CHECK(file != NULL);
    const size_t total = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    CHECK(total > 50000 && total < sizeof bytes);
    for (size_t length = 2; length <= total - 4096; length += length < 200 ? 33 : 3001) {
        fa2i_cache_health health = {.intact = true};
        write_file(f->path, bytes, length);
        cache = NULL;
        fa2_status st = fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache);
        if (st == FA2_OK)
            st = fa2i_cache_check(cache, &health);
        CHECK(st == FA2_E_DATABASE || !health.intact);
        if (st != FA2_OK)
            CHECK_CONTAINS(fa2_last_message(), f->path);
        if (st != FA2_OK && strstr(fa2_last_message(), "fa2-tune gc") == NULL)
            CHECK_CONTAINS(fa2_last_message(), "move the file away");
        fa2i_cache_close(cache);
        cache = NULL;
        if (length % 5 == 0 && fa2i_cache_open(f->path, FA2I_CACHE_REPAIR, NULL, NULL, &cache) != FA2_OK)
            CHECK_CONTAINS(fa2_last_message(), "move the file away");
        fa2i_cache_close(cache);
    }
}

/* Bytes overwritten in the file cause no crash. check finds damage that opening does not find. */
static void test_overwritten(fixture *f)
{
    fa2i_cache_health health = {0};
    fa2i_cache *cache = fixture_open(f->path);
    const ids to = sample_ids(cache, 512);
    store_result(cache, &to, 1, 100, true);
    fa2i_cache_close(cache);
    FILE *file = fopen(f->path, "r+b");
    CHECK(file != NULL && fseek(file, 3 * 4096, SEEK_SET) == 0);
    for (int i = 0; i < 4096; i++)
        fputc(0xa5, file);
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(!health.intact);
    CHECK(health.first_problem[0] != '\0');
    fa2i_cache_close(cache);
}

/* ---- permissions, as a user to whom they apply ---- */

/* from_root: root owns root.db and open.db, and all users may write open.db. */
static void check_permissions(fixture *f, bool from_root)
{
    char path[200];
    fa2i_cache *cache = NULL;
    fa2i_kernel found = {0};
    const fa2i_kernel kernel = sample_kernel(1);
    cache = fixture_open(f->path);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    fa2i_cache_close(cache);

    CHECK_EQ(chmod(f->path, 0400), 0);
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "chmod u+w");
    CHECK_EQ(chmod(f->path, 0000), 0);
    for (fa2i_cache_mode mode = FA2I_CACHE_READ; mode <= FA2I_CACHE_WRITE; mode++)
        check_refused(f->path, mode, FA2_E_DATABASE, "cannot read the file by its permissions; chmod u+r");
    CHECK_EQ(chmod(f->path, 0600), 0);
    CHECK_EQ(chmod(f->folder, 0), 0);
    for (fa2i_cache_mode mode = FA2I_CACHE_READ; mode <= FA2I_CACHE_WRITE; mode++)
        check_refused(f->path, mode, FA2_E_DATABASE, ".db: cannot open the file (Permission denied); name another");
    CHECK_EQ(fa2i_cache_check_writable(f->path), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "cannot open the file (Permission denied)");
    CHECK_EQ(chmod(f->folder, 0500), 0);
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "that folder is not writable");
    check_refused(inside(f, "other.db"), FA2I_CACHE_WRITE, FA2_E_DATABASE, "cannot create");

    /* the message must not advise chmod for another user's file */
    if (from_root) {
        CHECK_EQ(chmod(f->folder, 0700), 0);
        snprintf(path, sizeof path, "%s", inside(f, "root.db"));
        check_refused(path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "belongs to user 0; copy");
        snprintf(path, sizeof path, "%s", inside(f, "secret.db"));
        check_refused(path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "cannot read the file, which belongs to user 0; name");
        snprintf(path, sizeof path, "%s", inside(f, "open.db"));
        check_refused(path, FA2I_CACHE_READ, FA2_E_DATABASE, "it belongs to user 0: if you trust");
    }

    /* both journal modes can be read where nothing can be written */
    for (int wal = 0; wal < 2; wal++) {
        CHECK_EQ(chmod(f->folder, 0700), 0);
        CHECK_EQ(chmod(f->path, 0600), 0);
        cache = fixture_open(f->path);
        CHECK_EQ(fa2i_sql_script(cache, wal ? "PRAGMA journal_mode = WAL" : "SELECT 1"), FA2_OK);
        fa2i_cache_close(cache);
        CHECK_EQ(chmod(f->path, 0400), 0);
        CHECK_EQ(chmod(f->folder, 0500), 0);
        cache = NULL;
        CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
        CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, true, &found), FA2_OK);
        fa2i_kernel_done(&found);
        fa2i_cache_close(cache);
    }
}

/* Permissions do not apply to root, so a child gives up root first. */
static void test_permissions(fixture *f)
{
    enum { NOBODY = 65534 };
    if (geteuid() != 0) {
        check_permissions(f, false);
        return;
    }
    CHECK_EQ(chown(f->folder, NOBODY, NOBODY), 0);
    write_file(inside(f, "root.db"), "", 0);
    write_file(inside(f, "open.db"), "", 0);
    write_file(inside(f, "secret.db"), "", 0);
    CHECK_EQ(chmod(inside(f, "root.db"), 0644), 0);
    CHECK_EQ(chmod(inside(f, "secret.db"), 0600), 0);
    CHECK_EQ(chmod(inside(f, "open.db"), 0666), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
            _exit(CHECK_SKIP);
        check_failures = 0;
        check_permissions(f, true);
        _exit(check_failures == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIP)
        fprintf(stderr, "skipped, root cannot become another user here: permissions\n");
    else
        CHECK_EQ(status, 0);
}

/* '?' and '%' have a meaning in the URI by which a read-only WAL database is opened. */
static void test_odd_name(fixture *f)
{
    snprintf(f->path, sizeof f->path, "%s/a?b%%20#.db", f->folder);
    test_permissions(f);
}

static int64_t data_version(fa2i_cache *cache)
{
    int64_t version = -1;
    CHECK_EQ(fa2i_cache_data_version(cache, &version), FA2_OK);
    return version;
}

/* Each commit changes the data version. Reading, and a write that is rolled back, does not. */
static void test_data_version(fixture *f)
{
    int64_t id = 0;
    const fa2_problem a = sample_problem(512), b = sample_problem(513);
    const char *link = inside(f, "link.db");
    fa2i_cache *writer = fixture_open(f->path);
    CHECK_EQ(symlink(f->path, link), 0);
    fa2i_cache *reader = fixture_open(link);
    const int64_t first = data_version(reader);
    CHECK_EQ(data_version(reader), first);

    CHECK_EQ(fa2i_cache_problem(writer, &a, &id), FA2_OK);
    const int64_t second = data_version(reader);
    CHECK(second != first);
    CHECK_EQ(fa2i_cache_problem(reader, &b, &id), FA2_OK); /* its own commit */
    const int64_t third = data_version(reader);
    CHECK(third != first && third != second);

    CHECK_EQ(fa2i_sql_begin(writer, FA2I_CACHE_WRITE), FA2_OK);
    CHECK_EQ(fa2i_sql_script(writer, "DELETE FROM problem"), FA2_OK);
    CHECK_EQ(fa2i_sql_end(writer, FA2_E_IO), FA2_E_IO);
    CHECK_EQ(data_version(reader), third);
    fa2i_cache_close(reader);
    fa2i_cache_close(writer);
    CHECK_EQ(remove(link), 0);
}

/* Each missing part of a new file is noticed. */
static void test_parts(fixture *f)
{
    static const char listed[] = "SELECT 'DROP ' || type || ' ' || name, name FROM sqlite_schema "
                                 "WHERE name NOT LIKE 'sqlite_%'";
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    int parts = 0;
    fa2i_cache *cache = fixture_open(f->path);
    CHECK_EQ(fa2i_sql_prepare(cache, listed, NULL, 0, &stmt), FA2_OK);
    while (fa2i_sql_step(cache, stmt, &row) == FA2_OK && row) {
        char sentence[300], name[64];
        bool readable = false;
        snprintf(name, sizeof name, "'%s'", (const char *)sqlite3_column_text(stmt, 1));
        fa2i_cache *other = NULL;
        char path[120];
        snprintf(path, sizeof path, "%s/other.db", f->folder);
        other = fixture_open(path);
        CHECK_EQ(fa2i_sql_script(other, "PRAGMA foreign_keys = OFF"), FA2_OK);
        CHECK_EQ(fa2i_sql_script(other, (const char *)sqlite3_column_text(stmt, 0)), FA2_OK);
        CHECK_EQ(fa2i_schema_examine(other, sentence, sizeof sentence, &readable), FA2_OK);
        CHECK_CONTAINS(sentence, name);
        CHECK_EQ(readable, strstr(sentence, "lacks the column") == NULL);
        fa2i_cache_close(other);
        CHECK_EQ(remove(path), 0);
        parts++;
    }
    CHECK(parts >= 34);
    sqlite3_finalize(stmt);
    fa2i_cache_close(cache);
}

int main(void)
{
    static void (*const tests[])(fixture *) = {test_created,           test_settings,     test_trust,
                                               test_empty_and_foreign, test_lost_version, test_newer_version,
                                               test_truncated,         test_overwritten,  test_permissions,
                                               test_odd_name,          test_data_version, test_parts};
    test_default_path();
    fixture_each(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
