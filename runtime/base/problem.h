/*
 * Problems, field by field: problem.def as data, and what follows from it for every operation.
 *
 * Values are numbers, also those of enumerations. Pure; thread-safe. Errors: FA2_E_INVALID naming
 * field and limit.
 */
#ifndef FA2I_BASE_PROBLEM_H
#define FA2I_BASE_PROBLEM_H

#include <stdbool.h>
#include "fa2.h"

/* FA2I_FIELD_seq_q and so on: the index of a field. */
typedef enum fa2i_field_id {
#define FA2I_FIELD(name, ...) FA2I_FIELD_##name,
#include "runtime/base/problem.def"
#undef FA2I_FIELD
    FA2I_FIELD_COUNT
} fa2i_field_id;

/* The fields of a fa2_problem are these bytes, from op on; reserved members, which are 0, round them up. */
enum { FA2I_FIELD_BYTES = (FA2I_FIELD_COUNT + 7) / 8 * 8 * sizeof(int32_t) };

/* FA2I_MOST_head_dim and so on: the most that a field can be, for arrays. */
enum {
#define FA2I_FIELD(name, key, type, role, least, most, ...) FA2I_MOST_##name = (most),
#include "runtime/base/problem.def"
#undef FA2I_FIELD
};

typedef enum fa2i_field_role { FA2I_ROLE_KIND, FA2I_ROLE_SIZE } fa2i_field_role;
typedef enum fa2i_field_type {
    FA2I_TYPE_INT,
    FA2I_TYPE_OP,
    FA2I_TYPE_DTYPE,
    FA2I_TYPE_BIAS,
    FA2I_TYPE_ROTARY
} fa2i_field_type;

