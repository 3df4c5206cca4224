/*
 * How: read the table's columns and compare them with problem.def. Make the texts of the index and the views from the
 * table's columns, and compare them with the texts that the database has.
 *
 * Invariants:
 * - a database with a column that is no field of this fa2 is refused: problems that differ only there would look alike;
 * - most often there is nothing to do, and then nothing is locked for writing.
 */
#include "cache/database/columns.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "gen/asset.h"
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"
#include "runtime/ops/op.h"

#define FA2I_FIELD(name, ...) ", " #name
static const char fields[] = ""
#include "runtime/base/problem.def"
    ;
const char *const fa2i_columns_fields = fields + 2;

/* ---- values ---- */

void fa2i_columns_values(const fa2_problem *problem, fa2i_sql_value out[FA2I_FIELD_COUNT])
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const int32_t value = fa2i_field_get(problem, field);
        const char *word = fa2i_field_word(field, value);
        out[field] = word != NULL ? fa2i_sql_text(word) : fa2i_sql_int(value);
    }
}

/* Read a field from a value. Returns false if the type is wrong or the field cannot have this value. */
static bool parse_value(int field, sqlite3_value *value, int32_t *ret_value)
{
    const int type = sqlite3_value_type(value);
    const int64_t number = sqlite3_value_int64(value);
    if (fa2i_fields[field].type != FA2I_TYPE_INT)
        return type == SQLITE_TEXT && fa2i_field_parse_word(field, (const char *)sqlite3_value_text(value), ret_value);
    *ret_value = (int32_t)number;
    return type == SQLITE_INTEGER && number >= INT32_MIN && number <= INT32_MAX;
}

fa2_status fa2i_columns_read(const fa2i_cache *cache, sqlite3_stmt *stmt, int first, fa2_problem *ret_problem)
{
    fa2_problem problem = {.struct_bytes = sizeof problem, .op = FA2_OP_FORWARD};
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        int32_t value = 0;
        if (!parse_value(field, sqlite3_column_value(stmt, first + field), &value)) {
            const char *text = (const char *)sqlite3_column_text(stmt, first + field);
            return fa2i_fail(FA2_E_DATABASE, "%s: holds a problem whose %s is '%s'", cache->path,
                             fa2i_fields[field].name, text != NULL ? text : "");
        }
        fa2i_field_set(&problem, field, value);
    }
    if (fa2i_problem_check(&problem) != FA2_OK)
        return fa2i_fail_prefix(FA2_E_DATABASE, "%s: holds a problem that is none", cache->path);
    *ret_problem = problem;
    return FA2_OK;
}

/* Reads a problem from one value for each field. Returns false, with a message, if they are no problem. */
static bool read_values(sqlite3_value **values, fa2_problem *ret_problem)
{
    fa2_problem problem = {.struct_bytes = sizeof problem, .op = FA2_OP_FORWARD};
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        int32_t value = 0;
        if (!parse_value(field, values[field], &value)) {
            fa2i_fail(FA2_E_INVALID, "%s is none of its values", fa2i_fields[field].name);
            return false;
        }
        fa2i_field_set(&problem, field, value);
    }
    *ret_problem = problem;
    return fa2i_problem_check(&problem) == FA2_OK;
}

static void problem_fault_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    fa2_problem problem;
    (void)count;
    if (!read_values(values, &problem))
        sqlite3_result_text(context, fa2_last_message(), -1, SQLITE_TRANSIENT);
}

static void misfiled_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    fa2_problem problem;
    char class_key[FA2I_CLASS_CHARS] = "";
    const char *filed = (const char *)sqlite3_value_text(values[0]);
    const bool is_problem = filed != NULL && read_values(values + 1, &problem);
    (void)count;
    if (is_problem)
        fa2i_problem_class(&problem, class_key);
    sqlite3_result_int(context, !is_problem || strcmp(class_key, filed) != 0);
}

/* Returns NULL if the values are no problem. */
static void class_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    fa2_problem problem;
    char class_key[FA2I_CLASS_CHARS];
    (void)count;
    if (!read_values(values, &problem))
        return;
    fa2i_problem_class(&problem, class_key);
    sqlite3_result_text(context, class_key, -1, SQLITE_TRANSIENT);
}

static void gflop_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    fa2_problem problem;
    (void)count;
    if (read_values(values, &problem))
        sqlite3_result_double(context, fa2i_problem_flop(&problem) / 1e9);
}

int fa2i_columns_register(sqlite3 *db)
{
    static const fa2i_sql_function functions[] = {{"fa2_problem_fault", FA2I_FIELD_COUNT, problem_fault_sql},
                                                  {"fa2_misfiled", 1 + FA2I_FIELD_COUNT, misfiled_sql},
                                                  {"fa2_class", FA2I_FIELD_COUNT, class_sql},
                                                  {"fa2_gflop", FA2I_FIELD_COUNT, gflop_sql}};
    return fa2i_sql_register(db, FA2I_SQL_VALUES(functions), NULL);
}

