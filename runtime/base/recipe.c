/*
 * - Parsing, checking and writing are loops over lists of the members: numbers with key, limits and default, and words.
 * - A text is canonical if and only if writing its parsed recipe gives the same text. So rules about order, defaults
 *   and zeros need no code of their own.
 */
#include "runtime/base/recipe.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

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
    {"heads", HEAD(heads), 0, 65536, 1, 0},      {"columns", HEAD(columns), 0, 65536, 1, 0},
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

static int get(const void *object, const number *n)
{
    return *(const int *)((const char *)object + n->offset);
}

static void set(void *object, const number *n, int value)
{
    *(int *)((char *)object + n->offset) = value;
}

const fa2i_step *fa2i_recipe_step(const fa2i_recipe *recipe, fa2i_role role)
{
    for (int i = 0; i < recipe->step_count; i++) {
        if (recipe->steps[i].role == role)
            return &recipe->steps[i];
    }
    return NULL;
}

const fa2i_step *fa2i_recipe_main(const fa2i_recipe *recipe)
{
    const fa2i_step *step = fa2i_recipe_step(recipe, FA2I_STEP_MAIN);
    assert(step != NULL); /* parsing guarantees it */
    return step;
}

int fa2i_recipe_revision(const char *class_key)
{
    static const char key[] = " bias=", mask[] = " bias=bool";
    const char *bias = strstr(class_key, key);
    const bool adds = bias != NULL && strncmp(bias, mask, sizeof mask - 1) != 0;
    return 3 * (strstr(class_key, " dropout=1") != NULL) + (strstr(class_key, " varlen=1") != NULL) + adds +
           (strstr(class_key, " scores=int8") != NULL);
}

const char *fa2i_mapped_word(fa2i_mapped operand)
{
    return operands[operand];
}

/* ---- checking ----
 *
 * A recipe is checked wherever it comes from. Each number is within its limits, the operation has its words, and the
 * steps exist that workspace and splitting need. */

/* Bits 1 << op: the operations that have a word. */
enum { FORWARD = 1u << FA2_OP_FORWARD, BACKWARD = 1u << FA2_OP_BACKWARD, MERGE = 1u << FA2_OP_MERGE };
#define WORD_OPS(name, word, ops) ops,
static const unsigned blocks_ops[] = {FA2I_BLOCKS_LIST(WORD_OPS)};
static const unsigned workspace_ops[] = {FA2I_WORKSPACE_LIST(WORD_OPS)};
static const unsigned operand_ops[] = {FA2I_MAPPED_LIST(WORD_OPS)};
#undef WORD_OPS

static fa2_status check_numbers(const void *object, const number *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const number *n = &numbers[i];
        const int value = get(object, n);
        if (value >= n->least && value <= n->most && value % n->multiple == 0)
            continue;
        if (n->multiple > 1)
            return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be a multiple of %d from %d to %d", n->key, value,
                             n->multiple, n->least, n->most);
        return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be from %d to %d", n->key, value, n->least, n->most);
    }
    return FA2_OK;
}

/* Checks the name of a kernel: a C identifier that fits. */
static fa2_status check_entry(const char *entry)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    if (entry[0] == '\0' || strspn(entry, letters) != strlen(entry))
        return fa2i_fail(FA2_E_INVALID, "its entry point is '%s'; it must be letters, digits and _", entry);
    return FA2_OK;
}

static fa2_status check_step(const fa2i_step *step)
{
    fa2_status st = check_entry(step->entry);
    if (st == FA2_OK)
        st = check_numbers(step, step_numbers, COUNT(step_numbers));
    return st == FA2_OK ? check_numbers(step, &per_block, 1) : st;
}

