/*
 * problem.def as data, and loops over it.
 *
 * - All fields are int32_t members, so a field is an offset. A member that is missing from the list fails to compile
 *   (the assertion on the count).
 */
#include "runtime/base/problem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The words of problem.def's last column. */
enum {
    FORWARD = 1u << FA2_OP_FORWARD,
    BACKWARD = 1u << FA2_OP_BACKWARD,
    MERGE = 1u << FA2_OP_MERGE,
    EVERY = FORWARD | BACKWARD | MERGE,
    NOT_FP32 = FA2I_NOT_FP32
};

#define MISSING_REQUIRED       FA2I_MISSING_REQUIRED, 0
#define MISSING_MEANS(value)   FA2I_MISSING_MEANS, value
#define MISSING_SAME_AS(field) FA2I_MISSING_SAME_AS, FA2I_FIELD_##field
#define NEEDS_NOTHING          -1
#define NEEDS_ASKED(field)     FA2I_FIELD_##field
#define SHOWN_ALWAYS           true
#define SHOWN_UNLESS_0         false

const fa2i_field fa2i_fields[FA2I_FIELD_COUNT] = {
#define FA2I_FIELD(name, key, type, role, least, most, step, missing, needs, shown, rounded, distance, ops)            \
    [FA2I_FIELD_##name] = {#name,                                                                                      \
                           key,                                                                                        \
                           FA2I_TYPE_##type,                                                                           \
                           FA2I_ROLE_##role,                                                                           \
                           least,                                                                                      \
                           most,                                                                                       \
                           step,                                                                                       \
                           MISSING_##missing,                                                                          \
                           NEEDS_##needs,                                                                              \
                           SHOWN_##shown,                                                                              \
                           FA2I_ROUNDING_##rounded,                                                                    \
                           FA2I_DISTANCE_##distance,                                                                   \
                           ops,                                                                                        \
                           offsetof(fa2_problem, name)},
#include "runtime/base/problem.def"
};

_Static_assert(sizeof(fa2_problem) == 200, "fa2_problem is part of the ABI, and has no padding");
_Static_assert(sizeof(((fa2_problem *)0)->reserved) / sizeof(int32_t) + FA2I_FIELD_COUNT ==
                   (sizeof(fa2_problem) - offsetof(fa2_problem, op)) / sizeof(int32_t),
               "every member but the reserved ones is a line of problem.def");
_Static_assert(sizeof(fa2_op) == sizeof(int32_t) && sizeof(fa2_dtype) == sizeof(int32_t) &&
                   sizeof(fa2_bias) == sizeof(int32_t) && sizeof(fa2_rotary) == sizeof(int32_t) &&
                   sizeof(fa2_sums) == sizeof(int32_t) && sizeof(fa2_scores) == sizeof(int32_t) &&
                   sizeof(fa2_pv) == sizeof(int32_t) && sizeof(fa2_kv) == sizeof(int32_t) &&
                   sizeof(fa2_scales) == sizeof(int32_t),
               "fields are read as int32_t");

static const char *const op_words[] = {
    [FA2_OP_FORWARD] = "forward", [FA2_OP_BACKWARD] = "backward", [FA2_OP_MERGE] = "merge"};
static const char *const dtype_words[] = {[FA2_FP16] = "fp16", [FA2_BF16] = "bf16", [FA2_FP32] = "fp32"};
static const char *const bias_words[] = {[FA2_BIAS_NONE] = "none",
                                         [FA2_BIAS_FP16] = "fp16",
                                         [FA2_BIAS_BF16] = "bf16",
                                         [FA2_BIAS_FP32] = "fp32",
                                         [FA2_BIAS_BOOL] = "bool",
                                         [FA2_BIAS_FP16_GRADIENT] = "fp16_gradient",
                                         [FA2_BIAS_BF16_GRADIENT] = "bf16_gradient",
                                         [FA2_BIAS_FP32_GRADIENT] = "fp32_gradient"};
static const char *const rotary_words[] = {
    [FA2_ROTARY_NONE] = "none", [FA2_ROTARY_HALVES] = "halves", [FA2_ROTARY_INTERLEAVED] = "interleaved"};
static const char *const sums_words[] = {[FA2_SUMS_FP32] = "fp32", [FA2_SUMS_FAST] = "fast"};
static const char *const scores_words[] = {[FA2_SCORES_EXACT] = "exact", [FA2_SCORES_INT8] = "int8"};
static const char *const pv_words[] = {[FA2_PV_EXACT] = "exact", [FA2_PV_FP8] = "fp8"};
static const char *const kv_words[] = {[FA2_KV_DTYPE] = "dtype", [FA2_KV_INT8] = "int8", [FA2_KV_FP8] = "fp8"};
static const char *const kv_scales_words[] = {[FA2_SCALES_FP32] = "fp32", [FA2_SCALES_FP16] = "fp16"};

static const char *const window_names[] = {[FA2_WINDOW_NONE] = "none",
                                           [FA2_WINDOW_SLIDING] = "sliding",
                                           [FA2_WINDOW_PREFIX] = "prefix",
                                           [FA2_WINDOW_CHUNK] = "chunk"};

