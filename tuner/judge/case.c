/*
 * Extents and data of cases, as far as all operations share them.
 */
#include "tuner/judge/case.h"

#include <assert.h>
#include "runtime/base/problem.h"
#include "runtime/ops/call.h"
#include "runtime/ops/forward.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/number.h"

enum { BLOCK_ELEMS = 8 * 32749, GAP_BYTES = 16, HEADS_GAP = 3, SCALES_GAP = 3 };

static const fa2i_factors tuned_factors = {30, 0}; /* their values do not affect the time */

uint64_t fa2i_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Nearly normal, standard deviation 1: the sum of four uniform numbers. */
float fa2i_random_normal(uint64_t *state)
{
    const uint64_t r = fa2i_random(state);
    const int32_t sum = (int32_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48));
    return (float)(sum - 131070) * (1.0f / 37837.2f); /* the sum's standard deviation */
}

fa2i_case fa2i_case_of(const fa2_problem *problem, uint64_t seed)
{
    return (fa2i_case){.problem = *problem,
                       .q_magnitude = 1,
                       .factors = fa2i_factors_asked(problem, tuned_factors),
                       .timed = true,
                       .seed = seed};
}

static const fa2i_operand *operand_of(const fa2i_case *c, int operand)
{
    const fa2i_judge *judge = fa2i_judge_of(c->problem.op);
    assert(operand >= 0 && operand < judge->operand_count);
    return &judge->operands[operand];
}

/* Extent of the numbers per query row. */
static fa2i_extent extent_of_statistics(const fa2_problem *p)
{
    return (fa2i_extent){.batch = p->batch,
                         .seq = p->seq_q,
                         .heads = p->heads_q,
                         .width = 1,
                         .pitch = 1,
                         .stride_batch = (int64_t)p->heads_q * p->seq_q,
                         .stride_seq = 1,
                         .stride_head = p->seq_q,
                         .elems = (int64_t)p->batch * p->heads_q * p->seq_q,
                         .elem_bytes = sizeof(float)};
}

/* Extent of one row per batch, or one row in all, with a number per query head. */
static fa2i_extent extent_of_heads(const fa2i_case *c, bool batched)
{
    const fa2_problem *p = &c->problem;
    const int64_t pitch = p->heads_q + (c->layout == FA2I_LAYOUT_GAPPED ? HEADS_GAP : 0);
    const int64_t rows = batched && c->layout != FA2I_LAYOUT_SHARED ? p->batch : 1;
    return (fa2i_extent){.batch = batched ? p->batch : 1,
                         .seq = 1,
                         .heads = 1,
                         .width = p->heads_q,
                         .pitch = pitch,
                         .stride_batch = rows > 1 ? pitch : 0,
                         .elems = (rows - 1) * pitch + p->heads_q,
                         .elem_bytes = sizeof(float)};
}

/* Extent of the bias. Batches and heads have their own plane or share planes; timed cases share one. apart: each has
 * its own. */
static fa2i_extent extent_of_bias(const fa2i_case *c, size_t elem_bytes, bool apart)
{
    const fa2_problem *p = &c->problem;
    const bool turned = c->layout == FA2I_LAYOUT_BHSD;
    const bool each = apart || turned || (c->layout == FA2I_LAYOUT_BSHD && !c->timed);
    const bool batched = each || c->layout == FA2I_LAYOUT_GAPPED;
    const bool by_head = each || c->layout == FA2I_LAYOUT_SHARED;
    fa2i_extent e = {.batch = batched ? p->batch : 1,
                     .seq = turned                                      ? p->seq_k
                            : c->layout == FA2I_LAYOUT_SHARED && !apart ? 1
                                                                        : p->seq_q,
                     .heads = by_head ? p->heads_q : 1,
                     .width = turned ? p->seq_q : p->seq_k,
                     .elem_bytes = elem_bytes};
    e.pitch = c->layout == FA2I_LAYOUT_GAPPED ? e.width | 1
              : c->layout == FA2I_LAYOUT_BSHD ? (e.width + 7) / 8 * 8
                                              : e.width;
    e.stride_seq = e.pitch;
    e.stride_head = by_head ? e.seq * e.pitch : 0;
    e.stride_batch = batched ? (int64_t)e.heads * e.seq * e.pitch : 0;
    e.elems = ((int64_t)e.batch * e.heads * e.seq - 1) * e.pitch + e.width;
    return e;
}

