/*
 * "all" devices is the empty part of a name, which all names contain.
 */
#include "tuner/commands/filter_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/problem.h"
#include "runtime/base/shown.h"
#include "runtime/cuda/device.h"
#include "tuner/report/progress.h"

bool fa2i_whole_parse(const char *text, int limit, int *ret_number)
{
    errno = 0;
    const long number = strtol(text, NULL, 10);
    if (strspn(text, "0123456789") != strlen(text) || *text == '\0' || errno == ERANGE || number > limit)
        return false;
    *ret_number = (int)number;
    return true;
}

/* ---- shapes and operations ---- */

/* Returns the name of the first of these operations. */
static const char *op_word(unsigned ops)
{
    int32_t op = 0;
    while ((ops >> op & 1u) == 0)
        op++;
    return fa2i_field_word(FA2I_FIELD_op, op);
}

/* Checks --op against an operation that a shape itself names. */
static fa2_status check_op(const fa2i_problem_text *fields, const fa2i_options *options)
{
    const unsigned ops = options->shapes.ops, own = 1u << fields->problem.op;
    if (ops == 0 || !fields->given[FA2I_FIELD_op] || (ops & own) != 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "--op %s contradicts --shape, which says op=%s; leave out one of them",
                     op_word(ops), op_word(own));
}

fa2_status fa2i_options_apply_shape(const char *value, fa2i_options *options)
{
    fa2i_problem_text fields;
    fa2_status st = fa2i_shape_fields(value, &fields);
    if (st == FA2_OK)
        st = check_op(&fields, options);
    return st == FA2_OK ? fa2i_shapes_add_text(&options->shapes, value) : st;
}

static void filter_field(fa2i_filter *filter, int field, int32_t value)
{
    filter->given[field] = true;
    fa2i_field_set(&filter->problem, field, value);
}

fa2_status fa2i_filter_apply_shape(const char *value, fa2i_options *options)
{
    fa2i_problem_text fields;
    fa2_status st = fa2i_shape_fields(value, &fields);
    if (st == FA2_OK)
        st = check_op(&fields, options);
    if (st != FA2_OK)
        return st;
    bool any = false;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (!fields.given[field])
            continue;
        any = true;
        filter_field(&options->filter, field, fa2i_field_get(&fields.problem, field));
    }
    return any ? FA2_OK
               : fa2i_fail(FA2_E_INVALID,
                           "--shape \"%s\": expected KEY=VALUE,..., for example "
                           "D=64,causal=1",
                           value);
}

fa2_status fa2i_filter_apply_shown(const char *value, fa2i_options *options)
{
    fa2i_problem_text fields;
    bool whole = true;
    const fa2_status st = fa2i_shape_fields(value, &fields);
    if (st != FA2_OK)
        return st;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        whole = whole && (fields.given[field] || fa2i_fields[field].missing != FA2I_MISSING_REQUIRED);
    if (whole)
        return fa2i_options_apply_shape(value, options);
    if (options->filters_shape)
        return fa2i_fail(FA2_E_INVALID,
                         "--shape \"%s\" leaves out Hq, Sq or D, so it is a filter, and there is "
                         "one already; put all fields into one",
                         value);
    options->filters_shape = true;
    return fa2i_filter_apply_shape(value, options);
}

void fa2i_filter_settle_op(fa2i_options *options, int accepted)
{
    const unsigned ops = options->shapes.ops;
    const bool one = ops != 0 && (ops & (ops - 1)) == 0;
    /* A problem that show names is complete. But a filter may consist of the operation alone. */
    const bool filters = (accepted & FA2I_OPT_FILTER) ||
                         ((accepted & FA2I_OPT_FILTER_SHOWN) && (options->filters_shape || options->shapes.count == 0));
    for (int32_t op = 0; one && filters && ops >> op != 0; op++)
        if (ops >> op & 1u)
            filter_field(&options->filter, FA2I_FIELD_op, op);
}

fa2_status fa2i_options_say_left_out(const fa2i_options *options)
{
    const size_t rows = options->shapes.left_out;
    if (rows == 0)
        return FA2_OK;
    const char *word = op_word(options->shapes.ops);
    if (options->shapes.count == 0)
        return fa2i_fail(FA2_E_INVALID,
                         "--op %s leaves nothing: the column op of the shapes names another operation in all of %zu "
                         "row%s; leave --op out, or name that one",
                         word, rows, fa2i_plural(rows));
    /* Otherwise each device's tuner says it itself. */
    if (options->device != FA2I_DEVICE_ALL || options->program != NULL || options->reads_stdin)
        fa2i_shown_print(stderr, "fa2-tune: --op %s leaves out %zu row%s whose column op names another operation\n",
                         word, rows, fa2i_plural(rows));
    return FA2_OK;
}

/* ---- devices and variants ---- */

fa2_status fa2i_filter_apply_device(const char *value, fa2i_options *options)
{
    if (*value == '\0')
        return fa2i_fail(FA2_E_INVALID, "--device \"\": expected a device number, a part of a device's name, or "
                                        "all");
    options->filter.device = strcmp(value, "all") == 0 ? "" : value;
    return FA2_OK;
}

fa2_status fa2i_filter_apply_variant(const char *value, fa2i_options *options)
{
    if (*value == '\0')
        return fa2i_fail(FA2_E_INVALID, "--variant \"\": expected a part of the variant's text: "
                                        "\"br=128 bc=64\"");
    options->filter.variant = value;
    return FA2_OK;
}

bool fa2i_filter_is_given(const fa2i_filter *filter)
{
    return filter->device != NULL || filter->variant != NULL || filter->failures || fa2i_filter_names_problem(filter);
}

fa2_status fa2i_filter_find_device(fa2i_options *options)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = NULL;
    fa2i_card card;
    int number = 0;
    if (options->filter.device == NULL || !fa2i_whole_parse(options->filter.device, FA2I_DEVICE_MAX, &number))
        return FA2_OK; /* a name, such as 3060 */
    FA2_TRY(fa2i_cuda_get(&cuda));
    FA2_TRY(fa2i_device_card(cuda, number, &card));
    snprintf(options->filter_device, sizeof options->filter_device, "%s", card.name);
    options->filter.device = options->filter_device;
done:
    if (st == FA2_OK)
        return FA2_OK;
    return fa2i_fail_prefix(st,
                            "--device %d means this machine's (another's is named by a part of its "
                            "name: L4, 'A100 80')",
                            number);
}
