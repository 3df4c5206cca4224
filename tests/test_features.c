/*
 * Features that change scores and P, on the host: checks of their arguments, the kernels' parameters, and the judge's
 * expected results against the definition, element by element.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include "check.h"
#include "runtime/ops/dropout.h"
#include "runtime/ops/op.h"
#include "tuner/judge/feature_data.h"
#include "tuner/judge/number.h"
#include "tuner/judge/verify.h"

static const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                    .batch = 2,
                                    .heads_q = 8,
                                    .heads_kv = 2,
                                    .seq_q = 100,
                                    .seq_k = 200,
                                    .head_dim = 64};
static const fa2i_grid plain_grid = {.blocks = {32}, .splits = 1};

/* [B, S, H, D], at addresses that are never read, with all features. */
static fa2_forward_args good_args(void)
{
    const fa2_tensor q = {(void *)0x1000000, 64 * 8 * 100, 64 * 8, 64};
    const fa2_tensor k = {(void *)0x2000000, 64 * 2 * 200, 64 * 2, 64};
    fa2_forward_args args = {
        .struct_bytes = sizeof(fa2_forward_args), .q = q, .k = k, .v = k, .o = q, .lse = (void *)0x5000000};
    args.v.data = (void *)0x3000000;
    args.o.data = (void *)0x4000000;
    args.softcap = 1;
    args.alibi = (fa2_alibi){(void *)0x6000004, 8};
    args.sinks = (void *)0x7000004;
    args.dropout = (fa2_dropout){.p = 0.25f, .seed = 1, .offset = 2};
    args.bias = (fa2_bias_tensor){(void *)0x8000004, 0, 200 * 100, 200, 1};
    return args;
}

static fa2_problem with(int field, int32_t value)
{
    fa2_problem p = problem;
    fa2i_field_set(&p, field, value);
    return p;
}

/* ---- arguments ---- */

/* A value for a member of good arguments. */
typedef struct bad_value {
    int field; /* the feature that needs the member, and its value in the problem */
    int32_t asked;
    size_t offset;
    int64_t value;
    const char *said;
} bad_value;

#define AT(member) offsetof(fa2_forward_args, member)

