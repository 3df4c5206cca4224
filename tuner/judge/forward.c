/*
 * Attention forward: operands, cases, data, reference, call.
 *
 * The sizes of the cases are chosen for the tiles in use (16 to 256 rows, 16 to 128 columns). There are multiples and
 * no multiples of them, less than the smallest, one row, and one column. Sq is less than Sk and greater; when causal,
 * that shifts the diagonal and leaves rows that see no key. The other cases have their purpose beside them. Classes
 * with windows or capped scores run the same cases with the window or cap in the table, and some cases of their own.
 */
#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem.h"
#include "runtime/ops/call.h"
#include "runtime/ops/forward.h"
#include "tuner/judge/attention.h"
#include "tuner/judge/feature_data.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/kv8.h"
#include "tuner/judge/merge.h"
#include "tuner/judge/reference.h"

enum { Q, K, V, O, LSE, FEATURES, OPERANDS = FEATURES + FA2I_OPERAND_COUNT };
_Static_assert((int)K == FA2I_FORWARD_K && (int)V == FA2I_FORWARD_V, "judge.h knows them");

static fa2_status fill(const fa2i_case *c, int operand, size_t count, void *out);
static const fa2i_operand operands[OPERANDS] = {
    [Q] = {"Q", FA2I_SHAPE_QUERIES, .patterned = true, .fill = fill},
    [K] = {"K", FA2I_SHAPE_KEYS, .patterned = true, .changed_by = FA2I_FIELD_append, .fill = fill},
    [V] = {"V", FA2I_SHAPE_VALUES, .changed_by = FA2I_FIELD_append, .fill = fill},
    [O] = {"O", FA2I_SHAPE_OUTPUTS, .output = true, .merged = true, .fill = fa2i_merged_fill},
    [LSE] = {"LSE", FA2I_SHAPE_STATISTICS, .output = true, .optional = true, .merged = true, .fill = fa2i_merged_fill},
#define FA2I_OPERAND(id, name, member, elem, shape, strides, field, ops, access, keyword)                              \
    [FEATURES + FA2I_OPERAND_##id] = FA2I_FEATURE_OPERAND(name, access),
#include "runtime/ops/operands.def"
};

/* ---- cases ---- */

/* The most keys per step of a kernel that divides the keys. */
enum { WIDEST_STEP = 512 };

/* The most blocks per SM that such a kernel aims at. */
enum { MOST_WAVES = 4 };

static const struct plan {
    const char *name;
    int32_t batch; /* 0: so many that no kernel divides the keys */
    int32_t heads_q, heads_kv, seq_q, seq_k;
    fa2i_layout layout;
    int32_t want_lse;
    float q_magnitude;
    int32_t window_left, window_right; /* for classes with a window */
    fa2i_factors factors;              /* in the order of factors.def; those that a class lacks do not count */
    fa2i_pattern pattern;
    fa2i_lengths lengths; /* for classes that have them */
    int field;            /* not 0: for classes where this field is not 0 */
    bool with_lengths;    /* for classes with lengths, pages, cache rows or new keys */
    bool divided;
} plans[] = {
    {"whole tiles, no LSE", 1, 2, 2, 256, 256, FA2I_LAYOUT_BSHD, 0, 1, 64, 63, .factors = {3, 0}},
    {"S no multiple of a tile", 2, 2, 2, 197, 197, FA2I_LAYOUT_BHSD, 1, 1, 0, 0, .factors = {3, 0}},
    {"S less than a tile", 2, 3, 3, 5, 5, FA2I_LAYOUT_GAPPED, 1, 1, 1, 0, .factors = {0.5f, 0}},
    {"Sq < Sk", 1, 2, 1, 67, 301, FA2I_LAYOUT_BSHD, 1, 1, 100, -1, .factors = {3, 0.3f}},
    {"Sq > Sk", 1, 2, 2, 301, 67, FA2I_LAYOUT_GAPPED, 1, 1, 20, 30, .factors = {3, 0}},
    {"grouped heads", 2, 6, 2, 130, 130, FA2I_LAYOUT_BHSD, 1, 1, 3, 2, .factors = {3, 0}},
    /* Scores up to about 100: exp would overflow unless the maximum is subtracted. */
    {"large logits", 1, 2, 2, 160, 160, FA2I_LAYOUT_BSHD, 1, 24, -1, 7, .factors = {30, 0}},
    {"one query", 2, 2, 1, 1, 257, FA2I_LAYOUT_BSHD, 1, 1, 128, 0, .factors = {3, 0}},
    {"one key", 1, 2, 2, 129, 1, FA2I_LAYOUT_BSHD, 1, 1, 5, 5, .factors = {3, 0}},
    /* It comes after the first step of every team, so that all teams have a maximum already. */
    {"a late maximum", 0, 1, 1, 1, WIDEST_STEP + 33, FA2I_LAYOUT_SHARED, 1, 0.02f, -1, -1, .factors = {40, 0},
     .pattern = FA2I_PATTERN_LATE},
    /* More splits than a warp reads in a loop unrolled four times, even with the widest steps. The rows of O do not
     * fill the last block of the kernel that combines the splits. */
    {"many splits", 1, 5, 1, 1, 4 * 32 * WIDEST_STEP + 1, FA2I_LAYOUT_BSHD, 1, 1, -1, 0, .factors = {1000, 0},
     .pattern = FA2I_PATTERN_PEAKS, .divided = true},
    {"a window wider than S", 1, 2, 1, 200, 173, FA2I_LAYOUT_BSHD, 1, 1, 1000, 1000, .factors = {3, 0},
     .field = FA2I_FIELD_window},
    /* Tiles that need no mask lie between two that do. */
    {"a window over several tiles", 1, 1, 1, 300, 700, FA2I_LAYOUT_BHSD, 1, 1, 400, 150, .factors = {3, 0},
     .field = FA2I_FIELD_window},
    {"a window that ends on tiles", 1, 2, 2, 130, 520, FA2I_LAYOUT_GAPPED, 1, 1, 255, 128, .factors = {3, 0},
     .field = FA2I_FIELD_window},
    {"a window that opens to the right", 1, 2, 2, 333, 150, FA2I_LAYOUT_BSHD, 1, 1, 0, -1, .factors = {3, 0},
     .field = FA2I_FIELD_window},
    /* Few visible keys among many, for kernels that divide them. */
    {"one query, a narrow window", 2, 4, 1, 1, 2000, FA2I_LAYOUT_BSHD, 1, 1, 99, 0, .factors = {3, 0},
     .field = FA2I_FIELD_window},
    {"scores far beyond the cap", 1, 2, 2, 160, 210, FA2I_LAYOUT_BHSD, 1, 24, 50, 50, .factors = {2, 0},
     .field = FA2I_FIELD_softcap},
    {"values near the limit of fp16 sums", 1, 2, 2, 130, 600, FA2I_LAYOUT_BSHD, 1, 0.02f, -1, -1, .factors = {40, 0},
     .pattern = FA2I_PATTERN_GROWN, .field = FA2I_FIELD_sums},
    {"lengths of all kinds", 11, 4, 2, 70, 300, FA2I_LAYOUT_BHSD, 1, 1, 60, 10, .factors = {3, 0},
     .lengths = FA2I_LENGTHS_WILD, .with_lengths = true},
    {"rows of no sequence", 3, 4, 2, 200, 260, FA2I_LAYOUT_GAPPED, 1, 1, 60, 10, .factors = {3, 0},
     .lengths = FA2I_LENGTHS_AMID, .field = FA2I_FIELD_varlen},
    /* More sequences than a warp has lanes, long and short ones. */
    {"one query, many lengths", 75, 2, 1, 1, 4000, FA2I_LAYOUT_BSHD, 1, 1, 700, 0, .factors = {3, 0},
     .with_lengths = true},
};

_Static_assert(sizeof plans / sizeof *plans <= FA2I_VERIFY_CASES_MAX, "room for every case");

static bool is_of_class(const struct plan *plan, const fa2_problem *class)
{
    return (plan->field == 0 || fa2i_field_get(class, plan->field) != 0) &&
           (!plan->with_lengths || fa2i_forward_has_lengths(class) || class->paged || class->cache_rows ||
            class->append);
}

static bool goes_by_rows(fa2i_pattern pattern)
{
    return pattern == FA2I_PATTERN_LATE || pattern == FA2I_PATTERN_GROWN;
}

static size_t list_cases(const fa2_problem *class, int sm_count, fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const struct plan *plan = &plans[i];
        /* patterns go by rows of the tensors; they need one sequence per batch */
        if (!is_of_class(plan, class) || (class->varlen && goes_by_rows(plan->pattern)) ||
            (class->paged && plan->pattern != FA2I_PATTERN_NONE))
            continue;
        fa2i_case c = {.problem = *class,
                       .layout = class->append && plan->layout == FA2I_LAYOUT_SHARED
                                     ? FA2I_LAYOUT_BSHD /* new keys are written, so sequences must not share memory */
                                     : plan->layout,
                       .want_lse = plan->want_lse,
                       .pattern = plan->pattern,
                       .lengths = plan->lengths,
                       .q_magnitude = plan->q_magnitude,
                       .factors = fa2i_factors_asked(class, plan->factors),
                       .seed = 1000 + i};
        fa2_problem *p = &c.problem;
        p->batch = plan->batch > 0 ? plan->batch : MOST_WAVES * sm_count / 2 + 1;
        p->heads_q = plan->heads_q;
        p->heads_kv = plan->heads_kv;
        p->seq_q = plan->seq_q;
        p->seq_k = plan->seq_k;
        fa2i_case_window(p, plan->window_left, plan->window_right);
        if (class->varlen)
            fa2i_case_pack(&c, plan->pattern == FA2I_PATTERN_NONE ? 2 : 0);
        p->page = class->paged ? 1 << (int)(i * 4 % 9) : 0;
        cases[count++] = (fa2i_verify_case){.name = plan->name, .divided = plan->divided, .c = c};
    }
    return count;
}