fa2i_bias_strides fa2i_case_bias(const fa2i_case *c, int operand)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const int64_t row = e.seq > 1 ? e.stride_seq : 0;
    fa2i_bias_strides strides = {e.stride_batch, e.stride_head, row, 1};
    if (c->layout == FA2I_LAYOUT_BHSD) {
        strides.query = 1;
        strides.key = row;
    }
    return strides;
}

/* Extent of rows of integers. */
static fa2i_extent extent_of_numbers(int32_t batch, int32_t columns, size_t elem_bytes)
{
    return (fa2i_extent){.batch = batch,
                         .seq = 1,
                         .heads = 1,
                         .width = columns,
                         .pitch = columns,
                         .stride_batch = columns,
                         .elems = (int64_t)batch * columns,
                         .elem_bytes = elem_bytes};
}

void fa2i_case_window(fa2_problem *problem, int32_t left, int32_t right)
{
    const bool has_length = problem->window > FA2_WINDOW_SLIDING;
    problem->window_left = !problem->window ? 0 : has_length && left < 1 ? 37 : left;
    problem->window_right = !problem->window ? 0 : has_length ? -1 : right;
}

int32_t fa2i_case_columns(const fa2_problem *problem)
{
    return (int32_t)(((int64_t)problem->seq_k + fa2i_forward_page(problem) - 1) / fa2i_forward_page(problem));
}

int32_t fa2i_case_pages(const fa2_problem *problem)
{
    return problem->batch * fa2i_case_columns(problem) + 3;
}

int32_t fa2i_case_cache_rows(const fa2_problem *problem)
{
    return problem->batch + 2;
}

int32_t fa2i_case_new_keys(const fa2i_case *c)
{
    const fa2_problem *p = &c->problem;
    const int32_t wanted = c->lengths == FA2I_LENGTHS_WILD ? p->seq_q / 2 + 1 : p->seq_q;
    return wanted < p->seq_k ? wanted : p->seq_k;
}

int32_t fa2i_case_positions(const fa2_problem *problem)
{
    return problem->seq_k; /* the least possible */
}

bool fa2i_case_is_written(const fa2i_case *c, int operand)
{
    const fa2i_operand *o = operand_of(c, operand);
    return o->output || (o->changed_by > 0 && fa2i_field_get(&c->problem, o->changed_by) != 0);
}

bool fa2i_case_has_lse(const fa2i_case *c)
{
    return c->want_lse || fa2i_merges_lse(&c->problem);
}

bool fa2i_case_has_data(const fa2i_case *c, int operand)
{
    const fa2i_operand *o = operand_of(c, operand);
    const bool is_lse = o->shape == FA2I_SHAPE_STATISTICS;
    return !o->output || (o->merged && (c->problem.partial == FA2_PARTIAL_MERGE || (is_lse && c->problem.carry)));
}

/* Extent of the tables of cosines and sines. */
static fa2i_extent extent_of_angles(const fa2_problem *p)
{
    const int32_t pairs = p->rotary_dim / 2, rows = fa2i_case_positions(p);
    return (fa2i_extent){.batch = 1,
                         .seq = rows,
                         .heads = 1,
                         .width = pairs,
                         .pitch = pairs,
                         .stride_seq = pairs,
                         .elems = (int64_t)rows * pairs,
                         .elem_bytes = (size_t)fa2i_elem_bytes(p->dtype)};
}

/* Returns a problem without lengths whose tensors lie alike. Packed sequences become one batch. */
static fa2_problem tensors_of(const fa2_problem *problem)
{
    fa2_problem whole = *problem;
    if (problem->varlen) {
        whole.batch = 1;
        whole.seq_q = fa2i_forward_total_q(problem);
        whole.seq_k = fa2i_forward_total_k(problem);
    }
    return whole;
}

