/*
 * The schema: its version, and the objects of ours.
 *
 * How: application_id and user_version are compared with ours. A file must have the objects of a new file. If something
 * is missing, a new file is made in memory, and its text is used.
 *
 * Invariants:
 * - a new file gets its whole schema in one transaction. If something stops it, the file is as before, and the next
 *   opening tries again;
 * - that transaction checks the version again under the write lock, so that two processes that open a new file at once
 *   do not do it twice;
 * - most often nothing is missing. Then nothing is made, and nothing is locked for writing.
 */
#include "cache/database/columns.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "cache/database/strangers.h"
#include "gen/asset.h"

enum { SCHEMA_VERSION = 4 };

static fa2_status refuse_version(const fa2i_cache *cache, int64_t version)
{
    if (version < 0)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: is a damaged fa2 database: its schema version is %lld; put a copy in its place, or move "
                         "it away and tune again",
                         cache->path, (long long)version);
    if (version > SCHEMA_VERSION)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: has schema version %lld, this fa2 reads version %d; use the newer fa2 that wrote it, or "
                         "name another with %s",
                         cache->path, (long long)version, SCHEMA_VERSION, fa2i_naming());
    return fa2i_fail(FA2_E_DATABASE,
                     "%s: has schema version %lld, this fa2 reads version %d; move it away and tune again, or export "
                     "it with the older fa2 that wrote it, and import that",
                     cache->path, (long long)version, SCHEMA_VERSION);
}

/* Checks that the file is fa2's and of this version. *ret_made: it has its tables; else it is empty. Call it inside a
 * transaction, so that a file that is just being made does not look half-made. */
static fa2_status version_of(fa2i_cache *cache, bool *ret_made)
{
    fa2_status st;
    int64_t id = 0;
    int64_t version = 0;
    int64_t objects = 0;
    FA2_TRY(fa2i_sql_number(cache, "PRAGMA application_id", NULL, 0, &id));
    FA2_TRY(fa2i_sql_number(cache, "PRAGMA user_version", NULL, 0, &version));
    FA2_TRY(fa2i_sql_number(cache, "SELECT count(*) FROM sqlite_schema", NULL, 0, &objects));
    if (id != FA2I_APPLICATION_ID && (id != 0 || version != 0 || objects != 0))
        FA2_TRY(fa2i_fail(FA2_E_DATABASE, "%s: is an SQLite database, but not one of fa2; name another with %s",
                          cache->path, fa2i_naming()));
    if (id == FA2I_APPLICATION_ID && version == 0 && objects != 0)
        FA2_TRY(fa2i_fail(FA2_E_DATABASE,
                          "%s: is a damaged fa2 database: it holds tables, and its schema version is "
                          "0; put a copy in its place, or move it away and tune again",
                          cache->path));
    if (version != 0 && version != SCHEMA_VERSION)
        FA2_TRY(refuse_version(cache, version));
    *ret_made = version == SCHEMA_VERSION;
done:
    return st;
}

static fa2_status read_version(fa2i_cache *cache, bool *ret_made)
{
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = version_of(cache, ret_made);
    return fa2i_sql_end(cache, st);
}

/* Was anything ever stored? Also true if that cannot be found out. */
static bool has_rows(fa2i_cache *cache)
{
    int64_t rows = 1;
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = fa2i_sql_number(cache, "SELECT " FA2I_COUNT_ROWS, NULL, 0, &rows);
    return fa2i_sql_end(cache, st) != FA2_OK || rows > 0;
}

static fa2_status empty_file(const fa2i_cache *cache)
{
    return fa2i_fail(FA2_E_NOT_FOUND, "%s: is an empty file, into which nothing was tuned yet; %s names another",
                     cache->path, fa2i_naming());
}

/* Makes the tables, and the columns of the fields that came later. Call it under the write lock. */
static fa2_status make_tables(fa2i_cache *cache)
{
    const fa2i_asset *script = fa2i_asset_find("cache/database/schema.sql");
    fa2_status st;
    bool made = false;
    char pragma[64];
    assert(script != NULL);
    FA2_TRY(version_of(cache, &made));
    if (made) /* another process did it */
        goto done;
    FA2_TRY(fa2i_sql_script(cache, script->data));
    snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d", SCHEMA_VERSION);
    FA2_TRY(fa2i_sql_script(cache, pragma));
    FA2_TRY(fa2i_columns_make(cache));
done:
    return st;
}

