/*
 * The judge of backward: its reference compared with central differences of the loss, for every element of the three
 * gradients; and its verdicts on right and wrong results. test_gradient_samples tests samples.
 */
#include <math.h>
#include <stdlib.h>
#include "check.h"
#include "judge_fixture.h"
#include "runtime/base/problem.h"
#include "tuner/judge/attention.h"
#include "tuner/judge/features.h"
#include "tuner/judge/number.h"
#include "tuner/judge/verify.h"

enum { Q, K, V, O, DO, LSE, FEATURES = LSE + 4, BIAS = FEATURES + FA2I_OPERAND_bias };

/* Inputs as numbers, each [batch, head, row, D]. */
typedef struct numbers {
    const fa2i_case *c;
    double *data[LSE];
    double *bias; /* in the order of memory; NULL: none */
} numbers;

static double *row_of(const numbers *n, int operand, int b, int h, int i)
{
    const fa2i_extent e = fa2i_case_extent(n->c, operand);
    return n->data[operand] + ((size_t)(b * e.heads + h) * (size_t)e.seq + (size_t)i) * (size_t)e.width;
}

static size_t count_of(const fa2i_case *c, int operand)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    return (size_t)e.batch * (size_t)e.heads * (size_t)e.seq * (size_t)e.width;
}

static void read_inputs(numbers *n, const fa2i_case *c)
{
    n->c = c;
    n->bias = NULL;
    for (int operand = Q; operand < LSE; operand++) {
        const fa2i_extent e = fa2i_case_extent(c, operand);
        const size_t period = fa2i_case_period(c, operand);
        uint16_t *bits = calloc(period, sizeof *bits);
        n->data[operand] = calloc(count_of(c, operand), sizeof(double));
        CHECK_EQ(fa2i_case_fill(c, operand, bits), FA2_OK);
        for (int b = 0; b < e.batch; b++)
            for (int h = 0; h < e.heads; h++)
                for (int i = 0; i < e.seq; i++)
                    for (int d = 0; d < e.width; d++)
                        row_of(n, operand, b, h, i)[d] =
                            fa2i_from_bits(c->problem.dtype, bits[(size_t)(fa2i_extent_at(&e, b, h, i) + d) % period]);
        free(bits);
    }
}

static void free_inputs(numbers *n)
{
    for (int operand = Q; operand < LSE; operand++)
        free(n->data[operand]);
}

/* O of a row; returns its LSE. */
static double forward_row(const numbers *n, int b, int h, int i, double *o)
{
    const fa2_problem *p = &n->c->problem;
    const int kv = h / (p->heads_q / p->heads_kv);
    double weights = 0;
    const int columns = fa2i_head_dim_v(p);
    memset(o, 0, (size_t)columns * sizeof *o);
    for (int j = 0; j < p->seq_k; j++) {
        double s = 0;
        for (int d = 0; d < p->head_dim; d++)
            s += row_of(n, Q, b, h, i)[d] * row_of(n, K, b, kv, j)[d];
        s = fa2i_score_modified(s / sqrt((double)p->head_dim), &n->c->factors);
        if (n->bias != NULL) {
            const fa2i_bias_strides at = fa2i_case_bias(n->c, BIAS);
            s += n->bias[b * at.batch + h * at.head + i * at.query + j * at.key];
        }
        const double weight = fa2i_key_is_seen(p, i, j) ? exp(s) : 0;
        weights += weight;
        for (int d = 0; d < columns; d++)
            o[d] += weight * row_of(n, V, b, kv, j)[d];
    }
    for (int d = 0; d < columns && weights > 0; d++)
        o[d] /= weights;
    return log(weights);
}

/* Returns the sum of dO * O. */
static double loss(const numbers *n)
{
    const fa2_problem *p = &n->c->problem;
    double o[16], sum = 0;
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->heads_q; h++)
            for (int i = 0; i < p->seq_q; i++) {
                forward_row(n, b, h, i, o);
                for (int d = 0; d < fa2i_head_dim_v(p); d++)
                    sum += row_of(n, DO, b, h, i)[d] * o[d];
            }
    return sum;
}

/* Kernels may differ from the reference by its bound. So may the true gradients, because the reference reads rounded O
 * and LSE. */
