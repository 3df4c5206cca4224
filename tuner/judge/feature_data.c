/*
 * Values are chosen so that a kernel that omits, misplaces or rounds an operand gives other results.
 */
#include "tuner/judge/feature_data.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "runtime/ops/forward.h"
#include "tuner/judge/kv8.h"
#include "tuner/judge/merge.h"
#include "tuner/judge/number.h"

/* Slopes from 1 to 1/256, and a 0. */
static void fill_slopes(const fa2i_case *c, int operand, size_t count, void *out)
{
    float *slopes = out;
    (void)c;
    (void)operand;
    for (size_t i = 0; i < count; i++)
        slopes[i] = i % 11 == 10 ? 0.0f : ldexpf(1.0f, -(int)(i % 9));
}

/* A sink is far below to far above the scores of a row, or -infinity. */
static void fill_sinks(const fa2i_case *c, int operand, size_t count, void *out)
{
    static const float values[] = {0.5f, 3.0f, -2.0f, 6.0f, -INFINITY, 30.0f, -2e38f};
    float *of_heads = out;
    (void)operand;
    for (size_t i = 0; i < count; i++)
        of_heads[i] = values[(i + c->seed) % (sizeof values / sizeof *values)];
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
    return (query / 64 + (key + 24) / 160) % 3 == 1 || (single && (query % 29 == 28 || random % 7 == 0));
}

/* Returns a number that hides a key. Programs use these, and fp16 turns them into -infinity. Each is used for 64 keys
 * in a row, as many as some tiles have. */
static float hiding_number(int64_t row, int64_t column)
{
    static const float numbers[] = {-INFINITY, -1e9f, -0x1.fep127f}; /* the lowest bf16 number */
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

/* Numbers of magnitude 1, or a mask. Tiles, rows and single keys are hidden. */
static void fill_bias(const fa2i_case *c, int operand, size_t count, void *out)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    uint64_t state = c->seed;
    for (size_t i = 0; i < count; i++) {
        const uint64_t random = fa2i_random(&state);
        const int64_t row = (int64_t)i / e.pitch % e.seq, column = (int64_t)i % e.pitch;
        const float value = (float)(int32_t)(random >> 32) * 0x1p-30f; /* -2 ... 2 */
        const bool hidden = is_hidden(c, row, column, random);
        put_bias(fa2i_bias_type(c->problem.bias), hidden ? hiding_number(row, column) : value, hidden, i, out);
    }
}

/* The seed and the offset are two random numbers. */
static void fill_seeds(const fa2i_case *c, int operand, size_t count, void *out)
{
    uint64_t *number = out, state = c->seed;
    for (size_t i = 0; i < count; i++) {
        number[i] = fa2i_random(&state);
        if (operand == fa2i_case_feature(c, FA2I_OPERAND_offset_at))
            number[i] = fa2i_random(&state);
    }
}

/* Fills the bounds. The longest sequence is in the middle. */
static void fill_bounds(const fa2i_case *c, int32_t seq, int32_t total, bool overlap, size_t count, int32_t *bounds)
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
            at += is_wild ? wild[i % (sizeof wild / sizeof *wild)] : fa2i_forward_packed_length(batch, seq, used, rank);
    }
}

/* Bounds of packed sequences. WILD ones begin after the first row, are too long or empty, and go on past the last row.
 * If keys are neither written nor rounded to integers, key ranges overlap, and some bounds lie far before the first
 * row. */
static void fill_bounds_q(const fa2i_case *c, int operand, size_t count, void *out)
{
    (void)operand;
    fill_bounds(c, c->problem.seq_q, fa2i_forward_total_q(&c->problem), false, count, out);
}

static void fill_bounds_k(const fa2i_case *c, int operand, size_t count, void *out)
{
    const fa2_problem *p = &c->problem;
    const bool overlap = p->op == FA2_OP_FORWARD && !p->append && p->scores != FA2_SCORES_INT8;
    (void)operand;
    fill_bounds(c, p->seq_k, fa2i_forward_total_k(p), overlap, count, out);
}

