/*
 * A recipe names its operation and its abi: the version of the computation and the launch of its kernels.
 */
#include "cache/database/versions.h"

#include "cache/internal.h"

#include "runtime/ops/op.h"

/* fa2_other_version(class, recipe) */
static void other_version_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const char *class_key = (const char *)sqlite3_value_text(values[0]);
    const char *text = (const char *)sqlite3_value_text(values[1]);
    fa2i_recipe recipe;
    bool other = false;
    (void)count;
    if (class_key != NULL && text != NULL && fa2i_recipe_parse(text, &recipe) == FA2_OK) {
        const fa2_problem of = {.op = recipe.op};
        other = recipe.abi != fa2i_op_of(&of)->abi + fa2i_recipe_revision(class_key);
    }
    sqlite3_result_int(context, other);
}

/* fa2_key(text) */
static void key_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const char *text = (const char *)sqlite3_value_text(values[0]);
    fa2i_key key;
    size_t bytes = 0;
    (void)count;
    if (text != NULL && fa2i_hex_parse(text, key.bytes, sizeof key.bytes, &bytes) && bytes == sizeof key.bytes)
        sqlite3_result_blob(context, key.bytes, sizeof key.bytes, SQLITE_TRANSIENT);
}

int fa2i_versions_register(sqlite3 *db)
{
    static const fa2i_sql_function functions[] = {{"fa2_other_version", 2, other_version_sql}, {"fa2_key", 1, key_sql}};
    return fa2i_sql_register(db, FA2I_SQL_VALUES(functions), NULL);
}