static void check_against_differences(numbers *n, const fa2i_expected *e)
{
    static const double step = 1e-5;
    for (int gradient = 0; gradient < 3; gradient++) {
        const fa2i_wanted *wanted = &e->outputs[gradient];
        double worst = 0, largest = 0;
        for (size_t i = 0; i < wanted->row_count; i++) {
            const fa2i_place *at = &wanted->places[i];
            double *row = row_of(n, Q + gradient, at->batch, at->head, at->row);
            for (int d = 0; d < wanted->width; d++) {
                const double value = row[d];
                const double found = wanted->values[i * (size_t)wanted->width + (size_t)d];
                row[d] = value + step;
                const double above = loss(n);
                row[d] = value - step;
                const double difference = (above - loss(n)) / (2 * step);
                row[d] = value;
                largest = fmax(largest, fabs(difference));
                worst = fmax(worst, fabs(found - difference) / wanted->bound.absolute);
                if (wanted->exact[i])
                    CHECK(found == 0 && fabs(difference) < 1e-6);
            }
        }
        CHECK(worst < 0.5);
        CHECK(wanted->bound.absolute < 0.02 * largest); /* tight enough to be useful */
    }
}

/* The case's O and LSE must be forward's results. */
static void check_forward(const numbers *n)
{
    const fa2_problem *p = &n->c->problem;
    const fa2i_extent e = fa2i_case_extent(n->c, LSE);
    const double rounding = p->dtype == FA2_BF16 ? 0x1p-7 : 0x1p-10; /* of numbers below 4 */
    float *lse = calloc(fa2i_case_period(n->c, LSE), sizeof *lse);
    double o[16];
    CHECK_EQ(fa2i_case_fill(n->c, LSE, lse), FA2_OK);
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->heads_q; h++)
            for (int i = 0; i < p->seq_q; i++) {
                const double right = forward_row(n, b, h, i, o);
                const double found = (double)lse[fa2i_extent_at(&e, b, h, i)];
                CHECK(isinf(right) ? found == right : fabs(found - right) < 1e-5);
                for (int d = 0; d < fa2i_head_dim_v(p); d++)
                    CHECK(fabs(row_of(n, O, b, h, i)[d] - o[d]) <= rounding);
            }
    free(lse);
}

static fa2i_outcome verdict_of(const fa2i_expected *e, const uint16_t *output, char *detail)
{
    fa2i_verification verdict;
    fa2i_expected_judge(e, "test", output, 0, &verdict);
    snprintf(detail, sizeof verdict.detail, "%s", verdict.detail);
    return verdict.outcome;
}

/* The reference's own values pass. One wrong element is found in each gradient. */
static void check_verdicts(const fa2i_expected *e)
{
    static const char *const names[] = {"dQ", "dK", "dV"};
    const fa2i_case *c = &e->c;
    char detail[sizeof((fa2i_verification){0}).detail];
    uint16_t *output = malloc(e->output_bytes), *next = output;
    uint16_t *first[3];
    memset(output, 0xff, e->output_bytes);
    for (int gradient = 0; gradient < 3; gradient++) {
        const fa2i_wanted *wanted = &e->outputs[gradient];
        const fa2i_extent extent = fa2i_case_extent(c, first_gradient() + gradient);
        for (size_t i = 0; i < wanted->row_count; i++) {
            const fa2i_place *at = &wanted->places[i];
            for (int d = 0; d < wanted->width; d++)
                next[fa2i_extent_at(&extent, at->batch, at->head, at->row) + d] =
                    fa2i_to_bits(c->problem.dtype, (float)wanted->values[i * (size_t)wanted->width + (size_t)d]);
        }
        first[gradient] = next;
        next += extent.elems;
    }
    CHECK_EQ(verdict_of(e, output, detail), FA2I_OUTCOME_OK);
    for (int gradient = 0; gradient < 3; gradient++) {
        const uint16_t right = *first[gradient];
        const double value = fa2i_from_bits(c->problem.dtype, right);
        *first[gradient] = fa2i_to_bits(c->problem.dtype, (float)(value + 3 * e->outputs[gradient].bound.absolute));
        CHECK_EQ(verdict_of(e, output, detail), FA2I_OUTCOME_WRONG);
        CHECK_CONTAINS(detail, names[gradient]);
        *first[gradient] = 0xffff; /* never written */
        CHECK_EQ(verdict_of(e, output, detail), FA2I_OUTCOME_WRONG);
        *first[gradient] = right;
    }
    free(output);
}

static void check_case(const fa2i_case *c)
{
    fa2i_expected e;
    numbers n;
    read_inputs(&n, c);
    CHECK_EQ(fa2i_expected_all(c, 3, &e), FA2_OK);
    check_forward(&n);
    check_against_differences(&n, &e);
    check_verdicts(&e);
    fa2i_expected_done(&e);
    free_inputs(&n);
}

/* Grouped heads; causal with rows that see nothing, and with keys that no query sees; windows, effective softcaps, and
 * both; fewer columns of V. */
