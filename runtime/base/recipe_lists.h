/*
 * The members of a recipe, for recipe.c and recipe_check.c: numbers with key, limits and default, and words. Parsing,
 * checking and writing are loops over these lists.
 */
#ifndef FA2I_BASE_RECIPE_LISTS_H
#define FA2I_BASE_RECIPE_LISTS_H

#include <stddef.h>
#include "runtime/base/recipe.h"

enum { REQUIRED = -1 };

typedef struct number {
    const char *key;
    size_t offset;
    int least, most, multiple, missing; /* missing: the value if it is absent, or REQUIRED */
} number;

#define HEAD(member) offsetof(fa2i_recipe, member)
#define STEP(member) offsetof(fa2i_step, member)

static const number head_numbers[] = {
    {"abi", HEAD(abi), 1, 1000000, 1, REQUIRED}, {"rows", HEAD(rows), 1, 65536, 1, REQUIRED},
    {"keys", HEAD(keys), 1, 65536, 1, REQUIRED}, {"pack", HEAD(pack), 0, 1, 1, 0},
    {"waves", HEAD(waves), 0, 64, 1, 0},         {"splits", HEAD(max_splits), 1, 65536, 1, 1},
    {"columns", HEAD(columns), 0, 65536, 1, 0},
};
static const number step_numbers[] = {
    {"threads", STEP(threads), 32, 1024, 32, REQUIRED},
    {"smem", STEP(smem_bytes), 0, 1 << 20, 1, REQUIRED},
    {"cluster", STEP(cluster), 1, 16, 1, 1},
    {"early", STEP(early), 0, 1, 1, 0},
};
static const number per_block = {"rows of a block", STEP(block_rows), 1, 65536, 1, 1};
static const number per_map = {"rows of a map", offsetof(fa2i_map, rows), 1, 256, 1, REQUIRED};

#define COUNT(array) (sizeof(array) / sizeof *(array))

#define ROLE_TEXT(name, word)      word,
#define WORD_TEXT(name, word, ops) word,
static const char *const roles[] = {FA2I_ROLE_LIST(ROLE_TEXT)};
static const char *const blocks[] = {FA2I_BLOCKS_LIST(WORD_TEXT)};
static const char *const workspaces[] = {FA2I_WORKSPACE_LIST(WORD_TEXT)};
static const char *const operands[] = {FA2I_MAPPED_LIST(WORD_TEXT)};
#undef ROLE_TEXT
#undef WORD_TEXT

static inline int get(const void *object, const number *n)
{
    return *(const int *)((const char *)object + n->offset);
}

/* Checks the limits and relations of all members. FA2_E_INVALID names member and limit. */
fa2_status fa2i_recipe_check(const fa2i_recipe *recipe);

#endif