/* What a text that does not give the field means. */
typedef enum fa2i_field_missing {
    FA2I_MISSING_REQUIRED,
    FA2I_MISSING_MEANS,  /* the value */
    FA2I_MISSING_SAME_AS /* the value is another field's index: its value, as far as this one goes */
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

typedef enum fa2i_field_rounding {
    FA2I_ROUNDING_EXACT,
    FA2I_ROUNDING_UP,
    FA2I_ROUNDING_TILES
} fa2i_field_rounding;

/* A line of problem.def, which explains the columns. */
typedef struct fa2i_field {
    const char *name, *key;
    fa2i_field_type type;
    fa2i_field_role role;
    int32_t least, most, step;
    fa2i_field_missing missing;
    int32_t missing_value;
    int needs; /* index of a field; -1: none */
    bool shown_always;
    fa2i_field_rounding rounding;
    fa2i_field_distance distance;
    unsigned ops; /* bit 1 << op */
    size_t offset;
} fa2i_field;

extern const fa2i_field fa2i_fields[FA2I_FIELD_COUNT];

int32_t fa2i_field_get(const fa2_problem *problem, int field);
void fa2i_field_set(fa2_problem *problem, int field, int32_t value);

/* What it means that a text does not give a field; not of one that is required. Those before it have their values. */
int32_t fa2i_field_missing_value(const fa2_problem *problem, int field);

/* The word for a value of an enumeration, which is in its limits; NULL where values are numbers. */
const char *fa2i_field_word(int field, int32_t value);

/* What a number of a field is called: the word of an enumeration, and of window what texts take in its place, but never
 * show; NULL where numbers are just numbers. */
const char *fa2i_field_name(int field, int32_t value);

/* Whether numbers of a field have such names. */
bool fa2i_field_is_named(int field);

/* The value of such a name; false where there is none. */
bool fa2i_field_parse_word(int field, const char *word, int32_t *ret_value);

/* Whether texts show the field of this problem. */
bool fa2i_field_is_shown(const fa2_problem *problem, int field);

/* Columns of a key that are read, of K and of V. */
static inline int32_t fa2i_key_columns(const fa2_problem *problem)
{
    const int32_t columns_v = problem->head_dim_v > 0 ? problem->head_dim_v : problem->head_dim;
    return problem->head_dim + (problem->v_in_k ? 0 : columns_v);
}

/* Columns of V and O. */
static inline int32_t fa2i_head_dim_v(const fa2_problem *problem)
{
    return problem->head_dim_v > 0 ? problem->head_dim_v : problem->head_dim;
}

_Static_assert(FA2_BIAS_FP16_GRADIENT == FA2_BIAS_BOOL + FA2_BIAS_FP16 &&
                   FA2_BIAS_BF16_GRADIENT == FA2_BIAS_BOOL + FA2_BIAS_BF16 &&
                   FA2_BIAS_FP32_GRADIENT == FA2_BIAS_BOOL + FA2_BIAS_FP32,
               "those with a gradient come in the order of those without");

/* Whether the gradient of a bias is wanted; the same bias without it. */
static inline bool fa2i_bias_has_gradient(fa2_bias bias)
{
    return bias > FA2_BIAS_BOOL;
}

static inline fa2_bias fa2i_bias_type(fa2_bias bias)
{
    return fa2i_bias_has_gradient(bias) ? (fa2_bias)(bias - FA2_BIAS_BOOL) : bias;
}

/* What a field takes, for messages: "0 or 1", "one of 0 (fp16), 1 (bf16)", "a whole number"; and where that is given
 * which people take the field for. Returns out. */
enum { FA2I_ACCEPTED_CHARS = 256 };
const char *fa2i_field_accepted(int field, char out[FA2I_ACCEPTED_CHARS]);

/* Check one value by itself: limits and step. */
fa2_status fa2i_field_check(int field, int32_t value);

/* One field of a problem: 0 where it has no meaning, else in its limits. */
fa2_status fa2i_field_check_of(const fa2_problem *problem, int field);

/* Sizes are limited so that every kernel can be launched: no tile of forward has fewer rows, and none of backward has
 * more. Tiles of keys of backward have 16 rows at least. */
enum { FA2I_FORWARD_TILE_ROWS = 16, FA2I_BACKWARD_TILE_ROWS = 128 };

/* Every field, what relates them, reserved ones, and whether a launch can have the sizes: what holds for every device.
 * Operations may ask for more (runtime/ops). */
fa2_status fa2i_problem_check(const fa2_problem *problem);

/* The same; *ret_field: the field that the message begins with, -1 when it is about none. */
fa2_status fa2i_problem_find_fault(const fa2_problem *problem, int *ret_field);

/* "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=1", as fa2-tune --shape takes it (commas
 * instead of spaces there). The problem is valid. */
enum { FA2I_PROBLEM_CHARS = 400 };
void fa2i_problem_format(const fa2_problem *problem, char *out, size_t out_bytes);

/* The KIND fields alone, "D=64 dtype=fp16 causal=1": two problems may share a kernel if and only if
 * these texts are equal. The problem's KIND fields are valid. */
enum { FA2I_CLASS_CHARS = 256 };
void fa2i_problem_class(const fa2_problem *problem, char out[FA2I_CLASS_CHARS]);

/* Whether the texts of two problems' classes are equal. */
bool fa2i_problem_same_class(const fa2_problem *a, const fa2_problem *b);

/* Rounds a size up to so many significant bits of a multiple of the step. A size of 0 or less, which stands for
 * something else, stays, as does one that would leave 32 bits. */
int32_t fa2i_round_up(int32_t size, int64_t step, int bits);

/* The problem with its sizes rounded up, as problem.def says for each: what is alike to whoever tunes or chooses
 * (runtime/ops/steps.h). Near the limits of what is valid it is the problem itself. */
fa2_problem fa2i_problem_rounded(const fa2_problem *problem);

/* The products over which problems are compared, in the order of fa2i_field_distance: each at least 1. */
enum { FA2I_PRODUCTS = FA2I_DISTANCE_COUNT - FA2I_DISTANCE_NONE - 1 };
void fa2i_problem_products(const fa2_problem *problem, double out[FA2I_PRODUCTS]);

/* |ln| of the ratios of Sq, Sk, B * Hq and the window, and 0.6 of that of Hq / Hkv, summed: 0 for equal sizes, ln 2
 * when one of the former doubles. Both of one class. */
double fa2i_problem_distance(const fa2_problem *a, const fa2_problem *b);

const char *fa2i_dtype_string(fa2_dtype dtype); /* "fp16", "bf16" */
bool fa2i_dtype_parse(const char *text, fa2_dtype *ret_dtype);

#endif
