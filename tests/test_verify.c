/*
 * Cases and verdicts without a GPU: outputs are made from the reference, then changed.
 */
#include <math.h>
#include <stdlib.h>
#include "check.h"
#include "runtime/base/problem.h"
#include "tuner/judge/attention.h"
#include "tuner/judge/features.h"
#include "tuner/judge/number.h"
#include "tuner/judge/verify.h"

enum { OPERAND_Q, OPERAND_K, OPERAND_V, OPERAND_O, OPERAND_LSE }; /* of forward */

static const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                    .dtype = FA2_BF16,
                                    .batch = 1,
                                    .heads_q = 1,
                                    .heads_kv = 1,
                                    .seq_q = 64,
                                    .seq_k = 64,
                                    .head_dim = 24,
                                    .causal = 1};

static size_t output_bytes_of(const fa2i_expected *e, int output)
{
    const fa2i_wanted *w = &e->outputs[output];
    const int operand = w->places[0].operand;
    return e->all ? fa2i_case_operand_bytes(&e->c, operand)
                  : w->row_count * (size_t)w->width * fa2i_case_extent(&e->c, operand).elem_bytes;
}

/* Makes the outputs of a perfect kernel: rounded numbers in the case's layout, with poison around them. */
static void make_output(const fa2i_expected *e, unsigned char *output)
{
    memset(output, 0xff, e->output_bytes);
    for (int i = 0; i < e->output_count; i++) {
        const fa2i_wanted *w = &e->outputs[i];
        const fa2i_extent extent = fa2i_case_extent(&e->c, w->places[0].operand);
        for (size_t r = 0; r < w->row_count; r++) {
            const fa2i_place *place = &w->places[r];
            const size_t width = (size_t)w->width;
            const size_t at =
                e->all ? (size_t)fa2i_extent_at(&extent, place->batch, place->head, place->row) : r * width;
            for (size_t d = 0; d < width; d++) {
                const float number = (float)w->values[r * width + d];
                const uint16_t bits = fa2i_to_bits(e->c.problem.dtype, number);
                memcpy(output + (at + d) * extent.elem_bytes, extent.elem_bytes == 4 ? (const void *)&number : &bits,
                       extent.elem_bytes);
            }
        }
        output += output_bytes_of(e, i);
    }
}

static fa2i_verification judge(const fa2i_expected *e, const void *output, uint32_t overwritten)
{
    fa2i_verification verdict = {0};
    fa2i_expected_judge(e, "the case", output, overwritten, &verdict);
    return verdict;
}

static void spoil(const fa2i_expected *e, unsigned char *output)
{
    fa2i_verification verdict = judge(e, output, 0);
    CHECK_EQ(verdict.outcome, FA2I_OUTCOME_OK);
    CHECK(verdict.max_error > 0 && verdict.max_error < 1);

    verdict = judge(e, output, 3);
    CHECK_EQ(verdict.outcome, FA2I_OUTCOME_WRONG);
    CHECK_CONTAINS(verdict.detail, "3 words around");

    /* The last element of O's last row was not written. */
    size_t gap = e->all && e->c.layout == FA2I_LAYOUT_GAPPED ? 8 : 0;
    uint16_t *o = (uint16_t *)(void *)output;
    size_t last = output_bytes_of(e, 0) / sizeof *o - gap - 1;
    uint16_t held = o[last];
    o[last] = 0xffff;
    verdict = judge(e, output, 0);
    CHECK_EQ(verdict.outcome, FA2I_OUTCOME_WRONG);
    CHECK(verdict.max_error == FA2I_ERROR_NOT_FINITE);
    CHECK_CONTAINS(verdict.detail, "the case: O of batch");
    o[last] = held;

    if (gap > 0) {
        o[last + 1] = 0;
        verdict = judge(e, output, 0);
        CHECK_EQ(verdict.outcome, FA2I_OUTCOME_WRONG);
        CHECK_CONTAINS(verdict.detail, "1 elements between rows");
        o[last + 1] = 0xffff;
    }
    if (e->c.want_lse) {
        memset(output + e->output_bytes - sizeof(float), 0xff, sizeof(float));
        verdict = judge(e, output, 0);
        CHECK_EQ(verdict.outcome, FA2I_OUTCOME_WRONG);
        CHECK_CONTAINS(verdict.detail, "LSE of batch");
    }
}

