/*
 * An operation's parameter block with its features, and its work.
 */
#include <math.h>
#include <stdlib.h>
#include "check.h"
#include "runtime/base/problem.h"
#include "runtime/ops/op.h"
#include "good_args.h" /* last, because parameters named `problem` would shadow its variable */

enum { SEED = 88, PROBLEMS = 3000 };

static fa2i_forward_params fill(const fa2_problem *p, const fa2_forward_args *args)
{
    const fa2i_grid grid = {.row_tiles = 2, .splits = 1};
    fa2i_params params;
    fa2i_op_of(p)->fill(&grid, p, args, &params);
    return params.forward;
}

static bool is_near(float a, double b)
{
    return fabs((double)a - b) <= 1e-6 * fabs(b);
}

static void test_row(void)
{
    const fa2i_op *op = fa2i_op_of(&problem);
    CHECK_STR(op->name, fa2i_field_word(FA2I_FIELD_op, FA2_OP_FORWARD));
    CHECK_EQ(op->abi, 2);
}

/* Without features, the words after the first 192 bytes are 0, whatever the arguments contain. */
static void test_plain_params(void)
{
    const fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args), .softmax_scale = 0.25f, .softcap = NAN};
    const fa2i_forward_params p = fill(&problem, &args);
    CHECK(is_near(p.scale, 0.25) && is_near(p.scale_log2, 0.36067376));
    CHECK(p.softcap_rate == 0);
    CHECK_EQ(p.window_left, 0);
    CHECK_EQ(p.window_right, 0);
}

static void test_softcap_params(void)
{
    fa2_problem capped = problem;
    capped.softcap = 1;
    const fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args), .softcap = 30};
    const fa2i_forward_params p = fill(&capped, &args);
    CHECK(is_near(p.scale, 30));
    CHECK(is_near(p.scale_log2, 30 * 1.4426950408889634));
    CHECK(is_near(p.softcap_rate, 0.125 / 30));
}

static void test_window_params(void)
{
    static const struct {
        int32_t left, right, causal, want_left, want_right;
    } cases[] = {{5, 3, 0, 5, 3},        {5, 3, 1, 5, 0},         {-1, 0, 0, 1 << 30, 0},
                 {0, -1, 0, 0, 1 << 30}, {-1, -1, 1, 1 << 30, 0}, {1 << 29, 1 << 29, 0, 1 << 29, 1 << 29}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fa2_problem windowed = problem;
        const fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args), .softmax_scale = 0};
        windowed.window = 1;
        windowed.window_left = cases[i].left;
        windowed.window_right = cases[i].right;
        windowed.causal = cases[i].causal;
        const fa2i_forward_params p = fill(&windowed, &args);
        CHECK_EQ(p.window_left, cases[i].want_left);
        CHECK_EQ(p.window_right, cases[i].want_right);
        CHECK(is_near(p.scale, 0.125));
    }
}

static void test_lengths_params(void)
{
    fa2_problem with = problem;
    const fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args), .seqused_k = (const int32_t *)0x1230};
    CHECK_EQ(fill(&with, &args).features.seqused_k, 0);
    with.seqused = 1;
    CHECK_EQ(fill(&with, &args).features.seqused_k, 0x1230);
}

/* ---- work ---- */

/* The views of tensor maps: packed sequences are one batch, however many there are. */
static void test_views(void)
{
    fa2_problem p = problem;
    fa2i_params params = {0};
    fa2i_view view;
    fa2i_op_of(&p)->view(&p, &params, FA2I_MAPPED_Q, &view);
    CHECK(view.extents[0] == 2 && view.extents[1] == 100 && view.extents[2] == 8);
    p.varlen = 1;
    p.total_q = 130;
    p.total_k = 333;
    fa2i_op_of(&p)->view(&p, &params, FA2I_MAPPED_Q, &view);
    CHECK(view.extents[0] == 1 && view.extents[1] == 130 && view.extents[2] == 8);
    fa2i_op_of(&p)->view(&p, &params, FA2I_MAPPED_V, &view);
    CHECK(view.extents[0] == 1 && view.extents[1] == 333 && view.extents[2] == 2);
    CHECK_EQ(view.columns, 64);
    params.forward.o = 4096;
    p.head_dim_v = 40;
    fa2i_op_of(&p)->view(&p, &params, FA2I_MAPPED_O, &view);
    CHECK(view.extents[0] == 1 && view.extents[1] == 130 && view.extents[2] == 8);
    CHECK(view.columns == 40 && view.address == 4096);
    CHECK(memcmp(view.strides, params.forward.o_stride, sizeof view.strides) == 0);
}

