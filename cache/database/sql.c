/*
 * The thin layer over SQLite.
 *
 * Invariants:
 * - the mutex is held exactly between fa2i_sql_begin and fa2i_sql_end;
 * - a write takes its lock at BEGIN IMMEDIATE: a read that turns into a write later could fail with SQLITE_BUSY without
 *   waiting;
 * - a file whose path leads to another file now is left alone: SQLite finds the journal by the path, and would take the
 *   other file's journal;
 * - after fa2i_sql_end no transaction is open, whatever happened;
 * - numbers that are not finite are NULL, so that JSON made from the tables is valid.
 */
#include "cache/database/limits.h"
#include "cache/content/notes.h"
#include "cache/database/trust.h"
#include "runtime/base/alloc.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char hopeless[] = ": too little of it can be read to make it anew; move the file away, and tune again or "
                               "import an export; or name another database";
static const char moved[] = ": was deleted or replaced while it was open; run this again";

typedef struct advice {
    int code;
    const char *text;
    const char *rest; /* "--db", the file's path in quotes and this follow the text; NULL: nothing does */
} advice;

/* Returns advice for a result code. An extended code stands before its primary code. */
static const advice *advice_for(int code)
{
    static const advice known[] = {
        {SQLITE_READONLY_ROLLBACK, ": a writer was stopped half-way; `fa2-tune check",
         "` restores the last good state"},
        {SQLITE_READONLY_DBMOVED, moved, NULL},
        {SQLITE_READONLY, ": make the file and its folder writable, or name another database", NULL},
        {SQLITE_NOTADB, ": move the file away, or name another database; if it was one of fa2's, `fa2-tune gc",
         "` first tries to mend it"},
        {SQLITE_CORRUPT, ": the file is damaged; `fa2-tune gc",
         "` makes it anew from what can be read. If that is too little, move the file away, and tune again or import "
         "an export"},
        {SQLITE_ERROR, ": its tables are not those of this fa2; `fa2-tune check", "` says more"},
        {SQLITE_CANTOPEN, ": check the permissions of the file and of its folder", NULL},
        {SQLITE_PERM, ": check the permissions of the file and of its folder", NULL},
        {SQLITE_INTERRUPT, " after all the time that a call may take; `fa2-tune check", "` says more"},
        {SQLITE_FULL, ": free some space and run this again; what was stored before is safe", NULL},
        {SQLITE_IOERR, ": check the disk (full? quota? network?)", NULL},
        {SQLITE_BUSY, ": another process has been writing for 10 s or more; try again when it is done", NULL},
    };
    static const advice none = {0, "", NULL};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].code == code || known[i].code == (code & 0xff))
            return &known[i];
    }
    return &none;
}

fa2_status fa2i_sql_fail(const fa2i_cache *cache, int code)
{
    const int primary = code & 0xff;
    const fa2_status st = primary == SQLITE_NOMEM ? FA2_E_MEMORY : FA2_E_DATABASE;
    const bool damaged = primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
    const char *what = sqlite3_errmsg(cache->db);
    const advice *a = advice_for(code);
    if (primary == SQLITE_INTERRUPT && fa2i_limits_stopped(cache))
        return fa2i_limits_fail_stopped(cache);
    if (damaged && cache->remade.hopeless)
        return fa2i_fail(st, "%s: %s%s", cache->path, what, hopeless);
    if (a->rest == NULL)
        return fa2i_fail(st, "%s: %s%s", cache->path, what, a->text);
    return fa2i_fail(st, "%s: %s%s --db '%s'%s", cache->path, what, a->text, cache->path, a->rest);
}

static int bind(sqlite3_stmt *stmt, int index, const fa2i_sql_value *value)
{
    switch (value->kind) {
    case FA2I_SQL_INT:
        return sqlite3_bind_int64(stmt, index, value->integer);
    case FA2I_SQL_REAL:
        return isfinite(value->real) ? sqlite3_bind_double(stmt, index, value->real) : sqlite3_bind_null(stmt, index);
    case FA2I_SQL_TEXT: /* SQLite binds NULL for a NULL pointer */
        return sqlite3_bind_text(stmt, index, value->data, -1, SQLITE_STATIC);
    case FA2I_SQL_BLOB:
        return sqlite3_bind_blob64(stmt, index, value->data, value->bytes, SQLITE_STATIC);
    }
    assert(false && "unknown kind of value");
    return SQLITE_MISUSE;
}

