/*
 * Backward's checks of the gradient of a bias: refusals with their messages, and elements that share memory, compared
 * with counting.
 */
#include <stddef.h>
#include <stdlib.h>
#include "check.h"
#include "runtime/base/problem.h"
#include "runtime/ops/op.h"
#include "good_backward_args.h" /* last, because parameters named `problem` would shadow its variable */

enum { SEED = 15, TENSORS = 20000, MOST = 4, STRIDES = 16 };

/* The gradient of a bias: [B, 1, Sq, Sk] at the end of the address space. */
static void test_refusals(void)
{
    static const struct {
        size_t offset;
        int64_t value;
        const char *said;
    } bad[] = {
#define AT(member) offsetof(fa2_backward_args, dbias.member)
        {AT(data), 0, "dbias.data is NULL, but problem.bias is fp16_gradient"},
        {AT(data), 0xb000002, "dbias.data is 0xb000002; it must be a multiple of 4 bytes"},
        {AT(data), 0xa000000, "dbias shares memory with bias"},
        {AT(data), 0x1000010, "dbias shares memory with q"},
        {AT(data), 0x6000010, "dbias shares memory with dq"},
        {AT(data), 0x9000000, "dbias shares memory with lse"},
        {AT(stride_query), 1,
         "dbias.stride_batch, dbias.stride_head, dbias.stride_query and dbias.stride_key are "
         "20000, 0, 1 and 1; some "
         "of its 2 x 8 x 100 x 200 elements would share memory: only a stride of 0 makes a sum"},
        {AT(stride_batch), 19999, "some of its 2 x 8 x 100 x 200 elements would share memory"},
        {AT(stride_head), 200, "would share memory"},
        {AT(stride_key), 2, "would share memory"},
        {AT(stride_query), -1, "dbias.stride_query is -1; with an extent of 100 it must be from 0"},
        {AT(stride_key), INT64_MAX, "dbias.stride_key is 9223372036854775807"},
#undef AT
    };
    fa2_problem with = problem;
    const fa2i_op *op = fa2i_op_of(&with);
    fa2_backward_args args = good_args();
    fa2i_params params;
    with.bias = FA2_BIAS_FP16_GRADIENT;
    args.bias = (fa2_bias_tensor){(void *)0xa000000, 20000, 0, 200, 1};
    args.dbias = (fa2_bias_gradient){(void *)0xb000000, 20000, 0, 200, 1};
    CHECK_EQ(op->check_args(&with, &args, NULL), FA2_OK);
    op->fill(&(fa2i_grid){.row_tiles = 2, .key_tiles = 7}, &with, &args, &params);
    const fa2i_feature_params *f = &params.backward.features;
    CHECK(f->dbias == 0xb000000 && f->dbias_batch == 20000 && f->dbias_head == 0);
    CHECK(f->dbias_query == 200 && f->dbias_key == 1 && f->bias == 0xa000000);
    fa2_problem rounded = with; /* forward's scale, because the LSE is forward's */
    rounded.bias = FA2_BIAS_BF16_GRADIENT;
    args.softmax_scale = 0.0883883f;
    op->fill(&(fa2i_grid){.row_tiles = 2, .key_tiles = 7}, &rounded, &args, &params);
    CHECK(f->inverse_scale == 11.3125f + 0x1.3ep-10f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_backward_args other = args;
        memcpy((char *)&other + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        CHECK_EQ(op->check_args(&with, &other, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), bad[i].said);
    }
    args.dq.data = args.dk.data = args.dv.data = NULL; /* only the bias's gradient is wanted */
    CHECK_EQ(op->check_args(&with, &args, NULL), FA2_OK);
    with.deterministic = 1;
    CHECK_EQ(op->check_args(&with, &args, NULL), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "dbias.stride_head is 0, a sum over 8 in any order");
    with.op = FA2_OP_FORWARD;
    with.deterministic = 0;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "bias is fp16_gradient, which is for backward; forward's must be fp16");
}

