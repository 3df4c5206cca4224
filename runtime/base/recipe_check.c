/*
 * Checks a recipe, wherever it comes from: each number is within its limits, the operation has its words, and the steps
 * that workspace and splitting need exist.
 */
#include <string.h>
#include "runtime/base/problem.h"
#include "runtime/base/recipe_lists.h"
#include "runtime/base/status.h"

/* Bits 1 << op: the operations that have a word. */
enum { FORWARD = 1u << FA2_OP_FORWARD, BACKWARD = 1u << FA2_OP_BACKWARD };
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
            return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be a multiple of %d from %d to %d",
                             n->key, value, n->multiple, n->least, n->most);
        return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be from %d to %d", n->key, value,
                         n->least, n->most);
    }
    return FA2_OK;
}

/* Checks the name of a kernel: a C identifier that fits. */
static fa2_status check_entry(const char *entry)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    if (entry[0] == '\0' || strspn(entry, letters) != strlen(entry))
        return fa2i_fail(FA2_E_INVALID, "its entry point is '%s'; it must be letters, digits and _",
                         entry);
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
        return fa2i_fail(FA2_E_INVALID,
                         "waves is %d and splits %d; keys are split with both, or none",
                         recipe->waves, recipe->max_splits);
    if (recipe->waves > 0 && recipe->op == FA2_OP_FORWARD &&
        recipe->workspace != FA2I_WORKSPACE_PARTIALS &&
        recipe->workspace != FA2I_WORKSPACE_PARTIALS_AND_QUERIES)
        return fa2i_fail(FA2_E_INVALID, "keys are split, which needs workspace=partials");
    if (recipe->waves > 0 && fa2i_recipe_step(recipe, FA2I_STEP_COMBINE) == NULL)
        return fa2i_fail(FA2_E_INVALID, "keys are split, but no step combines the parts");
    return FA2_OK;
}

/* A word of another operation has no meaning for this operation's grid. */
static fa2_status check_words(const fa2i_recipe *recipe)
{
    const char *op = fa2i_field_word(FA2I_FIELD_op, (int32_t)recipe->op);
    const unsigned bit = 1u << (int)recipe->op;
    if ((workspace_ops[recipe->workspace] & bit) == 0)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s is not for op=%s",
                         workspaces[recipe->workspace], op);
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
                             (operand_ops[map->operand] & bit) == 0 ? "is not for this operation"
                                                                    : "is there twice");
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
    const bool shared_sums = recipe->workspace == FA2I_WORKSPACE_ROWS_AND_DQ ||
                             recipe->workspace == FA2I_WORKSPACE_ROWS_DQ_AND_TURNS;
    const bool sums = shared_sums || recipe->workspace == FA2I_WORKSPACE_DQ_OF_TILES;
    const bool rows = shared_sums || recipe->workspace == FA2I_WORKSPACE_ROWS;
    const bool parts = recipe->op == FA2_OP_BACKWARD && recipe->waves > 0;
    if ((sums || parts) != (recipe->columns > 0))
        return fa2i_fail(
            FA2_E_INVALID,
            "columns is %d; it must be more than 0 with "
            "workspace=rows_and_dq, rows_dq_and_turns or dq_of_tiles, or if backward has "
            "waves; else 0",
            recipe->columns);
    const bool column_keys = recipe->workspace == FA2I_WORKSPACE_COLUMN_KEYS;
    const bool counter = recipe->workspace == FA2I_WORKSPACE_COUNTER || column_keys;
    if ((rows || counter || fa2i_recipe_has_queries(recipe)) &&
        fa2i_recipe_step(recipe, FA2I_STEP_PREPARE) == NULL)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s, but no step prepares it",
                         workspaces[recipe->workspace]);
    if (column_keys && fa2i_recipe_step(recipe, FA2I_STEP_PREPARE)->blocks != FA2I_BLOCKS_KEYS)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s, but its step has no blocks=keys",
                         workspaces[recipe->workspace]);
    if (!rows && fa2i_recipe_step(recipe, FA2I_STEP_SINKS) != NULL)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s, but a step for sinks reads rows",
                         workspaces[recipe->workspace]);
    if (sums && fa2i_recipe_step(recipe, FA2I_STEP_CONVERT) == NULL)
        return fa2i_fail(FA2_E_INVALID, "workspace=%s, but no step converts what is in it",
                         workspaces[recipe->workspace]);
    return FA2_OK;
}

fa2_status fa2i_recipe_check(const fa2i_recipe *recipe)
{
    fa2_status st = check_numbers(recipe, head_numbers, COUNT(head_numbers));
    if (st == FA2_OK &&
        strspn(recipe->suffix, "abcdefghijklmnopqrstuvwxyz") != strlen(recipe->suffix))
        st = fa2i_fail(FA2_E_INVALID, "suffix is '%s'; it must be a lower-case letter",
                       recipe->suffix);
    if (st == FA2_OK && (recipe->step_count < 1 || recipe->step_count > FA2I_RECIPE_STEPS))
        st = fa2i_fail(FA2_E_INVALID, "there are %d steps; there must be 1 to %d",
                       recipe->step_count, FA2I_RECIPE_STEPS);
    for (int i = 0; st == FA2_OK && i < recipe->step_count; i++) {
        st = check_step(&recipe->steps[i]);
        if (st != FA2_OK)
            fa2i_fail_prefix(st, "step %d", i + 1);
    }
    if (st == FA2_OK && fa2i_recipe_step(recipe, FA2I_STEP_MAIN) == NULL)
        st = fa2i_fail(FA2_E_INVALID, "no step has role=main");
    if (st == FA2_OK)
        st = check_words(recipe);
    if (st == FA2_OK)
        st = check_maps(recipe);
    if (st == FA2_OK)
        st = check_rows(recipe);
    return st == FA2_OK ? check_splitting(recipe) : st;
}