static const bad_value bad_values[] = {
    {FA2I_FIELD_alibi, 1, AT(alibi.slopes), 0, "alibi.slopes is NULL, but problem.alibi is 1"},
    {FA2I_FIELD_alibi, 1, AT(alibi.slopes), 0x6000002, "it must be a multiple of 4 bytes"},
    {FA2I_FIELD_alibi, 1, AT(alibi.slopes), 0x4000000, "o shares memory with alibi.slopes"},
    {FA2I_FIELD_alibi, 1, AT(alibi.slopes), 0x5000000 - 16, "lse shares memory with alibi.slopes"},
    {FA2I_FIELD_alibi, 1, AT(alibi.stride_batch), -1,
     "alibi.stride_batch is -1; with an extent of 2 it must be from 0 to 36028797018963968"},
    {FA2I_FIELD_alibi, 1, AT(alibi.stride_batch), INT64_MAX, "alibi.stride_batch is 922337203685"},
    {FA2I_FIELD_alibi, 1, AT(distance_shift), 0x7fc00000, "distance_shift is nan"},
    {FA2I_FIELD_alibi, 1, AT(distance_shift), 0x4c000000, "distance_shift is 3.35544e+07; it must be from"},
    {FA2I_FIELD_sinks, 1, AT(sinks), 0, "sinks is NULL, but problem.sinks is 1"},
    {FA2I_FIELD_sinks, 1, AT(sinks), 0x7000001, "sinks is 0x7000001; it must be a multiple of 4"},
    {FA2I_FIELD_sinks, 1, AT(sinks), 0x4000010, "o shares memory with sinks"},
    {FA2I_FIELD_bias, FA2_BIAS_BOOL, AT(bias.data), 0, "bias.data is NULL, but problem.bias is bool"},
    {FA2I_FIELD_bias, FA2_BIAS_FP16, AT(bias.data), 0x8000001, "it must be a multiple of 2 bytes"},
    {FA2I_FIELD_bias, FA2_BIAS_FP32, AT(bias.data), 0x8000002, "it must be a multiple of 4 bytes"},
    {FA2I_FIELD_bias, FA2_BIAS_BOOL, AT(bias.data), 0x4000fff, "o shares memory with bias"},
    {FA2I_FIELD_bias, FA2_BIAS_BF16, AT(bias.data), 0x5000000 - 200 * 100, "lse shares memory with bias"},
    {FA2I_FIELD_bias, FA2_BIAS_FP32, AT(bias.stride_batch), -1,
     "bias.stride_batch is -1; with an extent of 2 it must be from 0 to 36028797018963968"},
    {FA2I_FIELD_bias, FA2_BIAS_FP32, AT(bias.stride_head), INT64_MAX, "bias.stride_head is 92233"},
    {FA2I_FIELD_bias, FA2_BIAS_BOOL, AT(bias.stride_query), INT64_C(1) << 57, "bias.stride_query"},
    {FA2I_FIELD_bias, FA2_BIAS_FP16, AT(bias.stride_key), -8, "bias.stride_key is -8"},
    {FA2I_FIELD_dropout, 1, AT(dropout.p), 0x3f800000, "dropout.p is 1; it must be at least 0 and less than 1"},
    {FA2I_FIELD_dropout, 1, AT(dropout.p), 0xbe800000, "dropout.p is -0.25"},
    {FA2I_FIELD_dropout, 1, AT(dropout.p), 0x7fc00000, "dropout.p is nan"},
    {FA2I_FIELD_dropout, 1, AT(dropout.seed_at), 0x9000004,
     "dropout.seed_at is 0x9000004; it must be a multiple of 8 bytes"},
    {FA2I_FIELD_dropout, 1, AT(dropout.offset_at), 0x9000001, "dropout.offset_at is 0x9000001"},
    {FA2I_FIELD_dropout, 1, AT(dropout.seed_at), 0x4000008, "o shares memory with dropout.seed_at"},
    {FA2I_FIELD_dropout, 1, AT(dropout.offset_at), 0x5000008, "lse shares memory with dropout.offset_at"},
    {FA2I_FIELD_dropout, 1, AT(dropout_origin.row), 32,
     "dropout_origin.row is 32; it must be a multiple of 64 from 0 to 2147483520"},
    {FA2I_FIELD_dropout, 1, AT(dropout_origin.row), -64, "dropout_origin.row is -64; it must be"},
    {FA2I_FIELD_dropout, 1, AT(dropout_origin.column), 65, "dropout_origin.column is 65; it must be a multiple of 64"},
    {FA2I_FIELD_dropout, 1, AT(dropout_origin.column), 0x7fffffc0, "dropout_origin.column is 2147483584; it must be"},
    {FA2I_FIELD_dropout, 1, AT(dropout_origin.head), -1, "dropout_origin.head is -1; it must be from 0 to 1073741815"},
    {FA2I_FIELD_dropout, 1, AT(dropout_origin.head), 3,
     "dropout_origin.heads is 0; it must be from 11 to 1073741823: the call has 8 heads from head 3 on"},
    {FA2I_FIELD_dropout, 1, AT(dropout_origin.heads), 3, "dropout_origin.heads is 3; it must be from 8"},
    {FA2I_FIELD_dropout, 1, AT(dropout_origin.heads), 0x40000000, "dropout_origin.heads is 1073741824; it must be"},
};