/* If keys are split, a main step writes partial results to the workspace, and a combine step merges them. */
static fa2_status check_splitting(const fa2i_recipe *recipe)
{
    if ((recipe->waves > 0) != (recipe->max_splits > 1))
        return fa2i_fail(FA2_E_INVALID, "waves is %d and splits %d; keys are split with both, or none", recipe->waves,
                         recipe->max_splits);
    if (recipe->waves > 0 && recipe->op == FA2_OP_FORWARD && recipe->workspace != FA2I_WORKSPACE_PARTIALS &&
        recipe->workspace != FA2I_WORKSPACE_PARTIALS_AND_QUERIES)
        return fa2i_fail(FA2_E_INVALID, "keys are split, which needs workspace=partials");
    if (recipe->heads > 0 && (recipe->op != FA2_OP_BACKWARD || recipe->waves > 0))
        return fa2i_fail(FA2_E_INVALID, "heads is %d; it is for backward without waves", recipe->heads);
    if (recipe->heads > 0 && recipe->workspace != FA2I_WORKSPACE_ROWS_AND_DQ &&
        recipe->workspace != FA2I_WORKSPACE_ROWS_DQ_AND_TURNS)
        return fa2i_fail(FA2_E_INVALID, "heads is %d, which needs workspace=rows_and_dq or rows_dq_and_turns",
                         recipe->heads);
    if ((recipe->waves > 0 || recipe->heads > 0) && fa2i_recipe_step(recipe, FA2I_STEP_COMBINE) == NULL)
        return fa2i_fail(FA2_E_INVALID, "keys are split, but no step combines the parts");
    return FA2_OK;
}

/* A word of another operation has no meaning for this operation's grid. */
static fa2_status check_words(const fa2i_recipe *recipe)
{
    const char *op = fa2i_field_word(FA2I_FIELD_op, (int32_t)recipe->op);
    const unsigned bit = 1u << (int)recipe->op;
    if ((workspace_ops[recipe->workspace] & bit) == 0)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s is not for op=%s", workspaces[recipe->workspace], op);
    for (int i = 0; i < recipe->step_count; i++) {
        if ((blocks_ops[recipe->steps[i].blocks] & bit) == 0)
            return fa2i_fail(FA2_E_INVALID, "step %d: blocks=%s is not for op=%s", i + 1,
                             blocks[recipe->steps[i].blocks], op);
    }
    return FA2_OK;
}

/* Each operand has at most one map. */
static fa2_status check_maps(const fa2i_recipe *recipe)
{
    const unsigned bit = 1u << (int)recipe->op;
    unsigned seen = 0;
    for (int i = 0; i < recipe->map_count; i++) {
        const fa2i_map *map = &recipe->maps[i];
        const char *word = operands[map->operand];
        if ((operand_ops[map->operand] & bit) == 0 || (seen & 1u << (int)map->operand) != 0)
            return fa2i_fail(FA2_E_INVALID, "maps: a map of %s %s", word,
                             (operand_ops[map->operand] & bit) == 0 ? "is not for this operation" : "is there twice");
        seen |= 1u << (int)map->operand;
        const fa2_status st = check_numbers(map, &per_map, 1);
        if (st != FA2_OK)
            return st;
    }
    return FA2_OK;
}

/* A prepare step must exist for rows and counters that the main step reads, and for sums to which several blocks add. A
 * convert step must exist for sums. */
static fa2_status check_rows(const fa2i_recipe *recipe)
{
    const bool shared_sums =
        recipe->workspace == FA2I_WORKSPACE_ROWS_AND_DQ || recipe->workspace == FA2I_WORKSPACE_ROWS_DQ_AND_TURNS;
    const bool sums = shared_sums || recipe->workspace == FA2I_WORKSPACE_DQ_OF_TILES;
    const bool rows =
        shared_sums || recipe->workspace == FA2I_WORKSPACE_ROWS || recipe->workspace == FA2I_WORKSPACE_ROWS_AND_TURNS;
    const bool parts = recipe->op == FA2_OP_BACKWARD && (recipe->waves > 0 || recipe->heads > 0);
    if ((sums || parts) != (recipe->columns > 0))
        return fa2i_fail(FA2_E_INVALID,
                         "columns is %d; it must be more than 0 with "
                         "workspace=rows_and_dq, rows_dq_and_turns or dq_of_tiles, or if backward has "
                         "waves or heads; else 0",
                         recipe->columns);
    const bool column_keys = recipe->workspace == FA2I_WORKSPACE_COLUMN_KEYS;
    const bool counter = recipe->workspace == FA2I_WORKSPACE_COUNTER || column_keys;
    if ((rows || counter || fa2i_recipe_has_queries(recipe)) && fa2i_recipe_step(recipe, FA2I_STEP_PREPARE) == NULL)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s, but no step prepares it", workspaces[recipe->workspace]);
    if (column_keys && fa2i_recipe_step(recipe, FA2I_STEP_PREPARE)->blocks != FA2I_BLOCKS_KEYS)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s, but its step has no blocks=keys", workspaces[recipe->workspace]);
    const fa2i_step *quantise = fa2i_recipe_step(recipe, FA2I_STEP_QUANTISE);
    if (fa2i_recipe_rounds(recipe) != (quantise != NULL && quantise->blocks == FA2I_BLOCKS_HEAD_TILES))
        return fa2i_fail(FA2_E_INVALID,
                         "workspace=%s; a step role=quantise blocks=head_tiles and "
                         "workspace=int8_keys, int8_keys_and_values or int8_keys_and_columns need each other",
                         workspaces[recipe->workspace]);
    if (!rows && fa2i_recipe_step(recipe, FA2I_STEP_HEAD_SUMS) != NULL)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s, but a step role=head_sums reads rows",
                         workspaces[recipe->workspace]);
    if (sums && fa2i_recipe_step(recipe, FA2I_STEP_CONVERT) == NULL)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s, but no step converts what is in it",
                         workspaces[recipe->workspace]);
    return FA2_OK;
}