static void test_case(const fa2i_verify_case *c)
{
    fa2i_expected e = {0};
    const fa2_problem *p = &c->c.problem;
    CHECK_EQ(fa2i_problem_check(p), FA2_OK);
    CHECK_EQ(fa2i_expected_all(&c->c, 2, &e), FA2_OK);
    CHECK_EQ(e.output_count, 1 + (c->c.want_lse != 0));
    for (int i = 0; i < e.output_count; i++)
        CHECK_EQ(e.outputs[i].row_count, (size_t)p->batch * (size_t)p->heads_q * (size_t)p->seq_q);
    unsigned char *output = malloc(e.output_bytes);
    make_output(&e, output);
    spoil(&e, output);
    free(output);
    fa2i_expected_done(&e);
}

/* Checks what the cases of a class cover. */
static void test_coverage(const fa2_problem *class, const fa2i_verify_case *cases, size_t count)
{
    bool longer_q = false, longer_k = false, tail = false, tiny = false, grouped = false;
    bool large = false, no_lse = false, layouts[4] = {false}, many = false, late = false;
    bool edge_left = false, edge_right = false, wide = false, narrow = false, nothing = false, grown = false;
    for (size_t i = 0; i < count; i++) {
        const fa2i_case *c = &cases[i].c;
        const fa2_problem *p = &c->problem;
        longer_q |= p->seq_q > p->seq_k && p->seq_k > 16;
        longer_k |= p->seq_q < p->seq_k && p->seq_q > 16;
        tail |= p->seq_q % 16 != 0 && p->seq_k % 16 != 0 && p->seq_k > 128;
        tiny |= p->seq_q < 16 && p->seq_k < 16;
        grouped |= p->heads_q > p->heads_kv && p->heads_kv > 1;
        large |= c->q_magnitude > 10;
        no_lse |= !c->want_lse;
        many |= cases[i].divided && p->seq_k > 128 * 512;
        late |= c->pattern == FA2I_PATTERN_LATE;
        grown |= c->pattern == FA2I_PATTERN_GROWN;
        layouts[c->layout] = true;
        edge_left |= p->window_left == 0;
        edge_right |= p->window_right == 0;
        wide |= p->window_left > p->seq_k && p->window_right > p->seq_q;
        narrow |= p->window_left > 0 && p->window_left + p->window_right < 15;
        nothing |= fa2i_keys_seen(p, 0).end == 0;
        char wanted[FA2I_CLASS_CHARS], got[FA2I_CLASS_CHARS];
        fa2i_problem_class(class, wanted);
        fa2i_problem_class(p, got);
        CHECK_STR(got, wanted);
        CHECK_EQ(c->factors.softcap > 0, class->softcap);
    }
    CHECK(longer_q && longer_k && tail && tiny && grouped && large && no_lse && many && late);
    CHECK(layouts[0] && layouts[1] && layouts[2] && layouts[3]);
    CHECK_EQ(edge_left && edge_right && wide && narrow, class->window);
    CHECK_EQ(nothing, class->causal || class->window);
    CHECK_EQ(grown, class->sums == FA2_SUMS_FAST);
}

/* The cases of a class, on the smallest and the largest card. */
static void test_class(const fa2_problem *class)
{
    static const int sm_counts[] = {1, 16, 144};
    char text[FA2I_CLASS_CHARS];
    size_t count = 0;
    for (size_t n = 0; n < sizeof sm_counts / sizeof *sm_counts; n++) {
        fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
        count = fa2i_judge_of(class->op)->cases(class, sm_counts[n], cases);
        CHECK(count > 0 && count <= FA2I_VERIFY_CASES_MAX);
        test_coverage(class, cases, count);
        for (size_t i = 0; i < count; i++)
            if (n == 1 || cases[i].c.pattern == FA2I_PATTERN_LATE) /* the case that depends on the card */
                test_case(&cases[i]);
    }
    fa2i_problem_class(class, text);
    printf("%s: %zu cases\n", text, count);
}

static float data_at(const fa2i_case *c, const uint16_t *data, int operand, fa2i_place place, int column)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    return fa2i_from_bits(c->problem.dtype, data[fa2i_extent_at(&e, place.batch, place.head, place.row) + column]);
}

/* Returns the first score of a query in the late-maximum case, in log2 units. It is too large for fp16, but so little
 * that a kernel which rescales at twice that exponent does not rescale. */