/* Extent of rows of queries or of keys. p: from tensors_of. line: of new keys and values, else NULL. */
static fa2i_extent extent_of_rows(const fa2i_case *c, const fa2i_operand *o, const fa2i_operand_line *line,
                                  const fa2_problem *p)
{
    const bool is_new = line != NULL;
    const bool of_keys = o->shape == FA2I_SHAPE_KEYS || o->shape == FA2I_SHAPE_VALUES;
    const bool of_values =
        o->shape == FA2I_SHAPE_OUTPUTS || o->shape == FA2I_SHAPE_VALUES || (is_new && line->shape[3] == FA2I_DIM_Dv);
    const int32_t columns = of_values ? fa2i_head_dim_v(p) : p->head_dim;
    const bool shared = c->layout == FA2I_LAYOUT_SHARED && of_keys && !o->output;
    const int32_t elem_bytes = o->output                      ? fa2i_out_bytes(p)
                               : o->shape == FA2I_SHAPE_PARTS ? (int32_t)sizeof(float)
                               : of_keys                      ? fa2i_key_bytes(p)
                                                              : fa2i_elem_bytes(p->dtype);
    const int64_t row = columns + (c->layout == FA2I_LAYOUT_GAPPED ? GAP_BYTES / elem_bytes : 0);
    const bool in_pages = of_keys && p->paged;
    fa2i_extent e = {.batch = in_pages                   ? fa2i_case_pages(&c->problem)
                              : of_keys && p->cache_rows ? fa2i_case_cache_rows(&c->problem)
                                                         : p->batch,
                     .seq = in_pages               ? fa2i_forward_page(p)
                            : of_keys              ? p->seq_k
                            : is_new && !p->varlen ? fa2i_case_new_keys(c)
                                                   : p->seq_q, /* packed: as many as queries */
                     .heads = of_keys || is_new ? p->heads_kv : p->heads_q,
                     .width = columns,
                     .pitch = row,
                     .elem_bytes = (size_t)elem_bytes};
    const int64_t plane = (int64_t)e.seq * e.heads * row;
    e.stride_batch = shared ? 0 : plane;
    e.elems = shared ? plane : e.batch * plane;
    if (c->layout == FA2I_LAYOUT_BHSD) {
        e.stride_seq = row;
        e.stride_head = e.seq * row;
    } else {
        e.stride_seq = e.heads * row;
        e.stride_head = row;
    }
    return e;
}

/* Forward's K or V, to which a line of scales belongs; -1: the line is another one. */
static int scaled_rows(int id)
{
    return id == FA2I_OPERAND_k_scale ? FA2I_FORWARD_K : id == FA2I_OPERAND_v_scale ? FA2I_FORWARD_V : -1;
}

int64_t fa2i_case_scales_pitch(const fa2i_case *c)
{
    return c->layout == FA2I_LAYOUT_GAPPED ? SCALES_GAP : 1;
}

/* Extent of the scales of rows of K or V, in the order of the rows in memory. */
static fa2i_extent extent_of_scales(const fa2i_case *c, int id)
{
    const fa2i_extent rows = fa2i_case_extent(c, scaled_rows(id));
    const int64_t pitch = fa2i_case_scales_pitch(c);
    fa2i_extent e = rows;
    e.width = 1;
    e.pitch = pitch;
    e.stride_batch = rows.stride_batch / rows.pitch * pitch;
    e.stride_seq = rows.stride_seq / rows.pitch * pitch;
    e.stride_head = rows.stride_head / rows.pitch * pitch;
    e.elems = rows.elems / rows.pitch * pitch;
    e.elem_bytes = fa2i_operand_elem_bytes(&c->problem, id);
    return e;
}

/* Extent of all partial results, from that of one. */
static fa2i_extent extent_of_parts(const fa2_problem *p, fa2i_extent e)
{
    e.batch *= p->seq_k;
    e.elems *= p->seq_k;
    return e;
}

/* Extent of O over other keys, which lies as O does. */
static fa2i_extent extent_of_carried(const fa2i_case *c, const fa2_problem *p)
{
    const fa2i_operand o = {.shape = FA2I_SHAPE_OUTPUTS};
    fa2i_extent e = extent_of_rows(c, &o, NULL, p);
    e.elem_bytes = sizeof(float);
    return e;
}