/* In mixed order, so that neighbours differ. Leaves room for new keys. */
static int32_t length_of(const fa2i_case *c, int32_t batch)
{
    static const int32_t wild[] = {INT32_MAX, 0, -1, 1, INT32_MIN};
    const fa2_problem *p = &c->problem;
    const int32_t kinds = (int32_t)(sizeof wild / sizeof *wild);
    if (c->lengths == FA2I_LENGTHS_WILD && batch % 2 == 0 && batch / 2 < kinds)
        return wild[batch / 2];
    const int32_t length = fa2i_forward_length(p, (int32_t)((int64_t)batch * 7919 % p->batch));
    const int32_t new_keys = p->append ? fa2i_case_new_keys(c) : 0;
    return length > new_keys ? length - new_keys : 0;
}

static void fill_lengths(const fa2i_case *c, int operand, size_t count, void *out)
{
    int32_t *lengths = out;
    (void)operand;
    for (size_t i = 0; i < count; i++)
        lengths[i] = length_of(c, (int32_t)i);
}

/* In mixed order, no page twice, and never the last page. Some WILD entries are negative or past the last page. */
static void fill_table(const fa2i_case *c, int operand, size_t count, void *out)
{
    const int64_t pages = fa2i_case_pages(&c->problem) - 1, step = pages % 7919 != 0 ? 7919 : 1;
    /* Entries that are out of range mean the same page. The bounds of rounded scores count no such repeats, so they get
     * one of these for each sequence. */
    const size_t often = c->problem.scores == FA2_SCORES_EXACT ? count : 5;
    const size_t row = count / (size_t)(c->problem.cache_rows ? fa2i_case_cache_rows(&c->problem) : c->problem.batch);
    int32_t *table = out;
    (void)operand;
    for (size_t i = 0; i < count; i++) {
        table[i] = (int32_t)((int64_t)i * step % pages);
        if (c->lengths == FA2I_LENGTHS_WILD && i % 5 == 4 && i % row < often)
            table[i] = i % 2 == 0 ? -1 : INT32_MAX;
    }
}

/* Less padding than a sequence has keys, unless it has none. Some WILD values are negative, more than all keys, or all
 * of them. */
static void fill_leftpad(const fa2i_case *c, int operand, size_t count, void *out)
{
    const int32_t wild[] = {-1, INT32_MAX, c->problem.seq_k, 1, INT32_MIN};
    int32_t *pads = out;
    (void)operand;
    for (size_t i = 0; i < count; i++) {
        const int32_t length = c->problem.seqused ? length_of(c, (int32_t)i) : c->problem.seq_k;
        pads[i] = length / 3 * (i % 3 != 1);
        if (c->lengths == FA2I_LENGTHS_WILD && i % 4 == 3)
            pads[i] = wild[i / 4 % (sizeof wild / sizeof *wild)];
    }
}

/* Each row once, in reverse, without the last two. Some WILD entries are negative or past the last row. */
static void fill_cache_rows(const fa2i_case *c, int operand, size_t count, void *out)
{
    int32_t *rows = out;
    (void)operand;
    for (size_t i = 0; i < count; i++) {
        rows[i] = c->problem.batch - 1 - (int32_t)i;
        if (c->lengths == FA2I_LENGTHS_WILD && i % 5 == 2)
            rows[i] = i % 2 == 0 ? INT32_MIN : fa2i_case_cache_rows(&c->problem);
    }
}

/* One row per position, with frequencies from 1 down to 1/10000. */
static void fill_angles(const fa2i_case *c, int operand, size_t count, void *out)
{
    const size_t pairs = (size_t)c->problem.rotary_dim / 2;
    for (size_t i = 0; i < count; i++) {
        const double frequency = pow(10000, -(double)(i % pairs) / (double)pairs);
        const double angle = (double)(i / pairs) * frequency;
        fa2i_put_number(c->problem.dtype, out, i,
                        (float)(operand == fa2i_case_feature(c, FA2I_OPERAND_rotary_cos) ? cos(angle) : sin(angle)));
    }
}