static void test_reference(void)
{
    static const struct {
        int32_t seq_q, seq_k, causal;
        fa2i_layout layout;
        fa2_dtype dtype;
        int32_t window, window_left, window_right;
        float softcap;
        int32_t head_dim_v;
    } cases[] = {{9, 7, 0, FA2I_LAYOUT_BSHD, FA2_FP16, .softcap = 0},
                 {9, 6, 1, FA2I_LAYOUT_GAPPED, FA2_FP16, .softcap = 0},
                 {5, 11, 1, FA2I_LAYOUT_BHSD, FA2_FP16, .softcap = 0},
                 {8, 8, 1, FA2I_LAYOUT_SHARED, FA2_BF16, .softcap = 0},
                 {9, 7, 0, FA2I_LAYOUT_BSHD, FA2_FP16, .softcap = 1.5f},
                 {9, 12, 0, FA2I_LAYOUT_BHSD, FA2_FP16, 1, 2, 3, .softcap = 0},
                 {7, 9, 1, FA2I_LAYOUT_GAPPED, FA2_FP16, 1, 1, -1, .softcap = 0.75f},
                 {6, 9, 1, FA2I_LAYOUT_GAPPED, FA2_FP16, .softcap = 0, .head_dim_v = 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fa2i_case c = {.problem = {.op = FA2_OP_BACKWARD,
                                   .dtype = cases[i].dtype,
                                   .batch = 2,
                                   .heads_q = 4,
                                   .heads_kv = 2,
                                   .seq_q = cases[i].seq_q,
                                   .seq_k = cases[i].seq_k,
                                   .head_dim = cases[i].head_dim_v > 0 ? 16 : 8,
                                   .head_dim_v = cases[i].head_dim_v,
                                   .causal = cases[i].causal,
                                   .softcap = cases[i].softcap > 0,
                                   .window = cases[i].window,
                                   .window_left = cases[i].window_left,
                                   .window_right = cases[i].window_right},
                       .factors.softcap = cases[i].softcap,
                       .layout = cases[i].layout,
                       .pattern = FA2I_PATTERN_FORWARD,
                       .q_magnitude = 1,
                       .seed = 77 + i};
        check_case(&c);
    }
}

/* The gradient of a bias that is shared by several batches, heads or queries, or not shared. */
static void check_bias(const fa2i_case *c)
{
    static const double step = 1e-5;
    const fa2i_extent e = fa2i_case_extent(c, BIAS);
    float *bias = calloc(fa2i_case_period(c, BIAS), sizeof *bias);
    fa2i_expected expected;
    numbers n;
    double worst = 0, largest = 0;
    read_inputs(&n, c);
    n.bias = calloc((size_t)e.elems, sizeof *n.bias);
    CHECK_EQ(fa2i_case_fill(c, BIAS, bias), FA2_OK);
    for (int64_t i = 0; i < e.elems; i++)
        n.bias[i] = (double)bias[i];
    CHECK_EQ(fa2i_expected_all(c, 2, &expected), FA2_OK);
    CHECK_EQ(expected.output_count, 4);
    const fa2i_wanted *wanted = &expected.outputs[3];
    for (size_t i = 0; i < wanted->row_count; i++)
        for (int d = 0; d < wanted->width; d++) {
            const fa2i_place *at = &wanted->places[i];
            double *number = &n.bias[fa2i_extent_at(&e, at->batch, at->head, at->row) + d];
            const double value = *number;
            *number = value + step;
            const double above = loss(&n);
            *number = value - step;
            const double difference = (above - loss(&n)) / (2 * step);
            const double found = wanted->values[i * (size_t)wanted->width + (size_t)d];
            *number = value;
            largest = fmax(largest, fabs(difference));
            worst = fmax(worst, fabs(found - difference) / wanted->bound.absolute);
        }
    CHECK(worst < 0.5);
    CHECK(wanted->bound.absolute < 0.02 * largest);
    fa2i_expected_done(&expected);
    free(n.bias);
    free_inputs(&n);
    free(bias);
}

static void test_bias(void)
{
    static const fa2i_layout layouts[] = {FA2I_LAYOUT_BSHD, FA2I_LAYOUT_BHSD, FA2I_LAYOUT_GAPPED, FA2I_LAYOUT_SHARED};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const fa2i_case c = {.problem = {.op = FA2_OP_BACKWARD,
                                         .batch = 2,
                                         .heads_q = 2,
                                         .heads_kv = 1,
                                         .seq_q = 5,
                                         .seq_k = 7,
                                         .head_dim = 8,
                                         .causal = i % 2 == 0,
                                         .softcap = i > 1,
                                         .bias = FA2_BIAS_FP32_GRADIENT},
                             .factors.softcap = i > 1 ? 1.5f : 0,
                             .layout = layouts[i],
                             .pattern = FA2I_PATTERN_FORWARD,
                             .q_magnitude = 1,
                             .seed = 40 + i};
        check_bias(&c);
    }
}