/* Extent of an operand of a feature. p: from tensors_of. */
static fa2i_extent extent_of_feature(const fa2i_case *c, const fa2i_operand *o, int id, const fa2_problem *p)
{
    const fa2i_operand_line *line = &fa2i_operands[id];
    const fa2_problem *whole = &c->problem;
    const size_t elem_bytes = fa2i_operand_elem_bytes(p, id);
    const bool in_host = line->elem == FA2I_ELEM_UINT64 && c->layout == FA2I_LAYOUT_BSHD; /* the call has values */
    if (!fa2i_operand_is_asked(p, id) || in_host)
        return (fa2i_extent){0};
    if (line->rank == FA2I_OPERAND_RANK && line->strides == line->rank)
        return extent_of_bias(c, elem_bytes, o->output && p->deterministic);
    if (id == FA2I_OPERAND_carried)
        return extent_of_carried(c, p);
    if (line->rank == FA2I_OPERAND_RANK)
        return extent_of_rows(c, o, line, p);
    if (line->shape[0] == FA2I_DIM_Kb)
        return extent_of_scales(c, id);
    switch (line->elem) {
    case FA2I_ELEM_FP32:
        return extent_of_heads(c, line->rank > 1);
    case FA2I_ELEM_INT32:
        return extent_of_numbers(line->shape[0] == FA2I_DIM_B1 ? whole->batch + 1 : whole->batch,
                                 line->rank > 1 ? fa2i_case_columns(whole) : 1, elem_bytes);
    case FA2I_ELEM_DTYPE:
        return extent_of_angles(p);
    case FA2I_ELEM_UINT64:
    case FA2I_ELEM_BIAS:
    case FA2I_ELEM_SCALE:
        break;
    }
    return extent_of_numbers(1, 1, elem_bytes);
}

fa2i_extent fa2i_case_extent(const fa2i_case *c, int operand)
{
    const fa2_problem tensors = tensors_of(&c->problem);
    const fa2i_operand *o = operand_of(c, operand);
    if (o->shape == FA2I_SHAPE_FEATURE)
        return extent_of_feature(c, o, operand - fa2i_case_feature(c, 0), &tensors);
    if ((o->optional && !fa2i_case_has_lse(c)) || (tensors.v_in_k && o->shape == FA2I_SHAPE_VALUES))
        return (fa2i_extent){0};
    if (o->shape == FA2I_SHAPE_STATISTICS)
        return extent_of_statistics(&tensors);
    if (o->shape == FA2I_SHAPE_PART_STATISTICS)
        return extent_of_parts(&tensors, extent_of_statistics(&tensors));
    const fa2i_extent rows = extent_of_rows(c, o, NULL, &tensors);
    return o->shape == FA2I_SHAPE_PARTS ? extent_of_parts(&tensors, rows) : rows;
}

size_t fa2i_case_operand_bytes(const fa2i_case *c, int operand)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    return (size_t)e.elems * e.elem_bytes;
}

int64_t fa2i_extent_at(const fa2i_extent *extent, int32_t batch, int32_t head, int32_t row)
{
    return batch * extent->stride_batch + head * extent->stride_head + row * extent->stride_seq;
}

fa2i_place fa2i_extent_place(const fa2i_extent *extent, fa2i_layout layout, int64_t index, int32_t *ret_column)
{
    const int64_t row = index / extent->pitch, rows = (int64_t)extent->seq * extent->heads;
    *ret_column = (int32_t)(index % extent->pitch);
    fa2i_place place = {.batch = (int32_t)(row / rows)};
    if (layout == FA2I_LAYOUT_BHSD) {
        place.head = (int32_t)(row / extent->seq % extent->heads);
        place.row = (int32_t)(row % extent->seq);
    } else {
        place.head = (int32_t)(row % extent->heads);
        place.row = (int32_t)(row / extent->heads % extent->seq);
    }
    return place;
}

/* Elements of a block without a pattern: an odd number of rows. */
static int64_t block_elems(const fa2i_extent *e)
{
    return e->pitch < BLOCK_ELEMS ? ((BLOCK_ELEMS / e->pitch - 1) | 1) * e->pitch : e->pitch;
}

