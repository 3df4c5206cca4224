/*
 * The fp64 reference: conversions of all bit patterns; attention compared with numbers computed by hand, and with its
 * definition, with each mask and softcap; and a bound that finds what it should.
 */
#include <math.h>
#include <stdlib.h>
#include "check.h"
#include "tuner/judge/attention.h"
#include "tuner/judge/case.h"
#include "tuner/judge/number.h"
#include "tests/reference_compare.h"

/* Forward's operands. */
enum { OPERAND_Q, OPERAND_K, OPERAND_V };

static bool is_nan(fa2_dtype dtype, uint16_t bits)
{
    return isnan(fa2i_from_bits(dtype, bits)) != 0;
}

/* Every number survives the round trip. A number between two neighbours rounds to the nearer one, the midpoint to even.
 * */
static void test_conversions(fa2_dtype dtype)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t bits = (uint16_t)i;
        float value = fa2i_from_bits(dtype, bits);
        if (is_nan(dtype, bits)) {
            CHECK(is_nan(dtype, fa2i_to_bits(dtype, value)));
            continue;
        }
        CHECK_EQ(fa2i_to_bits(dtype, value), bits);
        uint16_t next = (uint16_t)(bits + 1);
        float above = fa2i_from_bits(dtype, next);
        if ((bits & 0x7fff) == 0x7fff || !isfinite(value) || is_nan(dtype, next))
            continue;
        double end = above; /* infinity: one step above the largest number */
        if (!isfinite(above))
            end = value + ((double)value - fa2i_from_bits(dtype, (uint16_t)(bits - 1)));
        double middle = ((double)value + end) / 2;
        if ((double)(float)middle != middle)
            continue; /* bf16's smallest subnormals have no fp32 number between */
        float half = (float)middle;
        CHECK_EQ(fa2i_to_bits(dtype, half), bits & 1 ? next : bits);
        CHECK_EQ(fa2i_to_bits(dtype, nextafterf(half, 0)), bits);
        CHECK_EQ(fa2i_to_bits(dtype, nextafterf(half, copysignf(INFINITY, half))), next);
    }
}

static void test_known_bits(void)
{
    CHECK_EQ(fa2i_to_bits(FA2_FP16, 1), 0x3c00);
    CHECK_EQ(fa2i_to_bits(FA2_FP16, -2), 0xc000);
    CHECK_EQ(fa2i_to_bits(FA2_FP16, 65504), 0x7bff);
    CHECK_EQ(fa2i_to_bits(FA2_FP16, 65520), 0x7c00);
    CHECK_EQ(fa2i_to_bits(FA2_FP16, 0x1p-24f), 0x0001);
    CHECK_EQ(fa2i_to_bits(FA2_BF16, 1), 0x3f80);
    CHECK_EQ(fa2i_to_bits(FA2_BF16, -INFINITY), 0xff80);
}

static fa2i_host_tensor tensor(const uint16_t *data, const fa2i_case *c, int operand)
{
    fa2i_extent e = fa2i_case_extent(c, operand);
    return (fa2i_host_tensor){.data = data,
                              .stride_batch = e.stride_batch,
                              .stride_seq = e.stride_seq,
                              .stride_head = e.stride_head,
                              .period_elems = (int64_t)fa2i_case_period(c, operand)};
}

/* Two keys whose scores differ by ln 3: weights 1/4 and 3/4. */
static void test_by_hand(void)
{
    uint16_t q[8] = {0}, k[16] = {0}, v[16] = {0};
    q[0] = fa2i_to_bits(FA2_BF16, 1);
    k[8] = fa2i_to_bits(FA2_BF16, 1);
    v[0] = fa2i_to_bits(FA2_BF16, 4);
    v[8] = fa2i_to_bits(FA2_BF16, 8);
    fa2i_row row = {0};
    fa2i_reference_request request = {
        .problem = {.dtype = FA2_BF16, .batch = 1, .heads_q = 1, .heads_kv = 1, .seq_q = 1, .seq_k = 2, .head_dim = 8},
        .factors.softmax_scale = (float)log(3),
        .q = {.data = q, .stride_seq = 8},
        .k = {.data = k, .stride_seq = 8},
        .v = {.data = v, .stride_seq = 8},
        .rows = &row,
        .row_count = 1};
    fa2i_reference reference;
    CHECK_EQ(fa2i_reference_compute(&request, &reference), FA2_OK);
    CHECK(fabs(reference.o[0] - 7) < 1e-6);
    CHECK(fabs(reference.o[1]) < 1e-12);
    CHECK(fabs(reference.lse[0] - log(4)) < 1e-6);
    CHECK(reference.plain_error < 0.02); /* half a unit in the last place of bf16 at 7 */
    fa2i_reference_done(&reference);
}