/* Computes the gradients of one head if each tanh is wrong by a factor 1 + off. alternates: 1 - off for every second
 * one. */
static void gradients_off(const numbers *n, double off, bool alternates, double *out[3])
{
    const fa2_problem *p = &n->c->problem;
    const double cap = (double)n->c->factors.softcap, scale = 1 / sqrt((double)p->head_dim);
    double o[16];
    for (int i = 0; i < p->seq_q; i++) {
        const double *q = row_of(n, Q, 0, 0, i), *d_o = row_of(n, DO, 0, 0, i);
        const double lse = (double)(float)forward_row(n, 0, 0, i, o);
        double delta = 0;
        for (int d = 0; d < p->head_dim; d++)
            delta += d_o[d] * row_of(n, O, 0, 0, i)[d];
        for (int j = 0; j < p->seq_k; j++) {
            const double *k = row_of(n, K, 0, 0, j), *v = row_of(n, V, 0, 0, j);
            double s = 0, dp = 0;
            for (int d = 0; d < p->head_dim; d++) {
                s += scale * q[d] * k[d];
                dp += d_o[d] * v[d];
            }
            const double t = tanh(s / cap) * (1 + (alternates && (i + j) % 2 ? -off : off));
            const double weight = exp(cap * t - lse), ds = weight * (dp - delta) * (1 - t * t);
            for (int d = 0; d < p->head_dim; d++) {
                out[0][i * p->head_dim + d] += ds * scale * k[d];
                out[1][j * p->head_dim + d] += ds * scale * q[d];
                out[2][j * p->head_dim + d] += weight * d_o[d];
            }
        }
    }
}

/* Returns the largest ratio of such gradients' error to the bound. */
static double worst_off(const numbers *n, const fa2i_expected *e, double off, bool alternates)
{
    const fa2_problem *p = &n->c->problem;
    const size_t elems = (size_t)p->seq_q * (size_t)p->head_dim; /* Sq = Sk */
    double *found[3], worst = 0;
    for (int i = 0; i < 3; i++)
        found[i] = calloc(elems, sizeof **found);
    gradients_off(n, off, alternates, found);
    for (int i = 0; i < 3; i++) {
        const fa2i_wanted *wanted = &e->outputs[i];
        for (size_t r = 0; r < wanted->row_count; r++)
            for (int d = 0; d < wanted->width; d++) {
                const double value = found[i][wanted->places[r].row * p->head_dim + d];
                const double expected = wanted->values[r * (size_t)wanted->width + (size_t)d];
                worst = fmax(worst, fabs(value - expected) / wanted->bound.absolute);
            }
        free(found[i]);
    }
    return worst;
}

/* A tanh with tanh.approx's documented error passes. One with a much larger error does not. */
static void test_tanh(void)
{
    static const struct {
        float softcap, q_magnitude;
    } cases[] = {{3, 1}, {30, 24}, {30, 8}, {100, 40}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fa2i_case c = {.problem = {.op = FA2_OP_BACKWARD,
                                         .batch = 1,
                                         .heads_q = 1,
                                         .heads_kv = 1,
                                         .seq_q = 60,
                                         .seq_k = 60,
                                         .head_dim = 16,
                                         .softcap = 1},
                             .factors.softcap = cases[i].softcap,
                             .pattern = FA2I_PATTERN_FORWARD,
                             .q_magnitude = cases[i].q_magnitude,
                             .seed = 5 + i};
        fa2i_expected e;
        numbers n;
        read_inputs(&n, &c);
        CHECK_EQ(fa2i_expected_all(&c, 1, &e), FA2_OK);
        for (int alternates = 0; alternates < 2; alternates++) {
            CHECK(worst_off(&n, &e, 0, alternates) < 0.01);
            CHECK(worst_off(&n, &e, 0x1p-11, alternates) < 1);
            CHECK(worst_off(&n, &e, -0x1p-11, alternates) < 1);
            CHECK(worst_off(&n, &e, 0x1p-6, alternates) > 1);
        }
        fa2i_expected_done(&e);
        free_inputs(&n);
    }
}

int main(void)
{
    test_reference();
    test_bias();
    test_tanh();
    return check_done();
}
