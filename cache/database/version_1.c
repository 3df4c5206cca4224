/*
 * Version 1 kept five numbers beside a kernel. The launching code knew the rest: the entry point has the family's name,
 * a family that splits has a second entry point that combines, and how the second one is launched.
 */
#include "cache/database/version_1.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/status.h"

enum { COMBINE_THREADS = 128, COMBINE_ROWS = 4, MAX_SPLITS = 256 };

static void add_combine(fa2i_recipe *recipe, const char *family, int length)
{
    fa2i_step *step = &recipe->steps[recipe->step_count++];
    *step = (fa2i_step){.role = FA2I_STEP_COMBINE,
                        .threads = COMBINE_THREADS,
                        .cluster = 1,
                        .blocks = FA2I_BLOCKS_ROWS,
                        .block_rows = COMBINE_ROWS};
    snprintf(step->entry, sizeof step->entry, "%.*s_combine", length, family);
    recipe->pack = 1;
    recipe->max_splits = MAX_SPLITS;
    recipe->workspace = FA2I_WORKSPACE_PARTIALS;
}

fa2_status fa2i_recipe_1(const char *variant, const fa2i_launch_1 *launch, fa2i_recipe *ret_recipe)
{
    const int length = (int)strcspn(variant, " ");
    fa2i_recipe recipe = {.op = FA2_OP_FORWARD,
                          .abi = launch->abi,
                          .rows = launch->block_rows,
                          .keys = launch->key_step,
                          .waves = launch->waves,
                          .max_splits = 1,
                          .step_count = 1,
                          .steps[0] = {.role = FA2I_STEP_MAIN,
                                       .threads = launch->threads,
                                       .smem_bytes = launch->smem_bytes,
                                       .cluster = 1,
                                       .blocks = FA2I_BLOCKS_ROW_TILES,
                                       .block_rows = 1}};
    snprintf(recipe.steps[0].entry, sizeof recipe.steps[0].entry, "%.*s", length, variant);
    if (launch->waves != 0)
        add_combine(&recipe, variant, length);
    const fa2_status st = fa2i_recipe_format(&recipe);
    if (st == FA2_OK)
        *ret_recipe = recipe;
    return st;
}

/* Finds the value of the word "key=value" in a text of words. */
static bool find_word(const char *text, const char *key, char *out, size_t out_bytes)
{
    const size_t length = strlen(key);
    for (const char *word = text; *word != '\0'; word += *word == ' ') {
        const size_t word_length = strcspn(word, " ");
        if (word_length > length && strncmp(word, key, length) == 0 && word[length] == '=') {
            snprintf(out, out_bytes, "%.*s", (int)(word_length - length - 1), word + length + 1);
            return true;
        }
        word += word_length;
    }
    return false;
}

fa2_status fa2i_class_1(const char *variant, char out[FA2I_CLASS_CHARS])
{
    static const struct {
        const char *key;
        int field;
    } words[] = {
        {"d", FA2I_FIELD_head_dim}, {"dtype", FA2I_FIELD_dtype}, {"causal", FA2I_FIELD_causal}};
    fa2_problem kind = {.op = FA2_OP_FORWARD};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char value[16] = "";
        int32_t number = 0;
        if (!find_word(variant, words[i].key, value, sizeof value))
            return fa2i_fail(FA2_E_INVALID, "the variant '%s' has no word '%s='", variant,
                             words[i].key);
        if (fa2i_fields[words[i].field].type == FA2I_TYPE_INT)
            number = (int32_t)strtol(value, NULL, 10);
        else if (!fa2i_field_parse_word(words[i].field, value, &number))
            return fa2i_fail(FA2_E_INVALID, "'%s' is no %s", value, words[i].key);
        const fa2_status st = fa2i_field_check(words[i].field, number);
        if (st != FA2_OK)
            return st;
        fa2i_field_set(&kind, words[i].field, number);
    }
    fa2i_problem_class(&kind, out);
    return FA2_OK;
}

/* ---- SQL ---- */

static const char *text_of(sqlite3_value *value)
{
    const char *text = (const char *)sqlite3_value_text(value);
    return text != NULL ? text : "";
}

static void class_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    char class_key[FA2I_CLASS_CHARS] = "";
    (void)count;
    (void)fa2i_class_1(text_of(values[0]), class_key); /* "" if it has no class */
    sqlite3_result_text(context, class_key, -1, SQLITE_TRANSIENT);
}

static void recipe_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const fa2i_launch_1 launch = {.abi = sqlite3_value_int(values[1]),
                                  .threads = sqlite3_value_int(values[2]),
                                  .block_rows = sqlite3_value_int(values[3]),
                                  .smem_bytes = sqlite3_value_int(values[4]),
                                  .key_step = sqlite3_value_int(values[5]),
                                  .waves = sqlite3_value_int(values[6])};
    fa2i_recipe recipe = {.text = ""};
    (void)count;
    (void)fa2i_recipe_1(text_of(values[0]), &launch, &recipe); /* an empty recipe if the numbers are invalid */
    sqlite3_result_text(context, recipe.text, -1, SQLITE_TRANSIENT);
}

static void image_hash_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    char launch[80];
    const int length =
        snprintf(launch, sizeof launch, "%d %d %d %d %d", sqlite3_value_int(values[1]),
                 sqlite3_value_int(values[2]), sqlite3_value_int(values[3]),
                 sqlite3_value_int(values[4]), sqlite3_value_int(values[5]));
    assert(length > 0 && (size_t)length < sizeof launch);
    (void)count;
    /* sqlite3_value_blob comes first, because it may convert the value, which changes the length. */
    const void *data = sqlite3_value_blob(values[0]);
    const fa2i_part parts[] = {{data, (size_t)sqlite3_value_bytes(values[0])},
                               {launch, (size_t)length}};
    fa2i_key hash;
    fa2i_key_of(parts, 2, &hash);
    sqlite3_result_blob(context, hash.bytes, FA2I_KEY_BYTES, SQLITE_TRANSIENT);
}

int fa2i_version_1_register(sqlite3 *db)
{
    static const struct {
        const char *name;
        int arguments;
        void (*function)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {{"fa2_1_class", 1, class_sql},
                     {"fa2_1_recipe", 7, recipe_sql},
                     {"fa2_1_image_hash", 6, image_hash_sql}};
    int code = SQLITE_OK;
    for (size_t i = 0; code == SQLITE_OK && i < sizeof functions / sizeof functions[0]; i++)
        code = sqlite3_create_function_v2(db, functions[i].name, functions[i].arguments,
                                          SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY,
                                          NULL, functions[i].function, NULL, NULL, NULL);
    return code;
}