/* ---- data ---- */

/* Patterns use the first LEAD columns of Q and K. LEAD_VALUE in Q times the number in K is the wanted score. All other
 * numbers of K in these columns are 0. */
enum { LEAD = 8 };
#define LEAD_VALUE 8.0f

/* LATE: the score of the first LATE_KEYS keys. The others have scores near LATE_OTHERS. In log2 units they are 16.25 and
 * -0.15, so that P without rescaling slightly exceeds fp16, whether or not the exponent is rounded up to a whole number:
 * the others are below 0. A kernel that rescales too late would still rescale for a larger score.
 * Every other batch has LATE_FACTOR times it, and so has every other group of 16 rows, which is what a warp has. So no
 * row is saved by its neighbour. */
enum { LATE_KEYS = 8 };
#define LATE_SCORE  (16.25 * 0.6931471805599453)
#define LATE_OTHERS (-0.15 * 0.6931471805599453)
#define LATE_FACTOR 13.0f

/* GROWN: the score of the first half of the keys. The others, which kernels process first, have scores near 0. In log2
 * units it is 7.9: a kernel that rescales O when a maximum has grown by 8 computes P = 239, and fp16 sums overflow.
 * Every other group of 16 rows has GROWN_LITTLE of it, 1.9, by which P may grow. Values are GROWN_VALUE, and normal
 * numbers: fa2.h permits 127 with fp16 sums. */