/* Sums over dimensions, interleaved elements, and a stride that no element uses. */
static void test_good_strides(void)
{
    static const int64_t good[][4] = {/* batch, head, query, key */
                                      {0, 0, 0, 0},     {0, 0, 1, 0},  {0, 1, 8, 800},      {160000, 1, 1600, 8},
                                      {1, 2, 16, 1600}, {0, 3, 0, 24}, {0, 100000, 1000, 5}};
    fa2_problem with = problem;
    fa2_backward_args args = good_args();
    with.bias = FA2_BIAS_FP32_GRADIENT;
    args.bias.data = (void *)0xa000000;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        args.dbias = (fa2_bias_gradient){(float *)0xb000000, good[i][0], good[i][1], good[i][2], good[i][3]};
        CHECK_EQ(fa2i_op_of(&with)->check_args(&with, &args, NULL), FA2_OK);
    }
    with.batch = 1;
    args.dbias = (fa2_bias_gradient){(float *)0xb000000, 1, 20000, 200, 1};
    CHECK_EQ(fa2i_op_of(&with)->check_args(&with, &args, NULL), FA2_OK);
}

/* Packed sequences: i and j are limited by the longest sequence, whatever the totals are. */
static void test_packed(void)
{
    fa2_problem with = problem;
    fa2_backward_args args = good_args();
    with.varlen = 1;
    with.total_q = with.total_k = 150;
    with.bias = FA2_BIAS_BF16_GRADIENT;
    args.cu_seqlens_q = args.cu_seqlens_k = (const int32_t *)0xc000000;
    args.bias.data = (void *)0xa000000;
    args.dbias = (fa2_bias_gradient){(float *)0xb000000, 20000, 0, 200, 1};
    CHECK_EQ(fa2i_op_of(&with)->check_args(&with, &args, NULL), FA2_OK);
    args.dbias.stride_query = 150;
    CHECK_EQ(fa2i_op_of(&with)->check_args(&with, &args, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "some of its 2 x 8 x 100 x 200 elements would share memory");
}

/* The search has a limit of steps. The one case that exceeds it is accepted. */
static void test_patience(void)
{
    const int64_t strides[] = {4 * 1000003, 4 * 1000033, 4 * 1000037, 4 * 999983};
    const int32_t many[] = {1 << 20, (1 << 20) + 1, (1 << 20) + 3, (1 << 20) + 7};
    CHECK(!fa2i_memory_elements_meet(strides, many, 4));
}

/* ---- comparison with counting ---- */

/* Returns true if two elements share a place without a stride of 0 between them. */
static bool count_meetings(const int64_t strides[4], const int32_t extents[4])
{
    bool taken[4 * MOST * STRIDES] = {false};
    for (int i = 0; i < MOST * MOST * MOST * MOST; i++) {
        const int at[] = {i % MOST, i / MOST % MOST, i / MOST / MOST % MOST, i / MOST / MOST / MOST};
        int64_t place = 0;
        bool counts = true;
        for (int j = 0; j < 4; j++) {
            counts &= at[j] < (strides[j] == 0 ? 1 : extents[j]);
            place += at[j] * strides[j];
        }
        if (counts && taken[place])
            return true;
        taken[place] |= counts;
    }
    return false;
}

static void test_meetings_by_counting(void)
{
    int wrong = 0, met = 0;
    srand(SEED);
    for (int n = 0; n < TENSORS; n++) {
        int32_t extents[4];
        int64_t strides[4];
        for (int i = 0; i < 4; i++) {
            extents[i] = 1 + rand() % MOST;
            strides[i] = rand() % 4 == 0 ? 0 : rand() % STRIDES;
        }
        fa2_problem p = problem;
        fa2_backward_args args = good_args();
        p.batch = extents[0];
        p.heads_q = p.heads_kv = extents[1];
        p.seq_q = extents[2];
        p.seq_k = extents[3];
        p.bias = FA2_BIAS_FP32_GRADIENT;
        args.dk.stride_seq = args.dv.stride_seq = MOST * 64;
        args.bias.data = (void *)0xa000000;
        args.dbias = (fa2_bias_gradient){(float *)0xb000000, strides[0], strides[1], strides[2], strides[3]};
        const bool meet = count_meetings(strides, extents);
        wrong += (fa2i_op_of(&p)->check_args(&p, &args, NULL) != FA2_OK) != meet;
        met += meet;
    }
    CHECK_EQ(wrong, 0);
    CHECK(met > TENSORS / 10 && met < TENSORS * 9 / 10);
}

int main(void)
{
    test_refusals();
    test_good_strides();
    test_packed();
    test_patience();
    test_meetings_by_counting();
    return check_done();
}