/* A bias has a map if eight of its keys are adjacent and aligned, and each query has its own row. */
static void test_view_of_bias(void)
{
    fa2_problem p = problem;
    fa2i_params params = {0};
    fa2i_feature_params *f = &params.forward.features;
    fa2i_view view;
    p.bias = FA2_BIAS_BF16;
    f->bias = 4096;
    f->bias_side = 8;
    f->bias_head = 16;
    f->bias_query = 208;
    fa2i_op_of(&p)->view(&p, &params, FA2I_MAPPED_BIAS, &view);
    CHECK(view.address == 4096 && view.columns == 200);
    CHECK(view.extents[0] == 2 && view.extents[1] == 100 && view.extents[2] == 8);
    CHECK(view.strides[0] == 0 && view.strides[1] == 208 && view.strides[2] == 16);
    f->bias_side = 2;
    fa2i_op_of(&p)->view(&p, &params, FA2I_MAPPED_BIAS, &view);
    CHECK_EQ(view.columns, 0);
    f->bias_side = 8;
    f->bias_query = 0;
    fa2i_op_of(&p)->view(&p, &params, FA2I_MAPPED_BIAS, &view);
    CHECK_EQ(view.columns, 0);
}

static void test_flop(void)
{
    fa2_problem p = problem;
    CHECK(fa2i_problem_flop(&p) == 4.0 * 2 * 8 * 100 * 200 * 64);
    p.head_dim_v = 40;
    CHECK(fa2i_problem_flop(&p) == 2.0 * 2 * 8 * 100 * 200 * (64 + 40));
    p.op = FA2_OP_BACKWARD;
    CHECK(fa2i_problem_flop(&p) == 2.0 * 2 * 8 * 100 * 200 * (3 * 64 + 2 * 40));
    p.op = FA2_OP_FORWARD;
    p.head_dim_v = 0;
    p.causal = 1;
    CHECK(fa2i_problem_flop(&p) == 2.0 * 2 * 8 * 100 * 200 * 64);
    p.window = 1; /* now the pairs are counted: 101 ... 200 keys */
    p.window_left = p.window_right = -1;
    CHECK(fa2i_problem_flop(&p) == 4.0 * 2 * 8 * 15050 * 64);
    p = (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                      .batch = 1,
                      .heads_q = 1,
                      .heads_kv = 1,
                      .seq_q = 1 << 29,
                      .seq_k = 1 << 29,
                      .head_dim = 8,
                      .window = 1,
                      .window_left = 0};
    CHECK(fa2i_problem_flop(&p) == 4.0 * 8 * (1 << 29));
    CHECK(fa2i_op_of(&p)->flop_unmasked(&p) == 4.0 * 8 * (1 << 29) * (1 << 29));
}

/* Lengths from seq_k / batch to seq_k. */
static void test_lengths_work(void)
{
    fa2_problem p = problem;
    p.seqused = 1;
    CHECK_EQ(fa2i_forward_length(&p, 0), 100);
    CHECK_EQ(fa2i_forward_length(&p, 1), 200);
    CHECK(fa2i_problem_flop(&p) == 4.0 * 2 * 8 * 100 * 150 * 64);
    CHECK(fa2i_op_of(&p)->bytes(&p) == 2.0 * (2 * 2 * 100 * 8 + 2 * 2 * 150 * 2) * 64);
    p.seq_k = 1; /* the mean length must not be 0: gen/features/lengths.lua */
    CHECK(fa2i_problem_flop(&p) == 4.0 * 2 * 8 * 100 * 64);
}