#define GROWN_SCORE  (7.9 * 0.6931471805599453)
#define GROWN_LITTLE 0.24f
#define GROWN_VALUE  120.0f

/* PEAKS: a score whose exponential exceeds fp32. */
#define PEAK_SCORE 120.0

/* Returns the number in K that gives a score, for a query with LEAD_VALUE. */
static float lead_of_key(const fa2i_case *c, double score)
{
    const double before_cap = fa2i_score_before(score, &c->factors);
    return (float)(before_cap / fa2i_softmax_scale(&c->problem, c->factors.softmax_scale) / (double)LEAD_VALUE);
}

/* Returns the key at which a query head has its peak: the last key, and keys at even distances before it. */
static int32_t peak_of(const fa2_problem *p, int32_t head)
{
    const int32_t peaks = p->heads_q - 1;
    return head < peaks ? (int32_t)((int64_t)p->seq_k * (head + 1) / peaks - 1) : -1;
}

static float lead_value(const fa2i_case *c, int operand, fa2i_place place, int32_t column)
{
    const fa2_problem *p = &c->problem;
    if (c->pattern == FA2I_PATTERN_LATE && column == 0) {
        if (operand == Q)
            return LEAD_VALUE * ((place.batch + place.row / 16) % 2 == 1 ? LATE_FACTOR : 1.0f);
        return lead_of_key(c, place.row < LATE_KEYS ? LATE_SCORE : LATE_OTHERS);
    }
    if (c->pattern == FA2I_PATTERN_GROWN && column == 0) {
        if (operand == Q)
            return place.row / 16 % 2 == 1 ? LEAD_VALUE * GROWN_LITTLE : LEAD_VALUE;
        return place.row < p->seq_k / 2 ? lead_of_key(c, GROWN_SCORE) : 0.0f;
    }
    if (c->pattern != FA2I_PATTERN_PEAKS)
        return 0.0f;
    if (operand == Q)
        return place.head % LEAD == column && peak_of(p, place.head) >= 0 ? LEAD_VALUE : 0.0f;
    for (int32_t head = 0; head < p->heads_q; head++)
        if (head % LEAD == column && peak_of(p, head) == place.row)
            return lead_of_key(c, PEAK_SCORE);
    return 0.0f;
}

