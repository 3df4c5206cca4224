/*
 * Opening: trust, settings, versions.
 *
 * How: check the file (path.c), open it, set it up, then compare application_id and user_version
 * with ours. For writing, bring it forward; for reading, refuse what is not our version.
 *
 * Invariants:
 * - the busy timeout is set before the first statement that may have to wait;
 * - a connection made for reading is SQLITE_OPEN_READONLY, so that nothing here can write;
 * - each step of a migration is one transaction that looks at the version again under the write
 * lock: two processes that open a new file at once do not do it twice.
 */
#include "cache/columns.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/version_1.h"
#include "gen/asset.h"
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"

/* migrations[n] is the script from version n to n + 1. Append; never change one. */
static const char *const migrations[] = {"cache/schema.sql", "cache/schema_2.sql"};
enum { SCHEMA_VERSION = sizeof migrations / sizeof migrations[0] };

enum { STRICT_TABLES_SINCE = 3037000, WAL_RESET_FIXED_SINCE = 3052000 };

fa2_status fa2i_cache_library_check(int version)
{
    if (version >= STRICT_TABLES_SINCE)
        return FA2_OK;
    return fa2i_fail(FA2_E_DATABASE,
                     "SQLite %d.%d.%d is too old: the tuning database needs 3.37 (STRICT tables)",
                     version / 1000000, version / 1000 % 1000, version % 1000);
}

const char *fa2i_cache_journal_mode(int library_version)
{
    return library_version >= WAL_RESET_FIXED_SINCE ? "WAL" : "DELETE";
}

/* The version, inside a transaction: a file that is just being made must not look half-made. */
static fa2_status version_of(fa2i_cache *cache, int newest, int64_t *ret_version)
{
    fa2_status st;
    int64_t id = 0;
    int64_t version = 0;
    int64_t objects = 0;

    FA2_TRY(fa2i_sql_number(cache, "PRAGMA application_id", NULL, 0, &id));
    FA2_TRY(fa2i_sql_number(cache, "PRAGMA user_version", NULL, 0, &version));
    FA2_TRY(fa2i_sql_number(cache, "SELECT count(*) FROM sqlite_schema", NULL, 0, &objects));
    if (id != FA2I_APPLICATION_ID && (id != 0 || version != 0 || objects != 0)) {
        st = fa2i_fail(FA2_E_DATABASE,
                       "%s: is an SQLite database, but not one of fa2; name another with --db or "
                       "FA2_DB",
                       cache->path);
        goto done;
    }
    if (id == FA2I_APPLICATION_ID && version == 0 && objects != 0) {
        st = fa2i_fail(FA2_E_DATABASE,
                       "%s: is a damaged fa2 database: it holds tables, and its schema version is "
                       "0; put a copy in its place, or move it away and tune again",
                       cache->path);
        goto done;
    }
    if (version < 0 || version > newest) {
        st = fa2i_fail(
            FA2_E_DATABASE,
            "%s: has schema version %lld, this fa2 knows versions up to %d; use the newer "
            "fa2 that wrote it, or name another with --db or FA2_DB",
            cache->path, (long long)version, newest);
        goto done;
    }
    *ret_version = version;
done:
    return st;
}