/* New keys and values. */
static void fill_rows(const fa2i_case *c, int operand, size_t count, void *out)
{
    fa2i_case_fill_normal(c, operand, 1, count, out);
}

/* Numbers from -2 to 2, for operands without values of their own. */
static void fill_floats(const fa2i_case *c, int operand, size_t count, void *out)
{
    float *numbers = out;
    uint64_t state = c->seed + (uint64_t)operand;
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)(int32_t)(fa2i_random(&state) >> 32) * 0x1p-30f;
}

fa2_status fa2i_feature_fill(const fa2i_case *c, int operand, size_t count, void *out)
{
    static void (*const fills[FA2I_OPERAND_COUNT])(const fa2i_case *, int, size_t,
                                                   void *) = {[FA2I_OPERAND_alibi_slopes] = fill_slopes,
                                                              [FA2I_OPERAND_sinks] = fill_sinks,
                                                              [FA2I_OPERAND_bias] = fill_bias,
                                                              [FA2I_OPERAND_seed_at] = fill_seeds,
                                                              [FA2I_OPERAND_offset_at] = fill_seeds,
                                                              [FA2I_OPERAND_seqused_k] = fill_lengths,
                                                              [FA2I_OPERAND_cu_seqlens_q] = fill_bounds_q,
                                                              [FA2I_OPERAND_cu_seqlens_k] = fill_bounds_k,
                                                              [FA2I_OPERAND_block_table] = fill_table,
                                                              [FA2I_OPERAND_leftpad] = fill_leftpad,
                                                              [FA2I_OPERAND_cache_rows] = fill_cache_rows,
                                                              [FA2I_OPERAND_new_k] = fill_rows,
                                                              [FA2I_OPERAND_new_v] = fill_rows,
                                                              [FA2I_OPERAND_rotary_cos] = fill_angles,
                                                              [FA2I_OPERAND_rotary_sin] = fill_angles};
    const int id = operand - fa2i_case_feature(c, 0);
    if (id == FA2I_OPERAND_k_scale || id == FA2I_OPERAND_v_scale)
        return fa2i_kv8_fill_scales(c, id == FA2I_OPERAND_k_scale ? FA2I_FORWARD_K : FA2I_FORWARD_V, count, out);
    if (id == FA2I_OPERAND_carried)
        return fa2i_merged_fill(c, operand, count, out);
    (fills[id] != NULL ? fills[id] : fill_floats)(c, operand, count, out);
    return FA2_OK;
}

void fa2i_case_pack(fa2i_case *c, int more)
{
    fa2_problem *p = &c->problem;
    p->batch += more;
    p->total_q = p->seq_q + (p->batch - 1) * ((p->seq_q + 1) / 2);
    p->total_k = p->seq_k + (p->batch - 1) * ((p->seq_k + 1) / 2);
}

/* ---- calls and references ---- */

/* Strides of an operand as a call gets them, in the order of its dimensions. */
static void find_strides(const fa2i_case *c, int id, int64_t strides[FA2I_OPERAND_RANK])
{
    const int operand = fa2i_case_feature(c, (fa2i_operand_id)id);
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const fa2i_bias_strides bias = fa2i_case_bias(c, operand);
    const bool is_bias = fa2i_operands[id].strides == FA2I_OPERAND_RANK;
    const int64_t rows[] = {e.stride_batch, e.stride_seq, e.stride_head, 0};
    const int64_t of_bias[] = {bias.batch, bias.head, bias.query, bias.key};
    memcpy(strides, is_bias ? of_bias : rows, sizeof rows);
}

/* The dropout of a case, with the seed and the offset as values. */
static fa2_dropout dropout_of(const fa2i_case *c)
{
    static const float probabilities[] = {0.5f, 0.7f, 0.003f, 0.17f};
    return (fa2_dropout){
        .p = probabilities[c->seed % 4], .seed = c->seed * 0x9e3779b97f4a7c15u, .offset = c->seed * 0x100000001u};
}

