/*
 * Values are chosen so that a kernel that omits, misplaces or rounds an operand gives other results.
 */
#include "tuner/judge/feature_data.h"

#include <math.h>
#include <stdbool.h>
#include "runtime/ops/forward.h"
#include "tuner/judge/number.h"

fa2_status fa2i_fill_slopes(const fa2i_case *c, int operand, size_t count, void *out)
{
    float *slopes = out;
    (void)c;
    (void)operand;
    for (size_t i = 0; i < count; i++)
        slopes[i] = i % 11 == 10 ? 0.0f : ldexpf(1.0f, -(int)(i % 9));
    return FA2_OK;
}

fa2_status fa2i_fill_sinks(const fa2i_case *c, int operand, size_t count, void *out)
{
    static const float values[] = {0.5f, 3.0f, -2.0f, 6.0f, -INFINITY, 30.0f, -2e38f};
    float *sinks = out;
    (void)operand;
    for (size_t i = 0; i < count; i++)
        sinks[i] = values[(i + c->seed) % (sizeof values / sizeof *values)];
    return FA2_OK;
}

/* Says whether the bias hides a score. Hidden are every third field of 64 queries and 160 keys, which begin and end
 * within tiles. In every other 64 queries, some rows and one number in seven are also hidden. A timed bias hides
 * nothing, because a bias mostly only adds to scores, and a kernel may be faster then. */
static bool is_hidden(const fa2i_case *c, int64_t row, int64_t column, uint64_t random)
{
    const bool turned = c->layout == FA2I_LAYOUT_BHSD, mask = c->problem.bias == FA2_BIAS_BOOL;
    const int64_t query = turned ? column : row, key = turned ? row : column;
    if (c->timed && !mask)
        return false;
    const bool single = mask || query / 64 % 2 == 0;
    return (query / 64 + (key + 24) / 160) % 3 == 1 ||
           (single && (query % 29 == 28 || random % 7 == 0));
}

/* Returns a number that hides a key. Programs use these, and fp16 turns them into -infinity. Each is used for 64 keys
 * in a row, as many as some tiles have. */
static float hiding_number(int64_t row, int64_t column)
{
    static const float numbers[] = {-INFINITY, -1e9f,
                                    -0x1.fep127f}; /* the lowest bf16 number */
    return numbers[(row + column / 64) % 3];
}

static void put_bias(fa2_bias type, float number, bool hidden, size_t at, void *out)
{
    if (type == FA2_BIAS_BOOL)
        ((unsigned char *)out)[at] = hidden ? 0 : (unsigned char)(1 + at % 255);
    else if (type == FA2_BIAS_FP32)
        ((float *)out)[at] = number;
    else
        ((uint16_t *)out)[at] = fa2i_to_bits(type == FA2_BIAS_BF16 ? FA2_BF16 : FA2_FP16, number);
}

fa2_status fa2i_fill_bias(const fa2i_case *c, int operand, size_t count, void *out)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    uint64_t state = c->seed;
    for (size_t i = 0; i < count; i++) {
        const uint64_t random = fa2i_random(&state);
        const int64_t row = (int64_t)i / e.pitch % e.seq, column = (int64_t)i % e.pitch;
        const float value = (float)(int32_t)(random >> 32) * 0x1p-30f; /* -2 ... 2 */
        const bool hidden = is_hidden(c, row, column, random);
        put_bias(fa2i_bias_type(c->problem.bias), hidden ? hiding_number(row, column) : value,
                 hidden, i, out);
    }
    return FA2_OK;
}

fa2_status fa2i_fill_seeds(const fa2i_case *c, int operand, size_t count, void *out)
{
    uint64_t *seeds = out, state = c->seed;
    (void)operand;
    for (size_t i = 0; i < count; i++)
        seeds[i] = fa2i_random(&state);
    return FA2_OK;
}

/* Fills the bounds. The longest sequence is in the middle. */
static void fill_bounds(const fa2i_case *c, int32_t seq, int32_t total, bool overlap, size_t count,
                        int32_t *bounds)
{
    const int32_t batch = c->problem.batch, wild[] = {0, seq, 1, seq + 7, seq / 2};
    const bool is_wild = c->lengths == FA2I_LENGTHS_WILD, is_amid = c->lengths == FA2I_LENGTHS_AMID;
    const int32_t used = is_amid ? total / 2 : total;
    int32_t at = is_amid ? total / 4 : is_wild;
    for (size_t i = 0; i < count; i++) {
        const int32_t rank = batch > 1 && (int32_t)i != batch / 2;
        bounds[i] = at;
        if (is_wild && overlap && i % 4 == 3)
            bounds[i] = i % 8 == 7 ? INT32_MIN : at - 2;
        if (i + 1 < count)
            at += is_wild ? wild[i % (sizeof wild / sizeof *wild)]
                          : fa2i_forward_packed_length(batch, seq, used, rank);
    }
}