typedef struct fixture {
    fa2i_case c;
    uint16_t blocks[3][2 * 4 * 20 * 24];
    fa2i_row *rows;
    fa2i_reference_request request;
} fixture;

/* The mask and softcap of a fixture. */
typedef struct rule {
    int32_t causal, window, left, right;
    float softcap;
} rule;

/* Grouped heads, Sq > Sk: if causal, the first rows see nothing. */
static fixture *make_fixture(fa2i_layout layout, rule r)
{
    fixture *f = calloc(1, sizeof *f);
    f->c = (fa2i_case){.problem = {.batch = 2,
                                   .heads_q = 4,
                                   .heads_kv = 2,
                                   .seq_q = 20,
                                   .seq_k = 13,
                                   .head_dim = 16,
                                   .causal = r.causal,
                                   .softcap = r.softcap > 0,
                                   .window = r.window,
                                   .window_left = r.left,
                                   .window_right = r.right},
                       .layout = layout,
                       .q_magnitude = 1,
                       .factors.softcap = r.softcap,
                       .seed = 7};
    f->rows = calloc(2 * 4 * 20, sizeof *f->rows);
    for (int i = 0; i < 2 * 4 * 20; i++)
        f->rows[i] = (fa2i_row){.batch = i / 80, .head = i / 20 % 4, .row = i % 20};
    for (int i = 0; i < 3; i++)
        fa2i_case_fill(&f->c, i, f->blocks[i]);
    f->request = (fa2i_reference_request){.problem = f->c.problem,
                                          .factors.softcap = r.softcap,
                                          .q = tensor(f->blocks[0], &f->c, OPERAND_Q),
                                          .k = tensor(f->blocks[1], &f->c, OPERAND_K),
                                          .v = tensor(f->blocks[2], &f->c, OPERAND_V),
                                          .rows = f->rows,
                                          .row_count = 2 * 4 * 20};
    return f;
}

static void free_fixture(fixture *f)
{
    free(f->rows);
    free(f);
}

/* Returns true if the key is hidden, as fa2.h defines both masks, from its distance to the query's own position. */
static bool is_masked(const fa2_problem *p, int i, int j)
{
    const int distance = j - (i + p->seq_k - p->seq_q);
    if (p->causal && distance > 0)
        return true;
    if (!p->window)
        return false;
    return (p->window_left != -1 && distance < -p->window_left) ||
           (p->window_right != -1 && distance > p->window_right);
}

/* Computes one element of O directly from the definition. */
static double define(const fixture *f, fa2i_row row, int d)
{
    double weights[13], sum = 0, o = 0;
    const uint16_t *q = f->blocks[0], *k = f->blocks[1], *v = f->blocks[2];
    fa2i_extent eq = fa2i_case_extent(&f->c, OPERAND_Q);
    fa2i_extent ek = fa2i_case_extent(&f->c, OPERAND_K);
    for (int j = 0; j < 13; j++) {
        double score = 0;
        if (is_masked(&f->c.problem, row.row, j))
            continue;
        int64_t at_q = row.batch * eq.stride_batch + row.row * eq.stride_seq + row.head * eq.stride_head;
        int64_t at_k = row.batch * ek.stride_batch + j * ek.stride_seq + row.head / 2 * ek.stride_head;
        for (int e = 0; e < 16; e++)
            score += (double)fa2i_from_bits(FA2_FP16, q[at_q + e]) * fa2i_from_bits(FA2_FP16, k[at_k + e]);
        score /= 4;
        if (f->c.factors.softcap > 0)
            score = (double)f->c.factors.softcap * tanh(score / (double)f->c.factors.softcap);
        weights[j] = exp(score);
        sum += weights[j];
        o += weights[j] * fa2i_from_bits(FA2_FP16, v[at_k + d]);
    }
    return sum > 0 ? o / sum : 0;
}