/* By type; numbers have none. */
static const char *const *const words_of[] = {[FA2I_TYPE_INT] = NULL,
                                              [FA2I_TYPE_OP] = op_words,
                                              [FA2I_TYPE_DTYPE] = dtype_words,
                                              [FA2I_TYPE_BIAS] = bias_words,
                                              [FA2I_TYPE_ROTARY] = rotary_words,
                                              [FA2I_TYPE_SUMS] = sums_words,
                                              [FA2I_TYPE_SCORES] = scores_words,
                                              [FA2I_TYPE_PV] = pv_words,
                                              [FA2I_TYPE_KV] = kv_words,
                                              [FA2I_TYPE_KV_SCALES] = kv_scales_words};

/* ---- one field ---- */

int32_t fa2i_field_get(const fa2_problem *problem, int field)
{
    int32_t value;
    memcpy(&value, (const char *)problem + fa2i_fields[field].offset, sizeof value);
    return value;
}

void fa2i_field_set(fa2_problem *problem, int field, int32_t value)
{
    memcpy((char *)problem + fa2i_fields[field].offset, &value, sizeof value);
}

int32_t fa2i_field_missing_value(const fa2_problem *problem, int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    assert(f->missing != FA2I_MISSING_REQUIRED);
    if (f->missing == FA2I_MISSING_MEANS)
        return f->missing_value;
    const int32_t other = fa2i_field_get(problem, f->missing_value);
    const int32_t most = other < f->most ? other : f->most;
    return most > f->least ? most / f->step * f->step : f->least;
}

const char *fa2i_field_word(int field, int32_t value)
{
    const fa2i_field *f = &fa2i_fields[field];
    const char *const *words = words_of[f->type];
    assert(words == NULL || (value >= f->least && value <= f->most));
    return words == NULL ? NULL : words[value];
}

const char *fa2i_field_name(int field, int32_t value)
{
    return field == FA2I_FIELD_window ? window_names[value] : fa2i_field_word(field, value);
}

bool fa2i_field_is_named(int field)
{
    return fa2i_field_name(field, fa2i_fields[field].least) != NULL;
}

bool fa2i_field_parse_word(int field, const char *word, int32_t *ret_value)
{
    const fa2i_field *f = &fa2i_fields[field];
    if (!fa2i_field_is_named(field))
        return false;
    for (int32_t value = f->least; value <= f->most; value++) {
        if (strcmp(fa2i_field_name(field, value), word) == 0) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

const char *fa2i_field_text(const fa2_problem *problem, int field, char out[FA2I_VALUE_CHARS])
{
    const int32_t value = fa2i_field_get(problem, field);
    const char *word = fa2i_field_word(field, value);
    snprintf(out, FA2I_VALUE_CHARS, "%d", (int)value);
    return word != NULL ? word : out;
}

const char *fa2i_dtype_string(fa2_dtype dtype)
{
    return fa2i_field_word(FA2I_FIELD_dtype, (int32_t)dtype);
}

bool fa2i_field_is_shown(const fa2_problem *problem, int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    if (f->needs >= 0 && fa2i_field_get(problem, f->needs) == 0)
        return false;
    return f->shown_always || fa2i_field_get(problem, field) != 0;
}

/* ---- the whole problem ---- */

/* Appends "KEY=VALUE" for each shown field. kinds_only: only fields of role KIND. */
static void format(const fa2_problem *problem, bool kinds_only, char *out, size_t out_bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int field = 0; field < FA2I_FIELD_COUNT && used < out_bytes; field++) {
        const fa2i_field *f = &fa2i_fields[field];
        char value[FA2I_VALUE_CHARS];
        if ((kinds_only && f->role != FA2I_ROLE_KIND) || !fa2i_field_is_shown(problem, field))
            continue;
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s=%s", used == 0 ? "" : " ", f->key,
                                 fa2i_field_text(problem, field, value));
    }
}

fa2i_shape fa2i_problem_shape(const fa2_problem *problem)
{
    fa2i_shape shape;
    format(problem, false, shape.text, sizeof shape.text);
    return shape;
}

fa2i_shape fa2i_problem_argument(const fa2_problem *problem)
{
    fa2i_shape shape = fa2i_problem_shape(problem);
    for (char *c = shape.text; *c != '\0'; c++)
        *c = *c == ' ' ? ',' : *c;
    return shape;
}

void fa2i_problem_class(const fa2_problem *problem, char out[FA2I_CLASS_CHARS])
{
    format(problem, true, out, FA2I_CLASS_CHARS);
    assert(strlen(out) < FA2I_CLASS_CHARS - 1); /* a text that was cut would not identify a class */
}

bool fa2i_problem_same_class(const fa2_problem *a, const fa2_problem *b)
{
    char class_of_a[FA2I_CLASS_CHARS], class_of_b[FA2I_CLASS_CHARS];
    fa2i_problem_class(a, class_of_a);
    fa2i_problem_class(b, class_of_b);
    return strcmp(class_of_a, class_of_b) == 0;
}