/* Writes the leads over the first columns of each row. */
static void put_leads(const fa2i_case *c, int operand, size_t count, void *elements)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    for (int64_t row = 0; row < (int64_t)count; row += e.pitch)
        for (int32_t column = 0; column < LEAD; column++) {
            int32_t same;
            const fa2i_place place = fa2i_extent_place(&e, c->layout, row + column, &same);
            fa2i_put_number(c->problem.dtype, elements, (size_t)row + (size_t)column,
                            lead_value(c, operand, place, same));
        }
}

static void enlarge(fa2_dtype dtype, size_t count, void *elements)
{
    for (size_t i = 0; i < count; i++)
        fa2i_put_number(dtype, elements, i, fa2i_get_number(dtype, elements, i) + GROWN_VALUE);
}

/* Makes other numbers of normal ones. Elements of Q, K or V; `count` is at most a period. */
static void change_numbers(const fa2i_case *c, int operand, size_t count, void *elements)
{
    enum { LARGE = 17, NEGATIVE = 5, OF_K = 11, OF_V = 3 }; /* columns; all problems have 8 */
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const int large = LARGE % e.width;
    float means[FA2I_MOST_head_dim];
    uint64_t columns = c->seed + 77, rare = c->seed + 78 + (uint64_t)operand;
    for (int i = 0; i < e.width; i++)
        means[i] = i == large ? 12 : i == NEGATIVE ? -9 : 2 * fa2i_random_normal(&columns);
    for (size_t i = 0; i < count; i++) {
        const int column = (int)(i % (size_t)e.pitch);
        const bool is_rare = fa2i_random(&rare) % 1000 == 0;
        float x = fa2i_get_number(c->problem.dtype, elements, i);
        if (c->pattern == FA2I_PATTERN_MEANS && operand == K && column < e.width)
            x += means[column];
        else if (c->pattern == FA2I_PATTERN_OUTLIERS && is_rare)
            x += 10 * fa2i_random_normal(&rare);
        else if (c->pattern == FA2I_PATTERN_CHANNEL && operand != Q && column == (operand == K ? OF_K : OF_V) % e.width)
            x *= 100;
        fa2i_put_number(c->problem.dtype, elements, i, x);
    }
}

/* Writes elements of the dtype, whatever the type of K and V. */
static fa2_status fill_elements(const fa2i_case *c, int operand, size_t count, void *out)
{
    fa2i_case_fill_normal(c, operand, operand == Q ? c->q_magnitude : 1.0f, count, out);
    if (c->pattern == FA2I_PATTERN_GROWN && operand == V)
        enlarge(c->problem.dtype, count, out);
    if (fa2i_pattern_is_numbers(c->pattern))
        change_numbers(c, operand, count, out);
    else if (c->pattern != FA2I_PATTERN_NONE && operands[operand].patterned)
        put_leads(c, operand, count, out);
    return FA2_OK;
}

static fa2_status fill(const fa2i_case *c, int operand, size_t count, void *out)
{
    return operand != Q && c->problem.kv != FA2_KV_DTYPE ? fa2i_kv8_fill(c, operand, count, out)
                                                         : fill_elements(c, operand, count, out);
}

/* ---- expected results ---- */