/* The longest sequence has the most rows; the others share the rest. */
static void test_packed_work(void)
{
    fa2_problem p = problem, parts[2];
    p.batch = 4;
    p.varlen = 1;
    p.total_q = 100 + 3 * 10;
    p.total_k = 200 + 3 * 20;
    CHECK_EQ(fa2i_forward_parts(&p, parts), 2);
    CHECK_EQ(parts[1].batch, 3);
    CHECK_EQ(parts[1].seq_q, 10);
    CHECK_EQ(parts[1].seq_k, 20);
    CHECK(fa2i_problem_flop(&p) == 4.0 * 8 * 64 * (100 * 200 + 3 * 10 * 20));
    p.total_q = p.total_k = 0;
    CHECK(fa2i_problem_flop(&p) == 4.0 * 8 * 64 * 4 * 100 * 200);
    CHECK_EQ(fa2i_forward_total_q(&p), 400);
}

static void test_bytes(void)
{
    fa2_problem p = problem;
    const fa2i_op *op = fa2i_op_of(&p);
    CHECK(op->bytes(&p) == 2.0 * (2 * 2 * 100 * 8 + 2 * 2 * 200 * 2) * 64);
    p.causal = p.window = 1;
    p.window_left = 20; /* query 0 has position 100, and sees no key below 80 */
    p.window_right = -1;
    CHECK(op->bytes(&p) == 2.0 * (2 * 2 * 100 * 8 + 2 * 2 * 120 * 2) * 64);
}

/* Returns true if a query at this position sees the key. */
static bool sees(const fa2_problem *p, int at, int j)
{
    if (p->window == FA2_WINDOW_PREFIX)
        return j <= at || j < p->window_left;
    if (p->causal && j > at)
        return false;
    if (p->window == FA2_WINDOW_CHUNK)
        return at >= 0 && j / p->window_left == at / p->window_left;
    return (p->window_left < 0 || j >= at - p->window_left) && (p->window_right < 0 || j <= at + p->window_right);
}

/* Counts, one by one, the pairs in which a query sees a key, and the keys that any query sees. */
static void count(const fa2_problem *p, long *ret_pairs, long *ret_keys)
{
    *ret_pairs = *ret_keys = 0;
    for (int j = 0; j < p->seq_k; j++) {
        const long before = *ret_pairs;
        for (int i = 0; i < p->seq_q; i++) {
            *ret_pairs += sees(p, i + p->seq_k - p->seq_q, j);
        }
        *ret_keys += *ret_pairs > before;
    }
}

static void test_work_by_counting(void)
{
    int wrong = 0;
    srand(SEED);
    for (int n = 0; n < PROBLEMS; n++) {
        const int window = 1 + rand() % 3;
        const bool sliding = window == FA2_WINDOW_SLIDING;
        const fa2_problem p = {.struct_bytes = sizeof(fa2_problem),
                               .batch = 1,
                               .heads_q = 1,
                               .heads_kv = 1,
                               .seq_q = 1 + rand() % 40,
                               .seq_k = 1 + rand() % 40,
                               .head_dim = 8,
                               .causal = rand() % 2 || window == FA2_WINDOW_PREFIX,
                               .window = window,
                               .window_left = rand() % 50 + (sliding ? -1 : 1),
                               .window_right = sliding ? rand() % 50 - 1 : -1};
        long pairs, keys;
        count(&p, &pairs, &keys);
        CHECK_EQ(fa2i_problem_check(&p), FA2_OK);
        wrong += fa2i_problem_flop(&p) != 4.0 * 8 * (double)pairs;
        wrong += fa2i_op_of(&p)->bytes(&p) != 2.0 * 8 * 2 * (double)(p.seq_q + keys);
    }
    CHECK_EQ(wrong, 0);
}

int main(void)
{
    test_row();
    test_plain_params();
    test_softcap_params();
    test_window_params();
    test_lengths_params();
    test_views();
    test_view_of_bias();
    test_flop();
    test_bytes();
    test_lengths_work();
    test_packed_work();
    test_work_by_counting();
    return check_done();
}