fa2_dropout fa2i_case_dropout_found(const fa2i_case *c, const uint64_t *seed, const uint64_t *offset)
{
    fa2_dropout found = dropout_of(c);
    if (seed != NULL)
        found.seed = *seed;
    if (offset != NULL)
        found.offset += *offset;
    return found;
}

fa2_dropout_origin fa2i_case_origin(const fa2i_case *c)
{
    const int32_t part = (int32_t)((c->seed + 1) % 3);
    return (fa2_dropout_origin){.row = 64 * part,
                                .column = 192 * part,
                                .head = part * 2,
                                .heads = part == 0 ? 0 : c->problem.heads_q + part * 3};
}

float fa2i_case_shift(const fa2i_case *c)
{
    static const float shifts[] = {0, 2.75f, -7.5f};
    const float shift = shifts[(c->seed + 1) % 3];
    return c->problem.causal ? fabsf(shift) : shift;
}

/* Puts the operands of features and the factors of the call. */
static void put_operands(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX], void *args)
{
    fa2i_factors_put(c->problem.op, args, &c->factors);
    for (int id = 0; id < FA2I_OPERAND_COUNT; id++) {
        int64_t strides[FA2I_OPERAND_RANK];
        find_strides(c, id, strides);
        fa2i_operand_put(c->problem.op, args, id,
                         (const void *)(uintptr_t)addresses[fa2i_case_feature(c, (fa2i_operand_id)id)], strides);
    }
}

void fa2i_case_put_forward(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX], fa2_forward_args *args)
{
    const fa2_problem *p = &c->problem;
    args->dropout = dropout_of(c);
    args->dropout_origin = fa2i_case_origin(c);
    args->distance_shift = fa2i_case_shift(c);
    args->page_count = p->paged ? fa2i_case_pages(p) : 0;
    args->cache_row_count = p->cache_rows ? fa2i_case_cache_rows(p) : 0;
    args->append.seq = fa2i_case_new_keys(c);
    args->rotary.rows = fa2i_case_positions(p);
    put_operands(c, addresses, args);
}

void fa2i_case_put_backward(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX], fa2_backward_args *args)
{
    args->dropout = dropout_of(c);
    args->dropout_origin = fa2i_case_origin(c);
    args->distance_shift = fa2i_case_shift(c);
    put_operands(c, addresses, args);
}

fa2i_features fa2i_case_features(const fa2i_case *c, const fa2i_inputs *inputs)
{
    const int first = fa2i_case_feature(c, 0);
    fa2i_features features = {.dropout = fa2i_case_dropout_found(c, inputs->data[first + FA2I_OPERAND_seed_at],
                                                                 inputs->data[first + FA2I_OPERAND_offset_at]),
                              .origin = fa2i_case_origin(c),
                              .distance_shift = fa2i_case_shift(c)};
    for (int id = 0; id < FA2I_OPERAND_COUNT; id++) {
        features.data[id] = inputs->data[first + id];
        features.period[id] = (int64_t)inputs->period[first + id];
        find_strides(c, id, features.strides[id]);
    }
    return features;
}

fa2i_said fa2i_case_said(const fa2i_case *c, const fa2i_inputs *inputs)
{
    const fa2_problem *p = &c->problem;
    const void *const *data = inputs->data + fa2i_case_feature(c, 0);
    return (fa2i_said){.seqused_k = data[FA2I_OPERAND_seqused_k],
                       .cu_seqlens_q = data[FA2I_OPERAND_cu_seqlens_q],
                       .cu_seqlens_k = data[FA2I_OPERAND_cu_seqlens_k],
                       .block_table = data[FA2I_OPERAND_block_table],
                       .columns = p->paged ? fa2i_case_columns(p) : 0,
                       .pages = p->paged ? fa2i_case_pages(p) : 0,
                       .leftpad = data[FA2I_OPERAND_leftpad],
                       .cache_rows = data[FA2I_OPERAND_cache_rows],
                       .cache_row_count = p->cache_rows ? fa2i_case_cache_rows(p) : 0,
                       .new_keys = fa2i_case_new_keys(c)};
}
