/*
 * Problems, field by field: problem.def as data, and functions of it for every operation.
 *
 * Values are numbers, for enumerations, too. Pure functions; thread-safe. Errors: FA2_E_INVALID naming field and limit.
 */
#pragma once

#include <stdbool.h>
#include "fa2.h"

/* The index of each field: FA2I_FIELD_seq_q and so on. */
typedef enum fa2i_field_id {
#define FA2I_FIELD(name, ...) FA2I_FIELD_##name,
#include "runtime/base/problem.def"
    FA2I_FIELD_COUNT
} fa2i_field_id;

/* The bytes of a fa2_problem from op on: all fields, and reserved members (which are 0) that round them up. */
enum { FA2I_FIELD_BYTES = (FA2I_FIELD_COUNT + 7) / 8 * 8 * sizeof(int32_t) };

/* The largest value of each field, for array sizes: FA2I_MOST_head_dim and so on. */
enum {
#define FA2I_FIELD(name, key, type, role, least, most, ...) FA2I_MOST_##name = (most),
#include "runtime/base/problem.def"
};

typedef enum fa2i_field_role { FA2I_ROLE_KIND, FA2I_ROLE_SIZE } fa2i_field_role;
typedef enum fa2i_field_type {
    FA2I_TYPE_INT,
    FA2I_TYPE_OP,
    FA2I_TYPE_DTYPE,
    FA2I_TYPE_BIAS,
    FA2I_TYPE_ROTARY,
    FA2I_TYPE_SUMS,
    FA2I_TYPE_SCORES,
    FA2I_TYPE_PV,
    FA2I_TYPE_KV,
    FA2I_TYPE_KV_SCALES
} fa2i_field_type;

/* The meaning of a text without the field. */
typedef enum fa2i_field_missing {
    FA2I_MISSING_REQUIRED,
    FA2I_MISSING_MEANS,  /* missing_value */
    FA2I_MISSING_SAME_AS /* the field of index missing_value: its value, lowered to this field's limits */
} fa2i_field_missing;

typedef enum fa2i_field_distance {
    FA2I_DISTANCE_NONE,
    FA2I_DISTANCE_BLOCKS,
    FA2I_DISTANCE_ROWS,
    FA2I_DISTANCE_KEYS,
    FA2I_DISTANCE_WINDOW,
    FA2I_DISTANCE_GROUP,
    FA2I_DISTANCE_COUNT
} fa2i_field_distance;

typedef enum fa2i_field_rounding { FA2I_ROUNDING_EXACT, FA2I_ROUNDING_UP, FA2I_ROUNDING_TILES } fa2i_field_rounding;

enum { FA2I_NOT_FP32 = 1 << 8 };

/* The largest head_dim of fp32. */
enum { FA2I_FP32_HEAD_DIM_MAX = 256 };

/* A line of problem.def, which explains the columns. */
typedef struct fa2i_field {
    const char *name, *key;
    fa2i_field_type type;
    fa2i_field_role role;
    int32_t least, most, step;
    fa2i_field_missing missing;
    int32_t missing_value;
    int needs; /* index of a field; -1: nothing */
    bool shown_always;
    fa2i_field_rounding rounding;
    fa2i_field_distance distance;
    unsigned ops; /* bits 1 << op, and FA2I_NOT_FP32 */
    size_t offset;
} fa2i_field;

extern const fa2i_field fa2i_fields[FA2I_FIELD_COUNT];

int32_t fa2i_field_get(const fa2_problem *problem, int field);
void fa2i_field_set(fa2_problem *problem, int field, int32_t value);

/* Returns the value of a field that a text does not give. The field is not REQUIRED, and all fields before it are
 * set. */
int32_t fa2i_field_missing_value(const fa2_problem *problem, int field);

/* Returns the word for a value of an enumeration, or NULL for a field of numbers. The value is within its limits. */
const char *fa2i_field_word(int field, int32_t value);

/* Returns the name of a field's value: the word of an enumeration, or of window the word that texts accept but never
 * show. NULL if numbers of the field have no names. */
const char *fa2i_field_name(int field, int32_t value);

/* Returns whether numbers of a field have such names. */
bool fa2i_field_is_named(int field);

/* Parses such a name. Returns false if the field has no such name. */
bool fa2i_field_parse_word(int field, const char *word, int32_t *ret_value);

/* Returns whether texts show this field of the problem. */
bool fa2i_field_is_shown(const fa2_problem *problem, int field);

/* Returns the columns that are read for each key, of K and V together. */
static inline int32_t fa2i_key_columns(const fa2_problem *problem)
{
    const int32_t columns_v = problem->head_dim_v > 0 ? problem->head_dim_v : problem->head_dim;
    return problem->head_dim + (problem->v_in_k ? 0 : columns_v);
}

/* Returns the bytes of an element of Q, and of K, V, O and gradients unless the problem gives them another type. */
static inline int32_t fa2i_elem_bytes(fa2_dtype dtype)
{
    switch (dtype) {
    case FA2_FP16:
    case FA2_BF16:
        return 2;
    case FA2_FP32:
        break;
    }
    return 4;
}

/* Returns the bytes of an element of K and V. */
static inline int32_t fa2i_key_bytes(const fa2_problem *problem)
{
    return problem->kv == FA2_KV_DTYPE ? fa2i_elem_bytes(problem->dtype) : 1;
}

