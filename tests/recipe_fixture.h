/*
 * Recipes for tests: a kernel whose blocks see all keys, and one that splits the keys.
 */
#pragma once

#include <stdio.h>
#include "check.h"
#include "runtime/base/recipe.h"

static inline fa2i_recipe plain_recipe(const char *entry, int threads, int rows, int keys, int smem_bytes)
{
    char text[FA2I_RECIPE_CHARS];
    fa2i_recipe recipe;
    snprintf(text, sizeof text, "op=forward abi=2 rows=%d keys=%d; %s role=main threads=%d smem=%d blocks=row_tiles",
             rows, keys, entry, threads, smem_bytes);
    CHECK_EQ(fa2i_recipe_parse(text, &recipe), FA2_OK);
    return recipe;
}

static inline fa2i_recipe split_recipe(const char *entry, int threads, int rows, int keys, int smem_bytes, int waves)
{
    char text[FA2I_RECIPE_CHARS];
    fa2i_recipe recipe;
    snprintf(text, sizeof text,
             "op=forward abi=2 rows=%d keys=%d pack=1 waves=%d splits=256 workspace=partials; "
             "%s role=main threads=%d smem=%d blocks=row_tiles; "
             "%s_combine role=combine threads=128 smem=0 blocks=rows/4",
             rows, keys, waves, entry, threads, smem_bytes, entry);
    CHECK_EQ(fa2i_recipe_parse(text, &recipe), FA2_OK);
    return recipe;
}