/* ---- the table ---- */

/* The table's fields, in its order. */
typedef struct columns {
    int fields[FA2I_FIELD_COUNT];
    int count;
} columns;

static bool is_other_column(const char *name)
{
    static const char *const others[] = {"id", "class", "gflop"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i], name) == 0)
            return true;
    return false;
}

static int find_field(const char *name)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        if (strcmp(fa2i_fields[field].name, name) == 0)
            return field;
    return -1;
}

static fa2_status add_column(const fa2i_cache *cache, const char *name, columns *found)
{
    const int field = find_field(name);
    if (is_other_column(name))
        return FA2_OK;
    if (field < 0)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: its problems have the column '%s', which this fa2 does not know; use the newer fa2 that "
                         "wrote it, or name another database with %s",
                         cache->path, name, fa2i_naming());
    found->fields[found->count++] = field;
    return FA2_OK;
}

static fa2_status read_columns(fa2i_cache *cache, columns *ret_columns)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    columns found = {.count = 0};
    FA2_TRY(fa2i_sql_prepare(cache, "SELECT name FROM pragma_table_info('problem') ORDER BY cid", NULL, 0, &stmt));
    while (fa2i_sql_next(cache, stmt, &st))
        FA2_TRY(add_column(cache, (const char *)sqlite3_column_text(stmt, 0), &found));
    if (st == FA2_OK)
        *ret_columns = found;
done:
    sqlite3_finalize(stmt);
    return st;
}

static bool has_field(const columns *found, int field)
{
    for (int i = 0; i < found->count; i++)
        if (found->fields[i] == field)
            return true;
    return false;
}

/* Returns the first field that the table lacks; -1: none. */
static int missing_field(const columns *found)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        if (!has_field(found, field))
            return field;
    return -1;
}

fa2_status fa2i_columns_check(fa2i_cache *cache)
{
    columns found = {.count = 0};
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = read_columns(cache, &found);
    const int missing = missing_field(&found);
    if (st == FA2_OK && missing >= 0)
        st = fa2i_fail(FA2_E_NOT_FOUND,
                       "%s: its problems lack the column '%s', which came later; bring it forward "
                       "with: fa2-tune check --db '%s'",
                       cache->path, fa2i_fields[missing].name, cache->path);
    return fa2i_sql_end(cache, st);
}

/* Adds the missing fields. Their value in older problems is 0, because callers could not set them then. */
static fa2_status add_missing(fa2i_cache *cache, columns *found)
{
    fa2_status st = FA2_OK;
    for (int field = 0; st == FA2_OK && field < FA2I_FIELD_COUNT; field++) {
        char sql[160];
        if (has_field(found, field))
            continue;
        const char *name = fa2i_fields[field].name;
        const char *word = fa2i_field_word(field, 0);
        if (word != NULL)
            snprintf(sql, sizeof sql, "ALTER TABLE problem ADD COLUMN %s TEXT NOT NULL DEFAULT '%s'", name, word);
        else
            snprintf(sql, sizeof sql, "ALTER TABLE problem ADD COLUMN %s INTEGER NOT NULL DEFAULT 0", name);
        st = fa2i_sql_script(cache, sql);
        found->fields[found->count++] = field;
    }
    return st;
}

/* ---- objects that list the columns ---- */

typedef struct object {
    const char *type, *name;
    const char *asset; /* of a view */
} object;

static const object objects[] = {{"index", "problem_fields", NULL},
                                 {"view", "winners", "cache/database/view_winners.sql"},
                                 {"view", "measurements", "cache/database/view_measurements.sql"}};

static void add_names(fa2i_text *sql, const columns *found, const char *prefix, const char *separator)
{
    for (int i = 0; i < found->count; i++)
        fa2i_text_add(sql, "%s%s%s", i == 0 ? "" : separator, prefix, fa2i_fields[found->fields[i]].name);
}

/* Adds the text of a view, from CREATE on. */
static void add_view(fa2i_text *sql, const columns *found, const char *asset_name)
{
    static const char mark[] = "$(problem)";
    const fa2i_asset *asset = fa2i_asset_find(asset_name);
    assert(asset != NULL);
    const char *create = strstr(asset->data, "CREATE VIEW");
    const char *at = strstr(create, mark);
    const char *end = strrchr(create, ';');
    fa2i_text_add_bytes(sql, create, (size_t)(at - create));
    add_names(sql, found, "p.", ",\n       ");
    at += strlen(mark);
    fa2i_text_add_bytes(sql, at, (size_t)(end - at));
}

