/*
 * - Parsing and writing are loops over the lists of recipe_lists.h.
 * - A text is canonical if and only if writing its parsed recipe gives the same text. So rules about order, defaults
 *   and zeros need no code of their own.
 */
#include "runtime/base/recipe.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/problem.h"
#include "runtime/base/recipe_lists.h"
#include "runtime/base/status.h"

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
    return 2 * (strstr(class_key, " dropout=1") != NULL) + (strstr(class_key, " varlen=1") != NULL) + adds;
}

const char *fa2i_mapped_word(fa2i_mapped operand)
{
    return operands[operand];
}

/* ---- writing ---- */

/* Appends to the text. `used` also counts bytes that did not fit, so that the caller sees if there was room. */
static void add(char text[FA2I_RECIPE_CHARS], size_t *used, const char *format, ...)
    FA2I_PRINTF(3, 4);

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

static void add_numbers(char text[FA2I_RECIPE_CHARS], size_t *used, const void *object,
                        const number *numbers, size_t count)
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
    const fa2_status st = fa2i_recipe_check(recipe);
    if (st != FA2_OK)
        return st;
    add(text, &used, "op=%s", fa2i_field_word(FA2I_FIELD_op, (int32_t)recipe->op));
    add_numbers(text, &used, recipe, head_numbers, COUNT(head_numbers));
    if (recipe->workspace != FA2I_WORKSPACE_NONE)
        add(text, &used, " workspace=%s", workspaces[recipe->workspace]);
    if (recipe->suffix[0] != '\0')
        add(text, &used, " suffix=%s", recipe->suffix);
    for (int i = 0; i < recipe->map_count; i++)
        add(text, &used, "%s%s/%d", i == 0 ? " maps=" : ",", operands[recipe->maps[i].operand],
            recipe->maps[i].rows);
    for (int i = 0; i < recipe->step_count; i++)
        add_step(text, &used, &recipe->steps[i]);
    if (used >= sizeof text)
        return fa2i_fail(FA2_E_INVALID, "a recipe of %zu bytes; it must be at most %zu", used,
                         sizeof text - 1);
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

/* Reads the word that follows a key, and finds its index. fallback: the index if the key is absent, or REQUIRED. */
static fa2_status take_word(const char **at, const char *key, const char *const *words,
                            size_t count, int fallback, int *ret_index)
{
    char value[FA2I_ENTRY_CHARS];
    if (!take(at, key, value)) {
        *ret_index = fallback;
        return fallback != REQUIRED
                   ? FA2_OK
                   : fa2i_fail(FA2_E_INVALID, "'%s=' is expected at '%.40s'", key, *at);
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(value, words[i]) == 0) {
            *ret_index = (int)i;
            return FA2_OK;
        }
    }
    return fa2i_fail(FA2_E_INVALID, "%s=%s is not known to this fa2", key, value);
}

static fa2_status take_blocks(const char **at, fa2i_step *step)
{
    char value[FA2I_ENTRY_CHARS];
    if (!take(at, "blocks", value))
        return fa2i_fail(FA2_E_INVALID, "'blocks=' is expected at '%.40s'", *at);
    char *slash = strchr(value, '/');
    step->block_rows = slash == NULL ? per_block.missing : number_of(slash + 1);
    if (slash != NULL)
        *slash = '\0';
    for (size_t i = 0; i < COUNT(blocks); i++) {
        if (strcmp(value, blocks[i]) == 0) {
            step->blocks = (fa2i_blocks)i;
            return FA2_OK;
        }
    }
    return fa2i_fail(FA2_E_INVALID, "blocks=%s is not known to this fa2", value);
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
    char *slash = strchr(word, '/');
    map->rows = slash == NULL ? -1 : number_of(slash + 1);
    if (slash != NULL)
        *slash = '\0';
    *at += length;
    for (size_t i = 0; i < COUNT(operands); i++) {
        if (strcmp(word, operands[i]) == 0) {
            map->operand = (fa2i_mapped)i;
            return FA2_OK;
        }
    }
    return fa2i_fail(FA2_E_INVALID, "maps: an operand is expected, not '%s'", word);
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
    FA2_TRY(
        take_word(at, "workspace", workspaces, COUNT(workspaces), FA2I_WORKSPACE_NONE, &workspace));
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
