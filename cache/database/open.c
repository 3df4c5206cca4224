/*
 * Opening: trust and settings.
 *
 * How: check the file (path.c), open it, configure the connection, then look at its schema (schema.c). For writing,
 * bring it forward; for reading, refuse another version than ours.
 *
 * Invariants:
 * - waiting is set up before the first statement that may have to wait;
 * - a connection for reading is SQLITE_OPEN_READONLY, so that nothing here can write.
 */
#include "cache/database/columns.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/database/limits.h"
#include "cache/database/mend.h"
#include "cache/database/remake.h"
#include "cache/database/rules.h"
#include "cache/database/strangers.h"
#include "cache/database/trust.h"
#include "cache/database/versions.h"
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"

enum { STRICT_TABLES_SINCE = 3037000, WAL_RESET_FIXED_SINCE = 3052000 };

fa2_status fa2i_cache_library_check(int version)
{
    if (version >= STRICT_TABLES_SINCE)
        return FA2_OK;
    return fa2i_fail(FA2_E_DATABASE, "SQLite %d.%d.%d is too old: the tuning database needs 3.37 (STRICT tables)",
                     version / 1000000, version / 1000 % 1000, version % 1000);
}

const char *fa2i_cache_journal_mode(int library_version)
{
    return library_version >= WAL_RESET_FIXED_SINCE ? "WAL" : "DELETE";
}