static fa2_status make_text(const object *made, const columns *found, char **ret_sql)
{
    fa2i_text sql = {0};
    if (made->asset != NULL) {
        add_view(&sql, found, made->asset);
    } else {
        fa2i_text_add(&sql, "CREATE UNIQUE INDEX %s ON problem (", made->name);
        add_names(&sql, found, "", ", ");
        fa2i_text_add(&sql, ")");
    }
    return fa2i_text_take(&sql, ret_sql);
}

/* Does the database have the object with this text? */
static fa2_status has_object(fa2i_cache *cache, const object *made, const char *text, bool *ret_has)
{
    const fa2i_sql_value values[] = {fa2i_sql_text(made->type), fa2i_sql_text(made->name), fa2i_sql_text(text)};
    int64_t count = 0;
    const fa2_status st =
        fa2i_sql_number(cache, "SELECT count(*) FROM sqlite_schema WHERE type = ? AND name = ? AND sql = ?",
                        FA2I_SQL_VALUES(values), &count);
    if (st == FA2_OK)
        *ret_has = count == 1;
    return st;
}

/* Compares the object with the database's. make: make it anew if it differs; else *ret_is_there says if it is there. */
static fa2_status bring_object(fa2i_cache *cache, const object *made, const columns *found, bool make,
                               bool *ret_is_there)
{
    fa2_status st;
    char *text = NULL;
    char drop[64];
    FA2_TRY(make_text(made, found, &text));
    FA2_TRY(has_object(cache, made, text, ret_is_there));
    if (make && !*ret_is_there) {
        snprintf(drop, sizeof drop, "DROP %s IF EXISTS main.%s", made->type, made->name);
        FA2_TRY(fa2i_sql_script(cache, drop));
        FA2_TRY(fa2i_sql_script(cache, text));
    }
done:
    fa2i_free(text);
    return st;
}

/* Inside a transaction. *ret_done: there was nothing to do. */
static fa2_status bring_all(fa2i_cache *cache, bool make, bool *ret_done)
{
    columns found = {.count = 0};
    fa2_status st = read_columns(cache, &found);
    bool is_done = st == FA2_OK && missing_field(&found) < 0;
    if (st == FA2_OK && make)
        st = add_missing(cache, &found);
    for (size_t i = 0; st == FA2_OK && i < sizeof objects / sizeof objects[0]; i++) {
        bool is_there = false;
        st = bring_object(cache, &objects[i], &found, make, &is_there);
        is_done = is_done && is_there;
    }
    *ret_done = is_done;
    return st;
}

fa2_status fa2i_columns_make(fa2i_cache *cache)
{
    bool is_done = false;
    return bring_all(cache, true, &is_done);
}

fa2_status fa2i_columns_bring_forward(fa2i_cache *cache)
{
    bool is_done = false;
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = bring_all(cache, false, &is_done);
    st = fa2i_sql_end(cache, st);
    if (st != FA2_OK || is_done)
        return st;
    st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE); /* another process may have done it since */
    if (st == FA2_OK)
        st = fa2i_columns_make(cache);
    return fa2i_sql_end(cache, st);
}

/* Make one view. */
static fa2_status make_temporary(fa2i_cache *cache, const object *made, const columns *found)
{
    static const char create[] = "CREATE ";
    char *text = NULL;
    fa2i_text sql = {0};
    fa2_status st;
    FA2_TRY(make_text(made, found, &text));
    fa2i_text_add(&sql, "DROP VIEW IF EXISTS temp.%s; CREATE TEMP %s", made->name, text + sizeof create - 1);
    st = fa2i_sql_script_text(cache, &sql);
done:
    fa2i_free(text);
    return st;
}

fa2_status fa2i_columns_make_views(fa2i_cache *cache)
{
    columns found = {.count = 0};
    fa2_status st = read_columns(cache, &found);
    for (size_t i = 0; st == FA2_OK && i < sizeof objects / sizeof objects[0]; i++)
        if (objects[i].asset != NULL)
            st = make_temporary(cache, &objects[i], &found);
    return st;
}

fa2_status fa2i_columns_find_changed(fa2i_cache *cache, char *type, size_t type_bytes, char *name, size_t name_bytes)
{
    columns found = {.count = 0};
    bool is_there = true;
    fa2_status st = read_columns(cache, &found);
    type[0] = name[0] = '\0';
    for (size_t i = 0; st == FA2_OK && i < sizeof objects / sizeof objects[0]; i++) {
        st = bring_object(cache, &objects[i], &found, false, &is_there);
        if (st == FA2_OK && !is_there) {
            snprintf(type, type_bytes, "%s", objects[i].type);
            snprintf(name, name_bytes, "%s", objects[i].name);
            break;
        }
    }
    return st;
}