fa2_status fa2i_sql_prepare(fa2i_cache *cache, const char *sql, const fa2i_sql_value *values, size_t count,
                            sqlite3_stmt **ret_stmt)
{
    sqlite3_stmt *stmt = NULL;
    int code = sqlite3_prepare_v2(cache->db, sql, -1, &stmt, NULL);
    assert(code != SQLITE_OK || (size_t)sqlite3_bind_parameter_count(stmt) == count);
    for (size_t i = 0; code == SQLITE_OK && i < count; i++)
        code = bind(stmt, (int)i + 1, &values[i]);
    if (code != SQLITE_OK) {
        fa2_status st = fa2i_sql_fail(cache, code);
        sqlite3_finalize(stmt);
        return st;
    }
    *ret_stmt = stmt;
    return FA2_OK;
}

fa2_status fa2i_sql_step(fa2i_cache *cache, sqlite3_stmt *stmt, bool *ret_row)
{
    int code = sqlite3_step(stmt);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return fa2i_sql_fail(cache, code);
    *ret_row = code == SQLITE_ROW;
    return FA2_OK;
}

bool fa2i_sql_next(fa2i_cache *cache, sqlite3_stmt *stmt, fa2_status *ret_status)
{
    bool row = false;
    *ret_status = fa2i_sql_step(cache, stmt, &row);
    return *ret_status == FA2_OK && row;
}

fa2_status fa2i_sql_again(fa2i_cache *cache, sqlite3_stmt *stmt, const fa2i_sql_value *values, size_t count)
{
    bool row = false;
    int code = sqlite3_reset(stmt);
    for (size_t i = 0; code == SQLITE_OK && i < count; i++)
        code = bind(stmt, (int)i + 1, &values[i]);
    if (code != SQLITE_OK)
        return fa2i_sql_fail(cache, code);
    const fa2_status st = fa2i_sql_step(cache, stmt, &row);
    return st == FA2_OK && !row ? FA2_E_NOT_FOUND : st;
}

fa2_status fa2i_sql_row(fa2i_cache *cache, const char *sql, const fa2i_sql_value *values, size_t count,
                        sqlite3_stmt **ret_stmt)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    FA2_TRY(fa2i_sql_prepare(cache, sql, values, count, &stmt));
    FA2_TRY(fa2i_sql_step(cache, stmt, &row));
    if (row) {
        *ret_stmt = stmt;
        stmt = NULL;
    } else {
        st = FA2_E_NOT_FOUND;
    }
done:
    sqlite3_finalize(stmt);
    return st;
}

fa2_status fa2i_sql_run(fa2i_cache *cache, const char *sql, const fa2i_sql_value *values, size_t count)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    bool row = true;
    FA2_TRY(fa2i_sql_prepare(cache, sql, values, count, &stmt));
    while (row)
        FA2_TRY(fa2i_sql_step(cache, stmt, &row));
done:
    sqlite3_finalize(stmt);
    return st;
}

fa2_status fa2i_sql_number(fa2i_cache *cache, const char *sql, const fa2i_sql_value *values, size_t count,
                           int64_t *ret_number)
{
    sqlite3_stmt *stmt = NULL;
    fa2_status st = fa2i_sql_row(cache, sql, values, count, &stmt);
    if (st == FA2_OK)
        *ret_number = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return st;
}

fa2_status fa2i_sql_counts(fa2i_cache *cache, const fa2i_sql_count *counts, size_t count)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < count; i++) {
        int64_t number = 0;
        st = fa2i_sql_number(cache, counts[i].sql, NULL, 0, &number);
        *counts[i].ret_count = (size_t)number;
    }
    return st;
}

fa2_status fa2i_sql_script(fa2i_cache *cache, const char *script)
{
    int code = sqlite3_exec(cache->db, script, NULL, NULL, NULL);
    return code == SQLITE_OK ? FA2_OK : fa2i_sql_fail(cache, code);
}

fa2_status fa2i_sql_prepare_text(fa2i_cache *cache, fa2i_text *text, const fa2i_sql_value *values, size_t count,
                                 sqlite3_stmt **ret_stmt)
{
    char *sql = NULL;
    fa2_status st = fa2i_text_take(text, &sql);
    if (st == FA2_OK)
        st = fa2i_sql_prepare(cache, sql, values, count, ret_stmt);
    fa2i_free(sql);
    return st;
}

fa2_status fa2i_sql_script_text(fa2i_cache *cache, fa2i_text *text)
{
    char *sql = NULL;
    fa2_status st = fa2i_text_take(text, &sql);
    if (st == FA2_OK)
        st = fa2i_sql_script(cache, sql);
    fa2i_free(sql);
    return st;
}

bool fa2i_sql_has_moved(const fa2i_cache *cache)
{
    int has_moved = 0; /* stays 0 for a database in memory */
    return sqlite3_file_control(cache->db, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved) == SQLITE_OK && has_moved != 0;
}

/* Checks the folder again. Others may have got write access to it since, and SQLite plays back a journal that anyone
 * puts there. A database in memory has no file: its name is empty or no absolute path. */