size_t fa2i_case_period(const fa2i_case *c, int operand)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const fa2i_operand *o = operand_of(c, operand);
    const bool is_integers =
        o->shape == FA2I_SHAPE_FEATURE && fa2i_operands[operand - fa2i_case_feature(c, 0)].elem == FA2I_ELEM_INT32;
    const int rows = o->shape == FA2I_SHAPE_FEATURE ? scaled_rows(operand - fa2i_case_feature(c, 0)) : -1;
    if (rows >= 0 && e.elems > 0)
        return fa2i_case_period(c, rows) / (size_t)fa2i_case_extent(c, rows).pitch * (size_t)fa2i_case_scales_pitch(c);
    const bool is_placed = c->pattern != FA2I_PATTERN_NONE && !fa2i_pattern_is_numbers(c->pattern);
    const bool is_merged = o->merged || operand == fa2i_case_feature(c, FA2I_OPERAND_carried);
    const bool whole = is_integers || (is_placed && o->patterned) || (is_merged && !c->timed);
    if (whole || e.elems == 0)
        return (size_t)e.elems;
    const int64_t block = block_elems(&e);
    return (size_t)(e.elems < block ? e.elems : block);
}

void fa2i_case_fill_normal(const fa2i_case *c, int operand, float magnitude, size_t count, void *out)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const size_t block = (size_t)block_elems(&e);
    uint64_t state = c->seed + (uint64_t)operand * 0x632be59bd9b4e019u;
    for (size_t i = 0; i < count && i < block; i++)
        fa2i_put_number(c->problem.dtype, out, i, fa2i_random_normal(&state) * magnitude);
    for (size_t i = block; i < count; i++)
        fa2i_put_number(c->problem.dtype, out, i, fa2i_get_number(c->problem.dtype, out, i - block));
}

void fa2i_case_fill_fp32(const fa2i_case *c, int operand, size_t count, float *out)
{
    uint64_t state = c->seed + (uint64_t)operand * 0x632be59bd9b4e019u;
    for (size_t i = 0; i < count; i++)
        out[i] = fa2i_random_normal(&state);
}

fa2_status fa2i_case_fill(const fa2i_case *c, int operand, void *out)
{
    return operand_of(c, operand)->fill(c, operand, fa2i_case_period(c, operand), out);
}

/* Says whether all extents can be counted: elements in 64 bits, pages and the batch's bounds in 32. Includes room for
 * gaps, and for unused pages and cache rows. */
static bool can_be_counted(const fa2_problem *p)
{
    const double batch = (double)p->batch + 3, page = fa2i_forward_page(p);
    const double keys = (double)p->seq_k + page, rows = p->seq_q > keys ? p->seq_q : keys;
    const double of_rows = batch * rows * p->heads_q * (p->head_dim + GAP_BYTES);
    const double of_bias = batch * (p->heads_q + HEADS_GAP) * rows * (keys + GAP_BYTES);
    const double pages = p->paged ? batch * keys / page : batch;
    if (p->op == FA2_OP_MERGE && (of_rows * keys >= 0x1p60 || batch * keys >= INT32_MAX))
        return false;
    return of_rows < 0x1p60 && (p->bias == FA2_BIAS_NONE || of_bias < 0x1p60) && pages < INT32_MAX;
}

size_t fa2i_case_bytes(const fa2i_case *c)
{
    const fa2i_judge *judge = fa2i_judge_of(c->problem.op);
    size_t bytes = 0;
    if (!can_be_counted(&c->problem))
        return SIZE_MAX;
    for (int i = 0; i < judge->operand_count; i++) {
        const size_t operand_bytes = fa2i_case_operand_bytes(c, i);
        bytes += operand_bytes;
        if (operand_bytes > 0 && fa2i_case_is_written(c, i))
            bytes += 2 * (size_t)FA2I_GUARD_BYTES;
    }
    return bytes;
}

fa2i_host_tensor fa2i_case_host_tensor(const fa2i_case *c, const fa2i_inputs *inputs, int operand)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    return (fa2i_host_tensor){.data = inputs->data[operand],
                              .stride_batch = e.stride_batch,
                              .stride_seq = e.stride_seq,
                              .stride_head = e.stride_head,
                              .period_elems = (int64_t)inputs->period[operand]};
}

fa2_tensor fa2i_case_tensor(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX], int operand)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    return (fa2_tensor){.data = (void *)(uintptr_t)addresses[operand],
                        .stride_batch = e.stride_batch,
                        .stride_seq = e.stride_seq,
                        .stride_head = e.stride_head};
}