/* Checks the limits and relations of all members. FA2_E_INVALID names member and limit. */
static fa2_status check(const fa2i_recipe *recipe)
{
    static fa2_status (*const relations[])(const fa2i_recipe *) = {check_words, check_maps, check_rows,
                                                                   check_splitting};
    fa2_status st = check_numbers(recipe, head_numbers, COUNT(head_numbers));
    if (st == FA2_OK && strspn(recipe->suffix, "abcdefghijklmnopqrstuvwxyz") != strlen(recipe->suffix))
        st = fa2i_fail(FA2_E_INVALID, "suffix is '%s'; it must be a lower-case letter", recipe->suffix);
    if (st == FA2_OK && (recipe->step_count < 1 || recipe->step_count > FA2I_RECIPE_STEPS))
        st = fa2i_fail(FA2_E_INVALID, "there are %d steps; there must be 1 to %d", recipe->step_count,
                       FA2I_RECIPE_STEPS);
    for (int i = 0; st == FA2_OK && i < recipe->step_count; i++) {
        st = check_step(&recipe->steps[i]);
        if (st != FA2_OK)
            fa2i_fail_prefix(st, "step %d", i + 1);
    }
    if (st == FA2_OK && fa2i_recipe_step(recipe, FA2I_STEP_MAIN) == NULL)
        st = fa2i_fail(FA2_E_INVALID, "no step has role=main");
    for (size_t i = 0; st == FA2_OK && i < COUNT(relations); i++)
        st = relations[i](recipe);
    return st;
}

/* ---- writing ---- */

/* Appends to the text. `used` also counts bytes that did not fit, so that the caller sees if there was room. */
static void add(char text[FA2I_RECIPE_CHARS], size_t *used, const char *format, ...) FA2I_PRINTF(3, 4);

static void add(char text[FA2I_RECIPE_CHARS], size_t *used, const char *format, ...)
{
    const size_t at = *used < FA2I_RECIPE_CHARS ? *used : FA2I_RECIPE_CHARS - 1;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text + at, FA2I_RECIPE_CHARS - at, format, args);
    va_end(args);
    assert(length >= 0);
    *used += (size_t)length;
}

static void add_numbers(char text[FA2I_RECIPE_CHARS], size_t *used, const void *object, const number *numbers,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const int value = get(object, &numbers[i]);
        if (value != numbers[i].missing)
            add(text, used, " %s=%d", numbers[i].key, value);
    }
}

static void add_step(char text[FA2I_RECIPE_CHARS], size_t *used, const fa2i_step *step)
{
    add(text, used, "; %s role=%s", step->entry, roles[step->role]);
    add_numbers(text, used, step, step_numbers, COUNT(step_numbers));
    add(text, used, " blocks=%s", blocks[step->blocks]);
    if (step->block_rows != per_block.missing)
        add(text, used, "/%d", step->block_rows);
}

