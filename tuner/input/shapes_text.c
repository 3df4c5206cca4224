/*
 * The texts of --shape, with the keys of problem.def.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/nearest.h"
#include "runtime/base/text.h"
#include "tuner/input/problem_text.h"
#include "tuner/input/shapes.h"

enum { TEXT_BYTES_MAX = 256, NAMES_CHARS = 320 };

static int find_key(fa2i_span name)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        if (fa2i_span_is(name, fa2i_fields[field].key))
            return field;
    return -1;
}

/* Returns FA2_E_INVALID, and suggests the key that was probably meant, also if it was named by its field's name. */
static fa2_status no_such_key(fa2i_span pair, fa2i_span name)
{
    char keys[NAMES_CHARS] = "";
    size_t used = 0;
    for (int field = 0; field < FA2I_FIELD_COUNT && used < sizeof keys; field++)
        used +=
            (size_t)snprintf(keys + used, sizeof keys - used, "%s%s", used == 0 ? "" : ", ", fa2i_fields[field].key);
    fa2i_nearest meant = {0};
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        fa2i_nearest_try(&meant, name.data, name.bytes, fa2i_fields[field].key, fa2i_fields[field].key);
        fa2i_nearest_try(&meant, name.data, name.bytes, fa2i_fields[field].name, fa2i_fields[field].key);
    }
    if (name.bytes == pair.bytes && meant.name != NULL)
        return fa2i_fail(FA2_E_INVALID, "\"%.*s\" is not KEY=VALUE, did you mean %s=VALUE?", (int)pair.bytes, pair.data,
                         meant.name);
    if (name.bytes == pair.bytes)
        return fa2i_fail(FA2_E_INVALID, "\"%.*s\" is not KEY=VALUE; the keys are %s", (int)pair.bytes, pair.data, keys);
    if (meant.name != NULL)
        return fa2i_fail(FA2_E_INVALID, "unknown key \"%.*s\", did you mean %s?", (int)name.bytes, name.data,
                         meant.name);
    return fa2i_fail(FA2_E_INVALID, "unknown key \"%.*s\"; the keys are %s", (int)name.bytes, name.data, keys);
}

/* Parses one KEY=VALUE of --shape. */
static fa2_status parse_pair(fa2i_span pair, fa2i_problem_text *problem)
{
    const char *equals = memchr(pair.data, '=', pair.bytes);
    const fa2i_span name = {pair.data, equals == NULL ? pair.bytes : (size_t)(equals - pair.data)};
    const int field = find_key(name);
    if (equals == NULL || field < 0)
        return no_such_key(pair, name);
    if (problem->given[field])
        return fa2i_fail(FA2_E_INVALID, "%s is given twice", fa2i_fields[field].key);
    return fa2i_problem_text_read(problem, field, (fa2i_span){equals + 1, pair.bytes - name.bytes - 1});
}

static fa2_status parse_pairs(const char *text, fa2i_problem_text *problem)
{
    static const char between[] = ", \t"; /* spaces too, because problems are printed with them */
    if (strlen(text) > TEXT_BYTES_MAX)
        return fa2i_fail(FA2_E_INVALID, "longer than %d characters", TEXT_BYTES_MAX);
    for (text += strspn(text, between); *text != '\0'; text += strspn(text, between)) {
        const size_t bytes = strcspn(text, between);
        const fa2_status st = parse_pair((fa2i_span){text, bytes}, problem);
        if (st != FA2_OK)
            return st;
        text += bytes;
    }
    return FA2_OK;
}

static fa2_status parse_text(const char *text, fa2_problem *ret_problem)
{
    fa2i_problem_text problem = {0};
    int wrong = -1;
    const fa2_status st = parse_pairs(text, &problem);
    return st == FA2_OK ? fa2i_problem_text_finish(&problem, ret_problem, &wrong) : st;
}

fa2_status fa2i_shape_fields(const char *text, fa2i_problem_text *ret_fields)
{
    fa2i_problem_text fields = {0};
    const fa2_status st = parse_pairs(text, &fields);
    if (st != FA2_OK)
        return fa2i_fail_prefix(fa2i_fail_in_keys(st), "shape \"%.*s\"", TEXT_BYTES_MAX, text);
    *ret_fields = fields;
    return FA2_OK;
}

fa2_status fa2i_shapes_add_text(fa2i_shapes *shapes, const char *text)
{
    fa2_problem problem;
    const fa2_status st = parse_text(text, &problem);
    if (st != FA2_OK)
        return fa2i_fail_prefix(fa2i_fail_in_keys(st), "shape \"%.*s\"", TEXT_BYTES_MAX, text);
    const fa2_status added = fa2i_shapes_add_for_ops(shapes, &problem, 0);
    return added == FA2_OK ? FA2_OK : fa2i_fail_in_keys(added);
}