static fa2_status check_folder(const fa2i_cache *cache)
{
    const char *file = sqlite3_db_filename(cache->db, "main");
    return file == NULL || file[0] != '/' ? FA2_OK : fa2i_trust_folder_of(cache->path, file);
}

/* Call it under the mutex. */
static fa2_status begin(fa2i_cache *cache, fa2i_cache_mode mode)
{
    fa2i_limits_begin(cache);
    fa2i_wait_begin(cache, mode);
    if (mode == FA2I_CACHE_WRITE && !cache->writable)
        return fa2i_fail(FA2_E_DATABASE, "%s: is open for reading only", cache->path);
    if (fa2i_sql_has_moved(cache))
        return fa2i_fail(FA2_E_DATABASE, "%s%s", cache->path, moved);
    const fa2_status st = check_folder(cache);
    if (st != FA2_OK)
        return st;
    return fa2i_sql_run(cache, mode == FA2I_CACHE_WRITE ? "BEGIN IMMEDIATE" : "BEGIN", NULL, 0);
}

fa2_status fa2i_sql_begin(fa2i_cache *cache, fa2i_cache_mode mode)
{
    pthread_mutex_lock(&cache->mutex);
    return begin(cache, mode);
}

fa2_status fa2i_sql_begin_at_once(fa2i_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    cache->at_once = true;
    return begin(cache, FA2I_CACHE_WRITE);
}

int64_t fa2i_cache_own_version(const fa2i_cache *cache, int64_t version)
{
    const int64_t own_rows = sqlite3_total_changes(cache->db) - cache->noted_rows;
    return own_rows * (INT64_C(1) << 32) + (version & INT64_C(0xffffffff));
}

fa2_status fa2i_sql_data_version(fa2i_cache *cache, int64_t *ret_version)
{
    int64_t by_others = 0; /* 32 bits; SQLite does not count this connection's own commits */
    const fa2_status st = fa2i_sql_number(cache, "PRAGMA data_version", NULL, 0, &by_others);
    if (st == FA2_OK)
        *ret_version = fa2i_cache_own_version(cache, by_others);
    return st;
}

fa2_status fa2i_sql_end(fa2i_cache *cache, fa2_status st)
{
    if (st == FA2_OK)
        st = fa2i_sql_run(cache, "COMMIT", NULL, 0);
    if (!sqlite3_get_autocommit(cache->db))
        (void)sqlite3_exec(cache->db, "ROLLBACK", NULL, NULL, NULL);
    fa2i_limits_end(cache);
    if (st == FA2_OK)
        fa2i_wait_end(cache);
    cache->at_once = false;
    pthread_mutex_unlock(&cache->mutex);
    return st;
}

fa2_status fa2i_sql_close(fa2i_cache *cache, sqlite3_stmt *stmt, fa2_status st)
{
    sqlite3_finalize(stmt);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_sql_need_json(fa2i_cache *cache)
{
    int64_t valid = 0;
    if (fa2i_sql_number(cache, "SELECT json_valid('{}')", NULL, 0, &valid) == FA2_OK && valid == 1)
        return FA2_OK;
    return fa2i_fail(FA2_E_DATABASE, "%s: SQLite %s was built without its JSON functions, which this needs",
                     cache->path, sqlite3_libversion());
}

int fa2i_sql_register(sqlite3 *db, const fa2i_sql_function *functions, size_t count, void *user)
{
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY;
    int code = SQLITE_OK;
    for (size_t i = 0; code == SQLITE_OK && i < count; i++)
        code = sqlite3_create_function_v2(db, functions[i].name, functions[i].arguments, flags, user,
                                          functions[i].function, NULL, NULL, NULL);
    return code;
}

void fa2i_sql_column_text(sqlite3_stmt *stmt, int column, char *out, size_t out_bytes)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    snprintf(out, out_bytes, "%s", text != NULL ? text : "");
}

void fa2i_sql_column_line(sqlite3_stmt *stmt, int column, char *out, size_t out_bytes)
{
    fa2i_sql_column_text(stmt, column, out, out_bytes);
    for (char *at = out; (at = strchr(at, '\n')) != NULL;)
        *at = ' ';
}

double fa2i_sql_column_error(sqlite3_stmt *stmt, int column)
{
    bool null = sqlite3_column_type(stmt, column) == SQLITE_NULL;
    return null ? INFINITY : sqlite3_column_double(stmt, column);
}

bool fa2i_sql_column_outcome(sqlite3_stmt *stmt, int column, fa2i_outcome *ret_outcome)
{
    char text[32];
    fa2i_sql_column_text(stmt, column, text, sizeof text);
    return fa2i_outcome_parse(text, ret_outcome);
}