/* Makes the settings that do not read the file. */
static fa2_status configure(fa2i_cache *cache)
{
    static const struct {
        int option, value;
    } settings[] = {{SQLITE_DBCONFIG_DEFENSIVE, 1},
                    {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                    {SQLITE_DBCONFIG_ENABLE_VIEW, 0}, /* the file's views; the temporary ones are ours */
                    {SQLITE_DBCONFIG_ENABLE_FKEY, 1}};
    static int (*const functions[])(sqlite3 *) = {fa2i_seal_register, fa2i_columns_register, fa2i_mend_register,
                                                  fa2i_versions_register};
    fa2i_limits_register(cache);
    int code = fa2i_wait_register(cache);
    if (code == SQLITE_OK)
        code = sqlite3_extended_result_codes(cache->db, 1);
    for (size_t i = 0; code == SQLITE_OK && i < sizeof settings / sizeof *settings; i++)
        code = sqlite3_db_config(cache->db, settings[i].option, settings[i].value, NULL);
    for (size_t i = 0; code == SQLITE_OK && i < sizeof functions / sizeof *functions; i++)
        code = functions[i](cache->db);
    if (code == SQLITE_OK)
        code = fa2i_rules_register(cache->db, &cache->mended);
    if (code != SQLITE_OK)
        return fa2i_sql_fail(cache, code);
    return fa2i_sql_script(cache, "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0");
}

fa2_status fa2i_cache_connect(fa2i_cache *cache, const char *name, int flags)
{
    int code = sqlite3_open_v2(name, &cache->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    return code == SQLITE_OK ? configure(cache) : fa2i_sql_fail(cache, code);
}

/* name: the path as the caller gave it. */
static fa2_status check_for_writing(const char *name, const char *resolved)
{
    fa2_status st = fa2i_trust_folder_of(name, resolved);
    if (st == FA2_OK)
        st = fa2i_path_check_side_files(name, resolved);
    return st == FA2_OK ? fa2i_path_check_writable(name, resolved) : st;
}

/* resolved, info: path and state of the file that was checked. */
static fa2_status open_for_writing(fa2i_cache *cache, const char *resolved, const struct stat *info, bool repair)
{
    fa2_status st;
    char pragma[64];
    FA2_TRY(check_for_writing(cache->path, resolved));
    FA2_TRY(fa2i_cache_connect(cache, resolved, SQLITE_OPEN_READWRITE));
    FA2_TRY(fa2i_trust_opened(cache, resolved, info));
    if (repair)
        FA2_TRY(fa2i_remake_if_damaged(cache, resolved));
    else
        FA2_TRY(fa2i_strangers_refuse(cache, true));
    FA2_TRY(fa2i_schema_bring_forward(cache, repair && !cache->remade.done)); /* what was made anew needs no repair */
    /* SQLite refuses while others use the file (SQLITE_BUSY). Then the file keeps its mode, which works too. */
    snprintf(pragma, sizeof pragma, "PRAGMA journal_mode = %s", fa2i_cache_journal_mode(sqlite3_libversion_number()));
    (void)sqlite3_exec(cache->db, pragma, NULL, NULL, NULL);
done:
    return st;
}

/* Makes "file:PATH?immutable=1", and escapes the characters that have a meaning in a URI. */
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

/* Is there a journal or a log, of this user or root, that a reader would have to consider? */
static fa2_status has_journal(const char *resolved, bool *ret_has)
{
    fa2_status st = FA2_OK;
    bool has = false;
    for (size_t i = 0; st == FA2_OK && i < FA2I_CACHE_JOURNALS; i++) {
        char *file = NULL;
        struct stat info;
        st = fa2i_text_make(&file, "%s%s", resolved, fa2i_cache_side_files[i]);
        if (st == FA2_OK && lstat(file, &info) == 0 && info.st_size > 0 &&
            (info.st_uid == geteuid() || info.st_uid == 0))
            has = true;
        fa2i_free(file);
    }
    *ret_has = has;
    return st;
}

static fa2_status check_to_read(fa2i_cache *cache)
{
    const fa2_status st = fa2i_schema_check(cache);
    return st == FA2_OK ? fa2i_strangers_refuse(cache, false) : st;
}

/* Opens a WAL database without a file beside it. Even reading needs one, which a read-only file system refuses. If no
 * file can be created and there is no journal, no process writes, and the file can be read as it is. */
static fa2_status open_immutable(fa2i_cache *cache, const char *resolved, const struct stat *info)
{
    fa2_status st;
    char *uri = NULL;
    sqlite3_close(cache->db);
    cache->db = NULL;
    FA2_TRY(immutable_uri(resolved, &uri));
    FA2_TRY(fa2i_cache_connect(cache, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI));
    FA2_TRY(fa2i_trust_opened(cache, resolved, info));
    FA2_TRY(check_to_read(cache));
done:
    fa2i_free(uri);
    return st;
}

/* Opens these bytes as a database in memory, which no longer follows the file. Takes over the data. flags:
 * SQLITE_DESERIALIZE_READONLY or SQLITE_DESERIALIZE_RESIZEABLE. */
static fa2_status open_bytes(fa2i_cache *cache, unsigned char *data, size_t bytes, unsigned flags)
{
    enum { WRITE_VERSION = 18, READ_VERSION = 19, LOGGED = 2, UNLOGGED = 1 }; /* offsets and values in its header */
    fa2_status st = fa2i_cache_connect(cache, ":memory:", SQLITE_OPEN_READWRITE);
    if (st != FA2_OK || bytes <= READ_VERSION) {
        sqlite3_free(data);
        return st;
    }
    if (data[WRITE_VERSION] == LOGGED && data[READ_VERSION] == LOGGED) /* there is no log in memory */
        data[WRITE_VERSION] = data[READ_VERSION] = UNLOGGED;
    const int code = sqlite3_deserialize(cache->db, "main", data, (sqlite3_int64)bytes, (sqlite3_int64)bytes,
                                         SQLITE_DESERIALIZE_FREEONCLOSE | flags);
    return code == SQLITE_OK ? FA2_OK : fa2i_sql_fail(cache, code);
}

/* Opens a copy of the file in memory. Others can put files beside this one, or replace it, so SQLite must not open it
 * by its name. A journal of theirs does not count. A journal of our own means that the file alone is incomplete. */
static fa2_status open_copy(fa2i_cache *cache, const char *resolved)
{
    fa2_status st;
    bool journal = true;
    unsigned char *data = NULL;
    size_t bytes = 0;
    FA2_TRY(has_journal(resolved, &journal));
    if (journal)
        FA2_TRY(fa2i_fail(FA2_E_DATABASE,
                          "%s: a writer was stopped half-way, and others can write its folder: move the file, with "
                          "what is called like it, into a folder of your own, and name it with %s",
                          cache->path, fa2i_naming()));
    FA2_TRY(fa2i_trust_read(cache->path, resolved, &data, &bytes));
    FA2_TRY(open_bytes(cache, data, bytes, SQLITE_DESERIALIZE_READONLY));
    FA2_TRY(check_to_read(cache));
done:
    return st;
}

static fa2_status open_for_reading(fa2i_cache *cache, const char *resolved, const struct stat *info)
{
    bool folder_writable = true;
    bool journal = true;
    fa2_status st = fa2i_trust_folder_of(cache->path, resolved);
    if (st == FA2_E_DATABASE)
        return open_copy(cache, resolved);
    if (st == FA2_OK)
        st = fa2i_path_check_side_files(cache->path, resolved);
    if (st == FA2_OK)
        st = fa2i_cache_connect(cache, resolved, SQLITE_OPEN_READONLY);
    if (st == FA2_OK)
        st = fa2i_trust_opened(cache, resolved, info);
    if (st == FA2_OK)
        st = check_to_read(cache);
    if (st != FA2_E_DATABASE)
        return st;
    if (fa2i_path_folder_writable(resolved, &folder_writable) == FA2_OK && !folder_writable &&
        has_journal(resolved, &journal) == FA2_OK && !journal)
        return open_immutable(cache, resolved, info);
    return st;
}

/* stop: as in fa2i_cache_open_to_mend, or NULL. */
static fa2_status create(const char *path, fa2i_cache_mode mode, const volatile sig_atomic_t *stop, fa2i_log_fn log,
                         void *log_user, fa2i_cache **ret_cache)
{
    fa2i_cache *cache = fa2i_alloc(sizeof *cache);
    char *copy = fa2i_strdup(path);
    if (cache == NULL || copy == NULL) {
        fa2i_free(copy);
        fa2i_free(cache);
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    }
    *cache = (fa2i_cache){.path = copy,
                          .writable = mode != FA2I_CACHE_READ,
                          .wait_ms = FA2I_CACHE_WAIT_MS,
                          .waits_by_call = true,
                          .seconds_max = FA2I_CACHE_LONG_S,
                          .stop = stop,
                          .log = log,
                          .log_user = log_user};
    pthread_mutex_init(&cache->mutex, NULL); /* cannot fail with default attributes on Linux */
    pthread_mutex_init(&cache->claims_mutex, NULL);
    *ret_cache = cache;
    return FA2_OK;
}

fa2_status fa2i_cache_open_bytes(const char *path, fa2i_cache_mode mode, unsigned char *data, size_t bytes,
                                 fa2i_cache **ret_cache)
{
    fa2i_cache *cache = NULL;
    fa2_status st = create(path, mode, NULL, NULL, NULL, &cache);
    if (st != FA2_OK) {
        sqlite3_free(data);
        return st;
    }
    st = open_bytes(cache, data, bytes,
                    mode == FA2I_CACHE_READ ? SQLITE_DESERIALIZE_READONLY : SQLITE_DESERIALIZE_RESIZEABLE);
    if (st == FA2_OK && mode == FA2I_CACHE_READ)
        st = check_to_read(cache);
    if (st == FA2_OK)
        *ret_cache = cache;
    else
        fa2i_cache_close(cache);
    return st;
}

/* Removes the file that this opening created and could not write. */
static void remove_if_bare(const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0 && info.st_size == 0)
        unlink(path);
}

static fa2_status open_file(const char *path, fa2i_cache_mode mode, int *wait_ms, const volatile sig_atomic_t *stop,
                            fa2i_log_fn log, void *log_user, fa2i_cache **ret_cache)
{
    fa2_status st;
    struct stat info;
    char *resolved = NULL;
    bool created = false;
    fa2i_cache *cache = NULL;
    FA2_TRY(fa2i_cache_library_check(sqlite3_libversion_number()));
    if (mode == FA2I_CACHE_WRITE)
        FA2_TRY(fa2i_path_create(path, &created));
    FA2_TRY(fa2i_path_check(path, &resolved, &info));
    FA2_TRY(create(path, mode, stop, log, log_user, &cache));
    cache->created = created;
    cache->wait_ms = *wait_ms;
    st = cache->writable ? open_for_writing(cache, resolved, &info, mode == FA2I_CACHE_REPAIR)
                         : open_for_reading(cache, resolved, &info);
    *wait_ms = cache->wait_ms;
    if (st != FA2_OK)
        goto done;
    cache->waits_by_call = false;
    cache->wait_ms = FA2I_CACHE_WAIT_MS;
    fa2i_cache_allow_seconds(cache, FA2I_LIMITS_CALL_S);
    *ret_cache = cache;
    cache = NULL;
done:
    fa2i_cache_close(cache);
    if (st != FA2_OK && created && resolved != NULL)
        remove_if_bare(resolved);
    fa2i_free(resolved);
    return st;
}

fa2_status fa2i_cache_open(const char *path, fa2i_cache_mode mode, fa2i_log_fn log, void *log_user,
                           fa2i_cache **ret_cache)
{
    int wait_ms = FA2I_CACHE_WAIT_MS;
    return open_file(path, mode, &wait_ms, NULL, log, log_user, ret_cache);
}

fa2_status fa2i_cache_open_within(const char *path, fa2i_cache_mode mode, int *wait_ms, fa2i_log_fn log, void *log_user,
                                  fa2i_cache **ret_cache)
{
    return open_file(path, mode, wait_ms, NULL, log, log_user, ret_cache);
}

fa2_status fa2i_cache_open_to_mend(const char *path, const volatile sig_atomic_t *stop, fa2i_log_fn log, void *log_user,
                                   fa2i_cache **ret_cache)
{
    int wait_ms = FA2I_CACHE_WAIT_MS;
    return open_file(path, FA2I_CACHE_REPAIR, &wait_ms, stop, log, log_user, ret_cache);
}

fa2_status fa2i_cache_check_writable(const char *path)
{
    struct stat info;
    char *resolved = NULL;
    fa2_status st = FA2_OK;
    if (fa2i_path_is_missing(path))
        return fa2i_path_check_creatable(path);
    FA2_TRY(fa2i_path_check(path, &resolved, &info));
    FA2_TRY(check_for_writing(path, resolved));
done:
    fa2i_free(resolved);
    return st;
}

fa2_status fa2i_cache_copy(fa2i_cache *cache, const char *path)
{
    const fa2i_sql_value values[] = {fa2i_sql_text(path)};
    pthread_mutex_lock(&cache->mutex); /* no transaction may be open */
    const fa2_status st = fa2i_sql_run(cache, "VACUUM INTO ?", FA2I_SQL_VALUES(values));
    pthread_mutex_unlock(&cache->mutex);
    return st;
}

/* The bytes of an empty database. They are made once, because that takes many statements. */
static pthread_mutex_t blank_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *blank;
static sqlite3_int64 blank_bytes;

static fa2_status make_blank(const char *path)
{
    fa2_status st;
    fa2i_cache *cache = NULL;
    FA2_TRY(create(path, FA2I_CACHE_WRITE, NULL, NULL, NULL, &cache));
    FA2_TRY(fa2i_cache_connect(cache, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
    FA2_TRY(fa2i_schema_bring_forward(cache, false));
    blank = sqlite3_serialize(cache->db, "main", &blank_bytes, 0);
    if (blank == NULL)
        st = fa2i_fail(FA2_E_MEMORY, "out of memory");
done:
    fa2i_cache_close(cache);
    return st;
}

fa2_status fa2i_cache_open_empty(const char *path, fa2i_cache **ret_cache)
{
    pthread_mutex_lock(&blank_mutex);
    const fa2_status st = blank != NULL ? FA2_OK : make_blank(path);
    unsigned char *copy = st == FA2_OK ? sqlite3_malloc64((sqlite3_uint64)blank_bytes) : NULL;
    if (copy != NULL)
        memcpy(copy, blank, (size_t)blank_bytes);
    pthread_mutex_unlock(&blank_mutex);
    if (copy != NULL)
        return fa2i_cache_open_bytes(path, FA2I_CACHE_WRITE, copy, (size_t)blank_bytes, ret_cache);
    return st != FA2_OK ? st : fa2i_fail(FA2_E_MEMORY, "out of memory");
}

void fa2i_cache_close(fa2i_cache *cache)
{
    if (cache == NULL)
        return;
    fa2i_claims_close(cache);
    int code = sqlite3_close(cache->db);
    assert(code == SQLITE_OK); /* no statement is open */
    (void)code;
    pthread_mutex_destroy(&cache->claims_mutex);
    pthread_mutex_destroy(&cache->mutex);
    fa2i_free(cache->reported);
    fa2i_free(cache->path);
    fa2i_free(cache);
}

/* Call it under the write lock, so that no other process is just writing rows. */
static void remove_if_empty(fa2i_cache *cache)
{
    int64_t rows = 1;
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = fa2i_sql_number(cache, "SELECT " FA2I_COUNT_ROWS, NULL, 0, &rows);
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

bool fa2i_cache_has_moved(fa2i_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    const bool has_moved = fa2i_sql_has_moved(cache);
    pthread_mutex_unlock(&cache->mutex);
    return has_moved;
}

fa2_status fa2i_cache_data_version(fa2i_cache *cache, int64_t *ret_version)
{
    int64_t version = 0;
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = fa2i_sql_data_version(cache, &version);
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK)
        *ret_version = version;
    return st;
}
