/*
 * Both fill functions make the rows in 16 bits and find the same scales.
 */
#include "tuner/judge/kv8.h"

#include <math.h>
#include "runtime/base/alloc.h"
#include "tuner/judge/number.h"

#define INTEGER_MOST 127.0
#define E4M3_MOST    448.0

/* Returns the nearest e4m3 number. */
static uint8_t to_e4m3(double x)
{
    const double size = fmin(fabs(x), E4M3_MOST);
    const int exponent = size < 0x1p-6 ? -6 : ilogb(size);
    const double steps = rint(ldexp(size, 3 - exponent)); /* of the last place; 16 is the next power of two */
    const int code = steps < 8 ? (int)steps : ((exponent + 7) << 3) + (int)steps - 8;
    return (uint8_t)(code | (signbit(x) ? 0x80 : 0));
}

static float from_e4m3(uint8_t bits)
{
    const int exponent = bits >> 3 & 15, digits = bits & 7;
    const float size = exponent == 0 ? ldexpf((float)digits, -9) : ldexpf((float)(8 + digits), exponent - 10);
    return bits & 0x80 ? -size : size;
}

/* Returns the scale of the row that begins at bits. number: of the row in memory. */
static float scale_of(const fa2i_case *c, const uint16_t *bits, int32_t columns, size_t number)
{
    double most = 0;
    for (int32_t i = 0; i < columns; i++)
        most = fmax(most, fabs(fa2i_from_bits(c->problem.dtype, bits[i])));
    const float scale = (float)(most / (c->problem.kv == FA2_KV_FP8 ? E4M3_MOST : INTEGER_MOST) *
                                (fa2i_pattern_is_numbers(c->pattern) ? 1 : 1 + (double)(number * 7 % 11) * 0.3));
    return c->problem.kv_scales == FA2_SCALES_FP16 ? fa2i_rounded(FA2_FP16, scale) : scale;
}

static fa2_status make_rows(const fa2i_case *c, int operand, size_t count, uint16_t **ret_bits)
{
    *ret_bits = fa2i_alloc_array(count, sizeof **ret_bits);
    if (*ret_bits == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu elements", count);
    return fa2i_judge_of(c->problem.op)->elements(c, operand, count, *ret_bits);
}

fa2_status fa2i_kv8_fill(const fa2i_case *c, int operand, size_t count, int8_t *out)
{
    fa2_status st = FA2_OK;
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const size_t pitch = (size_t)e.pitch;
    uint16_t *bits = NULL;
    FA2_TRY(make_rows(c, operand, count, &bits));
    for (size_t row = 0; (row + 1) * pitch <= count; row++) {
        const float scale = scale_of(c, bits + row * pitch, e.width, row);
        for (size_t i = row * pitch; i < (row + 1) * pitch; i++) {
            const double x = scale == 0 ? 0 : fa2i_from_bits(c->problem.dtype, bits[i]) / (double)scale;
            out[i] = c->problem.kv == FA2_KV_FP8 ? (int8_t)to_e4m3(x)
                                                 : (int8_t)fmax(-INTEGER_MOST, fmin(rint(x), INTEGER_MOST));
        }
    }
done:
    fa2i_free(bits);
    return st;
}

/* Scales are fp32 or fp16. */
static void put_scale(const fa2_problem *problem, void *scales, size_t at, float scale)
{
    if (problem->kv_scales == FA2_SCALES_FP16)
        ((uint16_t *)scales)[at] = fa2i_to_bits(FA2_FP16, scale);
    else
        ((float *)scales)[at] = scale;
}

static float get_scale(const fa2_problem *problem, const void *scales, int64_t at)
{
    return problem->kv_scales == FA2_SCALES_FP16 ? fa2i_from_bits(FA2_FP16, ((const uint16_t *)scales)[at])
                                                 : ((const float *)scales)[at];
}

fa2_status fa2i_kv8_fill_scales(const fa2i_case *c, int operand, size_t count, void *out)
{
    fa2_status st = FA2_OK;
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const size_t pitch = (size_t)e.pitch, own = (size_t)fa2i_case_scales_pitch(c);
    uint16_t *bits = NULL;
    FA2_TRY(make_rows(c, operand, count / own * pitch, &bits));
    for (size_t i = 0; i < count; i++) /* NaN between the scales */
        put_scale(&c->problem, out, i, i % own == 0 ? scale_of(c, bits + i / own * pitch, e.width, i / own) : NAN);
done:
    fa2i_free(bits);
    return st;
}

float fa2i_kv8_number(fa2_kv kv, int8_t byte)
{
    return kv == FA2_KV_FP8 ? from_e4m3((uint8_t)byte) : (float)byte;
}

/* The arithmetic is the kernel's (templates/lib/rounding.cuh), to the bit. */
float fa2i_kv8_round(const fa2_problem *problem, int columns, const float *row, int8_t *bytes)
{
    const bool is_fp8 = problem->kv == FA2_KV_FP8, in_fp16 = problem->kv_scales == FA2_SCALES_FP16;
    const float limit = (float)(is_fp8 ? E4M3_MOST : INTEGER_MOST);
    float most = 0;
    for (int i = 0; i < columns; i++)
        most = fmaxf(most, fabsf(row[i]));
    float scale = most * (1 / limit), inverse = most > 0 ? limit / most : 0;
    if (in_fp16) {
        scale = fa2i_rounded(FA2_FP16, scale);
        inverse = scale > 0 ? 1 / scale : 0;
    }
    for (int i = 0; i < columns; i++) {
        const double x = fmax((double)-limit, fmin((double)row[i] * (double)inverse, (double)limit));
        bytes[i] = is_fp8 ? (int8_t)to_e4m3((double)(float)x) : (int8_t)rint(x);
    }
    return scale;
}

void fa2i_kv8_row(const fa2_problem *problem, const fa2i_host_tensor *tensor, const fa2i_features *features, int id,
                  int64_t batch, int64_t row, int32_t head, int columns, float *out)
{
    const int64_t *strides = features->strides[id];
    const int64_t at = batch * tensor->stride_batch + row * tensor->stride_seq + head * tensor->stride_head;
    const int64_t scale_at = batch * strides[0] + row * strides[1] + head * strides[2];
    const float scale = get_scale(problem, features->data[id], scale_at % features->period[id]);
    const int8_t *bytes = tensor->data;
    for (int d = 0; d < columns; d++) {
        const int64_t i = at + d;
        out[d] = fa2i_kv8_number(problem->kv, bytes[tensor->period_elems > 0 ? i % tensor->period_elems : i]) * scale;
    }
}