fa2_status fa2i_recipe_format(fa2i_recipe *recipe)
{
    char text[FA2I_RECIPE_CHARS];
    size_t used = 0;
    const fa2_status st = check(recipe);
    if (st != FA2_OK)
        return st;
    add(text, &used, "op=%s", fa2i_field_word(FA2I_FIELD_op, (int32_t)recipe->op));
    add_numbers(text, &used, recipe, head_numbers, COUNT(head_numbers));
    if (recipe->workspace != FA2I_WORKSPACE_NONE)
        add(text, &used, " workspace=%s", workspaces[recipe->workspace]);
    if (recipe->suffix[0] != '\0')
        add(text, &used, " suffix=%s", recipe->suffix);
    for (int i = 0; i < recipe->map_count; i++)
        add(text, &used, "%s%s/%d", i == 0 ? " maps=" : ",", operands[recipe->maps[i].operand], recipe->maps[i].rows);
    for (int i = 0; i < recipe->step_count; i++)
        add_step(text, &used, &recipe->steps[i]);
    if (used >= sizeof text)
        return fa2i_fail(FA2_E_INVALID, "a recipe of %zu bytes; it must be at most %zu", used, sizeof text - 1);
    memcpy(recipe->text, text, used + 1);
    return FA2_OK;
}

/* ---- parsing ---- */

/* Reads the next word, up to a space or the end of the step. With a key, the word must begin with "key="; only the
 * value is stored. Returns false if there is no such word. Else *at is after it. */
static bool take(const char **at, const char *key, char value[FA2I_ENTRY_CHARS])
{
    const char *word = *at + (**at == ' ');
    if (key != NULL) {
        const size_t length = strlen(key);
        if (strncmp(word, key, length) != 0 || word[length] != '=')
            return false;
        word += length + 1;
    }
    const size_t length = strcspn(word, " ;");
    if (length == 0 || length >= FA2I_ENTRY_CHARS)
        return false;
    memcpy(value, word, length);
    value[length] = '\0';
    *at = word + length;
    return true;
}

/* Returns the number that a text is. If it is not a number, or too large, returns -1, which is outside all limits. */
static int number_of(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits < 9 && text[digits] == '\0' ? (int)strtol(text, NULL, 10) : -1;
}

static fa2_status take_numbers(const char **at, void *object, const number *numbers, size_t count)
{
    char value[FA2I_ENTRY_CHARS];
    for (size_t i = 0; i < count; i++) {
        if (take(at, numbers[i].key, value))
            set(object, &numbers[i], number_of(value));
        else if (numbers[i].missing != REQUIRED)
            set(object, &numbers[i], numbers[i].missing);
        else
            return fa2i_fail(FA2_E_INVALID, "'%s=' is expected at '%.40s'", numbers[i].key, *at);
    }
    return FA2_OK;
}

/* Returns -1 if there is no such word. */
static int index_of(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0)
            return (int)i;
    return -1;
}

/* Cuts "word/number" at the slash, and returns the number; missing: there is no slash. */
static int cut_number(char *word, int missing)
{
    char *slash = strchr(word, '/');
    if (slash == NULL)
        return missing;
    *slash = '\0';
    return number_of(slash + 1);
}

/* Reads the word that follows a key, and finds its index. fallback: the index if the key is absent, or REQUIRED. */
static fa2_status take_word(const char **at, const char *key, const char *const *words, size_t count, int fallback,
                            int *ret_index)
{
    char value[FA2I_ENTRY_CHARS];
    const bool taken = take(at, key, value);
    *ret_index = taken ? index_of(value, words, count) : fallback;
    if (*ret_index >= 0)
        return FA2_OK;
    return taken ? fa2i_fail(FA2_E_INVALID, "%s=%s is not known to this fa2", key, value)
                 : fa2i_fail(FA2_E_INVALID, "'%s=' is expected at '%.40s'", key, *at);
}

static fa2_status take_blocks(const char **at, fa2i_step *step)
{
    char value[FA2I_ENTRY_CHARS];
    if (!take(at, "blocks", value))
        return fa2i_fail(FA2_E_INVALID, "'blocks=' is expected at '%.40s'", *at);
    step->block_rows = cut_number(value, per_block.missing);
    const int index = index_of(value, blocks, COUNT(blocks));
    if (index < 0)
        return fa2i_fail(FA2_E_INVALID, "blocks=%s is not known to this fa2", value);
    step->blocks = (fa2i_blocks)index;
    return FA2_OK;
}

