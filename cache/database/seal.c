/*
 * The seal of a kernel, in C and in SQL.
 *
 * It covers everything that decides what runs, and for which problems. Code that was moved to another kernel, or a
 * class that was changed, does not match the seal.
 */
#include "cache/internal.h"

#include <string.h>

enum { SEALED_PARTS = 6 };

static fa2i_part part_of_text(const char *text)
{
    return (fa2i_part){text, strlen(text)};
}

void fa2i_seal_of(const fa2i_kernel *kernel, fa2i_key *ret_seal)
{
    const fa2i_part parts[SEALED_PARTS] = {
        {kernel->key.bytes, FA2I_KEY_BYTES},
        part_of_text(kernel->variant.text),
        part_of_text(kernel->variant.class_key),
        part_of_text(kernel->variant.recipe.text),
        part_of_text(kernel->target),
        {kernel->image.data, kernel->image.bytes},
    };
    fa2i_key_of(parts, SEALED_PARTS, ret_seal);
}

static void hash_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    fa2i_part parts[SEALED_PARTS];
    fa2i_key hash;
    for (int i = 0; i < count; i++) {
        /* sqlite3_value_blob comes first, because it may convert the value, which changes the length. */
        parts[i].data = sqlite3_value_blob(values[i]);
        parts[i].bytes = (size_t)sqlite3_value_bytes(values[i]);
    }
    fa2i_key_of(parts, (size_t)count, &hash);
    sqlite3_result_blob(context, hash.bytes, FA2I_KEY_BYTES, SQLITE_TRANSIENT);
}

int fa2i_seal_register(sqlite3 *db)
{
    static const fa2i_sql_function functions[] = {{"fa2_hash", 1, hash_sql}, {"fa2_seal", SEALED_PARTS, hash_sql}};
    return fa2i_sql_register(db, FA2I_SQL_VALUES(functions), NULL);
}