static void test_late_maximum(fa2_dtype dtype, int32_t head_dim, bool softcap)
{
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    const fa2_problem class = {
        .struct_bytes = sizeof(fa2_problem), .dtype = dtype, .head_dim = head_dim, .softcap = softcap};
    const size_t count = fa2i_judge_of(class.op)->cases(&class, 100, cases);
    const fa2i_case *c = NULL;
    for (size_t i = 0; i < count; i++)
        if (cases[i].c.pattern == FA2I_PATTERN_LATE)
            c = &cases[i].c;
    uint16_t *q = malloc(fa2i_case_operand_bytes(c, OPERAND_Q));
    uint16_t *k = malloc(fa2i_case_operand_bytes(c, OPERAND_K));
    double least = INFINITY, most = -INFINITY, rest = -INFINITY;
    fa2i_case_fill(c, OPERAND_Q, q);
    fa2i_case_fill(c, OPERAND_K, k);
    for (int32_t b = 0; b < c->problem.batch; b += 2) {
        double largest = -INFINITY;
        for (int32_t j = 0; j < c->problem.seq_k; j++) {
            double score = 0;
            for (int d = 0; d < head_dim; d++)
                score += (double)data_at(c, q, OPERAND_Q, (fa2i_place){.batch = b}, d) *
                         (double)data_at(c, k, OPERAND_K, (fa2i_place){.row = j}, d);
            score = fa2i_score_modified(score / sqrt(head_dim), &c->factors) / log(2);
            if (j < 16)
                largest = fmax(largest, score);
            else
                rest = fmax(rest, score);
        }
        least = fmin(least, largest);
        most = fmax(most, largest);
    }
    CHECK(rest < 0.2);
    CHECK(least - rest > 16 && most < 16.45);
    free(q);
    free(k);
}

/* Sampled rows of a problem that is too large to compute as a whole. */
static void test_sampled(void)
{
    fa2i_case c = {.problem = problem, .q_magnitude = 1, .seed = 5};
    c.problem.batch = 16;
    c.problem.heads_q = 32;
    c.problem.seq_q = c.problem.seq_k = 4096;
    fa2i_expected e = {0}, again = {0};
    CHECK_EQ(fa2i_expected_sampled(&c, 1, 2, &e), FA2_OK);
    CHECK_EQ(fa2i_expected_sampled(&c, 1, 1, &again), FA2_OK);
    CHECK_EQ(e.place_count, FA2I_VERIFY_ROWS);
    CHECK_EQ(memcmp(e.places, again.places, e.place_count * sizeof *e.places), 0);
    CHECK_EQ(memcmp(e.outputs[0].values, again.outputs[0].values, e.place_count * 24 * sizeof(double)), 0);
    CHECK_EQ(e.places[0].row, 0);
    CHECK_EQ(e.places[FA2I_VERIFY_ROWS - 1].batch, 15);
    CHECK_EQ(e.places[FA2I_VERIFY_ROWS - 1].row, 4095);
    CHECK_EQ(e.output_bytes, FA2I_VERIFY_ROWS * 24 * sizeof(uint16_t));
    unsigned char *output = malloc(e.output_bytes);
    make_output(&e, output);
    spoil(&e, output);
    free(output);
    fa2i_expected_done(&e);
    fa2i_expected_done(&again);
}

/* Test data are roughly normal, reproducible, and differ between tensors. */
static void test_data(void)
{
    fa2i_case c = {.problem = problem, .q_magnitude = 3, .seed = 5};
    double sum = 0, squares = 0;
    c.problem.seq_q = c.problem.seq_k = 100000;
    const size_t period = fa2i_case_period(&c, OPERAND_Q);
    uint16_t *q = malloc(period * sizeof *q), *k = malloc(period * sizeof *k);
    CHECK_EQ(period % 24, 0);
    CHECK_EQ(period / 24 % 2, 1); /* an odd number of rows */
    fa2i_case_fill(&c, OPERAND_Q, q);
    fa2i_case_fill(&c, OPERAND_K, k);
    CHECK(memcmp(q, k, period * sizeof *q) != 0);
    for (size_t i = 0; i < period; i++) {
        double value = fa2i_from_bits(FA2_BF16, q[i]);
        sum += value;
        squares += value * value;
    }
    CHECK(fabs(sum / (double)period) < 0.05);
    CHECK(fabs(sqrt(squares / (double)period) - 3) < 0.05);
    c.problem.seq_q = 2;
    CHECK_EQ(fa2i_case_period(&c, OPERAND_Q), 2 * 24);
    fa2i_case_fill(&c, OPERAND_Q, k);
    CHECK_EQ(memcmp(q, k, 2 * 24 * sizeof *q), 0);
    free(q);
    free(k);
}

/* Returns how many numbers of a case's fp32 bias hide keys. */
static size_t count_hidden(const fa2i_case *c)
{
    const fa2i_judge *op = fa2i_judge_of(c->problem.op);
    int operand = 0;
    while (strcmp(op->operands[operand].name, "bias") != 0)
        operand++;
    const size_t period = fa2i_case_period(c, operand);
    float *numbers = malloc(period * sizeof *numbers);
    CHECK_EQ(fa2i_case_fill(c, operand, numbers), FA2_OK);
    size_t hidden = 0;
    for (size_t i = 0; i < period; i++)
        hidden += numbers[i] < -1e6f;
    free(numbers);
    return hidden;
}