static fa2_status read_version(fa2i_cache *cache, int newest, int64_t *ret_version)
{
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = version_of(cache, newest, ret_version);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_version_check(fa2i_cache *cache, int newest)
{
    int64_t version = 0;
    fa2_status st = read_version(cache, newest, &version);
    if (st != FA2_OK || version == newest)
        return st;
    if (version == 0)
        return fa2i_fail(FA2_E_NOT_FOUND, "%s: is an empty file; nothing was tuned yet",
                         cache->path);
    return fa2i_fail(FA2_E_DATABASE,
                     "%s: has schema version %lld and this fa2 reads %d; bring it forward with: "
                     "fa2-tune check --db '%s'",
                     cache->path, (long long)version, newest, cache->path);
}

/* A step that does not fit the tables: they are not those of the version that the file says. */
static fa2_status run_step(fa2i_cache *cache, const char *step, int version)
{
    const fa2_status st = fa2i_sql_script(cache, step);
    if (st != FA2_E_DATABASE || sqlite3_errcode(cache->db) != SQLITE_ERROR)
        return st;
    return fa2i_fail(
        FA2_E_DATABASE,
        "%s: is a damaged fa2 database: its tables are not those of schema version %d, "
        "which it says that it has (%s); put a copy in its place, or move it away and "
        "tune again",
        cache->path, version, sqlite3_errmsg(cache->db));
}

/* One step forward under the write lock. *ret_version: the version before. */
static fa2_status migrate_step(fa2i_cache *cache, const char *const *steps, int count,
                               int64_t *ret_version)
{
    fa2_status st;
    char pragma[64];

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(version_of(cache, count, ret_version));
    if (*ret_version < count) {
        snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d", (int)*ret_version + 1);
        FA2_TRY(run_step(cache, steps[*ret_version], (int)*ret_version));
        FA2_TRY(fa2i_sql_script(cache, pragma));
    }
done:
    return fa2i_sql_end(cache, st);
}

/* A step may put another table in the place of one that rows refer to. */
static fa2_status enforce_references(fa2i_cache *cache, bool enforced)
{
    const int code = sqlite3_db_config(cache->db, SQLITE_DBCONFIG_ENABLE_FKEY, (int)enforced, NULL);
    return code == SQLITE_OK ? FA2_OK : fa2i_sql_fail(cache, code);
}

fa2_status fa2i_cache_migrate(fa2i_cache *cache, const char *const *steps, int count)
{
    int64_t version = 0;
    fa2_status st = read_version(cache, count, &version); /* most often there is nothing to do */
    if (st != FA2_OK || version == count)
        return st;
    st = enforce_references(cache, false);
    while (st == FA2_OK && version < count)
        st = migrate_step(cache, steps, count, &version);
    const fa2_status enforced = enforce_references(cache, true);
    return st != FA2_OK ? st : enforced;
}

static fa2_status bring_forward(fa2i_cache *cache)
{
    const char *steps[SCHEMA_VERSION];
    for (size_t i = 0; i < SCHEMA_VERSION; i++) {
        const fa2i_asset *asset = fa2i_asset_find(migrations[i]);
        assert(asset != NULL);
        steps[i] = asset->data;
    }
    const fa2_status st = fa2i_cache_migrate(cache, steps, SCHEMA_VERSION);
    return st == FA2_OK ? fa2i_columns_bring_forward(cache) : st;
}

/* Is there nothing to bring forward? */
static fa2_status check_version(fa2i_cache *cache)
{
    const fa2_status st = fa2i_cache_version_check(cache, SCHEMA_VERSION);
    return st == FA2_OK ? fa2i_columns_check(cache) : st;
}

/* Settings that do not read the file. */
static fa2_status configure(fa2i_cache *cache)
{
    int code = sqlite3_busy_timeout(cache->db, FA2I_BUSY_TIMEOUT_MS);
    if (code == SQLITE_OK)
        code = sqlite3_extended_result_codes(cache->db, 1);
    if (code == SQLITE_OK)
        code = sqlite3_db_config(cache->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_db_config(cache->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_db_config(cache->db, SQLITE_DBCONFIG_ENABLE_FKEY, 1, NULL);
    if (code == SQLITE_OK)
        code = fa2i_seal_register(cache->db);
    if (code == SQLITE_OK)
        code = fa2i_version_1_register(cache->db);
    if (code == SQLITE_OK)
        code = fa2i_columns_register(cache->db);
    if (code != SQLITE_OK)
        return fa2i_sql_fail(cache, code);
    return fa2i_sql_script(cache, "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY");
}

static fa2_status connect(fa2i_cache *cache, const char *name, int flags)
{
    int code = sqlite3_open_v2(name, &cache->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    return code == SQLITE_OK ? configure(cache) : fa2i_sql_fail(cache, code);
}

static fa2_status open_for_writing(fa2i_cache *cache, const char *resolved)
{
    fa2_status st;
    char pragma[64];

    FA2_TRY(fa2i_path_check_writable(cache->path, resolved));
    FA2_TRY(connect(cache, resolved, SQLITE_OPEN_READWRITE));
    FA2_TRY(bring_forward(cache));
    /* Refused while others use the file (SQLITE_BUSY): then it stays in its mode, which works too.
     */
    snprintf(pragma, sizeof pragma, "PRAGMA journal_mode = %s",
             fa2i_cache_journal_mode(sqlite3_libversion_number()));
    (void)sqlite3_exec(cache->db, pragma, NULL, NULL, NULL);
done:
    return st;
}

/* "file:PATH?immutable=1" with what has a meaning in a URI escaped. */
static fa2_status immutable_uri(const char *resolved, char **ret_uri)
{
    fa2i_text uri = {0};
    fa2i_text_add(&uri, "file:");
    for (const char *c = resolved; *c != '\0'; c++) {
        if (strchr("%?#", *c) != NULL)
            fa2i_text_add(&uri, "%%%02X", (unsigned)*c);
        else
            fa2i_text_add_bytes(&uri, c, 1);
    }
    fa2i_text_add(&uri, "?immutable=1");
    return fa2i_text_take(&uri, ret_uri);
}

/* Is there a journal or a log that a reader would have to take into account? */
static fa2_status has_journal(const char *resolved, bool *ret_has)
{
    static const char *const suffixes[] = {"-journal", "-wal"};
    fa2_status st = FA2_OK;
    bool has = false;
    for (size_t i = 0; st == FA2_OK && i < sizeof suffixes / sizeof suffixes[0]; i++) {
        fa2i_text text = {0};
        char *file = NULL;
        struct stat info;
        fa2i_text_add(&text, "%s%s", resolved, suffixes[i]);
        st = fa2i_text_take(&text, &file);
        if (st == FA2_OK && stat(file, &info) == 0 && info.st_size > 0)
            has = true;
        fa2i_free(file);
    }
    *ret_has = has;
    return st;
}

/* A WAL database needs a file beside it even for reading, which a read-only file system refuses.
 * Where no file can be made and no journal waits, nobody is writing: it may be read as it lies. */
static fa2_status open_immutable(fa2i_cache *cache, const char *resolved)
{
    fa2_status st;
    char *uri = NULL;

    sqlite3_close(cache->db);
    cache->db = NULL;
    FA2_TRY(immutable_uri(resolved, &uri));
    FA2_TRY(connect(cache, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI));
    FA2_TRY(check_version(cache));
done:
    fa2i_free(uri);
    return st;
}

static fa2_status open_for_reading(fa2i_cache *cache, const char *resolved)
{
    bool folder_writable = true;
    bool journal = true;
    fa2_status st = connect(cache, resolved, SQLITE_OPEN_READONLY);
    if (st == FA2_OK)
        st = check_version(cache);
    if (st != FA2_E_DATABASE)
        return st;
    if (fa2i_path_folder_writable(resolved, &folder_writable) == FA2_OK && !folder_writable &&
        has_journal(resolved, &journal) == FA2_OK && !journal)
        return open_immutable(cache, resolved);
    return st;
}

static fa2_status create(const char *path, fa2i_cache_mode mode, fa2i_log_fn log, void *log_user,
                         fa2i_cache **ret_cache)
{
    fa2i_cache *cache = fa2i_alloc(sizeof *cache);
    char *copy = fa2i_strdup(path);
    if (cache == NULL || copy == NULL) {
        fa2i_free(copy);
        fa2i_free(cache);
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    }
    *cache = (fa2i_cache){
        .path = copy, .writable = mode == FA2I_CACHE_WRITE, .log = log, .log_user = log_user};
    pthread_mutex_init(&cache->mutex, NULL); /* cannot fail with default attributes on Linux */
    pthread_mutex_init(&cache->claims_mutex, NULL);
    *ret_cache = cache;
    return FA2_OK;
}

fa2_status fa2i_cache_open(const char *path, fa2i_cache_mode mode, fa2i_log_fn log, void *log_user,
                           fa2i_cache **ret_cache)
{
    fa2_status st;
    char *resolved = NULL;
    bool created = false;
    fa2i_cache *cache = NULL;

    FA2_TRY(fa2i_cache_library_check(sqlite3_libversion_number()));
    if (mode == FA2I_CACHE_WRITE)
        FA2_TRY(fa2i_path_create(path, &created));
    FA2_TRY(fa2i_path_check(path, &resolved));
    FA2_TRY(create(path, mode, log, log_user, &cache));
    cache->created = created;
    FA2_TRY(cache->writable ? open_for_writing(cache, resolved)
                            : open_for_reading(cache, resolved));
    *ret_cache = cache;
    cache = NULL;
done:
    fa2i_cache_close(cache);
    fa2i_free(resolved);
    return st;
}

void fa2i_cache_close(fa2i_cache *cache)
{
    if (cache == NULL)
        return;
    fa2i_claims_close(cache);
    int code = sqlite3_close(cache->db);
    assert(code == SQLITE_OK); /* no statement was left open */
    (void)code;
    pthread_mutex_destroy(&cache->claims_mutex);
    pthread_mutex_destroy(&cache->mutex);
    fa2i_free(cache->reported);
    fa2i_free(cache->path);
    fa2i_free(cache);
}

/* Under the write lock, so that nobody is just putting something into it. */
static void remove_if_empty(fa2i_cache *cache)
{
    int64_t rows = 1;
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = fa2i_sql_number(cache,
                             "SELECT (SELECT count(*) FROM device) + (SELECT count(*) FROM "
                             "problem) + (SELECT count(*) FROM kernel)",
                             NULL, 0, &rows);
    if (st == FA2_OK && rows == 0)
        unlink(sqlite3_db_filename(cache->db, "main"));
    (void)fa2i_sql_end(cache, st);
}

void fa2i_cache_abandon(fa2i_cache *cache)
{
    if (cache != NULL && cache->created)
        remove_if_empty(cache);
    fa2i_cache_close(cache);
}

const char *fa2i_cache_path(const fa2i_cache *cache)
{
    return cache->path;
}

fa2_status fa2i_cache_data_version(fa2i_cache *cache, int64_t *ret_version)
{
    int64_t by_others = 0; /* 32 bits; SQLite leaves this connection's own commits out of it */
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = fa2i_sql_number(cache, "PRAGMA data_version", NULL, 0, &by_others);
    const int64_t own_rows = sqlite3_total_changes(cache->db);
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK)
        *ret_version = own_rows * (INT64_C(1) << 32) + by_others;
    return st;
}
