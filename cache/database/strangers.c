/*
 * How: each row of sqlite_schema that has a text is checked. SQLite runs the text, whatever the columns beside it say.
 * So a row whose text does not begin as its type says is refused everywhere.
 */
#include "cache/database/strangers.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "cache/database/remake.h"
#include "gen/asset.h"
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"

typedef struct object {
    const char *type, *name; /* borrowed from the row */
    char *sql;               /* without comments, with single blanks */
} object;

/* Makes the text without comments and with single blanks, so that comments and blanks do not count when texts are
 * compared. *ret_bare belongs to the caller. */
static fa2_status make_bare(const char *sql, size_t bytes, char **ret_bare)
{
    char *bare = fa2i_alloc(bytes + 1); /* it is no longer than the text */
    size_t length = 0;
    bool blank = false;
    if (bare == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for an SQL text of %zu bytes", bytes);
    for (const char *c = sql; c < sql + bytes; c++) {
        if (c + 1 < sql + bytes && c[0] == '-' && c[1] == '-') {
            while (c < sql + bytes && *c != '\n')
                c++;
            blank = true;
        } else if (strchr(" \t\r\n", *c) != NULL) {
            blank = true;
        } else {
            if (blank && length > 0)
                bare[length++] = ' ';
            bare[length++] = *c;
            blank = false;
        }
    }
    bare[length] = '\0';
    *ret_bare = bare;
    return FA2_OK;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_type(const object *o, const char *type)
{
    return strcmp(o->type, type) == 0;
}

/* Does the text begin as SQLite writes it for an object of this type? */
static bool is_what_it_says(const object *o)
{
    return (is_type(o, "table") && (begins(o->sql, "CREATE TABLE ") || begins(o->sql, "CREATE VIRTUAL TABLE "))) ||
           (is_type(o, "index") && (begins(o->sql, "CREATE INDEX ") || begins(o->sql, "CREATE UNIQUE INDEX "))) ||
           (is_type(o, "view") && begins(o->sql, "CREATE VIEW ")) ||
           (is_type(o, "trigger") && begins(o->sql, "CREATE TRIGGER "));
}

/* Is there a single pair of parentheses at the end, with only names, blanks and commas in it? */
static bool has_names_alone(const char *sql)
{
    static const char names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_, ";
    const char *open = strchr(sql, '(');
    return open != NULL && strcmp(open + 1 + strspn(open + 1, names), ")") == 0;
}

/* Adds the script that makes fa2's triggers, bare. */
static fa2_status add_own_script(fa2i_text *scripts)
{
    const fa2i_asset *asset = fa2i_asset_find("cache/database/schema.sql");
    char *bare = NULL;
    assert(asset != NULL);
    const fa2_status st = make_bare(asset->data, asset->bytes, &bare);
    if (st != FA2_OK)
        return st;
    fa2i_text_add_bytes(scripts, bare, strlen(bare));
    fa2i_free(bare);
    return scripts->failed ? fa2i_fail(FA2_E_MEMORY, "no memory for the schema's script") : FA2_OK;
}

/* Is it, word for word, one of the statements in the bare scripts? */
static bool is_our_trigger(const object *o, const char *scripts)
{
    const char *at = strstr(scripts, o->sql);
    return at != NULL && at[strlen(o->sql)] == ';';
}

/* ---- rows ---- */

/* Called for each row. *ret_end: stop here. */
typedef fa2_status (*visit_fn)(fa2i_cache *cache, const object *o, void *user, bool *ret_end);

static const char *column(sqlite3_stmt *stmt, int index)
{
    const char *text = (const char *)sqlite3_column_text(stmt, index);
    return text != NULL ? text : "";
}

static fa2_status visit_row(fa2i_cache *cache, sqlite3_stmt *stmt, visit_fn visit, void *user, bool *ret_end)
{
    object o = {column(stmt, 0), column(stmt, 1), NULL};
    const char *sql = column(stmt, 2);
    fa2_status st = make_bare(sql, strlen(sql), &o.sql);
    if (st == FA2_OK && !is_what_it_says(&o))
        st = fa2i_fail(FA2_E_DATABASE,
                       "%s: is a damaged fa2 database: its %s '%s' has the text of something else; put a copy in its "
                       "place, or move it away and tune again",
                       cache->path, o.type, o.name);
    if (st == FA2_OK)
        st = visit(cache, &o, user, ret_end);
    fa2i_free(o.sql);
    return st;
}

static fa2_status visit_all(fa2i_cache *cache, visit_fn visit, void *user)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    bool end = false;
    FA2_TRY(fa2i_sql_prepare(cache, "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL", NULL, 0, &stmt));
    while (!end && fa2i_sql_next(cache, stmt, &st))
        FA2_TRY(visit_row(cache, stmt, visit, user, &end));
done:
    sqlite3_finalize(stmt);
    return st;
}

/* ---- opening ---- */

/* scripts: the text of fa2's triggers; NULL: the file is only read. */
static fa2_status refuse(fa2i_cache *cache, const object *o, void *scripts, bool *ret_end)
{
    bool ours = true;
    (void)ret_end;
    if (scripts == NULL)
        return FA2_OK;
    if (is_type(o, "trigger"))
        ours = is_our_trigger(o, scripts);
    else if (is_type(o, "index"))
        ours = has_names_alone(o->sql); /* no expression, and no condition after it */
    if (ours)
        return FA2_OK;
    return fa2i_fail(FA2_E_DATABASE,
                     "%s: its %s '%s' is not one of fa2's, and would run whenever something is stored; drop it with: "
                     "fa2-tune gc --db '%s'",
                     cache->path, o->type, o->name, cache->path);
}

static fa2_status refuse_generated(fa2i_cache *cache)
{
    sqlite3_stmt *stmt = NULL;
    fa2_status st = fa2i_sql_row(cache,
                                 "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_xinfo(m.name) c "
                                 "WHERE m.type = 'table' AND m.rootpage > 0 AND c.hidden <> 0",
                                 NULL, 0, &stmt);
    if (st == FA2_OK)
        st = fa2i_fail(FA2_E_DATABASE,
                       "%s: is a damaged fa2 database: its table '%s' has the generated column '%s'; put a copy in its "
                       "place, or move it away and tune again",
                       cache->path, (const char *)sqlite3_column_text(stmt, 0),
                       (const char *)sqlite3_column_text(stmt, 1));
    sqlite3_finalize(stmt);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

fa2_status fa2i_strangers_refuse(fa2i_cache *cache, bool for_writing)
{
    fa2_status st;
    int64_t id = 0;
    fa2i_text scripts = {0};
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_number(cache, "PRAGMA application_id", NULL, 0, &id));
    if (id != FA2I_APPLICATION_ID) /* the schema's check says more about it */
        goto done;
    if (for_writing)
        FA2_TRY(add_own_script(&scripts));
    FA2_TRY(visit_all(cache, refuse, scripts.data));
    FA2_TRY(refuse_generated(cache));
done:
    fa2i_text_done(&scripts);
    return fa2i_sql_end(cache, st);
}

/* ---- checking and repairing ---- */

/* A new file, and the statement that finds one of its texts. */
typedef struct new_file {
    fa2i_cache *cache;
    sqlite3_stmt *find;
} new_file;

static fa2_status new_file_init(new_file *file, fa2i_cache *reference)
{
    static const fa2i_sql_value none[2];
    *file = (new_file){.cache = reference};
    return fa2i_sql_prepare(reference, "SELECT sql FROM sqlite_schema WHERE type = ? AND name = ?", none, 2,
                            &file->find);
}

static void new_file_done(new_file *file)
{
    sqlite3_finalize(file->find);
}

/* Looks for the object of this type and name in a new file. *ret_same: it has the same text. */
static fa2_status compare(const new_file *file, const object *o, bool *ret_has, bool *ret_same)
{
    char *bare = NULL;
    const fa2i_sql_value values[] = {fa2i_sql_text(o->type), fa2i_sql_text(o->name)};
    fa2_status st = fa2i_sql_again(file->cache, file->find, FA2I_SQL_VALUES(values));
    *ret_has = st == FA2_OK;
    *ret_same = false;
    if (st == FA2_OK) {
        const char *sql = column(file->find, 0);
        st = make_bare(sql, strlen(sql), &bare);
    }
    if (st == FA2_OK)
        *ret_same = strcmp(o->sql, bare) == 0;
    fa2i_free(bare);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

static bool has_one_pair(const char *sql)
{
    const char *open = strchr(sql, '(');
    return open != NULL && strchr(open + 1, '(') == NULL;
}

/* The columns of `problem` came one by one and may stand in another order. But none of them has an expression, or
 * another type. */
static fa2_status has_own_columns(fa2i_cache *cache, fa2i_cache *reference, const object *o, bool *ret_has)
{
    static const char end[] = ") STRICT";
    const size_t bytes = strlen(o->sql);
    *ret_has = strcmp(o->name, "problem") == 0 && has_one_pair(o->sql) && bytes > strlen(end) &&
               strcmp(o->sql + bytes - strlen(end), end) == 0;
    return *ret_has ? fa2i_remake_has_columns(cache, reference, o->name, ret_has) : FA2_OK;
}

typedef struct search {
    new_file file;
    char *sentence;
    size_t sentence_bytes;
} search;

static fa2_status describe(fa2i_cache *cache, const object *o, void *user, bool *ret_end)
{
    const search *s = user;
    bool has = false, same = false;
    const bool internal = begins(o->name, "sqlite_"); /* made by ANALYZE */
    fa2_status st = compare(&s->file, o, &has, &same);
    if (st == FA2_OK && has && !same && is_type(o, "table"))
        st = has_own_columns(cache, s->file.cache, o, &same);
    if (st != FA2_OK || internal || (has && (!is_type(o, "table") || same)))
        return st; /* other objects of ours: fa2i_schema_examine */
    *ret_end = true;
    if (has)
        snprintf(s->sentence, s->sentence_bytes,
                 "its table '%s' is not the one that this fa2 makes; fa2-tune gc makes the file anew if it can read "
                 "the table, or put a copy in its place",
                 o->name);
    else if (is_type(o, "table"))
        snprintf(s->sentence, s->sentence_bytes, "its table '%s' is not one of fa2's; drop it if nobody needs it",
                 o->name);
    else
        snprintf(s->sentence, s->sentence_bytes, "its %s '%s' is not one of fa2's; fa2-tune gc drops it", o->type,
                 o->name);
    return FA2_OK;
}

fa2_status fa2i_strangers_find(fa2i_cache *cache, fa2i_cache *reference, char *sentence, size_t sentence_bytes)
{
    search s = {.sentence = sentence, .sentence_bytes = sentence_bytes};
    fa2_status st = new_file_init(&s.file, reference);
    if (st == FA2_OK)
        st = visit_all(cache, describe, &s);
    new_file_done(&s.file);
    return st;
}

typedef struct drop {
    new_file file;
    fa2i_text script;
} drop;

static fa2_status add_drop(fa2i_cache *cache, const object *o, void *user, bool *ret_end)
{
    drop *d = user;
    bool has = false, same = false;
    fa2_status st = compare(&d->file, o, &has, &same);
    (void)cache;
    (void)ret_end;
    if (st != FA2_OK || same || is_type(o, "table"))
        return st;
    fa2i_text_add(&d->script, "DROP %s main.\"", o->type);
    for (const char *c = o->name; *c != '\0'; c++)
        fa2i_text_add(&d->script, "%s%c", *c == '"' ? "\"" : "", *c);
    fa2i_text_add(&d->script, "\";");
    return FA2_OK;
}

fa2_status fa2i_strangers_drop(fa2i_cache *cache, fa2i_cache *reference)
{
    drop d = {.script = {0}};
    fa2_status st;
    FA2_TRY(new_file_init(&d.file, reference));
    FA2_TRY(visit_all(cache, add_drop, &d));
    FA2_TRY(fa2i_sql_script_text(cache, &d.script));
done:
    new_file_done(&d.file);
    fa2i_text_done(&d.script);
    return st;
}