static void test_definition(fa2i_layout layout, rule r)
{
    fixture *f = make_fixture(layout, r);
    fa2i_reference one, many;
    CHECK_EQ(fa2i_reference_compute(&f->request, &one), FA2_OK);
    f->request.threads = 7;
    CHECK_EQ(fa2i_reference_compute(&f->request, &many), FA2_OK);
    CHECK_EQ(memcmp(one.o, many.o, one.row_count * 16 * sizeof(double)), 0);
    CHECK_EQ(memcmp(one.lse, many.lse, one.row_count * sizeof(double)), 0);
    CHECK(one.plain_error == many.plain_error && one.plain_error < 1e-1);
    if (r.causal && !r.window && r.softcap == 0)
        CHECK(one.plain_error > 1e-5 && one.plain_error < 1e-2);
    for (size_t i = 0; i < one.row_count; i++)
        for (int d = 0; d < 16; d++)
            CHECK(fabs(one.o[i * 16 + (size_t)d] - define(f, f->rows[i], d)) < 1e-12);
    for (size_t i = 0; i < one.row_count; i++) {
        bool none = true;
        for (int j = 0; j < 13; j++)
            none = none && is_masked(&f->c.problem, f->rows[i].row, j);
        CHECK_EQ(isinf(one.lse[i]) && one.lse[i] < 0, none);
    }
    if (r.causal && !r.window)
        CHECK(isinf(one.lse[6]) && !isinf(one.lse[7])); /* row 7 of Sq = 20 sees the first key */
    fa2i_reference_done(&one);
    fa2i_reference_done(&many);
    free_fixture(f);
}

/* Values that the bound accepts, and values that it refuses. */
static void test_compare(void)
{
    fixture *f = make_fixture(FA2I_LAYOUT_BSHD, (rule){.causal = 1});
    fa2i_reference r;
    reference_comparison comparison;
    static uint16_t o[160 * 16];
    static float lse[160];
    CHECK_EQ(fa2i_reference_compute(&f->request, &r), FA2_OK);
    for (size_t i = 0; i < r.row_count * 16; i++)
        o[i] = fa2i_to_bits(FA2_FP16, (float)r.o[i]);
    for (size_t i = 0; i < r.row_count; i++)
        lse[i] = (float)r.lse[i];
    reference_compare(&r, FA2_FP16, o, lse, &comparison);
    CHECK(comparison.error < 1);

    uint16_t held = o[10 * 16 + 3];
    o[10 * 16 + 3] = fa2i_to_bits(FA2_FP16, (float)(r.o[10 * 16 + 3] + 1.5 * fa2i_reference_bound(&r).absolute + 1e-3));
    reference_compare(&r, FA2_FP16, o, lse, &comparison);
    CHECK(comparison.error > 1 && !comparison.worst_is_lse);
    CHECK_EQ(comparison.worst_row, 10);
    o[10 * 16 + 3] = 0x7e00; /* NaN */
    reference_compare(&r, FA2_FP16, o, NULL, &comparison);
    CHECK(comparison.error == FA2I_ERROR_NOT_FINITE);
    o[10 * 16 + 3] = held;
    o[0] = 0x0001; /* a row that sees no key must be exactly 0 */
    reference_compare(&r, FA2_FP16, o, NULL, &comparison);
    CHECK(comparison.error == FA2I_ERROR_NOT_FINITE);
    o[0] = 0x8000; /* -0 is 0 */

    lse[12] += 0.001f;
    reference_compare(&r, FA2_FP16, o, lse, &comparison);
    CHECK(comparison.error > 1 && comparison.worst_is_lse);
    CHECK_EQ(comparison.worst_row, 12);
    lse[12] = (float)r.lse[12];
    lse[0] = -1e30f;
    reference_compare(&r, FA2_FP16, o, lse, &comparison);
    CHECK(comparison.error == FA2I_ERROR_NOT_FINITE && comparison.worst_is_lse);
    fa2i_reference_done(&r);
    free_fixture(f);
}

/* The range of visible keys compared with the mask of each pair, for all windows near the edges. */
static void test_masks(void)
{
    static const int32_t edges[] = {-1, 0, 1, 3, 6, 7, 20};
    static const int32_t lengths[][2] = {{1, 1}, {1, 7}, {7, 1}, {7, 7}, {5, 9}, {9, 5}};
    enum { EDGES = sizeof edges / sizeof *edges, LENGTHS = sizeof lengths / sizeof *lengths };
    for (size_t n = 0; n < (size_t)2 * 2 * EDGES * EDGES * LENGTHS; n++) {
        const int32_t *length = lengths[n / (4 * EDGES * EDGES)];
        fa2_problem p = {.struct_bytes = sizeof(fa2_problem),
                         .seq_q = length[0],
                         .seq_k = length[1],
                         .causal = n % 2,
                         .window = n / 2 % 2,
                         .window_left = edges[n / 4 % EDGES],
                         .window_right = edges[n / (4 * EDGES) % EDGES]};
        for (int32_t i = 0; i < p.seq_q; i++) {
            const fa2i_keys keys = fa2i_keys_seen(&p, i);
            int32_t seen = 0;
            for (int32_t j = 0; j < p.seq_k; j++) {
                CHECK_EQ(fa2i_key_is_seen(&p, i, j), !is_masked(&p, i, j));
                seen += !is_masked(&p, i, j);
            }
            CHECK_EQ(keys.end - keys.first, seen);
            CHECK(keys.first >= 0 && keys.end <= p.seq_k);
        }
    }
    const fa2i_factors capped = {.softcap = 2}, plain = {.softcap = 0};
    CHECK(fabs(fa2i_score_modified(3, &capped) - 1.8102966) < 1e-6); /* 2 tanh(1.5) */
    CHECK(fa2i_score_modified(-7, &plain) == -7);
    CHECK(fabs(fa2i_score_before(fa2i_score_modified(3, &capped), &capped) - 3) < 1e-12);
    CHECK(fabs(fa2i_score_slope(3, &capped).slope - 0.1807066) < 1e-6); /* 1 - tanh(1.5)^2 */
    CHECK(fa2i_score_slope(3, &plain).slope == 1 && fa2i_score_slope(3, &plain).p_error == 0);
}