/* Marks the rows whose LSE is infinite. */
static fa2_status mark_infinite(const fa2i_reference *reference, bool **ret_exact)
{
    bool *exact = fa2i_alloc_array(reference->row_count, sizeof *exact);
    if (exact == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu rows", reference->row_count);
    for (size_t i = 0; i < reference->row_count; i++)
        exact[i] = isinf(reference->lse[i]) != 0;
    *ret_exact = exact;
    return FA2_OK;
}

/* rows: of the outputs, borrowed. */
static fa2i_reference_request make_request(const fa2i_case *c, const fa2i_inputs *inputs, const fa2i_row *rows,
                                           size_t count, int threads)
{
    const fa2_problem *p = &c->problem;
    const int cos = FEATURES + FA2I_OPERAND_rotary_cos, sin = FEATURES + FA2I_OPERAND_rotary_sin;
    return (fa2i_reference_request){.problem = *p,
                                    .factors = c->factors,
                                    .features = fa2i_case_features(c, inputs),
                                    .q = fa2i_case_host_tensor(c, inputs, Q),
                                    .k = fa2i_case_host_tensor(c, inputs, K),
                                    .v = fa2i_case_host_tensor(c, inputs, p->v_in_k ? K : V),
                                    .new_k = fa2i_case_host_tensor(c, inputs, FEATURES + FA2I_OPERAND_new_k),
                                    .new_v = fa2i_case_host_tensor(c, inputs, FEATURES + FA2I_OPERAND_new_v),
                                    .angles = {fa2i_case_host_tensor(c, inputs, cos),
                                               fa2i_case_host_tensor(c, inputs, sin), fa2i_case_positions(p)},
                                    .said = fa2i_case_said(c, inputs),
                                    .rows = rows,
                                    .row_count = count,
                                    .threads = threads};
}

/* Merges the expected rows with O and LSE before the launch. */
static void merge_rows(const fa2i_case *c, const fa2i_inputs *inputs, fa2i_wanted *o, const double *sizes, double *lse)
{
    const fa2i_said said = fa2i_case_said(c, inputs);
    for (size_t i = 0; i < o->row_count; i++) {
        const fa2i_place *place = &o->places[i];
        const fa2i_sequence s = fa2i_sequence_at(&c->problem, &said, place->batch, place->row, false);
        fa2i_merge_forward(c, inputs, c->problem.carry ? FEATURES + FA2I_OPERAND_carried : O, LSE, o, i, sizes[i],
                           &lse[i], s.first_q >= 0);
    }
}

static fa2_status compute(const fa2i_case *c, const fa2i_inputs *inputs, int threads, fa2i_wanted *outputs)
{
    fa2_status st = FA2_OK;
    const size_t count = outputs[0].row_count;
    fa2i_reference reference = {0};
    fa2i_row *rows = NULL;
    FA2_TRY(FA2I_NEW(rows, count));
    for (size_t i = 0; i < count; i++) {
        const fa2i_place *place = &outputs[0].places[i];
        rows[i] = (fa2i_row){.batch = place->batch, .head = place->head, .row = place->row};
    }
    const fa2i_reference_request request = make_request(c, inputs, rows, count, threads);
    FA2_TRY(fa2i_reference_compute(&request, &reference));
    outputs[0].bound = fa2i_reference_bound(&reference);
    outputs[0].values = reference.o;
    outputs[0].exact = reference.empty;
    outputs[0].allowed = reference.allowed_o;
    reference.allowed_o = NULL;
    reference.o = NULL;
    reference.empty = NULL;
    if (fa2i_merges_lse(&c->problem))
        merge_rows(c, inputs, &outputs[0], reference.sizes, reference.lse);
    if (fa2i_case_has_lse(c)) {
        FA2_TRY(mark_infinite(&reference, &outputs[1].exact));
        outputs[1].bound = fa2i_lse_bound(c->problem.dtype, &c->factors);
        outputs[1].values = reference.lse;
        outputs[1].allowed = reference.allowed_lse;
        reference.allowed_lse = NULL;
        reference.lse = NULL;
    }
done:
    fa2i_reference_done(&reference);
    fa2i_free(rows);
    return st;
}

/* ---- the call ---- */

static fa2i_arguments make_arguments(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX],
                                     uint64_t workspace, size_t workspace_bytes)
{
    fa2i_arguments made = {.forward = {.struct_bytes = sizeof(fa2_forward_args),
                                       .q = fa2i_case_tensor(c, addresses, Q),
                                       .k = fa2i_case_tensor(c, addresses, K),
                                       .v = fa2i_case_tensor(c, addresses, V),
                                       .o = fa2i_case_tensor(c, addresses, O),
                                       .lse = (float *)(uintptr_t)addresses[LSE],
                                       .workspace = (void *)(uintptr_t)workspace,
                                       .workspace_bytes = workspace_bytes}};
    fa2i_case_put_forward(c, addresses, &made.forward);
    return made;
}

const fa2i_judge fa2i_judge_forward = {.operands = operands,
                                       .operand_count = OPERANDS,
                                       .elements = fill_elements,
                                       .first_feature = FEATURES,
                                       .cases = list_cases,
                                       .reference = compute,
                                       .arguments = make_arguments};