fa2_status fa2i_fill_bounds_q(const fa2i_case *c, int operand, size_t count, void *out)
{
    (void)operand;
    fill_bounds(c, c->problem.seq_q, fa2i_forward_total_q(&c->problem), false, count, out);
    return FA2_OK;
}

fa2_status fa2i_fill_bounds_k(const fa2i_case *c, int operand, size_t count, void *out)
{
    (void)operand;
    fill_bounds(c, c->problem.seq_k, fa2i_forward_total_k(&c->problem),
                c->problem.op == FA2_OP_FORWARD && !c->problem.append, count, out);
    return FA2_OK;
}

void fa2i_case_pack(fa2i_case *c, int more)
{
    fa2_problem *p = &c->problem;
    p->batch += more;
    p->total_q = p->seq_q + (p->batch - 1) * ((p->seq_q + 1) / 2);
    p->total_k = p->seq_k + (p->batch - 1) * ((p->seq_k + 1) / 2);
}

fa2_alibi fa2i_case_alibi(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX],
                          int operand)
{
    return (fa2_alibi){.slopes = (const float *)(uintptr_t)addresses[operand],
                       .stride_batch = fa2i_case_extent(c, operand).stride_batch};
}

fa2_bias_tensor fa2i_case_bias_tensor(const fa2i_case *c,
                                      const uint64_t addresses[FA2I_OPERANDS_MAX], int operand)
{
    const fa2i_bias_strides strides = fa2i_case_bias(c, operand);
    return (fa2_bias_tensor){.data = (const void *)(uintptr_t)addresses[operand],
                             .stride_batch = strides.batch,
                             .stride_head = strides.head,
                             .stride_query = strides.query,
                             .stride_key = strides.key};
}

fa2_bias_gradient fa2i_case_bias_gradient(const fa2i_case *c,
                                          const uint64_t addresses[FA2I_OPERANDS_MAX], int operand)
{
    const fa2i_bias_strides strides = fa2i_case_bias(c, operand);
    return (fa2_bias_gradient){.data = (float *)(uintptr_t)addresses[operand],
                               .stride_batch = strides.batch,
                               .stride_head = strides.head,
                               .stride_query = strides.query,
                               .stride_key = strides.key};
}

fa2_dropout fa2i_case_dropout(const fa2i_case *c, uint64_t seeds)
{
    static const float probabilities[] = {0.5f, 0.7f, 0.003f, 0.17f};
    const uint64_t *at = (const uint64_t *)(uintptr_t)seeds;
    return (fa2_dropout){.p = probabilities[c->seed % 4],
                         .seed = c->seed * 0x9e3779b97f4a7c15u,
                         .offset = c->seed * 0x100000001u,
                         .seed_at = at,
                         .offset_at = at != NULL ? at + 1 : NULL};
}

fa2_dropout fa2i_case_dropout_found(const fa2i_case *c, const uint64_t *seeds)
{
    fa2_dropout found = fa2i_case_dropout(c, 0);
    if (seeds != NULL) {
        found.seed = seeds[0];
        found.offset += seeds[1];
    }
    return found;
}

fa2i_features fa2i_case_features(const fa2i_case *c, const fa2i_feature_operands *operands,
                                 const fa2i_inputs *inputs)
{
    const fa2i_bias_strides bias = fa2i_case_bias(c, operands->bias);
    return (fa2i_features){.slopes = inputs->data[operands->slopes],
                           .slopes_stride = fa2i_case_extent(c, operands->slopes).stride_batch,
                           .sinks = inputs->data[operands->sinks],
                           .bias = inputs->data[operands->bias],
                           .dropout = fa2i_case_dropout_found(c, inputs->data[operands->seeds]),
                           .bias_period = (int64_t)inputs->period[operands->bias],
                           .bias_batch = bias.batch,
                           .bias_head = bias.head,
                           .bias_query = bias.query,
                           .bias_key = bias.key};
}