/* Scores far above the softcap: the plain implementation loses precision of fp16. */
static void test_plain_cap(void)
{
    double errors[2];
    for (int capped = 0; capped < 2; capped++) {
        fixture *f = make_fixture(FA2I_LAYOUT_BSHD, (rule){.softcap = capped ? 30.0f : 0.0f});
        fa2i_reference r;
        CHECK_EQ(fa2i_reference_compute(&f->request, &r), FA2_OK);
        errors[capped] = r.plain_error;
        fa2i_reference_done(&r);
        free_fixture(f);
    }
    CHECK(errors[1] > errors[0]); /* because of three more roundings */
    CHECK(errors[1] < 30 * errors[0]);
}

/* Element i of a periodic tensor is data[i % period], even where a row crosses the end. */
static void test_period(void)
{
    uint16_t data[24], whole[80];
    fa2i_row row = {.row = 0};
    fa2i_reference a, b;
    uint64_t state = 1;
    for (int i = 0; i < 24; i++)
        data[i] = fa2i_to_bits(FA2_FP16, (float)(fa2i_random(&state) % 7) - 3);
    for (int i = 0; i < 80; i++)
        whole[i] = data[i % 24];
    fa2i_host_tensor t = {.data = whole, .stride_seq = 20};
    fa2i_reference_request request = {
        .problem = {.batch = 1, .heads_q = 1, .heads_kv = 1, .seq_q = 1, .seq_k = 4, .head_dim = 8},
        .q = t,
        .k = t,
        .v = t,
        .rows = &row,
        .row_count = 1};
    CHECK_EQ(fa2i_reference_compute(&request, &a), FA2_OK);
    t = (fa2i_host_tensor){.data = data, .stride_seq = 20, .period_elems = 24};
    request.q = request.k = request.v = t;
    CHECK_EQ(fa2i_reference_compute(&request, &b), FA2_OK);
    CHECK_EQ(memcmp(a.o, b.o, 8 * sizeof(double)), 0);
    fa2i_reference_done(&a);
    fa2i_reference_done(&b);
}

static void test_half_unit(void)
{
    CHECK(fa2i_half_unit(FA2_FP16, 2.05) == 0x1p-10);
    CHECK(fa2i_half_unit(FA2_FP16, -1.99) == 0x1p-11);
    CHECK(fa2i_half_unit(FA2_BF16, 7) == 0x1p-6);
    CHECK(fa2i_half_unit(FA2_FP16, 0) == 0x1p-25); /* of subnormal numbers */
}

int main(void)
{
    test_half_unit();
    test_known_bits();
    test_conversions(FA2_FP16);
    test_conversions(FA2_BF16);
    test_by_hand();
    test_masks();
    static const rule rules[] = {{.causal = 1},
                                 {.softcap = 0.7f},
                                 {.causal = 1, .softcap = 50},
                                 {.window = 1, .left = 3, .right = 2},
                                 {.window = 1, .left = 0, .right = 0, .softcap = 1},
                                 {.window = 1, .left = -1, .right = 4},
                                 {.window = 1, .left = 5, .right = -1},
                                 {.causal = 1, .window = 1, .left = 2, .right = 9, .softcap = 2},
                                 {.window = 1, .left = 1000, .right = 1000}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        test_definition((fa2i_layout)(i % 3), rules[i]);
    test_definition(FA2I_LAYOUT_SHARED, rules[0]);
    test_plain_cap();
    test_compare();
    test_period();
    return check_done();
}
