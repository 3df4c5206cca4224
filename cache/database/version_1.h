/*
 * Translates what a database of version 1, or an export of format 1, says about a kernel into the current terms.
 * Pure; thread-safe.
 */
#ifndef FA2I_CACHE_VERSION_1_H
#define FA2I_CACHE_VERSION_1_H

#include <sqlite3.h>
#include "runtime/base/record.h"

/* How a kernel of version 1 was launched: these numbers, and steps by convention. */
typedef struct fa2i_launch_1 {
    int abi, threads, block_rows, smem_bytes, key_step, waves;
} fa2i_launch_1;

/* Makes the recipe for these numbers. FA2_E_INVALID: a number is outside its limits. */
fa2_status fa2i_recipe_1(const char *variant, const fa2i_launch_1 *launch, fa2i_recipe *ret_recipe);

/* Makes the class from the words "d=64", "dtype=fp16", "causal=0" of a variant's text. FA2_E_INVALID: a word is
 * missing. */
fa2_status fa2i_class_1(const char *variant, char out[FA2I_CLASS_CHARS]);

/* Register the same functions with SQLite, and the hash that was stored beside an image. Returns SQLite's result code.
 *
 *     fa2_1_class(variant)   '': the variant names no class
 *     fa2_1_recipe(variant, launch_abi, threads, block_rows, smem_bytes, key_step, waves)   '': no recipe
 *     fa2_1_image_hash(data, threads, block_rows, smem_bytes, key_step, waves) */
int fa2i_version_1_register(sqlite3 *db);

#endif