static fa2_status take_step(const char **at, fa2i_step *step)
{
    fa2_status st = FA2_OK;
    int role = 0;
    if (!take(at, NULL, step->entry))
        return fa2i_fail(FA2_E_INVALID, "an entry point is expected at '%.40s'", *at);
    FA2_TRY(take_word(at, "role", roles, COUNT(roles), REQUIRED, &role));
    step->role = (fa2i_role)role;
    FA2_TRY(take_numbers(at, step, step_numbers, COUNT(step_numbers)));
    FA2_TRY(take_blocks(at, step));
done:
    return st;
}

/* Reads the map at the beginning of a text, such as "k/128". *at is after it. */
static fa2_status take_map(const char **at, fa2i_map *map)
{
    char word[FA2I_ENTRY_CHARS];
    const size_t length = strcspn(*at, ",");
    snprintf(word, sizeof word, "%.*s", (int)length, *at);
    map->rows = cut_number(word, -1);
    *at += length;
    const int index = index_of(word, operands, COUNT(operands));
    if (index < 0)
        return fa2i_fail(FA2_E_INVALID, "maps: an operand is expected, not '%s'", word);
    map->operand = (fa2i_mapped)index;
    return FA2_OK;
}

static fa2_status take_maps(const char **at, fa2i_recipe *recipe)
{
    char value[FA2I_ENTRY_CHARS];
    fa2_status st = FA2_OK;
    if (!take(at, "maps", value))
        return FA2_OK;
    const char *map = value;
    do {
        if (recipe->map_count == FA2I_RECIPE_MAPS)
            return fa2i_fail(FA2_E_INVALID, "maps: there are more than %d", FA2I_RECIPE_MAPS);
        st = take_map(&map, &recipe->maps[recipe->map_count++]);
    } while (st == FA2_OK && *map++ == ',');
    return st;
}

static fa2_status take_head(const char **at, fa2i_recipe *recipe)
{
    fa2_status st = FA2_OK;
    char value[FA2I_ENTRY_CHARS];
    int32_t op = 0;
    int workspace = 0;
    if (!take(at, "op", value))
        return fa2i_fail(FA2_E_INVALID, "'op=' is expected at '%.40s'", *at);
    if (!fa2i_field_parse_word(FA2I_FIELD_op, value, &op))
        return fa2i_fail(FA2_E_INVALID, "op=%s is not known to this fa2", value);
    recipe->op = (fa2_op)op;
    FA2_TRY(take_numbers(at, recipe, head_numbers, COUNT(head_numbers)));
    FA2_TRY(take_word(at, "workspace", workspaces, COUNT(workspaces), FA2I_WORKSPACE_NONE, &workspace));
    recipe->workspace = (fa2i_workspace)workspace;
    if (take(at, "suffix", value))
        snprintf(recipe->suffix, sizeof recipe->suffix, "%c", value[0]);
    FA2_TRY(take_maps(at, recipe));
done:
    return st;
}

static fa2_status parse(const char *text, fa2i_recipe *recipe)
{
    const char *at = text;
    fa2_status st = take_head(&at, recipe);
    while (st == FA2_OK && *at == ';') {
        if (recipe->step_count == FA2I_RECIPE_STEPS)
            return fa2i_fail(FA2_E_INVALID, "more than %d steps", FA2I_RECIPE_STEPS);
        at++;
        st = take_step(&at, &recipe->steps[recipe->step_count++]);
        if (st != FA2_OK)
            fa2i_fail_prefix(st, "step %d", recipe->step_count);
    }
    if (st == FA2_OK && *at != '\0')
        st = fa2i_fail(FA2_E_INVALID, "'%.40s' is not known to this fa2, or out of order", at);
    if (st == FA2_OK)
        st = fa2i_recipe_format(recipe);
    if (st == FA2_OK && strcmp(recipe->text, text) != 0)
        st = fa2i_fail(FA2_E_INVALID, "it is written '%s'", recipe->text);
    return st;
}

fa2_status fa2i_recipe_parse(const char *text, fa2i_recipe *ret_recipe)
{
    fa2i_recipe recipe = {0};
    const fa2_status st = parse(text, &recipe);
    if (st != FA2_OK)
        return fa2i_fail_prefix(st, "recipe '%s'", text);
    *ret_recipe = recipe;
    return FA2_OK;
}

int fa2i_recipe_most_smem(const fa2i_recipe *recipe)
{
    int most = 0;
    for (int i = 0; i < recipe->step_count; i++)
        most = recipe->steps[i].smem_bytes > most ? recipe->steps[i].smem_bytes : most;
    return most;
}