/* Gives a new file its schema. */
static fa2_status make_schema(fa2i_cache *cache)
{
    bool made = false;
    fa2_status st = read_version(cache, &made); /* most often there is nothing to do */
    if (st != FA2_OK || made)
        return st;
    st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = make_tables(cache);
    return fa2i_sql_end(cache, st);
}

/* ---- the objects of the schema ---- */

/* Lists tables, indexes, triggers and views of a new file that this one lacks, tables first. ?1: also the objects that
 * columns.c makes. The test test_cache_open compares the list with a new file. */
static const char missing_sql[] =
    "SELECT column1, column2 FROM (VALUES ('table', 'device'), ('table', 'problem'), "
    "('table', 'kernel'), ('table', 'code'), ('table', 'image'), ('table', 'session'), "
    "('table', 'verification'), ('table', 'measurement'), ('table', 'winner'), ('table', 'setting'), "
    "('table', 'answer'), ('index', 'answer_kernel'), "
    "('trigger', 'measurement_added'), ('trigger', 'measurement_changed'), ('trigger', 'measurement_gone'), "
    "('trigger', 'winner_added'), ('trigger', 'winner_changed'), ('trigger', 'winner_gone'), "
    "('trigger', 'verification_added'), ('trigger', 'verification_changed'), ('trigger', 'verification_gone'), "
    "('trigger', 'kernel_changed'), ('trigger', 'image_added'), ('trigger', 'image_gone'), "
    "('index', 'verification_kernel'), ('index', 'measurement_kernel'), "
    "('index', 'measurement_problem'), ('index', 'winner_kernel'), ('index', 'session_device'), "
    "('index', 'image_code'), ('index', 'problem_fields'), ('trigger', 'image_deleted'), "
    "('view', 'winners'), ('view', 'measurements')) "
    "WHERE NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = column1 AND name = column2) "
    "AND (?1 OR column2 NOT IN ('problem_fields', 'winners', 'measurements'))";

/* An object that a file may lack. */
typedef struct part {
    char type[8], name[32];
} part;

/* Call it inside a transaction. FA2_E_NOT_FOUND: nothing is missing. */
static fa2_status find_missing(fa2i_cache *cache, bool all, part *ret_part)
{
    sqlite3_stmt *stmt = NULL;
    const fa2i_sql_value values[] = {fa2i_sql_int(all)};
    const fa2_status st = fa2i_sql_row(cache, missing_sql, FA2I_SQL_VALUES(values), &stmt);
    if (st == FA2_OK) {
        fa2i_sql_column_text(stmt, 0, ret_part->type, sizeof ret_part->type);
        fa2i_sql_column_text(stmt, 1, ret_part->name, sizeof ret_part->name);
    }
    sqlite3_finalize(stmt);
    return st;
}

static fa2_status read_missing(fa2i_cache *cache, part *ret_part)
{
    *ret_part = (part){.type = ""};
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = find_missing(cache, false, ret_part);
    return fa2i_sql_end(cache, st == FA2_E_NOT_FOUND ? FA2_OK : st);
}

/* A missing table is refused, because nothing can be read without it. Other objects can wait for a writer. */
static fa2_status refuse_table(const fa2i_cache *cache, const part *missing)
{
    if (strcmp(missing->type, "table") != 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_DATABASE,
                     "%s: is a damaged fa2 database: its table '%s' is not there; put a copy in its "
                     "place, or make the table anew, without rows: fa2-tune gc --db '%s'",
                     cache->path, missing->name, cache->path);
}

fa2_status fa2i_schema_check(fa2i_cache *cache)
{
    part missing;
    bool made = false;
    fa2_status st = read_version(cache, &made);
    if (st == FA2_OK && !made)
        st = empty_file(cache);
    if (st == FA2_OK)
        st = read_missing(cache, &missing);
    if (st == FA2_OK)
        st = refuse_table(cache, &missing);
    if (st != FA2_OK)
        return st;
    st = fa2i_columns_check(cache);
    if (st != FA2_E_NOT_FOUND)
        return st;
    return has_rows(cache) ? FA2_E_DATABASE : empty_file(cache);
}