/* Returns the bytes of a scale of a row of K or V in 8 bits. */
static inline size_t fa2i_scale_bytes(const fa2_problem *problem)
{
    return problem->kv_scales == FA2_SCALES_FP16 ? sizeof(uint16_t) : sizeof(float);
}

/* Returns the columns of V and O. */
static inline int32_t fa2i_head_dim_v(const fa2_problem *problem)
{
    return problem->head_dim_v > 0 ? problem->head_dim_v : problem->head_dim;
}

_Static_assert(FA2_BIAS_FP16_GRADIENT == FA2_BIAS_BOOL + FA2_BIAS_FP16 &&
                   FA2_BIAS_BF16_GRADIENT == FA2_BIAS_BOOL + FA2_BIAS_BF16 &&
                   FA2_BIAS_FP32_GRADIENT == FA2_BIAS_BOOL + FA2_BIAS_FP32,
               "those with a gradient come in the order of those without");

/* The first returns whether the gradient of a bias is wanted; the second returns the same bias without gradient. */
static inline bool fa2i_bias_has_gradient(fa2_bias bias)
{
    return bias > FA2_BIAS_BOOL;
}

static inline fa2_bias fa2i_bias_type(fa2_bias bias)
{
    return fa2i_bias_has_gradient(bias) ? (fa2_bias)(bias - FA2_BIAS_BOOL) : bias;
}

/* Writes what a field accepts, for messages: "0 or 1", "one of 0 (fp16), 1 (bf16)", "a whole number". If people often
 * confuse the field with another setting, adds where that setting is given. Returns out. */
enum { FA2I_ACCEPTED_CHARS = 256 };
const char *fa2i_field_accepted(int field, char out[FA2I_ACCEPTED_CHARS]);

/* Checks limits and step of one value. */
fa2_status fa2i_field_check(int field, int32_t value);

/* Checks one field of a problem: 0 if it has no meaning there, else within its limits. */
fa2_status fa2i_field_check_of(const fa2_problem *problem, int field);

/* Rows of a page of keys, unless problem.page says otherwise. */
enum { FA2I_PAGE_ROWS = 16 };

/* Sizes are limited so that every kernel can be launched. No tile of forward has fewer rows than this, and none of
 * backward has more. Backward's tiles of keys have at least 16 rows. */
enum { FA2I_FORWARD_TILE_ROWS = 16, FA2I_BACKWARD_TILE_ROWS = 128 };

/* Checks everything that holds for all devices: each field, relations of fields, reserved members, and sizes that can
 * be launched. Operations may demand more (runtime/ops). */
fa2_status fa2i_problem_check(const fa2_problem *problem);

/* The same. *ret_field: the field that the message begins with, or -1. */
fa2_status fa2i_problem_find_fault(const fa2_problem *problem, int *ret_field);

/* Return "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=1", and the same with commas instead of spaces, as an
 * argument of fa2-tune --shape. The problem is valid. */
enum { FA2I_PROBLEM_CHARS = 400 };
typedef struct fa2i_shape {
    char text[FA2I_PROBLEM_CHARS];
} fa2i_shape;
fa2i_shape fa2i_problem_shape(const fa2_problem *problem);
fa2i_shape fa2i_problem_argument(const fa2_problem *problem);

/* Writes only the KIND fields: "D=64 dtype=fp16 causal=1". Two problems may share a kernel if and only if these texts
 * are equal. The problem's KIND fields are valid. */
enum { FA2I_CLASS_CHARS = 256 };
void fa2i_problem_class(const fa2_problem *problem, char out[FA2I_CLASS_CHARS]);

/* Returns whether two problems have the same class. */
bool fa2i_problem_same_class(const fa2_problem *a, const fa2_problem *b);

/* Rounds a size up to `bits` significant bits of a multiple of the step. Sizes of 0 or less have a special meaning and
 * stay unchanged. A size whose result would exceed 32 bits stays unchanged, too. */
int32_t fa2i_round_up(int32_t size, int64_t step, int bits);

/* Returns the problem with its sizes rounded up, as problem.def says. Tuning and choosing treat problems with the same
 * result as equal (runtime/ops/steps.h). Near the limits of valid sizes the result is the problem itself. */
fa2_problem fa2i_problem_rounded(const fa2_problem *problem);

/* Computes the products by which problems are compared, in the order of fa2i_field_distance. Each is at least 1. */
enum { FA2I_PRODUCTS = FA2I_DISTANCE_COUNT - FA2I_DISTANCE_NONE - 1 };
void fa2i_problem_products(const fa2_problem *problem, double out[FA2I_PRODUCTS]);

/* Returns the distance of two problems of one class. It is the sum of |ln(ratio)| of Sq, Sk, B * Hq and the window,
 * plus 0.6 times |ln(ratio)| of Hq / Hkv. It is 0 for equal sizes, and ln 2 if one of the first four doubles. */
double fa2i_problem_distance(const fa2_problem *a, const fa2_problem *b);

const char *fa2i_dtype_string(fa2_dtype dtype); /* "fp16", "bf16", "fp32" */

/* Returns a field's value as a word or a number. It may lie in out. */
enum { FA2I_VALUE_CHARS = 12 };
const char *fa2i_field_text(const fa2_problem *problem, int field, char out[FA2I_VALUE_CHARS]);