static void check_bad(const fa2_problem *p, const fa2_forward_args *args, const char *said)
{
    const fa2i_op *op = fa2i_op_of(p);
    CHECK_EQ(op->check_args(p, args, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
    CHECK_EQ(op->check_args(p, args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
}

static void check_good(const fa2_problem *p, const fa2_forward_args *args)
{
    CHECK_EQ(fa2i_op_of(p)->check_args(p, args, &plain_grid), FA2_OK);
    if (fa2i_op_of(p)->check_args(p, args, &plain_grid) != FA2_OK)
        fprintf(stderr, "%s\n", fa2_last_message());
}

/* A bad value is refused if the problem has the feature, and ignored otherwise. */
static void test_bad_values(void)
{
    for (size_t i = 0; i < sizeof bad_values / sizeof *bad_values; i++) {
        const bad_value *bad = &bad_values[i];
        const fa2_problem p = with(bad->field, bad->asked);
        fa2_forward_args args = good_args();
        check_good(&p, &args);
        const bool is_short = bad->offset == AT(dropout.p) || bad->offset >= AT(dropout_origin);
        const size_t bytes = is_short ? sizeof(float) : sizeof bad->value;
        memcpy((char *)&args + bad->offset, &bad->value, bytes);
        check_bad(&p, &args, bad->said);
        check_good(&problem, &args);
    }
}

static fa2i_feature_params fill(const fa2_problem *p, const fa2_forward_args *args)
{
    fa2i_params params;
    fa2i_op_of(p)->fill(&plain_grid, p, args, &params);
    return params.forward.features;
}

/* Additions to scores are divided by the scale. A batch of 1 has no stride. */
static void test_scale_and_stride(void)
{
    fa2_problem p = with(FA2I_FIELD_alibi, 1);
    fa2_forward_args args = good_args();
    args.distance_shift = -2.5f;
    p.causal = 1;
    check_bad(&p, &args, "distance_shift is -2.5; it must be from 0 to 1.67772e+07, because the problem is causal");
    p.causal = 0;
    check_good(&p, &args);
    CHECK(fill(&p, &args).distance_shift == -2.5f);
    const fa2_problem biased = with(FA2I_FIELD_bias, FA2_BIAS_FP32);
    args.distance_shift = NAN;
    check_good(&biased, &args);
    CHECK(fill(&biased, &args).distance_shift == 0);
    args.distance_shift = 0;
    args.softmax_scale = 1e-31f;
    check_bad(&p, &args, "the scale of scores is 1e-31; it must be at least 1e-30");
    p.softcap = 1;
    check_good(&p, &args);
    args = good_args();
    p.softcap = 0;
    p.batch = 1;
    args.alibi.stride_batch = -1;
    check_good(&p, &args);
}

/* ---- parameters of kernels ---- */

static void test_params(void)
{
    const fa2i_feature_params none = {0};
    const fa2_forward_args args = good_args();
    fa2i_feature_params got = fill(&problem, &args);
    CHECK_EQ(memcmp(&got, &none, sizeof got), 0);
    fa2_problem p = with(FA2I_FIELD_alibi, 1);
    got = fill(&p, &args);
    CHECK(got.alibi_slopes == 0x6000004 && got.alibi_stride == 8 && got.sinks == 0);
    CHECK(got.inverse_scale == 8.0f);
    p.softcap = 1;
    CHECK(fill(&p, &args).inverse_scale == 1.0f);
    p = with(FA2I_FIELD_bias, FA2_BIAS_BF16); /* the value is the sum of two bf16 numbers */
    fa2_forward_args odd = good_args();
    odd.softmax_scale = 0.0883883f;
    got = fill(&p, &odd);
    CHECK(got.inverse_scale == 11.3125f + 0x1.3ep-10f);
    p = with(FA2I_FIELD_bias, FA2_BIAS_FP16);
    CHECK(fill(&p, &odd).inverse_scale == (float)(1 / (double)0.0883883f));
    p = with(FA2I_FIELD_sinks, 1);
    got = fill(&p, &args);
    CHECK(got.sinks == 0x7000004 && got.alibi_slopes == 0);
}

/* Pairs of neighbours are read at once if they are adjacent and aligned, in every row. */
static void test_side(void)
{
    static const struct {
        fa2_bias type;
        fa2_bias_tensor bias;
        int side;
    } cases[] = {
        {FA2_BIAS_FP16, {(void *)0x8000010, 0, 20000, 200, 1}, 8},
        {FA2_BIAS_FP16, {(void *)0x8000008, 0, 20000, 200, 1}, 2},
        {FA2_BIAS_FP16, {(void *)0x8000002, 0, 20000, 200, 1}, 1},
        {FA2_BIAS_FP32, {(void *)0x8000004, 0, 20000, 200, 1}, 1},
        {FA2_BIAS_FP32, {(void *)0x8000008, 0, 20000, 200, 1}, 2},
        {FA2_BIAS_FP32, {(void *)0x8000010, 0, 20000, 200, 1}, 8},
        {FA2_BIAS_BOOL, {(void *)0x8000008, 0, 0, 0, 1}, 8},
        {FA2_BIAS_BOOL, {(void *)0x8000002, 0, 0, 0, 1}, 2},
        {FA2_BIAS_BOOL, {(void *)0x8000001, 0, 0, 0, 1}, 1},
        {FA2_BIAS_BF16, {(void *)0x8000010, 4, 0, 200, 1}, 2},
        {FA2_BIAS_BF16, {(void *)0x8000010, 0, 3, 200, 1}, 1},
        {FA2_BIAS_BF16, {(void *)0x8000010, 0, 0, 202, 1}, 2},
        {FA2_BIAS_BF16, {(void *)0x8000010, 0, 0, 200, 2}, 1},
        {FA2_BIAS_BF16, {(void *)0x8000010, 0, 0, 200, 0}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fa2_problem p = with(FA2I_FIELD_bias, (int32_t)cases[i].type);
        fa2_forward_args args = good_args();
        args.bias = cases[i].bias;
        check_good(&p, &args);
        const fa2i_feature_params got = fill(&p, &args);
        CHECK_EQ(got.bias_side, cases[i].side);
        CHECK(got.bias_query == args.bias.stride_query && got.bias_key == args.bias.stride_key);
    }
    fa2_problem single = with(FA2I_FIELD_bias, FA2_BIAS_FP32);
    fa2_forward_args args = good_args();
    single.seq_q = 1; /* then the query stride is not used */
    args.bias = (fa2_bias_tensor){(void *)0x8000010, 0, 0, 7, 1};
    CHECK_EQ(fill(&single, &args).bias_side, 8);
    single.seq_k = 1; /* likewise; kernels get the same parameters as for pairs */
    args.bias.stride_key = 1;
    const fa2i_feature_params side = fill(&single, &args);
    args.bias.stride_key = 5;
    const fa2i_feature_params apart = fill(&single, &args);
    CHECK_EQ(apart.bias_side, 8);
    CHECK_EQ(memcmp(&apart, &side, sizeof side), 0);
    single.bias = FA2_BIAS_FP16;
    CHECK(!fa2i_bias_is_scattered(&single, &args.bias));
}

/* ---- dropout ---- */

static void test_threshold(void)
{
    static const struct {
        float p;
        int byte;
    } cases[] = {{0, 0},      {1e-9f, 0},  {0.003f, 0},    {0.004f, 1}, {0.17f, 43},
                 {0.5f, 128}, {0.9f, 230}, {0.9999f, 255}, {0.25f, 64}, {0.99999994f, 255}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fa2_forward_args args = good_args();
        const fa2_problem p = with(FA2I_FIELD_dropout, 1);
        const fa2i_dropout_threshold t = fa2i_dropout_threshold_of(cases[i].p);
        CHECK_EQ(t.byte, cases[i].byte);
        CHECK(fabs((t.byte + ldexp(t.part, -32)) / 256 - (double)cases[i].p) <= ldexp(1, -40));
        args.dropout.p = cases[i].p;
        const fa2i_feature_params got = fill(&p, &args);
        CHECK_EQ(got.drop_bound, (int32_t)fa2i_dropout_bound(t.byte));
        CHECK_EQ((uint32_t)got.drop_part, t.part);
        CHECK(got.keep_scale == (float)(1 / (1 - (double)cases[i].p)));
        CHECK(got.seed == 1 && got.offset == 2 && got.seed_at == 0);
    }
}

/* Parts that tile a call drop its elements, by the reference and by the numbers that kernels get. */
static void test_origin(void)
{
    enum { B = 2, HQ = 4, SQ = 200, SK = 150 };
    const fa2_problem whole = {.struct_bytes = sizeof whole,
                               .batch = B,
                               .heads_q = HQ,
                               .heads_kv = HQ,
                               .seq_q = SQ,
                               .seq_k = SK,
                               .head_dim = 64,
                               .dropout = 1};
    const fa2_problem part = {.dropout = 1, .batch = B, .heads_q = 1, .seq_q = 136, .seq_k = 22};
    fa2i_features features = {.dropout = {.p = 0.4f, .seed = 7, .offset = 3},
                              .origin = {.row = 64, .column = 128, .head = 3, .heads = HQ}};
    static uint8_t mask[B][HQ][SQ][SK];
    int wrong = 0;
    CHECK_EQ(fa2_dropout_mask(&whole, &features.dropout, &mask[0][0][0][0]), FA2_OK);
    for (int b = 0; b < B; b++)
        for (int i = 0; i < part.seq_q; i++)
            for (int j = 0; j < part.seq_k; j++)
                wrong += (fa2i_kept(&part, &features, b, 0, i, j) > 0) != mask[b][3][64 + i][128 + j];
    CHECK_EQ(wrong, 0);

    fa2_forward_args args = good_args();
    const fa2_problem p = with(FA2I_FIELD_dropout, 1);
    CHECK_EQ(fill(&p, &args).drop_heads, p.heads_q);
    args.dropout_origin = (fa2_dropout_origin){.row = 64, .column = 128, .head = 3, .heads = 12};
    const fa2i_feature_params got = fill(&p, &args);
    CHECK(got.drop_row == 64 && got.drop_pair == 64 && got.drop_head == 3 && got.drop_heads == 12);
    check_good(&p, &args);
}

/* ---- expected results ---- */

/* Forward's operands of a case, in their order. */
enum {
    Q,
    K,
    V,
    O,
    LSE,
    FEATURES,
    SLOPES = FEATURES + FA2I_OPERAND_alibi_slopes,
    SINKS = FEATURES + FA2I_OPERAND_sinks,
    BIAS = FEATURES + FA2I_OPERAND_bias,
    SEED = FEATURES + FA2I_OPERAND_seed_at,
    OFFSET = FEATURES + FA2I_OPERAND_offset_at,
    OPERANDS = FEATURES + FA2I_OPERAND_COUNT
};

typedef struct data {
    fa2i_case c;
    void *blocks[OPERANDS];
} data;

static double number(const data *d, int operand, int b, int h, int row, int column)
{
    const fa2i_extent e = fa2i_case_extent(&d->c, operand);
    const int64_t at = fa2i_extent_at(&e, b, h, row) + column;
    if (e.elem_bytes == sizeof(float))
        return (double)((float *)d->blocks[operand])[at];
    return (double)fa2i_from_bits(d->c.problem.dtype, ((uint16_t *)d->blocks[operand])[at]);
}

/* Reads the bias from the case's own places, from which its strides were made. */
static double bias_of(const data *d, int b, int h, int i, int j)
{
    const fa2i_bias_strides s = fa2i_case_bias(&d->c, BIAS);
    const int64_t at = b * s.batch + h * s.head + i * s.query + j * s.key;
    const void *bias = d->blocks[BIAS];
    switch (d->c.problem.bias) {
    case FA2_BIAS_FP16:
    case FA2_BIAS_BF16:
        return (double)fa2i_from_bits(d->c.problem.bias == FA2_BIAS_FP16 ? FA2_FP16 : FA2_BF16,
                                      ((const uint16_t *)bias)[at]);
    case FA2_BIAS_FP32:
        return (double)((const float *)bias)[at];
    case FA2_BIAS_BOOL:
        return ((const unsigned char *)bias)[at] ? 0 : -INFINITY;
    default:
        break;
    }
    return 0;
}

/* Returns a score as fa2.h defines it, -INFINITY if the key is hidden. */
static double score_of(const data *d, int b, int h, int i, int j)
{
    const fa2_problem *p = &d->c.problem;
    const int distance = i + p->seq_k - p->seq_q - j;
    double score = 0;
    if ((p->causal && distance < 0) || (p->window && distance > p->window_left))
        return -INFINITY;
    for (int c = 0; c < p->head_dim; c++)
        score += number(d, Q, b, h, i, c) * number(d, K, b, h / (p->heads_q / p->heads_kv), j, c);
    score /= sqrt(p->head_dim);
    if (p->softcap)
        score = (double)d->c.factors.softcap * tanh(score / (double)d->c.factors.softcap);
    if (p->alibi)
        score -= number(d, SLOPES, b, 0, 0, h) * fabs(distance + (double)fa2i_case_shift(&d->c));
    score += bias_of(d, b, h, i, j);
    return p->bias != FA2_BIAS_NONE && p->bias != FA2_BIAS_BOOL && score < -524288 ? -INFINITY : score;
}

static void check_row(const data *d, const fa2i_expected *e, size_t row)
{
    const fa2_problem *p = &d->c.problem;
    const fa2i_place *at = &e->outputs[0].places[row];
    const double sink = p->sinks ? number(d, SINKS, 0, 0, 0, at->head) : -INFINITY;
    const fa2_dropout drop =
        fa2i_case_dropout_found(&d->c, fa2i_case_operand_bytes(&d->c, SEED) > 0 ? d->blocks[SEED] : NULL,
                                fa2i_case_operand_bytes(&d->c, OFFSET) > 0 ? d->blocks[OFFSET] : NULL);
    const fa2_dropout_origin origin = fa2i_case_origin(&d->c);
    double sum = exp(sink), o[64] = {0}; /* a sink of -1e9 alone has a sum of 0 */
    bool none = true;
    for (int j = 0; j < p->seq_k; j++) {
        const double score = score_of(d, at->batch, at->head, at->row, j);
        none = none && isinf(score);
        sum += exp(score);
        const int plane = at->batch * (origin.heads != 0 ? origin.heads : p->heads_q) + origin.head + at->head;
        if (p->dropout &&
            !fa2i_dropout_keeps(drop.p, drop.seed, drop.offset, plane, origin.row + at->row, origin.column + j))
            continue;
        for (int c = 0; c < p->head_dim; c++)
            o[c] += exp(score) * number(d, V, at->batch, at->head / (p->heads_q / p->heads_kv), j, c);
    }
    CHECK_EQ(e->outputs[0].exact[row], none);
    for (int c = 0; c < p->head_dim; c++) {
        const double kept = p->dropout ? (double)fa2i_dropout_scale(drop.p) : 1;
        const double wanted = none ? 0 : kept * o[c] / sum;
        CHECK(fabs(e->outputs[0].values[row * (size_t)p->head_dim + (size_t)c] - wanted) < 1e-11);
    }
    if (none && !isinf(sink))
        CHECK(e->outputs[1].values[row] == sink);
    else if (sum == 0)
        CHECK(isinf(e->outputs[1].values[row]) && e->outputs[1].exact[row]);
    else
        CHECK(fabs(e->outputs[1].values[row] - log(sum)) < 1e-11);
}

static void test_definition(const fa2_problem *class, fa2i_layout layout)
{
    data d = {.c = {.problem = *class,
                    .layout = layout,
                    .want_lse = 1,
                    .q_magnitude = 1,
                    .factors.softcap = class->softcap ? 2.0f : 0,
                    .seed = 5}};
    fa2_problem *p = &d.c.problem;
    fa2i_expected expected;
    p->batch = 2;
    p->heads_q = 6;
    p->heads_kv = 2;
    p->seq_q = 9;
    p->seq_k = 7;
    p->head_dim = 16;
    for (int i = 0; i < OPERANDS; i++) {
        d.blocks[i] = calloc(1, fa2i_case_operand_bytes(&d.c, i) + 1);
        if (i != O && i != LSE && fa2i_case_period(&d.c, i) > 0)
            CHECK_EQ(fa2i_case_fill(&d.c, i, d.blocks[i]), FA2_OK);
    }
    CHECK_EQ(fa2i_expected_all(&d.c, 2, &expected), FA2_OK);
    for (size_t row = 0; row < expected.outputs[0].row_count; row++)
        check_row(&d, &expected, row);
    fa2i_expected_done(&expected);
    for (int i = 0; i < OPERANDS; i++)
        free(d.blocks[i]);
}

int main(void)
{
    static const fa2_problem classes[] = {
        {.alibi = 1},
        {.alibi = 1, .causal = 1},
        {.alibi = 1, .softcap = 1, .window = 1, .window_left = 3, .window_right = -1},
        {.sinks = 1},
        {.sinks = 1, .causal = 1, .alibi = 1},
        {.sinks = 1, .softcap = 1},
        {.bias = FA2_BIAS_FP16, .sinks = 1},
        {.bias = FA2_BIAS_BF16, .causal = 1, .softcap = 1},
        {.bias = FA2_BIAS_FP32, .alibi = 1},
        {.bias = FA2_BIAS_BOOL},
        {.bias = FA2_BIAS_BOOL, .causal = 1, .sinks = 1},
        {.dropout = 1},
        {.dropout = 1, .causal = 1, .softcap = 1, .sinks = 1},
    };
    test_bad_values();
    test_scale_and_stride();
    test_params();
    test_side();
    test_threshold();
    test_origin();
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        for (int layout = FA2I_LAYOUT_BSHD; layout <= FA2I_LAYOUT_SHARED; layout++)
            test_definition(&classes[i], (fa2i_layout)layout);
    return check_done();
}