/* Nearly all judged cases have hidden keys, and one has its own scale. Timed cases have neither. */
static void test_hidden(fa2_op op)
{
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    fa2_problem class = problem;
    class.op = op;
    class.bias = FA2_BIAS_FP32;
    const size_t count = fa2i_judge_of(op)->cases(&class, 16, cases);
    size_t hiding = 0, scaled = 0;
    for (size_t i = 0; i < count; i++) {
        hiding += count_hidden(&cases[i].c) > 0;
        scaled += cases[i].c.factors.softmax_scale > 0;
    }
    CHECK(hiding + 3 > count && scaled == 1);
    const fa2i_case timed = fa2i_case_of(&class, 1);
    CHECK(count_hidden(&timed) == 0 && timed.factors.softmax_scale == 0);
}

/* Places and indices are inverse to each other in every layout. */
static void test_extents(void)
{
    for (int layout = 0; layout < 4; layout++) {
        fa2i_case c = {.problem = problem, .layout = (fa2i_layout)layout, .want_lse = 1};
        c.problem.batch = 3;
        c.problem.heads_q = 4;
        c.problem.heads_kv = 2;
        c.problem.seq_k = 5;
        for (int operand = OPERAND_Q; operand <= OPERAND_O; operand++) {
            const fa2i_extent e = fa2i_case_extent(&c, operand);
            int64_t rows = 0;
            for (int64_t i = 0; i < e.elems; i++) {
                int32_t column;
                const fa2i_place at = fa2i_extent_place(&e, c.layout, i, &column);
                CHECK_EQ(fa2i_extent_at(&e, at.batch, at.head, at.row) + column, i);
                CHECK(at.head < e.heads && at.row < e.seq && column < e.pitch);
                rows += column == 0;
            }
            const bool shared = layout == FA2I_LAYOUT_SHARED && operand != OPERAND_Q && operand != OPERAND_O;
            CHECK_EQ(rows, (shared ? 1 : e.batch) * e.heads * e.seq);
        }
    }
}

/* A size that overflows is never reported as a small number. */
static void test_uncountable(void)
{
    const fa2_problem most = {.struct_bytes = sizeof(fa2_problem),
                              .batch = 1 << 12,
                              .heads_q = 1 << 16,
                              .heads_kv = 1 << 16,
                              .seq_q = 1,
                              .seq_k = 1 << 29,
                              .head_dim = 256}; /* 2^65 elements of K */
    const fa2_problem pages = {.struct_bytes = sizeof(fa2_problem),
                               .batch = 1 << 16,
                               .heads_q = 1,
                               .heads_kv = 1,
                               .seq_q = 1,
                               .seq_k = 1 << 16,
                               .head_dim = 8,
                               .seqused = 1,
                               .paged = 1,
                               .page = 1};
    const fa2_problem biased = {.struct_bytes = sizeof(fa2_problem),
                                .op = FA2_OP_BACKWARD,
                                .batch = 1,
                                .heads_q = 15,
                                .heads_kv = 15,
                                .seq_q = 1 << 29,
                                .seq_k = 1 << 29,
                                .head_dim = 8,
                                .bias = FA2_BIAS_FP32_GRADIENT};
    const fa2_problem *const all[] = {&most, &pages, &biased};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const fa2i_case c = fa2i_case_of(all[i], 1);
        CHECK_EQ(fa2i_problem_check(all[i]), FA2_OK);
        CHECK_EQ(fa2i_case_bytes(&c), SIZE_MAX);
    }
    fa2_problem large = most;
    large.batch = 1 << 2; /* petabytes, but no overflow */
    const fa2i_case c = fa2i_case_of(&large, 1);
    CHECK(fa2i_case_bytes(&c) > (size_t)1 << 56 && fa2i_case_bytes(&c) < (size_t)1 << 60);
}

int main(void)
{
    for (int features = 0; features < 8; features++) {
        fa2_problem class = problem;
        class.causal = features % 2;
        class.window = features / 2 % 2;
        class.softcap = features / 4 % 2;
        class.sums = features % 3 == 0 ? FA2_SUMS_FAST : FA2_SUMS_FP32;
        test_class(&class);
    }
    for (int n = 0; n < 2; n++) {
        test_late_maximum(FA2_FP16, 8, n);
        test_late_maximum(FA2_FP16, 64, n);
        test_late_maximum(FA2_FP16, 256, n);
    }
    test_sampled();
    test_extents();
    test_uncountable();
    test_hidden(FA2_OP_FORWARD);
    test_hidden(FA2_OP_BACKWARD);
    test_data();
    return check_done();
}
