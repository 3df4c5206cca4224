/*
 * What acts on scores and on P, on the host: what is said to its arguments, what kernels are told, and the
 * judge's expectations against the definition, element by element.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include "check.h"
#include "runtime/ops/op.h"
#include "tuner/judge/number.h"
#include "tuner/judge/verify.h"

static const fa2_problem problem = {
    .batch = 2, .heads_q = 8, .heads_kv = 2, .seq_q = 100, .seq_k = 200, .head_dim = 64};
static const fa2i_grid plain_grid = {.blocks = {32}, .splits = 1};

/* [B, S, H, D], at addresses that nothing reads; all features given. */
static fa2_forward_args good_args(void)
{
    const fa2_tensor q = {(void *)0x1000000, 64 * 8 * 100, 64 * 8, 64};
    const fa2_tensor k = {(void *)0x2000000, 64 * 2 * 200, 64 * 2, 64};
    fa2_forward_args args = {.q = q, .k = k, .v = k, .o = q, .lse = (void *)0x5000000};
    args.v.data = (void *)0x3000000;
    args.o.data = (void *)0x4000000;
    args.softcap = 1;
    args.alibi = (fa2_alibi){(void *)0x6000004, 8};
    args.sinks = (void *)0x7000004;
    return args;
}

static fa2_problem with(int field, int32_t value)
{
    fa2_problem p = problem;
    fa2i_field_set(&p, field, value);
    return p;
}

/* ---- arguments ---- */

/* A value put over a member of good arguments. */
typedef struct bad_value {
    int field; /* which asks for the member; the value of the field is asked */
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
     "alibi.stride_batch is -1; with a batch of 2 it must be from 0 to 288230376151711744"},
    {FA2I_FIELD_alibi, 1, AT(alibi.stride_batch), INT64_MAX, "alibi.stride_batch is 922337203685"},
    {FA2I_FIELD_sinks, 1, AT(sinks), 0, "sinks is NULL, but problem.sinks is 1"},
    {FA2I_FIELD_sinks, 1, AT(sinks), 0x7000001, "sinks is 0x7000001; it must be a multiple of 4"},
    {FA2I_FIELD_sinks, 1, AT(sinks), 0x4000010, "o shares memory with sinks"},
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

/* What is wrong is said where it is asked for, and not looked at where it is not. */
static void test_bad_values(void)
{
    for (size_t i = 0; i < sizeof bad_values / sizeof *bad_values; i++) {
        const bad_value *bad = &bad_values[i];
        const fa2_problem p = with(bad->field, bad->asked);
        fa2_forward_args args = good_args();
        check_good(&p, &args);
        memcpy((char *)&args + bad->offset, &bad->value, sizeof bad->value);
        check_bad(&p, &args, bad->said);
        check_good(&problem, &args);
    }
}

/* Terms are divided by the scale of scores; a batch that is alone has no stride. */
static void test_scale_and_stride(void)
{
    fa2_problem p = with(FA2I_FIELD_alibi, 1);
    fa2_forward_args args = good_args();
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

/* ---- what kernels are told ---- */

static fa2i_feature_params fill(const fa2_problem *p, const fa2_forward_args *args)
{
    fa2i_params params;
    fa2i_op_of(p)->fill(&plain_grid, p, args, &params);
    return params.forward.features;
}

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
    p = with(FA2I_FIELD_sinks, 1);
    got = fill(&p, &args);
    CHECK(got.sinks == 0x7000004 && got.alibi_slopes == 0);
}

/* ---- what should come out ---- */

/* The operands of forward cases, in their order. */
enum { Q, K, V, O, LSE, SLOPES, SINKS, OPERANDS };

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

/* A score as fa2.h words it; -INFINITY: the key is not seen. */
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
        score = (double)d->c.softcap * tanh(score / (double)d->c.softcap);
    if (p->alibi)
        score -= number(d, SLOPES, b, 0, 0, h) * abs(distance);
    return score;
}

static void check_row(const data *d, const fa2i_expected *e, size_t row)
{
    const fa2_problem *p = &d->c.problem;
    const fa2i_place *at = &e->outputs[0].places[row];
    const double sink = p->sinks ? number(d, SINKS, 0, 0, 0, at->head) : -INFINITY;
    double sum = exp(sink), o[64] = {0};
    bool none = true;
    for (int j = 0; j < p->seq_k; j++) {
        const double score = score_of(d, at->batch, at->head, at->row, j);
        none = none && isinf(score);
        sum += exp(score);
        for (int c = 0; c < p->head_dim; c++)
            o[c] +=
                exp(score) * number(d, V, at->batch, at->head / (p->heads_q / p->heads_kv), j, c);
    }
    CHECK_EQ(e->outputs[0].exact[row], none);
    for (int c = 0; c < p->head_dim; c++) {
        const double wanted = none ? 0 : o[c] / sum;
        CHECK(fabs(e->outputs[0].values[row * (size_t)p->head_dim + (size_t)c] - wanted) < 1e-11);
    }
    if (sum == 0)
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
                    .softcap = class->softcap ? 2.0f : 0,
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
    };
    test_bad_values();
    test_scale_and_stride();
    test_params();
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        for (int layout = FA2I_LAYOUT_BSHD; layout <= FA2I_LAYOUT_SHARED; layout++)
            test_definition(&classes[i], (fa2i_layout)layout);
    return check_done();
}