static const char new_database[] = "a new database"; /* a name for messages */

static fa2_status make_part(fa2i_cache *cache, fa2i_cache *reference, const part *missing)
{
    sqlite3_stmt *stmt = NULL;
    const fa2i_sql_value values[] = {fa2i_sql_text(missing->type), fa2i_sql_text(missing->name)};
    fa2_status st = fa2i_sql_row(reference, "SELECT sql FROM sqlite_schema WHERE type = ? AND name = ?",
                                 FA2I_SQL_VALUES(values), &stmt);
    if (st == FA2_OK)
        st = fa2i_sql_script(cache, (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    return st;
}

/* Finds an index or a trigger with another text than in a new file; type "": all are equal. Texts of tables may differ,
 * because columns were added. columns.c checks the objects that it makes. */
static fa2_status find_changed(fa2i_cache *cache, fa2i_cache *reference, part *ret_changed)
{
    static const char parts[] = "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') "
                                "AND sql IS NOT NULL AND name <> 'problem_fields'";
    static const fa2i_sql_value none[3];
    fa2_status st;
    sqlite3_stmt *stmt = NULL, *count = NULL;
    part found = {.type = ""};
    int64_t same = 1;
    FA2_TRY(fa2i_sql_prepare(cache, "SELECT count(*) FROM sqlite_schema WHERE type = ?1 AND name = ?2 AND sql = ?3",
                             none, 3, &count));
    FA2_TRY(fa2i_sql_prepare(reference, parts, NULL, 0, &stmt));
    while (same > 0 && fa2i_sql_next(reference, stmt, &st)) {
        fa2i_sql_column_text(stmt, 0, found.type, sizeof found.type);
        fa2i_sql_column_text(stmt, 1, found.name, sizeof found.name);
        const fa2i_sql_value values[] = {fa2i_sql_text(found.type), fa2i_sql_text(found.name),
                                         fa2i_sql_text((const char *)sqlite3_column_text(stmt, 2))};
        FA2_TRY(fa2i_sql_again(cache, count, FA2I_SQL_VALUES(values)));
        same = sqlite3_column_int64(count, 0);
    }
    *ret_changed = same > 0 ? (part){.type = ""} : found;
done:
    sqlite3_finalize(stmt);
    sqlite3_finalize(count);
    return st;
}

static fa2_status drop_part(fa2i_cache *cache, const part *changed)
{
    char sql[64];
    snprintf(sql, sizeof sql, "DROP %s %s", changed->type, changed->name);
    return fa2i_sql_script(cache, sql);
}

/* Call it under the write lock. */
static fa2_status make_parts(fa2i_cache *cache, fa2i_cache *reference, bool changed)
{
    part other;
    fa2_status st;
    while ((st = find_missing(cache, false, &other)) == FA2_OK)
        FA2_TRY(make_part(cache, reference, &other));
    st = st == FA2_E_NOT_FOUND ? FA2_OK : st;
    while (st == FA2_OK && changed) {
        FA2_TRY(find_changed(cache, reference, &other));
        if (other.type[0] == '\0')
            break;
        FA2_TRY(drop_part(cache, &other));
        FA2_TRY(make_part(cache, reference, &other));
    }
done:
    return st;
}

/* Makes the missing objects as in a new file. changed: also those with another text. */
static fa2_status restore(fa2i_cache *cache, bool changed)
{
    fa2i_cache *reference = NULL;
    fa2_status st = fa2i_cache_open_empty(new_database, &reference);
    if (st == FA2_OK) {
        st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
        if (st == FA2_OK && changed)
            st = fa2i_strangers_drop(cache, reference);
        if (st == FA2_OK)
            st = make_parts(cache, reference, changed);
        st = fa2i_sql_end(cache, st);
    }
    fa2i_cache_close(reference);
    return st;
}

fa2_status fa2i_schema_bring_forward(fa2i_cache *cache, bool repair)
{
    part missing;
    fa2_status st = make_schema(cache);
    if (st == FA2_OK)
        st = read_missing(cache, &missing);
    if (st == FA2_OK && !repair)
        st = refuse_table(cache, &missing);
    if (st == FA2_OK && (repair || missing.type[0] != '\0'))
        st = restore(cache, repair);
    return st == FA2_OK ? fa2i_columns_bring_forward(cache) : st;
}

/* ---- examination ---- */

/* Lists the tables, and the columns of one. */
static const char tables_sql[] = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'";
static const char columns_sql[] = "SELECT ',' || group_concat(name) || ',' FROM pragma_table_info(?)";

/* Finds the first of some names, with commas around each, that is not in the other list. Returns false if there is
 * none. */
static bool find_absent(const char *names, const char *others, char *name, size_t name_bytes)
{
    for (const char *c = names, *end; c != NULL && (end = strchr(c + 1, ',')) != NULL; c = end) {
        char entry[128];
        const int length = (int)(end - c);
        snprintf(entry, sizeof entry, "%.*s,", length, c);
        if (others != NULL && strstr(others, entry) != NULL)
            continue;
        snprintf(name, name_bytes, "%.*s", length - 1, c + 1);
        return true;
    }
    return false;
}

/* Finds a column of a new file that this one lacks. If there is none, sentence stays empty. */
static fa2_status find_lacking(fa2i_cache *cache, fa2i_cache *reference, char *sentence, size_t sentence_bytes)
{
    static const fa2i_sql_value none[1];
    fa2_status st;
    sqlite3_stmt *table = NULL, *ours = NULL, *theirs = NULL;
    bool lacks = false;
    char name[64];
    FA2_TRY(fa2i_sql_prepare(cache, columns_sql, none, 1, &ours));
    FA2_TRY(fa2i_sql_prepare(reference, columns_sql, none, 1, &theirs));
    FA2_TRY(fa2i_sql_prepare(reference, tables_sql, NULL, 0, &table));
    while (!lacks && fa2i_sql_next(reference, table, &st)) {
        const char *of = (const char *)sqlite3_column_text(table, 0);
        const fa2i_sql_value values[] = {fa2i_sql_text(of)};
        FA2_TRY(fa2i_sql_again(cache, ours, FA2I_SQL_VALUES(values)));
        FA2_TRY(fa2i_sql_again(reference, theirs, FA2I_SQL_VALUES(values)));
        lacks = find_absent((const char *)sqlite3_column_text(theirs, 0), (const char *)sqlite3_column_text(ours, 0),
                            name, sizeof name);
        if (lacks)
            snprintf(sentence, sentence_bytes,
                     "its table '%s' lacks the column '%s'; put a copy in its place, or move it away and tune again",
                     of, name);
    }
done:
    sqlite3_finalize(table);
    sqlite3_finalize(ours);
    sqlite3_finalize(theirs);
    return st;
}

/* Finds an object that gc would make anew. Call it if no column is missing. */
static fa2_status find_other(fa2i_cache *cache, fa2i_cache *reference, char *sentence, size_t sentence_bytes)
{
    part other;
    fa2_status st = find_missing(cache, true, &other);
    const bool missing = st == FA2_OK;
    if (st == FA2_E_NOT_FOUND)
        st = find_changed(cache, reference, &other);
    if (st == FA2_OK && other.type[0] == '\0')
        st = fa2i_columns_find_changed(cache, other.type, sizeof other.type, other.name, sizeof other.name);
    if (st == FA2_OK && other.type[0] != '\0')
        snprintf(sentence, sentence_bytes, "its %s '%s' is %s; fa2-tune gc makes it anew", other.type, other.name,
                 missing ? "not there" : "not the one that this fa2 makes");
    else if (st == FA2_OK)
        st = fa2i_strangers_find(cache, reference, sentence, sentence_bytes);
    return st;
}

fa2_status fa2i_schema_examine(fa2i_cache *cache, char *sentence, size_t sentence_bytes, bool *ret_readable)
{
    fa2i_cache *reference = NULL;
    sentence[0] = '\0';
    *ret_readable = false;
    fa2_status st = fa2i_cache_open_empty(new_database, &reference);
    if (st == FA2_OK)
        st = find_lacking(cache, reference, sentence, sentence_bytes);
    if (st == FA2_OK && sentence[0] == '\0') {
        *ret_readable = true;
        st = find_other(cache, reference, sentence, sentence_bytes);
    }
    fa2i_cache_close(reference);
    return st;
}
