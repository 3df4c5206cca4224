/*
 * What a database of version 1, or an export of format 1, says about a kernel, in today's words.
 * Pure; thread-safe.
 */
#ifndef FA2I_CACHE_VERSION_1_H
#define FA2I_CACHE_VERSION_1_H

#include <sqlite3.h>
#include "runtime/base/record.h"

/* How a kernel of version 1 was launched: numbers in columns, and steps by convention. */
typedef struct fa2i_launch_1 {
    int abi, threads, block_rows, smem_bytes, key_step, waves;
} fa2i_launch_1;

/* The recipe that they stand for; FA2_E_INVALID when a number is outside its limits. */
fa2_status fa2i_recipe_1(const char *variant, const fa2i_launch_1 *launch, fa2i_recipe *ret_recipe);

/* The class that a variant's text names in its words "d=64", "dtype=fp16", "causal=0"; FA2_E_INVALID
 * when it does not. */
fa2_status fa2i_class_1(const char *variant, char out[FA2I_CLASS_CHARS]);

/* The same for SQL, with what was stored beside an image:
 *     fa2_1_class(variant)   '': it names none
 *     fa2_1_recipe(variant, launch_abi, threads, block_rows, smem_bytes, key_step, waves)   '': none
 *     fa2_1_image_hash(data, threads, block_rows, smem_bytes, key_step, waves)
 * Returns SQLite's result code. */
int fa2i_version_1_register(sqlite3 *db);

#endif
